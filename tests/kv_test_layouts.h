/* Random layout descriptors of the general form, and a second implementation of what they mean: an
 * enumeration of the native positions in storage order, without strides, Horner steps or division. */
#ifndef KV_TEST_LAYOUTS_H
#define KV_TEST_LAYOUTS_H

#include "tests/kv_test.h"

/* ---- the map of an image, by enumeration -------------------------------------------------- */

/* For each native position the number of its element in [layers][KV][tokens][heads][lanes], -1 for padding. */
typedef struct {
    int64_t n;
    int64_t *at;
    int64_t elements;
} kvt_map;

typedef struct {
    const kv_layout *l;
    const kv_geometry *g;
    int64_t unit, heads, bytes, x;
    int64_t digit[KV_F_COUNT];
    kvt_map *out;
    bool count_only;
} kvt_enum;

static inline int64_t kvt_width(const kvt_enum *e, int kv)
{
    if (e->l->store == KV_STORE_LATENT) return kv == 0 ? e->g->head_dim : 0;
    return kv == 0 ? e->g->head_dim : e->g->head_dim_v;
}

static inline int64_t kvt_extent(const kvt_enum *e, kv_factor f, int kv)
{
    const kv_layout *l = e->l;
    switch (f) {
    case KV_F_L: return e->unit;
    case KV_F_KV: return 2;
    case KV_F_T: return e->g->tokens;
    case KV_F_TB: return (e->g->tokens + l->block - 1) / l->block;
    case KV_F_TI: return l->block;
    case KV_F_TG: return l->block / l->tx;
    case KV_F_TX: return l->tx;
    case KV_F_H: return e->heads;
    case KV_F_D:
    case KV_F_C: return l->row_lanes > 0 ? l->row_lanes : kvt_width(e, kv);
    case KV_F_DG: return kvt_width(e, kv) / e->x;
    case KV_F_DX: return e->x;
    case KV_F_COUNT: break;
    }
    return 0;
}

static inline void kvt_emit(kvt_enum *e, int kv, bool padding)
{
    const int64_t *d = e->digit, T = e->g->tokens, H = e->heads, wk = kvt_width(e, 0), wv = kvt_width(e, 1);
    const int64_t block = e->l->block, tx = e->l->tx;
    const int64_t token = d[KV_F_T] + d[KV_F_TB] * block + d[KV_F_TI] + d[KV_F_TG] * tx + d[KV_F_TX];
    const int64_t lane = d[KV_F_D] + d[KV_F_C] + d[KV_F_DG] * e->x + d[KV_F_DX], w = kv == 0 ? wk : wv;
    int64_t number = -1;
    if (!padding && token < T && lane < w)
        number = ((d[KV_F_L] * T * H * (wk + wv)) + (kv == 1 ? T * H * wk : 0)) + (token * H + d[KV_F_H]) * w + lane;
    if (!e->count_only) e->out->at[e->out->n] = number;
    e->out->n++;
}

/* Factors i, i + 1, ... of half kv; the KV factor decides which half's list goes on. */
static inline void kvt_walk(kvt_enum *e, int i, int kv)
{
    const kv_axes *a = &e->l->axes[kv];
    if (i == a->n) {
        kvt_emit(e, kv, false);
        return;
    }
    const kv_factor f = a->f[i];
    const int64_t extent = kvt_extent(e, f, kv);
    for (int64_t v = 0; v < extent; v++) {
        const int64_t start = e->out->n;
        e->digit[f] = v;
        kvt_walk(e, i + 1, f == KV_F_KV ? (int)v : kv);
        if (f == KV_F_TB && e->l->page_stride_bytes > 0)
            while ((e->out->n - start) * e->bytes < e->l->page_stride_bytes) kvt_emit(e, kv, true);
    }
    e->digit[f] = 0;
}

static inline void kvt_walk_all(kvt_enum *e)
{
    const bool layered = kv_axes_has(&e->l->axes[0], KV_F_L);
    e->out->n = 0;
    for (int64_t layer = 0; layer < (layered ? 1 : e->unit); layer++) {
        e->digit[KV_F_L] = layer;
        kvt_walk(e, 0, 0);
        e->digit[KV_F_L] = layer;
        if (e->l->store == KV_STORE_SEPARATE) kvt_walk(e, 0, 1);
    }
}

