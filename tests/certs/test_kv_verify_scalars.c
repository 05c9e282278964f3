/* A sound certificate with one scalar of its body changed and signed anew by a trusted key: each change is
 * refused, or its place is in the table of those that nothing but another run can check. */
#include "tests/kv_test.h"

#include "certs/kv_cert.h"
#include "certs/kv_json.h"
#include "certs/kv_verify.h"

/* Fields that carry free text, or a measurement that only another run can repeat. A star stands for an index. */
static const char *const not_derivable[] = {
    "$.checks[*].detail", /* text */
    "$.controls[*].detail",
    "$.known_limits[*].text",
    "$.method.reproduce",
    "$.method.payload_kinds[*]",
    "$.method.tail_bits.stale.*", /* any two patterns that keep the tail model */
    "$.bindings[*].reason",
    "$.rows[*].frontier_reason",
    "CONVERSION.proof.roundtrip_diff_positions", /* measurements of rows whose element types differ */
    "CONVERSION.proof.detail.worst_relative_error_ppm",
    "CONVERSION.proof.decoded_tokens[*]",
    "CONVERSION.proof.logits_digest",
    "CONVERSION.observations.roundtrip_diff_is_exactly_unread_padding",
    "CONVERSION.observations.forward_reproduces_target",
    "CONVERSION.proof.gather_agrees",
    "CONVERSION.proof.source_bijective",
    "CONVERSION.proof.dest_bijective",
};

/* Of rows of the codec: what was measured, and digests of one side alone, which no other row can contradict. */
static const char *const measured_codec[] = {
    "$.rows[*].proof.relative_l2_ppm",
    "$.rows[*].proof.worst_element_ppm",
    "$.rows[*].proof.cosine_ppm",
    "$.rows[*].proof.outliers",
    "$.rows[*].proof.saturated",
    "$.rows[*].proof.decoded_tokens[*]", /* what a lossy cache decodes to */
    "$.rows[*].proof.logits_digest",
    "$.rows[*].proof.nll_nano",
    "$.rows[*].proof.ppl_change_ppm",
    "$.rows[*].proof.kl_nano",
    "$.rows[*].proof.per_passage[*].ppl_change_ppm",
    "$.rows[*].proof.per_passage[*].kl_nano",
    "$.rows[*].proof.k_error_ppm",
    "$.rows[*].proof.v_error_ppm",
    "$.rows[*].proof.k_overflow_blocks",
    "$.rows[*].proof.v_overflow_blocks",
};

/* Sanitizers make this ten times slower: then every seventh place is enough. */
#if defined(__SANITIZE_ADDRESS__)
#define SCALAR_STEP 7
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SCALAR_STEP 7
#endif
#endif
#ifndef SCALAR_STEP
#define SCALAR_STEP 1
#endif

typedef struct {
    json_t *doc;
    kv_key *key;
    kv_trust *trust;
    const char *conversion; /* path of the conversion row around the current place, or NULL */
    bool codec;             /* in a row of check codec or attribution */
    long met, seen, accepted;
} scalars;

/* Whether path is pattern, where * stands for anything without a dot or behind the last dot. */
static bool fits(const char *pattern, const char *path)
{
    for (; *pattern != '\0'; pattern++) {
        if (*pattern != '*') {
            if (*path++ != *pattern) return false;
            continue;
        }
        const char next = pattern[1];
        if (next == '\0') return true;
        while (*path != '\0' && *path != next) path++;
    }
    return *path == '\0';
}

static bool may_pass(const scalars *s, const char *path)
{
    char relative[256] = "";
    if (s->conversion != NULL) snprintf(relative, sizeof relative, "CONVERSION%s", path + strlen(s->conversion));
    for (size_t i = 0; i < KVT_COUNT(not_derivable); i++)
        if (fits(not_derivable[i], path) || fits(not_derivable[i], relative)) return true;
    for (size_t i = 0; s->codec && i < KVT_COUNT(measured_codec); i++)
        if (fits(measured_codec[i], path)) return true;
    return false;
}

static json_t *changed(const json_t *v)
{
    char text[1024];
    if (json_is_boolean(v)) return json_boolean(json_is_false(v));
    if (json_is_integer(v)) return json_integer(json_integer_value(v) + 1);
    if (json_is_null(v)) return json_true();
    snprintf(text, sizeof text, "%s", json_string_value(v)); /* another text of the same length and letters */
    if (text[0] == '\0') return json_string("x");
    text[0] = text[0] == '0' ? '1' : '0';
    return json_string(text);
}

