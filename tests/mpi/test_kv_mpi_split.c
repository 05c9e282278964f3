/* Order, chunks and books of the hand-out, without MPI: laws over many small cases, and whole
 * runs on a simulated clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mpi/kv_mpi_hub.h"
#include "mpi/kv_mpi_split.h"

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void order__is_largest_first_with_ties_by_item(void **state)
{
    (void)state;
    const uint64_t costs[] = {5, 9, 5, 0, 9, 7};
    const int64_t want[] = {1, 4, 5, 0, 2, 3};
    kv_mpi_order o;
    assert_int_equal(kv_mpi_order_new(6, costs, &o, NULL), KV_OK);
    for (int64_t i = 0; i < 6; i++) assert_int_equal(kv_mpi_order_item(&o, i), want[i]);
    assert_true(o.total == 5 + 9 + 5 + 1 + 9 + 7); /* a cost of 0 counts as 1 */
    assert_true(kv_mpi_order_cost(&o, 5) == 1);
    kv_mpi_order_free(&o);
    assert_int_equal(kv_mpi_order_new(3, NULL, &o, NULL), KV_OK);
    for (int64_t i = 0; i < 3; i++) assert_int_equal(kv_mpi_order_item(&o, i), i);
    kv_mpi_order_free(&o);
    assert_int_equal(kv_mpi_order_new(-1, NULL, &o, NULL), KV_EINVAL);
}

static void order__digest_sees_a_changed_list(void **state)
{
    (void)state;
    const uint64_t a[] = {1, 2, 3}, b[] = {1, 3, 2};
    kv_mpi_order oa, ob, oc;
    assert_int_equal(kv_mpi_order_new(3, a, &oa, NULL), KV_OK);
    assert_int_equal(kv_mpi_order_new(3, b, &ob, NULL), KV_OK);
    assert_int_equal(kv_mpi_order_new(2, a, &oc, NULL), KV_OK);
    assert_true(oa.digest != ob.digest && oa.digest != oc.digest);
    kv_mpi_order_free(&oa);
    kv_mpi_order_free(&ob);
    kv_mpi_order_free(&oc);
}

