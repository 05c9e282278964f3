/* The verifier's front: bytes in, stages in order, exit code out. */
#include "certs/kv_verify.h"

#include "base/kv_file.h"
#include "certs/kv_cert.h"
#include "certs/kv_json.h"
#include "certs/kv_verify_int.h"

#include <stdio.h>
#include <string.h>

const char *kv_vf_string(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

int64_t kv_vf_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* The digest over the body is the one that the document names. */
static void check_body_digest(kv_vf *v)
{
    char digest[KV_HASH_HEX];
    kv_err err = {0};
    kv_rc rc = kv_cert_body_digest(v->doc, digest, &err);
    if (rc == KV_ENOMEM) kv_vf_no_memory(v);
    if (rc == KV_OK)
        (void)kv_vf_want_text(v, KV_H1_SIGNATURE_INVALID, "$.body_digest", digest,
                              json_object_get(v->doc, "body_digest"));
}

static void check_signer(kv_vf *v, const kv_trust *trust, const uint8_t key[KV_KEY_PUBLIC_BYTES])
{
    char actual[KV_VF_TEXT];
    v->report->signer_trusted = kv_trust_has(trust, key);
    if (v->report->signer_trusted) return;
    if (kv_trust_count(trust) == 0) {
        kv_vf_fault(v, KV_H1_SIGNATURE_INVALID, "$.signature.public_key", "a signer that the caller trusts",
                    "no trust given: name public keys with --trust FILE, $KVGRID_TRUST or kvgrid/trusted.pub in the "
                    "config folder");
        return;
    }
    snprintf(actual, sizeof actual, "signer unknown: key %s is not among the %zu trusted keys", v->report->key_id,
             kv_trust_count(trust));
    kv_vf_fault(v, KV_H1_SIGNATURE_INVALID, "$.signature.public_key", "a signer that the caller trusts", actual);
}

void kv_vf_signature(kv_vf *v, const kv_trust *trust)
{
    uint8_t key[KV_KEY_PUBLIC_BYTES], sig[KV_KEY_SIG_BYTES];
    kv_buf message = {0};
    const json_t *s = json_object_get(v->doc, "signature");
    const char *public_hex = kv_vf_string(s, "public_key"), *sig_hex = kv_vf_string(s, "sig");
    if (json_object_get(v->doc, "body_digest") != NULL) check_body_digest(v);
    if (public_hex == NULL || sig_hex == NULL) return; /* an H0 already */
    (void)kv_vf_want_text(v, KV_H1_SIGNATURE_INVALID, "$.signature.alg", "ed25519", json_object_get(s, "alg"));
    if (!kv_hex_decode(public_hex, key, sizeof key)) {
        kv_vf_fault(v, KV_H1_SIGNATURE_INVALID, "$.signature.public_key", "64 lower-case hex digits",
                    "signature wrong: other text");
        return;
    }
    kv_key_id_of(key, v->report->key_id);
    (void)kv_vf_want_text(v, KV_H1_SIGNATURE_INVALID, "$.signature.key_id", v->report->key_id,
                          json_object_get(s, "key_id"));
    kv_rc rc = kv_cert_signed_bytes(v->doc, &message, NULL);
    if (rc == KV_ENOMEM) kv_vf_no_memory(v);
    v->report->signature_good =
        rc == KV_OK && kv_hex_decode(sig_hex, sig, sizeof sig) && kv_key_verify(key, message.data, message.len, sig);
    if (rc != KV_ENOMEM && !v->report->signature_good)
        kv_vf_fault(v, KV_H1_SIGNATURE_INVALID, "$.signature.sig", "the signature of these bytes by this key",
                    "signature wrong: the document was changed after it was signed, or never signed by this key");
    kv_buf_free(&message);
    check_signer(v, trust, key);
}

/* Everything that needs the types to be right. */
static void check_content(kv_vf *v)
{
    kv_vf_guards(v);
    kv_vf_run(v);
    if (!kv_vf_catalogue(v)) { /* without layouts and campaign nothing else can be derived */
        (void)kv_vf_rows(v, false);
        return;
    }
    const bool spec = kv_vf_spec(v);
    const bool geometries = kv_vf_geometries(v);
    if (geometries) kv_vf_bindings(v);
    if (geometries) kv_vf_sections_place(v);
    if (geometries && spec) kv_vf_method(v);
    if (!kv_vf_rows(v, spec && geometries)) return;
    kv_vf_missing(v);
    kv_vf_failures_left(v);
    kv_vf_counts(v);
    kv_vf_vocabulary(v);
    kv_vf_checks(v);
    kv_vf_boundary(v);
}

static void conclude(kv_vf *v, const kv_verify_opts *opts)
{
    kv_verify_report *r = v->report;
    bool other = false;
    for (int h = KV_H1_SIGNATURE_INVALID; h < KV_HCODE_COUNT; h++) other = other || r->has[h];
    const bool unproven = r->verdicts[KV_VERDICT_UNPROVEN] > 0 && !(opts != NULL && opts->allow_unproven);
    if (r->has[KV_H0_DOCUMENT_UNREADABLE])
        r->exit_code = 1;
    else if (other)
        r->exit_code = 3;
    else if (r->verdicts[KV_VERDICT_FAILED] > 0 || unproven || r->nothing_checked)
        r->exit_code = 4;
    else
        r->exit_code = 0;
}

/* Facts for the report that need no derivation. */
static void read_facts(kv_vf *v)
{
    const char *name = kv_vf_string(json_object_get(v->doc, "campaign"), "name");
    if (name == NULL) return;
    v->report->campaign = kv_strdup(name);
    if (v->report->campaign == NULL) kv_vf_no_memory(v);
}

static void verify_parsed(kv_vf *v, const void *bytes, size_t n, const kv_trust *trust)
{
    kv_err err = {0};
    kv_rc rc = kv_json_check_canonical(v->doc, bytes, n, &err);
    if (rc == KV_ENOMEM)
        kv_vf_no_memory(v);
    else if (rc != KV_OK)
        kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, "$", "canonical JSON", err.text);
    const bool shaped = kv_vf_shape(v);
    if (json_is_object(v->doc)) {
        read_facts(v);
        kv_vf_signature(v, trust);
    }
    if (shaped && v->rc == KV_OK) check_content(v);
}

