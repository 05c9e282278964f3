/* Private to mpi/: the messages of the hand-out as bytes. No MPI call, so tests read them alone.
 * Native structs: all ranks run the same binary. */
#ifndef KV_MPI_MSG_H
#define KV_MPI_MSG_H

#include "base/kv_base.h"

/* How a run, or one rank, ended. rc KV_OK: well so far. */
typedef struct {
    int32_t rc;
    int32_t rank; /* who failed */
    int64_t item; /* in which item, -1 for none */
    char text[KV_ERR_TEXT];
} kv_mpi_outcome;

void kv_mpi_outcome_set(kv_mpi_outcome *o, kv_rc rc, int rank, int64_t item, const kv_err *err); /* the first stays */

/* ---- rank 0 to a worker ---- */
typedef enum {
    KV_MPI_PING = 1, /* a sign of life */
    KV_MPI_WORK,     /* compute positions [begin, end) of the order */
    KV_MPI_DRAIN,    /* there is no more work: finish what you have, then send FINAL */
    KV_MPI_HALT,     /* finish the item you are in, drop the rest, send FINAL */
    KV_MPI_END,      /* outcome of the whole run; the last message */
} kv_mpi_order_kind;

typedef struct {
    int32_t kind;
    int32_t broken; /* END: a rank is lost */
    int64_t begin, end;
    uint64_t digest;        /* WORK: of the work list, which must be the same everywhere */
    kv_mpi_outcome outcome; /* END only; shorter messages stop before it */
} kv_mpi_ctrl;
size_t kv_mpi_ctrl_bytes(const kv_mpi_ctrl *c); /* how many of them travel */

/* ---- a worker to rank 0: head, then n_results times {item, bytes} ---- */
typedef enum { KV_MPI_FINAL = 1, KV_MPI_STOPPED = 2 } kv_mpi_report_flag; /* last message; stop was asked for here */

typedef struct {
    uint32_t flags;
    uint32_t n_results;
    uint64_t busy_ns; /* time inside run_item since the last report */
    kv_mpi_outcome outcome;
} kv_mpi_report_head;

typedef struct {
    int64_t item;
    uint64_t bytes;
} kv_mpi_result_head;

/* A report under construction. Begin makes room for the head, which is kept apart until close. */
typedef struct {
    kv_buf bytes;
    kv_mpi_report_head head;
} kv_mpi_report;

kv_rc kv_mpi_report_begin(kv_mpi_report *r, kv_err *err) KV_MUST_USE; /* also reuses the memory */
kv_rc kv_mpi_report_add(kv_mpi_report *r, int64_t item, const void *bytes, size_t n, kv_err *err) KV_MUST_USE;
void kv_mpi_report_close(kv_mpi_report *r); /* writes the head; needs no memory */

/* Reading: false when the bytes are no report. */
typedef struct {
    const char *at;
    size_t left;
    uint32_t results_left;
} kv_mpi_report_reader;
typedef struct {
    int64_t item;
    const char *bytes; /* dies with the message */
    size_t n;
} kv_mpi_result;
bool kv_mpi_report_open(const char *bytes, size_t n, kv_mpi_report_head *head, kv_mpi_report_reader *out);
bool kv_mpi_report_next(kv_mpi_report_reader *r, kv_mpi_result *out);

#endif
