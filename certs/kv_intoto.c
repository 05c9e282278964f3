/* in-toto Statement v1 with a test-result v0.1 predicate, and the DSSE v1 envelope around it. */
#include "certs/kv_intoto.h"

#include "certs/kv_cert_names.h"
#include "certs/kv_hash.h"
#include "certs/kv_json.h"
#include "certs/kv_rows.h"
#include "certs/kv_sha256.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading what the verifier has passed ----------------------------------------------- */

static kv_rc need_text(const json_t *obj, const char *key, const char **out, kv_err *err)
{
    *out = json_string_value(json_object_get(obj, key));
    return *out != NULL ? KV_OK
                        : KV_FAIL(err, KV_EFORMAT, "the certificate has no text \"%s\" where one is needed", key);
}

static kv_rc need_int(const json_t *obj, const char *key, int64_t *out, kv_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (!json_is_integer(v))
        return KV_FAIL(err, KV_EFORMAT, "the certificate has no number \"%s\" where one is needed", key);
    *out = json_integer_value(v);
    return KV_OK;
}

static kv_rc no_memory(kv_err *err)
{
    return KV_FAIL(err, KV_ENOMEM, "no memory for the statement");
}

/* ---- tests by outcome ------------------------------------------------------------------- */

typedef enum { PASSED, WARNED, FAILED, N_OUTCOMES } outcome;

typedef struct {
    json_t *names[N_OUTCOMES];
    int64_t work;   /* done in all rows: 0 where nothing was checked */
    bool counts;    /* rows that pass, instead of naming them */
    int64_t passed; /* those that were counted */
} tests;

static kv_rc add_test(tests *t, outcome o, const char *name, kv_err *err)
{
    return json_array_append_new(t->names[o], json_string(name)) == 0 ? KV_OK : no_memory(err);
}

static kv_rc add_entries(tests *t, const json_t *list, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (size_t i = 0; i < json_array_size(list) && rc == KV_OK; i++) {
        const json_t *entry = json_array_get(list, i);
        const char *name;
        rc = need_text(entry, "name", &name, err);
        if (rc == KV_OK) rc = add_test(t, json_is_true(json_object_get(entry, "passed")) ? PASSED : FAILED, name, err);
    }
    return rc;
}

/* Appends "L=3,T=40,H=2,D=8,e=f16", as --geometry takes it. */
static kv_rc put_geometry(const json_t *g, kv_buf *out, kv_err *err)
{
    int64_t layers = 0, tokens = 0, heads = 0, dim = 0, dim_v = 0;
    const char *element;
    kv_rc rc;
    KV_TRY(rc, out, need_int(g, "layers", &layers, err));
    KV_TRY(rc, out, need_int(g, "tokens", &tokens, err));
    KV_TRY(rc, out, need_int(g, "kv_heads", &heads, err));
    KV_TRY(rc, out, need_int(g, "head_dim", &dim, err));
    KV_TRY(rc, out, need_text(g, "element", &element, err));
    KV_TRY(rc, out,
           kv_buf_printf(out, err, "L=%" PRId64 ",T=%" PRId64 ",H=%" PRId64 ",D=%" PRId64, layers, tokens, heads, dim));
    if (json_object_get(g, "head_dim_v") != NULL) {
        KV_TRY(rc, out, need_int(g, "head_dim_v", &dim_v, err));
        KV_TRY(rc, out, kv_buf_printf(out, err, ",Dv=%" PRId64, dim_v));
    }
    rc = kv_buf_printf(out, err, ",e=%s", element);
out:
    return rc;
}

