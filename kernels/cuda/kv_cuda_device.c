/* The CUDA device: opening and closing, images, and the table. What checks stands in kv_cuda_checks.c. */
#include "kernels/cuda/kv_cuda_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/kv_cuda_check.h"

#ifndef KV_CUDA_KIND /* the emulated device's header calls itself otherwise */
#define KV_CUDA_KIND "cuda"
#endif
#define KEPT_PART 4     /* of the GPU's memory: the most that is kept for later */
#define ROOM_BEFORE 256 /* so that an image begins where cudaMalloc's memory may begin */

/* ---- memory and order ------------------------------------------------------------------- */

kv_rc kv_cuda_enter(const kv_cuda *c, kv_err *err)
{
    kv_rc rc = KV_OK;
    KV_CUDA_TRY(rc, err, out, cudaSetDevice(c->ordinal));
out:
    return rc;
}

kv_rc kv_cuda_take(const kv_cuda *c, int64_t bytes, const char *what, void **out, kv_err *err)
{
    size_t free_bytes = 0, total = 0;
    cudaError_t e = kv_cuda_pool_take(c->pool, bytes, out);
    if (e == cudaErrorMemoryAllocation && kv_cuda_waves_release(c)) {
        (void)cudaGetLastError();
        e = kv_cuda_pool_take(c->pool, bytes, out);
    }
    if (e == cudaSuccess) return KV_OK;
    if (e != cudaErrorMemoryAllocation) return kv_cuda_failed(err, e, "cudaMalloc", __func__, __LINE__);
    (void)cudaGetLastError();
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) (void)cudaGetLastError();
    return KV_FAIL(err, KV_ENOMEM, "GPU %s (%s): no room for %s of %" PRId64 " bytes: %zu of %zu bytes are free",
                   c->gpu.uuid, c->gpu.name, what, bytes, free_bytes, total);
}

void kv_cuda_give(const kv_cuda *c, void *p, int64_t bytes)
{
    kv_err none = {0};
    if (kv_cuda_enter(c, &none) == KV_OK) kv_cuda_pool_give(c->pool, p, bytes);
}

kv_rc kv_cuda_wait(const kv_cuda *c, kv_err *err)
{
    kv_rc rc = KV_OK;
    KV_CUDA_TRY(rc, err, out, cudaStreamSynchronize(c->on.stream));
out:
    return rc;
}

static kv_rc finish(kv_device *d, kv_err *err)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    rc = c->at != NULL ? kv_cuda_wave_settle(c, err) : kv_cuda_wait(c, err);
out:
    return rc;
}

/* ---- images ----------------------------------------------------------------------------- */

