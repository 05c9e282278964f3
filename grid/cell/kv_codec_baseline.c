/* What the codec is measured against, at the bytes of a row: plain fp8, int4 with a scale a row, and the codec's
 * rotation and levels over the whole row without a skeleton. Each is stored and read back twice, by a loop over whole
 * rows and by a plain one over single values, and packed twice. */
#include <math.h>
#include <string.h>

#include "grid/cell/kv_codec_store.h"
#include "kernels/kv_kern_num.h"

static float f16(uint16_t h)
{
    return kv_num_float(kv_num_f32_of_f16(h));
}

static uint16_t to_f16(float x)
{
    return (uint16_t)kv_num_f16_of_f32(kv_num_bits(x));
}

static void add_bytes(kv_codec_tally *t, int which, const void *made, const void *reference, int64_t n)
{
    kv_hash_update(&t->digest[which][0], made, (size_t)n);
    kv_hash_update(&t->digest[which][1], reference, (size_t)n);
}

static void add_values(kv_codec_tally *t, const float *made, const float *reference, int64_t n)
{
    kv_codec_digest_f32(&t->digest[KV_DIGEST_VALUES][0], made, n);
    kv_codec_digest_f32(&t->digest[KV_DIGEST_VALUES][1], reference, n);
}

/* ---- fp8 ------------------------------------------------------------------------------------ */

int64_t kv_codec_fp8_row_bytes(int64_t dim)
{
    return dim;
}

kv_rc kv_codec_store_fp8(const float *x, int64_t rows, int64_t dim, float *y, kv_codec_tally *t, kv_err *err)
{
    uint8_t *made = kv_alloc(2 * (size_t)dim, 1), *plain = made + dim;
    float *back = kv_alloc((size_t)dim, sizeof *back);
    const bool room = made != NULL && back != NULL;
    for (int64_t r = 0; room && r < rows; r++) {
        const float *in = x + r * dim;
        float *out = y + r * dim;
        kv_num_convert_row(KV_ELEM_F32, KV_ELEM_FP8_E4M3, in, made, (size_t)dim);
        kv_num_to_f32_row(KV_ELEM_FP8_E4M3, made, out, (size_t)dim);
        for (int64_t i = 0; i < dim; i++) {
            plain[i] = (uint8_t)kv_num_fp8_of_f32(kv_num_bits(in[i]));
            back[i] = kv_num_float(kv_num_f32_of_fp8(plain[i]));
        }
        add_bytes(t, KV_DIGEST_CODES, made, plain, dim);
        add_bytes(t, KV_DIGEST_SLOTS, made, plain, dim);
        add_values(t, out, back, dim);
    }
    t->encoded_rows += rows;
    kv_free(made);
    kv_free(back);
    return room ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for a row of %lld values", (long long)dim);
}

/* ---- int4 ----------------------------------------------------------------------------------- */

int64_t kv_codec_int4_row_bytes(int64_t dim)
{
    return 2 + (dim + 1) / 2;
}

/* The scale as stored: the largest magnitude / 7 in fp16. */
static uint16_t int4_scale(const float *x, int64_t dim)
{
    float most = 0;
    for (int64_t i = 0; i < dim; i++)
        if (fabsf(x[i]) > most) most = fabsf(x[i]);
    const uint16_t s = to_f16(most / 7.0f);
    return s < 0x7C00 ? s : 0x7BFF;
}

/* Nearest of -7..7, ties to even. */
static int32_t int4_code(float x, float scale)
{
    if (!(scale > 0)) return 0;
    const float q = x / scale;
    if (!(q > -7)) return -7;
    if (!(q < 7)) return 7;
    const float magic = 0x1.8p23f; /* adding it rounds to an integer, nearest even */
    return (int32_t)((q + magic) - magic);
}

/* The same by counting the midpoints below x / scale. */
static int32_t int4_code_plain(float x, float scale)
{
    int32_t c = -7;
    if (!(scale > 0)) return 0;
    for (; c < 7; c++) {
        const float middle = (float)c + 0.5f, q = x / scale;
        if (!(q > middle || (q == middle && c % 2 != 0))) break;
    }
    return c;
}

/* Low nibble first. */
static void int4_pack(const int8_t *code, int64_t dim, uint16_t scale, uint8_t *out)
{
    memset(out, 0, (size_t)kv_codec_int4_row_bytes(dim));
    out[0] = (uint8_t)scale;
    out[1] = (uint8_t)(scale >> 8);
    for (int64_t i = 0; i < dim; i++)
        out[2 + i / 2] = (uint8_t)(out[2 + i / 2] | (unsigned)(code[i] + 8) << 4 * (i % 2));
}

static uint16_t int4_unpack(const uint8_t *in, int64_t dim, int8_t *code)
{
    for (int64_t i = 0; i < dim; i++) code[i] = (int8_t)((in[2 + i / 2] >> 4 * (i % 2) & 15) - 8);
    return (uint16_t)(in[0] | in[1] << 8);
}

