/* What cells of the codec take of a GPU's memory, known before they run: batches of blocks, and the token leg. */
#ifndef KV_CODEC_MEMORY_H
#define KV_CODEC_MEMORY_H

#include "grid/cell/kv_cell.h"
#include "kernels/codec/kv_codec_recipe.h"

/* Bytes, with as many blocks at a time as a lane takes where there is room, and with one at a time. */
typedef struct {
    int64_t whole, least;
} kv_codec_memory;

/* kv_codec_store_lane of `rows` rows. KV_ENOMEM where they do not fit 64 bits. */
kv_rc kv_codec_memory_lane(const kv_codec_half_config *h, int64_t rows, kv_codec_memory *out, kv_err *err) KV_MUST_USE;
/* kv_codec_store_rotation. */
kv_rc kv_codec_memory_rotation(int64_t dim, int32_t bits, kv_codec_memory *out, kv_err *err) KV_MUST_USE;
/* kv_codec_tokens of a layer of `tokens` tokens at g. KV_EINVAL where it does not fit 64 bits. */
kv_rc kv_codec_memory_tokens(const kv_geometry *g, int64_t tokens, int64_t *out, kv_err *err) KV_MUST_USE;

/* Adds the token leg to the host's side of a need (images and all), and to what a GPU needs beside `batch`. */
kv_rc kv_codec_memory_note(const kv_geometry *g, int64_t tokens, const kv_codec_memory *batch, kv_cell_need *n,
                           kv_err *err) KV_MUST_USE;

#endif
