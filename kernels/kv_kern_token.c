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
enum { WHOLE_FLOATS = 1 << 18 }; /* caches up to this size are converted once, not in each step */

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
    float *rows;  /* [64][pad], or [H][T][pad] where whole */
    float *fresh; /* [H][8][pad]: of the new tokens */
} half;

/* One decode under way. */
typedef struct {
    const kv_token_ctx *c;
    kv_elem elem;
    int64_t tokens;
    bool whole;
    half k, v;
    float *score; /* [2][tokens + 8]: scores, then weights */
    float *query; /* [2H][pad_k] */
    float *total; /* [2][pad_v] */
    float *out;   /* [pad_out] */
} decode;

static int64_t whole_lanes(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* ---- inner loops ------------------------------------------------------------------------ */

/* n rows of dim elements, `stride` bytes apart, to rows of pad floats. */
KV_BODY void convert_rows(kv_elem elem, const unsigned char *restrict src, int64_t stride, int64_t dim,
                          float *restrict dst, int64_t pad, int64_t n)
{
    for (int64_t t = 0; t < n; t++, src += stride, dst += pad) {
        if (elem == KV_ELEM_F32) memcpy(dst, src, (size_t)dim * sizeof *dst);
        if (elem == KV_ELEM_F16)
            for (int64_t d = 0; d < dim; d++)
                dst[d] = kv_num_float(kv_num_f32_of_f16(kv_num_load(KV_ELEM_F16, src, d)));
        if (elem == KV_ELEM_BF16)
            for (int64_t d = 0; d < dim; d++)
                dst[d] = kv_num_float(kv_num_f32_of_bf16(kv_num_load(KV_ELEM_BF16, src, d)));
        if (elem == KV_ELEM_FP8_E4M3)
            for (int64_t d = 0; d < dim; d++) dst[d] = kv_num_float(kv_num_f32_of_fp8(src[d]));
    }
}

/* The n rows of x for head h from token t on, as floats. */
KV_BODY const float *rows_of(const decode *s, const half *x, int64_t h, int64_t t, int64_t n)
{
    if (s->whole) return x->rows + (h * s->tokens + t) * x->pad;
    const int64_t row_bytes = x->dim * kv_elem_bytes(s->elem), stride = s->c->heads * row_bytes;
    convert_rows(s->elem, x->src + t * stride + h * row_bytes, stride, x->dim, x->rows, x->pad, n);
    return x->rows;
}

KV_BODY float dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float lane[LANES] = {0.0f};
    for (int64_t i = 0; i < n; i += LANES)
        for (int64_t j = 0; j < LANES; j++) lane[j] += a[i + j] * b[i + j];
    return kv_token_tree(lane);
}

