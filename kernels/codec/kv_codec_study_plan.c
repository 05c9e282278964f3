/* The cells of the study by name. */
#include "kernels/codec/kv_codec_study_int.h"

#include <stdio.h>

/* How a named cell differs from "kv"; K first. */
typedef struct {
    const char *name;
    bool k, v;
    int32_t op;
    int32_t rope;     /* K: 0 as the recipe says, -1 before, 1 after */
    int32_t factor;   /* K: 0 none, 1 of queries before RoPE, 2 after */
    bool named;       /* K: the cell is about factors, so that it has them whatever the caller says */
    bool v_outliers;  /* V takes K's threshold */
    bool prefix_only; /* new tokens stay bf16 */
} cell_row;

static const cell_row cells[] = {
    {"identity", true, true, KV_STUDY_OP_COPY, 0, 0, false, false, false},
    {"whiten-only", true, true, KV_STUDY_OP_COPY, 0, 1, true, false, false},
    {"kv", true, true, KV_STUDY_OP_CODEC, 0, 1, false, false, false},
    {"k", true, false, KV_STUDY_OP_CODEC, 0, 1, false, false, false},
    {"v", false, true, KV_STUDY_OP_CODEC, 0, 1, false, false, false},
    {"kv-prefix", true, true, KV_STUDY_OP_CODEC, 0, 1, false, false, true},
    {"noise", true, true, KV_STUDY_OP_NOISE, 0, 1, false, false, false},
    {"v-outliers", false, true, KV_STUDY_OP_CODEC, 0, 1, false, true, false},
    {"k-no-whitening", true, false, KV_STUDY_OP_CODEC, 0, 0, false, false, false},
    {"k-whiten-before", true, false, KV_STUDY_OP_CODEC, -1, 1, true, false, false},
    {"k-whiten-after", true, false, KV_STUDY_OP_CODEC, 1, 2, true, false, false},
};
enum { CELLS = (int)(sizeof cells / sizeof cells[0]), KV_CELL = 2, ROOM = 16 };

const char *kv_codec_study_cell(int32_t layers, int32_t index, char *room)
{
    if (index < 0 || layers < 1 || layers > KV_CODEC_STUDY_LAYERS_MAX || index >= CELLS + layers) return NULL;
    if (index < CELLS) return cells[index].name;
    snprintf(room, ROOM, "layer-%d", index - CELLS);
    return room;
}

static const cell_row *find(const char *name, int32_t layers, int32_t *layer)
{
    char room[ROOM];
    *layer = -1;
    for (int32_t i = 0; i < CELLS + layers; i++) {
        if (strcmp(kv_codec_study_cell(layers, i, room), name) != 0) continue;
        if (i < CELLS) return &cells[i];
        *layer = i - CELLS;
        return &cells[KV_CELL];
    }
    return NULL;
}

static kv_rc key_of(const kv_codec_study *s, const kv_codec_study_how *how, const cell_row *c, int32_t half,
                    kv_study_stream *out, kv_err *err)
{
    const bool k = half == KV_CODEC_K;
    kv_codec_half_config other;
    kv_codec_slot_layout layout;
    kv_rc rc;
    const bool whiten = k && c->factor != 0 && (c->named || !how->no_factors);
    kv_study_stream key = {.op = c->op, .factor = whiten ? c->factor : 0};
    KV_TRY(rc, out, kv_codec_recipe_half(how->recipe, half, s->p.head_dim, whiten, &key.config, err));
    key.after_rope = k && (c->rope != 0 ? c->rope > 0 : !kv_codec_recipe_before_rope(how->recipe));
    if (how->block_rows != 0) key.config.slot.n = how->block_rows;
    if (how->d_eff != 0) key.config.slot.params.d_eff = key.config.fit.rank_cap = how->d_eff;
    if (!k && c->v_outliers) {
        KV_TRY(rc, out, kv_codec_recipe_half(how->recipe, KV_CODEC_K, s->p.head_dim, true, &other, err));
        key.config.slot.params.outliers = true;
        key.config.slot.params.threshold = other.slot.params.threshold;
        key.config.slot.budget_ppm = other.slot.budget_ppm;
    }
    KV_TRY(rc, out, kv_codec_params_check(&key.config.slot.params, err));
    KV_TRY(rc, out, kv_codec_slot_sizes(&key.config.slot, &layout, err));
    *out = key;
out:
    return rc;
}

kv_rc kv_study_plan_of(const kv_codec_study *s, const kv_codec_study_how *how, const char *cell, kv_study_plan *out,
                       kv_err *err)
{
    int32_t layer;
    kv_rc rc = KV_OK;
    const cell_row *c = find(cell, s->p.layers, &layer);
    if (c == NULL) return KV_FAIL(err, KV_EINVAL, "codec study: no cell is called \"%s\"", cell);
    if (how->block_rows < 0 || (how->block_rows & (how->block_rows - 1)) != 0)
        return KV_FAIL(err, KV_EINVAL, "codec study: %d rows in a block, not a power of two", how->block_rows);
    kv_study_plan plan = {.on = {c->k, c->v}, .prefix_only = c->prefix_only};
    for (int32_t half = 0; half < KV_CODEC_HALVES; half++)
        KV_TRY(rc, out, key_of(s, how, c, half, &plan.key[half], err));
    if (how->skip == NULL) kv_codec_recipe_skip(how->recipe, s->p.layers, plan.skip);
    for (int32_t i = 0; i < s->p.layers; i++) {
        if (how->skip != NULL) plan.skip[i] = how->skip[i];
        if (layer >= 0) plan.skip[i] = i != layer;
    }
    *out = plan;
out:
    return rc;
}

bool kv_study_stream_equal(const kv_study_stream *a, const kv_study_stream *b)
{
    const kv_codec_params *p = &a->config.slot.params, *q = &b->config.slot.params;
    return a->op == b->op && a->factor == b->factor && a->after_rope == b->after_rope &&
           a->config.slot.recipe == b->config.slot.recipe && a->config.slot.n == b->config.slot.n &&
           a->config.group == b->config.group && a->config.mixed_heads == b->config.mixed_heads &&
           p->d_eff == q->d_eff && p->bits == q->bits && p->metric == q->metric && p->rule == q->rule &&
           p->outliers == q->outliers && p->threshold == q->threshold;
}
