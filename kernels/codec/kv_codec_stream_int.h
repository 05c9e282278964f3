/* What the files of kv_codec_stream share. */
#ifndef KV_CODEC_STREAM_INT_H
#define KV_CODEC_STREAM_INT_H

#include "kernels/codec/kv_codec_stream.h"

/* Rows of one lane: sealed groups, then rows as they came. */
typedef struct {
    uint8_t *sealed, *stage;
    int64_t sealed_bytes, sealed_cap, blocks;
    int64_t staged, stage_cap; /* rows */
} kv_lane;

/* One layer and half of a sequence. */
typedef struct {
    kv_lane *lane; /* [kv_codec_lanes]; NULL before the first put */
    int64_t tokens;
    bool finished;
} kv_plane;

typedef struct {
    uint64_t id;
    kv_plane *plane; /* [layers][halves] */
} kv_sequence;

/* What sealing and reading one half works with. */
typedef struct {
    kv_codec_slot_layout sizes;
    int64_t page_bytes; /* 0: no basis is shared */
    int64_t row_bytes;  /* of a row as it came */
    kv_codec_skeleton skeleton;
    kv_codec_codes codes;
    kv_codec_work *work;
    float *block;     /* [n][dim] */
    float *rows;      /* [rows_cap][dim]: of a group, whitened */
    float *unwhite;   /* [dim] */
    int64_t rows_cap; /* rows */
    kv_codec_stream_stats stats;
} kv_half_work;

struct kv_codec_stream {
    kv_codec_stream_config c;
    const kv_codec_variant *variant;
    bool *skip;
    kv_half_work half[KV_CODEC_HALVES];
    kv_sequence *sequence; /* by ascending id */
    int64_t n_sequences, sequences_cap;
};

/* Where a lane stands, for factors and errors. */
typedef struct {
    int32_t layer, half;
    int64_t lane;
} kv_lane_place;

/* Room for `want` items of `size` bytes, doubled as it grows. */
kv_rc kv_stream_grow(void **p, int64_t *cap, int64_t want, int64_t size, kv_err *err) KV_MUST_USE;
/* A lane of a sequence that has tokens there. */
const kv_lane *kv_stream_lane_of(const kv_codec_stream *s, uint64_t id, int32_t layer, int32_t half, int64_t lane);
/* The factors of a row, or NULL: the identity. */
const float *kv_stream_factor(const kv_codec_stream *s, kv_lane_place at, int64_t row, bool inverse);
/* Rows as they came, from the stage, as float32. */
void kv_stream_read_stage(const kv_codec_stream *s, const kv_half_work *w, const kv_lane *lane, int64_t first,
                          int64_t rows, int32_t dim, float *out);
/* Seals `blocks` blocks, the first that stand in the stage, as one group; takes them off the stage. */
kv_rc kv_stream_seal(kv_codec_stream *s, kv_lane *lane, kv_lane_place at, int64_t blocks, kv_err *err) KV_MUST_USE;

#endif
