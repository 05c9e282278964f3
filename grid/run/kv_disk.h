/* What the journal and its lock ask of the system, as a table, so that the simulator can stand in for it and let any
 * single operation fail, tear or be the last one. */
#ifndef KV_DISK_H
#define KV_DISK_H

#include "base/kv_base.h"

#define KV_DISK_HOST 256

/* Whose process it is. start: when it began, in the system's own count; -1 unknown. */
typedef struct {
    char host[KV_DISK_HOST];
    int64_t pid, start;
} kv_disk_owner;

typedef struct kv_disk kv_disk;
/* All give 0 (or a count or a descriptor) or -errno. */
struct kv_disk {
    int (*make_folder)(const kv_disk *d, const char *path); /* 0 also where it is there already */
    int (*sync_folder)(const kv_disk *d, const char *path);
    int (*read_file)(const kv_disk *d, const char *path, size_t limit, kv_buf *out); /* -ENOENT: not there */
    int (*open)(const kv_disk *d, const char *path);                              /* read and write, made if absent */
    int64_t (*read)(const kv_disk *d, int fd, char *bytes, size_t n, int64_t at); /* may give fewer; 0 at the end */
    int (*create)(const kv_disk *d, const char *path);                            /* only if absent, else -EEXIST */
    int64_t (*write)(const kv_disk *d, int fd, const char *bytes, size_t n, int64_t at); /* may write fewer */
    int (*truncate)(const kv_disk *d, int fd, int64_t size);
    int (*sync)(const kv_disk *d, int fd);
    void (*close)(const kv_disk *d, int fd);
    int (*link)(const kv_disk *d, const char *from, const char *to); /* never replaces: -EEXIST */
    int (*rename)(const kv_disk *d, const char *from, const char *to);
    int (*remove)(const kv_disk *d, const char *path);
    void (*self)(const kv_disk *d, kv_disk_owner *out);
    int64_t (*start_of)(const kv_disk *d, int64_t pid); /* of a process of this host; -1 if it is gone */
    double (*now_s)(const kv_disk *d);
    void *ctx;
};

const kv_disk *kv_disk_real(void);

#endif
