/* Inside the CUDA backend: device memory that cells give back is kept for the next one that wants as much, since taking
 * it and giving it back make the whole GPU wait. A block is used again at its exact size only, so that its end stays its
 * end; kept and in use together there are never more blocks than were once in use. Host code only. */
#ifndef KV_CUDA_POOL_H
#define KV_CUDA_POOL_H

#include <cuda_runtime_api.h>

#include "base/kv_base.h"

#define KV_CUDA_POOL_BLOCKS 512

typedef struct {
    struct {
        void *p;
        int64_t bytes;
    } kept[KV_CUDA_POOL_BLOCKS]; /* the oldest first */
    int32_t n;
    int64_t bytes, most_bytes; /* kept; at most */
    int32_t in_use, in_use_once;
} kv_cuda_pool;

/* bytes of device memory, kept or new; where there is no room, what is kept is given back first. */
cudaError_t kv_cuda_pool_take(kv_cuda_pool *pool, int64_t bytes, void **out);
/* Gives it back, NULL too. Work that was queued on it must be done, or what follows must be queued behind it. */
void kv_cuda_pool_give(kv_cuda_pool *pool, void *p, int64_t bytes);
/* At most so many bytes are kept from now on. */
void kv_cuda_pool_keep(kv_cuda_pool *pool, int64_t most_bytes);
void kv_cuda_pool_empty(kv_cuda_pool *pool);

#endif
