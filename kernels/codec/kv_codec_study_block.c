/* Blocks of a study's cache through the codec and back into the form that attention reads. */
#include "kernels/codec/kv_codec_study_int.h"

#include <inttypes.h>
#include <math.h>

/* ---- rows ------------------------------------------------------------------------------- */

/* Row r of a lane: its head and token. */
static void locate(const kv_codec_study *s, const kv_study_place *at, int64_t r, int64_t *head, int64_t *token)
{
    const bool mixed = at->key->config.mixed_heads;
    *head = mixed ? r % s->p.kv_heads : at->lane;
    *token = mixed ? r / s->p.kv_heads : r;
}

static void get(const kv_codec_study *s, const kv_study_cache *c, int32_t half, int64_t head, int64_t token, float *row)
{
    const int64_t dim = s->p.head_dim;
    if (half == KV_CODEC_V) {
        memcpy(row, c->v + (head * s->tokens + token) * s->d_pad, (size_t)dim * sizeof *row);
        return;
    }
    const float *kt = c->kt + head * dim * s->t_stride + token;
    for (int64_t d = 0; d < dim; d++) row[d] = kt[d * s->t_stride];
}

void kv_study_sealed_get(const kv_codec_study *s, int32_t half, int64_t head, int64_t token, float *row)
{
    get(s, &s->work.sealed, half, head, token, row);
}

void kv_study_sealed_put(kv_codec_study *s, int32_t half, int64_t head, int64_t token, const float *row)
{
    const int64_t dim = s->p.head_dim;
    if (half == KV_CODEC_V) {
        memcpy(s->work.sealed.v + (head * s->tokens + token) * s->d_pad, row, (size_t)dim * sizeof *row);
        return;
    }
    float *kt = s->work.sealed.kt + head * dim * s->t_stride + token;
    for (int64_t d = 0; d < dim; d++) kt[d * s->t_stride] = row[d];
}

static const float *factor(const kv_codec_study *s, const kv_study_place *at, int64_t head, bool inverse)
{
    if (at->key->factor == 0) return NULL;
    const kv_codec_whiten *w = &s->whiten[at->key->factor - 1];
    return (inverse ? w->inverse : w->l)[at->layer] + head * s->p.head_dim * s->p.head_dim;
}

static bool before_rope(const kv_study_place *at)
{
    return at->half == KV_CODEC_K && !at->key->after_rope;
}

/* Rows [from, to) as the codec takes them; row: scratch of a row. */
static void gather(const kv_codec_study *s, const kv_study_place *at, int64_t from, int64_t to, float *row, float *x)
{
    const int32_t dim = s->p.head_dim;
    for (int64_t r = from; r < to; r++, x += dim) {
        int64_t head, token;
        locate(s, at, r, &head, &token);
        const float *l = factor(s, at, head, false);
        float *plain = l != NULL ? row : x;
        if (before_rope(at))
            memcpy(plain, s->work.raw.pre + (head * s->tokens + token) * dim, (size_t)dim * sizeof *plain);
        else
            get(s, &s->work.raw, at->half, head, token, plain);
        if (l != NULL) kv_codec_whiten_rows(l, dim, plain, 1, x);
    }
}

/* A row from the codec to the form that attention reads: unwhitened, rotated, bf16. */
static void restore(const kv_codec_study *s, const kv_study_place *at, int64_t head, int64_t token, const float *y,
                    float *out)
{
    const int32_t dim = s->p.head_dim;
    const float *inverse = factor(s, at, head, true);
    if (inverse != NULL)
        kv_codec_whiten_rows(inverse, dim, y, 1, out);
    else
        memcpy(out, y, (size_t)dim * sizeof *out);
    if (before_rope(at)) kv_study_rotate(s, out, 1, token);
    for (int32_t d = 0; d < dim; d++) out[d] = kv_study_bf16(out[d]);
}

static double square_of(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t d = 0; d < n; d++) {
        const double x = kv_study_add((double)a[d], b != NULL ? -(double)b[d] : 0.0);
        sum = kv_study_add(sum, kv_study_mul(x, x));
    }
    return sum;
}

/* out = raw + white noise as long as out - raw was. */
static void replace_by_noise(const kv_codec_study *s, const kv_study_place *at, int64_t head, int64_t token,
                             const float *raw, float *out)
{
    const int64_t dim = s->p.head_dim;
    const int64_t number = ((at->layer * KV_CODEC_HALVES + at->half) * s->p.kv_heads + head) * s->tokens + token;
    const uint64_t key = kv_study_key(s->p.seed, (uint64_t)at->passage, KV_STUDY_WHITE_NOISE, (uint64_t)number);
    const double length = sqrt(square_of(out, raw, dim));
    double noise = 0.0;
    for (int64_t d = 0; d < dim; d++) {
        const double w = kv_study_white(key, (uint32_t)d);
        noise = kv_study_add(noise, kv_study_mul(w, w));
    }
    const double scale = noise > 0.0 ? length / sqrt(noise) : 0.0;
    for (int64_t d = 0; d < dim; d++) {
        const double w = kv_study_mul(kv_study_white(key, (uint32_t)d), scale);
        out[d] = kv_study_bf16((float)kv_study_add((double)raw[d], w));
    }
}

