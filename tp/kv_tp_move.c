/* The move between TP sizes: claims, probes, payloads there and back, the token leg. Mirrors grid/cell/kv_cell_run.c for
 * one rank of a group; what happens between ranks is in kv_tp_leg.c. */
#include "tp/kv_tp_move.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tp/kv_tp_int.h"
#include "tp/kv_tp_shard_index.h"

#define DEV (w->s->device)
#define OPS KV_TP_OPS(w)

static kv_payload payload_of(const kv_tp_work *w, const kv_tp_side *side, int32_t kind)
{
    const kv_geometry *g = w->s->g;
    kv_payload p = {.seed = w->s->seed,
                    .tokens = g->tokens,
                    .kv_heads = g->kv_heads,
                    .lanes = {g->head_dim, g->head_dim_v},
                    .first_layer = side->layer,
                    .first_head = side->ix.first_head,
                    .kind = kind,
                    .element = (int32_t)g->element};
    return p;
}

/* ---- claims ------------------------------------------------------------------------------ */

/* What two ranks must agree on to be in the same cell. */
static uint64_t fingerprint(const kv_tp_spec *s, const kv_tp_result *found)
{
    const int64_t numbers[] = {s->g->layers,
                               s->g->tokens,
                               s->g->kv_heads,
                               s->g->head_dim,
                               s->g->head_dim_v,
                               s->g->element,
                               s->tp[0],
                               s->tp[1],
                               s->payloads,
                               s->exhaustive,
                               s->send,
                               (int64_t)s->seed,
                               found->native_bytes[0],
                               found->native_bytes[1],
                               (int64_t)s->stale,
                               (int64_t)s->fill[0],
                               (int64_t)s->fill[1],
                               (int64_t)s->n_chunks};
    uint64_t h = kv_tp_fnv(0xCBF29CE484222325ULL, numbers, sizeof numbers);
    for (int i = 0; i < 2; i++) {
        kv_index ix;
        kv_bind_state state = KV_BIND_NO_SHAPE;
        char reason[KV_REASON_TEXT];
        h = kv_tp_fnv(h, kv_tp_side_name(s, i), strlen(kv_tp_side_name(s, i)));
        if (kv_tp_bind(s, i, 0, false, found->unit_layers, &ix, &state, reason, NULL) == KV_OK && state == KV_BIND_OK)
            h = kv_tp_fnv(h, &ix, sizeof ix);
    }
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; s->stage[i] != NULL && k < s->n_stages[i]; k++) {
            h = kv_tp_fnv(h, &k, sizeof k);
            h = kv_tp_fnv(h, s->stage[i][k].layer, s->stage[i][k].n * sizeof *s->stage[i][k].layer);
        }
    return s->n_chunks > 0 ? kv_tp_fnv(h, s->chunk, s->n_chunks * sizeof *s->chunk) : h;
}

/* Every rank tells what it holds; all look at all. rc: how it went here so far. */
static kv_rc claim(const kv_tp_spec *s, const kv_tp_result *found, kv_rc rc, kv_err *err)
{
    kv_tp_transport *t = s->transport;
    kv_tp_claim mine, want, all[KV_TP_RANKS_MAX];
    memset(&mine, 0, sizeof mine);
    mine.rank = t->rank;
    for (int i = 0; i < 2; i++) {
        mine.shard[i] = t->rank < kv_tp_side_ranks(s, i) ? t->rank : -1;
        mine.size[i] = kv_tp_side_ranks(s, i);
    }
    mine.total_heads = kv_tp_split_heads(s);
    mine.what = fingerprint(s, found);
    want = mine;
    if (s->hook != NULL) s->hook(s->hook_ctx, KV_TP_AT_CLAIM, &mine);
    kv_tp_claim_seal(&mine);
    rc = kv_tp_agree(t, rc, err);
    if (rc == KV_OK) rc = kv_tp_share(t, &mine, sizeof mine, all, err);
    return rc == KV_OK ? kv_tp_claims_check(all, t->size, &want, t->world, err) : rc;
}

/* ---- probes ------------------------------------------------------------------------------ */

