#include "grid/cell/kv_study_cell.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/cell/kv_codec_cell.h"

/* "" where the small model exists at g; else why not. */
static void refuse_model(const kv_geometry *g, char reason[KV_REASON_TEXT])
{
    reason[0] = '\0';
    if (g->layers > KV_CODEC_STUDY_LAYERS_MAX)
        snprintf(reason, KV_REASON_TEXT, "the small model has 1 to %d layers, not %" PRId64, KV_CODEC_STUDY_LAYERS_MAX,
                 g->layers);
    else if (g->kv_heads > KV_CODEC_STUDY_HEADS_MAX)
        snprintf(reason, KV_REASON_TEXT, "the small model has 1 to %d kv heads, not %" PRId64, KV_CODEC_STUDY_HEADS_MAX,
                 g->kv_heads);
    else if (g->head_dim != g->head_dim_v)
        snprintf(reason, KV_REASON_TEXT, "the small model has one head_dim, not %" PRId64 " and %" PRId64, g->head_dim,
                 g->head_dim_v);
    else if (g->head_dim % 2 != 0 || g->head_dim > KV_CODEC_DIM_MAX)
        snprintf(reason, KV_REASON_TEXT, "the small model has an even head_dim up to %d, not %" PRId64,
                 KV_CODEC_DIM_MAX, g->head_dim);
    else if (g->tokens < 1 || g->tokens > KV_CODEC_STUDY_TOKENS_MAX / 2)
        snprintf(reason, KV_REASON_TEXT, "the small model has a prefix of 1 to %d tokens, not %" PRId64,
                 KV_CODEC_STUDY_TOKENS_MAX / 2, g->tokens);
}

/* "" where the cell can be run; else why not: the model, or the recipe's slots, do not exist. */
static kv_rc refuse(const kv_campaign *c, const kv_study_point *p, const kv_geometry *g, char reason[KV_REASON_TEXT],
                    kv_err *err)
{
    const kv_codec_section blocks = {.block = c->study.block};
    kv_codec_size z;
    kv_rc rc = KV_OK;
    refuse_model(g, reason);
    for (int stream = 0; rc == KV_OK && reason[0] == '\0' && stream < 2; stream++) {
        const kv_codec_point point = {p->method, stream, KV_CODEC_BITS_DEFAULT, NULL};
        rc = kv_codec_size_of(&blocks, &point, g, &z, reason, err);
    }
    return rc;
}

/* ---- the study that is kept ----------------------------------------------------------------- */

struct kv_study_kept {
    kv_codec_study_params params;
    kv_codec_study *study;
    uint8_t base[KV_HASH_BYTES]; /* logits of the base run */
    int32_t identity, variants;  /* kv_tri */
};

void kv_study_kept_free(struct kv_study_kept *k)
{
    if (k == NULL) return;
    kv_codec_study_free(k->study);
    kv_free(k);
}

static void take_bytes(void *ctx, const void *bytes, size_t n)
{
    kv_hash_update(ctx, bytes, n);
}

static void digest_of(const kv_codec_study *s, bool base, uint8_t out[KV_HASH_BYTES])
{
    kv_hash h;
    kv_hash_init(&h);
    if (base)
        kv_codec_study_base_logits(s, take_bytes, &h);
    else
        kv_codec_study_logits(s, take_bytes, &h);
    kv_hash_final(&h, out);
}

static kv_rc run_identity(struct kv_study_kept *k, int32_t block, int32_t *same, kv_err *err)
{
    const kv_codec_study_how how = {.recipe = KV_CODEC_KV1, .block_rows = block};
    kv_codec_study_result r;
    uint8_t digest[KV_HASH_BYTES];
    const kv_rc rc = kv_codec_study_run(k->study, &how, "identity", &r, err);
    if (rc != KV_OK) return rc;
    digest_of(k->study, false, digest);
    *same = memcmp(digest, k->base, sizeof digest) == 0;
    return KV_OK;
}

/* The identity cell, by the fastest loops and by the plain ones: both must give the base run's logits. */
static kv_rc check_identity(struct kv_study_kept *k, int32_t block, kv_err *err)
{
    const char *fastest = NULL;
    kv_rc rc;
    KV_TRY(rc, out, run_identity(k, block, &k->identity, err));
    KV_TRY(rc, out, kv_codec_study_use(k->study, kv_codec_study_variant(0), err));
    rc = run_identity(k, block, &k->variants, err);
    for (int32_t i = 0; kv_codec_study_variant(i) != NULL; i++)
        if (kv_codec_study_use(k->study, kv_codec_study_variant(i), NULL) == KV_OK) fastest = kv_codec_study_variant(i);
    if (rc == KV_OK && fastest == NULL) rc = KV_FAIL(err, KV_EBUG, "the small model has no loops that run here");
out:
    return rc;
}

