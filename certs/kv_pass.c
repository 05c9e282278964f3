/* Passphrases, and sealing with them: Argon2id + XSalsa20-Poly1305 (secretbox). */
#include "certs/kv_key_int.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static_assert(sizeof(((kv_key_text *)0)->salt) == crypto_pwhash_argon2id_SALTBYTES, "salt");
static_assert(sizeof(((kv_key_text *)0)->nonce) == crypto_secretbox_NONCEBYTES, "nonce");
static_assert(sizeof(((kv_key_text *)0)->box) == 32 + crypto_secretbox_MACBYTES, "box");

static kv_rc check_length(size_t n, kv_err *err)
{
    if (n == 0) return KV_FAIL(err, KV_EINVAL, "the passphrase is empty");
    if (n > sizeof(((kv_pass *)0)->bytes))
        return KV_FAIL(err, KV_EINVAL, "the passphrase is longer than %zu bytes", sizeof(((kv_pass *)0)->bytes));
    return KV_OK;
}

static kv_rc new_pass(kv_pass **out, kv_err *err)
{
    kv_rc rc = kv_key_start(err);
    if (rc != KV_OK) return rc;
    *out = sodium_malloc(sizeof **out);
    if (*out == NULL) return KV_FAIL(err, KV_ENOMEM, "no guarded memory for a passphrase");
    (*out)->n = 0;
    return KV_OK;
}

kv_rc kv_pass_dup(const char *bytes, size_t n, kv_pass **out, kv_err *err)
{
    kv_pass *p = NULL;
    kv_rc rc = check_length(n, err);
    if (rc != KV_OK) return rc;
    rc = new_pass(&p, err);
    if (rc != KV_OK) return rc;
    memcpy(p->bytes, bytes, n);
    p->n = n;
    *out = p;
    return KV_OK;
}

/* One byte at a time: what stands behind the newline belongs to somebody else. */
static kv_rc read_pass(int fd, kv_pass *p, kv_err *err)
{
    for (;;) {
        char c;
        ssize_t got = read(fd, &c, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return KV_FAIL(err, KV_EREAD, "the passphrase cannot be read from file descriptor %d: %s", fd,
                           strerror(errno));
        if (got == 0 || c == '\n') return check_length(p->n, err);
        if (p->n == sizeof p->bytes) return check_length(p->n + 1, err);
        p->bytes[p->n++] = c;
    }
}

kv_rc kv_pass_find(int fd, kv_pass **out, kv_err *err)
{
    kv_pass *p = NULL;
    if (fd < 0) {
        const char *env = getenv("KVGRID_PASSPHRASE");
        if (env != NULL) return kv_pass_dup(env, strlen(env), out, err);
        *out = NULL;
        return KV_OK;
    }
    kv_rc rc = new_pass(&p, err);
    if (rc != KV_OK) return rc;
    rc = read_pass(fd, p, err);
    if (rc == KV_OK)
        *out = p;
    else
        kv_pass_free(p);
    return rc;
}

void kv_pass_free(kv_pass *p)
{
    sodium_free(p); /* wipes */
}

static kv_rc derive(const kv_key_text *t, const kv_pass *pass, uint8_t key[crypto_secretbox_KEYBYTES], kv_err *err)
{
    if (crypto_pwhash(key, crypto_secretbox_KEYBYTES, pass->bytes, pass->n, t->salt, (unsigned long long)t->ops,
                      (size_t)t->memory_bytes, crypto_pwhash_ALG_ARGON2ID13) != 0)
        return KV_FAIL(err, KV_ENOMEM, "no memory to derive a key from the passphrase (%lld bytes)",
                       (long long)t->memory_bytes);
    return KV_OK;
}

kv_rc kv_key_seal(kv_key_text *t, const uint8_t seed[32], const kv_pass *pass, kv_err *err)
{
    uint8_t key[crypto_secretbox_KEYBYTES];
    t->sealed = true;
    t->ops = (int64_t)crypto_pwhash_argon2id_OPSLIMIT_MODERATE;
    t->memory_bytes = (int64_t)crypto_pwhash_argon2id_MEMLIMIT_INTERACTIVE;
    randombytes_buf(t->salt, sizeof t->salt);
    randombytes_buf(t->nonce, sizeof t->nonce);
    kv_rc rc = derive(t, pass, key, err);
    if (rc == KV_OK) (void)crypto_secretbox_easy(t->box, seed, 32, t->nonce, key);
    sodium_memzero(key, sizeof key);
    return rc;
}

kv_rc kv_key_open(const kv_key_text *t, const char *name, const kv_pass *pass, uint8_t seed[32], kv_err *err)
{
    uint8_t key[crypto_secretbox_KEYBYTES];
    if (pass == NULL)
        return KV_FAIL(err, KV_ESIG, "%s: the key is sealed; give its passphrase (--pass-fd N or $KVGRID_PASSPHRASE)",
                       name);
    kv_rc rc = derive(t, pass, key, err);
    if (rc == KV_OK && crypto_secretbox_open_easy(seed, t->box, sizeof t->box, t->nonce, key) != 0)
        rc = KV_FAIL(err, KV_ESIG, "%s: the passphrase is wrong (or the file was changed)", name);
    sodium_memzero(key, sizeof key);
    return rc;
}
