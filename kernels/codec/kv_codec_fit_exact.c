/* codec fit: exact principal directions, by our solver or LAPACKE, and what is shared with the randomized ones. */
#include "kernels/codec/kv_codec_fit_part.h"

#include "kernels/codec/kv_codec_fit_loops.h"

#include <math.h>
#include <string.h>

static kv_rc solve(float *s, int32_t n, int32_t solver, kv_fit_directions *out, kv_err *err)
{
    if (solver == KV_CODEC_SOLVER_LAPACK) return kv_fit_lapack(s, n, out->values, out->v, err);
    const size_t entries = (size_t)n * (size_t)n;
    double *a = kv_alloc(entries + (size_t)n, sizeof *a);
    if (a == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a covariance of %d", (int)n);
    for (size_t i = 0; i < entries; i++) a[i] = (double)s[i];
    double *values = a + entries;
    const kv_rc rc = kv_codec_eigen_own(a, n, values, out->v, err);
    for (int32_t i = 0; i < n && rc == KV_OK; i++) out->values[i] = (float)values[i];
    kv_free(a);
    return rc;
}

kv_rc kv_fit_exact(const kv_fit_rows *r, int32_t solver, kv_fit_directions *out, kv_err *err)
{
    const int32_t n = r->dim;
    const size_t entries = (size_t)n * (size_t)n;
    float *s = kv_alloc_image(entries * sizeof *s);
    if (s == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a covariance of %d", (int)n);
    kv_rc rc;
    KV_TRY(rc, out, kv_fit_covariance(r, s, err));
    if (kv_fit_largest_bits(s, (int64_t)entries) > 0x7F7FFFFFu) {
        rc =
            KV_FAIL(err, KV_EFORMAT, "the covariance leaves the range of float32: rows too long for the published fit");
        goto out;
    }
    out->whole = 0;
    for (int32_t i = 0; i < n; i++) out->whole += (double)s[(size_t)i * (size_t)n + (size_t)i];
    KV_TRY(rc, out, solve(s, n, solver, out, err));
    out->found = n;
out:
    kv_free(s);
    return rc;
}

/* ---- orthonormal rows ---------------------------------------------------------------------- */

/* Takes from row `at` what the rows before it explain, twice, and returns the length left. */
static double reduce(const kv_fit_loops *loops, double *m, int32_t at, int64_t len)
{
    double *x = m + at * len;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t r = 0; r < at; r++) {
            const double *y = m + r * len;
            loops->take_out(x, loops->dot(x, y, len), y, len);
        }
    return sqrt(loops->dot(x, x, len));
}

static void divide(double *x, double by, int64_t len)
{
    for (int64_t i = 0; i < len; i++) x[i] /= by;
}

/* What remains of some unit vector is at least sqrt(1 - at / len) long, since the squares add up to len - at: the
 * first that keeps half of that is taken. */
static void complete(const kv_fit_loops *loops, double *m, int32_t at, int64_t len, int64_t *unit)
{
    double *x = m + at * len;
    const double enough = sqrt((double)(len - at) / (double)len) / 2;
    for (int64_t tries = 0; tries < len; tries++) {
        memset(x, 0, (size_t)len * sizeof *x);
        x[*unit] = 1;
        *unit = (*unit + 1) % len;
        const double left = reduce(loops, m, at, len);
        if (left >= enough) {
            divide(x, left, len);
            return;
        }
    }
}

void kv_fit_orthonormalise(double *m, int32_t rows, int64_t len)
{
    const kv_fit_loops *loops = kv_fit_loops_here();
    int64_t unit = 0;
    for (int32_t at = 0; at < rows; at++) {
        double *x = m + at * len;
        const double before = sqrt(loops->dot(x, x, len));
        const double left = before > 0 ? reduce(loops, m, at, len) : 0;
        if (left > 0x1p-40 * before)
            divide(x, left, len);
        else
            complete(loops, m, at, len, &unit);
    }
}
