/* What a campaign expects: reading, which rule decides, bounds, waivers by the day, rules without a row. */
#include "grid/report/kv_expect.h"
#include "tests/kv_test_cert.h"
#include "tests/kv_test_grid.h"

static kv_expect *rules_on(const char *text, const char *today)
{
    kv_expect *e = NULL;
    kv_err err = {0};
    json_t *list = kvt_json(text);
    kvt_ok(kv_expect_new(list, today, "c.json", &e, &err), &err);
    json_decref(list);
    return e;
}

static kv_expect *rules(const char *text)
{
    return rules_on(text, "2026-11-29");
}

/* Judges a row src->dst at "L=..,T=..". */
static void judge(kv_expect *e, const char *src, const char *dst, const char *geometry, const char *tail,
                  kv_verdict verdict)
{
    const kv_geometry g = kvt_geometry(geometry);
    json_t *params = tail != NULL ? json_pack("{s:s}", "tail", tail) : json_object();
    const kv_view v = {.check = "pair", .src = src, .dst = dst, .params = params, .verdict = verdict};
    kv_expect_row(e, &v, &g);
    json_decref(params);
}

static size_t decides(const kv_expect *e, const char *src, const char *dst, const char *geometry)
{
    const kv_geometry g = kvt_geometry(geometry);
    json_t *params = json_object();
    const kv_view v = {.check = "pair", .src = src, .dst = dst, .params = params};
    const size_t i = kv_expect_find(e, &v, &g);
    json_decref(params);
    return i;
}

#define G "L=1,T=40,H=2,D=8,e=f16"

static void expect_find__the_first_rule_that_fits_decides(void **state)
{
    (void)state;
    kv_expect *e = rules(
        "[{'pairs':'a->b','verdict':'REFUSED'},"
        "{'pairs':'a*->?','verdict':'REFUSED','geometry':{'tokens':[1,40],'element':'bf16'}},"
        "{'pairs':'a->*','verdict':'REFUSED','geometry':{'head_dim_v':4}},{'pairs':'a*->*','at_least':'REFUSED'}]");
    assert_int_equal(decides(e, "a", "b", G), 0);
    assert_int_equal(decides(e, "ab", "c", "L=1,T=40,H=2,D=8,e=bf16"), 1);
    assert_int_equal(decides(e, "ab", "c", "L=1,T=41,H=2,D=8,e=bf16"), 3);
    assert_int_equal(decides(e, "ab", "cd", "L=1,T=40,H=2,D=8,e=bf16"), 3);
    assert_int_equal(decides(e, "a", "c", "L=1,T=40,H=2,D=8,Dv=4,e=f16"), 2);
    assert_int_equal(decides(e, "a", "c", "L=1,T=40,H=2,D=4,e=f16"), 2); /* as wide as head_dim where it is not given */
    assert_int_equal(decides(e, "a", "c", G), 3);
    assert_int_equal(decides(e, "b", "a", G), KV_EXPECT_NOBODY);
    assert_int_equal(decides(NULL, "b", "a", G), KV_EXPECT_NOBODY);
    kv_expect_free(e);
}

/* Each side of a pattern is held against a name, so that * cannot run over the arrow. */
static void expect_find__patterns_do_not_cross_the_arrow(void **state)
{
    (void)state;
    kv_expect *e = rules("[{'pairs':'*b->c','verdict':'REFUSED'}]");
    assert_int_equal(decides(e, "a", "b->c", G), KV_EXPECT_NOBODY);
    assert_int_equal(decides(e, "ab", "c", G), 0);
    kv_expect_free(e);
}

static void expect_find__params_are_part_of_a_rule(void **state)
{
    (void)state;
    kv_expect *e = rules("[{'pairs':'*->*','verdict':'EXACT_BYTE','params':{'tail':['zero','nan']}},{'pairs':'*->*','"
                         "verdict':'EXACT_TOKEN'}]");
    judge(e, "a", "b", G, "zero", KV_VERDICT_EXACT_BYTE);
    judge(e, "a", "b", G, "nan", KV_VERDICT_EXACT_BYTE);
    judge(e, "a", "b", G, "stale", KV_VERDICT_EXACT_TOKEN);
    judge(e, "a", "b", G, NULL, KV_VERDICT_EXACT_TOKEN);
    assert_int_equal(kv_expect_count(e).met, 2);
    kv_expect_free(e);
}

