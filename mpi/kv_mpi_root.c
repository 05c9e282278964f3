/* Rank 0's half of the hand-out: its main thread takes items one by one from the same pool that
 * the helper thread (kv_mpi_helper.c) serves the other ranks from. This thread calls no MPI
 * while the helper lives. */
#include <signal.h>
#include <string.h>

#include "mpi/kv_mpi_root.h"

void kv_mpi_root_stop(kv_mpi_root *r, kv_rc rc, int rank, int64_t item, const kv_err *err)
{
    pthread_mutex_lock(&r->lock);
    kv_mpi_outcome_set(&r->outcome, rc, rank, item, err);
    kv_mpi_pool_close(&r->pool);
    r->stopping = true;
    pthread_mutex_unlock(&r->lock);
}

/* Gives one result to the caller; false when on_result failed, now or before. Holding deliver. */
static bool hand_over(kv_mpi_root *r, int rank, const kv_mpi_result *res)
{
    kv_err err = {0};
    if (r->no_more_results) return false;
    const kv_rc rc = r->job->on_result(r->job->ctx, res->item, rank, res->bytes, res->n, &err);
    if (rc == KV_OK) return true;
    r->no_more_results = true;
    pthread_mutex_lock(&r->lock);
    if (r->outcome.rc == KV_EINTR) r->outcome.rc = KV_OK; /* "interrupted" would promise that all is saved */
    pthread_mutex_unlock(&r->lock);
    kv_mpi_root_stop(r, rc, 0, res->item, &err);
    return false;
}

/* Each lock is taken once per report, not per item: main holds them most of the time when items are tiny. */
bool kv_mpi_root_deliver(kv_mpi_root *r, int rank, const kv_mpi_report_reader *report, double busy_s)
{
    kv_mpi_report_reader reader = *report;
    kv_mpi_result res;
    bool due = true;
    pthread_mutex_lock(&r->deliver);
    const bool dead = r->no_more_results;
    pthread_mutex_unlock(&r->deliver);
    if (dead) return true; /* the books are not kept any more either */
    pthread_mutex_lock(&r->lock);
    for (int64_t k = 0; due && kv_mpi_report_next(&reader, &res); k++)
        due = kv_mpi_pool_nth_open(&r->pool, rank, k) == res.item;
    pthread_mutex_unlock(&r->lock);
    if (!due || reader.results_left != 0 || reader.left != 0) return false;

    int64_t taken = 0;
    reader = *report;
    pthread_mutex_lock(&r->deliver);
    while (kv_mpi_report_next(&reader, &res) && hand_over(r, rank, &res)) taken++;
    pthread_mutex_unlock(&r->deliver);

    reader = *report;
    pthread_mutex_lock(&r->lock);
    for (; taken > 0 && kv_mpi_report_next(&reader, &res); taken--) (void)kv_mpi_pool_done(&r->pool, rank, res.item);
    kv_mpi_pool_busy(&r->pool, rank, busy_s);
    pthread_mutex_unlock(&r->lock);
    return true;
}

void kv_mpi_root_progress(kv_mpi_root *r, bool last)
{
    const uint64_t now = kv_mpi_now_ns();
    if (r->job->on_progress == NULL || (!last && now - r->progress_ns < 100000000u)) return;
    r->progress_ns = now;
    pthread_mutex_lock(&r->lock);
    const kv_mpi_progress p = {.items_done = r->pool.done,
                               .items_total = r->order->n,
                               .cost_done = r->pool.cost_done,
                               .cost_total = r->order->total,
                               .seconds = (double)(now - r->begin_ns) * 1e-9};
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_lock(&r->deliver);
    r->job->on_progress(r->job->ctx, &p);
    pthread_mutex_unlock(&r->deliver);
}

/* Books what this thread has delivered (-1: nothing), and takes its next item; false when there is none. */
static bool next_item(kv_mpi_root *r, int64_t delivered, double busy_s, int64_t *item)
{
    int64_t position = 0;
    pthread_mutex_lock(&r->lock);
    if (delivered >= 0) {
        (void)kv_mpi_pool_done(&r->pool, 0, delivered);
        kv_mpi_pool_busy(&r->pool, 0, busy_s);
    }
    const bool got = kv_mpi_pool_take_one(&r->pool, 0, &position);
    r->main_item = got ? kv_mpi_order_item(r->order, position) : -1;
    r->main_since_ns = kv_mpi_now_ns();
    r->main_idle = !got;
    *item = r->main_item;
    pthread_mutex_unlock(&r->lock);
    return got;
}

