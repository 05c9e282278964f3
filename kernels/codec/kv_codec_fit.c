/* codec fit: mean, basis and centres of a block, in fp16 as they are stored. */
#include "kernels/codec/kv_codec_fit_part.h"

#include "kernels/codec/kv_codec_step.h"

#include <math.h>
#include <string.h>

#define CENTRE_MOST 0x1p50f /* longest projection that k-means takes as it is: its square is far from overflow */

/* ---- what is asked ------------------------------------------------------------------------- */

static kv_rc check_opts(const kv_codec_params *p, const kv_codec_fit_opts *o, kv_err *err)
{
    if (o->solver < KV_CODEC_SOLVER_OWN || o->solver > KV_CODEC_SOLVER_RANDOMIZED)
        return KV_FAIL(err, KV_EINVAL, "solver %d: 0 to 2", (int)o->solver);
    if (p->dim < 1 || p->dim > KV_CODEC_DIM_MAX)
        return KV_FAIL(err, KV_EINVAL, "dim %d: 1 to %d", (int)p->dim, KV_CODEC_DIM_MAX);
    if (p->d_eff < 1 || p->d_eff > p->dim)
        return KV_FAIL(err, KV_EINVAL, "d_eff %d: 1 to dim, %d", (int)p->d_eff, (int)p->dim);
    if (p->k < 1 || p->k > KV_CODEC_CENTERS_MAX)
        return KV_FAIL(err, KV_EINVAL, "k %d: 1 to %d", (int)p->k, KV_CODEC_CENTERS_MAX);
    if (!(o->variance_ratio == o->variance_ratio)) return KV_FAIL(err, KV_EINVAL, "variance_ratio is no number");
    if (o->rank_cap < 0 || o->k < 0 || o->kmeans_rounds < 0 || o->oversample < 0 || o->power_iters < 0)
        return KV_FAIL(err, KV_EINVAL, "rank_cap, k, kmeans_rounds, oversample, power_iters: at least 0");
    return KV_OK;
}

/* 0 stands for no limit of its own. */
static int32_t least_of(int32_t asked, int32_t room)
{
    return asked > 0 && asked < room ? asked : room;
}

/* ---- mean and basis ------------------------------------------------------------------------ */

static kv_rc store_mean(const kv_fit_rows *r, uint16_t *mean, kv_codec_fit_report *report, kv_err *err)
{
    int64_t held = 0;
    for (int32_t j = 0; j < r->dim; j++) {
        const float m = r->mean[j] / r->scale; /* a power of two: exact, or beyond float32 and held */
        mean[j] = kv_codec_h_held(m, &held);
        if (held > 0 && r->published)
            return KV_FAIL(err, KV_EFORMAT, "the mean of column %d, %.9g, is beyond fp16", (int)j, (double)m);
    }
    report->mean_saturated = held > 0;
    return KV_OK;
}

static void store_basis(const double *v, int32_t d_eff, int32_t dim, uint16_t *basis)
{
    for (int64_t i = 0; i < (int64_t)d_eff * dim; i++) basis[i] = kv_codec_h((float)v[i]);
}

/* How many directions the rule keeps, and with the published rules the size of the basis. */
static void choose_rank(kv_codec_params *p, const kv_codec_fit_opts *o, const kv_fit_directions *d,
                        kv_codec_fit_report *report)
{
    float total;
    double kept = 0;
    const int32_t cap = least_of(o->rank_cap, p->d_eff);
    const int32_t rank = kv_fit_rank(d->values, d->found, d->found, o->variance_ratio, o->published, &total);
    report->d_eff = rank < cap ? rank : cap;
    if (o->published) p->d_eff = report->d_eff;
    for (int32_t i = 0; i < p->d_eff; i++) kept += d->values[i] > 0 ? (double)d->values[i] : 0;
    report->kept_ppm = d->whole > 0 && kept < d->whole ? 1e6 * kept / d->whole : 1e6;
}

