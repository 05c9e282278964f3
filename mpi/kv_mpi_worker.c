/* A worker's half of the hand-out. One thread: it looks for orders between items, sends what it
 * has finished, and sleeps when it has nothing to do. What is decided stands in kv_mpi_work.c. */
#include <string.h>

#include "mpi/kv_mpi_impl.h"
#include "mpi/kv_mpi_work.h"

typedef struct {
    kv_mpi *m;
    const kv_mpi_job *job;
    kv_mpi_work work;
    kv_mpi_ctrl ctrl; /* where orders arrive */
    MPI_Request recv, send;
    kv_buf result;
    kv_mpi_backoff backoff;
} worker;

static void post_recv(worker *w)
{
    KV_MPI_MUST(w->m, MPI_Irecv(&w->ctrl, (int)sizeof w->ctrl, MPI_BYTE, 0, KV_MPI_TAG_CTRL, w->m->comm, &w->recv));
}

/* Handles at most one order; true when there was one. */
static bool poll_ctrl(worker *w)
{
    int done = 0;
    KV_MPI_MUST(w->m, MPI_Test(&w->recv, &done, MPI_STATUS_IGNORE));
    if (!done) return false;
    kv_mpi_work_order(&w->work, &w->ctrl);
    if (!w->work.ended) post_recv(w); /* after END, ctrl keeps the outcome */
    return true;
}

/* True when the report in flight has left (or there is none); false when patience ran out. */
static bool wait_for_send(worker *w, uint64_t patience_ns)
{
    const uint64_t begin = kv_mpi_now_ns();
    kv_mpi_backoff backoff = {0};
    for (;;) {
        int done = 0;
        KV_MPI_MUST(w->m, MPI_Test(&w->send, &done, MPI_STATUS_IGNORE));
        if (done) return true;
        if (kv_mpi_now_ns() - begin > patience_ns) return false;
        kv_mpi_backoff_wait(&backoff);
    }
}

static kv_rc rank_0_lost(worker *w, const char *what, kv_err *err)
{
    w->m->health = KV_MPI_BROKEN;
    return KV_FAIL(err, KV_ETIME, "rank %d on %s: rank 0 on %s %s for %g s", w->m->rank, w->m->hosts[w->m->rank],
                   w->m->hosts[0], what, w->m->timeout_s);
}

static kv_rc flush(worker *w, bool final, kv_err *err)
{
    if (!wait_for_send(w, kv_mpi_limit_ns(w->m))) return rank_0_lost(w, "took no results", err);
    const kv_rc rc = kv_mpi_work_close(&w->work, final, err);
    const kv_buf *out = &w->work.out.bytes;
    KV_MPI_MUST(w->m, MPI_Isend(out->data, (int)out->len, MPI_BYTE, 0, KV_MPI_TAG_REPORT, w->m->comm, &w->send));
    (void)wait_for_send(w, KV_MPI_SEND_PATIENCE_NS);
    return rc;
}

static bool run_item(worker *w)
{
    kv_err err = {0};
    w->result.len = 0;
    const uint64_t begin = kv_mpi_now_ns();
    if (w->job->coming != NULL) {
        int64_t items[KV_MPI_COMING];
        w->job->coming(w->job->ctx, items, kv_mpi_work_coming(&w->work, items));
    }
    const kv_rc rc = w->job->run_item(w->job->ctx, kv_mpi_work_item(&w->work), &w->result, &err);
    return kv_mpi_work_ran(&w->work, rc, &w->result, kv_mpi_now_ns() - begin, &err);
}

static kv_rc step(worker *w, kv_err *err)
{
    if (poll_ctrl(w)) {
        memset(&w->backoff, 0, sizeof w->backoff);
        return KV_OK; /* there may be more */
    }
    switch (kv_mpi_work_next(&w->work, w->job->stop != NULL && *w->job->stop)) {
    case KV_MPI_STEP_IDLE: kv_mpi_backoff_wait(&w->backoff); break;
    case KV_MPI_STEP_GIVE_UP: return rank_0_lost(w, "sent nothing", err);
    case KV_MPI_STEP_ITEM: return run_item(w) ? flush(w, false, err) : KV_OK;
    case KV_MPI_STEP_FINAL: return flush(w, true, err);
    }
    return KV_OK;
}

static kv_rc worker_new(kv_mpi *m, const kv_mpi_job *job, const kv_mpi_order *order, worker **out, kv_err *err)
{
    worker *w = kv_alloc(1, sizeof *w);
    if (w == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the hand-out");
    w->m = m;
    w->job = job;
    w->work = (kv_mpi_work){.rank = m->rank, .order = order, .limit_ns = kv_mpi_limit_ns(m), .clock = kv_mpi_clock_now};
    w->recv = w->send = MPI_REQUEST_NULL;
    *out = w;
    return kv_mpi_work_begin(&w->work, err);
}

static void worker_free(worker *w)
{
    if (w == NULL) return;
    kv_mpi_work_free(&w->work);
    kv_buf_free(&w->result);
    kv_free(w);
}

static kv_rc finish(worker *w, kv_err *err)
{
    if (!wait_for_send(w, kv_mpi_limit_ns(w->m))) return rank_0_lost(w, "took no results", err);
    if (w->ctrl.broken) w->m->health = KV_MPI_BROKEN_WAIT;
    w->ctrl.outcome.text[KV_ERR_TEXT - 1] = '\0';
    if (w->work.mine.rc != KV_OK) return kv_mpi_outcome_adopt(w->m, &w->work.mine, err);
    return kv_mpi_outcome_adopt(w->m, &w->ctrl.outcome, err);
}

kv_rc kv_mpi_worker_run(kv_mpi *m, const kv_mpi_job *job, const kv_mpi_order *order, kv_err *err)
{
    worker *w = NULL;
    kv_rc rc = kv_mpi_agree(m, worker_new(m, job, order, &w, err), err);
    if (rc == KV_OK) {
        w->work.heard_ns = w->work.flushed_ns = kv_mpi_now_ns(); /* the ranks are together only now */
        post_recv(w);
        while (rc == KV_OK && !w->work.ended) rc = step(w, err);
        if (rc == KV_OK) rc = finish(w, err);
    }
    if (!kv_mpi_broken(m)) worker_free(w); /* else requests may still point there */
    return rc;
}
