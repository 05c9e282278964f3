/* What a tp cell moves, and whether it exists: of layouts, of sealed pages, between pipeline stages. */
#ifndef KV_SHARD_MOVE_H
#define KV_SHARD_MOVE_H

#include "grid/campaign/kv_campaign.h"
#include "grid/cell/kv_shard_pages.h"

/* A cell's move: the spec without transport and device. Points into itself. */
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
} kv_shard_move;

/* Freed with kv_shard_move_free whatever happened. */
kv_rc kv_shard_move_make(const kv_campaign *c, const kv_shard_point *p, const kv_geometry *g, kv_shard_move *m,
                         kv_err *err) KV_MUST_USE;
void kv_shard_move_free(kv_shard_move *m);
/* Stages and chunks, which take memory by layers and rounds: before the move runs, not where it is only planned. */
kv_rc kv_shard_move_cut(kv_shard_move *m, kv_err *err) KV_MUST_USE;
/* Chunks of tokens as they arrive; of pages that must be complete, how many each chunk completes, without chunks that complete
 * none. chunk, page >= 1. (*out)[*n], freed with kv_free whatever happened. */
kv_rc kv_shard_chunks_new(int64_t tokens, int64_t chunk, int64_t page, int64_t **out, size_t *n, kv_err *err)
    KV_MUST_USE;

/* Whether the move exists (kv_tp_examine), and found->ranks; what travels is not counted. A shard alone that is the whole moves on one rank; else m->one says that there is
 * to show why it cannot. */
kv_rc kv_shard_move_examine(kv_shard_move *m, kv_tp_result *found, kv_err *err) KV_MUST_USE;

/* Words of a cell, which depend on nothing that needs memory. */
uint32_t kv_shard_point_words(const kv_campaign *c, const kv_shard_point *p, const kv_geometry *g);

#endif
