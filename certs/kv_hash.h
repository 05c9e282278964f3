/* certs: BLAKE2b-256, streamed or at once, as 64 lower-case hex digits. */
#ifndef KV_HASH_H
#define KV_HASH_H

#include "base/kv_base.h"

#include <jansson.h>

#define KV_HASH_BYTES 32
#define KV_HASH_HEX 65 /* 64 digits and a NUL */

/* The running state; no secrets, no clean-up needed. Do not copy while it is in use. */
typedef struct {
    _Alignas(64) unsigned char opaque[384];
} kv_hash;

void kv_hash_init(kv_hash *h);
void kv_hash_update(kv_hash *h, const void *bytes, size_t n);
/* Ends the hash; *h must be initialised again before further use. */
void kv_hash_final(kv_hash *h, uint8_t out[KV_HASH_BYTES]);
void kv_hash_final_hex(kv_hash *h, char out[KV_HASH_HEX]);

void kv_hash_bytes(const void *bytes, size_t n, uint8_t out[KV_HASH_BYTES]);
void kv_hash_hex(const void *bytes, size_t n, char out[KV_HASH_HEX]);

/* Digest of the canonical bytes of v, without the top-level keys in `skip` (NULL-terminated, may
 * be NULL). KV_EFORMAT where v has no canonical form. */
kv_rc kv_hash_json(const json_t *v, const char *const *skip, char out[KV_HASH_HEX], kv_err *err) KV_MUST_USE;

/* n bytes as 2n lower-case hex digits and a NUL. */
void kv_hex_encode(const uint8_t *bytes, size_t n, char *out);
/* Exactly 2n lower-case hex digits, nothing else; false (and *out undefined) for any other text. */
bool kv_hex_decode(const char *text, uint8_t *out, size_t n);

#endif
