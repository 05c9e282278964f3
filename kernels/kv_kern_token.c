/* The token leg on the CPU: kv_kern_token.h in loops that vectorise. Rows are padded with zeros to
 * whole groups of 8 lanes, which changes no sum. */
#include "kernels/kv_kern_token.h"

#include <float.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float expressions are computed in float");

#if defined(__GNUC__)
#define KV_BODY static inline __attribute__((always_inline)) /* compiled anew into each variant */
#else
#define KV_BODY static inline
#endif

enum { E = KV_TOKEN_HIDDEN, CHUNK = KV_TOKEN_CHUNK, LANES = KV_TOKEN_LANES, GROUP = KV_TOKEN_GROUP };
enum { STEPS = KV_TOKEN_STEPS, VOCAB = KV_TOKEN_VOCAB };
enum {
    WHOLE_FLOATS = 1 << 18, /* caches up to this size are converted once, not in each step */
    TILE_FLOATS = 1 << 13,  /* else a tile of about this size, read in memory order */
    BLOCK_HEADS = 16        /* kv heads that go through the cache together */
};

struct kv_token_ctx {
    int64_t heads, dim_k, dim_v;
    int64_t pad_k, pad_v, pad_out; /* D, Dv and 2H * Dv in whole groups of lanes */
    float scale;
    int32_t start;
    int variant;
    float *embed, *position, *wq, *wk, *wv, *wo, *unembed; /* all in the block of embed */
};

/* K or V of the layer. */
typedef struct {
    const unsigned char *src; /* [T][H][dim] */
    int64_t dim, pad;
    float *rows;  /* a tile [n][block of heads][pad], or [T][H][pad] where whole */
    float *fresh; /* [8][H][pad]: of the new tokens */
} half;

