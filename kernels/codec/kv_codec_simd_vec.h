/* codec simd: vectors of KV_LANES rows and the kernels on them. Included by kv_codec_simd_impl.h.
 *
 * A lane is a row (or a column in kv_simd_product), so that each sum runs in its own lane in the order of the
 * reference. Products commute, a sign change and a product with a power of two are exact: nothing else is rearranged. */
#ifndef KV_CODEC_SIMD_VEC_H
#define KV_CODEC_SIMD_VEC_H

#ifndef KV_LANES /* the header alone, as a lint compiles it */
#define KV_ISA(what_) kv_codec_sse2_##what_
#define KV_LANES 4
#define KV_DIRECTIONS 4
#define KV_ROWS 4
#define KV_COLUMNS 2
#endif

#include <immintrin.h>
#include <string.h>

#include "kernels/codec/kv_codec_step.h"
#include "kernels/codec/kv_codec_work.h"

#define GROUP KV_CODEC_GROUP
#define TILE KV_CODEC_TILE
/* Loops over registers: unrolled before registers are given out. */
#if defined(__clang__)
#define KV_UNROLL _Pragma("clang loop unroll(full)")
#define KV_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define KV_UNROLL _Pragma("GCC unroll 16")
#define KV_UNROLL_4 _Pragma("GCC unroll 4")
#endif
#define KV_INLINE static inline __attribute__((always_inline))

typedef float kv_vf __attribute__((vector_size(KV_LANES * 4), may_alias));
typedef int32_t kv_vi __attribute__((vector_size(KV_LANES * 4), may_alias));
typedef uint32_t kv_vu __attribute__((vector_size(KV_LANES * 4), may_alias));
typedef float kv_vf_any __attribute__((vector_size(KV_LANES * 4), aligned(4), may_alias));

#if KV_LANES == 16
#define KV_SPLAT _mm512_set1_ps
#define KV_SPLAT_I _mm512_set1_epi32
#elif KV_LANES == 8
#define KV_SPLAT _mm256_set1_ps
#define KV_SPLAT_I _mm256_set1_epi32
#else
#define KV_SPLAT _mm_set1_ps
#define KV_SPLAT_I _mm_set1_epi32
#endif

KV_INLINE kv_vf kv_splat(float x)
{
    return (kv_vf)KV_SPLAT(x);
}

KV_INLINE kv_vi kv_splat_i(int32_t x)
{
    return (kv_vi)KV_SPLAT_I(x);
}

KV_INLINE kv_vf kv_load(const float *p)
{
    return *(const kv_vf *)p;
}

KV_INLINE void kv_store(float *p, kv_vf v)
{
    *(kv_vf *)p = v;
}

KV_INLINE kv_vf kv_abs(kv_vf v)
{
    return (kv_vf)((kv_vi)v & kv_splat_i(0x7FFFFFFF));
}

/* a < b ? x : y in each lane; false for a NaN. */
#if KV_LANES == 16
KV_INLINE kv_vf kv_if_less(kv_vf a, kv_vf b, kv_vf x, kv_vf y)
{
    const __mmask16 m = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ);
    return (kv_vf)_mm512_mask_blend_ps(m, (__m512)y, (__m512)x);
}

KV_INLINE kv_vi kv_if_less_i(kv_vf a, kv_vf b, kv_vi x, kv_vi y)
{
    const __mmask16 m = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ);
    return (kv_vi)_mm512_mask_blend_epi32(m, (__m512i)y, (__m512i)x);
}
#else
KV_INLINE kv_vi kv_if_less_i(kv_vf a, kv_vf b, kv_vi x, kv_vi y)
{
    const kv_vi m = (kv_vi)(a < b);
    return (x & m) | (y & ~m);
}

KV_INLINE kv_vf kv_if_less(kv_vf a, kv_vf b, kv_vf x, kv_vf y)
{
    return (kv_vf)kv_if_less_i(a, b, (kv_vi)x, (kv_vi)y);
}
#endif

