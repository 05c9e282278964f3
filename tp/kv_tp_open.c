/* Whether a move exists, and what a rank needs for it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tp/kv_tp.h"
#include "tp/kv_tp_int.h"
#include "tp/kv_tp_shard_index.h"

int64_t kv_tp_split_heads(const kv_tp_spec *s)
{
    return s->content == NULL && s->layout[0]->store == KV_STORE_LATENT ? 1 : s->g->kv_heads;
}

kv_elem kv_tp_side_element(const kv_tp_spec *s, int i)
{
    return s->content != NULL ? KV_ELEM_FP8_E4M3 : kv_layout_element(s->layout[i], s->g);
}

const char *kv_tp_side_name(const kv_tp_spec *s, int i)
{
    return s->content != NULL ? s->content->name : s->layout[i]->name;
}

kv_rc kv_tp_bind(const kv_tp_spec *s, int i, int64_t rank, bool stored, int64_t unit, kv_index *out,
                 kv_bind_state *state, char reason[KV_REASON_TEXT], kv_err *err)
{
    if (s->content != NULL) {
        bool exists = false;
        const kv_rc rc = kv_tp_pages_index(s->content->name, s->g, s->tp[i], rank, out, &exists, reason, err);
        *state = exists ? KV_BIND_OK : KV_BIND_NO_SHARD;
        return rc;
    }
    kv_layout shard = *(stored && s->stored[i] != NULL ? s->stored[i] : s->layout[i]);
    shard.tp_size = s->tp[i];
    shard.tp_rank = rank;
    return kv_layout_bind(&shard, s->g, unit, out, state, reason, err);
}

static kv_rc check_spec(const kv_tp_spec *s, kv_err *err)
{
    if ((s->stage[0] == NULL) != (s->stage[1] == NULL))
        return KV_FAIL(err, KV_EINVAL, "one side has pipeline stages, the other has not");
    for (int i = 0; i < 2; i++) {
        if (s->content == NULL && s->stage[i] != NULL && kv_axes_has(&s->layout[i]->axes[0], KV_F_L))
            return KV_FAIL(err, KV_EINVAL, "%s keeps its layers in one array: it has no pipeline stages",
                           s->layout[i]->name);
        if (s->content == NULL && s->layout[i]->tp_size != 1)
            return KV_FAIL(err, KV_EINVAL, "%s is declared as a shard of %" PRId64 " itself", s->layout[i]->name,
                           s->layout[i]->tp_size);
        if (s->tp[i] < 1 || s->tp[i] > KV_TP_RANKS_MAX)
            return KV_FAIL(err, KV_EINVAL, "a tensor-parallel size of %" PRId64 ": 1 to %d are possible", s->tp[i],
                           KV_TP_RANKS_MAX);
        const int64_t stages = kv_tp_side_stages(s, i);
        if (stages < 1 || stages > KV_TP_RANKS_MAX || stages * s->tp[i] > KV_TP_RANKS_MAX)
            return KV_FAIL(err, KV_EINVAL, "%" PRId64 " stages of %" PRId64 " ranks: 1 to %d ranks are possible",
                           stages, s->tp[i], KV_TP_RANKS_MAX);
    }
    return KV_OK;
}

/* The side's shards, or why they do not exist. */
static kv_rc examine_side(const kv_tp_spec *s, int i, kv_tp_result *out, kv_index *ix, kv_err *err)
{
    kv_bind_state state = KV_BIND_OK;
    kv_index stored;
    kv_rc rc = kv_tp_bind(s, i, 0, false, out->unit_layers, ix, &state, out->reason, err);
    if (rc != KV_OK) return rc;
    if (state != KV_BIND_OK) {
        out->refused = true;
        out->frontier = (int32_t)KV_X4_GEOMETRY_UNREPRESENTABLE;
        return KV_OK;
    }
    rc = kv_tp_bind(s, i, 0, true, out->unit_layers, &stored, &state, out->reason, err);
    if (rc != KV_OK) return rc;
    if (state != KV_BIND_OK || stored.native != ix->native || stored.element != ix->element)
        return KV_FAIL(err, KV_EINVAL, "the bytes of %s cannot be those of %s: the sizes differ", s->layout[i]->name,
                       s->stored[i]->name);
    if (!kv_mul_i64(s->tp[i], kv_index_bytes(ix), &out->native_bytes[i]))
        return KV_FAIL(err, KV_EINVAL, "%s: %" PRId64 " shards do not fit 64 bits", kv_tp_side_name(s, i), s->tp[i]);
    return KV_OK;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Layers from l on that go from one stage to the same other one; without stages, all of them. */
static int64_t together(const kv_tp_spec *s, const kv_tp_hop *hop, int64_t l)
{
    int64_t end = l + 1;
    if (hop == NULL) return s->g->layers;
    while (end < s->g->layers && hop[end].from == hop[l].from && hop[end].to == hop[l].to) end++;
    return end - l;
}

/* The least bytes that can travel: heads that a rank lacks, tokens alone, the narrower element type. */
static void least_bytes(const kv_tp_spec *s, const kv_index ix[2], const kv_tp_hop *hop, kv_tp_result *out)
{
    const int64_t heads = kv_tp_split_heads(s);
    const int64_t element = smaller(kv_elem_bytes((kv_elem)ix[0].element), kv_elem_bytes((kv_elem)ix[1].element));
    const int64_t head = ix[0].tokens * (ix[0].lanes[0] + ix[0].lanes[1]) * element; /* of a layer */
    for (int64_t l = 0, layers; l < s->g->layers; l += layers) {
        const int64_t first[2] = {hop != NULL ? hop[l].from * s->tp[0] : 0, hop != NULL ? hop[l].to * s->tp[1] : 0};
        layers = together(s, hop, l);
        if (hop != NULL && hop[l].from != hop[l].to) out->moved += layers;
        for (int back = 0; back < 2; back++)
            for (int64_t r = 0; r < out->ranks; r++)
                out->least[back][r] +=
                    layers * head *
                    kv_tp_shard_lacks_as(heads, s->tp[back], r - first[back], s->tp[1 - back], r - first[1 - back]);
    }
    for (int back = 0; back < 2; back++)
        for (int64_t r = 0; r < out->ranks; r++) out->least_total[back] += out->least[back][r];
}

/* Where each layer goes; where the stages of the two sides do not fit this model, why (frontier X4). */
static kv_rc examine_stages(const kv_tp_spec *s, kv_tp_result *out, kv_tp_hop **hop, kv_err *err)
{
    kv_err why = {0};
    if (s->stage[0] == NULL) return KV_OK;
    const kv_rc rc = kv_tp_hops_new(s->g->layers, s->stage[0], s->n_stages[0], s->stage[1], s->n_stages[1], hop, &why);
    if (rc != KV_OK && rc != KV_EINVAL) return KV_FAIL(err, rc, "%s", why.text);
    if (rc == KV_OK) return KV_OK;
    out->refused = true;
    out->frontier = (int32_t)KV_X4_GEOMETRY_UNREPRESENTABLE;
    snprintf(out->reason, sizeof out->reason, "%.300s", why.text);
    return KV_OK;
}

/* The unit of the two sides, and whether one of them caches a latent and the other does not. */
static kv_rc examine_pair(const kv_tp_spec *s, kv_tp_result *out, kv_err *err)
{
    kv_layout_frontier frontier = KV_X_NONE;
    out->unit_layers = 1;
    if (s->content != NULL) return KV_OK;
    out->unit_layers = kv_pair_unit_layers(s->layout[0], s->layout[1], s->g);
    const kv_rc rc = kv_pair_frontier(s->layout[0], s->layout[1], s->g, &frontier, out->reason, err);
    out->refused = rc == KV_OK && frontier == KV_X1_LATENT_KV;
    if (out->refused)
        out->frontier = (int32_t)frontier;
    else
        out->reason[0] = '\0'; /* any other frontier is asked of the shards, not of the wholes */
    return rc;
}

kv_rc kv_tp_examine(const kv_tp_spec *s, kv_tp_result *out, kv_err *err)
{
    kv_index ix[2];
    kv_tp_hop *hop = NULL;
    kv_rc rc;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < KV_TP_OBS; i++) out->observed[i] = KV_TP_NULL;
    KV_TRY(rc, out, check_spec(s, err));
    out->ranks = kv_tp_group_ranks(kv_tp_side_ranks(s, 0), kv_tp_side_ranks(s, 1));
    out->layers = s->g->layers;
    KV_TRY(rc, out, examine_pair(s, out, err));
    if (out->refused) goto out;
    for (int i = 0; i < 2 && !out->refused; i++) KV_TRY(rc, out, examine_side(s, i, out, &ix[i], err));
    if (!out->refused) KV_TRY(rc, out, examine_stages(s, out, &hop, err));
    if (out->refused)
        memset(out->native_bytes, 0, sizeof out->native_bytes);
    else
        least_bytes(s, ix, hop, out);
out:
    kv_free(hop);
    return rc;
}

