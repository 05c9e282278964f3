/* The token leg against a plain decoder that follows kernels/kv_kern_token.h line by line, against
 * fixed values from a third implementation (Python, doubles rounded to float after each step), and
 * for what it is there for: every flipped bit of a cache shows. */
#include "kernels/kv_kern_token.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { E = KV_TOKEN_HIDDEN, STEPS = KV_TOKEN_STEPS, VOCAB = KV_TOKEN_VOCAB, CHUNK = KV_TOKEN_CHUNK };

typedef struct {
    uint64_t seed;
    int64_t layer, tokens, heads, dim_k, dim_v;
} shape;

typedef struct {
    kv_elem elem;
    unsigned char *k, *v;
    int64_t k_elems, v_elems;
} cache;

/* ---- helpers ---------------------------------------------------------------------------- */

static void *take(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (p == NULL) fail_msg("no memory");
    return p;
}

/* Element i of the payload of the golden values: +-[1/2, 2) with 7 mantissa bits, exact in bf16. */
static uint32_t golden_bits(uint64_t seed, int64_t i)
{
    const uint64_t r = kv_token_mix64(seed + (uint64_t)i);
    return (uint32_t)(r >> 63) << 31 | (126u + (uint32_t)(r >> 62 & 1u)) << 23 | (uint32_t)(r >> 40 & 0x7Fu) << 16;
}

/* Finite, magnitude in [1/2, 2), full mantissa: what the grid decodes. */
static uint32_t payload_bits(kv_elem e, uint64_t seed, int64_t i)
{
    const uint64_t r = kv_token_mix64(seed ^ kv_token_mix64((uint64_t)i));
    const uint32_t w = (uint32_t)(r >> 63) << 31 | (126u + (uint32_t)(r >> 62 & 1u)) << 23 | (uint32_t)(r & 0x7FFFFFu);
    const uint32_t narrow = kv_num_from_f32(e, w & 0xFFFFFFu << (e == KV_ELEM_FP8_E4M3 ? 20 : 13));
    return e == KV_ELEM_F32 ? w : e == KV_ELEM_BF16 ? w >> 16 : narrow;
}

static uint32_t opaque_bits(kv_elem e, uint64_t seed, int64_t i)
{
    const uint64_t r = kv_token_mix64(seed ^ kv_token_mix64((uint64_t)i));
    return (uint32_t)r & (0xFFFFFFFFu >> (32 - 8 * (int)kv_elem_bytes(e)));
}

/* One byte past the start of a block, so that nothing is aligned. */
static cache new_cache(const shape *g, kv_elem e)
{
    cache c = {.elem = e, .k_elems = g->tokens * g->heads * g->dim_k, .v_elems = g->tokens * g->heads * g->dim_v};
    c.k = (unsigned char *)take((size_t)(c.k_elems * kv_elem_bytes(e)) + 1, 1) + 1;
    c.v = (unsigned char *)take((size_t)(c.v_elems * kv_elem_bytes(e)) + 1, 1) + 1;
    return c;
}

static void free_cache(cache *c)
{
    free(c->k - 1);
    free(c->v - 1);
}

typedef uint32_t element_fn(kv_elem e, uint64_t seed, int64_t i);

static cache filled_cache(const shape *g, kv_elem e, element_fn *element, uint64_t seed)
{
    cache c = new_cache(g, e);
    for (int64_t i = 0; i < c.k_elems; i++) kv_num_store(e, c.k, i, element(e, seed, i));
    for (int64_t i = 0; i < c.v_elems; i++) kv_num_store(e, c.v, i, element(e, seed + 1, i));
    return c;
}

static kv_token_ctx *new_ctx(const shape *g)
{
    kv_token_ctx *ctx = NULL;
    kv_err err = {0};
    if (kv_token_ctx_new(g->seed, g->layer, g->heads, g->dim_k, g->dim_v, &ctx, &err) != KV_OK)
        fail_msg("%s", err.text);
    return ctx;
}

static void decode(const kv_token_ctx *ctx, const shape *g, const cache *c, kv_token_out *out)
{
    assert_int_equal(kv_token_decode(ctx, c->elem, g->tokens, c->k, c->v, out, NULL), KV_OK);
}

