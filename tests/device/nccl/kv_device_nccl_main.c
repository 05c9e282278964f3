/* kv_device_nccl: one rank's NCCL on a real GPU, by the program's own transport: a communicator of one, started without
 * blocking and within a time limit; grouped sends and receives to itself of every head that moves when a cache goes from p to q
 * shards; the bytes compared; speed beside a plain copy; an abort; a start that nobody answers. Exit 0 all right, 1 wrong bytes or
 * a wait without end, 5 a call failed, 77 no GPU. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tp/kv_tp.h"
#include "tp/kv_tp_check.h"
#include "tp/kv_tp_shard_index.h"
#include "tp/kv_tp_transport.h"

#ifdef KV_DEVICE_NCCL_MPI /* the emulated NCCL of the tests talks over MPI */
#include <mpi.h>
#endif

#define HEADS 8
#define SHARDS 8
#define LIMIT_S 30.0
#define REPEAT 5

static void must(kv_rc rc, const kv_err *err, const char *what)
{
    if (rc == KV_OK) return;
    printf("FAILED: %s: %s: %s\n", what, kv_rc_name(rc), err->text);
    exit(5);
}

static void must_cuda(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    printf("FAILED: %s: %s\n", what, cudaGetErrorString(e));
    exit(5);
}

static void wipe(void *at, int value, size_t bytes)
{
    cudaStream_t s = NULL;
    must_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "a stream");
    must_cuda(cudaMemsetAsync(at, value, bytes, s), "wiping");
    must_cuda(cudaStreamSynchronize(s), "wiping");
    must_cuda(cudaStreamDestroy(s), "a stream");
}

/* Byte i of a head: no two heads alike. */
static unsigned char pattern(int64_t head, int64_t i)
{
    return (unsigned char)((uint64_t)(i * 8 + head + 1) * 0x9E3779B97F4A7C15u >> 56);
}

/* The shards of one side in GPU memory, [heads held][bytes of a head] each. */
typedef struct {
    int64_t size, head_bytes;
    char *shard[SHARDS];
} side;

static side side_new(int64_t size, int64_t head_bytes)
{
    side s = {.size = size, .head_bytes = head_bytes};
    for (int64_t r = 0; r < size; r++) {
        void *p = NULL;
        must_cuda(cudaMalloc(&p, (size_t)(kv_tp_shard_heads(HEADS, size) * head_bytes)), "memory of a shard");
        s.shard[r] = p;
    }
    return s;
}

static void side_free(side *s)
{
    for (int64_t r = 0; r < s->size; r++) (void)cudaFree(s->shard[r]);
}

static char *head_at(const side *s, int64_t rank, int64_t head)
{
    return s->shard[rank] + (head - kv_tp_shard_first(HEADS, s->size, rank)) * s->head_bytes;
}

/* Every head of every shard, from the host's copy of what it should hold; or compared with it: heads that differ. */
static int64_t each_head(const side *s, bool compare, unsigned char *host)
{
    int64_t wrong = 0;
    for (int64_t r = 0; r < s->size; r++)
        for (int64_t h = 0; h < HEADS; h++) {
            bool same = true;
            if (!kv_tp_shard_holds(HEADS, s->size, r, h)) continue;
            if (compare)
                must_cuda(cudaMemcpy(host, head_at(s, r, h), (size_t)s->head_bytes, cudaMemcpyDefault), "reading back");
            for (int64_t i = 0; i < s->head_bytes; i++) {
                if (compare)
                    same = same && host[i] == pattern(h, i);
                else
                    host[i] = pattern(h, i);
            }
            if (!compare)
                must_cuda(cudaMemcpy(head_at(s, r, h), host, (size_t)s->head_bytes, cudaMemcpyDefault), "filling");
            wrong += !same;
        }
    return wrong;
}

/* What must travel from p shards to q: heads that a destination rank does not hold as a source. All of it goes from this one rank
 * to itself. Heads that stay are copied. Returns how many travel. */
static int32_t plan(const side *from, const side *to, kv_tp_piece send[SHARDS * HEADS],
                    kv_tp_piece recv[SHARDS * HEADS])
{
    int32_t n = 0;
    for (int64_t r = 0; r < to->size; r++)
        for (int64_t h = 0; h < HEADS; h++) {
            if (!kv_tp_shard_holds(HEADS, to->size, r, h)) continue;
            if (kv_tp_shard_holds(HEADS, from->size, r, h)) {
                must_cuda(cudaMemcpy(head_at(to, r, h), head_at(from, r, h), (size_t)to->head_bytes, cudaMemcpyDefault),
                          "a head that stays");
                continue;
            }
            const int64_t holder = kv_tp_shard_holder(HEADS, from->size, h);
            send[n] = (kv_tp_piece){head_at(from, holder, h), from->head_bytes};
            recv[n++] = (kv_tp_piece){head_at(to, r, h), to->head_bytes};
        }
    return n;
}

