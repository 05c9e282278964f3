/* codec fit, inside: the bodies of kv_codec_fit_loops.h. Included once for each instruction set, with
 *   KV_LOOP(name)   the name of the function there
 *   KV_LOOP_TARGET  an attribute, or nothing
 *   KV_LOOP_BYTES   of a vector register
 *   KV_LOOP_WIDE    whether there are 32 of them
 * No body may be shared by inlining: GCC 12 splits vectors for the plain target before it inlines. */
#if defined(KV_LOOP) || !defined(KV_LOOP_ALONE)
#ifndef KV_LOOP /* compiled alone: the plain set, once */
#define KV_LOOP_ALONE
#include "kernels/codec/kv_codec_fit_loops.h"

#include <string.h>
#define KV_LOOP(name_) kv_loop_alone_##name_
#define KV_LOOP_TARGET
#define KV_LOOP_BYTES 16
#define KV_LOOP_WIDE 0
#endif

#ifndef KV_LOOP_INLINE
#define KV_LOOP_INLINE static inline __attribute__((always_inline))
#endif
#define KV_LOOP_D (KV_LOOP_BYTES / 8)
#define KV_LOOP_F (KV_LOOP_BYTES / 4)

typedef double KV_LOOP(vd) __attribute__((vector_size(KV_LOOP_BYTES), aligned(8), may_alias));
typedef float KV_LOOP(vf) __attribute__((vector_size(KV_LOOP_BYTES), aligned(4), may_alias));

/* ---- eigen-solver ------------------------------------------------------------------------- */

KV_LOOP_TARGET static void KV_LOOP(update_row)(double *row, int32_t from, int32_t ld, double vj, double qj,
                                               const double *v, const double *q)
{
    typedef KV_LOOP(vd) vec;
    for (int32_t c = from & ~(KV_FIT_LANES - 1); c < ld; c += KV_LOOP_D)
        *(vec *)(row + c) -= vj * *(const vec *)(q + c) + qj * *(const vec *)(v + c);
}

KV_LOOP_TARGET static void KV_LOOP(update_multiply)(double *a, int32_t from, int32_t n, int32_t ld, const double *v,
                                                    const double *q, const double *next, double *p)
{
    typedef KV_LOOP(vd) vec;
    for (int32_t j = from; j < n; j++) {
        double *row = a + (int64_t)j * ld;
        const double vj = v[j], qj = q[j], xj = next[j];
        for (int32_t c = from & ~(KV_FIT_LANES - 1); c < ld; c += KV_LOOP_D) {
            const vec t = *(vec *)(row + c) - (vj * *(const vec *)(q + c) + qj * *(const vec *)(v + c));
            *(vec *)(row + c) = t;
            *(vec *)(p + c) += xj * t;
        }
    }
}

KV_LOOP_TARGET static void KV_LOOP(reflect_multiply)(double *a, int32_t from, int32_t n, int32_t ld, const double *v,
                                                     double h, const double *u, const double *next, double *next_u)
{
    typedef KV_LOOP(vd) vec;
    for (int32_t j = from; j < n; j++) {
        double *row = a + (int64_t)j * ld;
        const double vj = v[j] / h, xj = next[j];
        for (int32_t c = from & ~(KV_FIT_LANES - 1); c < ld; c += KV_LOOP_D) {
            const vec t = *(vec *)(row + c) - vj * *(const vec *)(u + c);
            *(vec *)(row + c) = t;
            *(vec *)(next_u + c) += xj * t;
        }
    }
}

/* All rotations on nv vectors of columns, which stay in the first cache all the while; the row that the next rotation
 * needs stays in registers. */
