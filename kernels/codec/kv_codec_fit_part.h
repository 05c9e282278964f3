/* codec fit, inside: what its files tell each other. */
#ifndef KV_CODEC_FIT_PART_H
#define KV_CODEC_FIT_PART_H

#include "kernels/codec/kv_codec_fit.h"

/* The rows that count, looked at: all finite, sums that hold. Values are used as x * scale and w * wscale, both powers
 * of two that bring the largest into [1, 2) (1 with the published rules), so that no square leaves float32. Where
 * nothing over- or underflows this changes no bit of the result. */
typedef struct {
    const float *x; /* [n][dim] */
    const float *w; /* [n] or NULL */
    int64_t n;
    int64_t active; /* rows of weight > 0 */
    int32_t dim;
    bool published;
    float scale, wscale;
    float total_weight; /* of w * wscale */
    float *mean;        /* [dim] of x * scale; NULL before kv_fit_rows_mean */
} kv_fit_rows;

/* Checks rows and weights. */
kv_rc kv_fit_rows_look(kv_fit_rows *r, int32_t dim, bool published, const float *x, const float *w, int64_t n,
                       kv_err *err) KV_MUST_USE;
/* Works out the mean (section 8.1). */
kv_rc kv_fit_rows_mean(kv_fit_rows *r, kv_err *err) KV_MUST_USE;
void kv_fit_rows_free(kv_fit_rows *r);
/* The power of two that brings x > 0 into [1, 2), as far as it is a normal number itself; 1 for 0. */
float kv_fit_scale_of(float x);
/* The largest magnitude of n floats, as bits without sign: above 0x7F7FFFFF where one is not finite. */
uint32_t kv_fit_largest_bits(const float *x, int64_t n);
static inline float kv_fit_weight(const kv_fit_rows *r, int64_t i)
{
    return r->w != NULL ? r->w[i] * r->wscale : 1.0f;
}

/* s[dim][dim] = the covariance of section 8.2, both triangles. */
kv_rc kv_fit_covariance(const kv_fit_rows *r, float *s, kv_err *err) KV_MUST_USE;

/* The d_eff rule of section 8.2 on descending values. *total is their sum as the rule takes it. */
int32_t kv_fit_rank(const float *values, int32_t n, int32_t fallback, double ratio, bool published, float *total);

/* Directions of a block, most variance first: v[dim][dim], orthonormal; values[dim] their variances.
 * Exact: all dim of them; randomized: `found` of them, and the rest is completed with variance 0. */
typedef struct {
    double *v;
    float *values;
    int32_t found;
    double whole; /* variance of the block, in units of values */
} kv_fit_directions;
kv_rc kv_fit_exact(const kv_fit_rows *r, int32_t solver, kv_fit_directions *out, kv_err *err) KV_MUST_USE;
/* The sketch has min(target, dim) + oversample columns, at most dim (and at most the rows that count). */
kv_rc kv_fit_randomized(const kv_fit_rows *r, const kv_codec_fit_opts *o, int32_t target, uint32_t seed,
                        kv_fit_directions *out, kv_err *err) KV_MUST_USE;

/* Makes the rows of m[rows][len] orthonormal, one after another (Gram-Schmidt, twice). A row that the rows before it
 * explain is replaced by the first unit vector that they do not. Needs rows <= len. */
void kv_fit_orthonormalise(double *m, int32_t rows, int64_t len);

/* Eigenvectors of the symmetric a[n][n] (float32, destroyed) by LAPACKE: rows of v, values descending, signs
 * normalised. KV_EUNSUP where it is not found. */
kv_rc kv_fit_lapack(float *a, int32_t n, float *values, double *v, kv_err *err) KV_MUST_USE;

#endif