static void expect_allows__a_bound_takes_all_that_is_not_below(void **state)
{
    (void)state;
    static const kv_verdict scale[] = {KV_VERDICT_EXACT_BYTE, KV_VERDICT_EXACT_TOKEN, KV_VERDICT_NOT_EXACT,
                                       KV_VERDICT_REFUSED,    KV_VERDICT_UNPROVEN,    KV_VERDICT_FAILED};
    for (size_t b = 0; b < 5; b++) {
        char text[128];
        snprintf(text, sizeof text, "[{'pairs':'*->*','at_least':'%s'}]", kv_verdict_name(scale[b]));
        kv_expect *e = rules(text);
        for (size_t v = 0; v < KVT_COUNT(scale); v++) assert_int_equal(kv_expect_allows(e, 0, scale[v]), v <= b);
        kv_expect_free(e);
    }
    kv_expect *e = rules("[{'pairs':'*->*','verdict':['REFUSED','EXACT_BYTE']}]");
    for (size_t v = 0; v < KVT_COUNT(scale); v++) assert_int_equal(kv_expect_allows(e, 0, scale[v]), v == 0 || v == 3);
    kv_expect_free(e);
}

static void expect_line__says_rule_counts_and_the_first_row(void **state)
{
    (void)state;
    kv_expect *e =
        rules("[{'pairs':'a->*','at_least':'EXACT_TOKEN'},{'pairs':'gone->*','verdict':['REFUSED','NOT_EXACT']},"
              "{'pairs':'b->*','verdict':'REFUSED'}]");
    kv_err err = {0};
    kv_buf line = {0};
    judge(e, "a", "b", G, NULL, KV_VERDICT_EXACT_BYTE);
    judge(e, "a", "c", G, "nan", KV_VERDICT_NOT_EXACT);
    judge(e, "a", "d", G, NULL, KV_VERDICT_FAILED);
    judge(e, "b", "d", G, NULL, KV_VERDICT_REFUSED);
    kvt_ok(kv_expect_line(e, 0, &line, &err), &err);
    assert_string_equal(line.data,
                        "expect[0] \"a->*\" (at least EXACT_TOKEN): 2 of 3 rows are not so; the first is a->c at " G
                        ",tail=nan: NOT_EXACT");
    kv_buf_free(&line);
    kvt_ok(kv_expect_line(e, 1, &line, &err), &err);
    assert_string_equal(
        line.data, "expect[1] \"gone->*\" (NOT_EXACT or REFUSED): no row fits it, or an earlier rule has them all");
    kv_buf_free(&line);
    kvt_ok(kv_expect_line(e, 2, &line, &err), &err);
    assert_int_equal(line.len, 0);
    kv_buf_free(&line);
    const kv_expect_counts c = kv_expect_count(e);
    assert_int_equal(c.rules, 3);
    assert_int_equal(c.met, 1);
    assert_int_equal(c.unmet, 2);
    assert_int_equal(c.absent, 1);
    kv_expect_free(e);
}

#define WAIVED "[{'pairs':'*->*','verdict':'EXACT_BYTE','waiver':{'reason':'bug 7','until':'2026-11-29'}}]"

static void waiver__counts_to_the_end_of_its_day(void **state)
{
    (void)state;
    static const struct {
        const char *today;
        bool counts;
    } days[] = {
        {"2026-11-28", true}, {"2026-11-29", true}, {"2026-11-30", false}, {"2027-01-01", false}, {"2026-09-30", true}};
    for (size_t i = 0; i < KVT_COUNT(days); i++) {
        kv_expect *e = rules_on(WAIVED, days[i].today);
        kv_err err = {0};
        kv_buf line = {0};
        judge(e, "a", "b", G, NULL, KV_VERDICT_EXACT_TOKEN);
        assert_int_equal(kv_expect_waived(e, 0), days[i].counts);
        assert_int_equal(kv_expect_count(e).waived, days[i].counts);
        assert_int_equal(kv_expect_count(e).unmet, !days[i].counts);
        assert_int_equal(kv_expect_count(e).expired, !days[i].counts);
        kvt_ok(kv_expect_line(e, 0, &line, &err), &err);
        assert_non_null(strstr(line.data, days[i].counts ? "; waived until 2026-11-29: bug 7"
                                                         : "; its waiver ran out after 2026-11-29: bug 7"));
        kv_buf_free(&line);
        kv_expect_free(e);
    }
}

