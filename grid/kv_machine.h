/* What the run says about its machine: devices of all ranks, versions of what it stands on. */
#ifndef KV_MACHINE_H
#define KV_MACHINE_H

#include <jansson.h>

#include "kernels/kv_kern.h"
#include "mpi/kv_mpi.h"

/* Collective. On rank 0 *devices is a new list with one entry a rank and *versions a new object of texts; NULL elsewhere. */
kv_rc kv_machine_gather(kv_mpi *m, const kv_device *dev, json_t **devices, json_t **versions, kv_err *err) KV_MUST_USE;

/* The processor's name, "unknown" where the system does not say. */
void kv_machine_cpu(char *out, size_t n);

#endif
