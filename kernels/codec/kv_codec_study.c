/* The study: its memory, and cells over the passages. */
#include "kernels/codec/kv_codec_study.h"

#include <inttypes.h>
#include <math.h>

#include "kernels/codec/kv_codec_study_int.h"

enum { E = KV_STUDY_E, VOCAB = KV_CODEC_STUDY_VOCAB, GROUP = KV_STUDY_GROUP };

/* ---- memory ----------------------------------------------------------------------------- */

static void *own(kv_codec_study *s, int64_t n, size_t size, kv_err *err)
{
    void *p = kv_alloc((size_t)n, size);
    if (p == NULL || s->owned_count == KV_STUDY_BLOCKS_MAX) {
        kv_free(p);
        (void)KV_FAIL(err, KV_ENOMEM, "codec study: no memory for %" PRId64 " values of %zu bytes", n, size);
        return NULL;
    }
    s->owned[s->owned_count++] = p;
    return p;
}

float *kv_study_floats(kv_codec_study *s, int64_t n, kv_err *err)
{
    return own(s, n, sizeof(float), err);
}

void kv_codec_study_free(kv_codec_study *s)
{
    if (s == NULL) return;
    for (int32_t i = 0; i < s->owned_count; i++) kv_free(s->owned[i]);
    for (int32_t f = 0; f < 2; f++) kv_codec_whiten_free(&s->whiten[f]);
    kv_free(s);
}

static void cut_cache(const kv_codec_study *s, float **at, kv_study_cache *c)
{
    const int64_t dim = s->p.head_dim, heads = s->p.kv_heads;
    c->pre = *at;
    c->kt = c->pre + heads * s->tokens * dim;
    c->v = c->kt + heads * dim * s->t_stride;
    *at = c->v + heads * s->tokens * s->d_pad;
}

static bool caches_new(kv_codec_study *s, kv_err *err)
{
    const int64_t dim = s->p.head_dim, heads = s->p.kv_heads, layers = (s->p.passages + 1) * s->p.layers;
    const int64_t one = heads * (s->tokens * (dim + s->d_pad) + dim * s->t_stride);
    float *at = kv_study_floats(s, (layers + 2) * one + KV_STUDY_PAD, err); /* loops run over the end */
    s->base = own(s, layers, sizeof *s->base, err);
    if (at == NULL || s->base == NULL) return false;
    for (int64_t i = 0; i < layers; i++) cut_cache(s, &at, &s->base[i]);
    cut_cache(s, &at, &s->work.raw);
    cut_cache(s, &at, &s->work.sealed);
    return true;
}

static bool work_new(kv_codec_study *s, kv_err *err)
{
    const int64_t kv = s->p.kv_heads * s->d_pad, square = (int64_t)s->p.head_dim * s->p.head_dim;
    const int64_t n = s->p.passages >= s->p.evaluated ? s->p.passages + 1 : s->p.evaluated;
    const int64_t units = (int64_t)s->p.passages * s->p.layers,
                  logits = (int64_t)s->p.passages * s->p.evaluated * VOCAB;
    const int64_t sums = s->p.layers * s->p.kv_heads * square;
    kv_study_work *w = &s->work;
    float *at = kv_study_floats(s, n * (3 * E + VOCAB + 2 * GROUP * kv + 2 * kv) + GROUP * s->t_stride, err);
    s->text = own(s, (s->p.passages + 1) * (s->tokens + 1), 1, err);
    s->base_logits = kv_study_floats(s, 2 * logits, err);
    s->query_sums[0] = own(s, 2 * sums, sizeof(double), err);
    if (at == NULL || s->text == NULL || s->base_logits == NULL || s->query_sums[0] == NULL) return false;
    s->logits = s->base_logits + logits;
    s->query_sums[1] = s->query_sums[0] + sums;
    w->x = at;
    w->h = w->x + n * E;
    w->y = w->h + n * E;
    w->logits = w->y + n * E;
    w->q = w->logits + n * VOCAB;
    w->o = w->q + n * GROUP * kv;
    w->k = w->o + n * GROUP * kv;
    w->v = w->k + n * kv;
    w->score = w->v + n * kv;
    for (int32_t half = 0; half < KV_CODEC_HALVES; half++) {
        kv_study_memo *m = &s->memo[half];
        m->filled = own(s, units, sizeof *m->filled, err);
        m->damage = own(s, units, sizeof *m->damage, err);
        m->rows = kv_study_floats(s, units * s->p.kv_heads * s->p.prefix * s->p.head_dim, err);
        if (m->filled == NULL || m->damage == NULL || m->rows == NULL) return false;
    }
    return true;
}