/* One decode under way. */
typedef struct {
    const kv_token_ctx *c;
    kv_elem elem;
    int64_t tokens;
    int64_t tile; /* tokens in a tile */
    bool whole;
    half k, v;
    float *score; /* [2 * block of heads][tokens + 8]: scores, then weights */
    float *query; /* [2H][pad_k] */
    float *part;  /* [2 * block of heads][pad_v]: sums of this chunk */
    float *total; /* the same, of all chunks */
    float *out;   /* [pad_out] */
} decode;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t whole_lanes(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* ---- lanes ------------------------------------------------------------------------------ */

typedef float quad __attribute__((vector_size(16)));
typedef struct {
    quad lo, hi; /* lanes 0..3 and 4..7 */
} lanes;

KV_BODY quad load(const float *p)
{
    quad x;
    memcpy(&x, p, sizeof x);
    return x;
}

KV_BODY void multiply_add(lanes *sum, const float *a, const float *b)
{
    sum->lo += load(a) * load(b);
    sum->hi += load(a + 4) * load(b + 4);
}

KV_BODY float tree(const lanes *x)
{
    const quad b = x->lo + x->hi;
    return (b[0] + b[2]) + (b[1] + b[3]);
}

/* ---- inner loops ------------------------------------------------------------------------ */

KV_BODY void convert_row(kv_elem elem, const unsigned char *restrict src, int64_t n, float *restrict dst)
{
    if (elem == KV_ELEM_F32) memcpy(dst, src, (size_t)n * sizeof *dst);
    if (elem == KV_ELEM_F16)
        for (int64_t d = 0; d < n; d++) dst[d] = kv_num_float(kv_num_f32_of_f16(kv_num_load(KV_ELEM_F16, src, d)));
    if (elem == KV_ELEM_BF16)
        for (int64_t d = 0; d < n; d++) dst[d] = kv_num_float(kv_num_f32_of_bf16(kv_num_load(KV_ELEM_BF16, src, d)));
    if (elem == KV_ELEM_FP8_E4M3)
        for (int64_t d = 0; d < n; d++) dst[d] = kv_num_float(kv_num_f32_of_fp8(src[d]));
}

/* Tokens t .. t + n - 1, heads h .. h + heads - 1 to dst [n][heads][pad]. */
KV_BODY void convert_tile(const decode *s, const half *x, int64_t t, int64_t n, int64_t h, int64_t heads, float *dst)
{
    const int64_t row = x->dim * kv_elem_bytes(s->elem), token = row * s->c->heads;
    const unsigned char *src = x->src + t * token + h * row;
    if (x->pad == x->dim && heads == s->c->heads) {
        convert_row(s->elem, src, n * heads * x->dim, dst);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < heads; j++)
            convert_row(s->elem, src + i * token + j * row, x->dim, dst + (i * heads + j) * x->pad);
}

/* The two query heads q [2][pad] against n rows k, `stride` floats apart. */
KV_BODY void score_rows(const float *q, const float *k, int64_t pad, int64_t stride, float scale, int64_t n,
                        float *score0, float *score1)
{
    for (int64_t t = 0; t < n; t++, k += stride) {
        lanes sum0 = {{0.0f}, {0.0f}}, sum1 = {{0.0f}, {0.0f}};
        for (int64_t i = 0; i < pad; i += LANES) {
            multiply_add(&sum0, q + i, k + i);
            multiply_add(&sum1, q + pad + i, k + i);
        }
        score0[t] = tree(&sum0) * scale;
        score1[t] = tree(&sum1) * scale;
    }
}

/* sum [2][pad] += the weights of the two query heads times n rows v. */
KV_BODY void weigh_rows(const float *w0, const float *w1, const float *v, int64_t pad, int64_t stride, int64_t n,
                        float *sum)
{
    for (int64_t d = 0; d < pad; d += 4) {
        quad sum0 = load(sum + d), sum1 = load(sum + pad + d);
        for (int64_t t = 0; t < n; t++) {
            const quad x = load(v + t * stride + d);
            sum0 += x * w0[t];
            sum1 += x * w1[t];
        }
        memcpy(sum + d, &sum0, sizeof sum0);
        memcpy(sum + pad + d, &sum1, sizeof sum1);
    }
}

/* Scores to weights, in place. The largest is searched in lanes: its order is free. */
KV_BODY void soften(float *restrict score, int64_t n)
{
    float lane[LANES];
    for (int64_t j = 0; j < LANES; j++) lane[j] = kv_num_float(0xFF800000u);
    int64_t t = 0;
    for (; t + LANES <= n; t += LANES)
        for (int64_t j = 0; j < LANES; j++) lane[j] = score[t + j] > lane[j] ? score[t + j] : lane[j];
    float most = lane[0];
    for (; t < n; t++) most = score[t] > most ? score[t] : most;
    for (int64_t j = 1; j < LANES; j++) most = lane[j] > most ? lane[j] : most;
    for (t = 0; t < n; t++) score[t] = kv_token_exp(score[t] - most);
}

/* The chunked sum of the weights of `tokens` cache tokens and `fresh` new ones. */
KV_BODY float denominator(const float *w, int64_t tokens, int64_t fresh)
{
    float total = 0.0f;
    for (int64_t t = 0; t < tokens + fresh;) {
        const int64_t end = t < tokens ? least(t + CHUNK, tokens) : tokens + fresh;
        float sum = 0.0f;
        for (; t < end; t++) sum += w[t];
        total += sum;
    }
    return total;
}

KV_BODY void project(const float *restrict m, int64_t rows, int64_t stride, const float *restrict x, float *restrict y)
{
    for (int64_t r = 0; r < rows; r++, m += stride) {
        lanes sum = {{0.0f}, {0.0f}};
        for (int64_t i = 0; i < stride; i += LANES) multiply_add(&sum, m + i, x + i);
        y[r] = tree(&sum);
    }
}

/* ---- one step --------------------------------------------------------------------------- */

/* The scores of kv heads h .. h + heads - 1, then their weights. */
KV_BODY void score_block(decode *s, int64_t h, int64_t heads, int64_t fresh)
{
    const kv_token_ctx *c = s->c;
    const int64_t tokens = s->tokens, row = tokens + STEPS, pad = c->pad_k, full = c->heads * pad;
    for (int64_t t = 0, n; t < tokens; t += n) {
        n = least(s->tile, tokens - t);
        const float *k = s->whole ? s->k.rows + t * full + h * pad : s->k.rows;
        if (!s->whole) convert_tile(s, &s->k, t, n, h, heads, s->k.rows);
        for (int64_t j = 0; j < heads; j++)
            score_rows(s->query + GROUP * (h + j) * pad, k + j * pad, pad, s->whole ? full : heads * pad, c->scale, n,
                       s->score + GROUP * j * row + t, s->score + (GROUP * j + 1) * row + t);
    }
    for (int64_t j = 0; j < heads; j++) {
        float *score = s->score + GROUP * j * row;
        score_rows(s->query + GROUP * (h + j) * pad, s->k.fresh + (h + j) * pad, pad, full, c->scale, fresh,
                   score + tokens, score + row + tokens);
        soften(score, tokens + fresh);
        soften(score + row, tokens + fresh);
    }
}

/* n rows of V for a block of heads, weighed by the weights from token t on. */
KV_BODY void weigh_block(decode *s, const float *v, int64_t stride, int64_t heads, int64_t t, int64_t n)
{
    const int64_t row = s->tokens + STEPS, pad = s->c->pad_v;
    for (int64_t j = 0; j < heads; j++)
        weigh_rows(s->score + GROUP * j * row + t, s->score + (GROUP * j + 1) * row + t, v + j * pad, pad, stride, n,
                   s->part + GROUP * j * pad);
}

/* A chunk is done: its sums go to the totals. */
KV_BODY void close_chunk(decode *s, int64_t heads)
{
    const int64_t n = GROUP * heads * s->c->pad_v;
    for (int64_t i = 0; i < n; i++) s->total[i] += s->part[i];
    memset(s->part, 0, (size_t)n * sizeof *s->part);
}

/* The outputs of kv heads h .. h + heads - 1 from their weights. */
KV_BODY void output_block(decode *s, int64_t h, int64_t heads, int64_t fresh)
{
    const kv_token_ctx *c = s->c;
    const int64_t tokens = s->tokens, row = tokens + STEPS, pad = c->pad_v, full = c->heads * pad;
    memset(s->part, 0, (size_t)(GROUP * heads * pad) * sizeof *s->part);
    memset(s->total, 0, (size_t)(GROUP * heads * pad) * sizeof *s->total);
    for (int64_t t = 0, n; t < tokens; t += n) {
        n = least(least(s->tile, tokens - t), CHUNK - t % CHUNK);
        const float *v = s->whole ? s->v.rows + t * full + h * pad : s->v.rows;
        if (!s->whole) convert_tile(s, &s->v, t, n, h, heads, s->v.rows);
        weigh_block(s, v, s->whole ? full : heads * pad, heads, t, n);
        if ((t + n) % CHUNK == 0 || t + n == tokens) close_chunk(s, heads);
    }
    weigh_block(s, s->v.fresh + h * pad, full, heads, tokens, fresh);
    close_chunk(s, heads);
    for (int64_t g = 0; g < GROUP * heads; g++) {
        const float den = denominator(s->score + g * row, tokens, fresh);
        for (int64_t d = 0; d < c->dim_v; d++) s->out[(GROUP * h + g) * c->dim_v + d] = s->total[g * pad + d] / den;
    }
}

/* Step number `step` from `token`: the logits. */
KV_BODY void take_step(decode *s, int32_t step, int32_t token, float *restrict logits)
{
    const kv_token_ctx *c = s->c;
    float x[E], y[E];
    for (int32_t e = 0; e < E; e++) x[e] = c->embed[token * E + e] + c->position[step * E + e];
    for (int64_t g = 0; g < GROUP * c->heads; g++)
        project(c->wq + g * c->dim_k * E, c->dim_k, E, x, s->query + g * c->pad_k);
    for (int64_t h = 0; h < c->heads; h++) {
        project(c->wk + h * c->dim_k * E, c->dim_k, E, x, s->k.fresh + (step * c->heads + h) * c->pad_k);
        project(c->wv + h * c->dim_v * E, c->dim_v, E, x, s->v.fresh + (step * c->heads + h) * c->pad_v);
    }
    for (int64_t h = 0; h < c->heads; h += BLOCK_HEADS) {
        const int64_t heads = least(BLOCK_HEADS, c->heads - h);
        score_block(s, h, heads, step + 1);
        output_block(s, h, heads, step + 1);
    }
    project(c->wo, E, c->pad_out, s->out, y);
    for (int32_t e = 0; e < E; e++) x[e] += y[e];
    project(c->unembed, VOCAB, E, x, logits);
}

/* ---- variants --------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    bool (*usable)(void);
    void (*step)(decode *s, int32_t step, int32_t token, float *restrict logits);
} variant;

static bool always(void)
{
    return true;
}
static void step_ref(decode *s, int32_t step, int32_t token, float *restrict logits)
{
    take_step(s, step, token, logits);
}

#if defined(__GNUC__) && defined(__x86_64__)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") != 0;
}
__attribute__((target("avx2"))) static void step_avx2(decode *s, int32_t step, int32_t token, float *restrict logits)
{
    take_step(s, step, token, logits);
}
#endif

static const variant variants[] = {
    {"ref", always, step_ref},
#if defined(__GNUC__) && defined(__x86_64__)
    {"avx2", has_avx2, step_avx2},
#endif
};
enum { VARIANTS = (int)(sizeof variants / sizeof variants[0]) };

const char *kv_token_variant(int index)
{
    return index >= 0 && index < VARIANTS ? variants[index].name : NULL;
}

kv_rc kv_token_ctx_use(kv_token_ctx *ctx, const char *name, kv_err *err)
{
    for (int i = 0; i < VARIANTS; i++) {
        if (strcmp(variants[i].name, name) != 0) continue;
        if (!variants[i].usable()) return KV_FAIL(err, KV_EUNSUP, "token leg: this machine has no %s", name);
        ctx->variant = i;
        return KV_OK;
    }
    return KV_FAIL(err, KV_EUNSUP, "token leg: this build has no variant '%s'", name);
}

/* ---- the context ------------------------------------------------------------------------ */

/* rows x cols weights of a matrix, rows `stride` floats apart. */
static void fill(float *dst, uint64_t seed, int64_t layer, kv_token_matrix matrix, int64_t rows, int64_t cols,
                 int64_t stride, int32_t exponent)
{
    for (int64_t r = 0; r < rows; r++) {
        const uint64_t key = kv_token_row_key(seed, (uint64_t)layer, matrix, (uint64_t)r);
        float *row = dst + r * stride;
        for (int64_t i = 0; i < cols; i++) row[i] = kv_token_weight(kv_token_hash(key, (uint32_t)i), exponent);
    }
}

static void fill_all(kv_token_ctx *c, uint64_t seed, int64_t layer)
{
    const int64_t out_len = GROUP * c->heads * c->dim_v;
    const struct {
        kv_token_matrix matrix;
        float **at;
        int64_t rows, cols, stride;
    } parts[] = {
        {KV_TOKEN_EMBED, &c->embed, VOCAB, E, E},
        {KV_TOKEN_POSITION, &c->position, STEPS, E, E},
        {KV_TOKEN_WQ, &c->wq, GROUP * c->heads * c->dim_k, E, E},
        {KV_TOKEN_WK, &c->wk, c->heads * c->dim_k, E, E},
        {KV_TOKEN_WV, &c->wv, c->heads * c->dim_v, E, E},
        {KV_TOKEN_WO, &c->wo, E, out_len, c->pad_out},
        {KV_TOKEN_UNEMBED, &c->unembed, VOCAB, E, E},
    };
    float *at = c->embed;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].at = at;
        fill(at, seed, layer, parts[i].matrix, parts[i].rows, parts[i].cols, parts[i].stride,
             kv_token_exponent(parts[i].matrix, out_len));
        at += parts[i].rows * parts[i].stride;
    }
    const uint64_t key = kv_token_row_key(seed, (uint64_t)layer, KV_TOKEN_START, 0);
    c->start = (int32_t)(kv_token_hash(key, 0) % VOCAB);
    c->scale = kv_token_scale(c->dim_k);
}

