/* How much memory there is for cells: of a host, of a GPU, and what of it is one rank's. */
#ifndef KV_MEMORY_H
#define KV_MEMORY_H

#include "kernels/cuda/kv_cuda.h"

typedef struct {
    int64_t total_bytes; /* the host's, or less where a control group (a job's memory limit) allows less; 0: unknown */
    int64_t available_bytes; /* of it, what was not in use */
} kv_host_memory;

/* Of this host; `root` is put before /proc and /sys ("" but in tests). */
kv_host_memory kv_memory_of_host(const char *root);

/* What a rank has. */
typedef struct {
    kv_host_memory host;
    int host_ranks;    /* ranks that share the host, at least 1 */
    int64_t gpu_bytes; /* free on the rank's GPU when it was opened, its share; 0 where it computes on a CPU */
    int gpu_ranks;     /* ranks that share the GPU */
    kv_cuda_gpu gpu;
} kv_memory;

#define KV_MEMORY_KEPT_PART 4 /* one part in so many of a rank's GPU memory may be kept for later cells */

/* Bytes that one cell may take of the device's memory; a part is left for what is not counted, and on a GPU that others
 * share for what is kept. 0: unknown. */
int64_t kv_memory_for_cell(const kv_memory *m);

#endif