static kv_rc in_range(const char *name, int64_t value, int64_t least, int64_t most, kv_err *err)
{
    if (value >= least && value <= most) return KV_OK;
    return KV_FAIL(err, KV_EINVAL, "codec study: %s %" PRId64 ", not %" PRId64 " to %" PRId64, name, value, least,
                   most);
}

static kv_rc check(const kv_codec_study_params *p, kv_err *err)
{
    kv_rc rc;
    KV_TRY(rc, out, in_range("layers", p->layers, 1, KV_CODEC_STUDY_LAYERS_MAX, err));
    KV_TRY(rc, out, in_range("kv_heads", p->kv_heads, 1, KV_CODEC_STUDY_HEADS_MAX, err));
    KV_TRY(rc, out, in_range("head_dim", p->head_dim, 2, KV_CODEC_DIM_MAX, err));
    KV_TRY(rc, out, in_range("passages", p->passages, 1, KV_CODEC_STUDY_PASSAGES_MAX, err));
    KV_TRY(rc, out, in_range("prefix", p->prefix, 1, KV_CODEC_STUDY_TOKENS_MAX - 1, err));
    KV_TRY(rc, out, in_range("evaluated", p->evaluated, 1, KV_CODEC_STUDY_TOKENS_MAX - p->prefix, err));
    if (p->head_dim % 2 != 0)
        rc = KV_FAIL(err, KV_EINVAL, "codec study: head_dim %d is odd; RoPE turns pairs of lanes", p->head_dim);
out:
    return rc;
}

kv_rc kv_codec_study_new(const kv_codec_study_params *p, kv_codec_study **out, kv_err *err)
{
    kv_rc rc = check(p, err);
    if (rc != KV_OK) return rc;
    kv_codec_study *s = kv_alloc(1, sizeof *s);
    if (s == NULL) return KV_FAIL(err, KV_ENOMEM, "codec study: no memory for its record");
    s->p = *p;
    s->tokens = (int64_t)p->prefix + p->evaluated;
    s->d_pad = kv_study_pad(p->head_dim);
    s->t_stride = kv_study_pad(s->tokens) + KV_STUDY_PAD;
    s->scale = kv_token_scale(p->head_dim);
    for (int32_t i = 0; i < kv_study_math_count(); i++)
        if (kv_study_math_at(i)->runs_here()) s->math = kv_study_math_at(i);
    rc = KV_ENOMEM;
    if (!caches_new(s, err) || !work_new(s, err)) goto fail;
    for (int32_t f = 0; f < 2; f++)
        KV_TRY(rc, fail, kv_codec_whiten_new(p->layers, p->kv_heads, p->head_dim, &s->whiten[f], err));
    KV_TRY(rc, fail, kv_study_model_new(s, err));
    KV_TRY(rc, fail, kv_study_base_run(s, err));
    memcpy(s->logits, s->base_logits, (size_t)(p->passages * p->evaluated * VOCAB) * sizeof *s->logits);
    *out = s;
    return KV_OK;
fail:
    kv_codec_study_free(s);
    return rc;
}

/* ---- a cell ----------------------------------------------------------------------------- */

