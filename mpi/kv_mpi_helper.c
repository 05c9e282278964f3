/* The helper thread of rank 0: hands out chunks, takes reports, notices silence. During the
 * hand-out it makes all MPI calls of rank 0, and sleeps when there is nothing to do. What is
 * decided stands in kv_mpi_hub.c; here are the messages. */
#include <string.h>

#include "mpi/kv_mpi_root.h"

static void lose(kv_mpi_root *r, int rank, kv_rc rc, const char *why)
{
    kv_mpi_hub_lose(r->hub, rank, rc, why);
    r->m->health = KV_MPI_BROKEN;
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
    if (!kv_mpi_hub_report(r->hub, rank, r->inbox.data, (size_t)n))
        kv_mpi_abort(r->m, "rank %d sent a report of %d bytes that was not due or is torn", rank, n);
    return true;
}

static bool slot_free(kv_mpi_root *r, int rank)
{
    int done = 0;
    KV_MPI_MUST(r->m, MPI_Test(&r->slots[rank].send, &done, MPI_STATUS_IGNORE));
    return done != 0;
}

static void send_slot(kv_mpi_root *r, int rank)
{
    kv_mpi_slot *s = &r->slots[rank];
    KV_MPI_MUST(r->m, MPI_Isend(&s->ctrl, (int)kv_mpi_ctrl_bytes(&s->ctrl), MPI_BYTE, rank, KV_MPI_TAG_CTRL, r->m->comm,
                                &s->send));
}

static bool serve(kv_mpi_root *r, int rank)
{
    if (!slot_free(r, rank) || !kv_mpi_hub_order(r->hub, rank, &r->slots[rank].ctrl)) return false;
    send_slot(r, rank);
    return true;
}

static void check_silence(kv_mpi_root *r)
{
    int64_t item = -1;
    if (!kv_mpi_hub_check_silence(r->hub, &item))
        kv_mpi_abort(r->m, "item %lld runs for more than %g s here: it hangs, or the time limit is too short",
                     (long long)item, r->m->timeout_s);
    if (r->hub->broken) r->m->health = KV_MPI_BROKEN;
}

static void send_ends(kv_mpi_root *r)
{
    const uint64_t begin = kv_mpi_now_ns();
    kv_mpi_backoff backoff = {0};
    int pending = 1;
    while (pending > 0 && kv_mpi_now_ns() - begin < kv_mpi_limit_ns(r->m)) {
        pending = 0;
        for (int i = 1; i < r->m->size; i++) {
            if (r->hub->peers[i].lost) continue;
            if (slot_free(r, i) && kv_mpi_hub_end(r->hub, i, &r->slots[i].ctrl)) send_slot(r, i);
            if (!slot_free(r, i)) pending++;
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
    while (!kv_mpi_hub_all_in(r->hub)) {
        int got = 0;
        while (got < KV_MPI_RECEIVE_MOST && receive(r)) got++;
        bool active = got > 0;
        for (int i = 1; i < r->m->size; i++) active = serve(r, i) || active;
        kv_mpi_hub_watch_stop(r->hub);
        kv_mpi_hub_progress(r->hub, false);
        const uint64_t now = kv_mpi_now_ns();
        if (got == 0 && now - checked > KV_MPI_CHECK_NS) { /* a rank whose report lies in the queue is not silent */
            check_silence(r);
            checked = now;
        }
        if (active)
            memset(&backoff, 0, sizeof backoff);
        else
            kv_mpi_backoff_wait(&backoff);
    }
    kv_mpi_hub_settle(r->hub);
    kv_mpi_hub_progress(r->hub, true); /* all is delivered; the last words may take their time */
    send_ends(r);
    return NULL;
}
