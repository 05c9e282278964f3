/* Rank 0's decisions: what both of its threads, or the simulator, call. */
#include "mpi/kv_mpi_hub.h"

#include <stdio.h>
#include <string.h>

#define PING_NS_MOST 1000000000u

static uint64_t now_ns(const kv_mpi_hub *h)
{
    return h->s.clock(h->s.clock_ctx);
}

uint64_t kv_mpi_hub_limit_ns(const kv_mpi_hub *h)
{
    return (uint64_t)(h->s.timeout_s * 1e9);
}

/* ---- life ---- */

kv_rc kv_mpi_hub_new(const kv_mpi_hub_setup *setup, kv_mpi_hub **out, kv_err *err)
{
    kv_mpi_hub *h = kv_alloc(1, sizeof *h);
    if (h == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the hand-out");
    *h = (kv_mpi_hub){.s = *setup, .main_item = -1};
    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_init(&h->deliver, NULL);
    kv_rc rc = kv_mpi_pool_new(setup->order, setup->ranks, &h->pool, err);
    h->peers = kv_alloc((size_t)setup->ranks, sizeof *h->peers);
    if (rc == KV_OK && h->peers == NULL)
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for the hand-out to %d ranks", setup->ranks);
    if (rc == KV_OK)
        *out = h;
    else
        kv_mpi_hub_free(h);
    return rc;
}

void kv_mpi_hub_free(kv_mpi_hub *h)
{
    if (h == NULL) return;
    kv_mpi_pool_free(&h->pool);
    kv_free(h->peers);
    pthread_mutex_destroy(&h->deliver);
    pthread_mutex_destroy(&h->lock);
    kv_free(h);
}

void kv_mpi_hub_begin(kv_mpi_hub *h)
{
    h->begin_ns = h->progress_ns = now_ns(h);
    for (int i = 0; i < h->s.ranks; i++) h->peers[i].since_ns = h->peers[i].sent_ns = h->begin_ns;
}

/* ---- both threads ---- */

void kv_mpi_hub_stop(kv_mpi_hub *h, kv_rc rc, int rank, int64_t item, const kv_err *err)
{
    pthread_mutex_lock(&h->lock);
    kv_mpi_outcome_set(&h->outcome, rc, rank, item, err);
    kv_mpi_pool_close(&h->pool);
    h->stopping = true;
    pthread_mutex_unlock(&h->lock);
}

void kv_mpi_hub_watch_stop(kv_mpi_hub *h)
{
    if (h->s.job->stop != NULL && *h->s.job->stop) kv_mpi_hub_stop(h, KV_EINTR, 0, -1, NULL);
}

void kv_mpi_hub_progress(kv_mpi_hub *h, bool last)
{
    const uint64_t now = now_ns(h);
    if (h->s.job->on_progress == NULL || (!last && now - h->progress_ns < KV_MPI_PROGRESS_NS)) return;
    h->progress_ns = now;
    pthread_mutex_lock(&h->lock);
    const kv_mpi_progress p = {.items_done = h->pool.done,
                               .items_total = h->s.order->n,
                               .cost_done = h->pool.cost_done,
                               .cost_total = h->s.order->total,
                               .seconds = (double)(now - h->begin_ns) * 1e-9};
    pthread_mutex_unlock(&h->lock);
    pthread_mutex_lock(&h->deliver);
    h->s.job->on_progress(h->s.job->ctx, &p);
    pthread_mutex_unlock(&h->deliver);
}

/* Gives one result to the caller; false when on_result failed, now or before. Holding deliver. */
static bool hand_over(kv_mpi_hub *h, int rank, const kv_mpi_result *res)
{
    kv_err err = {0};
    if (h->no_more_results) return false;
    const kv_rc rc = h->s.job->on_result(h->s.job->ctx, res->item, rank, res->bytes, res->n, &err);
    if (rc == KV_OK) return true;
    h->no_more_results = true;
    pthread_mutex_lock(&h->lock);
    if (h->outcome.rc == KV_EINTR) h->outcome.rc = KV_OK; /* "interrupted" would promise that all is saved */
    pthread_mutex_unlock(&h->lock);
    kv_mpi_hub_stop(h, rc, 0, res->item, &err);
    return false;
}

/* ---- the main thread ---- */

/* One item, or the first of a chunk where the job wants to know what comes. Holding lock. */
static bool take(kv_mpi_hub *h, int64_t *position)
{
    kv_mpi_chunk *next = &h->main_next;
    if (h->s.job->coming == NULL) return kv_mpi_pool_take_one(&h->pool, 0, position);
    if (h->pool.closed || (next->begin == next->end && !kv_mpi_pool_take(&h->pool, 0, next))) return false;
    *position = next->begin++;
    return true;
}

bool kv_mpi_hub_next_item(kv_mpi_hub *h, int64_t delivered, double busy_s, int64_t *item)
{
    int64_t position = 0;
    pthread_mutex_lock(&h->lock);
    if (delivered >= 0) {
        (void)kv_mpi_pool_done(&h->pool, 0, delivered);
        h->main_busy_s += busy_s;
        if (h->main_next.begin == h->main_next.end) {
            kv_mpi_pool_busy(&h->pool, 0, h->main_busy_s);
            h->main_busy_s = 0;
        }
    }
    const bool got = take(h, &position);
    h->main_item = got ? kv_mpi_order_item(h->s.order, position) : -1;
    h->main_since_ns = now_ns(h);
    h->main_idle = !got;
    *item = h->main_item;
    pthread_mutex_unlock(&h->lock);
    return got;
}

int32_t kv_mpi_hub_coming(kv_mpi_hub *h, int64_t *items)
{
    int32_t n = 0;
    pthread_mutex_lock(&h->lock);
    if (h->main_item >= 0) items[n++] = h->main_item;
    for (int64_t at = h->main_next.begin; at < h->main_next.end && n < KV_MPI_COMING; at++)
        items[n++] = kv_mpi_order_item(h->s.order, at);
    pthread_mutex_unlock(&h->lock);
    return n;
}

bool kv_mpi_hub_ran(kv_mpi_hub *h, int64_t item, kv_rc rc, const kv_buf *bytes, const kv_err *err)
{
    if (rc != KV_OK) {
        kv_mpi_hub_stop(h, rc, 0, item, err);
        return false;
    }
    const kv_mpi_result res = {.item = item, .bytes = bytes->data != NULL ? bytes->data : "", .n = bytes->len};
    pthread_mutex_lock(&h->deliver);
    const bool ok = hand_over(h, 0, &res);
    pthread_mutex_unlock(&h->deliver);
    return ok;
}

/* ---- reports in ---- */

/* The results of a report: to on_result, then into the books. Each lock is taken once per report, not per item:
 * main holds them most of the time when items are tiny. False when they are not the ones due. */
static bool deliver(kv_mpi_hub *h, int rank, const kv_mpi_report_reader *report, double busy_s)
{
    kv_mpi_report_reader reader = *report;
    kv_mpi_result res;
    bool due = true;
    pthread_mutex_lock(&h->deliver);
    const bool dead = h->no_more_results;
    pthread_mutex_unlock(&h->deliver);
    if (dead) return true; /* the books are not kept any more either */
    pthread_mutex_lock(&h->lock);
    for (int64_t k = 0; due && kv_mpi_report_next(&reader, &res); k++)
        due = kv_mpi_pool_nth_open(&h->pool, rank, k) == res.item;
    pthread_mutex_unlock(&h->lock);
    if (!due || reader.results_left != 0 || reader.left != 0) return false;

    int64_t taken = 0;
    reader = *report;
    pthread_mutex_lock(&h->deliver);
    while (kv_mpi_report_next(&reader, &res) && hand_over(h, rank, &res)) taken++;
    pthread_mutex_unlock(&h->deliver);

    reader = *report;
    pthread_mutex_lock(&h->lock);
    for (; taken > 0 && kv_mpi_report_next(&reader, &res); taken--) (void)kv_mpi_pool_done(&h->pool, rank, res.item);
    kv_mpi_pool_busy(&h->pool, rank, busy_s);
    pthread_mutex_unlock(&h->lock);
    return true;
}

bool kv_mpi_hub_report(kv_mpi_hub *h, int rank, const char *bytes, size_t n)
{
    kv_mpi_peer *p = &h->peers[rank];
    kv_mpi_report_head head;
    kv_mpi_report_reader reader;
    if (p->lost) return true; /* too late: it counts as gone */
    if (p->final || !kv_mpi_report_open(bytes, n, &head, &reader) ||
        !deliver(h, rank, &reader, (double)head.busy_ns * 1e-9))
        return false;
    p->since_ns = now_ns(h);
    if ((head.flags & KV_MPI_FINAL) == 0) return true;
    p->final = true;
    if (head.outcome.rc != KV_OK) {
        kv_err err = {0};
        KV_FAIL(&err, (kv_rc)head.outcome.rc, "%s", head.outcome.text);
        kv_mpi_hub_stop(h, err.rc, rank, head.outcome.item, &err);
    }
    if (head.flags & KV_MPI_STOPPED) kv_mpi_hub_stop(h, KV_EINTR, rank, -1, NULL);
    return true;
}

/* ---- orders out ---- */

static uint64_t ping_ns(const kv_mpi_hub *h)
{
    const uint64_t quarter = kv_mpi_hub_limit_ns(h) / 4;
    return quarter < PING_NS_MOST ? quarter : PING_NS_MOST;
}

/* The order of the questions is the order of need. */
bool kv_mpi_hub_order(kv_mpi_hub *h, int rank, kv_mpi_ctrl *slot)
{
    kv_mpi_peer *p = &h->peers[rank];
    kv_mpi_chunk c = {0};
    if (p->lost || p->end_sent) return false;
    pthread_mutex_lock(&h->lock);
    const bool stopping = h->stopping, empty = kv_mpi_pool_empty(&h->pool);
    const bool idle = kv_mpi_pool_open(&h->pool, rank) == 0;
    const bool work = !stopping && !p->final && kv_mpi_pool_take(&h->pool, rank, &c);
    pthread_mutex_unlock(&h->lock);
    const uint64_t now = now_ns(h);
    if (work) {
        slot->kind = KV_MPI_WORK;
        slot->begin = c.begin;
        slot->end = c.end;
        slot->digest = h->s.order->digest;
        if (idle) p->since_ns = now;
    } else if (stopping && !p->final && !p->halt_sent) {
        slot->kind = KV_MPI_HALT;
        p->halt_sent = true;
        if (idle) p->since_ns = now;
    } else if (empty && !p->final && !p->drain_sent && !p->halt_sent) {
        slot->kind = KV_MPI_DRAIN;
        p->drain_sent = true;
        if (idle) p->since_ns = now;
    } else if ((idle || p->final) && now - p->sent_ns > ping_ns(h)) {
        slot->kind = KV_MPI_PING;
    } else {
        return false;
    }
    p->sent_ns = now;
    return true;
}

/* ---- silence ---- */

void kv_mpi_hub_lose(kv_mpi_hub *h, int rank, kv_rc rc, const char *why)
{
    kv_err err = {0};
    const char *host = h->s.hosts != NULL ? h->s.hosts[rank] : "?";
    pthread_mutex_lock(&h->lock);
    const int64_t item = kv_mpi_pool_nth_open(&h->pool, rank, 0), open = kv_mpi_pool_open(&h->pool, rank);
    pthread_mutex_unlock(&h->lock);
    if (item >= 0)
        KV_FAIL(&err, rc, "rank %d on %s %s; it was in item %lld and holds %lld item%s", rank, host, why,
                (long long)item, (long long)open, open == 1 ? "" : "s");
    else
        KV_FAIL(&err, rc, "rank %d on %s %s", rank, host, why);
    h->peers[rank].lost = true;
    h->broken = true;
    kv_mpi_hub_stop(h, rc, 0, -1, &err);
}

bool kv_mpi_hub_check_silence(kv_mpi_hub *h, int64_t *hanging)
{
    const uint64_t now = now_ns(h), limit = kv_mpi_hub_limit_ns(h);
    char why[64];
    snprintf(why, sizeof why, "sent nothing for %g s", h->s.timeout_s);
    for (int i = 1; i < h->s.ranks; i++) {
        const kv_mpi_peer *p = &h->peers[i];
        if (p->final || p->lost || now - p->since_ns <= limit) continue;
        pthread_mutex_lock(&h->lock);
        const bool owes = kv_mpi_pool_open(&h->pool, i) > 0 || p->drain_sent || p->halt_sent;
        pthread_mutex_unlock(&h->lock);
        if (owes) kv_mpi_hub_lose(h, i, KV_ETIME, why);
    }
    pthread_mutex_lock(&h->lock);
    const bool hangs = !h->main_idle && h->main_item >= 0 && now > h->main_since_ns && now - h->main_since_ns > limit;
    *hanging = h->main_item;
    pthread_mutex_unlock(&h->lock);
    return !hangs;
}

/* ---- the end ---- */

bool kv_mpi_hub_all_in(kv_mpi_hub *h)
{
    for (int i = 1; i < h->s.ranks; i++)
        if (!h->peers[i].final && !h->peers[i].lost) return false;
    pthread_mutex_lock(&h->lock);
    const bool idle = h->main_idle;
    pthread_mutex_unlock(&h->lock);
    return idle;
}

/* A stop that came when all was done has not interrupted anything. */
void kv_mpi_hub_settle(kv_mpi_hub *h)
{
    kv_err err = {0};
    if (h->outcome.rc == KV_EINTR && kv_mpi_pool_all_done(&h->pool)) memset(&h->outcome, 0, sizeof h->outcome);
    if (h->outcome.rc == KV_OK && !kv_mpi_pool_all_done(&h->pool)) {
        KV_FAIL(&err, KV_EBUG, "the hand-out ended with %lld of %lld items", (long long)h->pool.done,
                (long long)h->s.order->n);
        kv_mpi_outcome_set(&h->outcome, KV_EBUG, 0, -1, &err);
    }
    if (h->outcome.rc == KV_EINTR)
        snprintf(h->outcome.text, sizeof h->outcome.text, "asked to stop after %lld of %lld items",
                 (long long)h->pool.done, (long long)h->s.order->n);
}

bool kv_mpi_hub_end(kv_mpi_hub *h, int rank, kv_mpi_ctrl *slot)
{
    kv_mpi_peer *p = &h->peers[rank];
    if (p->lost || p->end_sent) return false;
    p->end_sent = true;
    p->sent_ns = now_ns(h);
    slot->kind = KV_MPI_END;
    slot->outcome = h->outcome;
    slot->broken = h->broken;
    return true;
}
