/* Secret key files and public keys files: any bytes. Without a passphrase, so that no sealed file is opened
 * (Argon2id would take all the time). */
#include "certs/kv_key.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

/* One clear line that names the file, or nothing. */
static void check_error(kv_rc rc, const kv_err *err)
{
    must(rc == KV_EFORMAT || rc == KV_ESIG);
    must(strncmp(err->text, "file: ", 6) == 0 && strchr(err->text, '\n') == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kv_key *key = NULL;
    kv_trust *trust = NULL;
    uint8_t sig[KV_KEY_SIG_BYTES];
    kv_err err = {0};
    kv_rc rc = kv_key_parse((const char *)data, size, "file", NULL, &key, &err);
    if (rc == KV_OK) {
        must(kv_key_sign(key, data, size, sig, NULL) == KV_OK);
        must(kv_key_verify(kv_key_public_view(key), data, size, sig));
        kv_key_free(key);
    } else {
        check_error(rc, &err);
    }
    kv_err_clear(&err);
    rc = kv_trust_parse((const char *)data, size, "file", &trust, &err);
    if (rc == KV_OK) {
        must(kv_trust_count(trust) > 0);
        kv_trust_free(trust);
    } else {
        check_error(rc, &err);
    }
    return 0;
}
