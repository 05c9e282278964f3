/* certs, private: what the key files share. */
#ifndef KV_KEY_INT_H
#define KV_KEY_INT_H

#include "certs/kv_key.h"

struct kv_pass {
    size_t n;
    char bytes[1024];
};

/* sodium_init once; KV_EUNSUP where it fails. */
kv_rc kv_key_start(kv_err *err) KV_MUST_USE;

/* One line of a public keys file for a key: "ed25519 KEY_ID PUBLIC_KEY\n". */
kv_rc kv_trust_line(const uint8_t public_key[KV_KEY_PUBLIC_BYTES], kv_buf *out, kv_err *err) KV_MUST_USE;

/* Cuts the next line of text[*at..n) into line (at most cap - 1 bytes, NUL-terminated, without its
 * newline); false at the end. A line that does not fit or holds a control character gives *bad. */
bool kv_key_next_line(const char *text, size_t n, size_t *at, char *line, size_t cap, bool *bad);

/* The text of a secret key file, taken apart. Either seed or box is set. */
typedef struct {
    bool sealed;
    uint8_t public_key[KV_KEY_PUBLIC_BYTES];
    uint8_t seed[32];
    int64_t ops;
    int64_t memory_bytes;
    uint8_t salt[16];
    uint8_t nonce[24];
    uint8_t box[48];
} kv_key_text;
kv_rc kv_key_text_parse(const char *text, size_t n, const char *name, kv_key_text *out, kv_err *err) KV_MUST_USE;
kv_rc kv_key_text_write(const kv_key_text *t, kv_buf *out, kv_err *err) KV_MUST_USE;

/* Argon2id + secretbox. Both fill or read t->ops .. t->box. */
kv_rc kv_key_seal(kv_key_text *t, const uint8_t seed[32], const kv_pass *pass, kv_err *err) KV_MUST_USE;
kv_rc kv_key_open(const kv_key_text *t, const char *name, const kv_pass *pass, uint8_t seed[32], kv_err *err)
    KV_MUST_USE;

#endif
