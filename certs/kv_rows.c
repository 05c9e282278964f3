#include "certs/kv_rows.h"

#include "certs/kv_json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)1 << 18) /* read at once */

/* ---- the Merkle tree -------------------------------------------------------------------- */

static void hash_node(const uint8_t left[KV_HASH_BYTES], const uint8_t right[KV_HASH_BYTES], uint8_t out[KV_HASH_BYTES])
{
    kv_hash h;
    kv_hash_init(&h);
    kv_hash_update(&h, "\1", 1);
    kv_hash_update(&h, left, KV_HASH_BYTES);
    kv_hash_update(&h, right, KV_HASH_BYTES);
    kv_hash_final(&h, out);
}

void kv_merkle_add(kv_merkle *m, const void *line, size_t n)
{
    uint8_t node[KV_HASH_BYTES];
    kv_hash h;
    int level = 0;
    kv_hash_init(&h);
    kv_hash_update(&h, "\0", 1);
    kv_hash_update(&h, line, n);
    kv_hash_final(&h, node);
    for (; (m->count >> level & 1U) != 0; level++) hash_node(m->node[level], node, node);
    memcpy(m->node[level], node, sizeof node);
    m->count++;
}

void kv_merkle_root(const kv_merkle *m, char out[KV_HASH_HEX])
{
    uint8_t node[KV_HASH_BYTES];
    bool begun = false;
    if (m->count == 0) kv_hash_bytes("", 0, node);
    for (int level = 0; level < 64; level++) {
        if ((m->count >> level & 1U) == 0) continue;
        if (begun)
            hash_node(m->node[level], node, node);
        else
            memcpy(node, m->node[level], sizeof node);
        begun = true;
    }
    kv_hex_encode(node, sizeof node, out);
}

/* ---- reading ---------------------------------------------------------------------------- */

struct kv_rows {
    const json_t *list; /* where they stand in the document */
    uint64_t at;        /* the row that comes next */
    char *path;         /* of the row file, else NULL */
    int fd;
    bool lost; /* it cannot be read again */
    kv_rows_sum declared;
    kv_merkle merkle;
    uint64_t bytes;
    char *piece; /* what was read and not yet taken: [from, to) */
    size_t from, to;
    kv_buf line;
    json_t *row; /* the one that was lent */
};

