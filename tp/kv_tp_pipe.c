/* Layers between pipeline stages, each found by its id. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tp/kv_tp_int.h"

typedef struct {
    int32_t rc;
    int32_t forward;
    char text[KV_TP_NOTICE_TEXT];
    kv_tp_header header;
} note;

typedef struct {
    const kv_tp_pipe_spec *s;
    kv_tp_transport *t;
    kv_tp_hop *hop;
    kv_index ix[2], wire;
    kv_image *image[2], *packed, *third;
    void *staged;
    uint32_t round;
    int32_t forward;
    kv_rc rc; /* a failure here that the others do not know of yet */
    kv_err err;
} pipe_work;

#define OPS (w->s->device->ops)
#define DEV (w->s->device)
#define PIPE_DO(call_)                                                                                                 \
    do {                                                                                                               \
        if (w->rc == KV_OK) w->rc = (call_);                                                                           \
    } while (0)

static kv_payload payload_of(const pipe_work *w, int64_t layer)
{
    const kv_geometry *g = w->s->g;
    kv_payload p = {.seed = w->s->seed,
                    .tokens = g->tokens,
                    .kv_heads = g->kv_heads,
                    .lanes = {g->head_dim, g->head_dim_v},
                    .first_layer = layer,
                    .kind = KV_PAYLOAD_BITS,
                    .element = (int32_t)g->element};
    return p;
}

static kv_rc open_side(pipe_work *w, int i, kv_err *err)
{
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    kv_rc rc;
    if (kv_axes_has(&w->s->layout[i]->axes[0], KV_F_L) || w->s->layout[i]->tp_size != 1)
        return KV_FAIL(err, KV_EINVAL, "%s keeps its layers in one array, or is a shard: it has no pipeline stages",
                       w->s->layout[i]->name);
    KV_TRY(rc, out, kv_layout_bind(w->s->layout[i], w->s->g, 1, &w->ix[i], &state, reason, err));
    if (state != KV_BIND_OK) return KV_FAIL(err, KV_EINVAL, "%s", reason);
    KV_TRY(rc, out, OPS->image_new(DEV, kv_index_bytes(&w->ix[i]), &w->image[i], err));
out:
    return rc;
}

static kv_rc open_work(pipe_work *w, kv_err *err)
{
    const kv_tp_pipe_spec *s = w->s;
    kv_rc rc;
    const size_t ranks = s->n[0] > s->n[1] ? s->n[0] : s->n[1];
    if (ranks != (size_t)w->t->size)
        return KV_FAIL(err, KV_EINVAL, "%zu stages for a group of %" PRId32 " ranks", ranks, w->t->size);
    KV_TRY(rc, out, kv_tp_hops_new(s->g->layers, s->stage[0], s->n[0], s->stage[1], s->n[1], &w->hop, err));
    for (int i = 0; i < 2; i++) KV_TRY(rc, out, open_side(w, i, err));
    if (w->ix[0].halves != w->ix[1].halves || w->ix[0].element != w->ix[1].element)
        return KV_FAIL(err, KV_EINVAL, "%s and %s do not hold the same elements", s->layout[0]->name,
                       s->layout[1]->name);
    kv_tp_wire_index(&w->ix[0], w->ix[0].element, &w->wire);
    KV_TRY(rc, out, OPS->image_new(DEV, kv_index_bytes(&w->wire), &w->packed, err));
    KV_TRY(rc, out, OPS->image_new(DEV, kv_index_bytes(&w->ix[1]), &w->third, err));
    if (w->packed->host == w->t->ops->gpu)
        KV_TRY(rc, out, w->t->ops->buffer_new(w->t, kv_index_bytes(&w->wire), &w->staged, err));
out:
    return rc;
}