/* The layout must exist at g. Free with kvt_map_free. */
static inline kvt_map kvt_map_new(const kv_layout *l, const kv_geometry *g, int64_t unit)
{
    kvt_map m = {0};
    kvt_enum e = {.l = l, .g = g, .unit = unit, .out = &m, .count_only = true};
    e.heads = l->store == KV_STORE_LATENT ? 1 : g->kv_heads % l->tp_size == 0 ? g->kv_heads / l->tp_size : 1;
    e.bytes = kv_elem_bytes(l->element_same ? g->element : l->element);
    e.x = l->x > 0 ? l->x : l->x_bytes > 0 ? l->x_bytes / e.bytes : 1;
    kvt_walk_all(&e);
    m.at = kvt_take(m.n, sizeof *m.at);
    e.count_only = false;
    kvt_walk_all(&e);
    m.elements = unit * g->tokens * e.heads * (kvt_width(&e, 0) + kvt_width(&e, 1));
    return m;
}

static inline void kvt_map_free(kvt_map *m)
{
    free(m->at);
}

/* Place of canonical number n of an image bound as ix. */
static inline kv_coord kvt_place(const kv_index *ix, int64_t n)
{
    const int64_t rows = ix->tokens * ix->heads, layer = rows * (ix->lanes[0] + ix->lanes[1]);
    kv_coord c = {.layer = n / layer};
    n %= layer;
    c.kv = n >= rows * ix->lanes[0];
    if (c.kv) n -= rows * ix->lanes[0];
    c.lane = n % ix->lanes[c.kv];
    n /= ix->lanes[c.kv];
    c.head = n % ix->heads;
    c.token = n / ix->heads;
    return c;
}

/* ---- random descriptors -------------------------------------------------------------------- */

typedef struct {
    kv_store store;
    kv_axes axes[2];
    int64_t block, tx, x, x_bytes, page_stride_bytes, row_lanes;
    int element; /* -1: as the geometry */
    int64_t tp_size, tp_rank;
} kvt_desc;

#define KVT_TEXT 512

static inline void kvt_desc_text(const kvt_desc *d, const char *name, char out[KVT_TEXT])
{
    static const char *const stores[] = {"sep", "int", "lat"};
    const struct {
        const char *key;
        int64_t v;
    } sizes[] = {{"block", d->block},
                 {"tx", d->tx},
                 {"x", d->x},
                 {"x_bytes", d->x_bytes},
                 {"page_stride_bytes", d->page_stride_bytes},
                 {"row_lanes", d->row_lanes}};
    int n = snprintf(out, KVT_TEXT, "%s %s", name, stores[d->store]);
    for (int half = 0; half < (d->store == KV_STORE_LATENT ? 1 : 2); half++)
        for (int i = 0; i < d->axes[half].n; i++)
            n += snprintf(out + n, (size_t)(KVT_TEXT - n), "%s%s",
                          i > 0       ? "."
                          : half == 0 ? " k="
                                      : " v=",
                          kv_factor_name(d->axes[half].f[i]));
    for (size_t i = 0; i < KVT_COUNT(sizes); i++)
        if (sizes[i].v > 0) n += snprintf(out + n, (size_t)(KVT_TEXT - n), " %s=%" PRId64, sizes[i].key, sizes[i].v);
    if (d->element >= 0) n += snprintf(out + n, (size_t)(KVT_TEXT - n), " e=%s", kv_elem_name((kv_elem)d->element));
    if (d->tp_size > 1) snprintf(out + n, (size_t)(KVT_TEXT - n), " tp=%" PRId64 "/%" PRId64, d->tp_rank, d->tp_size);
}

static inline void kvt_add(kv_axes *a, kv_factor f)
{
    a->f[a->n++] = f;
}

