/* The one check for calls of NCCL and of the CUDA runtime: a failure becomes KV_EDEVICE with the library's text. */
#ifndef KV_TP_CHECK_H
#define KV_TP_CHECK_H

#include <cuda_runtime.h>
#include <nccl.h>

#include "base/kv_base.h"

static inline const char *kv_tp_nccl_text(ncclResult_t code)
{
    return ncclGetErrorString(code);
}

/* ncclInProgress is no failure: the communicator is non-blocking, its outcome is polled. */
#define KV_NCCL_TRY(rc_, label_, call_, err_)                                                                          \
    do {                                                                                                               \
        const ncclResult_t kv_code_ = (call_);                                                                         \
        if (kv_code_ != ncclSuccess && kv_code_ != ncclInProgress) {                                                   \
            (rc_) = KV_FAIL((err_), KV_EDEVICE, "%.60s: %s", #call_, kv_tp_nccl_text(kv_code_));                       \
            goto label_;                                                                                               \
        }                                                                                                              \
    } while (0)

#define KV_TP_CUDA_TRY(rc_, label_, call_, err_)                                                                       \
    do {                                                                                                               \
        const cudaError_t kv_code_ = (call_);                                                                          \
        if (kv_code_ != cudaSuccess) {                                                                                 \
            (rc_) = KV_FAIL((err_), kv_code_ == cudaErrorMemoryAllocation ? KV_ENOMEM : KV_EDEVICE, "%.60s: %s",       \
                            #call_, cudaGetErrorString(kv_code_));                                                     \
            goto label_;                                                                                               \
        }                                                                                                              \
    } while (0)

#endif
