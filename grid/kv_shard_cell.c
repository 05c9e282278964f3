#include "grid/kv_shard_cell.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/kv_fault.h"
#include "grid/kv_shard_pages.h"
#include "tp/kv_tp.h"
#include "tp/kv_tp_move.h"
#include "tp/kv_tp_shard_index.h"

#define PAGES_MOST ((int64_t)1 << 47) /* bytes of sealed pages: a certificate can say 64 copies of them */
#define PLAY_TIMEOUT_S 3600.0         /* threads of one process: only a fault makes one wait so long */

/* ---- BLAKE2b for the digests ------------------------------------------------------------- */

_Static_assert(sizeof(kv_hash) <= sizeof(kv_tp_hash_state), "a hash's state has room");

static void hash_begin(void *state)
{
    kv_hash_init(state);
}

static void hash_update(void *state, const void *bytes, size_t n)
{
    kv_hash_update(state, bytes, n);
}

static void hash_end(void *state, uint8_t digest[KV_TP_DIGEST_BYTES])
{
    kv_hash_final(state, digest);
}

static const kv_tp_hash blake2b = {hash_begin, hash_update, hash_end};

/* ---- what the cell is -------------------------------------------------------------------- */

/* A cell's move: the spec without transport and device. */
typedef struct {
    const kv_campaign *c;
    const kv_shard_point *p;
    const kv_geometry *g;
    const kv_layout *side[2]; /* NULL: sealed pages */
    const char *name[2];
    kv_tp_spec spec;
    int64_t *chunk;
    int64_t heads; /* that are split over ranks: 1 of a latent cache */
    bool one;      /* a shard alone that is not the whole: X2 */
    /* of sealed pages */
    kv_sealed_shape shape;
    kv_geometry paged;     /* as what is moved */
    kv_tp_content content; /* without what a rank has of its own */
    /* of pipeline stages */
    kv_tp_stage *stage[2];
    int64_t *ids[2];
    char absent[KV_REASON_TEXT]; /* why a side does not exist at this geometry, with its name, or "" */
} move;                          /* points into itself */

static const kv_layout *stored_of(const kv_campaign *c, int32_t layout)
{
    const int32_t real = c->tp.stored[layout];
    return real >= 0 ? c->catalogue.item[real] : NULL;
}

/* Chunks of tokens as they arrive; of sealed pages, the pages that each chunk completes. */
static kv_rc make_chunks(move *m, kv_err *err)
{
    const int64_t chunk = m->c->tp.chunk, tokens = m->g->tokens, n = (tokens + chunk - 1) / chunk;
    const int64_t page = m->side[0] == NULL ? m->shape.block : 1;
    int64_t sent = 0;
    m->spec.send = KV_TP_SEND_CHUNKS;
    m->chunk = kv_alloc((size_t)n + 1, sizeof *m->chunk);
    if (m->chunk == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " chunks", n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t here = (i + 1 < n ? (i + 1) * chunk : tokens) / page;
        if (here > sent) m->chunk[m->spec.n_chunks++] = here - sent;
        sent = here;
    }
    m->spec.chunk = m->chunk;
    return KV_OK;
}

/* Layouts, with their tails. */
static void set_layouts(move *m)
{
    const kv_campaign *c = m->c;
    const kv_shard_point *p = m->p;
    const kv_geometry *g = m->g;
    const kv_layout *a = c->catalogue.item[p->src], *b = c->catalogue.item[p->dst];
    const kv_elem ea = kv_layout_element(a, g), eb = kv_layout_element(b, g);
    kv_tail tail = c->tails[0];
    for (size_t i = 1; i < c->n_tails; i++) /* as kv_cells_expand gives the cells of this check */
        if (strcmp(kv_tail_name(c->tails[i]), kv_tail_name(tail)) < 0) tail = c->tails[i];
    m->side[0] = a;
    m->side[1] = b;
    if (a->store == KV_STORE_LATENT) m->heads = 1;
    m->spec = (kv_tp_spec){.layout = {a, b},
                           .stored = {stored_of(c, p->src), stored_of(c, p->dst)},
                           .tp = {p->from, p->to},
                           .g = g,
                           .seed = c->seed,
                           .stale = kv_tail_stale_bits(tail, ea),
                           .fill = {kv_tail_fill_bits(tail, ea), kv_tail_fill_bits(tail, eb)},
                           .payloads = kv_campaign_payloads(c, g),
                           .exhaustive = c->exhaustive,
                           .hash = &blake2b};
}

static void set_absent(move *m, int side, const char *reason)
{
    snprintf(m->absent, sizeof m->absent, "%.60s: %.240s", m->name[side], reason);
}

