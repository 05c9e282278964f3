/* kvgrid bench --tp: a shard packed, sent from rank 0 to rank 1 and unpacked, beside a plain message of the same bytes. */
#ifndef KV_BENCH_TP_H
#define KV_BENCH_TP_H

#include "grid/cli/kv_opts.h"
#include "mpi/kv_mpi.h"

/* Collective; takes two ranks or more, of which the first two work. Rank 0 prints. */
kv_rc kv_bench_tp(const kv_opts *given, kv_mpi *m, kv_err *err) KV_MUST_USE;

#endif
