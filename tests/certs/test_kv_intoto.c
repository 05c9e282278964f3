/* The in-toto statement of a certificate, and the DSSE envelope around it. */
#include "tests/kv_test.h"

#include "certs/kv_intoto.h"
#include "certs/kv_json.h"

#include <sodium.h>

#define HEX64 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* Just what the statement reads: rows come out of order, with two tails and a second geometry. */
static const char document[] =
    "{'schema':'kvgrid.certificate/v1','body_digest':'" HEX64 "','signature':{'key_id':'0123456789abcdef'},"
    "'campaign':{'name':'small','digest':'" HEX64 "'},"
    "'geometries':[{'layers':3,'tokens':40,'kv_heads':2,'head_dim':8,'element':'f16'},"
    "{'layers':1,'tokens':7,'kv_heads':1,'head_dim':4,'head_dim_v':2,'element':'bf16'}],"
    "'checks':[{'name':'token_leg_not_vacuous','passed':true}],'controls':[{'name':'mla_destination','passed':true}],"
    "'run':{'devices':[{'device':'cpu'}]},'floors':{'refused':1},'observed':{'rows':5},"
    "'rows':["
    "{'check':'pair','pair_id':'b->a','geometry':1,'params':{},'verdict':'REFUSED','proof':{'positions_checked':null}},"
    "{'check':'pair','pair_id':'a->b','geometry':0,'params':{'tail':'zero'},'verdict':'EXACT_BYTE','proof':{'positions_"
    "checked':9}},"
    "{'check':'pair','pair_id':'a->b','geometry':0,'params':{'tail':'stale'},'verdict':'EXACT_TOKEN','proof':{}},"
    "{'check':'pair','pair_id':'a->c','geometry':0,'params':{},'verdict':'NOT_EXACT','transformations':['reblock','"
    "requantize'],'proof':{}}]}";

static json_t *statement_of(json_t *doc, const char *file_name, const char *bytes)
{
    kv_err err = {0};
    json_t *s = NULL;
    const kv_intoto_source source = {doc, file_name, bytes, strlen(bytes), NULL};
    kvt_ok(kv_intoto_statement(&source, &s, &err), &err);
    return s;
}

/* The canonical text of the value at a path of one or two keys equals text (' for "). */
static void expect(const json_t *s, const char *key, const char *sub, const char *text)
{
    kv_buf got = {0};
    kv_err err = {0};
    const json_t *v = json_object_get(s, key);
    if (sub != NULL) v = json_object_get(v, sub);
    kvt_ok(kv_json_write(v, &got, &err), &err);
    for (char *c = got.data; *c != '\0'; c++)
        if (*c == '"') *c = '\'';
    assert_string_equal(got.data, text);
    kv_buf_free(&got);
}

