#include "grid/cell/kv_cell_plan.h"

#include <inttypes.h>

#include "grid/cell/kv_cell_windows.h"
#include "grid/cell/kv_codec_cell.h"
#include "grid/cell/kv_move_cell.h"
#include "grid/cell/kv_shard_cell.h"
#include "grid/cell/kv_study_cell.h"

/* Nanoseconds of one core, fitted to the processor time of 5,930 cells of a sweep (docs/scheduling.md). */
#define NS_PROBE 40   /* a position, probed */
#define NS_PAYLOAD 5  /* a position, one payload built, moved, compared and moved back */
#define NS_CONVERT 26 /* the same between element types */
#define NS_DECODE 4   /* an element, decoded */
#define NS_CELL 20000 /* a cell, however small, refused ones too: its row is made, sent and written down */
#define NS_ROUND 4000 /* a payload of a unit, however small */

/* In one piece, and in the smallest windows. */
static kv_rc plan_memory(const kv_layout *const side[2], const kv_geometry *g, const kv_windows *whole, kv_cell_need *n,
                         kv_err *err)
{
    const int64_t step = kv_windows_step(whole);
    kv_windows w = *whole;
    kv_windows_need need, least;
    bool splits = false;
    if (!kv_windows_bytes(whole, g, &need))
        return KV_FAIL(err, KV_EINVAL, "%s to %s: the memory it needs does not fit 64 bits", side[0]->name,
                       side[1]->name);
    const kv_rc rc = step > 0 ? kv_windows_cut(side, g, step, &w, &splits, err) : KV_OK;
    if (rc != KV_OK) return rc;
    if (!splits || !kv_windows_bytes(&w, g, &least)) least = need;
    n->peak_bytes = need.host;
    n->least_bytes = least.host < need.host ? least.host : need.host;
    n->gpu_bytes = need.gpu;
    n->gpu_least_bytes = least.gpu < need.gpu ? least.gpu : need.gpu;
    return KV_OK;
}

/* What work it is: payloads of all units, probe and token leg. */
static void plan_work(const kv_campaign *c, const kv_geometry *g, const kv_windows *whole, kv_cell_need *n)
{
    const kv_index *s = &whole->whole[0], *t = &whole->whole[1];
    const double units = (double)(g->layers / s->layers), payloads = kv_campaign_payloads(c, g);
    const double positions = (double)s->native + (double)t->native;
    const double moved = units * payloads * 3.0 * ((double)kv_index_bytes(s) + (double)kv_index_bytes(t));
    const double move_ns = s->element != t->element ? NS_CONVERT : NS_PAYLOAD;
    const double ns = positions * NS_PROBE + units * payloads * (positions * move_ns + NS_ROUND) +
                      units * (double)t->elements * NS_DECODE;
    n->moved_bytes = moved < 9e18 ? (int64_t)moved : INT64_MAX;
    n->cost += ns < 9e18 ? (uint64_t)ns : (uint64_t)9e18;
    for (int i = 0; i < 2; i++) {
        n->positions[i] = whole->whole[i].native;
        n->bytes[i] = kv_index_bytes(&whole->whole[i]);
    }
}

static kv_rc plan_pair(const kv_campaign *c, const kv_cell *at, const kv_geometry *g, kv_cell_need *out, kv_err *err)
{
    const kv_layout *side[2] = {c->catalogue.item[at->src], c->catalogue.item[at->dst]};
    kv_cell_need n = {.cost = NS_CELL};
    kv_layout_frontier frontier;
    char reason[KV_REASON_TEXT];
    kv_windows whole;
    kv_rc rc;
    KV_TRY(rc, out, kv_pair_frontier(side[0], side[1], g, &frontier, reason, err));
    n.runs = frontier == KV_X_NONE;
    if (n.runs) {
        KV_TRY(rc, out, kv_windows_one(side, g, kv_pair_unit_layers(side[0], side[1], g), &whole, err));
        KV_TRY(rc, out, plan_memory(side, g, &whole, &n, err));
        plan_work(c, g, &whole, &n);
    }
    *out = n;
out:
    return rc;
}

kv_rc kv_cell_split_of(const kv_campaign *c, int64_t cell, int64_t limit, bool gpu, kv_cell_split *out, kv_err *err)
{
    const kv_cell *at = &c->cells[cell];
    const kv_geometry *g = &c->geometries[at->geometry];
    kv_windows w = {.count = 1, .tokens = g->tokens};
    kv_rc rc = KV_OK;
    if (at->check == KV_CHECK_PAIR) {
        const kv_layout *side[2] = {c->catalogue.item[at->src], c->catalogue.item[at->dst]};
        KV_TRY(rc, out, kv_windows_one(side, g, kv_pair_unit_layers(side[0], side[1], g), &w, err));
        KV_TRY(rc, out, kv_windows_fit(side, g, limit, gpu, &w, err));
    }
    *out = (kv_cell_split){w.count, w.tokens};
out:
    return rc;
}

kv_rc kv_cell_plan(const kv_campaign *c, int64_t cell, kv_cell_need *out, kv_err *err)
{
    const kv_cell *at = &c->cells[cell];
    const kv_geometry *g = &c->geometries[at->geometry];
    if (at->check == KV_CHECK_PAIR) return plan_pair(c, at, g, out, err);
    if (at->check == KV_CHECK_TP) return kv_shard_cell_plan(c, kv_cell_shard_point(c, at), g, out, err);
    if (at->check == KV_CHECK_ATTRIBUTION) {
        const kv_study_point p = kv_cell_study_point(c, at);
        return kv_study_cell_plan(c, &p, g, out, err);
    }
    if (at->check == KV_CHECK_CODEC) {
        const kv_codec_point p = kv_codec_point_at(&c->codec, (size_t)at->src);
        return kv_codec_cell_plan(&c->codec, &p, g, out, err);
    }
    const kv_move_point p = kv_move_point_at(&c->codec, (size_t)at->src);
    return kv_move_cell_plan(&c->codec, &p, g, out, err);
}