static void probe(kv_tp_work *w, kv_tp_tally *y)
{
    for (int i = 0; i < 2; i++) {
        kv_probe_result p = {0};
        const kv_tp_side *side = &w->side[i];
        y->bijective[i] = 1;
        if (!side->has) continue;
        KV_TP_DO(w, OPS->probe(DEV, &side->stored, &p, &w->err));
        y->checked[i] = p.checked;
        y->total[i] = side->stored.native;
        y->padding[i] = p.padding;
        y->bijective[i] = p.bad == 0 && p.elements_hit == side->stored.elements;
    }
}

/* ---- payloads ---------------------------------------------------------------------------- */

#define KV_PAYLOAD_CONTENT (-1) /* what the caller's pages really hold */

/* The image that a side builds itself. */
static void build_image(kv_tp_work *w, const kv_tp_side *side, kv_image *image, int32_t kind, int32_t via, uint32_t pad)
{
    const kv_payload p = payload_of(w, side, kind);
    KV_TP_DO(w, OPS->poison(DEV, image, kv_index_bytes(&side->ix), w->poison++, &w->err));
    if (kind == KV_PAYLOAD_CONTENT)
        KV_TP_DO(w, kv_tp_content_build(w, side, image));
    else
        KV_TP_DO(w, OPS->build(DEV, image, &side->stored, &p, via, pad, &w->err));
}

static void build_source(kv_tp_work *w, int32_t kind)
{
    const kv_tp_side *a = &w->side[0];
    if (a->here) build_image(w, a, a->image, kind, a->stored.element, w->s->stale);
}

/* Whether the assembled shard is what the destination would have built itself, values passed through `via`. */
static void matches(kv_tp_work *w, int32_t kind, int32_t via, bool *equal)
{
    const kv_tp_side *b = &w->side[1];
    kv_compare_result cmp = {.differing = 1};
    build_image(w, b, w->third, kind, via, w->s->fill[1]);
    KV_TP_DO(w, OPS->compare(DEV, &b->stored, b->image, w->third, &cmp, &w->err));
    *equal = cmp.differing == 0;
}

/* One leg with its bytes counted; the tally keeps those of the first payload of each unit. */
static kv_rc counted_leg(kv_tp_work *w, int from, kv_image *into, bool *whole, bool keep, kv_tp_tally *y, kv_err *err)
{
    const int64_t sent = w->t->sent_bytes, received = w->t->received_bytes;
    const int64_t least = w->unit * w->s->g->tokens * w->row_bytes *
                          kv_tp_shard_lacks_as(w->plan->heads, w->s->tp[from], w->t->rank - w->side[from].first,
                                               w->s->tp[1 - from], w->t->rank - w->side[1 - from].first);
    const kv_rc rc = kv_tp_leg(w, from, into, whole, err);
    if (rc != KV_OK) return rc;
    if (w->t->received_bytes - received != least) y->minimal = 0;
    w->t->moved_sent += w->t->sent_bytes - sent;
    w->t->moved_received += w->t->received_bytes - received;
    w->t->moved_least += least;
    if (!keep) return KV_OK;
    y->sent[from] += w->t->sent_bytes - sent;
    y->received[from] += w->t->received_bytes - received;
    return KV_OK;
}

static kv_rc move_payload(kv_tp_work *w, int32_t number, kv_tp_tally *y, kv_err *err)
{
    const bool content = w->s->content != NULL && number == w->s->payloads - 1;
    const int32_t kind = content ? KV_PAYLOAD_CONTENT : w->s->exhaustive ? KV_PAYLOAD_SWEEP + number : number;
    const int32_t element = (int32_t)w->s->g->element;
    bool there = true, back = true, forward = true, gather = true;
    kv_rc rc;
    build_source(w, kind);
    KV_TRY(rc, out, counted_leg(w, 0, w->side[1].image, &there, number == 0, y, err));
    if (w->side[1].here) {
        const int32_t from = (int32_t)kv_tp_side_element(w->s, 0);
        matches(w, kind, element, &forward);
        gather = forward;
        if (from != element) matches(w, kind, from, &gather);
    }
    KV_TRY(rc, out, counted_leg(w, 1, w->third, &back, number == 0, y, err));
    if (w->side[0].here) KV_TP_DO(w, OPS->diffset_add(DEV, w->diffs, w->third, w->side[0].image, &w->err));
    y->forward = y->forward && forward && there && back;
    y->gather = y->gather && gather && there && back;
out:
    return rc;
}

