#include "grid/cell/kv_memory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/kv_file.h"
#include "grid/cell/kv_fault.h"

#define PATH_TEXT 1024
#define HOST_PART 16 /* one part in so many is left to others, of a host's and of a GPU's memory */
#define GPU_PART 64

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static FILE *open_under(const char *root, const char *path)
{
    char whole[2 * PATH_TEXT];
    FILE *f = NULL;
    if (snprintf(whole, sizeof whole, "%s%s", root, path) >= (int)sizeof whole) return NULL;
    return kv_file_open_regular(whole, &f, NULL) == KV_OK ? f : NULL;
}

/* The number of the file's line "name  number", of its first line where name is "". -1 where there is none. */
static int64_t number_in(const char *root, const char *path, const char *name)
{
    char line[256];
    int64_t found = -1;
    FILE *f = open_under(root, path);
    while (f != NULL && found < 0 && fgets(line, sizeof line, f) != NULL) {
        const size_t n = strlen(name);
        if (strncmp(line, name, n) != 0) continue;
        const char *digits = line + n + strspn(line + n, " \t");
        line[(size_t)(digits - line) + strspn(digits, "0123456789")] = '\0';
        if (!kv_parse_i64(digits, 0, INT64_MAX, &found)) break; /* "max": no limit */
    }
    if (f != NULL) fclose(f);
    return found;
}

/* The least limit of a control group and those above it; INT64_MAX: none. `path` is written over. */
static int64_t limit_above(const char *root, const char *mount, char *path, const char *file)
{
    int64_t limit = INT64_MAX;
    for (;;) {
        char whole[2 * PATH_TEXT];
        char *slash = strrchr(path, '/');
        snprintf(whole, sizeof whole, "%s%s/%s", mount, path, file);
        const int64_t n = number_in(root, whole, "");
        if (n > 0) limit = least(limit, n);
        if (slash == NULL) return limit;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/path" (version 2), "7:memory:/path" (version 1). */
static int64_t group_limit(const char *root)
{
    char line[PATH_TEXT];
    int64_t limit = INT64_MAX;
    FILE *f = open_under(root, "/proc/self/cgroup");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *kind = strchr(line, ':'), *path = kind != NULL ? strchr(kind + 1, ':') : NULL;
        if (path == NULL) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (kind[1] == '\0') limit = least(limit, limit_above(root, "/sys/fs/cgroup", path, "memory.max"));
        if (strcmp(kind + 1, "memory") == 0)
            limit = least(limit, limit_above(root, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"));
    }
    if (f != NULL) fclose(f);
    return limit;
}

kv_host_memory kv_memory_of_host(const char *root)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const int64_t available = number_in(root, "/proc/meminfo", "MemAvailable:");
    kv_host_memory m = {0, 0};
    if (pages > 0 && page > 0 && !kv_mul_i64(pages, page, &m.total_bytes)) m.total_bytes = 0;
    if (m.total_bytes == 0) return m;
    m.total_bytes = kv_fault_memory_limit(least(m.total_bytes, group_limit(root)));
    m.available_bytes = available > 0 ? least(m.total_bytes, available * 1024) : m.total_bytes;
    return m;
}

int64_t kv_memory_for_cell(const kv_memory *m)
{
    if (m->gpu_bytes > 0) return m->gpu_bytes - m->gpu_bytes / (m->gpu_ranks > 1 ? KV_MEMORY_KEPT_PART : GPU_PART);
    return (m->host.available_bytes - m->host.available_bytes / HOST_PART) / m->host_ranks;
}
