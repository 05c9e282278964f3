/* One leg of a move: pack, tell, send, assemble.
 *
 * Before the bytes of a round travel, every rank tells every other what it is about to send (a note with one header
 * for each receiver) and whether all went well so far. All ranks look at all notes, so all refuse alike, and a
 * refusal leaves nothing under way. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tp/kv_tp_int.h"
#include "tp/kv_tp_shard_index.h"

/* Followed by one kv_tp_header for each rank of the group. */
typedef struct {
    int32_t rc;
    int32_t reserved;
    char text[KV_TP_NOTICE_TEXT];
    uint8_t copy[KV_TP_DIGEST_BYTES]; /* first round: of the packed payload, where it is a copy of another rank's */
    kv_tp_header header[];
} note;

static size_t note_bytes(const kv_tp_work *w)
{
    return sizeof(note) + (size_t)w->t->size * sizeof(kv_tp_header);
}

static note *note_of(const kv_tp_work *w, int32_t rank)
{
    return (note *)(void *)(w->notes + (size_t)rank * note_bytes(w));
}

static void hook(const kv_tp_work *w, kv_tp_point point, void *data)
{
    if (w->s->hook != NULL) w->s->hook(w->s->hook_ctx, point, data);
}

static kv_rc fault(const kv_tp_work *w, kv_tp_point point, kv_err *err)
{
    return w->s->fault != NULL ? w->s->fault(w->s->fault_ctx, point, err) : KV_OK;
}

/* ---- what a parcel is -------------------------------------------------------------------- */

static int64_t parcel_bytes(const kv_tp_work *w, const kv_tp_parcel *p, const kv_tp_round *r)
{
    return p->heads * r->layers * r->tokens * w->row_bytes;
}

/* What the header of a parcel must say, its checksum aside. layer: as the side that asks has it. */
static kv_tp_header header_of(const kv_tp_work *w, int from, int64_t layer, const kv_tp_parcel *p, const kv_tp_round *r)
{
    kv_tp_header h;
    memset(&h, 0, sizeof h);
    h.from = p->from;
    h.to = p->to;
    h.shard = p->from - w->plan[from].first[0];
    h.size = w->s->tp[from];
    h.total_heads = w->plan[from].heads;
    h.first_head = p->first;
    h.heads = p->heads;
    h.layer = layer + r->layer;
    h.layers = r->layers;
    h.token = r->token;
    h.tokens = r->tokens;
    h.bytes = parcel_bytes(w, p, r);
    return h;
}

