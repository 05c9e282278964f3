/* codec fit: how far two skeletons of one block are apart, in double precision. */
#include "kernels/codec/kv_codec_fit_part.h"

#include "kernels/codec/kv_codec_step.h"

#include <math.h>

/* The stored basis made orthonormal again: fp16 leaves its directions about 2^-11 off. */
static double *load_basis(const kv_codec_params *p, const kv_codec_skeleton *s)
{
    const size_t entries = (size_t)p->d_eff * (size_t)p->dim;
    double *b = kv_alloc(entries, sizeof *b);
    if (b == NULL) return NULL;
    for (size_t i = 0; i < entries; i++) b[i] = (double)kv_codec_f(s->basis[i]);
    kv_fit_orthonormalise(b, p->d_eff, p->dim);
    return b;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static void take_out(double *x, const double *basis, int32_t d_eff, int32_t dim)
{
    for (int32_t a = 0; a < d_eff; a++) {
        const double *v = basis + (int64_t)a * dim, along = dot(x, v, dim);
        for (int32_t j = 0; j < dim; j++) x[j] -= along * v[j];
    }
}

/* Rows of x around the mean with the basis taken out: what only mean and basis leave, relative to x. */
static double error_of(const kv_codec_params *p, const kv_codec_skeleton *s, const double *basis, const float *x,
                       int64_t n, double *row)
{
    double lost = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int32_t j = 0; j < p->dim; j++) {
            const double v = (double)x[i * p->dim + j];
            row[j] = v - (double)kv_codec_f(s->mean[j]);
            all += v * v;
        }
        take_out(row, basis, p->d_eff, p->dim);
        lost += dot(row, row, p->dim);
    }
    return all > 0 ? sqrt(lost / all) : 0;
}

/* The sine of the largest principal angle: the largest singular value of b with a taken out. b is overwritten. */
static kv_rc sine_of(const double *a, double *b, int32_t d_eff, int32_t dim, double *out, kv_err *err)
{
    const size_t square = (size_t)d_eff * (size_t)d_eff;
    double *gram = kv_alloc(2 * square + (size_t)d_eff, sizeof *gram);
    if (gram == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to compare two bases of %d", (int)d_eff);
    for (int32_t i = 0; i < d_eff; i++) take_out(b + (int64_t)i * dim, a, d_eff, dim);
    for (int32_t i = 0; i < d_eff; i++)
        for (int32_t j = 0; j <= i; j++)
            gram[(int64_t)i * d_eff + j] = dot(b + (int64_t)i * dim, b + (int64_t)j * dim, dim);
    double *values = gram + 2 * square;
    const kv_rc rc = kv_codec_eigen_own(gram, d_eff, values, gram + square, err);
    *out = rc != KV_OK || !(values[0] > 0) ? 0 : values[0] < 1 ? sqrt(values[0]) : 1;
    kv_free(gram);
    return rc;
}

kv_rc kv_codec_fit_compare(const kv_codec_params *p, const kv_codec_skeleton *a, const kv_codec_skeleton *b,
                           const float *x, int64_t n, kv_codec_fit_distance *out, kv_err *err)
{
    double *va = load_basis(p, a), *vb = load_basis(p, b), *row = kv_alloc((size_t)p->dim, sizeof *row);
    kv_rc rc = KV_OK;
    if (va == NULL || vb == NULL || row == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory to compare two bases of %d", (int)p->d_eff);
    } else {
        out->error_a = error_of(p, a, va, x, n, row);
        out->error_b = error_of(p, b, vb, x, n, row);
        rc = sine_of(va, vb, p->d_eff, p->dim, &out->sine, err);
    }
    kv_free(va);
    kv_free(vb);
    kv_free(row);
    return rc;
}
