/* Sizes and maps of a layout at a geometry, from its declared axes alone. Arithmetic saturates, so that
 * no declaration can overflow it; what saturates is too large to be said in a document. */
#include "certs/kv_verify_int.h"

#include <string.h>

static int64_t times(int64_t a, int64_t b)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return INT64_MAX;
    return r;
}

static int64_t plus(int64_t a, int64_t b)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) return INT64_MAX;
    return r;
}

kv_vf_element kv_vf_bound_element(const kv_vf_layout *l, const kv_vf_geometry *g)
{
    return l->element_same ? g->element : l->element;
}

int64_t kv_vf_bound_x(const kv_vf_layout *l, const kv_vf_geometry *g)
{
    return l->x > 0 ? l->x : l->x_bytes / kv_vf_element_bytes(kv_vf_bound_element(l, g));
}

int64_t kv_vf_unit_layers(const kv_vf_layout *a, const kv_vf_layout *b, const kv_vf_geometry *g)
{
    return kv_vf_layout_has(a, KV_VF_L) || kv_vf_layout_has(b, KV_VF_L) ? g->layers : 1;
}

static bool bind_heads(const kv_vf_layout *l, const kv_vf_geometry *g, kv_vf_bound *b)
{
    b->first_head = 0;
    b->heads = g->heads;
    if (l->store == KV_VF_LATENT) return true; /* a latent row is copied to every rank */
    if (g->heads % l->tp_size == 0) {
        b->heads = g->heads / l->tp_size;
        b->first_head = l->tp_rank * b->heads;
        return true;
    }
    if (l->tp_size % g->heads != 0) return false;
    b->heads = 1;
    b->first_head = l->tp_rank / (l->tp_size / g->heads); /* rank * H / size, as size is a multiple of H */
    return true;
}

/* Row width of K (0) or V (1). */
static int64_t width(const kv_vf_geometry *g, int half)
{
    return half == 0 ? g->dim : g->dim_v;
}

static int64_t axis_size(const kv_vf_layout *l, const kv_vf_geometry *g, const kv_vf_bound *b, int half, kv_vf_axis a)
{
    const int64_t x = kv_vf_bound_x(l, g);
    switch (a) {
    case KV_VF_L: return b->unit_layers;
    case KV_VF_KV: return 2;
    case KV_VF_T: return g->tokens;
    case KV_VF_TB: return g->tokens / l->block + (g->tokens % l->block > 0 ? 1 : 0);
    case KV_VF_TI: return l->block;
    case KV_VF_TG: return l->block / l->tx;
    case KV_VF_TX: return l->tx;
    case KV_VF_H: return b->heads;
    case KV_VF_D:
    case KV_VF_C: return l->row_lanes > 0 ? l->row_lanes : width(g, half);
    case KV_VF_DG: return width(g, half) / x;
    case KV_VF_DX: return x;
    case KV_VF_AXIS_COUNT: break;
    }
    return 0;
}

/* Whether the declared sizes fit the geometry, pages aside. */
static bool shape_fits(const kv_vf_layout *l, const kv_vf_geometry *g)
{
    const int64_t bytes = kv_vf_element_bytes(kv_vf_bound_element(l, g)), x = kv_vf_bound_x(l, g);
    if (l->store == KV_VF_INTERLEAVED && g->dim != g->dim_v) return false;
    if (l->store == KV_VF_LATENT && (g->heads != 1 || g->dim != g->dim_v)) return false;
    if (l->x_bytes % bytes != 0 || l->page_stride_bytes % bytes != 0) return false;
    for (int half = 0; half < 2; half++) {
        if (kv_vf_has(&l->half[half], KV_VF_DX) && width(g, half) % x != 0) return false;
        if (l->row_lanes > 0 && l->half[half].n > 0 && l->row_lanes < width(g, half)) return false;
    }
    return true;
}

