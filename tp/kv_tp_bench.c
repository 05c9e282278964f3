/* How fast a shard is packed, sent and unpacked, against a plain copy and a plain message of the same bytes. */
#include <inttypes.h>
#include <string.h>

#include "tp/kv_tp_int.h"

typedef struct {
    const kv_tp_spec *s;
    kv_tp_transport *t;
    kv_index ix[2], wire;
    kv_image *image, *packed, *other; /* of this rank's side; other: the yardstick's target */
    kv_index sent;                    /* what travels: the wire image, or the destination's own */
    bool in_place;                    /* the latter: it has no padding, so the receiver takes it where it belongs */
    int side;
    int64_t units;
} bench;

#define OPS (w->s->device->ops)
#define DEV (w->s->device)

static kv_rc open_bench(bench *w, kv_err *err)
{
    kv_rc rc;
    kv_tp_result found;
    if (w->t->size != 2) return KV_FAIL(err, KV_EINVAL, "the measurement takes two ranks, not %" PRId32, w->t->size);
    KV_TRY(rc, out, kv_tp_examine(w->s, &found, err));
    if (found.refused) return KV_FAIL(err, KV_EINVAL, "%s", found.reason);
    for (int i = 0; i < 2; i++) {
        kv_bind_state state;
        char reason[KV_REASON_TEXT];
        KV_TRY(rc, out, kv_layout_bind(w->s->layout[i], w->s->g, found.unit_layers, &w->ix[i], &state, reason, err));
        if (state != KV_BIND_OK) return KV_FAIL(err, KV_EINVAL, "%s", reason);
    }
    w->side = w->t->rank;
    w->units = found.layers / found.unit_layers;
    kv_tp_wire_index(&w->ix[0], w->ix[0].element, &w->wire);
    w->in_place = w->ix[1].native == w->ix[1].elements && w->ix[1].element == w->ix[0].element;
    w->sent = w->in_place ? w->ix[1] : w->wire;
    const int64_t native = kv_index_bytes(&w->ix[w->side]), bytes = kv_index_bytes(&w->wire);
    KV_TRY(rc, out, OPS->image_new(DEV, native, &w->image, err));
    KV_TRY(rc, out, OPS->image_new(DEV, bytes, &w->packed, err));
    KV_TRY(rc, out, OPS->image_new(DEV, bytes, &w->other, err));
    KV_TRY(rc, out, OPS->poison(DEV, w->image, native, 1, err)); /* the pages are there before the clock runs */
    KV_TRY(rc, out, OPS->poison(DEV, w->packed, bytes, 2, err));
    KV_TRY(rc, out, OPS->poison(DEV, w->other, bytes, 3, err));
    KV_TRY(rc, out, OPS->finish(DEV, err));
    if (w->packed->host == w->t->ops->gpu)
        return KV_FAIL(err, KV_EUNSUP, "%s cannot send from this device's memory", w->t->ops->name);
out:
    return rc;
}

static kv_rc pack_as(bench *w, const kv_index *ix, kv_image *into, kv_err *err)
{
    kv_rc rc;
    KV_TRY(rc, out, OPS->translate(DEV, &w->ix[0], w->image, ix, into, 0, err));
    KV_TRY(rc, out, OPS->finish(DEV, err));
out:
    return rc;
}

static kv_rc pack(bench *w, kv_err *err)
{
    return pack_as(w, &w->wire, w->packed, err);
}

static kv_rc unpack(bench *w, kv_err *err)
{
    kv_rc rc;
    KV_TRY(rc, out, OPS->translate(DEV, &w->wire, w->packed, &w->ix[1], w->image, w->s->fill[1], err));
    KV_TRY(rc, out, OPS->finish(DEV, err));
out:
    return rc;
}

static kv_rc sum(bench *w, kv_err *err)
{
    const kv_tp_piece all = {w->packed->data, kv_index_bytes(&w->wire)};
    uint64_t unused;
    return kv_tp_sum(&all, 1, !w->packed->host, &unused, err);
}

static kv_rc send_unit(bench *w, kv_err *err)
{
    kv_tp_piece all = {w->packed->data, kv_index_bytes(&w->wire)};
    kv_tp_message m = {1 - w->side, 1, &all};
    const kv_tp_batch b = {&m, &m, w->side == 0, w->side == 1};
    return kv_tp_exchange(w->t, &b, err);
}

static kv_rc send_header(bench *w, kv_err *err)
{
    kv_tp_header h = {.bytes = kv_index_bytes(&w->wire)};
    kv_tp_piece all = {&h, sizeof h};
    kv_tp_message m = {1 - w->side, 1, &all};
    const kv_tp_batch b = {&m, &m, w->side == 0, w->side == 1};
    kv_tp_header_seal(&h);
    return kv_tp_control(w->t, &b, err);
}

/* All units, one after the other. */
static kv_rc plain(bench *w, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (int64_t u = 0; rc == KV_OK && u < w->units; u++) rc = send_unit(w, err);
    return rc;
}

/* Rank 0 packs a unit while the one before is under way. */
static kv_rc send_all(bench *w, kv_err *err)
{
    kv_image *const buffer[2] = {w->packed, w->other};
    kv_tp_piece all[2];
    kv_tp_message m[2];
    kv_tp_flight flight[2] = {{.open = false}};
    kv_rc rc = KV_OK;
    for (int64_t u = 0; u < w->units; u++) {
        const int i = (int)(u % 2);
        KV_TRY(rc, out, kv_tp_end(w->t, &flight[i], err));
        KV_TRY(rc, out, pack_as(w, &w->sent, buffer[i], err));
        KV_TRY(rc, out, send_header(w, err));
        all[i] = (kv_tp_piece){buffer[i]->data, kv_index_bytes(&w->sent)};
        m[i] = (kv_tp_message){1, 1, &all[i]};
        const kv_tp_batch b = {&m[i], NULL, 1, 0};
        KV_TRY(rc, out, kv_tp_begin(w->t, &b, &flight[i], err));
    }
    for (int64_t u = w->units; u < w->units + 2; u++) KV_TRY(rc, out, kv_tp_end(w->t, &flight[u % 2], err));
out:
    if (flight[0].open || flight[1].open) w->t->lost_buffers = true;
    return rc;
}

