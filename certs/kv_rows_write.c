/* The row file, written as its rows come. */
#include "certs/kv_rows.h"

#include "base/kv_out.h"
#include "certs/kv_json.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct kv_rows_writer {
    kv_out *out;
    kv_merkle merkle;
    uint64_t bytes;
    kv_buf line;
};

static void writer_free(kv_rows_writer *w)
{
    kv_buf_free(&w->line);
    kv_free(w);
}

/* The row file of the document at path, as a new string; NULL when memory is out. */
static char *name_of(const char *path)
{
    const size_t n = strlen(path) + sizeof KV_ROWS_SUFFIX;
    char *name = kv_alloc(n, 1);
    if (name != NULL) snprintf(name, n, "%s" KV_ROWS_SUFFIX, path);
    return name;
}

kv_rc kv_rows_create(const char *path, kv_rows_writer **out, kv_err *err)
{
    kv_rows_writer *w = kv_alloc(1, sizeof *w);
    char *name = name_of(path);
    kv_rc rc = w != NULL && name != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory to write rows");
    if (rc == KV_OK) rc = kv_out_open(name, &w->out, err);
    kv_free(name);
    if (rc == KV_OK)
        *out = w;
    else if (w != NULL)
        writer_free(w);
    return rc;
}

kv_rc kv_rows_put(kv_rows_writer *w, const json_t *row, kv_err *err)
{
    w->line.len = 0;
    kv_rc rc = kv_json_write(row, &w->line, err);
    if (rc == KV_OK && w->line.len > KV_ROWS_LINE_MAX)
        rc = KV_FAIL(err, KV_EFORMAT, "a row of %zu bytes, the limit is %zu", w->line.len, KV_ROWS_LINE_MAX);
    if (rc != KV_OK) return rc;
    kv_merkle_add(&w->merkle, w->line.data, w->line.len);
    w->bytes += w->line.len + 1;
    kv_out_bytes(w->out, w->line.data, w->line.len);
    kv_out_puts(w->out, "\n");
    return KV_OK;
}

kv_rc kv_rows_declare(const kv_rows_writer *w, json_t **out, kv_err *err)
{
    char root[KV_HASH_HEX];
    kv_merkle_root(&w->merkle, root);
    *out = json_pack("{s:I,s:I,s:s}", "count", (json_int_t)w->merkle.count, "bytes", (json_int_t)w->bytes,
                     "merkle_root", root);
    return *out != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for rows_file");
}

kv_rc kv_rows_commit(kv_rows_writer *w, kv_rc rc, kv_err *err)
{
    if (w == NULL) return rc;
    rc = kv_out_close(w->out, rc, err);
    writer_free(w);
    return rc;
}

void kv_rows_remove_orphan(const char *path)
{
    static const char begin[] = "{\"check\":";
    char found[sizeof begin - 1], *name = name_of(path);
    const int fd = name != NULL ? open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) : -1;
    if (fd >= 0 && read(fd, found, sizeof found) == (ssize_t)sizeof found && memcmp(found, begin, sizeof found) == 0)
        (void)unlink(name);
    if (fd >= 0) close(fd);
    kv_free(name);
}
