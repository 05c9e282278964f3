#include "grid/cell/kv_codec_tokens.h"

#include <string.h>

#include "grid/cell/kv_cell.h"
#include "layouts/kv_layout.h"
#include "layouts/kv_layout_json.h"

struct kv_codec_tokens {
    kv_device *dev;
    kv_layout *layout;
    kv_index ix;
    uint64_t seed;
    kv_image *image, *scratch;
    float *host;       /* what goes to the image */
    kv_hash digest[2]; /* moved, plain */
    int32_t tokens[2][KV_DECODE_STEPS];
};

/* The canonical order itself, in float32. */
static const char canonical[] = "{\"name\":\"canonical\",\"engine\":\"none\",\"version\":\"-\",\"attention\":\"gqa\","
                                "\"kv\":\"separate\",\"k_axes\":[\"T\",\"H\",\"D\"],\"v_axes\":[\"T\",\"H\",\"D\"],"
                                "\"element\":\"f32\",\"role\":\"lossless\",\"cite\":\"the canonical tensor\","
                                "\"evidence\":\"derived\"}";

static kv_rc bind(kv_codec_tokens *t, const kv_geometry *g, kv_err *err)
{
    json_t *v = NULL;
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    kv_rc rc;
    KV_TRY(rc, out, kv_json_load_strict(canonical, sizeof canonical - 1, "canonical", &v, err));
    KV_TRY(rc, out, kv_layout_new(v, "canonical", &t->layout, err));
    KV_TRY(rc, out, kv_layout_bind(t->layout, g, 1, &t->ix, &state, reason, err));
    if (state != KV_BIND_OK) rc = KV_FAIL(err, KV_EBUG, "the canonical layout does not bind: %s", reason);
out:
    json_decref(v);
    return rc;
}

kv_rc kv_codec_tokens_new(kv_device *dev, const kv_geometry *g, uint64_t seed, kv_codec_tokens **out, kv_err *err)
{
    kv_codec_tokens *t = kv_alloc(1, sizeof *t);
    kv_rc rc;
    if (t == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a token leg");
    t->dev = dev;
    t->seed = seed;
    for (int i = 0; i < 2; i++) kv_hash_init(&t->digest[i]);
    KV_TRY(rc, fail, bind(t, g, err));
    KV_TRY(rc, fail, dev->ops->image_new(dev, kv_index_bytes(&t->ix), &t->image, err));
    KV_TRY(rc, fail, dev->ops->image_new(dev, kv_index_bytes(&t->ix), &t->scratch, err));
    t->host = kv_alloc((size_t)kv_index_bytes(&t->ix), 1);
    if (t->host == NULL)
        KV_TRY(rc, fail,
               KV_FAIL(err, KV_ENOMEM, "no memory for a layer of %lld bytes", (long long)kv_index_bytes(&t->ix)));
    *out = t;
    return KV_OK;
fail:
    kv_codec_tokens_free(t);
    return rc;
}

kv_rc kv_codec_tokens_layer(kv_codec_tokens *t, int64_t layer, const float *const moved[2], const float *const plain[2],
                            kv_err *err)
{
    const kv_device_ops *ops = t->dev->ops;
    const int64_t rows = t->ix.tokens * t->ix.heads, lanes[2] = {t->ix.lanes[0], t->ix.lanes[1]};
    kv_rc rc = KV_OK;
    for (int side = 0; side < 2; side++) {
        const float *const *from = side == 0 ? moved : plain;
        kv_decode_result d;
        KV_TRY(rc, out, ops->poison(t->dev, t->image, kv_index_bytes(&t->ix), (uint32_t)side, err));
        memcpy(t->host, from[0], (size_t)(rows * lanes[0]) * sizeof *t->host);
        memcpy(t->host + rows * lanes[0], from[1], (size_t)(rows * lanes[1]) * sizeof *t->host);
        KV_TRY(rc, out, ops->write(t->dev, t->image, t->host, kv_index_bytes(&t->ix), err));
        KV_TRY(rc, out, ops->decode(t->dev, &t->ix, t->image, 0, t->seed, layer, t->scratch, &d, err));
        if (layer == 0) memcpy(t->tokens[side], d.tokens, sizeof t->tokens[side]);
        kv_digest_logits(&t->digest[side], &d);
    }
out:
    return rc;
}

void kv_codec_tokens_finish(kv_codec_tokens *t, kv_row *row)
{
    kv_hash_final_hex(&t->digest[0], row->logits_digest);
    kv_hash_final_hex(&t->digest[1], row->reference_digest);
    memcpy(row->decoded, t->tokens[0], sizeof row->decoded);
    memcpy(row->reference, t->tokens[1], sizeof row->reference);
    row->observed[KV_OBS_TOKENS] = memcmp(row->decoded, row->reference, sizeof row->decoded) == 0 &&
                                   strcmp(row->logits_digest, row->reference_digest) == 0;
}

void kv_codec_tokens_free(kv_codec_tokens *t)
{
    if (t == NULL) return;
    t->dev->ops->image_free(t->dev, t->scratch);
    t->dev->ops->image_free(t->dev, t->image);
    kv_free(t->host);
    kv_layout_free(t->layout);
    kv_free(t);
}
