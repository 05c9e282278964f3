/* Entry of the hand-out, and the whole of it for one rank: no messages, no thread. */
#include "mpi/kv_mpi_impl.h"
#include "mpi/kv_mpi_split.h"

#define PROGRESS_NS 100000000u

typedef struct {
    const kv_mpi_job *job;
    kv_mpi_progress at;
    uint64_t begin, last;
} solo;

static void solo_progress(solo *s, bool last)
{
    if (s->job->on_progress == NULL) return;
    const uint64_t now = kv_mpi_now_ns();
    if (!last && now - s->last < PROGRESS_NS) return;
    s->last = now;
    s->at.seconds = (double)(now - s->begin) * 1e-9;
    s->job->on_progress(s->job->ctx, &s->at);
}

static kv_rc solo_item(solo *s, int64_t item, kv_buf *result, kv_err *err)
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

static kv_rc solo_run(const kv_mpi_job *job, const kv_mpi_order *order, kv_err *err)
{
    kv_rc rc = KV_OK;
    kv_buf result = {0};
    solo s = {.job = job, .begin = kv_mpi_now_ns()};
    s.at.items_total = order->n;
    s.at.cost_total = order->total;
    s.last = s.begin;
    for (int64_t p = 0; p < order->n && rc == KV_OK; p++) {
        if (job->stop != NULL && *job->stop) {
            rc = KV_FAIL(err, KV_EINTR, "asked to stop after %lld of %lld items", (long long)p, (long long)order->n);
            break;
        }
        rc = solo_item(&s, kv_mpi_order_item(order, p), &result, err);
        if (rc != KV_OK) break;
        s.at.items_done++;
        s.at.cost_done += kv_mpi_order_cost(order, p);
        solo_progress(&s, false);
    }
    solo_progress(&s, true);
    kv_buf_free(&result);
    return rc;
}

kv_rc kv_mpi_handout(kv_mpi *m, const kv_mpi_job *job, kv_err *err)
{
    kv_mpi_order order = {0};
    kv_rc rc = kv_mpi_usable(m, err);
    if (rc != KV_OK) return rc;
    if (job->run_item == NULL || (m->rank == 0 && job->on_result == NULL))
        rc = KV_FAIL(err, KV_EBUG, "a hand-out without run_item or on_result");
    if (rc == KV_OK) rc = kv_mpi_order_new(job->n_items, job->costs, &order, err);
    rc = kv_mpi_agree(m, rc, err);
    if (rc == KV_OK) {
        if (m->size == 1)
            rc = solo_run(job, &order, err);
        else if (m->rank == 0)
            rc = kv_mpi_root_run(m, job, &order, err);
        else
            rc = kv_mpi_worker_run(m, job, &order, err);
    }
    kv_mpi_order_free(&order);
    return rc;
}
