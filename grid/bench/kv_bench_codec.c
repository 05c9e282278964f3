#include "grid/bench/kv_bench_codec.h"
#include "grid/bench/kv_bench_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/codec/kv_codec_fit.h"
#include "kernels/codec/kv_codec_recipe.h"
#include "kernels/codec/kv_codec_rng.h"

#define HEAD_DIM 128
#define BLOCKS 64 /* of the tasks on many blocks */
#define LEAD 8    /* of K-like rows: a few strong directions, a mean, noise */

typedef struct {
    kv_codec_half_config half;
    const kv_codec_params *p;
    kv_codec_skeleton skeleton, fitted;
    kv_codec_work *work;
    kv_codec_codes codes[BLOCKS];
    float *x, *y; /* [BLOCKS][rows][dim] */
    char *from, *to;
    int64_t rows, slot_bytes, row_bytes; /* of a block: rows; its slot; its rows as float32 */
    double *task_s, *copy_s;
    const kv_codec_variant *variant;
    int32_t solver;
} codec_bench;

typedef struct {
    const char *name;
    int64_t blocks; /* at once */
    kv_rc (*run)(codec_bench *b, int64_t blocks, kv_err *err);
    int32_t solver; /* of a full store, else -1 */
    bool every_variant;
} task;

/* ---- the tasks -------------------------------------------------------------------------- */

/* Each block brings its own skeleton, so that taking it is part of the work. */
static kv_rc run_decode(codec_bench *b, int64_t blocks, kv_err *err)
{
    (void)err;
    for (int64_t i = 0; i < blocks; i++) {
        kv_codec_work_set(b->work, &b->skeleton);
        b->variant->decode(b->work, &b->codes[i], b->y + i * b->rows * b->p->dim);
    }
    return KV_OK;
}

static kv_rc run_frozen(codec_bench *b, int64_t blocks, kv_err *err)
{
    (void)err;
    for (int64_t i = 0; i < blocks; i++) {
        kv_codec_work_set(b->work, &b->skeleton);
        b->variant->encode(b->work, b->x + i * b->rows * b->p->dim, b->rows, &b->codes[i]);
    }
    return KV_OK;
}

static kv_rc run_store(codec_bench *b, int64_t blocks, kv_err *err)
{
    kv_codec_fit_opts opts = b->half.fit;
    kv_rc rc = KV_OK;
    opts.solver = b->solver;
    for (int64_t i = 0; i < blocks && rc == KV_OK; i++) {
        kv_codec_params p = *b->p;
        kv_codec_fit_report report;
        const float *x = b->x + i * b->rows * b->p->dim;
        rc = kv_codec_fit(&p, &opts, x, NULL, b->rows, &b->fitted, &report, err);
        if (rc != KV_OK) break;
        kv_codec_work_set(b->work, &b->fitted);
        b->variant->encode(b->work, x, b->rows, &b->codes[i]);
    }
    return rc;
}

static const task tasks[] = {
    {"decode", 1, run_decode, -1, true},
    {"store, skeleton given", 1, run_frozen, -1, true},
    {"decode, many blocks", BLOCKS, run_decode, -1, false},
    {"store, skeleton given, many blocks", BLOCKS, run_frozen, -1, false},
    {"store with fit, LAPACK", 1, run_store, KV_CODEC_SOLVER_LAPACK, false},
    {"store with fit, own solver", 1, run_store, KV_CODEC_SOLVER_OWN, false},
    {"store with fit, randomized", 1, run_store, KV_CODEC_SOLVER_RANDOMIZED, false},
    {"store with fit, LAPACK, many blocks", BLOCKS, run_store, KV_CODEC_SOLVER_LAPACK, false},
};

/* ---- set up ----------------------------------------------------------------------------- */

/* A value with mean 0 and deviation 1, from four draws. */
static float noise(kv_codec_rng *r)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += kv_codec_draw_f32(r, -1.0f, 1.0f);
    return sum * 0.866f;
}

