#include "certs/kv_sha256.h"

#include <sodium.h>

void kv_sha256_hex(const void *bytes, size_t n, char out[KV_SHA256_HEX])
{
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(digest, bytes, n);
    sodium_bin2hex(out, KV_SHA256_HEX, digest, sizeof digest);
}
