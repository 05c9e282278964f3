/* Batches of the codec on the GPU: their memory, what goes there and comes back, and the launches. */
#include <inttypes.h>
#include <string.h>

#include "kernels/codec/kv_codec_rng.h"
#include "kernels/cuda/kv_cuda_check.h"
#include "kernels/cuda/kv_cuda_device.h"

#define ALIGN 256 /* of each array */

struct kv_codec_batch {
    kv_codec_batch_shape shape;
    kv_codec_batch_sizes z;
    kv_cuda_codec at; /* pointers of the device */
    unsigned char *block;
    int64_t bytes;
};

/* ---- memory ----------------------------------------------------------------------------- */

/* Gives n values of `size` bytes from *at on. With block NULL it only counts. */
static void *take(unsigned char *block, int64_t *at, int64_t n, size_t size)
{
    void *p = block != NULL ? block + *at : NULL;
    *at += (n * (int64_t)size + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

/* Places all arrays of the batch; how many bytes they take. Sizes were checked (kv_codec_batch_size). */
static int64_t lay_out(kv_codec_batch *b)
{
    const kv_codec_batch_sizes *z = &b->z;
    kv_cuda_codec *c = &b->at;
    int64_t at = 0;
    c->mean = take(b->block, &at, z->skeletons * b->shape.p.dim, sizeof(uint16_t));
    c->basis = take(b->block, &at, z->skeletons * z->basis, sizeof(uint16_t));
    c->centers = take(b->block, &at, z->skeletons * z->centers, sizeof(uint16_t));
    c->sign = take(b->block, &at, z->wht, sizeof(float));
    c->x = take(b->block, &at, z->all_values, sizeof(float));
    c->seg = take(b->block, &at, z->all_rows, sizeof(uint32_t));
    c->count = take(b->block, &at, z->all_rows, sizeof(uint32_t));
    c->t = take(b->block, &at, z->all_rows, sizeof(uint16_t));
    c->norm = take(b->block, &at, z->all_rows, sizeof(uint16_t));
    c->packed = take(b->block, &at, z->all_packed, 1);
    c->idx = take(b->block, &at, z->all_outliers, sizeof(uint16_t));
    c->val = take(b->block, &at, z->all_outliers, sizeof(uint16_t));
    c->res_norm = take(b->block, &at, b->shape.want_res_norm ? z->all_rows : 0, sizeof(float));
    c->outliers = take(b->block, &at, b->shape.blocks, sizeof(unsigned long long));
    c->saturated = take(b->block, &at, b->shape.blocks, sizeof(unsigned long long));
    if (!b->shape.want_res_norm) c->res_norm = NULL;
    return at;
}

/* Queues a copy. The host's side may only change, or be read, after a wait. */
static kv_rc move(const kv_cuda *c, void *to, const void *from, int64_t n, size_t size, enum cudaMemcpyKind kind,
                  kv_err *err)
{
    kv_rc rc = KV_OK;
    if (n > 0) KV_CUDA_TRY(rc, err, out, cudaMemcpyAsync(to, from, (size_t)n * size, kind, c->on.stream));
out:
    return rc;
}
#define UP cudaMemcpyHostToDevice
#define DOWN cudaMemcpyDeviceToHost

static void destroy(kv_device *d, kv_codec_batch *b)
{
    if (b == NULL) return;
    kv_cuda_give((kv_cuda *)(void *)d, b->block, b->bytes);
    kv_free(b);
}

static kv_rc put_signs(const kv_cuda *c, const kv_codec_batch *b, kv_err *err)
{
    float *sign = kv_alloc((size_t)b->z.wht, sizeof *sign);
    kv_rc rc;
    if (sign == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %d signs", b->z.wht);
    kv_codec_signs(b->shape.p.seed, sign, b->z.wht);
    /* the batch owns this memory: const for kernels alone */
    KV_TRY(rc, out, move(c, (void *)(uintptr_t)b->at.sign, sign, b->z.wht, sizeof *sign, UP, err));
    rc = kv_cuda_wait(c, err);
out:
    kv_free(sign);
    return rc;
}

static kv_rc create(kv_device *d, const kv_codec_batch_shape *s, kv_codec_batch **out, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_codec_batch *b = NULL;
    kv_codec_batch_sizes z;
    void *block = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_batch_size(s, &z, err));
    if (s->blocks > INT32_MAX) return KV_FAIL(err, KV_ENOMEM, "%" PRId64 " blocks in one launch", s->blocks);
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    b = kv_alloc(1, sizeof *b);
    if (b == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the record of a batch");
    b->shape = *s;
    b->z = z;
    b->bytes = lay_out(b);
    rc = kv_cuda_take(c, b->bytes, "a batch of the codec", &block, err);
    if (rc != KV_OK) {
        kv_free(b);
        goto out;
    }
    b->block = block;
    (void)lay_out(b);
    b->at.p = s->p;
    b->at.rows = s->rows;
    b->at.wht = z.wht;
    b->at.shared = s->shared;
    b->at.row_bytes = z.row_bytes;
    KV_TRY(rc, out_destroy, put_signs(c, b, err));
    *out = b;
    goto out;
out_destroy:
    destroy(d, b);
out:
    return rc;
}

/* ---- in --------------------------------------------------------------------------------- */

static kv_rc in_range(int64_t block, int64_t blocks, const char *what, kv_err *err)
{
    if (block >= 0 && block < blocks) return KV_OK;
    return KV_FAIL(err, KV_EBUG, "%s of block %" PRId64 " in a batch of %" PRId64, what, block, blocks);
}

static kv_rc put_skeleton(kv_device *d, kv_codec_batch *b, int64_t block, const kv_codec_skeleton *s, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    const kv_cuda_codec *a = &b->at;
    const int64_t dim = b->shape.p.dim;
    uint16_t *mean = (uint16_t *)(uintptr_t)a->mean, *basis = (uint16_t *)(uintptr_t)a->basis;
    uint16_t *centers = (uint16_t *)(uintptr_t)a->centers;
    kv_rc rc;
    KV_TRY(rc, out, in_range(block, b->z.skeletons, "skeleton", err));
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, move(c, mean + block * dim, s->mean, dim, sizeof *mean, UP, err));
    KV_TRY(rc, out, move(c, basis + block * b->z.basis, s->basis, b->z.basis, sizeof *basis, UP, err));
    KV_TRY(rc, out, move(c, centers + block * b->z.centers, s->centers, b->z.centers, sizeof *centers, UP, err));
    rc = kv_cuda_wait(c, err);
out:
    return rc;
}

static kv_rc put_rows(kv_device *d, kv_codec_batch *b, int64_t block, const float *x, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    KV_TRY(rc, out, in_range(block, b->shape.blocks, "rows", err));
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, move(c, b->at.x + block * b->z.values, x, b->z.values, sizeof *x, UP, err));
    rc = kv_cuda_wait(c, err);
out:
    return rc;
}

static kv_rc put_codes(kv_device *d, kv_codec_batch *b, int64_t block, const kv_codec_codes *from, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    const kv_cuda_codec *a = &b->at;
    const int64_t n = b->z.rows, row = block * n, o = block * b->z.outliers;
    const unsigned long long counts[2] = {(unsigned long long)from->outliers, (unsigned long long)from->saturated};
    kv_rc rc;
    KV_TRY(rc, out, in_range(block, b->shape.blocks, "codes", err));
    KV_TRY(rc, out, kv_codec_batch_check(&b->shape, from, err));
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, move(c, a->seg + row, from->seg_id, n, sizeof *a->seg, UP, err));
    KV_TRY(rc, out, move(c, a->t + row, from->t, n, sizeof *a->t, UP, err));
    KV_TRY(rc, out, move(c, a->norm + row, from->norm, n, sizeof *a->norm, UP, err));
    KV_TRY(rc, out, move(c, a->packed + block * b->z.packed, from->residual, b->z.packed, 1, UP, err));
    KV_TRY(rc, out, move(c, a->count + row, from->outlier_count, n, sizeof *a->count, UP, err));
    KV_TRY(rc, out, move(c, a->idx + o, from->outlier_idx, from->outliers, sizeof *a->idx, UP, err));
    KV_TRY(rc, out, move(c, a->val + o, from->outlier_val, from->outliers, sizeof *a->val, UP, err));
    KV_TRY(rc, out, move(c, a->outliers + block, &counts[0], 1, sizeof counts[0], UP, err));
    KV_TRY(rc, out, move(c, a->saturated + block, &counts[1], 1, sizeof counts[1], UP, err));
    if (a->res_norm != NULL && from->res_norm != NULL)
        KV_TRY(rc, out, move(c, a->res_norm + row, from->res_norm, n, sizeof *a->res_norm, UP, err));
    rc = kv_cuda_wait(c, err);
out:
    return rc;
}

