/* Expansion: patterns, selection, pairs, the order of cells. */
#include "grid/campaign/kv_cells.h"
#include "tests/kv_test_grid.h"

static void pattern_match__knows_star_and_question_mark(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool want;
    } cases[] = {{"a", "a", true},
                 {"a", "b", false},
                 {"a", "ab", false},
                 {"", "", true},
                 {"", "a", false},
                 {"*", "", true},
                 {"*", "abc", true},
                 {"a*", "a", true},
                 {"a*", "ba", false},
                 {"*c", "abc", true},
                 {"*c", "abcd", false},
                 {"a*c", "ac", true},
                 {"a*c", "abcbc", true},
                 {"a*c", "abcb", false},
                 {"?", "a", true},
                 {"?", "", false},
                 {"?", "ab", false},
                 {"a?c", "abc", true},
                 {"**", "x", true},
                 {"*a*b*", "xxayybzz", true},
                 {"*a*b*", "xxbyyazz", false},
                 {"vllm-*", "vllm-paged-x16", true},
                 {"vllm-????", "vllm-tp2", false},
                 {"*x", "vllm-paged-x", true},
                 {"a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
                 {"A", "a", false}};
    for (size_t i = 0; i < KVT_COUNT(cases); i++)
        if (kv_pattern_match(cases[i].pattern, cases[i].name) != cases[i].want)
            fail_msg("\"%s\" and \"%s\"", cases[i].pattern, cases[i].name);
}

static void assert_cells(const kv_campaign *c, const char *const *want, size_t n)
{
    assert_int_equal(c->n_cells, n);
    for (size_t i = 0; i < n; i++) {
        char id[KV_PAIR_ID_TEXT], text[KV_PAIR_ID_TEXT + 32];
        kv_cell_pair_id(c, &c->cells[i], id);
        snprintf(text, sizeof text, "%d %s %s", c->cells[i].geometry, id, kv_tail_name((kv_tail)c->cells[i].tail));
        assert_string_equal(text, want[i]);
    }
}

/* By geometry, then the bytes of "src->dst" (not of src: '-' sorts before '.' and letters), then the params. */
static void cells_expand__orders_by_geometry_pair_id_and_params(void **state)
{
    (void)state;
    static const char *const want[] = {"0 a->a-b nan", "0 a->a-b stale", "0 a->a.b nan",   "0 a->a.b stale",
                                       "0 a-b->a nan", "0 a-b->a stale", "0 a-b->a.b nan", "0 a-b->a.b stale",
                                       "0 a.b->a nan", "0 a.b->a stale", "0 a.b->a-b nan", "0 a.b->a-b stale"};
    kv_campaign c = kvt_campaign("a sep k=T.H.D; a.b sep k=H.T.D; a-b sep k=T.D.H", "L=1,T=4,H=2,D=8,e=f16",
                                 "'tail':['stale','nan']");
    /* "a-" < "a->" < "a.": '-' 2D, '.' 2E; "a->" against "a-b->": '>' 3E before 'b' 62 */
    assert_cells(&c, want, KVT_COUNT(want));
    kv_campaign_free(&c);
}

static void cells_expand__takes_listed_pairs_in_row_order_not_as_listed(void **state)
{
    (void)state;
    static const char *const want[] = {"0 a->b stale", "0 b->c stale", "0 c->a stale"};
    kv_campaign c = kvt_campaign("a sep k=T.H.D; b sep k=H.T.D; c sep k=T.D.H", "L=1,T=4,H=2,D=8,e=f16",
                                 "'pairs':[['c','a'],['b','c'],['a','b']]");
    assert_cells(&c, want, KVT_COUNT(want));
    kv_campaign_free(&c);
}

/* Every ordered pair of the lossless, then each other layout against the anchor, both ways. */
static void cells_expand__published_is_what_the_design_says(void **state)
{
    (void)state;
    kv_campaign c = kvt_published_campaign();
    int lossless = 0, others = 0;
    char last[KV_PAIR_ID_TEXT] = "";
    for (size_t i = 0; i < c.n_cells; i++) {
        const kv_layout *s = c.catalogue.item[c.cells[i].src], *d = c.catalogue.item[c.cells[i].dst];
        char id[KV_PAIR_ID_TEXT];
        kv_cell_pair_id(&c, &c.cells[i], id);
        assert_true(strcmp(last, id) < 0);
        snprintf(last, sizeof last, "%s", id);
        if (s->role == KV_ROLE_LOSSLESS && d->role == KV_ROLE_LOSSLESS) {
            lossless++;
            continue;
        }
        others++;
        assert_true(strcmp(s->name, "vllm-fa") == 0 || strcmp(d->name, "vllm-fa") == 0);
    }
    assert_int_equal(lossless, 56);
    assert_int_equal(others, 8);
    kv_campaign_free(&c);
    /* an anchor that is not lossless itself is paired with no one twice and never with itself */
    c = kvt_campaign("vllm-fa sep k=T.H.D role=frontier; a sep k=H.T.D; b sep k=T.D.H role=lossy",
                     "L=1,T=4,H=2,D=8,e=f16", "'pairs':'published'");
    static const char *const want[] = {"0 b->vllm-fa stale", "0 vllm-fa->b stale"};
    assert_cells(&c, want, KVT_COUNT(want));
    kv_campaign_free(&c);
}