/* "SRC->DST@GEOMETRY", with ",tail=zero" where the campaign has several: one name for each row. */
static kv_rc put_row_name(const json_t *row, const json_t *geometries, kv_buf *out, kv_err *err)
{
    const char *check, *pair_id;
    int64_t geometry = 0;
    kv_rc rc;
    KV_TRY(rc, out, need_text(row, "check", &check, err));
    KV_TRY(rc, out, need_text(row, "pair_id", &pair_id, err));
    KV_TRY(rc, out, need_int(row, "geometry", &geometry, err));
    if (strcmp(check, "pair") != 0) KV_TRY(rc, out, kv_buf_printf(out, err, "%s:", check));
    KV_TRY(rc, out, kv_buf_printf(out, err, "%s@", pair_id));
    KV_TRY(rc, out, put_geometry(json_array_get(geometries, (size_t)geometry), out, err));
    json_t *params = json_object_get(row, "params"), *value;
    const char *key;
    json_object_foreach(params, key, value)
    {
        const char *text;
        KV_TRY(rc, out, need_text(params, key, &text, err));
        KV_TRY(rc, out, kv_buf_printf(out, err, ",%s=%s", key, text));
    }
out:
    return rc;
}

static bool has_word(const json_t *row, kv_word word)
{
    const json_t *words = json_object_get(row, "transformations");
    for (size_t i = 0; i < json_array_size(words); i++) {
        const char *name = json_string_value(json_array_get(words, i));
        if (name != NULL && strcmp(name, kv_word_name(word)) == 0) return true;
    }
    return false;
}

/* A row of the codec is not exact by definition: what can be asked of it is that it agrees with its reference. */
static bool agrees(const json_t *row)
{
    const json_t *seen = json_object_get(row, "observations");
    const char *check = json_string_value(json_object_get(row, "check"));
    const bool codec = check != NULL && strcmp(check, "codec") == 0;
    if (check == NULL || (!codec && strcmp(check, "attribution") != 0)) return false;
    for (int o = 0; o < (codec ? (int)KV_CODEC_OBS_TOKENS : (int)KV_STUDY_OBS_FINITE); o++) {
        const char *name = codec ? kv_codec_obs_name((kv_codec_obs)o) : kv_study_obs_name((kv_study_obs)o);
        if (!json_is_true(json_object_get(seen, name))) return false;
    }
    return true;
}

static outcome outcome_of(kv_verdict v, const json_t *row)
{
    switch (v) {
    case KV_VERDICT_EXACT_BYTE:
    case KV_VERDICT_EXACT_TOKEN:
    case KV_VERDICT_REFUSED: return PASSED;
    case KV_VERDICT_NOT_EXACT: /* expected of another element type; else the translator is wrong */
        return has_word(row, KV_WORD_REQUANTIZE) || agrees(row) ? PASSED : FAILED;
    case KV_VERDICT_UNPROVEN: return WARNED;
    case KV_VERDICT_FAILED:
    case KV_VERDICT_COUNT: break;
    }
    return FAILED;
}

static kv_rc add_row(tests *t, const json_t *row, const json_t *geometries, kv_err *err)
{
    kv_buf name = {0};
    const char *text;
    kv_verdict verdict;
    kv_rc rc;
    KV_TRY(rc, out, need_text(row, "verdict", &text, err));
    if (!kv_verdict_parse(text, &verdict)) {
        rc = KV_FAIL(err, KV_EFORMAT, "a row of the certificate has the unknown verdict %s", text);
        goto out;
    }
    const outcome o = outcome_of(verdict, row);
    if (t->counts && o == PASSED) {
        t->passed++;
    } else {
        KV_TRY(rc, out, put_row_name(row, geometries, &name, err));
        KV_TRY(rc, out, add_test(t, o, name.data, err));
    }
    static const char *const work[] = {"positions_checked", "rows",
                                       "passages"}; /* of a pair or move, codec, attribution */
    for (size_t i = 0; i < sizeof work / sizeof *work; i++)
        t->work += json_integer_value(json_object_get(json_object_get(row, "proof"), work[i]));
out:
    kv_buf_free(&name);
    return rc;
}

