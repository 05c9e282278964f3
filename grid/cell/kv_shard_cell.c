#include "grid/cell/kv_shard_cell.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/cell/kv_fault.h"
#include "grid/cell/kv_shard_move.h"
#include "kernels/kv_kern_token.h"

#define PLAY_TIMEOUT_S 3600.0 /* threads of one process: only a fault makes one wait so long */

/* ---- rows -------------------------------------------------------------------------------- */

static void take_result(const kv_shard_move *m, const kv_tp_result *r, kv_row *row)
{
    row->ran = true;
    row->has_tp = true;
    memcpy(row->observed, r->observed, sizeof row->observed);
    memcpy(row->native_bytes, r->native_bytes, sizeof row->native_bytes);
    row->unit_layers = r->unit_layers;
    row->layers = r->layers;
    row->source_checked = r->checked[0];
    row->source_total = r->total[0];
    row->source_bijective = r->bijective[0];
    row->source_padding = r->padding[0];
    row->checked = r->checked[1];
    row->total = r->total[1];
    row->dest_bijective = r->bijective[1];
    row->dest_padding = r->padding[1];
    row->unread_padding = r->unread_padding;
    row->diff_positions = r->diff_positions;
    row->gather_payloads = r->payloads;
    row->gather_agrees = r->gather_agrees;
    row->converts = r->converts;
    row->values_preserved = r->values_preserved;
    row->finite = r->finite;
    row->worst_ppm = r->worst_ppm;
    memcpy(row->decoded, r->decoded, sizeof row->decoded);
    memcpy(row->reference, r->reference, sizeof row->reference);
    kv_hex_encode(r->logits_digest, KV_HASH_BYTES, row->logits_digest);
    kv_hex_encode(r->reference_digest, KV_HASH_BYTES, row->reference_digest);
    memcpy(row->tp.wire, r->sent_total, sizeof row->tp.wire);
    memcpy(row->tp.least, r->least_total, sizeof row->tp.least);
    row->tp.minimal = r->minimal;
    row->tp.rounds = r->rounds;
    row->verdict = (int32_t)kv_grade(false, r->converts != 0, m->g->tokens == 0, row->observed);
}

static void refuse(kv_row *row, int32_t frontier, const char *reason)
{
    row->frontier = frontier;
    row->verdict = KV_VERDICT_REFUSED;
    snprintf(row->reason, sizeof row->reason, "%s", reason);
}

/* X2, shown: two whole caches with one and the same shard. */
static kv_rc witness(kv_device *dev, const kv_shard_move *m, kv_row *row, kv_err *err)
{
    const kv_geometry *g = m->spec.g;
    kv_tp_witness w;
    char reason[KV_REASON_TEXT];
    const kv_rc rc = m->side[0] == NULL ? kv_tp_witness_pages(dev, m->name[0], m->p->from, 0, g, m->spec.seed, &w, err)
                                        : kv_tp_witness_show(dev, m->side[0], m->p->from, 0, m->side[1], g,
                                                             m->spec.seed, m->spec.fill[1], &w, err);
    if (rc != KV_OK) return rc;
    if (w.shard_differs != 0 || (w.whole_differs == 0 && g->tokens > 0))
        return KV_FAIL(err, KV_EBUG, "two whole caches of %s with one shard of %s were not shown", m->name[1],
                       m->name[0]);
    snprintf(reason, sizeof reason,
             "%s: one rank of %" PRId32 " holds %" PRId64 " of %" PRId64
             " kv heads; two caches of %s that differ at %" PRId64 " of %" PRId64 " positions have the same shard",
             m->name[0], m->p->from, w.heads, w.of_heads, m->name[1], w.whole_differs, w.positions[0]);
    refuse(row, KV_X2_HEAD_GATHER, reason);
    row->has_tp = true;
    row->tp.heads = w.heads;
    row->tp.of_heads = w.of_heads;
    row->tp.whole_positions = w.positions[0];
    row->tp.shard_positions = w.positions[1];
    row->tp.whole_differs = w.whole_differs;
    row->tp.shard_differs = w.shard_differs;
    return KV_OK;
}

/* ---- a rank ------------------------------------------------------------------------------ */

/* The move on one rank; with sealed pages, those that it holds. */
static kv_rc move_rank(const kv_shard_move *m, kv_tp_transport *t, kv_device *dev, kv_tp_result *out, kv_err *err)
{
    kv_tp_spec s = m->spec;
    kv_tp_content content;
    kv_shard_pages *pages = NULL;
    kv_err why = {0};
    kv_rc rc = KV_OK;
    s.transport = t;
    s.device = dev;
    if (m->side[0] == NULL) {
        rc = kv_shard_pages_new(m->name[0], &m->shape, m->g, s.seed, &pages, &content, &why);
        rc = kv_tp_agree(t, rc, &why); /* a rank without memory must not leave the others waiting */
        s.content = &content;
        if (rc != KV_OK) (void)KV_FAIL(err, rc, "%s", why.text);
    }
    if (rc == KV_OK) rc = kv_tp_move(&s, out, err);
    kv_shard_pages_free(pages);
    return rc;
}

