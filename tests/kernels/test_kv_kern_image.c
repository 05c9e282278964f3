/* Images: guards on both sides, poison that changes from round to round, sizes that are checked. */
#include "tests/kv_test_images.h"

static kv_image *image_of(kv_device *d, int64_t bytes)
{
    kv_image *im = NULL;
    kv_err err = {0};
    kvt_ok(d->ops->image_new(d, bytes, &im, &err), &err);
    return im;
}

static void image__sees_every_byte_written_outside(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 63, 64, 1000};
    kv_device *d = kvt_cpu();
    for (size_t i = 0; i < KVT_COUNT(sizes); i++) {
        kv_image *im = image_of(d, sizes[i]);
        for (int64_t at = -KV_GUARD_BYTES; at < sizes[i] + KV_GUARD_BYTES; at++) {
            kv_err err = {0};
            const bool inside = at >= 0 && at < sizes[i];
            kvt_ok(d->ops->poison(d, im, sizes[i], 1, &err), &err);
            kvt_ok(kv_check_guards(d, im, &err), &err);
            ((unsigned char *)kv_image_host_view(im))[at] ^= 1U;
            const kv_rc rc = kv_check_guards(d, im, &err);
            assert_int_equal(rc, inside ? KV_OK : KV_EDEVICE);
            if (!inside) assert_non_null(strstr(err.text, at < 0 ? "before" : "past the end"));
        }
        d->ops->image_free(d, im);
    }
    d->ops->image_free(d, NULL);
    d->ops->close(d);
}

/* The guard behind the data lies behind what is in use, not behind the capacity. */
static void image__guards_the_size_in_use(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_image *im = image_of(d, 1000);
    kv_err err = {0};
    kvt_ok(d->ops->poison(d, im, 100, 1, &err), &err);
    ((unsigned char *)kv_image_host_view(im))[100] = 0;
    assert_int_equal(kv_check_guards(d, im, NULL), KV_EDEVICE);
    kvt_ok(d->ops->poison(d, im, 1000, 1, &err), &err);
    kvt_ok(kv_check_guards(d, im, &err), &err);
    kvt_refused(d->ops->poison(d, im, 1001, 1, &err), KV_EBUG, &err, "too large", KVT_SAYS("1001", "1000"));
    d->ops->image_free(d, im);
    d->ops->close(d);
}

/* What the last round left can never pass for what this round should write. */
static void image__is_poisoned_anew_each_round(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_image *im = image_of(d, 64);
    unsigned char before[64];
    for (uint32_t round = 0; round < 600; round++) {
        memset(before, 0, sizeof before);
        if (round > 0) memcpy(before, kv_image_host_view(im), sizeof before);
        assert_int_equal(d->ops->poison(d, im, 64, round, NULL), KV_OK);
        const unsigned char *now = kv_image_host_view(im);
        for (int i = 0; i < 64; i++) {
            assert_int_equal(now[i], now[0]);
            if (round > 0) assert_int_not_equal(now[i], before[i]);
        }
    }
    d->ops->image_free(d, im);
    d->ops->close(d);
}

static void image_copy__copies_what_is_in_use(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_image *a = image_of(d, 64), *b = image_of(d, 100), *small = image_of(d, 63);
    kv_err err = {0};
    kvt_ok(d->ops->poison(d, a, 64, 3, &err), &err);
    kvt_ok(d->ops->poison(d, b, 100, 4, &err), &err);
    kvt_ok(d->ops->copy(d, a, b, &err), &err);
    assert_memory_equal(kv_image_host_view(a), kv_image_host_view(b), 64);
    assert_int_equal(d->ops->copy(d, a, small, NULL), KV_EBUG);
    d->ops->image_free(d, a);
    d->ops->image_free(d, b);
    d->ops->image_free(d, small);
    d->ops->close(d);
}

static void image_new__refuses_what_does_not_fit(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_image *im = NULL;
    kv_err err = {0};
    kvt_refused(d->ops->image_new(d, INT64_MAX, &im, &err), KV_ENOMEM, &err, "2^63 - 1",
                KVT_SAYS("9223372036854775807"));
    for (long n = 0; n < 2; n++) {
        kv_alloc_fail_after(n);
        const kv_rc rc = d->ops->image_new(d, 100, &im, &err);
        kv_alloc_fail_after(-1);
        assert_int_equal(rc, KV_ENOMEM);
        kv_err_clear(&err);
    }
    assert_null(im);
    kv_alloc_fail_after(0);
    kv_device *none = NULL;
    const kv_rc rc = kv_device_cpu_new(&none, &err);
    kv_alloc_fail_after(-1);
    assert_int_equal(rc, KV_ENOMEM);
    assert_null(none);
    d->ops->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(image__sees_every_byte_written_outside), cmocka_unit_test(image__guards_the_size_in_use),
        cmocka_unit_test(image__is_poisoned_anew_each_round),     cmocka_unit_test(image_copy__copies_what_is_in_use),
        cmocka_unit_test(image_new__refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
