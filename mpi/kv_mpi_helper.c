/* The helper thread of rank 0: hands out chunks, takes reports, notices silence. During the
 * hand-out it makes all MPI calls of rank 0, and sleeps when there is nothing to do. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "mpi/kv_mpi_root.h"

#define PING_NS_MOST 1000000000u
#define CHECK_NS 10000000u
#define RECEIVE_MOST 64 /* reports in a row before the next look at who needs work */

/* ---- reports in ---- */

static void read_report(kv_mpi_root *r, int rank, size_t n)
{
    kv_mpi_peer *p = &r->peers[rank];
    kv_mpi_report_head head;
    kv_mpi_report_reader reader;
    if (p->final || !kv_mpi_report_open(r->inbox.data, n, &head, &reader) ||
        !kv_mpi_root_deliver(r, rank, &reader, (double)head.busy_ns * 1e-9))
        kv_mpi_abort(r->m, "rank %d sent a report of %zu bytes that was not due or is torn", rank, n);
    p->since_ns = kv_mpi_now_ns();
    if ((head.flags & KV_MPI_FINAL) == 0) return;
    p->final = true;
    if (head.outcome.rc != KV_OK) {
        kv_err err = {0};
        KV_FAIL(&err, (kv_rc)head.outcome.rc, "%s", head.outcome.text);
        kv_mpi_root_stop(r, err.rc, rank, head.outcome.item, &err);
    }
    if (head.flags & KV_MPI_STOPPED) kv_mpi_root_stop(r, KV_EINTR, rank, -1, NULL);
}

/* A rank that cannot go on. The run ends; nothing more is expected from it. */
static void lose(kv_mpi_root *r, int rank, kv_rc rc, const char *why)
{
    kv_err err = {0};
    pthread_mutex_lock(&r->lock);
    const int64_t item = kv_mpi_pool_nth_open(&r->pool, rank, 0), open = kv_mpi_pool_open(&r->pool, rank);
    pthread_mutex_unlock(&r->lock);
    if (item >= 0)
        KV_FAIL(&err, rc, "rank %d on %s %s; it was in item %lld and holds %lld item%s", rank, r->m->hosts[rank], why,
                (long long)item, (long long)open, open == 1 ? "" : "s");
    else
        KV_FAIL(&err, rc, "rank %d on %s %s", rank, r->m->hosts[rank], why);
    r->peers[rank].lost = true;
    r->m->health = KV_MPI_BROKEN;
    kv_mpi_root_stop(r, rc, 0, -1, &err);
}

static bool reserve(kv_buf *b, size_t n)
{
    if (n <= b->cap) return true;
    char *data = kv_realloc(b->data, n, 1);
    if (data == NULL) return false;
    b->data = data;
    b->cap = n;
    return true;
}

/* Takes one report if there is one. */
static bool receive(kv_mpi_root *r)
{
    int there = 0, n = 0;
    MPI_Status status;
    MPI_Request req;
    KV_MPI_MUST(r->m, MPI_Iprobe(MPI_ANY_SOURCE, KV_MPI_TAG_REPORT, r->m->comm, &there, &status));
    if (!there) return false;
    const int rank = status.MPI_SOURCE;
    KV_MPI_MUST(r->m, MPI_Get_count(&status, MPI_BYTE, &n));
    if (!reserve(&r->inbox, (size_t)n)) kv_mpi_abort(r->m, "no memory for a report of %d bytes from rank %d", n, rank);
    KV_MPI_MUST(r->m, MPI_Irecv(r->inbox.data, n, MPI_BYTE, rank, KV_MPI_TAG_REPORT, r->m->comm, &req));
    const uint64_t begin = kv_mpi_now_ns();
    kv_mpi_backoff backoff = {0};
    for (int done = 0; !done;) {
        KV_MPI_MUST(r->m, MPI_Test(&req, &done, MPI_STATUS_IGNORE));
        if (done) break;
        if (kv_mpi_now_ns() - begin > kv_mpi_limit_ns(r->m)) {
            lose(r, rank, KV_ETIME, "stopped in the middle of a report");
            memset(&r->inbox, 0, sizeof r->inbox); /* MPI may still write to the old one */
            return true;
        }
        kv_mpi_backoff_wait(&backoff);
    }
    if (!r->peers[rank].lost) read_report(r, rank, (size_t)n);
    return true;
}

/* ---- orders out ---- */

static bool slot_free(kv_mpi_root *r, kv_mpi_peer *p)
{
    int done = 0;
    KV_MPI_MUST(r->m, MPI_Test(&p->send, &done, MPI_STATUS_IGNORE));
    return done != 0;
}

static void send_slot(kv_mpi_root *r, int rank, kv_mpi_order_kind kind)
{
    kv_mpi_peer *p = &r->peers[rank];
    p->slot.kind = (int32_t)kind;
    const size_t n = kind == KV_MPI_END ? sizeof p->slot : offsetof(kv_mpi_ctrl, outcome);
    p->sent_ns = kv_mpi_now_ns();
    KV_MPI_MUST(r->m, MPI_Isend(&p->slot, (int)n, MPI_BYTE, rank, KV_MPI_TAG_CTRL, r->m->comm, &p->send));
}

static uint64_t ping_ns(const kv_mpi_root *r)
{
    const uint64_t quarter = kv_mpi_limit_ns(r->m) / 4;
    return quarter < PING_NS_MOST ? quarter : PING_NS_MOST;
}

