/* Moving a cache from TP size p to TP size q, checked as a cell of the grid is: every rank of a group builds the
 * native image of the source shard it holds, the payload of the heads that others lack travels, every rank assembles
 * its destination shard and compares it byte for byte with what the destination engine would have built itself;
 * both native spaces are probed, the destination shards decode, and all goes back. Gather is q = 1, scatter p = 1.
 *
 * Memory of a rank: its source and destination image, one more of the larger size, and both payloads packed. */
#ifndef KV_TP_MOVE_H
#define KV_TP_MOVE_H

#include "kernels/kv_kern.h"
#include "layouts/kv_layout.h"
#include "tp/kv_tp_plan.h"
#include "tp/kv_tp_transport.h"
#include "tp/kv_tp_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KV_TP_DIGEST_BYTES 32

/* A hash for digests of logits and of copies (the grid gives BLAKE2b; tp stands below it). */
typedef struct {
    void (*begin)(void *state);
    void (*update)(void *state, const void *bytes, size_t n);
    void (*end)(void *state, uint8_t digest[KV_TP_DIGEST_BYTES]);
} kv_tp_hash;
/* State of any such hash. */
typedef struct {
    _Alignas(64) unsigned char opaque[512];
} kv_tp_hash_state;
/* Four FNV-1a lanes: the hash where none is given. Against faults, not against an adversary. */
extern const kv_tp_hash kv_tp_hash_fnv;

/* Where a test may look in and change what it finds. */
typedef enum {
    KV_TP_AT_CLAIM,   /* data: the kv_tp_claim of this rank, before it is sealed and sent */
    KV_TP_AT_SOURCE,  /* data: the kv_image of the shard that is about to be packed */
    KV_TP_AT_HEADERS, /* data: kv_tp_header[group size] of this rank, sealed, before they are sent */
    KV_TP_AT_PAYLOAD, /* data: the kv_image of the packed payload, after its checksums were made */
    KV_TP_AT_ARRIVED  /* data: the kv_image of the shard that was assembled */
} kv_tp_point;

/* Pages whose bytes the caller alone can read (sealed pages of the codec), in place of layouts: on both sides
 * [tokens][kv_heads][head_dim] bytes a layer, where the geometry's tokens are the pages and its head_dim the bytes that a
 * head has in one (element fp8_e4m3). Of one rank: ctx is used by one thread. */
typedef struct {
    const char *name; /* of the layout, for texts */
    void *ctx;
    /* The bytes of shard ix at a layer: bytes[p] for every native position p (kv_index_inverse says what stands there). */
    kv_rc (*build)(void *ctx, const kv_index *ix, int64_t layer, uint8_t *bytes, kv_err *err);
    /* The destination shard of a layer as it arrived, in order from the first layer; what cannot be read is no error. */
    kv_rc (*decode)(void *ctx, const kv_index *ix, int64_t layer, const uint8_t *bytes, kv_err *err);
    /* Of what decode was given: tokens of layer 0, digests of all logits; [0] as it arrived, [1] as it was before. Equal
     * tokens and digests are KV_TP_TRUE for the token leg. */
    void (*finish)(void *ctx, int32_t tokens[2][KV_DECODE_STEPS], uint8_t digest[2][KV_TP_DIGEST_BYTES]);
} kv_tp_content;

typedef struct {
    kv_tp_transport *transport; /* a group of as many ranks as kv_tp_examine says; emulated cells use `local` ones */
    kv_device *device;
    const kv_layout *layout[2]; /* source, destination; of tp size 1 */
    const kv_layout *stored[2]; /* what the bytes of a side really are; NULL: as declared (case d2) */
    const kv_tp_content
        *content;  /* pages of bytes in place of both layouts; NULL: layouts. Its bytes are the last payload */
    int64_t tp[2]; /* p, q */
    /* Pipeline stages of a side: stage i holds its layers on ranks i tp ... (i+1) tp - 1. NULL on both sides: one stage with
     * all layers. With stages a unit is one layer, and layouts keep no layer axis (KV_EINVAL). */
    const kv_tp_stage *stage[2];
    size_t n_stages[2];
    const kv_geometry *g;
    uint64_t seed;
    uint32_t stale, fill[2]; /* bits of the source's tail, and of the tails that a move fills: on the source side after
                                the way back, on the destination side */
    int32_t payloads;        /* number of them; 0 = none, tokens only */
    bool exhaustive;         /* kinds KV_PAYLOAD_SWEEP.. instead of 0.. */
    kv_tp_send send;
    const int64_t *chunk; /* tokens of each chunk, for KV_TP_SEND_CHUNKS; else NULL */
    size_t n_chunks;
    const kv_tp_hash *hash; /* NULL: kv_tp_hash_fnv */
    void (*hook)(void *ctx, kv_tp_point point, void *data);
    void *hook_ctx;
    /* A planted fault, or NULL: asked at KV_TP_AT_SOURCE and KV_TP_AT_PAYLOAD; what it returns is taken as what packing
     * or sending met on this rank. */
    kv_rc (*fault)(void *ctx, kv_tp_point point, kv_err *err);
    void *fault_ctx;
} kv_tp_spec;

/* Values of an observation, as in a row of the grid. */
enum { KV_TP_FALSE = 0, KV_TP_TRUE = 1, KV_TP_NULL = 2 };
enum { KV_TP_FORWARD, KV_TP_IDENTICAL, KV_TP_DIFF_IS_PADDING, KV_TP_TOKENS, KV_TP_OBS };

