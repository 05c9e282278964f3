/* Stores rows with a recipe of the codec and reads them back, every step by two implementations: the device's (its batches),
 * and the plain reference. What they made goes into digests, so that a row of the certificate can say whether
 * they agree. A block whose outliers do not fit its slot stays uncompressed, and is counted. */
#ifndef KV_CODEC_STORE_H
#define KV_CODEC_STORE_H

#include "certs/kv_hash.h"
#include "kernels/codec/kv_codec_batch.h"
#include "kernels/codec/kv_codec_recipe.h"

/* Pairs of digests of a row: [0] as made, [1] as the reference makes it. */
enum { KV_DIGEST_CODES, KV_DIGEST_SLOTS, KV_DIGEST_VALUES, KV_DIGESTS };

/* What has been stored so far. Initialise with kv_codec_tally_start. */
typedef struct {
    kv_hash digest[KV_DIGESTS][2]; /* slots: as packed; unpacked and packed again */
    int64_t encoded_rows, blocks, overflow_blocks, outliers, saturated;
} kv_codec_tally;
void kv_codec_tally_start(kv_codec_tally *t);

#define KV_CODEC_AT_ONCE 16 /* blocks of a lane that a device works on together, fewer where its memory is short */

/* Adds values, codes or bytes to a digest in a form that does not depend on the machine: little-endian, every NaN one
 * and the same. */
void kv_codec_digest_f32(kv_hash *h, const float *x, int64_t n);
void kv_codec_digest_u16(kv_hash *h, const uint16_t *x, int64_t n);
void kv_codec_digest_u32(kv_hash *h, const uint32_t *x, int64_t n);

/* Of the batch of kv_codec_store_rotation. */
kv_codec_batch_shape kv_codec_rotation_shape(int64_t dim, int32_t bits);

/* x[rows][dim], rows of one lane from its first on; y[rows][dim] gets what comes back. Full blocks are encoded, groups
 * of them share a basis as the recipe says, the rows behind the last full block pass through bf16. h->slot.n rows make a
 * block. `pages` (may be NULL) gets the packed slots one after the other, kv_codec_slot_sizes bytes each; zeros for a
 * block that overflowed. KV_EFORMAT (values that are not finite), KV_ENOMEM, KV_EDEVICE. */
kv_rc kv_codec_store_lane(kv_device *dev, const kv_codec_half_config *h, const float *x, int64_t rows, float *y,
                          uint8_t *pages, kv_codec_tally *t, kv_err *err) KV_MUST_USE;

/* The ways that the codec is measured against (kv_store_method): x[rows][dim] stored and read back. */
kv_rc kv_codec_store_fp8(const float *x, int64_t rows, int64_t dim, float *y, kv_codec_tally *t, kv_err *err)
    KV_MUST_USE;
kv_rc kv_codec_store_int4(const float *x, int64_t rows, int64_t dim, float *y, kv_codec_tally *t, kv_err *err)
    KV_MUST_USE;
kv_rc kv_codec_store_rotation(kv_device *dev, const float *x, int64_t rows, int64_t dim, int32_t bits, float *y,
                              kv_codec_tally *t, kv_err *err) KV_MUST_USE;
/* Bytes of one row of dim values. */
int64_t kv_codec_fp8_row_bytes(int64_t dim);
int64_t kv_codec_int4_row_bytes(int64_t dim);
int64_t kv_codec_rotation_row_bytes(int64_t dim, int32_t bits);

/* y = x through bf16. */
void kv_codec_through_bf16(const float *x, int64_t n, float *y);

#endif
