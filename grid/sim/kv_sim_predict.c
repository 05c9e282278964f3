/* A forecast: the plan's cells and the controls on many ranks, undisturbed. */
#include <stdio.h>
#include <string.h>

#include "grid/sim/kv_sim_int.h"

#define CONTROL_BYTES 12000 /* of the JSON text of one item of controls, about */

kv_sim_model kv_sim_model_default(void)
{
    return (kv_sim_model){.latency_ns = 2000,
                          .bytes_per_ns = 5.0,
                          .eager_bytes = 4096,
                          .message_ns = 2000,
                          .look_ns = 100,
                          .row_ns = 20000,
                          .wake_ns = 55000,
                          .sync_ns = 4000000};
}

/* What the forecast needs while the world turns. */
typedef struct {
    const kv_plan *p;
    int64_t *todo;
    bool *done;
    double slow; /* ranks that share a core */
    kv_merge merge;
    kv_journal *journal;
    kv_sim_disk disk;
    kv_sim_view view;
} forecast;

static uint64_t duration(const kv_sim_world *w, int rank, int64_t item)
{
    const forecast *f = w->owner;
    (void)rank;
    return (uint64_t)((double)w->costs[item] * f->slow);
}

static kv_rc run_item(kv_sim_world *w, int rank, int64_t item, kv_buf *result, kv_err *err)
{
    const forecast *f = w->owner;
    (void)rank;
    if (item < f->merge.n_todo) {
        kv_row row;
        kv_sim_row(0, f->todo[item], &row);
        return kv_row_pack(f->merge.c, &row, result, err);
    }
    for (int i = 0; i < CONTROL_BYTES / 100; i++) {
        const kv_rc rc = kv_buf_printf(result, err, "%100s", "");
        if (rc != KV_OK) return rc;
    }
    return KV_OK;
}

static kv_rc on_result(kv_sim_world *w, int64_t item, int rank, const char *bytes, size_t n, kv_err *err)
{
    const forecast *f = w->owner;
    kv_row row;
    return item < f->merge.n_todo ? kv_merge_take(&f->merge, item, rank, bytes, n, &row, err) : KV_OK;
}

static void on_progress(kv_sim_world *w, const kv_mpi_progress *p)
{
    const forecast *f = w->owner;
    kv_journal_tick(f->journal, p->items_done == p->items_total);
}

static void read_world(const kv_sim_world *w, const forecast *f, kv_sim_forecast *out)
{
    double work = 0, longest = 0, least = 1e300;
    for (int64_t i = 0; i < w->n_items; i++) {
        const double s = (double)w->costs[i] * 1e-9;
        work += s;
        if (s * f->slow > longest) longest = s * f->slow;
    }
    const double span = (double)w->end_ns * 1e-9;
    const int workers = w->model->cores > 0 && w->model->cores < w->ranks ? w->model->cores : w->ranks;
    for (int i = 0; i < w->ranks; i++)
        if ((double)w->workers[i].busy_ns < least) least = (double)w->workers[i].busy_ns;
    const double full = (double)w->end_ns > 0 ? (double)w->end_ns : 1;
    *out = (kv_sim_forecast){.ranks = w->ranks,
                             .makespan_s = span,
                             .work_s = work,
                             .efficiency = span > 0 ? work / (workers * span) : 1,
                             .longest_s = longest,
                             .messages = w->messages,
                             .bytes = w->message_bytes,
                             .helper_share = (double)w->helper_busy_ns / full,
                             .root_share = ((double)w->workers[0].busy_ns) / full,
                             .least_share = least / full};
}

static kv_rc set_up(forecast *f, kv_sim_world *w, const kv_campaign *c, uint64_t **costs, kv_err *err)
{
    static const char digest[] = "0000000000000000000000000000000000000000000000000000000000000000";
    int64_t n_done = 0;
    f->todo = kv_alloc(c->n_cells, sizeof *f->todo);
    f->done = kv_alloc(c->n_cells, sizeof *f->done);
    *costs = kv_alloc(c->n_cells + KV_ASSURANCE_ITEMS, sizeof **costs);
    if (f->todo == NULL || f->done == NULL || *costs == NULL)
        return KV_FAIL(err, KV_ENOMEM, "no memory to simulate %zu cells", c->n_cells);
    kv_sim_disk_init(&f->disk, 1, &w->now);
    f->disk.sync_ns = w->model->sync_ns;
    kv_sim_view_init(&f->view, &f->disk, "here", 1000, 1);
    kv_rc rc = kv_pack_new(c, &f->merge.rows, err);
    if (rc == KV_OK)
        rc = kv_journal_open_on(&f->view.table, "state", c, digest, f->merge.rows, f->done, &n_done, &f->journal, err);
    f->merge.c = c;
    f->merge.todo = f->todo;
    f->merge.n_todo = kv_merge_todo(f->done, c->n_cells, f->todo);
    f->merge.journal = f->journal;
    for (int64_t i = 0; i < f->merge.n_todo; i++) (*costs)[i] = f->p->costs[f->todo[i]];
    for (int64_t i = 0; i < KV_ASSURANCE_ITEMS; i++) (*costs)[f->merge.n_todo + i] = KV_ASSURANCE_COST(i);
    w->costs = *costs;
    w->n_items = f->merge.n_todo + KV_ASSURANCE_ITEMS;
    return rc;
}

kv_rc kv_sim_predict(const kv_campaign *c, const kv_plan *p, const kv_sim_model *model, int ranks, double timeout_s,
                     kv_sim_forecast *out, kv_err *err)
{
    uint64_t *costs = NULL;
    forecast f = {.p = p, .slow = model->cores > 0 && model->cores < ranks ? (double)ranks / model->cores : 1};
    kv_sim_world w = {.model = model,
                      .ranks = ranks,
                      .timeout_s = timeout_s,
                      .duration = duration,
                      .run_item = run_item,
                      .on_result = on_result,
                      .on_progress = on_progress,
                      .owner = &f,
                      .disk = &f.disk,
                      .bound_ns = UINT64_MAX};
    kv_rc rc;
    KV_TRY(rc, out, set_up(&f, &w, c, &costs, err));
    KV_TRY(rc, out, kv_sim_world_init(&w, err));
    KV_TRY(rc, out, kv_sim_world_run(&w, err));
    if (w.rc != KV_OK) {
        rc = KV_FAIL(err, w.rc, "the simulated run ends with: %s", w.err.text);
        goto out;
    }
    read_world(&w, &f, out);
out:
    if (kv_journal_close(f.journal, NULL) != KV_OK && rc == KV_OK)
        rc = KV_FAIL(err, KV_EBUG, "the simulated journal cannot be closed");
    kv_sim_world_free(&w);
    kv_sim_disk_free(&f.disk);
    kv_pack_free(f.merge.rows);
    kv_free(f.done);
    kv_free(f.todo);
    kv_free(costs);
    return rc;
}
