/* codec fit, inside: the loops that take the time, compiled for several instruction sets (kv_codec_fit_loops_impl.h).
 * They work element by element, each sum in the order of its rows, so every variant gives the same bits; only the
 * speed differs. $KVGRID_CODEC_VARIANT ("reference", "sse2", "avx2", "avx512") holds it down, as in kv_codec_best. */
#ifndef KV_CODEC_FIT_LOOPS_H
#define KV_CODEC_FIT_LOOPS_H

#include <stdint.h>

/* Rows of float64 matrices of the eigen-solver have a length that is a multiple of this, and what is past n is 0. */
#define KV_FIT_LANES 8
/* The same for the centred rows of the covariance, float32. */
#define KV_FIT_LANES_F32 16

/* Rotations collected by the eigen-solver: for each sweep, `count` pairs (c, s) of rows (i + 1, i), i = top - 1
 * downwards. */
typedef struct {
    int32_t top, count;
} kv_fit_sweep;

typedef struct {
    /* row -= vj * q + qj * v, from column `from` (rounded down to KV_FIT_LANES). */
    void (*update_row)(double *row, int32_t from, int32_t ld, double vj, double qj, const double *v, const double *q);
    /* Rows j of from..n-1: the same with vj = v[j], qj = q[j], then p += next[j] * row. */
    void (*update_multiply)(double *a, int32_t from, int32_t n, int32_t ld, const double *v, const double *q,
                            const double *next, double *p);
    /* Rows j of from..n-1: row -= (v[j] / h) * u, then next_u += next[j] * row. */
    void (*reflect_multiply)(double *a, int32_t from, int32_t n, int32_t ld, const double *v, double h, const double *u,
                             const double *next, double *next_u);
    /* (row i + 1, row i) = (s * row i + c * row i+1, c * row i - s * row i+1), rotation after rotation; rows of ld, `far`
     * from one to the next. */
    void (*rotate)(double *a, int32_t far, int32_t ld, const kv_fit_sweep *sweeps, int32_t swept, const double *c,
                   const double *s);
    /* out[rows][len] = coef[rows][m] x mat[m][len]; each entry adds its m products in order, from +0. */
    void (*product)(double *out, const double *coef, int32_t rows, const double *mat, int64_t m, int64_t len);
    /* x . y in KV_FIT_LANES lanes, lane i taking elements i, i + 8, ..., added at the end as a fixed tree. */
    double (*dot)(const double *x, const double *y, int64_t len);
    /* x -= along * y */
    void (*take_out)(double *x, double along, const double *y, int64_t len);
    /* s[a][b] for b <= a += wz[row][a] * z[row][b], row after row; all of length ld. Above the diagonal s is scratch. */
    void (*covariance)(const float *wz, const float *z, int64_t rows, int64_t ld, float *s);
    /* The largest bits without sign. */
    int32_t (*largest)(const float *x, int64_t n);
    /* mean += w * (x * scale) */
    void (*add_row)(float *mean, const float *x, float w, float scale, int32_t n);
    /* z = x * scale - mean; wz = w * z (or the same array, where all weights are 1) */
    void (*centre_row)(float *z, float *wz, const float *x, const float *mean, float w, float scale, int32_t n);
} kv_fit_loops;

const kv_fit_loops *kv_fit_loops_here(void);

#endif
