#include "grid/cell/kv_codec_memory.h"

#include "grid/cell/kv_codec_store.h"
#include "kernels/kv_kern_token.h"

#define GUARDS 4096 /* of the token leg's images, and what an allocation is rounded up by */

static kv_rc batch_bytes(const kv_codec_params *p, int64_t blocks, int64_t rows, int64_t *out, kv_err *err)
{
    const kv_codec_batch_shape s = {.p = *p, .blocks = blocks, .rows = rows};
    kv_codec_batch_sizes z;
    const kv_rc rc = kv_codec_batch_size(&s, &z, err);
    if (rc == KV_OK) *out = kv_codec_batch_bytes(&s, &z);
    return rc;
}

kv_rc kv_codec_memory_lane(const kv_codec_half_config *h, int64_t rows, kv_codec_memory *out, kv_err *err)
{
    const int64_t blocks = rows / h->slot.n;
    kv_codec_memory m = {0, 0};
    kv_rc rc = KV_OK;
    if (blocks > 0) {
        const int64_t most = blocks < KV_CODEC_AT_ONCE ? blocks : KV_CODEC_AT_ONCE;
        KV_TRY(rc, out, batch_bytes(&h->slot.params, most, h->slot.n, &m.whole, err));
        KV_TRY(rc, out, batch_bytes(&h->slot.params, 1, h->slot.n, &m.least, err));
    }
    *out = m;
out:
    return rc;
}

kv_rc kv_codec_memory_rotation(int64_t dim, int32_t bits, kv_codec_memory *out, kv_err *err)
{
    const kv_codec_batch_shape s = kv_codec_rotation_shape(dim, bits);
    const kv_rc rc = batch_bytes(&s.p, s.blocks, s.rows, &out->whole, err);
    if (rc == KV_OK) out->least = out->whole;
    return rc;
}

kv_rc kv_codec_memory_tokens(const kv_geometry *g, int64_t tokens, int64_t *out, kv_err *err)
{
    int64_t rows, image, leg;
    if (kv_mul_i64(tokens, g->kv_heads, &rows) && kv_mul_i64(rows, (g->head_dim + g->head_dim_v) * 8, &image) &&
        kv_token_bytes(tokens, g->kv_heads, g->head_dim, g->head_dim_v, &leg) && kv_add_i64(image, leg, &image) &&
        kv_add_i64(image, GUARDS, out))
        return KV_OK;
    return KV_FAIL(err, KV_EINVAL, "the memory of a token leg over %lld tokens does not fit 64 bits",
                   (long long)tokens);
}

kv_rc kv_codec_memory_note(const kv_geometry *g, int64_t tokens, const kv_codec_memory *batch, kv_cell_need *n,
                           kv_err *err)
{
    int64_t leg = 0;
    const kv_rc rc = kv_codec_memory_tokens(g, tokens, &leg, err);
    if (rc != KV_OK) return rc;
    n->gpu_host_bytes = n->peak_bytes;
    if (!kv_add_i64(n->peak_bytes, leg, &n->peak_bytes) || !kv_add_i64(batch->whole, leg, &n->gpu_bytes) ||
        !kv_add_i64(batch->least, leg, &n->gpu_least_bytes))
        return KV_FAIL(err, KV_EINVAL, "the memory it needs does not fit 64 bits");
    n->least_bytes = n->peak_bytes;
    return KV_OK;
}