/* Sealed pages: bytes, without tails. */
static kv_rc set_pages(move *m, kv_err *err)
{
    const kv_campaign *c = m->c;
    char reason[KV_REASON_TEXT];
    const kv_rc rc = kv_sealed_shape_of((kv_store_method)m->p->recipe, c->tp.block, m->g, &m->shape, reason, err);
    int64_t bytes = 0;
    if (rc == KV_OK && reason[0] != '\0') set_absent(m, 0, reason);
    if (rc != KV_OK || reason[0] != '\0') return rc;
    if (!kv_mul_i64(m->shape.blocks * m->g->kv_heads, m->shape.slot[0] + m->shape.slot[1], &bytes) ||
        !kv_mul_i64(bytes, m->g->layers, &bytes) || bytes >= PAGES_MOST)
        return KV_FAIL(err, KV_EFORMAT, "%s: more than 2^47 bytes of sealed pages; make the geometry smaller",
                       m->name[0]);
    m->paged = kv_shard_pages_geometry(&m->shape, m->g);
    m->content.name = m->name[0];
    m->spec = (kv_tp_spec){.content = &m->content,
                           .tp = {m->p->from, m->p->to},
                           .g = &m->paged,
                           .seed = c->seed,
                           .payloads = KV_CERT_PAYLOADS,
                           .hash = &blake2b};
    return KV_OK;
}

static kv_rc set_stages(move *m, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (int i = 0; rc == KV_OK && m->p->split[0] != NULL && m->absent[0] == '\0' && i < 2; i++) {
        char reason[KV_REASON_TEXT];
        rc = kv_shard_split_bind(m->p->split[i], m->g->layers, &m->stage[i], &m->ids[i], reason, err);
        if (rc == KV_OK && reason[0] != '\0') set_absent(m, i, reason);
        m->spec.stage[i] = m->stage[i];
        m->spec.n_stages[i] = (size_t)m->p->split[i]->stages;
    }
    return rc;
}

static void free_move(move *m)
{
    kv_free(m->chunk);
    for (int i = 0; i < 2; i++) {
        kv_free(m->stage[i]);
        kv_free(m->ids[i]);
    }
}

static kv_rc make_move(const kv_campaign *c, const kv_shard_point *p, const kv_geometry *g, move *m, kv_err *err)
{
    kv_rc rc = KV_OK;
    *m = (move){.c = c, .p = p, .g = g, .heads = g->kv_heads};
    for (int i = 0; i < 2; i++) m->name[i] = kv_shard_point_side(p, &c->catalogue, i);
    if (p->recipe >= 0)
        rc = set_pages(m, err);
    else
        set_layouts(m);
    if (rc == KV_OK) rc = set_stages(m, err);
    if (rc != KV_OK || m->absent[0] != '\0') return rc;
    if (p->send == KV_SHARD_LAYERS) m->spec.send = KV_TP_SEND_LAYERS;
    return p->send == KV_SHARD_CHUNKS ? make_chunks(m, err) : KV_OK;
}

/* Whether the move exists. A shard alone that is the whole moves on one rank; else *m becomes one that shows why not. */
static kv_rc examine(move *m, kv_tp_result *found, kv_err *err)
{
    kv_rc rc = KV_OK;
    if (m->absent[0] != '\0' && m->side[0] != NULL) { /* stages come last: without them, is there something else? */
        m->spec.stage[0] = m->spec.stage[1] = NULL;
        rc = kv_tp_examine(&m->spec, found, err);
        if (rc != KV_OK || found->refused) return rc;
    }
    if (m->absent[0] != '\0') {
        memset(found, 0, sizeof *found);
        found->refused = true;
        found->frontier = (int32_t)KV_X4_GEOMETRY_UNREPRESENTABLE;
        memcpy(found->reason, m->absent, sizeof found->reason);
        return KV_OK;
    }
    rc = kv_tp_examine(&m->spec, found, err);
    if (rc != KV_OK || found->refused || m->p->send != KV_SHARD_ONE) return rc;
    m->one = kv_tp_shard_heads(m->heads, m->p->from) != m->heads;
    m->spec.tp[0] = 1;
    return kv_tp_examine(&m->spec, found, err);
}

/* Words of the wholes, and what the sizes add: a shard that holds other heads is resharded, copies come or go. */
static uint32_t words_of(const move *m)
{
    const uint32_t view = (uint32_t)1 << KV_W_VIEW_REINTERPRET;
    int64_t p = m->p->from;
    const int64_t q = m->p->to;
    uint32_t words = m->side[0] != NULL ? kv_pair_words(m->side[0], m->side[1], m->g) : view, more = 0;
    if (words == 0 || !kv_tp_shard_exists(m->heads, p) || !kv_tp_shard_exists(m->heads, q)) return 0;
    if (m->p->send == KV_SHARD_ONE && kv_tp_shard_heads(m->heads, p) != m->heads) return 0;
    if (m->p->send == KV_SHARD_ONE) p = 1;
    if (kv_tp_shard_heads(m->heads, p) != kv_tp_shard_heads(m->heads, q)) more |= (uint32_t)1 << KV_W_TP_RESHARD;
    if (q > m->heads) more |= (uint32_t)1 << KV_W_HEAD_REPLICATE;
    if (p > m->heads) more |= (uint32_t)1 << KV_W_HEAD_DEDUPE;
    if (m->p->split[0] != NULL && kv_shard_split_differ(m->p->split[0], m->p->split[1], m->g->layers))
        more |= (uint32_t)1 << KV_W_PP_RESHARD;
    return (more != 0 ? words & ~view : words) | more;
}

