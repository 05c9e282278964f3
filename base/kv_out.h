/* An output written piece by piece: a file that appears whole or not at all, or standard output. The first error stays
 * and is told at the end, so that writers need not look at each piece. */
#ifndef KV_OUT_H
#define KV_OUT_H

#include "base/kv_base.h"

typedef struct kv_out kv_out;

/* path NULL: standard output, which the caller flushes. KV_EWRITE. */
kv_rc kv_out_open(const char *path, kv_out **out, kv_err *err) KV_MUST_USE;
void kv_out_bytes(kv_out *o, const void *bytes, size_t n);
void kv_out_puts(kv_out *o, const char *text);
void kv_out_printf(kv_out *o, const char *fmt, ...) KV_PRINTF(2, 3);
/* Where rc is KV_OK: syncs and moves the file to its name with permissions 0644, KV_EWRITE where anything went wrong.
 * Else the file is dropped and rc is given back. Frees o (NULL is fine). */
kv_rc kv_out_close(kv_out *o, kv_rc rc, kv_err *err) KV_MUST_USE;

#endif
