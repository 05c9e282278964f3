#include "grid/cell/kv_codec_store.h"

#include <string.h>

#include "kernels/kv_kern_num.h"

void kv_codec_tally_start(kv_codec_tally *t)
{
    memset(t, 0, sizeof *t);
    for (int d = 0; d < KV_DIGESTS; d++)
        for (int i = 0; i < 2; i++) kv_hash_init(&t->digest[d][i]);
}

/* ---- digests -------------------------------------------------------------------------------- */

#define CHUNK 1024

void kv_codec_digest_u32(kv_hash *h, const uint32_t *x, int64_t n)
{
    unsigned char bytes[4 * CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t m = n - at < CHUNK ? n - at : CHUNK;
        for (int64_t i = 0; i < m; i++)
            for (int b = 0; b < 4; b++) bytes[4 * i + b] = (unsigned char)(x[at + i] >> (8 * b));
        kv_hash_update(h, bytes, (size_t)(4 * m));
    }
}

void kv_codec_digest_f32(kv_hash *h, const float *x, int64_t n)
{
    uint32_t bits[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t m = n - at < CHUNK ? n - at : CHUNK;
        for (int64_t i = 0; i < m; i++) bits[i] = x[at + i] != x[at + i] ? KV_NUM_NAN : kv_num_bits(x[at + i]);
        kv_codec_digest_u32(h, bits, m);
    }
}

void kv_codec_digest_u16(kv_hash *h, const uint16_t *x, int64_t n)
{
    unsigned char bytes[2 * CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t m = n - at < CHUNK ? n - at : CHUNK;
        for (int64_t i = 0; i < m; i++) {
            bytes[2 * i] = (unsigned char)x[at + i];
            bytes[2 * i + 1] = (unsigned char)(x[at + i] >> 8);
        }
        kv_hash_update(h, bytes, (size_t)(2 * m));
    }
}

void kv_codec_through_bf16(const float *x, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = kv_num_float(kv_num_f32_of_bf16(kv_num_bf16_of_f32(kv_num_bits(x[i]))));
}

static void digest_codes(const kv_codec_params *p, const kv_codec_codes *c, kv_hash *h)
{
    kv_codec_digest_u32(h, c->seg_id, c->n);
    kv_codec_digest_u16(h, c->t, c->n);
    kv_codec_digest_u16(h, c->norm, c->n);
    kv_hash_update(h, c->residual, (size_t)(c->n * kv_codec_row_bytes(p)));
    if (!p->outliers) return;
    kv_codec_digest_u32(h, c->outlier_count, c->n);
    kv_codec_digest_u16(h, c->outlier_idx, c->outliers);
    kv_codec_digest_u16(h, c->outlier_val, c->outliers);
}

/* ---- a lane --------------------------------------------------------------------------------- */

/* Everything that blocks of one lane are stored with. The device is what is tried; the plain reference stands beside it. */
typedef struct {
    const kv_codec_half_config *h;
    kv_codec_params p;
    kv_codec_slot_layout layout;
    kv_device *dev;
    kv_codec_batch *batch;
    const kv_codec_variant *plain;
    kv_codec_work *work;
    kv_codec_skeleton basis; /* the shared parts of a group */
    kv_codec_skeleton skeleton[KV_CODEC_AT_ONCE], again_skeleton;
    kv_codec_codes codes[2], again;
    bool overflow[KV_CODEC_AT_ONCE];
    uint8_t *slot, *slot_again;
    float *y; /* of the reference, [n][dim] */
    kv_codec_tally *t;
    kv_err *err;
} lane;

/* Shared parts that stand in the basis page are not in the slot: the reader has them from there. */
static void copy_basis(const kv_codec_params *p, const kv_codec_skeleton *from, kv_codec_skeleton *to)
{
    memcpy(to->mean, from->mean, (size_t)p->dim * sizeof *to->mean);
    memcpy(to->basis, from->basis, (size_t)p->d_eff * (size_t)p->dim * sizeof *to->basis);
}

