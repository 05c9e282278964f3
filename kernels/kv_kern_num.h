/* kv_kern_num: element conversions on bit patterns, one formula for CPU and GPU.
 *
 * Every value travels as uint32_t with the element's bits at the bottom and zeros above.
 * All conversions go through f32, which holds every f16, bf16 and fp8 value exactly, so there
 * is one rounding at most:
 *   to f16, bf16   nearest, ties to even; too large gives Inf; NaN stays NaN with its sign and
 *                  its top payload bits, quiet bit set
 *   to fp8_e4m3    nearest, ties to even; everything above 448, Inf included, gives 448 with the
 *                  sign (0x7E, 0xFE); NaN gives sign | 0x7F
 *   from fp8_e4m3  exact; NaN gives the quiet NaN without payload, with the sign
 *   same type      the bits, untouched (signalling NaN included)
 * Subnormals are kept in both directions. Integer arithmetic, but for the subnormals of f16 and
 * fp8 on the way to f32: int to float and a product with a power of two, both exact and normal,
 * so that neither the rounding mode nor a flush-to-zero mode can matter. */
#ifndef KV_KERN_NUM_H
#define KV_KERN_NUM_H

#include "layouts/kv_elem.h"

#include <stddef.h>
#include <string.h>

#define KV_NUM_NAN 0x7FC00000u /* the f32 NaN that stands for all of them where bits are compared */

KV_HD float kv_num_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

