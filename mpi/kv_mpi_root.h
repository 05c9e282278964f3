/* Private to mpi/: rank 0's half of the hand-out under MPI, shared by its two threads. */
#ifndef KV_MPI_ROOT_H
#define KV_MPI_ROOT_H

#include "mpi/kv_mpi_hub.h"
#include "mpi/kv_mpi_impl.h"

/* The order to a worker that is on its way, one at a time. */
typedef struct {
    kv_mpi_ctrl ctrl;
    MPI_Request send;
} kv_mpi_slot;

typedef struct {
    kv_mpi *m;
    const kv_mpi_job *job;
    kv_mpi_hub *hub;
    kv_mpi_slot *slots; /* by rank; [0] unused; helper only */
    kv_buf inbox;
} kv_mpi_root;

/* kv_mpi_helper.c: the helper thread; arg is the kv_mpi_root */
void *kv_mpi_helper_main(void *arg);

#endif
