/* codec fit: the rows of a block looked at, their mean and covariance (sections 8.1 and 8.2 of the codec's rules):
 * float32, one row after another. */
#include "kernels/codec/kv_codec_fit_part.h"

#include "kernels/codec/kv_codec_fit_loops.h"
#include "kernels/kv_kern_num.h"

#include <math.h>
#include <string.h>

#define FINITE_MOST 0x7F7FFFFFu

/* ---- looking ------------------------------------------------------------------------------ */

uint32_t kv_fit_largest_bits(const float *x, int64_t n)
{
    return (uint32_t)kv_fit_loops_here()->largest(x, n);
}

float kv_fit_scale_of(float x)
{
    int32_t e = 254 - (int32_t)(kv_num_bits(x) >> 23 & 0xFFu);
    if (!(x > 0)) return 1;
    if (e > 254) e = 254; /* x is subnormal */
    if (e < 1) e = 1;
    return kv_num_float((uint32_t)e << 23);
}

static kv_rc name_bad_value(const kv_fit_rows *r, kv_err *err)
{
    for (int64_t i = 0; i < r->n; i++)
        for (int32_t j = 0; j < r->dim; j++)
            if (!isfinite(r->x[i * r->dim + j]))
                return KV_FAIL(err, KV_EFORMAT, "row %lld, column %d is not finite: nothing can be fitted to it",
                               (long long)i, (int)j);
    return KV_FAIL(err, KV_EBUG, "a value is not finite, but which is not found");
}

/* Their sum in order, and how many count. */
static kv_rc look_at_weights(kv_fit_rows *r, kv_err *err)
{
    float most = 0, sum = -0.0f;
    r->wscale = 1;
    for (int64_t i = 0; r->w != NULL && i < r->n; i++) {
        if (!isfinite(r->w[i])) return KV_FAIL(err, KV_EFORMAT, "the weight of row %lld is not finite", (long long)i);
        if (r->w[i] > most) most = r->w[i];
    }
    if (!r->published) r->wscale = kv_fit_scale_of(most);
    r->active = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const float w = kv_fit_weight(r, i);
        if (w > 0) r->active++;
        if (w > 0 || r->published) sum += w;
    }
    r->total_weight = sum;
    if (r->active == 0) return KV_FAIL(err, KV_EFORMAT, "no row of %lld has a positive weight", (long long)r->n);
    if (r->published && !(sum > KV_CODEC_EPS))
        return KV_FAIL(err, KV_EFORMAT, "the weights add up to %.9g, at most 2^-23", (double)sum);
    if (!isfinite(sum)) return KV_FAIL(err, KV_EFORMAT, "the sum of the weights is not finite");
    return KV_OK;
}

void kv_fit_rows_free(kv_fit_rows *r)
{
    kv_free(r->mean);
    r->mean = NULL;
}

kv_rc kv_fit_rows_look(kv_fit_rows *r, int32_t dim, bool published, const float *x, const float *w, int64_t n,
                       kv_err *err)
{
    *r = (kv_fit_rows){.x = x, .w = w, .n = n, .dim = dim, .published = published, .scale = 1, .wscale = 1};
    if (n < 1) return KV_FAIL(err, KV_EFORMAT, "no rows to fit a skeleton to");
    const uint32_t most = kv_fit_largest_bits(x, n * dim);
    if (most > FINITE_MOST) return name_bad_value(r, err);
    if (!published) r->scale = kv_fit_scale_of(kv_num_float(most));
    return look_at_weights(r, err);
}

kv_rc kv_fit_rows_mean(kv_fit_rows *r, kv_err *err)
{
    const int32_t dim = r->dim;
    r->mean = kv_alloc((size_t)dim, sizeof *r->mean);
    if (r->mean == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a mean");
    const kv_fit_loops *loops = kv_fit_loops_here();
    for (int64_t i = 0; i < r->n; i++) {
        const float weight = kv_fit_weight(r, i);
        if (weight > 0 || r->published) loops->add_row(r->mean, r->x + i * dim, weight, r->scale, dim);
    }
    for (int32_t j = 0; j < dim; j++) r->mean[j] /= r->total_weight;
    return KV_OK;
}

/* ---- covariance --------------------------------------------------------------------------- */

/* Some rows that count, centred: z, and w * z (the same array where all weights are 1), each padded with zeros. */
enum { PORTION = 512 }; /* what the second cache holds; sums go on from portion to portion */
typedef struct {
    float *z, *wz, *sums; /* [PORTION][ld], [PORTION][ld], [ld][ld] */
    int64_t rows, ld;
} centred;

static void centred_free(centred *c)
{
    if (c->wz != c->z) kv_free(c->wz);
    kv_free(c->z);
    kv_free(c->sums);
}

static kv_rc centred_new(centred *c, const kv_fit_rows *r, kv_err *err)
{
    const size_t ld = ((size_t)r->dim + KV_FIT_LANES_F32 - 1) / KV_FIT_LANES_F32 * KV_FIT_LANES_F32;
    const size_t rows = r->active < PORTION ? (size_t)r->active : PORTION, bytes = rows * ld * sizeof(float);
    *c = (centred){.ld = (int64_t)ld};
    c->z = kv_alloc_image(bytes);
    c->wz = r->w == NULL ? c->z : kv_alloc_image(bytes);
    c->sums = kv_alloc_image(ld * ld * sizeof *c->sums);
    if (c->z == NULL || c->wz == NULL || c->sums == NULL) {
        centred_free(c);
        return KV_FAIL(err, KV_ENOMEM, "no memory for a covariance of %d", (int)r->dim);
    }
    memset(c->z, 0, bytes);
    memset(c->wz, 0, bytes);
    memset(c->sums, 0, ld * ld * sizeof *c->sums);
    return KV_OK;
}

kv_rc kv_fit_covariance(const kv_fit_rows *r, float *s, kv_err *err)
{
    centred c;
    const kv_fit_loops *loops = kv_fit_loops_here();
    const kv_rc rc = centred_new(&c, r, err);
    if (rc != KV_OK) return rc;
    for (int64_t i = 0; i < r->n; i++) {
        const float w = kv_fit_weight(r, i);
        if (!(w > 0)) continue;
        if (c.rows == PORTION) {
            loops->covariance(c.wz, c.z, c.rows, c.ld, c.sums);
            c.rows = 0;
        }
        loops->centre_row(c.z + c.rows * c.ld, c.wz + c.rows * c.ld, r->x + i * r->dim, r->mean, w, r->scale, r->dim);
        c.rows++;
    }
    loops->covariance(c.wz, c.z, c.rows, c.ld, c.sums);
    for (int64_t a = 0; a < r->dim; a++)
        for (int64_t b = 0; b <= a; b++) s[a * r->dim + b] = s[b * r->dim + a] = c.sums[a * c.ld + b] / r->total_weight;
    centred_free(&c);
    return KV_OK;
}

/* ---- how many directions ------------------------------------------------------------------ */

int32_t kv_fit_rank(const float *values, int32_t n, int32_t fallback, double ratio, bool published, float *total)
{
    float sum = 0, run = 0;
    const float least = (float)(ratio < 0 ? 0 : ratio > 1 ? 1 : ratio);
    for (int32_t i = 0; i < n; i++) sum += values[i] > 0 ? values[i] : 0;
    *total = sum;
    if (published ? !(sum > KV_CODEC_EPS) : !(sum > 0)) return published ? 1 : 0;
    for (int32_t i = 0; i < n; i++) {
        run += values[i] > 0 ? values[i] : 0;
        if (run / sum >= least) return i + 1;
    }
    return fallback;
}
