/* The token leg of codec and move cells: the same one-layer decodes as of a pair, over float32 values that this rank
 * holds: as they were, and as they came back. */
#ifndef KV_CODEC_TOKENS_H
#define KV_CODEC_TOKENS_H

#include "grid/row/kv_row.h"

typedef struct kv_codec_tokens kv_codec_tokens;

kv_rc kv_codec_tokens_new(kv_device *dev, const kv_geometry *g, uint64_t seed, kv_codec_tokens **out, kv_err *err)
    KV_MUST_USE;
/* One layer, in order from 0: K and V, each [tokens][kv_heads][head_dim or head_dim_v]. */
kv_rc kv_codec_tokens_layer(kv_codec_tokens *t, int64_t layer, const float *const moved[2], const float *const plain[2],
                            kv_err *err) KV_MUST_USE;
/* Tokens of layer 0, digests of all layers' logits, and the observation tokens_identical. */
void kv_codec_tokens_finish(kv_codec_tokens *t, kv_row *row);
void kv_codec_tokens_free(kv_codec_tokens *t); /* NULL is fine */

#endif
