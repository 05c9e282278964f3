/* Who does how much: the items, largest first, each to the rank that has the least so far, as the hand-out comes to do
 * among ranks of one speed. */
#include <stdio.h>
#include <string.h>

#include "grid/document/kv_assurance.h"
#include "grid/run/kv_plan.h"
#include "mpi/kv_mpi_split.h"

/* Ranks as a heap: the least loaded on top, ties by rank. */
static bool before(const kv_share *a, const kv_share *b)
{
    return a->cost_ns != b->cost_ns ? a->cost_ns < b->cost_ns : a->rank < b->rank;
}

static void sink(kv_share *heap, size_t n)
{
    for (size_t i = 0, child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&heap[child + 1], &heap[child])) child++;
        if (before(&heap[i], &heap[child])) return;
        const kv_share t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
    }
}

/* Into the order of ranks: each goes where it belongs. */
static void by_rank(kv_share *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        while ((size_t)s[i].rank != i) {
            const kv_share t = s[s[i].rank];
            s[s[i].rank] = s[i];
            s[i] = t;
        }
}

kv_rc kv_plan_share_new(const kv_plan *p, int64_t ranks, kv_share **out, kv_err *err)
{
    const size_t n = (size_t)p->cells, r = (size_t)ranks;
    kv_mpi_order order = {0};
    kv_share *s = kv_alloc(r, sizeof *s);
    uint64_t *costs = kv_alloc(n + KV_ASSURANCE_ITEMS, sizeof *costs);
    kv_rc rc = s != NULL && costs != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for the shares of %zu ranks", r);
    if (rc == KV_OK && n > 0) memcpy(costs, p->costs, n * sizeof *costs);
    for (size_t i = 0; rc == KV_OK && i < KV_ASSURANCE_ITEMS; i++) costs[n + i] = KV_ASSURANCE_COST(i);
    if (rc == KV_OK) rc = kv_mpi_order_new((int64_t)(n + KV_ASSURANCE_ITEMS), costs, &order, err);
    for (size_t i = 0; rc == KV_OK && i < r; i++) s[i].rank = (int64_t)i;
    for (int64_t i = 0; rc == KV_OK && i < order.n; i++) {
        s[0].cost_ns += kv_mpi_order_cost(&order, i);
        s[0].items++;
        sink(s, r);
    }
    kv_mpi_order_free(&order);
    kv_free(costs);
    if (rc == KV_OK) {
        by_rank(s, r);
        *out = s;
    } else {
        kv_free(s);
    }
    return rc;
}

kv_share_sum kv_plan_share_sum(const kv_share *s, int64_t ranks)
{
    kv_share_sum t = {.least_ns = s[0].cost_ns, .most_ns = s[0].cost_ns};
    for (int64_t i = 0; i < ranks; i++) {
        t.all_ns += s[i].cost_ns;
        if (s[i].cost_ns < t.least_ns) t.least_ns = s[i].cost_ns;
        if (s[i].cost_ns > t.most_ns) t.most_ns = s[i].cost_ns;
        if (s[i].items == 0) t.idle++;
    }
    return t;
}
