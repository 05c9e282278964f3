/* kvgrid bench: speed of each part (or, with --codec, of the KV codec) beside a plain copy of the same bytes, alternating in the same run.
 * Every rank measures at the same time; rank 0 tells its own figures. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grid/bench/kv_bench_batch.h"
#include "grid/bench/kv_bench_codec.h"
#include "grid/bench/kv_bench_time.h"
#include "grid/bench/kv_bench_tp.h"
#include "grid/cell/kv_cell_run.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/run/kv_machine.h"

#define DEFAULT_GEOMETRY "L=1,T=4096,H=8,D=128,e=f16"
#define GPU_GEOMETRY "L=1,T=65536,H=8,D=128,e=f16" /* past a GPU's cache */
#define BATCH_S 2e-3                               /* a GPU's work is timed in batches at least that long */

typedef struct {
    kv_device *dev;
    kv_index ix[2];
    kv_image *image[2], *copy;
    int64_t repeat;
    int64_t batch; /* operations queued before the clock is read; 1 on a CPU */
    double *copy_s, *move_s;
} pair_bench;

typedef struct {
    double copy_gbs, translate_gbs; /* bytes read and written a second */
    int64_t ratio_ppm;              /* median of copy time / translate time, in parts per million */
    double compare_gbs;             /* both images read */
    double probe_mps;               /* million positions a second */
} pair_figures;

/* Counts the pair: `runs` is whether it is to be measured. */
static kv_rc open_pair(pair_bench *b, const kv_campaign *c, const kv_cell *cell, kv_bench_pairs *count, bool *runs,
                       kv_err *err)
{
    const kv_geometry *g = &c->geometries[cell->geometry];
    const kv_layout *side[2] = {c->catalogue.item[cell->src], c->catalogue.item[cell->dst]};
    kv_layout_frontier f;
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    const kv_device_ops *ops = b->dev->ops;
    kv_rc rc;
    KV_TRY(rc, out, kv_pair_frontier(side[0], side[1], g, &f, reason, err));
    *runs = f == KV_X_NONE && g->tokens > 0;
    if (*runs)
        count->measured++;
    else if (f != KV_X_NONE)
        count->refused++;
    else
        count->other++;
    if (!*runs) goto out;
    for (int i = 0; i < 2; i++) {
        KV_TRY(rc, out,
               kv_layout_bind(side[i], g, kv_pair_unit_layers(side[0], side[1], g), &b->ix[i], &state, reason, err));
        KV_TRY(rc, out, ops->image_new(b->dev, kv_index_bytes(&b->ix[i]), &b->image[i], err));
        KV_TRY(rc, out, ops->poison(b->dev, b->image[i], kv_index_bytes(&b->ix[i]), 0, err));
    }
    KV_TRY(rc, out, ops->image_new(b->dev, kv_index_bytes(&b->ix[0]), &b->copy, err));
    KV_TRY(rc, out, ops->poison(b->dev, b->copy, kv_index_bytes(&b->ix[0]), 1, err));
    const kv_payload p = {.seed = 1,
                          .tokens = g->tokens,
                          .kv_heads = g->kv_heads,
                          .lanes = {g->head_dim, g->head_dim_v},
                          .first_head = b->ix[0].first_head,
                          .kind = 0,
                          .element = (int32_t)g->element};
    KV_TRY(rc, out, ops->build(b->dev, b->image[0], &b->ix[0], &p, b->ix[0].element, 0, err));
out:
    return rc;
}

static void close_pair(pair_bench *b)
{
    const kv_device_ops *ops = b->dev->ops;
    ops->image_free(b->dev, b->copy);
    ops->image_free(b->dev, b->image[1]);
    ops->image_free(b->dev, b->image[0]);
    b->copy = b->image[0] = b->image[1] = NULL;
}

/* One batch of copies or translations; seconds for one. */
static kv_rc time_batch(pair_bench *b, bool translate, double *seconds, kv_err *err)
{
    const kv_device_ops *ops = b->dev->ops;
    const double begin = kv_bench_now();
    kv_rc rc = KV_OK;
    for (int64_t i = 0; i < b->batch && rc == KV_OK; i++)
        rc = translate ? ops->translate(b->dev, &b->ix[0], b->image[0], &b->ix[1], b->image[1], 0, err)
                       : ops->copy(b->dev, b->image[0], b->copy, err);
    if (rc == KV_OK) rc = ops->finish(b->dev, err);
    *seconds = (kv_bench_now() - begin) / (double)b->batch;
    return rc;
}

/* How many make a batch: what a GPU does alone is over before the clock has a chance. */
static kv_rc choose_batch(pair_bench *b, kv_err *err)
{
    double one = 0;
    kv_rc rc = KV_OK;
    b->batch = 1;
    if (strcmp(b->dev->ops->kind, "cpu") == 0) return KV_OK;
    for (; rc == KV_OK && b->batch < 1024; b->batch *= 2) {
        rc = time_batch(b, false, &one, err);
        if (one * (double)b->batch >= BATCH_S) break;
    }
    return rc;
}