/* The pieces of a parcel in a side's packed image (or in its staging buffer): *out is freed with kv_free. */
static kv_rc pieces_of(const kv_tp_side *side, bool staged, const kv_tp_parcel *p, const kv_tp_round *r,
                       kv_tp_piece **out, int32_t *n, kv_err *err)
{
    unsigned char *base = staged && side->staged != NULL ? side->staged : side->packed->data;
    *n = kv_tp_wire_pieces(&side->wire, base, p->first, p->heads, r, NULL);
    *out = kv_alloc((size_t)*n, sizeof **out);
    if (*out == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a message of %" PRId32 " pieces", *n);
    (void)kv_tp_wire_pieces(&side->wire, base, p->first, p->heads, r, *out);
    return KV_OK;
}

static kv_rc parcel_sum(const kv_tp_side *side, const kv_tp_parcel *p, const kv_tp_round *r, uint64_t *sum, kv_err *err)
{
    kv_tp_piece *piece = NULL;
    int32_t n = 0;
    kv_rc rc = pieces_of(side, false, p, r, &piece, &n, err);
    if (rc == KV_OK) rc = kv_tp_sum(piece, n, !side->packed->host, sum, err);
    kv_free(piece);
    return rc;
}

/* ---- packing ----------------------------------------------------------------------------- */

/* Heads that stay: from one packed image of this rank to the other. */
static kv_rc keep_own(kv_tp_work *w, int from)
{
    const kv_tp_side *a = &w->side[from], *b = &w->side[1 - from];
    const kv_tp_round all = {0, w->unit, 0, w->s->g->tokens, 0, 0};
    kv_tp_piece out[2], in[2];
    if (!a->here || !b->here) return KV_OK;
    const int64_t first = a->wire.first_head > b->wire.first_head ? a->wire.first_head : b->wire.first_head;
    const int64_t end_a = a->wire.first_head + a->wire.heads, end_b = b->wire.first_head + b->wire.heads;
    const int64_t heads = (end_a < end_b ? end_a : end_b) - first;
    if (heads <= 0) return KV_OK;
    const int32_t n = kv_tp_wire_pieces(&a->wire, a->packed->data, first, heads, &all, out);
    (void)kv_tp_wire_pieces(&b->wire, b->packed->data, first, heads, &all, in);
    for (int32_t i = 0; i < n; i++) {
        const kv_rc rc = kv_tp_copy(in[i].at, !b->packed->host, out[i].at, !a->packed->host, out[i].bytes, &w->err);
        if (rc != KV_OK) return rc;
    }
    return KV_OK;
}

/* Both packed images are poisoned first: nothing of an earlier leg may make this one right. A device may only have
 * queued what it was asked for, so all is finished before copies and messages touch the images' memory. */
static void pack(kv_tp_work *w, int from)
{
    for (int i = 0; i < 2; i++)
        if (w->side[i].here)
            KV_TP_DO(w, KV_TP_OPS(w)->poison(w->s->device, w->side[i].packed, kv_index_bytes(&w->side[i].wire),
                                             w->poison++, &w->err));
    const kv_tp_side *a = &w->side[from];
    if (a->here) {
        if (w->rc == KV_OK) hook(w, KV_TP_AT_SOURCE, a->image);
        KV_TP_DO(w, fault(w, KV_TP_AT_SOURCE, &w->err));
        KV_TP_DO(w, KV_TP_OPS(w)->translate(w->s->device, &a->ix, a->image, &a->wire, a->packed, 0, &w->err));
        KV_TP_DO(w, kv_check_guards(w->s->device, a->packed, &w->err));
    }
    KV_TP_DO(w, KV_TP_OPS(w)->finish(w->s->device, &w->err));
    KV_TP_DO(w, keep_own(w, from));
}

/* ---- notes ------------------------------------------------------------------------------- */

static void write_note(kv_tp_work *w, int from, const kv_tp_round *r, bool copies, note *n)
{
    const kv_tp_plan *plan = &w->plan[from];
    memset(n, 0, note_bytes(w));
    if (w->side[from].here && copies)
        KV_TP_DO(w, kv_tp_image_digest(w->hash, w->side[from].packed, NULL, n->copy, &w->err));
    for (size_t i = 0; i < plan->n; i++) {
        const kv_tp_parcel *p = &plan->parcel[i];
        if (p->from != w->t->rank || parcel_bytes(w, p, r) == 0) continue;
        n->header[p->to] = header_of(w, from, w->side[from].layer, p, r);
        KV_TP_DO(w, parcel_sum(&w->side[from], p, r, &n->header[p->to].sum, &w->err));
        kv_tp_header_seal(&n->header[p->to]);
    }
    hook(w, KV_TP_AT_HEADERS, n->header);
    n->rc = (int32_t)w->rc;
    if (w->rc != KV_OK) snprintf(n->text, sizeof n->text, "%.230s", w->err.text);
}

/* A rank that failed before this round. */
static kv_rc check_outcomes(const kv_tp_work *w, kv_err *err)
{
    for (int32_t r = 0; r < w->t->size; r++)
        if (note_of(w, r)->rc != KV_OK)
            return kv_tp_failed_at(w->t, r, (kv_rc)note_of(w, r)->rc, note_of(w, r)->text, err);
    return KV_OK;
}

/* Every parcel of the plan is announced as it must be, and nothing else is. */
static kv_rc check_headers(const kv_tp_work *w, int from, const kv_tp_round *r, kv_err *err)
{
    const kv_tp_plan *plan = &w->plan[from];
    int64_t planned = 0, announced = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const kv_tp_parcel *p = &plan->parcel[i];
        if (parcel_bytes(w, p, r) == 0) continue;
        const kv_tp_header want = header_of(w, from, w->side[1 - from].layer, p, r);
        const kv_rc rc = kv_tp_header_check(&note_of(w, p->from)->header[p->to], &want, w->t->world, err);
        if (rc != KV_OK) return rc;
        planned++;
    }
    for (int32_t a = 0; a < w->t->size; a++)
        for (int32_t b = 0; b < w->t->size; b++) announced += note_of(w, a)->header[b].magic != 0;
    if (announced != planned)
        return KV_FAIL(err, KV_EFORMAT, "%" PRId64 " messages are announced where %" PRId64 " are needed", announced,
                       planned);
    return KV_OK;
}

