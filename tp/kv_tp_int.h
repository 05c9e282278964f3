/* Inside a move: what one rank works with. */
#ifndef KV_TP_INT_H
#define KV_TP_INT_H

#include "kernels/kv_kern_image.h"
#include "tp/kv_tp_move.h"

/* One side of the move on this rank: its shard, if it holds one. */
typedef struct {
    bool has;        /* a shard of some stage */
    bool here;       /* and that of the stage that holds the layer at hand */
    int64_t first;   /* rank of that stage's shard 0 */
    int64_t layer;   /* id of the layer at hand, as this side's stage has it */
    kv_index ix;     /* as declared: what the mover goes by */
    kv_index stored; /* as the bytes are: what builder, probe and decoder go by */
    kv_index wire;
    kv_image *image;  /* native */
    kv_image *packed; /* wire */
    void *staged;     /* transport memory of the packed image, where the transport cannot use the image's own */
} kv_tp_side;

/* Plans between a source stage and a destination stage. */
typedef struct {
    int32_t from, to;
    kv_tp_plan plan[2];
} kv_tp_between;

typedef struct {
    const kv_tp_spec *s;
    kv_tp_transport *t;
    const kv_tp_hash *hash;
    kv_tp_side side[2];
    kv_tp_hop *hop; /* of each layer, where there are stages */
    kv_tp_between *between;
    size_t n_between;
    const kv_tp_plan *plan; /* [0] there, [1] back: between the stages of the layer at hand */
    kv_tp_round *round[2];  /* of the sending side */
    size_t n_rounds[2];
    kv_image *third;
    kv_diffset *diffs;
    int32_t element;   /* on the wire */
    int64_t row_bytes; /* one token of one head of one layer, K and V, on the wire */
    int64_t unit;
    uint32_t poison;
    unsigned char *notes;                 /* what all ranks say in a round */
    uint8_t chain[2][KV_TP_DIGEST_BYTES]; /* of all images that were assembled on a side */
    int64_t copies_compared;
    bool decoded; /* content was */
    kv_rc rc;     /* a failure here that the others do not know of yet: the next note tells them */
    kv_err err;   /* its text */
} kv_tp_work;

#define KV_TP_OPS(w_) ((w_)->s->device->ops)
/* Runs a call unless something failed before; its failure waits for the next note. */
#define KV_TP_DO(w_, call_)                                                                                            \
    do {                                                                                                               \
        if ((w_)->rc == KV_OK) (w_)->rc = (call_);                                                                     \
    } while (0)

/* Heads that are split: a latent cache is one row. */
int64_t kv_tp_split_heads(const kv_tp_spec *s);
/* Element type of a side; pages of bytes are fp8_e4m3. */
kv_elem kv_tp_side_element(const kv_tp_spec *s, int i);
/* What a side is called. */
const char *kv_tp_side_name(const kv_tp_spec *s, int i);
/* Binds shard `rank` of side `i`, as declared or as stored. */
kv_rc kv_tp_bind(const kv_tp_spec *s, int i, int64_t rank, bool stored, int64_t unit, kv_index *out,
                 kv_bind_state *state, char reason[KV_REASON_TEXT], kv_err *err) KV_MUST_USE;

/* ---- pages of bytes ---------------------------------------------------------------------- */

/* Shard `rank` of `size` of pages (kv_tp_content); *exists is false, and reason says why, where there is none. KV_EINVAL
 * where the sizes do not fit. */
kv_rc kv_tp_pages_index(const char *name, const kv_geometry *g, int64_t size, int64_t rank, kv_index *out, bool *exists,
                        char reason[KV_REASON_TEXT], kv_err *err) KV_MUST_USE;
/* The content of the layer at hand into an image, or out of one and into the token leg. Errors stand in w->err. */
kv_rc kv_tp_content_build(kv_tp_work *w, const kv_tp_side *side, kv_image *image) KV_MUST_USE;
kv_rc kv_tp_content_decode(kv_tp_work *w, const kv_tp_side *side) KV_MUST_USE;

/* ---- pipeline stages --------------------------------------------------------------------- */

/* Stages of a side, and ranks that it lives on. */
int64_t kv_tp_side_stages(const kv_tp_spec *s, int i);
int64_t kv_tp_side_ranks(const kv_tp_spec *s, int i);
/* Plans between all stages that a layer goes between. Never waits. */
kv_rc kv_tp_stages_open(kv_tp_work *w, kv_err *err) KV_MUST_USE;
void kv_tp_stages_close(kv_tp_work *w);
/* Turns to a layer (the first of a unit): who holds it, and its plans. */
void kv_tp_at_layer(kv_tp_work *w, int64_t layer);

/* ---- a rank's work ----------------------------------------------------------------------- */

/* Indices, plans and memory of this rank. Never waits. On an error kv_tp_close_work still is to be called. */
kv_rc kv_tp_open_work(kv_tp_work *w, const kv_tp_spec *s, const kv_tp_result *found, kv_err *err) KV_MUST_USE;
void kv_tp_close_work(kv_tp_work *w);

/* One leg: packs side `from`, sends what is lacking, assembles it as an image of the other side in `into` (NULL where
 * this rank holds no shard there). *whole is false when the translator wrote outside. An error here is known to all
 * ranks: return at once. */
kv_rc kv_tp_leg(kv_tp_work *w, int from, kv_image *into, bool *whole, kv_err *err) KV_MUST_USE;

/* Digest of the bytes in use of an image, `before` first (may be NULL). */
kv_rc kv_tp_image_digest(const kv_tp_hash *h, const kv_image *im, const uint8_t *before,
                         uint8_t digest[KV_TP_DIGEST_BYTES], kv_err *err) KV_MUST_USE;
/* 64 bits over plain bytes, for claims. */
uint64_t kv_tp_fnv(uint64_t h, const void *bytes, size_t n);

/* ---- what a rank found ------------------------------------------------------------------- */

typedef struct {
    int32_t rc;
    char text[KV_TP_NOTICE_TEXT];
    int32_t forward, gather, tokens, outside, bijective[2], preserved, finite, minimal;
    int64_t worst_ppm, diff, checked[2], total[2], padding[2];
    int64_t sent[2], received[2];
    int32_t decoded[KV_DECODE_STEPS], reference[KV_DECODE_STEPS];
    uint8_t logits[KV_TP_DIGEST_BYTES], reference_logits[KV_TP_DIGEST_BYTES];
    uint8_t chain[2][KV_TP_DIGEST_BYTES];
} kv_tp_tally;

/* The tallies of all ranks into one result; KV_EFORMAT where copies disagree, KV_EPEER where a rank failed. */
kv_rc kv_tp_sum_up(kv_tp_work *w, const kv_tp_tally *mine, kv_tp_result *out, kv_err *err) KV_MUST_USE;
/* Digests of ranks that hold copies of one head (of side `i`, in the stage whose shard 0 is on rank `base`), against each
 * other. stride: bytes from one rank's digest to the next. */
kv_rc kv_tp_copies_check(kv_tp_work *w, int i, int64_t base, const uint8_t *digest, size_t stride, const char *when,
                         kv_err *err) KV_MUST_USE;

#endif
