/* Sealing: digests, what is signed, and that any changed byte breaks it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "certs/kv_cert.h"
#include "certs/kv_cert_names.h"
#include "certs/kv_json.h"

#include <string.h>

static json_t *small_document(void)
{
    return json_pack("{ss,s[ii],s{si}}", "schema", KV_CERT_SCHEMA, "rows", 1, 2, "run", "ranks", 8);
}

static void seal__adds_digest_and_signature(void **state)
{
    (void)state;
    uint8_t seed[32] = {7}, sig[KV_KEY_SIG_BYTES];
    char want[KV_HASH_HEX];
    kv_key *k = NULL;
    kv_buf out = {0}, message = {0};
    json_t *doc = small_document(), *read = NULL;
    static const char body[] = "{\"rows\":[1,2],\"schema\":\"kvgrid.certificate/v1\"}";
    assert_int_equal(kv_key_new(seed, &k, NULL), KV_OK);
    assert_int_equal(kv_cert_seal(doc, k, &out, NULL), KV_OK);
    assert_int_equal(kv_json_parse(out.data, out.len, out.len, &read, NULL), KV_OK);
    assert_int_equal(kv_json_check_canonical(read, out.data, out.len, NULL), KV_OK);
    kv_hash_hex(body, strlen(body), want);
    assert_string_equal(json_string_value(json_object_get(read, "body_digest")), want);
    const json_t *s = json_object_get(read, "signature");
    assert_true(kv_hex_decode(json_string_value(json_object_get(s, "sig")), sig, sizeof sig));
    assert_string_equal(json_string_value(json_object_get(s, "alg")), "ed25519");
    assert_int_equal(kv_cert_signed_bytes(read, &message, NULL), KV_OK);
    assert_true(kv_key_verify(kv_key_public_view(k), message.data, message.len, sig));
    message.data[5] ^= 1;
    assert_false(kv_key_verify(kv_key_public_view(k), message.data, message.len, sig));
    kv_buf_free(&message);
    json_decref(read);
    json_decref(doc);
    kv_buf_free(&out);
    kv_key_free(k);
}

/* run and key may differ, the body digest may not. */
static void seal__body_digest_is_only_of_the_body(void **state)
{
    (void)state;
    char first[KV_HASH_HEX], again[KV_HASH_HEX];
    kv_key *k = NULL;
    kv_buf out = {0};
    json_t *doc = small_document();
    assert_int_equal(kv_cert_body_digest(doc, first, NULL), KV_OK);
    assert_int_equal(kv_key_new(NULL, &k, NULL), KV_OK);
    assert_int_equal(json_object_set_new(doc, "run", json_pack("{si}", "ranks", 1)), 0);
    assert_int_equal(kv_cert_seal(doc, k, &out, NULL), KV_OK);
    assert_int_equal(kv_cert_body_digest(doc, again, NULL), KV_OK);
    assert_string_equal(first, again);
    kv_buf_free(&out);
    assert_int_equal(json_object_set_new(doc, "note", json_real(0.1)), 0);
    assert_int_equal(kv_cert_seal(doc, k, &out, NULL), KV_EFORMAT);
    assert_null(out.data);
    json_decref(doc);
    kv_key_free(k);
}

/* The same bytes, whether the first member stands in the document or beside it as text. */
static void seal__with_a_text_beside_gives_the_same(void **state)
{
    (void)state;
    uint8_t seed[32] = {7};
    kv_key *k = NULL;
    kv_buf whole = {0}, joined = {0}, text = {0};
    json_t *doc = small_document(), *list = json_pack("[{s:i},{s:s},[]]", "z", 1, "a", "\"]}");
    assert_int_equal(kv_key_new(seed, &k, NULL), KV_OK);
    assert_int_equal(kv_json_write(list, &text, NULL), KV_OK);
    assert_int_equal(kv_cert_seal_with(doc, "AAA", &text, k, &joined, NULL), KV_OK);
    assert_int_equal(json_object_set_new(doc, "AAA", list), 0);
    assert_int_equal(kv_cert_seal(doc, k, &whole, NULL), KV_OK);
    assert_string_equal(joined.data, whole.data);
    json_decref(doc);
    kv_buf_free(&whole);
    kv_buf_free(&joined);
    kv_buf_free(&text);
    kv_key_free(k);
}

static void seal__survives_every_failed_allocation(void **state)
{
    (void)state;
    uint8_t seed[32] = {9};
    kv_key *k = NULL;
    assert_int_equal(kv_key_new(seed, &k, NULL), KV_OK);
    for (long n = 0;; n++) {
        kv_buf out = {0};
        json_t *doc = small_document();
        kv_alloc_fail_after(n);
        kv_rc rc = kv_cert_seal(doc, k, &out, NULL);
        kv_alloc_fail_after(-1);
        json_decref(doc);
        kv_buf_free(&out);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
    }
    kv_key_free(k);
}

static void campaign_digest__covers_spec_and_every_layout(void **state)
{
    (void)state;
    char digest[KV_HASH_HEX], want[KV_HASH_HEX];
    json_t *spec = json_pack("{ss}", "name", "n");
    json_t *catalogue = json_pack("[{ssss},{ssss}]", "name", "b", "digest", "22", "name", "a", "digest", "11");
    static const char text[] = "{\"layouts\":{\"a\":\"11\",\"b\":\"22\"},\"spec\":{\"name\":\"n\"}}";
    assert_int_equal(kv_cert_campaign_digest(spec, catalogue, digest, NULL), KV_OK);
    kv_hash_hex(text, strlen(text), want);
    assert_string_equal(digest, want);
    json_decref(spec);
    json_decref(catalogue);
}

static void names__go_both_ways_and_words_are_sorted(void **state)
{
    (void)state;
    for (int i = 0; i < KV_WORD_COUNT; i++) {
        kv_word w = KV_WORD_COUNT;
        assert_true(kv_word_parse(kv_word_name((kv_word)i), &w));
        assert_int_equal(w, i);
        if (i > 0) assert_true(strcmp(kv_word_name((kv_word)(i - 1)), kv_word_name((kv_word)i)) < 0);
    }
    for (int i = 0; i < KV_VERDICT_COUNT; i++) {
        kv_verdict v = KV_VERDICT_COUNT;
        assert_true(kv_verdict_parse(kv_verdict_name((kv_verdict)i), &v));
        assert_int_equal(v, i);
    }
    for (int i = 0; i < KV_LEMMA_COUNT; i++) {
        kv_lemma l = KV_LEMMA_COUNT;
        assert_true(kv_lemma_parse(kv_lemma_name((kv_lemma)i), &l));
        assert_int_equal(l, i);
    }
    kv_frontier f = KV_FRONTIER_COUNT;
    assert_true(kv_frontier_parse("X2_HEAD_GATHER", &f));
    assert_int_equal(f, KV_FRONTIER_X2);
    assert_false(kv_frontier_parse("X3", &f));
    kv_word w;
    assert_false(kv_word_parse("", &w));
    kv_errclass e = KV_ERRCLASS_COUNT;
    assert_true(kv_errclass_parse("io", &e));
    for (int i = 0; i < KV_HCODE_COUNT; i++) assert_int_equal(kv_hcode_name((kv_hcode)i)[0], 'H');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seal__adds_digest_and_signature),
        cmocka_unit_test(seal__body_digest_is_only_of_the_body),
        cmocka_unit_test(seal__with_a_text_beside_gives_the_same),
        cmocka_unit_test(seal__survives_every_failed_allocation),
        cmocka_unit_test(campaign_digest__covers_spec_and_every_layout),
        cmocka_unit_test(names__go_both_ways_and_words_are_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
