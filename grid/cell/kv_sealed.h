/* Sealed pages of the codec: the slots that hold a geometry's K and V, made up from a seed, and the values that slots decode
 * to. What moves them knows only their bytes (grid/cell/kv_move_cell.c, kv_shard_pages.c). */
#ifndef KV_SEALED_H
#define KV_SEALED_H

#include "grid/campaign/kv_codec_spec.h"
#include "kernels/codec/kv_codec_recipe.h"
#include "kernels/kv_kern.h"
#include "layouts/kv_layout.h"

/* Sizes: block tokens make a slot; `blocks` full blocks are sealed, the tokens behind them are not. */
typedef struct {
    kv_codec_half_config half[2];
    int64_t slot[2]; /* bytes of a K and of a V slot */
    int64_t blocks, block;
} kv_sealed_shape;

/* *reason is "" where sealed pages exist at g, else why not (frontier X4). KV_EFORMAT where a certificate cannot say the
 * sizes. */
kv_rc kv_sealed_shape_of(kv_store_method method, int64_t block, const kv_geometry *g, kv_sealed_shape *out,
                         char reason[KV_REASON_TEXT], kv_err *err) KV_MUST_USE;

/* Seals the blocks of the head and stream that `at` names. rows: room for [blocks * block][dim]; plain, as large, gets the
 * values that the slots decode to; slots gets them one after the other. */
kv_rc kv_sealed_make(kv_device *dev, const kv_sealed_shape *z, const kv_values_place *at, float *rows, float *plain,
                     uint8_t *slots, kv_err *err) KV_MUST_USE;

/* Decodes slots of one stream, one after the other. */
typedef struct kv_sealed_reader kv_sealed_reader;
kv_rc kv_sealed_reader_new(kv_device *dev, const kv_sealed_shape *z, int kv, kv_sealed_reader **out, kv_err *err)
    KV_MUST_USE;
/* values: [block][dim]. KV_EFORMAT for bytes that are no slot. */
kv_rc kv_sealed_read(kv_sealed_reader *r, const uint8_t *slot, float *values, kv_err *err) KV_MUST_USE;
void kv_sealed_reader_free(kv_sealed_reader *r); /* NULL is fine */

#endif
