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
        kv_simd_project(w, x + i * w->p.dim, here, false, NULL);
        for (int32_t l = 0; l < here; l++)
            for (int32_t a = 0; a < e; a++) c[(i + l) * e + a] = w->c[(int64_t)a * GROUP + l];
    }
}

/* Two groups at once where there are two: more sums in flight. */
void KV_ISA(dots)(const kv_codec_points *points, const float *center, float *out)
{
    const int32_t d = points->d;
    for (int64_t i = 0; i < points->n; i += 2 * GROUP) {
        const int64_t left = points->n - i;
        const float *x = points->groups + i * d, *y = left > GROUP ? x + (int64_t)d * GROUP : x;
        float sums[2 * GROUP] __attribute__((aligned(64)));
        for (int lane = 0; lane < GROUP; lane += 2 * KV_LANES) {
            kv_vf sum[4];
            for (int v = 0; v < 4; v++) sum[v] = kv_splat(-0.0f);
            for (int64_t a = 0; a < d; a++) {
                const kv_vf c = kv_splat(center[a]);
                sum[0] = sum[0] + kv_load(x + a * GROUP + lane) * c;
                sum[1] = sum[1] + kv_load(x + a * GROUP + lane + KV_LANES) * c;
                sum[2] = sum[2] + kv_load(y + a * GROUP + lane) * c;
                sum[3] = sum[3] + kv_load(y + a * GROUP + lane + KV_LANES) * c;
            }
            kv_store(sums + lane, sum[0]);
            kv_store(sums + lane + KV_LANES, sum[1]);
            kv_store(sums + GROUP + lane, sum[2]);
            kv_store(sums + GROUP + lane + KV_LANES, sum[3]);
        }
        memcpy(out + i, sums, (size_t)(left < 2 * GROUP ? left : 2 * GROUP) * sizeof(float));
    }
}

/* One tile of centres for every point; seg and dot hold the best so far. */
static void kv_simd_nearest_tile(const kv_codec_points *points, const float *tile, int32_t first, int32_t here,
                                 uint32_t *seg, float *dot)
{
    float dots[TILE * GROUP] __attribute__((aligned(64))), most[GROUP] __attribute__((aligned(64))),
        best[GROUP] __attribute__((aligned(64)));
    int32_t which[GROUP] __attribute__((aligned(64)));
    for (int64_t i = 0; i < points->n; i += GROUP) {
        const size_t rows = (size_t)(points->n - i < GROUP ? points->n - i : GROUP);
        memcpy(which, seg + i, rows * sizeof *which);
        memcpy(best, dot + i, rows * sizeof *best);
        for (size_t l = 0; l < GROUP; l++) {
            if (l >= rows) best[l] = 0.0f;
            if (l >= rows) which[l] = 0;
            most[l] = best[l] == best[l] ? kv_codec_abs(best[l]) : -kv_num_float(0x7F800000u);
        }
        kv_simd_tile(tile, points->groups + i * points->d, points->d, -0.0f, dots);
        kv_simd_keep(dots, first, here, most, best, which);
        memcpy(seg + i, which, rows * sizeof *which);
        memcpy(dot + i, best, rows * sizeof *best);
    }
}

void KV_ISA(nearest)(const kv_codec_points *points, const float *centers, int32_t k, uint32_t *seg, float *dot)
{
    float tile[KV_CODEC_DIM_MAX * TILE];
    const int32_t d = points->d;
    for (int64_t i = 0; i < points->n; i++) {
        seg[i] = 0;
        dot[i] = kv_num_float(KV_NUM_NAN);
    }
    for (int32_t first = 0; first < k; first += TILE) {
        const int32_t here = k - first < TILE ? k - first : TILE;
        memset(tile, 0, (size_t)d * TILE * sizeof *tile);
        for (int32_t g = 0; g < here; g++)
            for (int32_t a = 0; a < d; a++) tile[(int64_t)a * TILE + g] = centers[(int64_t)(first + g) * d + a];
        kv_simd_nearest_tile(points, tile, first, here, seg, dot);
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
