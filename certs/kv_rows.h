/* certs: the rows of a certificate, one after another, wherever they stand: in the document, or in a file beside it
 * (docs/certificate.md, "The row file"). One reader for all who read rows, one writer for all who write many. */
#ifndef KV_ROWS_H
#define KV_ROWS_H

#include "base/kv_base.h"
#include "certs/kv_hash.h"

#include <jansson.h>

#define KV_ROWS_IN_DOCUMENT 10000          /* more rows than this stand in a file */
#define KV_ROWS_LINE_MAX ((size_t)1 << 20) /* bytes of one line */
#define KV_ROWS_SUFFIX ".rows"             /* behind the path of the document */

/* ---- the Merkle tree -------------------------------------------------------------------- */

/* Over lines, as they come. leaf = H(0x00 line), node = H(0x01 left right); the last node of a level with an odd number
 * goes up unchanged; the root over no lines is H(). H is BLAKE2b-256. Initialise with {0}. */
typedef struct {
    uint64_t count; /* bit i: node[i] holds the root of 2^i lines */
    uint8_t node[64][KV_HASH_BYTES];
} kv_merkle;
void kv_merkle_add(kv_merkle *m, const void *line, size_t n);
void kv_merkle_root(const kv_merkle *m, char out[KV_HASH_HEX]);

/* `rows_file` of a document. */
typedef struct {
    uint64_t count, bytes; /* bytes: with the newlines */
    char root[KV_HASH_HEX];
} kv_rows_sum;

/* ---- reading ---------------------------------------------------------------------------- */

typedef struct kv_rows kv_rows;

/* The rows of doc (borrowed until kv_rows_close), which was read from path (NULL: from nowhere, then there can be no row
 * file). The types of `rows` and `rows_file` need not be right. KV_EFORMAT; KV_EREAD where the row file cannot be read. */
kv_rc kv_rows_open(const json_t *doc, const char *path, kv_rows **out, kv_err *err) KV_MUST_USE;
/* The next row, borrowed until the next call; *row is NULL after the last. Of a row file each line is checked to be
 * canonical (KV_EFORMAT), and at its end count, bytes and root must be those of the document (KV_ESIG): who acts on rows
 * before that must be able to take it back. After an error nothing more can be read. */
kv_rc kv_rows_next(kv_rows *r, const json_t **row, kv_err *err) KV_MUST_USE;
/* From the first row again. A row file that was changed meanwhile is told at its end, like any other. */
void kv_rows_rewind(kv_rows *r);
bool kv_rows_in_file(const kv_rows *r);
/* What has been read so far, and of a row file what the document says. */
void kv_rows_found(const kv_rows *r, kv_rows_sum *out);
const kv_rows_sum *kv_rows_declared_view(const kv_rows *r);
void kv_rows_close(kv_rows *r); /* NULL is fine */

/* ---- writing ---------------------------------------------------------------------------- */

typedef struct kv_rows_writer kv_rows_writer;

/* A row file beside the document that will stand at path. KV_EWRITE. */
kv_rc kv_rows_create(const char *path, kv_rows_writer **out, kv_err *err) KV_MUST_USE;
kv_rc kv_rows_put(kv_rows_writer *w, const json_t *row, kv_err *err) KV_MUST_USE;
/* The value of `rows_file` for what was put; a new object. */
kv_rc kv_rows_declare(const kv_rows_writer *w, json_t **out, kv_err *err) KV_MUST_USE;
/* Where rc is KV_OK: syncs the file and moves it to its name; the document is written next. Else drops it and gives rc
 * back. Frees w (NULL is fine). */
kv_rc kv_rows_commit(kv_rows_writer *w, kv_rc rc, kv_err *err) KV_MUST_USE;

/* The document at path has its rows in itself now: a row file that an older one left beside it is removed. Only what begins
 * as a row file does is one. */
void kv_rows_remove_orphan(const char *path);

#endif