static kv_rc measure(pair_bench *b, pair_figures *out, kv_err *err)
{
    const kv_device_ops *ops = b->dev->ops;
    kv_compare_result cmp;
    const double copied = 2.0 * (double)kv_index_bytes(&b->ix[0]);
    const double moved = (double)kv_index_bytes(&b->ix[0]) + (double)kv_index_bytes(&b->ix[1]);
    kv_probe_result probe;
    kv_rc rc;
    KV_TRY(rc, out, choose_batch(b, err));
    for (int64_t i = -1; i < b->repeat; i++) { /* the first round warms up and does not count */
        double one_copy, one_move;
        KV_TRY(rc, out, time_batch(b, false, &one_copy, err));
        KV_TRY(rc, out, time_batch(b, true, &one_move, err));
        if (i < 0) continue;
        b->copy_s[i] = one_copy;
        b->move_s[i] = one_move;
    }
    const double copy = kv_bench_median(b->copy_s, b->repeat), move = kv_bench_median(b->move_s, b->repeat);
    const double t3 = kv_bench_now();
    KV_TRY(rc, out, ops->probe(b->dev, &b->ix[1], &probe, err));
    out->probe_mps = (double)probe.checked / (kv_bench_now() - t3) * 1e-6;
    const double t4 = kv_bench_now();
    KV_TRY(rc, out, ops->compare(b->dev, &b->ix[0], b->image[0], b->copy, &cmp, err));
    out->compare_gbs = copied / (kv_bench_now() - t4) * 1e-9;
    if (cmp.differing != 0) rc = KV_FAIL(err, KV_EDEVICE, "a copy differs from what was copied");
    out->copy_gbs = copied / copy * 1e-9;
    out->translate_gbs = moved / move * 1e-9;
    out->ratio_ppm = (int64_t)(copy / copied * moved / move * 1e6 + 0.5);
out:
    return rc;
}

static void tell(const char *id, const pair_figures *f, bool first, json_t *list, bool as_json)
{
    if (!as_json) {
        if (first)
            printf("%-40s %9s %9s %7s %9s %10s\n", "pair", "copy GB/s", "move GB/s", "ratio", "cmp GB/s", "probe M/s");
        printf("%-40s %9.2f %9.2f %7.3f %9.2f %10.1f\n", id, f->copy_gbs, f->translate_gbs, (double)f->ratio_ppm * 1e-6,
               f->compare_gbs, f->probe_mps);
        return;
    }
    json_array_append_new(
        list, json_pack("{s:s,s:I,s:I,s:I,s:I,s:I}", "pair_id", id, "copy_mb_per_s", (json_int_t)(f->copy_gbs * 1e3),
                        "translate_mb_per_s", (json_int_t)(f->translate_gbs * 1e3), "ratio_to_copy_ppm",
                        (json_int_t)f->ratio_ppm, "compare_mb_per_s", (json_int_t)(f->compare_gbs * 1e3),
                        "probe_positions_per_s", (json_int_t)(f->probe_mps * 1e6)));
}

static kv_rc bench_all(const kv_opts *o, const kv_campaign *c, kv_mpi *m, kv_device *dev, json_t *list, kv_err *err)
{
    pair_bench b = {.dev = dev, .repeat = o->repeat};
    kv_bench_pairs count = {.other_cause = "have no tokens"};
    const bool root = kv_mpi_rank(m) == 0;
    kv_rc rc;
    b.copy_s = kv_alloc((size_t)o->repeat, sizeof(double));
    b.move_s = kv_alloc((size_t)o->repeat, sizeof(double));
    rc = b.copy_s != NULL && b.move_s != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for measurements");
    for (size_t i = 0; rc == KV_OK && i < c->n_cells; i++) {
        bool runs = false;
        pair_figures f = {0};
        char id[KV_PAIR_ID_TEXT];
        kv_cell_pair_id(c, &c->cells[i], id);
        rc = open_pair(&b, c, &c->cells[i], &count, &runs, err);
        if (rc == KV_OK && runs) rc = measure(&b, &f, err);
        close_pair(&b);
        if (rc == KV_OK && runs && root) tell(id, &f, count.measured == 1, list, o->json);
    }
    if (rc == KV_OK) rc = kv_bench_left_out(&count, root, err);
    kv_free(b.copy_s);
    kv_free(b.move_s);
    return rc;
}

