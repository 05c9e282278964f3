/* The strict reader and the canonical writer, against hand-made vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "certs/kv_json.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

static kv_rc parse(const char *text, size_t n, json_t **out, kv_err *err)
{
    kv_err_clear(err);
    *out = NULL;
    return kv_json_parse(text, n, KV_JSON_BYTES_MAX, out, err);
}

/* text is accepted and has this canonical form. */
static void check_form(const char *text, const char *canonical)
{
    json_t *v;
    kv_err err = {0};
    kv_buf out = {0};
    if (parse(text, strlen(text), &v, &err) != KV_OK) fail_msg("%s: %s", text, err.text);
    assert_int_equal(kv_json_write(v, &out, &err), KV_OK);
    assert_string_equal(out.data, canonical);
    assert_int_equal(kv_json_check_canonical(v, text, strlen(text), &err) == KV_OK, strcmp(text, canonical) == 0);
    kv_buf_free(&out);
    json_decref(v);
}

/* text is refused with this place and word in one clear line. */
static void check_refused(const char *text, size_t n, const char *want)
{
    json_t *v;
    kv_err err = {0};
    kv_rc rc = parse(text, n, &v, &err);
    if (rc == KV_OK) fail_msg("accepted: %s", text);
    assert_int_equal(rc, KV_EFORMAT);
    assert_null(v);
    if (strstr(err.text, want) == NULL) fail_msg("%s: \"%s\" lacks \"%s\"", text, err.text, want);
    assert_null(strchr(err.text, '\n'));
}

static void writer__gives_the_canonical_form(void **state)
{
    (void)state;
    check_form("{}", "{}");
    check_form("[]", "[]");
    check_form(" [ 1 , -1 , 0 ] ", "[1,-1,0]");
    check_form("[9007199254740991,-9007199254740991]", "[9007199254740991,-9007199254740991]");
    check_form("{\"b\":1,\"a\":{\"Z\":true,\"_\":null,\"1\":false}}",
               "{\"a\":{\"1\":false,\"Z\":true,\"_\":null},\"b\":1}");
    check_form("{\"aa\":1,\"a\":2,\"B\":3,\"\":4}", "{\"\":4,\"B\":3,\"a\":2,\"aa\":1}");
    check_form("\"a\\\"b\\\\c\\/d\\u0041\"", "\"a\\\"b\\\\c/dA\"");
    check_form("\"\\u00e9\\ud83d\\ude00\"", "\"\xc3\xa9\xf0\x9f\x98\x80\"");
    check_form("\"\xc3\xa9 </script>\"", "\"\xc3\xa9 </script>\"");
    /* neighbours of what is not seen: no-break space, joiner's neighbour, quotation mark, word joiner's and mark's neighbours */
    check_form("\"\xc2\xa0\xe2\x80\x8a\xe2\x80\x90\xe2\x80\xaf\xef\xbf\xbc\"",
               "\"\xc2\xa0\xe2\x80\x8a\xe2\x80\x90\xe2\x80\xaf\xef\xbf\xbc\"");
}

#define REFUSED(text_, want_) check_refused(text_, sizeof(text_) - 1, want_)

static void reader__refuses_what_the_rules_forbid(void **state)
{
    (void)state;
    REFUSED("", "line 1 column 1");
    REFUSED("{\"failed\":3,\"failed\":0}", "duplicate");
    REFUSED("[{\"a\":{\"x\":1,\"y\":{\"k\":1,\"k\":1}}}]", "duplicate");
    REFUSED("{\"a\":1,\"\\u0061\":2}", "duplicate");
    REFUSED("{} x", "line 1 column");
    REFUSED("{}{}", "line 1 column");
    REFUSED("[1.0]", "line 1 column 2 (byte 1): a number that is not a plain integer");
    REFUSED("[1e3]", "not a plain integer");
    REFUSED("[0E0]", "not a plain integer");
    REFUSED("[\n  9007199254740992]", "line 2 column 3 (byte 4): a number of 2^53 or more");
    REFUSED("[-9007199254740992]", "2^53");
    REFUSED("[99999999999999999999999999999999999]", "2^53");
    REFUSED("[-0]", "a zero with a sign");
    REFUSED("[01]", "line 1");
    REFUSED("[+1]", "line 1");
    REFUSED("[NaN]", "line 1");
    REFUSED("[\"a\tb\"]", "column 4 (byte 3): a control character");
    REFUSED("[\"a\x7f\"]", "control character");
    REFUSED("[\"\\n\"]", "control character");
    REFUSED("[\"\\u0000\"]", "control character");
    REFUSED("[\"\\u007F\"]", "control character");
    REFUSED("[\"a\0b\"]", "control character");
    /* what is not seen, or turns the text around it: raw and escaped, at both ends of each range */
    REFUSED("[\"\xC2\x80\"]", "byte 2): a control character, or one that is not seen");
    REFUSED("[\"\xC2\x9F\"]", "not seen");
    REFUSED("[\"a\xC2\xAD\"]", "byte 3): a control");
    REFUSED("[\"\xD8\x9C\"]", "not seen");
    REFUSED("[\"\xE2\x80\x8B\"]", "not seen");
    REFUSED("[\"\xE2\x80\xAE\"]", "not seen");
    REFUSED("[\"\xE2\x81\xA6\"]", "not seen");
    REFUSED("[\"\xEF\xBB\xBF\"]", "not seen");
    REFUSED("[\"\xF3\xA0\x81\x81\"]", "not seen");
    REFUSED("[\"\\u009b\"]", "not seen");
    REFUSED("[\"\\u202E\"]", "not seen");
    REFUSED("[\"\\udb40\\udc41\"]", "not seen");
    REFUSED("[\0]", "line 1");
    REFUSED("{\"\xc3\xa9\":1}", "a key is not ASCII");
    REFUSED("{\"\\u00e9\" :1}", "a key is not ASCII");
    REFUSED("[\"\xff\"]", "unable to decode");
    REFUSED("[\"\xed\xa0\x80\"]", "unable to decode");
    REFUSED("[\"\\ud800\"]", "line 1");
    REFUSED("\xef\xbb\xbf{}", "line 1");
    REFUSED("{\"a\":1,}", "line 1");
    REFUSED("[1 2]", "line 1");
    REFUSED("{\"a\":[1,2", "line 1");
    REFUSED("\"abc", "line 1");
    REFUSED("\"abc\\", "line 1");
    REFUSED("// no comments\n1", "line 1");
}