static void cells_select__keeps_what_a_pattern_names(void **state)
{
    (void)state;
    kv_campaign c = kvt_campaign("vllm-a sep k=T.H.D; vllm-b sep k=H.T.D; other sep k=T.D.H; more sep k=D.T.H",
                                 "L=1,T=4,H=2,D=8,e=f16", "'select':['vllm-*','mo?e','vllm-a']");
    assert_int_equal(c.catalogue.n, 3);
    assert_string_equal(c.catalogue.item[0]->name, "more");
    assert_string_equal(c.catalogue.item[2]->name, "vllm-b");
    assert_int_equal(c.n_cells, 6);
    kv_campaign_free(&c);
}

/* The parts of a campaign are apart, in row order, and together the whole. */
static void cells_expand__parts_are_a_partition(void **state)
{
    (void)state;
    static const char layouts[] = "a sep k=T.H.D; b sep k=H.T.D; c sep k=T.D.H; d sep k=D.T.H; e int k=KV.T.H.D";
    kv_campaign whole = kvt_campaign(layouts, "L=1,T=4,H=2,D=8,e=f16", "'tail':['nan','stale']");
    for (int parts = 1; parts <= 5; parts++) {
        unsigned char seen[40] = {0};
        size_t cells = 0;
        assert_int_equal(whole.n_cells, 40);
        for (int part = 1; part <= parts; part++) {
            char more[64];
            snprintf(more, sizeof more, "'tail':['nan','stale'],'part':'%d/%d'", part, parts);
            kv_campaign c = kvt_campaign(layouts, "L=1,T=4,H=2,D=8,e=f16", more);
            size_t at = 0;
            for (size_t i = 0; i < c.n_cells; i++, at++) {
                while (at < 40 && memcmp(&c.cells[i], &whole.cells[at], sizeof(kv_cell)) != 0) at++;
                assert_true(at < 40);
                seen[at]++;
            }
            cells += c.n_cells;
            kv_campaign_free(&c);
        }
        assert_int_equal(cells, 40);
        for (int i = 0; i < 40; i++) assert_int_equal(seen[i], 1);
    }
    kv_campaign_free(&whole);
    static const char *const bad[] = {"0/2",   "3/2",  "1/0",  "2",    "/2",   "1/",
                                      "1/2/3", "+1/2", "1/ 2", "01/2", "-1/2", "1/65537"};
    for (size_t i = 0; i < KVT_COUNT(bad); i++) {
        char more[64];
        kv_campaign c = {0};
        kv_err err = {0};
        kv_catalogue all = kvt_layouts(layouts);
        snprintf(more, sizeof more, "'part':'%s'", bad[i]);
        json_t *spec = kvt_spec("L=1,T=4,H=2,D=8,e=f16", more);
        kvt_refused(kv_campaign_build(spec, &all, "file.json", &c, &err), KV_EFORMAT, &err, more,
                    KVT_SAYS("file.json", "\"part\"", bad[i]));
        kv_campaign_free(&c);
        kv_catalogue_free(&all);
        json_decref(spec);
    }
}

static void cells_expand__refuses_more_cells_than_it_can_number(void **state)
{
    (void)state;
    /* 100 x 99 x 10,000 geometries x 2 tails: 198 million */
    kv_catalogue all = {0};
    kv_campaign c = {0};
    kv_err err = {0};
    for (int i = 0; i < 100; i++) {
        char text[64];
        snprintf(text, sizeof text, "l%02d sep k=T.H.D", i);
        kvt_ok(kv_catalogue_take(&all, kvt_layout(text), "test", &err), &err);
    }
    json_t *spec = kvt_spec("L=1,T=4,H=2,D=8,e=f16", "'tail':['zero','nan']"), *tokens = json_array();
    for (int i = 0; i < 10000; i++) json_array_append_new(tokens, json_integer(i));
    json_object_set_new(json_array_get(json_object_get(spec, "geometries"), 0), "tokens", tokens);
    kvt_refused(kv_campaign_build(spec, &all, "file.json", &c, &err), KV_EFORMAT, &err, "cells",
                KVT_SAYS("file.json", "9900 pairs", "10000 geometries"));
    kv_campaign_free(&c);
    kv_catalogue_free(&all);
    json_decref(spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pattern_match__knows_star_and_question_mark),
        cmocka_unit_test(cells_expand__orders_by_geometry_pair_id_and_params),
        cmocka_unit_test(cells_expand__takes_listed_pairs_in_row_order_not_as_listed),
        cmocka_unit_test(cells_expand__published_is_what_the_design_says),
        cmocka_unit_test(cells_select__keeps_what_a_pattern_names),
        cmocka_unit_test(cells_expand__parts_are_a_partition),
        cmocka_unit_test(cells_expand__refuses_more_cells_than_it_can_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