static bool same(const kv_token_out *a, const kv_token_out *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* FNV-1a over each step's token and logits, four little-endian bytes each. */
static uint64_t digest(const kv_token_out *o)
{
    uint64_t h = 14695981039346656037u;
    for (int s = 0; s < STEPS; s++)
        for (int i = -1; i < VOCAB; i++) {
            const uint32_t x = i < 0 ? (uint32_t)o->tokens[s] : o->logits[s][i];
            for (int b = 0; b < 32; b += 8) h = (h ^ (x >> b & 0xFFu)) * 1099511628211u;
        }
    return h;
}

/* ---- the plain decoder ------------------------------------------------------------------ */

typedef struct {
    const shape *g;
    const cache *c;
    float *new_k, *new_v; /* [8][H][D], [8][H][Dv] */
} plain;

static float weight(const shape *g, kv_token_matrix m, int64_t row, int64_t column)
{
    const uint64_t key = kv_token_row_key(g->seed, (uint64_t)g->layer, m, (uint64_t)row);
    return kv_token_weight(kv_token_hash(key, (uint32_t)column), kv_token_exponent(m, 2 * g->heads * g->dim_v));
}

static float plain_dot(const float *a, const float *b, int64_t n)
{
    float l[8] = {0};
    for (int64_t i = 0; i < n; i++) {
        const float product = a[i] * b[i];
        l[i % 8] = l[i % 8] + product;
    }
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

static float plain_row(const shape *g, kv_token_matrix m, int64_t row, const float *x, int64_t n)
{
    float *w = take((size_t)n, sizeof *w);
    for (int64_t i = 0; i < n; i++) w[i] = weight(g, m, row, i);
    const float r = plain_dot(w, x, n);
    free(w);
    return r;
}

/* K of token t (cache, then new), head h, lane d. */
static float k_at(const plain *p, int64_t t, int64_t h, int64_t d)
{
    const shape *g = p->g;
    if (t >= g->tokens) return p->new_k[((t - g->tokens) * g->heads + h) * g->dim_k + d];
    return kv_num_float(kv_num_to_f32(p->c->elem, kv_num_load(p->c->elem, p->c->k, (t * g->heads + h) * g->dim_k + d)));
}

static float v_at(const plain *p, int64_t t, int64_t h, int64_t d)
{
    const shape *g = p->g;
    if (t >= g->tokens) return p->new_v[((t - g->tokens) * g->heads + h) * g->dim_v + d];
    return kv_num_float(kv_num_to_f32(p->c->elem, kv_num_load(p->c->elem, p->c->v, (t * g->heads + h) * g->dim_v + d)));
}

static float plain_sum(const float *terms, int64_t tokens, int64_t all)
{
    float total = 0.0f;
    for (int64_t t = 0; t < all;) {
        int64_t end = t + CHUNK;
        if (t < tokens && end > tokens) end = tokens;
        if (t >= tokens) end = all;
        float sum = 0.0f;
        for (; t < end; t++) sum = sum + terms[t];
        total = total + sum;
    }
    return total;
}

static void plain_attend(const plain *p, int64_t head, const float *q, int32_t step, float *o)
{
    const shape *g = p->g;
    const int64_t all = g->tokens + step + 1, h = head / 2;
    float *w = take((size_t)all, sizeof *w), *terms = take((size_t)all, sizeof *terms);
    float *k = take((size_t)g->dim_k, sizeof *k), most = -INFINITY;
    for (int64_t t = 0; t < all; t++) {
        for (int64_t d = 0; d < g->dim_k; d++) k[d] = k_at(p, t, h, d);
        w[t] = plain_dot(q, k, g->dim_k) * kv_token_scale(g->dim_k);
        if (w[t] > most) most = w[t];
    }
    for (int64_t t = 0; t < all; t++) w[t] = kv_token_exp(w[t] - most);
    const float den = plain_sum(w, g->tokens, all);
    for (int64_t d = 0; d < g->dim_v; d++) {
        for (int64_t t = 0; t < all; t++) terms[t] = w[t] * v_at(p, t, h, d);
        o[d] = plain_sum(terms, g->tokens, all) / den;
    }
    free(k);
    free(terms);
    free(w);
}

static int32_t plain_step(plain *p, int32_t step, int32_t token, float *logits)
{
    const shape *g = p->g;
    float x[E], z[E];
    float *q = take((size_t)g->dim_k, sizeof *q), *o = take((size_t)(2 * g->heads * g->dim_v), sizeof *o);
    for (int e = 0; e < E; e++) x[e] = weight(g, KV_TOKEN_EMBED, token, e) + weight(g, KV_TOKEN_POSITION, step, e);
    for (int64_t r = 0; r < g->heads * g->dim_k; r++)
        p->new_k[step * g->heads * g->dim_k + r] = plain_row(g, KV_TOKEN_WK, r, x, E);
    for (int64_t r = 0; r < g->heads * g->dim_v; r++)
        p->new_v[step * g->heads * g->dim_v + r] = plain_row(g, KV_TOKEN_WV, r, x, E);
    for (int64_t head = 0; head < 2 * g->heads; head++) {
        for (int64_t d = 0; d < g->dim_k; d++) q[d] = plain_row(g, KV_TOKEN_WQ, head * g->dim_k + d, x, E);
        plain_attend(p, head, q, step, o + head * g->dim_v);
    }
    for (int e = 0; e < E; e++) {
        const float y = plain_row(g, KV_TOKEN_WO, e, o, 2 * g->heads * g->dim_v);
        z[e] = x[e] + y;
    }
    int32_t best = -1;
    for (int32_t v = 0; v < VOCAB; v++) {
        logits[v] = plain_row(g, KV_TOKEN_UNEMBED, v, z, E);
        if (!isnan(logits[v]) && (best < 0 || logits[v] > logits[best])) best = v;
    }
    free(o);
    free(q);
    return best < 0 ? 0 : best;
}

static void plain_decode(const shape *g, const cache *c, kv_token_out *out)
{
    plain p = {.g = g, .c = c};
    p.new_k = take((size_t)(STEPS * g->heads * g->dim_k), sizeof *p.new_k);
    p.new_v = take((size_t)(STEPS * g->heads * g->dim_v), sizeof *p.new_v);
    const uint64_t key = kv_token_row_key(g->seed, (uint64_t)g->layer, KV_TOKEN_START, 0);
    int32_t token = (int32_t)(kv_token_hash(key, 0) % 64u);
    for (int32_t s = 0; s < STEPS; s++) {
        float logits[VOCAB];
        token = plain_step(&p, s, token, logits);
        out->tokens[s] = token;
        for (int v = 0; v < VOCAB; v++) out->logits[s][v] = isnan(logits[v]) ? 0x7FC00000u : kv_num_bits(logits[v]);
    }
    free(p.new_v);
    free(p.new_k);
}

/* ---- tests: the formulas ---------------------------------------------------------------- */

static void token_weights__are_the_fixed_function(void **state)
{
    (void)state;
    const uint64_t key = kv_token_row_key(1, 0, KV_TOKEN_WQ, 5);
    assert_true(key == 0xBD74D1F81B29284Bu);
    assert_int_equal(kv_token_hash(key, 0), 0x0353A164);
    assert_int_equal(kv_token_hash(key, 7), 0xAD98242A);
    assert_true(kv_token_row_key(0, 0, KV_TOKEN_EMBED, 0) == 0x35BE14FE33FFF9ACu);
    assert_int_equal(kv_token_hash(kv_token_row_key(UINT64_MAX, 79, KV_TOKEN_WO, 31), 8191), 0xDAD31DD9);
    assert_true(kv_token_weight(0x80000000u, 0) == -0.5f);
    assert_true(kv_token_weight(0x7FFFFFFFu, 0) == 0x1.fffffep-1f);
    assert_true(kv_token_weight(0x00400000u, -2) == 0x1.8p-3f);
    assert_int_equal(kv_token_exponent(KV_TOKEN_WO, 2), 1);
    assert_int_equal(kv_token_exponent(KV_TOKEN_WO, 4), 1);
    assert_int_equal(kv_token_exponent(KV_TOKEN_WO, 5), 0);
    assert_int_equal(kv_token_exponent(KV_TOKEN_WO, 16), 0);
    assert_int_equal(kv_token_exponent(KV_TOKEN_WO, 2048), -4);
    assert_int_equal(kv_token_exponent(KV_TOKEN_WV, 2048), -2);
    assert_int_equal(kv_token_exponent(KV_TOKEN_UNEMBED, 2048), 0);
}

/* s * s * dim <= 1 < (the next float)^2 * dim, in integers: s = r * 2^-p. */
static void token_scale__is_the_largest_float_not_above_the_root(void **state)
{
    (void)state;
    for (int64_t dim = 1; dim <= KV_TOKEN_DIM_MAX; dim++) {
        int e;
        const double m = frexp((double)kv_token_scale(dim), &e); /* in [1/2, 1) */
        const uint64_t r = (uint64_t)ldexp(m, 24);
        const int p = 24 - e;
        const uint64_t limit = ((uint64_t)1 << (2 * p - 1)) / (uint64_t)dim; /* 4^p / 2 / dim */
        assert_true(r * r / 2 <= limit && (r + 1) * (r + 1) / 2 >= limit);
        assert_true(fabs((double)kv_token_scale(dim) * sqrt((double)dim) - 1.0) < 0x1p-23);
        assert_true((double)kv_token_scale(dim) <= 1.0 / sqrt((double)dim));
    }
    assert_true(kv_token_scale(1) == 1.0f);
    assert_true(kv_token_scale(2) == 0x1.6a09e6p-1f);
    assert_true(kv_token_scale(64) == 0.125f);
    assert_true(kv_token_scale(128) == 0x1.6a09e6p-4f);
    assert_true(kv_token_scale(576) == 0x1.555554p-5f);
    assert_true(kv_token_scale(65536) == 0x1p-8f);
}

static void token_exp__is_within_two_ulp(void **state)
{
    (void)state;
    double worst = 0.0;
    for (uint32_t bits = 0; bits <= 0x42AE0000u; bits += 97u) { /* 0 .. 87, both signs */
        for (uint32_t sign = 0; sign < 2; sign++) {
            const float x = kv_num_float(bits | sign << 31);
            const double want = exp((double)x);
            int e;
            (void)frexp(want, &e);
            const double ulps = fabs((double)kv_token_exp(x) - want) / ldexp(1.0, e - 24);
            if (!(ulps <= worst)) worst = ulps;
        }
    }
    print_message("worst error of exp: %.3f ulp\n", worst);
    assert_true(worst < 2.0);
    assert_true(kv_token_exp(0.0f) == 1.0f);
    assert_true(kv_token_exp(-0.0f) == 1.0f);
    assert_true(kv_token_exp(0x1.62e42ep+6f) < INFINITY);
    assert_true(kv_token_exp(0x1.62e42ep+6f) > 3.40e38f);
    assert_int_equal(kv_num_bits(kv_token_exp(0x1.62e430p+6f)), 0x7F800000);
    assert_int_equal(kv_num_bits(kv_token_exp(INFINITY)), 0x7F800000);
    assert_int_equal(kv_num_bits(kv_token_exp(-INFINITY)), 0);
    assert_int_equal(kv_num_bits(kv_token_exp(-0x1.5c0002p+6f)), 0);
    assert_true(kv_token_exp(-87.0f) > 0x1p-126f);
    assert_int_equal(kv_num_bits(kv_token_exp(-3e38f)), 0);
    assert_int_equal(kv_num_bits(kv_token_exp(NAN)), KV_NUM_NAN);
    assert_int_equal(kv_num_bits(kv_token_exp(-NAN)), KV_NUM_NAN);
}

/* Values of exp to the bit, so that no other polynomial passes. */
static void token_exp__keeps_its_bits(void **state)
{
    (void)state;
    uint64_t h = 14695981039346656037u;
    for (uint32_t i = 0; i < 200000u; i++) h = (h ^ kv_num_bits(kv_token_exp((float)i * -0x1.cp-12f))) * 1099511628211u;
    print_message("digest of exp: %016llx\n", (unsigned long long)h);
    assert_true(h == 0xC8B24F2CF7B4B9ACu);
}

static void token_argmax__takes_the_lowest_of_equals_and_never_nan(void **state)
{
    (void)state;
    const float inf = INFINITY, nan = NAN;
    assert_int_equal(kv_token_argmax((const float[]){1, 3, 3, 2}, 4), 1);
    assert_int_equal(kv_token_argmax((const float[]){-0.0f, 0.0f, -1}, 3), 0);
    assert_int_equal(kv_token_argmax((const float[]){0.0f, -0.0f, -1}, 3), 0);
    assert_int_equal(kv_token_argmax((const float[]){nan, 1, nan, 2}, 4), 3);
    assert_int_equal(kv_token_argmax((const float[]){nan, -inf, -inf}, 3), 1);
    assert_int_equal(kv_token_argmax((const float[]){nan, nan}, 2), 0);
    assert_int_equal(kv_token_argmax((const float[]){1, inf, inf, nan}, 4), 1);
    assert_int_equal((int)kv_token_logit_bits(nan), 0x7FC00000);
    assert_int_equal((int)kv_token_logit_bits(kv_num_float(0xFF800001u)), 0x7FC00000);
    assert_int_equal(kv_token_logit_bits(-0.0f), 0x80000000u);
}

/* ---- tests: the decode ------------------------------------------------------------------ */

/* One shape, one type: every variant gives what the plain decoder gives. */
static void check_shape(const shape *g, kv_elem e, element_fn *element)
{
    kv_token_out got, want;
    cache c = filled_cache(g, e, element, 77u + (uint64_t)e);
    kv_token_ctx *ctx = new_ctx(g);
    plain_decode(g, &c, &want);
    for (int i = 0; kv_token_variant(i) != NULL; i++) {
        if (kv_token_ctx_use(ctx, kv_token_variant(i), NULL) != KV_OK) continue;
        memset(&got, 0xA5, sizeof got);
        decode(ctx, g, &c, &got);
        if (!same(&got, &want))
            fail_msg("%s: T=%lld H=%lld D=%lld Dv=%lld %s differs from the plain decoder", kv_token_variant(i),
                     (long long)g->tokens, (long long)g->heads, (long long)g->dim_k, (long long)g->dim_v,
                     kv_elem_name(e));
    }
    kv_token_ctx_free(ctx);
    free_cache(&c);
}

static void token_decode__equals_the_plain_decoder(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {1, 0, 0, 1, 8, 8},      {1, 0, 1, 1, 1, 1},       {2, 1, 5, 3, 3, 7},       {3, 2, 40, 2, 8, 8},
        {4, 3, 63, 1, 4, 4},     {5, 4, 64, 2, 12, 16},    {6, 5, 65, 1, 16, 5},     {7, 6, 129, 2, 9, 8},
        {8, 7, 3, 17, 8, 8},     {9, 8, 2, 33, 5, 4},      {10, 9, 1, 2, 256, 64},   {11, 10, 0, 20, 3, 2},
        {12, 0, 700, 3, 80, 72}, {13, 0, 150, 20, 64, 40}, {14, 0, 130, 18, 63, 65},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int e = 0; e < KV_ELEM_COUNT; e++)
            if (i < 12 || e == KV_ELEM_F16 || i == 13) check_shape(&shapes[i], (kv_elem)e, payload_bits);
}

/* Any bits at all: NaN, Inf, subnormals and huge values go the same way everywhere. */
static void token_decode__is_defined_for_any_bits(void **state)
{
    (void)state;
    static const shape shapes[] = {{1, 0, 1, 1, 4, 4}, {2, 0, 3, 2, 8, 8}, {3, 0, 70, 3, 8, 4}, {4, 0, 20, 17, 4, 12}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int e = 0; e < KV_ELEM_COUNT; e++) check_shape(&shapes[i], (kv_elem)e, opaque_bits);
}

static uint32_t all_nan(kv_elem e, uint64_t seed, int64_t i)
{
    (void)seed;
    (void)i;
    return kv_num_from_f32(e, KV_NUM_NAN);
}

static void token_decode__gives_one_nan_and_token_0_for_a_cache_of_nan(void **state)
{
    (void)state;
    const shape g = {1, 0, 3, 2, 8, 8};
    for (int e = 0; e < KV_ELEM_COUNT; e++) {
        cache c = filled_cache(&g, (kv_elem)e, all_nan, 0);
        kv_token_ctx *ctx = new_ctx(&g);
        kv_token_out out;
        decode(ctx, &g, &c, &out);
        for (int s = 0; s < STEPS; s++) {
            assert_int_equal(out.tokens[s], 0);
            for (int v = 0; v < VOCAB; v++) assert_int_equal(out.logits[s][v], 0x7FC00000);
        }
        kv_token_ctx_free(ctx);
        free_cache(&c);
    }
}

static void token_decode__keeps_its_golden_values(void **state)
{
    (void)state;
    static const struct {
        shape g;
        int32_t tokens[STEPS];
        uint64_t digest;
        uint32_t last;
    } cases[] = {
        {{1, 0, 0, 1, 4, 4}, {5, 25, 59, 41, 41, 25, 41, 41}, 0xFF919619A661F8EEu, 0x3FDF82A8u},
        {{1, 0, 1, 1, 8, 8}, {16, 4, 28, 59, 26, 21, 42, 37}, 0x45C14268CEF57F23u, 0xC1E57718u},
        {{1, 0, 40, 2, 8, 8}, {25, 20, 10, 45, 23, 13, 53, 35}, 0xA04CC8F8EA87A858u, 0xBF867FE0u},
        {{7, 3, 70, 3, 12, 5}, {32, 14, 19, 52, 45, 18, 32, 40}, 0x9CACE9B1333706D2u, 0x41058C7Bu},
        {{UINT64_MAX, 79, 200, 1, 20, 32}, {39, 52, 3, 39, 2, 9, 11, 26}, 0x341E11DE84B3279Au, 0xC124B26Du},
    };
    const kv_elem elems[] = {KV_ELEM_BF16, KV_ELEM_F16, KV_ELEM_F32}; /* the same values in each */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t j = 0; j < 3; j++) {
            const shape *g = &cases[i].g;
            cache c = new_cache(g, elems[j]);
            for (int64_t n = 0; n < c.k_elems; n++)
                kv_num_store(elems[j], c.k, n, kv_num_from_f32(elems[j], golden_bits(100, n)));
            for (int64_t n = 0; n < c.v_elems; n++)
                kv_num_store(elems[j], c.v, n, kv_num_from_f32(elems[j], golden_bits(200, n)));
            kv_token_ctx *ctx = new_ctx(g);
            kv_token_out out;
            decode(ctx, g, &c, &out);
            assert_memory_equal(out.tokens, cases[i].tokens, sizeof out.tokens);
            assert_int_equal(out.logits[7][63], cases[i].last);
            assert_true(digest(&out) == cases[i].digest);
            kv_token_ctx_free(ctx);
            free_cache(&c);
        }
}