/* ---- what a rank works with -------------------------------------------------------------- */

static kv_rc open_side(kv_tp_work *w, int i, kv_err *err)
{
    kv_tp_side *side = &w->side[i];
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    kv_rc rc;
    const int64_t shard = w->t->rank % w->s->tp[i]; /* the same in every stage */
    side->has = side->here = w->t->rank < kv_tp_side_ranks(w->s, i);
    if (!side->has) return KV_OK;
    KV_TRY(rc, out, kv_tp_bind(w->s, i, shard, false, w->unit, &side->ix, &state, reason, err));
    KV_TRY(rc, out, kv_tp_bind(w->s, i, shard, true, w->unit, &side->stored, &state, reason, err));
    kv_tp_wire_index(&side->ix, w->element, &side->wire);
    w->row_bytes = (side->ix.lanes[0] + side->ix.lanes[1]) * kv_elem_bytes((kv_elem)w->element);
    KV_TRY(rc, out, KV_TP_OPS(w)->image_new(w->s->device, kv_index_bytes(&side->ix), &side->image, err));
    KV_TRY(rc, out, KV_TP_OPS(w)->image_new(w->s->device, kv_index_bytes(&side->wire), &side->packed, err));
    if (side->packed->host == w->t->ops->gpu)
        KV_TRY(rc, out, w->t->ops->buffer_new(w->t, kv_index_bytes(&side->wire), &side->staged, err));
out:
    return rc;
}

