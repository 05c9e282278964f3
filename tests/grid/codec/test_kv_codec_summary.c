/* Rows of the attribution study side by side: means, and what has none. */
#include "grid/codec/kv_codec_summary.h"
#include "tests/kv_test_cert.h"

static void add_study(json_t *doc, const char *cell, const char *seed, const char *proof)
{
    json_t *row = kvt_cert_add(doc, "study", "kv1", 0, NULL, "NOT_EXACT");
    json_object_set_new(row, "check", json_string("attribution"));
    json_object_set_new(row, "params", json_pack("{s:s,s:s}", "cell", cell, "seed", seed));
    json_object_set_new(row, "proof", kvt_json(proof));
    json_object_clear(json_object_get(row, "observations"));
    for (int i = 0; i < KV_OBS_COUNT; i++)
        json_object_set_new(json_object_get(row, "observations"), kv_row_obs_name(KV_CHECK_ATTRIBUTION, i),
                            json_false());
}

#define PROOF(ppl, kl, error)                                                                                          \
    "{'ppl_change_ppm':" ppl ",'kl_nano':" kl ",'top1_ppm':900000,'k_error_ppm':" error                                \
    ",'v_error_ppm':7,'accept':'ACCEPT'}"

/* Gives doc back. */
static json_t *table_of(json_t *doc)
{
    json_t *table = NULL;
    kv_err err = {0};
    kv_reader r = kvt_reader(doc);
    kvt_ok(kv_codec_summary_new(&r, &table, &err), &err);
    kv_reader_close(&r);
    json_decref(doc);
    return table;
}

static const json_t *entry(const json_t *table, size_t i)
{
    return json_array_get(json_object_get(table, "attribution"), i);
}

static void expect_number(const json_t *e, const char *key, int64_t want)
{
    assert_true(json_is_integer(json_object_get(e, key)));
    assert_int_equal(json_integer_value(json_object_get(e, key)), want);
}

static void summary__means_over_the_seeds(void **state)
{
    (void)state;
    json_t *doc = kvt_cert(1);
    add_study(doc, "k", "1", PROOF("-100", "10", "3"));
    add_study(doc, "k", "2", PROOF("-300", "30", "5"));
    add_study(doc, "kv", "1", PROOF("500", "50", "3"));
    add_study(doc, "v", "1", PROOF("200", "20", "0"));
    json_t *table = table_of(doc);
    expect_number(entry(table, 0), "ppl_change_ppm", -200);
    expect_number(entry(table, 0), "kl_nano", 20);
    expect_number(entry(table, 0), "k_error_ppm", 4);
    expect_number(entry(table, 1), "gap_to_k_plus_v_ppl_ppm", 500);
    expect_number(entry(table, 1), "gap_to_k_plus_v_kl_nano", 10);
    json_decref(table);
}

/* Neither null nor -1 is a number that others could be averaged with. */
static void summary__has_no_mean_where_a_seed_has_no_number(void **state)
{
    (void)state;
    json_t *doc = kvt_cert(1);
    add_study(doc, "k", "1", PROOF("100", "10", "3"));
    add_study(doc, "k", "2", PROOF("null", "null", "-1"));
    add_study(doc, "k", "3", PROOF("100", "10", "3"));
    add_study(doc, "kv", "1", PROOF("500", "50", "3"));
    add_study(doc, "v", "1", PROOF("200", "20", "0"));
    json_t *table = table_of(doc);
    static const char *const none[] = {"ppl_change_ppm", "kl_nano", "k_error_ppm"};
    for (size_t i = 0; i < 3; i++) assert_true(json_is_null(json_object_get(entry(table, 0), none[i])));
    expect_number(entry(table, 0), "v_error_ppm", 7);
    expect_number(entry(table, 0), "seeds", 3);
    assert_true(json_is_null(json_object_get(entry(table, 1), "gap_to_k_plus_v_ppl_ppm")));
    assert_true(json_is_null(json_object_get(entry(table, 1), "gap_to_k_plus_v_kl_nano")));
    json_decref(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summary__means_over_the_seeds),
        cmocka_unit_test(summary__has_no_mean_where_a_seed_has_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
