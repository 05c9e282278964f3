/* The study's forward pass, and the base run: all passages drawn from the model in lockstep. */
#include "kernels/codec/kv_codec_study_int.h"

#include <math.h>

enum { E = KV_STUDY_E, VOCAB = KV_CODEC_STUDY_VOCAB, GROUP = KV_STUDY_GROUP };

/* ---- one layer -------------------------------------------------------------------------- */

void kv_study_embed(const kv_codec_study *s, const uint8_t *text, int64_t t, float *x)
{
    const float *a = s->model.embed + text[t] * E, *b = s->model.position + t * E;
    for (int64_t e = 0; e < E; e++) x[e] = a[e] + b[e];
}

static void norm_rows(const float *x, int64_t n, float *out)
{
    for (int64_t r = 0; r < n; r++, x += E, out += E) {
        float lane[KV_TOKEN_LANES] = {0.0f};
        for (int64_t e = 0; e < E; e++) lane[e % KV_TOKEN_LANES] += x[e] * x[e];
        const float mean = kv_token_tree(lane) / (float)E;
        const float scale = 1.0f / sqrtf(mean + 0x1p-20f);
        for (int64_t e = 0; e < E; e++) out[e] = x[e] * scale;
    }
}

static void add_bias(const float *bias, int64_t width, int64_t n, float *y)
{
    for (int64_t r = 0; r < n; r++, y += width)
        for (int64_t i = 0; i < width; i++) y[i] += bias[i];
}

void kv_study_project_in(kv_codec_study *s, int32_t layer, int64_t n)
{
    const kv_study_layer *l = &s->model.layer[layer];
    const int64_t kv = s->p.kv_heads * s->d_pad;
    kv_study_work *w = &s->work;
    norm_rows(w->x, n, w->h);
    s->math->project(l->wq, E, GROUP * kv, w->h, E, n, w->q);
    s->math->project(l->wk, E, kv, w->h, E, n, w->k);
    s->math->project(l->wv, E, kv, w->h, E, n, w->v);
    add_bias(l->q_bias, GROUP * kv, n, w->q);
    add_bias(l->k_bias, kv, n, w->k);
}

void kv_study_rotate(const kv_codec_study *s, float *rows, int64_t heads, int64_t position)
{
    const int64_t half = s->p.head_dim / 2;
    const float *c = s->model.cosine + position * half, *n = s->model.sine + position * half;
    for (int64_t h = 0; h < heads; h++, rows += s->d_pad)
        for (int64_t j = 0; j < half; j++) {
            const float low = rows[j], high = rows[j + half];
            rows[j] = kv_study_rope_low(low, high, c[j], n[j]);
            rows[j + half] = kv_study_rope_high(low, high, c[j], n[j]);
        }
}

void kv_study_store(const kv_codec_study *s, kv_study_cache *c, int64_t t, const float *k, const float *v)
{
    const int64_t dim = s->p.head_dim, half = dim / 2;
    const float *co = s->model.cosine + t * half, *si = s->model.sine + t * half;
    for (int64_t h = 0; h < s->p.kv_heads; h++, k += s->d_pad, v += s->d_pad) {
        float *pre = c->pre + (h * s->tokens + t) * dim, *kt = c->kt + h * dim * s->t_stride + t;
        float *to = c->v + (h * s->tokens + t) * s->d_pad;
        memcpy(pre, k, (size_t)dim * sizeof *pre);
        for (int64_t j = 0; j < half; j++) {
            kt[j * s->t_stride] = kv_study_bf16(kv_study_rope_low(k[j], k[j + half], co[j], si[j]));
            kt[(j + half) * s->t_stride] = kv_study_bf16(kv_study_rope_high(k[j], k[j + half], co[j], si[j]));
        }
        for (int64_t d = 0; d < dim; d++) to[d] = kv_study_bf16(v[d]);
    }
}

void kv_study_attend(kv_codec_study *s, const kv_study_cache *raw, const kv_study_cache *sealed,
                     const int64_t *sealed_tokens, int64_t t, const float *q, float *o)
{
    const int64_t dim = s->p.head_dim, pad = s->d_pad, stride = s->t_stride;
    float *score = s->work.score;
    for (int64_t h = 0; h < s->p.kv_heads; h++, q += GROUP * pad, o += GROUP * pad) {
        const int64_t cut_k = sealed_tokens != NULL ? sealed_tokens[2 * h] : 0;
        const int64_t cut_v = sealed_tokens != NULL ? sealed_tokens[2 * h + 1] : 0;
        float den[GROUP];
        if (cut_k > 0) s->math->score(q, pad, sealed->kt + h * dim * stride, stride, dim, 0, cut_k, s->scale, score);
        s->math->score(q, pad, raw->kt + h * dim * stride, stride, dim, cut_k, t + 1, s->scale, score);
        for (int64_t g = 0; g < GROUP; g++) den[g] = s->math->soften(score + g * stride, t + 1);
        memset(o, 0, (size_t)(GROUP * pad) * sizeof *o);
        if (cut_v > 0) s->math->weigh(score, stride, sealed->v + h * s->tokens * pad, pad, 0, cut_v, o);
        s->math->weigh(score, stride, raw->v + h * s->tokens * pad, pad, cut_v, t + 1, o);
        for (int64_t g = 0; g < GROUP; g++)
            for (int64_t d = 0; d < dim; d++) o[g * pad + d] /= den[g];
    }
}

