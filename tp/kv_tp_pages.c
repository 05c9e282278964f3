/* Pages of opaque bytes: their index, and their content through the caller's eyes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tp/kv_tp_int.h"
#include "tp/kv_tp_shard_index.h"

kv_rc kv_tp_pages_index(const char *name, const kv_geometry *g, int64_t size, int64_t rank, kv_index *out, bool *exists,
                        char reason[KV_REASON_TEXT], kv_err *err)
{
    kv_index x;
    kv_order *o = &x.half[0];
    int64_t row, all;
    *exists = kv_tp_shard_exists(g->kv_heads, size) != 0;
    if (!*exists) {
        snprintf(reason, KV_REASON_TEXT,
                 "%s: a tensor-parallel size of %" PRId64 " neither divides %" PRId64
                 " kv heads nor is a multiple of them, so the shard of rank %" PRId64 " does not exist",
                 name, size, g->kv_heads, rank);
        return KV_OK;
    }
    memset(&x, 0, sizeof x);
    x.halves = 1;
    x.element = KV_ELEM_FP8_E4M3;
    x.layers = 1;
    x.tokens = g->tokens;
    x.heads = kv_tp_shard_heads(g->kv_heads, size);
    x.first_head = kv_tp_shard_first(g->kv_heads, size, rank);
    x.lanes[0] = g->head_dim;
    x.block = x.tx = x.x = 1;
    if (!kv_mul_i64(x.heads, x.lanes[0], &row) || !kv_mul_i64(row, x.tokens, &x.native) ||
        !kv_mul_i64(g->kv_heads, g->head_dim, &all) || !kv_mul_i64(all, g->tokens, &all) ||
        !kv_mul_i64(all, g->layers, &all) || !kv_mul_i64(all, KV_TP_RANKS_MAX, &all))
        return KV_FAIL(err, KV_EINVAL, "%s: %" PRId64 " pages of %" PRId64 " bytes do not fit 64 bits", name, g->tokens,
                       g->head_dim);
    x.layer_span = x.elements = x.native;
    o->n = 3;
    o->page_span = o->page_payload = x.native;
    o->kind[0] = KV_F_T;
    o->kind[1] = KV_F_H;
    o->kind[2] = KV_F_C;
    o->size[0] = x.tokens;
    o->size[1] = x.heads;
    o->size[2] = x.lanes[0];
    kv_index_prepare(&x);
    *out = x;
    return KV_OK;
}

kv_rc kv_tp_content_build(kv_tp_work *w, const kv_tp_side *side, kv_image *image)
{
    const kv_tp_content *c = w->s->content;
    const int64_t bytes = kv_index_bytes(&side->ix);
    uint8_t *host = kv_alloc_image((size_t)bytes);
    if (host == NULL) return KV_FAIL(&w->err, KV_ENOMEM, "no memory for %" PRId64 " bytes of pages", bytes);
    kv_rc rc = c->build(c->ctx, &side->ix, side->layer, host, &w->err);
    if (rc == KV_OK) rc = KV_TP_OPS(w)->write(w->s->device, image, host, bytes, &w->err);
    kv_free(host);
    return rc;
}

kv_rc kv_tp_content_decode(kv_tp_work *w, const kv_tp_side *side)
{
    const kv_tp_content *c = w->s->content;
    const int64_t bytes = kv_index_bytes(&side->ix);
    uint8_t *host = kv_alloc_image((size_t)bytes);
    if (host == NULL) return KV_FAIL(&w->err, KV_ENOMEM, "no memory for %" PRId64 " bytes of pages", bytes);
    kv_rc rc = KV_TP_OPS(w)->read(w->s->device, side->image, host, &w->err);
    if (rc == KV_OK) rc = c->decode(c->ctx, &side->ix, side->layer, host, &w->err);
    kv_free(host);
    return rc;
}
