/* codec batch: sizes, checks, and the CPU backend. */
#include "kernels/codec/kv_codec_batch.h"

#include <inttypes.h>
#include <string.h>

kv_rc kv_codec_batch_size(const kv_codec_batch_shape *s, kv_codec_batch_sizes *out, kv_err *err)
{
    const kv_codec_params *p = &s->p;
    kv_codec_batch_sizes z;
    kv_rc rc = kv_codec_params_check_sizes(p, err);
    if (rc != KV_OK) return rc;
    if (s->blocks < 1 || s->rows < 1)
        return KV_FAIL(err, KV_EBUG, "a batch of %" PRId64 " blocks of %" PRId64 " rows", s->blocks, s->rows);
    z.wht = kv_codec_wht_len(p->d_eff);
    z.row_bytes = kv_codec_row_bytes(p);
    z.skeletons = s->shared ? 1 : s->blocks;
    z.basis = (int64_t)p->d_eff * p->dim;
    z.centers = (int64_t)p->k * p->d_eff;
    z.rows = s->rows;
    /* the largest of them, in bytes: values, 4 each; whatever else there is of a row takes less than 4 * (dim + 4 * wht) */
    int64_t most = 0;
    if (!kv_mul_i64(s->rows, s->blocks, &most) || !kv_mul_i64(most, (p->dim + z.wht) * 16, &most) ||
        !kv_mul_i64(s->blocks, (z.basis + z.centers + p->dim) * 2, &most))
        return KV_FAIL(err, KV_ENOMEM, "a batch of %" PRId64 " blocks of %" PRId64 " rows of %d", s->blocks, s->rows,
                       p->dim);
    z.values = s->rows * p->dim;
    z.packed = s->rows * z.row_bytes;
    z.outliers = s->rows * z.wht;
    z.all_rows = s->blocks * s->rows;
    z.all_values = s->blocks * z.values;
    z.all_packed = s->blocks * z.packed;
    z.all_outliers = s->blocks * z.outliers;
    *out = z;
    return KV_OK;
}

int64_t kv_codec_batch_bytes(const kv_codec_batch_shape *s, const kv_codec_batch_sizes *z)
{
    const int64_t arrays = 15, align = 256;
    const int64_t skeletons = z->skeletons * (s->p.dim + z->basis + z->centers) * (int64_t)sizeof(uint16_t);
    const int64_t rows =
        z->all_rows * (int64_t)(2 * sizeof(uint32_t) + 2 * sizeof(uint16_t) + (s->want_res_norm ? sizeof(float) : 0));
    const int64_t values =
        z->all_values * (int64_t)sizeof(float) + z->all_packed + z->all_outliers * (int64_t)(2 * sizeof(uint16_t));
    return skeletons + rows + values + z->wht * (int64_t)sizeof(float) +
           s->blocks * (int64_t)(2 * sizeof(unsigned long long)) + arrays * align;
}

kv_rc kv_codec_batch_check(const kv_codec_batch_shape *s, const kv_codec_codes *c, kv_err *err)
{
    const int32_t wht = kv_codec_wht_len(s->p.d_eff);
    int64_t outliers = 0;
    if (c->n != s->rows) return KV_FAIL(err, KV_EBUG, "codes of %" PRId64 " rows, not %" PRId64, c->n, s->rows);
    for (int64_t i = 0; i < c->n; i++) {
        if (c->seg_id[i] >= (uint32_t)s->p.k)
            return KV_FAIL(err, KV_EBUG, "row %" PRId64 ": centre %" PRIu32 " of %d", i, c->seg_id[i], s->p.k);
        if (c->outlier_count[i] > (uint32_t)wht)
            return KV_FAIL(err, KV_EBUG, "row %" PRId64 ": %" PRIu32 " outliers of %d", i, c->outlier_count[i], wht);
        outliers += c->outlier_count[i];
    }
    if (outliers != c->outliers)
        return KV_FAIL(err, KV_EBUG, "%" PRId64 " outliers, %" PRId64 " counted", c->outliers, outliers);
    return KV_OK;
}