/* A waiver excuses rows that are there, not a pattern that fits none. */
static void waiver__does_not_excuse_a_rule_without_a_row(void **state)
{
    (void)state;
    kv_expect *e = rules_on(WAIVED, "2026-11-01");
    assert_int_equal(kv_expect_count(e).unmet, 1);
    assert_int_equal(kv_expect_count(e).absent, 1);
    assert_int_equal(kv_expect_count(e).waived, 0);
    kv_expect_free(e);
}

static void waiver__a_met_rule_needs_none(void **state)
{
    (void)state;
    kv_expect *e = rules_on(WAIVED, "2099-01-01");
    judge(e, "a", "b", G, NULL, KV_VERDICT_EXACT_BYTE);
    assert_int_equal(kv_expect_count(e).met, 1);
    assert_int_equal(kv_expect_count(e).unmet, 0);
    kv_expect_free(e);
}

/* d12: a number that is 0 in 8 bits is a number. */
static void expect_count__256_wrong_rows_are_256(void **state)
{
    (void)state;
    kv_expect *e = rules("[{'pairs':'*->*','verdict':'EXACT_BYTE'}]");
    kv_err err = {0};
    kv_buf line = {0};
    for (int i = 0; i < 256; i++) judge(e, "a", "b", G, NULL, KV_VERDICT_EXACT_TOKEN);
    kvt_ok(kv_expect_line(e, 0, &line, &err), &err);
    assert_non_null(strstr(line.data, "256 of 256 rows"));
    assert_int_equal(kv_expect_count(e).unmet, 1);
    kv_buf_free(&line);
    kv_expect_free(e);
}

static void expect_json__holds_counts_and_lines(void **state)
{
    (void)state;
    kv_expect *e = rules("[{'pairs':'a->*','verdict':'EXACT_BYTE'},{'pairs':'b->*','verdict':'EXACT_BYTE'}]");
    kv_err err = {0};
    json_t *v = NULL;
    judge(e, "a", "b", G, NULL, KV_VERDICT_EXACT_BYTE);
    kvt_ok(kv_expect_json(e, &v, &err), &err);
    assert_int_equal(json_integer_value(json_object_get(v, "rules")), 2);
    assert_int_equal(json_integer_value(json_object_get(v, "unmet")), 1);
    assert_int_equal(json_array_size(json_object_get(v, "lines")), 1);
    json_decref(v);
    kv_expect_free(e);
}

static void expect_today__is_a_day(void **state)
{
    (void)state;
    char today[KV_DAY_TEXT], text[160];
    kv_expect_today(today);
    snprintf(text, sizeof text, "[{'pairs':'*->*','verdict':'REFUSED','waiver':{'reason':'r','until':'%s'}}]", today);
    kv_expect *e = rules_on(text, today);
    assert_true(kv_expect_waived(e, 0));
    kv_expect_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expect_find__the_first_rule_that_fits_decides),
        cmocka_unit_test(expect_find__patterns_do_not_cross_the_arrow),
        cmocka_unit_test(expect_find__params_are_part_of_a_rule),
        cmocka_unit_test(expect_allows__a_bound_takes_all_that_is_not_below),
        cmocka_unit_test(expect_line__says_rule_counts_and_the_first_row),
        cmocka_unit_test(waiver__counts_to_the_end_of_its_day),
        cmocka_unit_test(waiver__does_not_excuse_a_rule_without_a_row),
        cmocka_unit_test(waiver__a_met_rule_needs_none),
        cmocka_unit_test(expect_count__256_wrong_rows_are_256),
        cmocka_unit_test(expect_json__holds_counts_and_lines),
        cmocka_unit_test(expect_today__is_a_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
