/* Reads and judges the launcher's announcement. Pure: the environment comes in as a function. */
#include "mpi/kv_mpi_launch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *name;
    bool only_if_alone;
} source;

/* In this order: mpirun inside an allocation sets the first, whatever Slurm says of the whole
 * allocation; the Slurm variables are believed only by a process that found itself alone. */
static const source sources[] = {
    {"OMPI_COMM_WORLD_SIZE", false},
    {"PMI_SIZE", false},
    {"SLURM_STEP_NUM_TASKS", true},
    {"SLURM_NTASKS", true},
};

/* Set by launchers that announce no number of tasks in the variables above. */
static const char *const hints[] = {"PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_FD", "OMPI_COMM_WORLD_RANK"};

void kv_mpi_launch_read(kv_mpi_getenv get, void *ctx, kv_mpi_launch *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (get(ctx, hints[i]) != NULL) out->launched = true;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        const char *value = get(ctx, sources[i].name);
        if (value == NULL) continue;
        out->name = sources[i].name;
        out->only_if_alone = sources[i].only_if_alone;
        if (!sources[i].only_if_alone) out->launched = true;
        snprintf(out->text, sizeof out->text, "%s", value);
        if (!kv_parse_i64(value, 1, INT_MAX, &out->tasks)) out->tasks = -1;
        return;
    }
}

kv_rc kv_mpi_launch_check(const kv_mpi_launch *l, int world_size, kv_err *err)
{
    if (l->name == NULL || (l->only_if_alone && world_size != 1)) return KV_OK;
    if (l->tasks < 0)
        return KV_FAIL(err, KV_EMPI, "%s=\"%s\" is no number of tasks: unset it, or start with mpirun or srun", l->name,
                       l->text);
    if (l->tasks == world_size) return KV_OK;
    if (world_size != 1)
        return KV_FAIL(err, KV_EMPI,
                       "launcher started %lld task%s (%s), but this MPI world has %d ranks: unset %s if it is a "
                       "leftover, else start with the launcher of this MPI",
                       (long long)l->tasks, l->tasks == 1 ? "" : "s", l->name, world_size, l->name);
    return KV_FAIL(err, KV_EMPI,
                   "launcher started %lld tasks (%s), but this MPI world has 1 rank: the launcher and this MPI do not "
                   "work together; use mpirun -n %lld, or srun --mpi=pmix, or, for one rank on purpose, mpirun -n 1",
                   (long long)l->tasks, l->name, (long long)l->tasks);
}
