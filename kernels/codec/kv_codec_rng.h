/* codec rng: the random numbers of the codec: xoshiro256++ seeded by a 32-bit PCG, and what is drawn from it.
 * Integers only, but for kv_codec_draw_f32; host and device. */
#ifndef KV_CODEC_RNG_H
#define KV_CODEC_RNG_H

#include "kernels/kv_kern_num.h"

typedef struct {
    uint64_t s[4];
} kv_codec_rng;

KV_HD uint64_t kv_codec_rotl(uint64_t x, uint32_t n)
{
    return x << n | x >> (64u - n);
}

/* The seed is the state of a PCG whose eight 32-bit outputs fill the four words, low half first. */
KV_HD kv_codec_rng kv_codec_rng_seed(uint64_t seed)
{
    kv_codec_rng r;
    for (int32_t i = 0; i < 4; i++) {
        r.s[i] = 0;
        for (uint32_t half = 0; half < 64u; half += 32u) {
            seed = seed * 6364136223846793005u + 11634580027462260723u;
            const uint32_t x = (uint32_t)(((seed >> 18) ^ seed) >> 27), turn = (uint32_t)(seed >> 59);
            r.s[i] |= (uint64_t)(x >> turn | x << ((32u - turn) & 31u)) << half;
        }
    }
    return r;
}

KV_HD uint64_t kv_codec_rng_next(kv_codec_rng *r)
{
    const uint64_t out = kv_codec_rotl(r->s[0] + r->s[3], 23) + r->s[0], u = r->s[1] << 17;
    r->s[2] ^= r->s[0];
    r->s[3] ^= r->s[1];
    r->s[1] ^= r->s[2];
    r->s[0] ^= r->s[3];
    r->s[2] ^= u;
    r->s[3] = kv_codec_rotl(r->s[3], 45);
    return out;
}

KV_HD bool kv_codec_draw_bool(kv_codec_rng *r)
{
    return kv_codec_rng_next(r) >> 63 != 0;
}

KV_HD uint32_t kv_codec_draw_u32(kv_codec_rng *r)
{
    return (uint32_t)(kv_codec_rng_next(r) >> 32);
}

/* The 128-bit product of a and b: high half returned, low half through `low`. */
KV_HD uint64_t kv_codec_wide_mul(uint64_t a, uint64_t b, uint64_t *low)
{
    const uint64_t al = a & 0xFFFFFFFFu, ah = a >> 32, bl = b & 0xFFFFFFFFu, bh = b >> 32;
    const uint64_t mid = ah * bl + (al * bl >> 32), mid2 = al * bh + (mid & 0xFFFFFFFFu);
    *low = a * b;
    return ah * bh + (mid >> 32) + (mid2 >> 32);
}

/* An integer in [0, m), m >= 1. */
KV_HD uint64_t kv_codec_draw_below(kv_codec_rng *r, uint64_t m)
{
    uint64_t zone = m, low, high;
    while (zone >> 63 == 0) zone <<= 1;
    zone -= 1;
    do high = kv_codec_wide_mul(kv_codec_rng_next(r), m, &low);
    while (low > zone);
    return high;
}

/* A float in [a, b), a < b. */
KV_HD float kv_codec_draw_f32(kv_codec_rng *r, float a, float b)
{
    float x;
    do {
        const float u = kv_num_add(kv_num_float(0x3F800000u | kv_codec_draw_u32(r) >> 9), -1.0f);
        x = kv_num_add(kv_num_mul(u, kv_num_add(b, -a)), a);
    } while (x >= b);
    return x;
}

/* The sign pattern of a rotation: +1 or -1 for each of n positions. A longer one extends a shorter one. */
KV_HD void kv_codec_signs(uint32_t seed, float *sign, int32_t n)
{
    kv_codec_rng r = kv_codec_rng_seed(seed);
    for (int32_t i = 0; i < n; i++) sign[i] = kv_codec_draw_bool(&r) ? 1.0f : -1.0f;
}

#endif