/* The document as it stands now, signed with a key that is trusted, must be refused. */
static void check_change(scalars *s, const char *path)
{
    kv_buf bytes = {0};
    assert_int_equal(kv_cert_seal(s->doc, s->key, &bytes, NULL), KV_OK);
    kv_verify_report r = {0};
    assert_int_equal(kv_verify_bytes(bytes.data, bytes.len, s->trust, NULL, &r, NULL), KV_OK);
    s->seen++;
    if (r.exit_code == 0) {
        s->accepted++;
        if (!may_pass(s, path)) fail_msg("%s was changed and nothing was said", path);
    }
    kv_verify_report_free(&r);
    kv_buf_free(&bytes);
}

static void walk(scalars *s, json_t *v, const char *path);

static void visit(scalars *s, json_t *parent, const char *key, size_t i, json_t *v, const char *path)
{
    if (json_is_object(v) || json_is_array(v)) {
        const json_t *proof = json_object_get(v, "proof");
        const bool conversion = json_is_object(json_object_get(proof, "detail"));
        const char *check = json_string_value(json_object_get(v, "check"));
        if (conversion) s->conversion = path;
        if (check != NULL) s->codec = strcmp(check, "codec") == 0 || strcmp(check, "attribution") == 0;
        walk(s, v, path);
        if (conversion) s->conversion = NULL;
        if (check != NULL) s->codec = false;
        return;
    }
    if (s->met++ % SCALAR_STEP != 0) return;
    json_incref(v);
    if (key != NULL)
        json_object_set_new(parent, key, changed(v));
    else
        json_array_set_new(parent, i, changed(v));
    check_change(s, path);
    if (key != NULL)
        json_object_set_new(parent, key, v);
    else
        json_array_set_new(parent, i, v);
}

static void walk(scalars *s, json_t *v, const char *path)
{
    char inner[256];
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++) {
            snprintf(inner, sizeof inner, "%.200s[%zu]", path, i);
            visit(s, v, NULL, i, json_array_get(v, i), inner);
        }
        return;
    }
    json_t *keys = json_array();
    const char *key;
    json_t *value;
    json_object_foreach(v, key, value) json_array_append_new(keys, json_string(key));
    for (size_t i = 0; i < json_array_size(keys); i++) {
        key = json_string_value(json_array_get(keys, i));
        if (strcmp(path, "$") == 0 &&
            (strcmp(key, "run") == 0 || strcmp(key, "body_digest") == 0 || strcmp(key, "signature") == 0))
            continue; /* not of the body; sealed anew */
        snprintf(inner, sizeof inner, "%.200s.%s", path, key);
        visit(s, v, key, 0, json_object_get(v, key), inner);
    }
    json_decref(keys);
}

/* The document of tests/certs/make_cert.py; the caller owns it. */
static json_t *made_up_document(const char *campaign)
{
    char dir[128], command[512];
    json_t *doc = NULL;
    kv_err err = {0};
    kvt_folder(dir);
    snprintf(command, sizeof command, "python3 '%s/tests/certs/make_cert.py' '%s/cert' --campaign %s", KV_SOURCE_DIR,
             dir, campaign);
    assert_int_equal(system(command), 0);
    char *path = kvt_path(dir, "cert");
    kvt_ok(kv_json_parse_file(path, KV_VERIFY_BYTES_MAX, &doc, &err), &err);
    free(path);
    kvt_remove(dir, "cert");
    kvt_remove(dir, "cert.pub");
    (void)rmdir(dir);
    return doc;
}

static void walk_document(const char *campaign, scalars *out)
{
    scalars s = {0};
    uint8_t seed[32] = {3};
    assert_int_equal(kv_key_new(seed, &s.key, NULL), KV_OK);
    assert_int_equal(kv_trust_of_key(s.key, &s.trust, NULL), KV_OK);
    s.doc = made_up_document(campaign);
    walk(&s, s.doc, "$");
    print_message("%ld scalars changed, %ld of them in fields that only a re-run can check\n", s.seen, s.accepted);
    json_decref(s.doc);
    kv_trust_free(s.trust);
    kv_key_free(s.key);
    *out = s;
}

static void verify__sees_every_changed_scalar_of_the_body(void **state)
{
    (void)state;
    scalars s;
    walk_document("published", &s);
    assert_true(s.met > 4000);
    assert_true(s.accepted < s.seen / 10);
}

static void verify__sees_every_changed_scalar_of_rows_of_the_codec(void **state)
{
    (void)state;
    scalars s;
    walk_document("codec-small", &s);
    assert_true(s.met > 1200);
    assert_true(s.accepted < s.seen / 5);
}

int main(void)
{
    if (system("command -v python3 >/dev/null && command -v openssl >/dev/null") != 0) {
        print_message("python3 and openssl are needed to make a certificate\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify__sees_every_changed_scalar_of_the_body),
        cmocka_unit_test(verify__sees_every_changed_scalar_of_rows_of_the_codec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
