/* Rows kept packed: a kv_row is 1.1 KB, a packed one about 80 bytes, so that rank 0 can hold a million. Numbers are of
 * variable length, digests bytes, a reference equal to what was decoded is only said to be so, and the reason of a frontier
 * is left out where layouts and geometry give it again. */
#ifndef KV_PACK_H
#define KV_PACK_H

#include "grid/row/kv_row.h"

/* ---- one row ---------------------------------------------------------------------------- */

/* Appends a row, with its cell; reads it back (every field checked for its range, KV_EFORMAT). */
kv_rc kv_row_pack(const kv_campaign *c, const kv_row *row, kv_buf *out, kv_err *err) KV_MUST_USE;
kv_rc kv_row_unpack(const kv_campaign *c, const void *bytes, size_t n, kv_row *out, kv_err *err) KV_MUST_USE;

/* ---- all rows, by cell ------------------------------------------------------------------ */

typedef struct kv_pack kv_pack;

kv_rc kv_pack_new(const kv_campaign *c, kv_pack **out, kv_err *err) KV_MUST_USE; /* c is borrowed */
/* A row takes the place of what its cell had. */
kv_rc kv_pack_put(kv_pack *p, const kv_row *row, kv_err *err) KV_MUST_USE;
bool kv_pack_has(const kv_pack *p, int64_t cell);
/* A cell without a row gives zeros, and -1 as its cell. */
void kv_pack_get(const kv_pack *p, int64_t cell, kv_row *out);
kv_row_set kv_pack_rows(const kv_pack *p); /* borrows p */
void kv_pack_free(kv_pack *p);             /* NULL is fine */

#endif
