/* One run to a state folder. The lock is a file that says whose it is. It is written beside under a name of its own
 * and linked into place whole (link works on NFS and never replaces), so that a run killed between two writes leaves
 * no lock without an owner; a leftover of that name is replaced by the next run of the same process number. */
#include "grid/run/kv_lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/kv_file.h"

#define PATH_TEXT 4352

static bool same_owner(const kv_disk_owner *a, const kv_disk_owner *b)
{
    return a->pid == b->pid && a->start == b->start && strcmp(a->host, b->host) == 0;
}

/* "LOCK.HOST.PID", for what is this process's alone. */
static void beside(const char *path, const kv_disk_owner *o, char out[PATH_TEXT])
{
    snprintf(out, PATH_TEXT, "%s.%.200s.%" PRId64, path, o->host, o->pid);
}

/* Writes whose lock it is to a new file. 0 or -errno. */
static int write_owner(const kv_disk *d, const char *path, const kv_disk_owner *me)
{
    char text[KV_DISK_HOST + 64];
    const int fd = d->create(d, path);
    if (fd < 0) return fd;
    const int n = snprintf(text, sizeof text, "%s %" PRId64 " %" PRId64 "\n", me->host, me->pid, me->start);
    int64_t put = 0, w = 0;
    while (put < n && ((w = d->write(d, fd, text + put, (size_t)(n - put), put)) > 0 || w == -EINTR))
        put += w > 0 ? w : 0;
    int rc = put == n ? d->sync(d, fd) : w < 0 ? (int)w : -EIO;
    d->close(d, fd);
    if (rc != 0) (void)d->remove(d, path);
    return rc;
}

/* 0 made, -EEXIST there, else -errno. */
static int try_make(const kv_disk *d, const char *path, const kv_disk_owner *me)
{
    char mine[PATH_TEXT];
    beside(path, me, mine);
    (void)d->remove(d, mine);
    int rc = write_owner(d, mine, me);
    if (rc != 0) return rc == -EEXIST ? -EIO : rc;
    rc = d->link(d, mine, path);
    (void)d->remove(d, mine);
    if (rc == -EPERM || rc == -ENOSYS || rc == -EOPNOTSUPP || rc == -EMLINK)
        rc = write_owner(d, path, me); /* no links here */
    return rc;
}

/* Whose lock it is; false where the file does not say. */
static bool read_owner(const kv_disk *d, const char *path, kv_disk_owner *o)
{
    kv_buf b = {0};
    char pid[32] = "", start[32] = "";
    const bool good = d->read_file(d, path, 4096, &b) == 0 &&
                      sscanf(b.data, "%255s %31s %31s", o->host, pid, start) == 3 &&
                      kv_parse_i64(pid, 1, INT32_MAX, &o->pid) && kv_parse_i64(start, -1, INT64_MAX, &o->start);
    kv_buf_free(&b);
    return good;
}

/* A lock of this host whose process is gone: moved away, so that of two takers only one gets it. If meanwhile
 * another taker was faster, what was moved is its good lock: it goes back. 0 gone, -EEXIST not to be had, else -errno. */
static int take_over(const kv_disk *d, const char *path, const kv_disk_owner *stale, const kv_disk_owner *me)
{
    char aside[PATH_TEXT];
    kv_disk_owner moved = {.pid = 0};
    if (strcmp(stale->host, me->host) != 0 || d->start_of(d, stale->pid) == stale->start) return -EEXIST;
    beside(path, me, aside);
    const int rc = d->rename(d, path, aside);
    if (rc != 0) return rc == -ENOENT ? 0 : rc; /* gone by itself */
    const bool right = read_owner(d, aside, &moved) && same_owner(&moved, stale);
    if (!right) (void)d->link(d, aside, path);
    (void)d->remove(d, aside);
    return right ? 0 : -EEXIST;
}

kv_rc kv_lock_take_on(const kv_disk *d, const char *path, kv_err *err)
{
    kv_disk_owner me;
    d->self(d, &me);
    for (int tries = 0; tries < 2; tries++) {
        kv_disk_owner o = {.pid = 0};
        int why = try_make(d, path, &me);
        if (why == 0) return KV_OK;
        if (why != -EEXIST) return KV_FAIL(err, KV_EWRITE, "%s: cannot be made: %s", path, strerror(-why));
        if (!read_owner(d, path, &o))
            return KV_FAIL(err, KV_EEXIST,
                           "%s: the state is locked by a run that does not say who it is; remove the file if no run "
                           "uses this state",
                           path);
        why = take_over(d, path, &o, &me);
        if (why != 0 && why != -EEXIST)
            return KV_FAIL(err, KV_EWRITE, "%s: is of a run that is gone, and cannot be removed: %s", path,
                           strerror(-why));
        if (why != 0)
            return KV_FAIL(err, KV_EEXIST,
                           "%s: the state is in use by process %" PRId64
                           " on %s; if that run is gone, remove this file and start again",
                           path, o.pid, o.host);
    }
    return KV_FAIL(err, KV_EEXIST, "%s: another run took this state at the same moment", path);
}

void kv_lock_release_on(const kv_disk *d, const char *path)
{
    kv_disk_owner me, o = {.pid = 0};
    d->self(d, &me);
    if (read_owner(d, path, &o) && !same_owner(&o, &me))
        return; /* removed by hand meanwhile, and taken by another run */
    (void)d->remove(d, path);
}
