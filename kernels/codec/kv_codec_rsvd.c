/* codec fit: randomized principal directions (section 8.3 of the codec's rules): a Gaussian sketch of the centred rows,
 * power iterations, and the exact directions within the sketch. Double precision; the draws are float32 as published.
 * Logarithm and cosine are series of our own, so that the directions are the same on every machine. */
#include "kernels/codec/kv_codec_fit_part.h"

#include "kernels/codec/kv_codec_fit_loops.h"
#include "kernels/codec/kv_codec_rng.h"

#include <math.h>
#include <string.h>

#define SKETCH_SALT 0x9E3779B97F4A7C15u
#define TWO_PI 6.28318530717958647692
#define LN2 0.69314718055994530942

/* The block: a[n][dim] and its transpose; q[r][dim], z[r][n] the sketch on either side. */
typedef struct {
    double *a, *at, *q, *z;
    int64_t n, dim;
    int32_t r;
} sketch;

/* ---- normal draws -------------------------------------------------------------------------- */

/* ln x for x in [2^-23, 1]: x = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m - 1) / (m + 1)). */
static double ln_of(float x)
{
    const uint32_t bits = kv_num_bits(x);
    int32_t e = (int32_t)(bits >> 23) - 127;
    double m = (double)kv_num_float((bits & 0x7FFFFFu) | 0x3F800000u);
    if (m > 1.41421356237309504880) {
        m /= 2;
        e++;
    }
    const double t = (m - 1) / (m + 1), t2 = t * t;
    double sum = 0;
    for (int i = 21; i >= 1; i -= 2) sum = sum * t2 + 1.0 / i;
    return 2 * t * sum + e * LN2;
}

/* cos x for x in [0, 2 pi]: the nearest multiple of pi / 2 taken off, then the Taylor series of cosine or sine. */
static double cos_of(double x)
{
    const int32_t k = (int32_t)(x / (TWO_PI / 4) + 0.5);
    const double r = x - k * (TWO_PI / 4), r2 = r * r;
    double sum = 0;
    if (k % 2 == 0) {
        for (int i = 16; i >= 2; i -= 2) sum = (1 - sum) * r2 * (1.0 / (i * (i - 1)));
        sum = 1 - sum;
    } else {
        for (int i = 16; i >= 2; i -= 2) sum = (1 - sum) * r2 * (1.0 / (i * (i + 1)));
        sum = r * (1 - sum);
    }
    return k % 4 == 1 || k % 4 == 2 ? -sum : sum;
}

/* g[r][n]: column after column of the published n x r matrix. */
static void draw_normals(double *g, int64_t count, uint32_t seed)
{
    kv_codec_rng rng = kv_codec_rng_seed((uint64_t)seed ^ SKETCH_SALT);
    for (int64_t i = 0; i < count; i++) {
        const float u1 = kv_codec_draw_f32(&rng, 0x1p-23f, 1.0f), u2 = kv_codec_draw_f32(&rng, 0.0f, 1.0f);
        const float length = sqrtf(-2.0f * (float)ln_of(u1));
        g[i] = (double)(length * (float)cos_of((double)((float)TWO_PI * u2)));
    }
}

/* ---- products ------------------------------------------------------------------------------ */

/* z = a q and q = a' z, on rows. */
static void to_rows(const sketch *s)
{
    kv_fit_loops_here()->product(s->z, s->q, s->r, s->at, s->dim, s->n);
}
static void to_columns(const sketch *s)
{
    kv_fit_loops_here()->product(s->q, s->z, s->r, s->a, s->n, s->dim);
}

/* ---- the sketch ---------------------------------------------------------------------------- */

static void sketch_free(sketch *s)
{
    kv_free(s->a);
    kv_free(s->at);
    kv_free(s->q);
    kv_free(s->z);
}