/* Flips every bit that must show at one position, in K or V, and counts the flips. */
static int64_t flip_all_bits(const kv_token_ctx *ctx, const shape *g, const cache *c, const kv_token_out *want,
                             unsigned char *half, int64_t at)
{
    const kv_elem e = c->elem;
    const uint32_t old = kv_num_load(e, half, at);
    const int bits = 8 * (int)kv_elem_bytes(e), low = e == KV_ELEM_F32 ? 16 : 0;
    for (int b = low; b < bits; b++) {
        kv_token_out got;
        kv_num_store(e, half, at, old ^ 1u << b);
        decode(ctx, g, c, &got);
        if (memcmp(got.logits, want->logits, sizeof got.logits) == 0)
            fail_msg("%s T=%lld H=%lld D=%lld: bit %d of %s element %lld does not show", kv_elem_name(e),
                     (long long)g->tokens, (long long)g->heads, (long long)g->dim_k, b, half == c->k ? "K" : "V",
                     (long long)at);
    }
    kv_num_store(e, half, at, old);
    return bits - low;
}

/* All positions of small caches, `few` spread ones of large caches. */
static int64_t flip_positions(const shape *g, kv_elem e, int64_t few)
{
    cache c = filled_cache(g, e, payload_bits, 4242);
    kv_token_ctx *ctx = new_ctx(g);
    kv_token_out want, again;
    int64_t flips = 0;
    decode(ctx, g, &c, &want);
    for (int64_t i = 0; i < few; i++) {
        const uint64_t r = kv_token_mix64((uint64_t)(i + g->tokens));
        const bool all = few >= c.k_elems;
        if (all && i >= c.k_elems) break;
        flips += flip_all_bits(ctx, g, &c, &want, c.k, all ? i : (int64_t)(r % (uint64_t)c.k_elems));
        flips += flip_all_bits(ctx, g, &c, &want, c.v, all ? i : (int64_t)((r >> 20) % (uint64_t)c.v_elems));
    }
    decode(ctx, g, &c, &again);
    assert_true(same(&want, &again));
    kv_token_ctx_free(ctx);
    free_cache(&c);
    return flips;
}

