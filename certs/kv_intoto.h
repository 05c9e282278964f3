/* certs: a certificate as an in-toto test-result statement in a signed DSSE envelope, for tools that read
 * attestations. Field by field: docs/keys.md, "An in-toto statement". Nothing here verifies the certificate: the
 * caller does that first, on the same bytes. */
#ifndef KV_INTOTO_H
#define KV_INTOTO_H

#include "base/kv_base.h"
#include "certs/kv_key.h"

#include <jansson.h>

#define KV_INTOTO_STATEMENT "https://in-toto.io/Statement/v1"
#define KV_INTOTO_PREDICATE "https://in-toto.io/attestation/test-result/v0.1"
#define KV_INTOTO_PAYLOAD_TYPE "application/vnd.in-toto+json"

/* The certificate as it was read: the document, and the file it came from. All borrowed. */
typedef struct {
    const json_t *doc;
    const char *file_name; /* without folders; the default subject */
    const void *bytes;
    size_t n;
    const char *path; /* of the file, for its row file; or NULL */
} kv_intoto_source;

/* A new statement about c. Each row is a test by name; where rows stand in a row file, those that pass are only counted.
 * The caller owns *out (json_decref). KV_EFORMAT where doc lacks what a verified
 * certificate has, KV_EINVAL where the file name cannot stand in JSON. */
kv_rc kv_intoto_statement(const kv_intoto_source *c, json_t **out, kv_err *err) KV_MUST_USE;

/* Appends to *out what DSSE signs for n payload bytes of a type ("pre-authentication encoding"). */
kv_rc kv_intoto_pae(const char *type, const void *payload, size_t n, kv_buf *out, kv_err *err) KV_MUST_USE;

/* Appends to *out the envelope: one line of JSON with its newline. The payload is the canonical form of statement,
 * so that the same certificate and key always give the same bytes. */
kv_rc kv_intoto_envelope(const json_t *statement, const kv_key *key, kv_buf *out, kv_err *err) KV_MUST_USE;

#endif
