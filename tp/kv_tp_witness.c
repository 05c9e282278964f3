/* The head-gather frontier, shown: two whole caches with one and the same shard. */
#include <inttypes.h>
#include <string.h>

#include "tp/kv_tp_int.h"

enum { WHOLE_A, WHOLE_B, CUT_A, CUT_B, OWN, WIRE_A, WIRE_B, SMALL, IMAGES };

typedef struct {
    kv_device *dev;
    const kv_geometry *g;
    uint64_t seed;
    uint32_t fill;
    kv_index whole, shard, wire, small; /* wire: of the whole; small: of the shard */
    kv_image *im[IMAGES];
    kv_err *err;
} show;

#define OPS (w->dev->ops)

static const kv_index *index_of(const show *w, int image)
{
    return image <= WHOLE_B ? &w->whole : image <= OWN ? &w->shard : image <= WIRE_B ? &w->wire : &w->small;
}

static kv_rc build(show *w, int image, uint64_t seed)
{
    const kv_index *ix = index_of(w, image);
    const kv_payload p = {.seed = seed,
                          .tokens = w->g->tokens,
                          .kv_heads = w->g->kv_heads,
                          .lanes = {w->g->head_dim, w->g->head_dim_v},
                          .first_head = ix->first_head,
                          .kind = KV_PAYLOAD_BITS,
                          .element = (int32_t)w->g->element};
    return OPS->build(w->dev, w->im[image], ix, &p, w->whole.element, w->fill, w->err);
}

/* The shard's heads from one wire image to another. */
static kv_rc copy_heads(show *w, int to, int from)
{
    const kv_tp_round all = {0, w->wire.layers, 0, w->wire.tokens, 0, 0};
    kv_tp_piece out[2], in[2];
    kv_rc rc = OPS->finish(w->dev, w->err);
    const int32_t n =
        kv_tp_wire_pieces(index_of(w, from), w->im[from]->data, w->shard.first_head, w->shard.heads, &all, out);
    (void)kv_tp_wire_pieces(index_of(w, to), w->im[to]->data, w->shard.first_head, w->shard.heads, &all, in);
    for (int32_t i = 0; rc == KV_OK && i < n; i++)
        rc = kv_tp_copy(in[i].at, !w->im[to]->host, out[i].at, !w->im[from]->host, out[i].bytes, w->err);
    return rc;
}

static kv_rc turn(show *w, int from, int to)
{
    return OPS->translate(w->dev, index_of(w, from), w->im[from], index_of(w, to), w->im[to], w->fill, w->err);
}

/* What the rank of the shard keeps of a whole cache. */
static kv_rc cut(show *w, int whole, int to)
{
    kv_rc rc;
    KV_TRY(rc, out, turn(w, whole, WIRE_A));
    KV_TRY(rc, out, copy_heads(w, SMALL, WIRE_A));
    KV_TRY(rc, out, turn(w, SMALL, to));
out:
    return rc;
}

static kv_rc make(show *w)
{
    kv_rc rc = KV_OK;
    for (int i = 0; i < IMAGES; i++) {
        KV_TRY(rc, out, OPS->image_new(w->dev, kv_index_bytes(index_of(w, i)), &w->im[i], w->err));
        KV_TRY(rc, out, OPS->poison(w->dev, w->im[i], kv_index_bytes(index_of(w, i)), (uint32_t)i, w->err));
    }
    KV_TRY(rc, out, build(w, WHOLE_A, w->seed));
    KV_TRY(rc, out, build(w, OWN, w->seed));
    KV_TRY(rc, out, build(w, WIRE_A, w->seed));
    KV_TRY(rc, out, build(w, WIRE_B, ~w->seed));    /* another cache in all its heads ... */
    KV_TRY(rc, out, copy_heads(w, WIRE_B, WIRE_A)); /* ... but those of the shard */
    KV_TRY(rc, out, turn(w, WIRE_B, WHOLE_B));
    KV_TRY(rc, out, cut(w, WHOLE_A, CUT_A));
    KV_TRY(rc, out, cut(w, WHOLE_B, CUT_B));
out:
    return rc;
}

