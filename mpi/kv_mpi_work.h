/* Private to mpi/, its tests and the simulator: a worker's half of the hand-out as decisions. No MPI, no clock of its
 * own: kv_mpi_worker.c drives it with MPI, grid/sim/kv_sim_worker.c with virtual time. */
#ifndef KV_MPI_WORK_H
#define KV_MPI_WORK_H

#include "mpi/kv_mpi_hub.h"

#define KV_MPI_FLUSH_NS 250000000u           /* send finished results at least this often, between items */
#define KV_MPI_FLUSH_BYTES ((size_t)1 << 20) /* or when there are this many */
#define KV_MPI_SEND_PATIENCE_NS 50000000u    /* let a large report leave before the next item begins */

typedef struct {
    int rank;
    const kv_mpi_order *order;
    uint64_t limit_ns;
    kv_mpi_clock clock;
    void *clock_ctx;
    kv_mpi_report fill, out; /* being filled; being sent */
    kv_mpi_chunk queue[KV_MPI_PREFETCH];
    int n_queue;
    bool chunk_done; /* since the last report */
    bool draining, halting, final_sent, ended;
    kv_mpi_outcome mine; /* what went wrong here */
    uint32_t flags;
    uint64_t heard_ns, flushed_ns;
} kv_mpi_work;

/* Sets up *w (the caller sets rank, order, limit_ns, clock, clock_ctx before) and starts its clocks. */
kv_rc kv_mpi_work_begin(kv_mpi_work *w, kv_err *err) KV_MUST_USE;
void kv_mpi_work_free(kv_mpi_work *w);

/* An order of rank 0 came in. */
void kv_mpi_work_order(kv_mpi_work *w, const kv_mpi_ctrl *c);

typedef enum {
    KV_MPI_STEP_IDLE,    /* nothing to do but to look for orders again later */
    KV_MPI_STEP_GIVE_UP, /* the same, but rank 0 has been silent for too long */
    KV_MPI_STEP_ITEM,    /* run kv_mpi_work_item() */
    KV_MPI_STEP_FINAL,   /* send the final report */
} kv_mpi_step;
/* What to do when no order waits. stop: this rank was asked to. */
kv_mpi_step kv_mpi_work_next(kv_mpi_work *w, bool stop);
int64_t kv_mpi_work_item(const kv_mpi_work *w);
/* The items that come next, that one first; how many there are, at most KV_MPI_COMING. */
int32_t kv_mpi_work_coming(const kv_mpi_work *w, int64_t *items);
/* What run_item gave for that item, after busy_ns. True: the report must be sent now. */
bool kv_mpi_work_ran(kv_mpi_work *w, kv_rc rc, const kv_buf *bytes, uint64_t busy_ns, const kv_err *err);
/* Closes the report; w->out is to be sent. The two reports change places, so the next item can be added at once: the
 * one before must have left. */
kv_rc kv_mpi_work_close(kv_mpi_work *w, bool final, kv_err *err) KV_MUST_USE;

#endif