KV_BODY void score_rows(const float *restrict q, const float *restrict k, int64_t pad, float scale, int64_t n,
                        float *restrict score)
{
    for (int64_t t = 0; t < n; t++) score[t] = dot(q, k + t * pad, pad) * scale;
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

/* One chunk: its sum of w[t] * v[t][..] added to total, its sum of w[t] to *den. */
KV_BODY void weigh_rows(const float *restrict w, const float *restrict v, int64_t pad, int64_t n, float *restrict total,
                        float *restrict den)
{
    float sum = 0.0f;
    for (int64_t t = 0; t < n; t++) sum += w[t];
    *den += sum;
    for (int64_t d = 0; d < pad; d += LANES) {
        float lane[LANES] = {0.0f};
        for (int64_t t = 0; t < n; t++)
            for (int64_t j = 0; j < LANES; j++) lane[j] += w[t] * v[t * pad + d + j];
        for (int64_t j = 0; j < LANES; j++) total[d + j] += lane[j];
    }
}

KV_BODY void project(const float *restrict m, int64_t rows, int64_t stride, const float *restrict x, float *restrict y)
{
    for (int64_t r = 0; r < rows; r++) y[r] = dot(m + r * stride, x, stride);
}

/* The two query heads of kv head h over the cache and `fresh` new tokens: fills their part of out. */
KV_BODY void attend(decode *s, int64_t h, int64_t fresh)
{
    const kv_token_ctx *c = s->c;
    const int64_t tokens = s->tokens, row = tokens + STEPS;
    const float *q = s->query + GROUP * h * c->pad_k;
    for (int64_t t = 0; t < tokens; t += CHUNK) {
        const int64_t n = tokens - t < CHUNK ? tokens - t : CHUNK;
        const float *k = rows_of(s, &s->k, h, t, n);
        for (int64_t g = 0; g < GROUP; g++)
            score_rows(q + g * c->pad_k, k, c->pad_k, c->scale, n, s->score + g * row + t);
    }
    float den[GROUP] = {0.0f};
    memset(s->total, 0, (size_t)(GROUP * c->pad_v) * sizeof *s->total);
    for (int64_t g = 0; g < GROUP; g++) {
        score_rows(q + g * c->pad_k, s->k.fresh + h * STEPS * c->pad_k, c->pad_k, c->scale, fresh,
                   s->score + g * row + tokens);
        soften(s->score + g * row, tokens + fresh);
    }
    for (int64_t t = 0; t < tokens; t += CHUNK) {
        const int64_t n = tokens - t < CHUNK ? tokens - t : CHUNK;
        const float *v = rows_of(s, &s->v, h, t, n);
        for (int64_t g = 0; g < GROUP; g++)
            weigh_rows(s->score + g * row + t, v, c->pad_v, n, s->total + g * c->pad_v, &den[g]);
    }
    for (int64_t g = 0; g < GROUP; g++) {
        weigh_rows(s->score + g * row + tokens, s->v.fresh + h * STEPS * c->pad_v, c->pad_v, fresh,
                   s->total + g * c->pad_v, &den[g]);
        for (int64_t d = 0; d < c->dim_v; d++)
            s->out[(GROUP * h + g) * c->dim_v + d] = s->total[g * c->pad_v + d] / den[g];
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
        project(c->wk + h * c->dim_k * E, c->dim_k, E, x, s->k.fresh + (h * STEPS + step) * c->pad_k);
        project(c->wv + h * c->dim_v * E, c->dim_v, E, x, s->v.fresh + (h * STEPS + step) * c->pad_v);
        attend(s, h, step + 1);
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

kv_rc kv_token_ctx_new(uint64_t seed, int64_t layer, int64_t kv_heads, int64_t dim_k, int64_t dim_v, kv_token_ctx **out,
                       kv_err *err)
{
    if (layer < 0) return KV_FAIL(err, KV_EINVAL, "token leg: layer %lld", (long long)layer);
    if (kv_heads < 1 || kv_heads > KV_TOKEN_HEADS_MAX)
        return KV_FAIL(err, KV_EINVAL, "token leg: %lld kv heads, not 1 to %d", (long long)kv_heads,
                       KV_TOKEN_HEADS_MAX);
    if (dim_k < 1 || dim_k > KV_TOKEN_DIM_MAX || dim_v < 1 || dim_v > KV_TOKEN_DIM_MAX)
        return KV_FAIL(err, KV_EINVAL, "token leg: head_dim %lld and %lld, not 1 to %d", (long long)dim_k,
                       (long long)dim_v, KV_TOKEN_DIM_MAX);
    kv_token_ctx *c = kv_alloc(1, sizeof *c);
    if (c == NULL) return KV_FAIL(err, KV_ENOMEM, "token leg: context");
    c->heads = kv_heads;
    c->dim_k = dim_k;
    c->dim_v = dim_v;
    c->pad_k = whole_lanes(dim_k);
    c->pad_v = whole_lanes(dim_v);
    c->pad_out = whole_lanes(GROUP * kv_heads * dim_v);
    for (int i = 0; i < VARIANTS; i++)
        if (variants[i].usable()) c->variant = i;
    /* below 2^44 by the limits above */
    const int64_t floats = E * (2 * VOCAB + STEPS + kv_heads * (3 * dim_k + dim_v) + c->pad_out);
    c->embed = kv_alloc((size_t)floats, sizeof *c->embed);
    if (c->embed == NULL) {
        kv_free(c);
        return KV_FAIL(err, KV_ENOMEM, "token leg: %lld weights", (long long)floats);
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

/* Floats of scratch, or false where they do not fit 63 bits. */
static bool scratch_floats(const decode *s, int64_t *floats)
{
    const kv_token_ctx *c = s->c;
    const int64_t pads = c->pad_k + c->pad_v;
    const int64_t fixed = c->heads * STEPS * pads + GROUP * c->heads * c->pad_k + GROUP * c->pad_v + c->pad_out;
    const int64_t rows = s->whole ? c->heads * s->tokens : CHUNK;
    int64_t scores;
    return kv_add_i64(s->tokens, STEPS, &scores) && kv_mul_i64(scores, GROUP, &scores) &&
           kv_add_i64(scores, fixed + rows * pads, floats);
}

/* Cuts the scratch into its parts and, where the cache is small, converts it. */
static void lay_out(decode *s, float *scratch)
{
    const kv_token_ctx *c = s->c;
    const int64_t rows = s->whole ? c->heads * s->tokens : CHUNK;
    s->k.rows = scratch;
    s->v.rows = s->k.rows + rows * c->pad_k;
    s->k.fresh = s->v.rows + rows * c->pad_v;
    s->v.fresh = s->k.fresh + c->heads * STEPS * c->pad_k;
    s->query = s->v.fresh + c->heads * STEPS * c->pad_v;
    s->total = s->query + GROUP * c->heads * c->pad_k;
    s->out = s->total + GROUP * c->pad_v;
    s->score = s->out + c->pad_out;
    if (!s->whole) return;
    const half *const halves[] = {&s->k, &s->v};
    for (int i = 0; i < 2; i++) {
        const half *x = halves[i];
        const int64_t row_bytes = x->dim * kv_elem_bytes(s->elem);
        for (int64_t h = 0; h < c->heads; h++)
            convert_rows(s->elem, x->src + h * row_bytes, c->heads * row_bytes, x->dim,
                         x->rows + h * s->tokens * x->pad, x->pad, s->tokens);
    }
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
    s.whole = tokens <= WHOLE_FLOATS / (ctx->heads * (ctx->pad_k + ctx->pad_v));
    if (!scratch_floats(&s, &floats)) return KV_FAIL(err, KV_ENOMEM, "token leg: %lld tokens", (long long)tokens);
    float *scratch = kv_alloc((size_t)floats, sizeof *scratch);
    if (scratch == NULL) return KV_FAIL(err, KV_ENOMEM, "token leg: %lld floats of scratch", (long long)floats);
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