static void fill(codec_bench *b)
{
    kv_codec_rng r = kv_codec_rng_seed(1);
    float lead[LEAD][HEAD_DIM], mean[HEAD_DIM];
    for (int j = 0; j < HEAD_DIM; j++) {
        mean[j] = 2 * noise(&r);
        for (int a = 0; a < LEAD; a++) lead[a][j] = noise(&r) * 0.3f;
    }
    for (int64_t i = 0; i < BLOCKS * b->rows; i++) {
        float *row = b->x + i * HEAD_DIM, along[LEAD];
        for (int a = 0; a < LEAD; a++) along[a] = noise(&r);
        for (int j = 0; j < HEAD_DIM; j++) {
            row[j] = mean[j] + 0.3f * noise(&r);
            for (int a = 0; a < LEAD; a++) row[j] += along[a] * lead[a][j];
        }
    }
}

static kv_rc open_bench(codec_bench *b, int64_t repeat, kv_err *err)
{
    kv_codec_slot_layout layout;
    kv_codec_fit_report report;
    kv_codec_params p;
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_recipe_half(KV_CODEC_KV1, KV_CODEC_K, HEAD_DIM, false, &b->half, err));
    KV_TRY(rc, out, kv_codec_slot_sizes(&b->half.slot, &layout, err));
    b->p = &b->half.slot.params;
    b->rows = b->half.slot.n;
    b->slot_bytes = layout.total;
    b->row_bytes = b->rows * b->p->dim * (int64_t)sizeof(float);
    b->x = kv_alloc_image((size_t)(BLOCKS * b->row_bytes));
    b->y = kv_alloc_image((size_t)(BLOCKS * b->row_bytes));
    b->from = kv_alloc_image((size_t)(BLOCKS * b->row_bytes));
    b->to = kv_alloc_image((size_t)(BLOCKS * b->row_bytes));
    b->task_s = kv_alloc((size_t)repeat, sizeof(double));
    b->copy_s = kv_alloc((size_t)repeat, sizeof(double));
    if (b->x == NULL || b->y == NULL || b->from == NULL || b->to == NULL || b->task_s == NULL || b->copy_s == NULL)
        return KV_FAIL(err, KV_ENOMEM, "no memory for measurements");
    memset(b->from, 1, (size_t)(BLOCKS * b->row_bytes));
    fill(b);
    KV_TRY(rc, out, kv_codec_skeleton_new(b->p, &b->skeleton, err));
    KV_TRY(rc, out, kv_codec_skeleton_new(b->p, &b->fitted, err));
    p = *b->p;
    KV_TRY(rc, out, kv_codec_fit(&p, &b->half.fit, b->x, NULL, b->rows, &b->skeleton, &report, err));
    KV_TRY(rc, out, kv_codec_work_new(b->p, &b->skeleton, &b->work, err));
    for (int64_t i = 0; i < BLOCKS; i++) KV_TRY(rc, out, kv_codec_codes_new(b->p, b->rows, false, &b->codes[i], err));
    b->variant = kv_codec_best();
    rc = run_frozen(b, BLOCKS, err);
out:
    return rc;
}

static void close_bench(codec_bench *b)
{
    for (int64_t i = 0; i < BLOCKS; i++) kv_codec_codes_free(&b->codes[i]);
    kv_codec_work_free(b->work);
    kv_codec_skeleton_free(&b->fitted);
    kv_codec_skeleton_free(&b->skeleton);
    kv_free(b->copy_s);
    kv_free(b->task_s);
    kv_free(b->to);
    kv_free(b->from);
    kv_free(b->y);
    kv_free(b->x);
}

/* ---- measure and tell ------------------------------------------------------------------- */

/* Seconds a block; best: the least of all measurements, which other programs on the machine disturb least. */
typedef struct {
    double task_s, task_best_s, copy_s, copy_best_s;
} figures;

