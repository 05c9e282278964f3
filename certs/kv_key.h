/* certs: Ed25519 keys on disk and in memory, and the public keys that a caller trusts.
 * File formats and an openssl recipe: docs/keys.md. Secrets live in guarded memory (sodium_malloc)
 * and are wiped when freed. Not thread-safe before the first call has returned. */
#ifndef KV_KEY_H
#define KV_KEY_H

#include "base/kv_base.h"

#define KV_KEY_PUBLIC_BYTES 32
#define KV_KEY_PUBLIC_HEX 65 /* 64 digits and a NUL */
#define KV_KEY_SIG_BYTES 64
#define KV_KEY_SIG_HEX 129
#define KV_KEY_ID_HEX 17
#define KV_KEY_FILE_MAX 65536 /* bytes of a secret key file or a public keys file */

/* ---- passphrases ------------------------------------------------------------------------ */
typedef struct kv_pass kv_pass;
/* The passphrase from file descriptor fd (up to its first newline or its end), or where fd < 0 from
 * $KVGRID_PASSPHRASE; *out is NULL when there is neither. Caller frees with kv_pass_free.
 * KV_EINVAL for an empty one or one over 1024 bytes, KV_EREAD where fd cannot be read. */
kv_rc kv_pass_find(int fd, kv_pass **out, kv_err *err) KV_MUST_USE;
/* A copy of n bytes (tests, prompts). KV_EINVAL as above. */
kv_rc kv_pass_dup(const char *bytes, size_t n, kv_pass **out, kv_err *err) KV_MUST_USE;
void kv_pass_free(kv_pass *p); /* NULL is fine */

/* ---- secret keys ------------------------------------------------------------------------ */
typedef struct kv_key kv_key;
/* Writes a new secret key to path (mode 0600; sealed where pass is not NULL) and its public key to
 * "path.pub" (mode 0644); key_id receives its id. KV_EEXIST before anything is written where either
 * exists; after any error neither file of ours is left. */
kv_rc kv_key_generate(const char *path, const kv_pass *pass, char key_id[KV_KEY_ID_HEX], kv_err *err) KV_MUST_USE;
/* Reads a secret key file. KV_ESIG where group or others may use it or the passphrase is missing or
 * wrong, KV_EFORMAT where it is malformed, KV_EREAD where it cannot be read. */
kv_rc kv_key_load(const char *path, const kv_pass *pass, kv_key **out, kv_err *err) KV_MUST_USE;
/* The same from n bytes of text; `name` stands in errors. */
kv_rc kv_key_parse(const char *text, size_t n, const char *name, const kv_pass *pass, kv_key **out, kv_err *err)
    KV_MUST_USE;
/* A key of this process only: from random bits, or from a 32-byte seed (tests). */
kv_rc kv_key_new(const uint8_t *seed, kv_key **out, kv_err *err) KV_MUST_USE;
void kv_key_free(kv_key *k);                        /* NULL is fine */
const uint8_t *kv_key_public_view(const kv_key *k); /* KV_KEY_PUBLIC_BYTES, dies with k */
void kv_key_id_of(const uint8_t public_key[KV_KEY_PUBLIC_BYTES], char out[KV_KEY_ID_HEX]);
kv_rc kv_key_sign(const kv_key *k, const void *bytes, size_t n, uint8_t sig[KV_KEY_SIG_BYTES], kv_err *err) KV_MUST_USE;
/* True when sig is the signature of the n bytes under public_key. */
bool kv_key_verify(const uint8_t public_key[KV_KEY_PUBLIC_BYTES], const void *bytes, size_t n,
                   const uint8_t sig[KV_KEY_SIG_BYTES]) KV_MUST_USE;

/* ---- trusted public keys ---------------------------------------------------------------- */
typedef struct kv_trust kv_trust;
/* Public keys file, one key or more. KV_EFORMAT names the line; a file without a key is malformed. */
kv_rc kv_trust_load(const char *path, kv_trust **out, kv_err *err) KV_MUST_USE;
kv_rc kv_trust_parse(const char *text, size_t n, const char *name, kv_trust **out, kv_err *err) KV_MUST_USE;
/* Trust in one key of ours. */
kv_rc kv_trust_of_key(const kv_key *k, kv_trust **out, kv_err *err) KV_MUST_USE;
void kv_trust_free(kv_trust *t);          /* NULL is fine */
size_t kv_trust_count(const kv_trust *t); /* 0 for NULL */
bool kv_trust_has(const kv_trust *t, const uint8_t public_key[KV_KEY_PUBLIC_BYTES]);

/* ---- where keys are looked for ---------------------------------------------------------- */
/* Secret: `given`, else $KVGRID_KEY, else kvgrid/key.sec in $XDG_CONFIG_HOME or ~/.config. KV_EREAD
 * where there is none at all (the text says where it looked). Caller frees *out with kv_free. */
kv_rc kv_key_find_path(const char *given, char **out, kv_err *err) KV_MUST_USE;
/* Trust: `given`, else $KVGRID_TRUST, else kvgrid/trusted.pub in the same folder if it exists; else
 * *out is NULL: no trust was given. */
kv_rc kv_trust_find_path(const char *given, char **out, kv_err *err) KV_MUST_USE;

#endif
