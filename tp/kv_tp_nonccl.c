/* Built without NCCL and CUDA. */
#include <string.h>

#include "tp/kv_tp.h"
#include "tp/kv_tp_transport.h"

const char *kv_tp_nccl_version(void)
{
    return "none";
}

const char *kv_tp_nccl_kind(void)
{
    return "none";
}

kv_rc kv_tp_nccl_new(kv_tp_transport *control, int32_t gpu, double timeout_s, kv_tp_transport **out, kv_err *err)
{
    (void)control;
    (void)gpu;
    (void)timeout_s;
    (void)out;
    return KV_FAIL(err, KV_EUNSUP, "built without NCCL");
}

kv_rc kv_tp_copy(void *dst, bool dst_gpu, const void *src, bool src_gpu, int64_t bytes, kv_err *err)
{
    if (dst_gpu || src_gpu) return KV_FAIL(err, KV_EUNSUP, "built without CUDA");
    if (bytes > 0) memcpy(dst, src, (size_t)bytes);
    return KV_OK;
}