static kv_rc image_new(kv_device *d, int64_t capacity_bytes, kv_image **out, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    int64_t bytes = 0;
    void *block = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    if (!kv_add_i64(capacity_bytes, ROOM_BEFORE + KV_GUARD_BYTES, &bytes))
        return KV_FAIL(err, KV_ENOMEM, "an image of %" PRId64 " bytes", capacity_bytes);
    kv_image *im = kv_alloc(1, sizeof *im);
    if (im == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the record of an image");
    rc = kv_cuda_take(c, bytes, "an image", &block, err);
    if (rc != KV_OK) {
        kv_free(im);
        goto out;
    }
    im->block = block;
    im->data = im->block + ROOM_BEFORE;
    im->capacity = capacity_bytes;
    *out = im;
out:
    return rc;
}

static void image_free(kv_device *d, kv_image *im)
{
    if (im == NULL) return;
    kv_cuda_give((kv_cuda *)(void *)d, im->block, im->capacity + ROOM_BEFORE + KV_GUARD_BYTES);
    kv_free(im);
}

static kv_rc poison(kv_device *d, kv_image *im, int64_t bytes, uint32_t round, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    if (bytes > im->capacity)
        return KV_FAIL(err, KV_EBUG, "an image of %" PRId64 " bytes does not fit %" PRId64, bytes, im->capacity);
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    im->bytes = bytes;
    rc = kv_cuda_run_poison(&c->on, im->data, bytes, kv_image_poison(round), err);
out:
    return rc;
}

static kv_rc build(kv_device *d, kv_image *im, const kv_index *ix, const kv_payload *p, int32_t via, uint32_t pad,
                   kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    rc = kv_cuda_run_build(&c->on, im->data, ix, p, via, pad, err);
out:
    return rc;
}

static kv_rc translate(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, kv_image *dst,
                       uint32_t fill, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    rc = kv_cuda_run_translate(&c->on, s, src->data, t, dst->data, fill, err);
out:
    return rc;
}

static kv_rc copy(kv_device *d, const kv_image *src, kv_image *dst, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    if (src->bytes > dst->capacity) return KV_FAIL(err, KV_EBUG, "copy into an image that is too small");
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    dst->bytes = src->bytes;
    if (src->bytes > 0)
        KV_CUDA_TRY(rc, err, out,
                    cudaMemcpyAsync(dst->data, src->data, (size_t)src->bytes, cudaMemcpyDeviceToDevice, c->on.stream));
out:
    return rc;
}

static kv_rc read_image(kv_device *d, const kv_image *im, void *bytes, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    if (im->bytes > 0)
        KV_CUDA_TRY(rc, err, out,
                    cudaMemcpyAsync(bytes, im->data, (size_t)im->bytes, cudaMemcpyDeviceToHost, c->on.stream));
    rc = kv_cuda_wait(c, err);
out:
    return rc;
}

/* Waits: the caller's bytes may change once this returns. */
static kv_rc write_image(kv_device *d, kv_image *im, const void *bytes, int64_t n, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    if (n > im->capacity) return KV_FAIL(err, KV_EBUG, "%" PRId64 " bytes for an image of %" PRId64, n, im->capacity);
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    im->bytes = n;
    if (n > 0)
        KV_CUDA_TRY(rc, err, out, cudaMemcpyAsync(im->data, bytes, (size_t)n, cudaMemcpyHostToDevice, c->on.stream));
    rc = kv_cuda_wait(c, err);
out:
    return rc;
}

/* ---- opening and closing ---------------------------------------------------------------- */

static void close_device(kv_device *d)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    kv_err none = {0};
    if (kv_cuda_enter(c, &none) == KV_OK) {
        kv_cuda_waves_close(c);
        if (c->pool != NULL) {
            kv_cuda_give(c, c->work, c->work_bytes);
            kv_cuda_give(c, c->result, (int64_t)sizeof *c->result);
        }
        (void)cudaFreeHost(c->back);
        if (c->stream != NULL) (void)cudaStreamDestroy(c->stream);
        if (c->pool != NULL) kv_cuda_pool_empty(c->pool);
        (void)cudaGetLastError();
    }
    kv_free(c->pool);
    kv_free(c);
}

static const kv_device_ops cuda_ops = {
    .kind = KV_CUDA_KIND,
    .image_new = image_new,
    .image_free = image_free,
    .poison = poison,
    .guards = kv_cuda_guards,
    .build = build,
    .translate = translate,
    .probe = kv_cuda_probe,
    .compare = kv_cuda_compare,
    .diffset_new = kv_cuda_diffset_new,
    .diffset_free = kv_cuda_diffset_free,
    .diffset_add = kv_cuda_diffset_add,
    .diffset_take = kv_cuda_diffset_take,
    .drift = kv_cuda_drift,
    .gather = kv_cuda_gather,
    .decode_dense = kv_cuda_decode_dense,
    .decode = kv_decode_layer,
    .decode_reference = kv_decode_canonical,
    .read = read_image,
    .write = write_image,
    .copy = copy,
    .finish = finish,
    .close = close_device,
    .wave_open = kv_cuda_wave_open,
    .wave_cell = kv_cuda_wave_cell,
    .wave_send = kv_cuda_wave_send,
    .wave_wait = kv_cuda_wave_wait,
    .codec = &kv_cuda_codec_ops,
};

/* "13.0" of 13000 */
static void version_text(int version, char out[16])
{
    snprintf(out, 16, "%d.%d", version / 1000, version % 1000 / 10);
}

const char *kv_cuda_versions(char *out, size_t n)
{
    int runtime = 0, driver = 0;
    char a[16], b[16];
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess || cudaDriverGetVersion(&driver) != cudaSuccess)
        (void)cudaGetLastError();
    version_text(runtime, a);
    version_text(driver, b);
    snprintf(out, n, "%s %s, driver %s", strcmp(KV_CUDA_KIND, "cuda") == 0 ? "CUDA" : KV_CUDA_KIND, a,
             driver > 0 ? b : "none");
    return out;
}

