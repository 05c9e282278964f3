/* The real disk. */
#include "grid/run/kv_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/kv_file.h"

static int make_folder(const kv_disk *d, const char *path)
{
    (void)d;
    if (mkdir(path, 0777) == 0) return 0;
    const int why = errno;
    return why == EEXIST && kv_path_is_dir(path) ? 0 : -why;
}

static int sync_folder(const kv_disk *d, const char *path)
{
    (void)d;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return 0;
    (void)fsync(fd); /* some file systems cannot sync a folder, and need not */
    close(fd);
    return 0;
}

static int read_file(const kv_disk *d, const char *path, size_t limit, kv_buf *out)
{
    (void)d;
    kv_err err = {0};
    if (!kv_path_exists(path)) return -ENOENT;
    const kv_rc rc = kv_file_read(path, limit, out, &err);
    if (rc == KV_OK) return 0;
    if (rc == KV_ENOMEM) return -ENOMEM;
    return kv_path_is_dir(path) ? -EISDIR : -EIO;
}

static int open_file(const kv_disk *d, const char *path)
{
    (void)d;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    return fd >= 0 ? fd : -errno;
}

static int create(const kv_disk *d, const char *path)
{
    (void)d;
    const int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    return fd >= 0 ? fd : -errno;
}

static int64_t read_at(const kv_disk *d, int fd, char *bytes, size_t n, int64_t at)
{
    (void)d;
    const ssize_t r = pread(fd, bytes, n, (off_t)at);
    return r >= 0 ? (int64_t)r : -errno;
}

static int64_t write_at(const kv_disk *d, int fd, const char *bytes, size_t n, int64_t at)
{
    (void)d;
    const ssize_t w = pwrite(fd, bytes, n, (off_t)at);
    return w >= 0 ? (int64_t)w : -errno;
}

static int truncate_to(const kv_disk *d, int fd, int64_t size)
{
    (void)d;
    return ftruncate(fd, (off_t)size) == 0 ? 0 : -errno;
}

static int sync_file(const kv_disk *d, int fd)
{
    (void)d;
    return fsync(fd) == 0 ? 0 : -errno;
}

static void close_file(const kv_disk *d, int fd)
{
    (void)d;
    close(fd);
}

static int link_file(const kv_disk *d, const char *from, const char *to)
{
    (void)d;
    return link(from, to) == 0 ? 0 : -errno;
}

static int rename_file(const kv_disk *d, const char *from, const char *to)
{
    (void)d;
    return rename(from, to) == 0 ? 0 : -errno;
}

static int remove_file(const kv_disk *d, const char *path)
{
    (void)d;
    return unlink(path) == 0 ? 0 : -errno;
}

/* When process pid began, in clock ticks since boot, as the system says; -1 if it is gone or only a zombie. */
static int64_t start_of(const kv_disk *d, int64_t pid)
{
    (void)d;
    char path[64], state = 'X';
    kv_buf b = {0};
    long long start = -1;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    if (kv_file_read(path, 65536, &b, NULL) != KV_OK) return -1;
    const char *after = strrchr(b.data, ')'); /* the name in front may hold anything */
    if (after == NULL ||
        sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lld", &state,
               &start) != 2 ||
        state == 'Z' || state == 'X')
        start = -1;
    kv_buf_free(&b);
    return start;
}

static void self(const kv_disk *d, kv_disk_owner *out)
{
    memset(out, 0, sizeof *out);
    if (gethostname(out->host, sizeof out->host - 1) != 0 || out->host[0] == '\0')
        snprintf(out->host, sizeof out->host, "?");
    out->pid = (int64_t)getpid();
    out->start = start_of(d, out->pid);
}

static double now_s(const kv_disk *d)
{
    struct timespec t;
    (void)d;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const kv_disk *kv_disk_real(void)
{
    static const kv_disk disk = {.make_folder = make_folder,
                                 .sync_folder = sync_folder,
                                 .read_file = read_file,
                                 .open = open_file,
                                 .read = read_at,
                                 .create = create,
                                 .write = write_at,
                                 .truncate = truncate_to,
                                 .sync = sync_file,
                                 .close = close_file,
                                 .link = link_file,
                                 .rename = rename_file,
                                 .remove = remove_file,
                                 .self = self,
                                 .start_of = start_of,
                                 .now_s = now_s};
    return &disk;
}
