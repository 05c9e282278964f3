/* Which device a rank computes on: by --device, and by its place among the ranks of its host. */
#ifndef KV_GPU_H
#define KV_GPU_H

#include "grid/cell/kv_memory.h"
#include "mpi/kv_mpi.h"

/* What was chosen. */
typedef struct {
    kv_device *dev;  /* the caller closes it */
    int ordinal;     /* of the GPU, -1 on a CPU */
    kv_cuda_gpu gpu; /* of all zeros on a CPU */
    kv_memory memory;
} kv_chosen;

/* kind: NULL or "auto" (a GPU where this rank sees one, else the CPU), "cpu", "cuda". A rank takes the GPU of its number
 * within the host, so a task that sees one GPU alone takes that one. Where two ranks of a host would take the same GPU:
 * KV_EDEVICE with both ranks, host and UUID, unless `share`. On every error all ranks get one. Collective. */
kv_rc kv_gpu_choose(kv_mpi *m, const char *kind, bool share, kv_chosen *out, kv_err *err) KV_MUST_USE;

#endif
