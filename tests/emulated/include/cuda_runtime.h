/* CUDA C++ as kernels/cuda uses it, for g++: kernels become functions that the emulated device calls once for each
 * thread of each block (kv_emu.cpp). Sees the same sources as nvcc; launches and shared memory go through the two
 * macros at the end. Needs C++20. */
#ifndef KV_EMU_CUDA_RUNTIME_H
#define KV_EMU_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
#define KV_EMULATED 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__

struct uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

/* Of the thread that runs now. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/* ---- what kernels call ------------------------------------------------------------------ */

void __syncthreads(void);
/* Every lane of the warp gives 8 bytes and gets those of lane `from`. All 32 lanes that live must come here. */
uint64_t kv_emu_exchange(unsigned mask, uint64_t given, unsigned from);
/* `bytes` of this block's shared memory that belong to this place of the kernel; filled with poison at its start. */
void *kv_emu_shared(const void *site, size_t bytes);

template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int lane_mask)
{
    uint64_t bits = 0;
    T got;
    static_assert(sizeof(T) <= sizeof bits, "one register or two");
    memcpy(&bits, &v, sizeof v);
    bits = kv_emu_exchange(mask, bits, (threadIdx.x & 31u) ^ (unsigned)lane_mask);
    memcpy(&got, &bits, sizeof got);
    return got;
}

template <class T, class V> static inline T atomicAdd(T *p, V v)
{
    const T was = *p;
    *p = (T)(was + (T)v);
    return was;
}
template <class T, class V> static inline T atomicMin(T *p, V v)
{
    const T was = *p;
    if ((T)v < was) *p = (T)v;
    return was;
}
template <class T, class V> static inline T atomicMax(T *p, V v)
{
    const T was = *p;
    if (was < (T)v) *p = (T)v;
    return was;
}
template <class T, class V> static inline T atomicOr(T *p, V v)
{
    const T was = *p;
    *p = was | (T)v;
    return was;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

/* ---- launches --------------------------------------------------------------------------- */

/* Queues body(closure) for every thread; the closure is deleted when the stream is through with it. */
void kv_emu_queue(const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t s, void (*body)(void *),
                  void (*drop)(void *), void *closure);

template <class... P, class... A>
static inline void kv_emu_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                 cudaStream_t s, A... args)
{
    /* arguments are copied now, as a launch does; what they point to is not */
    auto *run = new auto([kernel, ... given = (P)args]() { kernel(given...); });
    using closure = decltype(run);
    kv_emu_queue(
        name, grid, block, shared, s, [](void *c) { (*(closure)c)(); }, [](void *c) { delete (closure)c; }, run);
}

#define KV_CUDA_LAUNCH(kernel_, grid_, block_, shared_, stream_, ...)                                                  \
    kv_emu_launch(#kernel_, kernel_, grid_, block_, shared_, stream_, __VA_ARGS__)
#define KV_CUDA_SHARED(type_, name_)                                                                                   \
    static const char name_##_site = 0;                                                                                \
    type_ &name_ = *(type_ *)kv_emu_shared(&name_##_site, sizeof(type_))

#endif
#endif
