/* Plans tiles: see kv_cuda_tile.h. Host code, no CUDA. */
#include "kernels/cuda/kv_cuda_tile.h"

#include <stdbool.h>
#include <string.h>

enum { CUTS = 8, VECTOR = 16, LANE_BYTES = 256, RUN_BYTES = 64 };

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- cutting one axis ------------------------------------------------------------------- */

/* Where either side cuts an axis below n, in rising order, from 1; 0 where these cuts do not nest or n splits one. */
static int cuts_below(const kv_split *s, const kv_split *t, int64_t n, int64_t cut[CUTS])
{
    const int64_t all[4] = {s->ones, s->ones * s->groups, t->ones, t->ones * t->groups};
    int count = 1;
    cut[0] = 1;
    for (int i = 0; i < 4; i++) {
        int at = count;
        if (all[i] % n != 0 && n % all[i] != 0) return 0;
        if (all[i] >= n) continue;
        while (at > 0 && cut[at - 1] > all[i]) at--;
        if (at > 0 && cut[at - 1] == all[i]) continue;
        memmove(&cut[at + 1], &cut[at], (size_t)(count - at) * sizeof *cut);
        cut[at] = all[i];
        count++;
    }
    for (int i = 1; i < count; i++)
        if (cut[i] % cut[i - 1] != 0) return 0;
    return n % cut[count - 1] == 0 ? count : 0;
}

/* The largest tile of an axis of `held` numbers, at most `most`, that nests with both sides' cuts: all of it, else a
 * multiple of 8 if there is one; `divide`: one that divides it. 1 always does. */
static int64_t tile_of(const kv_split *s, const kv_split *t, int64_t held, int64_t most, bool divide)
{
    int64_t cut[CUTS];
    for (int64_t n = least(held, most); n > 1; n--)
        if ((n % 8 == 0 || n < 8 || n == held) && (!divide || held % n == 0) && cuts_below(s, t, n, cut) > 0) return n;
    return 1;
}

static void add_factor(kv_tile_plan *p, int64_t extent, int64_t src, int64_t dst, int64_t token, int64_t lane)
{
    if (extent < 2) return;
    kv_tile_factor *f = &p->factor[p->factors++];
    f->extent = (int32_t)extent;
    f->src = src * p->element_bytes;
    f->dst = dst * p->element_bytes;
    f->token = (int32_t)token;
    f->lane = (int32_t)lane;
}

static void add_axis(kv_tile_plan *p, const kv_split *s, const kv_split *t, int64_t n, int is_token)
{
    int64_t cut[CUTS];
    const int count = cuts_below(s, t, n, cut);
    for (int i = 0; i < count; i++)
        add_factor(p, (i + 1 < count ? cut[i + 1] : n) / cut[i], kv_split_offset(s, cut[i]), kv_split_offset(t, cut[i]),
                   is_token ? cut[i] : 0, is_token ? 0 : cut[i]);
}

/* Destination order, and from it where each factor's digits lie in the tile; then the source's order. */
static void order_factors(kv_tile_plan *p)
{
    for (int i = 1; i < p->factors; i++)
        for (int j = i; j > 0 && p->factor[j - 1].dst < p->factor[j].dst; j--) {
            const kv_tile_factor f = p->factor[j];
            p->factor[j] = p->factor[j - 1];
            p->factor[j - 1] = f;
        }
    int32_t bytes = p->element_bytes;
    for (int i = p->factors - 1; i >= 0; i--) {
        p->factor[i].tile = bytes;
        bytes *= p->factor[i].extent;
    }
    for (int i = 0; i < p->factors; i++) {
        int at = i;
        while (at > 0 && p->factor[p->by_source[at - 1]].src < p->factor[i].src) {
            p->by_source[at] = p->by_source[at - 1];
            at--;
        }
        p->by_source[at] = i;
    }
}

/* ---- vectors ---------------------------------------------------------------------------- */

/* What all tiles' first offsets of an axis are multiples of, in positions; 0 where there is one tile. */
static int64_t tile_step(const kv_split *x, int64_t n, int64_t tiles)
{
    const int64_t block = x->groups * x->ones;
    int64_t step;
    if (tiles < 2) return 0;
    if (n % block == 0) return n / block * x->outer_stride;
    step = x->outers > 1 ? x->outer_stride : 0;
    if (n % x->ones == 0) return gcd(step, n / x->ones * x->group_stride);
    if (x->groups > 1) step = gcd(step, x->group_stride);
    return gcd(step, n * x->one_stride);
}

static int64_t side_step(const kv_tile_plan *p, const kv_strides *x, int64_t layers)
{
    int64_t step = gcd(tile_step(&x->token, p->tokens, p->token_tiles), tile_step(&x->lane, p->lanes, p->lane_tiles));
    if (p->head_tiles > 1) step = gcd(step, p->heads * x->head);
    if (layers > 1) step = gcd(step, x->layer);
    return gcd(step, x->base) * p->element_bytes;
}

/* Whether `bytes` at a time can be moved on a side: the fastest factors are contiguous for that long and end where a
 * vector ends, everything else lies at multiples of it. */
static int vector_fits(const kv_tile_plan *p, int source, int64_t step, int32_t bytes)
{
    int64_t run = p->element_bytes;
    if (step % bytes != 0) return 0;
    for (int i = p->factors - 1; i >= 0; i--) {
        const kv_tile_factor *f = &p->factor[source ? p->by_source[i] : i];
        const int64_t stride = source ? f->src : f->dst;
        if (run < bytes) { /* this factor lies inside the vector, at least its first digits do */
            if (stride != run || bytes % run != 0) return 0;
            run *= f->extent;
            if (run > bytes && run % bytes != 0) return 0;
        } else if (stride % bytes != 0) {
            return 0;
        }
    }
    return run % bytes == 0;
}

