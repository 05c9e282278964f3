/* codec simd: projection and k-means sums for the skeleton fit. Included by kv_codec_simd_impl.h. */
#ifndef KV_CODEC_SIMD_FIT_H
#define KV_CODEC_SIMD_FIT_H

#include "kernels/codec/kv_codec_simd_encode.h"

void KV_ISA(project)(kv_codec_work *w, const float *x, int64_t n, float *c)
{
    const int32_t e = w->p.d_eff;
    kv_codec_work_tiles(w);
    for (int64_t i = 0; i < n; i += GROUP) {
        const int32_t here = n - i < GROUP ? (int32_t)(n - i) : GROUP;
        kv_simd_project(w, x + i * w->p.dim, here, NULL, false, NULL);
        for (int32_t l = 0; l < here; l++)
            for (int32_t a = 0; a < e; a++) c[(i + l) * e + a] = w->c[(int64_t)a * GROUP + l];
    }
}

/* Dots of a group of points (x[d][GROUP]) with `count` centres; a group stays in the first cache for all of them. */
KV_INLINE void kv_simd_dots(const float *x, int32_t d, const float *const *center, float *const *out, const int count)
{
    for (int lane = 0; lane < GROUP; lane += 2 * KV_LANES) {
        kv_vf sum[4][2];
        KV_UNROLL
        for (int i = 0; i < count; i++) sum[i][0] = sum[i][1] = kv_splat(-0.0f);
        for (int32_t a = 0; a < d; a++) {
            const kv_vf x0 = kv_load(x + (int64_t)a * GROUP + lane);
            const kv_vf x1 = kv_load(x + (int64_t)a * GROUP + lane + KV_LANES);
            KV_UNROLL
            for (int i = 0; i < count; i++) {
                const kv_vf c = kv_splat(center[i][a]);
                sum[i][0] = sum[i][0] + x0 * c;
                sum[i][1] = sum[i][1] + x1 * c;
            }
        }
        KV_UNROLL
        for (int i = 0; i < count; i++) {
            kv_store(out[i] + lane, sum[i][0]);
            kv_store(out[i] + lane + KV_LANES, sum[i][1]);
        }
    }
}

void KV_ISA(dots)(const kv_codec_points *points, const float *centers, const int32_t *which, int32_t count, float *dots,
                  int64_t stride)
{
    const int32_t d = points->d;
    for (int64_t i = 0; i < points->n; i += GROUP)
        for (int32_t j = 0; j < count; j += 4) {
            const int32_t here = count - j < 4 ? count - j : 4;
            const float *center[4];
            float *out[4];
            for (int32_t k = 0; k < here; k++) {
                center[k] = centers + (int64_t)which[j + k] * d;
                out[k] = dots + which[j + k] * stride + i;
            }
            switch (here) {
            case 4: kv_simd_dots(points->groups + i * d, d, center, out, 4); break;
            case 3: kv_simd_dots(points->groups + i * d, d, center, out, 3); break;
            case 2: kv_simd_dots(points->groups + i * d, d, center, out, 2); break;
            default: kv_simd_dots(points->groups + i * d, d, center, out, 1); break;
            }
        }
}

void KV_ISA(choose)(const float *dots, int64_t stride, int64_t n, int32_t k, uint32_t *seg, float *dot)
{
    for (int64_t i = 0; i < n; i += KV_LANES) {
        const size_t here = (size_t)(n - i < KV_LANES ? n - i : KV_LANES);
        kv_vf most = kv_splat(-kv_num_float(0x7F800000u)), t = kv_splat(kv_num_float(KV_NUM_NAN));
        kv_vi s = kv_splat_i(0);
        for (int32_t g = 0; g < k; g++) {
            const kv_vf along = *(const kv_vf_any *)(dots + g * stride + i), size = kv_abs(along);
            t = kv_if_less(most, size, along, t);
            s = kv_if_less_i(most, size, kv_splat_i(g), s);
            most = kv_if_less(most, size, size, most);
        }
        memcpy(seg + i, &s, here * sizeof *seg);
        memcpy(dot + i, &t, here * sizeof *dot);
    }
}

void KV_ISA(add)(float *sum, const float *row, float factor, int32_t d)
{
    const kv_vf f = kv_splat(factor);
    int32_t a = 0;
    for (; a + KV_LANES <= d; a += KV_LANES)
        *(kv_vf_any *)(sum + a) = *(const kv_vf_any *)(sum + a) + f * *(const kv_vf_any *)(row + a);
    for (; a < d; a++) sum[a] = sum[a] + factor * row[a];
}

#endif
