/* Strict reading of JSON objects: every error names the file or place, the key, and what is needed.
 * Used by the layout loader and by the campaign reader of grid. */
#ifndef KV_LAYOUT_JSON_H
#define KV_LAYOUT_JSON_H

#include <jansson.h>

#include "base/kv_base.h"

/* Parses n bytes as one JSON value (duplicate keys, trailing bytes and control characters in
 * strings refused). `where` names the source in errors. *out is owned by the caller. KV_EFORMAT. */
kv_rc kv_json_load_strict(const char *bytes, size_t n, const char *where, json_t **out, kv_err *err) KV_MUST_USE;

/* obj must be an object whose keys all stand in the NULL-terminated list `keys`. */
kv_rc kv_json_only_keys(const json_t *obj, const char *const *keys, const char *where, kv_err *err) KV_MUST_USE;

/* A borrowed string; *out is NULL if the key is absent (or null) and not required. Empty is refused. */
kv_rc kv_json_get_text(const json_t *obj, const char *key, bool required, const char *where, const char **out,
                       kv_err *err) KV_MUST_USE;
/* An integer in [least, most]; *out keeps its value (the default) where the key is absent or null. */
kv_rc kv_json_get_int(const json_t *obj, const char *key, int64_t least, int64_t most, const char *where, int64_t *out,
                      kv_err *err) KV_MUST_USE;

#endif