static kv_rc receive_all(bench *w, kv_err *err)
{
    kv_tp_piece all = {w->in_place ? w->image->data : w->packed->data, kv_index_bytes(&w->sent)};
    kv_tp_message m = {0, 1, &all};
    const kv_tp_batch b = {NULL, &m, 0, 1};
    kv_rc rc = KV_OK;
    for (int64_t u = 0; u < w->units; u++) {
        KV_TRY(rc, out, send_header(w, err));
        KV_TRY(rc, out, kv_tp_exchange(w->t, &b, err));
        if (!w->in_place) KV_TRY(rc, out, unpack(w, err));
    }
out:
    return rc;
}

/* As engines stream a cache layer by layer: while one unit is taken, the next is packed on the other rank. */
static kv_rc whole_move(bench *w, kv_err *err)
{
    return w->side == 0 ? send_all(w, err) : receive_all(w, err);
}

/* The move that is measured really moves: one of a payload, compared with what the destination would have built. */
static kv_rc prove(bench *w, kv_err *err)
{
    const kv_geometry *g = w->s->g;
    const kv_index *own = &w->ix[w->side];
    const kv_payload p = {.seed = w->s->seed,
                          .tokens = g->tokens,
                          .kv_heads = g->kv_heads,
                          .lanes = {g->head_dim, g->head_dim_v},
                          .kind = KV_PAYLOAD_TOKENS,
                          .element = (int32_t)g->element};
    kv_compare_result found = {0};
    kv_image *want = NULL;
    kv_rc rc = KV_OK;
    if (w->side == 0) KV_TRY(rc, out, OPS->build(DEV, w->image, own, &p, own->element, w->s->stale, err));
    KV_TRY(rc, out, OPS->finish(DEV, err));
    KV_TRY(rc, out, whole_move(w, err));
    if (w->side == 0) goto out;
    KV_TRY(rc, out, OPS->image_new(DEV, kv_index_bytes(own), &want, err));
    KV_TRY(rc, out, OPS->poison(DEV, want, kv_index_bytes(own), 4, err));
    KV_TRY(rc, out, OPS->build(DEV, want, own, &p, w->ix[0].element, w->s->fill[1], err));
    KV_TRY(rc, out, OPS->compare(DEV, own, w->image, want, &found, err));
    if (found.differing != 0)
        rc = KV_FAIL(err, KV_EBUG, "the move that is to be measured gave %" PRId64 " wrong positions", found.differing);
out:
    OPS->image_free(DEV, want);
    return rc;
}

static kv_rc copy(bench *w, kv_err *err)
{
    kv_rc rc = OPS->copy(DEV, w->packed, w->other, err);
    return rc == KV_OK ? OPS->finish(DEV, err) : rc;
}

static kv_rc own_side(bench *w, kv_err *err)
{
    return w->side == 0 ? pack(w, err) : unpack(w, err);
}

/* Keeps the shortest of several rounds. The ranks start together. */
static kv_rc clock_it(bench *w, kv_rc (*step)(bench *, kv_err *), double *best, kv_err *err)
{
    char unused = 0, both[2];
    kv_rc rc = kv_tp_share(w->t, &unused, 1, both, err);
    if (rc != KV_OK) return rc;
    const double begun = kv_tp_now();
    rc = step(w, err);
    const double took = kv_tp_now() - begun;
    if (rc == KV_OK && (*best <= 0 || took < *best)) *best = took;
    return rc;
}

kv_rc kv_tp_bench(const kv_tp_spec *s, int32_t times, kv_tp_speed *out, kv_err *err)
{
    bench work = {.s = s, .t = s->transport}, *w = &work;
    double best[5] = {0}, all[2][5]; /* own side, copy, plain, move, sum */
    kv_rc rc = kv_tp_agree(w->t, open_bench(w, err), err);
    if (rc == KV_OK) rc = prove(w, err);
    for (int32_t i = 0; rc == KV_OK && i < times; i++) {
        KV_TRY(rc, out, clock_it(w, own_side, &best[0], err));
        KV_TRY(rc, out, clock_it(w, copy, &best[1], err));
        KV_TRY(rc, out, clock_it(w, plain, &best[2], err));
        KV_TRY(rc, out, clock_it(w, whole_move, &best[3], err));
        KV_TRY(rc, out, clock_it(w, sum, &best[4], err));
    }
    if (rc != KV_OK) goto out;
    KV_TRY(rc, out, kv_tp_share(w->t, best, sizeof best, all, err));
    out->bytes = kv_index_bytes(&w->wire);
    out->pack_s = all[0][0];
    out->unpack_s = all[1][0];
    out->copy_s = all[0][1];
    out->plain_s = all[1][2];
    out->move_s = all[1][3];
    out->sum_s = all[0][4];
    out->units = w->units;
    out->in_place = w->in_place;
out:
    if (rc != KV_OK) kv_tp_abort(w->t, rc, err != NULL ? err->text : "the measurement failed");
    if (w->t->lost_buffers) return rc; /* bytes may still arrive */
    OPS->image_free(DEV, w->image);
    OPS->image_free(DEV, w->packed);
    OPS->image_free(DEV, w->other);
    return rc;
}