kv_rc kv_codec_store_int4(const float *x, int64_t rows, int64_t dim, float *y, kv_codec_tally *t, kv_err *err)
{
    const int64_t bytes = kv_codec_int4_row_bytes(dim);
    int8_t *code = kv_alloc(3 * (size_t)dim, 1), *again = code + dim, *plain = again + dim;
    uint8_t *packed = kv_alloc(2 * (size_t)bytes, 1), *repacked = packed + bytes;
    float *back = kv_alloc((size_t)dim, sizeof *back);
    const bool room = code != NULL && packed != NULL && back != NULL;
    for (int64_t r = 0; room && r < rows; r++) {
        const float *in = x + r * dim;
        float *out = y + r * dim;
        const uint16_t scale = int4_scale(in, dim);
        const float step = f16(scale);
        for (int64_t i = 0; i < dim; i++) {
            code[i] = (int8_t)int4_code(in[i], step);
            plain[i] = (int8_t)int4_code_plain(in[i], step);
        }
        int4_pack(code, dim, scale, packed);
        const uint16_t read = int4_unpack(packed, dim, again);
        int4_pack(again, dim, read, repacked);
        for (int64_t i = 0; i < dim; i++) {
            out[i] = (float)again[i] * f16(read);
            back[i] = f16(scale) * (float)plain[i];
        }
        add_bytes(t, KV_DIGEST_CODES, code, plain, dim);
        add_bytes(t, KV_DIGEST_SLOTS, packed, repacked, bytes);
        add_values(t, out, back, dim);
    }
    t->encoded_rows += rows;
    kv_free(code);
    kv_free(packed);
    kv_free(back);
    return room ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for a row of %lld values", (long long)dim);
}

/* ---- rotation ------------------------------------------------------------------------------- */

#define ROTATION_ROWS 64 /* at a time */

static kv_codec_params rotation_params(int64_t dim, int32_t bits)
{
    kv_codec_params p = {.dim = (int32_t)dim,
                         .d_eff = (int32_t)dim,
                         .k = 1,
                         .bits = bits,
                         .metric = KV_CODEC_MSE,
                         .rule = KV_CODEC_RULE_KV1,
                         .seed = KV_CODEC_SEED};
    memcpy(p.level, kv_codec_levels(bits), sizeof(float) * ((size_t)1 << bits));
    return p;
}

int64_t kv_codec_rotation_row_bytes(int64_t dim, int32_t bits)
{
    const kv_codec_params p = rotation_params(dim, bits);
    return 2 + kv_codec_row_bytes(&p);
}

/* A skeleton that leaves rows as they are: mean 0, each direction one of the axes, a centre 0. */
static void identity(const kv_codec_params *p, kv_codec_skeleton *s)
{
    for (int32_t i = 0; i < p->dim; i++) s->basis[i * (p->dim + 1)] = 0x3C00;
}

/* One row packed: norm, residual. */
static void rotation_pack(const kv_codec_codes *c, int64_t row_bytes, uint8_t *out)
{
    for (int64_t r = 0; r < c->n; r++, out += 2 + row_bytes) {
        out[0] = (uint8_t)c->norm[r];
        out[1] = (uint8_t)(c->norm[r] >> 8);
        memcpy(out + 2, c->residual + r * row_bytes, (size_t)row_bytes);
    }
}

static void rotation_unpack(const uint8_t *in, int64_t row_bytes, kv_codec_codes *c)
{
    for (int64_t r = 0; r < c->n; r++, in += 2 + row_bytes) {
        c->norm[r] = (uint16_t)(in[0] | in[1] << 8);
        memcpy(c->residual + r * row_bytes, in + 2, (size_t)row_bytes);
        c->seg_id[r] = 0;
        c->t[r] = 0;
    }
}

typedef struct {
    kv_device *dev;
    kv_codec_batch *batch; /* one block of ROTATION_ROWS rows */
    float *in, *out;       /* such rows, zeros past the last */
    kv_codec_params p;
    kv_codec_skeleton s;
    kv_codec_work *work;
    kv_codec_codes codes[2], again;
    uint8_t *packed, *repacked;
    float *back;
} rotation;

kv_codec_batch_shape kv_codec_rotation_shape(int64_t dim, int32_t bits)
{
    const kv_codec_batch_shape s = {.p = rotation_params(dim, bits), .blocks = 1, .rows = ROTATION_ROWS};
    return s;
}