/* ---- work ------------------------------------------------------------------------------- */

static kv_rc encode(kv_device *d, kv_codec_batch *b, int64_t blocks, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    if (blocks < 1 || blocks > b->shape.blocks) return KV_FAIL(err, KV_EBUG, "%" PRId64 " blocks", blocks);
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    rc = kv_cuda_run_codec_encode(&c->on, &b->at, blocks, err);
out:
    return rc;
}

static kv_rc decode(kv_device *d, kv_codec_batch *b, int64_t blocks, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    if (blocks < 1 || blocks > b->shape.blocks) return KV_FAIL(err, KV_EBUG, "%" PRId64 " blocks", blocks);
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    rc = kv_cuda_run_codec_decode(&c->on, &b->at, blocks, err);
out:
    return rc;
}

/* ---- out -------------------------------------------------------------------------------- */

static kv_rc get_codes(kv_device *d, kv_codec_batch *b, int64_t block, kv_codec_codes *to, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    const kv_cuda_codec *a = &b->at;
    const int64_t n = b->z.rows, row = block * n, o = block * b->z.outliers;
    unsigned long long counts[2] = {0, 0};
    kv_rc rc;
    KV_TRY(rc, out, in_range(block, b->shape.blocks, "codes", err));
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, move(c, &counts[0], a->outliers + block, 1, sizeof counts[0], DOWN, err));
    KV_TRY(rc, out, move(c, &counts[1], a->saturated + block, 1, sizeof counts[1], DOWN, err));
    KV_TRY(rc, out, move(c, to->seg_id, a->seg + row, n, sizeof *a->seg, DOWN, err));
    KV_TRY(rc, out, move(c, to->t, a->t + row, n, sizeof *a->t, DOWN, err));
    KV_TRY(rc, out, move(c, to->norm, a->norm + row, n, sizeof *a->norm, DOWN, err));
    KV_TRY(rc, out, move(c, to->residual, a->packed + block * b->z.packed, b->z.packed, 1, DOWN, err));
    KV_TRY(rc, out, move(c, to->outlier_count, a->count + row, n, sizeof *a->count, DOWN, err));
    if (a->res_norm != NULL && to->res_norm != NULL)
        KV_TRY(rc, out, move(c, to->res_norm, a->res_norm + row, n, sizeof *a->res_norm, DOWN, err));
    KV_TRY(rc, out, kv_cuda_wait(c, err));
    if (counts[0] > (unsigned long long)b->z.outliers)
        return KV_FAIL(err, KV_EDEVICE, "block %" PRId64 ": the GPU counted %llu outliers, room for %" PRId64, block,
                       counts[0], b->z.outliers);
    to->n = n;
    to->outliers = (int64_t)counts[0];
    to->saturated = (int64_t)counts[1];
    KV_TRY(rc, out, move(c, to->outlier_idx, a->idx + o, to->outliers, sizeof *a->idx, DOWN, err));
    KV_TRY(rc, out, move(c, to->outlier_val, a->val + o, to->outliers, sizeof *a->val, DOWN, err));
    rc = kv_cuda_wait(c, err);
out:
    return rc;
}

static kv_rc get_rows(kv_device *d, kv_codec_batch *b, int64_t block, float *x, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    KV_TRY(rc, out, in_range(block, b->shape.blocks, "rows", err));
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, move(c, x, b->at.x + block * b->z.values, b->z.values, sizeof *x, DOWN, err));
    rc = kv_cuda_wait(c, err);
out:
    return rc;
}

const kv_codec_ops kv_cuda_codec_ops = {
    .create = create,
    .destroy = destroy,
    .put_skeleton = put_skeleton,
    .put_rows = put_rows,
    .put_codes = put_codes,
    .encode = encode,
    .decode = decode,
    .get_codes = get_codes,
    .get_rows = get_rows,
};
