/* NCCL over MPI: a communicator is a table of world ranks, a group is a list of sends and receives, and everything
 * goes on only when somebody asks how it is. One communicator works on a stream at a time. */
#include <mpi.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/emulated/kv_emu_memory.h"

enum { RANKS = 64, TAG_HELLO = 30000, TAG_TABLE = 30500, TAG_DATA = 31000, SERIALS = 400 };
enum { STARTING, READY, WORKING, FAILED };
#define PART ((size_t)1 << 30)

typedef struct {
    void *at; /* device memory */
    size_t bytes;
    int peer;
    bool send;
    char *bounce; /* what MPI sends or receives, in host memory */
} step;

struct ncclComm {
    int ranks, rank, root, serial; /* root: world rank that made the id */
    int world[RANKS];
    int state, polls;
    bool seen[RANKS], is_root, said_hello, absent;
    MPI_Request start;
    int table[RANKS];
    step *steps;
    size_t n_steps;
    MPI_Request *req;
    int n_req;
    cudaStream_t stream;
    long groups;
    double begin_at;
    char fault[16];
    long fault_number;
};

static int busy(cudaStream_t stream);

static int depth;
static ncclComm_t in_group; /* of the group that is open, or the last one on a stream */

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = 22809;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t code)
{
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "operation in progress"};
    return code >= ncclSuccess && code <= ncclInProgress ? text[code] : "unknown result code";
}

/* ---- start ------------------------------------------------------------------------------- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int serial;
    int word[2] = {0, serial++ % SERIALS};
    MPI_Comm_rank(MPI_COMM_WORLD, &word[0]);
    memset(id, 0, sizeof *id);
    memcpy(id->internal, word, sizeof word);
    return ncclSuccess;
}

static void plant(ncclComm_t c)
{
    const char *text = getenv("KV_EMU_NCCL");
    int rank = -1;
    if (text == NULL || sscanf(text, "%15s %d %ld", c->fault, &rank, &c->fault_number) != 3 || rank != c->rank)
        c->fault[0] = '\0';
    c->absent = strcmp(c->fault, "absent") == 0;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    int word[2], world;
    if (config->magic != 0xcafebeef || config->blocking != 0 || ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks)
        return ncclInvalidArgument;
    ncclComm_t c = calloc(1, sizeof *c);
    if (c == NULL) return ncclSystemError;
    memcpy(word, id.internal, sizeof word);
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    c->ranks = ranks;
    c->rank = rank;
    c->root = word[0];
    c->serial = word[1];
    c->is_root = world == word[0];
    c->start = MPI_REQUEST_NULL;
    plant(c);
    kv_emu_set_busy(busy);
    c->table[rank] = world;
    c->seen[rank] = true;
    *comm = c;
    return ncclInProgress;
}

/* The root hears of every rank, then tells all who is who. */
static void start_root(ncclComm_t c)
{
    int there = 1, missing = 0;
    while (there) {
        MPI_Status st;
        int rank = -1;
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_HELLO + c->serial, MPI_COMM_WORLD, &there, &st);
        if (!there) break;
        MPI_Recv(&rank, 1, MPI_INT, st.MPI_SOURCE, TAG_HELLO + c->serial, MPI_COMM_WORLD, &st);
        if (rank < 0 || rank >= c->ranks || c->seen[rank]) {
            c->state = FAILED;
            return;
        }
        c->seen[rank] = true;
        c->table[rank] = st.MPI_SOURCE;
    }
    for (int r = 0; r < c->ranks; r++) missing += !c->seen[r];
    if (missing > 0) return;
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) MPI_Send(c->table, RANKS, MPI_INT, c->table[r], TAG_TABLE + c->serial, MPI_COMM_WORLD);
    memcpy(c->world, c->table, sizeof c->world);
    c->state = READY;
}

static void start(ncclComm_t c)
{
    int done = 0;
    if (c->absent) return;
    if (c->is_root) {
        start_root(c);
        return;
    }
    if (!c->said_hello) {
        MPI_Send(&c->rank, 1, MPI_INT, c->root, TAG_HELLO + c->serial, MPI_COMM_WORLD);
        MPI_Irecv(c->world, RANKS, MPI_INT, c->root, TAG_TABLE + c->serial, MPI_COMM_WORLD, &c->start);
        c->said_hello = true;
    }
    MPI_Test(&c->start, &done, MPI_STATUS_IGNORE);
    if (done) c->state = READY;
}

/* ---- groups ------------------------------------------------------------------------------ */

ncclResult_t ncclGroupStart(void)
{
    if (depth++ == 0) in_group = NULL;
    return ncclSuccess;
}