static void token_decode__shows_every_flipped_bit(void **state)
{
    (void)state;
    static const int64_t tokens[] = {1, 40, 64}, heads[] = {1, 2, 8, 16}, dims[] = {4, 8, 64, 256};
    int64_t flips = 0;
    for (int e = 0; e < KV_ELEM_COUNT; e++)
        for (size_t t = 0; t < 3; t++)
            for (size_t h = 0; h < 4; h++)
                for (size_t d = 0; d < 4; d++) {
                    const shape g = {11 + h, (int64_t)d, tokens[t], heads[h], dims[d], dims[d]};
                    const int64_t size = g.tokens * g.heads * g.dim_k;
                    const int64_t few = size <= 64 ? size : 1600 / size + 1;
                    if (size > 50000 && e != KV_ELEM_F16) continue; /* the hardest type: the least last bit */
                    flips += flip_positions(&g, (kv_elem)e, few);
                }
    /* the published geometry, all of it */
    flips += flip_positions(&(const shape){1, 0, 40, 2, 8, 8}, KV_ELEM_F16, 640);
    flips += flip_positions(&(const shape){1, 2, 40, 2, 8, 8}, KV_ELEM_FP8_E4M3, 640);
    print_message("%lld flipped bits, all seen\n", (long long)flips);
}