/* Strides of one array's factors; its positions in *array. False where a page exceeds its stride. */
static bool bind_strides(const kv_vf_layout *l, const kv_vf_bound *b, int half, int64_t stride[KV_VF_AXES_MAX],
                         int64_t *array)
{
    const kv_vf_axes *axes = &l->half[half];
    int64_t span = 1;
    for (int i = axes->n - 1; i >= 0; i--) {
        if (axes->a[i] == KV_VF_TB && l->page_stride_bytes > 0) {
            const int64_t page = l->page_stride_bytes / kv_vf_element_bytes(b->element);
            if (page < span) return false;
            span = page;
        }
        stride[i] = span;
        span = times(span, b->size[half][i]);
    }
    *array = span;
    return true;
}

static void add_digit(kv_vf_digits *d, int64_t weight, int64_t stride)
{
    d->weight[d->n] = weight;
    d->stride[d->n++] = stride;
}

/* Brings digits (innermost first) to the one form that the function on [0, extent) has. */
static void normalise(kv_vf_digits *d, int64_t extent)
{
    kv_vf_digits out = {0};
    for (int i = 0; i < d->n; i++) {
        if (d->weight[i] >= extent) continue;                           /* always 0 */
        if (i + 1 < d->n && d->weight[i + 1] == d->weight[i]) continue; /* counts to 1 */
        if (out.n > 0 && d->stride[i] == times(out.stride[out.n - 1], d->weight[i] / out.weight[out.n - 1]))
            continue; /* goes on as the digit before */
        add_digit(&out, d->weight[i], d->stride[i]);
    }
    *d = out;
}

static void bind_map(const kv_vf_layout *l, const kv_vf_geometry *g, const kv_vf_bound *b, int half,
                     const int64_t stride[KV_VF_AXES_MAX], kv_vf_map *m)
{
    const kv_vf_axes *axes = &l->half[half];
    /* innermost digit first, whatever the order of the factors in memory */
    static const kv_vf_axis order[] = {KV_VF_L,  KV_VF_KV, KV_VF_T, KV_VF_TX, KV_VF_TI, KV_VF_TG,
                                       KV_VF_TB, KV_VF_H,  KV_VF_D, KV_VF_C,  KV_VF_DX, KV_VF_DG};
    for (size_t o = 0; o < sizeof order / sizeof *order; o++) {
        int i = 0;
        while (i < axes->n && axes->a[i] != order[o]) i++;
        if (i == axes->n) continue;
        switch (order[o]) {
        case KV_VF_L: add_digit(&m->l, 1, stride[i]); break;
        case KV_VF_KV: m->base = half == 1 ? stride[i] : 0; break;
        case KV_VF_T:
        case KV_VF_TI:
        case KV_VF_TX: add_digit(&m->t, 1, stride[i]); break;
        case KV_VF_TG: add_digit(&m->t, l->tx, stride[i]); break;
        case KV_VF_TB: add_digit(&m->t, l->block, stride[i]); break;
        case KV_VF_H: add_digit(&m->h, 1, stride[i]); break;
        case KV_VF_D:
        case KV_VF_C:
        case KV_VF_DX: add_digit(&m->d, 1, stride[i]); break;
        case KV_VF_DG: add_digit(&m->d, kv_vf_bound_x(l, g), stride[i]); break;
        case KV_VF_AXIS_COUNT: break;
        }
    }
    normalise(&m->t, g->tokens);
    normalise(&m->h, b->heads);
    normalise(&m->d, width(g, half));
}

/* Everything is below what a document can say, in bytes and over all layers. */
static bool sayable(const kv_vf_geometry *g, const kv_vf_bound *b)
{
    const int64_t units = g->layers / b->unit_layers;
    return times(times(b->native, 4), units) < KV_VF_TOO_LARGE && times(times(b->elements, 4), units) < KV_VF_TOO_LARGE;
}

