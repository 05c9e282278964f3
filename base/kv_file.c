#include "base/kv_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kv_temp.h"

bool kv_path_is_descriptor(const char *path)
{
    return strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/proc/self/fd/", 14) == 0 ||
           strcmp(path, "/dev/stdin") == 0;
}

kv_rc kv_file_wait(int fd, const char *path, int seconds, kv_err *err)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    do n = poll(&p, 1, seconds * 1000);
    while (n < 0 && errno == EINTR);
    if (n > 0) return KV_OK; /* bytes, or the end */
    if (n < 0) return KV_FAIL(err, KV_EREAD, "%s: cannot be read: %s", path, strerror(errno));
    return KV_FAIL(err, KV_EREAD, "%s: nothing came from this pipe for %d s", path, seconds);
}

/* What an open file is: KV_EREAD for what must not be read; *pipe for what may have to be waited for. */
static kv_rc look_at(int fd, const char *path, bool *pipe, kv_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return KV_FAIL(err, KV_EREAD, "%s: cannot be read: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return KV_FAIL(err, KV_EREAD, "%s: is a directory, a file is needed", path);
    *pipe = S_ISFIFO(st.st_mode);
    if (*pipe && !kv_path_is_descriptor(path))
        return KV_FAIL(err, KV_EREAD, "%s: is a pipe, a file is needed (or /dev/fd/N, for a pipe that is open already)",
                       path);
    return KV_OK;
}

kv_rc kv_file_open_regular(const char *path, FILE **out, kv_err *err)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not hold us up */
    if (fd < 0) return KV_FAIL(err, KV_EREAD, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return KV_FAIL(err, KV_EREAD, "%s: is no regular file (a pipe, a device or a folder)", path);
    }
    *out = fdopen(fd, "rb");
    if (*out != NULL) return KV_OK;
    close(fd);
    return KV_FAIL(err, KV_ENOMEM, "%s: no memory to read it", path);
}

kv_rc kv_file_read(const char *path, size_t limit, kv_buf *out, kv_err *err)
{
    bool pipe = false;
    kv_rc rc;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not hold us up */
    if (fd < 0) return KV_FAIL(err, KV_EREAD, "%s: cannot be opened: %s", path, strerror(errno));
    KV_TRY(rc, out, look_at(fd, path, &pipe, err));
    for (;;) {
        char chunk[65536];
        if (pipe) KV_TRY(rc, out, kv_file_wait(fd, path, KV_FILE_WAIT_S, err));
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && (errno == EINTR || (pipe && errno == EAGAIN))) continue;
        if (n < 0) {
            rc = KV_FAIL(err, KV_EREAD, "%s: cannot be read: %s", path, strerror(errno));
            goto out;
        }
        if (n == 0) break;
        if ((size_t)n > limit - out->len) {
            rc = KV_FAIL(err, KV_EREAD, "%s: larger than the limit of %zu bytes", path, limit);
            goto out;
        }
        KV_TRY(rc, out, kv_buf_append(out, chunk, (size_t)n, err));
    }
    if (out->data == NULL) rc = kv_buf_append(out, "", 0, err); /* an empty file still has a NUL */
out:
    close(fd);
    if (rc != KV_OK) kv_buf_free(out);
    return rc;
}

static kv_rc write_all(int fd, const char *bytes, size_t n, const char *path, kv_err *err)
{
    while (n > 0) {
        ssize_t put = write(fd, bytes, n);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return KV_FAIL(err, KV_EWRITE, "%s: cannot be written: %s", path, strerror(errno));
        bytes += put;
        n -= (size_t)put;
    }
    return KV_OK;
}

/* The folder that holds path, as a new string. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return kv_strdup(".");
    if (slash == path) return kv_strdup("/");
    char *dir = kv_strdup(path);
    if (dir != NULL) dir[slash - path] = '\0';
    return dir;
}

static void sync_folder(const char *path)
{
    char *dir = folder_of(path);
    if (dir == NULL) return;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd); /* some file systems cannot sync a folder; the file itself is synced */
        close(fd);
    }
    kv_free(dir);
}

