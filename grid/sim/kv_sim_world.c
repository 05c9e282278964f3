/* The events of one run: who wakes when. */
#include <string.h>

#include "grid/sim/kv_sim_int.h"

/* ---- the heap ---- */

static bool before(const kv_sim_event *a, const kv_sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void swap(kv_sim_event *a, kv_sim_event *b)
{
    const kv_sim_event t = *a;
    *a = *b;
    *b = t;
}

static bool make_room(kv_sim_world *w)
{
    if (w->n_heap < w->cap_heap) return true;
    const size_t cap = w->cap_heap < 64 ? 64 : 2 * w->cap_heap;
    kv_sim_event *heap = kv_realloc(w->heap, cap, sizeof *heap);
    if (heap == NULL) return false;
    w->heap = heap;
    w->cap_heap = cap;
    return true;
}

void kv_sim_at(kv_sim_world *w, uint64_t at, int kind, int rank, uint32_t turn)
{
    if (!make_room(w)) {
        kv_sim_abort(w, KV_ENOMEM, "no memory for an event");
        return;
    }
    size_t i = w->n_heap++;
    w->heap[i] = (kv_sim_event){.at = at, .order = w->sequence++, .kind = kind, .rank = rank, .turn = turn};
    for (; i > 0 && before(&w->heap[i], &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&w->heap[i], &w->heap[(i - 1) / 2]);
}

static bool pop(kv_sim_world *w, kv_sim_event *out)
{
    if (w->n_heap == 0) return false;
    *out = w->heap[0];
    w->heap[0] = w->heap[--w->n_heap];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t k = 2 * i + 1; k <= 2 * i + 2; k++)
            if (k < w->n_heap && before(&w->heap[k], &w->heap[least])) least = k;
        if (least == i) return true;
        swap(&w->heap[i], &w->heap[least]);
        i = least;
    }
}

/* ---- sleeping and waking ---- */

uint64_t kv_sim_next_look(const kv_sim_model *m, uint64_t origin, uint64_t look_ns, uint64_t t)
{
    uint64_t at = origin + KV_MPI_YIELDS * look_ns, sleep = KV_MPI_SLEEP_LEAST_NS;
    if (t <= at) return t;
    while (sleep < KV_MPI_SLEEP_MOST_NS) {
        at += sleep + m->wake_ns + look_ns;
        if (t <= at) return at;
        sleep *= 2;
    }
    const uint64_t each = KV_MPI_SLEEP_MOST_NS + m->wake_ns + look_ns;
    return at + (t - at + each - 1) / each * each;
}

static void schedule(kv_sim_world *w, kv_sim_thread *t, int kind, int rank, uint64_t at)
{
    if (w->jitter_ns > 0) at += kv_sim_below(&w->chance, w->jitter_ns);
    t->wake = at;
    kv_sim_at(w, at, kind, rank, ++t->turn);
}

void kv_sim_sleep(kv_sim_world *w, kv_sim_thread *t, int kind, int rank, uint64_t look_ns, uint64_t at)
{
    t->sleeping = true;
    t->busy_until = w->now;
    schedule(w, t, kind, rank, kv_sim_next_look(w->model, t->origin, look_ns, at > w->now ? at : w->now));
}

void kv_sim_wake(kv_sim_world *w, kv_sim_thread *t, int kind, int rank, uint64_t look_ns, uint64_t at)
{
    if (!t->sleeping) return;
    if (at < t->busy_until) at = t->busy_until;
    at = kv_sim_next_look(w->model, t->origin, look_ns, at);
    if (at < t->wake) schedule(w, t, kind, rank, at);
}

/* ---- life ---- */

static uint64_t clock_of(void *ctx)
{
    return ((const kv_sim_world *)ctx)->now;
}

static kv_rc no_item(void *ctx, int64_t item, kv_buf *result, kv_err *err)
{
    (void)ctx;
    (void)item;
    (void)result;
    return KV_FAIL(err, KV_EBUG, "items are run by event");
}

