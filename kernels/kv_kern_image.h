/* What an image is, for the backends: the bytes of one unit between two guards. `block` is what was allocated, `data`
 * where the image begins; in host memory for the CPU, in device memory for a GPU, where host code must not follow them. */
#ifndef KV_KERN_IMAGE_H
#define KV_KERN_IMAGE_H

#include "kernels/kv_kern.h"

#define KV_GUARD_FILL 0x5C /* every byte of a guard */

struct kv_image {
    unsigned char *block;
    unsigned char *data; /* KV_GUARD_BYTES of guard before it, and after the bytes in use */
    int64_t capacity;    /* bytes */
    int64_t bytes;       /* in use */
    bool host;           /* host code may read and write data */
};

/* KV_EBUG unless the window lies in the layer, and the dense layer of elements e in the image. */
kv_rc kv_image_holds_layer(const kv_index *ix, const kv_window *w, kv_elem e, const kv_image *dense, kv_err *err)
    KV_MUST_USE;

/* `decode` and `decode_reference` of a table (kv_kern.h), made of its `gather` and `decode_dense`. */
kv_rc kv_decode_layer(kv_device *d, const kv_index *ix, const kv_image *im, int64_t layer, uint64_t weight_seed,
                      int64_t model_layer, kv_image *scratch, kv_decode_result *out, kv_err *err);
kv_rc kv_decode_canonical(kv_device *d, const kv_index *ix, const kv_payload *p, uint64_t weight_seed,
                          int64_t model_layer, kv_image *scratch, kv_decode_result *out, kv_err *err);

/* The byte that fills a poisoned image. */
static inline unsigned char kv_image_poison(uint32_t round)
{
    return (unsigned char)(0xA5U ^ (round * 0x1DU & 0xFFU));
}

#endif
