/* Two devices side by side: the CPU, which is the truth, and the emulated GPU. The same is asked of both, and everything
 * that comes back must be the same bytes. */
#ifndef KV_TEST_CUDA_H
#define KV_TEST_CUDA_H

#include "kernels/cuda/kv_cuda.h"
#include "tests/emulated/kv_emu.h"
#include "tests/kv_test_images.h"

typedef struct {
    kv_device *cpu, *gpu;
    long allocations; /* of the GPU before it was opened: a test that failed leaves some */
} kvt_two;

/* The n-th of four settings: what fresh memory holds, and the order in which threads run. */
static inline kvt_two kvt_devices(int n)
{
    kvt_two d = {.cpu = kvt_cpu(), .allocations = kv_emu_allocations()};
    kv_err err = {0};
    kv_emu_poison(n % 2 == 0 ? 0xCD : 0x00);
    kv_emu_set_order(n % 4 < 2 ? KV_EMU_FORWARD : KV_EMU_BACKWARD);
    kvt_ok(kv_device_cuda_new(0, &d.gpu, &err), &err);
    assert_string_equal(d.gpu->ops->kind, "emulated");
    return d;
}

static inline void kvt_close(kvt_two *d)
{
    d->cpu->ops->close(d->cpu);
    d->gpu->ops->close(d->gpu);
    assert_int_equal(kv_emu_allocations(), d->allocations);
}

/* An image on each of them. */
typedef struct {
    kv_image *cpu, *gpu;
    int64_t bytes;
} kvt_pair;

static inline kvt_pair kvt_images(kvt_two *d, const kv_index *ix, uint32_t round)
{
    return (kvt_pair){kvt_image(d->cpu, ix, round), kvt_image(d->gpu, ix, round), kv_index_bytes(ix)};
}

static inline void kvt_images_free(kvt_two *d, kvt_pair *p)
{
    d->cpu->ops->image_free(d->cpu, p->cpu);
    d->gpu->ops->image_free(d->gpu, p->gpu);
}

static inline void kvt_both_build(kvt_two *d, kvt_pair *p, const kv_index *ix, const kv_payload *load, int32_t via,
                                  uint32_t pad)
{
    kv_err err = {0};
    kvt_ok(d->cpu->ops->build(d->cpu, p->cpu, ix, load, via, pad, &err), &err);
    kvt_ok(d->gpu->ops->build(d->gpu, p->gpu, ix, load, via, pad, &err), &err);
}

/* Both hold the same bytes, and nobody wrote outside. */
static inline void kvt_same_images(kvt_two *d, const kvt_pair *p, const kv_index *ix, const char *what)
{
    kv_err err = {0};
    unsigned char *got = kvt_take(p->bytes, 1);
    const unsigned char *want = kv_image_host_view(p->cpu);
    assert_null(kv_image_host_view(p->gpu));
    kvt_ok(kv_check_guards(d->gpu, p->gpu, &err), &err);
    kvt_ok(d->gpu->ops->read(d->gpu, p->gpu, got, &err), &err);
    for (int64_t i = 0; i < p->bytes; i++)
        if (got[i] != want[i]) {
            const int64_t at = i / kv_elem_bytes((kv_elem)ix->element);
            fail_msg("%s: position %" PRId64 " of %" PRId64 " holds %x, not %x", what, at, ix->native,
                     kv_num_load((kv_elem)ix->element, got, at), kv_num_load((kv_elem)ix->element, want, at));
        }
    free(got);
}

/* The CPU's image, changed, goes to the GPU. */
static inline void kvt_send(kvt_two *d, kvt_pair *p)
{
    kv_err err = {0};
    kvt_ok(d->gpu->ops->write(d->gpu, p->gpu, kv_image_host_view(p->cpu), p->bytes, &err), &err);
}

#endif
