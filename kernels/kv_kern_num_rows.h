/* Rows from and to f32, written without branches so that they vectorise; included by kv_kern_num.c once for each instruction
 * set, with KV_ISA (the end of every name) and KV_TARGET (an attribute) set; KV_F16_WIDE where AVX-512 is there. Values of
 * any alignment. Bit for bit the formulas of kv_kern_num.h. */
#ifdef KV_ISA
#define KV_NAME2(name_, isa_) name_##_##isa_
#define KV_NAME1(name_, isa_) KV_NAME2(name_, isa_)
#define KV_NAME(name_) KV_NAME1(name_, KV_ISA)

KV_TARGET static void KV_NAME(from_f16)(const unsigned char *restrict src, unsigned char *restrict dst, size_t n)
{
    size_t i = 0;
#ifdef KV_F16_WIDE
    /* the instruction does what the formula does, quiet NaNs and subnormals included */
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(dst + 4 * i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(src + 2 * i))));
#endif
    for (; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, sizeof h);
        const uint32_t w = kv_num_f32_of_f16(h);
        memcpy(dst + 4 * i, &w, sizeof w);
    }
}

KV_TARGET static void KV_NAME(from_bf16)(const unsigned char *restrict src, unsigned char *restrict dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, sizeof h);
        const uint32_t w = kv_num_f32_of_bf16(h);
        memcpy(dst + 4 * i, &w, sizeof w);
    }
}

KV_TARGET static void KV_NAME(from_fp8)(const unsigned char *restrict src, unsigned char *restrict dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t w = kv_num_f32_of_fp8(src[i]);
        memcpy(dst + 4 * i, &w, sizeof w);
    }
}

/* Of a value that is subnormal in the element: kv_num_shift_even for any shift from 1 on, without a branch. From 25 on
 * nothing is left, which the formula says too; a shift of 31 stands for all beyond. */
KV_TARGET static inline uint32_t KV_NAME(shifted)(uint32_t a, uint32_t most)
{
    const uint32_t m = (a & 0x007FFFFFu) | 0x00800000u, far = most - (a >> 23), shift = far < 31u ? far : 31u;
    return (m + ((1u << (shift - 1u)) - 1u) + (m >> shift & 1u)) >> shift;
}

KV_TARGET static void KV_NAME(to_f16)(const unsigned char *restrict src, unsigned char *restrict dst, size_t n)
{
    size_t i = 0;
#ifdef KV_F16_WIDE
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(dst + 2 * i), _mm512_cvtps_ph(_mm512_loadu_ps(src + 4 * i),
                                                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
    for (; i < n; i++) {
        uint32_t w;
        memcpy(&w, src + 4 * i, sizeof w);
        const uint32_t a = w & 0x7FFFFFFFu;
        const uint32_t held = a < 0x38800000u ? a : 0x38000000u; /* keeps the shift of others within its range */
        const uint32_t small = KV_NAME(shifted)(held, 126u);
        const uint32_t normal = ((a + 0x0FFFu + (a >> 13 & 1u)) >> 13) - (112u << 10);
        uint32_t h = a < 0x38800000u ? small : normal;
        h = a >= 0x47800000u ? 0x7C00u : h;
        h = a > 0x7F800000u ? 0x7E00u | (a >> 13 & 0x03FFu) : h;
        const uint16_t bits = (uint16_t)((w >> 16 & 0x8000u) | h);
        memcpy(dst + 2 * i, &bits, sizeof bits);
    }
}

KV_TARGET static void KV_NAME(to_bf16)(const unsigned char *restrict src, unsigned char *restrict dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t w;
        memcpy(&w, src + 4 * i, sizeof w);
        const uint32_t nan = w >> 16 | 0x0040u, rounded = (w + 0x7FFFu + (w >> 16 & 1u)) >> 16;
        const uint16_t bits = (uint16_t)((w & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
        memcpy(dst + 2 * i, &bits, sizeof bits);
    }
}

KV_TARGET static void KV_NAME(to_fp8)(const unsigned char *restrict src, unsigned char *restrict dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t w;
        memcpy(&w, src + 4 * i, sizeof w);
        const uint32_t a = w & 0x7FFFFFFFu;
        const uint32_t held = a < 0x3C800000u ? a : 0x3C000000u;
        const uint32_t small = KV_NAME(shifted)(held, 141u);
        const uint32_t normal = ((a + 0x7FFFFu + (a >> 20 & 1u)) >> 20) - (120u << 3);
        uint32_t b = a < 0x3C800000u ? small : normal;
        b = a >= 0x43E00000u ? 0x7Eu : b;
        b = a > 0x7F800000u ? 0x7Fu : b;
        dst[i] = (unsigned char)((w >> 24 & 0x80u) | b);
    }
}

static const row_work KV_NAME(rows) = {KV_NAME(from_f16), KV_NAME(from_bf16), KV_NAME(from_fp8),
                                       KV_NAME(to_f16),   KV_NAME(to_bf16),   KV_NAME(to_fp8)};

#undef KV_NAME
#undef KV_NAME1
#undef KV_NAME2
#undef KV_ISA
#undef KV_TARGET
#endif
