/* codec params: sizes, built-in levels, checks, room for skeletons and codes. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/codec/kv_codec.h"

static const float levels_1[2] = {-0.798156f, 0.798156f};
static const float levels_2[4] = {-1.5100f, -0.4528f, 0.4528f, 1.5100f};
static const float levels_3[8] = {-2.151945f, -1.343757f, -0.756268f, -0.244943f,
                                  0.244943f,  0.756268f,  1.343757f,  2.151945f};
static const float levels_4[16] = {-2.7322f, -2.0690f, -1.6177f, -1.2563f, -0.9422f, -0.6566f, -0.3885f, -0.1281f,
                                   0.1281f,  0.3885f,  0.6566f,  0.9422f,  1.2563f,  1.6177f,  2.0690f,  2.7322f};

int32_t kv_codec_wht_len(int32_t d_eff)
{
    int32_t n = 1;
    while (n < d_eff) n *= 2;
    return n;
}

int64_t kv_codec_row_bytes(const kv_codec_params *p)
{
    return ((int64_t)kv_codec_wht_len(p->d_eff) * p->bits + 7) / 8;
}

const float *kv_codec_levels(int32_t bits)
{
    static const float *const tables[] = {levels_1, levels_2, levels_3, levels_4};
    return bits >= 1 && bits <= KV_CODEC_BITS_MAX ? tables[bits - 1] : NULL;
}

static kv_rc check_range(const char *name, int32_t value, int32_t least, int32_t most, kv_err *err)
{
    if (value >= least && value <= most) return KV_OK;
    return KV_FAIL(err, KV_EINVAL, "%s %" PRId32 " is not from %" PRId32 " to %" PRId32, name, value, least, most);
}

kv_rc kv_codec_levels_check(const float *level, int32_t bits, kv_rc code, kv_err *err)
{
    const int32_t count = 1 << bits;
    float most = 0;
    for (int32_t i = 0; i < count; i++) {
        if (!isfinite(level[i])) return KV_FAIL(err, code, "level %" PRId32 " of %" PRId32 " is not finite", i, count);
        if (i > 0 && !(level[i - 1] < level[i]))
            return KV_FAIL(err, code,
                           "level %" PRId32 " (%.9g) is not above level %" PRId32 " (%.9g): levels must be ascending",
                           i, (double)level[i], i - 1, (double)level[i - 1]);
        if (fabsf(level[i]) > KV_CODEC_LEVEL_MOST)
            return KV_FAIL(err, code, "level %" PRId32 " is %.9g: residuals scaled to length 1 need none beyond +-%g",
                           i, (double)level[i], (double)KV_CODEC_LEVEL_MOST);
        if (fabsf(level[i]) > most) most = fabsf(level[i]);
    }
    if (most >= KV_CODEC_LEVEL_LEAST) return KV_OK;
    return KV_FAIL(err, code, "the largest level is %.9g: with none of at least %g residuals would be lost",
                   (double)most, (double)KV_CODEC_LEVEL_LEAST);
}

kv_rc kv_codec_params_check_sizes(const kv_codec_params *p, kv_err *err)
{
    kv_rc rc;
    KV_TRY(rc, out, check_range("head dimension", p->dim, 1, KV_CODEC_DIM_MAX, err));
    KV_TRY(rc, out, check_range("d_eff", p->d_eff, 1, p->dim, err));
    KV_TRY(rc, out, check_range("k", p->k, 1, KV_CODEC_CENTERS_MAX, err));
    KV_TRY(rc, out, check_range("bits", p->bits, 1, KV_CODEC_BITS_MAX, err));
    KV_TRY(rc, out, check_range("metric", p->metric, 0, KV_CODEC_METRIC_COUNT - 1, err));
    KV_TRY(rc, out, check_range("rule", p->rule, 0, KV_CODEC_RULE_COUNT - 1, err));
out:
    return rc;
}

kv_rc kv_codec_params_check(const kv_codec_params *p, kv_err *err)
{
    kv_rc rc = kv_codec_params_check_sizes(p, err);
    if (rc == KV_OK) rc = kv_codec_levels_check(p->level, p->bits, KV_EINVAL, err);
    if (rc == KV_OK && p->outliers && !(p->threshold >= 0.0f && isfinite(p->threshold)))
        rc = KV_FAIL(err, KV_EINVAL, "outlier threshold %g is not a finite number of at least 0", (double)p->threshold);
    return rc;
}

kv_rc kv_codec_skeleton_new(const kv_codec_params *p, kv_codec_skeleton *out, kv_err *err)
{
    kv_codec_skeleton s;
    kv_rc rc = kv_codec_params_check_sizes(p, err);
    if (rc != KV_OK) return rc;
    s.mean = kv_alloc((size_t)p->dim, sizeof *s.mean);
    s.basis = kv_alloc((size_t)p->dim * (size_t)p->d_eff, sizeof *s.basis);
    s.centers = kv_alloc((size_t)p->k * (size_t)p->d_eff, sizeof *s.centers);
    if (s.mean == NULL || s.basis == NULL || s.centers == NULL) {
        kv_codec_skeleton_free(&s);
        return KV_FAIL(err, KV_ENOMEM, "no memory for a codec skeleton");
    }
    *out = s;
    return KV_OK;
}

void kv_codec_skeleton_free(kv_codec_skeleton *s)
{
    kv_free(s->mean);
    kv_free(s->basis);
    kv_free(s->centers);
    memset(s, 0, sizeof *s);
}

kv_rc kv_codec_codes_new(const kv_codec_params *p, int64_t n, bool want_res_norm, kv_codec_codes *out, kv_err *err)
{
    kv_codec_codes c = {.n = n};
    int64_t most = 0;
    kv_rc rc = kv_codec_params_check_sizes(p, err);
    if (rc != KV_OK) return rc;
    if (n < 0 || !kv_mul_i64(n, KV_CODEC_DIM_MAX * (int64_t)sizeof(float), &most))
        return KV_FAIL(err, KV_EINVAL, "%" PRId64 " rows", n);
    const size_t rows = (size_t)n, entries = p->outliers ? rows * (size_t)kv_codec_wht_len(p->d_eff) : 0;
    c.seg_id = kv_alloc(rows, sizeof *c.seg_id);
    c.t = kv_alloc(rows, sizeof *c.t);
    c.norm = kv_alloc(rows, sizeof *c.norm);
    c.residual = kv_alloc(rows, (size_t)kv_codec_row_bytes(p));
    c.outlier_count = kv_alloc(rows, sizeof *c.outlier_count);
    c.outlier_idx = kv_alloc(entries, sizeof *c.outlier_idx);
    c.outlier_val = kv_alloc(entries, sizeof *c.outlier_val);
    if (want_res_norm) c.res_norm = kv_alloc(rows, sizeof *c.res_norm);
    if (c.seg_id == NULL || c.t == NULL || c.norm == NULL || c.residual == NULL || c.outlier_count == NULL ||
        c.outlier_idx == NULL || c.outlier_val == NULL || (want_res_norm && c.res_norm == NULL)) {
        kv_codec_codes_free(&c);
        return KV_FAIL(err, KV_ENOMEM, "no memory for the codes of %" PRId64 " rows", n);
    }
    *out = c;
    return KV_OK;
}

void kv_codec_codes_free(kv_codec_codes *c)
{
    kv_free(c->seg_id);
    kv_free(c->t);
    kv_free(c->norm);
    kv_free(c->residual);
    kv_free(c->outlier_count);
    kv_free(c->outlier_idx);
    kv_free(c->outlier_val);
    kv_free(c->res_norm);
    memset(c, 0, sizeof *c);
}