/* Two lines of attack that a flip is not: tokens exchanged, heads exchanged, K exchanged with V. */
static void token_decode__shows_exchanged_elements(void **state)
{
    (void)state;
    const shape g = {5, 0, 40, 2, 8, 8};
    cache c = filled_cache(&g, KV_ELEM_F16, payload_bits, 9);
    kv_token_ctx *ctx = new_ctx(&g);
    kv_token_out want, got;
    decode(ctx, &g, &c, &want);
    const int64_t pairs[][2] = {{0, 16}, {16, 32}, {0, 8}, {0, 624}, {3, 4}}; /* in elements */
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        for (int half = 0; half < 2; half++) {
            unsigned char *x = half == 0 ? c.k : c.v;
            const uint32_t a = kv_num_load(KV_ELEM_F16, x, pairs[i][0]), b = kv_num_load(KV_ELEM_F16, x, pairs[i][1]);
            kv_num_store(KV_ELEM_F16, x, pairs[i][0], b);
            kv_num_store(KV_ELEM_F16, x, pairs[i][1], a);
            decode(ctx, &g, &c, &got);
            assert_true(a != b && memcmp(got.logits, want.logits, sizeof got.logits) != 0);
            kv_num_store(KV_ELEM_F16, x, pairs[i][0], a);
            kv_num_store(KV_ELEM_F16, x, pairs[i][1], b);
        }
    assert_int_equal(kv_token_decode(ctx, KV_ELEM_F16, g.tokens, c.v, c.k, &got, NULL), KV_OK);
    assert_true(memcmp(got.logits, want.logits, sizeof got.logits) != 0);
    kv_token_ctx_free(ctx);
    free_cache(&c);
}

