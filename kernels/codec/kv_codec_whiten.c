#include "kernels/codec/kv_codec_whiten.h"

#include <math.h>
#include <string.h>

#include "kernels/codec/kv_codec_fit.h"

kv_rc kv_codec_whiten_new(int32_t layers, int32_t heads, int32_t dim, kv_codec_whiten *out, kv_err *err)
{
    kv_codec_whiten w = {.layers = layers, .heads = heads, .dim = dim};
    if (layers < 1 || heads < 1 || dim < 1 || dim > KV_CODEC_DIM_MAX)
        return KV_FAIL(err, KV_EINVAL, "no whitening of %d layers, %d heads, head_dim %d", layers, heads, dim);
    w.l = kv_alloc((size_t)layers, sizeof *w.l);
    w.inverse = kv_alloc((size_t)layers, sizeof *w.inverse);
    if (w.l == NULL || w.inverse == NULL) {
        kv_codec_whiten_free(&w);
        return KV_FAIL(err, KV_ENOMEM, "no memory for the whitening of %d layers", layers);
    }
    *out = w;
    return KV_OK;
}

kv_rc kv_codec_whiten_add(kv_codec_whiten *w, int32_t layer, kv_err *err)
{
    const size_t floats = (size_t)w->dim * (size_t)w->dim * sizeof(float);
    w->l[layer] = kv_alloc((size_t)w->heads, floats);
    w->inverse[layer] = kv_alloc((size_t)w->heads, floats);
    if (w->l[layer] != NULL && w->inverse[layer] != NULL) return KV_OK;
    return KV_FAIL(err, KV_ENOMEM, "no memory for the whitening of layer %d", layer);
}

void kv_codec_whiten_free(kv_codec_whiten *w)
{
    for (int32_t i = 0; i < w->layers; i++) {
        if (w->l != NULL) kv_free(w->l[i]);
        if (w->inverse != NULL) kv_free(w->inverse[i]);
    }
    kv_free(w->l);
    kv_free(w->inverse);
    memset(w, 0, sizeof *w);
}

int32_t kv_codec_whiten_identities(const kv_codec_whiten *w)
{
    int32_t n = 0;
    for (int32_t i = 0; i < w->layers; i++) n += w->l[i] == NULL;
    return n;
}

/* ---- checks ----------------------------------------------------------------------------- */

static kv_rc check_lower(const float *l, int32_t dim, kv_err *err)
{
    for (int32_t i = 0; i < dim; i++)
        for (int32_t j = 0; j < dim; j++) {
            const double v = (double)l[(int64_t)i * dim + j];
            if (!isfinite(v)) return KV_FAIL(err, KV_EFORMAT, "L[%d][%d] is not finite", i, j);
            if (j > i && v != 0)
                return KV_FAIL(err, KV_EFORMAT, "L[%d][%d] is %g: L must be lower triangular, 0 was expected", i, j, v);
            if (j == i && !(v > 0))
                return KV_FAIL(err, KV_EFORMAT, "L[%d][%d] is %g: the diagonal must be positive", i, j, v);
        }
    return KV_OK;
}

/* One row of L times L inverse, in f64. */
static kv_rc check_product_row(const float *l, const float *inverse, int32_t dim, int32_t i, double *row, kv_err *err)
{
    memset(row, 0, (size_t)dim * sizeof *row);
    for (int32_t m = 0; m <= i; m++) {
        const double v = (double)l[(int64_t)i * dim + m];
        for (int32_t j = 0; j < dim; j++) row[j] += v * (double)inverse[(int64_t)m * dim + j];
    }
    for (int32_t j = 0; j < dim; j++) {
        const double off = fabs(row[j] - (i == j ? 1 : 0));
        if (!(off <= KV_CODEC_WHITEN_TOLERANCE))
            return KV_FAIL(err, KV_EFORMAT,
                           "L times its inverse is %g off the identity at [%d][%d], at most %g is allowed", off, i, j,
                           KV_CODEC_WHITEN_TOLERANCE);
    }
    return KV_OK;
}

static kv_rc check_pair(const float *l, const float *inverse, int32_t dim, kv_err *err)
{
    double row[KV_CODEC_DIM_MAX];
    kv_rc rc = check_lower(l, dim, err);
    for (int32_t i = 0; rc == KV_OK && i < dim; i++) rc = check_product_row(l, inverse, dim, i, row, err);
    return rc;
}

kv_rc kv_codec_whiten_check(const kv_codec_whiten *w, kv_err *err)
{
    const int64_t entries = (int64_t)w->dim * w->dim;
    for (int32_t i = 0; i < w->layers; i++)
        for (int32_t h = 0; w->l[i] != NULL && h < w->heads; h++) {
            const kv_rc rc = check_pair(w->l[i] + h * entries, w->inverse[i] + h * entries, w->dim, err);
            if (rc == KV_OK) continue;
            kv_err_prefix(err, "layer %d, head %d", i, h);
            return rc;
        }
    return KV_OK;
}

