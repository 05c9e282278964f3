/* Recipes: what each name means, and the bytes it takes. */
#include "tests/kv_test.h"

#include "kernels/codec/kv_codec_recipe.h"

static kv_codec_half_config half_of(int32_t recipe, int32_t half, int32_t dim, bool whitened)
{
    kv_codec_half_config h;
    kv_err err = {0};
    kvt_ok(kv_codec_recipe_half(recipe, half, dim, whitened, &h, &err), &err);
    return h;
}

static kv_codec_account account(const kv_codec_half_config *h, int32_t layers, const bool *skip, int64_t heads,
                                int64_t tokens, bool finished)
{
    kv_codec_account a;
    kv_err err = {0};
    kvt_ok(kv_codec_account_of(h, layers, skip, heads, tokens, 2, finished, &a, &err), &err);
    return a;
}

static void test_names(void **state)
{
    static const char *const names[] = {"published-serving", "published-harness", "kv1", "kv1-shared"};
    kv_err err = {0};
    (void)state;
    for (int32_t i = 0; i < KV_CODEC_RECIPE_COUNT; i++) {
        int32_t found = -1;
        assert_string_equal(kv_codec_recipe_name(i), names[i]);
        kvt_ok(kv_codec_recipe_find(names[i], &found, &err), &err);
        assert_int_equal(found, i);
        assert_true(strlen(kv_codec_recipe_text(i)) > 20);
    }
    int32_t untouched = 7;
    kvt_refused(kv_codec_recipe_find("kv2", &untouched, &err), KV_EINVAL, &err, "kv2",
                KVT_SAYS("kv2", "published-serving", "published-harness", "kv1", "kv1-shared"));
    assert_int_equal(untouched, 7);
    assert_null(kv_codec_recipe_name(KV_CODEC_RECIPE_COUNT));
    assert_null(kv_codec_recipe_name(-1));
    assert_null(kv_codec_metric_name(3));
    assert_string_equal(kv_codec_metric_name(KV_CODEC_LINF), "linf");
}

static void test_published_settings(void **state)
{
    (void)state;
    const kv_codec_half_config k = half_of(KV_CODEC_PUBLISHED_SERVING, KV_CODEC_K, 128, true);
    const kv_codec_half_config v = half_of(KV_CODEC_PUBLISHED_SERVING, KV_CODEC_V, 128, true);
    assert_int_equal(k.slot.params.metric, KV_CODEC_INNER_PRODUCT);
    assert_int_equal(k.slot.params.bits, 3);
    assert_int_equal(k.slot.params.d_eff, 64);
    assert_int_equal(k.slot.params.k, 16);
    assert_int_equal(k.slot.params.seed, 0xCAFEBABEu);
    assert_int_equal(k.slot.params.rule, KV_CODEC_RULE_PUBLISHED);
    assert_true(k.slot.params.outliers && k.slot.params.threshold == 2.0F);
    assert_int_equal(k.slot.budget_ppm, 80000);
    assert_int_equal(k.slot.version, KV_CODEC_SLOT_PUBLISHED);
    assert_true(k.fit.published && k.whitened && !k.mixed_heads && k.group == 1);
    assert_int_equal(v.slot.params.metric, KV_CODEC_MSE);
    assert_int_equal(v.slot.params.bits, 2);
    assert_false(v.slot.params.outliers || v.whitened);
    assert_int_equal(v.slot.budget_ppm, 0);
    assert_false(kv_codec_recipe_before_rope(KV_CODEC_PUBLISHED_SERVING));
}

static void test_harness_metric_follows_whitening(void **state)
{
    (void)state;
    const kv_codec_half_config with = half_of(KV_CODEC_PUBLISHED_HARNESS, KV_CODEC_K, 128, true);
    const kv_codec_half_config without = half_of(KV_CODEC_PUBLISHED_HARNESS, KV_CODEC_K, 128, false);
    const kv_codec_half_config v = half_of(KV_CODEC_PUBLISHED_HARNESS, KV_CODEC_V, 128, false);
    assert_int_equal(with.slot.params.metric, KV_CODEC_MSE);
    assert_int_equal(without.slot.params.metric, KV_CODEC_INNER_PRODUCT);
    assert_true(with.mixed_heads && v.mixed_heads);
    assert_int_equal(v.group, KV_CODEC_GROUP_ALL);
    assert_true(v.slot.shared && !with.slot.shared);
    assert_true(kv_codec_recipe_before_rope(KV_CODEC_PUBLISHED_HARNESS));
}

