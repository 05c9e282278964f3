#include "base/kv_out.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kv_file.h"
#include "base/kv_temp.h"

struct kv_out {
    FILE *f;
    char *path, *temp; /* NULL for standard output */
    int failed;        /* the first errno, 0 while all is well */
};

static void drop(kv_out *o)
{
    if (o->path != NULL && o->f != NULL) fclose(o->f);
    kv_free(o->path);
    kv_free(o->temp);
    kv_free(o);
}

/* The names; the file itself comes with the first byte, so that nothing is touched where there is none. */
static kv_rc name_temp(kv_out *o, const char *path, kv_err *err)
{
    const size_t len = strlen(path) + sizeof ".tmp.XXXXXX";
    const kv_rc kind = kv_path_check_output(path, err);
    if (kind != KV_OK) return kind;
    o->path = kv_strdup(path);
    o->temp = kv_alloc(len, 1);
    if (o->path == NULL || o->temp == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to write %s", path);
    snprintf(o->temp, len, "%s.tmp.XXXXXX", path);
    return KV_OK;
}

/* True where f can be written. */
static bool ready(kv_out *o)
{
    if (o->f != NULL || o->failed != 0) return o->failed == 0;
    const int fd = kv_temp_open(o->temp);
    if (fd < 0) {
        o->failed = errno;
        return false;
    }
    o->f = fdopen(fd, "w");
    if (o->f != NULL) return true;
    o->failed = errno;
    close(fd);
    (void)unlink(o->temp);
    kv_temp_done(o->temp);
    return false;
}

kv_rc kv_out_open(const char *path, kv_out **out, kv_err *err)
{
    kv_rc rc = KV_OK;
    kv_out *o = kv_alloc(1, sizeof *o);
    if (o == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for an output");
    if (path == NULL)
        o->f = stdout;
    else
        rc = name_temp(o, path, err);
    if (rc == KV_OK)
        *out = o;
    else
        drop(o);
    return rc;
}

void kv_out_bytes(kv_out *o, const void *bytes, size_t n)
{
    if (n == 0 || !ready(o)) return;
    errno = 0;
    if (fwrite(bytes, 1, n, o->f) != n) o->failed = errno != 0 ? errno : EIO;
}

void kv_out_puts(kv_out *o, const char *text)
{
    kv_out_bytes(o, text, strlen(text));
}

void kv_out_printf(kv_out *o, const char *fmt, ...)
{
    va_list args;
    if (!ready(o)) return;
    errno = 0;
    va_start(args, fmt);
    if (vfprintf(o->f, fmt, args) < 0) o->failed = errno != 0 ? errno : EIO;
    va_end(args);
}

/* Syncs and moves the file to its name. */
static kv_rc keep(kv_out *o, kv_err *err)
{
    if (o->f == NULL && !ready(o))
        return KV_FAIL(err, KV_EWRITE, "%s: cannot be written: %s", o->path, strerror(o->failed));
    errno = 0;
    bool good = o->failed == 0 && fflush(o->f) == 0 && fchmod(fileno(o->f), 0644) == 0 && fsync(fileno(o->f)) == 0;
    int why = o->failed != 0 ? o->failed : errno;
    if (fclose(o->f) != 0 && good) {
        good = false;
        why = errno;
    }
    o->f = NULL;
    const kv_rc rc = good ? kv_file_rename(o->temp, o->path, err)
                          : KV_FAIL(err, KV_EWRITE, "%s: cannot be written: %s", o->path, strerror(why));
    if (rc != KV_OK) (void)unlink(o->temp);
    kv_temp_done(o->temp);
    return rc;
}

kv_rc kv_out_close(kv_out *o, kv_rc rc, kv_err *err)
{
    if (o == NULL) return rc;
    if (o->path == NULL && rc == KV_OK && o->failed != 0)
        rc = KV_FAIL(err, KV_EWRITE, "standard output cannot be written: %s", strerror(o->failed));
    else if (o->path != NULL && rc == KV_OK)
        rc = keep(o, err);
    else if (o->path != NULL && o->f != NULL) {
        (void)unlink(o->temp);
        kv_temp_done(o->temp);
    }
    drop(o);
    return rc;
}