kv_rc kv_codec_fit_basis(kv_codec_params *p, const kv_codec_fit_opts *opts, const float *x, const float *weights,
                         int64_t n, kv_codec_skeleton *out, kv_codec_fit_report *report, kv_err *err)
{
    kv_fit_rows r;
    kv_codec_fit_report mine = {0};
    kv_fit_directions d = {0};
    kv_rc rc = check_opts(p, opts, err);
    if (rc != KV_OK) return rc;
    const size_t dim = (size_t)p->dim;
    KV_TRY(rc, out, kv_fit_rows_look(&r, p->dim, opts->published, x, weights, n, err));
    d.v = kv_alloc(dim * dim, sizeof *d.v);
    d.values = kv_alloc(dim, sizeof *d.values);
    if (d.v == NULL || d.values == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for %d directions", (int)p->dim);
        goto out;
    }
    KV_TRY(rc, out, kv_fit_rows_mean(&r, err));
    KV_TRY(rc, out, store_mean(&r, out->mean, &mine, err));
    if (opts->solver == KV_CODEC_SOLVER_RANDOMIZED) {
        const int32_t target = least_of(opts->rank_cap, p->d_eff);
        KV_TRY(rc, out, kv_fit_randomized(&r, opts, target, p->seed, &d, err));
        mine.sketch = d.found;
    } else {
        KV_TRY(rc, out, kv_fit_exact(&r, opts->solver, &d, err));
    }
    choose_rank(p, opts, &d, &mine);
    store_basis(d.v, p->d_eff, p->dim, out->basis);
    if (report != NULL) *report = mine;
out:
    kv_fit_rows_free(&r);
    kv_free(d.v);
    kv_free(d.values);
    return rc;
}

/* ---- centres ------------------------------------------------------------------------------- */

/* The projections that k-means works on, with powers of two taken off where they are too long to be squared. */
typedef struct {
    float *c; /* [n][d_eff] */
    float *w; /* [n] or NULL: all 1 */
    float *centers;
    int64_t n;
    int32_t d_eff;
} points;

static void points_free(points *q)
{
    kv_free(q->c);
    kv_free(q->w);
    kv_free(q->centers);
    *q = (points){0};
}

/* As the encoder projects, on values scaled down by 2^64: where plain sums leave float32. */
static void project_scaled(const kv_codec_params *p, const kv_codec_skeleton *s, const float *x, points *q)
{
    const float scale = 0x1p-64f;
    for (int64_t i = 0; i < q->n; i++)
        for (int32_t a = 0; a < p->d_eff; a++) {
            float sum = 0;
            for (int32_t j = 0; j < p->dim; j++)
                sum += kv_codec_f(s->basis[(int64_t)a * p->dim + j]) *
                       (x[i * p->dim + j] * scale - kv_codec_f(s->mean[j]) * scale);
            q->c[i * p->d_eff + a] = sum;
        }
}

static kv_rc project(const kv_codec_params *p, const kv_codec_skeleton *s, const float *x, bool published, points *q,
                     kv_err *err)
{
    kv_codec_work *work = NULL;
    const kv_rc rc = kv_codec_work_new(p, s, &work, err);
    if (rc != KV_OK) return rc;
    kv_codec_best()->project(work, x, q->n, q->c);
    kv_codec_work_free(work);
    const int64_t count = q->n * q->d_eff;
    uint32_t most = kv_fit_largest_bits(q->c, count);
    if (published) {
        if (most > 0x7F7FFFFFu) return KV_FAIL(err, KV_EFORMAT, "a projection is not finite: rows too long");
        return KV_OK;
    }
    if (most > 0x7F7FFFFFu) {
        project_scaled(p, s, x, q);
        most = kv_fit_largest_bits(q->c, count);
    }
    if (kv_num_float(most) <= CENTRE_MOST) return KV_OK;
    const float scale = kv_fit_scale_of(kv_num_float(most));
    for (int64_t i = 0; i < count; i++) q->c[i] *= scale;
    return KV_OK;
}