KV_HD uint32_t kv_num_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* a * b and a + b, each rounded on its own: never fused, whatever the flags of nvcc. */
KV_HD float kv_num_mul(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

KV_HD float kv_num_add(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

/* ---- to f32: branch-free (?: over a float operation is not), so that loops vectorise ----- */

/* All bits set where a < b, else none; both below 2^31. */
KV_HD uint32_t kv_num_below(uint32_t a, uint32_t b)
{
    return 0u - ((a - b) >> 31);
}

/* The bits of a where the mask is set, else those of b. */
KV_HD uint32_t kv_num_pick(uint32_t mask, uint32_t a, uint32_t b)
{
    return (a & mask) | (b & ~mask);
}

KV_HD uint32_t kv_num_f32_of_f16(uint32_t h)
{
    const uint32_t sign = (h & 0x8000u) << 16, a = h & 0x7FFFu;
    const uint32_t small = kv_num_bits((float)(int32_t)a * 0x1p-24f); /* exponent field 0 */
    const uint32_t normal = (a << 13) + (112u << 23);
    const uint32_t special = (a << 13) | 0x7F800000u | (kv_num_below(0x7C00u, a) & 0x00400000u);
    return sign | kv_num_pick(kv_num_below(a, 0x0400u), small, kv_num_pick(kv_num_below(a, 0x7C00u), normal, special));
}

KV_HD uint32_t kv_num_f32_of_bf16(uint32_t b)
{
    const uint32_t w = b << 16;
    return w | (kv_num_below(0x7F800000u, w & 0x7FFFFFFFu) & 0x00400000u);
}

KV_HD uint32_t kv_num_f32_of_fp8(uint32_t b)
{
    const uint32_t sign = (b & 0x80u) << 24, a = b & 0x7Fu;
    const uint32_t small = kv_num_bits((float)(int32_t)a * 0x1p-9f);
    const uint32_t normal = (a << 20) + (120u << 23);
    return sign | kv_num_pick(kv_num_below(a, 0x08u), small, kv_num_pick(kv_num_below(a, 0x7Fu), normal, KV_NUM_NAN));
}

/* ---- from f32 --------------------------------------------------------------------------- */

/* m / 2^shift to the nearest integer, ties to even; m < 2^24, shift >= 1. */
KV_HD uint32_t kv_num_shift_even(uint32_t m, uint32_t shift)
{
    if (shift > 24u) return 0u; /* less than one half */
    return (m + ((1u << (shift - 1u)) - 1u) + ((m >> shift) & 1u)) >> shift;
}

KV_HD uint32_t kv_num_f16_of_f32(uint32_t w)
{
    const uint32_t sign = (w >> 16) & 0x8000u, a = w & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return sign | 0x7E00u | ((a >> 13) & 0x03FFu);
    if (a >= 0x47800000u) return sign | 0x7C00u; /* 65536 and more; 65520 carries into Inf below */
    if (a >= 0x38800000u) return sign | (((a + 0x0FFFu + ((a >> 13) & 1u)) >> 13) - (112u << 10));
    if (a < 0x00800000u) return sign;
    return sign | kv_num_shift_even((a & 0x007FFFFFu) | 0x00800000u, 126u - (a >> 23));
}

KV_HD uint32_t kv_num_bf16_of_f32(uint32_t w)
{
    if ((w & 0x7FFFFFFFu) > 0x7F800000u) return (w >> 16) | 0x0040u;
    return (w + 0x7FFFu + ((w >> 16) & 1u)) >> 16; /* no carry past bit 31: |w| is at most Inf */
}

KV_HD uint32_t kv_num_fp8_of_f32(uint32_t w)
{
    const uint32_t sign = (w >> 24) & 0x80u, a = w & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return sign | 0x7Fu;
    if (a >= 0x43E00000u) return sign | 0x7Eu; /* 448 and more */
    if (a >= 0x3C800000u) return sign | (((a + 0x7FFFFu + ((a >> 20) & 1u)) >> 20) - (120u << 3));
    if (a < 0x00800000u) return sign;
    return sign | kv_num_shift_even((a & 0x007FFFFFu) | 0x00800000u, 141u - (a >> 23));
}

/* ---- any type --------------------------------------------------------------------------- */

KV_HD uint32_t kv_num_to_f32(kv_elem from, uint32_t bits)
{
    switch (from) {
    case KV_ELEM_F16: return kv_num_f32_of_f16(bits);
    case KV_ELEM_BF16: return kv_num_f32_of_bf16(bits);
    case KV_ELEM_FP8_E4M3: return kv_num_f32_of_fp8(bits);
    case KV_ELEM_F32:
    case KV_ELEM_COUNT: break;
    }
    return bits;
}

KV_HD uint32_t kv_num_from_f32(kv_elem to, uint32_t bits)
{
    switch (to) {
    case KV_ELEM_F16: return kv_num_f16_of_f32(bits);
    case KV_ELEM_BF16: return kv_num_bf16_of_f32(bits);
    case KV_ELEM_FP8_E4M3: return kv_num_fp8_of_f32(bits);
    case KV_ELEM_F32:
    case KV_ELEM_COUNT: break;
    }
    return bits;
}

/* The element `bits` of type from, as the element of type to. */
KV_HD uint32_t kv_num_convert(kv_elem from, kv_elem to, uint32_t bits)
{
    return from == to ? bits : kv_num_from_f32(to, kv_num_to_f32(from, bits));
}

/* ---- elements in memory (native byte order, any alignment) ------------------------------ */

KV_HD uint32_t kv_num_load(kv_elem e, const void *src, int64_t index)
{
    const int64_t size = kv_elem_bytes(e);
    const unsigned char *p = (const unsigned char *)src + index * size;
    if (size == 1) return *p;
    if (size == 2) {
        uint16_t h;
        memcpy(&h, p, sizeof h);
        return h;
    }
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

KV_HD void kv_num_store(kv_elem e, void *dst, int64_t index, uint32_t bits)
{
    const int64_t size = kv_elem_bytes(e);
    unsigned char *p = (unsigned char *)dst + index * size;
    if (size == 1) {
        *p = (unsigned char)bits;
    } else if (size == 2) {
        const uint16_t h = (uint16_t)bits;
        memcpy(p, &h, sizeof h);
    } else {
        memcpy(p, &bits, sizeof bits);
    }
}

/* n elements of src as floats, bit for bit kv_num_to_f32 of each (f32: the bits themselves).
 * src of any alignment; dst must not overlap it. Host only, vectorised. */
#ifdef __cplusplus
extern "C" {
#endif
void kv_num_to_f32_row(kv_elem from, const void *src, float *dst, size_t n);
/* n elements of src as elements of another type, bit for bit kv_num_convert of each. */
void kv_num_convert_row(kv_elem from, kv_elem to, const void *src, void *dst, size_t n);
/* For tests: rows use no instruction set above 0 plain, 1 AVX2, 2 AVX-512. All give the same bits. */
void kv_num_rows_at_most(int level);
#ifdef __cplusplus
}
#endif

#endif
