/* The whole hand-out for one rank: no messages, no thread. */
#include "mpi/kv_mpi_hub.h"

typedef struct {
    const kv_mpi_job *job;
    kv_mpi_clock clock;
    void *clock_ctx;
    kv_mpi_progress at;
    uint64_t begin, last;
} solo;

static void progress(solo *s, bool last)
{
    if (s->job->on_progress == NULL) return;
    const uint64_t now = s->clock(s->clock_ctx);
    if (!last && now - s->last < KV_MPI_PROGRESS_NS) return;
    s->last = now;
    s->at.seconds = (double)(now - s->begin) * 1e-9;
    s->job->on_progress(s->job->ctx, &s->at);
}

static void tell_coming(const kv_mpi_job *job, const kv_mpi_order *order, int64_t at)
{
    int64_t items[KV_MPI_COMING];
    int32_t n = 0;
    if (job->coming == NULL) return;
    for (; at < order->n && n < KV_MPI_COMING; at++) items[n++] = kv_mpi_order_item(order, at);
    job->coming(job->ctx, items, n);
}

static kv_rc run_one(solo *s, int64_t item, kv_buf *result, kv_err *err)
{
    result->len = 0;
    kv_rc rc = s->job->run_item(s->job->ctx, item, result, err);
    if (rc == KV_OK)
        rc = s->job->on_result(s->job->ctx, item, 0, result->data != NULL ? result->data : "", result->len, err);
    if (rc != KV_OK) {
        KV_FAIL(err, rc, "%s", kv_rc_name(rc));
        kv_err_prefix(err, "item %lld", (long long)item);
    }
    return rc;
}

kv_rc kv_mpi_solo(const kv_mpi_job *job, const kv_mpi_order *order, kv_mpi_clock clock, void *clock_ctx, kv_err *err)
{
    kv_rc rc = KV_OK;
    kv_buf result = {0};
    solo s = {.job = job, .clock = clock, .clock_ctx = clock_ctx, .begin = clock(clock_ctx)};
    s.at.items_total = order->n;
    s.at.cost_total = order->total;
    s.last = s.begin;
    for (int64_t p = 0; p < order->n && rc == KV_OK; p++) {
        if (job->stop != NULL && *job->stop) {
            rc = KV_FAIL(err, KV_EINTR, "asked to stop after %lld of %lld items", (long long)p, (long long)order->n);
            break;
        }
        tell_coming(job, order, p);
        rc = run_one(&s, kv_mpi_order_item(order, p), &result, err);
        if (rc != KV_OK) break;
        s.at.items_done++;
        s.at.cost_done += kv_mpi_order_cost(order, p);
        progress(&s, false);
    }
    progress(&s, true);
    kv_buf_free(&result);
    return rc;
}
