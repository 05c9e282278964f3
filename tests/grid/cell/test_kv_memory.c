/* What memory there is: the host's, a job's control group, what is not in use, one rank's share. */
#include "grid/cell/kv_memory.h"
#include "tests/kv_test.h"

#include <sys/stat.h>

static void put(const char *root, const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static void host__is_what_the_control_group_allows(void **state)
{
    (void)state;
    char root[] = "/tmp/kv_memory_XXXXXX", command[128];
    assert_non_null(mkdtemp(root));
    const kv_host_memory bare = kv_memory_of_host(root); /* no /proc, no groups */
    assert_true(bare.total_bytes > 0 && bare.available_bytes == bare.total_bytes);
    put(root, "/proc/meminfo", "MemTotal:       99999999 kB\nMemFree: 1 kB\nMemAvailable:    300 kB\n");
    put(root, "/proc/self/cgroup", "0::/\n");
    assert_int_equal(kv_memory_of_host(root).total_bytes, bare.total_bytes);
    assert_int_equal(kv_memory_of_host(root).available_bytes, 300 * 1024);
    /* lines shorter than the name */
    put(root, "/proc/meminfo", "M\n\nMemAvailable: 300 kB\n");
    assert_int_equal(kv_memory_of_host(root).available_bytes, 300 * 1024);
    /* version 2: the least of a group and all above it */
    put(root, "/proc/self/cgroup", "1:name=systemd:/x\n0::/job/step/task\n");
    put(root, "/sys/fs/cgroup/job/step/task/memory.max", "max\n");
    assert_int_equal(kv_memory_of_host(root).total_bytes, bare.total_bytes);
    put(root, "/sys/fs/cgroup/job/step/memory.max", "200000\n");
    put(root, "/sys/fs/cgroup/job/memory.max", "250000\n");
    assert_int_equal(kv_memory_of_host(root).total_bytes, 200000);
    assert_int_equal(kv_memory_of_host(root).available_bytes, 200000);
    put(root, "/sys/fs/cgroup/memory.max", "150000\n"); /* a container's own */
    assert_int_equal(kv_memory_of_host(root).total_bytes, 150000);
    /* version 1 */
    put(root, "/proc/self/cgroup", "4:cpu,cpuacct:/job\n7:memory:/slurm/job\n");
    put(root, "/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "100000\n");
    put(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(kv_memory_of_host(root).total_bytes, 100000);
    put(root, "/proc/self/cgroup", "nonsense\n7:memory\n\n");
    assert_int_equal(kv_memory_of_host(root).total_bytes, bare.total_bytes);
    const kv_host_memory here = kv_memory_of_host("");
    assert_true(here.available_bytes > 0 && here.available_bytes <= here.total_bytes);
    snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

static void cell__has_its_share(void **state)
{
    (void)state;
    kv_memory m = {.host = {64000, 32000}, .host_ranks = 3, .gpu_ranks = 1};
    assert_int_equal(kv_memory_for_cell(&m), 10000);
    m.gpu_bytes = 6400;
    assert_int_equal(kv_memory_for_cell(&m), 6300);
    m.gpu_ranks = 2;
    assert_int_equal(kv_memory_for_cell(&m), 4800);
    m.gpu_bytes = 0;
    m.host = (kv_host_memory){0, 0};
    assert_int_equal(kv_memory_for_cell(&m), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host__is_what_the_control_group_allows),
        cmocka_unit_test(cell__has_its_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