static void order__survives_costs_that_overflow_a_sum(void **state)
{
    (void)state;
    const uint64_t costs[] = {1, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    kv_mpi_order o;
    kv_mpi_pool p;
    kv_mpi_chunk c;
    assert_int_equal(kv_mpi_order_new(4, costs, &o, NULL), KV_OK);
    assert_int_equal(kv_mpi_order_item(&o, 0), 1);
    assert_true(o.total > 5e19);
    assert_int_equal(kv_mpi_pool_new(&o, 1, &p, NULL), KV_OK);
    while (kv_mpi_pool_take(&p, 0, &c))
        for (int64_t i = c.begin; i < c.end; i++) assert_true(kv_mpi_pool_done(&p, 0, kv_mpi_order_item(&o, i)));
    assert_true(kv_mpi_pool_all_done(&p));
    kv_mpi_pool_free(&p);
    kv_mpi_order_free(&o);
}

static void pool__keeps_books_of_who_holds_what(void **state)
{
    (void)state;
    kv_mpi_order o;
    kv_mpi_pool p;
    kv_mpi_chunk c;
    int64_t position = -1;
    assert_int_equal(kv_mpi_order_new(5, NULL, &o, NULL), KV_OK);
    assert_int_equal(kv_mpi_pool_new(&o, 2, &p, NULL), KV_OK);
    assert_true(kv_mpi_pool_take(&p, 1, &c)); /* of unknown speed: one item */
    assert_int_equal(c.end - c.begin, 1);
    assert_true(kv_mpi_pool_take(&p, 1, &c));
    assert_false(kv_mpi_pool_take(&p, 1, &c)); /* holds enough */
    assert_int_equal(kv_mpi_pool_open(&p, 1), 2);
    assert_int_equal(kv_mpi_pool_nth_open(&p, 1, 0), 0);
    assert_int_equal(kv_mpi_pool_nth_open(&p, 1, 1), 1);
    assert_int_equal(kv_mpi_pool_nth_open(&p, 1, 2), -1);
    assert_true(kv_mpi_pool_take_one(&p, 0, &position));
    assert_int_equal(position, 2);
    assert_false(kv_mpi_pool_done(&p, 1, 1)); /* not its turn */
    assert_false(kv_mpi_pool_done(&p, 0, 0)); /* not its item */
    assert_true(kv_mpi_pool_done(&p, 1, 0));
    assert_false(kv_mpi_pool_done(&p, 1, 0)); /* not twice */
    assert_int_equal(kv_mpi_pool_nth_open(&p, 1, 0), 1);
    kv_mpi_pool_close(&p);
    assert_true(kv_mpi_pool_empty(&p));
    assert_false(kv_mpi_pool_take(&p, 1, &c));
    assert_true(kv_mpi_pool_done(&p, 1, 1)); /* what is out may still come in */
    assert_false(kv_mpi_pool_all_done(&p));
    kv_mpi_pool_free(&p);
    kv_mpi_order_free(&o);
}

/* ---- whole runs on a simulated clock ---- */

#define SIM_RANKS_MAX 9

typedef struct {
    kv_mpi_order order;
    kv_mpi_pool pool;
    kv_mpi_chunk queue[SIM_RANKS_MAX][KV_MPI_PREFETCH + 1];
    int n_queue[SIM_RANKS_MAX];
    double clock[SIM_RANKS_MAX];
    double speed[SIM_RANKS_MAX]; /* cost per second */
    unsigned char *seen;
    int64_t chunks;
} sim;

static void sim_fill(sim *s, int rank)
{
    kv_mpi_chunk c;
    while (s->n_queue[rank] < KV_MPI_PREFETCH && kv_mpi_pool_take(&s->pool, rank, &c)) {
        assert_true(c.end > c.begin);
        s->queue[rank][s->n_queue[rank]++] = c;
        s->chunks++;
    }
}

static void sim_compute(sim *s, int rank)
{
    const kv_mpi_chunk c = s->queue[rank][0];
    double busy = 0;
    for (int64_t i = c.begin; i < c.end; i++) {
        const int64_t item = kv_mpi_order_item(&s->order, i);
        busy += kv_mpi_order_cost(&s->order, i) / s->speed[rank];
        s->seen[item]++;
        assert_true(kv_mpi_pool_done(&s->pool, rank, item));
    }
    s->n_queue[rank]--;
    memmove(&s->queue[rank][0], &s->queue[rank][1], sizeof s->queue[rank][0] * (size_t)s->n_queue[rank]);
    s->clock[rank] += busy;
    kv_mpi_pool_busy(&s->pool, rank, busy);
}

/* Runs all; returns the time of the last rank. */
static double sim_run(sim *s, int ranks)
{
    for (;;) {
        int first = -1;
        for (int r = 0; r < ranks; r++) {
            sim_fill(s, r);
            if (s->n_queue[r] > 0 && (first < 0 || s->clock[r] < s->clock[first])) first = r;
        }
        if (first < 0) break;
        sim_compute(s, first);
    }
    double last = 0;
    for (int r = 0; r < ranks; r++) last = s->clock[r] > last ? s->clock[r] : last;
    return last;
}

static double sim_all(int64_t n, const uint64_t *costs, int ranks, const double *speeds, double *ideal, int64_t *chunks)
{
    sim s = {0};
    double total_speed = 0;
    s.seen = kv_alloc((size_t)n, 1);
    assert_non_null(s.seen);
    assert_int_equal(kv_mpi_order_new(n, costs, &s.order, NULL), KV_OK);
    assert_int_equal(kv_mpi_pool_new(&s.order, ranks, &s.pool, NULL), KV_OK);
    for (int r = 0; r < ranks; r++) total_speed += s.speed[r] = speeds[r];
    const double last = sim_run(&s, ranks);
    for (int64_t i = 0; i < n; i++) assert_int_equal(s.seen[i], 1);
    assert_true(kv_mpi_pool_all_done(&s.pool));
    *ideal = s.order.total / total_speed;
    *chunks = s.chunks;
    kv_mpi_pool_free(&s.pool);
    kv_mpi_order_free(&s.order);
    kv_free(s.seen);
    return last;
}

static void pool__gives_every_item_exactly_once_to_any_number_of_ranks(void **state)
{
    (void)state;
    uint64_t seed = 1, costs[300];
    double speeds[SIM_RANKS_MAX], ideal;
    int64_t chunks;
    for (int64_t n = 0; n <= 300; n += 1 + n / 3)
        for (int ranks = 1; ranks <= SIM_RANKS_MAX; ranks++) {
            for (int64_t i = 0; i < n; i++) costs[i] = next_random(&seed) % 50;
            for (int r = 0; r < ranks; r++) speeds[r] = 1 + (double)(next_random(&seed) % 1000);
            sim_all(n, costs, ranks, speeds, &ideal, &chunks);
        }
}

/* 20,000 items; ranks alike, and one of them 20 times slower (a CPU among GPUs). */
static void pool__balances_ranks_of_unequal_speed(void **state)
{
    (void)state;
    enum { N = 20000 };
    static uint64_t costs[N];
    const double alike[] = {1e6, 1e6, 1e6, 1e6}, mixed[] = {5e4, 1e6, 1e6, 1e6};
    uint64_t seed = 7;
    double ideal;
    int64_t chunks;
    for (int i = 0; i < N; i++) costs[i] = 100 + next_random(&seed) % 10000; /* 0.1 to 10 ms; 25 s in all */
    double took = sim_all(N, costs, 4, alike, &ideal, &chunks);
    assert_true(took < 1.02 * ideal);
    assert_true(chunks < 2000);
    took = sim_all(N, costs, 4, mixed, &ideal, &chunks);
    assert_true(took < 1.05 * ideal);
}

static void pool__sends_few_chunks_for_tiny_items(void **state)
{
    (void)state;
    const double speeds[] = {1e7, 1e7, 1e7}; /* 0.1 us per item */
    double ideal;
    int64_t chunks;
    sim_all(100000, NULL, 3, speeds, &ideal, &chunks);
    assert_true(chunks < 60);
}

static void new__survives_each_failed_allocation(void **state)
{
    (void)state;
    const uint64_t costs[] = {1, 2, 3};
    for (long n = 0;; n++) {
        kv_mpi_order o = {0};
        kv_mpi_pool p = {0};
        kv_err err = {0};
        kv_alloc_fail_after(n);
        kv_rc rc = kv_mpi_order_new(3, costs, &o, &err);
        if (rc == KV_OK) rc = kv_mpi_pool_new(&o, 4, &p, &err);
        kv_alloc_fail_after(-1);
        kv_mpi_pool_free(&p);
        kv_mpi_order_free(&o);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        assert_int_equal(err.rc, KV_ENOMEM);
    }
}

/* ---- rank 0's own chunks, where what comes is begun together ------------------------------ */

static uint64_t no_time(void *ctx)
{
    (void)ctx;
    return 1;
}

static void begin_nothing(void *ctx, const int64_t *items, int32_t n)
{
    (void)ctx;
    (void)items;
    (void)n;
}

static kv_rc take_nothing(void *ctx, int64_t item, int rank, const char *bytes, size_t n, kv_err *err)
{
    (void)ctx;
    (void)item;
    (void)rank;
    (void)bytes;
    (void)n;
    (void)err;
    return KV_OK;
}

/* The first item of a chunk takes the time of all; the speed is that of whole chunks all the same, within a part in ten. What
 * comes is told in full, and nothing more is given out once the run is stopped. */
static void hub__measures_the_root_by_chunks(void **state)
{
    (void)state;
    enum { ITEMS = 4000 };
    static const double item_s = 0.001;
    const kv_mpi_job job = {.n_items = ITEMS, .coming = begin_nothing, .on_result = take_nothing};
    kv_mpi_order order;
    kv_mpi_hub *hub = NULL;
    kv_err err = {0};
    assert_int_equal(kv_mpi_order_new(ITEMS, NULL, &order, &err), KV_OK);
    const kv_mpi_hub_setup setup = {.job = &job, .order = &order, .ranks = 2, .timeout_s = 9, .clock = no_time};
    assert_int_equal(kv_mpi_hub_new(&setup, &hub, &err), KV_OK);
    kv_mpi_hub_begin(hub);
    int64_t item, delivered = -1, want = 0, largest = 0;
    int32_t left = 0;
    double busy_s = 0;
    while (want < ITEMS / 2 && kv_mpi_hub_next_item(hub, delivered, busy_s, &item)) {
        int64_t coming[KV_MPI_COMING];
        const int32_t n = kv_mpi_hub_coming(hub, coming);
        const bool first = left == 0;
        assert_int_equal(item, want++);
        for (int32_t k = 0; k < n; k++) assert_int_equal(coming[k], item + k);
        assert_true(first ? n >= 1 : n == left);
        left = n - 1;
        largest = n > largest ? n : largest;
        busy_s = first ? n * item_s : 1e-7;
        delivered = item;
        const double rate = hub->pool.shares[0].rate;
        assert_true(rate == 0 || (rate > 0.9 / item_s && rate < 1.1 / item_s));
    }
    assert_true(largest > 50);
    kv_mpi_hub_stop(hub, KV_EINTR, 0, -1, NULL);
    assert_false(kv_mpi_hub_next_item(hub, delivered, busy_s, &item));
    assert_int_equal(hub->pool.done, want);
    kv_mpi_hub_settle(hub);
    assert_int_equal(hub->outcome.rc, KV_EINTR);
    kv_mpi_hub_free(hub);
    kv_mpi_order_free(&order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order__is_largest_first_with_ties_by_item),
        cmocka_unit_test(order__digest_sees_a_changed_list),
        cmocka_unit_test(order__survives_costs_that_overflow_a_sum),
        cmocka_unit_test(pool__keeps_books_of_who_holds_what),
        cmocka_unit_test(pool__gives_every_item_exactly_once_to_any_number_of_ranks),
        cmocka_unit_test(pool__balances_ranks_of_unequal_speed),
        cmocka_unit_test(pool__sends_few_chunks_for_tiny_items),
        cmocka_unit_test(hub__measures_the_root_by_chunks),
        cmocka_unit_test(new__survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