static kv_rc move_all(kv_tp_work *w, kv_tp_tally *y, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (int64_t layer = 0; layer < w->s->g->layers; layer += w->unit) {
        kv_diffset_result diff = {0};
        kv_tp_at_layer(w, layer);
        for (int32_t k = 0; k < w->s->payloads; k++) KV_TRY(rc, out, move_payload(w, k, y, err));
        if (w->s->content != NULL && w->side[1].here) { /* the last payload: it lies there still */
            KV_TP_DO(w, kv_tp_content_decode(w, &w->side[1]));
            w->decoded = true;
        }
        if (w->side[0].here) KV_TP_DO(w, OPS->diffset_take(DEV, w->diffs, &diff, &w->err));
        y->diff += diff.differing;
        y->outside = y->outside || diff.outside_padding != 0;
    }
out:
    return rc;
}

/* ---- the token leg ----------------------------------------------------------------------- */

static void digest_layer(const kv_tp_hash *h, kv_tp_hash_state *state, const kv_decode_result *d)
{
    unsigned char bytes[4 * KV_DECODE_STEPS * KV_VOCABULARY];
    for (int i = 0; i < KV_DECODE_STEPS * KV_VOCABULARY; i++) /* little-endian, whatever the machine */
        for (int b = 0; b < 4; b++) bytes[4 * i + b] = (unsigned char)(d->logits[i] >> (8 * b));
    h->update(state, bytes, sizeof bytes);
}

/* Decodes one unit of this rank's shard, and of the canonical tensor. */
static void decode_unit(kv_tp_work *w, kv_tp_hash_state state[2], kv_tp_tally *y)
{
    const kv_tp_side *b = &w->side[1];
    const int64_t first = b->layer;
    for (int64_t l = 0; l < w->unit; l++) {
        kv_decode_result got = {0}, want = {0};
        kv_payload p = payload_of(w, b, KV_PAYLOAD_TOKENS);
        p.first_layer = first + l; /* the reference decodes one layer */
        KV_TP_DO(w, OPS->decode(DEV, &b->stored, b->image, l, w->s->seed, first + l, w->third, &got, &w->err));
        KV_TP_DO(w, OPS->decode_reference(DEV, &b->stored, &p, w->s->seed, first + l, w->third, &want, &w->err));
        y->tokens = y->tokens && memcmp(got.tokens, want.tokens, sizeof got.tokens) == 0;
        digest_layer(w->hash, &state[0], &got);
        digest_layer(w->hash, &state[1], &want);
        if (first + l > 0) continue;
        memcpy(y->decoded, got.tokens, sizeof y->decoded);
        memcpy(y->reference, want.tokens, sizeof y->reference);
    }
}

/* How far the values moved, where this rank holds the same heads on both sides. */
static void note_drift(kv_tp_work *w, kv_tp_tally *y)
{
    const kv_tp_side *a = &w->side[0], *b = &w->side[1];
    kv_drift_result d = {.preserved = true, .finite = true};
    if (!b->here) return;
    if (a->here && a->ix.heads == b->ix.heads && a->ix.first_head == b->ix.first_head) {
        KV_TP_DO(w, OPS->drift(DEV, &a->stored, a->image, &b->stored, b->image, &d, &w->err));
    } else { /* the source's shard of these heads is on other ranks: made anew, in wire order */
        kv_index own;
        const kv_payload p = payload_of(w, b, KV_PAYLOAD_TOKENS);
        kv_tp_wire_index(&b->ix, (int32_t)kv_tp_side_element(w->s, 0), &own);
        kv_image *im = NULL;
        KV_TP_DO(w, OPS->image_new(DEV, kv_index_bytes(&own), &im, &w->err));
        KV_TP_DO(w, OPS->poison(DEV, im, kv_index_bytes(&own), w->poison++, &w->err));
        KV_TP_DO(w, OPS->build(DEV, im, &own, &p, own.element, 0, &w->err));
        KV_TP_DO(w, OPS->drift(DEV, &own, im, &b->stored, b->image, &d, &w->err));
        OPS->image_free(DEV, im);
    }
    y->preserved = y->preserved && d.preserved;
    y->finite = y->finite && d.finite;
    if (d.worst_ppm > y->worst_ppm) y->worst_ppm = d.worst_ppm;
}

