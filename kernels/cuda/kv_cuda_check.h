/* Every call of the CUDA runtime goes through one macro. */
#ifndef KV_CUDA_CHECK_H
#define KV_CUDA_CHECK_H

#include <cuda_runtime_api.h>

#include "base/kv_base.h"

/* Records what failed. The runtime's own note is taken off, so that the next call starts clean. */
static inline kv_rc kv_cuda_failed(kv_err *err, cudaError_t e, const char *call, const char *func, int line)
{
    (void)cudaGetLastError();
    return kv_err_set(err, e == cudaErrorMemoryAllocation ? KV_ENOMEM : KV_EDEVICE, func, line, "GPU: %s (%s) in %.60s",
                      cudaGetErrorString(e), cudaGetErrorName(e), call);
}

#define KV_CUDA_TRY(rc_, err_, label_, call_)                                                                          \
    do {                                                                                                               \
        const cudaError_t kv_e_ = (call_);                                                                             \
        if (kv_e_ != cudaSuccess) {                                                                                    \
            (rc_) = kv_cuda_failed((err_), kv_e_, #call_, __func__, __LINE__);                                         \
            goto label_;                                                                                               \
        }                                                                                                              \
    } while (0)

#endif