static kv_rc tell(kv_tp_work *w, int from, size_t round, kv_err *err)
{
    const kv_tp_round *r = &w->round[from][round];
    const bool copies = round == 0 && kv_tp_shard_copies(w->plan[from].heads, w->plan[from].p) > 1;
    note *mine = kv_alloc(1, note_bytes(w));
    kv_rc rc;
    if (mine == NULL) { /* without a note nobody can be told in order: the group ends here */
        kv_tp_abort(w->t, KV_ENOMEM, "no memory for a note");
        return KV_FAIL(err, KV_ENOMEM, "no memory for a note");
    }
    write_note(w, from, r, copies, mine);
    KV_TRY(rc, out, kv_tp_share(w->t, mine, (int64_t)note_bytes(w), w->notes, err));
    KV_TRY(rc, out, check_outcomes(w, err));
    if (copies)
        KV_TRY(rc, out,
               kv_tp_copies_check(w, from, w->side[from].first, note_of(w, 0)->copy, note_bytes(w),
                                  "before they are sent", err));
    KV_TRY(rc, out, check_headers(w, from, r, err));
out:
    if (!w->t->lost_buffers) kv_free(mine);
    return rc;
}

/* ---- sending ----------------------------------------------------------------------------- */

typedef struct {
    kv_tp_message *send, *recv;
    const kv_tp_parcel **sent, **got;
    kv_tp_batch batch;
} traffic;

static void traffic_free(traffic *x)
{
    for (size_t i = 0; i < x->batch.n_send; i++) kv_free(x->send[i].piece);
    for (size_t i = 0; i < x->batch.n_recv; i++) kv_free(x->recv[i].piece);
    kv_free(x->send);
    kv_free(x->recv);
    kv_free(x->sent);
    kv_free(x->got);
}

static kv_rc traffic_new(const kv_tp_work *w, int from, const kv_tp_round *r, traffic *x, kv_err *err)
{
    const kv_tp_plan *plan = &w->plan[from];
    kv_rc rc = KV_OK;
    memset(x, 0, sizeof *x);
    x->send = kv_alloc(plan->n, sizeof *x->send);
    x->recv = kv_alloc(plan->n, sizeof *x->recv);
    x->sent = kv_alloc(plan->n, sizeof *x->sent);
    x->got = kv_alloc(plan->n, sizeof *x->got);
    if (x->send == NULL || x->recv == NULL || x->sent == NULL || x->got == NULL)
        return KV_FAIL(err, KV_ENOMEM, "no memory for %zu messages", plan->n);
    for (size_t i = 0; rc == KV_OK && i < plan->n; i++) {
        const kv_tp_parcel *p = &plan->parcel[i];
        const bool out = p->from == w->t->rank, in = p->to == w->t->rank;
        if ((!out && !in) || parcel_bytes(w, p, r) == 0) continue;
        kv_tp_message *m = out ? &x->send[x->batch.n_send] : &x->recv[x->batch.n_recv];
        m->peer = out ? p->to : p->from;
        rc = pieces_of(&w->side[out ? from : 1 - from], true, p, r, &m->piece, &m->pieces, err);
        if (rc != KV_OK) break;
        if (out)
            x->sent[x->batch.n_send++] = p;
        else
            x->got[x->batch.n_recv++] = p;
    }
    x->batch.send = x->send;
    x->batch.recv = x->recv;
    return rc;
}

/* Between a packed image and its staging buffer, the pieces of one parcel. */
static kv_rc stage(kv_tp_work *w, const kv_tp_side *side, const kv_tp_parcel *p, const kv_tp_round *r, bool out)
{
    kv_tp_piece *image = NULL, *buffer = NULL;
    int32_t n = 0;
    kv_rc rc = KV_OK;
    if (side->staged == NULL) return KV_OK;
    KV_TRY(rc, done, pieces_of(side, false, p, r, &image, &n, &w->err));
    KV_TRY(rc, done, pieces_of(side, true, p, r, &buffer, &n, &w->err));
    for (int32_t i = 0; i < n; i++) {
        const kv_tp_piece *to = out ? &buffer[i] : &image[i], *from = out ? &image[i] : &buffer[i];
        KV_TRY(rc, done,
               kv_tp_copy(to->at, out ? w->t->ops->gpu : !side->packed->host, from->at,
                          out ? !side->packed->host : w->t->ops->gpu, to->bytes, &w->err));
    }
done:
    kv_free(image);
    kv_free(buffer);
    return rc;
}

