#include "certs/kv_hash.h"

#include "certs/kv_json.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

static_assert(sizeof(crypto_generichash_blake2b_state) <= sizeof(kv_hash), "the state must fit its opaque box");
static_assert(_Alignof(crypto_generichash_blake2b_state) <= _Alignof(kv_hash), "and its alignment");

static crypto_generichash_blake2b_state *state_of(kv_hash *h)
{
    return (crypto_generichash_blake2b_state *)(void *)h->opaque;
}

void kv_hash_init(kv_hash *h)
{
    (void)crypto_generichash_blake2b_init(state_of(h), NULL, 0, KV_HASH_BYTES); /* cannot fail for 32 bytes, no key */
}

void kv_hash_update(kv_hash *h, const void *bytes, size_t n)
{
    if (n > 0) (void)crypto_generichash_blake2b_update(state_of(h), bytes, n);
}

void kv_hash_final(kv_hash *h, uint8_t out[KV_HASH_BYTES])
{
    (void)crypto_generichash_blake2b_final(state_of(h), out, KV_HASH_BYTES);
}

void kv_hash_final_hex(kv_hash *h, char out[KV_HASH_HEX])
{
    uint8_t digest[KV_HASH_BYTES];
    kv_hash_final(h, digest);
    kv_hex_encode(digest, sizeof digest, out);
}

void kv_hash_bytes(const void *bytes, size_t n, uint8_t out[KV_HASH_BYTES])
{
    kv_hash h;
    kv_hash_init(&h);
    kv_hash_update(&h, bytes, n);
    kv_hash_final(&h, out);
}

void kv_hash_hex(const void *bytes, size_t n, char out[KV_HASH_HEX])
{
    uint8_t digest[KV_HASH_BYTES];
    kv_hash_bytes(bytes, n, digest);
    kv_hex_encode(digest, sizeof digest, out);
}

static kv_rc to_hash(void *ctx, const void *bytes, size_t n, kv_err *err)
{
    (void)err;
    kv_hash_update(ctx, bytes, n);
    return KV_OK;
}

kv_rc kv_hash_json(const json_t *v, const char *const *skip, char out[KV_HASH_HEX], kv_err *err)
{
    kv_hash h;
    kv_hash_init(&h);
    kv_rc rc = kv_json_write_sink(v, skip, to_hash, &h, err);
    if (rc == KV_OK) kv_hash_final_hex(&h, out);
    return rc;
}

void kv_hex_encode(const uint8_t *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

bool kv_hex_decode(const char *text, uint8_t *out, size_t n)
{
    if (strnlen(text, 2 * n + 1) != 2 * n) return false;
    for (size_t i = 0; i < n; i++) {
        int hi = digit_value(text[2 * i]), lo = digit_value(text[2 * i + 1]);
        if (hi < 0 || lo < 0) return false;
        out[i] = (uint8_t)(hi * 16 + lo);
    }
    return true;
}
