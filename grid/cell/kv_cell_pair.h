/* A cell of check "pair" on one device. */
#ifndef KV_CELL_PAIR_H
#define KV_CELL_PAIR_H

#include "grid/cell/kv_cell.h"

/* Runs it. An error is the cell's own (memory, device); then *row holds its cell and words. */
kv_rc kv_cell_pair_run(kv_runner *r, const kv_campaign *c, int64_t cell, kv_row *row, kv_err *err) KV_MUST_USE;

/* The same in two steps, for a wave of a device (kernels/kv_kern.h). kv_cell_ask queues all of it; whatever it returns, *out,
 * if it is set, is the caller's to drop; `row` must live until then. kv_cell_tell fills in the row once the wave was
 * waited for. After an error of either the cell can be run by itself. Drop once the wave is over;
 * kv_cell_forget after a wave that failed. */
typedef struct kv_cell_asked kv_cell_asked;
kv_rc kv_cell_ask(kv_runner *r, const kv_campaign *c, int64_t cell, kv_row *row, kv_cell_asked **out, kv_err *err)
    KV_MUST_USE;
kv_rc kv_cell_tell(kv_cell_asked *x, kv_err *err) KV_MUST_USE;
void kv_cell_drop(kv_cell_asked *x); /* NULL is fine */
/* Reference decodes that were asked for and never came. Nothing may be under way that still writes them. */
void kv_cell_forget(kv_runner *r);

#endif
