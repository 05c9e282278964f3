/* Blocks of rows for tests of the codec's fit, from whole-number draws and plain float64 arithmetic: the same bits on
 * every machine. */
#ifndef KV_TEST_BLOCKS_H
#define KV_TEST_BLOCKS_H

#include "tests/kv_test.h"

#include "kernels/codec/kv_codec_fit.h"
#include "kernels/kv_kern_num.h"

/* Nearly normal, variance 1: twelve uniform draws. */
static inline double kvt_normal(uint64_t *seed)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(kvt_next(seed) >> 11) * 0x1p-53;
    return sum;
}

static inline float *kvt_gaussian_block(int64_t n, int32_t dim, double sigma, uint64_t seed)
{
    float *x = kvt_take(n * dim, sizeof *x);
    for (int64_t i = 0; i < n * dim; i++) x[i] = (float)(sigma * kvt_normal(&seed));
    return x;
}

/* Low rank plus noise around a mean that is not 0: direction r has the standard deviation lead * decay^r. */
static inline float *kvt_k_like_block(int64_t n, int32_t dim, double lead, double decay, double noise, double mean,
                                      uint64_t seed)
{
    enum { RANK = 24 };
    float *x = kvt_take(n * dim, sizeof *x);
    double *dir = kvt_take((RANK + 1) * (int64_t)dim, sizeof *dir), *offset = dir + RANK * (int64_t)dim;
    for (int32_t j = 0; j < dim; j++) offset[j] = mean * kvt_normal(&seed);
    for (int64_t i = 0; i < RANK * (int64_t)dim; i++) dir[i] = kvt_normal(&seed);
    for (int64_t i = 0; i < n; i++) {
        double scale = lead, row[KV_CODEC_DIM_MAX];
        for (int32_t j = 0; j < dim; j++) row[j] = offset[j] + noise * kvt_normal(&seed);
        for (int32_t r = 0; r < RANK; r++, scale *= decay) {
            const double c = scale * kvt_normal(&seed);
            for (int32_t j = 0; j < dim; j++) row[j] += c * dir[r * dim + j] / 8;
        }
        for (int32_t j = 0; j < dim; j++) x[i * dim + j] = (float)row[j];
    }
    free(dir);
    return x;
}

/* Most values small, a few large: a normal draw to the fifth power. */
static inline float *kvt_heavy_block(int64_t n, int32_t dim, uint64_t seed)
{
    float *x = kvt_take(n * dim, sizeof *x);
    for (int64_t i = 0; i < n * dim; i++) {
        const double g = kvt_normal(&seed);
        x[i] = (float)(g * g * g * g * g);
    }
    return x;
}

static inline kv_codec_params kvt_codec_params(int32_t dim, int32_t d_eff, int32_t k, int32_t bits)
{
    kv_codec_params p = {
        .dim = dim, .d_eff = d_eff, .k = k, .bits = bits, .rule = KV_CODEC_RULE_KV1, .seed = KV_CODEC_SEED};
    memcpy(p.level, kv_codec_levels(bits), sizeof *p.level << bits);
    return p;
}

static inline kv_codec_fit_opts kvt_fit_opts(kv_codec_solver solver, bool published)
{
    return (kv_codec_fit_opts){.solver = (int32_t)solver,
                               .published = published,
                               .variance_ratio = 1,
                               .kmeans_rounds = 32,
                               .oversample = 8,
                               .power_iters = 2};
}

static inline kv_codec_skeleton kvt_new_skeleton(const kv_codec_params *p)
{
    kv_err err = {0};
    kv_codec_skeleton s;
    kvt_ok(kv_codec_skeleton_new(p, &s, &err), &err);
    return s;
}

static inline uint64_t kvt_fnv(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 0x100000001B3u;
    return h;
}

static inline uint64_t kvt_skeleton_digest(const kv_codec_params *p, const kv_codec_skeleton *s)
{
    const size_t dim = (size_t)p->dim, d_eff = (size_t)p->d_eff, k = (size_t)p->k;
    uint64_t h = kvt_fnv(0xCBF29CE484222325u, s->mean, dim * 2);
    h = kvt_fnv(h, s->basis, d_eff * dim * 2);
    return kvt_fnv(h, s->centers, k * d_eff * 2);
}

/* Finite everywhere, the basis orthonormal as far as fp16 goes, centres at most of length 1 (or what fp16 makes of it). */
static inline void kvt_check_skeleton(const kv_codec_params *p, const kv_codec_skeleton *s, const char *what)
{
    const int64_t parts[3] = {p->dim, (int64_t)p->d_eff * p->dim, (int64_t)p->k * p->d_eff};
    const uint16_t *const at[3] = {s->mean, s->basis, s->centers};
    for (int part = 0; part < 3; part++)
        for (int64_t i = 0; i < parts[part]; i++)
            if ((at[part][i] & 0x7C00u) == 0x7C00u)
                fail_msg("%s: part %d, value %" PRId64 " is not finite", what, part, i);
    for (int32_t a = 0; a < p->d_eff; a++)
        for (int32_t b = 0; b <= a; b++) {
            double sum = a == b ? -1 : 0;
            for (int32_t j = 0; j < p->dim; j++)
                sum += (double)kv_num_float(kv_num_f32_of_f16(s->basis[a * p->dim + j])) *
                       (double)kv_num_float(kv_num_f32_of_f16(s->basis[b * p->dim + j]));
            if (!(sum < 2e-3 && sum > -2e-3)) fail_msg("%s: directions %d and %d: %g", what, (int)a, (int)b, sum);
        }
    for (int32_t g = 0; g < p->k; g++) {
        double sum = 0;
        for (int32_t a = 0; a < p->d_eff; a++) {
            const double c = (double)kv_num_float(kv_num_f32_of_f16(s->centers[g * p->d_eff + a]));
            sum += c * c;
        }
        if (!(sum < 1.01)) fail_msg("%s: centre %d has the squared length %g", what, (int)g, sum);
    }
}

#endif