/* What was found, the same on every rank of the group and for every transport. Counts are sums over the shards of a
 * side (of one stage), copies included: each is a native space of its own. */
typedef struct {
    bool refused;     /* no such move exists: frontier and reason say why, all else is 0 and the observations null */
    int32_t frontier; /* kv_layout_frontier */
    char reason[KV_REASON_TEXT];
    int32_t observed[KV_TP_OBS];
    int64_t ranks; /* that it took */
    int64_t unit_layers, layers;
    int64_t native_bytes[2];                  /* per unit */
    int64_t checked[2], total[2], padding[2]; /* positions of source and destination shards, per unit */
    int32_t bijective[2];
    int64_t unread_padding, diff_positions; /* of the source shards, all layers */
    int32_t payloads, gather_agrees;
    int32_t converts, values_preserved, finite;
    int64_t worst_ppm;
    int32_t decoded[KV_DECODE_STEPS], reference[KV_DECODE_STEPS]; /* layer 0, destination shard 0 */
    /* All logits of all layers: of the rank where a side has one, else the hash of the ranks' digests in order. */
    uint8_t logits_digest[KV_TP_DIGEST_BYTES], reference_digest[KV_TP_DIGEST_BYTES];
    /* One payload, all units: bytes that each rank was handed by others on the way there and back, counted by the
     * transport, and the least that can be (heads it lacks, in the narrower of the two element types). */
    int64_t sent[2][KV_TP_RANKS_MAX], received[2][KV_TP_RANKS_MAX], least[2][KV_TP_RANKS_MAX];
    int64_t sent_total[2], least_total[2];
    int32_t minimal;         /* received equals least on every rank, both ways */
    int64_t rounds;          /* that a unit was sent in, on the way there */
    int64_t moved;           /* layers that another stage holds on the destination side; 0 without stages */
    int64_t copies_compared; /* replicated shards whose digest was held against that of another rank */
} kv_tp_result;

/* Whether the move exists, without ranks or memory: fills refused, frontier, reason, ranks, unit_layers, layers,
 * native_bytes and the least bytes. KV_EINVAL for a layout that is declared as a shard itself, or sizes past 64 bits. */
kv_rc kv_tp_examine(const kv_tp_spec *s, kv_tp_result *out, kv_err *err) KV_MUST_USE;

/* The whole cell. Collective over the group; every rank returns KV_OK with the same result, or every rank an error:
 *   KV_EFORMAT  refused bytes: claims, headers, checksums, copies that disagree (the text names the ranks)
 *   KV_EPEER    another rank failed (named), KV_ETIME a rank is missing (named): the transport is broken
 *   KV_ENOMEM, KV_EDEVICE, KV_EINVAL  here
 * A group of another size than found.ranks is KV_EINVAL. A refused move is KV_OK with out->refused. */
kv_rc kv_tp_move(const kv_tp_spec *s, kv_tp_result *out, kv_err *err) KV_MUST_USE;

/* ---- the head-gather frontier, shown ----------------------------------------------------- */

typedef struct {
    bool shown;              /* two whole caches were built, and their shard is the same bytes */
    bool whole;              /* the shard is the whole cache: there is nothing to show, X2 does not apply */
    int64_t heads, of_heads; /* of the shard, of the whole */
    int64_t whole_differs;   /* positions at which the two whole images differ */
    int64_t shard_differs;   /* positions at which their shards differ: 0 */
    int64_t positions[2];    /* of the whole, of the shard */
} kv_tp_witness;

/* Why one shard cannot become the whole: two whole caches of layout `whole` that differ in heads the shard of `rank` of
 * `size` (in layout `shard`) does not hold are built, the shard is cut from each by the translator, and both cuts are
 * compared with each other and with the shard's own image. Works on layers [first, first + unit) of geometry g. */
kv_rc kv_tp_witness_show(kv_device *dev, const kv_layout *shard, int64_t size, int64_t rank, const kv_layout *whole,
                         const kv_geometry *g, uint64_t seed, uint32_t fill, kv_tp_witness *out, kv_err *err)
    KV_MUST_USE;
/* The same for pages of bytes (kv_tp_content) of geometry g, called `name`. */
kv_rc kv_tp_witness_pages(kv_device *dev, const char *name, int64_t size, int64_t rank, const kv_geometry *g,
                          uint64_t seed, kv_tp_witness *out, kv_err *err) KV_MUST_USE;

/* ---- speed ------------------------------------------------------------------------------- */

typedef struct {
    int64_t bytes, units; /* payload of one unit; units of the model (layers, where no side has a layer axis) */
    bool in_place;        /* the sender packs in the destination's order, which has no padding: nothing is unpacked */
    double pack_s, unpack_s; /* one unit: translation into and out of the wire image */
    double copy_s;           /* one unit: plain copy of the same bytes, the yardstick of packing */
    double sum_s;            /* one unit: its checksum, which a move makes once on either side, beside the rest */
    double move_s;           /* all units: packed, announced, sent, in place, by the receiver's clock */
    double plain_s;          /* all units: sent and received alone, the yardstick of the move */
} kv_tp_speed;

/* The best of `times` rounds, alternating with their yardsticks. All units of layout[0] at TP size 1 go from rank 0 to
 * rank 1 and into layout[1], one after the other; a unit is packed while the one before is under way. KV_EBUG where the
 * first move, of a payload, gives another image than the destination would have built. Collective over a group of two; every rank gets the figures. */
kv_rc kv_tp_bench(const kv_tp_spec *s, int32_t times, kv_tp_speed *out, kv_err *err) KV_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