/* A cell under way: one passage, one layer. */
typedef struct {
    kv_codec_study *s;
    const kv_study_plan *plan;
    int32_t passage, layer;
    kv_study_damage sum[KV_CODEC_HALVES];
} cell_run;

/* Lane rows of a token, rows of a group (0: all of the prefix), sealed lane rows of the prefix. */
typedef struct {
    int64_t per_token, group, prefix;
} extent;

static extent extent_of(const cell_run *c, int32_t half)
{
    const kv_codec_half_config *h = &c->plan->key[half].config;
    extent e = {.per_token = h->mixed_heads ? c->s->p.kv_heads : 1, .group = h->group * h->slot.n};
    e.prefix = c->s->p.prefix * e.per_token / h->slot.n * h->slot.n;
    return e;
}

static bool grows(const cell_run *c, int32_t half)
{
    return !c->plan->prefix_only && c->plan->key[half].config.group != KV_CODEC_GROUP_ALL;
}

/* Lane rows that are sealed once `tokens` tokens (more than the prefix) stand in the cache. */
static int64_t sealed_rows(const cell_run *c, int32_t half, int64_t tokens)
{
    if (!c->plan->on[half] || c->plan->skip[c->layer]) return 0;
    const extent e = extent_of(c, half);
    if (!grows(c, half)) return e.prefix;
    return e.prefix + (tokens * e.per_token - e.prefix) / e.group * e.group;
}

/* Of head h, tokens among the first `rows` lane rows. */
static int64_t sealed_tokens(const cell_run *c, int32_t half, int64_t h, int64_t tokens)
{
    const int64_t rows = sealed_rows(c, half, tokens);
    if (!c->plan->key[half].config.mixed_heads) return rows;
    return (rows - h + c->s->p.kv_heads - 1) / c->s->p.kv_heads;
}

static void add_damage(kv_study_damage *sum, const kv_study_damage *more)
{
    sum->error = kv_study_add(sum->error, more->error);
    sum->size = kv_study_add(sum->size, more->size);
    sum->count.rows += more->count.rows;
    sum->count.blocks += more->count.blocks;
    sum->count.overflowed += more->count.overflowed;
    sum->count.saturated += more->count.saturated;
}

/* The sealed rows of the prefix, from the memo (to: out of it) or into it. */
static void move_memo(cell_run *c, int32_t half, float *rows, bool to)
{
    const kv_codec_study *s = c->s;
    for (int64_t h = 0; h < s->p.kv_heads; h++) {
        const int64_t n = sealed_tokens(c, half, h, s->p.prefix);
        for (int64_t t = 0; t < n; t++) {
            float *row = rows + (h * s->p.prefix + t) * s->p.head_dim;
            if (to)
                kv_study_sealed_get(s, half, h, t, row);
            else
                kv_study_sealed_put(c->s, half, h, t, row);
        }
    }
}

static kv_rc seal_prefix(cell_run *c, int32_t half, kv_err *err)
{
    const kv_codec_study *s = c->s;
    const extent e = extent_of(c, half);
    const int64_t unit = (int64_t)c->passage * s->p.layers + c->layer;
    kv_study_memo *m = &c->s->memo[half];
    float *rows = m->rows + unit * s->p.kv_heads * s->p.prefix * s->p.head_dim;
    kv_study_place at = {&c->plan->key[half], half, c->passage, c->layer, 0};
    if (m->filled[unit]) {
        move_memo(c, half, rows, false);
        add_damage(&c->sum[half], &m->damage[unit]);
        return KV_OK;
    }
    memset(&m->damage[unit], 0, sizeof m->damage[unit]);
    for (at.lane = 0; at.lane < kv_codec_lanes(&at.key->config, s->p.kv_heads); at.lane++)
        for (int64_t from = 0, to; from < e.prefix; from = to) {
            to = e.group == 0 || from + e.group > e.prefix ? e.prefix : from + e.group;
            const kv_rc rc = kv_study_seal(c->s, &at, from, to, &m->damage[unit], err);
            if (rc != KV_OK) return rc;
        }
    move_memo(c, half, rows, true);
    m->filled[unit] = true;
    add_damage(&c->sum[half], &m->damage[unit]);
    return KV_OK;
}

