/* The index algebra: where an element of the canonical tensor lies in a native image, and back.
 *
 * One unit of work holds `layers` layers. Its canonical tensor is [layers][KV][tokens][heads][lanes];
 * K rows are lanes[0] wide, V rows lanes[1]. A native image is one array (interleaved, latent) or a
 * K array followed by a V array (separate); where the layout keeps no layer axis in its array, the
 * arrays of layer 0, 1, ... follow one another.
 *
 * An array is an ordered list of factors, slowest first. A position is built by Horner steps over
 * the factors in storage order, p = p * size + digit, and taken apart by / and % from the other end.
 * Factors [0, cut) number the pages, factors [cut, n) lie inside a page; page_span is the distance of
 * two pages in positions and may exceed the payload (slack). A D factor may be allocated wider than
 * the row it holds (pad lanes), and the last token block may be longer than the tokens (tail): all
 * three hold no element and are padding.
 *
 * Divisions by the sizes of factors go by their inverses where numbers are short (kv_index_divide).
 * Everything is 64-bit, plain C that is also CUDA C++; no allocation, no tables, no state but the
 * arguments. kv_layout_bind() makes a kv_index and has checked that no product overflows. */
#ifndef KV_LAYOUT_INDEX_H
#define KV_LAYOUT_INDEX_H

#include <stdint.h>

#ifndef KV_HD
#ifdef __CUDACC__
#define KV_HD __host__ __device__ static inline
#else
#define KV_HD static inline
#endif
#endif

#define KV_FACTORS_MAX 10

/* What a factor counts. The order of this list is the order of kv_factor_names[]. */
typedef enum {
    KV_F_L,  /* layer */
    KV_F_KV, /* 0 keys, 1 values */
    KV_F_T,  /* token, not split */
    KV_F_TB, /* token block */
    KV_F_TI, /* token in its block */
    KV_F_TG, /* group of tokens in the block */
    KV_F_TX, /* token in its group */
    KV_F_H,  /* kv head held by this layout */
    KV_F_D,  /* lane of the head dimension, not split */
    KV_F_DG, /* group of lanes */
    KV_F_DX, /* lane in its group */
    KV_F_C,  /* lane of a latent row */
    KV_F_COUNT
} kv_factor;

/* Storage order of one half (K or V). Sizes are allocated extents, in digits of the factor. */
typedef struct {
    int32_t n;            /* factors */
    int32_t cut;          /* factors before this one number the pages */
    int64_t page_span;    /* positions from one page to the next */
    int64_t page_payload; /* positions of a page that factors [cut, n) reach; <= page_span */
    int32_t kind[KV_FACTORS_MAX];
    int64_t size[KV_FACTORS_MAX];
    uint64_t size_inverse[KV_FACTORS_MAX], page_inverse; /* kv_index_inverse_of: size[i], page_span */
} kv_order;

/* A layout bound to a geometry and a unit. */
typedef struct {
    kv_order half[2];     /* K, V; a latent layout uses half[0] alone */
    int64_t half_base[2]; /* first position of the half's array inside one layer's arrays */
    int64_t kv_span;      /* interleaved: positions from KV digit 0 to KV digit 1, inside the page if kv_inner */
    int64_t layer_span;   /* positions of one layer's arrays, where layers follow one another; else native */
    int64_t native;       /* N: positions of the unit's image, padding included */
    int64_t elements;     /* elements of the canonical tensor of the unit */
    int64_t layers;       /* of the unit */
    int64_t tokens;
    int64_t heads;      /* kv heads held */
    int64_t first_head; /* number of the first one in the whole cache */
    int64_t lanes[2];   /* row widths of K and V (latent: lanes[1] = 0) */
    int64_t block;      /* tokens in a block; 1 if tokens are not split */
    int64_t tx;         /* tokens in a group; 1 if not split */
    int64_t x;          /* lanes in a group; 1 if not split */
    int32_t halves;     /* 2, latent 1 */
    int32_t separate;   /* 1: K array, then V array */
    int32_t kv_inner;   /* interleaved: the KV factor lies inside the page */
    int32_t has_layer;  /* 1: L is a factor of the array */
    int32_t element;    /* kv_elem of the image */
    int32_t reserved;
    uint64_t kv_inverse, layer_inverse, block_inverse, tx_inverse, x_inverse; /* kv_index_inverse_of: kv_span, ... */
} kv_index;

