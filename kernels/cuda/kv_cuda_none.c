/* The CUDA backend of a build without CUDA. */
#include <stdio.h>

#include "kernels/cuda/kv_cuda.h"

kv_rc kv_cuda_count(int *count, kv_err *err)
{
    (void)count;
    return KV_FAIL(err, KV_EUNSUP, "this build has no CUDA");
}

kv_rc kv_cuda_describe(int ordinal, kv_cuda_gpu *out, kv_err *err)
{
    (void)ordinal;
    (void)out;
    return KV_FAIL(err, KV_EUNSUP, "this build has no CUDA");
}

kv_rc kv_device_cuda_new(int ordinal, kv_device **out, kv_err *err)
{
    (void)ordinal;
    (void)out;
    return KV_FAIL(err, KV_EUNSUP, "this build has no CUDA");
}

kv_rc kv_cuda_free_memory(const kv_device *dev, int64_t *bytes, kv_err *err)
{
    (void)dev;
    (void)bytes;
    return KV_FAIL(err, KV_EUNSUP, "this build has no CUDA");
}

void kv_cuda_keep_at_most(kv_device *dev, int64_t bytes)
{
    (void)dev;
    (void)bytes;
}

const char *kv_cuda_versions(char *out, size_t n)
{
    snprintf(out, n, "none");
    return out;
}
