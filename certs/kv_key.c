/* Secret keys: made, loaded, used. */
#include "certs/kv_key.h"

#include "base/kv_file.h"
#include "certs/kv_hash.h"
#include "certs/kv_key_int.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static_assert(KV_KEY_PUBLIC_BYTES == crypto_sign_ed25519_PUBLICKEYBYTES, "public key");
static_assert(KV_KEY_SIG_BYTES == crypto_sign_ed25519_BYTES, "signature");
static_assert(sizeof(((kv_key_text *)0)->seed) == crypto_sign_ed25519_SEEDBYTES, "seed");

struct kv_key {
    uint8_t secret[crypto_sign_ed25519_SECRETKEYBYTES];
    uint8_t public_key[KV_KEY_PUBLIC_BYTES];
};

kv_rc kv_key_start(kv_err *err)
{
    if (sodium_init() < 0) return KV_FAIL(err, KV_EUNSUP, "libsodium cannot start (no source of random bits?)");
    return KV_OK;
}

static kv_rc key_from_seed(const uint8_t seed[32], kv_key **out, kv_err *err)
{
    kv_key *k = sodium_malloc(sizeof *k);
    if (k == NULL) return KV_FAIL(err, KV_ENOMEM, "no guarded memory for a key");
    (void)crypto_sign_ed25519_seed_keypair(k->public_key, k->secret, seed);
    *out = k;
    return KV_OK;
}

kv_rc kv_key_new(const uint8_t *seed, kv_key **out, kv_err *err)
{
    uint8_t own[32];
    kv_rc rc = kv_key_start(err);
    if (rc != KV_OK) return rc;
    if (seed == NULL) randombytes_buf(own, sizeof own);
    rc = key_from_seed(seed != NULL ? seed : own, out, err);
    sodium_memzero(own, sizeof own);
    return rc;
}

void kv_key_free(kv_key *k)
{
    sodium_free(k); /* wipes */
}

const uint8_t *kv_key_public_view(const kv_key *k)
{
    return k->public_key;
}

void kv_key_id_of(const uint8_t public_key[KV_KEY_PUBLIC_BYTES], char out[KV_KEY_ID_HEX])
{
    uint8_t digest[KV_HASH_BYTES];
    kv_hash_bytes(public_key, KV_KEY_PUBLIC_BYTES, digest);
    kv_hex_encode(digest, (KV_KEY_ID_HEX - 1) / 2, out);
}

kv_rc kv_key_sign(const kv_key *k, const void *bytes, size_t n, uint8_t sig[KV_KEY_SIG_BYTES], kv_err *err)
{
    if (crypto_sign_ed25519_detached(sig, NULL, bytes, n, k->secret) != 0)
        return KV_FAIL(err, KV_EBUG, "%zu bytes could not be signed", n);
    return KV_OK;
}

bool kv_key_verify(const uint8_t public_key[KV_KEY_PUBLIC_BYTES], const void *bytes, size_t n,
                   const uint8_t sig[KV_KEY_SIG_BYTES])
{
    return crypto_sign_ed25519_verify_detached(sig, bytes, n, public_key) == 0;
}

kv_rc kv_key_parse(const char *text, size_t n, const char *name, const kv_pass *pass, kv_key **out, kv_err *err)
{
    kv_key_text t;
    kv_key *k = NULL;
    kv_rc rc = kv_key_start(err);
    if (rc != KV_OK) return rc;
    KV_TRY(rc, out, kv_key_text_parse(text, n, name, &t, err));
    if (t.sealed) KV_TRY(rc, out, kv_key_open(&t, name, pass, t.seed, err));
    KV_TRY(rc, out, key_from_seed(t.seed, &k, err));
    if (memcmp(k->public_key, t.public_key, sizeof t.public_key) != 0) {
        kv_key_free(k);
        rc = KV_FAIL(err, KV_EFORMAT, "%s: public_key does not belong to the secret key", name);
        goto out;
    }
    *out = k;
out:
    sodium_memzero(&t, sizeof t);
    return rc;
}

