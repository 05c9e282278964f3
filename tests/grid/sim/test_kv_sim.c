/* The simulator: forecasts that obey the laws of scheduling, and stories of faults that come out right. */
#include "grid/sim/kv_sim.h"
#include "grid/sim/kv_sim_int.h"
#include "tests/kv_test_grid.h"

#define SEEDS 4000

/* ---- stories ---------------------------------------------------------------------------- */

static void story__comes_to_the_same_rows_whatever_a_seed_does(void **state)
{
    (void)state;
    kv_campaign c = kvt_published_campaign();
    kv_sim_tally t = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        kv_err err = {0};
        kvt_ok(kv_sim_story(&c, seed, &t, NULL, &err), &err);
    }
    assert_int_equal(t.runs[KV_SIM_DONE], SEEDS);
    for (int i = 0; i < KV_SIM_END_COUNT; i++) assert_true(t.runs[i] > SEEDS / 50);
    for (int i = 0; kv_sim_fault_name(i) != NULL; i++) assert_true(t.faults[i] > SEEDS / 100);
    kv_campaign_free(&c);
}

/* Seeds that found something: each must be sound now. */
static void story__seeds_that_once_failed(void **state)
{
    (void)state;
    static const uint64_t seeds[] = {32,   33,   46,   73,    949,   1076,  1793,  2565,  3855,
                                     3911, 4104, 7933, 14904, 32464, 42392, 45913, 50326, UINT64_MAX};
    kv_campaign c = kvt_published_campaign();
    kv_sim_tally t = {0};
    for (size_t i = 0; i < KVT_COUNT(seeds); i++) {
        kv_err err = {0};
        kvt_ok(kv_sim_story(&c, seeds[i], &t, NULL, &err), &err);
    }
    kv_campaign_free(&c);
}

static void story__can_be_told_again(void **state)
{
    (void)state;
    kv_campaign c = kvt_published_campaign();
    for (uint64_t seed = 100; seed < 140; seed++) {
        kv_buf log[2] = {{0}, {0}};
        kv_sim_tally t[2] = {{{0}, {0}, 0, 0, 0}, {{0}, {0}, 0, 0, 0}};
        for (int i = 0; i < 2; i++) {
            kv_err err = {0};
            kvt_ok(kv_sim_story(&c, seed, &t[i], &log[i], &err), &err);
        }
        assert_string_equal(log[0].data, log[1].data);
        assert_memory_equal(&t[0], &t[1], sizeof t[0]);
        kv_buf_free(&log[0]);
        kv_buf_free(&log[1]);
    }
    kv_campaign_free(&c);
}

static void story__of_one_cell(void **state)
{
    (void)state;
    kv_campaign c = kvt_campaign("a sep k=T.H.D; b sep k=H.T.D", "L=1,T=2,H=1,D=8,e=f16", "");
    kv_sim_tally t = {0};
    c.n_cells = 1;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        kv_err err = {0};
        kvt_ok(kv_sim_story(&c, seed, &t, NULL, &err), &err);
    }
    kv_campaign_free(&c);
}

/* ---- forecasts -------------------------------------------------------------------------- */

static kv_sim_forecast forecast(const kv_campaign *c, const kv_plan *p, int ranks, int cores)
{
    kv_sim_forecast f;
    kv_err err = {0};
    kv_sim_model m = kv_sim_model_default();
    m.cores = cores;
    kvt_ok(kv_sim_predict(c, p, &m, ranks, 3600, &f, &err), &err);
    return f;
}

static void predict__obeys_the_laws(void **state)
{
    (void)state;
    kv_campaign c = kvt_published_campaign();
    kv_plan p = {0};
    kv_err err = {0};
    kvt_ok(kv_plan_new(&c, &p, &err), &err);
    for (size_t i = 0; i < c.n_cells; i++) p.costs[i] *= 100; /* so that messages matter little */
    double before = 1e30;
    for (int ranks = 1; ranks <= 64; ranks *= 2) {
        const kv_sim_forecast f = forecast(&c, &p, ranks, 0);
        assert_true(f.makespan_s >= f.work_s / ranks && f.makespan_s >= f.longest_s);
        assert_true(f.makespan_s < f.work_s / ranks + 2 * f.longest_s + 0.01); /* largest first */
        assert_true(f.makespan_s < 1.02 * before);
        assert_true(f.efficiency > 0 && f.efficiency <= 1);
        assert_true(f.messages >= (ranks == 1 ? 0 : 4 * (ranks - 1)));
        before = f.makespan_s;
    }
    kv_plan_free(&p);
    kv_campaign_free(&c);
}

