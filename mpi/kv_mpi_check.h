/* The one check for calls of MPI. A failure of MPI itself cannot be agreed on with the other
 * ranks, so it ends the job. */
#ifndef KV_MPI_CHECK_H
#define KV_MPI_CHECK_H

#include <mpi.h>

#include "mpi/kv_mpi.h"

/* Never returns; m may be NULL. */
KV_MPI_NORETURN void kv_mpi_call_failed(const kv_mpi *m, int code, const char *call, const char *file, int line);

#define KV_MPI_MUST(m_, call_)                                                                                         \
    do {                                                                                                               \
        const int kv_code_ = (call_);                                                                                  \
        if (kv_code_ != MPI_SUCCESS) kv_mpi_call_failed((m_), kv_code_, #call_, __FILE__, __LINE__);                   \
    } while (0)

#endif
