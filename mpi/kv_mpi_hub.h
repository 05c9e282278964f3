/* Private to mpi/, its tests and the simulator: rank 0's half of the hand-out as decisions. No MPI here, no clock
 * and no thread of its own: kv_mpi_root.c and kv_mpi_helper.c drive it with MPI and two threads,
 * grid/sim/kv_sim_root.c with virtual time and one. The locks are inside. */
#ifndef KV_MPI_HUB_H
#define KV_MPI_HUB_H

#include <pthread.h>

#include "mpi/kv_mpi.h"
#include "mpi/kv_mpi_msg.h"
#include "mpi/kv_mpi_split.h"

#define KV_MPI_HOST_BYTES 256
#define KV_MPI_YIELDS 16              /* a wait first yields so often, */
#define KV_MPI_SLEEP_LEAST_NS 20000   /* then sleeps this long, */
#define KV_MPI_SLEEP_MOST_NS 2000000  /* doubling up to this */
#define KV_MPI_PROGRESS_NS 100000000u /* on_progress about this often */
#define KV_MPI_CHECK_NS 10000000u     /* look for silent ranks about this often */
#define KV_MPI_RECEIVE_MOST 64        /* reports in a row before the next look at who needs work */

typedef uint64_t (*kv_mpi_clock)(void *ctx); /* nanoseconds, never back */

/* What is known of a worker. Only the helper touches it. */
typedef struct {
    uint64_t since_ns; /* last sign of life, or when it was given something to do */
    uint64_t sent_ns;
    bool drain_sent, halt_sent, end_sent;
    bool final; /* its final report is here */
    bool lost;
} kv_mpi_peer;

/* What a hub is made from; all borrowed. */
typedef struct {
    const kv_mpi_job *job;
    const kv_mpi_order *order;
    const char (*hosts)[KV_MPI_HOST_BYTES]; /* one per rank; NULL: unnamed */
    int ranks;
    double timeout_s;
    kv_mpi_clock clock;
    void *clock_ctx;
} kv_mpi_hub_setup;

typedef struct {
    kv_mpi_hub_setup s;

    pthread_mutex_t deliver; /* around on_result and on_progress; never taken while holding lock */
    bool no_more_results;    /* on_result failed once; under deliver */

    pthread_mutex_t lock; /* around everything down to the blank line */
    kv_mpi_pool pool;
    kv_mpi_outcome outcome;
    bool stopping;
    bool main_idle;         /* the main thread computes nothing any more */
    int64_t main_item;      /* what it computes, -1 for nothing */
    kv_mpi_chunk main_next; /* what it will compute after that, where the job wants to know what comes */
    uint64_t main_since_ns; /* since when */
    double main_busy_s; /* spent on its chunk: what is begun together takes the time of whatever is waited for first */

    kv_mpi_peer *peers; /* by rank; [0] unused */
    bool broken;        /* a rank is lost; helper only */
    uint64_t begin_ns, progress_ns;
} kv_mpi_hub;

kv_rc kv_mpi_hub_new(const kv_mpi_hub_setup *setup, kv_mpi_hub **out, kv_err *err) KV_MUST_USE;
void kv_mpi_hub_free(kv_mpi_hub *h);  /* NULL is fine */
void kv_mpi_hub_begin(kv_mpi_hub *h); /* all clocks start now */
uint64_t kv_mpi_hub_limit_ns(const kv_mpi_hub *h);

/* ---- both threads ---- */
void kv_mpi_hub_stop(kv_mpi_hub *h, kv_rc rc, int rank, int64_t item, const kv_err *err); /* first cause stays */
void kv_mpi_hub_watch_stop(kv_mpi_hub *h);                                                /* job->stop was set here */
void kv_mpi_hub_progress(kv_mpi_hub *h, bool last);

/* ---- the main thread ---- */
/* Books what this thread has delivered (-1: nothing), and takes its next item; false when there is none. */
bool kv_mpi_hub_next_item(kv_mpi_hub *h, int64_t delivered, double busy_s, int64_t *item);
/* The items that this thread runs next, the one just taken first; how many, at most KV_MPI_COMING. */
int32_t kv_mpi_hub_coming(kv_mpi_hub *h, int64_t *items);
/* What run_item gave for item; delivers it. False when the run must end. */
bool kv_mpi_hub_ran(kv_mpi_hub *h, int64_t item, kv_rc rc, const kv_buf *bytes, const kv_err *err);

/* ---- the helper ---- */
/* A report of rank came in: its results go to on_result, then into the books. False when it is torn or not due. */
bool kv_mpi_hub_report(kv_mpi_hub *h, int rank, const char *bytes, size_t n);
/* The next order for a worker, if one is due. The caller sends the first kv_mpi_ctrl_bytes() of *slot. */
bool kv_mpi_hub_order(kv_mpi_hub *h, int rank, kv_mpi_ctrl *slot);
/* A rank that cannot go on. The run ends; nothing more is expected from it. */
void kv_mpi_hub_lose(kv_mpi_hub *h, int rank, kv_rc rc, const char *why);
/* Loses the ranks that owe something and sent nothing for too long. False when it is this rank's own item (*item)
 * that hangs: nothing can be done but to end the job. */
bool kv_mpi_hub_check_silence(kv_mpi_hub *h, int64_t *item);
bool kv_mpi_hub_all_in(kv_mpi_hub *h); /* nothing more to wait for */
void kv_mpi_hub_settle(kv_mpi_hub *h); /* then: the outcome of the whole run */
/* END for a worker, once; false when it had it or is lost. */
bool kv_mpi_hub_end(kv_mpi_hub *h, int rank, kv_mpi_ctrl *slot);

/* ---- one rank: no messages, no thread ---- */
kv_rc kv_mpi_solo(const kv_mpi_job *job, const kv_mpi_order *order, kv_mpi_clock clock, void *clock_ctx, kv_err *err)
    KV_MUST_USE;

#endif
