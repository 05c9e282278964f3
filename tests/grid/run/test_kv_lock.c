/* One run to a state folder: killed anywhere, two at once, another's lock; on the simulated disk and on the real one. */
#include "tests/kv_test.h"

#include <sys/wait.h>

#include "grid/run/kv_lock.h"
#include "grid/sim/kv_sim_int.h"

#define LOCK "state/lock"

static uint64_t no_clock;

/* A run that is killed at any change of the disk leaves no lock that the next run of this host does not take over. */
static void lock__a_kill_anywhere_leaves_it_for_the_next(void **state)
{
    (void)state;
    static const kv_sim_op_fate fates[] = {KV_SIM_OP_KILL_BEFORE, KV_SIM_OP_KILL_AFTER, KV_SIM_OP_KILL_TORN};
    for (size_t f = 0; f < KVT_COUNT(fates); f++)
        for (int64_t op = 1; op < 12; op++) {
            kv_sim_disk d;
            kv_sim_view first, second;
            kv_err err = {0};
            kv_sim_disk_init(&d, (uint64_t)op, &no_clock);
            d.fates[0].op = op;
            d.fates[0].fate = fates[f];
            d.n_fates = 1;
            kv_sim_view_init(&first, &d, "here", 100, 1);
            if (kv_lock_take_on(&first.table, LOCK, &err) == KV_OK) kv_lock_release_on(&first.table, LOCK);
            kv_sim_disk_revive(&d);
            kv_sim_view_init(&second, &d, "here", 101, 2);
            kv_err_clear(&err);
            kvt_ok(kv_lock_take_on(&second.table, LOCK, &err), &err);
            kv_lock_release_on(&second.table, LOCK);
            assert_null(kv_sim_disk_find(&d, LOCK));
            kv_sim_disk_free(&d);
        }
}

static void lock__of_a_living_run_is_refused_and_names_it(void **state)
{
    (void)state;
    kv_sim_disk d;
    kv_sim_view first, second;
    kv_err err = {0};
    kv_sim_disk_init(&d, 1, &no_clock);
    kv_sim_view_init(&first, &d, "node7", 100, 1);
    kvt_ok(kv_lock_take_on(&first.table, LOCK, &err), &err);
    kv_sim_view_init(&second, &d, "node7", 101, 2);
    second.other = first.who;
    assert_int_equal(kv_lock_take_on(&second.table, LOCK, &err), KV_EEXIST);
    assert_non_null(strstr(err.text, "process 100 on node7"));
    kv_err_clear(&err);
    kv_sim_view_init(&second, &d, "node8", 101, 2); /* whether it lives cannot be seen from elsewhere */
    assert_int_equal(kv_lock_take_on(&second.table, LOCK, &err), KV_EEXIST);
    assert_non_null(strstr(err.text, "remove this file"));
    kv_sim_disk_free(&d);
}

static void lock__release_leaves_anothers(void **state)
{
    (void)state;
    kv_sim_disk d;
    kv_sim_view first, second;
    kv_err err = {0};
    kv_sim_disk_init(&d, 1, &no_clock);
    kv_sim_view_init(&first, &d, "node7", 100, 1);
    kvt_ok(kv_lock_take_on(&first.table, LOCK, &err), &err);
    assert_int_equal(first.table.remove(&first.table, LOCK), 0); /* by hand */
    kv_sim_view_init(&second, &d, "node8", 101, 2);
    kvt_ok(kv_lock_take_on(&second.table, LOCK, &err), &err);
    kv_lock_release_on(&first.table, LOCK);
    assert_non_null(kv_sim_disk_find(&d, LOCK));
    kv_lock_release_on(&second.table, LOCK);
    assert_null(kv_sim_disk_find(&d, LOCK));
    kv_sim_disk_free(&d);
}

/* Between reading a stale lock and moving it away, another run takes it over. */
static kv_sim_view faster;
static int (*real_rename)(const kv_disk *d, const char *from, const char *to);

static int late_rename(const kv_disk *d, const char *from, const char *to)
{
    kv_err err = {0};
    kvt_ok(kv_lock_take_on(&faster.table, LOCK, &err), &err);
    return real_rename(d, from, to);
}

static void lock__two_takers_of_a_stale_one(void **state)
{
    (void)state;
    kv_sim_disk d;
    kv_sim_view gone, slower;
    kv_err err = {0};
    kv_sim_disk_init(&d, 1, &no_clock);
    kv_sim_view_init(&gone, &d, "here", 100, 1);
    kvt_ok(kv_lock_take_on(&gone.table, LOCK, &err), &err);
    kv_sim_view_init(&faster, &d, "here", 101, 2);
    kv_sim_view_init(&slower, &d, "here", 102, 3);
    slower.other = faster.who;
    real_rename = slower.table.rename;
    slower.table.rename = late_rename;
    assert_int_equal(kv_lock_take_on(&slower.table, LOCK, &err), KV_EEXIST);
    const kv_sim_file *f = kv_sim_disk_find(&d, LOCK);
    assert_non_null(f);
    assert_memory_equal(f->now.data, "here 101 ", 9);
    kv_sim_disk_free(&d);
}

static void lock__on_the_real_disk(void **state)
{
    (void)state;
    char dir[] = "/tmp/kv_lock_XXXXXX", path[64];
    kv_err err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/lock", dir);
    kvt_ok(kv_lock_take_on(kv_disk_real(), path, &err), &err);
    assert_int_equal(kv_lock_take_on(kv_disk_real(), path, &err), KV_EEXIST); /* this process lives */
    kv_lock_release_on(kv_disk_real(), path);
    assert_false(kv_path_exists(path));
    const pid_t child = fork();
    if (child == 0) _exit(kv_lock_take_on(kv_disk_real(), path, NULL) == KV_OK ? 0 : 1);
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(kv_path_exists(path)); /* left by a run that is gone */
    kv_err_clear(&err);
    kvt_ok(kv_lock_take_on(kv_disk_real(), path, &err), &err);
    kv_lock_release_on(kv_disk_real(), path);
    assert_int_equal(rmdir(dir), 0); /* nothing else is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lock__a_kill_anywhere_leaves_it_for_the_next),
        cmocka_unit_test(lock__of_a_living_run_is_refused_and_names_it),
        cmocka_unit_test(lock__release_leaves_anothers),
        cmocka_unit_test(lock__two_takers_of_a_stale_one),
        cmocka_unit_test(lock__on_the_real_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
