#include "grid/row/kv_row_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "certs/kv_json.h"
#include "grid/row/kv_row_fields.h"

#define N_FIELDS KV_ROW_FIELDS
#define N_PLAIN (1 + N_FIELDS + 2 * KV_DECODE_STEPS + 4)

/* What kv_row_more says, behind the plain fields: numbers, then digests. */
static void add_more(const kv_row *row, const kv_row_more *m, json_t *list)
{
    char hex[KV_HASH_HEX];
    for (size_t i = 0; i < m->n_fields; i++)
        json_array_append_new(list, json_integer((json_int_t)kv_row_field_get(row, &m->field[i])));
    for (size_t i = 0; i < m->digests; i++) {
        kv_hex_encode((const uint8_t *)row + m->digest_at + i * KV_HASH_BYTES, KV_HASH_BYTES, hex);
        json_array_append_new(list, json_string(hex));
    }
}

static size_t more_items(const kv_row_more *m)
{
    return m != NULL ? m->n_fields + m->digests : 0;
}

kv_rc kv_row_encode(const kv_row *row, kv_buf *out, kv_err *err)
{
    kv_rc rc = KV_OK;
    json_t *list = json_array();
    json_array_append_new(list, json_integer((json_int_t)row->cell));
    for (size_t i = 0; i < N_FIELDS; i++)
        json_array_append_new(list, json_integer((json_int_t)kv_row_field_get(row, &kv_row_fields[i])));
    for (int i = 0; i < KV_DECODE_STEPS; i++) {
        json_array_append_new(list, json_integer(row->decoded[i]));
        json_array_append_new(list, json_integer(row->reference[i]));
    }
    json_array_append_new(list, json_string(row->logits_digest));
    json_array_append_new(list, json_string(row->reference_digest));
    json_array_append_new(list, json_string(row->reason));
    json_array_append_new(list, json_string(row->failed_at));
    const kv_row_more *more = kv_row_more_of(row);
    if (more != NULL) add_more(row, more, list);
    if (json_array_size(list) != N_PLAIN + more_items(more))
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a journal line");
    else
        rc = kv_json_write(list, out, err);
    json_decref(list);
    return rc;
}

static bool take_int(const json_t *list, size_t *at, int64_t least, int64_t most, int64_t *out)
{
    const json_t *v = json_array_get(list, (*at)++);
    if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > most) return false;
    *out = json_integer_value(v);
    return true;
}

static bool take_text(const json_t *list, size_t *at, char *out, size_t n)
{
    const char *s = json_string_value(json_array_get(list, (*at)++));
    if (s == NULL || strlen(s) >= n) return false;
    memcpy(out, s, strlen(s) + 1);
    return true;
}

/* Which of them has that many items; NULL for none. */
static const kv_row_more *more_of_size(size_t items)
{
    for (size_t i = 0; i < KV_ROW_MORES; i++)
        if (more_items(&kv_row_mores[i]) == items) return &kv_row_mores[i];
    return NULL;
}

static bool take_more(const json_t *list, size_t *at, const kv_row_more *m, kv_row *r)
{
    static const kv_row_field flag = {0, false, 0, 1};
    kv_row_field has = flag;
    has.at = m->has;
    for (size_t i = 0; i < m->n_fields; i++) {
        int64_t v;
        if (!take_int(list, at, m->field[i].least, m->field[i].most, &v)) return false;
        kv_row_field_set(r, &m->field[i], v);
    }
    for (size_t i = 0; i < m->digests; i++) {
        const char *hex = json_string_value(json_array_get(list, (*at)++));
        if (hex == NULL || !kv_hex_decode(hex, (uint8_t *)r + m->digest_at + i * KV_HASH_BYTES, KV_HASH_BYTES))
            return false;
    }
    kv_row_field_set(r, &has, 1);
    return true;
}

static bool decode_list(const kv_campaign *c, const json_t *list, kv_row *r)
{
    size_t at = 0;
    int64_t v;
    const size_t n = json_array_size(list);
    const kv_row_more *more = n > N_PLAIN ? more_of_size(n - N_PLAIN) : NULL;
    if (n != N_PLAIN + more_items(more)) return false;
    if (!take_int(list, &at, 0, (int64_t)c->n_cells - 1, &r->cell)) return false;
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!take_int(list, &at, kv_row_fields[i].least, kv_row_fields[i].most, &v)) return false;
        kv_row_field_set(r, &kv_row_fields[i], v);
    }
    for (int i = 0; i < KV_DECODE_STEPS; i++) {
        if (!take_int(list, &at, 0, KV_VOCABULARY - 1, &v)) return false;
        r->decoded[i] = (int32_t)v;
        if (!take_int(list, &at, 0, KV_VOCABULARY - 1, &v)) return false;
        r->reference[i] = (int32_t)v;
    }
    return take_text(list, &at, r->logits_digest, sizeof r->logits_digest) &&
           take_text(list, &at, r->reference_digest, sizeof r->reference_digest) &&
           take_text(list, &at, r->reason, sizeof r->reason) &&
           take_text(list, &at, r->failed_at, sizeof r->failed_at) && (more == NULL || take_more(list, &at, more, r));
}

kv_rc kv_row_decode(const kv_campaign *c, const char *text, size_t n, kv_row *out, kv_err *err)
{
    json_t *list = NULL;
    kv_row r;
    memset(&r, 0, sizeof r);
    kv_rc rc = kv_json_parse(text, n, 1 << 20, &list, err);
    if (rc != KV_OK) return rc;
    if (decode_list(c, list, &r))
        *out = r;
    else
        rc = KV_FAIL(err, KV_EFORMAT, "is no row of this campaign");
    json_decref(list);
    return rc;
}
