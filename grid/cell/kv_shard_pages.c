#include "grid/cell/kv_shard_pages.h"

#include <inttypes.h>
#include <string.h>

#include "grid/cell/kv_codec_tokens.h"

/* One head of the layer at hand: slots and values of K and V. */
typedef struct {
    uint8_t *slot[2];
    float *plain[2];
} sealed_head;

struct kv_shard_pages {
    const kv_sealed_shape *z;
    const kv_geometry *g;
    uint64_t seed;
    int64_t layer;     /* that head[] is of, -1: none */
    sealed_head *head; /* [kv_heads], made as they are asked for */
    float *rows;       /* of one head */
    kv_device
        *dev; /* a CPU of its own: other ranks may be threads of this process, and what arrives lies in host memory */
    kv_codec_tokens *tokens;
    kv_sealed_reader *reader[2];
    float *moved[2], *plain[2]; /* [tokens][heads of the shard][dim] */
};

static int64_t tokens_of(const kv_shard_pages *p)
{
    return p->z->blocks * p->z->block;
}

static int64_t dim_of(const kv_shard_pages *p, int kv)
{
    return p->z->half[kv].slot.params.dim;
}

/* ---- sealing ---------------------------------------------------------------------------- */

static void forget(kv_shard_pages *p)
{
    for (int64_t h = 0; p->head != NULL && h < p->g->kv_heads; h++)
        for (int kv = 0; kv < 2; kv++) {
            kv_free(p->head[h].slot[kv]);
            kv_free(p->head[h].plain[kv]);
            p->head[h].slot[kv] = NULL;
            p->head[h].plain[kv] = NULL;
        }
}

