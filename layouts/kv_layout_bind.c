/* Binding: a declared layout meets a geometry and gets its sizes, or does not exist there. */
#include "layouts/kv_layout.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool kv_axes_has(const kv_axes *a, kv_factor f)
{
    for (int i = 0; i < a->n; i++)
        if (a->f[i] == f) return true;
    return false;
}

kv_elem kv_layout_element(const kv_layout *l, const kv_geometry *g)
{
    return l->element_same ? g->element : l->element;
}

int64_t kv_pair_unit_layers(const kv_layout *src, const kv_layout *dst, const kv_geometry *g)
{
    return kv_axes_has(&src->axes[0], KV_F_L) || kv_axes_has(&dst->axes[0], KV_F_L) ? g->layers : 1;
}

bool kv_layout_heads(const kv_layout *l, const kv_geometry *g, int64_t *first, int64_t *count,
                     char reason[KV_REASON_TEXT])
{
    const int64_t H = g->kv_heads, size = l->tp_size, rank = l->tp_rank;
    if (l->store == KV_STORE_LATENT) { /* a latent row is copied to every rank, never split */
        *first = 0;
        *count = H;
    } else if (H % size == 0) {
        *count = H / size;
        *first = rank * *count;
    } else if (size > H && size % H == 0) {
        *count = 1;
        *first = (int64_t)((__int128)rank * H / size);
    } else {
        snprintf(reason, KV_REASON_TEXT,
                 "%s: a tensor-parallel size of %" PRId64 " neither divides %" PRId64
                 " kv heads nor is a multiple of them, so the shard of rank %" PRId64 " does not exist",
                 l->name, size, H, rank);
        return false;
    }
    return true;
}

/* What binding works on. */
typedef struct {
    const kv_layout *l;
    const kv_geometry *g;
    kv_index *ix;
    char *reason;
    bool exists;   /* false once a size does not fit: reason says why */
    bool overflow; /* a product does not fit 64 bits */
} binder;

static void no_shape(binder *b, const char *fmt, ...) KV_PRINTF(2, 3);

static void no_shape(binder *b, const char *fmt, ...)
{
    if (!b->exists) return; /* the first cause stays */
    b->exists = false;
    int used = snprintf(b->reason, KV_REASON_TEXT, "%s: ", b->l->name);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b->reason + used, (size_t)(KV_REASON_TEXT - used), fmt, ap);
    va_end(ap);
}

static int64_t times(binder *b, int64_t x, int64_t y)
{
    int64_t r = 0;
    if (!kv_mul_i64(x, y, &r)) b->overflow = true;
    return r;
}

static int64_t plus(binder *b, int64_t x, int64_t y)
{
    int64_t r = 0;
    if (!kv_add_i64(x, y, &r)) b->overflow = true;
    return r;
}

/* Allocated extent of factor f in half `half`. */
static int64_t factor_size(binder *b, kv_factor f, int half)
{
    const kv_layout *l = b->l;
    const kv_index *ix = b->ix;
    const int64_t lanes = ix->lanes[half];
    switch (f) {
    case KV_F_L: return ix->layers;
    case KV_F_KV: return 2;
    case KV_F_T: return ix->tokens;
    case KV_F_TB: return ix->tokens / ix->block + (ix->tokens % ix->block != 0);
    case KV_F_TI: return ix->block;
    case KV_F_TG: return ix->block / ix->tx;
    case KV_F_TX: return ix->tx;
    case KV_F_H: return ix->heads;
    case KV_F_D:
    case KV_F_C:
        if (l->row_lanes > 0 && l->row_lanes < lanes)
            no_shape(b, "row_lanes %" PRId64 " is less than the row of %" PRId64 " lanes", l->row_lanes, lanes);
        return l->row_lanes > 0 ? l->row_lanes : lanes;
    case KV_F_DG: return lanes / ix->x;
    case KV_F_DX: return ix->x;
    case KV_F_COUNT: break;
    }
    return 0;
}

static void bind_x(binder *b)
{
    const kv_layout *l = b->l;
    kv_index *ix = b->ix;
    const int64_t bytes = kv_elem_bytes((kv_elem)ix->element);
    ix->x = 1;
    if (l->x == 0 && l->x_bytes == 0) return;
    if (l->x_bytes % bytes != 0)
        no_shape(b, "x_bytes %" PRId64 " is no multiple of the %" PRId64 "-byte element", l->x_bytes, bytes);
    ix->x = l->x > 0 ? l->x : l->x_bytes / bytes;
    if (ix->x < 1) ix->x = 1;
    for (int half = 0; half < 2; half++)
        if (kv_axes_has(&l->axes[half], KV_F_DX) && ix->lanes[half] % ix->x != 0)
            no_shape(b, "x %" PRId64 " does not divide head_dim%s %" PRId64, ix->x,
                     half == 1 && b->g->head_dim_v != b->g->head_dim ? "_v" : "", ix->lanes[half]);
}

