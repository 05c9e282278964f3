/* A row as a list of numbers and texts, for the journal: readable, the same on every machine. */
#ifndef KV_ROW_TEXT_H
#define KV_ROW_TEXT_H

#include "grid/row/kv_row.h"

/* Appends a row as a JSON list; reads it back (every field checked for its range). */
kv_rc kv_row_encode(const kv_row *row, kv_buf *out, kv_err *err) KV_MUST_USE;
kv_rc kv_row_decode(const kv_campaign *c, const char *text, size_t n, kv_row *out, kv_err *err) KV_MUST_USE;

#endif
