/* Runs one cell on one device, whatever its check. */
#ifndef KV_CELL_RUN_H
#define KV_CELL_RUN_H

#include "grid/cell/kv_cell.h"

/* Runs cell number `cell` into *row. A cell that cannot be run (memory, device) is a FAILED row, not an
 * error; an error here means the campaign and the row do not fit together. */
kv_rc kv_cell_run(kv_runner *r, const kv_campaign *c, int64_t cell, kv_row *row, kv_err *err) KV_MUST_USE;
void kv_runner_free(kv_runner *r); /* not dev */

#endif