/* ---- division by what a layout is cut into ------------------------------------------------ */

/* 2^64 / d, rounded up; 0 where there is none (d < 2 or d >= 2^32), and divisions are plain ones. */
KV_HD uint64_t kv_index_inverse_of(int64_t d)
{
    return d < 2 || d > UINT32_MAX ? 0 : ~0ULL / (uint64_t)d + 1;
}

/* n / d for 0 <= n, 0 < d, where `inverse` is that of d, or 0. For n < 2^32 the upper half of n times the inverse: with
 * inverse d = 2^64 + e, 0 <= e < d, it is n / d + n e / (d 2^64), and n e < 2^64. A division takes ten times as long. */
KV_HD int64_t kv_index_divide(int64_t n, int64_t d, uint64_t inverse)
{
    if (inverse != 0 && (uint64_t)n <= UINT32_MAX) {
        const uint64_t low = (inverse & UINT32_MAX) * (uint64_t)n;
        return (int64_t)(((inverse >> 32) * (uint64_t)n + (low >> 32)) >> 32);
    }
    return d == 1 ? n : n / d;
}

/* Sets all inverses from the sizes: last, by whoever makes an index. Without it divisions are plain ones. */
KV_HD void kv_index_prepare(kv_index *ix)
{
    int32_t kv, i;
    for (kv = 0; kv < 2; kv++) {
        kv_order *o = &ix->half[kv];
        for (i = 0; i < o->n; i++) o->size_inverse[i] = kv_index_inverse_of(o->size[i]);
        o->page_inverse = kv_index_inverse_of(o->page_span);
    }
    ix->kv_inverse = kv_index_inverse_of(ix->kv_span);
    ix->layer_inverse = kv_index_inverse_of(ix->layer_span);
    ix->block_inverse = kv_index_inverse_of(ix->block);
    ix->tx_inverse = kv_index_inverse_of(ix->tx);
    ix->x_inverse = kv_index_inverse_of(ix->x);
}

KV_HD int64_t kv_index_block_of(const kv_index *ix, int64_t token)
{
    return kv_index_divide(token, ix->block, ix->block_inverse);
}
KV_HD int64_t kv_index_group_of(const kv_index *ix, int64_t in_block)
{
    return kv_index_divide(in_block, ix->tx, ix->tx_inverse);
}
KV_HD int64_t kv_index_lane_group_of(const kv_index *ix, int64_t lane)
{
    return kv_index_divide(lane, ix->x, ix->x_inverse);
}

/* A place in the canonical tensor of the unit. Padding places have token or lane past the end. */
typedef struct {
    int64_t layer, kv, token, head, lane;
} kv_coord;

/* The digit of factor `kind` at a place. */
KV_HD int64_t kv_index_digit(const kv_index *ix, int32_t kind, const kv_coord *c)
{
    int64_t n;
    switch ((kv_factor)kind) {
    case KV_F_L: return c->layer;
    case KV_F_KV: return c->kv;
    case KV_F_T: return c->token;
    case KV_F_TB: return kv_index_block_of(ix, c->token);
    case KV_F_TI: return c->token - kv_index_block_of(ix, c->token) * ix->block;
    case KV_F_TG: return kv_index_group_of(ix, c->token - kv_index_block_of(ix, c->token) * ix->block);
    case KV_F_TX:
        n = c->token - kv_index_block_of(ix, c->token) * ix->block;
        return n - kv_index_group_of(ix, n) * ix->tx;
    case KV_F_H: return c->head;
    case KV_F_D: return c->lane;
    case KV_F_DG: return kv_index_lane_group_of(ix, c->lane);
    case KV_F_DX: return c->lane - kv_index_lane_group_of(ix, c->lane) * ix->x;
    case KV_F_C: return c->lane;
    case KV_F_COUNT: break;
    }
    return 0;
}

/* Native position of a canonical place. The place must lie inside the unit (or in its padding). */
KV_HD int64_t kv_index_forward(const kv_index *ix, const kv_coord *c)
{
    const kv_order *o = &ix->half[c->kv];
    int64_t page = 0, inner = 0;
    int32_t i;
    for (i = 0; i < o->cut; i++) page = page * o->size[i] + kv_index_digit(ix, o->kind[i], c);
    for (; i < o->n; i++) inner = inner * o->size[i] + kv_index_digit(ix, o->kind[i], c);
    return (ix->has_layer ? 0 : c->layer * ix->layer_span) + ix->half_base[c->kv] + page * o->page_span + inner;
}

