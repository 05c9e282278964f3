/* codec reference: one row after the other, written to be read. Every other variant and device gives these bits. */
#include <string.h>

#include "kernels/codec/kv_codec_ref.h"
#include "kernels/codec/kv_codec_step.h"
#include "kernels/codec/kv_codec_work.h"

/* Coefficients of a row along the kept directions. */
static void project_row(const kv_codec_work *w, const float *x, float *c)
{
    for (int32_t a = 0; a < w->p.d_eff; a++)
        c[a] = kv_codec_coefficient(w->basis + (int64_t)a * w->dim_pad, x, w->mean, w->p.dim);
}

/* The first of k centres with the largest |dot|; *dot is signed. False (and *dot untouched) where no dot is a number. */
static bool nearest_center(const float *c, const float *centers, int32_t k, int32_t d, uint32_t *which, float *dot)
{
    float most = -kv_num_float(0x7F800000u);
    bool found = false;
    for (int32_t g = 0; g < k; g++) {
        const float along = kv_codec_dot(c, centers + (int64_t)g * d, d);
        if (kv_codec_abs(along) > most) {
            most = kv_codec_abs(along);
            *which = (uint32_t)g;
            *dot = along;
            found = true;
        }
    }
    return found;
}

/* The centre of a row and its signed length along it; (0, 0) for a row that is too short. */
static void assign(const kv_codec_work *w, const float *c, uint32_t *seg, float *t)
{
    *seg = 0;
    *t = 0.0f;
    if (!(kv_codec_dot(c, c, w->p.d_eff) <= KV_CODEC_EPS))
        (void)nearest_center(c, w->centers, w->p.k, w->p.d_eff, seg, t);
}

/* What is left of c without its part t along the centre, padded to wht_len; nothing of a row that is all but zero. */
static void residual(const kv_codec_work *w, const float *c, const float *center, float t, float *r)
{
    bool all_small = true;
    memset(r, 0, (size_t)w->wht * sizeof *r);
    for (int32_t a = 0; a < w->p.d_eff; a++)
        if (!(kv_codec_abs(c[a]) <= KV_CODEC_EPS)) all_small = false;
    if (all_small) return;
    for (int32_t a = 0; a < w->p.d_eff; a++) r[a] = kv_codec_sub(c[a], kv_num_mul(t, center[a]));
}

/* Outliers and packed levels of the scaled values s[wht]. */
static void quantise(const kv_codec_work *w, const float *s, int64_t row, kv_codec_codes *out)
{
    const int64_t bytes = kv_codec_row_bytes(&w->p);
    uint8_t *packed = out->residual + row * bytes;
    const int64_t before = out->outliers;
    memset(packed, 0, (size_t)bytes);
    for (int32_t i = 0; i < w->wht; i++) {
        if (w->p.outliers && kv_codec_abs(s[i]) > w->p.threshold) {
            out->outlier_idx[out->outliers] = (uint16_t)i;
            out->outlier_val[out->outliers++] = kv_codec_h(s[i]);
        }
        kv_codec_put(packed, i, w->p.bits,
                     (uint32_t)kv_codec_nearest_level(w->p.metric, w->p.level, 1 << w->p.bits, s[i]));
    }
    out->outlier_count[row] = (uint32_t)(out->outliers - before);
}

static void encode_row(kv_codec_work *w, const float *x, int64_t row, kv_codec_codes *out)
{
    const kv_codec_params *p = &w->p;
    float *c = w->c, *y = w->y, t, used, raw = 0.0f;
    uint32_t seg;
    project_row(w, x, c);
    assign(w, c, &seg, &t);
    out->seg_id[row] = seg;
    out->t[row] = kv_codec_t(p->rule, t, &used, &out->saturated);
    residual(w, c, w->centers + (int64_t)seg * p->d_eff, used, y);
    const float length = kv_codec_sqrt(kv_codec_dot(y, y, p->d_eff)), scale = kv_codec_scale(length);
    for (int32_t i = 0; i < w->wht; i++) y[i] = kv_num_mul(y[i], w->sign[i]);
    kv_codec_butterfly(y, w->wht);
    for (int32_t i = 0; i < w->wht; i++) y[i] = kv_num_mul(y[i], scale);
    quantise(w, y, row, out);
    if (kv_codec_norm_is_raw(p->rule, p->metric)) raw = kv_codec_sqrt(kv_codec_dot(x, x, p->dim));
    out->norm[row] = kv_codec_norm(p->rule, p->metric, length, raw, &out->saturated);
    if (out->res_norm != NULL) out->res_norm[row] = length;
}