/* ---- rows -------------------------------------------------------------------------------- */

static void take_result(const move *m, const kv_tp_result *r, kv_row *row)
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
static kv_rc witness(kv_device *dev, const move *m, kv_row *row, kv_err *err)
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
static kv_rc move_rank(const move *m, kv_tp_transport *t, kv_device *dev, kv_tp_result *out, kv_err *err)
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
    const move *m;
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
    move m;
    kv_tp_result found;
    kv_rc rc;
    KV_TRY(rc, out, make_move(c, p, g, &m, err));
    row->words = words_of(&m);
    KV_TRY(rc, out, examine(&m, &found, err));
    if (found.refused) {
        refuse(row, found.frontier, found.reason);
        goto out;
    }
    if (m.one) {
        rc = witness(r->dev, &m, row, err);
        goto out;
    }
    game y = {&m, found.ranks == 1 ? r->dev : NULL, &found};
    KV_TRY(rc, out, kv_tp_play((int32_t)found.ranks, PLAY_TIMEOUT_S, play_rank, &y, err));
    take_result(&m, &found, row);
out:
    free_move(&m);
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
    move m = {.chunk = NULL};
    blank(cell, row);
    t->failed_rc = KV_OK;
    kv_rc rc = make_move(c, kv_cell_shard_point(c, at), &c->geometries[at->geometry], &m, &why);
    const kv_rc made = kv_tp_agree(t, rc, &why); /* a rank without memory must not leave the others waiting */
    if (made == KV_OK) {
        row->words = words_of(&m);
        m.spec.fault = planted;
        m.spec.fault_ctx = t;
        rc = move_rank(&m, t, r->dev, &found, &why);
    } else {
        rc = made;
    }
    if (rc == KV_OK) take_result(&m, &found, row);
    free_move(&m);
    if (rc == KV_OK) return KV_OK;
    if (t->broken) return KV_FAIL(err, rc, "%s", why.text);
    fail(t, rc, &why, row);
    return KV_OK;
}

kv_rc kv_shard_cell_ranks(const kv_campaign *c, int64_t cell, int64_t *out, kv_err *err)
{
    const kv_cell *at = &c->cells[cell];
    kv_tp_result found;
    move m;
    *out = 1;
    if (at->check != KV_CHECK_TP) return KV_OK;
    const kv_shard_point *p = kv_cell_shard_point(c, at);
    if (kv_shard_point_ranks(p) == 1) return KV_OK;
    kv_rc rc = make_move(c, p, &c->geometries[at->geometry], &m, err);
    if (rc == KV_OK) rc = examine(&m, &found, err);
    if (rc == KV_OK && !found.refused) *out = found.ranks;
    free_move(&m);
    return rc;
}

void kv_shard_cell_unproven(const kv_campaign *c, int64_t cell, kv_row *row)
{
    const kv_cell *at = &c->cells[cell];
    const kv_shard_point *p = kv_cell_shard_point(c, at);
    move m = {.c = c, .p = p, .g = &c->geometries[at->geometry], .heads = c->geometries[at->geometry].kv_heads};
    if (p->recipe < 0) set_layouts(&m);
    blank(cell, row);
    row->words = words_of(&m);
    row->verdict = KV_VERDICT_UNPROVEN;
}

/* ---- planning ---------------------------------------------------------------------------- */

#define NS_POSITION 120 /* probed, and moved with six payloads, packed and unpacked */
#define NS_RANK 2000000 /* ranks meet several times a payload */
#define NS_VALUE 1000   /* of sealed pages: sealed on both sides, read back, decoded from */

kv_rc kv_shard_cell_plan(const kv_campaign *c, const kv_shard_point *p, const kv_geometry *g, kv_cell_need *out,
                         kv_err *err)
{
    kv_tp_result found;
    move m;
    memset(out, 0, sizeof *out);
    kv_rc rc = make_move(c, p, g, &m, err);
    if (rc == KV_OK) rc = examine(&m, &found, err);
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
    }
    const double units = (double)(found.layers / found.unit_layers), payloads = m.spec.payloads;
    const double moved = units * payloads * 6.0 * (double)all;
    const double ns =
        units * payloads * (double)all * NS_POSITION / 6 + (double)found.ranks * NS_RANK + values * NS_VALUE;
    out->moved_bytes = moved < 9e18 ? (int64_t)moved : INT64_MAX;
    out->cost = ns < 9e18 ? (uint64_t)ns : (uint64_t)9e18;
out:
    free_move(&m);
    return rc;
}
