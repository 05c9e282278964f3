/* The inner loops of the study. They run over independent outputs, so each sum keeps its order. */
#include "kernels/codec/kv_codec_study_math.h"

#include "kernels/kv_kern_token_impl.h"

#include <float.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float expressions are computed in float");

#define KV_BODY static inline __attribute__((always_inline)) /* compiled anew into each variant */

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors never leave a function that is not inlined */

typedef float oct __attribute__((vector_size(32)));
enum { LANES = KV_TOKEN_LANES };

/* KV_STUDY_PAD floats in registers. */
typedef struct {
    oct a, b, c, d;
} four;

KV_BODY oct load(const float *p)
{
    oct x;
    memcpy(&x, p, sizeof x);
    return x;
}
KV_BODY four load_four(const float *p)
{
    return (four){load(p), load(p + LANES), load(p + 2 * LANES), load(p + 3 * LANES)};
}
KV_BODY void store_four(float *p, const four *x)
{
    memcpy(p, &x->a, sizeof x->a);
    memcpy(p + LANES, &x->b, sizeof x->b);
    memcpy(p + 2 * LANES, &x->c, sizeof x->c);
    memcpy(p + 3 * LANES, &x->d, sizeof x->d);
}
KV_BODY four zero_four(void)
{
    const oct zero = {0.0f};
    return (four){zero, zero, zero, zero};
}
KV_BODY void scale_four(four *x, float f)
{
    x->a *= f;
    x->b *= f;
    x->c *= f;
    x->d *= f;
}
KV_BODY void add_times(four *sum, const four *x, float f)
{
    sum->a += x->a * f;
    sum->b += x->b * f;
    sum->c += x->c * f;
    sum->d += x->d * f;
}

/* Four octs of outputs for two rows of x. */
KV_BODY void project_two(const float *wt, int64_t in, int64_t out_pad, const float *x, int64_t x_stride, float *y)
{
    four s0 = zero_four(), s1 = zero_four();
    for (int64_t i = 0; i < in; i++) {
        const four w = load_four(wt + i * out_pad);
        add_times(&s0, &w, x[i]);
        add_times(&s1, &w, x[x_stride + i]);
    }
    store_four(y, &s0);
    store_four(y + out_pad, &s1);
}

KV_BODY void project_one(const float *wt, int64_t in, int64_t out_pad, const float *x, float *y)
{
    four sum = zero_four();
    for (int64_t i = 0; i < in; i++) {
        const four w = load_four(wt + i * out_pad);
        add_times(&sum, &w, x[i]);
    }
    store_four(y, &sum);
}

KV_BODY void project_body(const float *wt, int64_t in, int64_t out_pad, const float *x, int64_t x_stride, int64_t n,
                          float *y)
{
    for (int64_t r = 0; r < out_pad; r += 4 * LANES) {
        int64_t b = 0;
        for (; b + 2 <= n; b += 2) project_two(wt + r, in, out_pad, x + b * x_stride, x_stride, y + b * out_pad + r);
        if (b < n) project_one(wt + r, in, out_pad, x + b * x_stride, y + b * out_pad + r);
    }
}

/* Four octs of tokens, both query heads. */
KV_BODY void score_many(const float *q, int64_t q_stride, const float *kt, int64_t stride, int64_t dim, float scale,
                        float *score)
{
    four s0 = zero_four(), s1 = zero_four();
    for (int64_t d = 0; d < dim; d++) {
        const four k = load_four(kt + d * stride);
        add_times(&s0, &k, q[d]);
        add_times(&s1, &k, q[q_stride + d]);
    }
    scale_four(&s0, scale);
    scale_four(&s1, scale);
    store_four(score, &s0);
    store_four(score + stride, &s1);
}

KV_BODY void score_body(const float *q, int64_t q_stride, const float *kt, int64_t stride, int64_t dim, int64_t from,
                        int64_t to, float scale, float *score)
{
    for (int64_t t = from; t < to; t += 4 * LANES) score_many(q, q_stride, kt + t, stride, dim, scale, score + t);
}