void kv_study_project_out(kv_codec_study *s, int32_t layer, int64_t n)
{
    const kv_study_layer *l = &s->model.layer[layer];
    const int64_t all = GROUP * s->p.kv_heads * s->d_pad;
    kv_study_work *w = &s->work;
    s->math->project(l->wo, all, E, w->o, all, n, w->y);
    for (int64_t i = 0; i < n * E; i++) w->x[i] += w->y[i];
    norm_rows(w->x, n, w->h);
    s->math->project(l->mlp_in, E, E, w->h, E, n, w->y);
    for (int64_t i = 0; i < n * E; i++) w->y[i] = w->y[i] > 0.0f ? w->y[i] : 0.0f;
    s->math->project(l->mlp_out, E, E, w->y, E, n, w->h);
    for (int64_t i = 0; i < n * E; i++) w->x[i] += w->h[i];
}

void kv_study_logits(kv_codec_study *s, int64_t n)
{
    norm_rows(s->work.x, n, s->work.h);
    s->math->project(s->model.unembed, E, VOCAB, s->work.h, E, n, s->work.logits);
}

/* ---- the base run ----------------------------------------------------------------------- */

/* The next token: the first whose running sum of probabilities is above u. */
static uint8_t draw(const float *logits, uint64_t key)
{
    const double most = (double)logits[kv_token_argmax(logits, VOCAB)];
    double p[VOCAB], total = 0.0, sum = 0.0;
    for (int32_t i = 0; i < VOCAB; i++) {
        p[i] = kv_study_exp(kv_study_add((double)logits[i], -most));
        total = kv_study_add(total, p[i]);
    }
    const double goal = kv_study_mul(kv_study_uniform(key), total);
    for (int32_t i = 0; i < VOCAB - 1; i++) {
        sum = kv_study_add(sum, p[i]);
        if (sum > goal) return (uint8_t)i;
    }
    return VOCAB - 1;
}

/* The queries of a held-out token to the sums of its layer. */
static void sum_queries(kv_codec_study *s, int32_t factor, int32_t layer, const float *q)
{
    const int64_t dim = s->p.head_dim, square = dim * dim;
    for (int64_t g = 0; g < GROUP * s->p.kv_heads; g++)
        kv_codec_whiten_sum(q + g * s->d_pad, 1, (int32_t)dim,
                            s->query_sums[factor] + (layer * s->p.kv_heads + g / GROUP) * square);
}

static void step_layer(kv_codec_study *s, int32_t layer, int64_t t)
{
    const int64_t n = s->p.passages + 1, kv = s->p.kv_heads * s->d_pad;
    kv_study_work *w = &s->work;
    kv_study_project_in(s, layer, n);
    sum_queries(s, 0, layer, w->q + (n - 1) * GROUP * kv);
    for (int64_t p = 0; p < n; p++) {
        kv_study_cache *c = &s->base[p * s->p.layers + layer];
        kv_study_store(s, c, t, w->k + p * kv, w->v + p * kv);
        kv_study_rotate(s, w->q + p * GROUP * kv, GROUP * s->p.kv_heads, t);
        kv_study_attend(s, c, NULL, NULL, t, w->q + p * GROUP * kv, w->o + p * GROUP * kv);
    }
    sum_queries(s, 1, layer, w->q + (n - 1) * GROUP * kv);
    kv_study_project_out(s, layer, n);
}

static kv_rc fit_factors(kv_codec_study *s, kv_err *err)
{
    const int64_t square = (int64_t)s->p.head_dim * s->p.head_dim;
    for (int32_t f = 0; f < 2; f++)
        for (int32_t l = 0; l < s->p.layers; l++) {
            kv_rc rc = kv_codec_whiten_add(&s->whiten[f], l, err);
            for (int64_t h = 0; rc == KV_OK && h < s->p.kv_heads; h++) {
                double condition;
                rc = kv_codec_whiten_fit(s->query_sums[f] + (l * s->p.kv_heads + h) * square, GROUP * s->tokens,
                                         s->p.head_dim, KV_CODEC_WHITEN_RIDGE, s->whiten[f].l[l] + h * square,
                                         s->whiten[f].inverse[l] + h * square, &condition, err);
            }
            if (rc != KV_OK) {
                kv_err_prefix(err, "codec study, factors of layer %d", l);
                return rc;
            }
        }
    return KV_OK;
}

kv_rc kv_study_base_run(kv_codec_study *s, kv_err *err)
{
    const int64_t n = s->p.passages + 1, length = s->tokens + 1;
    for (int64_t p = 0; p < n; p++)
        s->text[p * length] = (uint8_t)(kv_study_key(s->p.seed, (uint64_t)p, KV_STUDY_START, 0) % VOCAB);
    for (int64_t t = 0; t < s->tokens; t++) {
        for (int64_t p = 0; p < n; p++) kv_study_embed(s, s->text + p * length, t, s->work.x + p * E);
        for (int32_t l = 0; l < s->p.layers; l++) step_layer(s, l, t);
        kv_study_logits(s, n);
        for (int64_t p = 0; p < n; p++) {
            const float *logits = s->work.logits + p * VOCAB;
            const uint64_t key = kv_study_key(s->p.seed, (uint64_t)p, KV_STUDY_SAMPLE, (uint64_t)t);
            s->text[p * length + t + 1] = draw(logits, key);
            if (t >= s->p.prefix && p < s->p.passages)
                memcpy(s->base_logits + (p * s->p.evaluated + t - s->p.prefix) * VOCAB, logits, VOCAB * sizeof *logits);
        }
    }
    return fit_factors(s, err);
}
