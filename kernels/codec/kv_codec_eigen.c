/* codec fit: our symmetric eigen-solver. Householder tridiagonalisation, then implicit QL with Wilkinson's shift
 * (Martin, Reinsch, Wilkinson, Numer. Math. 11, 1968; the loops of EISPACK tred2 and tql2, rearranged).
 *
 * Every operation is one IEEE double operation (+ - * / sqrt) in an order that does not depend on machine, compiler or
 * vector width: products of matrix and vector add rows one after another (axpy form), and the few dot products run in
 * eight lanes, lane i taking elements i, i + 8, ..., added at the end as a fixed tree. So the same bits everywhere, and a
 * port to a GPU keeps them by keeping that order.
 *
 * The matrix is first scaled by a power of two to a largest entry in [1, 2). An off-diagonal element counts as zero at
 * or below 2^-53 of the largest |diagonal| + |off-diagonal|: eigenvalues are accurate relative to the largest one. */
#include "kernels/codec/kv_codec_fit.h"

#include "kernels/codec/kv_codec_fit_loops.h"

#include <math.h>
#include <string.h>

enum { LANES = KV_FIT_LANES, ROTATIONS = 8192, SWEEPS_MOST = 60 };
#define TAIL_NONE 0x1p-200 /* squared length below which a column counts as reduced already */

typedef struct {
    int32_t n, ld; /* ld: n rounded up to whole vectors; what is beyond n stays 0 */
    int32_t far;   /* from row to row of t: ld and one vector, so that a strip of columns spreads over the cache */
    const kv_fit_loops *loops;
    double *a, *q;            /* [n][ld] */
    double *t;                /* [n][far] eigenvectors to be, one a row */
    double *d, *e, *h, *zero; /* [ld] */
    double *p, *u, *w;        /* [ld] scratch */
    double *c, *s;            /* [ROTATIONS] */
    kv_fit_sweep *sweeps;     /* [ROTATIONS] */
    int32_t rotations, swept;
} solver;

/* ---- small parts ------------------------------------------------------------------------- */

static double dot(const double *x, const double *y, int32_t ld)
{
    double lane[LANES] = {0};
    for (int32_t i = 0; i < ld; i += LANES)
        for (int32_t l = 0; l < LANES; l++) lane[l] += x[i + l] * y[i + l];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* sqrt(f*f + g*g), also where the squares would leave the range of normal numbers downwards. */
static double length2(double f, double g)
{
    if (fabs(f) < 0x1p-400 && fabs(g) < 0x1p-400) {
        f *= 0x1p500;
        g *= 0x1p500;
        return sqrt(f * f + g * g) * 0x1p-500;
    }
    return sqrt(f * f + g * g);
}

/* The power of two that brings x > 0 into [1, 2), as far as it is a normal number itself. */
static double scale_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t e = 2046 - (int64_t)(bits >> 52 & 0x7FF);
    if (e > 2046) e = 2046;
    if (e < 1) e = 1;
    bits = (uint64_t)e << 52;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void solver_free(solver *w)
{
    kv_free(w->a);
    kv_free(w->d);
    kv_free(w->sweeps);
}

static kv_rc solver_new(solver *w, int32_t n, kv_err *err)
{
    const size_t ld = ((size_t)n + LANES - 1) & ~(size_t)(LANES - 1), mat = (size_t)n * ld;
    *w = (solver){.n = n, .ld = (int32_t)ld, .far = (int32_t)ld + LANES, .loops = kv_fit_loops_here()};
    w->a = kv_alloc_image((2 * mat + (size_t)n * (ld + LANES)) * sizeof(double));
    w->d = kv_alloc_image((7 * ld + 2 * ROTATIONS) * sizeof(double));
    w->sweeps = kv_alloc(ROTATIONS, sizeof *w->sweeps);
    if (w->a == NULL || w->d == NULL || w->sweeps == NULL) {
        solver_free(w);
        return KV_FAIL(err, KV_ENOMEM, "no memory for the eigenvectors of %d x %d", (int)n, (int)n);
    }
    memset(w->a, 0, 2 * mat * sizeof(double));
    memset(w->d, 0, 7 * ld * sizeof(double));
    w->q = w->a + mat;
    w->t = w->q + mat;
    double **const part[] = {&w->e, &w->h, &w->zero, &w->p, &w->u, &w->w, &w->c};
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) *part[i] = w->d + (i + 1) * ld;
    w->s = w->c + ROTATIONS;
    return KV_OK;
}

