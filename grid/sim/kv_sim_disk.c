/* A disk in memory that fails where it is told to, and forgets what was not synced when the power goes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "grid/sim/kv_sim_int.h"

#define OP_NS 3000u
#define FD_BASE 100

/* ---- chance ---- */

uint64_t kv_sim_draw(kv_sim_chance *c)
{
    uint64_t z = c->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t kv_sim_below(kv_sim_chance *c, uint64_t n)
{
    const uint64_t v = kv_sim_draw(c);
    return n == 0 ? 0 : v % n;
}

bool kv_sim_percent(kv_sim_chance *c, int percent)
{
    return kv_sim_below(c, 100) < (uint64_t)percent;
}

uint64_t kv_sim_spread(kv_sim_chance *c, uint64_t least, uint64_t most)
{
    int steps = 0;
    while (least << (steps + 1) <= most && steps < 62) steps++;
    const uint64_t low = least << kv_sim_below(c, (uint64_t)steps + 1);
    const uint64_t v = low + kv_sim_below(c, low);
    return v < most ? v : most;
}

/* ---- files ---- */

static kv_sim_view *view_of(const kv_disk *t)
{
    return t->ctx;
}

kv_sim_file *kv_sim_disk_find(kv_sim_disk *d, const char *name)
{
    for (int i = 0; i < KV_SIM_FILES; i++)
        if (d->files[i].name[0] != '\0' && strcmp(d->files[i].name, name) == 0) return &d->files[i];
    return NULL;
}

static void forget(kv_sim_file *f)
{
    kv_buf_free(&f->now);
    kv_buf_free(&f->synced);
    memset(f, 0, sizeof *f);
}

static kv_sim_file *add_file(kv_sim_disk *d, const char *name)
{
    for (int i = 0; i < KV_SIM_FILES; i++)
        if (d->files[i].name[0] == '\0') {
            snprintf(d->files[i].name, KV_SIM_NAME, "%s", name);
            return &d->files[i];
        }
    return NULL;
}

static int64_t used(const kv_sim_disk *d)
{
    int64_t n = 0;
    for (int i = 0; i < KV_SIM_FILES; i++) n += (int64_t)d->files[i].now.len;
    return n;
}

static bool set_bytes(kv_buf *b, const char *bytes, size_t n)
{
    b->len = 0;
    return kv_buf_append(b, bytes, n, NULL) == KV_OK;
}

/* What becomes of the next change: true if it is to be done. *rc is what else to answer. */
static bool goes(kv_sim_disk *d, kv_sim_op_fate *fate, int *rc)
{
    *fate = KV_SIM_OP_WELL;
    *rc = -EIO;
    if (d->killed) return false;
    d->spent_ns += OP_NS;
    d->ops++;
    for (int i = 0; i < d->n_fates; i++)
        if (d->fates[i].op == d->ops) *fate = d->fates[i].fate;
    switch (*fate) {
    case KV_SIM_OP_KILL_BEFORE: d->killed = true; return false;
    case KV_SIM_OP_FAIL: return false;
    case KV_SIM_OP_WELL:
    case KV_SIM_OP_KILL_AFTER:
    case KV_SIM_OP_KILL_TORN:
    case KV_SIM_OP_SHORT:
    case KV_SIM_OP_EINTR: break;
    }
    return true;
}

/* After a change that was done. */
static int done(kv_sim_disk *d, kv_sim_op_fate fate, int rc)
{
    if (fate != KV_SIM_OP_KILL_AFTER && fate != KV_SIM_OP_KILL_TORN) return rc;
    d->killed = true;
    return -EIO;
}

static int make_folder(const kv_disk *t, const char *path)
{
    kv_sim_op_fate fate;
    int rc;
    (void)path;
    kv_sim_disk *d = view_of(t)->disk;
    return goes(d, &fate, &rc) ? done(d, fate, 0) : rc;
}

static int sync_folder(const kv_disk *t, const char *path)
{
    kv_sim_op_fate fate;
    int rc;
    (void)path;
    kv_sim_disk *d = view_of(t)->disk;
    if (!goes(d, &fate, &rc)) return d->killed ? rc : 0; /* the real one forgives, too */
    for (int i = 0; i < KV_SIM_FILES; i++) d->files[i].synced_name = d->files[i].name[0] != '\0';
    return done(d, fate, 0);
}

static int read_file(const kv_disk *t, const char *path, size_t limit, kv_buf *out)
{
    kv_sim_disk *d = view_of(t)->disk;
    const kv_sim_file *f = kv_sim_disk_find(d, path);
    if (d->killed) return -EIO;
    if (f == NULL) return -ENOENT;
    if (f->now.len > limit) return -EIO;
    return set_bytes(out, f->now.len > 0 ? f->now.data : "", f->now.len) ? 0 : -ENOMEM;
}

static int64_t read_at(const kv_disk *t, int fd, char *bytes, size_t n, int64_t at)
{
    const kv_sim_disk *d = view_of(t)->disk;
    const kv_sim_file *f = &d->files[fd - FD_BASE];
    if (d->killed) return -EIO;
    const size_t left = at < (int64_t)f->now.len ? f->now.len - (size_t)at : 0;
    if (n > left) n = left;
    if (n > 0) memcpy(bytes, f->now.data + at, n);
    return (int64_t)n;
}

static int open_or_create(const kv_disk *t, const char *path, bool only_new)
{
    kv_sim_op_fate fate;
    int rc;
    kv_sim_disk *d = view_of(t)->disk;
    if (!goes(d, &fate, &rc)) return rc;
    kv_sim_file *f = kv_sim_disk_find(d, path);
    if (f != NULL && only_new) return done(d, fate, -EEXIST);
    if (f == NULL && d->capacity >= 0 && used(d) >= d->capacity) return done(d, fate, -ENOSPC);
    if (f == NULL) f = add_file(d, path);
    return f != NULL ? done(d, fate, FD_BASE + (int)(f - d->files)) : -ENFILE;
}

static int open_file(const kv_disk *t, const char *path)
{
    return open_or_create(t, path, false);
}

static int create(const kv_disk *t, const char *path)
{
    return open_or_create(t, path, true);
}

/* Puts bytes into a file; a hole reads as zeros. */
static int64_t put(kv_sim_disk *d, kv_sim_file *f, const char *bytes, size_t n, int64_t at)
{
    while ((int64_t)f->now.len < at)
        if (kv_buf_append(&f->now, "\0", 1, NULL) != KV_OK) return -ENOMEM;
    const int64_t grows = at + (int64_t)n - (int64_t)f->now.len;
    if (d->capacity >= 0 && grows > 0) {
        const int64_t room = d->capacity - used(d);
        if (room < grows) n = room > 0 && (int64_t)n > grows - room ? n - (size_t)(grows - room) : 0;
        if (n == 0) return -ENOSPC;
    }
    const size_t over = (size_t)at + n <= f->now.len ? n : f->now.len - (size_t)at;
    if (over > 0) memcpy(f->now.data + at, bytes, over);
    if (n > over && kv_buf_append(&f->now, bytes + over, n - over, NULL) != KV_OK) return -ENOMEM;
    return (int64_t)n;
}

static int64_t write_at(const kv_disk *t, int fd, const char *bytes, size_t n, int64_t at)
{
    kv_sim_op_fate fate;
    int rc;
    kv_sim_disk *d = view_of(t)->disk;
    kv_sim_file *f = &d->files[fd - FD_BASE];
    if (!goes(d, &fate, &rc)) {
        if (!d->killed && n > 1)
            (void)put(d, f, bytes, kv_sim_below(&d->chance, n), at); /* no one says that nothing was written */
        return rc;
    }
    if (fate == KV_SIM_OP_EINTR) return -EINTR;
    if (fate == KV_SIM_OP_KILL_TORN || (fate == KV_SIM_OP_SHORT && n > 1)) n = 1 + kv_sim_below(&d->chance, n - 1);
    const int64_t w = put(d, f, bytes, n, at);
    return done(d, fate, 0) == 0 ? w : -EIO;
}

static int truncate_to(const kv_disk *t, int fd, int64_t size)
{
    kv_sim_op_fate fate;
    int rc;
    kv_sim_disk *d = view_of(t)->disk;
    kv_sim_file *f = &d->files[fd - FD_BASE];
    if (!goes(d, &fate, &rc)) return rc;
    if ((int64_t)f->now.len > size) f->now.len = (size_t)size;
    return done(d, fate, 0);
}

static int sync_file(const kv_disk *t, int fd)
{
    kv_sim_op_fate fate;
    int rc;
    kv_sim_disk *d = view_of(t)->disk;
    kv_sim_file *f = &d->files[fd - FD_BASE];
    if (!goes(d, &fate, &rc)) return rc;
    d->spent_ns += d->sync_ns;
    if (!set_bytes(&f->synced, f->now.len > 0 ? f->now.data : "", f->now.len)) return -ENOMEM;
    if (d->on_sync != NULL && strstr(f->name, "journal") != NULL) d->on_sync(d->on_sync_ctx);
    return done(d, fate, 0);
}

static void close_file(const kv_disk *t, int fd)
{
    (void)t;
    (void)fd;
}

static int link_file(const kv_disk *t, const char *from, const char *to)
{
    kv_sim_op_fate fate;
    int rc;
    kv_sim_disk *d = view_of(t)->disk;
    if (!goes(d, &fate, &rc)) return rc;
    const kv_sim_file *f = kv_sim_disk_find(d, from);
    if (f == NULL || kv_sim_disk_find(d, to) != NULL) return done(d, fate, f == NULL ? -ENOENT : -EEXIST);
    kv_sim_file *copy = add_file(d, to);
    if (copy == NULL) return -ENFILE;
    return set_bytes(&copy->now, f->now.data, f->now.len) && set_bytes(&copy->synced, f->synced.data, f->synced.len)
               ? done(d, fate, 0)
               : -ENOMEM;
}

static int rename_file(const kv_disk *t, const char *from, const char *to)
{
    kv_sim_op_fate fate;
    int rc;
    kv_sim_disk *d = view_of(t)->disk;
    if (!goes(d, &fate, &rc)) return rc;
    kv_sim_file *f = kv_sim_disk_find(d, from), *old = kv_sim_disk_find(d, to);
    if (f == NULL) return done(d, fate, -ENOENT);
    if (old != NULL) forget(old);
    snprintf(f->name, KV_SIM_NAME, "%s", to);
    f->synced_name = false;
    return done(d, fate, 0);
}

static int remove_file(const kv_disk *t, const char *path)
{
    kv_sim_op_fate fate;
    int rc;
    kv_sim_disk *d = view_of(t)->disk;
    if (!goes(d, &fate, &rc)) return rc;
    kv_sim_file *f = kv_sim_disk_find(d, path);
    if (f == NULL) return done(d, fate, -ENOENT);
    forget(f);
    return done(d, fate, 0);
}

static void self(const kv_disk *t, kv_disk_owner *out)
{
    *out = view_of(t)->who;
}

/* Two processes live at most: this one, and one that it stands against. */
static int64_t start_of(const kv_disk *t, int64_t pid)
{
    const kv_sim_view *v = view_of(t);
    return pid == v->who.pid ? v->who.start : pid == v->other.pid ? v->other.start : -1;
}

static double now_s(const kv_disk *t)
{
    return (double)*view_of(t)->disk->clock * 1e-9;
}

void kv_sim_view_init(kv_sim_view *v, kv_sim_disk *d, const char *host, int64_t pid, int64_t start)
{
    memset(v, 0, sizeof *v);
    v->disk = d;
    snprintf(v->who.host, sizeof v->who.host, "%s", host);
    v->who.pid = pid;
    v->who.start = start;
    v->table = (kv_disk){.make_folder = make_folder,
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
                         .now_s = now_s,
                         .ctx = v};
}

/* ---- life and death ---- */

void kv_sim_disk_init(kv_sim_disk *d, uint64_t seed, const uint64_t *clock)
{
    memset(d, 0, sizeof *d);
    d->chance.state = seed;
    d->clock = clock;
    d->capacity = -1;
}

void kv_sim_disk_free(kv_sim_disk *d)
{
    for (int i = 0; i < KV_SIM_FILES; i++) forget(&d->files[i]);
}

void kv_sim_disk_revive(kv_sim_disk *d)
{
    d->killed = false;
    d->n_fates = 0;
    d->ops = 0;
    d->capacity = -1;
}

static size_t common(const kv_buf *a, const kv_buf *b)
{
    size_t n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n]) n++;
    return n;
}

