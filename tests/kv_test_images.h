/* Images of the CPU backend for tests, and payloads of a geometry. */
#ifndef KV_TEST_IMAGES_H
#define KV_TEST_IMAGES_H

#include "kernels/kv_kern.h"
#include "kernels/kv_kern_num.h"
#include "tests/kv_test.h"
#include "tests/kv_test_layouts.h"

static inline kv_device *kvt_cpu(void)
{
    kv_device *d = NULL;
    kv_err err = {0};
    kvt_ok(kv_device_cpu_new(&d, &err), &err);
    return d;
}

/* A poisoned image that ix just fits. */
static inline kv_image *kvt_image(kv_device *d, const kv_index *ix, uint32_t round)
{
    kv_image *im = NULL;
    kv_err err = {0};
    kvt_ok(d->ops->image_new(d, kv_index_bytes(ix), &im, &err), &err);
    kvt_ok(d->ops->poison(d, im, kv_index_bytes(ix), round, &err), &err);
    return im;
}

static inline kv_payload kvt_payload(const kv_geometry *g, const kv_index *ix, int32_t kind, int64_t first_layer)
{
    return (kv_payload){.seed = 20261129,
                        .tokens = g->tokens,
                        .kv_heads = g->kv_heads,
                        .lanes = {g->head_dim, g->head_dim_v},
                        .first_layer = first_layer,
                        .first_head = ix->first_head,
                        .kind = kind,
                        .element = (int32_t)g->element};
}

/* The element that stands at canonical number n, as the geometry's type -> via -> to. */
static inline uint32_t kvt_want(const kv_payload *p, const kv_index *ix, int64_t n, kv_elem via, kv_elem to)
{
    const kv_coord c = kvt_place(ix, n);
    return kv_num_convert(via, to, kv_num_convert((kv_elem)p->element, via, kv_payload_bits(p, &c)));
}

static inline uint32_t kvt_bits_at(const kv_index *ix, kv_image *im, int64_t position)
{
    return kv_num_load((kv_elem)ix->element, kv_image_host_view(im), position);
}

/* A pad pattern of an element type that no payload of a small test is likely to hold. */
static inline uint32_t kvt_pad(kv_elem e, int which)
{
    static const uint32_t pads[2][KV_ELEM_COUNT] = {{0x5640, 0x42C8, 0x42C80000, 0x6C},
                                                    {0x3555, 0x3EAB, 0x3EAAAAAB, 0x2B}};
    return pads[which][e];
}

/* A shard of a random pair: kv_heads held times a TP size, and the same rank for both sides. */
static inline void kvt_shard(uint64_t *r, kv_geometry *g, kvt_desc *a, kvt_desc *b)
{
    const int64_t size = 1 + kvt_below(r, 3);
    a->tp_size = size;
    a->tp_rank = kvt_below(r, size);
    g->kv_heads *= size;
    if (b == NULL) return;
    b->tp_size = a->tp_size;
    b->tp_rank = a->tp_rank;
}

#endif
