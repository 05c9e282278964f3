/* certs: digesting and signing a certificate (docs/certificate.md). */
#ifndef KV_CERT_H
#define KV_CERT_H

#include "base/kv_base.h"
#include "certs/kv_hash.h"
#include "certs/kv_key.h"

#include <jansson.h>

/* Digest of the body: the canonical document without `run`, `body_digest`, `signature`. */
kv_rc kv_cert_body_digest(const json_t *doc, char out[KV_HASH_HEX], kv_err *err) KV_MUST_USE;

/* Appends to *out the bytes that are signed: the canonical document without `signature`. */
kv_rc kv_cert_signed_bytes(const json_t *doc, kv_buf *out, kv_err *err) KV_MUST_USE;

/* Sets `body_digest` and `signature` in doc (an object with body and `run`; old values are replaced)
 * and appends the canonical bytes of the finished document to *out, which must be {0}.
 * KV_EFORMAT where doc holds what canonical JSON cannot. On error *out is {0}. */
kv_rc kv_cert_seal(json_t *doc, const kv_key *key, kv_buf *out, kv_err *err) KV_MUST_USE;

/* The same where a large value is no part of doc, but stands ready as canonical text: it comes under first_key, which must sort
 * before every key of doc. */
kv_rc kv_cert_seal_with(json_t *doc, const char *first_key, const kv_buf *first, const kv_key *key, kv_buf *out,
                        kv_err *err) KV_MUST_USE;

/* Digest of a layout object as it stands in `catalogue`: over the object without `digest`. */
kv_rc kv_cert_layout_digest(const json_t *layout, char out[KV_HASH_HEX], kv_err *err) KV_MUST_USE;

/* campaign.digest: over {"layouts":{NAME:DIGEST,...},"spec":spec}; catalogue is the list of layout
 * objects, each with `name` and `digest`. */
kv_rc kv_cert_campaign_digest(const json_t *spec, const json_t *catalogue, char out[KV_HASH_HEX], kv_err *err)
    KV_MUST_USE;

#endif
