/* The transport over MPI: point-to-point on a communicator of its own, every wait polled with a deadline. */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "tp/kv_tp_transport.h"

#define PART_BYTES ((int64_t)1 << 30) /* an MPI count is an int */
enum { TAG_CONTROL = 1, TAG_PAYLOAD = 2, TAG_NOTICE = 3 };

struct kv_tp_world {
    MPI_Comm comm;
    int32_t rank, size;
};

/* Why a rank gives up. */
typedef struct {
    int32_t rc;
    char text[KV_TP_NOTICE_TEXT];
} notice;

typedef struct {
    kv_tp_transport base;
    MPI_Comm comm;
    int64_t part_bytes;
    notice told_all; /* read by sends that nobody waits for, so it lives as long as they do */
    bool gave_up;
    MPI_Request told[KV_TP_RANKS_MAX];
    bool heard[KV_TP_RANKS_MAX];
    notice said[KV_TP_RANKS_MAX];
} over_mpi;

/* An MPI call that failed: recorded, the caller breaks the group. */
static kv_rc must(int code, const char *what, kv_err *err)
{
    if (code == MPI_SUCCESS) return KV_OK;
    return KV_FAIL(err, KV_EMPI, "%s failed with MPI error %d", what, code);
}

/* ---- the world --------------------------------------------------------------------------- */