/* The tile's offsets of a load vector's elements, and the largest groups of them that stay together there. */
static void plan_groups(kv_tile_plan *p)
{
    const int32_t es = p->element_bytes, n = p->load_bytes / es;
    for (int32_t k = 0; k < n; k++) {
        int32_t left = k;
        p->delta[k] = 0;
        for (int i = p->factors - 1; i >= 0 && left > 0; i--) {
            const kv_tile_factor *f = &p->factor[p->by_source[i]];
            p->delta[k] += left % f->extent * f->tile;
            left /= f->extent;
        }
    }
    for (int32_t bytes = p->load_bytes; bytes >= es; bytes /= 2) {
        int fits = 1;
        int64_t run = es;
        for (int32_t k = 0; k < n && fits; k++) {
            const int32_t first = k - k % (bytes / es);
            fits = p->delta[k] == p->delta[first] + (k - first) * es && p->delta[first] % bytes == 0;
        }
        for (int i = p->factors - 1; i >= 0 && fits; i--) { /* where vectors begin in the tile */
            const kv_tile_factor *f = &p->factor[p->by_source[i]];
            const int64_t inside = run >= p->load_bytes ? 1 : least(f->extent, p->load_bytes / run);
            fits = inside == f->extent || inside * f->tile % bytes == 0;
            run *= f->extent;
        }
        p->group_bytes = bytes;
        if (fits) return;
    }
}

/* Bytes for which both sides run the same way. */
static int64_t common_run(const kv_tile_plan *p)
{
    int64_t run = p->element_bytes;
    for (int i = p->factors - 1; i >= 0; i--) {
        if (p->by_source[i] != i || p->factor[i].src != run || p->factor[i].dst != run) break;
        run *= p->factor[i].extent;
    }
    return run;
}

static void plan_vectors(kv_tile_plan *p, int64_t layers)
{
    const int64_t from = side_step(p, &p->s, layers), to = side_step(p, &p->t, layers);
    p->load_bytes = p->store_bytes = VECTOR;
    while (p->load_bytes > p->element_bytes && !vector_fits(p, 1, from, p->load_bytes)) p->load_bytes /= 2;
    while (p->store_bytes > p->element_bytes && !vector_fits(p, 0, to, p->store_bytes)) p->store_bytes /= 2;
    plan_groups(p);
    p->direct =
        p->load_bytes == VECTOR && p->store_bytes == VECTOR && p->group_bytes == VECTOR && common_run(p) >= RUN_BYTES;
}

/* ---- the tile --------------------------------------------------------------------------- */

static void plan_shape(kv_tile_plan *p, int64_t layers, int64_t heads, int64_t most_bytes)
{
    const int64_t es = p->element_bytes, most = most_bytes / es, lanes = p->held_lanes;
    const int64_t lanes_most = least(most, LANE_BYTES / es);
    int64_t n = tile_of(&p->s.lane, &p->t.lane, lanes, lanes_most, true);
    if (n < 16) n = tile_of(&p->s.lane, &p->t.lane, lanes, lanes_most, false);
    p->lanes = (int32_t)n;
    p->heads = 1;
    if (n == lanes) /* short rows: heads that follow one another are taken together */
        while (p->heads < heads && p->heads * lanes * es < RUN_BYTES && 2 * p->heads * lanes <= most) {
            do p->heads++;
            while (heads % p->heads != 0);
        }
    if (p->heads * n > most) p->heads = 1;
    n = tile_of(&p->s.token, &p->t.token, p->held_tokens, most / (p->heads * n), false);
    p->tokens = (int32_t)n;
    p->elements = p->tokens * p->heads * p->lanes;
    p->token_tiles = (p->held_tokens + n - 1) / n;
    p->head_tiles = heads / p->heads;
    p->lane_tiles = (lanes + p->lanes - 1) / p->lanes;
    p->tiles = layers * p->token_tiles * p->head_tiles * p->lane_tiles;
    p->factors = 0;
    add_axis(p, &p->s.token, &p->t.token, p->tokens, 1);
    add_axis(p, &p->s.lane, &p->t.lane, p->lanes, 0);
    add_factor(p, p->heads, p->s.head, p->t.head, 0, 0);
    order_factors(p);
    plan_vectors(p, layers);
}

void kv_tile_plan_of(const kv_index *s, const kv_index *t, int32_t kv, kv_tile_plan *out)
{
    int64_t most = KV_TILE_BYTES;
    memset(out, 0, sizeof *out);
    kv_strides_of(s, kv, &out->s);
    kv_strides_of(t, kv, &out->t);
    out->element_bytes = (int32_t)kv_elem_bytes((kv_elem)t->element);
    out->held_tokens = s->tokens;
    out->held_lanes = s->lanes[kv];
    for (;;) { /* short vectors make a small tile, and that may make them shorter still */
        plan_shape(out, s->layers, s->heads, most);
        const int64_t vector = least(out->load_bytes, out->store_bytes);
        const int64_t allowed = KV_TILE_VECTORS * KV_TILE_THREADS * vector;
        if ((int64_t)out->elements * out->element_bytes <= allowed) return;
        most = allowed;
    }
}