/* Blocks first .. first + count - 1: their skeletons, with a basis of their own or that of their group of `group` blocks. */
static kv_rc fit_blocks(lane *l, const float *x, int64_t first, int64_t count, int64_t group, int64_t blocks)
{
    const int64_t n = l->h->slot.n, values = n * l->p.dim;
    const kv_codec_ops *ops = l->dev->ops->codec;
    kv_codec_fit_report report;
    kv_rc rc = KV_OK;
    for (int64_t i = 0; i < count; i++) {
        const int64_t b = first + i, left = blocks - b;
        kv_codec_skeleton *s = &l->skeleton[i];
        if (l->h->slot.shared && b % group == 0)
            KV_TRY(rc, out,
                   kv_codec_fit_basis(&l->p, &l->h->fit, x + b * values, NULL, (left < group ? left : group) * n,
                                      &l->basis, &report, l->err));
        if (l->h->slot.shared) copy_basis(&l->p, &l->basis, s);
        KV_TRY(rc, out,
               l->h->slot.shared ? kv_codec_fit_centers(&l->p, &l->h->fit, x + b * values, NULL, n, s, &report, l->err)
                                 : kv_codec_fit(&l->p, &l->h->fit, x + b * values, NULL, n, s, &report, l->err));
        KV_TRY(rc, out, ops->put_skeleton(l->dev, l->batch, i, s, l->err));
        KV_TRY(rc, out, ops->put_rows(l->dev, l->batch, i, x + b * values, l->err));
    }
out:
    return rc;
}

/* Reads slot i back, packs it again, and gives what was read to both decoders. */
static kv_rc read_back(lane *l, int64_t i)
{
    const kv_codec_ops *ops = l->dev->ops->codec;
    kv_rc rc;
    copy_basis(&l->p, &l->skeleton[i], &l->again_skeleton);
    KV_TRY(rc, out, kv_codec_slot_unpack(&l->h->slot, l->slot, l->layout.total, &l->again_skeleton, &l->again, l->err));
    KV_TRY(rc, out, kv_codec_slot_pack(&l->h->slot, &l->again_skeleton, &l->again, l->slot_again, l->err));
    kv_hash_update(&l->t->digest[KV_DIGEST_SLOTS][0], l->slot, (size_t)l->layout.total);
    kv_hash_update(&l->t->digest[KV_DIGEST_SLOTS][1], l->slot_again, (size_t)l->layout.total);
    KV_TRY(rc, out, ops->put_skeleton(l->dev, l->batch, i, &l->again_skeleton, l->err));
    KV_TRY(rc, out, ops->put_codes(l->dev, l->batch, i, &l->again, l->err));
    kv_codec_work_set(l->work, &l->again_skeleton);
    l->plain->decode(l->work, &l->again, l->y);
    kv_codec_digest_f32(&l->t->digest[KV_DIGEST_VALUES][1], l->y, l->h->slot.n * l->p.dim);
out:
    return rc;
}

/* The codes of block i of the batch: both makers' digests, the slot, and what is read back from it. */
static kv_rc keep_block(lane *l, int64_t i, const float *x, uint8_t *page)
{
    const int64_t n = l->h->slot.n;
    kv_err full = {0};
    kv_rc rc;
    KV_TRY(rc, out, l->dev->ops->codec->get_codes(l->dev, l->batch, i, &l->codes[0], l->err));
    kv_codec_work_set(l->work, &l->skeleton[i]);
    l->plain->encode(l->work, x, n, &l->codes[1]);
    for (int c = 0; c < 2; c++) digest_codes(&l->p, &l->codes[c], &l->t->digest[KV_DIGEST_CODES][c]);
    l->t->blocks++;
    l->t->encoded_rows += n;
    l->t->outliers += l->p.outliers ? l->codes[0].outliers : 0;
    l->t->saturated += l->codes[0].saturated;
    l->overflow[i] = l->p.outliers && l->h->slot.budget_ppm > 0 && l->codes[0].outliers > l->layout.max_entries;
    if (l->overflow[i]) {
        l->t->overflow_blocks++;
        return KV_OK;
    }
    rc = kv_codec_slot_pack(&l->h->slot, &l->skeleton[i], &l->codes[0], l->slot, &full);
    if (rc != KV_OK) return KV_FAIL(l->err, rc, "a block that must fit its slot does not: %s", full.text);
    if (page != NULL) memcpy(page, l->slot, (size_t)l->layout.total);
    rc = read_back(l, i);
out:
    return rc;
}

static kv_rc store_blocks(lane *l, const float *x, int64_t first, int64_t count, float *y, uint8_t *pages)
{
    const int64_t values = l->h->slot.n * l->p.dim;
    const kv_codec_ops *ops = l->dev->ops->codec;
    kv_rc rc;
    KV_TRY(rc, out, ops->encode(l->dev, l->batch, count, l->err));
    for (int64_t i = 0; i < count; i++) {
        const int64_t b = first + i;
        KV_TRY(rc, out, keep_block(l, i, x + b * values, pages != NULL ? pages + b * l->layout.total : NULL));
    }
    KV_TRY(rc, out, ops->decode(l->dev, l->batch, count, l->err));
    for (int64_t i = 0; i < count; i++) {
        float *to = y + (first + i) * values;
        if (l->overflow[i]) {
            kv_codec_through_bf16(x + (first + i) * values, values, to);
            continue;
        }
        KV_TRY(rc, out, ops->get_rows(l->dev, l->batch, i, to, l->err));
        kv_codec_digest_f32(&l->t->digest[KV_DIGEST_VALUES][0], to, values);
    }
out:
    return rc;
}

