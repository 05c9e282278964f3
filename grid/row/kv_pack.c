#include "grid/row/kv_pack.h"

#include <inttypes.h>
#include <string.h>

#include "grid/row/kv_row_fields.h"

/* ---- one row ---------------------------------------------------------------------------- */

enum {
    HAS_DECODE = 1,     /* tokens and digests stand there */
    SAME_TOKENS = 2,    /* the reference has the same tokens */
    SAME_DIGEST = 4,    /* and the same digest */
    REASON_DERIVED = 8, /* what kv_pair_frontier says */
    REASON_GIVEN = 16,
    FAILED_AT = 32,
    HAS_CODEC = 64, /* kv_row_mores[0], and so on upwards */
    HAS_STUDY = 128,
    HAS_TP = 256
};
#define NUMBER_BYTES 10 /* the longest number */

static kv_rc put_number(uint64_t v, kv_buf *out, kv_err *err)
{
    unsigned char bytes[NUMBER_BYTES];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) bytes[n++] = (unsigned char)(v | 0x80);
    bytes[n++] = (unsigned char)v;
    return kv_buf_append(out, bytes, n, err);
}

static kv_rc put_text(const char *s, kv_buf *out, kv_err *err)
{
    const kv_rc rc = put_number(strlen(s), out, err);
    return rc == KV_OK ? kv_buf_append(out, s, strlen(s), err) : rc;
}

static kv_rc put_tokens(const int32_t t[KV_DECODE_STEPS], kv_buf *out, kv_err *err)
{
    unsigned char bytes[KV_DECODE_STEPS];
    for (int i = 0; i < KV_DECODE_STEPS; i++) bytes[i] = (unsigned char)t[i];
    return kv_buf_append(out, bytes, sizeof bytes, err);
}

static kv_rc put_digest(const char *hex, kv_buf *out, kv_err *err)
{
    uint8_t bytes[KV_HASH_BYTES];
    if (!kv_hex_decode(hex, bytes, sizeof bytes)) return KV_FAIL(err, KV_EBUG, "a row's digest is none: %.70s", hex);
    return kv_buf_append(out, bytes, sizeof bytes, err);
}

/* The reason that kv_pair_frontier gives at this row's cell; "" where there is none. */
static void derive_reason(const kv_campaign *c, int64_t cell, char out[KV_REASON_TEXT])
{
    const kv_cell *at = &c->cells[cell];
    kv_layout_frontier f;
    out[0] = '\0';
    if (at->check != KV_CHECK_PAIR) return;
    if (kv_pair_frontier(c->catalogue.item[at->src], c->catalogue.item[at->dst], &c->geometries[at->geometry], &f, out,
                         NULL) != KV_OK)
        out[0] = '\0';
}

static unsigned flags_of(const kv_campaign *c, const kv_row *row)
{
    char reason[KV_REASON_TEXT];
    unsigned flags = 0;
    if (row->logits_digest[0] != '\0' || row->reference_digest[0] != '\0') flags |= HAS_DECODE;
    if (memcmp(row->decoded, row->reference, sizeof row->decoded) == 0) flags |= SAME_TOKENS;
    if (strcmp(row->logits_digest, row->reference_digest) == 0) flags |= SAME_DIGEST;
    if (row->failed_at[0] != '\0') flags |= FAILED_AT;
    if (row->has_codec) flags |= HAS_CODEC;
    if (row->has_study) flags |= HAS_STUDY;
    if (row->has_tp) flags |= HAS_TP;
    if (row->reason[0] == '\0') return flags;
    if (row->verdict == KV_VERDICT_REFUSED) {
        derive_reason(c, row->cell, reason);
        if (strcmp(reason, row->reason) == 0) return flags | REASON_DERIVED;
    }
    return flags | REASON_GIVEN;
}

static kv_rc put_decode(const kv_row *row, unsigned flags, kv_buf *out, kv_err *err)
{
    kv_rc rc = put_tokens(row->decoded, out, err);
    if (rc == KV_OK && (flags & SAME_TOKENS) == 0) rc = put_tokens(row->reference, out, err);
    if (rc == KV_OK) rc = put_digest(row->logits_digest, out, err);
    if (rc == KV_OK && (flags & SAME_DIGEST) == 0) rc = put_digest(row->reference_digest, out, err);
    return rc;
}

static kv_rc put_fields(const kv_row *row, const kv_row_field *field, size_t n, kv_buf *out, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (size_t i = 0; rc == KV_OK && i < n; i++)
        rc = put_number((uint64_t)(kv_row_field_get(row, &field[i]) - field[i].least), out, err);
    return rc;
}

static kv_rc put_more(const kv_row *row, const kv_row_more *m, kv_buf *out, kv_err *err)
{
    const kv_rc rc = put_fields(row, m->field, m->n_fields, out, err);
    return rc == KV_OK ? kv_buf_append(out, (const char *)row + m->digest_at, m->digests * KV_HASH_BYTES, err) : rc;
}