/* Puts a digit where its factor belongs: c->token and c->lane are sums of digit * weight. */
KV_HD void kv_index_put(const kv_index *ix, int32_t kind, int64_t digit, kv_coord *c)
{
    switch ((kv_factor)kind) {
    case KV_F_L: c->layer = digit; break;
    case KV_F_KV: c->kv = digit; break;
    case KV_F_T: c->token += digit; break;
    case KV_F_TB: c->token += digit * ix->block; break;
    case KV_F_TI: c->token += digit; break;
    case KV_F_TG: c->token += digit * ix->tx; break;
    case KV_F_TX: c->token += digit; break;
    case KV_F_H: c->head = digit; break;
    case KV_F_D: c->lane += digit; break;
    case KV_F_DG: c->lane += digit * ix->x; break;
    case KV_F_DX: c->lane += digit; break;
    case KV_F_C: c->lane += digit; break;
    case KV_F_COUNT: break;
    }
}

/* Whether a place holds an element (1) or is padding (0). */
KV_HD int kv_index_holds(const kv_index *ix, const kv_coord *c)
{
    return c->token < ix->tokens && c->lane < ix->lanes[c->kv];
}

/* Which half's factor order applies at position r of one layer's arrays. */
KV_HD int64_t kv_index_half(const kv_index *ix, int64_t r)
{
    if (ix->halves == 1) return 0;
    if (ix->separate) return r >= ix->half_base[1] ? 1 : 0;
    if (ix->kv_inner) r -= kv_index_divide(r, ix->half[0].page_span, ix->half[0].page_inverse) * ix->half[0].page_span;
    return kv_index_divide(r, ix->kv_span, ix->kv_inverse) % 2;
}

/* Canonical place of native position p, 0 <= p < native. Returns 1 for an element, 0 for padding
 * (in a page's slack the place is meaningless, otherwise it tells which tail or pad lane it is). */
KV_HD int kv_index_inverse(const kv_index *ix, int64_t p, kv_coord *c)
{
    const kv_order *o;
    int64_t page, inner, half;
    int32_t i;
    c->layer = ix->has_layer ? 0 : kv_index_divide(p, ix->layer_span, ix->layer_inverse);
    c->token = c->head = c->lane = 0;
    p -= c->layer * ix->layer_span;
    half = kv_index_half(ix, p);
    c->kv = half;
    o = &ix->half[half];
    p -= ix->half_base[half];
    page = kv_index_divide(p, o->page_span, o->page_inverse);
    inner = p - page * o->page_span;
    if (inner >= o->page_payload) return 0;
    for (i = o->n - 1; i >= o->cut; i--) {
        const int64_t q = kv_index_divide(inner, o->size[i], o->size_inverse[i]);
        kv_index_put(ix, o->kind[i], inner - q * o->size[i], c);
        inner = q;
    }
    for (; i >= 0; i--) {
        const int64_t q = kv_index_divide(page, o->size[i], o->size_inverse[i]);
        kv_index_put(ix, o->kind[i], page - q * o->size[i], c);
        page = q;
    }
    return kv_index_holds(ix, c);
}

/* Number of a canonical place in the unit, 0 <= n < elements: row-major [layers][KV][tokens][heads][lanes]. */
KV_HD int64_t kv_index_canonical(const kv_index *ix, const kv_coord *c)
{
    const int64_t rows = ix->tokens * ix->heads;
    return c->layer * rows * (ix->lanes[0] + ix->lanes[1]) + (c->kv ? rows * ix->lanes[0] : 0) +
           (c->token * ix->heads + c->head) * ix->lanes[c->kv] + c->lane;
}

/* The place with that number: the inverse of kv_index_canonical, 0 <= n < elements. */
KV_HD kv_coord kv_index_place(const kv_index *ix, int64_t n)
{
    const int64_t rows = ix->tokens * ix->heads, layer = rows * (ix->lanes[0] + ix->lanes[1]);
    kv_coord c;
    int64_t row;
    c.layer = n / layer;
    n -= c.layer * layer;
    c.kv = n >= rows * ix->lanes[0] ? 1 : 0;
    if (c.kv) n -= rows * ix->lanes[0];
    row = n / ix->lanes[c.kv];
    c.lane = n - row * ix->lanes[c.kv];
    c.token = row / ix->heads;
    c.head = row - c.token * ix->heads;
    return c;
}

