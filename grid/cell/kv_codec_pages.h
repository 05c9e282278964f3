/* Sealed pages of one layer in memory: where each byte of each slot stands under an arrangement (kv_pages_kind), by two
 * implementations that share no formula: one walks native positions (builder, probe), one works from strides (mover).
 *
 * The canonical order of the bytes is [block][head][K slot|V slot]. A native position numbers the bytes of the request's
 * own pages in the order of the arrangement; the pages of a table lie shuffled in a larger pool, whose other pages must
 * stay as they are. */
#ifndef KV_CODEC_PAGES_H
#define KV_CODEC_PAGES_H

#include "base/kv_base.h"
#include "grid/campaign/kv_codec_spec.h"

typedef struct {
    kv_pages_kind kind;
    int64_t blocks, heads, slot[2]; /* slot: bytes of a K and of a V slot */
    int64_t *table;                 /* page of each block; NULL where the pages stand in order */
    int64_t pool_bytes;             /* of all pages, unused ones included */
} kv_pages;

/* `seed` shuffles the table. KV_ENOMEM, also where sizes do not fit. */
kv_rc kv_pages_open(kv_pages_kind kind, int64_t blocks, int64_t heads, const int64_t slot[2], uint64_t seed,
                    kv_pages *out, kv_err *err) KV_MUST_USE;
void kv_pages_close(kv_pages *p);
int64_t kv_pages_positions(const kv_pages *p); /* native positions, one a byte */

/* The number in canonical order of the byte at a native position, and the way back; and where it stands in memory. */
int64_t kv_pages_inverse(const kv_pages *p, int64_t position);
int64_t kv_pages_forward(const kv_pages *p, int64_t canonical);
int64_t kv_pages_offset(const kv_pages *p, int64_t position);

/* Copies every slot from one arrangement to the other, by strides. Pools of pool_bytes each. */
void kv_pages_move(const kv_pages *from, const uint8_t *src, const kv_pages *to, uint8_t *dst);
/* Where the slot of a block, head and stream stands in memory, by strides. */
int64_t kv_pages_slot_offset(const kv_pages *p, int64_t block, int64_t head, int kv);

#endif
