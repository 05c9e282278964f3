/* What the launcher announced, read before MPI_Init and compared with the world after it: N
 * worlds of size 1 (srun without a working PMI) must not pass for one run of N ranks. */
#ifndef KV_MPI_LAUNCH_H
#define KV_MPI_LAUNCH_H

#include "base/kv_base.h"

/* Like getenv: NULL when name is not set. */
typedef const char *(*kv_mpi_getenv)(void *ctx, const char *name);

typedef struct {
    const char *name;   /* the variable that decides; NULL when none is set */
    char text[32];      /* its value, cut */
    int64_t tasks;      /* its value; -1 when it is no number of tasks */
    bool only_if_alone; /* also set for other reasons (an allocation): counts only if the world is 1 */
    bool launched;      /* there is a process manager that MPI_Init can talk to: not so under srun without PMIx */
} kv_mpi_launch;

/* The first one set of OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_STEP_NUM_TASKS, SLURM_NTASKS. */
void kv_mpi_launch_read(kv_mpi_getenv get, void *ctx, kv_mpi_launch *out);
/* KV_EMPI if the announcement counts and is not world_size. */
kv_rc kv_mpi_launch_check(const kv_mpi_launch *l, int world_size, kv_err *err) KV_MUST_USE;

#endif