static void reader__bounds_depth_values_and_size(void **state)
{
    (void)state;
    char deep[2 * 40];
    json_t *v;
    kv_err err = {0};
    for (size_t depth = 31; depth <= 34; depth++) {
        memset(deep, '[', depth);
        memset(deep + depth, ']', depth);
        assert_int_equal(parse(deep, 2 * depth, &v, &err), depth <= 32 ? KV_OK : KV_EFORMAT);
        json_decref(v);
    }
    check_refused(deep, 68, "nested deeper than 32");
    assert_int_equal(kv_json_parse("[1,2]", 5, 4, &v, NULL), KV_EFORMAT);
    size_t n = KV_JSON_VALUES_MAX * 2 + 10;
    char *many = malloc(n);
    assert_non_null(many);
    memset(many, '0', n);
    for (size_t i = 0; i < n; i++) many[i] = i % 2 == 1 ? '0' : ',';
    many[0] = '[';
    many[n - 1] = ']';
    check_refused(many, n, "too many values");
    memset(many, '[', n); /* a million open brackets must not reach the recursion */
    check_refused(many, n, "nested deeper");
    free(many);
}

static void writer__refuses_what_has_no_canonical_form(void **state)
{
    (void)state;
    json_t *bad[] = {json_real(0.5),
                     json_integer(KV_JSON_INT_MAX + 1),
                     json_integer(-KV_JSON_INT_MAX - 1),
                     json_string("a\nb"),
                     json_string("a\xE2\x80\xAE"),
                     json_string("\xC2\x85"),
                     json_pack("{si}", "\xc3\xa9", 1)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kv_buf out = {0};
        assert_int_equal(kv_json_write(bad[i], &out, NULL), KV_EFORMAT);
        kv_buf_free(&out);
        json_decref(bad[i]);
    }
    json_t *nest = json_array();
    for (int i = 0; i < 32; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, nest);
        nest = outer;
    }
    kv_buf out = {0};
    assert_int_equal(kv_json_write(nest, &out, NULL), KV_EFORMAT);
    kv_buf_free(&out);
    json_decref(nest);
}

static void check_canonical__sees_every_kind_of_difference(void **state)
{
    (void)state;
    static const char *const not_canonical[] = {"{\"b\":1,\"a\":2}", "[1, 2]",    "[1]\n",        " [1]",
                                                "[\"\\u0041\"]",     "[\"\\/\"]", "[\"\\u00e9\"]"};
    for (size_t i = 0; i < sizeof not_canonical / sizeof *not_canonical; i++) {
        json_t *v;
        kv_err err = {0};
        const char *t = not_canonical[i];
        assert_int_equal(parse(t, strlen(t), &v, &err), KV_OK);
        assert_int_equal(kv_json_check_canonical(v, t, strlen(t), &err), KV_EFORMAT);
        assert_non_null(strstr(err.text, "byte "));
        json_decref(v);
    }
}

/* Whatever the locale's decimal point and grouping, the bytes are the same (case d15). */
static void json__does_not_depend_on_the_locale(void **state)
{
    (void)state;
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "de_DE") == NULL)
        print_message("de_DE is not installed: checked in the C locale only\n");
    check_form("[1234567,-1]", "[1234567,-1]");
    REFUSED("[1,5.5]", "not a plain integer");
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writer__gives_the_canonical_form),
        cmocka_unit_test(reader__refuses_what_the_rules_forbid),
        cmocka_unit_test(reader__bounds_depth_values_and_size),
        cmocka_unit_test(writer__refuses_what_has_no_canonical_form),
        cmocka_unit_test(check_canonical__sees_every_kind_of_difference),
        cmocka_unit_test(json__does_not_depend_on_the_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