static ncclResult_t add(step s, ncclComm_t c, cudaStream_t stream)
{
    if (depth < 1 || c->state != READY || (in_group != NULL && in_group != c)) return ncclInvalidUsage;
    if (!kv_emu_is_device(s.at, s.bytes) || s.peer < 0 || s.peer >= c->ranks) return ncclInvalidArgument;
    step *grown = realloc(c->steps, (c->n_steps + 1) * sizeof *grown);
    if (grown == NULL) return ncclSystemError;
    c->steps = grown;
    c->steps[c->n_steps++] = s;
    c->stream = stream;
    in_group = c;
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    if (type != ncclInt8) return ncclInvalidArgument;
    return add((step){(void *)(uintptr_t)buffer, count, peer, true, NULL}, comm, stream);
}

ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    if (type != ncclInt8) return ncclInvalidArgument;
    return add((step){buffer, count, peer, false, NULL}, comm, stream);
}

ncclResult_t ncclGroupEnd(void)
{
    if (depth < 1) return ncclInvalidUsage;
    if (--depth > 0 || in_group == NULL) return ncclSuccess;
    ncclComm_t c = in_group;
    c->state = WORKING;
    c->polls = 0;
    c->begin_at = now();
    if (strcmp(c->fault, "slow") == 0) c->begin_at += 1e-3 * (double)c->fault_number;
    if (strcmp(c->fault, "stuck") == 0 && c->groups == c->fault_number) c->begin_at = 1e30;
    if (strcmp(c->fault, "async") == 0 && c->groups == c->fault_number) c->state = FAILED;
    c->groups++;
    return ncclInProgress;
}

static void begin(ncclComm_t c)
{
    size_t parts = 0;
    for (size_t i = 0; i < c->n_steps; i++) {
        step *s = &c->steps[i];
        parts += s->bytes / PART + 1;
        if (s->bounce == NULL) s->bounce = malloc(s->bytes + 1);
        if (s->bounce == NULL) return; /* once more when asked again */
        if (s->send) kv_emu_copy(s->bounce, s->at, s->bytes);
    }
    c->req = malloc((parts + 1) * sizeof(MPI_Request));
    c->n_req = 0;
    for (size_t i = 0; c->req != NULL && i < c->n_steps; i++) {
        const step *s = &c->steps[i];
        for (size_t at = 0; at < s->bytes; at += PART) {
            const int n = (int)(s->bytes - at < PART ? s->bytes - at : PART), to = c->world[s->peer];
            char *p = s->bounce + at;
            if (s->send)
                MPI_Isend(p, n, MPI_BYTE, to, TAG_DATA + c->serial, MPI_COMM_WORLD, &c->req[c->n_req++]);
            else
                MPI_Irecv(p, n, MPI_BYTE, to, TAG_DATA + c->serial, MPI_COMM_WORLD, &c->req[c->n_req++]);
        }
    }
}

static void work(ncclComm_t c)
{
    int done = 0;
    if (c->req == NULL) {
        if (now() < c->begin_at) return;
        begin(c);
        if (c->req == NULL) return;
    }
    MPI_Testall(c->n_req, c->req, &done, MPI_STATUSES_IGNORE);
    if (!done) return;
    for (size_t i = 0; i < c->n_steps; i++) {
        if (!c->steps[i].send) kv_emu_copy(c->steps[i].at, c->steps[i].bounce, c->steps[i].bytes);
        free(c->steps[i].bounce);
    }
    free(c->req);
    c->req = NULL;
    c->n_steps = 0;
    c->state = READY;
}

/* Whether a communicator still works on a stream. */
static int busy(cudaStream_t stream)
{
    ncclComm_t c = in_group;
    if (c == NULL || c->stream != stream) return 0;
    if (c->state == WORKING) work(c);
    return c->state == WORKING || c->state == FAILED;
}

/* ---- state and end ----------------------------------------------------------------------- */

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    if (c->state == STARTING) start(c);
    if (c->state == WORKING) work(c);
    *state = c->state == FAILED                       ? ncclRemoteError
             : c->state == STARTING || c->polls++ < 2 ? ncclInProgress
                                                      : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    if (c->state != READY) return ncclInvalidUsage;
    c->polls = 0;
    return ncclInProgress;
}

/* Bounce memory of a group that did not end stays: messages may still arrive there. */
static void end(ncclComm_t c)
{
    if (in_group == c) in_group = NULL;
    free(c->steps);
    free(c->req);
    free(c);
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    if (c->state != READY) return ncclInvalidUsage;
    end(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    if (c->start != MPI_REQUEST_NULL) MPI_Cancel(&c->start);
    for (int i = 0; c->req != NULL && i < c->n_req; i++)
        if (c->req[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&c->req[i]);
            MPI_Request_free(&c->req[i]);
        }
    end(c);
    return ncclSuccess;
}
