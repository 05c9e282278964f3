/* What a campaign costs, decided before anything runs. */
#ifndef KV_PLAN_H
#define KV_PLAN_H

#include "grid/kv_cell_run.h"
#include "kernels/cuda/kv_cuda.h"

typedef struct {
    int64_t cells, refused;
    int64_t peak_bytes;                       /* of the largest cell: memory of one rank */
    int64_t peak_cell;                        /* that cell, -1 if none runs */
    double moved_bytes;                       /* all cells */
    double cost_ns;                           /* all cells, one core */
    int64_t largest_positions, largest_bytes; /* of one image */
    uint64_t *costs;                          /* of each cell, owned */
} kv_plan;

/* Plans every cell. A size that does not fit is an error that names layout and geometry. */
kv_rc kv_plan_new(const kv_campaign *c, kv_plan *out, kv_err *err) KV_MUST_USE;
void kv_plan_free(kv_plan *p);
/* KV_ENOMEM where `ranks_here` ranks of this host would need more memory than it has, or (where gpu is not
 * NULL and has a UUID) one of them more than its GPU; names both numbers. */
kv_rc kv_plan_check_memory(const kv_campaign *c, const kv_plan *p, int ranks_here, const kv_cuda_gpu *gpu, kv_err *err)
    KV_MUST_USE;

/* ---- the share of each rank (kv_plan_share.c) ------------------------------------------- */

typedef struct {
    int64_t rank, items;
    double cost_ns;
} kv_share;
typedef struct {
    double all_ns, least_ns, most_ns;
    int64_t idle; /* ranks that get nothing */
} kv_share_sum;

/* The work of each of `ranks` (at least 1), cells and the items of controls, by rank. The caller frees *out. */
kv_rc kv_plan_share_new(const kv_plan *p, int64_t ranks, kv_share **out, kv_err *err) KV_MUST_USE;
kv_share_sum kv_plan_share_sum(const kv_share *s, int64_t ranks);

#endif
