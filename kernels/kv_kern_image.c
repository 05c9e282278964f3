/* CPU images: guarded memory, poison, copy. */
#include <inttypes.h>
#include <string.h>

#include "kernels/kv_kern_cpu.h"

kv_rc kv_cpu_image_new(kv_device *d, int64_t capacity_bytes, kv_image **out, kv_err *err)
{
    (void)d;
    kv_image *im = kv_alloc(1, sizeof *im);
    unsigned char *block = NULL;
    if (im != NULL && capacity_bytes <= INT64_MAX - 4 * KV_GUARD_BYTES)
        block = kv_alloc_image((size_t)capacity_bytes + 2 * KV_GUARD_BYTES);
    if (block == NULL) {
        kv_free(im);
        return KV_FAIL(err, KV_ENOMEM, "no memory for an image of %" PRId64 " bytes", capacity_bytes);
    }
    im->block = block;
    im->data = block + KV_GUARD_BYTES;
    im->capacity = capacity_bytes;
    im->host = true;
    *out = im;
    return KV_OK;
}

void kv_cpu_image_free(kv_device *d, kv_image *im)
{
    (void)d;
    if (im == NULL) return;
    kv_free(im->block);
    kv_free(im);
}

void *kv_image_host_view(kv_image *im)
{
    return im->host ? im->data : NULL;
}

kv_rc kv_cpu_poison(kv_device *d, kv_image *im, int64_t bytes, uint32_t round, kv_err *err)
{
    (void)d;
    if (bytes > im->capacity)
        return KV_FAIL(err, KV_EBUG, "an image of %" PRId64 " bytes does not fit %" PRId64, bytes, im->capacity);
    im->bytes = bytes;
    memset(im->block, KV_GUARD_FILL, KV_GUARD_BYTES);
    memset(im->data, kv_image_poison(round), (size_t)bytes);
    memset(im->data + bytes, KV_GUARD_FILL, KV_GUARD_BYTES);
    return KV_OK;
}

kv_rc kv_cpu_guards(kv_device *d, const kv_image *im, kv_guards_result *out, kv_err *err)
{
    (void)d;
    (void)err;
    *out = (kv_guards_result){.after = -1};
    for (int i = KV_GUARD_BYTES - 1; i >= 0; i--) {
        if (im->block[i] != KV_GUARD_FILL) out->before = KV_GUARD_BYTES - i;
        if (im->data[im->bytes + i] != KV_GUARD_FILL) out->after = i;
    }
    return KV_OK;
}

kv_rc kv_check_guards(kv_device *d, const kv_image *im, kv_err *err)
{
    kv_guards_result g;
    const kv_rc rc = d->ops->guards(d, im, &g, err);
    if (rc != KV_OK) return rc;
    if (g.before > 0) return KV_FAIL(err, KV_EDEVICE, "a byte %d before the image was overwritten", g.before);
    if (g.after >= 0) return KV_FAIL(err, KV_EDEVICE, "a byte %d past the end of the image was overwritten", g.after);
    return KV_OK;
}

kv_rc kv_cpu_copy(kv_device *d, const kv_image *src, kv_image *dst, kv_err *err)
{
    (void)d;
    if (src->bytes > dst->capacity) return KV_FAIL(err, KV_EBUG, "copy into an image that is too small");
    memcpy(dst->data, src->data, (size_t)src->bytes);
    dst->bytes = src->bytes;
    return KV_OK;
}

kv_rc kv_cpu_read(kv_device *d, const kv_image *im, void *bytes, kv_err *err)
{
    (void)d;
    (void)err;
    memcpy(bytes, im->data, (size_t)im->bytes);
    return KV_OK;
}

kv_rc kv_cpu_write(kv_device *d, kv_image *im, const void *bytes, int64_t n, kv_err *err)
{
    (void)d;
    if (n > im->capacity) return KV_FAIL(err, KV_EBUG, "%" PRId64 " bytes for an image of %" PRId64, n, im->capacity);
    memcpy(im->data, bytes, (size_t)n);
    im->bytes = n;
    return KV_OK;
}

kv_rc kv_cpu_finish(kv_device *d, kv_err *err)
{
    (void)d;
    (void)err;
    return KV_OK;
}
