#include "grid/bench/kv_bench_batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/bench/kv_bench_time.h"
#include "grid/campaign/kv_codec_values.h"
#include "kernels/codec/kv_codec_batch.h"
#include "kernels/codec/kv_codec_fit.h"
#include "kernels/codec/kv_codec_recipe.h"

#define HEAD_DIM 128
#define BLOCKS 4096
#define BLOCKS_EMULATED 2
#define DIFFERENT 8 /* blocks of rows that are made; the others repeat them */

typedef enum { TASK_COPY, TASK_STORE, TASK_DECODE, TASKS } task;
static const char *const task_name[TASKS] = {"copy", "store, skeleton given", "decode"};

typedef struct {
    kv_device *dev;
    kv_codec_half_config half;
    kv_codec_batch *batch;
    kv_image *from, *to; /* together as many bytes as a task reads and writes */
    kv_codec_skeleton skeleton;
    float *x; /* [rows][dim] */
    int64_t blocks, rows, block_bytes;
    double *took[TASKS];
} bench;

static kv_rc run_task(bench *b, task t, double *seconds, kv_err *err)
{
    const kv_device_ops *ops = b->dev->ops;
    const double begin = kv_bench_now();
    kv_rc rc = t == TASK_COPY    ? ops->copy(b->dev, b->from, b->to, err)
               : t == TASK_STORE ? ops->codec->encode(b->dev, b->batch, b->blocks, err)
                                 : ops->codec->decode(b->dev, b->batch, b->blocks, err);
    if (rc == KV_OK) rc = ops->finish(b->dev, err);
    *seconds = kv_bench_now() - begin;
    return rc;
}

/* As many blocks as there is room for. */
static kv_rc open_batch(bench *b, kv_err *err)
{
    const kv_device_ops *ops = b->dev->ops;
    kv_rc rc = KV_ENOMEM;
    for (b->blocks = strcmp(ops->kind, "cuda") == 0 ? BLOCKS : BLOCKS_EMULATED; rc == KV_ENOMEM && b->blocks > 0;
         b->blocks /= 2) {
        const kv_codec_batch_shape s = {.p = b->half.slot.params, .blocks = b->blocks, .rows = b->rows};
        const int64_t bytes = b->block_bytes * b->blocks / 2;
        memset(err, 0, sizeof *err);
        rc = ops->codec->create(b->dev, &s, &b->batch, err);
        if (rc == KV_OK) rc = ops->image_new(b->dev, bytes, &b->from, err);
        if (rc == KV_OK) rc = ops->image_new(b->dev, bytes, &b->to, err);
        if (rc == KV_OK) rc = ops->poison(b->dev, b->from, bytes, 0, err);
        if (rc == KV_OK) rc = ops->poison(b->dev, b->to, bytes, 1, err);
        if (rc == KV_OK) break;
        ops->codec->destroy(b->dev, b->batch);
        ops->image_free(b->dev, b->from);
        ops->image_free(b->dev, b->to);
        b->batch = NULL;
        b->from = b->to = NULL;
    }
    return rc;
}

static kv_rc fill(bench *b, kv_err *err)
{
    const kv_codec_ops *ops = b->dev->ops->codec;
    kv_codec_params p = b->half.slot.params;
    kv_codec_fit_report report;
    kv_rc rc = KV_OK;
    for (int64_t i = 0; rc == KV_OK && i < b->blocks && i < DIFFERENT; i++) {
        const kv_values_place at = {KV_VALUES_K_LIKE_1, 1, i, 0, KV_CODEC_K, KV_ELEM_F32};
        KV_TRY(rc, out, kv_values_make(&at, b->rows, HEAD_DIM, b->x, err));
        KV_TRY(rc, out, kv_codec_fit(&p, &b->half.fit, b->x, NULL, b->rows, &b->skeleton, &report, err));
        for (int64_t block = i; block < b->blocks; block += DIFFERENT) {
            KV_TRY(rc, out, ops->put_skeleton(b->dev, b->batch, block, &b->skeleton, err));
            KV_TRY(rc, out, ops->put_rows(b->dev, b->batch, block, b->x, err));
        }
    }
out:
    return rc;
}

