/* Error records: the first cause stays, one line, never past the end. */
#include "tests/kv_test.h"

static void err_set__keeps_the_first_cause(void **state)
{
    (void)state;
    kv_err e = {0};
    assert_int_equal(KV_FAIL(&e, KV_EREAD, "first %d", 1), KV_EREAD);
    assert_int_equal(KV_FAIL(&e, KV_ENOMEM, "second"), KV_ENOMEM); /* the code goes on, the record stays */
    assert_int_equal(e.rc, KV_EREAD);
    assert_string_equal(e.text, "first 1");
    assert_string_equal(e.func, __func__);
    assert_true(e.line > 0);
    kv_err_clear(&e);
    assert_int_equal(e.rc, KV_OK);
    KV_FAIL(&e, KV_EBUG, "third");
    assert_string_equal(e.text, "third");
    assert_int_equal(KV_FAIL(NULL, KV_EINVAL, "nobody listens"), KV_EINVAL);
    kv_err_clear(NULL);
}

static void err_prefix__goes_before_the_text(void **state)
{
    (void)state;
    kv_err e = {0};
    kv_err_prefix(&e, "nothing");
    assert_string_equal(e.text, "");
    KV_FAIL(&e, KV_EREAD, "cause");
    kv_err_prefix(&e, "file %s", "x.json");
    kv_err_prefix(&e, "campaign");
    assert_string_equal(e.text, "campaign: file x.json: cause");
    kv_err_prefix(NULL, "nobody");
}

static void err__is_cut_not_overrun(void **state)
{
    (void)state;
    char longer[2 * KV_ERR_TEXT];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    kv_err e = {0};
    KV_FAIL(&e, KV_EREAD, "%s", longer);
    assert_int_equal(strlen(e.text), KV_ERR_TEXT - 1);
    kv_err_prefix(&e, "%s", longer);
    assert_int_equal(strlen(e.text), KV_ERR_TEXT - 1);
    kv_err_prefix(&e, "p");
    assert_int_equal(strlen(e.text), KV_ERR_TEXT - 1);
    assert_memory_equal(e.text, "p: xxx", 6);
}

static void err__is_one_line_whatever_it_quotes(void **state)
{
    (void)state;
    kv_err e = {0};
    KV_FAIL(&e, KV_EREAD, "a%sb\033[31mc\x7f\xc3\xa9", "\n\r\t");
    assert_string_equal(e.text, "a???b?[31mc?\xc3\xa9");
    kv_err_prefix(&e, "dir\nname");
    assert_null(strchr(e.text, '\n'));
}

static void rc_name__names_every_code(void **state)
{
    (void)state;
    for (int i = 0; i < KV_RC_COUNT; i++) {
        assert_memory_equal(kv_rc_name((kv_rc)i), i == 0 ? "KV_OK" : "KV_E", 4);
        for (int k = 0; k < i; k++) assert_string_not_equal(kv_rc_name((kv_rc)i), kv_rc_name((kv_rc)k));
    }
    assert_string_equal(kv_rc_name(KV_RC_COUNT), "KV_E?");
    assert_string_equal(kv_rc_name(KV_ENOMEM), "KV_ENOMEM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err_set__keeps_the_first_cause), cmocka_unit_test(err_prefix__goes_before_the_text),
        cmocka_unit_test(err__is_cut_not_overrun),        cmocka_unit_test(err__is_one_line_whatever_it_quotes),
        cmocka_unit_test(rc_name__names_every_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
