/* Geometries: text in and out, ranges, JSON. */
#include "layouts/kv_geometry.h"
#include "tests/kv_test.h"

static void geometry_parse__reads_what_print_writes(void **state)
{
    (void)state;
    static const char *const texts[][2] = {{"L=3,T=40,H=2,D=8,e=f16", NULL},
                                           {"L=1,T=0,H=1,D=1,Dv=4,e=fp8_e4m3", NULL},
                                           {"e=bf16,D=6,H=2,T=9,L=1", "L=1,T=9,H=2,D=6,e=bf16"},
                                           {"D=192,Dv=128,T=1,H=128,e=f16,L=61", "L=61,T=1,H=128,D=192,Dv=128,e=f16"},
                                           {"L=2,T=5,H=1,D=7,Dv=7,e=f32", "L=2,T=5,H=1,D=7,e=f32"}};
    for (size_t i = 0; i < KVT_COUNT(texts); i++) {
        const kv_geometry g = kvt_geometry(texts[i][0]);
        char back[KV_GEOMETRY_TEXT];
        kv_geometry_print(&g, back);
        assert_string_equal(back, texts[i][1] != NULL ? texts[i][1] : texts[i][0]);
        const kv_geometry again = kvt_geometry(back);
        assert_true(kv_geometry_equal(&g, &again));
    }
}

static void geometry_parse__refuses_by_name(void **state)
{
    (void)state;
    static const char *const bad[][2] = {{"", "KEY=VALUE"},
                                         {"T=40,H=2,D=8", "L= is missing"},
                                         {"L=3,H=2,D=8", "T= is missing"},
                                         {"L=3,T=40,D=8", "H= is missing"},
                                         {"L=3,T=40,H=2", "D= is missing"},
                                         {"L=3,T=40,H=2,D=8,L=3", "L is given twice"},
                                         {"L=3,T=40,H=2,D=8,q=3", "\"q=3\""},
                                         {"L=3,T=40,H=2,D=8,e=f64", "\"f64\""},
                                         {"L=3,T=x,H=2,D=8", "T=\"x\""},
                                         {"L=3,T=4 0,H=2,D=8", "T="},
                                         {"L=3,T=,H=2,D=8", "T="},
                                         {"L=3,T=+4,H=2,D=8", "T="},
                                         {"L=0,T=40,H=2,D=8,e=f16", "layers is 0"},
                                         {"L=65537,T=40,H=2,D=8,e=f16", "layers"},
                                         {"L=3,T=-1,H=2,D=8,e=f16", "tokens is -1"},
                                         {"L=3,T=1099511627777,H=2,D=8,e=f16", "tokens"},
                                         {"L=3,T=40,H=0,D=8,e=f16", "kv_heads is 0"},
                                         {"L=3,T=40,H=1048577,D=8,e=f16", "kv_heads"},
                                         {"L=3,T=40,H=2,D=0,e=f16", "head_dim is 0"},
                                         {"L=3,T=40,H=2,D=1048577,e=f16", "head_dim"},
                                         {"L=3,T=40,H=2,D=8,Dv=0,e=f16", "head_dim_v is 0"},
                                         {"L=3,T=99999999999999999999,H=2,D=8", "T="},
                                         {"L=3,,T=40,H=2,D=8", "KEY=VALUE"},
                                         {"l=3,T=40,H=2,D=8", "\"l=3\""},
                                         {"L=3,T=40,H=2,D=8,e=", "element"},
                                         {"L=3,T=40,H=2,D=8", "e= is missing"}};
    for (size_t i = 0; i < KVT_COUNT(bad); i++) {
        kv_geometry g = {-7, -7, -7, -7, -7, KV_ELEM_F32};
        kv_err err = {0};
        kvt_refused(kv_geometry_parse(bad[i][0], &g, &err), KV_EINVAL, &err, bad[i][0], KVT_SAYS(bad[i][1]));
        assert_int_equal(g.layers + g.tokens + g.kv_heads + g.head_dim + g.head_dim_v, -35); /* untouched */
    }
    kv_geometry g;
    kv_err err = {0};
    kv_alloc_fail_after(0);
    const kv_rc rc = kv_geometry_parse("L=3,T=40,H=2,D=8,e=f16", &g, &err);
    kv_alloc_fail_after(-1);
    assert_int_equal(rc, KV_ENOMEM);
}

static void geometry_json__has_the_campaign_s_fields(void **state)
{
    (void)state;
    const kv_geometry g = kvt_geometry("L=3,T=40,H=2,D=8,e=bf16"), v = kvt_geometry("L=1,T=9,H=2,D=6,Dv=4,e=f32");
    json_t *a = kv_geometry_json_new(&g), *b = kv_geometry_json_new(&v);
    json_t *want_a = kvt_json("{'layers':3,'tokens':40,'kv_heads':2,'head_dim':8,'element':'bf16'}");
    json_t *want_b = kvt_json("{'layers':1,'tokens':9,'kv_heads':2,'head_dim':6,'head_dim_v':4,'element':'f32'}");
    assert_true(json_equal(a, want_a));
    assert_true(json_equal(b, want_b));
    json_decref(a);
    json_decref(b);
    json_decref(want_a);
    json_decref(want_b);
}

static void geometry_equal__looks_at_every_field(void **state)
{
    (void)state;
    const kv_geometry g = kvt_geometry("L=3,T=40,H=2,D=8,e=f16");
    static const char *const others[] = {"L=2,T=40,H=2,D=8,e=f16",      "L=3,T=41,H=2,D=8,e=f16",
                                         "L=3,T=40,H=3,D=8,e=f16",      "L=3,T=40,H=2,D=9,Dv=8,e=f16",
                                         "L=3,T=40,H=2,D=8,Dv=9,e=f16", "L=3,T=40,H=2,D=8,e=bf16"};
    assert_true(kv_geometry_equal(&g, &g));
    for (size_t i = 0; i < KVT_COUNT(others); i++) {
        const kv_geometry o = kvt_geometry(others[i]);
        assert_false(kv_geometry_equal(&g, &o));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(geometry_parse__reads_what_print_writes),
        cmocka_unit_test(geometry_parse__refuses_by_name),
        cmocka_unit_test(geometry_json__has_the_campaign_s_fields),
        cmocka_unit_test(geometry_equal__looks_at_every_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
