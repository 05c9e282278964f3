/* What the run says about its machines: devices of all ranks, versions of what they stand on, where these differ. */
#ifndef KV_MACHINE_H
#define KV_MACHINE_H

#include <jansson.h>

#include "grid/run/kv_gpu.h"
#include "mpi/kv_mpi.h"

/* New lists and a new object of texts; NULL but on rank 0. */
typedef struct {
    json_t *devices;     /* one entry a rank */
    json_t *versions;    /* of rank 0 */
    json_t *differences; /* what other ranks have otherwise (grid/run/kv_differences.h) */
} kv_machines;

/* Collective. Rank 0 warns on stderr where the ranks differ. */
kv_rc kv_machine_gather(kv_mpi *m, const kv_chosen *on, kv_machines *out, kv_err *err) KV_MUST_USE;
void kv_machines_free(kv_machines *machines);

/* The processor's name, "unknown" where the system does not say. */
void kv_machine_cpu(char *out, size_t n);

#endif