kv_rc kv_tp_world_new(double timeout_s, kv_tp_world **out, kv_err *err)
{
    kv_tp_world *w = kv_alloc(1, sizeof *w);
    MPI_Request req;
    int done = 0, idle = 0, rank = 0, size = 0;
    kv_rc rc;
    if (w == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a world");
    KV_TRY(rc, fail, must(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank", err));
    KV_TRY(rc, fail, must(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size", err));
    w->rank = rank;
    w->size = size;
    KV_TRY(rc, fail, must(MPI_Comm_idup(MPI_COMM_WORLD, &w->comm, &req), "MPI_Comm_idup", err));
    for (const double end = kv_tp_now() + timeout_s; !done;) {
        KV_TRY(rc, fail, must(MPI_Test(&req, &done, MPI_STATUS_IGNORE), "MPI_Comm_idup", err));
        if (!done && kv_tp_now() > end) /* w stays: MPI may still write to it */
            return KV_FAIL(err, KV_ETIME, "waited %g s for all %d ranks to begin with tensor-parallel cells", timeout_s,
                           size);
        if (!done) kv_tp_pause(&idle);
    }
    KV_TRY(rc, fail, must(MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", err));
    *out = w;
    return KV_OK;
fail:
    kv_free(w);
    return rc;
}

void kv_tp_world_free(kv_tp_world *w)
{
    /* the communicator stays until MPI_Finalize: freeing it may wait for ranks that are lost */
    kv_free(w);
}

int32_t kv_tp_world_rank(const kv_tp_world *w)
{
    return w->rank;
}

int32_t kv_tp_world_size(const kv_tp_world *w)
{
    return w->size;
}

/* ---- notices ----------------------------------------------------------------------------- */

static int32_t group_rank(const kv_tp_transport *t, int world)
{
    for (int32_t r = 0; r < t->size; r++)
        if (t->world[r] == world) return r;
    return -1;
}

static kv_rc take_notices(over_mpi *t, kv_err *err)
{
    for (;;) {
        int there = 0;
        MPI_Status st;
        kv_rc rc = must(MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTICE, t->comm, &there, &st), "MPI_Iprobe", err);
        if (rc != KV_OK || !there) return rc;
        notice said;
        rc = must(MPI_Recv(&said, sizeof said, MPI_BYTE, st.MPI_SOURCE, TAG_NOTICE, t->comm, &st), "MPI_Recv", err);
        if (rc != KV_OK) return rc;
        const int32_t r = group_rank(&t->base, st.MPI_SOURCE);
        if (r < 0) continue; /* of another group, long over */
        t->heard[r] = true;
        t->base.timed_out = t->base.timed_out || said.rc == KV_ETIME;
        said.text[sizeof said.text - 1] = '\0';
        t->said[r] = said;
    }
}

static kv_rc mpi_heed(kv_tp_transport *base, bool *heard, kv_err *err)
{
    over_mpi *t = (over_mpi *)base;
    const kv_rc rc = take_notices(t, err);
    int32_t first = -1;
    for (int32_t r = 0; r < base->size; r++) {
        if (!t->heard[r]) continue;
        if (heard != NULL) heard[r] = true;
        /* a rank that knows a cause of its own, rather than one that only heard of it */
        if (first < 0 || (t->said[first].rc == (int32_t)KV_EPEER && t->said[r].rc != (int32_t)KV_EPEER)) first = r;
    }
    if (rc != KV_OK || first < 0) return rc;
    return KV_FAIL(err, KV_EPEER, "rank %" PRId32 " gave up: %s", base->world[first], t->said[first].text);
}

static void mpi_abort(kv_tp_transport *base, kv_rc rc, const char *why)
{
    over_mpi *t = (over_mpi *)base;
    if (t->gave_up) return;
    t->gave_up = true;
    t->told_all.rc = (int32_t)rc;
    snprintf(t->told_all.text, sizeof t->told_all.text, "%.230s", why);
    for (int32_t r = 0; r < base->size; r++)
        if (r != base->rank && MPI_Isend(&t->told_all, sizeof t->told_all, MPI_BYTE, base->world[r], TAG_NOTICE,
                                         t->comm, &t->told[r]) != MPI_SUCCESS)
            t->told[r] = MPI_REQUEST_NULL; /* nothing more can be done for it */
}

/* ---- one batch --------------------------------------------------------------------------- */

/* Requests under way, receives first, and the rank that each waits for. */
typedef struct {
    MPI_Request *req;
    int32_t *peer;
    int *index;
    int n, n_recv, open, open_recv;
} flight;

static int64_t parts_of(const over_mpi *t, const kv_tp_message *m, size_t n)
{
    int64_t parts = 0;
    for (size_t i = 0; i < n; i++)
        for (int32_t k = 0; k < m[i].pieces; k++) parts += (m[i].piece[k].bytes + t->part_bytes - 1) / t->part_bytes;
    return parts;
}

static kv_rc launch(over_mpi *t, flight *f, const kv_tp_message *m, int tag, bool send, kv_err *err)
{
    const int world = t->base.world[m->peer];
    for (int32_t k = 0; k < m->pieces; k++)
        for (int64_t at = 0; at < m->piece[k].bytes; at += t->part_bytes) {
            const int64_t left = m->piece[k].bytes - at;
            const int count = (int)(left < t->part_bytes ? left : t->part_bytes);
            unsigned char *p = (unsigned char *)m->piece[k].at + at;
            const int code = send ? MPI_Isend(p, count, MPI_BYTE, world, tag, t->comm, &f->req[f->n])
                                  : MPI_Irecv(p, count, MPI_BYTE, world, tag, t->comm, &f->req[f->n]);
            const kv_rc rc = must(code, send ? "MPI_Isend" : "MPI_Irecv", err);
            if (rc != KV_OK) return rc;
            f->peer[f->n++] = m->peer;
        }
    return KV_OK;
}

static kv_rc time_out(const over_mpi *t, const flight *f, kv_err *err)
{
    char names[200] = "";
    size_t used = 0;
    const int from = f->open_recv > 0 ? 0 : f->n_recv, to = f->open_recv > 0 ? f->n_recv : f->n;
    for (int32_t r = 0; r < t->base.size; r++)
        for (int i = from; i < to; i++)
            if (f->req[i] != MPI_REQUEST_NULL && f->peer[i] == r) {
                if (used < sizeof names - 16)
                    used += (size_t)snprintf(names + used, sizeof names - used, "%s%" PRId32, used > 0 ? ", " : "",
                                             t->base.world[r]);
                break;
            }
    return KV_FAIL(err, KV_ETIME, "rank %s %s for %g s", names, f->open_recv > 0 ? "sent nothing" : "took nothing",
                   t->base.timeout_s);
}

/* One look at all requests; *moved when some ended. */
static kv_rc poll(over_mpi *t, flight *f, bool *moved, kv_err *err)
{
    int done = 0;
    const kv_rc rc = must(MPI_Testsome(f->n, f->req, &done, f->index, MPI_STATUSES_IGNORE), "MPI_Testsome", err);
    if (rc != KV_OK) return rc;
    if (done == MPI_UNDEFINED) done = f->open;
    f->open -= done;
    *moved = done > 0;
    f->open_recv = 0;
    for (int i = 0; i < f->n_recv; i++) f->open_recv += f->req[i] != MPI_REQUEST_NULL;
    return mpi_heed(&t->base, NULL, err);
}

static kv_rc await(over_mpi *t, flight *f, kv_err *err)
{
    double end = kv_tp_now() + t->base.timeout_s;
    int idle = 0;
    f->open = f->n;
    while (f->open > 0) {
        bool moved = false;
        const kv_rc rc = poll(t, f, &moved, err);
        if (f->open == 0) return KV_OK; /* all there: what a rank met after that shows in the next batch */
        if (rc != KV_OK) return rc;
        if (moved) {
            end = kv_tp_now() + t->base.timeout_s;
            idle = 0;
        } else if (kv_tp_now() > end) {
            return time_out(t, f, err);
        } else {
            kv_tp_pause(&idle);
        }
    }
    return KV_OK;
}

/* Takes receives back where that works within a moment; else the memory stays in use. */
static void call_off(over_mpi *t, flight *f)
{
    for (int i = 0; i < f->n_recv; i++)
        if (f->req[i] != MPI_REQUEST_NULL) (void)MPI_Cancel(&f->req[i]);
    int all = 0, idle = 0;
    for (const double end = kv_tp_now() + 0.2; !all && kv_tp_now() < end; kv_tp_pause(&idle))
        if (MPI_Testall(f->n, f->req, &all, MPI_STATUSES_IGNORE) != MPI_SUCCESS) break;
    if (!all) t->base.lost_buffers = true;
}

static void flight_free(flight *f)
{
    kv_free(f->req);
    kv_free(f->peer);
    kv_free(f->index);
    kv_free(f);
}

static kv_rc flight_new(int64_t parts, flight **out, kv_err *err)
{
    flight *f = parts <= INT32_MAX ? kv_alloc(1, sizeof *f) : NULL;
    if (f != NULL) {
        f->req = kv_alloc((size_t)parts, sizeof(MPI_Request));
        f->peer = kv_alloc((size_t)parts, sizeof *f->peer);
        f->index = kv_alloc((size_t)parts, sizeof *f->index);
    }
    if (f == NULL || f->req == NULL || f->peer == NULL || f->index == NULL) {
        if (f != NULL) flight_free(f);
        return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " messages", parts);
    }
    *out = f;
    return KV_OK;
}

/* After a failure: the others are told, who is missing is found out, what can be taken back is. Frees f (may be NULL). */
static kv_rc give_up(over_mpi *t, flight *f, kv_rc rc, kv_err *why, kv_err *err)
{
    mpi_abort(&t->base, rc, why->text);
    kv_tp_name_the_silent(&t->base, rc, why->text, sizeof why->text);
    if (f != NULL) {
        call_off(t, f);
        if (!t->base.lost_buffers) flight_free(f);
    }
    return KV_FAIL(err, rc, "%s", why->text);
}

static kv_rc begin(over_mpi *t, const kv_tp_batch *b, int tag, flight **out, kv_err *err)
{
    flight *f = NULL;
    kv_err why = {0};
    kv_rc rc = flight_new(parts_of(t, b->recv, b->n_recv) + parts_of(t, b->send, b->n_send), &f, &why);
    for (size_t i = 0; rc == KV_OK && i < b->n_recv; i++) rc = launch(t, f, &b->recv[i], tag, false, &why);
    if (f != NULL) f->n_recv = f->open_recv = f->n;
    for (size_t i = 0; rc == KV_OK && i < b->n_send; i++) rc = launch(t, f, &b->send[i], tag, true, &why);
    if (rc != KV_OK) return give_up(t, f, rc, &why, err);
    *out = f;
    return KV_OK;
}

static kv_rc end(over_mpi *t, flight *f, kv_err *err)
{
    kv_err why = {0};
    const kv_rc rc = await(t, f, &why);
    if (rc != KV_OK) return give_up(t, f, rc, &why, err);
    flight_free(f);
    return KV_OK;
}

static kv_rc run(kv_tp_transport *base, const kv_tp_batch *b, int tag, kv_err *err)
{
    flight *f = NULL;
    const kv_rc rc = begin((over_mpi *)base, b, tag, &f, err);
    return rc == KV_OK ? end((over_mpi *)base, f, err) : rc;
}

static kv_rc mpi_begin(kv_tp_transport *base, const kv_tp_batch *b, void **out, kv_err *err)
{
    flight *f = NULL;
    const kv_rc rc = begin((over_mpi *)base, b, TAG_PAYLOAD, &f, err);
    *out = f;
    return rc;
}

static kv_rc mpi_end(kv_tp_transport *base, void *f, kv_err *err)
{
    return end((over_mpi *)base, f, err);
}

static kv_rc mpi_control(kv_tp_transport *t, const kv_tp_batch *b, kv_err *err)
{
    return run(t, b, TAG_CONTROL, err);
}

static kv_rc mpi_exchange(kv_tp_transport *t, const kv_tp_batch *b, kv_err *err)
{
    return run(t, b, TAG_PAYLOAD, err);
}

static kv_rc mpi_buffer_new(kv_tp_transport *t, int64_t bytes, void **out, kv_err *err)
{
    (void)t;
    void *p = kv_alloc_image((size_t)bytes);
    if (p == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a buffer of %" PRId64 " bytes", bytes);
    *out = p;
    return KV_OK;
}

static void mpi_buffer_free(kv_tp_transport *t, void *buffer)
{
    (void)t;
    kv_free(buffer);
}

static void mpi_close(kv_tp_transport *base)
{
    over_mpi *t = (over_mpi *)base;
    int idle = 0;
    bool open = t->gave_up;
    for (const double end = kv_tp_now() + 0.2; open && kv_tp_now() < end; kv_tp_pause(&idle)) {
        open = false;
        for (int32_t r = 0; r < base->size; r++) {
            int done = 1;
            if (t->told[r] != MPI_REQUEST_NULL) (void)MPI_Test(&t->told[r], &done, MPI_STATUS_IGNORE);
            open = open || !done;
        }
    }
    if (!open) kv_free(t); /* else a notice is still being read from it */
}

static const kv_tp_ops mpi_ops = {"mpi",    false,     mpi_control, mpi_exchange, mpi_buffer_new, mpi_buffer_free,
                                  mpi_heed, mpi_abort, mpi_close,   mpi_begin,    mpi_end};

kv_rc kv_tp_mpi_new(kv_tp_world *w, const int32_t *world_rank, int32_t n, double timeout_s, kv_tp_transport **out,
                    kv_err *err)
{
    int32_t me = -1;
    if (n < 1 || n > KV_TP_RANKS_MAX)
        return KV_FAIL(err, KV_EINVAL, "a group has 1 to %d ranks, not %" PRId32, KV_TP_RANKS_MAX, n);
    over_mpi *t = kv_alloc(1, sizeof *t);
    if (t == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a transport");
    for (int32_t r = 0; r < n; r++) {
        if (world_rank[r] == w->rank) me = r;
        t->base.world[r] = world_rank[r];
        t->told[r] = MPI_REQUEST_NULL;
        if (world_rank[r] < 0 || world_rank[r] >= w->size) n = 0; /* refused below */
    }
    if (me < 0 || n == 0) {
        kv_free(t);
        return KV_FAIL(err, KV_EINVAL, "rank %" PRId32 " of %" PRId32 " is not in this group", w->rank, w->size);
    }
    t->base.ops = &mpi_ops;
    t->base.rank = me;
    t->base.size = n;
    t->base.timeout_s = timeout_s;
    t->comm = w->comm;
    t->part_bytes = PART_BYTES;
    *out = &t->base;
    return KV_OK;
}

void kv_tp_mpi_part_bytes(kv_tp_transport *t, int64_t bytes)
{
    if (t->ops == &mpi_ops) ((over_mpi *)t)->part_bytes = bytes;
}
