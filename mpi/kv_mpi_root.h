/* Private to mpi/: rank 0's half of the hand-out, shared by its two threads. */
#ifndef KV_MPI_ROOT_H
#define KV_MPI_ROOT_H

#include <pthread.h>

#include "mpi/kv_mpi_impl.h"
#include "mpi/kv_mpi_split.h"

/* What the helper thread knows of a worker. Only the helper touches it. */
typedef struct {
    kv_mpi_ctrl slot; /* the order on its way, one at a time */
    MPI_Request send;
    uint64_t since_ns; /* last sign of life, or when it was given something to do */
    uint64_t sent_ns;
    bool drain_sent, halt_sent, end_sent;
    bool final; /* its final report is here */
    bool lost;
} kv_mpi_peer;

typedef struct {
    kv_mpi *m;
    const kv_mpi_job *job;
    const kv_mpi_order *order;

    pthread_mutex_t deliver; /* around on_result and on_progress; never taken while holding lock */
    bool no_more_results;    /* on_result failed once; under deliver */

    pthread_mutex_t lock; /* around everything down to the blank line */
    kv_mpi_pool pool;
    kv_mpi_outcome outcome;
    bool stopping;
    bool main_idle;         /* the main thread computes nothing any more */
    int64_t main_item;      /* what it computes, -1 for nothing */
    uint64_t main_since_ns; /* since when */

    kv_mpi_peer *peers; /* by rank; [0] unused */
    kv_buf inbox;
    uint64_t begin_ns, progress_ns;
} kv_mpi_root;

/* kv_mpi_root.c: both threads */
void kv_mpi_root_stop(kv_mpi_root *r, kv_rc rc, int rank, int64_t item, const kv_err *err); /* first cause stays */
/* The results of a report: to on_result, then into the books. False when they are not the ones due. */
bool kv_mpi_root_deliver(kv_mpi_root *r, int rank, const kv_mpi_report_reader *report, double busy_s);
void kv_mpi_root_progress(kv_mpi_root *r, bool last);

/* kv_mpi_helper.c: the helper thread; arg is the kv_mpi_root */
void *kv_mpi_helper_main(void *arg);

#endif
