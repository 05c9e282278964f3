/* What a campaign costs, decided before anything runs. */
#ifndef KV_PLAN_H
#define KV_PLAN_H

#include "grid/cell/kv_cell_plan.h"
#include "grid/cell/kv_memory.h"

/* The largest of a kind, and its cell; -1 if no cell runs. */
typedef struct {
    int64_t bytes, cell;
} kv_plan_most;

typedef struct {
    int64_t cells, refused;
    int64_t peak_bytes;                       /* of the largest cell, in one piece: memory of one rank on a CPU */
    int64_t peak_cell;                        /* that cell, -1 if none runs */
    kv_plan_most least;                       /* where each cell is cut as small as it can be */
    kv_plan_most gpu_least, gpu_host;         /* of a GPU's memory, so cut; of the host's then */
    double moved_bytes;                       /* all cells */
    double cost_ns;                           /* all cells, one core */
    int64_t largest_positions, largest_bytes; /* of one image */
    uint64_t *costs;                          /* of each cell, owned */
} kv_plan;

/* Plans every cell. A size that does not fit is an error that names layout and geometry. */
kv_rc kv_plan_new(const kv_campaign *c, kv_plan *out, kv_err *err) KV_MUST_USE;
void kv_plan_free(kv_plan *p);
/* KV_ENOMEM where a cell does not fit what a rank has, cut as small as it can be: its share of the host's memory, or of
 * what is free on its GPU; names both numbers. */
kv_rc kv_plan_check_memory(const kv_campaign *c, const kv_plan *p, const kv_memory *m, kv_err *err) KV_MUST_USE;
/* What kv_runner.memory_bytes should be: at least what the plan's cells need. */
int64_t kv_plan_cell_memory(const kv_plan *p, const kv_memory *m);

/* The cells that are cut into windows where one may take `limit` bytes of a CPU's memory, and the one cut most. */
typedef struct {
    int64_t cells, cell; /* cell: -1 if there is none */
    kv_cell_split most;
} kv_plan_split;
kv_rc kv_plan_split_of(const kv_campaign *c, const kv_plan *p, int64_t limit, kv_plan_split *out, kv_err *err)
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