kv_rc kv_token_check(int64_t layer, int64_t kv_heads, int64_t dim_k, int64_t dim_v, kv_err *err)
{
    if (layer < 0) return KV_FAIL(err, KV_EINVAL, "token leg: layer %lld", (long long)layer);
    if (kv_heads < 1 || kv_heads > KV_TOKEN_HEADS_MAX)
        return KV_FAIL(err, KV_EINVAL, "token leg: %lld kv heads, not 1 to %d", (long long)kv_heads,
                       KV_TOKEN_HEADS_MAX);
    if (dim_k < 1 || dim_k > KV_TOKEN_DIM_MAX || dim_v < 1 || dim_v > KV_TOKEN_DIM_MAX)
        return KV_FAIL(err, KV_EINVAL, "token leg: head_dim %lld and %lld, not 1 to %d", (long long)dim_k,
                       (long long)dim_v, KV_TOKEN_DIM_MAX);
    return KV_OK;
}

static kv_token_ctx sizes_of(int64_t kv_heads, int64_t dim_k, int64_t dim_v)
{
    kv_token_ctx c = {.heads = kv_heads, .dim_k = dim_k, .dim_v = dim_v};
    c.pad_k = whole_lanes(dim_k);
    c.pad_v = whole_lanes(dim_v);
    c.pad_out = whole_lanes(GROUP * kv_heads * dim_v);
    return c;
}