static void token_decode__says_different_things(void **state)
{
    (void)state;
    int64_t runs = 0, distinct = 0, poor = 0;
    uint64_t seen = 0;
    for (int64_t t = 0; t < 70; t += 3)
        for (int64_t h = 1; h <= 8; h *= 2)
            for (int64_t d = 4; d <= 64; d *= 4) {
                const shape g = {(uint64_t)(t + h), t % 5, t, h, d, d};
                cache c = filled_cache(&g, KV_ELEM_F16, payload_bits, 3);
                kv_token_ctx *ctx = new_ctx(&g);
                kv_token_out out;
                decode(ctx, &g, &c, &out);
                uint64_t set = 0;
                for (int s = 0; s < STEPS; s++) set |= (uint64_t)1 << out.tokens[s];
                const int n = __builtin_popcountll(set);
                seen |= set;
                runs++;
                distinct += n;
                poor += n < 2;
                kv_token_ctx_free(ctx);
                free_cache(&c);
            }
    print_message("%lld decodes: %.2f distinct tokens of 8 on average, %d of 64 seen at all\n", (long long)runs,
                  (double)distinct / (double)runs, __builtin_popcountll(seen));
    assert_int_equal(poor, 0);
    assert_true(distinct >= 4 * runs);
    assert_int_equal(__builtin_popcountll(seen), 64);
}