static void close_lane(lane *l)
{
    l->dev->ops->codec->destroy(l->dev, l->batch);
    kv_codec_work_free(l->work);
    kv_codec_skeleton_free(&l->basis);
    for (int i = 0; i < KV_CODEC_AT_ONCE; i++) kv_codec_skeleton_free(&l->skeleton[i]);
    kv_codec_skeleton_free(&l->again_skeleton);
    for (int i = 0; i < 2; i++) kv_codec_codes_free(&l->codes[i]);
    kv_codec_codes_free(&l->again);
    kv_free(l->slot);
    kv_free(l->slot_again);
    kv_free(l->y);
}

/* A batch of *at_once blocks, or of half as many, and so on, where the device has no room for more. */
static kv_rc open_batch(lane *l, int64_t *at_once)
{
    for (;;) {
        const kv_codec_batch_shape shape = {.p = l->p, .blocks = *at_once, .rows = l->h->slot.n};
        kv_err why = {0};
        const kv_rc rc = l->dev->ops->codec->create(l->dev, &shape, &l->batch, &why);
        if (rc == KV_OK) return KV_OK;
        if (rc != KV_ENOMEM || *at_once == 1) return KV_FAIL(l->err, rc, "%s", why.text);
        *at_once = (*at_once + 1) / 2;
    }
}

static kv_rc open_lane(lane *l, int64_t *at_once)
{
    kv_codec_params roomy = l->p; /* a slot with an outlier part may hold some whatever the threshold */
    const int64_t n = l->h->slot.n;
    kv_rc rc;
    roomy.outliers = roomy.outliers || l->h->slot.budget_ppm > 0;
    KV_TRY(rc, out, kv_codec_slot_sizes(&l->h->slot, &l->layout, l->err));
    KV_TRY(rc, out, open_batch(l, at_once));
    KV_TRY(rc, out, kv_codec_skeleton_new(&l->p, &l->basis, l->err));
    for (int64_t i = 0; i < *at_once; i++) KV_TRY(rc, out, kv_codec_skeleton_new(&l->p, &l->skeleton[i], l->err));
    KV_TRY(rc, out, kv_codec_skeleton_new(&l->p, &l->again_skeleton, l->err));
    KV_TRY(rc, out, kv_codec_work_new(&l->p, &l->again_skeleton, &l->work, l->err));
    for (int i = 0; i < 2; i++) KV_TRY(rc, out, kv_codec_codes_new(&l->p, n, false, &l->codes[i], l->err));
    KV_TRY(rc, out, kv_codec_codes_new(&roomy, n, false, &l->again, l->err));
    l->slot = kv_alloc((size_t)l->layout.total, 1);
    l->slot_again = kv_alloc((size_t)l->layout.total, 1);
    l->y = kv_alloc((size_t)n * (size_t)l->p.dim, sizeof *l->y);
    if (l->slot == NULL || l->slot_again == NULL || l->y == NULL)
        rc = KV_FAIL(l->err, KV_ENOMEM, "no memory for a block of %lld rows", (long long)n);
out:
    return rc;
}

kv_rc kv_codec_store_lane(kv_device *dev, const kv_codec_half_config *h, const float *x, int64_t rows, float *y,
                          uint8_t *pages, kv_codec_tally *t, kv_err *err)
{
    lane l = {.h = h, .p = h->slot.params, .dev = dev, .plain = &kv_codec_variants()[0], .t = t, .err = err};
    const int64_t n = h->slot.n, blocks = rows / n, dim = l.p.dim;
    int64_t at_once = blocks < KV_CODEC_AT_ONCE ? blocks : KV_CODEC_AT_ONCE;
    const int64_t group = h->group == KV_CODEC_GROUP_ALL ? blocks : h->group;
    kv_rc rc = blocks > 0 ? open_lane(&l, &at_once) : KV_OK;
    for (int64_t first = 0; rc == KV_OK && first < blocks; first += at_once) {
        const int64_t count = blocks - first < at_once ? blocks - first : at_once;
        rc = fit_blocks(&l, x, first, count, group, blocks);
        if (rc == KV_OK) rc = store_blocks(&l, x, first, count, y, pages);
    }
    if (rc == KV_OK) kv_codec_through_bf16(x + blocks * n * dim, (rows - blocks * n) * dim, y + blocks * n * dim);
    close_lane(&l);
    return rc;
}
