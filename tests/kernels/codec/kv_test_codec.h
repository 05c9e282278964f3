/* What the tests of the codec share: random configurations, skeletons and rows from a seed, digests, comparison. */
#ifndef KV_TEST_CODEC_H
#define KV_TEST_CODEC_H

#include <math.h>

#include "kernels/codec/kv_codec.h"
#include "kernels/codec/kv_codec_step.h"
#include "tests/kv_test.h"

/* Roughly normal, deviation 1; the same bits everywhere. */
static inline float kvt_about_normal(uint64_t *s)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)(int32_t)(kvt_next(s) >> 40) * 0x1p-23f - 1.0f;
    return sum * 0.866f;
}

static inline float kvt_between(uint64_t *s, float a, float b)
{
    return a + (b - a) * ((float)(int32_t)(kvt_next(s) >> 40) * 0x1p-24f);
}

/* Ascending levels: the built-in table, or a random one. */
static inline void kvt_levels(uint64_t *s, kv_codec_params *p)
{
    memcpy(p->level, kv_codec_levels(p->bits), sizeof(float) << p->bits);
    if (kvt_one_in(s, 2)) return;
    float at = kvt_between(s, -3, -1);
    for (int i = 0; i < 1 << p->bits; i++) {
        p->level[i] = at;
        at += kvt_between(s, 0.01f, 4.0f / (float)(1 << p->bits));
    }
}

static inline kv_codec_params kvt_params(uint64_t *s)
{
    static const float thresholds[] = {0.0f, 0.5f, 1.5f, 2.0f, 2.5f};
    static const int32_t dims[] = {1, 2, 3, 4, 8, 16, 17, 24, 32, 64, 80, 96, 128, 129};
    kv_codec_params p = {.dim = dims[kvt_below(s, KVT_COUNT(dims))]};
    p.d_eff = 1 + (int32_t)kvt_below(s, p.dim);
    p.k = 1 + (int32_t)kvt_below(s, kvt_one_in(s, 4) ? 40 : 9);
    p.bits = 1 + (int32_t)kvt_below(s, 4);
    p.metric = (int32_t)kvt_below(s, KV_CODEC_METRIC_COUNT);
    p.rule = (int32_t)kvt_below(s, KV_CODEC_RULE_COUNT);
    p.seed = (uint32_t)kvt_next(s);
    p.outliers = kvt_one_in(s, 2);
    p.threshold = thresholds[kvt_below(s, KVT_COUNT(thresholds))];
    kvt_levels(s, &p);
    return p;
}

static inline kv_codec_skeleton kvt_skeleton(uint64_t *s, const kv_codec_params *p)
{
    kv_codec_skeleton k = {0};
    kv_err err = {0};
    kvt_ok(kv_codec_skeleton_new(p, &k, &err), &err);
    const float reach = 1.0f / sqrtf((float)p->dim), side = 1.0f / sqrtf((float)p->d_eff);
    for (int32_t j = 0; j < p->dim; j++) k.mean[j] = kv_codec_h(kvt_about_normal(s));
    for (int32_t j = 0; j < p->dim * p->d_eff; j++) k.basis[j] = kv_codec_h(kvt_about_normal(s) * reach);
    for (int32_t j = 0; j < p->k * p->d_eff; j++) k.centers[j] = kv_codec_h(kvt_about_normal(s) * side);
    if (p->k > 1 && kvt_one_in(s, 3)) memcpy(k.centers, k.centers + p->d_eff, 2 * (size_t)p->d_eff); /* a tie */
    return k;
}

/* n rows of one scale, some of them zero, on the mean, tiny or doubled. */
static inline float *kvt_rows(uint64_t *s, const kv_codec_params *p, const kv_codec_skeleton *k, int64_t n)
{
    static const float scales[] = {1e-7f, 1e-5f, 1e-3f, 0.1f, 1.0f, 1.0f, 1.0f, 30.0f, 1000.0f, 9999.0f / 3.5f};
    const float scale = scales[kvt_below(s, KVT_COUNT(scales))];
    float *x = kvt_take(n * p->dim, sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        float *row = x + i * p->dim;
        const int64_t kind = kvt_below(s, 12);
        for (int32_t j = 0; j < p->dim; j++) {
            row[j] = kvt_about_normal(s) * scale;
            if (kind == 0) row[j] = 0;
            if (kind == 1) row[j] = kv_codec_f(k->mean[j]);
            if (kind == 2) row[j] = kv_codec_f(k->mean[j]) + kvt_about_normal(s) * 1e-7f;
            if (kind == 3 && i > 0) row[j] = row[j - p->dim];
            if (kind == 4) row[j] = row[j] < 0 ? -3.4f * scale : 3.4f * scale;
        }
    }
    return x;
}

/* Index of the first float that differs (any NaN equals any NaN), or -1. */
static inline int64_t kvt_first_difference(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (kv_num_bits(a[i]) != kv_num_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]))) return i;
    return -1;
}

/* FNV-1a, 64 bits, over bytes. */
static inline uint64_t kvt_digest(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001B3);
    return h;
}
#define KVT_DIGEST UINT64_C(0xCBF29CE484222325)

static inline uint64_t kvt_digest_codes(const kv_codec_params *p, const kv_codec_codes *c)
{
    uint64_t h = KVT_DIGEST;
    h = kvt_digest(h, c->seg_id, (size_t)c->n * sizeof *c->seg_id);
    h = kvt_digest(h, c->t, (size_t)c->n * sizeof *c->t);
    h = kvt_digest(h, c->norm, (size_t)c->n * sizeof *c->norm);
    h = kvt_digest(h, c->residual, (size_t)(c->n * kv_codec_row_bytes(p)));
    h = kvt_digest(h, c->outlier_count, (size_t)c->n * sizeof *c->outlier_count);
    h = kvt_digest(h, c->outlier_idx, (size_t)c->outliers * sizeof *c->outlier_idx);
    return kvt_digest(h, c->outlier_val, (size_t)c->outliers * sizeof *c->outlier_val);
}

#endif