static void token_decode__depends_on_seed_and_layer(void **state)
{
    (void)state;
    const shape g[] = {{1, 0, 40, 2, 8, 8}, {2, 0, 40, 2, 8, 8}, {1, 1, 40, 2, 8, 8}};
    cache c = filled_cache(&g[0], KV_ELEM_F16, payload_bits, 9);
    kv_token_out out[3];
    for (int i = 0; i < 3; i++) {
        kv_token_ctx *ctx = new_ctx(&g[i]);
        decode(ctx, &g[i], &c, &out[i]);
        kv_token_ctx_free(ctx);
    }
    assert_false(same(&out[0], &out[1]));
    assert_false(same(&out[0], &out[2]));
    assert_false(same(&out[1], &out[2]));
    free_cache(&c);
}

/* ---- tests: errors ---------------------------------------------------------------------- */

static void token__refuses_what_is_out_of_range(void **state)
{
    (void)state;
    static const shape wrong[] = {
        {1, -1, 0, 1, 8, 8},
        {1, 0, 0, 0, 8, 8},
        {1, 0, 0, KV_TOKEN_HEADS_MAX + 1, 8, 8},
        {1, 0, 0, 1, 0, 8},
        {1, 0, 0, 1, 8, 0},
        {1, 0, 0, 1, KV_TOKEN_DIM_MAX + 1, 8},
        {1, 0, 0, 1, 8, KV_TOKEN_DIM_MAX + 1},
    };
    kv_token_ctx *ctx = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const shape *g = &wrong[i];
        kv_err err = {0};
        assert_int_equal(kv_token_ctx_new(1, g->layer, g->heads, g->dim_k, g->dim_v, &ctx, &err), KV_EINVAL);
        assert_true(err.text[0] != '\0');
        assert_null(ctx);
    }
    kv_token_ctx_free(NULL);
    const shape g = {1, 0, 0, 1, 8, 8};
    ctx = new_ctx(&g);
    kv_token_out out, before;
    memset(&out, 0xA5, sizeof out);
    before = out;
    const char byte = 0;
    assert_int_equal(kv_token_decode(ctx, KV_ELEM_COUNT, 0, NULL, NULL, &out, NULL), KV_EINVAL);
    assert_int_equal(kv_token_decode(ctx, KV_ELEM_F16, -1, &byte, &byte, &out, NULL), KV_EINVAL);
    assert_int_equal(kv_token_decode(ctx, KV_ELEM_F16, INT64_MAX, &byte, &byte, &out, NULL), KV_ENOMEM);
    assert_int_equal(kv_token_decode(ctx, KV_ELEM_F16, INT64_MAX / 4, &byte, &byte, &out, NULL), KV_ENOMEM);
    assert_int_equal(kv_token_ctx_use(ctx, "abacus", NULL), KV_EUNSUP);
    assert_true(same(&out, &before));
    assert_int_equal(kv_token_decode(ctx, KV_ELEM_F16, 0, NULL, NULL, &out, NULL), KV_OK);
    assert_string_equal(kv_token_variant(0), "ref");
    assert_null(kv_token_variant(-1));
    assert_null(kv_token_variant(99));
    kv_token_ctx_free(ctx);
}