static int64_t reshard(kv_tp_transport *t, int64_t p, int64_t q, int64_t head_bytes)
{
    kv_tp_piece send[SHARDS * HEADS], recv[SHARDS * HEADS];
    unsigned char *host = malloc((size_t)head_bytes);
    side from = side_new(p, head_bytes), to = side_new(q, head_bytes);
    double best = 1e9, copy = 1e9;
    kv_err err = {0};
    if (host == NULL) abort();
    (void)each_head(&from, false, host);
    for (int64_t r = 0; r < q; r++) wipe(to.shard[r], 0xA5, (size_t)(kv_tp_shard_heads(HEADS, q) * head_bytes));
    const int32_t n = plan(&from, &to, send, recv);
    const kv_tp_message out = {0, n, send}, in = {0, n, recv};
    const kv_tp_batch batch = {&out, &in, n > 0, n > 0};
    for (int i = 0; i < REPEAT; i++) {
        const double t0 = kv_tp_now();
        must(t->ops->exchange(t, &batch, &err), &err, "an exchange");
        const double t1 = kv_tp_now();
        for (int32_t k = 0; k < n; k++)
            must_cuda(cudaMemcpy(recv[k].at, send[k].at, (size_t)send[k].bytes, cudaMemcpyDefault), "copy");
        must_cuda(cudaDeviceSynchronize(), "copy");
        const double t2 = kv_tp_now();
        best = t1 - t0 < best ? t1 - t0 : best;
        copy = t2 - t1 < copy ? t2 - t1 : copy;
    }
    /* what the copies brought is wiped, so that NCCL's own bytes are compared */
    for (int32_t k = 0; k < n; k++) wipe(recv[k].at, 0x5A, (size_t)head_bytes);
    must(t->ops->exchange(t, &batch, &err), &err, "an exchange");
    const int64_t wrong = each_head(&to, true, host);
    const double bytes = (double)n * (double)head_bytes;
    printf("%" PRId64 " -> %" PRId64 " shards: %2d heads of %" PRId64
           " KiB travel, %7.1f GB/s over NCCL, %7.1f GB/s copied, %s\n",
           p, q, n, head_bytes >> 10, bytes / best * 1e-9, bytes / copy * 1e-9,
           wrong == 0 ? "bytes right" : "WRONG BYTES");
    side_free(&from);
    side_free(&to);
    free(host);
    return wrong;
}

/* After an abort every call fails at once. */
static bool abort_ends(kv_tp_transport *t)
{
    kv_err err = {0};
    const kv_tp_batch nothing = {0};
    const double begin = kv_tp_now();
    kv_tp_abort(t, KV_EDEVICE, "on purpose");
    const bool refused = kv_tp_exchange(t, &nothing, &err) != KV_OK;
    const double took = kv_tp_now() - begin;
    printf("abort: %.3f s, later calls are %s\n", took, refused ? "refused" : "NOT REFUSED");
    return refused && took < LIMIT_S;
}

/* A communicator of two of which one never comes: pending until it is aborted. */
static bool lonely_start_ends(void)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state = ncclInProgress;
    int idle = 0;
    config.blocking = 0;
    if (ncclGetUniqueId(&id) != ncclSuccess) return false;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm, 2, id, 0, &config);
    const double begin = kv_tp_now();
    while (begun == ncclInProgress && state == ncclInProgress && kv_tp_now() - begin < 2) {
        if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) break;
        kv_tp_pause(&idle);
    }
    const bool pending = begun == ncclInProgress && state == ncclInProgress;
    const double before = kv_tp_now();
    if (comm != NULL) (void)ncclCommAbort(comm);
    const double took = kv_tp_now() - before;
    printf("a start that nobody answers: %s after 2 s, aborted in %.3f s\n", pending ? "still pending" : "NOT PENDING",
           took);
    return pending && took < LIMIT_S;
}

static int check(void)
{
    static const int64_t pairs[][2] = {{1, 8}, {8, 1}, {2, 4}, {4, 8}, {8, 4}, {8, 2}};
    const int64_t head_bytes = strcmp(kv_tp_nccl_kind(), "nccl") == 0 ? 64 << 20 : 64 << 10;
    kv_tp_hub *hub = NULL;
    kv_tp_transport *control = NULL, *t = NULL;
    kv_err err = {0};
    int count = 0;
    bool good = true;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        printf("no GPU to check NCCL on\n");
        return 77;
    }
    must(kv_tp_hub_new(1, &hub, &err), &err, "a hub");
    must(kv_tp_local_new(hub, 0, LIMIT_S, &control, &err), &err, "the control transport");
    const double begin = kv_tp_now();
    must(kv_tp_nccl_new(control, 0, LIMIT_S, &t, &err), &err, "the start of NCCL");
    printf("NCCL %s: communicator of one rank in %.3f s\n", kv_tp_nccl_version(), kv_tp_now() - begin);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        good = reshard(t, pairs[i][0], pairs[i][1], head_bytes) == 0 && good;
    good = abort_ends(t) && good;
    kv_tp_close(t);
    kv_tp_close(control);
    kv_tp_hub_free(hub);
    good = lonely_start_ends() && good;
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
#ifdef KV_DEVICE_NCCL_MPI
    MPI_Init(&argc, &argv);
    const int code = check();
    MPI_Finalize();
    return code;
#else
    (void)argc;
    (void)argv;
    return check();
#endif
}
