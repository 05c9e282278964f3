/* mpi: the ranks of one run: start and stop, one outcome for all, small exchanges, and the
 * dynamic distribution of opaque work items. No mpi.h here, so callers never see an MPI type.
 *
 * Two kinds of failure. A local one (memory, disk, device) is agreed on with kv_mpi_agree, so
 * that no rank waits for ever. A failure of MPI itself cannot be agreed on: it prints one line
 * with rank and host and calls MPI_Abort with KV_MPI_ABORT_CODE.
 *
 * Waits: every wait on another rank sleeps instead of spinning and ends after timeout_s with
 * KV_ETIME. After that the handle is *broken* (a rank is lost): every later call here fails at
 * once, and kv_mpi_stop ends the job with MPI_Abort. So a caller may save its state first.
 *
 * Threads: call from the thread that called kv_mpi_start. kv_mpi_handout starts a helper thread
 * on rank 0, which alone calls MPI until it is joined (MPI_THREAD_SERIALIZED is enough).
 * All ranks must run the same binary (messages are native structs). */
#ifndef KV_MPI_H
#define KV_MPI_H

#include <signal.h>

#include "base/kv_base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KV_MPI_ABORT_CODE 5
#if defined(__GNUC__)
#define KV_MPI_NORETURN __attribute__((noreturn))
#else
#define KV_MPI_NORETURN
#endif

typedef struct kv_mpi kv_mpi;

/* Starts MPI (once per process), compares the world with what the launcher announced, and sets
 * up *out. timeout_s > 0 is the limit of every wait. On an error MPI is finalised again, each
 * copy of the program holds its own error (KV_EMPI, KV_EINVAL, KV_ENOMEM, KV_ETIME), and *out is untouched.
 * Collective. */
kv_rc kv_mpi_start(double timeout_s, kv_mpi **out, kv_err *err) KV_MUST_USE;
/* Ends MPI and frees m (NULL is fine). Collective: every rank must come here, whatever its rc,
 * after all its output is written: mpirun ends the other ranks when one exits with non-zero.
 * On a broken handle it does not return: it calls MPI_Abort (rank 0 at once, the others after
 * they gave rank 0 timeout_s, at most 30 s, to save its state). why (may be NULL) is what this rank met;
 * ranks other than 0 say it then, for rank 0, whose caller says its own, may be the one that is lost. */
void kv_mpi_stop(kv_mpi *m, const kv_err *why);
/* This rank cannot go on with the others (a group of them is broken): the handle is broken, as after KV_ETIME. Where rank 0
 * itself is known to be lost, kv_mpi_stop gives it no time. */
void kv_mpi_give_up(kv_mpi *m, bool rank_0_lost);
/* One line with rank and host on stderr, then MPI_Abort. m may be NULL (before or in start). */
KV_MPI_NORETURN void kv_mpi_abort(const kv_mpi *m, const char *fmt, ...) KV_PRINTF(2, 3);

int kv_mpi_rank(const kv_mpi *m);
int kv_mpi_size(const kv_mpi *m);
int kv_mpi_host_rank(const kv_mpi *m);                   /* rank among those on this host */
int kv_mpi_host_size(const kv_mpi *m);                   /* how many ranks this host has */
int kv_mpi_host_count(const kv_mpi *m);                  /* different host names */
const char *kv_mpi_host_view(const kv_mpi *m, int rank); /* host name of a rank; dies with m */
const char *kv_mpi_version_view(const kv_mpi *m);        /* "Open MPI v4.1.4, ..."; dies with m */
double kv_mpi_timeout(const kv_mpi *m);
bool kv_mpi_broken(const kv_mpi *m);

/* One outcome for all: KV_OK only if every rank brought KV_OK. Otherwise a rank that failed
 * gets its own rc back and keeps its err; the others get KV_EPEER and "rank 1 on HOST failed:
 * TEXT" of the first failing rank (KV_EINTR stays KV_EINTR, so that an interrupted run reads
 * as one everywhere). Collective. */
