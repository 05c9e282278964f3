/* The canonical writer: sorted ASCII keys, no blanks, integers, two escapes. */
#include "certs/kv_json.h"

#include "base/kv_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES 4096 /* handed to the sink at once: most of what is written are single characters */

typedef struct {
    kv_json_sink sink;
    void *ctx;
    kv_err *err;
    size_t held;
    char piece[PIECE_BYTES];
} writer;

static kv_rc flush(writer *w)
{
    const size_t n = w->held;
    w->held = 0;
    return n > 0 ? w->sink(w->ctx, w->piece, n, w->err) : KV_OK;
}

static kv_rc put(writer *w, const char *bytes, size_t n)
{
    if (n > PIECE_BYTES - w->held) {
        kv_rc rc = flush(w);
        if (rc != KV_OK) return rc;
        if (n > PIECE_BYTES) return w->sink(w->ctx, bytes, n, w->err);
    }
    memcpy(w->piece + w->held, bytes, n);
    w->held += n;
    return KV_OK;
}

static kv_rc write_string(writer *w, const char *s, size_t n, bool is_key)
{
    size_t done = 0;
    kv_rc rc = put(w, "\"", 1);
    for (size_t i = 0; i < n && rc == KV_OK; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || (c >= 0x7F && kv_text_find_hidden(s + i, n - i < 4 ? n - i : 4, NULL) == 0))
            return KV_FAIL(w->err, KV_EFORMAT,
                           "a string holds a control character, or one that is not seen (byte 0x%02x)", (unsigned)c);
        if (is_key && c >= 0x80) return KV_FAIL(w->err, KV_EFORMAT, "a key is not ASCII");
        if (c != '"' && c != '\\') continue;
        rc = put(w, s + done, i - done);
        if (rc == KV_OK) rc = put(w, "\\", 1);
        done = i;
    }
    if (rc == KV_OK) rc = put(w, s + done, n - done);
    return rc == KV_OK ? put(w, "\"", 1) : rc;
}

static kv_rc write_integer(writer *w, json_int_t v)
{
    char text[32];
    if (v > KV_JSON_INT_MAX || v < -KV_JSON_INT_MAX)
        return KV_FAIL(w->err, KV_EFORMAT, "the number %" JSON_INTEGER_FORMAT " is 2^53 or more", v);
    int n = snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, v);
    return put(w, text, (size_t)n);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_skipped(const char *key, const char *const *skip)
{
    for (; skip != NULL && *skip != NULL; skip++)
        if (strcmp(key, *skip) == 0) return true;
    return false;
}

static kv_rc write_value(writer *w, const json_t *v, const char *const *skip, int depth);

static kv_rc write_members(writer *w, const json_t *v, const char **keys, size_t n, int depth)
{
    kv_rc rc = put(w, "{", 1);
    for (size_t i = 0; i < n && rc == KV_OK; i++) {
        if (i > 0) rc = put(w, ",", 1);
        if (rc == KV_OK) rc = write_string(w, keys[i], strlen(keys[i]), true);
        if (rc == KV_OK) rc = put(w, ":", 1);
        if (rc == KV_OK) rc = write_value(w, json_object_get(v, keys[i]), NULL, depth);
    }
    return rc == KV_OK ? put(w, "}", 1) : rc;
}

static kv_rc write_object(writer *w, const json_t *v, const char *const *skip, int depth)
{
    const char **keys = kv_alloc(json_object_size(v), sizeof *keys);
    if (keys == NULL) return KV_FAIL(w->err, KV_ENOMEM, "no memory for %zu keys", json_object_size(v));
    size_t n = 0;
    /* jansson's iterator takes a non-const object but changes nothing */
    json_t *o = (json_t *)(uintptr_t)v;
    for (void *it = json_object_iter(o); it != NULL; it = json_object_iter_next(o, it))
        if (!is_skipped(json_object_iter_key(it), skip)) keys[n++] = json_object_iter_key(it);
    if (n > 1) qsort(keys, n, sizeof *keys, by_bytes);
    kv_rc rc = write_members(w, v, keys, n, depth);
    kv_free(keys);
    return rc;
}

static kv_rc write_array(writer *w, const json_t *v, int depth)
{
    kv_rc rc = put(w, "[", 1);
    for (size_t i = 0; i < json_array_size(v) && rc == KV_OK; i++) {
        if (i > 0) rc = put(w, ",", 1);
        if (rc == KV_OK) rc = write_value(w, json_array_get(v, i), NULL, depth);
    }
    return rc == KV_OK ? put(w, "]", 1) : rc;
}

/* depth counts the arrays and objects around v. */
static kv_rc write_value(writer *w, const json_t *v, const char *const *skip, int depth)
{
    if (v == NULL) return KV_FAIL(w->err, KV_EBUG, "a JSON value is missing");
    switch (json_typeof(v)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        if (depth >= KV_JSON_DEPTH_MAX) return KV_FAIL(w->err, KV_EFORMAT, "nested deeper than %d", KV_JSON_DEPTH_MAX);
        return json_is_object(v) ? write_object(w, v, skip, depth + 1) : write_array(w, v, depth + 1);
    case JSON_STRING: return write_string(w, json_string_value(v), json_string_length(v), false);
    case JSON_INTEGER: return write_integer(w, json_integer_value(v));
    case JSON_REAL: return KV_FAIL(w->err, KV_EFORMAT, "a floating-point number has no canonical form");
    case JSON_TRUE: return put(w, "true", 4);
    case JSON_FALSE: return put(w, "false", 5);
    case JSON_NULL: return put(w, "null", 4);
    }
    return KV_FAIL(w->err, KV_EBUG, "a JSON value of an unknown type");
}

kv_rc kv_json_write_sink(const json_t *v, const char *const *skip, kv_json_sink sink, void *ctx, kv_err *err)
{
    writer w = {.sink = sink, .ctx = ctx, .err = err};
    kv_rc rc = write_value(&w, v, skip, 0);
    return rc == KV_OK ? flush(&w) : rc;
}

static kv_rc to_buffer(void *ctx, const void *bytes, size_t n, kv_err *err)
{
    return kv_buf_append(ctx, bytes, n, err);
}

kv_rc kv_json_write(const json_t *v, kv_buf *out, kv_err *err)
{
    return kv_json_write_sink(v, NULL, to_buffer, out, err);
}

typedef struct {
    const char *bytes;
    size_t n;
    size_t at;
} comparison;

static kv_rc compare(void *ctx, const void *bytes, size_t n, kv_err *err)
{
    comparison *c = ctx;
    const char *want = bytes;
    const bool fits = c->at + n <= c->n;
    for (size_t i = 0; !(fits && memcmp(c->bytes + c->at, want, n) == 0) && i < n; i++)
        if (c->at + i >= c->n || c->bytes[c->at + i] != want[i])
            return KV_FAIL(err, KV_EFORMAT, "byte %zu: not the canonical form", c->at + i);
    c->at += n;
    return KV_OK;
}

kv_rc kv_json_check_canonical(const json_t *v, const void *bytes, size_t n, kv_err *err)
{
    comparison c = {bytes, n, 0};
    kv_rc rc = kv_json_write_sink(v, NULL, compare, &c, err);
    if (rc == KV_OK && c.at != n) rc = KV_FAIL(err, KV_EFORMAT, "byte %zu: bytes behind the canonical form", c.at);
    return rc;
}
