/* What travels when p source shards become q destination shards: pure logic, no bytes, no ranks.
 *
 * Source shard r and destination shard r live on rank r of max(p, q) ranks. A destination receives exactly the
 * heads it lacks, each from one sender; where source heads are replicated, the receivers of a head take its
 * holders in turn, so no holder sends more than one copy more than another. Gather is q = 1, scatter p = 1. */
#ifndef KV_TP_PLAN_H
#define KV_TP_PLAN_H

#include "base/kv_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Heads [first, first + heads) from one rank to another. */
typedef struct {
    int32_t from, to;
    int64_t first, heads;
} kv_tp_parcel;

/* Initialise with {0}; free with kv_tp_plan_free. Parcels are sorted by (to, first). */
typedef struct {
    int64_t heads, p, q; /* heads of the whole model; a latent cache has 1 */
    int64_t first[2];    /* rank that holds source shard 0, destination shard 0 */
    kv_tp_parcel *parcel;
    size_t n;
} kv_tp_plan;

/* KV_EINVAL (with the numbers) where the shards of p or q do not exist. */
kv_rc kv_tp_plan_new(int64_t heads, int64_t p, int64_t q, kv_tp_plan *out, kv_err *err) KV_MUST_USE;
/* Source shard r lives on rank first[0] + r, destination shard r on rank first[1] + r: of two pipeline stages. */
kv_rc kv_tp_plan_between(int64_t heads, int64_t p, int64_t q, const int64_t first[2], kv_tp_plan *out, kv_err *err)
    KV_MUST_USE;
void kv_tp_plan_free(kv_tp_plan *p);

/* ---- how a unit is cut for sending ------------------------------------------------------- */

typedef enum {
    KV_TP_SEND_UNIT,   /* all layers of the unit and all tokens at once */
    KV_TP_SEND_LAYERS, /* layer by layer */
    KV_TP_SEND_CHUNKS  /* as the tokens come: whole pages only, the last one when the request is at its end */
} kv_tp_send;

/* Layers [layer, layer + layers) of the unit, tokens [token, token + tokens). */
typedef struct {
    int64_t layer, layers, token, tokens;
    int64_t page, pages; /* the same tokens as pages of the sending side (tokens themselves where it has no pages) */
} kv_tp_round;

/* Cuts a unit into rounds that cover each (layer, token) once, in order. chunk[i] tokens arrive with chunk i and
 * must add up to `tokens` (KV_EINVAL); a round sends the pages that are complete by then and were not sent yet, a
 * chunk that completes no page sends nothing and gives no round. block = 0: no pages, every token counts.
 * *out is freed with kv_free. */
kv_rc kv_tp_rounds_new(kv_tp_send send, int64_t layers, int64_t tokens, int64_t block, const int64_t *chunk,
                       size_t n_chunks, kv_tp_round **out, size_t *n, kv_err *err) KV_MUST_USE;

/* ---- pipeline stages --------------------------------------------------------------------- */

/* The layers a stage holds, by their ids in the model, in any order. Stage i of TP size p lives on ranks i p ... (i+1) p - 1. */
typedef struct {
    const int64_t *layer;
    size_t n;
} kv_tp_stage;

/* A layer on its way: its id, and where it stands on either side. */
typedef struct {
    int64_t layer;
    int32_t from, to;           /* stages */
    int64_t from_slot, to_slot; /* place in the stage's list */
} kv_tp_hop;

/* Pairs source and destination stages by layer id, never by position. Refused (KV_EINVAL, naming id and stage): an
 * id outside [0, layers), the same id in two places of one side, a layer that a destination wants and no source
 * holds, a layer that no destination takes. *out holds `layers` hops in the order of the ids; free with kv_free. */
kv_rc kv_tp_hops_new(int64_t layers, const kv_tp_stage *src, size_t n_src, const kv_tp_stage *dst, size_t n_dst,
                     kv_tp_hop **out, kv_err *err) KV_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