/* Of pages of bytes: what the caller made of them. */
static void take_decode(kv_tp_work *w, kv_tp_tally *y)
{
    int32_t tokens[2][KV_DECODE_STEPS];
    uint8_t digest[2][KV_TP_DIGEST_BYTES];
    if (!w->decoded || w->rc != KV_OK) return;
    w->s->content->finish(w->s->content->ctx, tokens, digest);
    y->tokens = memcmp(tokens[0], tokens[1], sizeof tokens[0]) == 0;
    memcpy(y->decoded, tokens[0], sizeof y->decoded);
    memcpy(y->reference, tokens[1], sizeof y->reference);
    memcpy(y->logits, digest[0], sizeof y->logits);
    memcpy(y->reference_logits, digest[1], sizeof y->reference_logits);
}

static kv_rc decode_all(kv_tp_work *w, bool converts, kv_tp_tally *y, kv_err *err)
{
    kv_tp_hash_state state[2];
    kv_rc rc = KV_OK;
    for (int i = 0; i < 2; i++) w->hash->begin(&state[i]);
    for (int64_t layer = 0; layer < w->s->g->layers; layer += w->unit) {
        bool whole = true;
        kv_tp_at_layer(w, layer);
        build_source(w, KV_PAYLOAD_TOKENS);
        KV_TRY(rc, out, counted_leg(w, 0, w->side[1].image, &whole, false, y, err));
        y->forward = y->forward && whole; /* as with payloads: what writes outside reproduces nothing */
        y->gather = y->gather && whole;
        if (converts) note_drift(w, y);
        if (w->side[1].here) decode_unit(w, state, y);
    }
    w->hash->end(&state[0], y->logits);
    w->hash->end(&state[1], y->reference_logits);
out:
    return rc;
}

/* ---- the cell ---------------------------------------------------------------------------- */

static kv_rc run(kv_tp_work *w, kv_tp_result *out, kv_err *err)
{
    kv_tp_tally y;
    kv_rc rc;
    memset(&y, 0, sizeof y);
    y.forward = y.gather = y.tokens = y.preserved = y.finite = y.minimal = 1;
    probe(w, &y);
    KV_TRY(rc, out, move_all(w, &y, err));
    if (w->s->content != NULL)
        take_decode(w, &y);
    else
        KV_TRY(rc, out, decode_all(w, out->converts, &y, err));
    memcpy(y.chain, w->chain, sizeof y.chain);
    y.rc = (int32_t)w->rc;
    if (w->rc != KV_OK) snprintf(y.text, sizeof y.text, "%.230s", w->err.text);
    KV_TRY(rc, out, kv_tp_sum_up(w, &y, out, err));
out:
    return rc;
}

static kv_rc examine(const kv_tp_spec *s, kv_tp_result *out, kv_err *err)
{
    const kv_rc rc = kv_tp_examine(s, out, err);
    if (rc != KV_OK) return rc;
    if (s->payloads < 1) return KV_FAIL(err, KV_EINVAL, "a move without payloads shows nothing");
    if (!out->refused && s->transport->size != out->ranks)
        return KV_FAIL(err, KV_EINVAL, "the move takes %" PRId64 " ranks, the group has %" PRId32, out->ranks,
                       s->transport->size);
    return KV_OK;
}

kv_rc kv_tp_move(const kv_tp_spec *s, kv_tp_result *out, kv_err *err)
{
    kv_tp_work w = {.s = s, .t = s->transport};
    kv_rc rc = examine(s, out, err);
    if (rc == KV_OK && out->refused) return KV_OK; /* derived from the cell alone: every rank knows */
    if (rc == KV_OK) {
        out->converts = kv_tp_side_element(s, 0) != kv_tp_side_element(s, 1);
        rc = kv_tp_open_work(&w, s, out, err);
    }
    rc = claim(s, out, rc, err);
    if (rc == KV_OK) rc = run(&w, out, err);
    if (rc == KV_OK) {
        out->payloads = s->payloads;
        out->rounds = (int64_t)w.n_rounds[0];
    }
    kv_tp_close_work(&w);
    return rc;
}