/* The bytes of an open secret key file into guarded memory of KV_KEY_FILE_MAX + 1 bytes. */
static kv_rc read_secret(int fd, const char *path, char *text, size_t *n, kv_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return KV_FAIL(err, KV_EREAD, "%s: cannot be read: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return KV_FAIL(err, KV_EREAD, "%s: is a directory, a key file is needed", path);
    if (!S_ISREG(st.st_mode) && !(S_ISFIFO(st.st_mode) && kv_path_is_descriptor(path)))
        return KV_FAIL(err, KV_EREAD,
                       "%s: is a pipe or device, a key file is needed (or /dev/fd/N, for a pipe that is open already)",
                       path);
    if (fcntl(fd, F_SETFL, O_RDONLY) != 0)
        return KV_FAIL(err, KV_EREAD, "%s: cannot be read: %s", path, strerror(errno));
    if ((st.st_mode & 077) != 0)
        return KV_FAIL(err, KV_ESIG, "%s: mode %04o lets group or others use this secret key; run: chmod 600 %s", path,
                       (unsigned)(st.st_mode & 07777), path);
    for (*n = 0;;) {
        const kv_rc rc = S_ISFIFO(st.st_mode) ? kv_file_wait(fd, path, KV_FILE_WAIT_S, err) : KV_OK;
        if (rc != KV_OK) return rc;
        ssize_t got = read(fd, text + *n, KV_KEY_FILE_MAX + 1 - *n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return KV_FAIL(err, KV_EREAD, "%s: cannot be read: %s", path, strerror(errno));
        if (got == 0) return KV_OK;
        *n += (size_t)got;
        if (*n > KV_KEY_FILE_MAX) return KV_FAIL(err, KV_EFORMAT, "%s: too large for a key file", path);
    }
}

kv_rc kv_key_load(const char *path, const kv_pass *pass, kv_key **out, kv_err *err)
{
    size_t n = 0;
    kv_rc rc = kv_key_start(err);
    if (rc != KV_OK) return rc;
    char *text = sodium_malloc(KV_KEY_FILE_MAX + 1);
    if (text == NULL) return KV_FAIL(err, KV_ENOMEM, "no guarded memory for %s", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not hold us up */
    if (fd < 0) {
        rc = KV_FAIL(err, KV_EREAD, "%s: the secret key cannot be opened: %s", path, strerror(errno));
        goto out;
    }
    KV_TRY(rc, out_close, read_secret(fd, path, text, &n, err));
    rc = kv_key_parse(text, n, path, pass, out, err);
out_close:
    close(fd);
out:
    sodium_free(text);
    return rc;
}

/* Writes both files; on any error takes back what it wrote. */
static kv_rc write_pair(const char *path, const char *pub_path, const kv_buf *secret, const kv_buf *pub, kv_err *err)
{
    kv_rc rc = kv_file_write(path, secret->data, secret->len, 0600, KV_FILE_NEW, err);
    if (rc != KV_OK) return rc;
    rc = kv_file_write(pub_path, pub->data, pub->len, 0644, KV_FILE_NEW, err);
    if (rc != KV_OK) (void)unlink(path); /* ours, and useless without its other half */
    return rc;
}

static kv_rc generate(const char *path, const char *pub_path, const kv_pass *pass, char *key_id, kv_err *err)
{
    kv_key_text t = {0};
    kv_buf secret = {0}, pub = {0};
    kv_key *k = NULL;
    kv_rc rc;
    randombytes_buf(t.seed, sizeof t.seed);
    KV_TRY(rc, out, key_from_seed(t.seed, &k, err));
    memcpy(t.public_key, k->public_key, sizeof t.public_key);
    if (pass != NULL) KV_TRY(rc, out, kv_key_seal(&t, t.seed, pass, err));
    KV_TRY(rc, out, kv_buf_puts(&secret, "", err)); /* 256 bytes at once: an unsealed key text has fewer, so that */
    KV_TRY(rc, out, kv_key_text_write(&t, &secret, err)); /* no grown-out-of copy of the secret is left behind */
    KV_TRY(rc, out, kv_trust_line(t.public_key, &pub, err));
    KV_TRY(rc, out, write_pair(path, pub_path, &secret, &pub, err));
    kv_key_id_of(t.public_key, key_id);
out:
    if (secret.data != NULL) sodium_memzero(secret.data, secret.cap);
    kv_buf_free(&secret);
    kv_buf_free(&pub);
    kv_key_free(k);
    sodium_memzero(&t, sizeof t);
    return rc;
}

kv_rc kv_key_generate(const char *path, const kv_pass *pass, char key_id[KV_KEY_ID_HEX], kv_err *err)
{
    kv_buf pub_path = {0};
    kv_rc rc;
    KV_TRY(rc, out, kv_key_start(err));
    KV_TRY(rc, out, kv_buf_printf(&pub_path, err, "%s.pub", path));
    const char *taken = kv_path_exists(path) ? path : kv_path_exists(pub_path.data) ? pub_path.data : NULL;
    if (taken != NULL) {
        rc = KV_FAIL(err, KV_EEXIST, "%s: exists and is not overwritten; remove it or name another", taken);
        goto out;
    }
    rc = generate(path, pub_path.data, pass, key_id, err);
out:
    kv_buf_free(&pub_path);
    return rc;
}