/* The centred rows times the square roots of their weights (float32), twice; *whole is the sum of their squares. */
static kv_rc sketch_new(sketch *s, const kv_fit_rows *r, int32_t columns, double *whole, kv_err *err)
{
    const size_t n = (size_t)r->n, dim = (size_t)r->dim, cols = (size_t)columns;
    *s = (sketch){.n = r->n, .dim = r->dim, .r = columns};
    int64_t entries;
    if (!kv_mul_i64(r->n, r->dim, &entries)) return KV_FAIL(err, KV_ENOMEM, "a block of %lld rows", (long long)r->n);
    s->a = kv_alloc((size_t)entries, sizeof *s->a);
    s->at = kv_alloc((size_t)entries, sizeof *s->at);
    s->q = kv_alloc(cols * dim, sizeof *s->q);
    s->z = kv_alloc(cols * n, sizeof *s->z);
    if (s->a == NULL || s->at == NULL || s->q == NULL || s->z == NULL) {
        sketch_free(s);
        return KV_FAIL(err, KV_ENOMEM, "no memory for a sketch of %d columns", (int)columns);
    }
    *whole = 0;
    for (size_t i = 0; i < n; i++) {
        const float w = kv_fit_weight(r, (int64_t)i), root = w > 0 ? sqrtf(w) : 0;
        for (size_t j = 0; j < dim; j++) {
            const float x = root * (r->x[i * dim + j] * r->scale - r->mean[j]);
            s->a[i * dim + j] = s->at[j * n + i] = (double)x;
            *whole += (double)x * (double)x;
        }
    }
    return KV_OK;
}

/* The directions within the sketch q (orthonormal): eigenvectors of (a q)'(a q). */
static kv_rc within(const sketch *s, double weight, kv_fit_directions *out, kv_err *err)
{
    const int32_t r = s->r;
    const size_t square = (size_t)r * (size_t)r;
    const kv_fit_loops *loops = kv_fit_loops_here();
    double *gram = kv_alloc(2 * square + (size_t)r, sizeof *gram);
    if (gram == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a sketch of %d columns", (int)r);
    double *v = gram + square, *values = v + square;
    to_rows(s);
    for (int32_t i = 0; i < r; i++)
        for (int32_t j = 0; j <= i; j++) gram[(int64_t)i * r + j] = loops->dot(s->z + i * s->n, s->z + j * s->n, s->n);
    const kv_rc rc = kv_codec_eigen_own(gram, r, values, v, err);
    if (rc == KV_OK) {
        loops->product(out->v, v, r, s->q, r, s->dim);
        for (int32_t i = 0; i < s->dim; i++) out->values[i] = i < r ? (float)(values[i] / weight) : 0;
        out->found = r;
    }
    kv_free(gram);
    return rc;
}

static kv_rc columns_of(const kv_fit_rows *r, const kv_codec_fit_opts *o, int32_t target, int32_t *out, kv_err *err)
{
    const int64_t asked = (int64_t)(target < r->dim ? target : r->dim) + (o->oversample > 0 ? o->oversample : 0);
    *out = (int32_t)(asked < r->dim ? asked : r->dim);
    if (r->n >= *out) return KV_OK;
    if (r->published)
        return KV_FAIL(err, KV_EFORMAT, "%lld rows are fewer than the %d columns of the sketch", (long long)r->n,
                       (int)*out);
    *out = (int32_t)r->n;
    return KV_OK;
}

kv_rc kv_fit_randomized(const kv_fit_rows *r, const kv_codec_fit_opts *o, int32_t target, uint32_t seed,
                        kv_fit_directions *out, kv_err *err)
{
    sketch s;
    double whole = 0;
    int32_t columns;
    kv_rc rc = columns_of(r, o, target, &columns, err);
    if (rc == KV_OK) rc = sketch_new(&s, r, columns, &whole, err);
    if (rc != KV_OK) return rc;
    if (!(whole <= 0x1p1000)) {
        rc = KV_FAIL(err, KV_EFORMAT, "centred rows leave the range of float32");
        goto out;
    }
    out->whole = whole / (double)r->total_weight;
    draw_normals(s.z, (int64_t)columns * r->n, seed);
    to_columns(&s);
    for (int32_t i = 0; i < o->power_iters; i++) {
        to_rows(&s);
        kv_fit_orthonormalise(s.z, columns, s.n);
        to_columns(&s);
        kv_fit_orthonormalise(s.q, columns, s.dim);
    }
    kv_fit_orthonormalise(s.q, columns, s.dim);
    KV_TRY(rc, out, within(&s, (double)r->total_weight, out, err));
    kv_fit_orthonormalise(out->v, r->dim, r->dim); /* the missing ones */
    for (int32_t i = 0; i < r->dim; i++) kv_codec_eigen_sign(out->v + (int64_t)i * r->dim, r->dim);
out:
    sketch_free(&s);
    return rc;
}
