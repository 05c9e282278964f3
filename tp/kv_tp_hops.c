/* Pipeline stages paired by layer id. */
#include <inttypes.h>

#include "tp/kv_tp_plan.h"

/* Notes who holds each layer of one side. */
static kv_rc place(int64_t layers, const kv_tp_stage *side, size_t n, const char *what, int32_t *stage, int64_t *slot,
                   kv_err *err)
{
    for (int64_t l = 0; l < layers; l++) stage[l] = -1;
    for (size_t s = 0; s < n; s++)
        for (size_t i = 0; i < side[s].n; i++) {
            const int64_t id = side[s].layer[i];
            if (id < 0 || id >= layers)
                return KV_FAIL(err, KV_EINVAL, "%s stage %zu holds layer %" PRId64 " of a model of %" PRId64 " layers",
                               what, s, id, layers);
            if (stage[id] >= 0)
                return KV_FAIL(err, KV_EINVAL, "layer %" PRId64 " stands twice: in %s stages %" PRId32 " and %zu", id,
                               what, stage[id], s);
            stage[id] = (int32_t)s;
            slot[id] = (int64_t)i;
        }
    return KV_OK;
}

static kv_rc pair(int64_t layers, const int32_t *from, const int32_t *to, kv_err *err)
{
    for (int64_t l = 0; l < layers; l++) {
        if (from[l] < 0 && to[l] < 0)
            return KV_FAIL(err, KV_EINVAL, "layer %" PRId64 " is missing: no stage of either side holds it", l);
        if (from[l] < 0)
            return KV_FAIL(err, KV_EINVAL,
                           "layer %" PRId64 " is missing: destination stage %" PRId32
                           " wants it and no source stage holds it",
                           l, to[l]);
        if (to[l] < 0)
            return KV_FAIL(err, KV_EINVAL,
                           "layer %" PRId64 " would be lost: source stage %" PRId32
                           " holds it and no destination stage takes it",
                           l, from[l]);
    }
    return KV_OK;
}

kv_rc kv_tp_hops_new(int64_t layers, const kv_tp_stage *src, size_t n_src, const kv_tp_stage *dst, size_t n_dst,
                     kv_tp_hop **out, kv_err *err)
{
    if (layers < 1) return KV_FAIL(err, KV_EINVAL, "a model of %" PRId64 " layers", layers);
    kv_rc rc = KV_OK;
    const size_t n = (size_t)layers;
    int32_t *stage = kv_alloc(n, 2 * sizeof *stage);
    int64_t *slot = kv_alloc(n, 2 * sizeof *slot);
    kv_tp_hop *hop = kv_alloc(n, sizeof *hop);
    if (stage == NULL || slot == NULL || hop == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " layers", layers);
        goto out;
    }
    KV_TRY(rc, out, place(layers, src, n_src, "source", stage, slot, err));
    KV_TRY(rc, out, place(layers, dst, n_dst, "destination", stage + n, slot + n, err));
    KV_TRY(rc, out, pair(layers, stage, stage + n, err));
    for (size_t l = 0; l < n; l++) hop[l] = (kv_tp_hop){(int64_t)l, stage[l], stage[n + l], slot[l], slot[n + l]};
    *out = hop;
    hop = NULL;
out:
    kv_free(stage);
    kv_free(slot);
    kv_free(hop);
    return rc;
}
