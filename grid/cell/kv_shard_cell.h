/* Runs one cell of check "tp": shards of one tensor-parallel size become shards of another (tp/kv_tp_move.h). */
#ifndef KV_SHARD_CELL_H
#define KV_SHARD_CELL_H

#include "grid/cell/kv_cell.h"
#include "tp/kv_tp_transport.h"

/* Fills the row of a tp cell as kv_codec_cell_run does for a codec cell. This process plays all ranks of the cell: each in a
 * thread with a CPU device of its own; a cell of one rank on the runner's device. */
kv_rc kv_shard_cell_run(kv_runner *r, const kv_campaign *c, const kv_shard_point *p, const kv_geometry *g, kv_row *row,
                        kv_err *err) KV_MUST_USE;

/* The same by real ranks: collective over the group of transport t, which has as many as the cell takes. Every rank gets
 * the row. A failure that leaves t whole is a FAILED row everywhere; an error means that t is broken. */
kv_rc kv_shard_cell_group(kv_runner *r, const kv_campaign *c, int64_t cell, kv_tp_transport *t, kv_row *row,
                          kv_err *err) KV_MUST_USE;

/* Ranks that cell `cell` of any check really takes: 1 where it is refused, or is of another check. */
kv_rc kv_shard_cell_ranks(const kv_campaign *c, int64_t cell, int64_t *out, kv_err *err) KV_MUST_USE;

/* The row of a cell that there are too few ranks for. */
void kv_shard_cell_unproven(const kv_campaign *c, int64_t cell, kv_row *row);

kv_rc kv_shard_cell_plan(const kv_campaign *c, const kv_shard_point *p, const kv_geometry *g, kv_cell_need *out,
                         kv_err *err) KV_MUST_USE;

#endif
