/* A worker's half of the hand-out. One thread: it looks for orders between items, sends what it
 * has finished, and sleeps when it has nothing to do. See kv_mpi_msg.h for the messages. */
#include <limits.h>
#include <string.h>

#include "mpi/kv_mpi_impl.h"
#include "mpi/kv_mpi_split.h"

#define FLUSH_NS 250000000u                /* send finished results at least this often, between items */
#define FLUSH_BYTES ((size_t)1 << 20)      /* or when there are this many */
#define SEND_PATIENCE_NS 50000000u         /* let a large report leave before the next item begins */
#define REPORT_BYTES_MAX ((size_t)INT_MAX) /* one MPI message */

typedef struct {
    kv_mpi *m;
    const kv_mpi_job *job;
    const kv_mpi_order *order;
    kv_mpi_ctrl ctrl; /* where orders arrive */
    MPI_Request recv, send;
    kv_mpi_report fill, out; /* being filled; being sent */
    kv_buf result;
    kv_mpi_chunk queue[KV_MPI_PREFETCH];
    int n_queue;
    bool chunk_done; /* since the last report */
    bool draining, halting, final_sent, ended;
    kv_mpi_outcome mine; /* what went wrong here */
    uint32_t flags;
    uint64_t heard_ns, flushed_ns;
    kv_mpi_backoff backoff;
} worker;

static void post_recv(worker *w)
{
    KV_MPI_MUST(w->m, MPI_Irecv(&w->ctrl, (int)sizeof w->ctrl, MPI_BYTE, 0, KV_MPI_TAG_CTRL, w->m->comm, &w->recv));
}

/* A failure of this rank: the run ends here, and rank 0 hears of it in the final report. */
static void fail_here(worker *w, kv_rc rc, int64_t item, const kv_err *err)
{
    kv_mpi_outcome_set(&w->mine, rc, w->m->rank, item, err);
    w->halting = true;
}

static void take_work(worker *w)
{
    const kv_mpi_chunk c = {.begin = w->ctrl.begin, .end = w->ctrl.end};
    kv_err err = {0};
    if (w->final_sent || w->halting) return; /* crossed with our final report */
    if (w->ctrl.digest != w->order->digest)
        fail_here(w, KV_FAIL(&err, KV_EBUG, "the work list here is not that of rank 0"), -1, &err);
    else if (c.begin < 0 || c.end <= c.begin || c.end > w->order->n || w->n_queue == KV_MPI_PREFETCH)
        fail_here(w, KV_FAIL(&err, KV_EBUG, "an impossible chunk from rank 0"), -1, &err);
    else
        w->queue[w->n_queue++] = c;
}