static void free_state(kv_vf *v)
{
    kv_free(v->layouts);
    kv_free(v->geometries);
    kv_free(v->campaign.pairs);
    kv_free(v->campaign.tails);
    kv_free(v->campaign.study.first);
    kv_vf_tp_free(&v->campaign.tp);
    kv_free(v->references.entry);
    kv_free(v->failures.entry);
    kv_vf_cells_free(&v->cells);
}

kv_rc kv_verify_bytes(const void *bytes, size_t n, const kv_trust *trust, const kv_verify_opts *opts,
                      kv_verify_report *out, kv_err *err)
{
    kv_vf v = {.report = out, .required = &kv_cert_required_built_in};
    json_t *doc = NULL;
    kv_err parse = {0};
    memset(out, 0, sizeof *out);
    if (opts != NULL && opts->required != NULL) v.required = opts->required;
    if (opts != NULL) v.doc_path = opts->path;
    kv_rc rc = kv_json_parse(bytes, n, KV_VERIFY_BYTES_MAX, &doc, &parse);
    if (rc == KV_EFORMAT) {
        kv_vf_fault(&v, KV_H0_DOCUMENT_UNREADABLE, "$", "one JSON document", parse.text);
    } else if (rc != KV_OK) {
        kv_vf_no_memory(&v);
    } else {
        v.doc = doc;
        verify_parsed(&v, bytes, n, trust);
    }
    conclude(&v, opts);
    free_state(&v);
    json_decref(doc);
    if (v.rc == KV_OK) return KV_OK;
    kv_verify_report_free(out);
    return KV_FAIL(err, KV_ENOMEM, "no memory to verify a certificate of %zu bytes", n);
}

kv_rc kv_verify_file(const char *path, const char *trust_path, const kv_verify_opts *opts, kv_verify_report *out,
                     kv_buf *bytes, kv_err *err)
{
    kv_buf own = {0}, *b = bytes != NULL ? bytes : &own;
    kv_trust *trust = NULL;
    char *found = NULL;
    kv_verify_opts beside = {0};
    kv_rc rc;
    if (opts != NULL) beside = *opts;
    beside.path = path;
    memset(out, 0, sizeof *out);
    KV_TRY(rc, out, kv_file_read(path, KV_VERIFY_BYTES_MAX, b, err));
    KV_TRY(rc, out, kv_trust_find_path(trust_path, &found, err));
    if (found != NULL) KV_TRY(rc, out, kv_trust_load(found, &trust, err));
    rc = kv_verify_bytes(b->data, b->len, trust, &beside, out, err);
    if (rc != KV_OK) kv_err_prefix(err, "%s", path);
out:
    kv_trust_free(trust);
    kv_free(found);
    if (rc != KV_OK || b == &own) kv_buf_free(b);
    return rc;
}