/* ---- one process plays all ranks --------------------------------------------------------- */

typedef struct {
    const kv_shard_move *m;
    kv_device *dev;       /* of a cell of one rank */
    kv_tp_result *result; /* of rank 0; all have the same */
} game;

static kv_rc play_rank(void *ctx, kv_tp_transport *t, kv_err *err)
{
    const game *y = ctx;
    kv_tp_result own;
    kv_device *dev = y->dev;
    kv_rc rc = dev != NULL ? KV_OK : kv_device_cpu_new(&dev, err);
    if (rc != KV_OK) {
        kv_tp_abort(t, rc, "no device");
        return rc;
    }
    rc = move_rank(y->m, t, dev, t->rank == 0 ? y->result : &own, err);
    if (y->dev == NULL) dev->ops->close(dev);
    return rc;
}

kv_rc kv_shard_cell_run(kv_runner *r, const kv_campaign *c, const kv_shard_point *p, const kv_geometry *g, kv_row *row,
                        kv_err *err)
{
    kv_shard_move m;
    kv_tp_result found;
    kv_rc rc;
    KV_TRY(rc, out, kv_shard_move_make(c, p, g, &m, err));
    row->words = kv_shard_point_words(c, m.p, m.g);
    KV_TRY(rc, out, kv_shard_move_examine(&m, &found, err));
    if (found.refused) {
        refuse(row, found.frontier, found.reason);
        goto out;
    }
    if (m.one) {
        rc = witness(r->dev, &m, row, err);
        goto out;
    }
    KV_TRY(rc, out, kv_shard_move_cut(&m, err));
    game y = {&m, found.ranks == 1 ? r->dev : NULL, &found};
    KV_TRY(rc, out, kv_tp_play((int32_t)found.ranks, PLAY_TIMEOUT_S, play_rank, &y, err));
    take_result(&m, &found, row);
out:
    kv_shard_move_free(&m);
    return rc;
}

/* ---- real ranks -------------------------------------------------------------------------- */

static void blank(int64_t cell, kv_row *row)
{
    memset(row, 0, sizeof *row);
    row->cell = cell;
    row->error_class = -1;
    for (int i = 0; i < KV_OBS_COUNT; i++) row->observed[i] = KV_NULL;
}

static kv_rc planted(void *ctx, kv_tp_point point, kv_err *err)
{
    const kv_tp_transport *t = ctx;
    return kv_fault_step(t->world[t->rank], point == KV_TP_AT_PAYLOAD, err);
}

/* A failure that all ranks know of and none is lost by: of which kind, and where. */
static void fail(const kv_tp_transport *t, kv_rc rc, const kv_err *why, kv_row *row)
{
    const bool elsewhere = rc == KV_EPEER && t->failed_rc != KV_OK;
    kv_cell_mark_failed(row, elsewhere ? t->failed_rc : rc, why);
    snprintf(row->failed_at, sizeof row->failed_at, "%" PRId32, t->failed_rc != KV_OK ? t->failed_rank : t->world[0]);
}

kv_rc kv_shard_cell_group(kv_runner *r, const kv_campaign *c, int64_t cell, kv_tp_transport *t, kv_row *row,
                          kv_err *err)
{
    const kv_cell *at = &c->cells[cell];
    kv_err why = {0};
    kv_tp_result found;
    kv_shard_move m = {.chunk = NULL};
    blank(cell, row);
    t->failed_rc = KV_OK;
    kv_rc rc = kv_shard_move_make(c, kv_cell_shard_point(c, at), &c->geometries[at->geometry], &m, &why);
    if (rc == KV_OK) rc = kv_shard_move_cut(&m, &why);
    const kv_rc made = kv_tp_agree(t, rc, &why); /* a rank without memory must not leave the others waiting */
    if (made == KV_OK) {
        row->words = kv_shard_point_words(c, m.p, m.g);
        m.spec.fault = planted;
        m.spec.fault_ctx = t;
        rc = move_rank(&m, t, r->dev, &found, &why);
    } else {
        rc = made;
    }
    if (rc == KV_OK) take_result(&m, &found, row);
    kv_shard_move_free(&m);
    if (rc == KV_OK) return KV_OK;
    if (t->broken) return KV_FAIL(err, rc, "%s", why.text);
    fail(t, rc, &why, row);
    return KV_OK;
}

kv_rc kv_shard_cell_ranks(const kv_campaign *c, int64_t cell, int64_t *out, kv_err *err)
{
    const kv_cell *at = &c->cells[cell];
    kv_tp_result found;
    kv_shard_move m;
    *out = 1;
    if (at->check != KV_CHECK_TP) return KV_OK;
    const kv_shard_point *p = kv_cell_shard_point(c, at);
    if (kv_shard_point_ranks(p) == 1) return KV_OK;
    kv_rc rc = kv_shard_move_make(c, p, &c->geometries[at->geometry], &m, err);
    if (rc == KV_OK) rc = kv_shard_move_examine(&m, &found, err);
    if (rc == KV_OK && !found.refused) *out = found.ranks;
    kv_shard_move_free(&m);
    return rc;
}

