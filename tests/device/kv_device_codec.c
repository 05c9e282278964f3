/* The codec's kernels: codes and rows of random batches against the CPU, bit for bit, and how fast they go. */
#include "tests/device/kv_device_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/codec/kv_codec_batch.h"
#include "kernels/codec/kv_codec_step.h"

#define GPU (c->gpu->ops)
#define REPEAT 7

/* About normal, deviation 1. */
static float about_normal(kv_check *c)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)kv_check_below(c, 1 << 24) * 0x1p-23f - 1.0f;
    return sum * 0.866f;
}

static void *take(int64_t n, size_t size)
{
    void *p = calloc((size_t)n + 1, size);
    if (p == NULL) abort();
    return p;
}

static kv_codec_params random_params(kv_check *c, bool small)
{
    static const int32_t dims[] = {1, 6, 16, 33, 64, 80, 96, 128, 256, 1000};
    kv_codec_params p = {.dim = dims[kv_check_below(c, small ? 6 : 10)]};
    p.d_eff = 1 + (int32_t)kv_check_below(c, p.dim);
    p.k = 1 + (int32_t)kv_check_below(c, kv_check_below(c, 4) == 0 ? 100 : 16);
    p.bits = 1 + (int32_t)kv_check_below(c, 4);
    p.metric = (int32_t)kv_check_below(c, KV_CODEC_METRIC_COUNT);
    p.rule = (int32_t)kv_check_below(c, KV_CODEC_RULE_COUNT);
    p.seed = (uint32_t)kv_check_below(c, 1 << 30);
    p.outliers = kv_check_below(c, 2) == 0;
    p.threshold = (float)kv_check_below(c, 30) * 0.1f;
    memcpy(p.level, kv_codec_levels(p.bits), sizeof(float) << p.bits);
    return p;
}

static kv_codec_skeleton random_skeleton(kv_check *c, const kv_codec_params *p)
{
    kv_codec_skeleton s = {0};
    kv_err err = {0};
    kv_check_must(kv_codec_skeleton_new(p, &s, &err), &err, "skeleton");
    const float reach = 1.0f / kv_codec_sqrt((float)p->dim), side = 1.0f / kv_codec_sqrt((float)p->d_eff);
    for (int32_t j = 0; j < p->dim; j++) s.mean[j] = kv_codec_h(about_normal(c));
    for (int32_t j = 0; j < p->dim * p->d_eff; j++) s.basis[j] = kv_codec_h(about_normal(c) * reach);
    for (int32_t j = 0; j < p->k * p->d_eff; j++) s.centers[j] = kv_codec_h(about_normal(c) * side);
    return s;
}

static bool same_floats(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (kv_num_bits(a[i]) != kv_num_bits(b[i]) && !(a[i] != a[i] && b[i] != b[i])) return false;
    return true;
}

static bool same_codes(const kv_codec_params *p, const kv_codec_codes *a, const kv_codec_codes *b)
{
    const size_t n = (size_t)a->n, o = (size_t)a->outliers;
    return a->n == b->n && a->outliers == b->outliers && a->saturated == b->saturated &&
           memcmp(a->seg_id, b->seg_id, n * sizeof *a->seg_id) == 0 && memcmp(a->t, b->t, n * sizeof *a->t) == 0 &&
           memcmp(a->norm, b->norm, n * sizeof *a->norm) == 0 &&
           memcmp(a->residual, b->residual, n * (size_t)kv_codec_row_bytes(p)) == 0 &&
           memcmp(a->outlier_count, b->outlier_count, n * sizeof *a->outlier_count) == 0 &&
           memcmp(a->outlier_idx, b->outlier_idx, o * sizeof *a->outlier_idx) == 0 &&
           memcmp(a->outlier_val, b->outlier_val, o * sizeof *a->outlier_val) == 0;
}