kv_rc kv_cuda_count(int *count, kv_err *err)
{
    int n = 0, driver = 0;
    char versions[96];
    const cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess && n > 0) {
        *count = n;
        return KV_OK;
    }
    (void)cudaGetLastError();
    if (cudaDriverGetVersion(&driver) != cudaSuccess) (void)cudaGetLastError();
    (void)kv_cuda_versions(versions, sizeof versions);
    if (e == cudaErrorInsufficientDriver && driver == 0)
        return KV_FAIL(err, KV_EUNSUP, "this machine has no GPU driver (%s)", versions);
    if (e == cudaErrorInsufficientDriver)
        return KV_FAIL(err, KV_EDEVICE, "the GPU driver is too old for this program (%s)", versions);
    if (e == cudaErrorNoDevice || e == cudaSuccess)
        return KV_FAIL(err, KV_EUNSUP, "this process sees no GPU (%s)", versions);
    return kv_cuda_failed(err, e, "cudaGetDeviceCount", __func__, __LINE__);
}

static void uuid_text(const struct cudaDeviceProp *p, char out[KV_CUDA_UUID])
{
    int at = snprintf(out, KV_CUDA_UUID, "GPU-");
    for (int i = 0; i < 16; i++)
        at += snprintf(out + at, (size_t)(KV_CUDA_UUID - at), "%s%02x",
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)p->uuid.bytes[i]);
}

kv_rc kv_cuda_describe(int ordinal, kv_cuda_gpu *out, kv_err *err)
{
    struct cudaDeviceProp p;
    kv_rc rc = KV_OK;
    KV_CUDA_TRY(rc, err, out, cudaGetDeviceProperties(&p, ordinal));
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%.60s", p.name);
    uuid_text(&p, out->uuid);
    out->major = p.major;
    out->minor = p.minor;
    out->multiprocessors = p.multiProcessorCount;
    out->memory_bytes = (int64_t)p.totalGlobalMem;
    out->l2_bytes = p.l2CacheSize;
out:
    return rc;
}

kv_rc kv_device_cuda_new(int ordinal, kv_device **out, kv_err *err)
{
    kv_cuda *c = NULL;
    void *p = NULL;
    int count = 0;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_count(&count, err));
    if (ordinal < 0 || ordinal >= count) return KV_FAIL(err, KV_EINVAL, "GPU %d: this process sees %d", ordinal, count);
    c = kv_alloc(1, sizeof *c);
    if (c == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a GPU's record");
    c->dev.ops = &cuda_ops;
    c->ordinal = ordinal;
    c->pool = kv_alloc(1, sizeof *c->pool);
    if (c->pool == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a GPU's record");
        goto out_close;
    }
    KV_TRY(rc, out_close, kv_cuda_describe(ordinal, &c->gpu, err));
    c->pool->most_bytes = c->gpu.memory_bytes / KEPT_PART;
    KV_TRY(rc, out_close, kv_cuda_enter(c, err));
    c->on.multiprocessors = c->gpu.multiprocessors;
    KV_CUDA_TRY(rc, err, out_close, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    c->on.stream = c->stream;
    KV_CUDA_TRY(rc, err, out_close, cudaMallocHost(&p, sizeof *c->back));
    c->back = p;
    KV_TRY(rc, out_close, kv_cuda_take(c, (int64_t)sizeof *c->result, "results", &p, err));
    c->result = p;
    *out = &c->dev;
    goto out;
out_close:
    close_device(&c->dev);
out:
    return rc;
}

kv_rc kv_cuda_free_memory(const kv_device *dev, int64_t *bytes, kv_err *err)
{
    size_t free_bytes = 0, total = 0;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_enter((const kv_cuda *)(const void *)dev, err));
    KV_CUDA_TRY(rc, err, out, cudaMemGetInfo(&free_bytes, &total));
    *bytes = (int64_t)free_bytes;
out:
    return rc;
}

void kv_cuda_keep_at_most(kv_device *dev, int64_t bytes)
{
    const kv_cuda *c = (kv_cuda *)(void *)dev;
    kv_err none = {0};
    if (kv_cuda_enter(c, &none) == KV_OK) kv_cuda_pool_keep(c->pool, bytes);
}