void kv_shard_cell_unproven(const kv_campaign *c, int64_t cell, kv_row *row)
{
    const kv_cell *at = &c->cells[cell];
    const kv_shard_point *p = kv_cell_shard_point(c, at);
    blank(cell, row);
    row->words = kv_shard_point_words(c, p, &c->geometries[at->geometry]);
    row->verdict = KV_VERDICT_UNPROVEN;
}

/* ---- planning ---------------------------------------------------------------------------- */

#define NS_POSITION 120 /* probed, and moved with six payloads, packed and unpacked */
#define NS_RANK 2000000 /* ranks meet several times a payload */
#define NS_ROUND 20000  /* they tell each other what they send, in each way of a payload */
#define NS_VALUE 1000   /* of sealed pages: sealed on both sides, read back, decoded from */

/* From what the images of all ranks that one process plays take: with the token leg, and on a GPU. */
static kv_rc plan_devices(const kv_geometry *g, int64_t shares, int64_t image, kv_cell_need *n, kv_err *err)
{
    int64_t leg, legs;
    if (!kv_token_bytes(g->tokens, g->kv_heads, g->head_dim, g->head_dim_v, &leg) || !kv_mul_i64(leg, shares, &legs) ||
        !kv_add_i64(n->peak_bytes, legs, &n->peak_bytes))
        return KV_FAIL(err, KV_EINVAL, "the memory it needs does not fit 64 bits");
    n->least_bytes = n->peak_bytes;
    if (shares > 1) { /* ranks that are played compute on the CPU */
        n->gpu_host_bytes = n->peak_bytes;
        return KV_OK;
    }
    n->gpu_bytes = n->gpu_least_bytes = n->peak_bytes - n->gpu_host_bytes;
    n->gpu_host_bytes += 2 * image; /* shards on their way where the transport knows no GPU */
    return KV_OK;
}

kv_rc kv_shard_cell_plan(const kv_campaign *c, const kv_shard_point *p, const kv_geometry *g, kv_cell_need *out,
                         kv_err *err)
{
    kv_tp_result found;
    kv_shard_move m;
    memset(out, 0, sizeof *out);
    kv_rc rc = kv_shard_move_make(c, p, g, &m, err);
    if (rc == KV_OK) rc = kv_shard_move_examine(&m, &found, err);
    if (rc != KV_OK || found.refused) goto out;
    int64_t image = 0, all = 0;
    for (int i = 0; i < 2; i++) {
        out->bytes[i] = found.native_bytes[i] / m.spec.tp[i];
        out->positions[i] = out->bytes[i] / (m.side[i] != NULL ? kv_elem_bytes(kv_layout_element(m.side[i], g)) : 1);
        if (out->bytes[i] > image) image = out->bytes[i];
        if (!kv_add_i64(all, found.native_bytes[i], &all)) all = INT64_MAX / 64;
    }
    out->runs = !m.one;
    /* both images and both packed, the third, and room for a type that is up to four times as wide */
    const int64_t shares = c->tp.emulate ? found.ranks : 1;
    if (!kv_mul_i64(image, 8 * shares, &out->peak_bytes)) {
        rc = KV_FAIL(err, KV_EINVAL, "%s to %s: the memory it needs does not fit 64 bits", m.name[0], m.name[1]);
        goto out;
    }
    double values = 0;
    if (m.side[0] == NULL) { /* and the values of a layer: as made up, sealed, read back, in the token leg */
        const int64_t each = m.shape.blocks * m.shape.block * g->kv_heads * (g->head_dim + g->head_dim_v);
        values = (double)each * (double)g->layers;
        if (each > (INT64_MAX - out->peak_bytes) / (24 * shares)) {
            rc = KV_FAIL(err, KV_EINVAL, "%s: the memory it needs does not fit 64 bits", m.name[0]);
            goto out;
        }
        out->peak_bytes += 24 * shares * each;
        out->gpu_host_bytes = 24 * each;
    }
    rc = plan_devices(g, shares, image, out, err);
    if (rc != KV_OK) goto out;
    const double units = (double)(found.layers / found.unit_layers), payloads = m.spec.payloads;
    const double moved = units * payloads * 6.0 * (double)all;
    const double rounds = p->send == KV_SHARD_CHUNKS   ? (double)g->tokens / (double)c->tp.chunk
                          : p->send == KV_SHARD_LAYERS ? (double)found.unit_layers
                                                       : 1.0;
    const double ns = units * payloads * (double)all * NS_POSITION / 6 + (double)found.ranks * NS_RANK +
                      units * payloads * rounds * (double)found.ranks * 2 * NS_ROUND + values * NS_VALUE;
    out->moved_bytes = moved < 9e18 ? (int64_t)moved : INT64_MAX;
    out->cost = ns < 9e18 ? (uint64_t)ns : (uint64_t)9e18;
out:
    kv_shard_move_free(&m);
    return rc;
}