static void test_kv1_settings(void **state)
{
    (void)state;
    const kv_codec_half_config k = half_of(KV_CODEC_KV1, KV_CODEC_K, 128, false);
    const kv_codec_half_config s = half_of(KV_CODEC_KV1_SHARED, KV_CODEC_V, 128, false);
    assert_int_equal(k.slot.params.rule, KV_CODEC_RULE_KV1);
    assert_int_equal(k.slot.params.metric, KV_CODEC_MSE);
    assert_false(k.fit.published || k.slot.shared);
    assert_int_equal(s.group, KV_CODEC_SHARED_BLOCKS);
    assert_true(s.slot.shared);
    for (int32_t i = 0; i < 4; i++) assert_int_equal(half_of(i, KV_CODEC_K, 64, false).slot.recipe, i);
}

static void test_default_d_eff(void **state)
{
    static const int32_t want[][2] = {{1, 1}, {2, 1}, {3, 2}, {64, 32}, {80, 64}, {96, 64}, {128, 64}, {256, 128}};
    (void)state;
    for (size_t i = 0; i < KVT_COUNT(want); i++) assert_int_equal(kv_codec_default_d_eff(want[i][0]), want[i][1]);
    for (int32_t d = 1; d <= KV_CODEC_DIM_MAX; d++) assert_in_range(kv_codec_default_d_eff(d), 1, d);
}

static void test_wrong_halves(void **state)
{
    kv_codec_half_config h;
    kv_err err = {0};
    (void)state;
    kvt_refused(kv_codec_recipe_half(4, 0, 128, false, &h, &err), KV_EINVAL, &err, "4", KVT_SAYS("recipe 4"));
    kvt_refused(kv_codec_recipe_half(0, 2, 128, false, &h, &err), KV_EINVAL, &err, "half", KVT_SAYS("stream 2"));
    kvt_refused(kv_codec_recipe_half(0, 0, 1025, false, &h, &err), KV_EINVAL, &err, "dim", KVT_SAYS("1025", "1024"));
    kvt_refused(kv_codec_recipe_half(0, 0, 0, false, &h, &err), KV_EINVAL, &err, "dim", KVT_SAYS("head_dim"));
}

static void test_skipped_layers(void **state)
{
    static const int32_t of_28[] = {0, 1, 7, 14, 26, 27}, of_36[] = {0, 1, 34, 35};
    bool skip[36], want[36];
    (void)state;
    memset(want, 0, sizeof want);
    for (size_t i = 0; i < KVT_COUNT(of_28); i++) want[of_28[i]] = true;
    kv_codec_recipe_skip(KV_CODEC_PUBLISHED_HARNESS, 28, skip);
    assert_memory_equal(skip, want, 28 * sizeof *skip);
    memset(want, 0, sizeof want);
    for (size_t i = 0; i < KVT_COUNT(of_36); i++) want[of_36[i]] = true;
    kv_codec_recipe_skip(KV_CODEC_PUBLISHED_HARNESS, 36, skip);
    assert_memory_equal(skip, want, sizeof skip);
    kv_codec_recipe_skip(KV_CODEC_PUBLISHED_HARNESS, 4, skip);
    for (int i = 0; i < 4; i++) assert_false(skip[i]);
    for (int32_t r = 0; r < KV_CODEC_RECIPE_COUNT; r++) {
        if (r == KV_CODEC_PUBLISHED_HARNESS) continue;
        memset(skip, 1, sizeof skip);
        kv_codec_recipe_skip(r, 36, skip);
        for (int i = 0; i < 36; i++) assert_false(skip[i]);
    }
}