static kv_rc rotation_open(rotation *q, int64_t dim, int32_t bits, kv_err *err)
{
    const size_t values = ROTATION_ROWS * (size_t)dim;
    kv_rc rc;
    q->p = rotation_params(dim, bits);
    KV_TRY(rc, out, kv_codec_params_check(&q->p, err));
    KV_TRY(rc, out, kv_codec_skeleton_new(&q->p, &q->s, err));
    memset(q->s.mean, 0, (size_t)dim * sizeof *q->s.mean);
    memset(q->s.basis, 0, (size_t)(dim * dim) * sizeof *q->s.basis);
    memset(q->s.centers, 0, (size_t)dim * sizeof *q->s.centers);
    identity(&q->p, &q->s);
    KV_TRY(rc, out, kv_codec_work_new(&q->p, &q->s, &q->work, err));
    for (int i = 0; i < 2; i++) KV_TRY(rc, out, kv_codec_codes_new(&q->p, ROTATION_ROWS, false, &q->codes[i], err));
    KV_TRY(rc, out, kv_codec_codes_new(&q->p, ROTATION_ROWS, false, &q->again, err));
    const size_t bytes = (size_t)(ROTATION_ROWS * kv_codec_rotation_row_bytes(dim, bits));
    q->packed = kv_alloc(2 * bytes, 1);
    q->repacked = q->packed + bytes;
    q->back = kv_alloc(values, sizeof *q->back);
    q->in = kv_alloc(values, sizeof *q->in);
    q->out = kv_alloc(values, sizeof *q->out);
    if (q->packed == NULL || q->back == NULL || q->in == NULL || q->out == NULL)
        return KV_FAIL(err, KV_ENOMEM, "no memory for rows of %lld values", (long long)dim);
    const kv_codec_batch_shape shape = kv_codec_rotation_shape(dim, bits);
    KV_TRY(rc, out, q->dev->ops->codec->create(q->dev, &shape, &q->batch, err));
    rc = q->dev->ops->codec->put_skeleton(q->dev, q->batch, 0, &q->s, err);
out:
    return rc;
}

static void rotation_close(rotation *q)
{
    q->dev->ops->codec->destroy(q->dev, q->batch);
    kv_free(q->in);
    kv_free(q->out);
    kv_codec_work_free(q->work);
    kv_codec_skeleton_free(&q->s);
    for (int i = 0; i < 2; i++) kv_codec_codes_free(&q->codes[i]);
    kv_codec_codes_free(&q->again);
    kv_free(q->packed);
    kv_free(q->back);
}

/* The device's batch is whole; rows past n are zeros there, and are looked at by nobody. */
static kv_rc rotation_rows(rotation *q, const float *x, int64_t n, float *y, kv_codec_tally *t, kv_err *err)
{
    const kv_codec_variant *plain = &kv_codec_variants()[0];
    const kv_codec_ops *ops = q->dev->ops->codec;
    const int64_t row = kv_codec_row_bytes(&q->p), bytes = n * (2 + row);
    const size_t values = (size_t)(n * q->p.dim), whole = ROTATION_ROWS * (size_t)q->p.dim;
    kv_rc rc;
    memcpy(q->in, x, values * sizeof *x);
    memset(q->in + values, 0, (whole - values) * sizeof *x);
    KV_TRY(rc, out, ops->put_rows(q->dev, q->batch, 0, q->in, err));
    KV_TRY(rc, out, ops->encode(q->dev, q->batch, 1, err));
    KV_TRY(rc, out, ops->get_codes(q->dev, q->batch, 0, &q->codes[0], err));
    plain->encode(q->work, x, n, &q->codes[1]);
    for (int i = 0; i < 2; i++) {
        kv_codec_digest_u16(&t->digest[KV_DIGEST_CODES][i], q->codes[i].norm, n);
        kv_hash_update(&t->digest[KV_DIGEST_CODES][i], q->codes[i].residual, (size_t)(n * row));
    }
    q->again.n = ROTATION_ROWS;
    rotation_pack(&q->codes[0], row, q->packed);
    rotation_unpack(q->packed, row, &q->again);
    rotation_pack(&q->again, row, q->repacked);
    add_bytes(t, KV_DIGEST_SLOTS, q->packed, q->repacked, bytes);
    KV_TRY(rc, out, ops->put_codes(q->dev, q->batch, 0, &q->again, err));
    KV_TRY(rc, out, ops->decode(q->dev, q->batch, 1, err));
    KV_TRY(rc, out, ops->get_rows(q->dev, q->batch, 0, q->out, err));
    memcpy(y, q->out, values * sizeof *y);
    q->again.n = n;
    plain->decode(q->work, &q->again, q->back);
    add_values(t, y, q->back, n * q->p.dim);
    t->saturated += q->codes[0].saturated;
out:
    return rc;
}

kv_rc kv_codec_store_rotation(kv_device *dev, const float *x, int64_t rows, int64_t dim, int32_t bits, float *y,
                              kv_codec_tally *t, kv_err *err)
{
    rotation q = {.dev = dev};
    kv_rc rc = rotation_open(&q, dim, bits, err);
    for (int64_t r = 0; rc == KV_OK && r < rows; r += ROTATION_ROWS)
        rc = rotation_rows(&q, x + r * dim, rows - r < ROTATION_ROWS ? rows - r : ROTATION_ROWS, y + r * dim, t, err);
    if (rc == KV_OK) t->encoded_rows += rows;
    rotation_close(&q);
    return rc;
}
