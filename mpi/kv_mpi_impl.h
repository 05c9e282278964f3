/* Private to mpi/: the handle, waits that sleep, and the outcome record that travels. */
#ifndef KV_MPI_IMPL_H
#define KV_MPI_IMPL_H

#include <mpi.h>

#include "mpi/kv_mpi.h"
#include "mpi/kv_mpi_check.h"
#include "mpi/kv_mpi_hub.h"
#include "mpi/kv_mpi_msg.h"

typedef enum {
    KV_MPI_WELL,
    KV_MPI_BROKEN,      /* a rank is lost; this one may end the job at once */
    KV_MPI_BROKEN_WAIT, /* a rank is lost; rank 0 knows, and ends the job when it has saved its state */
} kv_mpi_health;

/* Buffers of collectives live here, not on a stack: a wait that ran out leaves its request
 * behind, and MPI may still write. (A broken handle is never freed.) */
typedef struct {
    int32_t first_in, first_out;
    uint64_t size;
    kv_mpi_outcome outcome;
} kv_mpi_scratch;

struct kv_mpi {
    MPI_Comm comm;
    int rank, size;
    int host_rank, host_size, host_count;
    double timeout_s;
    kv_mpi_health health;
    char (*hosts)[KV_MPI_HOST_BYTES]; /* one per rank */
    kv_mpi_scratch scratch;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
};

/* A wait that first yields, then sleeps 20 us, doubling up to 2 ms. Start with {0}. */
typedef struct {
    int yields;
    int64_t sleep_ns;
} kv_mpi_backoff;
void kv_mpi_backoff_wait(kv_mpi_backoff *b);

uint64_t kv_mpi_now_ns(void);
uint64_t kv_mpi_clock_now(void *unused);   /* the same as a kv_mpi_clock */
uint64_t kv_mpi_limit_ns(const kv_mpi *m); /* timeout_s */

/* Waits for *req with sleeps. Past the limit: the handle is broken, KV_ETIME, and the buffers of
 * the request must stay where they are. */
kv_rc kv_mpi_wait(kv_mpi *m, MPI_Request *req, const char *what, kv_err *err) KV_MUST_USE;
/* KV_OK, or KV_EMPI on a broken handle. */
kv_rc kv_mpi_usable(const kv_mpi *m, kv_err *err) KV_MUST_USE;

/* The outcome as this rank must return it: its own failure stays, others become KV_EPEER. */
kv_rc kv_mpi_outcome_adopt(const kv_mpi *m, const kv_mpi_outcome *o, kv_err *err);

/* Tags of the hand-out. */
enum { KV_MPI_TAG_CTRL = 1, KV_MPI_TAG_REPORT = 2 };

/* The two halves of kv_mpi_handout for more than one rank. */
kv_rc kv_mpi_root_run(kv_mpi *m, const kv_mpi_job *job, const kv_mpi_order *order, kv_err *err) KV_MUST_USE;
kv_rc kv_mpi_worker_run(kv_mpi *m, const kv_mpi_job *job, const kv_mpi_order *order, kv_err *err) KV_MUST_USE;

#endif