static kv_rc open_bench(bench *b, int64_t repeat, kv_err *err)
{
    kv_codec_slot_layout slot;
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_recipe_half(KV_CODEC_KV1, KV_CODEC_K, HEAD_DIM, false, &b->half, err));
    KV_TRY(rc, out, kv_codec_slot_sizes(&b->half.slot, &slot, err));
    b->rows = b->half.slot.n;
    b->block_bytes = b->rows * HEAD_DIM * (int64_t)sizeof(float) + slot.total;
    b->x = kv_alloc((size_t)(b->rows * HEAD_DIM), sizeof *b->x);
    for (int t = 0; t < TASKS; t++) b->took[t] = kv_alloc((size_t)repeat, sizeof(double));
    if (b->x == NULL || b->took[0] == NULL || b->took[1] == NULL || b->took[2] == NULL)
        return KV_FAIL(err, KV_ENOMEM, "no memory for measurements");
    KV_TRY(rc, out, kv_codec_skeleton_new(&b->half.slot.params, &b->skeleton, err));
    KV_TRY(rc, out, open_batch(b, err));
    rc = fill(b, err);
out:
    return rc;
}

static void close_bench(bench *b)
{
    b->dev->ops->codec->destroy(b->dev, b->batch);
    b->dev->ops->image_free(b->dev, b->from);
    b->dev->ops->image_free(b->dev, b->to);
    kv_codec_skeleton_free(&b->skeleton);
    kv_free(b->x);
    for (int t = 0; t < TASKS; t++) kv_free(b->took[t]);
}

static void tell_task(const bench *b, task t, double seconds, double copy, bool as_json, json_t *list)
{
    const double bytes = (double)b->block_bytes * (double)b->blocks;
    if (!as_json) {
        printf("%-24s %6" PRId64 " %9.3f %11.3f %9.1f %9.1f %7.3f\n", task_name[t], b->blocks, seconds * 1e3,
               seconds / (double)b->blocks * 1e6, bytes / seconds * 1e-9, bytes / copy * 1e-9, copy / seconds);
        return;
    }
    json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:I,s:I}", "task", task_name[t], "blocks",
                                          (json_int_t)b->blocks, "all_ns", (json_int_t)(seconds * 1e9 + 0.5), "copy_ns",
                                          (json_int_t)(copy * 1e9 + 0.5), "ratio_to_copy_ppm",
                                          (json_int_t)(copy / seconds * 1e6 + 0.5)));
}

static kv_rc measure(bench *b, int64_t repeat, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (int64_t i = -1; i < repeat; i++) /* the first round warms up and does not count */
        for (int t = 0; t < TASKS; t++) {
            double seconds = 0;
            KV_TRY(rc, out, run_task(b, (task)t, &seconds, err));
            if (i >= 0) b->took[t][i] = seconds;
        }
out:
    return rc;
}

kv_rc kv_bench_batch(kv_device *dev, int64_t repeat, bool tell, bool as_json, json_t *list, kv_err *err)
{
    bench b = {.dev = dev};
    kv_rc rc = open_bench(&b, repeat, err);
    if (rc == KV_OK) rc = measure(&b, repeat, err);
    if (rc == KV_OK && tell) {
        const double copy = kv_bench_median(b.took[TASK_COPY], repeat);
        if (!as_json)
            printf("blocks of %" PRId64 " rows of %d, kept directions %" PRId32 ", centres %" PRId32 ", %" PRId32
                   " bits\n%-24s %6s %9s %11s %9s %9s %7s\n",
                   b.rows, HEAD_DIM, b.half.slot.params.d_eff, b.half.slot.params.k, b.half.slot.params.bits, "task",
                   "blocks", "all, ms", "us/block", "GB/s", "copy GB/s", "ratio");
        for (int t = TASK_STORE; t < TASKS; t++)
            tell_task(&b, (task)t, kv_bench_median(b.took[t], repeat), copy, as_json, list);
    }
    close_bench(&b);
    return rc;
}