/* The largest is searched in lanes: its order is free. */
KV_BODY float soften_body(float *restrict score, int64_t n)
{
    float lane[LANES], most;
    for (int64_t j = 0; j < LANES; j++) lane[j] = kv_num_float(0xFF800000u);
    int64_t t = 0;
    for (; t + LANES <= n; t += LANES)
        for (int64_t j = 0; j < LANES; j++) lane[j] = score[t + j] > lane[j] ? score[t + j] : lane[j];
    most = lane[0];
    for (; t < n; t++) most = score[t] > most ? score[t] : most;
    for (int64_t j = 1; j < LANES; j++) most = lane[j] > most ? lane[j] : most;
    for (t = 0; t < n; t++) score[t] = kv_token_exp(score[t] - most);
    for (int64_t j = 0; j < LANES; j++) lane[j] = 0.0f;
    for (t = 0; t + LANES <= n; t += LANES)
        for (int64_t j = 0; j < LANES; j++) lane[j] += score[t + j];
    for (int64_t j = 0; t + j < n; j++) lane[j] += score[t + j];
    return kv_token_tree(lane);
}

KV_BODY void weigh_body(const float *w, int64_t w_stride, const float *v, int64_t v_pad, int64_t from, int64_t to,
                        float *sum)
{
    for (int64_t d = 0; d < v_pad; d += 4 * LANES) {
        four s0 = load_four(sum + d), s1 = load_four(sum + v_pad + d);
        for (int64_t t = from; t < to; t++) {
            const four x = load_four(v + t * v_pad + d);
            add_times(&s0, &x, w[t]);
            add_times(&s1, &x, w[w_stride + t]);
        }
        store_four(sum + d, &s0);
        store_four(sum + v_pad + d, &s1);
    }
}

static bool always(void)
{
    return true;
}

#define VARIANT(name_, attribute_)                                                                                     \
    attribute_ static void project_##name_(const float *wt, int64_t in, int64_t out_pad, const float *x,               \
                                           int64_t x_stride, int64_t n, float *y)                                      \
    {                                                                                                                  \
        project_body(wt, in, out_pad, x, x_stride, n, y);                                                              \
    }                                                                                                                  \
    attribute_ static void score_##name_(const float *q, int64_t q_stride, const float *kt, int64_t stride,            \
                                         int64_t dim, int64_t from, int64_t to, float scale, float *score)             \
    {                                                                                                                  \
        score_body(q, q_stride, kt, stride, dim, from, to, scale, score);                                              \
    }                                                                                                                  \
    attribute_ static float soften_##name_(float *score, int64_t n)                                                    \
    {                                                                                                                  \
        return soften_body(score, n);                                                                                  \
    }                                                                                                                  \
    attribute_ static void weigh_##name_(const float *w, int64_t w_stride, const float *v, int64_t v_pad,              \
                                         int64_t from, int64_t to, float *sum)                                         \
    {                                                                                                                  \
        weigh_body(w, w_stride, v, v_pad, from, to, sum);                                                              \
    }

#define ROW(name_, runs_)                                                                                              \
    {                                                                                                                  \
#name_, runs_, project_##name_, score_##name_, soften_##name_, weigh_##name_                                   \
    }

VARIANT(ref, )
#if defined(__GNUC__) && defined(__x86_64__)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") != 0;
}
VARIANT(avx2, __attribute__((target("avx2"))))
#endif

static const kv_study_math variants[] = {
    ROW(ref, always),
#if defined(__GNUC__) && defined(__x86_64__)
    ROW(avx2, has_avx2),
#endif
};

int32_t kv_study_math_count(void)
{
    return (int32_t)(sizeof variants / sizeof variants[0]);
}

const kv_study_math *kv_study_math_at(int32_t index)
{
    return &variants[index];
}
