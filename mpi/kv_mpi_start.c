/* Start and end of MPI: launch check, own communicator, where each rank runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mpi/kv_mpi_impl.h"
#include "mpi/kv_mpi_launch.h"

static const char *from_environment(void *ctx, const char *name)
{
    (void)ctx;
    return getenv(name);
}

/* A process that nothing launched is alone: it needs no network and no daemon. Without these Open MPI
 * 4 spends 0.3 s on both; with them 0.03 s. Values that the user set win; other MPIs ignore them. */
static const char *const alone_settings[][2] = {
    {"OMPI_MCA_ess_singleton_isolated", "1"},
    {"OMPI_MCA_pml", "ob1"},
    {"OMPI_MCA_btl", "self"},
    {"OMPI_MCA_osc", "^ucx"},
    {"OMPI_MCA_orte_create_session_dirs", "0"}, /* runs begun at once by one user would meet in it */
};
/* What makes Open MPI believe in a process manager under srun, and end the process in MPI_Init (exit code 1) where
 * there is none. Hidden from it, each task is alone, and the launch check says what is wrong. */
static const char *const step_names[] = {"SLURM_STEPID", "SLURM_STEP_ID"};
enum { STEP_NAMES = sizeof step_names / sizeof step_names[0], STEP_ID_BYTES = 32 };
enum { ALONE_SETTINGS = sizeof alone_settings / sizeof alone_settings[0] };

static void hide_step(char kept[STEP_NAMES][STEP_ID_BYTES])
{
    for (size_t i = 0; i < STEP_NAMES; i++) {
        const char *value = getenv(step_names[i]);
        if (value == NULL) continue;
        snprintf(kept[i], STEP_ID_BYTES, "%s", value);
        unsetenv(step_names[i]);
    }
}

static void show_step(char kept[STEP_NAMES][STEP_ID_BYTES])
{
    for (size_t i = 0; i < STEP_NAMES; i++)
        if (kept[i][0] != '\0') setenv(step_names[i], kept[i], 0);
}

