/* Texts as numbers. */
#include "grid/campaign/kv_names.h"
#include "tests/kv_test.h"

static void names_add__numbers_each_text_once_in_order(void **state)
{
    (void)state;
    kv_names names = {0};
    kv_err err = {0};
    uint32_t number;
    char text[16];
    assert_int_equal(kv_names_find(&names, "a"), KV_NAMES_NONE);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < 5000; i++) {
            snprintf(text, sizeof text, "n%" PRIu32, i);
            kvt_ok(kv_names_add(&names, text, &number, &err), &err);
            assert_int_equal(number, i);
        }
    assert_int_equal(names.n, 5000);
    assert_int_equal(kv_names_find(&names, "n4999"), 4999);
    assert_int_equal(kv_names_find(&names, "n5000"), KV_NAMES_NONE);
    assert_string_equal(names.text[17], "n17");
    kvt_ok(kv_names_add(&names, "", &number, &err), &err);
    assert_int_equal(kv_names_find(&names, ""), 5000);
    kv_names_free(&names);
    kv_names_free(&names); /* again is fine */
}

static void names_add__survives_every_failed_allocation(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        kv_names names = {0};
        kv_err err = {0};
        uint32_t number;
        kv_rc rc = KV_OK;
        kv_alloc_fail_after(n);
        for (int i = 0; rc == KV_OK && i < 70; i++) {
            char text[8];
            snprintf(text, sizeof text, "%d", i);
            rc = kv_names_add(&names, text, &number, &err);
        }
        kv_alloc_fail_after(-1);
        kv_names_free(&names);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        assert_true(n < 200);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_add__numbers_each_text_once_in_order),
        cmocka_unit_test(names_add__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