/* The lower triangle, scaled and mirrored; *scale is what it was multiplied with. */
static kv_rc load(solver *w, const double *a, double *scale, kv_err *err)
{
    double most = 0;
    const int32_t n = w->n;
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j <= i; j++) {
            const double x = fabs(a[(int64_t)i * n + j]);
            if (!(x <= 0x1.fffffffffffffp1023))
                return KV_FAIL(err, KV_EFORMAT, "entry (%d, %d) of the matrix is not finite", (int)i, (int)j);
            if (x > most) most = x;
        }
    *scale = most > 0 ? scale_of(most) : 1;
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j <= i; j++) {
            const double x = a[(int64_t)i * n + j] * *scale;
            w->a[(int64_t)i * w->ld + j] = x;
            w->a[(int64_t)j * w->ld + i] = x;
        }
    return KV_OK;
}

/* ---- to tridiagonal form ------------------------------------------------------------------ */

/* Turns row k (of which the columns past k count) into the vector v of the reflection I - v v' / h[k] and sets e[k].
 * v stays in the place of the row. h = 1 and v = 0: nothing to reflect. */
static void make_reflection(solver *w, int32_t k)
{
    double *v = w->a + (int64_t)k * w->ld;
    const double alpha = v[k + 1];
    for (int32_t i = 0; i <= k + 1; i++) v[i] = 0;
    const double tail = dot(v, v, w->ld);
    if (tail <= TAIL_NONE) {
        memset(v, 0, (size_t)w->ld * sizeof *v);
        w->e[k] = alpha;
        w->h[k] = 1;
        return;
    }
    const double sigma = tail + alpha * alpha;
    const double mu = sqrt(sigma);
    w->e[k] = alpha >= 0 ? -mu : mu;
    v[k + 1] = alpha - w->e[k];
    w->h[k] = sigma + fabs(alpha) * mu;
}

/* p holds A v: makes it the q of A - v q' - q v'. */
static void make_second(solver *w, int32_t k, const double *v)
{
    double *p = w->p;
    const double h = w->h[k];
    for (int32_t i = 0; i <= k; i++) p[i] = 0;
    for (int32_t i = k + 1; i < w->ld; i++) p[i] /= h;
    const double half = dot(v, p, w->ld) / (2 * h);
    for (int32_t i = k + 1; i < w->ld; i++) p[i] -= half * v[i];
}

/* A becomes d, e; row k of w->a keeps the vector of reflection k. */
static void tridiagonalise(solver *w)
{
    const int32_t n = w->n, ld = w->ld;
    const double *v = w->zero, *q = w->zero;
    double *spare = w->u;
    for (int32_t k = 0; k < n; k++) {
        double *row = w->a + (int64_t)k * ld;
        w->loops->update_row(row, k, ld, v[k], q[k], v, q);
        w->d[k] = row[k];
        if (k == n - 1) break;
        make_reflection(w, k);
        memset(w->p, 0, (size_t)ld * sizeof *w->p);
        w->loops->update_multiply(w->a, k + 1, n, ld, v, q, row, w->p);
        make_second(w, k, row);
        v = row;
        q = w->p;
        double *t = w->p; /* q must outlive the next p */
        w->p = spare;
        spare = t;
    }
}

/* q: the product of the reflections, from the last to the first, so that only the trailing part is touched. */
static void collect(solver *w)
{
    const int32_t n = w->n, ld = w->ld;
    double *u = w->u, *next_u = w->w;
    for (int32_t j = 0; j < n; j++) w->q[(int64_t)j * ld + j] = 1;
    if (n < 2) return;
    memcpy(u, w->a + (int64_t)(n - 2) * ld, (size_t)ld * sizeof *u);
    for (int32_t k = n - 2; k >= 0; k--) {
        const double *v = w->a + (int64_t)k * ld;
        const double *next = k > 0 ? v - ld : w->zero;
        memset(next_u, 0, (size_t)ld * sizeof *next_u);
        next_u[k] = next[k]; /* row k of q is still a unit vector */
        w->loops->reflect_multiply(w->q, k + 1, n, ld, v, w->h[k], u, next, next_u);
        double *t = u;
        u = next_u;
        next_u = t;
    }
}