static inline void kvt_shuffle(uint64_t *r, kv_axes *a, int from)
{
    for (int i = a->n - 1; i > from; i--) {
        const int j = from + (int)kvt_below(r, i - from + 1);
        const kv_factor f = a->f[i];
        a->f[i] = a->f[j];
        a->f[j] = f;
    }
}

static inline int kvt_place_of(const kv_axes *a, kv_factor f)
{
    int i = 0;
    while (i < a->n && a->f[i] != f) i++;
    return i;
}

/* tokens: 0 T, 1 Tb Ti, 2 Tb Tg Tx; lanes: 0 D, 1 Dg Dx, 2 C */
static inline kv_axes kvt_factors(bool layer, bool kv, int64_t tokens, int64_t lanes)
{
    kv_axes a = {0};
    if (layer) kvt_add(&a, KV_F_L);
    if (kv) kvt_add(&a, KV_F_KV);
    kvt_add(&a, tokens == 0 ? KV_F_T : KV_F_TB);
    if (tokens == 1) kvt_add(&a, KV_F_TI);
    if (tokens == 2) kvt_add(&a, KV_F_TG);
    if (tokens == 2) kvt_add(&a, KV_F_TX);
    if (lanes != 2) kvt_add(&a, KV_F_H);
    kvt_add(&a, lanes == 0 ? KV_F_D : lanes == 1 ? KV_F_DG : KV_F_C);
    if (lanes == 1) kvt_add(&a, KV_F_DX);
    return a;
}

static inline bool kvt_has(const kvt_desc *d, kv_factor f)
{
    return kv_axes_has(&d->axes[0], f) || kv_axes_has(&d->axes[1], f);
}

static inline void kvt_random_orders(uint64_t *r, kvt_desc *d)
{
    const bool layer = kvt_one_in(r, 3);
    const int64_t tokens = kvt_below(r, 3), lanes = d->store == KV_STORE_LATENT ? 2 : kvt_below(r, 2);
    const bool one_array = d->store == KV_STORE_INTERLEAVED;
    d->axes[0] = kvt_factors(layer, one_array, tokens, lanes);
    kvt_shuffle(r, &d->axes[0], 0);
    d->axes[1] = d->axes[0];
    if (d->store == KV_STORE_LATENT) d->axes[1].n = 0;
    if (one_array && kvt_one_in(r, 2)) kvt_shuffle(r, &d->axes[1], kvt_place_of(&d->axes[0], KV_F_KV) + 1);
    if (d->store == KV_STORE_SEPARATE && kvt_one_in(r, 2)) {
        d->axes[1] = kvt_factors(layer, false, kvt_below(r, 3), kvt_below(r, 2));
        kvt_shuffle(r, &d->axes[1], 0);
    }
}

/* Positions that the factors behind Tb reach in half `half`, for a stride that fits. */
static inline int64_t kvt_page(const kvt_desc *d, const kv_geometry *g, int half, int64_t heads, int64_t x)
{
    const kv_axes *a = &d->axes[half];
    const int64_t w = half == 0 ? g->head_dim : g->head_dim_v;
    int64_t n = 1;
    for (int i = kvt_place_of(a, KV_F_TB) + 1; i < a->n; i++) {
        const kv_factor f = a->f[i];
        if (f == KV_F_L) n *= g->layers;
        if (f == KV_F_KV) n *= 2;
        if (f == KV_F_TI) n *= d->block;
        if (f == KV_F_TG) n *= d->block / d->tx;
        if (f == KV_F_TX) n *= d->tx;
        if (f == KV_F_H) n *= heads;
        if (f == KV_F_D || f == KV_F_C) n *= d->row_lanes > 0 ? d->row_lanes : w;
        if (f == KV_F_DG) n *= w / x;
        if (f == KV_F_DX) n *= x;
    }
    return n;
}

/* The factors before Tb are the same in K and V: pages of one array need that. */
static inline bool kvt_same_pages(const kvt_desc *d)
{
    const int at = kvt_place_of(&d->axes[0], KV_F_TB);
    if (at != kvt_place_of(&d->axes[1], KV_F_TB)) return false;
    for (int i = 0; i < at; i++)
        if (kvt_place_of(&d->axes[1], d->axes[0].f[i]) > at) return false;
    return true;
}