/* Runs one item and hands it over; false when the run must end. */
static bool compute_one(kv_mpi_root *r, int64_t item, kv_buf *bytes, double *busy_s)
{
    kv_err err = {0};
    bytes->len = 0;
    const uint64_t begin = kv_mpi_now_ns();
    const kv_rc rc = r->job->run_item(r->job->ctx, item, bytes, &err);
    *busy_s = (double)(kv_mpi_now_ns() - begin) * 1e-9;
    if (rc != KV_OK) {
        kv_mpi_root_stop(r, rc, 0, item, &err);
        return false;
    }
    const kv_mpi_result res = {.item = item, .bytes = bytes->data != NULL ? bytes->data : "", .n = bytes->len};
    pthread_mutex_lock(&r->deliver);
    const bool ok = hand_over(r, 0, &res);
    pthread_mutex_unlock(&r->deliver);
    return ok;
}

static void compute(kv_mpi_root *r)
{
    kv_buf bytes = {0};
    int64_t item = -1, delivered = -1;
    double busy_s = 0;
    for (;;) {
        if (r->job->stop != NULL && *r->job->stop) kv_mpi_root_stop(r, KV_EINTR, 0, -1, NULL);
        if (!next_item(r, delivered, busy_s, &item)) break;
        delivered = compute_one(r, item, &bytes, &busy_s) ? item : -1; /* if not, the pool is closed now */
    }
    kv_buf_free(&bytes);
}

/* The helper must not run the program's signal handlers: they belong to the main thread. */
static kv_rc start_helper(kv_mpi_root *r, pthread_t *thread, kv_err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int e = pthread_create(thread, NULL, kv_mpi_helper_main, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e == 0 ? KV_OK : KV_FAIL(err, KV_ENOMEM, "cannot start the helper thread: %s", strerror(e));
}

static kv_rc root_new(kv_mpi *m, const kv_mpi_job *job, const kv_mpi_order *order, kv_mpi_root **out, kv_err *err)
{
    kv_mpi_root *r = kv_alloc(1, sizeof *r);
    if (r == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the hand-out");
    *r = (kv_mpi_root){.m = m, .job = job, .order = order, .main_item = -1};
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->deliver, NULL);
    *out = r;
    r->peers = kv_alloc((size_t)m->size, sizeof *r->peers);
    if (r->peers == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the hand-out to %d ranks", m->size);
    for (int i = 0; i < m->size; i++) r->peers[i].send = MPI_REQUEST_NULL;
    return kv_mpi_pool_new(order, m->size, &r->pool, err);
}

static void root_free(kv_mpi_root *r)
{
    if (r == NULL) return;
    kv_mpi_pool_free(&r->pool);
    kv_buf_free(&r->inbox);
    kv_free(r->peers);
    pthread_mutex_destroy(&r->deliver);
    pthread_mutex_destroy(&r->lock);
    kv_free(r);
}

kv_rc kv_mpi_root_run(kv_mpi *m, const kv_mpi_job *job, const kv_mpi_order *order, kv_err *err)
{
    kv_mpi_root *r = NULL;
    pthread_t helper;
    kv_rc rc = kv_mpi_agree(m, root_new(m, job, order, &r, err), err);
    if (rc == KV_OK) {
        r->begin_ns = r->progress_ns = kv_mpi_now_ns();
        for (int i = 0; i < m->size; i++) r->peers[i].since_ns = r->peers[i].sent_ns = r->begin_ns;
        if (start_helper(r, &helper, err) == KV_OK) {
            compute(r);
            pthread_join(helper, NULL);
        } else { /* tell the others in the usual way: with nothing left to do, the helper's work is short */
            kv_mpi_root_stop(r, KV_ENOMEM, 0, -1, err);
            r->main_idle = true;
            kv_mpi_helper_main(r);
        }
        kv_mpi_root_progress(r, true);
        rc = kv_mpi_outcome_adopt(m, &r->outcome, err);
    }
    if (!kv_mpi_broken(m)) root_free(r); /* else requests may still point there */
    return rc;
}