/* Groups that the evaluated tokens fill up. */
static kv_rc seal_new(cell_run *c, int32_t half, kv_err *err)
{
    const extent e = extent_of(c, half);
    const int64_t end = sealed_rows(c, half, c->s->tokens);
    kv_study_place at = {&c->plan->key[half], half, c->passage, c->layer, 0};
    for (at.lane = 0; at.lane < kv_codec_lanes(&at.key->config, c->s->p.kv_heads); at.lane++)
        for (int64_t from = e.prefix; from < end; from += e.group) {
            const kv_rc rc = kv_study_seal(c->s, &at, from, from + e.group, &c->sum[half], err);
            if (rc != KV_OK) return rc;
        }
    return KV_OK;
}

/* The clean prefix and the evaluated tokens' own keys and values. */
static void fill_raw(cell_run *c)
{
    kv_codec_study *s = c->s;
    const kv_study_cache *base = &s->base[c->passage * s->p.layers + c->layer];
    const int64_t dim = s->p.head_dim, heads = s->p.kv_heads, kv = heads * s->d_pad;
    const int64_t floats = heads * (s->tokens * (dim + s->d_pad) + dim * s->t_stride);
    memcpy(s->work.raw.pre, base->pre, (size_t)floats * sizeof(float)); /* pre, kt and v are one piece */
    for (int64_t i = 0; i < s->p.evaluated; i++)
        kv_study_store(s, &s->work.raw, s->p.prefix + i, s->work.k + i * kv, s->work.v + i * kv);
}

static kv_rc run_layer(cell_run *c, kv_err *err)
{
    kv_codec_study *s = c->s;
    const int64_t wide = GROUP * s->p.kv_heads * s->d_pad;
    int64_t cut[2 * KV_CODEC_STUDY_HEADS_MAX];
    kv_rc rc;
    kv_study_project_in(s, c->layer, s->p.evaluated);
    fill_raw(c);
    for (int32_t half = 0; half < KV_CODEC_HALVES; half++) {
        if (!c->plan->on[half] || c->plan->skip[c->layer]) continue;
        KV_TRY(rc, out, seal_prefix(c, half, err));
        if (grows(c, half)) KV_TRY(rc, out, seal_new(c, half, err));
    }
    for (int64_t i = 0; i < s->p.evaluated; i++) {
        const int64_t t = s->p.prefix + i;
        for (int32_t h = 0; h < s->p.kv_heads; h++)
            for (int32_t half = 0; half < KV_CODEC_HALVES; half++) cut[2 * h + half] = sealed_tokens(c, half, h, t + 1);
        kv_study_rotate(s, s->work.q + i * wide, GROUP * s->p.kv_heads, t);
        kv_study_attend(s, &s->work.raw, &s->work.sealed, cut, t, s->work.q + i * wide, s->work.o + i * wide);
    }
    kv_study_project_out(s, c->layer, s->p.evaluated);
    rc = KV_OK;
out:
    return rc;
}

static kv_rc run_passage(cell_run *c, kv_err *err)
{
    kv_codec_study *s = c->s;
    const int64_t floats = (int64_t)s->p.evaluated * VOCAB;
    const uint8_t *text = kv_codec_study_tokens(s, c->passage);
    for (int64_t i = 0; i < s->p.evaluated; i++) kv_study_embed(s, text, s->p.prefix + i, s->work.x + i * E);
    for (c->layer = 0; c->layer < s->p.layers; c->layer++) {
        const kv_rc rc = run_layer(c, err);
        if (rc != KV_OK) return rc;
    }
    kv_study_logits(s, s->p.evaluated);
    memcpy(s->logits + c->passage * floats, s->work.logits, (size_t)floats * sizeof *s->logits);
    return KV_OK;
}

