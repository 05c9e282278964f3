/* Private to mpi/, its tests and the simulator: who computes what. Arithmetic only: no MPI, no clock, no
 * thread, so that the policy can be tested and simulated alone. Not locked: the caller does it. */
#ifndef KV_MPI_SPLIT_H
#define KV_MPI_SPLIT_H

#include "base/kv_base.h"

/* ---- the order: largest cost first, ties by item number; the same on every rank ---- */
typedef struct kv_mpi_order {
    int64_t n;
    const uint64_t *costs; /* borrowed; NULL = all alike */
    int64_t *items;        /* position to item; NULL = the identity */
    double total;
    uint64_t digest; /* of n and costs: ranks compare it */
} kv_mpi_order;

kv_rc kv_mpi_order_new(int64_t n, const uint64_t *costs, kv_mpi_order *out, kv_err *err) KV_MUST_USE;
void kv_mpi_order_free(kv_mpi_order *o);
int64_t kv_mpi_order_item(const kv_mpi_order *o, int64_t position);
double kv_mpi_order_cost(const kv_mpi_order *o, int64_t position); /* at least 1 */

/* ---- the pool: what is handed out, held and done ---- */
#define KV_MPI_PREFETCH 2 /* chunks a rank may hold: the one it computes and the next */

typedef struct {
    int64_t begin, end; /* positions in the order */
} kv_mpi_chunk;

typedef struct {
    kv_mpi_chunk held[KV_MPI_PREFETCH]; /* in the order they were given; begin moves as results come */
    int n_held;
    double rate;                 /* cost per second, smoothed; 0 = unknown */
    double new_cost, new_busy_s; /* reported and not yet in rate */
    int64_t items_done;
} kv_mpi_share;

typedef struct {
    const kv_mpi_order *order;
    int ranks;
    int64_t next; /* first position not handed out */
    double cost_taken, cost_done;
    int64_t done;
    bool closed;
    kv_mpi_share *shares;
} kv_mpi_pool;

kv_rc kv_mpi_pool_new(const kv_mpi_order *order, int ranks, kv_mpi_pool *out, kv_err *err) KV_MUST_USE;
void kv_mpi_pool_free(kv_mpi_pool *p);

/* The next chunk for rank; false when it holds enough, or nothing is left, or the pool is
 * closed. A rank of unknown speed gets one item. Else guided self-scheduling: a quarter of its fair part (by
 * measured speed) of the remaining cost, but no more than CHUNK_MOST_S and no less than
 * CHUNK_LEAST_S of its time, and at least one item. */
#define KV_MPI_CHUNK_LEAST_S 0.001
#define KV_MPI_CHUNK_MOST_S 0.25
bool kv_mpi_pool_take(kv_mpi_pool *p, int rank, kv_mpi_chunk *out);
/* The same, but one item: for the rank that owns the pool. */
bool kv_mpi_pool_take_one(kv_mpi_pool *p, int rank, int64_t *position);

/* The result of item came from rank; false unless it is the first that rank still holds. */
bool kv_mpi_pool_done(kv_mpi_pool *p, int rank, int64_t item);
/* rank spent busy_s on the items reported done since the last call. */
void kv_mpi_pool_busy(kv_mpi_pool *p, int rank, double busy_s);
void kv_mpi_pool_close(kv_mpi_pool *p); /* nothing more is handed out */

bool kv_mpi_pool_empty(const kv_mpi_pool *p); /* nothing more to hand out */
bool kv_mpi_pool_all_done(const kv_mpi_pool *p);
int64_t kv_mpi_pool_open(const kv_mpi_pool *p, int rank); /* how many items rank still holds */
/* The k-th of them, counted from 0, in the order in which results are due; -1 past the end. */
int64_t kv_mpi_pool_nth_open(const kv_mpi_pool *p, int rank, int64_t k);

#endif