static void token__survives_every_failed_allocation(void **state)
{
    (void)state;
    const shape g = {1, 0, 40, 2, 8, 8};
    cache c = filled_cache(&g, KV_ELEM_F16, payload_bits, 9);
    for (long n = 0;; n++) {
        kv_token_ctx *ctx = NULL;
        kv_token_out out;
        kv_err err = {0};
        kv_alloc_fail_after(n);
        kv_rc rc = kv_token_ctx_new(1, 0, 2, 8, 8, &ctx, &err);
        if (rc == KV_OK) rc = kv_token_decode(ctx, KV_ELEM_F16, 40, c.k, c.v, &out, &err);
        kv_alloc_fail_after(-1);
        kv_token_ctx_free(ctx);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        assert_int_equal(err.rc, KV_ENOMEM);
        assert_true(n < 10);
    }
    free_cache(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_weights__are_the_fixed_function),
        cmocka_unit_test(token_scale__is_the_largest_float_not_above_the_root),
        cmocka_unit_test(token_exp__is_within_two_ulp),
        cmocka_unit_test(token_exp__keeps_its_bits),
        cmocka_unit_test(token_argmax__takes_the_lowest_of_equals_and_never_nan),
        cmocka_unit_test(token_decode__equals_the_plain_decoder),
        cmocka_unit_test(token_decode__is_defined_for_any_bits),
        cmocka_unit_test(token_decode__gives_one_nan_and_token_0_for_a_cache_of_nan),
        cmocka_unit_test(token_decode__keeps_its_golden_values),
        cmocka_unit_test(token_decode__shows_every_flipped_bit),
        cmocka_unit_test(token_decode__shows_exchanged_elements),
        cmocka_unit_test(token_decode__says_different_things),
        cmocka_unit_test(token_decode__depends_on_seed_and_layer),
        cmocka_unit_test(token__refuses_what_is_out_of_range),
        cmocka_unit_test(token__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