/* The memo of a half holds results of another key: empties it. */
static void open_memo(kv_codec_study *s, int32_t half, const kv_study_stream *key)
{
    kv_study_memo *m = &s->memo[half];
    if (kv_study_stream_equal(&m->key, key)) return;
    m->key = *key;
    memset(m->filled, 0, (size_t)(s->p.passages * s->p.layers) * sizeof *m->filled);
}

static kv_codec_study_damage damage_of(const kv_study_damage *sum)
{
    kv_codec_study_damage d = sum->count;
    const double relative = sum->size > 0.0 ? sqrt(sum->error / sum->size) : 0.0;
    d.error_ppm = relative - relative == 0.0 ? kv_study_integer(relative * 1e6) : -1;
    return d;
}

kv_rc kv_codec_study_run(kv_codec_study *s, const kv_codec_study_how *how, const char *cell, kv_codec_study_result *out,
                         kv_err *err)
{
    kv_study_plan plan;
    kv_codec_study_result result;
    kv_rc rc = kv_study_plan_of(s, how, cell, &plan, err);
    if (rc != KV_OK) return rc;
    cell_run c = {.s = s, .plan = &plan};
    for (int32_t half = 0; half < KV_CODEC_HALVES; half++)
        if (plan.on[half]) open_memo(s, half, &plan.key[half]);
    for (c.passage = 0; c.passage < s->p.passages; c.passage++) {
        rc = run_passage(&c, err);
        if (rc == KV_OK) continue;
        kv_err_prefix(err, "codec study, %s, cell %s", kv_codec_recipe_name(how->recipe), cell);
        return rc;
    }
    memset(&result, 0, sizeof result);
    for (int32_t half = 0; half < KV_CODEC_HALVES; half++) result.damage[half] = damage_of(&c.sum[half]);
    kv_study_score_all(s, &result);
    *out = result;
    return KV_OK;
}

/* ---- what was seen ---------------------------------------------------------------------- */

static void hand_over(const kv_codec_study *s, const float *logits, kv_codec_study_take take, void *ctx)
{
    unsigned char bytes[4 * VOCAB];
    for (int64_t i = 0; i < (int64_t)s->p.passages * s->p.evaluated; i++) {
        for (int64_t v = 0; v < VOCAB; v++) {
            const uint32_t bits = kv_token_logit_bits(logits[i * VOCAB + v]);
            for (int b = 0; b < 4; b++) bytes[4 * v + b] = (unsigned char)(bits >> (8 * b));
        }
        take(ctx, bytes, sizeof bytes);
    }
}

void kv_codec_study_base_logits(const kv_codec_study *s, kv_codec_study_take take, void *ctx)
{
    hand_over(s, s->base_logits, take, ctx);
}

void kv_codec_study_logits(const kv_codec_study *s, kv_codec_study_take take, void *ctx)
{
    hand_over(s, s->logits, take, ctx);
}

const uint8_t *kv_codec_study_tokens(const kv_codec_study *s, int32_t passage)
{
    return s->text + passage * (s->tokens + 1);
}

const char *kv_codec_study_variant(int32_t index)
{
    return index >= 0 && index < kv_study_math_count() ? kv_study_math_at(index)->name : NULL;
}

kv_rc kv_codec_study_use(kv_codec_study *s, const char *variant, kv_err *err)
{
    for (int32_t i = 0; i < kv_study_math_count(); i++) {
        if (strcmp(kv_study_math_at(i)->name, variant) != 0) continue;
        if (!kv_study_math_at(i)->runs_here())
            return KV_FAIL(err, KV_EUNSUP, "codec study: this machine has no %s", variant);
        s->math = kv_study_math_at(i);
        return KV_OK;
    }
    return KV_FAIL(err, KV_EUNSUP, "codec study: this build has no variant '%s'", variant);
}