kv_rc kv_mpi_agree(kv_mpi *m, kv_rc rc, kv_err *err) KV_MUST_USE;

/* Rank 0's bytes to all; the other ranks' *b must be {0} and is theirs to free. Any size.
 * All ranks return KV_OK or all an error. Collective. */
kv_rc kv_mpi_bcast_bytes(kv_mpi *m, kv_buf *b, kv_err *err) KV_MUST_USE;

#define KV_MPI_TEXT_BYTES_MAX 65536
/* Every rank's n bytes (at most KV_MPI_TEXT_BYTES_MAX) to rank 0: texts[r] there, an array of
 * kv_mpi_size {0} buffers that the caller owns and frees; NULL on the other ranks. All ranks
 * return KV_OK or all an error. Collective. */
kv_rc kv_mpi_gather_texts(kv_mpi *m, const void *text, size_t n, kv_buf *texts, kv_err *err) KV_MUST_USE;

/* ---- dynamic distribution ------------------------------------------------------------- */

typedef struct {
    int64_t items_done, items_total;
    double cost_done, cost_total; /* sums of the estimates */
    double seconds;               /* since the hand-out began */
} kv_mpi_progress;

#define KV_MPI_COMING 256 /* items at most */

/* The work. Must be the same on all ranks but for ctx, stop and the rank-0 callbacks. */
typedef struct {
    int64_t n_items;       /* items are 0 .. n_items-1 */
    const uint64_t *costs; /* estimated cost of each item, any unit; NULL = all alike */
    void *ctx;             /* given to each callback */

    /* Computes one item on whatever rank it fell to and appends its bytes to *result (given
     * empty; may stay empty). An item that merely goes wrong is a result of the caller's own
     * making; a return other than KV_OK is fatal for the whole run. Main thread only. */
    kv_rc (*run_item)(void *ctx, int64_t item, kv_buf *result, kv_err *err);
    /* May be NULL. Called before run_item with the items that this rank will run next unless the run is stopped, in order:
     * items[0] is the one that run_item is about to be called with. So that several can be begun together. */
    void (*coming)(void *ctx, const int64_t *items, int32_t n);
    /* Rank 0 only (NULL elsewhere is fine): takes the bytes of an item, in any order, each item
     * at most once. Calls of on_result and on_progress never overlap each other, but come from
     * the helper thread while run_item runs in the main thread. bytes die with the call. A
     * return other than KV_OK is fatal (a journal that cannot be written, say). */
    kv_rc (*on_result)(void *ctx, int64_t item, int rank, const char *bytes, size_t n, kv_err *err);
    /* Rank 0 only, may be NULL: about ten times a second, and once at the end. */
    void (*on_progress)(void *ctx, const kv_mpi_progress *p);

    /* May be NULL. Set to non-zero on any rank (by a signal handler): each rank finishes the
     * item it is in, delivers it, and no rank begins another. */
    const volatile sig_atomic_t *stop;
} kv_mpi_job;

/* Runs every item exactly once, largest cost first, over all ranks. Collective.
 *
 * KV_OK: every item was delivered to on_result (also if stop came too late to matter).
 * KV_EINTR on all ranks: stop was asked for, all that was finished is delivered.
 * A run_item that failed: its rank gets its own rc, "item 17: TEXT"; all others KV_EPEER, "rank 2
 * on HOST failed in item 17: TEXT". What was finished is delivered, nothing new is begun.
 *
 * Signs of life: a rank sends finished results at the end of each chunk and at least four times
 * a second between items; it sends nothing *during* an item. So timeout_s must exceed the
 * longest single item. A rank that was given work and sent nothing for timeout_s is lost:
 * KV_ETIME on rank 0 names rank, host and item, the others are told (KV_EPEER), what they finished is
 * delivered, and the handle is broken. If it is rank 0's own item that hangs, the helper thread aborts the
 * job. Ranks that wait hear from rank 0 at least four times per timeout_s, or give up.
 *
 * With one rank there are no messages and no thread. */
kv_rc kv_mpi_handout(kv_mpi *m, const kv_mpi_job *job, kv_err *err) KV_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
