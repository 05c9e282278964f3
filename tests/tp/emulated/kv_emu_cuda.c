/* The CUDA runtime's part: memory whose addresses host code cannot follow, streams. */
#include <stdlib.h>
#include <string.h>

#include "tests/emulated/kv_emu_memory.h"

struct CUstream_st {
    int unused;
};

static int (*busy_now)(cudaStream_t s);

static int is_device(const void *p)
{
    return ((uintptr_t)p & KV_EMU_TAG) != 0;
}

int kv_emu_is_device(const void *p, size_t bytes)
{
    (void)bytes; /* sizes are not kept */
    return is_device(p);
}

void kv_emu_copy(void *dst, const void *src, size_t bytes)
{
    memcpy(kv_emu_host(dst), kv_emu_host(src), bytes);
}

void kv_emu_set_busy(int (*busy)(cudaStream_t s))
{
    busy_now = busy;
}

void *kv_emu_host(const void *p)
{
    return (void *)((uintptr_t)p & ~KV_EMU_TAG);
}

void *kv_emu_device(void *host)
{
    return (void *)((uintptr_t)host | KV_EMU_TAG);
}

cudaError_t cudaSetDevice(int device)
{
    return device >= 0 && device < 8 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    void *p = malloc(bytes);
    if (p == NULL) return cudaErrorMemoryAllocation;
    memset(p, 0xEE, bytes);
    *out = kv_emu_device(p);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (p != NULL && !is_device(p)) return cudaErrorInvalidValue;
    free(p != NULL ? kv_emu_host(p) : NULL);
    return cudaSuccess;
}

/* Host memory copied to host memory needs no CUDA: tp/ must know what it has. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    if (kind != cudaMemcpyDefault || (!is_device(dst) && !is_device(src))) return cudaErrorInvalidValue;
    memcpy(kv_emu_host(dst), kv_emu_host(src), bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *out = calloc(1, sizeof **out);
    return *out != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return busy_now != NULL && busy_now(stream) ? cudaErrorNotReady : cudaSuccess;
}

/* Of the default stream alone: to wait on one that NCCL works on could be without end. */
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return stream == NULL ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    }
    return "unrecognized error code";
}
