/* codec study, formulas: the element-wise arithmetic of the attribution study, shared by CPU and GPU. Which sums
 * run in which order stands in kv_codec_study.h.
 *
 * Doubles where a result is reported (probabilities, logarithms, angles), every product and sum rounded on its
 * own; nothing here needs a maths library. */
#ifndef KV_CODEC_STUDY_IMPL_H
#define KV_CODEC_STUDY_IMPL_H

#include "kernels/kv_kern_token_impl.h"

/* What a hash is for; part of its key, so the numbers stay for ever. */
typedef enum {
    KV_STUDY_EMBED = 32,      /* [64][E] */
    KV_STUDY_POSITION = 33,   /* [position][E] */
    KV_STUDY_UNEMBED = 34,    /* [64][E] */
    KV_STUDY_QK_IN = 35,      /* [H][D][E]  input directions that queries and keys share */
    KV_STUDY_K_OUT = 36,      /* [H][D][D]  output directions of the keys */
    KV_STUDY_K_NOISE = 37,    /* [H][D][E] */
    KV_STUDY_K_BIAS = 38,     /* [H][D] */
    KV_STUDY_Q_OUT = 39,      /* [2H][D][D] what a query head adds to the keys' directions */
    KV_STUDY_Q_NOISE = 40,    /* [2H][D][E] */
    KV_STUDY_Q_BIAS = 41,     /* [2H][D] */
    KV_STUDY_V_IN = 42,       /* [H][D][E] */
    KV_STUDY_V_OUT = 43,      /* [H][D][D] */
    KV_STUDY_V_NOISE = 44,    /* [H][D][E] */
    KV_STUDY_WO = 45,         /* [2H*D][E] */
    KV_STUDY_MLP_IN = 46,     /* [E][E] */
    KV_STUDY_MLP_OUT = 47,    /* [E][E] */
    KV_STUDY_START = 48,      /* start token of a passage: layer = passage */
    KV_STUDY_SAMPLE = 49,     /* the next token: layer = passage, row = position */
    KV_STUDY_WHITE_NOISE = 50 /* layer = passage, row = number of the K or V row, column = lane */
} kv_study_matrix;

/* The key of one row of one matrix, for kv_token_hash and kv_study_uniform. */
KV_HD uint64_t kv_study_key(uint64_t seed, uint64_t layer, kv_study_matrix matrix, uint64_t row)
{
    uint64_t k = kv_token_mix64(seed + 0x9E3779B97F4A7C15u);
    k = kv_token_mix64(k + layer);
    k = kv_token_mix64(k + (uint64_t)matrix);
    return kv_token_mix64(k + row);
}

/* A number in [0, 1) of 53 bits. */
KV_HD double kv_study_uniform(uint64_t key)
{
    return (double)(int64_t)(key >> 11) * 0x1p-53;
}

/* ---- doubles, each rounded on its own --------------------------------------------------- */

KV_HD double kv_study_mul(double a, double b)
{
#ifdef __CUDA_ARCH__
    return __dmul_rn(a, b);
#else
    return a * b;
#endif
}

KV_HD double kv_study_add(double a, double b)
{
#ifdef __CUDA_ARCH__
    return __dadd_rn(a, b);
#else
    return a + b;
#endif
}

KV_HD double kv_study_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

KV_HD uint64_t kv_study_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* e^x: NaN stays, below -700 gives 0, above 700 +Inf. Else n = x * log2(e) to the nearest integer,
 * r = x - n ln 2 in two parts, Taylor of degree 13 by Horner, times 2^n. Within 2 ulp. */
KV_HD double kv_study_exp(double x)
{
    if (!(x >= -700.0)) return x == x ? 0.0 : x;
    if (x > 700.0) return kv_study_double(0x7FF0000000000000u);
    const double t = kv_study_add(kv_study_mul(x, 0x1.71547652b82fep+0), 0x1.8p52);
    const double n = kv_study_add(t, -0x1.8p52);
    double r = kv_study_add(x, -kv_study_mul(n, 0x1.62e42fefap-1));
    r = kv_study_add(r, -kv_study_mul(n, 0x1.cf79abc9e3b3ap-40));
    double p = 1.0;
    for (int i = 13; i >= 1; i--) p = kv_study_add(kv_study_mul(p, r) / (double)i, 1.0);
    return kv_study_mul(p, kv_study_double((uint64_t)(1023 + (int64_t)n) << 52));
}