/* Encodes and decodes one batch on both devices. */
static void check_batch(kv_check *c, const kv_codec_batch_shape *s)
{
    kv_device *const dev[2] = {c->cpu, c->gpu};
    kv_codec_batch *batch[2] = {NULL, NULL};
    kv_codec_codes codes[2] = {0};
    kv_codec_params roomy = s->p;
    const int64_t values = s->rows * s->p.dim;
    float *x = take(values, sizeof *x), *y[2] = {take(values, sizeof *x), take(values, sizeof *x)};
    kv_err err = {0};
    roomy.outliers = true;
    for (int i = 0; i < 2; i++) {
        kv_check_must(dev[i]->ops->codec->create(dev[i], s, &batch[i], &err), &err, "batch");
        kv_check_must(kv_codec_codes_new(&roomy, s->rows, false, &codes[i], &err), &err, "codes");
    }
    for (int64_t b = 0; b < s->blocks; b++) {
        kv_codec_skeleton k = random_skeleton(c, &s->p);
        const float scale = b == 0 ? 1.0f : 1000.0f;
        for (int64_t i = 0; i < values; i++) x[i] = about_normal(c) * scale;
        memset(x, 0, (size_t)s->p.dim * sizeof *x); /* a row of zeros */
        for (int i = 0; i < 2; i++) {
            kv_check_must(dev[i]->ops->codec->put_skeleton(dev[i], batch[i], b, &k, &err), &err, "skeleton");
            kv_check_must(dev[i]->ops->codec->put_rows(dev[i], batch[i], b, x, &err), &err, "rows");
        }
        kv_codec_skeleton_free(&k);
    }
    for (int i = 0; i < 2; i++)
        kv_check_must(dev[i]->ops->codec->encode(dev[i], batch[i], s->blocks, &err), &err, "encode");
    for (int64_t b = 0; b < s->blocks; b++) {
        for (int i = 0; i < 2; i++)
            kv_check_must(dev[i]->ops->codec->get_codes(dev[i], batch[i], b, &codes[i], &err), &err, "codes");
        kv_check_note(c, same_codes(&s->p, &codes[0], &codes[1]),
                      "codec: codes differ: D %d E %d k %d bits %d, block %" PRId64 " of %" PRId64 " rows", s->p.dim,
                      s->p.d_eff, s->p.k, s->p.bits, b, s->rows);
    }
    for (int i = 0; i < 2; i++)
        kv_check_must(dev[i]->ops->codec->decode(dev[i], batch[i], s->blocks, &err), &err, "decode");
    for (int64_t b = 0; b < s->blocks; b++) {
        for (int i = 0; i < 2; i++)
            kv_check_must(dev[i]->ops->codec->get_rows(dev[i], batch[i], b, y[i], &err), &err, "rows");
        kv_check_note(c, same_floats(y[0], y[1], values),
                      "codec: rows differ: D %d E %d k %d bits %d, block %" PRId64 " of %" PRId64 " rows", s->p.dim,
                      s->p.d_eff, s->p.k, s->p.bits, b, s->rows);
    }
    for (int i = 0; i < 2; i++) {
        dev[i]->ops->codec->destroy(dev[i], batch[i]);
        kv_codec_codes_free(&codes[i]);
        free(y[i]);
    }
    free(x);
}

void kv_check_codec(kv_check *c, bool small)
{
    for (int i = 0; i < (small ? 12 : 600); i++) {
        kv_codec_batch_shape s = {.p = random_params(c, small), .blocks = 1 + kv_check_below(c, 3)};
        s.rows = i % 8 == 0 ? s.p.k : 1 + kv_check_below(c, small ? 40 : 600);
        check_batch(c, &s);
    }
}

/* ---- speeds ----------------------------------------------------------------------------- */

#define BLOCKS 4096
#define ROWS 512
#define DIM 128
#define KEPT 64

typedef enum { COPY, ENCODE, DECODE, KINDS } what;

typedef struct {
    kv_codec_batch *batch;
    kv_image *from, *to;
    int64_t blocks;
} speed;

static double run_once(kv_check *c, const speed *s, what w)
{
    kv_err err = {0};
    const double begin = kv_check_now();
    kv_check_must(w == COPY     ? GPU->copy(c->gpu, s->from, s->to, &err)
                  : w == ENCODE ? GPU->codec->encode(c->gpu, s->batch, s->blocks, &err)
                                : GPU->codec->decode(c->gpu, s->batch, s->blocks, &err),
                  &err, "measured work");
    kv_check_must(GPU->finish(c->gpu, &err), &err, "measured work");
    return kv_check_now() - begin;
}

