/* Allocation, byte buffers, numbers. */
#include "tests/kv_test.h"

static void alloc__zeroes_and_checks_products(void **state)
{
    (void)state;
    unsigned char *p = kv_alloc(100, 7);
    assert_non_null(p);
    for (int i = 0; i < 700; i++) assert_int_equal(p[i], 0);
    kv_free(p);
    assert_null(kv_alloc(SIZE_MAX / 2, 3));
    assert_null(kv_alloc(2, SIZE_MAX));
    assert_null(kv_alloc(SIZE_MAX / 2 + 2, 2));              /* wraps to 2 */
    assert_null(kv_alloc((size_t)1 << 33, (size_t)1 << 31)); /* wraps to 0 */
    assert_null(kv_realloc(NULL, SIZE_MAX / 2 + 2, 2));
    assert_null(kv_realloc(NULL, SIZE_MAX / 2, 3));
    assert_null(kv_alloc_image(SIZE_MAX - 3));
    void *a = kv_alloc(0, 8), *b = kv_alloc(8, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    kv_free(a);
    kv_free(b);
    kv_free(NULL);
}

static void realloc__keeps_the_old_block_on_failure(void **state)
{
    (void)state;
    char *p = kv_realloc(NULL, 4, 1);
    assert_non_null(p);
    memcpy(p, "abc", 4);
    kv_alloc_fail_after(0);
    void *grown = kv_realloc(p, 4000, 1);
    kv_alloc_fail_after(-1);
    assert_null(grown);
    assert_string_equal(p, "abc");
    p = kv_realloc(p, 4000, 1);
    assert_string_equal(p, "abc");
    kv_free(p);
}

static void alloc_image__is_aligned(void **state)
{
    (void)state;
    for (size_t n = 0; n < 200; n += 13) {
        unsigned char *p = kv_alloc_image(n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, n);
        kv_free(p);
    }
}

static void alloc_fail_after__fails_the_nth_and_all_after(void **state)
{
    (void)state;
    for (long n = 0; n < 4; n++) {
        kv_alloc_fail_after(n);
        for (long i = 0; i < n; i++) {
            void *p = i % 2 != 0 ? kv_alloc(1, 1) : kv_alloc_image(1);
            assert_non_null(p);
            kv_free(p);
        }
        void *p = kv_alloc(1, 1), *q = kv_alloc_image(1);
        char *s = kv_strdup("x");
        kv_alloc_fail_after(-1);
        assert_null(p);
        assert_null(q);
        assert_null(s);
    }
    char *s = kv_strdup("back");
    assert_string_equal(s, "back");
    kv_free(s);
}

static void mul_and_add__say_when_a_sum_does_not_fit(void **state)
{
    (void)state;
    int64_t r = 5;
    assert_true(kv_mul_i64(INT64_C(1) << 31, INT64_C(1) << 31, &r));
    assert_true(r == INT64_C(1) << 62);
    assert_false(kv_mul_i64(INT64_C(1) << 32, INT64_C(1) << 31, &r));
    assert_true(r == INT64_C(1) << 62);
    assert_false(kv_add_i64(INT64_MAX, 1, &r));
    assert_true(kv_add_i64(INT64_MAX, -1, &r));
    assert_true(r == INT64_MAX - 1);
}

static void parse_i64__takes_whole_decimal_texts_in_range(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", " 1", "1 ", "+1", "1x", "x", "0x10", "1.0", "1e3", "--1", "-", "9223372036854775808", "1\n", "\xd9\xa1"};
    int64_t v = 77;
    for (size_t i = 0; i < KVT_COUNT(bad); i++) assert_false(kv_parse_i64(bad[i], INT64_MIN, INT64_MAX, &v));
    assert_int_equal(v, 77);
    assert_true(kv_parse_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &v));
    assert_true(v == INT64_MIN);
    assert_true(kv_parse_i64("9223372036854775807", INT64_MIN, INT64_MAX, &v));
    assert_true(v == INT64_MAX);
    assert_true(kv_parse_i64("3", 3, 3, &v));
    assert_false(kv_parse_i64("3", 4, 9, &v));
    assert_false(kv_parse_i64("3", 0, 2, &v));
}

static void parse_u64__takes_the_whole_range(void **state)
{
    (void)state;
    uint64_t v = 7;
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "18446744073709551616", "0x1", "1_000"};
    for (size_t i = 0; i < KVT_COUNT(bad); i++) assert_false(kv_parse_u64(bad[i], &v));
    assert_true(v == 7);
    assert_true(kv_parse_u64("18446744073709551615", &v));
    assert_true(v == UINT64_MAX);
    assert_true(kv_parse_u64("0", &v));
    assert_true(v == 0);
}

static void buf__grows_and_ends_with_a_nul(void **state)
{
    (void)state;
    kv_buf b = {0};
    char expect[4000];
    size_t n = 0;
    for (int i = 0; i < 300; i++) {
        n += (size_t)snprintf(expect + n, sizeof expect - n, "%d,", i);
        assert_int_equal(kv_buf_printf(&b, NULL, "%d,", i), KV_OK);
        assert_int_equal(b.len, n);
        assert_string_equal(b.data, expect);
    }
    assert_int_equal(kv_buf_append(&b, "a\0b", 3, NULL), KV_OK);
    assert_memory_equal(b.data + n, "a\0b", 4);
    kv_buf_free(&b);
    assert_null(b.data);
    assert_int_equal(b.len + b.cap, 0);
    assert_int_equal(kv_buf_append(&b, NULL, 0, NULL), KV_OK);
    assert_string_equal(b.data, "");
    char wide[2000];
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    assert_int_equal(kv_buf_printf(&b, NULL, "[%s]", wide), KV_OK); /* longer than any inner buffer */
    assert_int_equal(b.len, sizeof wide + 1);
    assert_int_equal(b.data[b.len - 1], ']');
    kv_buf_free(&b);
}

static void buf__survives_every_failed_allocation(void **state)
{
    (void)state;
    char wide[2000];
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    for (long n = 0;; n++) {
        kv_buf b = {0};
        kv_err err = {0};
        kv_alloc_fail_after(n);
        kv_rc rc = kv_buf_puts(&b, "short", &err);
        if (rc == KV_OK) rc = kv_buf_printf(&b, &err, "%s", wide);
        kv_alloc_fail_after(-1);
        if (rc != KV_OK && b.data != NULL) assert_string_equal(b.data, "short");
        kv_buf_free(&b);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        assert_int_equal(err.rc, KV_ENOMEM);
        assert_true(n < 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc__zeroes_and_checks_products),
        cmocka_unit_test(realloc__keeps_the_old_block_on_failure),
        cmocka_unit_test(alloc_image__is_aligned),
        cmocka_unit_test(alloc_fail_after__fails_the_nth_and_all_after),
        cmocka_unit_test(mul_and_add__say_when_a_sum_does_not_fit),
        cmocka_unit_test(parse_i64__takes_whole_decimal_texts_in_range),
        cmocka_unit_test(parse_u64__takes_the_whole_range),
        cmocka_unit_test(buf__grows_and_ends_with_a_nul),
        cmocka_unit_test(buf__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