static void transpose(const solver *w)
{
    for (int32_t j = 0; j < w->n; j++)
        memset(w->t + (int64_t)j * w->far + w->n, 0, (size_t)(w->far - w->n) * sizeof *w->t);
    for (int32_t i = 0; i < w->n; i++)
        for (int32_t j = 0; j < w->n; j++) w->t[(int64_t)j * w->far + i] = w->q[(int64_t)i * w->ld + j];
}

/* ---- QL ----------------------------------------------------------------------------------- */

static void flush(solver *w)
{
    w->loops->rotate(w->t, w->far, w->ld, w->sweeps, w->swept, w->c, w->s);
    w->rotations = w->swept = 0;
}

/* One implicit QL sweep on rows l..m of the tridiagonal matrix; its rotations are noted down. */
static void ql_sweep(solver *w, int32_t l, int32_t m)
{
    double *d = w->d, *e = w->e;
    double g = (d[l + 1] - d[l]) / (2 * e[l]);
    double r = sqrt(g * g + 1);
    g = d[m] - d[l] + e[l] / (g + (g >= 0 ? r : -r));
    double s = 1, c = 1, p = 0;
    int32_t i = m - 1;
    if (w->rotations + (m - l) > ROTATIONS || w->swept == ROTATIONS) flush(w);
    for (; i >= l; i--) {
        const double f = s * e[i], b = c * e[i], twice = 2 * b; /* early: each rotation waits for the last */
        r = length2(f, g);
        e[i + 1] = r;
        if (r == 0) break; /* a split in the middle: what has been done stays */
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + c * twice;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        w->c[w->rotations] = c;
        w->s[w->rotations++] = s;
    }
    w->sweeps[w->swept++] = (kv_fit_sweep){.top = m, .count = m - 1 - i};
    if (i >= l) {
        d[i + 1] -= p;
    } else {
        d[l] -= p;
        e[l] = g;
    }
    e[m] = 0;
}

static kv_rc ql(solver *w, kv_err *err)
{
    const int32_t n = w->n;
    double norm = 0;
    for (int32_t i = 0; i < n; i++) {
        const double x = fabs(w->d[i]) + fabs(w->e[i]);
        if (x > norm) norm = x;
    }
    const double none = 0x1p-53 * norm;
    for (int32_t l = 0; l < n; l++)
        for (int32_t sweeps = 0;; sweeps++) {
            int32_t m = l;
            while (m < n - 1 && fabs(w->e[m]) > none) m++;
            if (m == l) break;
            if (sweeps == SWEEPS_MOST) return KV_FAIL(err, KV_EBUG, "eigenvalue %d did not converge", (int)l);
            ql_sweep(w, l, m);
        }
    flush(w);
    return KV_OK;
}

/* ---- the result ---------------------------------------------------------------------------- */

void kv_codec_eigen_sign(double *v, int32_t n)
{
    int32_t top = 0;
    double most = fabs(v[0]);
    for (int32_t i = 1; i < n; i++) {
        const double x = fabs(v[i]);
        if (x > most) {
            most = x;
            top = i;
        }
    }
    if (v[top] >= 0) return;
    for (int32_t i = 0; i < n; i++) v[i] = -v[i];
}

/* Descending, equals in the order they came; signs normalised. */
static void deliver(const solver *w, double scale, double *values, double *v)
{
    const int32_t n = w->n;
    double *order = w->u; /* of whole numbers */
    for (int32_t i = 0; i < n; i++) {
        int32_t at = i;
        for (; at > 0 && w->d[(int32_t)order[at - 1]] < w->d[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t from = (int32_t)order[i];
        values[i] = w->d[from] / scale;
        memcpy(v + (int64_t)i * n, w->t + (int64_t)from * w->far, (size_t)n * sizeof *v);
        kv_codec_eigen_sign(v + (int64_t)i * n, n);
    }
}

kv_rc kv_codec_eigen_own(const double *a, int32_t n, double *values, double *v, kv_err *err)
{
    solver w;
    double scale = 1;
    if (n < 1 || n > KV_CODEC_DIM_MAX)
        return KV_FAIL(err, KV_EINVAL, "a matrix of %d rows: 1 to %d", (int)n, KV_CODEC_DIM_MAX);
    kv_rc rc = solver_new(&w, n, err);
    if (rc != KV_OK) return rc;
    KV_TRY(rc, out, load(&w, a, &scale, err));
    tridiagonalise(&w);
    collect(&w);
    transpose(&w);
    KV_TRY(rc, out, ql(&w, err));
    deliver(&w, scale, values, v);
out:
    solver_free(&w);
    return rc;
}
