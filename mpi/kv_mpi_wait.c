/* Waits that sleep and end, and the way out when MPI itself fails. */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mpi/kv_mpi_impl.h"

void kv_mpi_backoff_wait(kv_mpi_backoff *b)
{
    if (b->yields < KV_MPI_YIELDS) {
        b->yields++;
        sched_yield();
        return;
    }
    b->sleep_ns = b->sleep_ns == 0 ? KV_MPI_SLEEP_LEAST_NS : 2 * b->sleep_ns;
    if (b->sleep_ns > KV_MPI_SLEEP_MOST_NS) b->sleep_ns = KV_MPI_SLEEP_MOST_NS;
    const struct timespec t = {.tv_sec = 0, .tv_nsec = (long)b->sleep_ns};
    nanosleep(&t, NULL);
}

uint64_t kv_mpi_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t kv_mpi_clock_now(void *unused)
{
    (void)unused;
    return kv_mpi_now_ns();
}

uint64_t kv_mpi_limit_ns(const kv_mpi *m)
{
    return (uint64_t)(m->timeout_s * 1e9);
}

kv_rc kv_mpi_usable(const kv_mpi *m, kv_err *err)
{
    if (m->health == KV_MPI_WELL) return KV_OK;
    return KV_FAIL(err, KV_EMPI, "a rank was lost before: the ranks can no longer talk");
}

void kv_mpi_give_up(kv_mpi *m, bool rank_0_lost)
{
    m->health = m->rank == 0 || rank_0_lost ? KV_MPI_BROKEN : KV_MPI_BROKEN_WAIT;
}

kv_rc kv_mpi_wait(kv_mpi *m, MPI_Request *req, const char *what, kv_err *err)
{
    const uint64_t begin = kv_mpi_now_ns(), limit = kv_mpi_limit_ns(m);
    kv_mpi_backoff backoff = {0};
    for (;;) {
        int done = 0;
        KV_MPI_MUST(m, MPI_Test(req, &done, MPI_STATUS_IGNORE));
        if (done) return KV_OK;
        if (kv_mpi_now_ns() - begin > limit) break;
        kv_mpi_backoff_wait(&backoff);
    }
    kv_mpi_give_up(m, false);
    return KV_FAIL(err, KV_ETIME, "rank %d on %s waited %g s for the other ranks (%s): one of them hangs or is gone",
                   m->rank, m->hosts[m->rank], m->timeout_s, what);
}

static KV_MPI_NORETURN void say_and_abort(const kv_mpi *m, const char *text)
{
    int begun = 0, ended = 0, rank = -1;
    char host[KV_MPI_HOST_BYTES] = "?";
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    if (m != NULL)
        rank = m->rank;
    else if (begun && !ended)
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "?");
    fprintf(stderr, "kvgrid: rank %d on %s: %s\n", rank, host, text);
    fflush(stderr);
    if (begun && !ended) MPI_Abort(MPI_COMM_WORLD, KV_MPI_ABORT_CODE);
    _Exit(KV_MPI_ABORT_CODE);
}

void kv_mpi_abort(const kv_mpi *m, const char *fmt, ...)
{
    char text[KV_ERR_TEXT + 256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    say_and_abort(m, text);
}

void kv_mpi_call_failed(const kv_mpi *m, int code, const char *call, const char *file, int line)
{
    char text[MPI_MAX_ERROR_STRING] = "?";
    int n = 0;
    if (MPI_Error_string(code, text, &n) != MPI_SUCCESS) snprintf(text, sizeof text, "error %d", code);
    kv_mpi_abort(m, "MPI failed: %s (%s, %s:%d)", text, call, file, line);
}
