#include "layouts/kv_layout_json.h"

#include <inttypes.h>
#include <string.h>

#include "base/kv_text.h"

#define DEPTH_MAX 32

static kv_rc check_text(const char *s, size_t n, const char *where, kv_err *err)
{
    uint32_t c;
    if (kv_text_find_hidden(s, n, &c) == n) return KV_OK;
    return KV_FAIL(err, KV_EFORMAT, "%s: a string holds a control character or one that is not seen (U+%04" PRIX32 ")",
                   where, c);
}

static kv_rc check_value(const json_t *v, int depth, const char *where, kv_err *err)
{
    kv_rc rc = KV_OK;
    if (depth > DEPTH_MAX) return KV_FAIL(err, KV_EFORMAT, "%s: nested deeper than %d", where, DEPTH_MAX);
    if (json_is_string(v)) return check_text(json_string_value(v), json_string_length(v), where, err);
    if (json_is_real(v))
        return KV_FAIL(err, KV_EFORMAT, "%s: holds the number %g; only integers are used here", where,
                       json_real_value(v));
    if (json_is_object(v)) {
        const char *key;
        json_t *child;
        json_object_foreach((json_t *)(uintptr_t)v, key, child)
        {
            KV_TRY(rc, out, check_text(key, strlen(key), where, err));
            KV_TRY(rc, out, check_value(child, depth + 1, where, err));
        }
    } else if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            KV_TRY(rc, out, check_value(json_array_get(v, i), depth + 1, where, err));
    }
out:
    return rc;
}

kv_rc kv_json_load_strict(const char *bytes, size_t n, const char *where, json_t **out, kv_err *err)
{
    json_error_t je;
    json_t *v = json_loadb(bytes, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (v == NULL) return KV_FAIL(err, KV_EFORMAT, "%s: line %d, column %d: %s", where, je.line, je.column, je.text);
    kv_rc rc = check_value(v, 0, where, err);
    if (rc != KV_OK) {
        json_decref(v);
        return rc;
    }
    *out = v;
    return KV_OK;
}

kv_rc kv_json_only_keys(const json_t *obj, const char *const *keys, const char *where, kv_err *err)
{
    if (!json_is_object(obj)) return KV_FAIL(err, KV_EFORMAT, "%s: must be a JSON object", where);
    const char *key;
    json_t *child;
    json_object_foreach((json_t *)(uintptr_t)obj, key, child)
    {
        bool known = false;
        for (const char *const *k = keys; *k != NULL && !known; k++) known = strcmp(*k, key) == 0;
        if (!known) return KV_FAIL(err, KV_EFORMAT, "%s: unknown key \"%s\"", where, key);
    }
    return KV_OK;
}

kv_rc kv_json_get_text(const json_t *obj, const char *key, bool required, const char *where, const char **out,
                       kv_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (v == NULL || json_is_null(v)) {
        if (required) return KV_FAIL(err, KV_EFORMAT, "%s: key \"%s\" is missing", where, key);
        *out = NULL;
        return KV_OK;
    }
    if (!json_is_string(v) || json_string_length(v) == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" must be a text that is not empty", where, key);
    *out = json_string_value(v);
    return KV_OK;
}

kv_rc kv_json_get_int(const json_t *obj, const char *key, int64_t least, int64_t most, const char *where, int64_t *out,
                      kv_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (v == NULL || json_is_null(v)) return KV_OK;
    if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > most)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" must be an integer from %" PRId64 " to %" PRId64, where, key, least,
                       most);
    *out = json_integer_value(v);
    return KV_OK;
}
