/* The reference builder: walks the native positions in order, digit by digit, and puts at each what the
 * canonical tensor holds there. Independent of the translator: no strides, only the walk. */
#include "kernels/kv_kern_cpu.h"
#include "kernels/kv_kern_num.h"

/* How many canonical numbers one step of a factor covers at half kv. */
static int64_t number_step(const kv_index *ix, const kv_payload *p, int32_t kind, int64_t kv)
{
    const int64_t token = p->kv_heads * p->lanes[kv];
    switch ((kv_factor)kind) {
    case KV_F_L: return p->tokens * token;
    case KV_F_KV: return 0;
    case KV_F_T:
    case KV_F_TI:
    case KV_F_TX: return token;
    case KV_F_TG: return ix->tx * token;
    case KV_F_TB: return ix->block * token;
    case KV_F_H: return p->lanes[kv];
    case KV_F_D:
    case KV_F_DX:
    case KV_F_C: return 1;
    case KV_F_DG: return ix->x;
    case KV_F_COUNT: break;
    }
    return 0;
}

/* Of `count` steps of factor kind from place c, how many hold elements (padding only ever follows). */
static int64_t steps_held(const kv_index *ix, const kv_coord *c, int32_t kind, int64_t count)
{
    int64_t left = count, step = 1;
    if (kind == KV_F_T || kind == KV_F_TI || kind == KV_F_TX || kind == KV_F_TG || kind == KV_F_TB) {
        if (kind == KV_F_TG) step = ix->tx;
        if (kind == KV_F_TB) step = ix->block;
        left = (ix->tokens - c->token + step - 1) / step;
    } else if (kind == KV_F_D || kind == KV_F_DX || kind == KV_F_C || kind == KV_F_DG) {
        if (kind == KV_F_DG) step = ix->x;
        left = (ix->lanes[c->kv] - c->lane + step - 1) / step;
    }
    return left < count ? left : count;
}

/* One run of a row: `count` elements whose canonical numbers are first, first + step, ... */
static void put_run(unsigned char *data, int64_t at, kv_elem to, const kv_payload_half *h, int32_t via, int64_t first,
                    int64_t step, int64_t count)
{
    const kv_elem from = (kv_elem)h->element;
    if (to == from && via == (int32_t)from && kv_elem_bytes(to) == 2) { /* by far the most common: no conversion */
        uint16_t *out = (uint16_t *)(void *)data + at;
        for (int64_t k = 0; k < count; k++) out[k] = (uint16_t)kv_payload_half_bits(h, (uint64_t)(first + k * step));
        return;
    }
    for (int64_t k = 0; k < count; k++) {
        const uint32_t bits = kv_payload_half_bits(h, (uint64_t)(first + k * step));
        kv_num_store(to, data, at + k, kv_num_convert((kv_elem)via, to, kv_num_convert(from, (kv_elem)via, bits)));
    }
}

/* Moves the walk over the rest of a row of the innermost factor (its last position is count - 1 away). */
static void walk_row(const kv_index *ix, kv_walk *w, int32_t last, int64_t count)
{
    w->position += count - 1;
    w->digit[last] += count - 1;
    kv_walk_next(ix, w);
}

kv_rc kv_cpu_build(kv_device *d, kv_image *im, const kv_index *ix, const kv_payload *p, int32_t via, uint32_t pad,
                   kv_err *err)
{
    (void)d;
    (void)err;
    kv_payload_half half[2];
    for (int kv = 0; kv < 2; kv++) half[kv] = kv_payload_half_of(p->seed, p->kind, p->element, kv);
    if (ix->native == 0) return KV_OK;
    kv_walk w;
    for (kv_walk_start(&w); w.position < ix->native;) {
        const kv_order *o = &ix->half[w.half];
        const int32_t last = o->n - 1;
        kv_coord c;
        int64_t held = kv_walk_coord(ix, &w, &c), count = 1;
        /* a row of the innermost factor, unless it is the one that numbers pages or KV, or this is slack */
        if (w.slack == 0 && last >= o->cut && o->kind[last] != KV_F_KV) {
            count = o->size[last];
            if (held) held = steps_held(ix, &c, o->kind[last], count);
        }
        if (held > 0)
            put_run(im->data, w.position, (kv_elem)ix->element, &half[c.kv], via, kv_payload_number(p, &c),
                    number_step(ix, p, o->kind[last], c.kv), held);
        for (int64_t k = held; k < count; k++) kv_num_store((kv_elem)ix->element, im->data, w.position + k, pad);
        if (count > 1)
            walk_row(ix, &w, last, count);
        else
            kv_walk_next(ix, &w);
    }
    return KV_OK;
}
