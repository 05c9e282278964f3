/* Groups of ranks and their transports: what the files of kv_session_shard*.c share. */
#ifndef KV_SESSION_SHARD_H
#define KV_SESSION_SHARD_H

#include "grid/run/kv_session.h"
#include "tp/kv_tp_transport.h"

/* The transports of this rank, by the number of ranks of a group: of the first ranks, and of those that take a second
 * look (kv_session_group_first). */
struct kv_session_shards {
    kv_tp_world *world;
    kv_tp_transport *over_mpi[2][KV_TP_RANKS_MAX + 1], *over_nccl[2][KV_TP_RANKS_MAX + 1];
    bool nccl, nccl_again[KV_TP_RANKS_MAX + 1];
    double told; /* seconds at which progress was told */
};

/* The rank that is the first of a group of n; the others follow, behind the last comes rank 0. For a second look every
 * shard lies on another rank than at first, and as many ranks as can be had are others. */
int32_t kv_session_group_first(const kv_session *s, int32_t n, bool again);
/* Whether this rank is one of it. */
bool kv_session_group_has(const kv_session *s, int32_t n, bool again);
/* A cell of `ranks` ranks on this one of them. An error is the end of the job: the group is broken. */
kv_rc kv_session_group_run(kv_session *s, int64_t cell, int32_t ranks, bool again, kv_row *row, kv_err *err)
    KV_MUST_USE;

#endif