static bool ran_emulated(const json_t *doc)
{
    const json_t *devices = json_object_get(json_object_get(doc, "run"), "devices");
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const char *kind = json_string_value(json_object_get(json_array_get(devices, i), "device"));
        if (kind != NULL && strcmp(kind, "emulated") == 0) return true;
    }
    return false;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(json_string_value(*(json_t *const *)a), json_string_value(*(json_t *const *)b));
}

/* Sorts a list of strings by their bytes. */
static kv_rc sort_names(json_t **list, kv_err *err)
{
    const size_t n = json_array_size(*list);
    json_t **view = kv_alloc(n, sizeof(json_t *)), *sorted = json_array();
    kv_rc rc = view != NULL && sorted != NULL ? KV_OK : no_memory(err);
    for (size_t i = 0; rc == KV_OK && i < n; i++) view[i] = json_array_get(*list, i);
    if (rc == KV_OK && n > 1) qsort(view, n, sizeof view[0], by_text);
    for (size_t i = 0; rc == KV_OK && i < n; i++)
        if (json_array_append(sorted, view[i]) != 0) rc = no_memory(err);
    kv_free(view);
    if (rc != KV_OK) {
        json_decref(sorted);
        return rc;
    }
    json_decref(*list);
    *list = sorted;
    return KV_OK;
}

static kv_rc add_rows(const kv_intoto_source *c, tests *t, kv_err *err)
{
    const json_t *geometries = json_object_get(c->doc, "geometries"), *row;
    kv_rows *rows = NULL;
    kv_rc rc = kv_rows_open(c->doc, c->path, &rows, err);
    if (rc == KV_OK) t->counts = kv_rows_in_file(rows);
    while (rc == KV_OK) {
        rc = kv_rows_next(rows, &row, err);
        if (rc == KV_OK && row == NULL) break;
        if (rc == KV_OK) rc = add_row(t, row, geometries, err);
    }
    kv_rows_close(rows);
    return rc;
}

static kv_rc collect(const kv_intoto_source *c, tests *t, kv_err *err)
{
    const json_t *doc = c->doc;
    kv_rc rc = KV_OK;
    for (size_t i = 0; i < N_OUTCOMES; i++) {
        t->names[i] = json_array();
        if (t->names[i] == NULL) return no_memory(err);
    }
    KV_TRY(rc, out, add_entries(t, json_object_get(doc, "checks"), err));
    KV_TRY(rc, out, add_entries(t, json_object_get(doc, "controls"), err));
    KV_TRY(rc, out, add_rows(c, t, err));
    /* Two things that the verify command does not let pass either, though no row says them. */
    if (t->work == 0) KV_TRY(rc, out, add_test(t, WARNED, "nothing_checked", err));
    if (ran_emulated(doc)) KV_TRY(rc, out, add_test(t, WARNED, "emulated_device", err));
    for (size_t i = 0; i < N_OUTCOMES; i++) KV_TRY(rc, out, sort_names(&t->names[i], err));
out:
    return rc;
}

/* ---- the statement ---------------------------------------------------------------------- */

static kv_rc descriptor_new(const char *name, const char *algorithm, const char *digest, json_t **out, kv_err *err)
{
    *out = json_pack("{s:s,s:{s:s}}", "name", name, "digest", algorithm, digest);
    return *out != NULL ? KV_OK : no_memory(err);
}

static bool stands_in_json(const char *text)
{
    json_t *v = json_string(text); /* NULL where it is not UTF-8 */
    bool good = v != NULL;
    json_decref(v);
    for (; *text != '\0'; text++) good = good && (unsigned char)*text >= 0x20 && *text != 0x7F;
    return good;
}

static kv_rc file_descriptor_new(const kv_intoto_source *c, json_t **out, kv_err *err)
{
    char hex[KV_SHA256_HEX];
    if (!stands_in_json(c->file_name))
        return KV_FAIL(err, KV_EINVAL, "%s: this file name cannot stand in JSON; rename the file", c->file_name);
    kv_sha256_hex(c->bytes, c->n, hex);
    return descriptor_new(c->file_name, "sha256", hex, out, err);
}

