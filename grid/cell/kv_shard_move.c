#include "grid/cell/kv_shard_move.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "certs/kv_cert_names.h"
#include "certs/kv_hash.h"
#include "tp/kv_tp_shard_index.h"

#define PAGES_MOST ((int64_t)1 << 47) /* bytes of sealed pages: a certificate can say 64 copies of them */

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

/* ---- what moves -------------------------------------------------------------------------- */

static const kv_layout *stored_of(const kv_campaign *c, int32_t layout)
{
    const int32_t real = c->tp.stored[layout];
    return real >= 0 ? c->catalogue.item[real] : NULL;
}

kv_rc kv_shard_chunks_new(int64_t tokens, int64_t chunk, int64_t page, int64_t **out, size_t *n, kv_err *err)
{
    const int64_t pages = tokens / page, chunks = tokens / chunk + (tokens % chunk != 0);
    const int64_t rounds =
        chunk <= page ? pages : chunks; /* a chunk completes at most one page, or each one but the last */
    int64_t sent = 0;
    *n = 0;
    *out = kv_alloc((size_t)rounds + 1, sizeof **out);
    if (*out == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " chunks", rounds);
    for (int64_t i = 0; i < rounds; i++) {
        const int64_t here = chunk <= page ? i + 1 : i + 1 < chunks ? (i + 1) * chunk / page : pages;
        if (here > sent) (*out)[(*n)++] = here - sent;
        sent = here;
    }
    return KV_OK;
}

/* Layouts, with their tails. */
static void set_layouts(kv_shard_move *m)
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

static void set_absent(kv_shard_move *m, int side, const char *reason)
{
    snprintf(m->absent, sizeof m->absent, "%.60s: %.240s", m->name[side], reason);
}

/* Sealed pages: bytes, without tails. */
static kv_rc set_pages(kv_shard_move *m, kv_err *err)
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

static void set_stages(kv_shard_move *m)
{
    for (int i = 0; m->p->split[0] != NULL && m->absent[0] == '\0' && i < 2; i++) {
        char reason[KV_REASON_TEXT];
        kv_shard_split_fit(m->p->split[i], m->g->layers, reason);
        if (reason[0] != '\0') set_absent(m, i, reason);
    }
}

void kv_shard_move_free(kv_shard_move *m)
{
    kv_free(m->chunk);
    for (int i = 0; i < 2; i++) {
        kv_free(m->stage[i]);
        kv_free(m->ids[i]);
    }
}

kv_rc kv_shard_move_make(const kv_campaign *c, const kv_shard_point *p, const kv_geometry *g, kv_shard_move *m,
                         kv_err *err)
{
    kv_rc rc = KV_OK;
    *m = (kv_shard_move){.c = c, .p = p, .g = g, .heads = g->kv_heads};
    for (int i = 0; i < 2; i++) m->name[i] = kv_shard_point_side(p, &c->catalogue, i);
    if (p->recipe >= 0)
        rc = set_pages(m, err);
    else
        set_layouts(m);
    if (rc == KV_OK) set_stages(m);
    if (p->send == KV_SHARD_LAYERS) m->spec.send = KV_TP_SEND_LAYERS;
    if (p->send == KV_SHARD_CHUNKS) m->spec.send = KV_TP_SEND_CHUNKS;
    return rc;
}

kv_rc kv_shard_move_cut(kv_shard_move *m, kv_err *err)
{
    kv_rc rc = KV_OK;
    if (m->absent[0] != '\0') return KV_OK;
    for (int i = 0; rc == KV_OK && m->p->split[0] != NULL && i < 2; i++) {
        rc = kv_shard_split_bind(m->p->split[i], m->g->layers, &m->stage[i], &m->ids[i], err);
        m->spec.stage[i] = m->stage[i];
        m->spec.n_stages[i] = (size_t)m->p->split[i]->stages;
    }
    if (rc == KV_OK && m->p->send == KV_SHARD_CHUNKS)
        rc = kv_shard_chunks_new(m->g->tokens, m->c->tp.chunk, m->side[0] == NULL ? m->shape.block : 1, &m->chunk,
                                 &m->spec.n_chunks, err);
    m->spec.chunk = m->chunk;
    return rc;
}

/* What stages change: the number of ranks. That they fit the model is known. */
static kv_rc examine(const kv_shard_move *m, kv_tp_result *found, kv_err *err)
{
    kv_tp_spec plain = m->spec;
    plain.stage[0] = plain.stage[1] = NULL;
    const kv_rc rc = kv_tp_examine(&plain, found, err);
    if (rc != KV_OK || found->refused || m->p->split[0] == NULL) return rc;
    const int64_t a = m->p->split[0]->stages * plain.tp[0], b = m->p->split[1]->stages * plain.tp[1];
    found->ranks = a > b ? a : b;
    return KV_OK;
}

kv_rc kv_shard_move_examine(kv_shard_move *m, kv_tp_result *found, kv_err *err)
{
    memset(found, 0, sizeof *found);
    if (m->absent[0] == '\0' || m->side[0] != NULL) { /* stages come last: without them, is there something else? */
        const kv_rc rc = examine(m, found, err);
        if (rc != KV_OK || found->refused) return rc;
    }
    if (m->absent[0] != '\0') {
        memset(found, 0, sizeof *found);
        found->refused = true;
        found->frontier = (int32_t)KV_X4_GEOMETRY_UNREPRESENTABLE;
        memcpy(found->reason, m->absent, sizeof found->reason);
        return KV_OK;
    }
    if (m->p->send != KV_SHARD_ONE) return KV_OK;
    m->one = kv_tp_shard_heads(m->heads, m->p->from) != m->heads;
    m->spec.tp[0] = 1;
    return examine(m, found, err);
}

/* Words of the wholes, and what sizes and stages add: a shard that holds other heads is resharded, copies come or go, a layer
 * is in another stage. */
uint32_t kv_shard_point_words(const kv_campaign *c, const kv_shard_point *at, const kv_geometry *g)
{
    const uint32_t view = (uint32_t)1 << KV_W_VIEW_REINTERPRET;
    const kv_layout *a = at->recipe < 0 ? c->catalogue.item[at->src] : NULL;
    const int64_t heads = a != NULL && a->store == KV_STORE_LATENT ? 1 : g->kv_heads, q = at->to;
    int64_t p = at->from;
    uint32_t words = a != NULL ? kv_pair_words(a, c->catalogue.item[at->dst], g) : view, more = 0;
    if (words == 0 || !kv_tp_shard_exists(heads, p) || !kv_tp_shard_exists(heads, q)) return 0;
    if (at->send == KV_SHARD_ONE && kv_tp_shard_heads(heads, p) != heads) return 0;
    if (at->send == KV_SHARD_ONE) p = 1;
    if (kv_tp_shard_heads(heads, p) != kv_tp_shard_heads(heads, q)) more |= (uint32_t)1 << KV_W_TP_RESHARD;
    if (q > heads) more |= (uint32_t)1 << KV_W_HEAD_REPLICATE;
    if (p > heads) more |= (uint32_t)1 << KV_W_HEAD_DEDUPE;
    if (at->split[0] != NULL && kv_shard_split_differ(at->split[0], at->split[1], g->layers))
        more |= (uint32_t)1 << KV_W_PP_RESHARD;
    return (more != 0 ? words & ~view : words) | more;
}
