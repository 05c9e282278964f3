/* codec batch: many blocks of one configuration on one device, encoded or decoded together. The table of a device has one
 * set of these functions (kv_device_ops.codec); all give the bits of the plain reference (kv_codec.h).
 *
 * A batch holds skeletons, rows and codes of its blocks in the device's memory. Encoding takes rows and makes codes; decoding
 * takes codes and makes rows, in the place of those that were there. Both may only be queued; what gets something waits.
 * Errors: KV_ENOMEM, KV_EDEVICE, KV_EBUG (arguments out of range). */
#ifndef KV_CODEC_BATCH_H
#define KV_CODEC_BATCH_H

#include "kernels/codec/kv_codec.h"
#include "kernels/kv_kern.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    kv_codec_params p;
    int64_t blocks; /* at least 1 */
    int64_t rows;   /* of each block, at least 1 */
    bool shared;    /* one skeleton, that of block 0, for all blocks */
    bool want_res_norm;
} kv_codec_batch_shape;

typedef struct kv_codec_batch kv_codec_batch; /* of the device that made it */

struct kv_codec_ops {
    kv_rc (*create)(kv_device *d, const kv_codec_batch_shape *s, kv_codec_batch **out, kv_err *err);
    void (*destroy)(kv_device *d, kv_codec_batch *b); /* b may be NULL */

    /* The skeleton of a block (0 if shared); x[rows][dim] of a block; its codes, outliers of it at most rows * wht_len. */
    kv_rc (*put_skeleton)(kv_device *d, kv_codec_batch *b, int64_t block, const kv_codec_skeleton *s, kv_err *err);
    kv_rc (*put_rows)(kv_device *d, kv_codec_batch *b, int64_t block, const float *x, kv_err *err);
    kv_rc (*put_codes)(kv_device *d, kv_codec_batch *b, int64_t block, const kv_codec_codes *c, kv_err *err);

    /* The first `blocks` blocks, 1 to all. Their skeletons, and rows or codes, were put before. */
    kv_rc (*encode)(kv_device *d, kv_codec_batch *b, int64_t blocks, kv_err *err);
    kv_rc (*decode)(kv_device *d, kv_codec_batch *b, int64_t blocks, kv_err *err);

    /* c has room for the batch's rows (kv_codec_codes_new of its params); x[rows][dim]. */
    kv_rc (*get_codes)(kv_device *d, kv_codec_batch *b, int64_t block, kv_codec_codes *c, kv_err *err);
    kv_rc (*get_rows)(kv_device *d, kv_codec_batch *b, int64_t block, float *x, kv_err *err);
};

/* Sizes of a batch, each checked; KV_ENOMEM where they do not fit, KV_EINVAL or KV_EBUG for a shape that cannot be. */
typedef struct {
    int32_t wht;
    int64_t row_bytes;                      /* packed levels of a row */
    int64_t skeletons;                      /* 1 if shared, else blocks */
    int64_t basis, centers;                 /* values of one skeleton */
    int64_t rows, values, packed, outliers; /* of one block: rows, floats, packed bytes, room for outliers */
    int64_t all_rows, all_values, all_packed, all_outliers; /* of all blocks */
} kv_codec_batch_sizes;
kv_rc kv_codec_batch_size(const kv_codec_batch_shape *s, kv_codec_batch_sizes *out, kv_err *err) KV_MUST_USE;
/* Bytes that it takes at most of a GPU's memory (kernels/cuda/kv_cuda_batch.c). */
int64_t kv_codec_batch_bytes(const kv_codec_batch_shape *s, const kv_codec_batch_sizes *z);
/* Codes that stand within their ranges: n = rows, centres < k, as many outliers as counted and as there is room for. */
kv_rc kv_codec_batch_check(const kv_codec_batch_shape *s, const kv_codec_codes *c, kv_err *err) KV_MUST_USE;

/* The CPU backend's functions: the fastest variant that runs here, block after block. */
extern const kv_codec_ops kv_cpu_codec_ops;

#ifdef __cplusplus
}
#endif
#endif
