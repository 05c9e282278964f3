/* One run to a state folder. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/kv_file.h"
#include "grid/kv_journal.h"

#define HOST_TEXT 256

/* When process pid began, in clock ticks since boot, as the system says; -1 if it is gone or only a zombie. */
static int64_t start_of(int64_t pid)
{
    char path[64], state = 'X';
    kv_buf b = {0};
    long long start = -1;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    if (kv_file_read(path, 65536, &b, NULL) != KV_OK) return -1;
    const char *after = strrchr(b.data, ')'); /* the name in front may hold anything */
    if (after == NULL || sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lld", &state,
                                &start) != 2 || state == 'Z' || state == 'X')
        start = -1;
    kv_buf_free(&b);
    return start;
}

/* Makes the lock with O_EXCL, which NFS since version 3 does in one step. 0 made, EEXIST there, else errno. */
static int try_make(const char *path)
{
    char host[HOST_TEXT] = "", text[HOST_TEXT + 64];
    const int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) return errno;
    gethostname(host, sizeof host - 1);
    const int n = snprintf(text, sizeof text, "%s %ld %" PRId64 "\n", host, (long)getpid(), start_of(getpid()));
    const bool good = write(fd, text, (size_t)n) == n && fsync(fd) == 0;
    const int why = errno;
    close(fd);
    if (good) return 0;
    (void)unlink(path);
    return why != 0 ? why : EIO;
}

typedef struct {
    char host[HOST_TEXT];
    int64_t pid, start;
} owner;

/* Whose lock it is; false where the file does not say. */
static bool read_owner(const char *path, owner *o)
{
    kv_buf b = {0};
    char pid[32] = "", start[32] = "";
    const bool good = kv_file_read(path, 4096, &b, NULL) == KV_OK && sscanf(b.data, "%255s %31s %31s", o->host, pid, start) == 3 &&
                      kv_parse_i64(pid, 1, INT32_MAX, &o->pid) && kv_parse_i64(start, -1, INT64_MAX, &o->start);
    kv_buf_free(&b);
    return good;
}

/* A lock of this host whose process is gone: moved away, so that of two takers only one gets it. */
static bool take_over(const char *path, const owner *o)
{
    char here[HOST_TEXT] = "", aside[4096];
    gethostname(here, sizeof here - 1);
    if (strcmp(o->host, here) != 0 || start_of(o->pid) == o->start) return false;
    snprintf(aside, sizeof aside, "%s.%ld", path, (long)getpid());
    if (rename(path, aside) != 0) return false;
    (void)unlink(aside);
    return true;
}

kv_rc kv_lock_take(const char *path, kv_err *err)
{
    for (int tries = 0; tries < 2; tries++) {
        owner o = {.pid = 0};
        const int why = try_make(path);
        if (why == 0) return KV_OK;
        if (why != EEXIST) return KV_FAIL(err, KV_EWRITE, "%s: cannot be made: %s", path, strerror(why));
        if (!read_owner(path, &o))
            return KV_FAIL(err, KV_EEXIST, "%s: the state is locked by a run that does not say who it is; remove the file if no run uses this state",
                           path);
        if (!take_over(path, &o))
            return KV_FAIL(err, KV_EEXIST, "%s: the state is in use by process %" PRId64 " on %s; if that run is gone, remove this file and start again",
                           path, o.pid, o.host);
    }
    return KV_FAIL(err, KV_EEXIST, "%s: another run took this state at the same moment", path);
}

void kv_lock_release(const char *path)
{
    (void)unlink(path);
}