static void pae__is_that_of_the_dsse_protocol(void **state)
{
    (void)state;
    kv_buf pae = {0};
    kv_err err = {0};
    /* protocol.md, "Test Vectors" */
    kvt_ok(kv_intoto_pae("http://example.com/HelloWorld", "hello world", 11, &pae, &err), &err);
    assert_string_equal(pae.data, "DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    kv_buf_free(&pae);
    kvt_ok(kv_intoto_pae("", "", 0, &pae, &err), &err);
    assert_string_equal(pae.data, "DSSEv1 0  0 ");
    kv_buf_free(&pae);
    kvt_ok(kv_intoto_pae("t", "a\0b", 3, &pae, &err), &err); /* a length, not a string */
    assert_int_equal(pae.len, 16);
    assert_memory_equal(pae.data, "DSSEv1 1 t 3 a\0b", 16);
    kv_buf_free(&pae);
}

static void statement__has_the_fields_of_the_predicate(void **state)
{
    (void)state;
    json_t *doc = kvt_json(document), *s = statement_of(doc, "small.cert.json", "abc");
    expect(s, "_type", NULL, "'https://in-toto.io/Statement/v1'");
    expect(s, "predicateType", NULL, "'https://in-toto.io/attestation/test-result/v0.1'");
    /* SHA-256 of "abc", FIPS 180-2 */
    expect(s, "subject", NULL,
           "[{'digest':{'sha256':'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'},"
           "'name':'small.cert.json'}]");
    expect(s, "predicate", "result", "'PASSED'");
    expect(s, "predicate", "configuration", "[{'digest':{'blake2b':'" HEX64 "'},'name':'small'}]");
    expect(s, "predicate", "passedTests",
           "['a->b@L=3,T=40,H=2,D=8,e=f16,tail=stale','a->b@L=3,T=40,H=2,D=8,e=f16,tail=zero','a->c@L=3,T=40,H=2,D=8,e="
           "f16',"
           "'b->a@L=1,T=7,H=1,D=4,Dv=2,e=bf16','mla_destination','token_leg_not_vacuous']");
    expect(s, "predicate", "warnedTests", "[]");
    expect(s, "predicate", "failedTests", "[]");
    expect(s, "predicate", "kvgrid",
           "{'body_digest':'" HEX64
           "','certificate':{'digest':{'sha256':'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'},"
           "'name':'small.cert.json'},'floors':{'refused':1},'key_id':'0123456789abcdef','observed':{'rows':5}}");
    json_decref(s);
    json_decref(doc);
}

static void statement__takes_the_subject_of_the_certificate(void **state)
{
    (void)state;
    json_t *doc = kvt_json(document);
    json_object_set_new(doc, "subject", json_pack("{s:s,s:s}", "name", "llama", "digest", "sha256:" HEX64));
    json_t *s = statement_of(doc, "small.cert.json", "abc");
    expect(s, "subject", NULL, "[{'digest':{'sha256':'" HEX64 "'},'name':'llama'}]");
    json_decref(s);
    json_decref(doc);
}

static void set_verdict(json_t *doc, size_t row, const char *verdict)
{
    json_object_set_new(json_array_get(json_object_get(doc, "rows"), row), "verdict", json_string(verdict));
}

static void result__is_the_worst_of_all_tests(void **state)
{
    (void)state;
    json_t *doc = kvt_json(document), *s;
    set_verdict(doc, 3, "UNPROVEN");
    s = statement_of(doc, "c", "");
    expect(s, "predicate", "result", "'WARNED'");
    expect(s, "predicate", "warnedTests", "['a->c@L=3,T=40,H=2,D=8,e=f16']");
    json_decref(s);
    set_verdict(doc, 0, "FAILED");
    s = statement_of(doc, "c", "");
    expect(s, "predicate", "result", "'FAILED'");
    expect(s, "predicate", "failedTests", "['b->a@L=1,T=7,H=1,D=4,Dv=2,e=bf16']");
    expect(s, "predicate", "warnedTests", "['a->c@L=3,T=40,H=2,D=8,e=f16']");
    json_decref(s);
    json_decref(doc);
    doc = kvt_json(document); /* not exact, though the element types are equal: a wrong translator */
    json_array_remove(json_object_get(json_array_get(json_object_get(doc, "rows"), 3), "transformations"), 1);
    s = statement_of(doc, "c", "");
    expect(s, "predicate", "result", "'FAILED'");
    expect(s, "predicate", "failedTests", "['a->c@L=3,T=40,H=2,D=8,e=f16']");
    json_decref(s);
    json_decref(doc);
    static const char *const lists[] = {"checks", "controls"}; /* the verifier refuses these; nobody says PASSED */
    for (size_t i = 0; i < KVT_COUNT(lists); i++) {
        doc = kvt_json(document);
        json_object_set_new(json_array_get(json_object_get(doc, lists[i]), 0), "passed", json_false());
        s = statement_of(doc, "c", "");
        expect(s, "predicate", "result", "'FAILED'");
        json_decref(s);
        json_decref(doc);
    }
}

static void result__warns_of_a_run_that_proves_nothing_here(void **state)
{
    (void)state;
    json_t *doc = kvt_json(document), *s;
    json_object_set_new(json_object_get(doc, "run"), "devices",
                        json_pack("[{s:s},{s:s}]", "device", "cpu", "device", "emulated"));
    s = statement_of(doc, "c", "");
    expect(s, "predicate", "result", "'WARNED'");
    expect(s, "predicate", "warnedTests", "['emulated_device']");
    json_decref(s);
    json_decref(doc);
    doc = kvt_json(document);
    json_object_set_new(json_array_get(json_object_get(doc, "rows"), 1), "proof", json_object());
    s = statement_of(doc, "c", "");
    expect(s, "predicate", "result", "'WARNED'");
    expect(s, "predicate", "warnedTests", "['nothing_checked']");
    json_decref(s);
    json_decref(doc);
}

static void statement__refuses_what_it_cannot_say(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } cases[] = {
        {"rows", "null", "rows"},
        {"rows", "[{'check':'pair','pair_id':'a->b','geometry':0,'params':{},'verdict':'FINE','proof':{}}]", "FINE"},
        {"rows", "[{'check':'pair','pair_id':'a->b','geometry':7,'params':{},'verdict':'REFUSED','proof':{}}]",
         "layers"},
        {"rows", "[{'check':'pair','pair_id':'a->b','geometry':-1,'params':{},'verdict':'REFUSED','proof':{}}]",
         "layers"},
        {"rows", "[{'check':'pair','pair_id':'a->b','geometry':0,'params':{'tail':1},'verdict':'REFUSED','proof':{}}]",
         "tail"},
        {"checks", "[{'passed':true}]", "name"},
        {"campaign", "{'name':'small'}", "digest"},
        {"floors", "null", "floors"},
        {"observed", "[]", "observed"},
        {"signature", "null", "key_id"},
        {"body_digest", "1", "body_digest"},
        {"subject", "{'name':'x','digest':'md5:00'}", "md5:00"},
        {"subject", "{'name':'x','digest':'sha256:00'}", "sha256:00"},
        {"subject", "null", "name"},
    };
    kv_err err = {0};
    json_t *out = NULL, *doc;
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        doc = kvt_json(document);
        json_object_set_new(doc, cases[i].key, kvt_json(cases[i].value));
        const kv_intoto_source source = {doc, "c", "", 0, NULL};
        kvt_refused(kv_intoto_statement(&source, &out, &err), KV_EFORMAT, &err, cases[i].value,
                    KVT_SAYS(cases[i].says));
        json_decref(doc);
    }
    static const char *const names[] = {"a\nb", "\xff.json", "\x7f"};
    doc = kvt_json(document);
    for (size_t i = 0; i < KVT_COUNT(names); i++) {
        const kv_intoto_source source = {doc, names[i], "", 0, NULL};
        kvt_refused(kv_intoto_statement(&source, &out, &err), KV_EINVAL, &err, "a file name", KVT_SAYS("file name"));
    }
    json_decref(doc);
    assert_null(out);
}

