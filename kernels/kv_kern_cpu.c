/* The CPU backend: the reference device, one core. */
#include "kernels/kv_kern_cpu.h"

#include "kernels/codec/kv_codec_batch.h"

static void cpu_close(kv_device *d)
{
    kv_free(d);
}

static const kv_device_ops cpu_ops = {
    .kind = "cpu",
    .image_new = kv_cpu_image_new,
    .image_free = kv_cpu_image_free,
    .poison = kv_cpu_poison,
    .guards = kv_cpu_guards,
    .build = kv_cpu_build,
    .translate = kv_cpu_translate,
    .probe = kv_cpu_probe,
    .compare = kv_cpu_compare,
    .diffset_new = kv_cpu_diffset_new,
    .diffset_free = kv_cpu_diffset_free,
    .diffset_add = kv_cpu_diffset_add,
    .diffset_take = kv_cpu_diffset_take,
    .drift = kv_cpu_drift,
    .gather = kv_cpu_gather,
    .decode_dense = kv_cpu_decode_dense,
    .decode = kv_decode_layer,
    .decode_reference = kv_decode_canonical,
    .read = kv_cpu_read,
    .write = kv_cpu_write,
    .copy = kv_cpu_copy,
    .finish = kv_cpu_finish,
    .close = cpu_close,
    .codec = &kv_cpu_codec_ops,
};

kv_rc kv_device_cpu_new(kv_device **out, kv_err *err)
{
    kv_device *d = kv_alloc(1, sizeof *d);
    if (d == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the CPU device");
    d->ops = &cpu_ops;
    *out = d;
    return KV_OK;
}
