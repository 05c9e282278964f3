/* Strides of one half (K or V) of a bound layout: the translators' own view of a layout, with no Horner step and no
 * inverse. A position is a sum of one term for each canonical axis:
 *   base + layer * layer + head * head + token(t) + lane(d)
 * where tokens and lanes may be split: outer * outer_stride + group * group_stride + one * one_stride. */
#ifndef KV_KERN_STRIDE_H
#define KV_KERN_STRIDE_H

#include "layouts/kv_layout_index.h"

/* One canonical axis: its number is (outer * groups + group) * ones + one. */
typedef struct {
    int64_t outers, groups, ones;                   /* allocated extents: tail and pad lanes included */
    int64_t outer_stride, group_stride, one_stride; /* positions */
} kv_split;

typedef struct {
    int64_t base, layer, head; /* positions */
    kv_split token, lane;
} kv_strides;

/* Stride of the factor of a given kind and its extent; 0 and 1 if the half does not have it. */
KV_HD int64_t kv_stride_of(const kv_order *o, kv_factor kind, int64_t *extent)
{
    int32_t i, j;
    *extent = 1;
    for (i = 0; i < o->n; i++) {
        if (o->kind[i] == (int32_t)kind) {
            int64_t stride = i < o->cut ? o->page_span : 1;
            for (j = i + 1; j < (i < o->cut ? o->cut : o->n); j++) stride *= o->size[j];
            *extent = o->size[i];
            return stride;
        }
    }
    return 0;
}

/* Strides of half kv. */
KV_HD void kv_strides_of(const kv_index *ix, int32_t kv, kv_strides *m)
{
    const kv_order *o = &ix->half[kv];
    int64_t t, tb, ti, tg, tx, d, dg, dx, c, other;
    m->base = ix->half_base[kv] + (int64_t)kv * kv_stride_of(o, KV_F_KV, &other);
    m->layer = ix->has_layer ? kv_stride_of(o, KV_F_L, &other) : ix->layer_span;
    m->head = kv_stride_of(o, KV_F_H, &other);
    /* an axis stands whole or split, so of each sum below one term alone is not 0 */
    m->token.outer_stride = kv_stride_of(o, KV_F_T, &t) + kv_stride_of(o, KV_F_TB, &tb);
    m->token.group_stride = kv_stride_of(o, KV_F_TI, &ti) + kv_stride_of(o, KV_F_TG, &tg);
    m->token.one_stride = kv_stride_of(o, KV_F_TX, &tx);
    m->token.outers = t * tb;
    m->token.groups = ti * tg;
    m->token.ones = tx;
    m->lane.outer_stride = kv_stride_of(o, KV_F_D, &d) + kv_stride_of(o, KV_F_C, &c) + kv_stride_of(o, KV_F_DG, &dg);
    m->lane.group_stride = 0;
    m->lane.one_stride = kv_stride_of(o, KV_F_DX, &dx);
    m->lane.outers = d * c * dg;
    m->lane.groups = 1;
    m->lane.ones = dx;
}

/* Numbers of an axis, padding included. */
KV_HD int64_t kv_split_extent(const kv_split *s)
{
    return s->outers * s->groups * s->ones;
}

/* Where number n of an axis lies. */
KV_HD int64_t kv_split_offset(const kv_split *s, int64_t n)
{
    const int64_t row = n / s->ones, outer = row / s->groups;
    return outer * s->outer_stride + (row - outer * s->groups) * s->group_stride + (n - row * s->ones) * s->one_stride;
}

#endif