static kv_rc head_of(kv_shard_pages *p, int64_t layer, int64_t head, const sealed_head **out, kv_err *err)
{
    sealed_head *x = &p->head[head];
    if (p->layer != layer) forget(p);
    p->layer = layer;
    for (int kv = 0; kv < 2; kv++) {
        const kv_values_place at = {KV_VALUES_GAUSSIAN, p->seed, layer, head, kv, p->g->element};
        if (x->slot[kv] != NULL) continue;
        uint8_t *slot = kv_alloc((size_t)(p->z->blocks * p->z->slot[kv]), 1);
        x->slot[kv] = slot;
        x->plain[kv] = kv_alloc((size_t)(tokens_of(p) * dim_of(p, kv)), sizeof(float));
        if (slot == NULL || x->plain[kv] == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the slots of a head");
        const kv_rc rc = kv_sealed_make(p->dev, p->z, &at, p->rows, x->plain[kv], slot, err);
        if (rc != KV_OK) return rc;
    }
    *out = x;
    return KV_OK;
}

/* Position by position, by what stands there: the mover works from strides. */
static kv_rc build(void *ctx, const kv_index *ix, int64_t layer, uint8_t *bytes, kv_err *err)
{
    kv_shard_pages *p = ctx;
    const int64_t k = p->z->slot[0], v = p->z->slot[1];
    for (int64_t at = 0; at < ix->native; at++) {
        const sealed_head *h = NULL;
        kv_coord c;
        (void)kv_index_inverse(ix, at, &c);
        const kv_rc rc = head_of(p, layer, ix->first_head + c.head, &h, err);
        if (rc != KV_OK) return rc;
        bytes[at] = c.lane < k ? h->slot[0][c.token * k + c.lane] : h->slot[1][c.token * v + c.lane - k];
    }
    return KV_OK;
}

/* ---- the token leg ---------------------------------------------------------------------- */

static kv_rc open_leg(kv_shard_pages *p, const kv_index *ix, kv_err *err)
{
    kv_geometry g = *p->g;
    kv_rc rc = KV_OK;
    if (p->tokens != NULL) return KV_OK;
    g.tokens = tokens_of(p);
    g.kv_heads = ix->heads;
    for (int kv = 0; kv < 2; kv++) {
        const size_t values = (size_t)(g.tokens * g.kv_heads * dim_of(p, kv));
        p->moved[kv] = kv_alloc(values, sizeof(float));
        p->plain[kv] = kv_alloc(values, sizeof(float));
        if (p->moved[kv] == NULL || p->plain[kv] == NULL)
            return KV_FAIL(err, KV_ENOMEM, "no memory for %zu values", values);
        KV_TRY(rc, out, kv_sealed_reader_new(p->dev, p->z, kv, &p->reader[kv], err));
    }
    rc = kv_codec_tokens_new(p->dev, &g, p->seed, &p->tokens, err);
out:
    return rc;
}

/* rows[block][dim] of one head to where they stand among all heads' values. */
static void place(const float *rows, int64_t first, int64_t n, int64_t head, int64_t heads, int64_t dim, float *values)
{
    for (int64_t t = 0; t < n; t++)
        memcpy(values + ((first + t) * heads + head) * dim, rows + t * dim, (size_t)dim * sizeof *values);
}

/* The slot of a head as it arrived; zeros where it is none any more. */
static kv_rc read_slot(kv_shard_pages *p, int kv, const uint8_t *slot, kv_err *err)
{
    kv_err why = {0};
    const kv_rc rc = kv_sealed_read(p->reader[kv], slot, p->rows, &why);
    if (rc == KV_ENOMEM) return KV_FAIL(err, rc, "%s", why.text);
    if (rc != KV_OK) memset(p->rows, 0, (size_t)(p->z->block * dim_of(p, kv)) * sizeof *p->rows);
    return KV_OK;
}

static kv_rc decode(void *ctx, const kv_index *ix, int64_t layer, const uint8_t *bytes, kv_err *err)
{
    kv_shard_pages *p = ctx;
    const int64_t n = p->z->block;
    kv_rc rc = open_leg(p, ix, err);
    for (int64_t h = 0; rc == KV_OK && h < ix->heads; h++) {
        const sealed_head *own = NULL;
        KV_TRY(rc, out, head_of(p, layer, ix->first_head + h, &own, err));
        for (int kv = 0; kv < 2; kv++) {
            place(own->plain[kv], 0, tokens_of(p), h, ix->heads, dim_of(p, kv), p->plain[kv]);
            for (int64_t b = 0; b < p->z->blocks; b++) {
                const kv_coord c = {0, 0, b, h, kv == 0 ? 0 : p->z->slot[0]};
                KV_TRY(rc, out, read_slot(p, kv, bytes + kv_index_forward(ix, &c), err));
                place(p->rows, b * n, n, h, ix->heads, dim_of(p, kv), p->moved[kv]);
            }
        }
    }
    if (rc == KV_OK) {
        const float *const moved[2] = {p->moved[0], p->moved[1]}, *const plain[2] = {p->plain[0], p->plain[1]};
        rc = kv_codec_tokens_layer(p->tokens, layer, moved, plain, err);
    }
out:
    return rc;
}

static void finish(void *ctx, int32_t tokens[2][KV_DECODE_STEPS], uint8_t digest[2][KV_TP_DIGEST_BYTES])
{
    kv_shard_pages *p = ctx;
    kv_row row;
    memset(&row, 0, sizeof row);
    kv_codec_tokens_finish(p->tokens, &row);
    memcpy(tokens[0], row.decoded, sizeof row.decoded);
    memcpy(tokens[1], row.reference, sizeof row.reference);
    (void)kv_hex_decode(row.logits_digest, digest[0], KV_TP_DIGEST_BYTES);
    (void)kv_hex_decode(row.reference_digest, digest[1], KV_TP_DIGEST_BYTES);
}

/* ---- all of it -------------------------------------------------------------------------- */

kv_geometry kv_shard_pages_geometry(const kv_sealed_shape *z, const kv_geometry *g)
{
    const int64_t bytes = z->slot[0] + z->slot[1];
    return (kv_geometry){.layers = g->layers,
                         .tokens = z->blocks,
                         .kv_heads = g->kv_heads,
                         .head_dim = bytes,
                         .head_dim_v = bytes,
                         .element = KV_ELEM_FP8_E4M3};
}

kv_rc kv_shard_pages_new(const char *name, const kv_sealed_shape *z, const kv_geometry *g, uint64_t seed,
                         kv_shard_pages **pages, kv_tp_content *out, kv_err *err)
{
    const int64_t dim = g->head_dim > g->head_dim_v ? g->head_dim : g->head_dim_v;
    kv_shard_pages *p = kv_alloc(1, sizeof *p);
    *pages = p;
    if (p == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for sealed pages");
    p->z = z;
    p->g = g;
    p->seed = seed;
    p->layer = -1;
    p->head = kv_alloc((size_t)g->kv_heads, sizeof *p->head);
    p->rows = kv_alloc((size_t)(tokens_of(p) * dim), sizeof *p->rows);
    if (p->head == NULL || p->rows == NULL)
        return KV_FAIL(err, KV_ENOMEM, "no memory for sealed pages of %" PRId64 " heads", g->kv_heads);
    *out = (kv_tp_content){name, p, build, decode, finish};
    return kv_device_cpu_new(&p->dev, err);
}

void kv_shard_pages_free(kv_shard_pages *p)
{
    if (p == NULL) return;
    forget(p);
    kv_free(p->head);
    kv_free(p->rows);
    kv_codec_tokens_free(p->tokens);
    for (int kv = 0; kv < 2; kv++) {
        kv_sealed_reader_free(p->reader[kv]);
        kv_free(p->moved[kv]);
        kv_free(p->plain[kv]);
    }
    if (p->dev != NULL) p->dev->ops->close(p->dev);
    kv_free(p);
}
