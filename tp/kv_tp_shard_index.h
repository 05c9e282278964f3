/* The shard map: which rank of a tensor-parallel group holds which kv heads. One formula for host and device.
 *
 *   heads % size == 0              rank r holds the slice [r * heads/size, (r + 1) * heads/size)
 *   size > heads, size % heads == 0  heads are replicated: rank r holds the one head r / (size/heads)
 *   anything else                  the shards do not exist
 *
 * A latent cache is one row that is never split: ask with heads = 1, and every rank holds a copy.
 * heads, size >= 1; 0 <= rank < size; 0 <= head < heads. No product here can overflow. */
#ifndef KV_TP_SHARD_INDEX_H
#define KV_TP_SHARD_INDEX_H

#include <stdint.h>

#ifndef KV_HD
#ifdef __CUDACC__
#define KV_HD __host__ __device__ static inline
#else
#define KV_HD static inline
#endif
#endif

/* Whether the shards of that size exist. */
KV_HD int kv_tp_shard_exists(int64_t heads, int64_t size)
{
    return heads % size == 0 || (size > heads && size % heads == 0);
}

/* How many ranks hold each head. */
KV_HD int64_t kv_tp_shard_copies(int64_t heads, int64_t size)
{
    return size > heads ? size / heads : 1;
}

/* How many heads each rank holds. */
KV_HD int64_t kv_tp_shard_heads(int64_t heads, int64_t size)
{
    return size > heads ? 1 : heads / size;
}

/* The first head that a rank holds. */
KV_HD int64_t kv_tp_shard_first(int64_t heads, int64_t size, int64_t rank)
{
    return size > heads ? rank / (size / heads) : rank * (heads / size);
}

/* The first of the kv_tp_shard_copies() ranks that hold a head; the others follow it. */
KV_HD int64_t kv_tp_shard_holder(int64_t heads, int64_t size, int64_t head)
{
    return size > heads ? head * (size / heads) : head / (heads / size);
}

/* Whether a rank holds a head; ranks outside the group hold none. */
KV_HD int kv_tp_shard_holds(int64_t heads, int64_t size, int64_t rank, int64_t head)
{
    int64_t first;
    if (rank < 0 || rank >= size) return 0;
    first = kv_tp_shard_first(heads, size, rank);
    return head >= first && head < first + kv_tp_shard_heads(heads, size);
}

/* How many heads destination rank `dst` of q needs and does not hold as source rank `src` of p: the least that can
 * travel to it. Ranks outside a group hold and need nothing. */
KV_HD int64_t kv_tp_shard_lacks_as(int64_t heads, int64_t p, int64_t src, int64_t q, int64_t dst)
{
    int64_t d0, d1, s0, s1, both;
    if (dst < 0 || dst >= q) return 0;
    d0 = kv_tp_shard_first(heads, q, dst);
    d1 = d0 + kv_tp_shard_heads(heads, q);
    if (src < 0 || src >= p) return d1 - d0;
    s0 = kv_tp_shard_first(heads, p, src);
    s1 = s0 + kv_tp_shard_heads(heads, p);
    both = (d1 < s1 ? d1 : s1) - (d0 > s0 ? d0 : s0);
    return d1 - d0 - (both > 0 ? both : 0);
}

/* The same for the rank that is number `rank` on both sides. */
KV_HD int64_t kv_tp_shard_lacks(int64_t heads, int64_t p, int64_t q, int64_t rank)
{
    return kv_tp_shard_lacks_as(heads, p, rank, q, rank);
}

#endif
