/* Public keys that a caller trusts, and where keys are looked for. */
#include "certs/kv_key.h"

#include "base/kv_file.h"
#include "certs/kv_hash.h"
#include "certs/kv_key_int.h"

#include <stdlib.h>
#include <string.h>

struct kv_trust {
    size_t n;
    uint8_t (*keys)[KV_KEY_PUBLIC_BYTES];
};

kv_rc kv_trust_line(const uint8_t public_key[KV_KEY_PUBLIC_BYTES], kv_buf *out, kv_err *err)
{
    char hex[KV_KEY_PUBLIC_HEX], id[KV_KEY_ID_HEX];
    kv_hex_encode(public_key, KV_KEY_PUBLIC_BYTES, hex);
    kv_key_id_of(public_key, id);
    return kv_buf_printf(out, err, "ed25519 %s %s\n", id, hex);
}

static kv_rc add_key(kv_trust *t, const uint8_t key[KV_KEY_PUBLIC_BYTES], kv_err *err)
{
    void *grown = kv_realloc(t->keys, t->n + 1, sizeof *t->keys);
    if (grown == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu public keys", t->n + 1);
    t->keys = grown;
    memcpy(t->keys[t->n++], key, KV_KEY_PUBLIC_BYTES);
    return KV_OK;
}

/* Splits line at blanks in place into at most max words; the count. */
static size_t split(char *line, char **words, size_t max)
{
    size_t n = 0;
    for (char *save = NULL, *w = strtok_r(line, " \t", &save); w != NULL && n < max; w = strtok_r(NULL, " \t", &save))
        words[n++] = w;
    return n;
}

/* One line: "ed25519 KEY_ID PUBLIC_KEY [comment]", blank, or "# comment". NULL when good. */
static const char *parse_line(char *line, uint8_t key[KV_KEY_PUBLIC_BYTES], bool *has_key)
{
    char *word[3], id[KV_KEY_ID_HEX];
    size_t n = split(line, word, 3);
    *has_key = false;
    if (n == 0 || word[0][0] == '#') return NULL;
    if (strncmp(word[0], "kvgrid", 6) == 0) return "this is a secret key file, a public key is needed (FILE.pub)";
    if (strcmp(word[0], "ed25519") != 0 || n < 3) return "\"ed25519 KEY_ID PUBLIC_KEY\" is expected";
    if (!kv_hex_decode(word[2], key, KV_KEY_PUBLIC_BYTES)) return "a public key has 64 lower-case hex digits";
    kv_key_id_of(key, id);
    if (strcmp(word[1], id) != 0) return "the key id does not belong to the public key";
    *has_key = true;
    return NULL;
}

kv_rc kv_trust_parse(const char *text, size_t n, const char *name, kv_trust **out, kv_err *err)
{
    char line[1024];
    size_t at = 0;
    bool bad;
    kv_rc rc = KV_OK;
    kv_trust *t = kv_alloc(1, sizeof *t);
    if (t == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for public keys");
    for (int no = 1; kv_key_next_line(text, n, &at, line, sizeof line, &bad); no++) {
        uint8_t key[KV_KEY_PUBLIC_BYTES];
        bool has_key = false;
        const char *wrong = bad ? "not a line of a public keys file" : parse_line(line, key, &has_key);
        if (wrong != NULL) {
            rc = KV_FAIL(err, KV_EFORMAT, "%s: line %d: %s", name, no, wrong);
            goto out;
        }
        if (has_key) KV_TRY(rc, out, add_key(t, key, err));
    }
    if (t->n == 0) rc = KV_FAIL(err, KV_EFORMAT, "%s: holds no public key", name);
out:
    if (rc == KV_OK)
        *out = t;
    else
        kv_trust_free(t);
    return rc;
}

kv_rc kv_trust_load(const char *path, kv_trust **out, kv_err *err)
{
    kv_buf text = {0};
    kv_rc rc = kv_file_read(path, KV_KEY_FILE_MAX, &text, err);
    if (rc == KV_OK) rc = kv_trust_parse(text.data, text.len, path, out, err);
    kv_buf_free(&text);
    return rc;
}

kv_rc kv_trust_of_key(const kv_key *k, kv_trust **out, kv_err *err)
{
    kv_trust *t = kv_alloc(1, sizeof *t);
    if (t == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a public key");
    kv_rc rc = add_key(t, kv_key_public_view(k), err);
    if (rc == KV_OK)
        *out = t;
    else
        kv_trust_free(t);
    return rc;
}

void kv_trust_free(kv_trust *t)
{
    if (t == NULL) return;
    kv_free(t->keys);
    kv_free(t);
}

size_t kv_trust_count(const kv_trust *t)
{
    return t != NULL ? t->n : 0;
}

bool kv_trust_has(const kv_trust *t, const uint8_t public_key[KV_KEY_PUBLIC_BYTES])
{
    for (size_t i = 0; i < kv_trust_count(t); i++)
        if (memcmp(t->keys[i], public_key, KV_KEY_PUBLIC_BYTES) == 0) return true;
    return false;
}

static const char *env_path(const char *name)
{
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

/* "<config folder>/kvgrid/<file>"; *out is NULL where there is no such folder to name. */
static kv_rc config_path(const char *file, char **out, kv_err *err)
{
    kv_buf path = {0};
    const char *dir = env_path("XDG_CONFIG_HOME"), *home = env_path("HOME");
    *out = NULL;
    if (dir == NULL && home == NULL) return KV_OK;
    kv_rc rc = dir != NULL ? kv_buf_printf(&path, err, "%s/kvgrid/%s", dir, file)
                           : kv_buf_printf(&path, err, "%s/.config/kvgrid/%s", home, file);
    if (rc == KV_OK)
        *out = path.data;
    else
        kv_buf_free(&path);
    return rc;
}

static kv_rc dup_path(const char *path, char **out, kv_err *err)
{
    *out = kv_strdup(path);
    return *out != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for the path %s", path);
}

kv_rc kv_key_find_path(const char *given, char **out, kv_err *err)
{
    const char *named = given != NULL ? given : env_path("KVGRID_KEY");
    if (named != NULL) return dup_path(named, out, err);
    char *path = NULL;
    kv_rc rc = config_path("key.sec", &path, err);
    if (rc != KV_OK) return rc;
    if (path == NULL || !kv_path_exists(path)) {
        rc = KV_FAIL(err, KV_EREAD,
                     "no secret key: none given (--key FILE), $KVGRID_KEY is not set, %s%s; make one with: "
                     "kvgrid keygen FILE",
                     path != NULL ? path : "and there is no config folder", path != NULL ? " does not exist" : "");
        kv_free(path);
        return rc;
    }
    *out = path;
    return KV_OK;
}

kv_rc kv_trust_find_path(const char *given, char **out, kv_err *err)
{
    const char *named = given != NULL ? given : env_path("KVGRID_TRUST");
    if (named != NULL) return dup_path(named, out, err);
    kv_rc rc = config_path("trusted.pub", out, err);
    if (rc == KV_OK && *out != NULL && !kv_path_exists(*out)) {
        kv_free(*out);
        *out = NULL;
    }
    return rc;
}
