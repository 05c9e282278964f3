/* codec step: the formulas of one value or one row, in one place for the reference, the fast variants and the GPU.
 * Common subset of C17 and C++17. Every operation rounds on its own (kv_kern_num.h), sums run in ascending index
 * order in one accumulator. A sum starts at +0 where the text says so, else at -0. */
#ifndef KV_CODEC_STEP_H
#define KV_CODEC_STEP_H

#include <math.h>

#include "kernels/codec/kv_codec.h"
#include "kernels/kv_kern_num.h"

#define KV_CODEC_HUBER 0.1f /* linf: quadratic below, linear above */
#define KV_CODEC_F16_NAN 0x7E00u
#define KV_CODEC_F16_INF 0x7C00u
#define KV_CODEC_F16_MOST 0x7BFFu /* 65504 */

KV_HD float kv_codec_sub(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fsub_rn(a, b);
#else
    return a - b;
#endif
}

KV_HD float kv_codec_div(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

KV_HD float kv_codec_sqrt(float a)
{
#ifdef __CUDA_ARCH__
    return __fsqrt_rn(a);
#else
    return sqrtf(a);
#endif
}

/* |a|, also of a NaN. */
KV_HD float kv_codec_abs(float a)
{
    return kv_num_float(kv_num_bits(a) & 0x7FFFFFFFu);
}

/* ---- fp16 ------------------------------------------------------------------------------- */

KV_HD float kv_codec_f(uint16_t h)
{
    return kv_num_float(kv_num_f32_of_f16(h));
}

/* Every NaN becomes 0x7E00, so that slots are the same bytes whichever NaN a machine made. */
KV_HD uint16_t kv_codec_h(float x)
{
    return x != x ? (uint16_t)KV_CODEC_F16_NAN : (uint16_t)kv_num_f16_of_f32(kv_num_bits(x));
}

/* The same, with +-65504 for what would be infinite; counts those. */
KV_HD uint16_t kv_codec_h_held(float x, int64_t *saturated)
{
    const uint16_t h = kv_codec_h(x);
    if ((h & 0x7FFFu) != KV_CODEC_F16_INF) return h;
    *saturated += 1;
    return (uint16_t)((h & 0x8000u) | KV_CODEC_F16_MOST);
}

/* ---- sums ------------------------------------------------------------------------------- */

/* Sum of a[i] * b[i], from -0. */
KV_HD float kv_codec_dot(const float *a, const float *b, int32_t n)
{
    float sum = -0.0f;
    for (int32_t i = 0; i < n; i++) sum = kv_num_add(sum, kv_num_mul(a[i], b[i]));
    return sum;
}

/* Sum of basis[j] * (x[j] - mean[j]), from +0: one coefficient of a row. */
KV_HD float kv_codec_coefficient(const float *basis, const float *x, const float *mean, int32_t dim)
{
    float sum = 0.0f;
    for (int32_t j = 0; j < dim; j++) sum = kv_num_add(sum, kv_num_mul(basis[j], kv_codec_sub(x[j], mean[j])));
    return sum;
}

/* ---- the scalars of a row --------------------------------------------------------------- */

/* What a row's signed length t along its centre becomes: the fp16 field, and the value that the residual is taken
 * against (kv_codec_rule). */
KV_HD uint16_t kv_codec_t(int32_t rule, float t, float *used, int64_t *saturated)
{
    if (rule == KV_CODEC_RULE_PUBLISHED) {
        *used = t;
        return kv_codec_h(t);
    }
    const uint16_t h = kv_codec_h_held(t, saturated);
    *used = kv_codec_f(h);
    return h;
}

/* 1 / length, or 1 where the length is at most EPS or NaN. */
KV_HD float kv_codec_scale(float length)
{
    return length > KV_CODEC_EPS ? kv_codec_div(1.0f, length) : 1.0f;
}

/* Whether the norm field is the length of the raw row, which the encoder must then work out. */
KV_HD bool kv_codec_norm_is_raw(int32_t rule, int32_t metric)
{
    return rule == KV_CODEC_RULE_PUBLISHED && metric == KV_CODEC_INNER_PRODUCT;
}

/* The fp16 norm field. raw: length of the raw row, read only where kv_codec_norm_is_raw. KV1 stores 0 where the
 * residual's length is at most EPS, or NaN. */
KV_HD uint16_t kv_codec_norm(int32_t rule, int32_t metric, float length, float raw, int64_t *saturated)
{
    const float scale = kv_codec_scale(length);
    const float back = kv_codec_div(1.0f, scale > KV_CODEC_EPS ? scale : KV_CODEC_EPS);
    if (kv_codec_norm_is_raw(rule, metric)) return kv_codec_h(raw);
    if (rule == KV_CODEC_RULE_PUBLISHED) return kv_codec_h(back);
    return length > KV_CODEC_EPS ? kv_codec_h_held(back, saturated) : (uint16_t)0;
}

/* What the decoder multiplies the levels with. */
KV_HD float kv_codec_gain(int32_t rule, int32_t metric, uint16_t norm)
{
    return kv_codec_norm_is_raw(rule, metric) ? 1.0f : kv_codec_f(norm);
}

/* ---- rotation --------------------------------------------------------------------------- */

/* The Walsh-Hadamard butterfly in natural order, not normalised; n is a power of two. */
KV_HD void kv_codec_butterfly(float *y, int32_t n)
{
    for (int32_t h = 1; h < n; h *= 2)
        for (int32_t i = 0; i < n; i += 2 * h)
            for (int32_t j = i; j < i + h; j++) {
                const float a = y[j], b = y[j + h];
                y[j] = kv_num_add(a, b);
                y[j + h] = kv_codec_sub(a, b);
            }
}

/* ---- levels ----------------------------------------------------------------------------- */

KV_HD float kv_codec_cost(int32_t metric, float s, float level)
{
    const float e = kv_codec_sub(s, level), a = kv_codec_abs(e);
    if (metric != KV_CODEC_LINF) return kv_num_mul(e, e);
    if (a < KV_CODEC_HUBER) return kv_codec_div(kv_num_mul(a, a), 0.2f);
    return kv_codec_sub(a, 0.05f);
}

/* The first level of least cost; 0 where every cost is infinite or NaN. */
KV_HD int32_t kv_codec_nearest_level(int32_t metric, const float *level, int32_t count, float s)
{
    float least = kv_num_float(0x7F800000u);
    int32_t best = 0;
    for (int32_t g = 0; g < count; g++) {
        const float cost = kv_codec_cost(metric, s, level[g]);
        if (cost < least) {
            least = cost;
            best = g;
        }
    }
    return best;
}

/* ---- bit stream: least significant first; values of at most 16 bits --------------------- */

/* Sets `bits` bits at index * bits; the bytes were zero there. */
KV_HD void kv_codec_put(uint8_t *stream, int64_t index, int32_t bits, uint32_t value)
{
    const int64_t at = index * bits;
    for (int32_t b = 0; b < bits; b++)
        stream[(at + b) / 8] = (uint8_t)(stream[(at + b) / 8] | ((value >> b & 1u) << ((at + b) % 8)));
}

KV_HD uint32_t kv_codec_get(const uint8_t *stream, int64_t index, int32_t bits)
{
    const int64_t at = index * bits;
    uint32_t value = 0;
    for (int32_t b = 0; b < bits; b++) value |= (uint32_t)(stream[(at + b) / 8] >> ((at + b) % 8) & 1) << b;
    return value;
}

#endif
