/* codec stream: the KV of many sequences, compressed as tokens come. Full blocks are sealed (fit, encode, pack); the
 * tokens of a block that is not full stay as they came, in the cache's own element type. However the tokens are cut into
 * calls, the sealed bytes are the same. Not for several threads at once.
 *
 *   kv_codec_stream_new, then for each sequence, layer and half: kv_codec_stream_put as tokens come, kv_codec_stream_get
 *   whenever rows are read back, kv_codec_stream_finish where no more will come, kv_codec_stream_drop, and at last
 *   kv_codec_stream_free.
 *
 * Sealed bytes of a lane (kv_codec_lanes): for each group of blocks, where a basis is shared, its basis page and then
 * its slots; else slots alone. */
#ifndef KV_CODEC_STREAM_H
#define KV_CODEC_STREAM_H

#include "kernels/codec/kv_codec_recipe.h"
#include "kernels/codec/kv_codec_whiten.h"
#include "layouts/kv_elem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int32_t layers, heads;
    kv_elem element; /* of rows that come in and of those not sealed: f16, bf16 or f32 */
    bool has[KV_CODEC_HALVES];
    kv_codec_half_config half[KV_CODEC_HALVES];
    const bool *skip;                /* [layers], copied: layers that are never sealed; NULL: none */
    const kv_codec_whiten *whiten;   /* borrowed; for halves that are `whitened`; NULL: the identity */
    const kv_codec_variant *variant; /* NULL: the fastest */
} kv_codec_stream_config;

typedef struct kv_codec_stream kv_codec_stream;

/* Sums over all blocks sealed so far of one half. */
typedef struct {
    int64_t blocks;
    int64_t values, outliers; /* scaled values, and those kept as outliers */
    int64_t saturated;        /* t and norm fields held at +-65504 */
    int64_t means_saturated;  /* blocks with a mean held at +-65504 */
    int64_t padded;           /* blocks with fewer directions of variance, or fewer centres, than a slot holds */
    double kept_ppm;          /* sum of the variance kept, parts per million of each block's */
} kv_codec_stream_stats;

/* KV_EINVAL where the configuration fits no slot or factors of another shape; KV_EUNSUP where the solver is missing. */
kv_rc kv_codec_stream_new(const kv_codec_stream_config *c, kv_codec_stream **out, kv_err *err) KV_MUST_USE;
void kv_codec_stream_free(kv_codec_stream *s);

/* Appends rows[tokens][heads][dim] of the configured element type to a sequence, which begins with its first put. On
 * an error of sealing (outliers that do not fit, a block that the published rules abort on, a value that is not finite)
 * all rows were taken and can be read back, but the block stays unsealed; the next put or finish tries again. The error
 * names layer, half, lane and block. */
kv_rc kv_codec_stream_put(kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half, const void *rows,
                          int64_t tokens, kv_err *err) KV_MUST_USE;
/* No more tokens will come: seals the full blocks of a group that is not full. A later put is KV_EINVAL. */
kv_rc kv_codec_stream_finish(kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half, kv_err *err)
    KV_MUST_USE;
/* Tokens put so far; 0 for an unknown sequence. */
int64_t kv_codec_stream_tokens(const kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half);
/* Reads tokens [first, first + tokens) back, in order, as out[tokens][heads][dim]: sealed rows decoded and unwhitened,
 * others as they came. KV_EINVAL past the end, KV_EFORMAT where loaded bytes are no slots. */
kv_rc kv_codec_stream_get(kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half, int64_t first,
                          int64_t tokens, float *out, kv_err *err) KV_MUST_USE;
/* Forgets a sequence (an unknown one is fine). */
void kv_codec_stream_drop(kv_codec_stream *s, uint64_t sequence);

/* What a lane holds; dies with the next put, finish or drop. */
typedef struct {
    const uint8_t *sealed;
    int64_t sealed_bytes, blocks;
    const uint8_t *tail; /* [tail_rows][dim] of the configured element */
    int64_t tail_rows;
} kv_codec_lane_view;
kv_rc kv_codec_stream_lane(const kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half, int64_t lane,
                           kv_codec_lane_view *out, kv_err *err) KV_MUST_USE;
/* Gives a new lane what another stream's lane held (copied), finished, as read from a file: sizes must be those of
 * `rows` rows; the slots themselves are checked when they are read back. All lanes of a layer and half must be given. */
kv_rc kv_codec_stream_load(kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half, int64_t lane,
                           int64_t rows, const void *sealed, int64_t sealed_bytes, const void *tail, kv_err *err)
    KV_MUST_USE;
/* Sealed bytes and sealed blocks of a finished lane of `rows` rows. */
void kv_codec_stream_sealed(const kv_codec_stream *s, int32_t layer, int32_t half, int64_t rows, int64_t *bytes,
                            int64_t *blocks);

const kv_codec_stream_stats *kv_codec_stream_stats_view(const kv_codec_stream *s, int32_t half);

#ifdef __cplusplus
}
#endif
#endif
