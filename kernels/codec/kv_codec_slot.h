/* codec slots: the fixed-size image of one sealed block of one kv head and stream (K or V), little-endian and dense, as
 * a paged cache keeps it. Section sizes follow from the configuration alone. */
#ifndef KV_CODEC_SLOT_H
#define KV_CODEC_SLOT_H

#include "kernels/codec/kv_codec.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KV_CODEC_SLOT_HEADER 48

/* Which rows of header bytes 32..47 a slot carries. */
typedef enum {
    KV_CODEC_SLOT_PUBLISHED = 0, /* zeros, as published: D, n, table and budget come from the configuration */
    KV_CODEC_SLOT_KV1 = 1        /* 32 u8 version 1; 33 u8 recipe; 34 u16 D; 36 u32 n; 40 u32 first four bytes of the
                                    table's digest; 44 u32 outlier budget in parts per million */
} kv_codec_slot_version;

typedef struct {
    kv_codec_params params;
    int32_t version;    /* kv_codec_slot_version */
    int32_t recipe;     /* kv_codec_recipe_id, kept in a KV1 header */
    int64_t n;          /* rows of a block */
    double budget;      /* outlier entries as a fraction of n * wht_len, >= 0; 0: no outlier part */
    uint32_t table_tag; /* first four bytes (little-endian) of the digest of the levels, see kv_codec_table_tag */
} kv_codec_slot_config;

/* Offsets in bytes, -1 where a part is absent. */
typedef struct {
    int64_t basis, mean, centers, seg_id, t, norm, residual, counts, entries, total;
    int64_t max_entries;
} kv_codec_slot_layout;

/* Sizes; KV_EINVAL where a part does not fit (w*b no whole bytes and n*ceil(w*b/8) differs from ceil(n*w*b/8), n not a
 * power of two for the published version, sizes beyond 64 bits). */
kv_rc kv_codec_slot_sizes(const kv_codec_slot_config *c, kv_codec_slot_layout *out, kv_err *err) KV_MUST_USE;

/* A tag of the levels in use: FNV-1a over their float32 bytes, little-endian. Tells tables apart; no security. */
uint32_t kv_codec_table_tag(const float *levels, int32_t bits);

/* Packs a block; `slot` has layout.total bytes and is only written on success. KV_EFORMAT where the outliers do not fit
 * (says how many there are and how many fit). */
kv_rc kv_codec_slot_pack(const kv_codec_slot_config *c, const kv_codec_skeleton *s, const kv_codec_codes *codes,
                         void *slot, kv_err *err) KV_MUST_USE;

/* Unpacks hostile bytes: bad magic, sizes, counts, indices, metric or (KV1) header against the configuration are
 * KV_EFORMAT naming field, found and expected. s and codes were made for c (outlier room included). NaN and Inf in
 * fp16 fields are taken as they are: decode is safe on them. */
kv_rc kv_codec_slot_unpack(const kv_codec_slot_config *c, const void *slot, int64_t bytes, kv_codec_skeleton *s,
                           kv_codec_codes *codes, kv_err *err) KV_MUST_USE;

/* Reads what a KV1 slot says of itself (all but the levels, which `levels` gives or the built-in table of that tag). */
kv_rc kv_codec_slot_peek(const void *slot, int64_t bytes, kv_codec_slot_config *out, kv_err *err) KV_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