/* Room for an image of either side, and for one layer in canonical order (the decode's scratch). */
static int64_t third_bytes(const kv_tp_work *w)
{
    int64_t most = 0;
    for (int i = 0; i < 2; i++) {
        const kv_index *ix = &w->side[i].ix;
        if (!w->side[i].has) continue;
        const int64_t widest = kv_elem_bytes(w->s->g->element) > kv_elem_bytes((kv_elem)ix->element)
                                   ? kv_elem_bytes(w->s->g->element)
                                   : kv_elem_bytes((kv_elem)ix->element);
        const int64_t layer = ix->elements / ix->layers * widest, image = kv_index_bytes(ix);
        if (image > most) most = image;
        if (layer > most) most = layer;
    }
    return most;
}

kv_rc kv_tp_open_work(kv_tp_work *w, const kv_tp_spec *s, const kv_tp_result *found, kv_err *err)
{
    const kv_elem e[2] = {kv_tp_side_element(s, 0), kv_tp_side_element(s, 1)};
    kv_rc rc;
    memset(w, 0, sizeof *w);
    w->s = s;
    w->t = s->transport;
    w->hash = s->hash != NULL ? s->hash : &kv_tp_hash_fnv;
    w->unit = found->unit_layers;
    w->element = (int32_t)(kv_elem_bytes(e[1]) < kv_elem_bytes(e[0]) ? e[1] : e[0]);
    w->notes = kv_alloc((size_t)found->ranks, 1024 + (size_t)found->ranks * sizeof(kv_tp_header));
    if (w->notes == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " ranks", found->ranks);
    KV_TRY(rc, out, kv_tp_stages_open(w, err));
    for (int i = 0; i < 2; i++) {
        const int64_t block = s->content != NULL ? 0 : s->layout[i]->block; /* of bytes: each token is a page */
        KV_TRY(rc, out,
               kv_tp_rounds_new(s->send, w->unit, s->g->tokens, block, s->chunk, s->n_chunks, &w->round[i],
                                &w->n_rounds[i], err));
        KV_TRY(rc, out, open_side(w, i, err));
    }
    KV_TRY(rc, out, KV_TP_OPS(w)->image_new(s->device, third_bytes(w), &w->third, err));
    if (w->side[0].has) KV_TRY(rc, out, KV_TP_OPS(w)->diffset_new(s->device, &w->side[0].stored, &w->diffs, err));
out:
    return rc;
}

void kv_tp_close_work(kv_tp_work *w)
{
    kv_tp_stages_close(w);
    for (int i = 0; i < 2; i++) {
        kv_tp_side *side = &w->side[i];
        kv_free(w->round[i]);
        KV_TP_OPS(w)->image_free(w->s->device, side->image);
        if (w->t->lost_buffers) continue; /* bytes may still arrive in them */
        KV_TP_OPS(w)->image_free(w->s->device, side->packed);
        if (side->staged != NULL) w->t->ops->buffer_free(w->t, side->staged);
    }
    if (w->diffs != NULL) KV_TP_OPS(w)->diffset_free(w->s->device, w->diffs);
    KV_TP_OPS(w)->image_free(w->s->device, w->third);
    if (!w->t->lost_buffers) kv_free(w->notes);
}
