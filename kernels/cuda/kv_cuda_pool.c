#include "kernels/cuda/kv_cuda_pool.h"

#include <string.h>

static void release(void *p)
{
    if (cudaFree(p) != cudaSuccess) (void)cudaGetLastError(); /* of earlier work: whoever asks for a result is told */
}

static void *remove_at(kv_cuda_pool *pool, int32_t at)
{
    void *p = pool->kept[at].p;
    pool->bytes -= pool->kept[at].bytes;
    pool->n--;
    memmove(&pool->kept[at], &pool->kept[at + 1], (size_t)(pool->n - at) * sizeof pool->kept[0]);
    return p;
}

void kv_cuda_pool_empty(kv_cuda_pool *pool)
{
    while (pool->n > 0) release(remove_at(pool, pool->n - 1));
}

static void forget_old(kv_cuda_pool *pool)
{
    while (pool->n > 0 && (pool->n + pool->in_use > pool->in_use_once || pool->bytes > pool->most_bytes))
        release(remove_at(pool, 0));
}

void kv_cuda_pool_keep(kv_cuda_pool *pool, int64_t most_bytes)
{
    pool->most_bytes = most_bytes;
    forget_old(pool);
}

static cudaError_t fresh(kv_cuda_pool *pool, int64_t bytes, void **out)
{
    cudaError_t e = cudaMalloc(out, (size_t)bytes);
    if (e == cudaErrorMemoryAllocation && pool->n > 0) {
        (void)cudaGetLastError();
        kv_cuda_pool_empty(pool);
        e = cudaMalloc(out, (size_t)bytes);
    }
    return e;
}

cudaError_t kv_cuda_pool_take(kv_cuda_pool *pool, int64_t bytes, void **out)
{
    cudaError_t e = cudaSuccess;
    int32_t at = pool->n - 1;
    while (at >= 0 && pool->kept[at].bytes != bytes) at--;
    if (at >= 0)
        *out = remove_at(pool, at);
    else
        e = fresh(pool, bytes, out);
    if (e != cudaSuccess) return e;
    pool->in_use++;
    if (pool->in_use > pool->in_use_once) pool->in_use_once = pool->in_use;
    forget_old(pool);
    return cudaSuccess;
}

void kv_cuda_pool_give(kv_cuda_pool *pool, void *p, int64_t bytes)
{
    if (p == NULL) return;
    pool->in_use--;
    if (pool->n == KV_CUDA_POOL_BLOCKS) release(remove_at(pool, 0));
    pool->kept[pool->n].p = p;
    pool->kept[pool->n++].bytes = bytes;
    pool->bytes += bytes;
    forget_old(pool);
}
