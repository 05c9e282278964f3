/* How kernels are written and launched here, so that the same source also runs on the emulated device of the tests,
 * whose cuda_runtime.h brings its own two macros. */
#ifndef KV_CUDA_LAUNCH_H
#define KV_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#include "kernels/cuda/kv_cuda_kern.h"

#ifndef KV_CUDA_LAUNCH
#define KV_CUDA_LAUNCH(kernel_, grid_, block_, shared_, stream_, ...)                                                  \
    kernel_<<<(grid_), (block_), (shared_), (stream_)>>>(__VA_ARGS__)
/* One variable of the block's shared memory; at most one of each name in a kernel. */
#define KV_CUDA_SHARED(type_, name_) __shared__ type_ name_
#endif

#define KV_CUDA_THREADS 256

/* A planted bug for tests (tests/kernels/cuda): 1 a tile edge off by one, 2 a missing barrier, 3 one tile short. */
#ifndef KV_CUDA_PLANT
#define KV_CUDA_PLANT 0
#endif

#ifdef __cplusplus

/* Writes a launch down where the cell's are: kernel, blocks and the arguments of one entry. A kernel X that is launched for
 * one cell and its twin X_many, whose row y of blocks takes entry y, share all but where their arguments lie. */
#define KV_CUDA_NOTE(on_, kernel_, blocks_, entry_, err_)                                                              \
    kv_cuda_list_add((on_)->list, kernel_, blocks_, &(entry_), sizeof(entry_), err_)
#define KV_CUDA_MANY(name_, many_, type_)                                                                              \
    extern "C" kv_rc name_(const kv_cuda_on *on, const void *entries, int32_t n, unsigned blocks, kv_err *err)         \
    {                                                                                                                  \
        const dim3 grid(blocks, (unsigned)n, 1);                                                                       \
        kv_rc rc = KV_OK;                                                                                              \
        KV_CUDA_LAUNCH(many_, grid, KV_CUDA_THREADS, 0, on->stream, (const type_ *)entries);                           \
        KV_CUDA_TRY(rc, err, out, cudaGetLastError());                                                                 \
    out:                                                                                                               \
        return rc;                                                                                                     \
    }

/* Blocks for `items` pieces of work, one a thread and turn; kernels stride over what is left. */
static inline unsigned kv_cuda_blocks(const kv_cuda_on *on, int64_t items)
{
    const int64_t need = (items + KV_CUDA_THREADS - 1) / KV_CUDA_THREADS, most = (int64_t)on->multiprocessors * 16;
    return (unsigned)(need < 1 ? 1 : need < most ? need : most);
}

/* This thread's number in the grid, and how many there are. */
static __device__ inline int64_t kv_cuda_first(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ inline int64_t kv_cuda_step(void)
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* Element i of an image: as kv_num_load and kv_num_store, which know no alignment and so go byte by byte on a GPU. */
static __device__ inline uint32_t kv_cuda_load(kv_elem e, const unsigned char *data, int64_t i)
{
    const int64_t size = kv_elem_bytes(e);
    if (size == 2) return ((const uint16_t *)data)[i];
    if (size == 4) return ((const uint32_t *)data)[i];
    return data[i];
}
static __device__ inline void kv_cuda_store(kv_elem e, unsigned char *data, int64_t i, uint32_t bits)
{
    const int64_t size = kv_elem_bytes(e);
    if (size == 2)
        ((uint16_t *)data)[i] = (uint16_t)bits;
    else if (size == 4)
        ((uint32_t *)data)[i] = bits;
    else
        data[i] = (unsigned char)bits;
}

/* Sum over the 32 lanes of the warp; all of them must come here. */
static __device__ inline unsigned long long kv_cuda_warp_sum(unsigned long long v)
{
    for (int mask = 16; mask > 0; mask >>= 1) v += __shfl_xor_sync(0xFFFFFFFFu, v, mask);
    return v;
}
static __device__ inline unsigned long long kv_cuda_warp_max(unsigned long long v)
{
    for (int mask = 16; mask > 0; mask >>= 1) {
        const unsigned long long other = __shfl_xor_sync(0xFFFFFFFFu, v, mask);
        v = other > v ? other : v;
    }
    return v;
}

#endif
#endif