/* Below 2^44 by the limits of kv_token_check. */
static int64_t weight_floats(const kv_token_ctx *c)
{
    return E * (2 * VOCAB + STEPS + c->heads * (3 * c->dim_k + c->dim_v) + c->pad_out);
}

kv_rc kv_token_ctx_new(uint64_t seed, int64_t layer, int64_t kv_heads, int64_t dim_k, int64_t dim_v, kv_token_ctx **out,
                       kv_err *err)
{
    const kv_rc rc = kv_token_check(layer, kv_heads, dim_k, dim_v, err);
    if (rc != KV_OK) return rc;
    kv_token_ctx *c = kv_alloc(1, sizeof *c);
    if (c == NULL) return KV_FAIL(err, KV_ENOMEM, "token leg: no memory for its context");
    *c = sizes_of(kv_heads, dim_k, dim_v);
    for (int i = 0; i < VARIANTS; i++)
        if (variants[i].usable()) c->variant = i;
    const int64_t floats = weight_floats(c);
    c->embed = kv_alloc((size_t)floats, sizeof *c->embed);
    if (c->embed == NULL) {
        kv_free(c);
        return KV_FAIL(err, KV_ENOMEM, "token leg: no memory for %lld weights", (long long)floats);
    }
    fill_all(c, seed, layer);
    *out = c;
    return KV_OK;
}

