/* Planted faults, for tests only: compiled in where KV_FAULTS is on, else every call does nothing.
 *
 * $KVGRID_FAULT = KIND@RANK:N: in its N-th cell (from 1) rank RANK
 *   memory, device   cannot run the cell (a FAILED row)
 *   error            meets a fatal error
 *   wrong            grades the cell NOT_EXACT, like a device that computes wrongly (of the codec: other codes than the
 *                    reference)
 *   kill             is killed
 *   hang             never comes back
 *   stop             is stopped (SIGSTOP) until somebody sends SIGCONT
 * In a cell of several ranks memory and device are met when the rank packs its shard for the second time, the others but
 * `wrong` when it is about to send for the second time.
 *
 * $KVGRID_FAULT_FACT = WHAT=VALUE@RANK: rank RANK says VALUE where it is asked for its version of WHAT. */
#ifndef KV_FAULT_H
#define KV_FAULT_H

#include "grid/row/kv_row.h"

/* Called once for each cell that a rank ran; may change the row, return an error, or not return. */
kv_rc kv_fault_cell(int rank, kv_row *row, kv_err *err) KV_MUST_USE;

/* Called in cells of several ranks before a shard is packed (sending: false) or sent; as kv_fault_cell. */
kv_rc kv_fault_step(int rank, bool sending, kv_err *err) KV_MUST_USE;

/* What rank `rank` says about its version of `what`: n bytes at value, which may be changed. */
void kv_fault_fact(int rank, const char *what, char *value, size_t n);

/* How many rows may stand in the document: $KVGRID_ROWS_LIMIT, else `limit`. */
size_t kv_fault_rows_limit(size_t limit);

/* Bytes of memory that this host has for all ranks: $KVGRID_MEMORY_LIMIT, else `bytes`. */
int64_t kv_fault_memory_limit(int64_t bytes);

#endif
