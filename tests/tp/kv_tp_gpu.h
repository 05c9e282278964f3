/* A device whose images lie in emulated GPU memory: the CPU backend, with addresses that only it and emulated CUDA
 * calls can follow. It queues poisoning, as a GPU does: bytes that somebody writes into an image before `finish` (or
 * the next operation) are lost. */
#ifndef KV_TP_GPU_H
#define KV_TP_GPU_H

#include "kernels/kv_kern_image.h"
#include "tests/tp/emulated/cuda_runtime.h"

typedef struct {
    kv_device base;
    kv_device *cpu;
    struct {
        kv_image *im;
        int64_t bytes;
        uint32_t round;
    } queued[8];
    int n;
} kvt_gpu;

#define KVT_CPU(d_) (((kvt_gpu *)(d_))->cpu)

static inline kv_image *kvt_near(const kv_image *im)
{
    kv_image *m = (kv_image *)(uintptr_t)im;
    m->data = kv_emu_host(m->data);
    return m;
}

static inline void kvt_far(const kv_image *im)
{
    ((kv_image *)(uintptr_t)im)->data = kv_emu_device(im->data);
}

static inline kv_rc kvt_gpu_image_new(kv_device *d, int64_t bytes, kv_image **out, kv_err *err)
{
    const kv_rc rc = KVT_CPU(d)->ops->image_new(KVT_CPU(d), bytes, out, err);
    if (rc != KV_OK) return rc;
    (*out)->host = false;
    kvt_far(*out);
    return KV_OK;
}

static inline void kvt_gpu_image_free(kv_device *d, kv_image *im)
{
    kvt_gpu *g = (kvt_gpu *)d;
    for (int i = 0; i < g->n; i++)
        if (g->queued[i].im == im) g->n = 0; /* frees come when all is over */
    KVT_CPU(d)->ops->image_free(KVT_CPU(d), im);
}

static inline kv_rc kvt_gpu_flush(kv_device *d, kv_err *err)
{
    kvt_gpu *g = (kvt_gpu *)d;
    kv_rc rc = KV_OK;
    for (int i = 0; i < g->n && rc == KV_OK; i++) {
        rc = g->cpu->ops->poison(g->cpu, kvt_near(g->queued[i].im), g->queued[i].bytes, g->queued[i].round, err);
        kvt_far(g->queued[i].im);
    }
    g->n = 0;
    return rc;
}

/* Calls the CPU's operation with one or two images in reach. */
#define KVT_WITH(a_, b_, call_)                                                                                        \
    do {                                                                                                               \
        const kv_image *kvt_a_ = (a_), *kvt_b_ = (b_);                                                                 \
        if (kvt_gpu_flush(d, err) != KV_OK) return KV_EDEVICE;                                                         \
        (void)kvt_near(kvt_a_);                                                                                        \
        (void)kvt_near(kvt_b_);                                                                                        \
        const kv_rc kvt_rc_ = KVT_CPU(d)->ops->call_;                                                                  \
        kvt_far(kvt_a_);                                                                                               \
        kvt_far(kvt_b_);                                                                                               \
        return kvt_rc_;                                                                                                \
    } while (0)

static inline kv_rc kvt_gpu_poison(kv_device *d, kv_image *im, int64_t bytes, uint32_t round, kv_err *err)
{
    kvt_gpu *g = (kvt_gpu *)d;
    if (bytes > im->capacity) return KV_FAIL(err, KV_EBUG, "an image that is too small");
    if (g->n == 8 && kvt_gpu_flush(d, err) != KV_OK) return KV_EDEVICE;
    g->queued[g->n].im = im;
    g->queued[g->n].bytes = bytes;
    g->queued[g->n++].round = round;
    im->bytes = bytes;
    return KV_OK;
}

static inline kv_rc kvt_gpu_guards(kv_device *d, const kv_image *im, kv_guards_result *out, kv_err *err)
{
    KVT_WITH(im, im, guards(KVT_CPU(d), im, out, err));
}

static inline kv_rc kvt_gpu_build(kv_device *d, kv_image *im, const kv_index *ix, const kv_payload *p, int32_t via,
                                  uint32_t pad, kv_err *err)
{
    KVT_WITH(im, im, build(KVT_CPU(d), im, ix, p, via, pad, err));
}

static inline kv_rc kvt_gpu_translate(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t,
                                      kv_image *dst, uint32_t fill, kv_err *err)
{
    KVT_WITH(src, dst, translate(KVT_CPU(d), s, src, t, dst, fill, err));
}

static inline kv_rc kvt_gpu_probe(kv_device *d, const kv_index *ix, kv_probe_result *out, kv_err *err)
{
    return KVT_CPU(d)->ops->probe(KVT_CPU(d), ix, out, err);
}

static inline kv_rc kvt_gpu_compare(kv_device *d, const kv_index *ix, const kv_image *got, const kv_image *want,
                                    kv_compare_result *out, kv_err *err)
{
    KVT_WITH(got, want, compare(KVT_CPU(d), ix, got, want, out, err));
}