/* The next order for a worker, if one is due; the order of the questions is the order of need. */
static bool serve(kv_mpi_root *r, int rank)
{
    kv_mpi_peer *p = &r->peers[rank];
    kv_mpi_chunk c = {0};
    if (p->lost || p->end_sent || !slot_free(r, p)) return false;
    pthread_mutex_lock(&r->lock);
    const bool stopping = r->stopping, empty = kv_mpi_pool_empty(&r->pool);
    const bool idle = kv_mpi_pool_open(&r->pool, rank) == 0;
    const bool work = !stopping && !p->final && kv_mpi_pool_take(&r->pool, rank, &c);
    pthread_mutex_unlock(&r->lock);
    const uint64_t now = kv_mpi_now_ns();
    if (work) {
        p->slot.begin = c.begin;
        p->slot.end = c.end;
        p->slot.digest = r->order->digest;
        if (idle) p->since_ns = now;
        send_slot(r, rank, KV_MPI_WORK);
    } else if (stopping && !p->final && !p->halt_sent) {
        p->halt_sent = true;
        if (idle) p->since_ns = now;
        send_slot(r, rank, KV_MPI_HALT);
    } else if (empty && !p->final && !p->drain_sent && !p->halt_sent) {
        p->drain_sent = true;
        if (idle) p->since_ns = now;
        send_slot(r, rank, KV_MPI_DRAIN);
    } else if ((idle || p->final) && now - p->sent_ns > ping_ns(r)) {
        send_slot(r, rank, KV_MPI_PING);
    } else {
        return false;
    }
    return true;
}

/* ---- silence ---- */

static void check_silence(kv_mpi_root *r)
{
    const uint64_t now = kv_mpi_now_ns(), limit = kv_mpi_limit_ns(r->m);
    char why[64];
    snprintf(why, sizeof why, "sent nothing for %g s", r->m->timeout_s);
    for (int i = 1; i < r->m->size; i++) {
        const kv_mpi_peer *p = &r->peers[i];
        if (p->final || p->lost || now - p->since_ns <= limit) continue;
        pthread_mutex_lock(&r->lock);
        const bool owes = kv_mpi_pool_open(&r->pool, i) > 0 || p->drain_sent || p->halt_sent;
        pthread_mutex_unlock(&r->lock);
        if (owes) lose(r, i, KV_ETIME, why);
    }
    pthread_mutex_lock(&r->lock);
    const bool hangs = !r->main_idle && r->main_item >= 0 && now > r->main_since_ns && now - r->main_since_ns > limit;
    const int64_t item = r->main_item;
    pthread_mutex_unlock(&r->lock);
    if (hangs)
        kv_mpi_abort(r->m, "item %lld runs for more than %g s here: it hangs, or the time limit is too short",
                     (long long)item, r->m->timeout_s);
}

/* ---- the end ---- */

static bool all_in(kv_mpi_root *r)
{
    for (int i = 1; i < r->m->size; i++)
        if (!r->peers[i].final && !r->peers[i].lost) return false;
    pthread_mutex_lock(&r->lock);
    const bool idle = r->main_idle;
    pthread_mutex_unlock(&r->lock);
    return idle;
}

/* A stop that came when all was done has not interrupted anything. */
static void settle(kv_mpi_root *r)
{
    kv_err err = {0};
    if (r->outcome.rc == KV_EINTR && kv_mpi_pool_all_done(&r->pool)) memset(&r->outcome, 0, sizeof r->outcome);
    if (r->outcome.rc == KV_OK && !kv_mpi_pool_all_done(&r->pool)) {
        KV_FAIL(&err, KV_EBUG, "the hand-out ended with %lld of %lld items", (long long)r->pool.done,
                (long long)r->order->n);
        kv_mpi_outcome_set(&r->outcome, KV_EBUG, 0, -1, &err);
    }
    if (r->outcome.rc == KV_EINTR)
        snprintf(r->outcome.text, sizeof r->outcome.text, "asked to stop after %lld of %lld items",
                 (long long)r->pool.done, (long long)r->order->n);
}

static void send_ends(kv_mpi_root *r)
{
    const uint64_t begin = kv_mpi_now_ns();
    kv_mpi_backoff backoff = {0};
    int pending = 1;
    while (pending > 0 && kv_mpi_now_ns() - begin < kv_mpi_limit_ns(r->m)) {
        pending = 0;
        for (int i = 1; i < r->m->size; i++) {
            kv_mpi_peer *p = &r->peers[i];
            if (p->lost) continue;
            const bool is_free = slot_free(r, p);
            if (is_free && !p->end_sent) {
                p->slot.outcome = r->outcome;
                p->slot.broken = r->m->health != KV_MPI_WELL;
                p->end_sent = true;
                send_slot(r, i, KV_MPI_END);
            }
            if (!slot_free(r, p)) pending++;
        }
        if (pending > 0) kv_mpi_backoff_wait(&backoff);
    }
    if (pending > 0) r->m->health = KV_MPI_BROKEN;
}

void *kv_mpi_helper_main(void *arg)
{
    kv_mpi_root *r = arg;
    kv_mpi_backoff backoff = {0};
    uint64_t checked = kv_mpi_now_ns();
    while (!all_in(r)) {
        int got = 0;
        while (got < RECEIVE_MOST && receive(r)) got++;
        bool active = got > 0;
        for (int i = 1; i < r->m->size; i++) active = serve(r, i) || active;
        if (r->job->stop != NULL && *r->job->stop) kv_mpi_root_stop(r, KV_EINTR, 0, -1, NULL);
        kv_mpi_root_progress(r, false);
        const uint64_t now = kv_mpi_now_ns();
        if (got == 0 && now - checked > CHECK_NS) { /* a rank whose report lies in the queue is not silent */
            check_silence(r);
            checked = now;
        }
        if (active)
            memset(&backoff, 0, sizeof backoff);
        else
            kv_mpi_backoff_wait(&backoff);
    }
    settle(r);
    send_ends(r);
    return NULL;
}