KV_LOOP_TARGET KV_LOOP_INLINE void KV_LOOP(rotate_strip)(const int nv, double *at, int32_t far,
                                                         const kv_fit_sweep *sweeps, int32_t swept, const double *c,
                                                         const double *s)
{
    typedef KV_LOOP(vd) vec;
    for (int32_t k = 0; k < swept; k++) {
        vec f[4];
        double *row = at + (int64_t)sweeps[k].top * far;
        for (int x = 0; x < nv; x++) f[x] = *(vec *)(row + x * KV_LOOP_D);
        for (int32_t r = 0; r < sweeps[k].count; r++, c++, s++) {
            row -= far;
            for (int x = 0; x < nv; x++) {
                const vec g = *(vec *)(row + x * KV_LOOP_D);
                *(vec *)(row + far + x * KV_LOOP_D) = *s * g + *c * f[x];
                f[x] = *c * g - *s * f[x];
            }
        }
        for (int x = 0; x < nv; x++) *(vec *)(row + x * KV_LOOP_D) = f[x];
    }
}

KV_LOOP_TARGET static void KV_LOOP(rotate)(double *a, int32_t far, int32_t ld, const kv_fit_sweep *sweeps,
                                           int32_t swept, const double *c, const double *s)
{
    int32_t col = 0;
    for (; col + 4 * KV_LOOP_D <= ld; col += 4 * KV_LOOP_D) KV_LOOP(rotate_strip)(4, a + col, far, sweeps, swept, c, s);
    for (; col < ld; col += KV_LOOP_D) KV_LOOP(rotate_strip)(1, a + col, far, sweeps, swept, c, s);
}

/* ---- randomized: product of matrices ------------------------------------------------------- */

/* nv vectors of columns of `rows` rows of out. */
KV_LOOP_TARGET KV_LOOP_INLINE void KV_LOOP(product_tile)(const int rows, const int nv, double *out, const double *coef,
                                                         int64_t m, const double *mat, int64_t len)
{
    typedef KV_LOOP(vd) vec;
    vec sum[2][4];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < nv; v++) sum[i][v] = (vec){0};
    for (int64_t k = 0; k < m; k++)
        for (int v = 0; v < nv; v++) {
            const vec at = *(const vec *)(mat + k * len + v * KV_LOOP_D);
            for (int i = 0; i < rows; i++) sum[i][v] += coef[i * m + k] * at;
        }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < nv; v++) *(vec *)(out + i * len + v * KV_LOOP_D) = sum[i][v];
}

KV_LOOP_TARGET static void KV_LOOP(product)(double *out, const double *coef, int32_t rows, const double *mat, int64_t m,
                                            int64_t len)
{
    for (int32_t r = 0; r < rows; r += 2) {
        const int pair = r + 2 <= rows ? 2 : 1;
        double *o = out + r * len;
        const double *c = coef + r * m;
        int64_t at = 0;
        for (; pair == 2 && at + 4 * KV_LOOP_D <= len; at += 4 * KV_LOOP_D)
            KV_LOOP(product_tile)(2, 4, o + at, c, m, mat + at, len);
        for (; at + KV_LOOP_D <= len; at += KV_LOOP_D)
            for (int i = 0; i < pair; i++) KV_LOOP(product_tile)(1, 1, o + i * len + at, c + i * m, m, mat + at, len);
        for (; at < len; at++)
            for (int i = 0; i < pair; i++) {
                double sum = 0;
                for (int64_t k = 0; k < m; k++) sum += c[i * m + k] * mat[k * len + at];
                o[i * len + at] = sum;
            }
    }
}

/* ---- Gram-Schmidt --------------------------------------------------------------------------- */

