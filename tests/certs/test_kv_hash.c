/* BLAKE2b-256 against answers of Python's hashlib, and hex both ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "certs/kv_hash.h"

#include <string.h>

static void hash__gives_the_known_answers(void **state)
{
    (void)state;
    char hex[KV_HASH_HEX];
    kv_hash_hex("", 0, hex);
    assert_string_equal(hex, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
    kv_hash_hex("abc", 3, hex);
    assert_string_equal(hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

static void hash__does_not_depend_on_the_pieces(void **state)
{
    (void)state;
    unsigned char bytes[1000];
    char whole[KV_HASH_HEX], pieces[KV_HASH_HEX];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7);
    kv_hash_hex(bytes, sizeof bytes, whole);
    for (size_t step = 1; step < 300; step += 37) {
        kv_hash h;
        kv_hash_init(&h);
        for (size_t at = 0; at < sizeof bytes; at += step)
            kv_hash_update(&h, bytes + at, at + step < sizeof bytes ? step : sizeof bytes - at);
        kv_hash_final_hex(&h, pieces);
        assert_string_equal(pieces, whole);
    }
}

static void hash_json__is_over_the_canonical_bytes(void **state)
{
    (void)state;
    static const char *const skip[] = {"run", NULL};
    static const char whole[] = "{\"a\":[2],\"b\":1,\"run\":{\"run\":3}}", without[] = "{\"a\":[2],\"b\":1}";
    char a[KV_HASH_HEX], b[KV_HASH_HEX];
    json_t *v = json_pack("{s:i,s:[i],s:{s:i}}", "b", 1, "a", 2, "run", "run", 3);
    assert_int_equal(kv_hash_json(v, NULL, a, NULL), KV_OK);
    kv_hash_hex(whole, strlen(whole), b);
    assert_string_equal(a, b);
    assert_int_equal(kv_hash_json(v, skip, a, NULL), KV_OK);
    kv_hash_hex(without, strlen(without), b);
    assert_string_equal(a, b);
    json_decref(v);
}

static void hex__is_strict(void **state)
{
    (void)state;
    uint8_t bytes[2];
    char text[5];
    assert_true(kv_hex_decode("0aff", bytes, 2));
    kv_hex_encode(bytes, 2, text);
    assert_string_equal(text, "0aff");
    assert_false(kv_hex_decode("0AFF", bytes, 2));
    assert_false(kv_hex_decode("0af", bytes, 2));
    assert_false(kv_hex_decode("0aff0", bytes, 2));
    assert_false(kv_hex_decode("0ag0", bytes, 2));
    assert_false(kv_hex_decode("", bytes, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash__gives_the_known_answers),
        cmocka_unit_test(hash__does_not_depend_on_the_pieces),
        cmocka_unit_test(hash_json__is_over_the_canonical_bytes),
        cmocka_unit_test(hex__is_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
