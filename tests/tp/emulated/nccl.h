/* The NCCL calls that tp/ makes, over MPI, so that tp/kv_tp_nccl.c itself runs where there is no GPU. Works on the
 * emulated device of tests/emulated, or on the tagged memory of this folder: whose cuda_runtime.h is found first.
 *
 * Like the real one with blocking = 0: a start and a group return ncclInProgress, the outcome is asked of
 * ncclCommGetAsyncError, and data has moved when the stream is empty. Unlike it, a mismatch of sizes or a call that
 * the real library forbids is an error at once.
 *
 * $KV_EMU_NCCL plants a fault on one rank of the communicator, "WHAT RANK NUMBER":
 *   absent R 0    rank R's start never happens
 *   stuck R N     rank R's N-th group (from 0) never begins to send
 *   async R N     rank R's N-th group ends in an asynchronous error, nothing is sent
 *   slow R MS     each group of rank R begins MS milliseconds late */
#ifndef KV_EMULATED_NCCL_H
#define KV_EMULATED_NCCL_H

#include <cuda_runtime.h>

#define KV_NCCL_KIND "emulated" /* what is compiled against this can only call itself so */

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclInt8 = 0 } ncclDataType_t;
typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct {
    size_t size;
    unsigned int magic;
    int blocking;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                                        \
    {                                                                                                                  \
        sizeof(ncclConfig_t), 0xcafebeef, 1                                                                            \
    }

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
const char *ncclGetErrorString(ncclResult_t code);

#endif
