/* The token leg through a layout: elements are fetched by the index algebra (not by the translator) into
 * canonical order, one layer at a time, and decoded. */
#include <inttypes.h>
#include <string.h>

#include "kernels/kv_kern_cpu.h"
#include "kernels/kv_kern_num.h"
#include "kernels/kv_kern_token.h"

_Static_assert(KV_DECODE_STEPS == KV_TOKEN_STEPS && KV_VOCABULARY == KV_TOKEN_VOCAB, "one decode, one shape");

kv_rc kv_image_holds_layer(const kv_index *ix, const kv_window *w, kv_elem e, const kv_image *dense, kv_err *err)
{
    const int64_t bytes = w->tokens * ix->heads * (ix->lanes[0] + ix->lanes[1]) * kv_elem_bytes(e);
    if (w->first < 0 || w->first > w->tokens - ix->tokens)
        return KV_FAIL(err, KV_EBUG, "a window of %" PRId64 " tokens from token %" PRId64 " of %" PRId64, ix->tokens,
                       w->first, w->tokens);
    if (dense->capacity >= bytes) return KV_OK;
    return KV_FAIL(err, KV_EBUG, "a layer of %" PRId64 " bytes does not fit scratch of %" PRId64, bytes,
                   dense->capacity);
}

/* Where the next element of one layer's dense order comes from. */
typedef uint32_t (*fetch_fn)(const void *ctx, const kv_coord *c);

static void gather_window(const kv_index *ix, kv_elem e, int64_t layer, const kv_window *w, fetch_fn fetch,
                          const void *ctx, kv_image *dense)
{
    int64_t n = 0;
    kv_coord c = {.layer = layer};
    for (c.kv = 0; c.kv < ix->halves; c.kv++) {
        const int64_t shift = kv_dense_shift(ix, w, c.kv);
        for (c.token = 0; c.token < ix->tokens; c.token++)
            for (c.head = 0; c.head < ix->heads; c.head++)
                for (c.lane = 0; c.lane < ix->lanes[c.kv]; c.lane++)
                    kv_num_store(e, dense->data, shift + n++, fetch(ctx, &c));
    }
}

typedef struct {
    const kv_index *ix;
    const kv_image *im;
} through_layout;

static uint32_t fetch_image(const void *ctx, const kv_coord *c)
{
    const through_layout *from = ctx;
    return kv_num_load((kv_elem)from->ix->element, from->im->data, kv_index_forward(from->ix, c));
}

static uint32_t fetch_payload(const void *ctx, const kv_coord *c)
{
    return kv_payload_bits(ctx, c);
}

kv_rc kv_cpu_gather(kv_device *d, const kv_index *ix, const kv_image *im, const kv_payload *p, int64_t layer,
                    const kv_window *w, kv_image *dense, kv_err *err)
{
    (void)d;
    const kv_elem e = (kv_elem)(im != NULL ? ix->element : p->element);
    const through_layout from = {ix, im};
    const kv_rc rc = kv_image_holds_layer(ix, w, e, dense, err);
    if (rc != KV_OK) return rc;
    if (im != NULL)
        gather_window(ix, e, layer, w, fetch_image, &from, dense);
    else
        gather_window(ix, e, 0, w, fetch_payload, p, dense);
    return KV_OK;
}

kv_rc kv_cpu_decode_dense(kv_device *d, const kv_index *ix, int32_t element, const kv_image *dense, uint64_t seed,
                          int64_t model_layer, kv_decode_result *out, kv_err *err)
{
    (void)d;
    const kv_elem e = (kv_elem)element;
    kv_token_ctx *ctx = NULL;
    kv_token_out got;
    const unsigned char *v = dense->data + ix->tokens * ix->heads * ix->lanes[0] * kv_elem_bytes(e);
    kv_rc rc = kv_token_ctx_new(seed, model_layer, ix->heads, ix->lanes[0],
                                ix->lanes[1] > 0 ? ix->lanes[1] : ix->lanes[0], &ctx, err);
    if (rc != KV_OK) return rc;
    if (ix->halves == 1) v = dense->data; /* latent: the row is its own value */
    rc = kv_token_decode(ctx, e, ix->tokens, dense->data, v, &got, err);
    kv_token_ctx_free(ctx);
    if (rc != KV_OK) return rc;
    memcpy(out->tokens, got.tokens, sizeof out->tokens);
    memcpy(out->logits, got.logits, sizeof out->logits);
    return KV_OK;
}

kv_rc kv_decode_layer(kv_device *d, const kv_index *ix, const kv_image *im, int64_t layer, uint64_t weight_seed,
                      int64_t model_layer, kv_image *scratch, kv_decode_result *out, kv_err *err)
{
    const kv_window all = {0, ix->tokens};
    const kv_rc rc = d->ops->gather(d, ix, im, NULL, layer, &all, scratch, err);
    if (rc != KV_OK) return rc;
    return d->ops->decode_dense(d, ix, ix->element, scratch, weight_seed, model_layer, out, err);
}

kv_rc kv_decode_canonical(kv_device *d, const kv_index *ix, const kv_payload *p, uint64_t weight_seed,
                          int64_t model_layer, kv_image *scratch, kv_decode_result *out, kv_err *err)
{
    const kv_window all = {0, ix->tokens};
    const kv_rc rc = d->ops->gather(d, ix, NULL, p, 0, &all, scratch, err);
    if (rc != KV_OK) return rc;
    return d->ops->decode_dense(d, ix, p->element, scratch, weight_seed, model_layer, out, err);
}