/* What was tested: as the certificate says, else the certificate itself. */
static kv_rc subject_new(const kv_intoto_source *c, json_t *file, json_t **out, kv_err *err)
{
    static const char prefix[] = "sha256:";
    const json_t *subject = json_object_get(c->doc, "subject");
    const char *name, *digest;
    uint8_t bytes[crypto_hash_sha256_BYTES];
    kv_rc rc;
    if (subject == NULL) {
        *out = json_incref(file);
        return KV_OK;
    }
    KV_TRY(rc, out, need_text(subject, "name", &name, err));
    KV_TRY(rc, out, need_text(subject, "digest", &digest, err));
    if (strncmp(digest, prefix, sizeof prefix - 1) != 0 ||
        !kv_hex_decode(digest + sizeof prefix - 1, bytes, sizeof bytes))
        rc = KV_FAIL(err, KV_EFORMAT, "the certificate's subject has the digest %s; sha256:HEX is needed", digest);
    else
        rc = descriptor_new(name, "sha256", digest + sizeof prefix - 1, out, err);
out:
    return rc;
}

/* Beyond the predicate's own fields: which certificate this is, and its counts. */
static kv_rc extra_new(const kv_intoto_source *c, json_t *file, const tests *t, json_t **out, kv_err *err)
{
    const char *body_digest, *key_id;
    json_t *floors = json_object_get(c->doc, "floors"), *observed = json_object_get(c->doc, "observed");
    kv_rc rc;
    KV_TRY(rc, out, need_text(c->doc, "body_digest", &body_digest, err));
    KV_TRY(rc, out, need_text(json_object_get(c->doc, "signature"), "key_id", &key_id, err));
    if (!json_is_object(floors) || !json_is_object(observed)) {
        rc = KV_FAIL(err, KV_EFORMAT, "the certificate has no floors or no observed counts");
        goto out;
    }
    *out = json_pack("{s:O,s:s,s:s,s:O,s:O}", "certificate", file, "body_digest", body_digest, "key_id", key_id,
                     "floors", floors, "observed", observed);
    if (*out == NULL ||
        (t->counts && (json_object_set(*out, "rows_file", json_object_get(c->doc, "rows_file")) != 0 ||
                       json_object_set_new(*out, "rows_passed", json_integer((json_int_t)t->passed)) != 0)))
        rc = no_memory(err);
out:
    return rc;
}

static kv_rc predicate_new(const kv_intoto_source *c, json_t *file, const tests *t, json_t **out, kv_err *err)
{
    const json_t *campaign = json_object_get(c->doc, "campaign");
    const char *name, *digest;
    const char *result = json_array_size(t->names[FAILED]) > 0   ? "FAILED"
                         : json_array_size(t->names[WARNED]) > 0 ? "WARNED"
                                                                 : "PASSED";
    json_t *configuration = NULL, *extra = NULL;
    kv_rc rc;
    KV_TRY(rc, out, need_text(campaign, "name", &name, err));
    KV_TRY(rc, out, need_text(campaign, "digest", &digest, err));
    KV_TRY(rc, out, descriptor_new(name, "blake2b", digest, &configuration, err));
    KV_TRY(rc, out, extra_new(c, file, t, &extra, err));
    *out =
        json_pack("{s:s,s:[O],s:O,s:O,s:O,s:O}", "result", result, "configuration", configuration, "passedTests",
                  t->names[PASSED], "warnedTests", t->names[WARNED], "failedTests", t->names[FAILED], "kvgrid", extra);
    if (*out == NULL) rc = no_memory(err);
out:
    json_decref(configuration);
    json_decref(extra);
    return rc;
}

