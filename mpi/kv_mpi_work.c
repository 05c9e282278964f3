/* A worker's decisions. See kv_mpi_msg.h for the messages. */
#include "mpi/kv_mpi_work.h"

#include <limits.h>
#include <string.h>

#define REPORT_BYTES_MAX ((size_t)INT_MAX) /* one MPI message */

static uint64_t now_ns(const kv_mpi_work *w)
{
    return w->clock(w->clock_ctx);
}

kv_rc kv_mpi_work_begin(kv_mpi_work *w, kv_err *err)
{
    w->heard_ns = w->flushed_ns = now_ns(w);
    kv_rc rc = kv_mpi_report_begin(&w->fill, err);
    if (rc == KV_OK) rc = kv_mpi_report_begin(&w->out, err);
    return rc;
}

void kv_mpi_work_free(kv_mpi_work *w)
{
    kv_buf_free(&w->fill.bytes);
    kv_buf_free(&w->out.bytes);
}

/* A failure of this rank: the run ends here, and rank 0 hears of it in the final report. */
static void fail_here(kv_mpi_work *w, kv_rc rc, int64_t item, const kv_err *err)
{
    kv_mpi_outcome_set(&w->mine, rc, w->rank, item, err);
    w->halting = true;
}

static void take_work(kv_mpi_work *w, const kv_mpi_ctrl *ctrl)
{
    const kv_mpi_chunk c = {.begin = ctrl->begin, .end = ctrl->end};
    kv_err err = {0};
    if (w->final_sent || w->halting) return; /* crossed with our final report */
    if (ctrl->digest != w->order->digest)
        fail_here(w, KV_FAIL(&err, KV_EBUG, "the work list here is not that of rank 0"), -1, &err);
    else if (c.begin < 0 || c.end <= c.begin || c.end > w->order->n || w->n_queue == KV_MPI_PREFETCH)
        fail_here(w, KV_FAIL(&err, KV_EBUG, "an impossible chunk from rank 0"), -1, &err);
    else
        w->queue[w->n_queue++] = c;
}

void kv_mpi_work_order(kv_mpi_work *w, const kv_mpi_ctrl *c)
{
    w->heard_ns = now_ns(w);
    switch ((kv_mpi_order_kind)c->kind) {
    case KV_MPI_PING: break;
    case KV_MPI_WORK: take_work(w, c); break;
    case KV_MPI_DRAIN: w->draining = true; break;
    case KV_MPI_HALT: w->halting = true; break;
    case KV_MPI_END: w->ended = true; break;
    }
}

static bool dry(const kv_mpi_work *w)
{
    return w->draining && w->n_queue == 0;
}

static kv_mpi_step idle(const kv_mpi_work *w)
{
    return now_ns(w) - w->heard_ns > w->limit_ns ? KV_MPI_STEP_GIVE_UP : KV_MPI_STEP_IDLE;
}

kv_mpi_step kv_mpi_work_next(kv_mpi_work *w, bool stop)
{
    if (w->final_sent) return idle(w);
    if (stop) {
        w->flags |= KV_MPI_STOPPED;
        w->halting = true;
    }
    if (w->halting || dry(w)) {
        w->heard_ns = now_ns(w); /* the wait begins now, however long the items took */
        return KV_MPI_STEP_FINAL;
    }
    return w->n_queue == 0 ? idle(w) : KV_MPI_STEP_ITEM;
}

int64_t kv_mpi_work_item(const kv_mpi_work *w)
{
    return kv_mpi_order_item(w->order, w->queue[0].begin);
}

int32_t kv_mpi_work_coming(const kv_mpi_work *w, int64_t *items)
{
    int32_t n = 0;
    for (int i = 0; i < w->n_queue; i++)
        for (int64_t at = w->queue[i].begin; at < w->queue[i].end && n < KV_MPI_COMING; at++)
            items[n++] = kv_mpi_order_item(w->order, at);
    return n;
}

static bool must_flush(const kv_mpi_work *w)
{
    if (w->fill.head.n_results == 0) return false;
    return w->chunk_done || w->fill.bytes.len >= KV_MPI_FLUSH_BYTES || now_ns(w) - w->flushed_ns >= KV_MPI_FLUSH_NS;
}

bool kv_mpi_work_ran(kv_mpi_work *w, kv_rc rc, const kv_buf *bytes, uint64_t busy_ns, const kv_err *why)
{
    const int64_t item = kv_mpi_work_item(w);
    kv_err err = *why;
    w->fill.head.busy_ns += busy_ns;
    if (rc == KV_OK && bytes->len > REPORT_BYTES_MAX - KV_MPI_FLUSH_BYTES - 4096)
        rc = KV_FAIL(&err, KV_ENOMEM, "its result of %zu bytes is too large", bytes->len);
    if (rc == KV_OK) rc = kv_mpi_report_add(&w->fill, item, bytes->data, bytes->len, &err);
    w->heard_ns = now_ns(w);
    if (rc != KV_OK) {
        fail_here(w, rc, item, &err);
        return false;
    }
    if (++w->queue[0].begin == w->queue[0].end) {
        w->chunk_done = true;
        w->n_queue--;
        memmove(&w->queue[0], &w->queue[1], (size_t)w->n_queue * sizeof w->queue[0]);
    }
    return !w->halting && !dry(w) && must_flush(w);
}

kv_rc kv_mpi_work_close(kv_mpi_work *w, bool final, kv_err *err)
{
    if (final) {
        w->fill.head.flags = KV_MPI_FINAL | w->flags;
        w->fill.head.outcome = w->mine;
    }
    kv_mpi_report_close(&w->fill);
    const kv_mpi_report filled = w->fill;
    w->fill = w->out;
    w->out = filled;
    w->flushed_ns = now_ns(w);
    w->chunk_done = false;
    w->final_sent = final;
    return kv_mpi_report_begin(&w->fill, err); /* has its memory since kv_mpi_work_begin */
}