static void bind_page(binder *b, kv_order *o)
{
    o->page_span = o->page_payload;
    if (b->l->page_stride_bytes == 0 || o->cut == 0) return; /* a half without Tb has no pages */
    const int64_t bytes = kv_elem_bytes((kv_elem)b->ix->element);
    if (b->l->page_stride_bytes % bytes != 0)
        no_shape(b, "page_stride_bytes %" PRId64 " is no multiple of the %" PRId64 "-byte element",
                 b->l->page_stride_bytes, bytes);
    o->page_span = b->l->page_stride_bytes / bytes;
    if (o->page_span < o->page_payload) {
        no_shape(b, "page_stride_bytes %" PRId64 " is less than a page's payload of %" PRId64 " bytes",
                 b->l->page_stride_bytes, times(b, o->page_payload, bytes));
        o->page_span = o->page_payload;
    }
}

/* Fills the factor order of one half; returns the positions of its array. */
static int64_t bind_half(binder *b, int half)
{
    const kv_axes *a = &b->l->axes[half];
    kv_order *o = &b->ix->half[half];
    int64_t pages = 1;
    o->n = a->n;
    o->cut = 0;
    for (int i = 0; i < a->n; i++)
        if (a->f[i] == KV_F_TB) o->cut = i + 1;
    o->page_payload = 1;
    for (int i = 0; i < a->n; i++) {
        o->kind[i] = (int32_t)a->f[i];
        o->size[i] = factor_size(b, a->f[i], half);
        if (i < o->cut)
            pages = times(b, pages, o->size[i]);
        else
            o->page_payload = times(b, o->page_payload, o->size[i]);
    }
    bind_page(b, o);
    return times(b, pages, o->page_span);
}

/* Positions from KV digit 0 to 1 (interleaved), counted inside the page if the factor is inside it. */
static void bind_kv_span(binder *b)
{
    kv_index *ix = b->ix;
    const kv_order *o = &ix->half[0];
    int at = 0;
    while (o->kind[at] != KV_F_KV) at++;
    ix->kv_inner = at >= o->cut;
    ix->kv_span = ix->kv_inner ? 1 : o->page_span;
    const int end = ix->kv_inner ? o->n : o->cut;
    for (int i = at + 1; i < end; i++) ix->kv_span = times(b, ix->kv_span, o->size[i]);
}

static void bind_widths(binder *b)
{
    const kv_geometry *g = b->g;
    kv_index *ix = b->ix;
    ix->lanes[0] = g->head_dim;
    ix->lanes[1] = b->l->store == KV_STORE_LATENT ? 0 : g->head_dim_v;
    if (b->l->store == KV_STORE_INTERLEAVED && g->head_dim != g->head_dim_v)
        no_shape(b, "one array holds K and V, but K rows are %" PRId64 " wide and V rows %" PRId64, g->head_dim,
                 g->head_dim_v);
    if (b->l->store == KV_STORE_LATENT && (g->kv_heads != 1 || g->head_dim != g->head_dim_v))
        no_shape(b,
                 "a latent row has one kv head and one width, the geometry has %" PRId64 " kv heads, head_dim %" PRId64
                 " and head_dim_v %" PRId64,
                 g->kv_heads, g->head_dim, g->head_dim_v);
}

/* Sizes of the arrays and of the whole unit. */
static void bind_totals(binder *b)
{
    const kv_layout *l = b->l;
    kv_index *ix = b->ix;
    int64_t one_layer = bind_half(b, 0);
    if (ix->halves == 2) {
        int64_t v_array = bind_half(b, 1);
        if (ix->separate) {
            ix->half_base[1] = one_layer;
            one_layer = plus(b, one_layer, v_array);
        } else {
            bind_kv_span(b);
        }
    }
    ix->layer_span = one_layer;
    ix->native = ix->has_layer ? one_layer : times(b, one_layer, ix->layers);
    if (l->store == KV_STORE_LATENT) ix->heads = 1;
    const int64_t rows = times(b, times(b, ix->layers, ix->tokens), ix->heads);
    ix->elements = times(b, rows, ix->lanes[0] + ix->lanes[1]);
    (void)times(b, ix->native, kv_elem_bytes((kv_elem)ix->element)); /* bytes must fit too */
}

