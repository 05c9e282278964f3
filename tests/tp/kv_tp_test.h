/* A group of ranks played by threads of the test: each has a device and a local transport of its own. */
#ifndef KV_TP_TEST_H
#define KV_TP_TEST_H

#include "tests/kv_test.h"
#include "tp/kv_tp.h"
#include "tp/kv_tp_move.h"

#define KVT_TP_STALE 0x5640U
#define KVT_TP_FILL 0x3555U

typedef struct {
    void (*work)(void *ctx, int32_t rank, kv_tp_transport *t, kv_device *dev, kv_rc *rc, kv_err *err);
    void *ctx;
    kv_rc rc;
    kv_err err;
} kvt_tp_rank;

static inline kv_rc kvt_tp_part(void *ctx, kv_tp_transport *t, kv_err *err)
{
    kvt_tp_rank *me = (kvt_tp_rank *)ctx + t->rank;
    kv_device *dev = NULL;
    me->rc = kv_device_cpu_new(&dev, &me->err);
    if (me->rc == KV_OK)
        me->work(me->ctx, t->rank, t, dev, &me->rc, &me->err);
    else
        kv_tp_abort(t, me->rc, me->err.text);
    if (dev != NULL) dev->ops->close(dev);
    return me->rc == KV_OK ? KV_OK : KV_FAIL(err, me->rc, "%s", me->err.text);
}

/* Runs n ranks to their end; rank[r] holds how each ended. */
static inline void kvt_tp_group(int32_t n, double timeout_s, kvt_tp_rank *rank,
                                void (*work)(void *, int32_t, kv_tp_transport *, kv_device *, kv_rc *, kv_err *),
                                void *ctx)
{
    kv_err err = {0};
    kv_rc worst = KV_OK;
    for (int32_t r = 0; r < n; r++) rank[r] = (kvt_tp_rank){.work = work, .ctx = ctx};
    const kv_rc rc = kv_tp_play(n, timeout_s, kvt_tp_part, rank, &err);
    for (int32_t r = 0; r < n; r++)
        if (rank[r].rc != KV_OK && (worst == KV_OK || worst == KV_EPEER)) worst = rank[r].rc;
    assert_int_equal(rc, worst); /* the outcome of all is that of the first that knows a cause */
}

/* ---- moves ------------------------------------------------------------------------------- */

typedef struct {
    kv_tp_spec spec; /* transport, device and hook_ctx are set for each rank */
    kv_tp_result result[KV_TP_RANKS_MAX];
    void (*hook)(void *ctx, kv_tp_point point, void *data);
} kvt_tp_move;

/* What a hook is given. */
typedef struct {
    kvt_tp_move *move;
    int32_t rank;
    kv_tp_transport *t;
    int arrived;
} kvt_tp_at;

static inline void kvt_tp_move_rank(void *ctx, int32_t rank, kv_tp_transport *t, kv_device *dev, kv_rc *rc, kv_err *err)
{
    kvt_tp_move *m = ctx;
    kv_tp_spec s = m->spec;
    kvt_tp_at at = {m, rank, t, 0};
    s.transport = t;
    s.device = dev;
    s.hook = m->hook;
    s.hook_ctx = &at;
    *rc = kv_tp_move(&s, &m->result[rank], err);
}

static inline kv_tp_spec kvt_tp_spec(const kv_layout *src, int64_t p, const kv_layout *dst, int64_t q,
                                     const kv_geometry *g)
{
    return (kv_tp_spec){.layout = {src, dst},
                        .tp = {p, q},
                        .g = g,
                        .seed = 7,
                        .stale = KVT_TP_STALE,
                        .fill = {KVT_TP_FILL, KVT_TP_FILL},
                        .payloads = 2};
}

#endif
