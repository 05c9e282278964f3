/* kv_kern_token_impl: the element-wise formulas of the token leg, shared by CPU and GPU. What
 * they are for and the order of everything else stands in kv_kern_token.h. */
#ifndef KV_KERN_TOKEN_IMPL_H
#define KV_KERN_TOKEN_IMPL_H

#include "kernels/kv_kern_num.h"

#include <stdint.h>

enum {
    KV_TOKEN_STEPS = 8,   /* tokens decoded, and so new tokens attended to */
    KV_TOKEN_VOCAB = 64,  /* tokens are 0 .. 63 */
    KV_TOKEN_HIDDEN = 32, /* width E of the hidden state */
    KV_TOKEN_GROUP = 2,   /* query heads per kv head */
    KV_TOKEN_CHUNK = 64,  /* cache tokens whose sums are formed on their own */
    KV_TOKEN_LANES = 8    /* accumulators of a dot product */
};

/* What a hash is for; part of its key, so the numbers stay for ever. */
typedef enum {
    KV_TOKEN_EMBED = 1,    /* [64][E]        row = token */
    KV_TOKEN_POSITION = 2, /* [8][E]         row = step */
    KV_TOKEN_WQ = 3,       /* [2H * D][E]    row = query head * D + d */
    KV_TOKEN_WK = 4,       /* [H * D][E]     row = kv head * D + d */
    KV_TOKEN_WV = 5,       /* [H * Dv][E]    row = kv head * Dv + d */
    KV_TOKEN_WO = 6,       /* [E][2H * Dv]   column = query head * Dv + d */
    KV_TOKEN_UNEMBED = 7,  /* [64][E]        row = token */
    KV_TOKEN_START = 8     /* the start token: row 0, column 0 */
} kv_token_matrix;

/* ---- weights: a pure function of (seed, layer, matrix, row, column) --------------------- */

/* The finaliser of splitmix64. */
KV_HD uint64_t kv_token_mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* The key of one row of one matrix. */
KV_HD uint64_t kv_token_row_key(uint64_t seed, uint64_t layer, kv_token_matrix matrix, uint64_t row)
{
    uint64_t k = kv_token_mix64(seed + 0x9E3779B97F4A7C15u);
    k = kv_token_mix64(k + layer);
    k = kv_token_mix64(k + (uint64_t)matrix);
    return kv_token_mix64(k + row);
}

