/* The CUDA backend of the device table (kernels/kv_kern.h). No CUDA type here; in a build without CUDA the same
 * functions say so (KV_EUNSUP).
 *
 * Operations without a result are queued on one stream of the device and return at once; one with a result waits for
 * all before it. A failed operation leaves the device usable unless the GPU itself gave up: then every later one fails
 * with KV_EDEVICE. One thread at a time. */
#ifndef KV_CUDA_H
#define KV_CUDA_H

#include "kernels/kv_kern.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KV_CUDA_NAME 64
#define KV_CUDA_UUID 48

/* One GPU that this process sees. */
typedef struct {
    char name[KV_CUDA_NAME]; /* "NVIDIA H200" */
    char uuid[KV_CUDA_UUID]; /* "GPU-8f6b..." as nvidia-smi writes it: the same card for every process */
    int32_t major, minor;    /* compute capability */
    int32_t multiprocessors;
    int64_t memory_bytes, l2_bytes;
} kv_cuda_gpu;

/* How many GPUs this process sees, at least one. KV_EUNSUP where there is none, no driver, or no CUDA in this build;
 * KV_EDEVICE where there is a driver and it is too old or does not work. Versions are told. */
kv_rc kv_cuda_count(int *count, kv_err *err) KV_MUST_USE;
/* GPU `ordinal`, 0 <= ordinal < count. */
kv_rc kv_cuda_describe(int ordinal, kv_cuda_gpu *out, kv_err *err) KV_MUST_USE;
/* Its device. Close with dev->ops->close(dev). KV_EDEVICE, KV_ENOMEM, KV_EUNSUP. */
kv_rc kv_device_cuda_new(int ordinal, kv_device **out, kv_err *err) KV_MUST_USE;
/* Bytes of its memory that are free now; dev is one of kv_device_cuda_new. KV_EDEVICE, KV_EUNSUP. */
kv_rc kv_cuda_free_memory(const kv_device *dev, int64_t *bytes, kv_err *err) KV_MUST_USE;
/* Memory that cells gave back and that is kept for later ones: at most so many bytes of it. */
void kv_cuda_keep_at_most(kv_device *dev, int64_t bytes);
/* "CUDA 13.0, driver 13.0", "none" in a build without CUDA. */
const char *kv_cuda_versions(char *out, size_t n);

#ifdef __cplusplus
}
#endif
#endif