static void decode_base64(const json_t *v, uint8_t *out, size_t cap, size_t *n)
{
    const char *text = json_string_value(v);
    assert_non_null(text);
    assert_int_equal(sodium_base642bin(out, cap, text, strlen(text), NULL, n, NULL, sodium_base64_VARIANT_ORIGINAL), 0);
}

static void envelope__is_signed_over_the_pae_of_its_payload(void **state)
{
    (void)state;
    static uint8_t payload[65536];
    uint8_t seed[32] = {3}, sig[KV_KEY_SIG_BYTES];
    char id[KV_KEY_ID_HEX];
    size_t n = 0, n_sig = 0;
    kv_key *key = NULL;
    kv_buf text = {0}, again = {0}, pae = {0};
    kv_err err = {0};
    json_t *doc = kvt_json(document), *s = statement_of(doc, "c", "abc"), *e = NULL, *read = NULL;
    kvt_ok(kv_key_new(seed, &key, &err), &err);
    kvt_ok(kv_intoto_envelope(s, key, &text, &err), &err);
    kvt_ok(kv_intoto_envelope(s, key, &again, &err), &err);
    assert_string_equal(text.data, again.data);
    assert_int_equal(text.data[text.len - 1], '\n');
    assert_int_equal(strcspn(text.data, "\n"), text.len - 1); /* one line */
    kvt_ok(kv_json_parse(text.data, text.len, text.len, &e, &err), &err);
    assert_int_equal(json_object_size(e), 3);
    expect(e, "payloadType", NULL, "'application/vnd.in-toto+json'");
    const json_t *signature = json_array_get(json_object_get(e, "signatures"), 0);
    assert_int_equal(json_array_size(json_object_get(e, "signatures")), 1);
    kv_key_id_of(kv_key_public_view(key), id);
    assert_string_equal(json_string_value(json_object_get(signature, "keyid")), id);

    decode_base64(json_object_get(e, "payload"), payload, sizeof payload, &n);
    decode_base64(json_object_get(signature, "sig"), sig, sizeof sig, &n_sig);
    assert_int_equal(n_sig, sizeof sig);
    kvt_ok(kv_intoto_pae(KV_INTOTO_PAYLOAD_TYPE, payload, n, &pae, &err), &err);
    assert_true(kv_key_verify(kv_key_public_view(key), pae.data, pae.len, sig));
    assert_false(kv_key_verify(kv_key_public_view(key), payload, n, sig)); /* not the bare payload */
    pae.data[pae.len - 1] ^= 1;
    assert_false(kv_key_verify(kv_key_public_view(key), pae.data, pae.len, sig));
    kvt_ok(kv_json_parse(payload, n, n, &read, &err), &err);
    kvt_ok(kv_json_check_canonical(read, payload, n, &err), &err);
    assert_true(json_equal(read, s));
    json_decref(read);
    json_decref(e);
    json_decref(s);
    json_decref(doc);
    kv_buf_free(&text);
    kv_buf_free(&again);
    kv_buf_free(&pae);
    kv_key_free(key);
}

static void both__survive_any_failed_allocation(void **state)
{
    (void)state;
    json_t *doc = kvt_json(document);
    const kv_intoto_source source = {doc, "c", "", 0, NULL};
    kv_key *key = NULL;
    kv_err err = {0};
    kv_rc rc = KV_ENOMEM;
    kvt_ok(kv_key_new(NULL, &key, &err), &err);
    for (long n = 0; rc != KV_OK; n++) {
        json_t *s = NULL;
        kv_buf text = {0};
        kv_err_clear(&err);
        kv_alloc_fail_after(n);
        rc = kv_intoto_statement(&source, &s, &err);
        if (rc == KV_OK) rc = kv_intoto_envelope(s, key, &text, &err);
        kv_alloc_fail_after(-1);
        assert_true(rc == KV_OK || rc == KV_ENOMEM);
        json_decref(s);
        kv_buf_free(&text);
    }
    kv_key_free(key);
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pae__is_that_of_the_dsse_protocol),
        cmocka_unit_test(statement__has_the_fields_of_the_predicate),
        cmocka_unit_test(statement__takes_the_subject_of_the_certificate),
        cmocka_unit_test(result__is_the_worst_of_all_tests),
        cmocka_unit_test(result__warns_of_a_run_that_proves_nothing_here),
        cmocka_unit_test(statement__refuses_what_it_cannot_say),
        cmocka_unit_test(envelope__is_signed_over_the_pae_of_its_payload),
        cmocka_unit_test(both__survive_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