static void predict__one_rank_is_the_sum(void **state)
{
    (void)state;
    kv_campaign c = kvt_published_campaign();
    kv_plan p = {0};
    kv_err err = {0};
    kvt_ok(kv_plan_new(&c, &p, &err), &err);
    const kv_sim_forecast f = forecast(&c, &p, 1, 0);
    assert_int_equal(f.messages, 0);
    const double most = f.work_s + (double)c.n_cells * 40e-6 + 0.02; /* rows to the journal, syncs */
    assert_true(f.makespan_s > f.work_s && f.makespan_s < most);
    kv_plan_free(&p);
    kv_campaign_free(&c);
}

static void predict__cores_bound_the_speed(void **state)
{
    (void)state;
    kv_campaign c = kvt_published_campaign();
    kv_plan p = {0};
    kv_err err = {0};
    kvt_ok(kv_plan_new(&c, &p, &err), &err);
    for (size_t i = 0; i < c.n_cells; i++) p.costs[i] *= 100;
    const kv_sim_forecast two = forecast(&c, &p, 2, 2), four = forecast(&c, &p, 4, 2), free4 = forecast(&c, &p, 4, 0);
    assert_true(four.makespan_s > 0.95 * two.makespan_s && four.makespan_s < 1.15 * two.makespan_s);
    assert_true(free4.makespan_s < 0.6 * two.makespan_s);
    kv_plan_free(&p);
    kv_campaign_free(&c);
}

static void predict__is_the_same_each_time(void **state)
{
    (void)state;
    kv_campaign c = kvt_published_campaign();
    kv_plan p = {0};
    kv_err err = {0};
    kvt_ok(kv_plan_new(&c, &p, &err), &err);
    const kv_sim_forecast a = forecast(&c, &p, 1024, 0), b = forecast(&c, &p, 1024, 0);
    assert_true(a.makespan_s == b.makespan_s && a.messages == b.messages && a.bytes == b.bytes);
    assert_true(a.helper_share > 0 && a.helper_share <= 1);
    kv_plan_free(&p);
    kv_campaign_free(&c);
}

static void next_look__is_when_a_sleeper_wakes(void **state)
{
    (void)state;
    const kv_sim_model m = {.wake_ns = 50000};
    const uint64_t look = 1000, first = 16 * look;
    assert_int_equal(kv_sim_next_look(&m, 0, look, 5), 5); /* still yielding */
    assert_int_equal(kv_sim_next_look(&m, 0, look, first), first);
    assert_int_equal(kv_sim_next_look(&m, 0, look, first + 1), first + 20000 + 50000 + look);
    for (uint64_t t = 1; t < 50000000; t = t * 3 / 2 + 1) {
        const uint64_t at = kv_sim_next_look(&m, 7, look, t);
        assert_true(at >= t && at - t < 2000000 + 50000 + look);
        assert_int_equal(kv_sim_next_look(&m, 7, look, at), at);
    }
}

/* ---- the journal on a disk that fails --------------------------------------------------- */

typedef struct {
    kv_campaign c;
    uint64_t clock;
    kv_sim_disk disk;
    kv_sim_view view;
    kv_pack *rows;
    bool done[64];
    int64_t n_done;
    kv_journal *journal;
    kv_err err;
} bench;

static const char digest[] = "00000000000000000000000000000000000000000000000000000000000000ab";

static kv_rc reopen(bench *b)
{
    kv_pack_free(b->rows);
    b->rows = NULL;
    memset(b->done, 0, sizeof b->done);
    kv_err_clear(&b->err);
    kvt_ok(kv_pack_new(&b->c, &b->rows, &b->err), &b->err);
    return kv_journal_open_on(&b->view.table, "state", &b->c, digest, b->rows, b->done, &b->n_done, &b->journal,
                              &b->err);
}

static void set_up(bench *b)
{
    memset(b, 0, sizeof *b);
    b->c = kvt_published_campaign();
    kv_sim_disk_init(&b->disk, 1, &b->clock);
    kv_sim_view_init(&b->view, &b->disk, "here", 100, 1);
    kvt_ok(reopen(b), &b->err);
}

static void tear_down(bench *b)
{
    (void)!kv_journal_close(b->journal, NULL);
    kv_pack_free(b->rows);
    kv_sim_disk_free(&b->disk);
    kv_campaign_free(&b->c);
}

static kv_rc add(bench *b, int64_t cell, bool failed)
{
    kv_row row;
    kv_sim_row(1, cell, &row);
    if (failed) row.verdict = KV_VERDICT_FAILED;
    return kv_journal_add(b->journal, &b->c, &row, &b->err);
}