void kv_codec_reference_encode(kv_codec_work *w, const float *x, int64_t n, kv_codec_codes *codes)
{
    codes->n = n;
    codes->outliers = 0;
    codes->saturated = 0;
    for (int64_t i = 0; i < n; i++) encode_row(w, x + i * w->p.dim, i, codes);
}

/* `first` is the row's first outlier. */
static void decode_row(kv_codec_work *w, const kv_codec_codes *codes, int64_t row, int64_t first, float *x)
{
    const kv_codec_params *p = &w->p;
    const uint8_t *packed = codes->residual + row * kv_codec_row_bytes(p);
    const float gain = kv_codec_gain(p->rule, p->metric, codes->norm[row]), t = kv_codec_f(codes->t[row]);
    const float *center = w->centers + (int64_t)codes->seg_id[row] * p->d_eff;
    float *v = w->y;
    for (int32_t i = 0; i < w->wht; i++) v[i] = p->level[kv_codec_get(packed, i, p->bits)];
    for (int64_t o = first; o < first + codes->outlier_count[row]; o++)
        if (codes->outlier_idx[o] < w->wht) v[codes->outlier_idx[o]] = kv_codec_f(codes->outlier_val[o]);
    for (int32_t i = 0; i < w->wht; i++) v[i] = kv_num_mul(v[i], gain);
    kv_codec_butterfly(v, w->wht);
    for (int32_t i = 0; i < w->wht; i++)
        v[i] = kv_num_mul(kv_num_mul(v[i], w->sign[i]), 1.0f / (float)w->wht); /* a power of two: exact */
    for (int32_t j = 0; j < p->dim; j++) x[j] = w->mean[j];
    for (int32_t a = 0; a < p->d_eff; a++) {
        const float c = kv_num_add(kv_num_mul(t, center[a]), v[a]), *basis = w->basis + (int64_t)a * w->dim_pad;
        for (int32_t j = 0; j < p->dim; j++) x[j] = kv_num_add(x[j], kv_num_mul(basis[j], c));
    }
}

void kv_codec_reference_decode(kv_codec_work *w, const kv_codec_codes *codes, float *x)
{
    int64_t first = 0;
    for (int64_t i = 0; i < codes->n; i++) {
        decode_row(w, codes, i, first, x + i * w->p.dim);
        first += codes->outlier_count[i];
    }
}

void kv_codec_reference_project(kv_codec_work *w, const float *x, int64_t n, float *c)
{
    for (int64_t i = 0; i < n; i++) project_row(w, x + i * w->p.dim, c + i * w->p.d_eff);
}

void kv_codec_reference_dots(const kv_codec_points *points, const float *centers, const int32_t *which, int32_t count,
                             float *dots, int64_t stride)
{
    for (int32_t j = 0; j < count; j++)
        for (int64_t i = 0; i < points->n; i++)
            dots[which[j] * stride + i] =
                kv_codec_dot(points->rows + i * points->d, centers + (int64_t)which[j] * points->d, points->d);
}

void kv_codec_reference_choose(const float *dots, int64_t stride, int64_t n, int32_t k, uint32_t *seg, float *dot)
{
    for (int64_t i = 0; i < n; i++) {
        float most = -kv_num_float(0x7F800000u);
        seg[i] = 0;
        dot[i] = kv_num_float(KV_NUM_NAN);
        for (int32_t g = 0; g < k; g++) {
            const float along = dots[g * stride + i];
            if (!(kv_codec_abs(along) > most)) continue;
            most = kv_codec_abs(along);
            seg[i] = (uint32_t)g;
            dot[i] = along;
        }
    }
}

void kv_codec_reference_add(float *sum, const float *row, float factor, int32_t d)
{
    for (int32_t a = 0; a < d; a++) sum[a] = kv_num_add(sum[a], kv_num_mul(factor, row[a]));
}