static void close_work(pipe_work *w)
{
    kv_free(w->hop);
    for (int i = 0; i < 2; i++) OPS->image_free(DEV, w->image[i]);
    OPS->image_free(DEV, w->third);
    if (w->t->lost_buffers) return; /* bytes may still arrive there */
    OPS->image_free(DEV, w->packed);
    if (w->staged != NULL) w->t->ops->buffer_free(w->t, w->staged);
}

static kv_tp_header header_of(const pipe_work *w, const kv_tp_hop *hop)
{
    kv_tp_header h;
    memset(&h, 0, sizeof h);
    h.from = hop->from;
    h.to = hop->to;
    h.shard = hop->from;
    h.size = (int64_t)w->s->n[0];
    h.total_heads = h.heads = w->ix[0].heads;
    h.layer = hop->layer;
    h.layers = 1;
    h.tokens = w->s->g->tokens;
    h.bytes = kv_index_bytes(&w->wire);
    return h;
}

static kv_rc sum_of(pipe_work *w, uint64_t *sum)
{
    const kv_tp_piece all = {w->packed->data, kv_index_bytes(&w->wire)};
    return kv_tp_sum(&all, 1, !w->packed->host, sum, &w->err);
}

/* The source stage builds what stands in its slot, by the id written there. */
static void pack(pipe_work *w, const kv_tp_hop *hop)
{
    const kv_payload p = payload_of(w, w->s->stage[0][hop->from].layer[hop->from_slot]);
    PIPE_DO(OPS->poison(DEV, w->image[0], kv_index_bytes(&w->ix[0]), w->round++, &w->err));
    PIPE_DO(OPS->build(DEV, w->image[0], &w->ix[0], &p, w->ix[0].element, w->s->stale, &w->err));
    PIPE_DO(OPS->translate(DEV, &w->ix[0], w->image[0], &w->wire, w->packed, 0, &w->err));
}

/* The destination stage takes it into its slot, and compares with what it would have built for the id it has there. */
static void unpack(pipe_work *w, const kv_tp_hop *hop)
{
    const kv_payload p = payload_of(w, w->s->stage[1][hop->to].layer[hop->to_slot]);
    kv_compare_result cmp = {.differing = 1};
    PIPE_DO(OPS->poison(DEV, w->image[1], kv_index_bytes(&w->ix[1]), w->round++, &w->err));
    PIPE_DO(OPS->translate(DEV, &w->wire, w->packed, &w->ix[1], w->image[1], w->s->fill, &w->err));
    PIPE_DO(OPS->check_guards(DEV, w->image[1], &w->err));
    PIPE_DO(OPS->poison(DEV, w->third, kv_index_bytes(&w->ix[1]), w->round++, &w->err));
    PIPE_DO(OPS->build(DEV, w->third, &w->ix[1], &p, w->ix[1].element, w->s->fill, &w->err));
    PIPE_DO(OPS->compare(DEV, &w->ix[1], w->image[1], w->third, &cmp, &w->err));
    w->forward = w->forward && cmp.differing == 0;
}

static void fill_note(const pipe_work *w, note *n)
{
    memset(n, 0, sizeof *n);
    n->rc = (int32_t)w->rc;
    n->forward = w->forward;
    if (w->rc != KV_OK) snprintf(n->text, sizeof n->text, "%.230s", w->err.text);
}

static kv_rc check_notes(const pipe_work *w, const note *all, kv_err *err)
{
    if (w->rc != KV_OK) return KV_FAIL(err, w->rc, "%s", w->err.text);
    for (int32_t r = 0; r < w->t->size; r++)
        if (all[r].rc != KV_OK)
            return KV_FAIL(err, all[r].rc == KV_EFORMAT ? KV_EFORMAT : KV_EPEER, "rank %" PRId32 ": %.200s",
                           w->t->world[r], all[r].text);
    return KV_OK;
}

