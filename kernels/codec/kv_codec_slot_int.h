/* What packing and unpacking of slots share: little-endian fields and the header. */
#ifndef KV_CODEC_SLOT_INT_H
#define KV_CODEC_SLOT_INT_H

#include "kernels/codec/kv_codec_slot.h"

#define KV_CODEC_SLOT_MAGIC "KK13"
#define KV_CODEC_PAGE_MAGIC "KKB1"

/* Fields of the header, by offset. */
enum {
    KV_SLOT_D_EFF = 4,
    KV_SLOT_K = 8,
    KV_SLOT_BITS = 12,
    KV_SLOT_OUTLIERS = 16,
    KV_SLOT_METRIC = 20,
    KV_SLOT_SEED = 24,
    KV_SLOT_VERSION = 32,
    KV_SLOT_RECIPE = 33,
    KV_SLOT_DIM = 34,
    KV_SLOT_ROWS = 36,
    KV_SLOT_TABLE = 40,
    KV_SLOT_FLAGS = 44
};
#define KV_SLOT_FLAG_BUDGET 0xFFFFFu
#define KV_SLOT_FLAG_RULE (1u << 30)
#define KV_SLOT_FLAG_SHARED (1u << 31)

static inline uint16_t kv_le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (unsigned)p[1] << 8);
}
static inline uint32_t kv_le32(const uint8_t *p)
{
    return (uint32_t)kv_le16(p) | (uint32_t)kv_le16(p + 2) << 16;
}
static inline void kv_put_le16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void kv_put_le32(uint8_t *p, uint32_t v)
{
    kv_put_le16(p, (uint16_t)v);
    kv_put_le16(p + 2, (uint16_t)(v >> 16));
}

/* Bits of one seg id: the bit length of k - 1, at least 1. */
static inline int kv_slot_seg_bits(int32_t k)
{
    int g = 1;
    while ((k - 1) >> g != 0) g++;
    return g;
}

void kv_slot_header(const kv_codec_slot_config *c, const char *magic, int64_t outliers, uint8_t *out);

#endif
