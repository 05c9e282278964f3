/* Rows of elements: the formulas of kv_kern_num.h in loops that vectorise. */
#include "kernels/kv_kern_num.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#if defined(__x86_64__) && defined(__GNUC__)
/* The instruction does what the formula does, quiet NaNs and subnormals included. */
__attribute__((target("avx512f"))) static size_t row_of_f16_wide(const unsigned char *src, float *dst, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(src + 2 * i))));
    return i;
}

static bool has_wide(void)
{
    return __builtin_cpu_supports("avx512f") != 0;
}
#else
static size_t row_of_f16_wide(const unsigned char *src, float *dst, size_t n)
{
    (void)src;
    (void)dst;
    (void)n;
    return 0;
}

static bool has_wide(void)
{
    return false;
}
#endif

static void row_of_f16(const unsigned char *restrict src, float *restrict dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, sizeof h);
        dst[i] = kv_num_float(kv_num_f32_of_f16(h));
    }
}

static void row_of_bf16(const unsigned char *restrict src, float *restrict dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, sizeof h);
        dst[i] = kv_num_float(kv_num_f32_of_bf16(h));
    }
}

static void row_of_fp8(const unsigned char *restrict src, float *restrict dst, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = kv_num_float(kv_num_f32_of_fp8(src[i]));
}

void kv_num_to_f32_row(kv_elem from, const void *src, float *dst, size_t n)
{
    switch (from) {
    case KV_ELEM_F16: {
        const size_t done = has_wide() ? row_of_f16_wide(src, dst, n) : 0;
        row_of_f16((const unsigned char *)src + 2 * done, dst + done, n - done);
        return;
    }
    case KV_ELEM_BF16: row_of_bf16(src, dst, n); return;
    case KV_ELEM_FP8_E4M3: row_of_fp8(src, dst, n); return;
    case KV_ELEM_F32:
    case KV_ELEM_COUNT: break;
    }
    if (n != 0) memcpy(dst, src, n * sizeof *dst);
}

void kv_num_convert_row(kv_elem from, kv_elem to, const void *src, void *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        kv_num_store(to, dst, (int64_t)i, kv_num_convert(from, to, kv_num_load(from, src, (int64_t)i)));
}