/* A walk over native positions in order, without division: one digit for each factor. */
typedef struct {
    int64_t position; /* current native position */
    int64_t layer;    /* of the arrays the walk is in; 0 where L is a factor */
    int64_t half;
    int64_t slack; /* 0 in the payload of a page, else 1 + the offset in its slack */
    int64_t digit[KV_FACTORS_MAX];
} kv_walk;

/* Starts a walk at position 0 of an image that has positions. */
KV_HD void kv_walk_start(kv_walk *w)
{
    int32_t i;
    w->position = w->layer = w->half = w->slack = 0;
    for (i = 0; i < KV_FACTORS_MAX; i++) w->digit[i] = 0;
}

/* Adds one to the digits [from, to), the last one fastest; 1 when they all wrapped to 0. */
KV_HD int kv_walk_carry(const kv_order *o, int32_t from, int32_t to, int64_t *digit)
{
    int32_t i;
    for (i = to - 1; i >= from; i--) {
        if (++digit[i] < o->size[i]) return 0;
        digit[i] = 0;
    }
    return 1;
}

/* The odometer step: from position p to p + 1. Past the end of the image the walk is back at its
 * first digits with layer = layers (or 0 where L is a factor). */
KV_HD void kv_walk_next(const kv_index *ix, kv_walk *w)
{
    const kv_order *o = &ix->half[w->half];
    int32_t i;
    w->position++;
    if (w->slack == 0) {
        if (!kv_walk_carry(o, o->cut, o->n, w->digit)) goto same_array;
        if (o->page_payload < o->page_span) {
            w->slack = 1;
            return;
        }
    } else if (w->slack < o->page_span - o->page_payload) {
        w->slack++;
        return;
    }
    w->slack = 0;
    if (kv_walk_carry(o, 0, o->cut, w->digit)) { /* the array is at its end */
        if (ix->separate && w->half == 0) {
            w->half = 1;
        } else {
            w->half = 0;
            if (!ix->has_layer) w->layer++;
        }
        return;
    }
same_array:
    if (!ix->separate && ix->halves == 2) /* the KV digit says whose factor order comes next */
        for (i = 0; i < o->n; i++)
            if (o->kind[i] == KV_F_KV) w->half = w->digit[i];
}

/* The walk as it stands at position p, 0 <= p < native, from anywhere: a GPU's threads start so. Digits by division,
 * as many steps of kv_walk_next from the start would have left them. */
KV_HD void kv_walk_seek(const kv_index *ix, int64_t p, kv_walk *w)
{
    const kv_order *o;
    int64_t page, inner, q;
    int32_t i;
    w->position = p;
    w->layer = ix->has_layer ? 0 : kv_index_divide(p, ix->layer_span, ix->layer_inverse);
    p -= w->layer * ix->layer_span;
    w->half = kv_index_half(ix, p);
    o = &ix->half[w->half];
    p -= ix->half_base[w->half];
    page = kv_index_divide(p, o->page_span, o->page_inverse);
    inner = p - page * o->page_span;
    w->slack = 0;
    if (inner >= o->page_payload) { /* past the payload the inner digits have wrapped, after its last half */
        w->slack = 1 + inner - o->page_payload;
        if (ix->kv_inner) w->half = 1;
        inner = 0;
    }
    for (i = o->n - 1; i >= o->cut; i--) {
        q = kv_index_divide(inner, o->size[i], o->size_inverse[i]);
        w->digit[i] = inner - q * o->size[i];
        inner = q;
    }
    for (; i >= 0; i--) {
        q = kv_index_divide(page, o->size[i], o->size_inverse[i]);
        w->digit[i] = page - q * o->size[i];
        page = q;
    }
    for (i = o->n; i < KV_FACTORS_MAX; i++) w->digit[i] = 0;
}

/* Place of the walk's current position: as kv_index_inverse, with multiplications only. */
KV_HD int kv_walk_coord(const kv_index *ix, const kv_walk *w, kv_coord *c)
{
    const kv_order *o = &ix->half[w->half];
    int32_t i;
    c->layer = w->layer;
    c->kv = w->half;
    c->token = c->head = c->lane = 0;
    if (w->slack != 0) return 0;
    for (i = 0; i < o->n; i++) kv_index_put(ix, o->kind[i], w->digit[i], c);
    return kv_index_holds(ix, c);
}

#endif
