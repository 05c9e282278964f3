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

/* The byte that fills a poisoned image. */
static inline unsigned char kv_image_poison(uint32_t round)
{
    return (unsigned char)(0xA5U ^ (round * 0x1DU & 0xFFU));
}

#endif
