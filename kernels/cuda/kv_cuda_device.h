/* Inside the CUDA backend: one open GPU. Host code only. */
#ifndef KV_CUDA_DEVICE_H
#define KV_CUDA_DEVICE_H

#include "kernels/codec/kv_codec_batch.h"
#include "kernels/cuda/kv_cuda.h"
#include "kernels/cuda/kv_cuda_kern.h"
#include "kernels/cuda/kv_cuda_pool.h"
#include "kernels/cuda/kv_cuda_wave.h"
#include "kernels/kv_kern_image.h"

/* What comes back from the device: written there, copied to pinned memory in one piece. */
typedef struct {
    kv_cuda_result checks;
    kv_decode_result decode;
} kv_cuda_back;

struct kv_cuda {
    kv_device dev; /* first: a kv_device * is a kv_cuda * */
    int ordinal;
    cudaStream_t stream;  /* of operations outside waves */
    kv_cuda_on on;        /* where the next operation goes */
    kv_cuda_back *back;   /* pinned */
    kv_cuda_back *result; /* on the device */
    float *work;          /* scratch of a token leg outside waves, while it is asked for */
    int64_t work_bytes;
    kv_cuda_pool *pool;
    kv_cuda_wave *wave[KV_WAVES]; /* made when first opened */
    kv_cuda_wave *at;             /* whose cell is asked for now; NULL: none */
    kv_cuda_gpu gpu;
};

/* Makes this GPU the thread's own. */
kv_rc kv_cuda_enter(const kv_cuda *c, kv_err *err) KV_MUST_USE;
/* bytes of device memory; KV_ENOMEM tells what was wanted and what is free. */
kv_rc kv_cuda_take(const kv_cuda *c, int64_t bytes, const char *what, void **out, kv_err *err) KV_MUST_USE;
/* Gives it back (NULL too): see kv_cuda_pool_give. */
void kv_cuda_give(const kv_cuda *c, void *p, int64_t bytes);
/* Waits for everything queued. */
kv_rc kv_cuda_wait(const kv_cuda *c, kv_err *err) KV_MUST_USE;

extern const kv_codec_ops kv_cuda_codec_ops; /* kv_cuda_batch.c */

kv_rc kv_cuda_guards(kv_device *d, const kv_image *im, kv_guards_result *out, kv_err *err);
kv_rc kv_cuda_probe(kv_device *d, const kv_index *ix, kv_probe_result *out, kv_err *err);
kv_rc kv_cuda_compare(kv_device *d, const kv_index *ix, const kv_image *got, const kv_image *want,
                      kv_compare_result *out, kv_err *err);
kv_rc kv_cuda_diffset_new(kv_device *d, const kv_index *ix, kv_diffset **out, kv_err *err);
void kv_cuda_diffset_free(kv_device *d, kv_diffset *s);
kv_rc kv_cuda_diffset_add(kv_device *d, kv_diffset *s, const kv_image *got, const kv_image *want, kv_err *err);
kv_rc kv_cuda_diffset_take(kv_device *d, kv_diffset *s, kv_diffset_result *out, kv_err *err);
kv_rc kv_cuda_drift(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, const kv_image *dst,
                    kv_drift_result *out, kv_err *err);
kv_rc kv_cuda_gather(kv_device *d, const kv_index *ix, const kv_image *im, const kv_payload *p, int64_t layer,
                     const kv_window *w, kv_image *dense, kv_err *err);
kv_rc kv_cuda_decode_dense(kv_device *d, const kv_index *ix, int32_t element, const kv_image *dense,
                           uint64_t weight_seed, int64_t model_layer, kv_decode_result *out, kv_err *err);

#endif