kv_rc kv_layout_bind(const kv_layout *l, const kv_geometry *g, int64_t unit_layers, kv_index *out, kv_bind_state *state,
                     char reason[KV_REASON_TEXT], kv_err *err)
{
    kv_index ix;
    memset(&ix, 0, sizeof ix); /* padding too: the struct is compared and copied as bytes */
    reason[0] = '\0';
    if (!kv_layout_heads(l, g, &ix.first_head, &ix.heads, reason)) {
        *state = KV_BIND_NO_SHARD;
        return KV_OK;
    }
    binder b = {l, g, &ix, reason, true, false};
    ix.layers = unit_layers;
    ix.tokens = g->tokens;
    ix.block = l->block > 0 ? l->block : 1;
    ix.tx = l->tx > 0 ? l->tx : 1;
    ix.halves = l->store == KV_STORE_LATENT ? 1 : 2;
    ix.separate = l->store == KV_STORE_SEPARATE;
    ix.has_layer = kv_axes_has(&l->axes[0], KV_F_L);
    ix.element = (int32_t)kv_layout_element(l, g);
    bind_widths(&b);
    bind_x(&b);
    if (b.exists) bind_totals(&b);
    if (b.overflow) {
        char text[KV_GEOMETRY_TEXT];
        kv_geometry_print(g, text);
        return KV_FAIL(err, KV_EINVAL, "layout %s at geometry %s: the size does not fit 64 bits", l->name, text);
    }
    *state = b.exists ? KV_BIND_OK : KV_BIND_NO_SHAPE;
    if (b.exists) kv_index_prepare(&ix);
    if (b.exists) *out = ix;
    return KV_OK;
}

/* ---- comparing images by their maps, axis by axis ---------------------------------------- */
/* A position is a sum of one term for each canonical axis, so two maps are equal everywhere when they
 * are equal along each axis from the origin of each half. */

static int64_t at(const kv_index *ix, int64_t layer, int64_t kv, int64_t token, int64_t head, int64_t lane)
{
    kv_coord c = {layer, kv, token, head, lane};
    return kv_index_forward(ix, &c);
}

bool kv_index_same_image(const kv_index *a, const kv_index *b)
{
    if (a->element != b->element || a->native != b->native || a->elements != b->elements || a->halves != b->halves)
        return false;
    if (a->elements == 0) return true;
    for (int64_t kv = 0; kv < a->halves; kv++) {
        for (int64_t i = 0; i < a->layers; i++)
            if (at(a, i, kv, 0, 0, 0) != at(b, i, kv, 0, 0, 0)) return false;
        for (int64_t i = 0; i < a->tokens; i++)
            if (at(a, 0, kv, i, 0, 0) != at(b, 0, kv, i, 0, 0)) return false;
        for (int64_t i = 0; i < a->heads; i++)
            if (at(a, 0, kv, 0, i, 0) != at(b, 0, kv, 0, i, 0)) return false;
        for (int64_t i = 0; i < a->lanes[kv]; i++)
            if (at(a, 0, kv, 0, 0, i) != at(b, 0, kv, 0, 0, i)) return false;
    }
    return true;
}

/* Along an axis a position is a sum of digit * stride, where the digits are those of the place in the radices of the blocks
 * and groups that split the axis. It is place * stride of the canonical tensor for all places where it is that for the
 * first place of each digit: 1, and the sizes of groups and blocks. Nothing is walked: there may be 2^40 tokens. */
bool kv_index_is_identity(const kv_index *ix)
{
    if (ix->native != ix->elements) return false;
    if (ix->elements == 0) return true;
    for (int64_t kv = 0; kv < ix->halves; kv++) {
        const struct {
            int axis;
            int64_t first, extent; /* the place where a digit is 1 and those below are 0; places of the axis */
        } digit[] = {{0, 0, 1},
                     {0, 1, ix->layers},
                     {1, 1, ix->tokens},
                     {1, ix->tx, ix->tokens},
                     {1, ix->block, ix->tokens},
                     {2, 1, ix->heads},
                     {3, 1, ix->lanes[kv]},
                     {3, ix->x, ix->lanes[kv]}};
        for (size_t d = 0; d < sizeof digit / sizeof digit[0]; d++) {
            const int64_t i = digit[d].first;
            const int axis = digit[d].axis;
            if (i >= digit[d].extent) continue;
            const kv_coord c = {axis == 0 ? i : 0, kv, axis == 1 ? i : 0, axis == 2 ? i : 0, axis == 3 ? i : 0};
            if (kv_index_forward(ix, &c) != kv_index_canonical(ix, &c)) return false;
        }
    }
    return true;
}