static kv_rc bench(const kv_opts *given, kv_mpi *m, kv_err *err)
{
    kv_opts o = *given;
    kv_campaign c = {0};
    json_t *list = json_array(), *answer = NULL;
    kv_chosen on = {.dev = NULL};
    char name[256], text[KV_GEOMETRY_TEXT];
    kv_rc rc;
    /* where nothing is said: the CPU, whose figures docs/measurements.md keeps */
    KV_TRY(rc, out, kv_gpu_choose(m, o.device != NULL ? o.device : "cpu", o.share_gpu != 0, &on, err));
    const bool on_gpu = *on.gpu.uuid != '\0';
    if (o.n_geometry == 0) o.geometry[o.n_geometry++] = on_gpu ? GPU_GEOMETRY : DEFAULT_GEOMETRY;
    if (o.pairs == NULL) o.pairs = "published";
    rc = kv_ask_campaign(&o, &c, err);
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    rc = bench_all(&o, &c, m, on.dev, list, err);
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    if (kv_mpi_rank(m) != 0) goto out;
    kv_machine_cpu(name, sizeof name);
    if (on_gpu) snprintf(name, sizeof name, "%s", on.gpu.name);
    kv_geometry_print(&c.geometries[0], text);
    if (o.json) {
        answer = json_pack("{s:s,s:s,s:s,s:i,s:I,s:O}", "device", on.dev->ops->kind, "name", name, "geometry", text,
                           "ranks", kv_mpi_size(m), "repeat", (json_int_t)o.repeat, "pairs", list);
        rc = answer != NULL ? kv_ask_print_json(answer, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the answer");
    } else {
        printf("%s %s, %s, %d rank%s at the same time; GB/s count bytes read and written; ratio = copy time / move "
               "time for the same bytes\n",
               on.dev->ops->kind, name, text, kv_mpi_size(m), kv_mpi_size(m) == 1 ? "" : "s");
    }
out:
    json_decref(answer);
    json_decref(list);
    kv_campaign_free(&c);
    if (on.dev != NULL) on.dev->ops->close(on.dev);
    return rc;
}

/* The codec instead of pairs. */
static kv_rc bench_codec(const kv_opts *o, kv_mpi *m, kv_err *err)
{
    const bool root = kv_mpi_rank(m) == 0;
    json_t *list = json_array(), *answer = NULL;
    kv_chosen on = {.dev = NULL};
    char name[256];
    kv_rc rc;
    KV_TRY(rc, out, kv_gpu_choose(m, o->device != NULL ? o->device : "cpu", o->share_gpu != 0, &on, err));
    const bool on_gpu = *on.gpu.uuid != '\0';
    rc = on_gpu ? kv_bench_batch(on.dev, o->repeat, root, o->json, list, err)
                : kv_bench_codec(o->repeat, root, o->json, list, err);
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    if (!root) goto out;
    kv_machine_cpu(name, sizeof name);
    if (on_gpu) snprintf(name, sizeof name, "%s", on.gpu.name);
    if (o->json) {
        answer = json_pack("{s:s,s:s,s:i,s:I,s:O}", "device", on.dev->ops->kind, "name", name, "ranks", kv_mpi_size(m),
                           "repeat", (json_int_t)o->repeat, "codec", list);
        rc = answer != NULL ? kv_ask_print_json(answer, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the answer");
    } else {
        printf("%s %s, %d rank%s at the same time%s; copy: of as many bytes as a block and its slot\n",
               on.dev->ops->kind, name, kv_mpi_size(m), kv_mpi_size(m) == 1 ? "" : "s",
               on_gpu ? "" : ", one core each");
    }
out:
    json_decref(answer);
    json_decref(list);
    if (on.dev != NULL) on.dev->ops->close(on.dev);
    return rc;
}

/* What does not go together. */
static kv_rc check_options(const kv_opts *o, kv_err *err)
{
    const struct {
        const char *name;
        bool given;
    } other[] = {{"tp", o->tp != 0},
                 {"geometry", o->n_geometry > 0},
                 {"pairs", o->pairs != NULL},
                 {"select", o->select != NULL},
                 {"layouts", o->layouts != NULL}};
    for (size_t i = 0; o->codec && i < sizeof other / sizeof *other; i++)
        if (other[i].given)
            return KV_FAIL(err, KV_EINVAL, "--codec measures blocks of its own; leave --%s out", other[i].name);
    return KV_OK;
}

int kv_cmd_bench(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    kv_mpi *m = NULL;
    if (check_options(o, &err) != KV_OK) return kv_ask_fail_once(&err);
    kv_rc rc = kv_mpi_start((double)o->timeout_s, &m, &err);
    if (rc != KV_OK) {
        (void)kv_ask_fail(&err);
        return KV_EXIT_FAILED;
    }
    rc = o->tp ? kv_bench_tp(o, m, &err) : o->codec ? bench_codec(o, m, &err) : bench(o, m, &err);
    int code = kv_exit_of(rc);
    if (kv_mpi_rank(m) == 0) code = rc == KV_OK ? kv_ask_finish(code) : kv_ask_fail(&err);
    kv_mpi_stop(m, &err);
    return code;
}
