/* Strict JSON of layout and campaign files. */
#include "layouts/kv_layout_json.h"
#include "tests/kv_test.h"

static kv_rc load(const char *text, size_t n, json_t **out, kv_err *err)
{
    return kv_json_load_strict(text, n, "place", out, err);
}

static void load_strict__takes_plain_json(void **state)
{
    (void)state;
    static const char *const good[] = {"{}",
                                       "[]",
                                       "1",
                                       "\"a\"",
                                       "{\"a\":[1,2,{\"b\":null}],\"c\":true}",
                                       " [ 1 ]\n",
                                       "\"\\u00e9 \xc3\xa9\"",
                                       "9007199254740993"};
    for (size_t i = 0; i < KVT_COUNT(good); i++) {
        json_t *v = NULL;
        kv_err err = {0};
        kvt_ok(load(good[i], strlen(good[i]), &v, &err), &err);
        json_decref(v);
    }
}

static void load_strict__refuses_the_rest(void **state)
{
    (void)state;
    static const char *const bad[][2] = {{"", "place"},
                                         {"{", "line 1"},
                                         {"{} x", "place"},
                                         {"{}{}", "place"},
                                         {"{\"a\":1,\"a\":2}", "duplicate"},
                                         {"{\"o\":{\"a\":1,\"a\":1}}", "duplicate"},
                                         {"[1.5]", "integers"},
                                         {"{\"a\":1e3}", "integers"},
                                         {"[\"a\\nb\"]", "control character"},
                                         {"{\"a\\tb\":1}", "control character"},
                                         {"[\"\x7f\"]", "control character"},
                                         {"[\"\\u202e\"]", "not seen (U+202E)"},
                                         {"[\"\xF3\xA0\x81\x81\"]", "not seen (U+E0041)"},
                                         {"[\"a\\u0000b\"]", "place"},
                                         {"[01]", "place"},
                                         {"[\"\xff\"]", "place"},
                                         {"{a:1}", "place"},
                                         {"[1,]", "place"},
                                         {"[99999999999999999999]", "place"},
                                         {"// c\n[]", "place"}};
    for (size_t i = 0; i < KVT_COUNT(bad); i++) {
        json_t *v = NULL;
        kv_err err = {0};
        const kv_rc rc = load(bad[i][0], strlen(bad[i][0]), &v, &err);
        kvt_refused(rc, KV_EFORMAT, &err, bad[i][0], KVT_SAYS("place", bad[i][1]));
        assert_null(v);
    }
    json_t *v = NULL;
    assert_int_equal(load("[1]\0[2]", 7, &v, NULL), KV_EFORMAT); /* bytes behind a NUL are bytes */
}

static void load_strict__limits_the_depth(void **state)
{
    (void)state;
    for (int depth = 30; depth <= 40; depth++) {
        char text[100];
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        json_t *v = NULL;
        kv_err err = {0};
        const kv_rc rc = load(text, 2 * (size_t)depth, &v, &err);
        assert_int_equal(
            rc, depth <= 33 ? KV_OK : KV_EFORMAT); /* the innermost list is empty: 33 lists are 32 levels below one */
        json_decref(v);
    }
}

static void only_keys__names_the_stranger(void **state)
{
    (void)state;
    static const char *const keys[] = {"a", "b", NULL};
    json_t *good = kvt_json("{'b':1,'a':2}"), *bad = kvt_json("{'a':1,'ab':2}"), *list = kvt_json("[1]");
    kv_err err = {0};
    assert_int_equal(kv_json_only_keys(good, keys, "w", &err), KV_OK);
    kvt_refused(kv_json_only_keys(bad, keys, "w", &err), KV_EFORMAT, &err, "stranger", KVT_SAYS("w", "\"ab\""));
    kvt_refused(kv_json_only_keys(list, keys, "w", &err), KV_EFORMAT, &err, "list", KVT_SAYS("w", "object"));
    json_decref(good);
    json_decref(bad);
    json_decref(list);
}

static void get_text__knows_absent_null_and_empty(void **state)
{
    (void)state;
    json_t *o = kvt_json("{'t':'x','n':null,'e':'','i':3}");
    const char *s = "before";
    kv_err err = {0};
    assert_int_equal(kv_json_get_text(o, "t", true, "w", &s, &err), KV_OK);
    assert_string_equal(s, "x");
    assert_int_equal(kv_json_get_text(o, "n", false, "w", &s, &err), KV_OK);
    assert_null(s);
    assert_int_equal(kv_json_get_text(o, "gone", false, "w", &s, &err), KV_OK);
    kvt_refused(kv_json_get_text(o, "gone", true, "w", &s, &err), KV_EFORMAT, &err, "gone", KVT_SAYS("w", "\"gone\""));
    kvt_refused(kv_json_get_text(o, "n", true, "w", &s, &err), KV_EFORMAT, &err, "n", KVT_SAYS("\"n\""));
    kvt_refused(kv_json_get_text(o, "e", false, "w", &s, &err), KV_EFORMAT, &err, "e", KVT_SAYS("\"e\""));
    kvt_refused(kv_json_get_text(o, "i", false, "w", &s, &err), KV_EFORMAT, &err, "i", KVT_SAYS("\"i\""));
    json_decref(o);
}

static void get_int__keeps_the_default_and_the_range(void **state)
{
    (void)state;
    json_t *o = kvt_json("{'a':3,'n':null,'s':'3','big':9007199254740993,'neg':-1}");
    int64_t v = 42;
    kv_err err = {0};
    assert_int_equal(kv_json_get_int(o, "gone", 0, 9, "w", &v, &err), KV_OK);
    assert_int_equal(kv_json_get_int(o, "n", 0, 9, "w", &v, &err), KV_OK);
    assert_int_equal(v, 42);
    assert_int_equal(kv_json_get_int(o, "a", 3, 3, "w", &v, &err), KV_OK);
    assert_int_equal(v, 3);
    kvt_refused(kv_json_get_int(o, "a", 4, 9, "w", &v, &err), KV_EFORMAT, &err, "a", KVT_SAYS("\"a\"", "4 to 9"));
    kvt_refused(kv_json_get_int(o, "a", 0, 2, "w", &v, &err), KV_EFORMAT, &err, "a", KVT_SAYS("\"a\"", "0 to 2"));
    kvt_refused(kv_json_get_int(o, "s", 0, 9, "w", &v, &err), KV_EFORMAT, &err, "s", KVT_SAYS("\"s\""));
    kvt_refused(kv_json_get_int(o, "neg", 0, 9, "w", &v, &err), KV_EFORMAT, &err, "neg", KVT_SAYS("\"neg\""));
    assert_int_equal(v, 3);
    assert_int_equal(kv_json_get_int(o, "big", 0, INT64_MAX, "w", &v, &err), KV_OK);
    assert_true(v == INT64_C(9007199254740993));
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_strict__takes_plain_json),
        cmocka_unit_test(load_strict__refuses_the_rest),
        cmocka_unit_test(load_strict__limits_the_depth),
        cmocka_unit_test(only_keys__names_the_stranger),
        cmocka_unit_test(get_text__knows_absent_null_and_empty),
        cmocka_unit_test(get_int__keeps_the_default_and_the_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