static kv_rc start_mpi(const kv_mpi_launch *launch, kv_err *err)
{
    bool ours[ALONE_SETTINGS] = {false};
    char step[STEP_NAMES][STEP_ID_BYTES] = {{0}};
    if (!launch->launched) hide_step(step);
    for (size_t i = 0; i < ALONE_SETTINGS && !launch->launched; i++) {
        ours[i] = getenv(alone_settings[i][0]) == NULL;
        if (ours[i]) setenv(alone_settings[i][0], alone_settings[i][1], 0);
    }
    int provided = MPI_THREAD_SINGLE;
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    for (size_t i = 0; i < ALONE_SETTINGS; i++)
        if (ours[i]) unsetenv(alone_settings[i][0]); /* not for programs that we start */
    show_step(step);
    if (code != MPI_SUCCESS) return KV_FAIL(err, KV_EMPI, "MPI_Init_thread failed with code %d", code);
    KV_MPI_MUST(NULL, MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (provided < MPI_THREAD_SERIALIZED)
        return KV_FAIL(err, KV_EMPI,
                       "this MPI gives thread level %d, and MPI_THREAD_SERIALIZED (%d) is needed: use an "
                       "MPI built with thread support",
                       provided, MPI_THREAD_SERIALIZED);
    return KV_OK;
}

static kv_rc where_am_i(kv_mpi *m, kv_err *err)
{
    m->hosts = kv_alloc((size_t)m->size, sizeof *m->hosts);
    char *mine = kv_alloc(1, KV_MPI_HOST_BYTES); /* on the heap: see kv_mpi_scratch */
    if (m->hosts == NULL || mine == NULL)        /* the others wait for this rank, and it cannot answer */
        kv_mpi_abort(m, "no memory for the names of %d hosts", m->size);
    if (gethostname(mine, KV_MPI_HOST_BYTES - 1) != 0) snprintf(mine, KV_MPI_HOST_BYTES, "?");
    snprintf(m->hosts[m->rank], KV_MPI_HOST_BYTES, "%s", mine);
    if (m->size > 1) {
        MPI_Request req;
        KV_MPI_MUST(
            m, MPI_Iallgather(mine, KV_MPI_HOST_BYTES, MPI_BYTE, m->hosts, KV_MPI_HOST_BYTES, MPI_BYTE, m->comm, &req));
        const kv_rc rc = kv_mpi_wait(m, &req, "names of hosts", err);
        if (rc != KV_OK) return rc;
    }
    kv_free(mine);
    MPI_Comm host;
    KV_MPI_MUST(m, MPI_Comm_split_type(m->comm, MPI_COMM_TYPE_SHARED, m->rank, MPI_INFO_NULL, &host));
    KV_MPI_MUST(m, MPI_Comm_rank(host, &m->host_rank));
    KV_MPI_MUST(m, MPI_Comm_size(host, &m->host_size));
    KV_MPI_MUST(m, MPI_Comm_free(&host));
    return KV_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static kv_rc count_hosts(kv_mpi *m, kv_err *err)
{
    const char **names = kv_alloc((size_t)m->size, sizeof *names);
    if (names == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the names of %d hosts", m->size);
    for (int r = 0; r < m->size; r++) names[r] = m->hosts[r];
    qsort(names, (size_t)m->size, sizeof *names, by_name);
    m->host_count = 1;
    for (int r = 1; r < m->size; r++) m->host_count += strcmp(names[r], names[r - 1]) != 0;
    kv_free(names);
    return KV_OK;
}

static void read_version(kv_mpi *m)
{
    int n = 0;
    KV_MPI_MUST(m, MPI_Get_library_version(m->version, &n));
    m->version[sizeof m->version - 1] = '\0';
    m->version[strcspn(m->version, "\r\n")] = '\0';
}

/* The launch check stands before everything collective: each copy fails by itself. */
static kv_rc set_up(kv_mpi *m, const kv_mpi_launch *launch, kv_err *err)
{
    KV_MPI_MUST(m, MPI_Comm_rank(MPI_COMM_WORLD, &m->rank));
    KV_MPI_MUST(m, MPI_Comm_size(MPI_COMM_WORLD, &m->size));
    kv_rc rc = kv_mpi_launch_check(launch, m->size, err);
    if (rc != KV_OK) return rc;
    KV_MPI_MUST(m, MPI_Comm_dup(MPI_COMM_WORLD, &m->comm));
    KV_MPI_MUST(m, MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN));
    rc = where_am_i(m, err);
    if (rc != KV_OK) return rc;
    read_version(m);
    return kv_mpi_agree(m, count_hosts(m, err), err);
}

/* The communicator stays for MPI_Finalize to free: freeing it would be one more collective. */
static void free_handle(kv_mpi *m)
{
    kv_free(m->hosts);
    kv_free(m);
}

kv_rc kv_mpi_start(double timeout_s, kv_mpi **out, kv_err *err)
{
    if (!(timeout_s > 0 && timeout_s < 1e9)) return KV_FAIL(err, KV_EINVAL, "a time limit of %g s", timeout_s);
    int begun = 0;
    MPI_Initialized(&begun);
    if (begun) return KV_FAIL(err, KV_EMPI, "MPI can be started only once in a process");
    kv_mpi_launch launch;
    kv_mpi_launch_read(from_environment, NULL, &launch);
    kv_mpi *m = kv_alloc(1, sizeof *m);
    if (m == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the MPI handle");
    m->timeout_s = timeout_s;
    kv_rc rc = start_mpi(&launch, err);
    if (rc == KV_OK) rc = set_up(m, &launch, err);
    if (rc == KV_OK) {
        *out = m;
        return KV_OK;
    }
    if (m->health != KV_MPI_WELL) kv_mpi_abort(m, "%s", err != NULL ? err->text : "a rank is lost");
    MPI_Initialized(&begun);
    if (begun) MPI_Finalize();
    free_handle(m);
    return rc;
}

/* Only for the others: rank 0 learns of the loss as we did, saves its state, and then ends us all. */
static void give_rank_0_time(const kv_mpi *m)
{
    const uint64_t begin = kv_mpi_now_ns(), most = 30000000000u;
    const uint64_t limit = kv_mpi_limit_ns(m) < most ? kv_mpi_limit_ns(m) : most;
    const struct timespec t = {.tv_sec = 0, .tv_nsec = 50000000};
    while (kv_mpi_now_ns() - begin < limit) nanosleep(&t, NULL);
}

void kv_mpi_stop(kv_mpi *m, const kv_err *why)
{
    const bool tell = m != NULL && m->rank != 0 && why != NULL && why->text[0] != '\0';
    if (m == NULL) return;
    if (m->health == KV_MPI_BROKEN_WAIT) give_rank_0_time(m);
    if (m->health != KV_MPI_WELL)
        kv_mpi_abort(m, "a rank was lost: the job ends here%s%s", tell ? ": " : "", tell ? why->text : "");
    if (m->size > 1) { /* MPI_Finalize waits for all without a limit; this does not */
        MPI_Request req;
        kv_err err = {0};
        KV_MPI_MUST(m, MPI_Ibarrier(m->comm, &req));
        if (kv_mpi_wait(m, &req, "end of the run", &err) != KV_OK) kv_mpi_abort(m, "%s", err.text);
    }
    MPI_Finalize();
    free_handle(m);
}

int kv_mpi_rank(const kv_mpi *m)
{
    return m->rank;
}

int kv_mpi_size(const kv_mpi *m)
{
    return m->size;
}

int kv_mpi_host_rank(const kv_mpi *m)
{
    return m->host_rank;
}

int kv_mpi_host_size(const kv_mpi *m)
{
    return m->host_size;
}

int kv_mpi_host_count(const kv_mpi *m)
{
    return m->host_count;
}

const char *kv_mpi_host_view(const kv_mpi *m, int rank)
{
    return rank >= 0 && rank < m->size ? m->hosts[rank] : "?";
}

const char *kv_mpi_version_view(const kv_mpi *m)
{
    return m->version;
}

double kv_mpi_timeout(const kv_mpi *m)
{
    return m->timeout_s;
}

bool kv_mpi_broken(const kv_mpi *m)
{
    return m->health != KV_MPI_WELL;
}