static kv_rc open_file(kv_rows *r, kv_err *err)
{
    struct stat st;
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold us up */
    if (r->fd < 0) return KV_FAIL(err, KV_EREAD, "%s: the row file cannot be opened: %s", r->path, strerror(errno));
    if (fstat(r->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return KV_FAIL(err, KV_EREAD, "%s: the row file is no regular file", r->path);
    r->piece = kv_alloc(PIECE_BYTES, 1);
    return r->piece != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory to read rows");
}

static kv_rc read_declaration(kv_rows *r, const json_t *file, kv_err *err)
{
    const json_t *count = json_object_get(file, "count"), *bytes = json_object_get(file, "bytes");
    const char *root = json_string_value(json_object_get(file, "merkle_root"));
    if (!json_is_integer(count) || json_integer_value(count) < 0 || !json_is_integer(bytes) ||
        json_integer_value(bytes) < 0 || root == NULL)
        return KV_FAIL(err, KV_EFORMAT, "rows_file: count, bytes and merkle_root are needed");
    if (json_array_size(r->list) > 0) return KV_FAIL(err, KV_EFORMAT, "rows: must be empty where there is a rows_file");
    r->declared.count = (uint64_t)json_integer_value(count);
    r->declared.bytes = (uint64_t)json_integer_value(bytes);
    if (strlen(root) == KV_HASH_HEX - 1) memcpy(r->declared.root, root, KV_HASH_HEX); /* else no root is like it */
    return KV_OK;
}

static kv_rc name_file(kv_rows *r, const char *path, kv_err *err)
{
    if (path == NULL) return KV_FAIL(err, KV_EREAD, "the certificate has a row file, and stands in no file itself");
    const size_t n = strlen(path) + sizeof KV_ROWS_SUFFIX;
    r->path = kv_alloc(n, 1);
    if (r->path == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a path");
    snprintf(r->path, n, "%s" KV_ROWS_SUFFIX, path);
    return KV_OK;
}

kv_rc kv_rows_open(const json_t *doc, const char *path, kv_rows **out, kv_err *err)
{
    const json_t *file = json_object_get(doc, "rows_file");
    kv_rows *r = kv_alloc(1, sizeof *r);
    kv_rc rc = KV_OK;
    if (r == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to read rows");
    r->fd = -1;
    r->list = json_object_get(doc, "rows");
    if (!json_is_array(r->list)) rc = KV_FAIL(err, KV_EFORMAT, "rows: a list is needed");
    if (rc == KV_OK && file != NULL) rc = read_declaration(r, file, err);
    if (rc == KV_OK && file != NULL) rc = name_file(r, path, err);
    if (rc == KV_OK && file != NULL) rc = open_file(r, err);
    if (rc == KV_OK)
        *out = r;
    else
        kv_rows_close(r);
    return rc;
}

/* More bytes into r->piece; *end is true where there are none. */
static kv_rc fill(kv_rows *r, bool *end, kv_err *err)
{
    ssize_t n = -1;
    if (r->lost) return KV_FAIL(err, KV_EREAD, "%s: cannot be read a second time", r->path);
    for (errno = EINTR; n < 0 && errno == EINTR;) n = read(r->fd, r->piece, PIECE_BYTES);
    if (n < 0) return KV_FAIL(err, KV_EREAD, "%s: cannot be read: %s", r->path, strerror(errno));
    r->from = 0;
    r->to = (size_t)n;
    *end = n == 0;
    return KV_OK;
}

/* The next line into r->line, without its newline; *end is true where the file ends instead. */
static kv_rc next_line(kv_rows *r, bool *end, kv_err *err)
{
    r->line.len = 0;
    *end = false;
    for (;;) {
        if (r->from == r->to) {
            kv_rc rc = fill(r, end, err);
            if (rc != KV_OK || (*end && r->line.len == 0)) return rc;
            if (*end) return KV_FAIL(err, KV_EFORMAT, "its last line has no end: the file is torn");
        }
        const char *begin = r->piece + r->from, *newline = memchr(begin, '\n', r->to - r->from);
        const size_t n = newline != NULL ? (size_t)(newline - begin) : r->to - r->from;
        if (n > KV_ROWS_LINE_MAX - r->line.len)
            return KV_FAIL(err, KV_EFORMAT, "longer than %zu bytes", KV_ROWS_LINE_MAX);
        kv_rc rc = kv_buf_append(&r->line, begin, n, err);
        if (rc != KV_OK) return rc;
        r->from += n;
        if (newline == NULL) continue;
        r->from++;
        return KV_OK;
    }
}

/* The file has ended: it must be the one that the document names. */
static kv_rc check_end(const kv_rows *r, kv_err *err)
{
    kv_rows_sum found;
    kv_rows_found(r, &found);
    if (found.count == r->declared.count && found.bytes == r->declared.bytes &&
        strcmp(found.root, r->declared.root) == 0)
        return KV_OK;
    return KV_FAIL(err, KV_ESIG,
                   "%s: is not the row file of this certificate: %llu rows, %llu bytes, root %.16s...; %llu, %llu, "
                   "%.16s... are signed",
                   r->path, (unsigned long long)found.count, (unsigned long long)found.bytes, found.root,
                   (unsigned long long)r->declared.count, (unsigned long long)r->declared.bytes, r->declared.root);
}

static kv_rc next_of_file(kv_rows *r, const json_t **row, kv_err *err)
{
    bool end;
    kv_rc rc = next_line(r, &end, err);
    if (rc == KV_OK && end) return check_end(r, err);
    if (rc == KV_OK) rc = kv_json_parse(r->line.data, r->line.len, KV_ROWS_LINE_MAX, &r->row, err);
    if (rc == KV_OK) rc = kv_json_check_canonical(r->row, r->line.data, r->line.len, err);
    if (rc == KV_OK && !json_is_object(r->row)) rc = KV_FAIL(err, KV_EFORMAT, "is no object");
    if (rc == KV_EFORMAT) kv_err_prefix(err, "%s: row %llu", r->path, (unsigned long long)r->at);
    if (rc != KV_OK) return rc;
    kv_merkle_add(&r->merkle, r->line.data, r->line.len);
    r->bytes += r->line.len + 1;
    r->at++;
    *row = r->row;
    return KV_OK;
}

kv_rc kv_rows_next(kv_rows *r, const json_t **row, kv_err *err)
{
    *row = NULL;
    if (r->path == NULL) {
        if (r->at < json_array_size(r->list)) *row = json_array_get(r->list, r->at++);
        return KV_OK;
    }
    json_decref(r->row);
    r->row = NULL;
    return next_of_file(r, row, err);
}

void kv_rows_rewind(kv_rows *r)
{
    r->at = 0;
    if (r->path == NULL) return;
    r->from = r->to = 0;
    r->bytes = 0;
    memset(&r->merkle, 0, sizeof r->merkle);
    r->lost = lseek(r->fd, 0, SEEK_SET) != 0;
}

bool kv_rows_in_file(const kv_rows *r)
{
    return r->path != NULL;
}

void kv_rows_found(const kv_rows *r, kv_rows_sum *out)
{
    out->count = r->at;
    out->bytes = r->bytes;
    kv_merkle_root(&r->merkle, out->root);
}

const kv_rows_sum *kv_rows_declared_view(const kv_rows *r)
{
    return &r->declared;
}

void kv_rows_close(kv_rows *r)
{
    if (r == NULL) return;
    if (r->fd >= 0) close(r->fd);
    json_decref(r->row);
    kv_buf_free(&r->line);
    kv_free(r->piece);
    kv_free(r->path);
    kv_free(r);
}