static inline void kvt_random_stride(uint64_t *r, const kv_geometry *g, kvt_desc *d)
{
    const int64_t bytes = kv_elem_bytes(d->element < 0 ? g->element : (kv_elem)d->element);
    const int64_t heads = d->store == KV_STORE_LATENT     ? 1
                          : g->kv_heads % d->tp_size == 0 ? g->kv_heads / d->tp_size
                                                          : 1;
    const int64_t x = d->x > 0 ? d->x : d->x_bytes > 0 ? d->x_bytes / bytes : 1;
    int64_t most = 0;
    if (d->store == KV_STORE_INTERLEAVED && !kvt_same_pages(d)) return;
    for (int half = 0; half < 2; half++)
        if (kv_axes_has(&d->axes[half], KV_F_TB)) {
            const int64_t page = kvt_page(d, g, half, heads, x);
            if (page > most) most = page;
        }
    d->page_stride_bytes = (most + kvt_below(r, 6)) * bytes;
}

/* A descriptor that exists at g (kv_heads 1 and equal widths give latent ones too). */
static inline kvt_desc kvt_random_desc(uint64_t *r, const kv_geometry *g, kv_store store)
{
    kvt_desc d = {.store = store, .element = kvt_one_in(r, 4) ? (int)kvt_below(r, KV_ELEM_COUNT) : -1, .tp_size = 1};
    kvt_random_orders(r, &d);
    const int64_t bytes = kv_elem_bytes(d.element < 0 ? g->element : (kv_elem)d.element);
    if (kvt_has(&d, KV_F_TX)) d.tx = 1 + kvt_below(r, 3);
    if (kvt_has(&d, KV_F_TB)) d.block = (d.tx > 0 ? d.tx : 1) * (1 + kvt_below(r, 5));
    if (kvt_has(&d, KV_F_DX)) {
        do d.x = 1 + kvt_below(r, g->head_dim);
        while ((kv_axes_has(&d.axes[0], KV_F_DX) && g->head_dim % d.x != 0) ||
               (kv_axes_has(&d.axes[1], KV_F_DX) && g->head_dim_v % d.x != 0));
        if (kvt_one_in(r, 3)) {
            d.x_bytes = d.x * bytes;
            d.x = 0;
        }
    } else if (kvt_one_in(r, 4)) {
        d.row_lanes = (g->head_dim > g->head_dim_v ? g->head_dim : g->head_dim_v) + kvt_below(r, 4);
    }
    if (d.block > 0 && kvt_one_in(r, 3)) kvt_random_stride(r, g, &d);
    return d;
}

/* The same, of the geometry's element type. */
static inline kvt_desc kvt_random_desc_same(uint64_t *r, const kv_geometry *g, kv_store store)
{
    kvt_desc d;
    do d = kvt_random_desc(r, g, store);
    while (d.element >= 0);
    return d;
}

static inline kv_geometry kvt_random_geometry(uint64_t *r, bool latent, bool one_width)
{
    static const int64_t widths[] = {1, 2, 3, 4, 5, 6, 8, 12};
    kv_geometry g = {
        .layers = 1 + kvt_below(r, 3), .tokens = kvt_below(r, 14), .kv_heads = latent ? 1 : 1 + kvt_below(r, 3)};
    g.head_dim = widths[kvt_below(r, KVT_COUNT(widths))];
    g.head_dim_v = one_width || kvt_one_in(r, 2) ? g.head_dim : widths[kvt_below(r, KVT_COUNT(widths))];
    g.element = (kv_elem)kvt_below(r, KV_ELEM_COUNT);
    return g;
}

static inline kv_layout *kvt_random_layout(uint64_t *r, const kv_geometry *g, kv_store store, const char *name)
{
    char text[KVT_TEXT];
    const kvt_desc d = kvt_random_desc(r, g, store);
    kvt_desc_text(&d, name, text);
    return kvt_layout(text);
}

#endif
