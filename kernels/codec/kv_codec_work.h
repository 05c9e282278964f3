/* codec work: what kv_codec_work holds; for the variants only. Arrays are 64-byte aligned parts of one allocation. */
#ifndef KV_CODEC_WORK_H
#define KV_CODEC_WORK_H

#include "kernels/codec/kv_codec.h"

#define KV_CODEC_GROUP KV_CODEC_POINT_GROUP /* rows that a fast variant works on at once, side by side */
#define KV_CODEC_TILE 8                     /* directions or centres side by side */
#define KV_CODEC_PICK 16                    /* most centres whose coefficients are looked up in registers */

struct kv_codec_work {
    kv_codec_params p;
    int32_t wht;     /* kv_codec_wht_len(p.d_eff) */
    int32_t dim_pad; /* p.dim up to a multiple of 16; zeros past dim */
    float *mean;     /* [dim_pad] */
    float *basis;    /* [d_eff][dim_pad] */
    float *centers;  /* [k][d_eff] */
    float *sign;     /* [wht] +1 or -1 */
    /* tiles of KV_CODEC_TILE, zeros past the end; kv_codec_work_tiles makes them when they are first needed: */
    bool tiled;
    float *basis_tiles;   /* [ceil(d_eff / 8)][dim][8] */
    float *centers_tiles; /* [ceil(k / 8)][d_eff][8] */
    /* [d_eff][KV_CODEC_PICK] where k is at most that, zeros past k; kv_codec_work_columns makes it: */
    bool columned;
    float *centers_columns;
    /* scratch of a group of rows: */
    float *x;    /* [max(dim, wht, 8-multiple of k)][GROUP] */
    float *c;    /* [8-multiple of d_eff][GROUP] */
    float *y;    /* [wht][GROUP] */
    float *row;  /* [dim_pad] */
    void *block; /* the allocation */
};

/* Makes the tiles of the skeleton at hand unless they are there. */
void kv_codec_work_tiles(kv_codec_work *w);
/* Makes the columns of the centres at hand unless they are there. */
void kv_codec_work_columns(kv_codec_work *w);

#endif