/* ln x for finite normal x > 0: x = m * 2^n with m in [1/sqrt 2, sqrt 2), s = (m-1)/(m+1),
 * n ln 2 (low part first) + 2 (s + s^3/3 + ... + s^25/25). Within 2e-16 of |ln x| + 1. */
KV_HD double kv_study_log(double x)
{
    const uint64_t bits = kv_study_bits(x);
    int64_t n = (int64_t)(bits >> 52) - 1023;
    double m = kv_study_double((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m = kv_study_mul(m, 0.5);
        n++;
    }
    const double s = kv_study_add(m, -1.0) / kv_study_add(m, 1.0), q = kv_study_mul(s, s);
    double p = 0.0;
    for (int i = 25; i >= 1; i -= 2) p = kv_study_add(kv_study_mul(p, q), 1.0 / (double)i);
    p = kv_study_mul(kv_study_mul(2.0, s), p);
    p = kv_study_add(p, kv_study_mul((double)n, 0x1.cf79abc9e3b3ap-40));
    return kv_study_add(p, kv_study_mul((double)n, 0x1.62e42fefap-1));
}

/* sine and cosine of an angle in [0, 2^17]: pi/2 in two parts off, Taylor of degree 17 and 16. Within 1e-15. */
KV_HD void kv_study_sincos(double angle, double *sine, double *cosine)
{
    const double n = kv_study_add(kv_study_add(kv_study_mul(angle, 0x1.45f306dc9c883p-1), 0x1.8p52), -0x1.8p52);
    double r = kv_study_add(angle, -kv_study_mul(n, 0x1.921fb544p+0));
    r = kv_study_add(r, -kv_study_mul(n, 0x1.0b4611a626331p-34));
    const double q = kv_study_mul(r, r);
    double s = 1.0, c = 1.0;
    for (int i = 16; i >= 2; i -= 2) {
        s = kv_study_add(1.0, -kv_study_mul(s, q) / (double)(i * (i + 1)));
        c = kv_study_add(1.0, -kv_study_mul(c, q) / (double)(i * (i - 1)));
    }
    s = kv_study_mul(s, r);
    const int64_t quarter = (int64_t)n & 3;
    *sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
    *cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
}

/* ---- the cache --------------------------------------------------------------------------- */

/* What the cache keeps of a float: bf16, nearest even, read back. */
KV_HD float kv_study_bf16(float x)
{
    return kv_num_float(kv_num_f32_of_bf16(kv_num_bf16_of_f32(kv_num_bits(x))));
}

/* The two lanes d and d + D/2 of a rotated row. */
KV_HD float kv_study_rope_low(float low, float high, float cosine, float sine)
{
    return kv_num_add(kv_num_mul(low, cosine), -kv_num_mul(high, sine));
}
KV_HD float kv_study_rope_high(float low, float high, float cosine, float sine)
{
    return kv_num_add(kv_num_mul(high, cosine), kv_num_mul(low, sine));
}

/* A lane of white noise in (-4, 4) with unit variance, nearly Gaussian: four uniforms of 16 bits. Exact sums. */
KV_HD double kv_study_white(uint64_t key, uint32_t lane)
{
    const uint64_t h = kv_token_mix64(key + lane);
    const int64_t sum = (int64_t)(h & 0xFFFFu) + (int64_t)(h >> 16 & 0xFFFFu) + (int64_t)(h >> 32 & 0xFFFFu) +
                        (int64_t)(h >> 48) - 131070;
    return kv_study_mul((double)sum, 0x1.bb67ae8584caap-16); /* sqrt(3) / 2^16 */
}

#endif
