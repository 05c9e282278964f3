/* Rank 0's half of the hand-out: its main thread takes items one by one from the same pool that
 * the helper thread (kv_mpi_helper.c) serves the other ranks from. This thread calls no MPI
 * while the helper lives. What is decided stands in kv_mpi_hub.c. */
#include <signal.h>
#include <string.h>

#include "mpi/kv_mpi_root.h"

static void compute(kv_mpi_root *r)
{
    kv_buf bytes = {0};
    int64_t item = -1, delivered = -1;
    double busy_s = 0;
    for (;;) {
        kv_err err = {0};
        kv_mpi_hub_watch_stop(r->hub);
        if (!kv_mpi_hub_next_item(r->hub, delivered, busy_s, &item)) break;
        bytes.len = 0;
        const uint64_t begin = kv_mpi_now_ns();
        if (r->job->coming != NULL) {
            int64_t items[KV_MPI_COMING];
            r->job->coming(r->job->ctx, items, kv_mpi_hub_coming(r->hub, items));
        }
        const kv_rc rc = r->job->run_item(r->job->ctx, item, &bytes, &err);
        busy_s = (double)(kv_mpi_now_ns() - begin) * 1e-9;
        delivered = kv_mpi_hub_ran(r->hub, item, rc, &bytes, &err) ? item : -1; /* if not, the pool is closed now */
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
    const kv_mpi_hub_setup setup = {.job = job,
                                    .order = order,
                                    .hosts = (const char(*)[KV_MPI_HOST_BYTES])m->hosts,
                                    .ranks = m->size,
                                    .timeout_s = m->timeout_s,
                                    .clock = kv_mpi_clock_now};
    kv_mpi_root *r = kv_alloc(1, sizeof *r);
    if (r == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the hand-out");
    *r = (kv_mpi_root){.m = m, .job = job};
    *out = r;
    r->slots = kv_alloc((size_t)m->size, sizeof *r->slots);
    if (r->slots == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the hand-out to %d ranks", m->size);
    for (int i = 0; i < m->size; i++) r->slots[i].send = MPI_REQUEST_NULL;
    return kv_mpi_hub_new(&setup, &r->hub, err);
}

static void root_free(kv_mpi_root *r)
{
    if (r == NULL) return;
    kv_mpi_hub_free(r->hub);
    kv_buf_free(&r->inbox);
    kv_free(r->slots);
    kv_free(r);
}

kv_rc kv_mpi_root_run(kv_mpi *m, const kv_mpi_job *job, const kv_mpi_order *order, kv_err *err)
{
    kv_mpi_root *r = NULL;
    pthread_t helper;
    kv_rc rc = kv_mpi_agree(m, root_new(m, job, order, &r, err), err);
    if (rc == KV_OK) {
        kv_mpi_hub_begin(r->hub);
        if (start_helper(r, &helper, err) == KV_OK) {
            compute(r);
            pthread_join(helper, NULL);
        } else { /* tell the others in the usual way: with nothing left to do, the helper's work is short */
            kv_mpi_hub_stop(r->hub, KV_ENOMEM, 0, -1, err);
            r->hub->main_idle = true;
            kv_mpi_helper_main(r);
        }
        rc = kv_mpi_outcome_adopt(m, &r->hub->outcome, err);
    }
    if (!kv_mpi_broken(m)) root_free(r); /* else requests may still point there */
    return rc;
}