KV_LOOP_TARGET static double KV_LOOP(dot)(const double *x, const double *y, int64_t len)
{
    typedef KV_LOOP(vd) vec;
    double lane[KV_FIT_LANES];
    vec sum[KV_FIT_LANES / KV_LOOP_D];
    int64_t i = 0;
    for (int v = 0; v < KV_FIT_LANES / KV_LOOP_D; v++) sum[v] = (vec){0};
    for (; i + KV_FIT_LANES <= len; i += KV_FIT_LANES)
        for (int v = 0; v < KV_FIT_LANES / KV_LOOP_D; v++)
            sum[v] += *(const vec *)(x + i + v * KV_LOOP_D) * *(const vec *)(y + i + v * KV_LOOP_D);
    memcpy(lane, sum, sizeof lane);
    for (int l = 0; i < len; i++, l++) lane[l] += x[i] * y[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

KV_LOOP_TARGET static void KV_LOOP(take_out)(double *x, double along, const double *y, int64_t len)
{
    for (int64_t i = 0; i < len; i++) x[i] -= along * y[i];
}

/* ---- covariance ---------------------------------------------------------------------------- */

/* na x nv vectors of the sums, at rows a.. and columns b..: kept in registers while all rows of the block pass. */
KV_LOOP_TARGET KV_LOOP_INLINE void KV_LOOP(covariance_tile)(const int na, const int nv, const float *wz, const float *z,
                                                            int64_t rows, int64_t ld, float *s)
{
    typedef KV_LOOP(vf) vec;
    vec sum[8][2];
    for (int i = 0; i < na; i++)
        for (int v = 0; v < nv; v++) sum[i][v] = *(const vec *)(s + i * ld + v * KV_LOOP_F);
    for (int64_t row = 0; row < rows; row++, wz += ld, z += ld)
        for (int v = 0; v < nv; v++) {
            const vec at = *(const vec *)(z + v * KV_LOOP_F);
            for (int i = 0; i < na; i++) sum[i][v] += wz[i] * at;
        }
    for (int i = 0; i < na; i++)
        for (int v = 0; v < nv; v++) *(vec *)(s + i * ld + v * KV_LOOP_F) = sum[i][v];
}

KV_LOOP_TARGET static void KV_LOOP(covariance)(const float *wz, const float *z, int64_t rows, int64_t ld, float *s)
{
    const int na = KV_LOOP_WIDE ? 8 : 4; /* tiles of na x 2 vectors leave registers for the operands */
    for (int64_t a = 0; a < ld; a += na) {
        int64_t b = 0;
        for (; b < a + na && b + 2 * KV_LOOP_F <= ld; b += 2 * KV_LOOP_F)
            KV_LOOP(covariance_tile)(na, 2, wz + a, z + b, rows, ld, s + a * ld + b);
        for (; b < a + na; b += KV_LOOP_F) KV_LOOP(covariance_tile)(na, 1, wz + a, z + b, rows, ld, s + a * ld + b);
    }
}

/* ---- rows ---------------------------------------------------------------------------------- */

KV_LOOP_TARGET static int32_t KV_LOOP(largest)(const float *x, int64_t n)
{
    int32_t most = 0; /* signed: without the sign bit they order the same, and every instruction set compares them */
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7FFFFFFF;
        most = bits > most ? bits : most;
    }
    return most;
}

KV_LOOP_TARGET static void KV_LOOP(add_row)(float *mean, const float *x, float w, float scale, int32_t n)
{
    for (int32_t j = 0; j < n; j++) mean[j] += w * (x[j] * scale);
}

KV_LOOP_TARGET static void KV_LOOP(centre_row)(float *z, float *wz, const float *x, const float *mean, float w,
                                               float scale, int32_t n)
{
    for (int32_t j = 0; j < n; j++) z[j] = x[j] * scale - mean[j];
    if (wz == z) return;
    for (int32_t j = 0; j < n; j++) wz[j] = w * z[j];
}

static const kv_fit_loops *KV_LOOP(table)(void)
{
    static const kv_fit_loops table = {
        .update_row = KV_LOOP(update_row),
        .update_multiply = KV_LOOP(update_multiply),
        .reflect_multiply = KV_LOOP(reflect_multiply),
        .rotate = KV_LOOP(rotate),
        .product = KV_LOOP(product),
        .dot = KV_LOOP(dot),
        .take_out = KV_LOOP(take_out),
        .covariance = KV_LOOP(covariance),
        .largest = KV_LOOP(largest),
        .add_row = KV_LOOP(add_row),
        .centre_row = KV_LOOP(centre_row),
    };
    return &table;
}

#undef KV_LOOP
#undef KV_LOOP_TARGET
#undef KV_LOOP_BYTES
#undef KV_LOOP_WIDE
#undef KV_LOOP_D
#undef KV_LOOP_F
#endif