/* Entry index % 16 of a table of 16, in each lane. */
#if KV_LANES == 16
#define KV_PICK16 1
KV_INLINE kv_vf kv_pick16(const float *table, kv_vi index)
{
    return (kv_vf)_mm512_permutexvar_ps((__m512i)index, _mm512_loadu_ps(table));
}
#elif KV_LANES == 8
#define KV_PICK16 1
KV_INLINE kv_vf kv_pick16(const float *table, kv_vi index)
{
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)index);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), (__m256i)index);
    return (kv_vf)_mm256_blendv_ps(low, high, (__m256)(index << 28));
}
#else
#define KV_PICK16 0
#endif

/* ---- rows into groups ------------------------------------------------------------------- */

/* Columns 0..d of 4 rows, less `minus` where it is not NULL, to out[column][GROUP] at 4 neighbouring lanes. */
KV_INLINE void kv_simd_turn4(const float *const row[4], const float *minus, int32_t d, float *out)
{
    int32_t j = 0;
    for (; j + 4 <= d; j += 4) {
        __m128 r0 = _mm_loadu_ps(row[0] + j), r1 = _mm_loadu_ps(row[1] + j), r2 = _mm_loadu_ps(row[2] + j),
               r3 = _mm_loadu_ps(row[3] + j);
        if (minus != NULL) {
            const __m128 m = _mm_loadu_ps(minus + j);
            r0 = _mm_sub_ps(r0, m);
            r1 = _mm_sub_ps(r1, m);
            r2 = _mm_sub_ps(r2, m);
            r3 = _mm_sub_ps(r3, m);
        }
        _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
        _mm_store_ps(out + (int64_t)(j + 0) * GROUP, r0);
        _mm_store_ps(out + (int64_t)(j + 1) * GROUP, r1);
        _mm_store_ps(out + (int64_t)(j + 2) * GROUP, r2);
        _mm_store_ps(out + (int64_t)(j + 3) * GROUP, r3);
    }
    for (; j < d; j++)
        for (int l = 0; l < 4; l++) out[(int64_t)j * GROUP + l] = minus != NULL ? row[l][j] - minus[j] : row[l][j];
}

/* ---- sums ------------------------------------------------------------------------------- */

/* For 8 directions (tile[len][8]) and GROUP rows (x[len][GROUP]): out[8][GROUP] = sums of products from `from`. */
KV_INLINE void kv_simd_tile(const float *tile, const float *x, int32_t len, float from, float *out)
{
    for (int lane = 0; lane < GROUP; lane += 2 * KV_LANES)
        for (int first = 0; first < TILE; first += KV_DIRECTIONS) {
            kv_vf sum[KV_DIRECTIONS][2];
            KV_UNROLL
            for (int i = 0; i < KV_DIRECTIONS; i++) sum[i][0] = sum[i][1] = kv_splat(from);
            for (int32_t j = 0; j < len; j++) {
                const kv_vf x0 = kv_load(x + (int64_t)j * GROUP + lane);
                const kv_vf x1 = kv_load(x + (int64_t)j * GROUP + lane + KV_LANES);
                KV_UNROLL
                for (int i = 0; i < KV_DIRECTIONS; i++) {
                    const kv_vf b = kv_splat(tile[(int64_t)j * TILE + first + i]);
                    sum[i][0] = sum[i][0] + b * x0;
                    sum[i][1] = sum[i][1] + b * x1;
                }
            }
            KV_UNROLL
            for (int i = 0; i < KV_DIRECTIONS; i++) {
                kv_store(out + (int64_t)(first + i) * GROUP + lane, sum[i][0]);
                kv_store(out + (int64_t)(first + i) * GROUP + lane + KV_LANES, sum[i][1]);
            }
        }
}

/* Sums of squares of each row of x[len][GROUP], from -0. */
KV_INLINE void kv_simd_squares(const float *x, int32_t len, float *out)
{
    kv_vf sum[GROUP / KV_LANES];
    for (int v = 0; v < GROUP / KV_LANES; v++) sum[v] = kv_splat(-0.0f);
    for (int32_t j = 0; j < len; j++)
        for (int v = 0; v < GROUP / KV_LANES; v++) {
            const kv_vf a = kv_load(x + (int64_t)j * GROUP + v * KV_LANES);
            sum[v] = sum[v] + a * a;
        }
    for (int v = 0; v < GROUP / KV_LANES; v++) kv_store(out + v * KV_LANES, sum[v]);
}