void kv_check_codec_speeds(kv_check *c)
{
    kv_codec_params p = {
        .dim = DIM, .d_eff = KEPT, .k = 16, .bits = 3, .rule = KV_CODEC_RULE_KV1, .seed = KV_CODEC_SEED};
    speed s = {.blocks = BLOCKS};
    double took[KINDS][REPEAT];
    kv_err err = {0};
    memcpy(p.level, kv_codec_levels(3), sizeof(float) << 3);
    const int64_t skeleton_bytes = 2 * (DIM + KEPT * DIM + 16 * KEPT);
    const int64_t bytes = 4 * ROWS * DIM + ROWS * (kv_codec_row_bytes(&p) + 12) + skeleton_bytes; /* of a block, once */
    const kv_codec_batch_shape shape = {.p = p, .blocks = BLOCKS, .rows = ROWS};
    kv_check_must(GPU->codec->create(c->gpu, &shape, &s.batch, &err), &err, "a batch of 4096 blocks");
    kv_check_must(GPU->image_new(c->gpu, bytes * BLOCKS / 2, &s.from, &err), &err, "an image");
    kv_check_must(GPU->image_new(c->gpu, bytes * BLOCKS / 2, &s.to, &err), &err, "an image");
    kv_check_must(GPU->poison(c->gpu, s.from, bytes * BLOCKS / 2, 1, &err), &err, "poison");
    kv_check_must(GPU->poison(c->gpu, s.to, bytes * BLOCKS / 2, 2, &err), &err, "poison");
    kv_codec_skeleton k = random_skeleton(c, &p);
    float *x = take(ROWS * DIM, sizeof *x);
    for (int64_t b = 0; b < BLOCKS; b++) {
        for (int i = 0; i < ROWS * DIM && b % 64 == 0; i++) x[i] = about_normal(c);
        kv_check_must(GPU->codec->put_skeleton(c->gpu, s.batch, b, &k, &err), &err, "skeleton");
        kv_check_must(GPU->codec->put_rows(c->gpu, s.batch, b, x, &err), &err, "rows");
    }
    for (int i = -1; i < REPEAT; i++)
        for (int w = 0; w < KINDS; w++)
            took[w][i < 0 ? 0 : i] = run_once(c, &s, (what)w); /* decoded rows are encoded again */
    for (int w = 0; w < KINDS; w++) qsort(took[w], REPEAT, sizeof took[w][0], kv_check_by_value);
    printf("\ncodec, %d blocks of %d x %d, %d directions, 16 centres, 3 bits, a skeleton each; copy: as many bytes, "
           "read and "
           "written together, as a task touches once\n%-8s %9s %9s %12s %9s %14s\n",
           BLOCKS, ROWS, DIM, KEPT, "task", "ms", "GB/s", "copy GB/s", "ratio", "mul+add a s");
    for (int w = ENCODE; w < KINDS; w++) {
        const double median = took[w][REPEAT / 2], copy = took[COPY][REPEAT / 2], all = (double)bytes * BLOCKS;
        printf("%-8s %9.3f %9.1f %12.1f %9.3f %14.4g\n", w == ENCODE ? "encode" : "decode", median * 1e3,
               all / median * 1e-9, all / copy * 1e-9, copy / median, 2.0 * BLOCKS * ROWS * DIM * KEPT / median);
    }
    printf("(of the basis product alone: %.4g unfused multiplies and adds; wanted: encode at most 1.6 x 1.3 ms, decode "
           "1.6 x "
           "1.05 ms on an H200)\n",
           2.0 * BLOCKS * ROWS * DIM * KEPT);
    free(x);
    kv_codec_skeleton_free(&k);
    GPU->codec->destroy(c->gpu, s.batch);
    GPU->image_free(c->gpu, s.from);
    GPU->image_free(c->gpu, s.to);
}
