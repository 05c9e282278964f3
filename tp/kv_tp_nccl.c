/* The transport over NCCL: one non-blocking communicator and one stream for each group. Nothing here waits inside
 * NCCL or CUDA: state is polled against a deadline, notices of other ranks are heeded meanwhile, and on any failure
 * every rank aborts its communicator. What NCCL cannot say, namely who is missing, the control transport finds out
 * (kv_tp_name_the_silent). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tp/kv_tp.h"
#include "tp/kv_tp_check.h"
#include "tp/kv_tp_transport.h"

typedef struct {
    kv_tp_transport base;
    kv_tp_transport *control;
    ncclComm_t comm; /* NULL when aborted */
    cudaStream_t stream;
} over_nccl;

#ifndef KV_NCCL_KIND /* the emulated NCCL's header calls itself otherwise */
#define KV_NCCL_KIND "nccl"
#endif

const char *kv_tp_nccl_kind(void)
{
    return KV_NCCL_KIND;
}

const char *kv_tp_nccl_version(void)
{
    static char text[32];
    int v = 0;
    if (strcmp(KV_NCCL_KIND, "nccl") != 0) return KV_NCCL_KIND;
    if (ncclGetVersion(&v) != ncclSuccess) return "unknown";
    if (v < 10000)
        snprintf(text, sizeof text, "%d.%d.%d", v / 1000, v / 100 % 10, v % 100);
    else
        snprintf(text, sizeof text, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return text;
}

kv_rc kv_tp_copy(void *dst, bool dst_gpu, const void *src, bool src_gpu, int64_t bytes, kv_err *err)
{
    kv_rc rc = KV_OK;
    if (bytes == 0) return KV_OK;
    if (!dst_gpu && !src_gpu) {
        memcpy(dst, src, (size_t)bytes);
        return KV_OK;
    }
    KV_TP_CUDA_TRY(rc, out, cudaMemcpy(dst, src, (size_t)bytes, cudaMemcpyDefault), err);
    KV_TP_CUDA_TRY(rc, out, cudaStreamSynchronize(NULL), err); /* a copy within a GPU returns before it is done */
out:
    return rc;
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* Until the communicator is done with what was asked of it. */
static kv_rc await_comm(over_nccl *t, double end, const char *what, kv_err *err)
{
    int idle = 0;
    for (;;) {
        ncclResult_t state = ncclSuccess;
        kv_rc rc = KV_OK;
        KV_NCCL_TRY(rc, out, ncclCommGetAsyncError(t->comm, &state), err);
        if (state == ncclSuccess) return KV_OK;
        if (state != ncclInProgress)
            return KV_FAIL(err, KV_EDEVICE, "NCCL reports on rank %" PRId32 ": %s", t->base.world[t->base.rank],
                           kv_tp_nccl_text(state));
        rc = t->control->ops->heed(t->control, NULL, err);
        if (rc != KV_OK) return rc;
        if (kv_tp_now() > end) return KV_FAIL(err, KV_ETIME, "%s not finished after %g s", what, t->base.timeout_s);
        kv_tp_pause(&idle);
        continue;
    out:
        return rc;
    }
}

/* Until the stream is empty; the communicator may fail meanwhile. */
static kv_rc await_stream(over_nccl *t, double end, const char *what, kv_err *err)
{
    int idle = 0;
    kv_rc rc = KV_OK;
    for (;;) {
        const cudaError_t state = cudaStreamQuery(t->stream);
        if (state == cudaSuccess) return KV_OK;
        if (state != cudaErrorNotReady) KV_TP_CUDA_TRY(rc, out, state, err);
        KV_TRY(rc, out, await_comm(t, end, what, err));
        KV_TRY(rc, out, t->control->ops->heed(t->control, NULL, err));
        if (kv_tp_now() > end) return KV_FAIL(err, KV_ETIME, "%s not finished after %g s", what, t->base.timeout_s);
        kv_tp_pause(&idle);
    }
out:
    return rc;
}

/* Aborts here, tells the others, and finds out who is missing. */
static kv_rc give_up(over_nccl *t, kv_rc rc, kv_err *why, kv_err *err)
{
    kv_tp_abort(t->control, rc, why->text);
    if (t->comm != NULL) (void)ncclCommAbort(t->comm);
    t->comm = NULL;
    t->base.broken = true;
    kv_tp_name_the_silent(t->control, rc, why->text, sizeof why->text);
    memcpy(t->base.silent, t->control->silent, sizeof t->base.silent);
    return KV_FAIL(err, rc, "%s", why->text);
}

/* ---- the table --------------------------------------------------------------------------- */

static kv_rc nccl_control(kv_tp_transport *base, const kv_tp_batch *b, kv_err *err)
{
    return kv_tp_control(((over_nccl *)base)->control, b, err);
}

static kv_rc nccl_heed(kv_tp_transport *base, bool *heard, kv_err *err)
{
    over_nccl *t = (over_nccl *)base;
    return t->control->ops->heed(t->control, heard, err);
}

static void nccl_abort(kv_tp_transport *base, kv_rc rc, const char *why)
{
    over_nccl *t = (over_nccl *)base;
    kv_tp_abort(t->control, rc, why);
    if (t->comm != NULL) (void)ncclCommAbort(t->comm);
    t->comm = NULL;
}

static kv_rc queue(over_nccl *t, const kv_tp_batch *b, kv_err *err)
{
    kv_rc rc = KV_OK;
    bool open = false;
    KV_NCCL_TRY(rc, out, ncclGroupStart(), err);
    open = true;
    for (size_t i = 0; i < b->n_send; i++)
        for (int32_t k = 0; k < b->send[i].pieces; k++) {
            const kv_tp_piece *p = &b->send[i].piece[k];
            if (p->bytes == 0) continue;
            KV_NCCL_TRY(rc, out, ncclSend(p->at, (size_t)p->bytes, ncclInt8, b->send[i].peer, t->comm, t->stream), err);
        }
    for (size_t i = 0; i < b->n_recv; i++)
        for (int32_t k = 0; k < b->recv[i].pieces; k++) {
            const kv_tp_piece *p = &b->recv[i].piece[k];
            if (p->bytes == 0) continue;
            KV_NCCL_TRY(rc, out, ncclRecv(p->at, (size_t)p->bytes, ncclInt8, b->recv[i].peer, t->comm, t->stream), err);
        }
    open = false;
    KV_NCCL_TRY(rc, out, ncclGroupEnd(), err);
out:
    if (open) (void)ncclGroupEnd(); /* a group that was begun must be ended, also on the way out */
    return rc;
}

/* "an exchange over NCCL with rank 1, 2": NCCL itself does not say for whom it waits. */
static void name_exchange(const over_nccl *t, const kv_tp_batch *b, char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "an exchange over NCCL");
    const char *before = " with rank ";
    for (int32_t r = 0; r < t->base.size && used + 24 < room; r++) {
        bool peer = false;
        for (size_t i = 0; i < b->n_send; i++) peer = peer || b->send[i].peer == r;
        for (size_t i = 0; i < b->n_recv; i++) peer = peer || b->recv[i].peer == r;
        if (!peer) continue;
        used += (size_t)snprintf(text + used, room - used, "%s%" PRId32, before, t->base.world[r]);
        before = ", ";
    }
}

static kv_rc nccl_exchange(kv_tp_transport *base, const kv_tp_batch *b, kv_err *err)
{
    over_nccl *t = (over_nccl *)base;
    const double end = kv_tp_now() + base->timeout_s;
    char what[128];
    kv_err why = {0};
    kv_rc rc = KV_OK;
    name_exchange(t, b, what, sizeof what);
    KV_TP_CUDA_TRY(rc, out, cudaDeviceSynchronize(), &why); /* what the pieces hold was made on other streams */
    KV_TRY(rc, out, queue(t, b, &why));
    KV_TRY(rc, out, await_comm(t, end, what, &why));
    KV_TRY(rc, out, await_stream(t, end, what, &why));
out:
    return rc == KV_OK ? KV_OK : give_up(t, rc, &why, err);
}

static kv_rc nccl_buffer_new(kv_tp_transport *base, int64_t bytes, void **out, kv_err *err)
{
    (void)base;
    kv_rc rc = KV_OK;
    KV_TP_CUDA_TRY(rc, out, cudaMalloc(out, bytes > 0 ? (size_t)bytes : 1), err);
out:
    return rc;
}

static void nccl_buffer_free(kv_tp_transport *base, void *buffer)
{
    (void)base;
    if (buffer != NULL) (void)cudaFree(buffer);
}

static void nccl_close(kv_tp_transport *base)
{
    over_nccl *t = (over_nccl *)base;
    if (t->comm != NULL) {
        const ncclResult_t code = base->broken ? ncclInternalError : ncclCommFinalize(t->comm);
        const bool ends = (code == ncclSuccess || code == ncclInProgress) &&
                          await_comm(t, kv_tp_now() + base->timeout_s, "the end of NCCL", NULL) == KV_OK;
        (void)(ends ? ncclCommDestroy(t->comm) : ncclCommAbort(t->comm));
    }
    if (t->stream != NULL) (void)cudaStreamDestroy(t->stream);
    kv_free(t);
}

static const kv_tp_ops nccl_ops = {
    KV_NCCL_KIND, true,       nccl_control, nccl_exchange, nccl_buffer_new, nccl_buffer_free, nccl_heed,
    nccl_abort,   nccl_close, NULL,         NULL};

/* ---- start ------------------------------------------------------------------------------- */

/* Rank 0's id to all; a failure of any rank so far is agreed on here. */
static kv_rc share_id(over_nccl *t, kv_rc rc, ncclUniqueId *id, kv_err *err)
{
    ncclUniqueId mine, all[KV_TP_RANKS_MAX];
    memset(&mine, 0, sizeof mine);
    if (rc == KV_OK && t->base.rank == 0) KV_NCCL_TRY(rc, out, ncclGetUniqueId(&mine), err);
out:
    rc = kv_tp_agree(t->control, rc, err);
    if (rc != KV_OK) return rc;
    rc = kv_tp_share(t->control, &mine, sizeof mine, all, err);
    *id = all[0];
    return rc;
}

static kv_rc start(over_nccl *t, const ncclUniqueId *id, kv_err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    kv_err why = {0};
    kv_rc rc = KV_OK;
    config.blocking = 0;
    KV_NCCL_TRY(rc, out, ncclCommInitRankConfig(&t->comm, t->base.size, *id, t->base.rank, &config), &why);
    KV_TRY(rc, out, await_comm(t, kv_tp_now() + t->base.timeout_s, "the start of NCCL", &why));
out:
    return rc == KV_OK ? KV_OK : give_up(t, rc, &why, err);
}

kv_rc kv_tp_nccl_new(kv_tp_transport *control, int32_t gpu, double timeout_s, kv_tp_transport **out, kv_err *err)
{
    ncclUniqueId id;
    kv_rc rc = KV_OK;
    over_nccl *t = kv_alloc(1, sizeof *t);
    if (t == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a transport");
        return kv_tp_agree(control, rc, err);
    }
    t->base = *control;
    t->base.ops = &nccl_ops;
    t->base.timeout_s = timeout_s;
    t->base.sent_bytes = t->base.received_bytes = 0;
    t->base.moved_sent = t->base.moved_received = t->base.moved_least = 0;
    t->control = control;
    KV_TP_CUDA_TRY(rc, ready, cudaSetDevice(gpu), err);
    KV_TP_CUDA_TRY(rc, ready, cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking), err);
ready:
    KV_TRY(rc, fail, share_id(t, rc, &id, err));
    KV_TRY(rc, fail, start(t, &id, err));
    KV_TRY(rc, fail, kv_tp_agree(control, KV_OK, err)); /* every rank has it, or nobody */
    *out = &t->base;
    return KV_OK;
fail:
    t->base.broken = true;
    nccl_close(&t->base);
    return rc;
}
