/* Devices with one planted fault. Every other operation is the base device's own. */
#include <string.h>

#include "grid/document/kv_assurance.h"
#include "kernels/kv_kern_num.h"

typedef struct {
    kv_device dev; /* first: a kv_device * is a mutant * */
    kv_device_ops ops;
    kv_device *base;
    kv_mutant kind;
    uint32_t value;
} mutant;

/* Which source place feeds a destination place; false where the fault leaves it out. */
static bool feed(const mutant *m, const kv_index *t, kv_coord *c, bool *fill)
{
    *fill = false;
    switch (m->kind) {
    case KV_MUTANT_TAIL_DROPPED: *fill = c->token >= t->tokens - t->tokens % 16; break;
    case KV_MUTANT_KV_SWAPPED: c->kv ^= 1; break;
    case KV_MUTANT_HEADS_SHIFTED: c->head = (c->head + 1) % t->heads; break;
    case KV_MUTANT_ONLY_BLOCK_0: return c->token < 16;
    case KV_MUTANT_NOTHING_COPIED: return false;
    case KV_MUTANT_NONE:
    case KV_MUTANT_REINTERPRET:
    case KV_MUTANT_ONE_VALUE:
    case KV_MUTANT_TAIL_DECODED:
    case KV_MUTANT_CORRUPT_ELEMENT: break;
    }
    return true;
}

/* Element by element through the index algebra, with the fault. Host images only. */
static kv_rc mutant_translate(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, kv_image *dst,
                              uint32_t fill, kv_err *err)
{
    mutant *m = (mutant *)(void *)d;
    (void)err;
    const kv_elem from = (kv_elem)s->element, to = (kv_elem)t->element;
    const void *in = kv_image_host_view((kv_image *)(uintptr_t)src);
    void *out = kv_image_host_view(dst);
    if (m->kind == KV_MUTANT_REINTERPRET) {
        const int64_t a = kv_index_bytes(s), b = kv_index_bytes(t);
        memcpy(out, in, (size_t)(a < b ? a : b));
        return KV_OK;
    }
    kv_walk w;
    for (kv_walk_start(&w); w.position < t->native; kv_walk_next(t, &w)) {
        kv_coord c;
        bool filled;
        const int holds = kv_walk_coord(t, &w, &c);
        if (!feed(m, t, &c, &filled)) continue;
        uint32_t bits = fill;
        if (holds && !filled) {
            bits = kv_num_convert(from, to, kv_num_load(from, in, kv_index_forward(s, &c)));
            if (m->kind == KV_MUTANT_ONE_VALUE && bits == m->value) bits ^= 1;
        }
        kv_num_store(to, out, w.position, bits);
    }
    return KV_OK;
}

/* Reads the last block to its end: the tail becomes tokens. */
static kv_rc tail_decode(kv_device *d, const kv_index *ix, const kv_image *im, int64_t layer, uint64_t weight_seed,
                         int64_t model_layer, kv_image *scratch, kv_decode_result *out, kv_err *err)
{
    mutant *m = (mutant *)(void *)d;
    kv_index longer = *ix;
    longer.tokens = (ix->tokens + ix->block - 1) / ix->block * ix->block;
    return m->base->ops->decode(m->base, &longer, im, layer, weight_seed, model_layer, scratch, out, err);
}

/* One element of the cache with its lowest bit changed, for the time of the decode. */
static kv_rc corrupt_decode(kv_device *d, const kv_index *ix, const kv_image *im, int64_t layer, uint64_t weight_seed,
                            int64_t model_layer, kv_image *scratch, kv_decode_result *out, kv_err *err)
{
    mutant *m = (mutant *)(void *)d;
    const kv_coord c = {
        .layer = layer, .kv = 0, .token = ix->tokens / 2, .head = ix->heads - 1, .lane = ix->lanes[0] - 1};
    const int64_t at = kv_index_forward(ix, &c);
    void *bytes = kv_image_host_view((kv_image *)(uintptr_t)im);
    const uint32_t was = kv_num_load((kv_elem)ix->element, bytes, at);
    kv_num_store((kv_elem)ix->element, bytes, at, was ^ 1U);
    kv_rc rc = m->base->ops->decode(m->base, ix, im, layer, weight_seed, model_layer, scratch, out, err);
    kv_num_store((kv_elem)ix->element, bytes, at, was);
    return rc;
}

kv_rc kv_mutant_new(kv_device *base, kv_mutant kind, uint32_t value, kv_device **out, kv_err *err)
{
    mutant *m = kv_alloc(1, sizeof *m);
    if (m == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a control");
    m->ops = *base->ops;
    m->base = base;
    m->kind = kind;
    m->value = value;
    if (kind == KV_MUTANT_TAIL_DECODED)
        m->ops.decode = tail_decode;
    else if (kind == KV_MUTANT_CORRUPT_ELEMENT)
        m->ops.decode = corrupt_decode;
    else if (kind != KV_MUTANT_NONE)
        m->ops.translate = mutant_translate;
    m->dev.ops = &m->ops;
    *out = &m->dev;
    return KV_OK;
}

void kv_mutant_free(kv_device *d)
{
    kv_free(d);
}