/* ---- the codec -------------------------------------------------------------------------- */

/* Encodes and decodes the n rows of a block in place, p and k being what the fit gave. */
static kv_rc round_trip(const kv_study_place *at, const kv_codec_params *p, const kv_codec_skeleton *k, float *x,
                        int64_t n, kv_study_damage *sum, kv_err *err)
{
    const kv_codec_variant *v = kv_codec_best();
    kv_codec_work *work = NULL;
    kv_codec_codes codes = {0};
    kv_codec_slot_layout layout;
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_slot_sizes(&at->key->config.slot, &layout, err));
    KV_TRY(rc, out, kv_codec_work_new(p, k, &work, err));
    KV_TRY(rc, out, kv_codec_codes_new(p, n, false, &codes, err));
    v->encode(work, x, n, &codes);
    v->decode(work, &codes, x);
    sum->count.saturated += codes.saturated;
    sum->count.overflowed += codes.outliers > layout.max_entries && p->outliers;
out:
    kv_codec_codes_free(&codes);
    kv_codec_work_free(work);
    return rc;
}

/* The blocks of a group: a basis each, or one for all. */
static kv_rc round_trip_group(const kv_codec_study *s, const kv_study_place *at, float *x, int64_t rows,
                              kv_study_damage *sum, kv_err *err)
{
    const kv_codec_half_config *c = &at->key->config;
    const int64_t n = c->slot.n;
    const bool shared = c->group != 1;
    kv_codec_params basis = c->slot.params;
    kv_codec_skeleton k = {0};
    kv_codec_fit_report report;
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_skeleton_new(&basis, &k, err));
    if (shared) KV_TRY(rc, out, kv_codec_fit_basis(&basis, &c->fit, x, NULL, rows, &k, &report, err));
    for (int64_t r = 0; r < rows; r += n) {
        kv_codec_params p = shared ? basis : c->slot.params;
        float *block = x + r * s->p.head_dim;
        if (shared)
            rc = kv_codec_fit_centers(&p, &c->fit, block, NULL, n, &k, &report, err);
        else
            rc = kv_codec_fit(&p, &c->fit, block, NULL, n, &k, &report, err);
        if (rc == KV_OK) rc = round_trip(at, &p, &k, block, n, sum, err);
        if (rc != KV_OK) break;
    }
out:
    kv_codec_skeleton_free(&k);
    return rc;
}

kv_rc kv_study_seal(kv_codec_study *s, const kv_study_place *at, int64_t from, int64_t to, kv_study_damage *sum,
                    kv_err *err)
{
    const int64_t dim = s->p.head_dim, pad = s->d_pad;
    kv_rc rc = KV_OK;
    float *x = kv_alloc((size_t)((to - from) * dim + 2 * pad), sizeof *x);
    if (x == NULL) return KV_FAIL(err, KV_ENOMEM, "codec study: no memory for a group of %" PRId64 " rows", to - from);
    float *row = x + (to - from) * dim, *raw = row + pad;
    gather(s, at, from, to, row, x);
    if (at->key->op != KV_STUDY_OP_COPY) KV_TRY(rc, out, round_trip_group(s, at, x, to - from, sum, err));
    for (int64_t r = from; r < to; r++) {
        int64_t head, token;
        locate(s, at, r, &head, &token);
        restore(s, at, head, token, x + (r - from) * dim, row);
        get(s, &s->work.raw, at->half, head, token, raw);
        if (at->key->op == KV_STUDY_OP_NOISE) replace_by_noise(s, at, head, token, raw, row);
        sum->error = kv_study_add(sum->error, square_of(row, raw, dim));
        sum->size = kv_study_add(sum->size, square_of(raw, NULL, dim));
        kv_study_sealed_put(s, at->half, head, token, row);
    }
    sum->count.rows += to - from;
    sum->count.blocks += (to - from) / at->key->config.slot.n;
out:
    kv_free(x);
    if (rc != KV_OK)
        kv_err_prefix(err, "passage %d, layer %d, %s, rows %" PRId64 " on", at->passage, at->layer,
                      kv_codec_half_name(at->half), from);
    return rc;
}
