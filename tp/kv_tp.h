/* tp: tensor-parallel groups. Which transport this build can move shards with, and how many ranks a move
 * between two TP sizes takes. */
#ifndef KV_TP_H
#define KV_TP_H

#include "base/kv_base.h"

/* "2.27.3" and so on of the NCCL this build is linked with, or "none". Never NULL. */
const char *kv_tp_nccl_version(void);
/* What a certificate calls the transport over it: "nccl", "emulated" in a test's program, "none". Never NULL. */
const char *kv_tp_nccl_kind(void);

/* Ranks that a move of p source shards to q destination shards takes: source shard r and destination shard r
 * live on rank r of max(p, q). 0 if p or q is not positive. */
int64_t kv_tp_group_ranks(int64_t p, int64_t q);

#endif