void kv_token_ctx_free(kv_token_ctx *ctx)
{
    if (ctx == NULL) return;
    kv_free(ctx->embed);
    kv_free(ctx);
}

/* ---- a decode --------------------------------------------------------------------------- */

/* Tokens in a tile, and the floats of all scratch; false where they do not fit 63 bits. */
static bool plan_scratch(decode *s, int64_t *floats)
{
    const kv_token_ctx *c = s->c;
    const int64_t heads = least(c->heads, BLOCK_HEADS), pads = c->pad_k + c->pad_v;
    const int64_t tile = TILE_FLOATS / (heads * (c->pad_k > c->pad_v ? c->pad_k : c->pad_v));
    s->whole = s->tokens <= WHOLE_FLOATS / (c->heads * pads);
    s->tile = s->whole ? CHUNK : tile < 1 ? 1 : least(tile, CHUNK);
    const int64_t rows = s->whole ? c->heads * s->tokens : heads * s->tile;
    const int64_t fixed = c->heads * (STEPS * pads + GROUP * c->pad_k) + 2 * GROUP * heads * c->pad_v + c->pad_out;
    int64_t scores;
    return kv_add_i64(s->tokens, STEPS, &scores) && kv_mul_i64(scores, GROUP * heads, &scores) &&
           kv_add_i64(scores, fixed + rows * pads, floats);
}

