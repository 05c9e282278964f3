#include "certs/kv_cert.h"

#include "certs/kv_json.h"

#include <string.h>

static const char *const not_body[] = {"run", "body_digest", "signature", NULL};
static const char *const not_signed[] = {"signature", NULL};
static const char *const not_layout[] = {"digest", NULL};

kv_rc kv_cert_body_digest(const json_t *doc, char out[KV_HASH_HEX], kv_err *err)
{
    return kv_hash_json(doc, not_body, out, err);
}

kv_rc kv_cert_layout_digest(const json_t *layout, char out[KV_HASH_HEX], kv_err *err)
{
    return kv_hash_json(layout, not_layout, out, err);
}

static kv_rc to_buffer(void *ctx, const void *bytes, size_t n, kv_err *err)
{
    return kv_buf_append(ctx, bytes, n, err);
}

kv_rc kv_cert_signed_bytes(const json_t *doc, kv_buf *out, kv_err *err)
{
    return kv_json_write_sink(doc, not_signed, to_buffer, out, err);
}

kv_rc kv_cert_campaign_digest(const json_t *spec, const json_t *catalogue, char out[KV_HASH_HEX], kv_err *err)
{
    kv_rc rc = KV_OK;
    json_t *layouts = json_object(), *both = NULL;
    if (layouts == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a campaign digest");
    for (size_t i = 0; i < json_array_size(catalogue); i++) {
        const json_t *entry = json_array_get(catalogue, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        json_t *digest = json_object_get(entry, "digest");
        if (name == NULL || !json_is_string(digest)) {
            rc = KV_FAIL(err, KV_EFORMAT, "layout %zu of the catalogue has no name or no digest", i);
            goto out;
        }
        if (json_object_set(layouts, name, digest) != 0) goto no_memory;
    }
    both = json_pack("{sOsO}", "layouts", layouts, "spec", (json_t *)(uintptr_t)spec); /* takes references only */
    if (both == NULL) goto no_memory;
    rc = kv_hash_json(both, NULL, out, err);
    goto out;
no_memory:
    rc = KV_FAIL(err, KV_ENOMEM, "no memory for a campaign digest");
out:
    json_decref(both);
    json_decref(layouts);
    return rc;
}

static kv_rc set_signature(json_t *doc, const kv_key *key, const kv_buf *message, kv_err *err)
{
    uint8_t sig[KV_KEY_SIG_BYTES];
    char sig_hex[KV_KEY_SIG_HEX], public_hex[KV_KEY_PUBLIC_HEX], id[KV_KEY_ID_HEX];
    kv_rc rc = kv_key_sign(key, message->data, message->len, sig, err);
    if (rc != KV_OK) return rc;
    kv_hex_encode(sig, sizeof sig, sig_hex);
    kv_hex_encode(kv_key_public_view(key), KV_KEY_PUBLIC_BYTES, public_hex);
    kv_key_id_of(kv_key_public_view(key), id);
    json_t *signature =
        json_pack("{ssssssss}", "alg", "ed25519", "key_id", id, "public_key", public_hex, "sig", sig_hex);
    if (signature == NULL || json_object_set_new(doc, "signature", signature) != 0)
        return KV_FAIL(err, KV_ENOMEM, "no memory for a signature");
    return KV_OK;
}

/* A document whose first member is a text of its own; key NULL: there is none. */
typedef struct {
    const char *key;
    const kv_buf *text;
    kv_json_sink sink;
    void *ctx;
    bool begun;
} joiner;

/* What comes begins with the brace of the document. */
static kv_rc join(void *ctx, const void *bytes, size_t n, kv_err *err)
{
    joiner *j = ctx;
    kv_rc rc = KV_OK;
    if (j->begun || j->key == NULL || n == 0) return j->sink(j->ctx, bytes, n, err);
    j->begun = true;
    KV_TRY(rc, out, j->sink(j->ctx, "{\"", 2, err));
    KV_TRY(rc, out, j->sink(j->ctx, j->key, strlen(j->key), err));
    KV_TRY(rc, out, j->sink(j->ctx, "\":", 2, err));
    KV_TRY(rc, out, j->sink(j->ctx, j->text->data, j->text->len, err));
    KV_TRY(rc, out, j->sink(j->ctx, ",", 1, err));
    rc = j->sink(j->ctx, (const char *)bytes + 1, n - 1, err);
out:
    return rc;
}

static kv_rc to_hash(void *ctx, const void *bytes, size_t n, kv_err *err)
{
    (void)err;
    kv_hash_update(ctx, bytes, n);
    return KV_OK;
}

static kv_rc body_digest_with(const json_t *doc, const char *key, const kv_buf *text, char out[KV_HASH_HEX],
                              kv_err *err)
{
    kv_hash h;
    joiner j = {key, text, to_hash, &h, false};
    kv_hash_init(&h);
    const kv_rc rc = kv_json_write_sink(doc, not_body, join, &j, err);
    if (rc == KV_OK) kv_hash_final_hex(&h, out);
    return rc;
}

kv_rc kv_cert_seal_with(json_t *doc, const char *first_key, const kv_buf *first, const kv_key *key, kv_buf *out,
                        kv_err *err)
{
    char digest[KV_HASH_HEX];
    kv_buf message = {0};
    joiner signed_bytes = {first_key, first, to_buffer, &message, false},
           all = {first_key, first, to_buffer, out, false};
    kv_rc rc;
    KV_TRY(rc, out, body_digest_with(doc, first_key, first, digest, err));
    if (json_object_set_new(doc, "body_digest", json_string(digest)) != 0) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a digest");
        goto out;
    }
    KV_TRY(rc, out, kv_json_write_sink(doc, not_signed, join, &signed_bytes, err));
    KV_TRY(rc, out, set_signature(doc, key, &message, err));
    kv_buf_free(&message); /* as large as what comes now */
    rc = kv_json_write_sink(doc, NULL, join, &all, err);
out:
    kv_buf_free(&message);
    if (rc != KV_OK) kv_buf_free(out);
    return rc;
}

kv_rc kv_cert_seal(json_t *doc, const kv_key *key, kv_buf *out, kv_err *err)
{
    return kv_cert_seal_with(doc, NULL, NULL, key, out, err);
}
