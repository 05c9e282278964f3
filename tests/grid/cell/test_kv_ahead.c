/* Cells in waves. Built twice: for the CPU, which has none, and (KVT_EMULATED) for the emulated GPU: the rows that the CPU tells of each alone, byte for byte; few launches, few waits; and
 * the same rows whatever call fails on the way. */
#include "grid/cell/kv_ahead.h"
#include "tests/kv_test_grid.h"

#ifndef KVT_EMULATED
static void ahead__is_nothing_on_a_cpu(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("a sep k=T.H.D; b sep k=H.T.D", "L=1,T=3,H=1,D=2,e=f16", "");
    kv_runner r = {.dev = d};
    kv_ahead *a = NULL;
    kv_err err = {0};
    kvt_ok(kv_ahead_new(&r, &c, 1 << 20, KV_AHEAD_SMALL, &a, &err), &err);
    assert_null(a);
    kv_ahead_free(a);
    kv_campaign_free(&c);
    d->ops->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ahead__is_nothing_on_a_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
#include "kernels/cuda/kv_cuda.h"
#include "kernels/cuda/kv_cuda_list.h"
#include "tests/emulated/kv_emu.h"

#define PLENTY ((int64_t)1 << 30)
#define LAYOUTS                                                                                                        \
    "a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=16; c sep k=H.T.D; d sep k=Tb.H.Dg.Ti.Dx v=Tb.H.D.Ti block=8 x=8; "     \
    "e int k=Tb.KV.Ti.H.D block=4 e=f32"

#if defined(__SANITIZE_ADDRESS__) /* five times as slow: every kind of case, fewer of each */
#define SKIP 5
#else
#define SKIP 3
#endif

static kv_device *gpu(void)
{
    kv_device *d = NULL;
    kv_err err = {0};
    kvt_ok(kv_device_cuda_new(0, &d, &err), &err);
    return d;
}

static kv_row *rows_of(const kv_campaign *c)
{
    return kvt_take((int64_t)c->n_cells, sizeof(kv_row));
}

/* Every cell by itself. */
static kv_row *alone(kv_device *d, const kv_campaign *c)
{
    kv_runner r = {.dev = d};
    kv_row *rows = rows_of(c);
    for (size_t i = 0; i < c->n_cells; i++) {
        kv_err err = {0};
        kvt_ok(kv_cell_run(&r, c, (int64_t)i, &rows[i], &err), &err);
    }
    kv_runner_free(&r);
    return rows;
}

typedef struct {
    int64_t memory, small;
    int32_t sight; /* how many cells are known to come */
    int64_t end;   /* stops before this one; 0: at the end */
    int64_t other; /* so many cells from here there is something else, 0: nothing */
} way;

/* As a rank does it. The count is that of the cells begun. */
static kv_row *in_waves(kv_device *d, const kv_campaign *c, const way *w, kv_ahead_count *count)
{
    kv_runner r = {.dev = d};
    kv_ahead *a = NULL;
    kv_row *rows = rows_of(c);
    const int64_t n = (int64_t)c->n_cells, end = w->end > 0 ? w->end : n;
    kv_err err = {0};
    const kv_rc made = kv_ahead_new(&r, c, w->memory, w->small, &a, &err);
    if (made != KV_OK) assert_int_equal(made, KV_ENOMEM);
    for (int64_t i = 0; i < end; i++) {
        int64_t next[KV_WAVE_CELLS * 3];
        int32_t k = 0;
        for (; k < w->sight && i + k < n; k++) next[k] = w->other > 0 && k == w->other ? -1 : i + k;
        if (a != NULL) kv_ahead_coming(a, next, k);
        if (a == NULL || !kv_ahead_take(a, i, &rows[i])) kvt_ok(kv_cell_run(&r, c, i, &rows[i], &err), &err);
    }
    *count = a != NULL ? kv_ahead_counted(a) : (kv_ahead_count){0};
    kv_ahead_free(a);
    kv_runner_free(&r);
    return rows;
}

static void same_rows(const kv_campaign *c, const kv_row *got, const kv_row *want, const char *what)
{
    for (size_t i = 0; i < c->n_cells; i++) {
        char id[KV_PAIR_ID_TEXT];
        kv_cell_pair_id(c, &c->cells[i], id);
        if (memcmp(&got[i], &want[i], sizeof got[i]) != 0)
            fail_msg("%s: cell %zu, %s: %s instead of %s (%s)", what, i, id,
                     kv_verdict_name((kv_verdict)got[i].verdict), kv_verdict_name((kv_verdict)want[i].verdict),
                     got[i].reason);
    }
}

static kv_campaign small_campaign(const char *geometry, const char *more)
{
    return kvt_campaign(LAYOUTS, geometry, more);
}

/* ---- rows ------------------------------------------------------------------------------- */

static void waves__give_the_rows_of_cells_alone(void **state)
{
    (void)state;
    static const char *const geometries[] = {"L=1,T=0,H=1,D=8,e=f16", "L=1,T=1,H=1,D=8,e=bf16",
                                             "L=2,T=17,H=3,D=8,e=f16", "L=2,T=9,H=2,D=16,e=f32",
                                             "L=1,T=21,H=8,D=8,e=fp8_e4m3"};
    static const char *const more[] = {"", "'tail':'nan','seed':77", "'tail':'zero'"};
    static const way ways[] = {{PLENTY, KV_AHEAD_SMALL, 3 * KV_WAVE_CELLS, 0, 0},
                               {PLENTY, 0, 5, 0, 0},
                               {PLENTY, KV_AHEAD_SMALL, 7, 0, 0},
                               {90000, KV_AHEAD_SMALL, 64, 0, 0},
                               {PLENTY, 20000, 64, 0, 0},
                               {PLENTY, KV_AHEAD_SMALL, 64, 0, 3},
                               {0, KV_AHEAD_SMALL, 64, 0, 0}};
    kv_device *cpu = kvt_cpu();
    int64_t waves = 0, cells = 0, told_alone = 0;
    for (size_t i = 0; i < sizeof geometries / sizeof geometries[0]; i++) {
        kv_campaign c = small_campaign(geometries[i], more[i % 3]);
        kv_row *want = alone(cpu, &c);
        for (size_t k = i % SKIP; k < sizeof ways / sizeof ways[0]; k += SKIP) {
            kv_device *d = gpu();
            kv_ahead_count n;
            kv_emu_set_order(k % 2 == 0 ? KV_EMU_FORWARD : KV_EMU_BACKWARD);
            kv_emu_poison(k % 2 == 0 ? 0xCD : 0x00);
            kv_row *got = in_waves(d, &c, &ways[k], &n);
            same_rows(&c, got, want, geometries[i]);
            waves += n.waves;
            cells += n.cells;
            told_alone += n.alone;
            if (ways[k].memory == 0) assert_int_equal(n.waves, 0);
            if (ways[k].small == 0) assert_int_equal(n.waves, n.cells);
            free(got);
            d->ops->close(d);
        }
        free(want);
        kv_campaign_free(&c);
    }
    assert_true(waves > 80 / SKIP && cells > 3 * waves / 2 && told_alone == 0);
    cpu->ops->close(cpu);
}

/* A run that is stopped drops what it began. */
static void waves__end_when_the_run_does(void **state)
{
    (void)state;
    const way stop = {PLENTY, KV_AHEAD_SMALL, 64, 3, 0};
    kv_device *d = gpu();
    kv_campaign c = small_campaign("L=1,T=5,H=1,D=8,e=f16", "");
    kv_ahead_count n;
    free(in_waves(d, &c, &stop, &n));
    assert_true(n.cells > 3);
    kv_campaign_free(&c);
    d->ops->close(d);
    assert_int_equal(kv_emu_allocations(), 0);
}

/* ---- what it is for --------------------------------------------------------------------- */

static void waves__take_few_launches_and_few_waits(void **state)
{
    (void)state;
    const way w = {PLENTY, KV_AHEAD_SMALL, 3 * KV_WAVE_CELLS, 0, 0};
    kv_device *d = gpu();
    kv_campaign c = SKIP > 3 ? small_campaign("L=1,T=5,H=1,D=8,e=f16", "") : kvt_published_campaign();
    kv_ahead_count n;
    const long at[] = {kv_emu_launches(), kv_emu_waits()};
    kv_row *want = alone(d, &c);
    const long by_itself[] = {kv_emu_launches() - at[0], kv_emu_waits() - at[1]};
    const long then[] = {kv_emu_launches(), kv_emu_waits()};
    kv_row *got = in_waves(d, &c, &w, &n);
    const long together[] = {kv_emu_launches() - then[0], kv_emu_waits() - then[1]};
    same_rows(&c, got, want, "published");
    print_message("%zu cells: %ld launches and %ld waits by themselves, %ld and %ld in waves\n", c.n_cells,
                  by_itself[0], by_itself[1], together[0], together[1]);
    assert_true(together[0] * 8 < by_itself[0]);
    assert_true(together[1] <= 4); /* a wave: before it begins, and at its end */
    free(got);
    free(want);
    kv_campaign_free(&c);
    d->ops->close(d);
}

static void waves__of_one_cell_wait_at_its_ends_only(void **state)
{
    (void)state;
    const way w = {PLENTY, 0, 2, 0, 0};
    kv_device *d = gpu();
    kv_campaign c = small_campaign("L=2,T=5,H=1,D=8,e=f16", "");
    kv_ahead_count n;
    const long before = kv_emu_waits();
    free(in_waves(d, &c, &w, &n));
    assert_int_equal(n.cells, c.n_cells);
    assert_true(kv_emu_waits() - before <= 2 * n.waves);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* A wave holds more results than there is room for: it waits in between, and nothing is lost. */
static void waves__wait_in_between_where_results_do_not_fit(void **state)
{
    (void)state;
    const way w = {PLENTY, KV_AHEAD_SMALL, 3 * KV_WAVE_CELLS, 0, 0};
    kv_device *d = gpu(), *cpu = kvt_cpu();
    kv_campaign c = kvt_campaign("a sep k=T.H.D; b sep k=H.T.D; c int k=T.KV.H.D", "L=170,T=0,H=1,D=2,e=f16", "");
    kv_ahead_count n;
    kv_row *want = alone(cpu, &c);
    const long before = kv_emu_waits();
    kv_row *got = in_waves(d, &c, &w, &n);
    same_rows(&c, got, want, "170 layers");
    assert_true(kv_emu_waits() - before > 2 * n.waves && n.waves < 3 && n.cells == (int64_t)c.n_cells && n.alone == 0);
    free(got);
    free(want);
    kv_campaign_free(&c);
    d->ops->close(d);
    cpu->ops->close(cpu);
}

/* ---- faults ----------------------------------------------------------------------------- */

/* How many rows are not as they should be. With no memory of the host cells may fail, and say so. */
static int64_t failed_rows(const kv_campaign *c, const kv_row *got, const kv_row *want)
{
    int64_t failed = 0;
    for (size_t i = 0; i < c->n_cells; i++) {
        if (memcmp(&got[i], &want[i], sizeof got[i]) == 0) continue;
        assert_int_equal(got[i].verdict, KV_VERDICT_FAILED);
        assert_int_equal(got[i].error_class, KV_ERRCLASS_MEMORY);
        failed++;
    }
    return failed;
}

/* Two cells, each with a reference decode of its own, so that each of two waves asks for one. */
static kv_campaign two_geometries(void)
{
    kv_campaign c = {0};
    kv_err err = {0};
    kv_catalogue all = kvt_layouts("a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=2");
    json_t *spec = kvt_spec("L=1,T=3,H=1,D=2,e=f16", "'pairs':[['a','b']]");
    const kv_geometry other = kvt_geometry("L=2,T=2,H=1,D=2,e=f16");
    json_array_append_new(json_object_get(spec, "geometries"), kv_geometry_json_new(&other));
    kvt_ok(kv_campaign_build(spec, &all, "test", &c, &err), &err);
    kv_catalogue_free(&all);
    json_decref(spec);
    assert_int_equal(c.n_cells, 2);
    return c;
}

/* One call of the runtime fails: the wave's cells run again and nothing is to be seen. All of the host's memory is gone from
 * some point on: cells fail, and nothing is lost. */
static void waves__that_fail_are_run_again_cell_by_cell(void **state)
{
    (void)state;
    static const way ways[] = {{PLENTY, KV_AHEAD_SMALL, 64, 0, 0}, {PLENTY, 0, 64, 0, 0}};
    kv_campaign c = two_geometries();
    kv_device *d = gpu();
    kv_row *want = alone(d, &c);
    d->ops->close(d);
    for (int k = 0; k < 4; k++) {
        const bool host = k >= 2;
        int64_t again = 0, failed = 0;
        long rounds = 0;
        bool all = false;
        for (long n = 0; !all; n += 1 + n * SKIP / 24, rounds++) {
            kv_ahead_count count;
            d = gpu();
            if (host)
                kv_alloc_fail_after(n);
            else
                kv_emu_fail_after(n);
            kv_row *got = in_waves(d, &c, &ways[k % 2], &count);
            all = !host && kv_emu_fail_left() >= 0;
            kv_emu_fail_after(-1);
            kv_alloc_fail_after(-1);
            const int64_t now = failed_rows(&c, got, want);
            if (host) all = now == 0 && count.alone == 0;
            failed += now;
            again += count.alone;
            free(got);
            d->ops->close(d);
            assert_int_equal(kv_emu_allocations(), 0);
        }
        if (rounds < 12 || again < 5 || (host ? failed == 0 : failed != 0))
            fail_msg("way %d: %ld rounds, %" PRId64 " cells again, %" PRId64 " failed", k, rounds, again, failed);
    }
    free(want);
    kv_campaign_free(&c);
}

/* The first of two waves fails while the second is under way, which has asked for a reference decode too. */
/* What was begun gives back its memory before a cell that was not begun is run: that one would fail for want of it. */
static void take__frees_the_memory_for_a_cell_that_was_not_begun(void **state)
{
    (void)state;
    kv_campaign c = two_geometries();
    const int64_t first = 0;
    kv_device *d = gpu();
    kv_runner r = {.dev = d};
    kv_row *want = alone(d, &c), got[2];
    kv_ahead *a = NULL;
    kv_err err = {0};
    kv_cuda_keep_at_most(d, 0);
    kv_cuda_keep_at_most(d, PLENTY);
    kvt_ok(kv_ahead_new(&r, &c, PLENTY, 0, &a, &err), &err);
    kv_ahead_coming(a, &first, 1);
    assert_int_equal(kv_ahead_counted(a).waves, 1);
    kv_emu_set_memory(kv_emu_used() + 64);
    assert_false(kv_ahead_take(a, 1, &got[1]));
    kvt_ok(kv_cell_run(&r, &c, 1, &got[1], &err), &err);
    assert_true(kv_ahead_take(a, 0, &got[0]));
    same_rows(&c, got, want, "little memory");
    kv_emu_set_memory(0);
    kv_ahead_free(a);
    kv_runner_free(&r);
    free(want);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* Both waves together take no more memory than there is for them, and a cell that is not small shares its wave with none. */
static void coming__keeps_to_the_memory_and_to_small_cells(void **state)
{
    (void)state;
    kv_campaign c = two_geometries();
    kv_device *d = gpu();
    kv_runner r = {.dev = d};
    kv_cell_need need[2];
    kv_err err = {0};
    for (int i = 0; i < 2; i++) kvt_ok(kv_cell_plan(&c, i, &need[i], &err), &err);
    const int64_t sum = need[0].gpu_bytes + need[1].gpu_bytes;
    const int64_t larger = need[0].gpu_bytes > need[1].gpu_bytes ? need[0].gpu_bytes : need[1].gpu_bytes;
    const int64_t smaller = sum - larger;
    const int64_t last = need[0].gpu_bytes == larger ? 0 : 1, both[] = {1 - last, last}; /* the larger comes second */
    assert_true(smaller < larger);
    const struct {
        int64_t memory, small, waves, cells;
    } cases[] = {{sum, 0, 2, 2},          {sum - 1, 0, 1, 1},   {sum, larger, 1, 2},
                 {sum - 1, larger, 1, 1}, {sum, smaller, 2, 2}, {smaller - 1, larger, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kv_ahead *a = NULL;
        kvt_ok(kv_ahead_new(&r, &c, cases[i].memory, cases[i].small, &a, &err), &err);
        kv_ahead_coming(a, both, 2);
        const kv_ahead_count n = kv_ahead_counted(a);
        if (n.waves != cases[i].waves || n.cells != cases[i].cells)
            fail_msg("case %zu: %" PRId64 " waves of %" PRId64 " cells", i, n.waves, n.cells);
        kv_ahead_free(a);
    }
    kv_runner_free(&r);
    kv_campaign_free(&c);
    d->ops->close(d);
}

static void waves__that_fail_take_the_others_with_them(void **state)
{
    (void)state;
    kv_campaign c = two_geometries();
    const int64_t cells[] = {0, 1};
    kv_device *d = gpu();
    kv_row *want = alone(d, &c);
    for (long n = 0; n < 4; n++) { /* the result's copy, its emptying, the wait; then nothing of the first wave */
        kv_runner r = {.dev = d};
        kv_ahead *a = NULL;
        kv_row got[2];
        kv_err err = {0};
        kvt_ok(kv_ahead_new(&r, &c, PLENTY, 0, &a, &err), &err);
        kv_ahead_coming(a, cells, 2);
        assert_int_equal(kv_ahead_counted(a).waves, 2);
        kv_emu_fail_after(n);
        const bool told = kv_ahead_take(a, 0, &got[0]);
        assert_int_equal(told, n == 3);
        if (!told) {
            assert_int_equal(kv_ahead_counted(a).alone, 2);
            kvt_ok(kv_cell_run(&r, &c, 0, &got[0], &err), &err);
        }
        if (!kv_ahead_take(a, 1, &got[1])) kvt_ok(kv_cell_run(&r, &c, 1, &got[1], &err), &err);
        kv_emu_fail_after(-1);
        same_rows(&c, got, want, "after a wave that failed");
        kv_ahead_free(a);
        kv_runner_free(&r);
    }
    free(want);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* ---- the lists -------------------------------------------------------------------------- */

static void merge__keeps_the_order_of_every_list(void **state)
{
    (void)state;
    uint64_t r = 5;
    for (int round = 0; round < 200; round++) {
        enum { LISTS = 7 };
        kv_cuda_list lists[LISTS] = {{0}};
        kv_buf launches = {0}, arguments = {0};
        kv_err err = {0};
        int64_t all = 0, seen = 0, done[LISTS] = {0};
        const int32_t n = 1 + (int32_t)kvt_below(&r, LISTS);
        for (int32_t i = 0; i < n; i++)
            for (int64_t k = kvt_below(&r, 30); k > 0; k--, all++) {
                const kv_cuda_kernel kernel = (kv_cuda_kernel)kvt_below(&r, KV_CUDA_KERNELS);
                const int64_t entry[3] = {i, (int64_t)lists[i].n, kernel};
                kvt_ok(kv_cuda_list_add(&lists[i], kernel, (unsigned)kvt_below(&r, 9), entry, sizeof entry, &err),
                       &err);
            }
        kvt_ok(kv_cuda_list_merge(lists, n, &launches, &arguments, &err), &err);
        for (size_t at = 0; at < launches.len; at += sizeof(kv_cuda_launch)) {
            kv_cuda_launch x;
            memcpy(&x, launches.data + at, sizeof x);
            assert_int_equal(x.at % 16, 0);
            for (int32_t k = 0; k < x.n; k++, seen++) {
                int64_t entry[3];
                memcpy(entry, arguments.data + x.at + (size_t)k * sizeof entry, sizeof entry);
                assert_int_equal(entry[1], done[entry[0]]++);
                assert_int_equal(entry[2], x.kernel);
                assert_true(x.blocks >= lists[entry[0]].items[entry[1]].blocks);
            }
        }
        assert_int_equal(seen, all);
        for (int32_t i = 0; i < n; i++) kv_cuda_list_free(&lists[i]);
        kv_buf_free(&launches);
        kv_buf_free(&arguments);
    }
}

static void merge__makes_one_launch_of_what_is_alike(void **state)
{
    (void)state;
    static const kv_cuda_kernel story[] = {KV_CUDA_PROBE,  KV_CUDA_PROBE,   KV_CUDA_POISON,
                                           KV_CUDA_BUILD,  KV_CUDA_POISON,  KV_CUDA_TILES,
                                           KV_CUDA_GUARDS, KV_CUDA_COMPARE, KV_CUDA_FIRST};
    enum { STORY = sizeof story / sizeof story[0], LISTS = 5 };
    kv_cuda_list lists[LISTS] = {{0}};
    kv_buf launches = {0}, arguments = {0};
    kv_err err = {0};
    for (int i = 0; i < LISTS; i++)
        for (int k = 0; k < STORY; k++) kvt_ok(kv_cuda_list_add(&lists[i], story[k], 1, &k, sizeof k, &err), &err);
    kvt_ok(kv_cuda_list_merge(lists, LISTS, &launches, &arguments, &err), &err);
    assert_int_equal(launches.len / sizeof(kv_cuda_launch), STORY - 1);
    for (int i = 0; i < LISTS; i++) kv_cuda_list_free(&lists[i]);
    kv_buf_free(&launches);
    kv_buf_free(&arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(merge__keeps_the_order_of_every_list),
                                       cmocka_unit_test(merge__makes_one_launch_of_what_is_alike),
                                       cmocka_unit_test(waves__give_the_rows_of_cells_alone),
                                       cmocka_unit_test(waves__end_when_the_run_does),
                                       cmocka_unit_test(waves__take_few_launches_and_few_waits),
                                       cmocka_unit_test(waves__of_one_cell_wait_at_its_ends_only),
                                       cmocka_unit_test(waves__wait_in_between_where_results_do_not_fit),
                                       cmocka_unit_test(waves__that_fail_are_run_again_cell_by_cell),
                                       cmocka_unit_test(take__frees_the_memory_for_a_cell_that_was_not_begun),
                                       cmocka_unit_test(coming__keeps_to_the_memory_and_to_small_cells),
                                       cmocka_unit_test(waves__that_fail_take_the_others_with_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