static kv_rc deliver(void *ctx, int64_t item, int rank, const char *bytes, size_t n, kv_err *err)
{
    kv_sim_world *w = ctx;
    w->now += w->model->row_ns;
    if (w->disk != NULL) w->disk->spent_ns = 0;
    const kv_rc rc = w->on_result(w, item, rank, bytes, n, err);
    if (w->disk != NULL) w->now += w->disk->spent_ns;
    return rc;
}

static void progress(void *ctx, const kv_mpi_progress *p)
{
    kv_sim_world *w = ctx;
    if (w->disk != NULL) w->disk->spent_ns = 0;
    w->on_progress(w, p);
    if (w->disk != NULL) w->now += w->disk->spent_ns;
}

kv_rc kv_sim_world_init(kv_sim_world *w, kv_err *err)
{
    w->workers = kv_alloc((size_t)w->ranks, sizeof *w->workers);
    w->stop = kv_alloc((size_t)w->ranks, sizeof *w->stop);
    if (w->workers == NULL || w->stop == NULL)
        return KV_FAIL(err, KV_ENOMEM, "no memory to simulate %d ranks", w->ranks);
    w->job = (kv_mpi_job){.n_items = w->n_items,
                          .costs = w->costs,
                          .ctx = w,
                          .run_item = no_item,
                          .on_result = deliver,
                          .on_progress = progress,
                          .stop = w->stop};
    w->main_item = w->main_delivered = -1;
    kv_rc rc = kv_mpi_order_new(w->n_items, w->costs, &w->order, err);
    for (int i = 1; i < w->ranks && rc == KV_OK; i++) {
        w->workers[i].work = (kv_mpi_work){.rank = i,
                                           .order = &w->order,
                                           .limit_ns = (uint64_t)(w->timeout_s * 1e9),
                                           .clock = clock_of,
                                           .clock_ctx = w};
        rc = kv_mpi_work_begin(&w->workers[i].work, err);
    }
    return rc;
}

void kv_sim_world_free(kv_sim_world *w)
{
    kv_mpi_hub_free(w->hub);
    for (int i = 0; w->workers != NULL && i < w->ranks; i++) {
        kv_mpi_work_free(&w->workers[i].work);
        kv_sim_inbox_free(&w->workers[i].inbox);
    }
    kv_sim_inbox_free(&w->inbox);
    kv_mpi_order_free(&w->order);
    kv_buf_free(&w->bytes);
    kv_free((void *)(uintptr_t)w->stop);
    kv_free(w->workers);
    kv_free(w->heap);
}

void kv_sim_abort(kv_sim_world *w, kv_rc rc, const char *why)
{
    if (w->aborted || w->root_done) {
        w->aborted = true;
        return;
    }
    w->aborted = true;
    w->end_ns = w->now;
    w->rc = KV_FAIL(&w->err, rc, "%s", why);
}

/* ---- the run ---- */

/* A paused rank does nothing; its events wait. */
static bool paused(kv_sim_world *w, const kv_sim_event *e)
{
    if (w->paused_until == NULL || e->kind > KV_SIM_EV_WORKER) return false;
    if (e->at < w->paused_from[e->rank] || e->at >= w->paused_until[e->rank]) return false;
    kv_sim_at(w, w->paused_until[e->rank], e->kind, e->rank, e->turn);
    return true;
}

static void stop_rank(kv_sim_world *w, int rank)
{
    w->stop[rank] = 1;
    if (w->hub == NULL) return;
    if (rank == 0)
        kv_sim_helper_notify(w, w->now);
    else
        kv_sim_worker_notify(w, rank, w->now);
}

static void handle(kv_sim_world *w, const kv_sim_event *e)
{
    kv_sim_worker *k = &w->workers[e->rank];
    if (k->dead && e->kind <= KV_SIM_EV_WORKER) return;
    switch (e->kind) {
    case KV_SIM_EV_HELPER:
        if (e->turn != w->helper.turn) return;
        w->helper.sleeping = false;
        kv_sim_helper_step(w);
        return;
    case KV_SIM_EV_MAIN: kv_sim_main_step(w, w->main_item >= 0); return;
    case KV_SIM_EV_WORKER:
        if (e->turn != k->thread.turn || k->ended) return;
        k->thread.sleeping = false;
        kv_sim_worker_step(w, e->rank);
        return;
    case KV_SIM_EV_STOP: stop_rank(w, e->rank); return;
    case KV_SIM_EV_DIE: k->dead = true; return;
    case KV_SIM_EV_KILL: kv_sim_abort(w, KV_EPEER, "the launcher ended the job"); return;
    case KV_SIM_EV_TIME_UP: break;
    }
}