kv_rc kv_row_pack(const kv_campaign *c, const kv_row *row, kv_buf *out, kv_err *err)
{
    const unsigned flags = flags_of(c, row);
    kv_rc rc = put_number((uint64_t)row->cell, out, err);
    if (rc == KV_OK) rc = put_number(flags, out, err);
    if (rc == KV_OK) rc = put_fields(row, kv_row_fields, KV_ROW_FIELDS, out, err);
    if (rc == KV_OK && (flags & HAS_DECODE) != 0) rc = put_decode(row, flags, out, err);
    if (rc == KV_OK && (flags & REASON_GIVEN) != 0) rc = put_text(row->reason, out, err);
    if (rc == KV_OK && (flags & FAILED_AT) != 0) rc = put_text(row->failed_at, out, err);
    if (rc == KV_OK && kv_row_more_of(row) != NULL) rc = put_more(row, kv_row_more_of(row), out, err);
    return rc;
}

typedef struct {
    const unsigned char *at;
    size_t left;
} taker;

static bool take_number(taker *t, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; t->left > 0 && shift < 63; shift += 7) {
        const unsigned char b = *t->at++;
        t->left--;
        *out |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80) return true;
    }
    return false;
}

static bool take_bytes(taker *t, void *out, size_t n)
{
    if (n > t->left) return false;
    memcpy(out, t->at, n);
    t->at += n;
    t->left -= n;
    return true;
}

static bool take_text(taker *t, char *out, size_t size)
{
    uint64_t n;
    if (!take_number(t, &n) || n >= size || !take_bytes(t, out, (size_t)n)) return false;
    out[n] = '\0';
    return memchr(out, '\0', (size_t)n) == NULL;
}

static bool take_tokens(taker *t, int32_t out[KV_DECODE_STEPS])
{
    unsigned char bytes[KV_DECODE_STEPS];
    if (!take_bytes(t, bytes, sizeof bytes)) return false;
    for (int i = 0; i < KV_DECODE_STEPS; i++) out[i] = bytes[i];
    return true;
}

static bool take_digest(taker *t, char out[KV_HASH_HEX])
{
    uint8_t bytes[KV_HASH_BYTES];
    if (!take_bytes(t, bytes, sizeof bytes)) return false;
    kv_hex_encode(bytes, sizeof bytes, out);
    return true;
}

static bool take_decode(taker *t, unsigned flags, kv_row *r)
{
    if (!take_tokens(t, r->decoded)) return false;
    memcpy(r->reference, r->decoded, sizeof r->reference);
    if ((flags & SAME_TOKENS) == 0 && !take_tokens(t, r->reference)) return false;
    if (!take_digest(t, r->logits_digest)) return false;
    memcpy(r->reference_digest, r->logits_digest, sizeof r->reference_digest);
    return (flags & SAME_DIGEST) != 0 || take_digest(t, r->reference_digest);
}

static bool take_fields(taker *t, const kv_row_field *field, size_t n, kv_row *r)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t v;
        if (!take_number(t, &v) || v > (uint64_t)(field[i].most - field[i].least)) return false;
        kv_row_field_set(r, &field[i], (int64_t)v + field[i].least);
    }
    return true;
}

static bool take_more(taker *t, unsigned flags, kv_row *r)
{
    r->has_codec = (flags & HAS_CODEC) != 0;
    r->has_study = !r->has_codec && (flags & HAS_STUDY) != 0;
    r->has_tp = !r->has_codec && !r->has_study && (flags & HAS_TP) != 0;
    const kv_row_more *m = kv_row_more_of(r);
    return m == NULL || (take_fields(t, m->field, m->n_fields, r) &&
                         take_bytes(t, (char *)r + m->digest_at, m->digests * KV_HASH_BYTES));
}

static bool take_row(const kv_campaign *c, taker *t, kv_row *r)
{
    uint64_t cell, flags;
    if (!take_number(t, &cell) || cell >= c->n_cells || !take_number(t, &flags)) return false;
    r->cell = (int64_t)cell;
    if (!take_fields(t, kv_row_fields, KV_ROW_FIELDS, r)) return false;
    if ((flags & HAS_DECODE) != 0 && !take_decode(t, (unsigned)flags, r)) return false;
    if ((flags & REASON_DERIVED) != 0) derive_reason(c, r->cell, r->reason);
    if ((flags & REASON_GIVEN) != 0 && !take_text(t, r->reason, sizeof r->reason)) return false;
    if ((flags & FAILED_AT) != 0 && !take_text(t, r->failed_at, sizeof r->failed_at)) return false;
    return take_more(t, (unsigned)flags, r);
}

kv_rc kv_row_unpack(const kv_campaign *c, const void *bytes, size_t n, kv_row *out, kv_err *err)
{
    taker t = {bytes, n};
    kv_row r;
    memset(&r, 0, sizeof r);
    if (!take_row(c, &t, &r) || t.left != 0) return KV_FAIL(err, KV_EFORMAT, "%zu bytes are no packed row", n);
    *out = r;
    return KV_OK;
}