static inline kv_rc kvt_gpu_diffset_new(kv_device *d, const kv_index *ix, kv_diffset **out, kv_err *err)
{
    return KVT_CPU(d)->ops->diffset_new(KVT_CPU(d), ix, out, err);
}

static inline void kvt_gpu_diffset_free(kv_device *d, kv_diffset *s)
{
    KVT_CPU(d)->ops->diffset_free(KVT_CPU(d), s);
}

static inline kv_rc kvt_gpu_diffset_add(kv_device *d, kv_diffset *s, const kv_image *got, const kv_image *want,
                                        kv_err *err)
{
    KVT_WITH(got, want, diffset_add(KVT_CPU(d), s, got, want, err));
}

static inline kv_rc kvt_gpu_diffset_take(kv_device *d, kv_diffset *s, kv_diffset_result *out, kv_err *err)
{
    return KVT_CPU(d)->ops->diffset_take(KVT_CPU(d), s, out, err);
}

static inline kv_rc kvt_gpu_drift(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t,
                                  const kv_image *dst, kv_drift_result *out, kv_err *err)
{
    KVT_WITH(src, dst, drift(KVT_CPU(d), s, src, t, dst, out, err));
}

static inline kv_rc kvt_gpu_decode(kv_device *d, const kv_index *ix, const kv_image *im, int64_t layer, uint64_t seed,
                                   int64_t model_layer, kv_image *scratch, kv_decode_result *out, kv_err *err)
{
    KVT_WITH(im, scratch, decode(KVT_CPU(d), ix, im, layer, seed, model_layer, scratch, out, err));
}

static inline kv_rc kvt_gpu_reference(kv_device *d, const kv_index *ix, const kv_payload *p, uint64_t seed,
                                      int64_t model_layer, kv_image *scratch, kv_decode_result *out, kv_err *err)
{
    KVT_WITH(scratch, scratch, decode_reference(KVT_CPU(d), ix, p, seed, model_layer, scratch, out, err));
}

static inline kv_rc kvt_gpu_gather(kv_device *d, const kv_index *ix, const kv_image *im, const kv_payload *p,
                                   int64_t layer, const kv_window *w, kv_image *dense, kv_err *err)
{
    KVT_WITH(im != NULL ? im : dense, dense, gather(KVT_CPU(d), ix, im, p, layer, w, dense, err));
}

static inline kv_rc kvt_gpu_dense(kv_device *d, const kv_index *ix, int32_t element, const kv_image *dense,
                                  uint64_t seed, int64_t model_layer, kv_decode_result *out, kv_err *err)
{
    KVT_WITH(dense, dense, decode_dense(KVT_CPU(d), ix, element, dense, seed, model_layer, out, err));
}

static inline kv_rc kvt_gpu_copy(kv_device *d, const kv_image *src, kv_image *dst, kv_err *err)
{
    KVT_WITH(src, dst, copy(KVT_CPU(d), src, dst, err));
}

static inline kv_rc kvt_gpu_finish(kv_device *d, kv_err *err)
{
    const kv_rc rc = kvt_gpu_flush(d, err);
    return rc == KV_OK ? KVT_CPU(d)->ops->finish(KVT_CPU(d), err) : rc;
}

static inline void kvt_gpu_close(kv_device *d)
{
    KVT_CPU(d)->ops->close(KVT_CPU(d));
}

static const kv_device_ops kvt_gpu_ops = {.kind = "tagged",
                                          .image_new = kvt_gpu_image_new,
                                          .image_free = kvt_gpu_image_free,
                                          .poison = kvt_gpu_poison,
                                          .guards = kvt_gpu_guards,
                                          .build = kvt_gpu_build,
                                          .translate = kvt_gpu_translate,
                                          .probe = kvt_gpu_probe,
                                          .compare = kvt_gpu_compare,
                                          .diffset_new = kvt_gpu_diffset_new,
                                          .diffset_free = kvt_gpu_diffset_free,
                                          .diffset_add = kvt_gpu_diffset_add,
                                          .diffset_take = kvt_gpu_diffset_take,
                                          .drift = kvt_gpu_drift,
                                          .gather = kvt_gpu_gather,
                                          .decode_dense = kvt_gpu_dense,
                                          .decode = kvt_gpu_decode,
                                          .decode_reference = kvt_gpu_reference,
                                          .copy = kvt_gpu_copy,
                                          .finish = kvt_gpu_finish,
                                          .close = kvt_gpu_close};

/* *g must live as long as the device. */
static inline kv_rc kvt_gpu_new(kvt_gpu *g, kv_device **out, kv_err *err)
{
    const kv_rc rc = kv_device_cpu_new(&g->cpu, err);
    g->base.ops = &kvt_gpu_ops;
    *out = &g->base;
    return rc;
}

#endif