static kv_rc send(pipe_work *w, const kv_tp_hop *hop, kv_err *err)
{
    kv_tp_piece all = {w->staged != NULL ? w->staged : w->packed->data, kv_index_bytes(&w->wire)};
    kv_tp_message m = {w->t->rank == hop->from ? hop->to : hop->from, 1, &all};
    const bool out = w->t->rank == hop->from, in = w->t->rank == hop->to;
    const kv_tp_batch b = {&m, &m, out, in};
    kv_rc rc = KV_OK;
    if ((!out && !in) || all.bytes == 0) return KV_OK;
    if (out && w->staged != NULL)
        KV_TRY(rc, out, kv_tp_copy(w->staged, w->t->ops->gpu, w->packed->data, !w->packed->host, all.bytes, err));
    KV_TRY(rc, out, kv_tp_exchange(w->t, &b, err));
    if (in && w->staged != NULL)
        KV_TRY(rc, out, kv_tp_copy(w->packed->data, !w->packed->host, w->staged, w->t->ops->gpu, all.bytes, err));
out:
    if (rc != KV_OK) kv_tp_abort(w->t, rc, err != NULL ? err->text : "a copy failed");
    return rc;
}

static kv_rc move_layer(pipe_work *w, const kv_tp_hop *hop, kv_err *err)
{
    note mine, all[KV_TP_RANKS_MAX];
    const kv_tp_header want = header_of(w, hop);
    uint64_t sum = 0;
    kv_rc rc;
    PIPE_DO(OPS->poison(DEV, w->packed, kv_index_bytes(&w->wire), w->round++, &w->err));
    if (w->t->rank == hop->from) pack(w, hop);
    PIPE_DO(OPS->finish(DEV, &w->err)); /* before anything but the device touches the memory */
    if (w->t->rank == hop->from) PIPE_DO(sum_of(w, &sum));
    fill_note(w, &mine);
    if (w->t->rank == hop->from) {
        mine.header = want;
        mine.header.sum = sum;
        kv_tp_header_seal(&mine.header);
    }
    KV_TRY(rc, out, kv_tp_share(w->t, &mine, sizeof mine, all, err));
    KV_TRY(rc, out, check_notes(w, all, err));
    KV_TRY(rc, out, kv_tp_header_check(&all[hop->from].header, &want, w->t->world, err));
    if (hop->from != hop->to) KV_TRY(rc, out, send(w, hop, err));
    if (w->t->rank != hop->to) goto out;
    PIPE_DO(sum_of(w, &sum));
    if (w->rc == KV_OK && sum != all[hop->from].header.sum)
        w->rc = KV_FAIL(&w->err, KV_EFORMAT, "layer %" PRId64 " from rank %" PRId32 " arrived changed", hop->layer,
                        w->t->world[hop->from]);
    unpack(w, hop);
out:
    return rc;
}

kv_rc kv_tp_pipe(const kv_tp_pipe_spec *s, kv_tp_pipe_result *out, kv_err *err)
{
    pipe_work work = {.s = s, .t = s->transport, .forward = 1}, *w = &work;
    note mine, all[KV_TP_RANKS_MAX];
    kv_tp_pipe_result found = {.layers = s->g->layers, .forward = 1};
    kv_rc rc = kv_tp_agree(w->t, open_work(w, err), err);
    const int64_t sent = w->t->sent_bytes;
    if (rc != KV_OK) goto out;
    for (int64_t l = 0; l < s->g->layers; l++) {
        KV_TRY(rc, out, move_layer(w, &w->hop[l], err));
        found.moved += w->hop[l].from != w->hop[l].to;
    }
    fill_note(w, &mine);
    mine.header.bytes = w->t->sent_bytes - sent;
    KV_TRY(rc, out, kv_tp_share(w->t, &mine, sizeof mine, all, err));
    KV_TRY(rc, out, check_notes(w, all, err));
    for (int32_t r = 0; r < w->t->size; r++) {
        found.forward = found.forward && all[r].forward;
        found.sent_bytes += all[r].header.bytes;
    }
    found.least_bytes = found.moved * kv_index_bytes(&w->wire);
    *out = found;
out:
    close_work(w);
    return rc;
}
