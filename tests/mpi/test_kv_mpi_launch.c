/* The launcher's announcement against the world (case d11). The environment is a table here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mpi/kv_mpi_launch.h"

typedef struct {
    const char *name, *value;
} variable;

static const char *from_table(void *ctx, const char *name)
{
    for (const variable *v = ctx; v->name != NULL; v++)
        if (strcmp(v->name, name) == 0) return v->value;
    return NULL;
}

static kv_rc check(variable *env, int world, kv_err *err)
{
    kv_mpi_launch l;
    kv_mpi_launch_read(from_table, env, &l);
    return kv_mpi_launch_check(&l, world, err);
}

typedef struct {
    const char *promise;
    variable env[4];
    int world;
    kv_rc rc;
    const char *text; /* must be in the message */
} launch_case;

static launch_case cases[] = {
    {"alone, nothing announced", {{0}}, 1, KV_OK, NULL},
    {"nothing announced is no ground to doubt a world", {{0}}, 8, KV_OK, NULL},
    {"mpirun", {{"OMPI_COMM_WORLD_SIZE", "8"}}, 8, KV_OK, NULL},
    {"PMI world of 1",
     {{"PMI_SIZE", "4"}},
     1,
     KV_EMPI,
     "launcher started 4 tasks (PMI_SIZE), but this MPI world has 1 rank"},
    {"step world of 1", {{"SLURM_STEP_NUM_TASKS", "4"}}, 1, KV_EMPI, "4 tasks (SLURM_STEP_NUM_TASKS)"},
    {"allocation world of 1", {{"SLURM_NTASKS", "4"}}, 1, KV_EMPI, "4 tasks (SLURM_NTASKS)"},
    {"mpirun -n 1 in an allocation of 4", {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_NTASKS", "4"}}, 1, KV_OK, NULL},
    {"mpirun -n 2 in an allocation of 4", {{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_NTASKS", "4"}}, 2, KV_OK, NULL},
    {"one task step in an allocation of 4", {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "4"}}, 1, KV_OK, NULL},
    {"Slurm does not count in a world of many",
     {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "4"}},
     16,
     KV_OK,
     NULL},
    {"nor when malformed", {{"SLURM_NTASKS", "4(x2)"}}, 16, KV_OK, NULL},
    {"srun with PMI", {{"PMI_SIZE", "4"}, {"SLURM_NTASKS", "8"}}, 4, KV_OK, NULL},
    {"the first one set decides",
     {{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMI_SIZE", "1"}},
     1,
     KV_EMPI,
     "OMPI_COMM_WORLD_SIZE"},
    {"a larger world is wrong too", {{"PMI_SIZE", "4"}}, 8, KV_EMPI, "world has 8 ranks"},
    {"one task, many ranks", {{"PMI_SIZE", "1"}}, 8, KV_EMPI, "1 task ("},
    {"malformed: letters", {{"PMI_SIZE", "four"}}, 4, KV_EMPI, "PMI_SIZE=\"four\""},
    {"malformed: rest", {{"PMI_SIZE", "4 "}}, 4, KV_EMPI, "no number of tasks"},
    {"malformed: empty", {{"OMPI_COMM_WORLD_SIZE", ""}}, 1, KV_EMPI, "no number of tasks"},
    {"malformed: zero", {{"SLURM_NTASKS", "0"}}, 1, KV_EMPI, "no number of tasks"},
    {"malformed: negative", {{"SLURM_NTASKS", "-4"}}, 1, KV_EMPI, "no number of tasks"},
    {"malformed: huge", {{"PMI_SIZE", "99999999999999999999"}}, 1, KV_EMPI, "no number of tasks"},
    {"malformed: past int", {{"PMI_SIZE", "4294967297"}}, 1, KV_EMPI, "no number of tasks"},
};

static void launch_check__compares_the_first_announcement_with_the_world(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kv_err err = {0};
        const kv_rc rc = check(cases[i].env, cases[i].world, &err);
        if (rc != cases[i].rc || (cases[i].text != NULL && strstr(err.text, cases[i].text) == NULL))
            fail_msg("%s: %s \"%s\"", cases[i].promise, kv_rc_name(rc), err.text);
        assert_int_equal(check(cases[i].env, cases[i].world, NULL), cases[i].rc);
    }
}

static void launch_read__knows_whether_anything_launched_us(void **state)
{
    (void)state;
    kv_mpi_launch l;
    variable none[] = {{"HOME", "/root"}, {0}}, pmix[] = {{"PMIX_RANK", "0"}, {0}},
             slurm[] = {{"SLURM_STEP_NUM_TASKS", "2"}, {0}}, mpirun[] = {{"OMPI_COMM_WORLD_SIZE", "1"}, {0}};
    kv_mpi_launch_read(from_table, none, &l);
    assert_false(l.launched);
    kv_mpi_launch_read(from_table, pmix, &l);
    assert_true(l.launched);
    assert_null(l.name);
    kv_mpi_launch_read(from_table, mpirun, &l);
    assert_true(l.launched);
    kv_mpi_launch_read(from_table, slurm, &l); /* srun --mpi=none */
    assert_false(l.launched);
    assert_int_equal(l.tasks, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launch_check__compares_the_first_announcement_with_the_world),
        cmocka_unit_test(launch_read__knows_whether_anything_launched_us),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
