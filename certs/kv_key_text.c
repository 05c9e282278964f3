/* The secret key file: one "name: value" a line in a fixed order (docs/keys.md). */
#include "certs/kv_hash.h"
#include "certs/kv_key_int.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define HEAD_PLAIN "kvgrid secret key v1"
#define HEAD_SEALED "kvgrid sealed secret key v1"
#define LINE_MAX_BYTES 512

bool kv_key_next_line(const char *text, size_t n, size_t *at, char *line, size_t cap, bool *bad)
{
    *bad = false;
    if (*at >= n) return false;
    const char *end = memchr(text + *at, '\n', n - *at);
    size_t len = end != NULL ? (size_t)(end - (text + *at)) : n - *at;
    size_t next = *at + len + (end != NULL ? 1 : 0);
    if (len > 0 && text[*at + len - 1] == '\r') len--; /* a file that went through another system */
    if (len >= cap) {
        *bad = true;
        len = cap - 1;
    }
    memcpy(line, text + *at, len);
    line[len] = '\0';
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < 0x20 && line[i] != '\t') *bad = true;
    *at = next;
    return true;
}

typedef struct {
    const char *text;
    size_t n;
    size_t at;
    int line_no;
    const char *name;
    char line[LINE_MAX_BYTES];
    kv_err *err;
} lines;

static kv_rc malformed(const lines *l, const char *what)
{
    return KV_FAIL(l->err, KV_EFORMAT, "%s: line %d: %s", l->name, l->line_no, what);
}

static kv_rc next_line(lines *l)
{
    bool bad;
    l->line_no++;
    if (!kv_key_next_line(l->text, l->n, &l->at, l->line, sizeof l->line, &bad))
        return malformed(l, "the key file ends too early");
    return bad ? malformed(l, "not a line of a key file") : KV_OK;
}

/* The value of the next line, which must be "field: value". */
static kv_rc next_field(lines *l, const char *field, const char **value)
{
    char what[96];
    kv_rc rc = next_line(l);
    if (rc != KV_OK) return rc;
    size_t len = strlen(field);
    if (strncmp(l->line, field, len) != 0 || strncmp(l->line + len, ": ", 2) != 0) {
        snprintf(what, sizeof what, "\"%s: ...\" is expected", field);
        return malformed(l, what);
    }
    *value = l->line + len + 2;
    return KV_OK;
}

static kv_rc next_hex(lines *l, const char *field, uint8_t *out, size_t n)
{
    char what[96];
    const char *value;
    kv_rc rc = next_field(l, field, &value);
    if (rc != KV_OK || kv_hex_decode(value, out, n)) return rc;
    snprintf(what, sizeof what, "%s must be %zu lower-case hex digits", field, 2 * n);
    return malformed(l, what);
}

static kv_rc next_number(lines *l, const char *field, int64_t least, int64_t most, int64_t *out)
{
    char what[128];
    const char *value;
    kv_rc rc = next_field(l, field, &value);
    if (rc != KV_OK || kv_parse_i64(value, least, most, out)) return rc;
    snprintf(what, sizeof what, "%s must be a number from %" PRId64 " to %" PRId64, field, least, most);
    return malformed(l, what);
}

static kv_rc parse_sealed(lines *l, kv_key_text *t)
{
    const char *kdf;
    kv_rc rc;
    KV_TRY(rc, out, next_field(l, "kdf", &kdf));
    if (strcmp(kdf, "argon2id") != 0) return malformed(l, "kdf must be argon2id");
    /* upper limits, so that a planted file cannot eat the machine */
    KV_TRY(rc, out, next_number(l, "ops", (int64_t)crypto_pwhash_argon2id_OPSLIMIT_MIN, 16, &t->ops));
    KV_TRY(rc, out,
           next_number(l, "memory_bytes", (int64_t)crypto_pwhash_argon2id_MEMLIMIT_MIN, INT64_C(1) << 30,
                       &t->memory_bytes));
    KV_TRY(rc, out, next_hex(l, "salt", t->salt, sizeof t->salt));
    KV_TRY(rc, out, next_hex(l, "nonce", t->nonce, sizeof t->nonce));
    rc = next_hex(l, "box", t->box, sizeof t->box);
out:
    return rc;
}

static kv_rc parse_lines(lines *l, kv_key_text *t)
{
    char id[KV_KEY_ID_HEX];
    const char *value;
    kv_rc rc;
    KV_TRY(rc, out, next_line(l));
    t->sealed = strcmp(l->line, HEAD_SEALED) == 0;
    if (!t->sealed && strcmp(l->line, HEAD_PLAIN) != 0)
        return malformed(l,
                         "not a kvgrid secret key file (first line must be \"" HEAD_PLAIN "\" or \"" HEAD_SEALED "\")");
    KV_TRY(rc, out, next_hex(l, "public_key", t->public_key, sizeof t->public_key));
    KV_TRY(rc, out, next_field(l, "key_id", &value));
    kv_key_id_of(t->public_key, id);
    if (strcmp(value, id) != 0) return malformed(l, "key_id does not belong to public_key");
    KV_TRY(rc, out, t->sealed ? parse_sealed(l, t) : next_hex(l, "seed", t->seed, sizeof t->seed));
    if (l->at != l->n) return malformed(l, "more lines than a key file has");
out:
    return rc;
}

kv_rc kv_key_text_parse(const char *text, size_t n, const char *name, kv_key_text *out, kv_err *err)
{
    lines l = {.text = text, .n = n, .name = name, .err = err};
    memset(out, 0, sizeof *out);
    kv_rc rc = parse_lines(&l, out);
    sodium_memzero(l.line, sizeof l.line);
    if (rc != KV_OK) sodium_memzero(out, sizeof *out);
    return rc;
}

static kv_rc put_hex(kv_buf *out, const char *field, const uint8_t *bytes, size_t n, kv_err *err)
{
    char hex[2 * 64 + 2];
    kv_hex_encode(bytes, n, hex);
    memcpy(hex + 2 * n, "\n", 2);
    kv_rc rc = kv_buf_puts(out, field, err); /* not printf: its own buffers would keep the secret */
    if (rc == KV_OK) rc = kv_buf_puts(out, ": ", err);
    if (rc == KV_OK) rc = kv_buf_puts(out, hex, err);
    sodium_memzero(hex, sizeof hex);
    return rc;
}

kv_rc kv_key_text_write(const kv_key_text *t, kv_buf *out, kv_err *err)
{
    char id[KV_KEY_ID_HEX];
    kv_rc rc;
    kv_key_id_of(t->public_key, id);
    KV_TRY(rc, out, kv_buf_puts(out, t->sealed ? HEAD_SEALED "\n" : HEAD_PLAIN "\n", err));
    KV_TRY(rc, out, put_hex(out, "public_key", t->public_key, sizeof t->public_key, err));
    KV_TRY(rc, out, kv_buf_printf(out, err, "key_id: %s\n", id));
    if (!t->sealed) return put_hex(out, "seed", t->seed, sizeof t->seed, err);
    KV_TRY(rc, out,
           kv_buf_printf(out, err, "kdf: argon2id\nops: %" PRId64 "\nmemory_bytes: %" PRId64 "\n", t->ops,
                         t->memory_bytes));
    KV_TRY(rc, out, put_hex(out, "salt", t->salt, sizeof t->salt, err));
    KV_TRY(rc, out, put_hex(out, "nonce", t->nonce, sizeof t->nonce, err));
    rc = put_hex(out, "box", t->box, sizeof t->box, err);
out:
    return rc;
}
