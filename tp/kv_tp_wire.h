/* How the payload of a shard lies while it travels: [KV][H][L][T][D], K then V, no padding, no pages. Heads come
 * first, so that the heads of a parcel lie together whatever the layouts of the two sides are. Tails, pad lanes and
 * page slack have no place here and so never travel. */
#ifndef KV_TP_WIRE_H
#define KV_TP_WIRE_H

#include "kernels/kv_kern.h"
#include "tp/kv_tp_plan.h"
#include "tp/kv_tp_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The wire image of the heads that `shard` holds, in element type `element`. */
void kv_tp_wire_index(const kv_index *shard, int32_t element, kv_index *out);

/* Bytes of `heads` heads of one round. */
int64_t kv_tp_wire_bytes(const kv_index *wire, int64_t heads, const kv_tp_round *r);

/* The pieces of model heads [first, first + heads) of round r inside a wire image whose bytes begin at `base`. Both
 * ends of a parcel cut it alike, whatever heads they hold beside. out may be NULL to count. */
int32_t kv_tp_wire_pieces(const kv_index *wire, unsigned char *base, int64_t first, int64_t heads, const kv_tp_round *r,
                          kv_tp_piece *out);

/* A 64-bit checksum of pieces in order; gpu says where they lie. Any changed, moved or missing byte changes it (up to
 * chance: it guards against faults, not against an adversary). */
kv_rc kv_tp_sum(const kv_tp_piece *piece, int32_t n, bool gpu, uint64_t *out, kv_err *err) KV_MUST_USE;

/* What a sender says about a parcel, before its bytes are taken. */
#define KV_TP_MAGIC 0x6B767470U /* "kvtp" */
typedef struct {
    uint32_t magic;   /* 0: no parcel for that rank in this round */
    int32_t from, to; /* ranks in the group */
    int32_t reserved;
    int64_t shard, size; /* of the sending side */
    int64_t total_heads, first_head, heads;
    int64_t layer, layers; /* numbers in the model */
    int64_t token, tokens;
    int64_t bytes;
    uint64_t sum;  /* of the payload */
    uint64_t seal; /* of the fields above */
} kv_tp_header;

/* Sets magic and seal. */
void kv_tp_header_seal(kv_tp_header *h);
/* KV_EFORMAT with a reason unless got is sealed and says what `want` says (sum aside). The ranks in texts are named by
 * rank_name[rank in the group]. */
kv_rc kv_tp_header_check(const kv_tp_header *got, const kv_tp_header *want, const int32_t *rank_name, kv_err *err);

/* What a rank says of itself before a move. */
typedef struct {
    int32_t rank; /* in the group */
    int32_t reserved;
    int64_t shard[2]; /* of the source and the destination, -1: it holds none */
    int64_t size[2];  /* p, q */
    int64_t total_heads;
    uint64_t what; /* a hash of layouts, geometry, seed and cut: the same on every rank */
    uint64_t seal;
} kv_tp_claim;

void kv_tp_claim_seal(kv_tp_claim *c);
/* All claims of a group, in the order of its ranks, against each other and `want` (p, q, total heads, what): wrong
 * rank, a shard that two ranks hold, one that none holds, another number of heads, another cell. KV_EFORMAT with the
 * first reason; every rank that looks at the same claims finds the same. */
kv_rc kv_tp_claims_check(const kv_tp_claim *claim, int32_t n, const kv_tp_claim *want, const int32_t *rank_name,
                         kv_err *err);

#ifdef __cplusplus
}
#endif
#endif