static kv_rc points_new(points *q, const kv_codec_params *p, bool published, const float *w, int64_t n, kv_err *err)
{
    int64_t floats;
    *q = (points){.n = n, .d_eff = p->d_eff};
    if (!kv_mul_i64(n, p->d_eff, &floats)) return KV_FAIL(err, KV_ENOMEM, "a block of %lld rows", (long long)n);
    q->c = kv_alloc((size_t)floats, sizeof *q->c);
    q->w = w != NULL ? kv_alloc((size_t)n, sizeof *q->w) : NULL;
    q->centers = kv_alloc((size_t)p->k * (size_t)p->d_eff, sizeof *q->centers);
    if (q->c == NULL || q->centers == NULL || (w != NULL && q->w == NULL)) {
        points_free(q);
        return KV_FAIL(err, KV_ENOMEM, "no memory to project %lld rows", (long long)n);
    }
    float most = 0;
    for (int64_t i = 0; w != NULL && i < n; i++)
        if (w[i] > most) most = w[i];
    const float scale = published ? 1 : kv_fit_scale_of(most);
    for (int64_t i = 0; w != NULL && i < n; i++) q->w[i] = w[i] * scale;
    return KV_OK;
}

/* Whether some row that counts has a coefficient above EPS: k-means needs one. */
static bool any_direction(const points *q)
{
    for (int64_t i = 0; i < q->n; i++) {
        if (q->w != NULL && !(q->w[i] > 0)) continue;
        for (int32_t a = 0; a < q->d_eff; a++)
            if (fabsf(q->c[i * q->d_eff + a]) > KV_CODEC_EPS) return true;
    }
    return false;
}

/* Centres from k_eff on: copies in turn (the encoder takes the first of equals, so they cost nothing); unit vectors
 * where there is nothing to copy. */
static void fill_centers(const points *q, int32_t k_eff, int32_t k, uint16_t *out)
{
    const int64_t len = q->d_eff;
    for (int64_t i = 0; i < k_eff * len; i++) out[i] = kv_codec_h(q->centers[i]);
    for (int32_t g = k_eff; g < k; g++) {
        uint16_t *at = out + g * len;
        if (k_eff > 0) {
            memcpy(at, out + (g % k_eff) * len, (size_t)len * sizeof *at);
        } else {
            memset(at, 0, (size_t)len * sizeof *at);
            at[g % len] = kv_codec_h(1.0f);
        }
    }
}

kv_rc kv_codec_fit_centers(kv_codec_params *p, const kv_codec_fit_opts *opts, const float *x, const float *weights,
                           int64_t n, kv_codec_skeleton *s, kv_codec_fit_report *report, kv_err *err)
{
    kv_fit_rows r;
    points q = {0};
    int32_t k_eff = 0, rounds = 0;
    const int32_t k = least_of(opts->k, p->k);
    kv_rc rc = check_opts(p, opts, err);
    if (rc != KV_OK) return rc;
    KV_TRY(rc, out, kv_fit_rows_look(&r, p->dim, opts->published, x, weights, n, err));
    KV_TRY(rc, out, points_new(&q, p, opts->published, weights, n, err));
    KV_TRY(rc, out, project(p, s, x, opts->published, &q, err));
    if (opts->published || any_direction(&q))
        KV_TRY(
            rc, out,
            kv_codec_kmeans(q.c, q.w, n, p->d_eff, k, p->seed, opts->kmeans_rounds, q.centers, &k_eff, &rounds, err));
    if (opts->published) p->k = k_eff;
    fill_centers(&q, k_eff, p->k, s->centers);
    if (report != NULL) {
        report->k_eff = k_eff;
        report->kmeans_rounds = rounds;
    }
out:
    kv_fit_rows_free(&r);
    points_free(&q);
    return rc;
}

kv_rc kv_codec_fit(kv_codec_params *p, const kv_codec_fit_opts *opts, const float *x, const float *weights, int64_t n,
                   kv_codec_skeleton *out, kv_codec_fit_report *report, kv_err *err)
{
    kv_codec_fit_report mine = {0};
    const kv_rc rc = kv_codec_fit_basis(p, opts, x, weights, n, out, &mine, err);
    if (rc != KV_OK) return rc;
    const kv_rc rc2 = kv_codec_fit_centers(p, opts, x, weights, n, out, &mine, err);
    if (rc2 == KV_OK && report != NULL) *report = mine;
    return rc2;
}