/* Keeps for each row the largest |dot| so far of centres first..first+here (dots[8][GROUP]). */
KV_INLINE void kv_simd_keep(const float *dots, int32_t first, int32_t here, float *most, float *dot, int32_t *seg)
{
    for (int lane = 0; lane < GROUP; lane += KV_LANES) {
        kv_vf m = kv_load(most + lane), t = kv_load(dot + lane);
        kv_vi s = *(const kv_vi *)(seg + lane);
        for (int32_t g = 0; g < here; g++) {
            const kv_vf along = kv_load(dots + (int64_t)g * GROUP + lane), size = kv_abs(along);
            t = kv_if_less(m, size, along, t);
            s = kv_if_less_i(m, size, kv_splat_i(first + g), s);
            m = kv_if_less(m, size, size, m);
        }
        kv_store(most + lane, m);
        kv_store(dot + lane, t);
        *(kv_vi *)(seg + lane) = s;
    }
}

/* ---- rotation --------------------------------------------------------------------------- */

#if KV_LANES > 4
/* Three steps h, 2h and 4h of the butterfly on y[n][GROUP], in registers. */
KV_INLINE void kv_simd_butterfly8(float *y, int32_t n, int32_t h)
{
    const int64_t step = (int64_t)h * GROUP;
    for (int32_t i = 0; i < n; i += 8 * h)
        for (int32_t j = i; j < i + h; j++)
            for (int lane = 0; lane < GROUP; lane += KV_LANES) {
                float *p = y + (int64_t)j * GROUP + lane;
                kv_vf a[8], b[8];
                KV_UNROLL
                for (int k = 0; k < 8; k++) a[k] = kv_load(p + k * step);
                KV_UNROLL
                for (int k = 0; k < 8; k += 2) {
                    b[k] = a[k] + a[k + 1];
                    b[k + 1] = a[k] - a[k + 1];
                }
                KV_UNROLL
                for (int k = 0; k < 8; k += 4) {
                    a[k] = b[k] + b[k + 2];
                    a[k + 1] = b[k + 1] + b[k + 3];
                    a[k + 2] = b[k] - b[k + 2];
                    a[k + 3] = b[k + 1] - b[k + 3];
                }
                KV_UNROLL
                for (int k = 0; k < 4; k++) {
                    kv_store(p + k * step, a[k] + a[k + 4]);
                    kv_store(p + (k + 4) * step, a[k] - a[k + 4]);
                }
            }
}
#endif

/* Two steps h and 2h of the butterfly on y[n][GROUP], in registers. */
KV_INLINE void kv_simd_butterfly4(float *y, int32_t n, int32_t h)
{
    for (int32_t i = 0; i < n; i += 4 * h)
        for (int32_t j = i; j < i + h; j++)
            for (int lane = 0; lane < GROUP; lane += KV_LANES) {
                float *p = y + (int64_t)j * GROUP + lane;
                const int64_t step = (int64_t)h * GROUP;
                const kv_vf a = kv_load(p), b = kv_load(p + step), c = kv_load(p + 2 * step), d = kv_load(p + 3 * step);
                const kv_vf ab = a + b, a_b = a - b, cd = c + d, c_d = c - d;
                kv_store(p, ab + cd);
                kv_store(p + step, a_b + c_d);
                kv_store(p + 2 * step, ab - cd);
                kv_store(p + 3 * step, a_b - c_d);
            }
}

/* The butterfly on each row of y[n][GROUP]. */
KV_INLINE void kv_simd_butterfly(float *y, int32_t n)
{
    int32_t h = 1;
#if KV_LANES > 4
    for (; 8 * h <= n; h *= 8) kv_simd_butterfly8(y, n, h);
#endif
    for (; 4 * h <= n; h *= 4) kv_simd_butterfly4(y, n, h);
    if (2 * h > n) return;
    for (int32_t j = 0; j < h; j++) /* one step is left: 2h = n */
        for (int lane = 0; lane < GROUP; lane += KV_LANES) {
            float *p = y + (int64_t)j * GROUP + lane, *q = p + (int64_t)h * GROUP;
            const kv_vf a = kv_load(p), b = kv_load(q);
            kv_store(p, a + b);
            kv_store(q, a - b);
        }
}

#endif
