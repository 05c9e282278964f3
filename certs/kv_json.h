/* certs: strict JSON in, canonical JSON out (docs/certificate.md, "Canonical form").
 * Reader and writer accept the same values: objects with unique ASCII keys, strings without
 * control characters and others that are not seen (base/kv_text.h), integers |n| < 2^53, true, false, null, at most KV_JSON_DEPTH_MAX deep.
 * Nothing here depends on the locale; recursion is bounded by the depth. */
#ifndef KV_JSON_H
#define KV_JSON_H

#include "base/kv_base.h"

#include <jansson.h>

#define KV_JSON_DEPTH_MAX 32
#define KV_JSON_VALUES_MAX ((size_t)8 << 20)  /* values in one text: bounds the memory of a parse */
#define KV_JSON_BYTES_MAX ((size_t)256 << 20) /* a good default for `limit` below */
#define KV_JSON_INT_MAX (((json_int_t)1 << 53) - 1)

/* Reads n bytes as one JSON value; keeps no pointer to bytes. The caller owns *out (json_decref).
 * KV_EFORMAT with line, column and byte in the text for anything but the values above: duplicate
 * keys at any depth, bytes behind the value, non-integers, control characters (raw or escaped),
 * too deep, too many values, more than `limit` bytes. KV_ENOMEM when memory is out. */
kv_rc kv_json_parse(const void *bytes, size_t n, size_t limit, json_t **out, kv_err *err) KV_MUST_USE;
/* The same for a file; every error names path. KV_EREAD where it cannot be read. */
kv_rc kv_json_parse_file(const char *path, size_t limit, json_t **out, kv_err *err) KV_MUST_USE;

/* Appends the canonical bytes of v to *out. KV_EFORMAT where v holds what canonical JSON cannot. */
kv_rc kv_json_write(const json_t *v, kv_buf *out, kv_err *err) KV_MUST_USE;

/* Receives canonical bytes piece by piece; anything but KV_OK ends the writing. */
typedef kv_rc (*kv_json_sink)(void *ctx, const void *bytes, size_t n, kv_err *err);
/* Writes v to a sink. Where v is an object, the keys in `skip` (NULL-terminated, may be NULL) are
 * left out at its top level. */
kv_rc kv_json_write_sink(const json_t *v, const char *const *skip, kv_json_sink sink, void *ctx, kv_err *err)
    KV_MUST_USE;

/* KV_OK when the n bytes are exactly the canonical form of v; else KV_EFORMAT with the first byte
 * that differs. */
kv_rc kv_json_check_canonical(const json_t *v, const void *bytes, size_t n, kv_err *err) KV_MUST_USE;

#endif