/* ---- the CPU backend -------------------------------------------------------------------- */

struct kv_codec_batch {
    kv_codec_batch_shape shape;
    kv_codec_batch_sizes z;
    kv_codec_skeleton *skeleton; /* [z.skeletons] */
    kv_codec_codes *codes;       /* [blocks] */
    float *x;                    /* [blocks][rows][dim] */
    kv_codec_work *work;
};

static void cpu_destroy(kv_device *d, kv_codec_batch *b)
{
    (void)d;
    if (b == NULL) return;
    for (int64_t i = 0; b->skeleton != NULL && i < b->z.skeletons; i++) kv_codec_skeleton_free(&b->skeleton[i]);
    for (int64_t i = 0; b->codes != NULL && i < b->shape.blocks; i++) kv_codec_codes_free(&b->codes[i]);
    kv_codec_work_free(b->work);
    kv_free(b->skeleton);
    kv_free(b->codes);
    kv_free(b->x);
    kv_free(b);
}

static kv_rc cpu_create(kv_device *d, const kv_codec_batch_shape *s, kv_codec_batch **out, kv_err *err)
{
    kv_codec_params roomy = s->p; /* codes that come from outside may bring outliers whatever the threshold */
    kv_codec_batch_sizes z;
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_batch_size(s, &z, err));
    kv_codec_batch *b = kv_alloc(1, sizeof *b);
    if (b == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the record of a batch");
    roomy.outliers = true;
    b->shape = *s;
    b->z = z;
    b->skeleton = kv_alloc((size_t)z.skeletons, sizeof *b->skeleton);
    b->codes = kv_alloc((size_t)s->blocks, sizeof *b->codes);
    b->x = kv_alloc_image((size_t)z.all_values * sizeof *b->x);
    if (b->skeleton == NULL || b->codes == NULL || b->x == NULL)
        KV_TRY(rc, out_destroy,
               KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " rows of %d values", z.all_rows, s->p.dim));
    for (int64_t i = 0; i < z.skeletons; i++)
        KV_TRY(rc, out_destroy, kv_codec_skeleton_new(&s->p, &b->skeleton[i], err));
    for (int64_t i = 0; i < s->blocks; i++)
        KV_TRY(rc, out_destroy, kv_codec_codes_new(&roomy, s->rows, s->want_res_norm, &b->codes[i], err));
    KV_TRY(rc, out_destroy, kv_codec_work_new(&s->p, &b->skeleton[0], &b->work, err));
    *out = b;
    goto out;
out_destroy:
    cpu_destroy(d, b);
out:
    return rc;
}

static kv_rc cpu_put_skeleton(kv_device *d, kv_codec_batch *b, int64_t block, const kv_codec_skeleton *s, kv_err *err)
{
    (void)d;
    if (block < 0 || block >= b->z.skeletons) return KV_FAIL(err, KV_EBUG, "skeleton %" PRId64, block);
    memcpy(b->skeleton[block].mean, s->mean, (size_t)b->shape.p.dim * sizeof *s->mean);
    memcpy(b->skeleton[block].basis, s->basis, (size_t)b->z.basis * sizeof *s->basis);
    memcpy(b->skeleton[block].centers, s->centers, (size_t)b->z.centers * sizeof *s->centers);
    return KV_OK;
}

static kv_rc cpu_put_rows(kv_device *d, kv_codec_batch *b, int64_t block, const float *x, kv_err *err)
{
    (void)d;
    if (block < 0 || block >= b->shape.blocks) return KV_FAIL(err, KV_EBUG, "rows of block %" PRId64, block);
    memcpy(b->x + block * b->z.values, x, (size_t)b->z.values * sizeof *x);
    return KV_OK;
}

