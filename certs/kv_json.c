/* The strict reader: one pass of our own for what jansson lets through (with positions), then jansson. */
#include "certs/kv_json.h"

#include "base/kv_file.h"
#include "base/kv_text.h"

#include <string.h>

typedef struct {
    const unsigned char *s;
    size_t n;
    size_t at;
    size_t values;
    int depth;
    kv_err *err;
} scan;

/* Line and column (in bytes, from 1) of byte `at`. */
static void place_of(const scan *sc, size_t at, size_t *line, size_t *column)
{
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < at && i < sc->n; i++) {
        if (sc->s[i] == '\n') {
            (*line)++;
            *column = 1;
        } else {
            (*column)++;
        }
    }
}

static kv_rc refuse(const scan *sc, size_t at, const char *what)
{
    size_t line, column;
    place_of(sc, at, &line, &column);
    return KV_FAIL(sc->err, KV_EFORMAT, "line %zu column %zu (byte %zu): %s", line, column, at, what);
}

static const char hidden[] = "a control character, or one that is not seen, in a string";

static bool is_blank(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

/* The value of four hex digits at s, or -1. */
static int hex4(const unsigned char *s, size_t n)
{
    int v = 0;
    if (n < 4) return -1;
    for (int i = 0; i < 4; i++) {
        unsigned char c = s[i];
        if (is_digit(c))
            v = v * 16 + (c - '0');
        else if (c >= 'a' && c <= 'f')
            v = v * 16 + (c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            v = v * 16 + (c - 'A' + 10);
        else
            return -1;
    }
    return v;
}

/* The character of the escape at sc->at, of one \uXXXX or two; 'x' where it is none. */
static uint32_t escaped(const scan *sc)
{
    const unsigned char *s = sc->s + sc->at;
    const size_t n = sc->n - sc->at;
    const int v = hex4(s + 2, n - 2);
    const int low = v >= 0xD800 && v < 0xDC00 && n >= 12 && s[6] == '\\' && s[7] == 'u' ? hex4(s + 8, n - 8) : -1;
    if (low >= 0xDC00 && low < 0xE000) return 0x10000U + ((uint32_t)(v - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
    return v >= 0 ? (uint32_t)v : 'x';
}

/* An escape at sc->at (the backslash); malformed ones are left to jansson. */
static kv_rc scan_escape(scan *sc, bool *ascii)
{
    unsigned char c = sc->at + 1 < sc->n ? sc->s[sc->at + 1] : 0;
    if (c != 0 && strchr("bfnrt", c) != NULL) return refuse(sc, sc->at, "a control character in a string");
    if (c == 'u') {
        const uint32_t v = escaped(sc);
        if (kv_text_hides(v)) return refuse(sc, sc->at, hidden);
        if (v >= 0x80) *ascii = false;
    }
    sc->at += 2;
    return KV_OK;
}

static kv_rc scan_string(scan *sc)
{
    const size_t start = sc->at;
    bool ascii = true;
    sc->at++;
    while (sc->at < sc->n && sc->s[sc->at] != '"') {
        unsigned char c = sc->s[sc->at];
        if (c == '\\') {
            kv_rc rc = scan_escape(sc, &ascii);
            if (rc != KV_OK) return rc;
            continue;
        }
        const size_t left = sc->n - sc->at, most = left < 4 ? left : 4; /* bytes of one character */
        if (c < 0x20 || (c >= 0x7F && kv_text_find_hidden((const char *)sc->s + sc->at, most, NULL) == 0))
            return refuse(sc, sc->at, hidden);
        if (c >= 0x80) ascii = false;
        sc->at++;
    }
    sc->at++; /* the closing quote; past the end where there is none: jansson says so */
    size_t next = sc->at;
    while (next < sc->n && is_blank(sc->s[next])) next++;
    if (!ascii && next < sc->n && sc->s[next] == ':') return refuse(sc, start, "a key is not ASCII");
    return KV_OK;
}

static kv_rc scan_number(scan *sc)
{
    const size_t start = sc->at;
    const bool minus = sc->s[start] == '-';
    json_int_t v = 0;
    sc->at += minus ? 1 : 0;
    const size_t digits = sc->at;
    for (; sc->at < sc->n && is_digit(sc->s[sc->at]); sc->at++) {
        v = v * 10 + (sc->s[sc->at] - '0');
        if (v > KV_JSON_INT_MAX) return refuse(sc, start, "a number of 2^53 or more (write it as a decimal string)");
    }
    if (sc->at < sc->n && (sc->s[sc->at] == '.' || sc->s[sc->at] == 'e' || sc->s[sc->at] == 'E'))
        return refuse(sc, start, "a number that is not a plain integer");
    if (minus && v == 0 && sc->at > digits) return refuse(sc, start, "a zero with a sign");
    return KV_OK;
}

static kv_rc scan_value_start(scan *sc, unsigned char c)
{
    if (++sc->values > KV_JSON_VALUES_MAX) return refuse(sc, sc->at, "too many values");
    if (c == '"') return scan_string(sc);
    if (c == '-' || is_digit(c)) return scan_number(sc);
    if ((c == '{' || c == '[') && ++sc->depth > KV_JSON_DEPTH_MAX) return refuse(sc, sc->at, "nested deeper than 32");
    sc->at++;
    return KV_OK;
}

/* Refuses, with its place, what the rules forbid and jansson would take. */
static kv_rc scan_all(scan *sc)
{
    while (sc->at < sc->n) {
        unsigned char c = sc->s[sc->at];
        if (c == '"' || c == '-' || is_digit(c) || c == '{' || c == '[') {
            kv_rc rc = scan_value_start(sc, c);
            if (rc != KV_OK) return rc;
            continue;
        }
        if (c == '}' || c == ']')
            sc->depth--;
        else if ((c == 't' || c == 'f' || c == 'n') && ++sc->values > KV_JSON_VALUES_MAX)
            return refuse(sc, sc->at, "too many values");
        sc->at++;
    }
    return KV_OK;
}

kv_rc kv_json_parse(const void *bytes, size_t n, size_t limit, json_t **out, kv_err *err)
{
    if (n > limit) return KV_FAIL(err, KV_EFORMAT, "line 1 column 1 (byte 0): %zu bytes, the limit is %zu", n, limit);
    scan sc = {.s = bytes, .n = n, .err = err};
    kv_rc rc = scan_all(&sc);
    if (rc != KV_OK) return rc;
    json_error_t je;
    json_t *v = json_loadb(bytes, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (v == NULL) {
        if (json_error_code(&je) == json_error_out_of_memory)
            return KV_FAIL(err, KV_ENOMEM, "no memory for a JSON text of %zu bytes", n);
        size_t line, column, at = je.position > 0 ? (size_t)je.position : 0;
        place_of(&sc, at, &line, &column);
        return KV_FAIL(err, KV_EFORMAT, "line %zu column %zu (byte %zu): %.160s", line, column, at, je.text);
    }
    *out = v;
    return KV_OK;
}

kv_rc kv_json_parse_file(const char *path, size_t limit, json_t **out, kv_err *err)
{
    kv_buf text = {0};
    kv_rc rc = kv_file_read(path, limit, &text, err);
    if (rc != KV_OK) return rc;
    rc = kv_json_parse(text.data, text.len, limit, out, err);
    if (rc != KV_OK) kv_err_prefix(err, "%s", path);
    kv_buf_free(&text);
    return rc;
}
