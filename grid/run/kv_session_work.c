/* The work: cells and controls handed out over the ranks; rows come back to rank 0 and into its journal. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/kv_temp.h"
#include "certs/kv_json.h"
#include "grid/cell/kv_fault.h"
#include "grid/run/kv_merge.h"
#include "grid/run/kv_session.h"

static volatile sig_atomic_t stop_asked;

/* What SIGUSR2 tells: prepared before each item, so that the handler only writes. */
#define NOW_TEXT 320
#define AT_FIRST "kvgrid: this rank is getting ready\n"
static char now_text[NOW_TEXT] = AT_FIRST;
static volatile sig_atomic_t now_length = sizeof AT_FIRST - 1;

static void ask_to_stop(int sig)
{
    if (stop_asked) kv_temp_end(sig); /* a second signal stops at once */
    stop_asked = 1;
}

static void tell_now(int sig)
{
    (void)sig;
    if (write(STDERR_FILENO, now_text, (size_t)now_length) < 0) return;
}

void kv_session_catch_signals(void)
{
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_handler = ask_to_stop;
    act.sa_flags = SA_RESTART;
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGUSR1, &act, NULL);
    act.sa_handler = tell_now;
    sigaction(SIGUSR2, &act, NULL);
}

double kv_session_seconds(const kv_session *s)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - s->begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - s->begin.tv_nsec);
}

static void set_now(const kv_session *s, const char *what)
{
    char text[NOW_TEXT];
    const int n = snprintf(text, sizeof text, "kvgrid: rank %d on %s: %s\n", kv_mpi_rank(s->m),
                           kv_mpi_host_view(s->m, kv_mpi_rank(s->m)), what);
    now_length = 0;
    memcpy(now_text, text, sizeof text);
    now_length = n < NOW_TEXT ? n : NOW_TEXT - 1;
}

void kv_session_now_cell(const kv_session *s, int64_t cell)
{
    char id[KV_PAIR_ID_TEXT], g[KV_GEOMETRY_TEXT], text[KV_PAIR_ID_TEXT + KV_GEOMETRY_TEXT + 40];
    kv_cell_pair_id(&s->c, &s->c.cells[cell], id);
    kv_geometry_print(&s->c.geometries[s->c.cells[cell].geometry], g);
    snprintf(text, sizeof text, "cell %" PRId64 ", %s at %s", cell, id, g);
    set_now(s, text);
}

bool kv_session_stop_asked(const kv_session *s)
{
    return stop_asked || (s->o->time_limit_s > 0 && kv_session_seconds(s) >= (double)s->o->time_limit_s);
}

static void on_coming(void *ctx, const int64_t *items, int32_t n)
{
    const kv_session *s = ctx;
    int64_t cells[KV_MPI_COMING];
    if (kv_session_stop_asked(s)) return;
    for (int32_t i = 0; i < n; i++) cells[i] = items[i] < s->n_todo ? s->todo[items[i]] : -1;
    kv_ahead_coming(s->ahead, cells, n);
}

static kv_rc run_item(void *ctx, int64_t item, kv_buf *result, kv_err *err)
{
    kv_session *s = ctx;
    kv_row row;
    if (kv_session_stop_asked(s)) stop_asked = 1;
    if (item >= s->n_todo) {
        set_now(s, "controls");
        return kv_assurance_make((int)(item - s->n_todo), result, err);
    }
    kv_session_now_cell(s, s->todo[item]);
    kv_rc rc = KV_OK;
    if (s->ahead == NULL || !kv_ahead_take(s->ahead, s->todo[item], &row))
        rc = kv_cell_run(&s->runner, &s->c, s->todo[item], &row, err);
    if (rc == KV_OK) rc = kv_fault_cell(kv_mpi_rank(s->m), &row, err);
    if (rc != KV_OK) return rc;
    if (row.verdict == KV_VERDICT_FAILED)
        snprintf(row.failed_at, sizeof row.failed_at, "%d %.140s", kv_mpi_rank(s->m),
                 kv_mpi_host_view(s->m, kv_mpi_rank(s->m)));
    return kv_row_pack(&s->c, &row, result, err);
}

static kv_rc on_result(void *ctx, int64_t item, int rank, const char *bytes, size_t n, kv_err *err)
{
    kv_session *s = ctx;
    if (item >= s->n_todo) return kv_json_parse(bytes, n, KV_JSON_BYTES_MAX, &s->assured[item - s->n_todo], err);
    const kv_merge merge = {
        .c = &s->c, .todo = s->todo, .n_todo = s->n_todo, .rows = s->rows, .ranks = s->ranks, .journal = s->journal};
    kv_row row;
    const kv_rc rc = kv_merge_take(&merge, item, rank, bytes, n, &row, err);
    if (rc != KV_OK) return rc;
    const double units = row.ran && row.unit_layers > 0 ? (double)(row.layers / row.unit_layers) : 0;
    kv_progress_add(&s->progress, rank, (double)s->costs[item], (double)(row.checked + row.source_checked),
                    3.0 * units * row.gather_payloads * ((double)row.native_bytes[0] + (double)row.native_bytes[1]));
    return KV_OK;
}

static void on_progress(void *ctx, const kv_mpi_progress *p)
{
    kv_session *s = ctx;
    kv_journal_tick(s->journal, p->items_done == p->items_total);
    kv_progress_step(&s->progress, p);
}

static kv_rc make_costs(kv_session *s, kv_err *err)
{
    const size_t n = (size_t)s->n_todo;
    s->costs = kv_alloc(n + KV_ASSURANCE_ITEMS, sizeof *s->costs);
    if (s->costs == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu costs", n);
    for (size_t i = 0; i < n; i++) s->costs[i] = s->plan.costs[s->todo[i]];
    for (size_t i = 0; i < KV_ASSURANCE_ITEMS; i++) s->costs[n + i] = KV_ASSURANCE_COST(i);
    return KV_OK;
}

kv_rc kv_session_compute(kv_session *s, kv_err *err)
{
    const bool root = kv_session_is_root(s);
    const int64_t memory = s->runner.memory_bytes > 0 ? s->runner.memory_bytes / 2 : s->on.gpu.memory_bytes / 4;
    kv_rc rc = make_costs(s, err);
    if (rc == KV_OK) rc = kv_ahead_new(&s->runner, &s->c, memory, KV_AHEAD_SMALL, &s->ahead, err);
    rc = kv_mpi_agree(s->m, rc, err);
    if (rc != KV_OK) {
        kv_ahead_free(s->ahead);
        s->ahead = NULL;
        return rc;
    }
    const kv_mpi_job job = {.n_items = s->n_todo + KV_ASSURANCE_ITEMS,
                            .costs = s->costs,
                            .ctx = s,
                            .run_item = run_item,
                            .coming = s->ahead != NULL ? on_coming : NULL,
                            .on_result = on_result,
                            .on_progress = on_progress,
                            .stop = &stop_asked};
    KV_TRY(rc, out,
           kv_mpi_agree(s->m,
                        kv_progress_start(&s->progress, s->o->progress != NULL && strcmp(s->o->progress, "none") == 0,
                                          kv_mpi_size(s->m), err),
                        err));
    if (root && s->n_resumed > 0 && !s->progress.off)
        fprintf(stderr, "kvgrid: %" PRId64 " of %zu cells stand in %s/journal\n", s->n_resumed, s->c.n_cells,
                s->o->state);
    rc = kv_mpi_handout(s->m, &job, err);
out:
    kv_ahead_free(s->ahead);
    s->ahead = NULL;
    kv_progress_end(&s->progress);
    return rc;
}