/* What arrived is what the sender announced. A fault goes out with the next note. */
static kv_rc check_arrival(kv_tp_work *w, int from, const kv_tp_parcel *p, const kv_tp_round *r)
{
    uint64_t sum = 0;
    const kv_rc rc = parcel_sum(&w->side[1 - from], p, r, &sum, &w->err);
    if (rc != KV_OK) return rc;
    if (sum != note_of(w, p->from)->header[p->to].sum)
        return KV_FAIL(&w->err, KV_EFORMAT, "the bytes from rank %" PRId32 " arrived changed: their checksum differs",
                       w->t->world[p->from]);
    return KV_OK;
}

static kv_rc send_round(kv_tp_work *w, int from, const kv_tp_round *r, kv_err *err)
{
    traffic x;
    kv_err here = {0};
    kv_rc rc = traffic_new(w, from, r, &x, &here);
    if (rc == KV_OK && w->side[from].here) hook(w, KV_TP_AT_PAYLOAD, w->side[from].packed);
    if (rc == KV_OK && w->side[from].here) rc = fault(w, KV_TP_AT_PAYLOAD, &here);
    for (size_t i = 0; rc == KV_OK && i < x.batch.n_send; i++)
        if ((rc = stage(w, &w->side[from], x.sent[i], r, true)) != KV_OK) (void)KV_FAIL(&here, rc, "%s", w->err.text);
    if (rc != KV_OK) { /* the others are already sending */
        kv_tp_abort(w->t, rc, here.text);
        (void)KV_FAIL(err, rc, "%s", here.text);
        goto out;
    }
    KV_TRY(rc, out, kv_tp_exchange(w->t, &x.batch, err));
    for (size_t i = 0; i < x.batch.n_recv; i++) {
        KV_TP_DO(w, stage(w, &w->side[1 - from], x.got[i], r, false));
        KV_TP_DO(w, check_arrival(w, from, x.got[i], r));
    }
out:
    if (!w->t->lost_buffers) traffic_free(&x);
    return rc;
}

/* ---- the leg ----------------------------------------------------------------------------- */

static void assemble(kv_tp_work *w, int to, kv_image *into, bool *whole)
{
    const kv_tp_side *b = &w->side[to];
    kv_guards_result at_end[2];
    if (!b->here) return;
    KV_TP_DO(w, KV_TP_OPS(w)->poison(w->s->device, into, kv_index_bytes(&b->ix), w->poison++, &w->err));
    KV_TP_DO(w, KV_TP_OPS(w)->translate(w->s->device, &b->wire, b->packed, &b->ix, into, w->s->fill[to], &w->err));
    KV_TP_DO(w, KV_TP_OPS(w)->finish(w->s->device, &w->err));
    KV_TP_DO(w, KV_TP_OPS(w)->guards(w->s->device, into, &at_end[0], &w->err));
    KV_TP_DO(w, KV_TP_OPS(w)->guards(w->s->device, b->packed, &at_end[1], &w->err));
    if (w->rc != KV_OK) return;
    if (!kv_guards_whole(&at_end[0]) || !kv_guards_whole(&at_end[1])) *whole = false;
    hook(w, KV_TP_AT_ARRIVED, into);
    if (kv_tp_shard_copies(w->plan[0].heads, w->s->tp[to]) > 1)
        KV_TP_DO(w, kv_tp_image_digest(w->hash, into, w->chain[to], w->chain[to], &w->err));
}

kv_rc kv_tp_leg(kv_tp_work *w, int from, kv_image *into, bool *whole, kv_err *err)
{
    kv_rc rc = KV_OK;
    *whole = true;
    if (w->rc == KV_OK) pack(w, from);
    for (size_t i = 0; i < w->n_rounds[from]; i++) {
        KV_TRY(rc, out, tell(w, from, i, err));
        KV_TRY(rc, out, send_round(w, from, &w->round[from][i], err));
    }
    assemble(w, 1 - from, into, whole);
out:
    return rc;
}