static kv_rc keep(kv_runner *r, const kv_codec_study_params *p, int32_t block, struct kv_study_kept **out, kv_err *err)
{
    struct kv_study_kept *k = r->study;
    kv_rc rc = KV_OK;
    if (k != NULL && memcmp(&k->params, p, sizeof *p) == 0) {
        *out = k;
        return KV_OK;
    }
    kv_study_kept_free(k);
    r->study = NULL;
    k = kv_alloc(1, sizeof *k);
    if (k == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a study");
    k->params = *p;
    rc = kv_codec_study_new(p, &k->study, err);
    if (rc == KV_OK) {
        digest_of(k->study, true, k->base);
        rc = check_identity(k, block, err);
    }
    if (rc != KV_OK) {
        kv_study_kept_free(k);
        return rc;
    }
    *out = r->study = k;
    return KV_OK;
}

/* ---- the cell ------------------------------------------------------------------------------- */

static void fill_row(const kv_codec_study_result *found, int32_t passages, kv_row_study *o)
{
    o->finite = found->mean.finite;
    o->accept = found->verdict;
    o->passages = passages;
    o->base_nll_nano = found->base_nll_nano;
    o->nll_nano = found->mean.nll_nano;
    o->ppl_change_ppm = found->mean.ppl_change_ppm;
    o->kl_nano = found->mean.kl_nano;
    o->top1_ppm = found->mean.top1_ppm;
    for (int i = 0; i < 2; i++) {
        o->error_ppm[i] = found->damage[i].error_ppm;
        o->overflow_blocks[i] = found->damage[i].overflowed;
    }
    for (int32_t i = 0; i < passages; i++) {
        o->passage[i][0] = found->passage[i].ppl_change_ppm;
        o->passage[i][1] = found->passage[i].kl_nano;
        o->passage[i][2] = found->passage[i].top1_ppm;
    }
}

kv_rc kv_study_cell_run(kv_runner *r, const kv_campaign *c, const kv_study_point *p, const kv_geometry *g, kv_row *row,
                        kv_err *err)
{
    const kv_study_section *s = &c->study;
    struct kv_study_kept *k = NULL;
    kv_codec_study_params params;
    kv_codec_study_result found;
    kv_rc rc = KV_OK;
    KV_TRY(rc, out, refuse(c, p, g, row->reason, err));
    if (row->reason[0] != '\0') {
        row->frontier = KV_X4_GEOMETRY_UNREPRESENTABLE;
        row->verdict = KV_VERDICT_REFUSED;
        return KV_OK;
    }
    memset(&params, 0, sizeof params); /* compared as bytes */
    params.seed = p->seed;
    params.layers = (int32_t)g->layers;
    params.kv_heads = (int32_t)g->kv_heads;
    params.head_dim = (int32_t)g->head_dim;
    params.passages = s->passages;
    params.prefix = (int32_t)g->tokens;
    params.evaluated = s->evaluated;
    KV_TRY(rc, out, keep(r, &params, s->block, &k, err));
    const kv_codec_study_how how = {.recipe = kv_store_method_recipe(p->method), .block_rows = s->block};
    KV_TRY(rc, out, kv_codec_study_run(k->study, &how, p->cell, &found, err));
    fill_row(&found, s->passages, &row->study);
    memcpy(row->study.digest[0], k->base, KV_HASH_BYTES);
    digest_of(k->study, false, row->study.digest[1]);
    row->observed[KV_STUDY_OBS_IDENTITY] = k->identity;
    row->observed[KV_STUDY_OBS_VARIANTS] = k->variants;
    row->observed[KV_STUDY_OBS_FINITE] = row->study.finite;
    row->observed[KV_STUDY_OBS_TOP1] = row->study.finite && row->study.top1_ppm == 1000000;
    row->ran = row->has_study = true;
    row->native_bytes[0] = row->native_bytes[1] = 0;
    row->verdict = (int32_t)kv_codec_grade(false, row->observed);
out:
    return rc;
}

/* ---- planning ------------------------------------------------------------------------------- */

#define NS_TOKEN_VALUE 100 /* of a cell: a token's K and V value, in a layer (docs/measurements.md) */

/* A nanosecond tells seeds apart, so that cells of one seed are given out one after another: they share the base run that a
 * rank keeps, which costs as much as eight cells. */
static uint64_t seed_order(const kv_study_section *s, uint64_t seed)
{
    int32_t i = 0;
    while (i < s->n_seeds && s->seed[i] != seed) i++;
    return (uint64_t)(s->n_seeds - i);
}

kv_rc kv_study_cell_plan(const kv_campaign *c, const kv_study_point *p, const kv_geometry *g, kv_cell_need *out,
                         kv_err *err)
{
    char reason[KV_REASON_TEXT];
    memset(out, 0, sizeof *out);
    const kv_rc rc = refuse(c, p, g, reason, err);
    if (rc != KV_OK) return rc;
    out->runs = reason[0] == '\0';
    if (!out->runs) return KV_OK;
    const int64_t tokens = g->tokens + c->study.evaluated, lanes = g->kv_heads * g->head_dim;
    const int64_t values = g->layers * (c->study.passages + 1) * tokens * lanes;
    out->peak_bytes = out->least_bytes = out->gpu_host_bytes = 24 * values; /* no device takes part */
    out->moved_bytes = 16 * values;
    out->cost = (uint64_t)values * NS_TOKEN_VALUE + seed_order(&c->study, p->seed);
    return KV_OK;
}
