/* Rows of elements: the formulas of kv_kern_num.h in loops that vectorise, for the instruction set that is there. */
#include "kernels/kv_kern_num.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

typedef struct {
    void (*from_f16)(const unsigned char *src, unsigned char *dst, size_t n);
    void (*from_bf16)(const unsigned char *src, unsigned char *dst, size_t n);
    void (*from_fp8)(const unsigned char *src, unsigned char *dst, size_t n);
    void (*to_f16)(const unsigned char *src, unsigned char *dst, size_t n);
    void (*to_bf16)(const unsigned char *src, unsigned char *dst, size_t n);
    void (*to_fp8)(const unsigned char *src, unsigned char *dst, size_t n);
} row_work;

#define KV_ISA plain
#define KV_TARGET
#include "kernels/kv_kern_num_rows.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define KV_ISA avx2
#define KV_TARGET __attribute__((target("avx2")))
#include "kernels/kv_kern_num_rows.h"

#define KV_ISA avx512
#define KV_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define KV_F16_WIDE
#include "kernels/kv_kern_num_rows.h"

static int best = 2; /* tests take less */

static const row_work *rows_here(void)
{
    if (best > 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &rows_avx512;
    return best > 0 && __builtin_cpu_supports("avx2") ? &rows_avx2 : &rows_plain;
}

void kv_num_rows_at_most(int level)
{
    best = level;
}
#else
static const row_work *rows_here(void)
{
    return &rows_plain;
}

void kv_num_rows_at_most(int level)
{
    (void)level;
}
#endif

void kv_num_to_f32_row(kv_elem from, const void *src, float *dst, size_t n)
{
    unsigned char *bits = (unsigned char *)(void *)dst;
    switch (from) {
    case KV_ELEM_F16: rows_here()->from_f16(src, bits, n); return;
    case KV_ELEM_BF16: rows_here()->from_bf16(src, bits, n); return;
    case KV_ELEM_FP8_E4M3: rows_here()->from_fp8(src, bits, n); return;
    case KV_ELEM_F32:
    case KV_ELEM_COUNT: break;
    }
    if (n != 0) memcpy(dst, src, n * sizeof *dst);
}

static void row_from_f32(kv_elem to, const unsigned char *src, unsigned char *dst, size_t n)
{
    switch (to) {
    case KV_ELEM_F16: rows_here()->to_f16(src, dst, n); return;
    case KV_ELEM_BF16: rows_here()->to_bf16(src, dst, n); return;
    case KV_ELEM_FP8_E4M3: rows_here()->to_fp8(src, dst, n); return;
    case KV_ELEM_F32:
    case KV_ELEM_COUNT: break;
    }
    memcpy(dst, src, n * sizeof(float));
}

#define PART 512 /* values that pass through f32 at a time */

void kv_num_convert_row(kv_elem from, kv_elem to, const void *src, void *dst, size_t n)
{
    const size_t from_bytes = (size_t)kv_elem_bytes(from), to_bytes = (size_t)kv_elem_bytes(to);
    const unsigned char *in = src;
    unsigned char *out = dst;
    float part[PART];
    if (from == to) {
        if (n != 0) memcpy(dst, src, n * from_bytes);
        return;
    }
    for (size_t i = 0; i < n; i += PART) {
        const size_t m = n - i < PART ? n - i : PART;
        kv_num_to_f32_row(from, in + i * from_bytes, part, m);
        row_from_f32(to, (const unsigned char *)part, out + i * to_bytes, m);
    }
}