static kv_rc compare(show *w, kv_tp_witness *out)
{
    kv_compare_result whole, cuts, own;
    kv_rc rc;
    KV_TRY(rc, out, OPS->compare(w->dev, &w->whole, w->im[WHOLE_A], w->im[WHOLE_B], &whole, w->err));
    KV_TRY(rc, out, OPS->compare(w->dev, &w->shard, w->im[CUT_A], w->im[CUT_B], &cuts, w->err));
    KV_TRY(rc, out, OPS->compare(w->dev, &w->shard, w->im[CUT_A], w->im[OWN], &own, w->err));
    for (int i = 0; i < IMAGES; i++) KV_TRY(rc, out, kv_check_guards(w->dev, w->im[i], w->err));
    out->whole_differs = whole.differing;
    out->shard_differs = cuts.differing + own.differing;
    out->shown = out->whole_differs > 0 && out->shard_differs == 0;
out:
    return rc;
}

static kv_rc bind(const kv_layout *l, int64_t size, int64_t rank, const kv_geometry *g, int64_t unit, kv_index *out,
                  kv_err *err)
{
    kv_layout shard = *l;
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    shard.tp_size = size;
    shard.tp_rank = rank;
    const kv_rc rc = kv_layout_bind(&shard, g, unit, out, &state, reason, err);
    if (rc != KV_OK) return rc;
    return state == KV_BIND_OK ? KV_OK : KV_FAIL(err, KV_EINVAL, "%s", reason);
}

/* The indices of the whole and of the shard are there. */
static kv_rc run(show *w, kv_tp_witness *out)
{
    kv_rc rc = KV_OK;
    out->heads = w->shard.heads;
    out->of_heads = w->whole.heads;
    out->positions[0] = w->whole.native;
    out->positions[1] = w->shard.native;
    out->whole = w->shard.heads == w->whole.heads;
    if (out->whole) goto out;
    kv_tp_wire_index(&w->whole, w->whole.element, &w->wire);
    kv_tp_wire_index(&w->shard, w->whole.element, &w->small);
    KV_TRY(rc, out, make(w));
    KV_TRY(rc, out, compare(w, out));
out:
    for (int i = 0; i < IMAGES; i++) w->dev->ops->image_free(w->dev, w->im[i]);
    return rc;
}

static kv_rc bind_pages(const char *name, int64_t size, int64_t rank, const kv_geometry *g, kv_index *out, kv_err *err)
{
    char reason[KV_REASON_TEXT];
    bool exists;
    const kv_rc rc = kv_tp_pages_index(name, g, size, rank, out, &exists, reason, err);
    if (rc != KV_OK) return rc;
    return exists ? KV_OK : KV_FAIL(err, KV_EINVAL, "%s", reason);
}

kv_rc kv_tp_witness_pages(kv_device *dev, const char *name, int64_t size, int64_t rank, const kv_geometry *g,
                          uint64_t seed, kv_tp_witness *out, kv_err *err)
{
    show w = {.dev = dev, .g = g, .seed = seed, .err = err};
    kv_rc rc;
    memset(out, 0, sizeof *out);
    KV_TRY(rc, out, bind_pages(name, size, rank, g, &w.shard, err));
    KV_TRY(rc, out, bind_pages(name, 1, 0, g, &w.whole, err));
    rc = run(&w, out);
out:
    return rc;
}

kv_rc kv_tp_witness_show(kv_device *dev, const kv_layout *shard, int64_t size, int64_t rank, const kv_layout *whole,
                         const kv_geometry *g, uint64_t seed, uint32_t fill, kv_tp_witness *out, kv_err *err)
{
    const int64_t unit = kv_pair_unit_layers(shard, whole, g);
    show w = {.dev = dev, .g = g, .seed = seed, .fill = fill, .err = err};
    kv_rc rc;
    memset(out, 0, sizeof *out);
    KV_TRY(rc, out, bind(shard, size, rank, g, unit, &w.shard, err));
    KV_TRY(rc, out, bind(whole, 1, 0, g, unit, &w.whole, err));
    if (w.shard.halves != w.whole.halves) {
        rc = KV_FAIL(err, KV_EINVAL, "one of %s and %s caches a latent", shard->name, whole->name);
        goto out;
    }
    rc = run(&w, out);
out:
    return rc;
}