/* The task, and a copy that reads and writes as many bytes. */
static kv_rc measure(codec_bench *b, const task *t, int64_t repeat, figures *out, kv_err *err)
{
    const size_t bytes = (size_t)((b->slot_bytes + b->row_bytes) / 2 * t->blocks);
    for (int64_t i = -1; i < repeat; i++) { /* the first round warms up */
        const double t0 = kv_bench_now();
        memcpy(b->to, b->from, bytes);
        const double t1 = kv_bench_now();
        const kv_rc rc = t->run(b, t->blocks, err);
        const double t2 = kv_bench_now();
        if (rc != KV_OK) return rc;
        b->from[0] = b->to[bytes - 1]; /* the copy is used */
        if (i < 0) continue;
        b->copy_s[i] = t1 - t0;
        b->task_s[i] = t2 - t1;
    }
    out->copy_s = kv_bench_median(b->copy_s, repeat) / (double)t->blocks;
    out->task_s = kv_bench_median(b->task_s, repeat) / (double)t->blocks;
    out->copy_best_s = b->copy_s[0] / (double)t->blocks; /* sorted by now */
    out->task_best_s = b->task_s[0] / (double)t->blocks;
    return KV_OK;
}

static void tell_task(const codec_bench *b, const task *t, const figures *f, bool as_json, json_t *list)
{
    if (!as_json) {
        printf("%-36s %-10s %6" PRId64 " %9.4f %9.4f %9.4f %7.4f\n", t->name, b->variant->name, t->blocks,
               f->task_s * 1e3, f->task_best_s * 1e3, f->copy_s * 1e3, f->copy_best_s / f->task_best_s);
        return;
    }
    json_array_append_new(
        list, json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I}", "task", t->name, "variant", b->variant->name, "blocks",
                        (json_int_t)t->blocks, "block_ns", (json_int_t)(f->task_s * 1e9 + 0.5), "block_best_ns",
                        (json_int_t)(f->task_best_s * 1e9 + 0.5), "copy_block_ns", (json_int_t)(f->copy_s * 1e9 + 0.5),
                        "copy_block_best_ns", (json_int_t)(f->copy_best_s * 1e9 + 0.5), "ratio_to_copy_ppm",
                        (json_int_t)(f->copy_best_s / f->task_best_s * 1e6 + 0.5)));
}

static kv_rc run_task(codec_bench *b, const task *t, int64_t repeat, bool tell, bool as_json, json_t *list, kv_err *err)
{
    kv_rc rc = KV_OK;
    b->solver = t->solver;
    if (t->solver == KV_CODEC_SOLVER_LAPACK && !kv_codec_has_lapack()) return KV_OK;
    for (const kv_codec_variant *v = kv_codec_variants(); rc == KV_OK && v->name != NULL; v++) {
        figures f;
        if (!v->runs_here() || (!t->every_variant && v != kv_codec_best())) continue;
        b->variant = v;
        rc = measure(b, t, repeat, &f, err);
        if (rc == KV_OK && tell) tell_task(b, t, &f, as_json, list);
    }
    return rc;
}

kv_rc kv_bench_codec(int64_t repeat, bool tell, bool as_json, json_t *list, kv_err *err)
{
    codec_bench *b = kv_alloc(1, sizeof *b);
    if (b == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for measurements");
    kv_rc rc = open_bench(b, repeat, err);
    if (rc == KV_OK && tell && !as_json)
        printf("blocks of %" PRId64 " rows of %d, kept directions %" PRId32 ", centres %" PRId32 ", %" PRId32
               " bits; slot %" PRId64 " bytes\n%-36s %-10s %6s %9s %9s %9s %7s\n",
               b->rows, HEAD_DIM, b->p->d_eff, b->p->k, b->p->bits, b->slot_bytes, "task", "variant", "blocks",
               "ms/block", "best ms", "copy ms", "ratio");
    for (size_t i = 0; rc == KV_OK && i < sizeof tasks / sizeof tasks[0]; i++)
        rc = run_task(b, &tasks[i], repeat, tell, as_json, list, err);
    close_bench(b);
    kv_free(b);
    return rc;
}
