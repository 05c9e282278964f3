/* Pipeline stages: where the layer at hand is on either side. */
#include "tp/kv_tp_int.h"

int64_t kv_tp_side_stages(const kv_tp_spec *s, int i)
{
    return s->stage[i] != NULL ? (int64_t)s->n_stages[i] : 1;
}

int64_t kv_tp_side_ranks(const kv_tp_spec *s, int i)
{
    return kv_tp_side_stages(s, i) * s->tp[i];
}

static const kv_tp_between *find(const kv_tp_work *w, int32_t from, int32_t to)
{
    for (size_t k = 0; k < w->n_between; k++)
        if (w->between[k].from == from && w->between[k].to == to) return &w->between[k];
    return NULL;
}

static kv_rc add(kv_tp_work *w, int32_t from, int32_t to, kv_err *err)
{
    const kv_tp_spec *s = w->s;
    const int64_t heads = kv_tp_split_heads(s), there[2] = {from * s->tp[0], to * s->tp[1]},
                  back[2] = {there[1], there[0]};
    kv_tp_between *grown = kv_realloc(w->between, w->n_between + 1, sizeof *grown);
    kv_rc rc;
    if (grown == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a plan between two stages");
    w->between = grown;
    kv_tp_between *b = &grown[w->n_between++];
    *b = (kv_tp_between){.from = from, .to = to};
    KV_TRY(rc, out, kv_tp_plan_between(heads, s->tp[0], s->tp[1], there, &b->plan[0], err));
    KV_TRY(rc, out, kv_tp_plan_between(heads, s->tp[1], s->tp[0], back, &b->plan[1], err));
out:
    return rc;
}

kv_rc kv_tp_stages_open(kv_tp_work *w, kv_err *err)
{
    const kv_tp_spec *s = w->s;
    kv_rc rc = KV_OK;
    if (s->stage[0] == NULL) {
        KV_TRY(rc, out, add(w, 0, 0, err));
    } else {
        KV_TRY(rc, out,
               kv_tp_hops_new(s->g->layers, s->stage[0], s->n_stages[0], s->stage[1], s->n_stages[1], &w->hop, err));
        for (int64_t l = 0; l < s->g->layers; l++)
            if (find(w, w->hop[l].from, w->hop[l].to) == NULL)
                KV_TRY(rc, out, add(w, w->hop[l].from, w->hop[l].to, err));
    }
    kv_tp_at_layer(w, 0);
out:
    return rc;
}

void kv_tp_stages_close(kv_tp_work *w)
{
    for (size_t k = 0; k < w->n_between; k++)
        for (int i = 0; i < 2; i++) kv_tp_plan_free(&w->between[k].plan[i]);
    kv_free(w->between);
    kv_free(w->hop);
}

void kv_tp_at_layer(kv_tp_work *w, int64_t layer)
{
    const kv_tp_hop *hop = w->hop != NULL ? &w->hop[layer] : NULL;
    for (int i = 0; i < 2; i++) {
        kv_tp_side *side = &w->side[i];
        const int32_t stage = hop == NULL ? 0 : i == 0 ? hop->from : hop->to;
        side->first = stage * w->s->tp[i];
        side->here = w->t->rank >= side->first && w->t->rank < side->first + w->s->tp[i];
        side->layer = layer; /* with stages, the id that stands in the stage's own list */
        if (hop != NULL) side->layer = w->s->stage[i][stage].layer[i == 0 ? hop->from_slot : hop->to_slot];
    }
    w->plan = find(w, hop != NULL ? hop->from : 0, hop != NULL ? hop->to : 0)->plan;
}
