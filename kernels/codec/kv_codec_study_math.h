/* codec study, inside: the inner loops, in variants that give the same bits. Row lengths that end in "pad" are whole
 * multiples of KV_STUDY_PAD floats. */
#ifndef KV_CODEC_STUDY_MATH_H
#define KV_CODEC_STUDY_MATH_H

#include <stdbool.h>
#include <stdint.h>

enum { KV_STUDY_PAD = 32 };

static inline int64_t kv_study_pad(int64_t n)
{
    return (n + KV_STUDY_PAD - 1) / KV_STUDY_PAD * KV_STUDY_PAD;
}

typedef struct {
    const char *name;
    bool (*runs_here)(void);
    /* y[b][r] = sum over i < in, ascending, of wt[i][r] * x[b][i]; r < out_pad, for n rows of x (x_stride floats apart)
     * and y (out_pad apart). */
    void (*project)(const float *wt, int64_t in, int64_t out_pad, const float *x, int64_t x_stride, int64_t n,
                    float *y);
    /* score[g][t] = (sum over d ascending of q[g][d] * kt[d][t]) * scale for t in [from, to), g < 2; kt rows are
     * `stride` apart, score rows too. Reads and writes up to KV_STUDY_PAD - 1 floats past `to`. */
    void (*score)(const float *q, int64_t q_stride, const float *kt, int64_t stride, int64_t dim, int64_t from,
                  int64_t to, float scale, float *score);
    /* score[n] becomes e^(score - largest); returns their sum in eight lanes. */
    float (*soften)(float *score, int64_t n);
    /* sum[g][d] += w[g][t] * v[t][d], t in [from, to) ascending, g < 2; w rows are w_stride apart, v and sum rows
     * v_pad. */
    void (*weigh)(const float *w, int64_t w_stride, const float *v, int64_t v_pad, int64_t from, int64_t to,
                  float *sum);
} kv_study_math;

/* The number of variants and each of them, the reference first. */
int32_t kv_study_math_count(void);
const kv_study_math *kv_study_math_at(int32_t index);

#endif
