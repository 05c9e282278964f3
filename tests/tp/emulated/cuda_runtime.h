/* The few calls of the CUDA runtime that tp/ makes, on host memory, for tests of the NCCL transport.
 *
 * "Device" addresses carry a bit that no valid address has: host code that follows one crashes, a copy that is given
 * one in place of a host address fails. Only what is here is emulated; names and values are those of CUDA. */
#ifndef KV_EMULATED_CUDA_RUNTIME_H
#define KV_EMULATED_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600
} cudaError_t;
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
typedef struct CUstream_st *cudaStream_t;
#define cudaStreamNonBlocking 0x01

cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
const char *cudaGetErrorString(cudaError_t e);

/* ---- the tests' own ---------------------------------------------------------------------- */

#define KV_EMU_TAG ((uintptr_t)1 << 55)
/* The host memory behind an address; the address itself if it is none of the device. */
void *kv_emu_host(const void *p);
void *kv_emu_device(void *host);

#endif
