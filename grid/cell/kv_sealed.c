#include "grid/cell/kv_sealed.h"

#include <inttypes.h>
#include <stdio.h>

#include "grid/cell/kv_codec_cell.h"
#include "grid/cell/kv_codec_store.h"

kv_rc kv_sealed_shape_of(kv_store_method method, int64_t block, const kv_geometry *g, kv_sealed_shape *out,
                         char reason[KV_REASON_TEXT], kv_err *err)
{
    const kv_codec_section s = {.block = block};
    for (int kv = 0; kv < 2; kv++) {
        const kv_codec_point point = {method, kv, KV_CODEC_BITS_DEFAULT, NULL};
        kv_codec_size z;
        const kv_rc rc = kv_codec_size_of(&s, &point, g, &z, reason, err);
        if (rc != KV_OK || reason[0] != '\0') return rc;
        out->half[kv] = z.half;
        out->half[kv].slot.params.outliers = false; /* the outlier part stands empty: no block overflows its slot */
        out->slot[kv] = z.slot_bytes;
    }
    out->block = block;
    out->blocks = g->tokens / block;
    if (out->blocks == 0)
        snprintf(reason, KV_REASON_TEXT, "%" PRId64 " tokens fill no block of %" PRId64 ": there is no sealed page",
                 g->tokens, block);
    return KV_OK;
}

kv_rc kv_sealed_make(kv_device *dev, const kv_sealed_shape *z, const kv_values_place *at, float *rows, float *plain,
                     uint8_t *slots, kv_err *err)
{
    const kv_codec_half_config *half = &z->half[at->stream];
    const int64_t tokens = z->blocks * z->block;
    kv_codec_tally tally;
    kv_codec_tally_start(&tally);
    const kv_rc rc = kv_values_make(at, tokens, half->slot.params.dim, rows, err);
    return rc == KV_OK ? kv_codec_store_lane(dev, half, rows, tokens, plain, slots, &tally, err) : rc;
}

/* ---- back to values ------------------------------------------------------------------------- */

struct kv_sealed_reader {
    const kv_codec_half_config *half;
    int64_t slot;
    kv_codec_skeleton skeleton;
    kv_codec_codes codes;
    kv_device *dev;
    kv_codec_batch *batch; /* of one block */
};

kv_rc kv_sealed_reader_new(kv_device *dev, const kv_sealed_shape *z, int kv, kv_sealed_reader **out, kv_err *err)
{
    const kv_codec_params *p = &z->half[kv].slot.params;
    kv_codec_params roomy = *p;
    kv_sealed_reader *r = kv_alloc(1, sizeof *r);
    kv_rc rc;
    if (r == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to read slots");
    r->half = &z->half[kv];
    r->slot = z->slot[kv];
    r->dev = dev;
    const kv_codec_batch_shape shape = {.p = *p, .blocks = 1, .rows = r->half->slot.n};
    roomy.outliers = r->half->slot.budget_ppm > 0;
    KV_TRY(rc, fail, kv_codec_skeleton_new(p, &r->skeleton, err));
    KV_TRY(rc, fail, kv_codec_codes_new(&roomy, r->half->slot.n, false, &r->codes, err));
    KV_TRY(rc, fail, dev->ops->codec->create(dev, &shape, &r->batch, err));
    *out = r;
    return KV_OK;
fail:
    kv_sealed_reader_free(r);
    return rc;
}

kv_rc kv_sealed_read(kv_sealed_reader *r, const uint8_t *slot, float *values, kv_err *err)
{
    const kv_codec_ops *ops = r->dev->ops->codec;
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_slot_unpack(&r->half->slot, slot, r->slot, &r->skeleton, &r->codes, err));
    KV_TRY(rc, out, ops->put_skeleton(r->dev, r->batch, 0, &r->skeleton, err));
    KV_TRY(rc, out, ops->put_codes(r->dev, r->batch, 0, &r->codes, err));
    KV_TRY(rc, out, ops->decode(r->dev, r->batch, 1, err));
    rc = ops->get_rows(r->dev, r->batch, 0, values, err);
out:
    return rc;
}

void kv_sealed_reader_free(kv_sealed_reader *r)
{
    if (r == NULL) return;
    r->dev->ops->codec->destroy(r->dev, r->batch);
    kv_codec_codes_free(&r->codes);
    kv_codec_skeleton_free(&r->skeleton);
    kv_free(r);
}