static void bind_arrays(const kv_vf_layout *l, const kv_vf_geometry *g, kv_vf_bound *b)
{
    int64_t stride[2][KV_VF_AXES_MAX], array[2] = {0, 0};
    const int halves = l->store == KV_VF_LATENT ? 1 : 2;
    for (int half = 0; half < halves; half++) {
        for (int i = 0; i < l->half[half].n; i++) b->size[half][i] = axis_size(l, g, b, half, l->half[half].a[i]);
        if (!bind_strides(l, b, half, stride[half], &array[half])) {
            b->exists = false;
            return;
        }
        bind_map(l, g, b, half, stride[half], &b->map[half]);
    }
    if (l->store == KV_VF_SEPARATE) b->map[1].base = array[0];
    b->native = l->store == KV_VF_SEPARATE ? plus(array[0], array[1]) : array[0];
    if (!kv_vf_layout_has(l, KV_VF_L)) { /* one array, or pair of arrays, a layer */
        for (int half = 0; half < halves; half++) add_digit(&b->map[half].l, 1, b->native);
        b->native = times(b->native, b->unit_layers);
    }
    for (int half = 0; half < halves; half++) normalise(&b->map[half].l, b->unit_layers);
    const int64_t rows = times(times(b->unit_layers, g->tokens), l->store == KV_VF_LATENT ? 1 : b->heads);
    b->elements = times(rows, l->store == KV_VF_LATENT ? g->dim : plus(g->dim, g->dim_v));
    b->too_large = !sayable(g, b);
}

void kv_vf_bind(const kv_vf_layout *l, const kv_vf_geometry *g, int64_t unit_layers, kv_vf_bound *out)
{
    memset(out, 0, sizeof *out);
    out->unit_layers = unit_layers;
    out->element = kv_vf_bound_element(l, g);
    out->shard = bind_heads(l, g, out);
    out->exists = out->shard && shape_fits(l, g);
    if (out->exists) bind_arrays(l, g, out);
}

static bool same_digits(const kv_vf_digits *a, const kv_vf_digits *b)
{
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (a->weight[i] != b->weight[i] || a->stride[i] != b->stride[i]) return false;
    return true;
}

static bool same_map(const kv_vf_map *a, const kv_vf_map *b)
{
    return a->base == b->base && same_digits(&a->l, &b->l) && same_digits(&a->t, &b->t) && same_digits(&a->h, &b->h) &&
           same_digits(&a->d, &b->d);
}

bool kv_vf_same_image(const kv_vf_bound *a, const kv_vf_bound *b, const kv_vf_geometry *g)
{
    if (a->element != b->element || a->native != b->native) return false;
    if (g->tokens == 0) return true;
    return same_map(&a->map[0], &b->map[0]) && same_map(&a->map[1], &b->map[1]);
}

bool kv_vf_is_identity(const kv_vf_layout *l, const kv_vf_geometry *g, const kv_vf_bound *own)
{
    if (own->element != g->element || own->native != own->elements) return false;
    if (g->tokens == 0) return true;
    const int halves = l->store == KV_VF_LATENT ? 1 : 2;
    const int64_t heads = l->store == KV_VF_LATENT ? 1 : own->heads, rows = g->tokens * heads;
    for (int half = 0; half < halves; half++) {
        kv_vf_map m = {0}; /* of the canonical tensor [L][KV][T][H][D] */
        m.base = half == 0 ? 0 : rows * g->dim;
        add_digit(&m.l, 1, rows * (halves == 2 ? g->dim + g->dim_v : g->dim));
        add_digit(&m.t, 1, heads * width(g, half));
        add_digit(&m.h, 1, width(g, half));
        add_digit(&m.d, 1, 1);
        normalise(&m.l, own->unit_layers);
        normalise(&m.t, g->tokens);
        normalise(&m.h, own->heads);
        normalise(&m.d, width(g, half));
        if (!same_map(&m, &own->map[half])) return false;
    }
    return true;
}
