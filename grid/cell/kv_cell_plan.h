/* What a cell needs, without running it, and how it is cut where memory is short. */
#ifndef KV_CELL_PLAN_H
#define KV_CELL_PLAN_H

#include "grid/cell/kv_cell.h"

/* How cell `cell`, one that runs, is cut where it may take `limit` bytes (0: no limit) of a CPU's or a GPU's memory; one
 * window for cells of other checks than "pair". KV_ENOMEM as kv_windows_fit. */
typedef struct {
    int64_t windows, tokens; /* in every window but the last */
} kv_cell_split;
kv_rc kv_cell_split_of(const kv_campaign *c, int64_t cell, int64_t limit, bool gpu, kv_cell_split *out, kv_err *err)
    KV_MUST_USE;
kv_rc kv_cell_plan(const kv_campaign *c, int64_t cell, kv_cell_need *out, kv_err *err) KV_MUST_USE;

#endif