/* What is in a file after the power came back: the synced bytes, or those and some of what came later, perhaps with
 * zeros where the length was written and the bytes were not. */
static void age(kv_sim_disk *d, kv_sim_file *f)
{
    if (kv_sim_percent(&d->chance, 30)) {
        (void)set_bytes(&f->now, f->synced.len > 0 ? f->synced.data : "", f->synced.len);
        return;
    }
    const size_t least = common(&f->now, &f->synced), full = f->now.len;
    const size_t keep = least + kv_sim_below(&d->chance, full - least + 1);
    f->now.len = keep;
    if (full > keep && kv_sim_percent(&d->chance, 25)) {
        memset(f->now.data + keep, 0, full - keep);
        f->now.len = keep + 1 + kv_sim_below(&d->chance, full - keep);
    }
}

void kv_sim_disk_power_cut(kv_sim_disk *d)
{
    for (int i = 0; i < KV_SIM_FILES; i++) {
        kv_sim_file *f = &d->files[i];
        if (f->name[0] == '\0') continue;
        if (!f->synced_name && kv_sim_percent(&d->chance, 50)) {
            forget(f);
            continue;
        }
        age(d, f);
        f->synced_name = true;
        (void)set_bytes(&f->synced, f->now.len > 0 ? f->now.data : "", f->now.len);
    }
}