static void copy_codes(const kv_codec_batch *b, const kv_codec_codes *from, kv_codec_codes *to)
{
    const size_t n = (size_t)b->z.rows;
    to->n = from->n;
    memcpy(to->seg_id, from->seg_id, n * sizeof *to->seg_id);
    memcpy(to->t, from->t, n * sizeof *to->t);
    memcpy(to->norm, from->norm, n * sizeof *to->norm);
    memcpy(to->residual, from->residual, (size_t)b->z.packed);
    memcpy(to->outlier_count, from->outlier_count, n * sizeof *to->outlier_count);
    if (from->outliers > 0) {
        memcpy(to->outlier_idx, from->outlier_idx, (size_t)from->outliers * sizeof *to->outlier_idx);
        memcpy(to->outlier_val, from->outlier_val, (size_t)from->outliers * sizeof *to->outlier_val);
    }
    to->outliers = from->outliers;
    to->saturated = from->saturated;
    if (from->res_norm != NULL && to->res_norm != NULL) memcpy(to->res_norm, from->res_norm, n * sizeof *to->res_norm);
}

static kv_rc cpu_put_codes(kv_device *d, kv_codec_batch *b, int64_t block, const kv_codec_codes *c, kv_err *err)
{
    kv_rc rc;
    (void)d;
    if (block < 0 || block >= b->shape.blocks) return KV_FAIL(err, KV_EBUG, "codes of block %" PRId64, block);
    KV_TRY(rc, out, kv_codec_batch_check(&b->shape, c, err));
    copy_codes(b, c, &b->codes[block]);
out:
    return rc;
}

static kv_rc work(kv_codec_batch *b, int64_t blocks, bool decode, kv_err *err)
{
    const kv_codec_variant *v = kv_codec_best();
    if (blocks < 1 || blocks > b->shape.blocks) return KV_FAIL(err, KV_EBUG, "%" PRId64 " blocks", blocks);
    for (int64_t i = 0; i < blocks; i++) {
        float *x = b->x + i * b->z.values;
        if (i < b->z.skeletons) kv_codec_work_set(b->work, &b->skeleton[i]);
        if (decode)
            v->decode(b->work, &b->codes[i], x);
        else
            v->encode(b->work, x, b->z.rows, &b->codes[i]);
    }
    return KV_OK;
}

static kv_rc cpu_encode(kv_device *d, kv_codec_batch *b, int64_t blocks, kv_err *err)
{
    (void)d;
    return work(b, blocks, false, err);
}

static kv_rc cpu_decode(kv_device *d, kv_codec_batch *b, int64_t blocks, kv_err *err)
{
    (void)d;
    return work(b, blocks, true, err);
}

static kv_rc cpu_get_codes(kv_device *d, kv_codec_batch *b, int64_t block, kv_codec_codes *c, kv_err *err)
{
    (void)d;
    if (block < 0 || block >= b->shape.blocks) return KV_FAIL(err, KV_EBUG, "codes of block %" PRId64, block);
    copy_codes(b, &b->codes[block], c);
    return KV_OK;
}

static kv_rc cpu_get_rows(kv_device *d, kv_codec_batch *b, int64_t block, float *x, kv_err *err)
{
    (void)d;
    if (block < 0 || block >= b->shape.blocks) return KV_FAIL(err, KV_EBUG, "rows of block %" PRId64, block);
    memcpy(x, b->x + block * b->z.values, (size_t)b->z.values * sizeof *x);
    return KV_OK;
}

const kv_codec_ops kv_cpu_codec_ops = {
    .create = cpu_create,
    .destroy = cpu_destroy,
    .put_skeleton = cpu_put_skeleton,
    .put_rows = cpu_put_rows,
    .put_codes = cpu_put_codes,
    .encode = cpu_encode,
    .decode = cpu_decode,
    .get_codes = cpu_get_codes,
    .get_rows = cpu_get_rows,
};