static void journal__full_disk_is_told_and_cut_back(void **state)
{
    (void)state;
    bench b;
    set_up(&b);
    const kv_sim_file *f = kv_sim_disk_find(&b.disk, "state/journal");
    b.disk.capacity = 2500;
    int64_t kept = 0;
    while (add(&b, kept, false) == KV_OK) kept++;
    assert_true(kept > 0 && kept < 60);
    assert_int_equal(b.err.rc, KV_EWRITE);
    assert_non_null(strstr(b.err.text, "No space left"));
    assert_int_equal(f->now.data[f->now.len - 1], '\n');
    b.disk.capacity = -1;
    kvt_ok(kv_journal_close(b.journal, &b.err), &b.err);
    kvt_ok(reopen(&b), &b.err);
    assert_int_equal(b.n_done, kept);
    tear_down(&b);
}

static void journal__failed_takes_back_what_stood_before(void **state)
{
    (void)state;
    bench b;
    set_up(&b);
    kvt_ok(add(&b, 3, false), &b.err);
    kvt_ok(add(&b, 4, false), &b.err);
    kvt_ok(add(&b, 3, true), &b.err);
    kvt_ok(kv_journal_close(b.journal, &b.err), &b.err);
    kvt_ok(reopen(&b), &b.err);
    assert_int_equal(b.n_done, 1);
    assert_false(b.done[3]);
    assert_true(b.done[4]);
    kvt_ok(add(&b, 3, false), &b.err);
    kvt_ok(kv_journal_close(b.journal, &b.err), &b.err);
    kvt_ok(reopen(&b), &b.err);
    assert_int_equal(b.n_done, 2);
    tear_down(&b);
}

static size_t synced(bench *b)
{
    return kv_sim_disk_find(&b->disk, "state/journal")->synced.len;
}

static void journal__tick_syncs_what_waits(void **state)
{
    (void)state;
    bench b;
    set_up(&b);
    kvt_ok(add(&b, 0, false), &b.err);
    const size_t all = kv_sim_disk_find(&b.disk, "state/journal")->now.len;
    kv_journal_tick(b.journal, false);
    assert_true(synced(&b) < all); /* not yet */
    b.clock += 1100000000u;
    kv_journal_tick(b.journal, false);
    assert_int_equal(synced(&b), all);
    kvt_ok(add(&b, 1, false), &b.err);
    kv_journal_tick(b.journal, true);
    assert_true(synced(&b) > all);
    kv_journal_tick(NULL, true);
    tear_down(&b);
}

static void journal__a_failed_tick_is_told(void **state)
{
    (void)state;
    bench b;
    set_up(&b);
    kvt_ok(add(&b, 0, false), &b.err);
    b.disk.fates[0].op = b.disk.ops + 1;
    b.disk.fates[0].fate = KV_SIM_OP_FAIL;
    b.disk.n_fates = 1;
    kv_journal_tick(b.journal, true);
    assert_int_equal(add(&b, 1, false), KV_EWRITE);
    assert_int_equal(kv_journal_close(b.journal, NULL), KV_EWRITE);
    b.journal = NULL;
    tear_down(&b);
}

static void journal__a_power_cut_leaves_the_folder_entry(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 50; seed++) {
        bench b;
        set_up(&b);
        kvt_ok(add(&b, 0, false), &b.err);
        kv_journal_tick(b.journal, true);
        b.disk.killed = true;
        (void)!kv_journal_close(b.journal, NULL);
        b.disk.chance.state = seed;
        kv_sim_disk_power_cut(&b.disk);
        kv_sim_disk_revive(&b.disk);
        kv_sim_view_init(&b.view, &b.disk, "here", 101, 2);
        kvt_ok(reopen(&b), &b.err);
        assert_int_equal(b.n_done, 1);
        tear_down(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(story__comes_to_the_same_rows_whatever_a_seed_does),
        cmocka_unit_test(story__seeds_that_once_failed),
        cmocka_unit_test(story__can_be_told_again),
        cmocka_unit_test(story__of_one_cell),
        cmocka_unit_test(predict__obeys_the_laws),
        cmocka_unit_test(predict__one_rank_is_the_sum),
        cmocka_unit_test(predict__cores_bound_the_speed),
        cmocka_unit_test(predict__is_the_same_each_time),
        cmocka_unit_test(next_look__is_when_a_sleeper_wakes),
        cmocka_unit_test(journal__full_disk_is_told_and_cut_back),
        cmocka_unit_test(journal__failed_takes_back_what_stood_before),
        cmocka_unit_test(journal__tick_syncs_what_waits),
        cmocka_unit_test(journal__a_failed_tick_is_told),
        cmocka_unit_test(journal__a_power_cut_leaves_the_folder_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