kv_rc kv_intoto_statement(const kv_intoto_source *c, json_t **out, kv_err *err)
{
    tests t = {0};
    json_t *file = NULL, *subject = NULL, *predicate = NULL, *statement;
    kv_rc rc;
    KV_TRY(rc, out, collect(c, &t, err));
    KV_TRY(rc, out, file_descriptor_new(c, &file, err));
    KV_TRY(rc, out, subject_new(c, file, &subject, err));
    KV_TRY(rc, out, predicate_new(c, file, &t, &predicate, err));
    statement = json_pack("{s:s,s:[O],s:s,s:O}", "_type", KV_INTOTO_STATEMENT, "subject", subject, "predicateType",
                          KV_INTOTO_PREDICATE, "predicate", predicate);
    if (statement == NULL)
        rc = no_memory(err);
    else
        *out = statement;
out:
    for (size_t i = 0; i < N_OUTCOMES; i++) json_decref(t.names[i]);
    json_decref(file);
    json_decref(subject);
    json_decref(predicate);
    return rc;
}

/* ---- the envelope ----------------------------------------------------------------------- */

kv_rc kv_intoto_pae(const char *type, const void *payload, size_t n, kv_buf *out, kv_err *err)
{
    kv_rc rc = kv_buf_printf(out, err, "DSSEv1 %zu %s %zu ", strlen(type), type, n);
    return rc == KV_OK ? kv_buf_append(out, payload, n, err) : rc;
}

/* Standard base64 with padding, as a new JSON string. */
static kv_rc base64_new(const void *bytes, size_t n, json_t **out, kv_err *err)
{
    if (n > KV_JSON_BYTES_MAX) return KV_FAIL(err, KV_ENOMEM, "a statement of %zu bytes is too large", n);
    const size_t size = sodium_base64_encoded_len(n, sodium_base64_VARIANT_ORIGINAL);
    char *text = kv_alloc(size, 1);
    *out = NULL;
    if (text != NULL) *out = json_string(sodium_bin2base64(text, size, bytes, n, sodium_base64_VARIANT_ORIGINAL));
    kv_free(text);
    return *out != NULL ? KV_OK : no_memory(err);
}

static kv_rc write_envelope(json_t *payload, json_t *sig, const kv_key *key, kv_buf *out, kv_err *err)
{
    char id[KV_KEY_ID_HEX];
    kv_key_id_of(kv_key_public_view(key), id);
    json_t *envelope = json_pack("{s:O,s:s,s:[{s:s,s:O}]}", "payload", payload, "payloadType", KV_INTOTO_PAYLOAD_TYPE,
                                 "signatures", "keyid", id, "sig", sig);
    kv_rc rc = envelope != NULL ? kv_json_write(envelope, out, err) : no_memory(err);
    if (rc == KV_OK) rc = kv_buf_puts(out, "\n", err);
    json_decref(envelope);
    return rc;
}

kv_rc kv_intoto_envelope(const json_t *statement, const kv_key *key, kv_buf *out, kv_err *err)
{
    kv_buf payload = {0}, pae = {0};
    uint8_t sig[KV_KEY_SIG_BYTES];
    json_t *payload_text = NULL, *sig_text = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_json_write(statement, &payload, err));
    KV_TRY(rc, out, kv_intoto_pae(KV_INTOTO_PAYLOAD_TYPE, payload.data, payload.len, &pae, err));
    KV_TRY(rc, out, kv_key_sign(key, pae.data, pae.len, sig, err));
    KV_TRY(rc, out, base64_new(payload.data, payload.len, &payload_text, err));
    KV_TRY(rc, out, base64_new(sig, sizeof sig, &sig_text, err));
    rc = write_envelope(payload_text, sig_text, key, out, err);
out:
    kv_buf_free(&payload);
    kv_buf_free(&pae);
    json_decref(payload_text);
    json_decref(sig_text);
    return rc;
}