/* All that live have come to their end. */
static bool over(const kv_sim_world *w)
{
    if (w->aborted || (w->disk != NULL && w->disk->killed)) return true;
    if (!w->root_done && !w->workers[0].dead) return false;
    if (w->hub->broken) return true; /* rank 0 ends the job */
    for (int i = 1; i < w->ranks; i++)
        if (!w->workers[i].ended && !w->workers[i].dead) return false;
    return true;
}

static kv_rc events(kv_sim_world *w, kv_err *err)
{
    kv_sim_event e;
    while (!over(w)) {
        if (!pop(w, &e))
            return KV_FAIL(err, KV_EBUG, "the run hangs: at %.6f s no one will ever do anything again",
                           (double)w->now * 1e-9);
        if (paused(w, &e)) continue;
        w->now = e.at;
        if (w->now > w->bound_ns) return KV_FAIL(err, KV_EBUG, "the run hangs: %.3f s are over", (double)w->now * 1e-9);
        handle(w, &e);
    }
    return KV_OK;
}

/* ---- one rank: the solo loop; an item takes its time inside run_item ---- */

static kv_rc solo_item(void *ctx, int64_t item, kv_buf *result, kv_err *err)
{
    kv_sim_world *w = ctx;
    const uint64_t ns = w->duration(w, 0, item), end = ns == UINT64_MAX ? ns : w->now + ns;
    for (size_t i = 0; i < w->n_heap; i++) { /* few: what is done to rank 0 */
        const kv_sim_event *e = &w->heap[i];
        if (e->at > end) continue;
        if (e->kind == KV_SIM_EV_STOP && e->rank == 0) w->stop[0] = 1;
        if (e->kind == KV_SIM_EV_KILL || (e->kind == KV_SIM_EV_DIE && e->rank == 0))
            kv_sim_abort(w, KV_EPEER, "the launcher ended the job");
    }
    if (w->aborted) return KV_FAIL(err, KV_EPEER, "killed");
    if (ns == UINT64_MAX) { /* alone, no one notices: whoever started it kills it */
        kv_sim_abort(w, KV_ETIME, "an item hangs");
        return KV_FAIL(err, KV_ETIME, "an item hangs");
    }
    w->now = end;
    w->workers[0].items++;
    w->workers[0].busy_ns += ns;
    return w->run_item(w, 0, item, result, err);
}

static kv_rc run_solo(kv_sim_world *w)
{
    kv_mpi_job job = w->job;
    job.run_item = solo_item;
    const kv_rc rc = kv_mpi_solo(&job, &w->order, clock_of, w, &w->err);
    if (!w->aborted) w->rc = rc;
    w->root_done = !w->aborted;
    w->end_ns = w->now;
    return KV_OK;
}

kv_rc kv_sim_world_run(kv_sim_world *w, kv_err *err)
{
    const kv_mpi_hub_setup setup = {.job = &w->job,
                                    .order = &w->order,
                                    .ranks = w->ranks,
                                    .timeout_s = w->timeout_s,
                                    .clock = clock_of,
                                    .clock_ctx = w};
    if (w->ranks == 1) return run_solo(w);
    kv_rc rc = kv_mpi_hub_new(&setup, &w->hub, err);
    if (rc != KV_OK) return rc;
    kv_mpi_hub_begin(w->hub);
    w->helper.origin = w->helper_checked = w->now;
    kv_sim_sleep(w, &w->helper, KV_SIM_EV_HELPER, 0, 0, w->now);
    kv_sim_at(w, w->now, KV_SIM_EV_MAIN, 0, 0);
    for (int i = 1; i < w->ranks; i++) {
        kv_mpi_work *k = &w->workers[i].work;
        k->heard_ns = k->flushed_ns = w->workers[i].thread.origin = w->now;
        kv_sim_sleep(w, &w->workers[i].thread, KV_SIM_EV_WORKER, i, 0, w->now);
    }
    return events(w, err);
}