kv_rc kv_file_rename(const char *from, const char *path, kv_err *err)
{
    if (rename(from, path) != 0) return KV_FAIL(err, KV_EWRITE, "%s: cannot be written: %s", path, strerror(errno));
    sync_folder(path);
    return KV_OK;
}

kv_rc kv_file_write(const char *path, const void *bytes, size_t n, unsigned perm, kv_file_mode mode, kv_err *err)
{
    kv_rc rc = KV_OK;
    char *temp = NULL;
    int fd = -1;
    size_t len = strlen(path) + sizeof ".tmp.XXXXXX";
    const kv_rc kind = mode == KV_FILE_REPLACE || kv_path_is_dir(path) ? kv_path_check_output(path, err) : KV_OK;
    if (kind != KV_OK) return kind;
    temp = kv_alloc(len, 1);
    if (temp == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to write %s", path);
    snprintf(temp, len, "%s.tmp.XXXXXX", path);
    fd = kv_temp_open(temp);
    if (fd < 0) {
        rc = KV_FAIL(err, KV_EWRITE, "%s: cannot be written: %s", path, strerror(errno));
        goto out;
    }
    KV_TRY(rc, out_unlink, write_all(fd, bytes, n, path, err));
    if (fchmod(fd, (mode_t)perm) != 0 || fsync(fd) != 0) {
        rc = KV_FAIL(err, KV_EWRITE, "%s: cannot be written: %s", path, strerror(errno));
        goto out_unlink;
    }
    if (mode == KV_FILE_NEW) {
        if (link(temp, path) != 0) { /* link, unlike rename, never replaces */
            rc = errno == EEXIST
                     ? KV_FAIL(err, KV_EEXIST, "%s: exists and is not overwritten; remove it or name another", path)
                     : KV_FAIL(err, KV_EWRITE, "%s: cannot be written: %s", path, strerror(errno));
            goto out_unlink;
        }
        (void)unlink(temp);
        sync_folder(path);
    } else {
        KV_TRY(rc, out_unlink, kv_file_rename(temp, path, err));
    }
    goto out;
out_unlink:
    (void)unlink(temp);
out:
    if (fd >= 0) kv_temp_done(temp);
    if (fd >= 0) close(fd);
    kv_free(temp);
    return rc;
}

kv_rc kv_file_can_write(const char *path, kv_err *err)
{
    const kv_rc kind = kv_path_check_output(path, err);
    if (kind != KV_OK) return kind;
    size_t len = strlen(path) + sizeof ".tmp.XXXXXX";
    char *temp = kv_alloc(len, 1);
    if (temp == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to check %s", path);
    snprintf(temp, len, "%s.tmp.XXXXXX", path);
    int fd = kv_temp_open(temp);
    kv_rc rc = KV_OK;
    if (fd < 0) {
        rc = KV_FAIL(err, KV_EWRITE, "%s: cannot be written: %s", path, strerror(errno));
    } else {
        close(fd);
        (void)unlink(temp);
        kv_temp_done(temp);
    }
    kv_free(temp);
    return rc;
}

char *kv_path_beside(const char *base_file, const char *rel)
{
    const char *slash = strrchr(base_file, '/');
    if (rel[0] == '/' || slash == NULL) return kv_strdup(rel);
    size_t dir = (size_t)(slash - base_file) + 1, n = strlen(rel) + 1;
    char *p = kv_alloc(dir + n, 1);
    if (p == NULL) return NULL;
    memcpy(p, base_file, dir);
    memcpy(p + dir, rel, n);
    return p;
}

bool kv_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

kv_rc kv_path_check_output(const char *path, kv_err *err)
{
    struct stat st;
    if (lstat(path, &st) != 0 || S_ISREG(st.st_mode)) return KV_OK; /* what else is wrong shows when it is written */
    if (S_ISDIR(st.st_mode)) return KV_FAIL(err, KV_EWRITE, "%s: is a directory, a file name is needed", path);
    return KV_FAIL(err, KV_EWRITE, "%s: is a device, a pipe or a link and would be replaced; name a regular file",
                   path);
}

bool kv_path_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool kv_path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}