bool kv_token_bytes(int64_t tokens, int64_t kv_heads, int64_t dim_k, int64_t dim_v, int64_t *out)
{
    const kv_token_ctx c = sizes_of(kv_heads, dim_k, dim_v);
    decode s = {.c = &c, .tokens = tokens};
    const int64_t queries = GROUP * kv_heads, chunks = tokens / CHUNK + 2;
    int64_t host, gpu, sums;
    /* a GPU: scores, the chunks' sums and their number of outputs, and what does not grow with the tokens; no weights */
    if (!plan_scratch(&s, &host) || !kv_add_i64(host, weight_floats(&c), &host) ||
        !kv_mul_i64(queries, tokens + STEPS + 1, &gpu) || !kv_mul_i64(queries * (dim_v + 1), chunks, &sums) ||
        !kv_add_i64(gpu, sums, &gpu) ||
        !kv_add_i64(gpu, (queries + STEPS * kv_heads) * (dim_k + dim_v) + STEPS * E, &gpu))
        return false;
    return kv_mul_i64(host > gpu ? host : gpu, (int64_t)sizeof(float), out);
}

/* Cuts the scratch into its parts and, where the cache is small, converts it. */
static void lay_out(decode *s, float *at)
{
    const kv_token_ctx *c = s->c;
    const int64_t heads = least(c->heads, BLOCK_HEADS);
    const int64_t rows = s->whole ? c->heads * s->tokens : heads * s->tile;
    s->k.rows = at;
    at += rows * c->pad_k;
    s->v.rows = at;
    at += rows * c->pad_v;
    s->k.fresh = at;
    at += STEPS * c->heads * c->pad_k;
    s->v.fresh = at;
    at += STEPS * c->heads * c->pad_v;
    s->query = at;
    at += GROUP * c->heads * c->pad_k;
    s->part = at;
    at += GROUP * heads * c->pad_v;
    s->total = at;
    at += GROUP * heads * c->pad_v;
    s->out = at;
    at += c->pad_out;
    s->score = at;
    if (!s->whole || s->tokens == 0) return;
    convert_tile(s, &s->k, 0, s->tokens, 0, c->heads, s->k.rows);
    convert_tile(s, &s->v, 0, s->tokens, 0, c->heads, s->v.rows);
}

kv_rc kv_token_decode(const kv_token_ctx *ctx, kv_elem elem, int64_t tokens, const void *k, const void *v,
                      kv_token_out *out, kv_err *err)
{
    if (kv_elem_bytes(elem) == 0) return KV_FAIL(err, KV_EINVAL, "token leg: element type %d", (int)elem);
    if (tokens < 0) return KV_FAIL(err, KV_EINVAL, "token leg: %lld tokens", (long long)tokens);
    decode s = {.c = ctx, .elem = elem, .tokens = tokens};
    int64_t floats;
    s.k = (half){.src = k, .dim = ctx->dim_k, .pad = ctx->pad_k};
    s.v = (half){.src = v, .dim = ctx->dim_v, .pad = ctx->pad_v};
    if (!plan_scratch(&s, &floats))
        return KV_FAIL(err, KV_ENOMEM, "token leg: no memory for %lld tokens", (long long)tokens);
    float *scratch = kv_alloc((size_t)floats, sizeof *scratch);
    if (scratch == NULL)
        return KV_FAIL(err, KV_ENOMEM, "token leg: no memory for %lld floats of scratch", (long long)floats);
    lay_out(&s, scratch);
    int32_t token = ctx->start;
    for (int32_t step = 0; step < STEPS; step++) {
        float logits[VOCAB];
        variants[ctx->variant].step(&s, step, token, logits);
        token = kv_token_argmax(logits, VOCAB);
        out->tokens[step] = token;
        for (int32_t i = 0; i < VOCAB; i++) out->logits[step][i] = kv_token_logit_bits(logits[i]);
    }
    kv_free(scratch);
    return KV_OK;
}
