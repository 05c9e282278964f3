/* codec slots: the fixed-size image of one sealed block of one kv head and stream (K or V), little-endian and dense, as
 * a paged cache keeps it. Section sizes follow from the configuration alone.
 *
 * Where several blocks share one basis (kv_codec_slot_config.shared) their slots hold no basis and mean; those stand
 * once, in a basis page: a slot's header with another magic, the basis, the mean. */
#ifndef KV_CODEC_SLOT_H
#define KV_CODEC_SLOT_H

#include "kernels/codec/kv_codec.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KV_CODEC_SLOT_HEADER 48
#define KV_CODEC_SLOT_ROWS_MAX ((int64_t)1 << 20)
#define KV_CODEC_PPM 1000000

/* Which rows of header bytes 32..47 a slot carries. */
typedef enum {
    KV_CODEC_SLOT_PUBLISHED = 0, /* zeros, as published: D, n, table and budget come from the configuration */
    KV_CODEC_SLOT_KV1 = 1        /* 32 u8 version 1; 33 u8 recipe; 34 u16 D; 36 u32 n; 40 u32 table tag; 44 u32: bits
                                    0..19 outlier budget in parts per million, bit 30 rule (kv_codec_rule), bit 31 the
                                    basis is shared; the others 0 */
} kv_codec_slot_version;

typedef struct {
    kv_codec_params params;
    int32_t version;    /* kv_codec_slot_version */
    int32_t recipe;     /* kv_codec_recipe_id, kept in a KV1 header; 0..255 */
    int64_t n;          /* rows of a block, 1..KV_CODEC_SLOT_ROWS_MAX */
    int32_t budget_ppm; /* outlier entries as parts per million of n * wht_len, 0..1000000; 0: no outlier part */
    uint32_t table_tag; /* kv_codec_table_tag of the levels in use */
    bool shared;        /* basis and mean stand in a basis page (KV1 only) */
} kv_codec_slot_config;

/* Offsets in bytes, -1 where a part is absent. */
typedef struct {
    int64_t basis, mean, centers, seg_id, t, norm, residual, counts, entries, total;
    int64_t max_entries;
} kv_codec_slot_layout;

/* Sizes. KV_EINVAL where the parameters are not good, or for the published version: n or k no power of two, residual
 * rows of no whole bytes that do not add up, a shared basis. */
kv_rc kv_codec_slot_sizes(const kv_codec_slot_config *c, kv_codec_slot_layout *out, kv_err *err) KV_MUST_USE;

/* A tag of the levels in use: FNV-1a over their float32 bytes, little-endian. Tells tables apart; no security. */
uint32_t kv_codec_table_tag(const float *levels, int32_t bits);

/* Packs a block; `slot` has layout.total bytes and is only written on success. KV_EFORMAT where the outliers do not fit
 * (says how many there are and how many fit). Without an outlier part the published version drops outliers, as
 * published, and KV1 refuses them. */
kv_rc kv_codec_slot_pack(const kv_codec_slot_config *c, const kv_codec_skeleton *s, const kv_codec_codes *codes,
                         void *slot, kv_err *err) KV_MUST_USE;

/* Unpacks hostile bytes: bad magic, sizes, counts, indices, metric or (KV1) header against the configuration, and
 * anything but zero where nothing stands, are KV_EFORMAT naming field, found and expected; s and codes are then
 * undefined. What is taken packs to the same bytes again (but for the published header's total where outliers were
 * dropped). s and codes were made for c (outlier room where budget_ppm > 0). NaN and Inf in fp16 fields are taken as
 * they are: decode is safe on them. With a shared basis, basis and mean of s stay as they were. */
kv_rc kv_codec_slot_unpack(const kv_codec_slot_config *c, const void *slot, int64_t bytes, kv_codec_skeleton *s,
                           kv_codec_codes *codes, kv_err *err) KV_MUST_USE;

/* Reads what a KV1 slot or basis page says of itself, and checks that its size agrees. levels: 2^bits of them, or NULL
 * for the built-in table; KV_EFORMAT where the tag is of another table. The threshold is not kept: params.outliers says
 * that there is an outlier part, params.threshold is 0. */
kv_rc kv_codec_slot_peek(const void *slot, int64_t bytes, const float *levels, kv_codec_slot_config *out, kv_err *err)
    KV_MUST_USE;

/* The basis page of blocks that share one: 48 + 2 * d_eff * D + 2 * D bytes. */
int64_t kv_codec_page_bytes(const kv_codec_slot_config *c);
void kv_codec_page_pack(const kv_codec_slot_config *c, const kv_codec_skeleton *s, void *page);
kv_rc kv_codec_page_unpack(const kv_codec_slot_config *c, const void *page, int64_t bytes, kv_codec_skeleton *s,
                           kv_err *err) KV_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