static void test_production_ratios(void **state)
{
    (void)state;
    const kv_codec_half_config k = half_of(KV_CODEC_KV1, KV_CODEC_K, 128, false);
    const kv_codec_half_config v = half_of(KV_CODEC_KV1, KV_CODEC_V, 128, false);
    kv_codec_account a = account(&k, 1, NULL, 1, 512, false), b = account(&v, 1, NULL, 1, 512, false);
    assert_int_equal(a.bytes, 44840);
    assert_int_equal(b.bytes, 29232);
    assert_int_equal((int)(kv_codec_account_ratio(&a) * 100 + 0.5), 292);
    assert_int_equal((int)(kv_codec_account_ratio(&b) * 100 + 0.5), 448);
    kv_codec_account_add(&a, &b);
    assert_int_equal(a.bytes, 74072);
    assert_int_equal(a.raw_bytes, 262144);
    assert_int_equal((int)(kv_codec_account_ratio(&a) * 100 + 0.5), 354);
}

static void test_tails_and_skipped_layers(void **state)
{
    static const bool skip[3] = {true, false, false};
    (void)state;
    const kv_codec_half_config k = half_of(KV_CODEC_KV1, KV_CODEC_K, 128, false);
    const kv_codec_account a = account(&k, 3, skip, 8, 1000, false);
    assert_int_equal(a.slots, 2 * 8);
    assert_int_equal(a.tail_rows, 2 * 8 * 488);
    assert_int_equal(a.bytes, 16 * 44840 + (16 * 488 + 8000) * 256);
    assert_int_equal(a.raw_bytes, 3 * 8 * 1000 * 256);
    const kv_codec_account none = account(&k, 3, skip, 8, 0, true);
    assert_int_equal(none.bytes, 0);
    assert_true(kv_codec_account_ratio(&none) == 1);
}

static void test_shared_skeletons_count_once(void **state)
{
    (void)state;
    const kv_codec_half_config k = half_of(KV_CODEC_KV1_SHARED, KV_CODEC_K, 128, false);
    const int64_t slot = 44840 - 16384 - 256, page = 48 + 16384 + 256;
    kv_codec_account a = account(&k, 1, NULL, 1, 2048, false);
    assert_int_equal(a.pages, 1);
    assert_int_equal(a.bytes, 4 * slot + page);
    a = account(&k, 1, NULL, 2, 2048 + 1024 + 5, false); /* the second group is not full */
    assert_int_equal(a.bytes, 2 * (4 * slot + page + 1029 * 256));
    a = account(&k, 1, NULL, 2, 2048 + 1024 + 5, true);
    assert_int_equal(a.bytes, 2 * (6 * slot + 2 * page + 5 * 256));
    const kv_codec_half_config v = half_of(KV_CODEC_PUBLISHED_HARNESS, KV_CODEC_V, 128, false);
    a = account(&v, 1, NULL, 8, 130, true); /* 1040 rows of mixed heads */
    assert_int_equal(a.slots, 2);
    assert_int_equal(a.pages, 1);
    assert_int_equal(a.tail_rows, 16);
    a = account(&v, 1, NULL, 8, 130, false);
    assert_int_equal(a.slots, 0);
}

static void test_sizes_that_do_not_fit(void **state)
{
    kv_codec_account a;
    kv_err err = {0};
    (void)state;
    const kv_codec_half_config k = half_of(KV_CODEC_KV1, KV_CODEC_K, 128, false);
    kvt_refused(kv_codec_account_of(&k, 65536, NULL, 1 << 20, (int64_t)1 << 40, 2, true, &a, &err), KV_ENOMEM, &err,
                "huge", KVT_SAYS("64 bits"));
    kvt_refused(kv_codec_account_of(&k, 0, NULL, 1, 1, 2, true, &a, &err), KV_EINVAL, &err, "layers",
                KVT_SAYS("0 layers"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_published_settings),
        cmocka_unit_test(test_harness_metric_follows_whitening),
        cmocka_unit_test(test_kv1_settings),
        cmocka_unit_test(test_default_d_eff),
        cmocka_unit_test(test_wrong_halves),
        cmocka_unit_test(test_skipped_layers),
        cmocka_unit_test(test_production_ratios),
        cmocka_unit_test(test_tails_and_skipped_layers),
        cmocka_unit_test(test_shared_skeletons_count_once),
        cmocka_unit_test(test_sizes_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