/* Handles at most one order; true when there was one. */
static bool poll_ctrl(worker *w)
{
    int done = 0;
    KV_MPI_MUST(w->m, MPI_Test(&w->recv, &done, MPI_STATUS_IGNORE));
    if (!done) return false;
    w->heard_ns = kv_mpi_now_ns();
    switch ((kv_mpi_order_kind)w->ctrl.kind) {
    case KV_MPI_PING: break;
    case KV_MPI_WORK: take_work(w); break;
    case KV_MPI_DRAIN: w->draining = true; break;
    case KV_MPI_HALT: w->halting = true; break;
    case KV_MPI_END: w->ended = true; break;
    }
    if (!w->ended) post_recv(w); /* after END, ctrl keeps the outcome */
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

/* Sends what is in fill. The two reports change places, so the next item can be added at once. */
static kv_rc flush(worker *w, bool final, kv_err *err)
{
    if (!wait_for_send(w, kv_mpi_limit_ns(w->m))) return rank_0_lost(w, "took no results", err);
    if (final) {
        w->fill.head.flags = KV_MPI_FINAL | w->flags;
        w->fill.head.outcome = w->mine;
    }
    kv_mpi_report_close(&w->fill);
    const kv_mpi_report filled = w->fill;
    w->fill = w->out;
    w->out = filled;
    KV_MPI_MUST(w->m, MPI_Isend(w->out.bytes.data, (int)w->out.bytes.len, MPI_BYTE, 0, KV_MPI_TAG_REPORT, w->m->comm,
                                &w->send));
    const kv_rc rc = kv_mpi_report_begin(&w->fill, err); /* has its memory since worker_new */
    w->flushed_ns = kv_mpi_now_ns();
    w->chunk_done = false;
    w->final_sent = final;
    (void)wait_for_send(w, SEND_PATIENCE_NS);
    return rc;
}

static void run_next(worker *w)
{
    kv_mpi_chunk *c = &w->queue[0];
    const int64_t item = kv_mpi_order_item(w->order, c->begin);
    kv_err err = {0};
    w->result.len = 0;
    const uint64_t begin = kv_mpi_now_ns();
    kv_rc rc = w->job->run_item(w->job->ctx, item, &w->result, &err);
    w->fill.head.busy_ns += kv_mpi_now_ns() - begin;
    if (rc == KV_OK && w->result.len > REPORT_BYTES_MAX - FLUSH_BYTES - 4096)
        rc = KV_FAIL(&err, KV_ENOMEM, "its result of %zu bytes is too large", w->result.len);
    if (rc == KV_OK) rc = kv_mpi_report_add(&w->fill, item, w->result.data, w->result.len, &err);
    if (rc != KV_OK) {
        fail_here(w, rc, item, &err);
        return;
    }
    if (++c->begin < c->end) return;
    w->chunk_done = true;
    w->n_queue--;
    memmove(&w->queue[0], &w->queue[1], (size_t)w->n_queue * sizeof w->queue[0]);
}

static bool must_flush(const worker *w)
{
    if (w->fill.head.n_results == 0) return false;
    return w->chunk_done || w->fill.bytes.len >= FLUSH_BYTES || kv_mpi_now_ns() - w->flushed_ns >= FLUSH_NS;
}

/* Nothing to compute: sleep, unless rank 0 has been silent for too long. */
static kv_rc idle(worker *w, kv_err *err)
{
    if (kv_mpi_now_ns() - w->heard_ns > kv_mpi_limit_ns(w->m)) return rank_0_lost(w, "sent nothing", err);
    kv_mpi_backoff_wait(&w->backoff);
    return KV_OK;
}

static kv_rc step(worker *w, kv_err *err)
{
    if (poll_ctrl(w)) {
        memset(&w->backoff, 0, sizeof w->backoff);
        return KV_OK; /* there may be more */
    }
    if (w->final_sent) return idle(w, err);
    if (w->job->stop != NULL && *w->job->stop) {
        w->flags |= KV_MPI_STOPPED;
        w->halting = true;
    }
    if (w->halting || (w->draining && w->n_queue == 0)) {
        w->heard_ns = kv_mpi_now_ns(); /* the wait begins now, however long the items took */
        return flush(w, true, err);
    }
    if (w->n_queue == 0) return idle(w, err);
    run_next(w);
    w->heard_ns = kv_mpi_now_ns();
    return !w->halting && !(w->draining && w->n_queue == 0) && must_flush(w) ? flush(w, false, err) : KV_OK;
}

static kv_rc worker_new(kv_mpi *m, const kv_mpi_job *job, const kv_mpi_order *order, worker **out, kv_err *err)
{
    worker *w = kv_alloc(1, sizeof *w);
    if (w == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the hand-out");
    w->m = m;
    w->job = job;
    w->order = order;
    w->recv = w->send = MPI_REQUEST_NULL;
    kv_rc rc = kv_mpi_report_begin(&w->fill, err);
    if (rc == KV_OK) rc = kv_mpi_report_begin(&w->out, err);
    *out = w;
    return rc;
}

static void worker_free(worker *w)
{
    if (w == NULL) return;
    kv_buf_free(&w->fill.bytes);
    kv_buf_free(&w->out.bytes);
    kv_buf_free(&w->result);
    kv_free(w);
}

static kv_rc finish(worker *w, kv_err *err)
{
    if (!wait_for_send(w, kv_mpi_limit_ns(w->m))) return rank_0_lost(w, "took no results", err);
    if (w->ctrl.broken) w->m->health = KV_MPI_BROKEN_WAIT;
    w->ctrl.outcome.text[KV_ERR_TEXT - 1] = '\0';
    if (w->mine.rc != KV_OK) return kv_mpi_outcome_adopt(w->m, &w->mine, err);
    return kv_mpi_outcome_adopt(w->m, &w->ctrl.outcome, err);
}

kv_rc kv_mpi_worker_run(kv_mpi *m, const kv_mpi_job *job, const kv_mpi_order *order, kv_err *err)
{
    worker *w = NULL;
    kv_rc rc = kv_mpi_agree(m, worker_new(m, job, order, &w, err), err);
    if (rc == KV_OK) {
        w->heard_ns = w->flushed_ns = kv_mpi_now_ns();
        post_recv(w);
        while (rc == KV_OK && !w->ended) rc = step(w, err);
        if (rc == KV_OK) rc = finish(w, err);
    }
    if (!kv_mpi_broken(m)) worker_free(w); /* else requests may still point there */
    return rc;
}
