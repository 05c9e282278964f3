/* What a campaign costs, decided before anything runs. */
#ifndef KV_PLAN_H
#define KV_PLAN_H

#include "grid/kv_cell_run.h"

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
/* KV_ENOMEM where `ranks_here` ranks of this host would need more memory than it has; names both numbers. */
kv_rc kv_plan_check_memory(const kv_campaign *c, const kv_plan *p, int ranks_here, kv_err *err) KV_MUST_USE;

#endif
