/* Order, chunk sizes and bookkeeping of the hand-out. */
#include "mpi/kv_mpi_split.h"

#include <stdlib.h>
#include <string.h>

/* ---- the order ---- */

typedef struct {
    uint64_t cost;
    int64_t item;
} entry;

static int larger_first(const void *pa, const void *pb)
{
    const entry *a = pa, *b = pb;
    if (a->cost != b->cost) return a->cost > b->cost ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

static bool is_sorted(int64_t n, const uint64_t *costs)
{
    for (int64_t i = 1; i < n; i++)
        if (costs[i] > costs[i - 1]) return false;
    return true;
}

static kv_rc sort_items(kv_mpi_order *o, kv_err *err)
{
    const size_t n = (size_t)o->n;
    entry *e = kv_alloc(n, sizeof *e);
    int64_t *items = kv_alloc(n, sizeof *items);
    if (e == NULL || items == NULL) {
        kv_free(e);
        kv_free(items);
        return KV_FAIL(err, KV_ENOMEM, "no memory to order %zu items", n);
    }
    for (size_t i = 0; i < n; i++) e[i] = (entry){.cost = o->costs[i], .item = (int64_t)i};
    qsort(e, n, sizeof *e, larger_first);
    for (size_t i = 0; i < n; i++) items[i] = e[i].item;
    kv_free(e);
    o->items = items;
    return KV_OK;
}

kv_rc kv_mpi_order_new(int64_t n, const uint64_t *costs, kv_mpi_order *out, kv_err *err)
{
    if (n < 0) return KV_FAIL(err, KV_EINVAL, "%lld work items", (long long)n);
    kv_mpi_order o = {.n = n, .costs = costs, .digest = mix(1, (uint64_t)n)};
    if (costs != NULL && !is_sorted(n, costs)) {
        const kv_rc rc = sort_items(&o, err);
        if (rc != KV_OK) return rc;
    }
    for (int64_t i = 0; i < n; i++) {
        o.total += kv_mpi_order_cost(&o, i);
        if (costs != NULL) o.digest = mix(o.digest, costs[i]);
    }
    *out = o;
    return KV_OK;
}

void kv_mpi_order_free(kv_mpi_order *o)
{
    kv_free(o->items);
    memset(o, 0, sizeof *o);
}

int64_t kv_mpi_order_item(const kv_mpi_order *o, int64_t position)
{
    return o->items != NULL ? o->items[position] : position;
}

double kv_mpi_order_cost(const kv_mpi_order *o, int64_t position)
{
    if (o->costs == NULL) return 1.0;
    const uint64_t cost = o->costs[kv_mpi_order_item(o, position)];
    return cost > 0 ? (double)cost : 1.0;
}

/* ---- the pool ---- */

kv_rc kv_mpi_pool_new(const kv_mpi_order *order, int ranks, kv_mpi_pool *out, kv_err *err)
{
    kv_mpi_share *shares = kv_alloc((size_t)ranks, sizeof *shares);
    if (shares == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the shares of %d ranks", ranks);
    *out = (kv_mpi_pool){.order = order, .ranks = ranks, .shares = shares};
    return KV_OK;
}

void kv_mpi_pool_free(kv_mpi_pool *p)
{
    kv_free(p->shares);
    memset(p, 0, sizeof *p);
}

/* A rank of unknown speed counts as an average one. */
static double all_rates(const kv_mpi_pool *p)
{
    double sum = 0;
    int known = 0;
    for (int r = 0; r < p->ranks; r++)
        if (p->shares[r].rate > 0) {
            sum += p->shares[r].rate;
            known++;
        }
    return known > 0 ? sum * p->ranks / known : 0;
}

static double target_cost(const kv_mpi_pool *p, int rank)
{
    const double rate = p->shares[rank].rate, rates = all_rates(p);
    if (rate <= 0 || rates <= 0) return 0;
    const double remaining = p->order->total - p->cost_taken;
    double target = remaining * (rate / rates) / 4;
    if (target > rate * KV_MPI_CHUNK_MOST_S) target = rate * KV_MPI_CHUNK_MOST_S;
    if (target < rate * KV_MPI_CHUNK_LEAST_S) target = rate * KV_MPI_CHUNK_LEAST_S;
    return target;
}

static bool may_take(const kv_mpi_pool *p, int rank)
{
    return !kv_mpi_pool_empty(p) && p->shares[rank].n_held < KV_MPI_PREFETCH;
}

/* At least one item, then while the next one still fits into target. */
static kv_mpi_chunk cut(kv_mpi_pool *p, int rank, double target)
{
    kv_mpi_chunk c = {.begin = p->next, .end = p->next};
    double cost = 0;
    do {
        cost += kv_mpi_order_cost(p->order, c.end);
        c.end++;
    } while (c.end < p->order->n && cost + kv_mpi_order_cost(p->order, c.end) <= target);
    p->next = c.end;
    p->cost_taken += cost;
    kv_mpi_share *s = &p->shares[rank];
    s->held[s->n_held++] = c;
    return c;
}

bool kv_mpi_pool_take(kv_mpi_pool *p, int rank, kv_mpi_chunk *out)
{
    if (!may_take(p, rank)) return false;
    *out = cut(p, rank, target_cost(p, rank));
    return true;
}

bool kv_mpi_pool_take_one(kv_mpi_pool *p, int rank, int64_t *position)
{
    if (!may_take(p, rank)) return false;
    *position = cut(p, rank, 0).begin;
    return true;
}

bool kv_mpi_pool_done(kv_mpi_pool *p, int rank, int64_t item)
{
    kv_mpi_share *s = &p->shares[rank];
    if (s->n_held == 0 || kv_mpi_order_item(p->order, s->held[0].begin) != item) return false;
    const double cost = kv_mpi_order_cost(p->order, s->held[0].begin);
    s->new_cost += cost;
    s->items_done++;
    p->cost_done += cost;
    p->done++;
    if (++s->held[0].begin == s->held[0].end) {
        s->n_held--;
        memmove(&s->held[0], &s->held[1], (size_t)s->n_held * sizeof s->held[0]);
    }
    return true;
}

/* Smoothed, so that a slow first item (a device that wakes up) is soon forgotten; and in steps
 * of CHUNK_LEAST_S, so that single tiny items do not make it jump. */
void kv_mpi_pool_busy(kv_mpi_pool *p, int rank, double busy_s)
{
    kv_mpi_share *s = &p->shares[rank];
    s->new_busy_s += busy_s > 1e-7 ? busy_s : 1e-7;
    if (s->new_cost <= 0 || (s->rate > 0 && s->new_busy_s < KV_MPI_CHUNK_LEAST_S)) return;
    const double rate = s->new_cost / s->new_busy_s;
    s->rate = s->rate > 0 ? 0.5 * s->rate + 0.5 * rate : rate;
    s->new_cost = s->new_busy_s = 0;
}

void kv_mpi_pool_close(kv_mpi_pool *p)
{
    p->closed = true;
}

bool kv_mpi_pool_empty(const kv_mpi_pool *p)
{
    return p->closed || p->next >= p->order->n;
}

bool kv_mpi_pool_all_done(const kv_mpi_pool *p)
{
    return p->done == p->order->n;
}

int64_t kv_mpi_pool_open(const kv_mpi_pool *p, int rank)
{
    const kv_mpi_share *s = &p->shares[rank];
    int64_t n = 0;
    for (int i = 0; i < s->n_held; i++) n += s->held[i].end - s->held[i].begin;
    return n;
}

int64_t kv_mpi_pool_nth_open(const kv_mpi_pool *p, int rank, int64_t k)
{
    const kv_mpi_share *s = &p->shares[rank];
    for (int i = 0; i < s->n_held; i++) {
        const int64_t n = s->held[i].end - s->held[i].begin;
        if (k < n) return kv_mpi_order_item(p->order, s->held[i].begin + k);
        k -= n;
    }
    return -1;
}