void kv_codec_whiten_rows(const float *m, int32_t dim, const float *x, int64_t n, float *out)
{
    for (int64_t r = 0; r < n; r++, x += dim, out += dim) {
        memset(out, 0, (size_t)dim * sizeof *out);
        for (int32_t i = 0; i < dim; i++) {
            const float v = x[i], *row = m + (int64_t)i * dim;
            for (int32_t j = 0; j < dim; j++) out[j] = out[j] + v * row[j];
        }
    }
}

/* ---- fitting ---------------------------------------------------------------------------- */

void kv_codec_whiten_sum(const float *q, int64_t n, int32_t dim, double *sums)
{
    for (int64_t r = 0; r < n; r++, q += dim)
        for (int32_t i = 0; i < dim; i++) {
            const double v = (double)q[i];
            double *row = sums + (int64_t)i * dim;
            for (int32_t j = 0; j < dim; j++) row[j] += v * (double)q[j];
        }
}

/* Mean, symmetrised, with the ridge. */
static kv_rc regularise(double *s, int64_t count, int32_t dim, double ridge, kv_err *err)
{
    double trace = 0;
    for (int32_t i = 0; i < dim; i++)
        for (int32_t j = 0; j <= i; j++) {
            const double v = (s[(int64_t)i * dim + j] + s[(int64_t)j * dim + i]) / 2 / (double)count;
            if (!isfinite(v))
                return KV_FAIL(err, KV_EFORMAT, "the queries' covariance is not finite at [%d][%d]", i, j);
            s[(int64_t)i * dim + j] = s[(int64_t)j * dim + i] = v;
            if (i == j) trace += v;
        }
    if (!(trace > 0)) return KV_FAIL(err, KV_EFORMAT, "all queries are zero: there is nothing to whiten with");
    for (int32_t i = 0; i < dim; i++) s[(int64_t)i * dim + i] += ridge * trace / dim;
    return KV_OK;
}

/* s becomes its lower Cholesky factor, zeros above. */
static kv_rc cholesky(double *s, int32_t dim, kv_err *err)
{
    for (int32_t i = 0; i < dim; i++)
        for (int32_t j = 0; j <= i; j++) {
            double sum = s[(int64_t)i * dim + j];
            for (int32_t m = 0; m < j; m++) sum -= s[(int64_t)i * dim + m] * s[(int64_t)j * dim + m];
            if (i == j && !(sum > 0))
                return KV_FAIL(err, KV_EFORMAT, "the queries' covariance is not positive definite (pivot %d is %g)", i,
                               sum);
            s[(int64_t)i * dim + j] = i == j ? sqrt(sum) : sum / s[(int64_t)j * dim + j];
        }
    for (int32_t i = 0; i < dim; i++)
        for (int32_t j = i + 1; j < dim; j++) s[(int64_t)i * dim + j] = 0;
    return KV_OK;
}

/* The inverse of a lower triangular f32 matrix, by columns in f64. */
static void invert_lower(const float *l, int32_t dim, double *column, float *out)
{
    memset(out, 0, (size_t)dim * (size_t)dim * sizeof *out);
    for (int32_t c = 0; c < dim; c++)
        for (int32_t i = c; i < dim; i++) {
            double sum = i == c ? 1 : 0;
            for (int32_t m = c; m < i; m++) sum -= (double)l[(int64_t)i * dim + m] * column[m];
            column[i] = sum / (double)l[(int64_t)i * dim + i];
            out[(int64_t)i * dim + c] = (float)column[i];
        }
}

static kv_rc condition_of(const double *s, int32_t dim, double *out, kv_err *err)
{
    const size_t n = (size_t)dim;
    double *v = kv_alloc(n * n, sizeof *v), *values = kv_alloc(n, sizeof *values);
    kv_rc rc;
    if (v == NULL || values == NULL)
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a condition number");
    else
        rc = kv_codec_eigen_own(s, dim, values, v, err);
    if (rc == KV_OK) *out = values[dim - 1] > 0 ? values[0] / values[dim - 1] : INFINITY;
    kv_free(v);
    kv_free(values);
    return rc;
}

kv_rc kv_codec_whiten_fit(double *sums, int64_t count, int32_t dim, double ridge, float *l, float *inverse,
                          double *condition, kv_err *err)
{
    double column[KV_CODEC_DIM_MAX];
    kv_rc rc;
    if (count < 1 || dim < 1 || dim > KV_CODEC_DIM_MAX)
        return KV_FAIL(err, KV_EINVAL, "no whitening factors from no queries");
    KV_TRY(rc, out, regularise(sums, count, dim, ridge, err));
    KV_TRY(rc, out, condition_of(sums, dim, condition, err));
    KV_TRY(rc, out, cholesky(sums, dim, err));
    for (int64_t i = 0; i < (int64_t)dim * dim; i++) l[i] = (float)sums[i];
    invert_lower(l, dim, column, inverse);
    rc = check_pair(l, inverse, dim, err);
out:
    return rc;
}
