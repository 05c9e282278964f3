/* Inside the CPU backend: the image, and one function for each row of the device table. */
#ifndef KV_KERN_CPU_H
#define KV_KERN_CPU_H

#include "kernels/kv_kern_image.h"

kv_rc kv_cpu_image_new(kv_device *d, int64_t capacity_bytes, kv_image **out, kv_err *err);
void kv_cpu_image_free(kv_device *d, kv_image *im);
kv_rc kv_cpu_poison(kv_device *d, kv_image *im, int64_t bytes, uint32_t round, kv_err *err);
kv_rc kv_cpu_guards(kv_device *d, const kv_image *im, kv_guards_result *out, kv_err *err);
kv_rc kv_cpu_finish(kv_device *d, kv_err *err);
kv_rc kv_cpu_read(kv_device *d, const kv_image *im, void *bytes, kv_err *err);
kv_rc kv_cpu_write(kv_device *d, kv_image *im, const void *bytes, int64_t n, kv_err *err);
kv_rc kv_cpu_copy(kv_device *d, const kv_image *src, kv_image *dst, kv_err *err);
kv_rc kv_cpu_build(kv_device *d, kv_image *im, const kv_index *ix, const kv_payload *p, int32_t via, uint32_t pad,
                   kv_err *err);
kv_rc kv_cpu_translate(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, kv_image *dst,
                       uint32_t fill, kv_err *err);
kv_rc kv_cpu_probe(kv_device *d, const kv_index *ix, kv_probe_result *out, kv_err *err);
kv_rc kv_cpu_compare(kv_device *d, const kv_index *ix, const kv_image *got, const kv_image *want,
                     kv_compare_result *out, kv_err *err);
kv_rc kv_cpu_diffset_new(kv_device *d, const kv_index *ix, kv_diffset **out, kv_err *err);
void kv_cpu_diffset_free(kv_device *d, kv_diffset *s);
kv_rc kv_cpu_diffset_add(kv_device *d, kv_diffset *s, const kv_image *got, const kv_image *want, kv_err *err);
kv_rc kv_cpu_diffset_take(kv_device *d, kv_diffset *s, kv_diffset_result *out, kv_err *err);
kv_rc kv_cpu_drift(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, const kv_image *dst,
                   kv_drift_result *out, kv_err *err);
kv_rc kv_cpu_gather(kv_device *d, const kv_index *ix, const kv_image *im, const kv_payload *p, int64_t layer,
                    const kv_window *w, kv_image *dense, kv_err *err);
kv_rc kv_cpu_decode_dense(kv_device *d, const kv_index *ix, int32_t element, const kv_image *dense,
                          uint64_t weight_seed, int64_t model_layer, kv_decode_result *out, kv_err *err);

#endif