/* 32 bits for one column of that row. */
KV_HD uint32_t kv_token_hash(uint64_t row_key, uint32_t column)
{
    uint32_t x = (uint32_t)row_key + column * 0x9E3779B9u;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x ^= (uint32_t)(row_key >> 32);
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

/* The weight that a hash stands for: its top bit is the sign, its low 23 bits the mantissa, and
 * the magnitude lies in [2^(exponent - 1), 2^exponent). So no weight is zero or nearly so. */
KV_HD float kv_token_weight(uint32_t hash, int32_t exponent)
{
    return kv_num_float((hash & 0x807FFFFFu) | ((uint32_t)(126 + exponent) << 23));
}

/* The exponent of a matrix's weights; out_len = 2H * Dv, at least 2. WO shrinks with
 * sqrt(out_len) and has a gain of about 4, for what it projects is an average over tokens. */
KV_HD int32_t kv_token_exponent(kv_token_matrix matrix, int64_t out_len)
{
    if (matrix == KV_TOKEN_WQ || matrix == KV_TOKEN_WK || matrix == KV_TOKEN_WV) return -2;
    if (matrix != KV_TOKEN_WO) return 0;
    int32_t half = 0; /* the least with 4^half >= out_len */
    while (((int64_t)1 << (2 * half)) < out_len) half++;
    return 2 - half;
}

/* 1/sqrt(dim) as the largest float not above it: r * 2^-p, where p is the least integer with
 * 4^p >= 2^46 * dim and r = floor(sqrt(4^p / dim)), 2^23 <= r <= 2^24. 1 <= dim <= 65536. */
KV_HD float kv_token_scale(int64_t dim)
{
    int32_t p = 23;
    while (((uint64_t)1 << (2 * p)) / (uint64_t)dim < (uint64_t)1 << 46) p++;
    const uint64_t square = ((uint64_t)1 << (2 * p)) / (uint64_t)dim;
    uint64_t r = 0;
    for (uint64_t bit = (uint64_t)1 << 24; bit != 0; bit >>= 1)
        if ((r + bit) * (r + bit) <= square) r += bit;
    return kv_num_mul((float)(uint32_t)r, kv_num_float((uint32_t)(127 - p) << 23)); /* exact */
}

/* ---- arithmetic ------------------------------------------------------------------------- */

/* The sum of eight lanes. On a GPU: three exchanges with lane ^ 4, ^ 2, ^ 1. */
KV_HD float kv_token_tree(const float *a)
{
    const float b0 = kv_num_add(a[0], a[4]), b1 = kv_num_add(a[1], a[5]);
    const float b2 = kv_num_add(a[2], a[6]), b3 = kv_num_add(a[3], a[7]);
    return kv_num_add(kv_num_add(b0, b2), kv_num_add(b1, b3));
}

/* e^x in float. NaN gives NaN, x < -87 gives +0, x > 0x1.62e42ep+6 (88.72283) gives +Inf. Else
 *   n = x * log2(e) to the nearest integer, by adding and taking off 1.5 * 2^23
 *   r = (x - n * 355/512) - n * -2.12194442e-4          (355/512 + that = ln 2)
 *   p = Taylor of degree 7 in r, Horner, every product and sum rounded on its own
 * and p * 2^n, exact. Within 2 ulp of the true value; branch-free. */
KV_HD float kv_token_exp(float x)
{
    const float magic = 0x1.8p23f;
    const float t = kv_num_add(kv_num_mul(x, 0x1.715476p+0f), magic);
    const float n = kv_num_add(t, -magic);
    float r = kv_num_add(x, -kv_num_mul(n, 0x1.63p-1f));
    r = kv_num_add(r, -kv_num_mul(n, -0x1.bd0106p-13f));
    float p = 0x1.a01a02p-13f;                         /* 1/5040 */
    p = kv_num_add(kv_num_mul(p, r), 0x1.6c16c2p-10f); /* 1/720 */
    p = kv_num_add(kv_num_mul(p, r), 0x1.111112p-7f);  /* 1/120 */
    p = kv_num_add(kv_num_mul(p, r), 0x1.555556p-5f);  /* 1/24 */
    p = kv_num_add(kv_num_mul(p, r), 0x1.555556p-3f);  /* 1/6 */
    p = kv_num_add(kv_num_mul(p, r), 0.5f);
    p = kv_num_add(kv_num_mul(p, r), 1.0f);
    p = kv_num_add(kv_num_mul(p, r), 1.0f);
    const uint32_t value = kv_num_bits(p) + (kv_num_bits(t) << 23); /* the low bits of t are n */
    const uint32_t low = kv_num_pick(0u - (uint32_t)(x < -87.0f), 0u, value);
    const uint32_t high = kv_num_pick(0u - (uint32_t)(x > 0x1.62e42ep+6f), 0x7F800000u, low);
    return kv_num_float(kv_num_pick(0u - (uint32_t)(x == x), high, KV_NUM_NAN));
}

/* The bits of a logit as they enter output and digest: one NaN for all. */
KV_HD uint32_t kv_token_logit_bits(float logit)
{
    return logit == logit ? kv_num_bits(logit) : KV_NUM_NAN;
}

/* The place of the largest: the lowest one of equals (+0 and -0 are equal), NaN never, 0 if all
 * are NaN. */
KV_HD int32_t kv_token_argmax(const float *logits, int32_t n)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++)
        if (logits[i] == logits[i] && (best < 0 || logits[i] > logits[best])) best = i;
    return best < 0 ? 0 : best;
}

#endif
