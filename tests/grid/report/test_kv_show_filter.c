/* Which rows show takes. */
#include "grid/report/kv_show.h"
#include "tests/kv_test_cert.h"

static kv_rc filter(const kv_reader *r, const char *select, const char *geometry, const char *verdict, const char *pair,
                    kv_filter *f, kv_err *err)
{
    kv_opts o = {.select = select, .verdict = verdict, .n_positional = pair != NULL ? 2 : 1};
    o.positional[1] = pair;
    if (geometry != NULL) o.geometry[o.n_geometry++] = geometry;
    memset(f, 0, sizeof *f);
    return kv_filter_new(&o, r, f, err);
}

/* The rows of r that are taken, as "ab0 bc1 " (source, destination, geometry). */
static void assert_taken(kv_reader *r, const char *select, const char *geometry, const char *verdict, const char *pair,
                         const char *want)
{
    kv_filter f;
    kv_err err = {0};
    char got[512] = "";
    kvt_ok(filter(r, select, geometry, verdict, pair, &f, &err), &err);
    kv_reader_rewind(r);
    for (;;) {
        const json_t *row;
        kv_view v;
        const size_t at = strlen(got);
        kvt_ok(kv_reader_next(r, &row, &v, &err), &err);
        if (row == NULL) break;
        if (kv_filter_takes(&f, &v)) snprintf(got + at, sizeof got - at, "%s%s%zu ", v.src, v.dst, v.geometry);
    }
    assert_string_equal(got, want);
    kv_filter_free(&f);
}

static json_t *three(void)
{
    static const char *const names[] = {"a", "b", "c"};
    json_t *doc = kvt_cert(2);
    for (int g = 0; g < 2; g++)
        for (int s = 0; s < 3; s++)
            for (int d = 0; d < 3; d++)
                if (s != d) kvt_cert_add(doc, names[s], names[d], g, NULL, s == 0 ? "EXACT_BYTE" : "REFUSED");
    return doc;
}

static void filter__takes_by_layout_geometry_verdict_and_pair(void **state)
{
    (void)state;
    json_t *doc = three();
    kv_reader r = kvt_reader(doc);
    assert_taken(&r, NULL, NULL, NULL, NULL, "ab0 ac0 ba0 bc0 ca0 cb0 ab1 ac1 ba1 bc1 ca1 cb1 ");
    assert_taken(&r, "a,b", NULL, NULL, NULL, "ab0 ba0 ab1 ba1 "); /* both sides */
    assert_taken(&r, "?", "T=2", NULL, NULL, "ab1 ac1 ba1 bc1 ca1 cb1 ");
    assert_taken(&r, "a->*", NULL, NULL, NULL, "ab0 ac0 ab1 ac1 ");
    assert_taken(&r, "a->b,*->a", "L=1,T=1,H=2,D=8,Dv=8,e=f16", NULL, NULL, "ab0 ba0 ca0 ");
    assert_taken(&r, "a->b,b,c", "T=1", NULL, NULL, "ab0 bc0 cb0 ");
    assert_taken(&r, NULL, "e=f16,T=1", "EXACT_BYTE", NULL, "ab0 ac0 ");
    assert_taken(&r, NULL, NULL, "FAILED,UNPROVEN", NULL, "");
    assert_taken(&r, NULL, "T=1", "REFUSED,EXACT_BYTE", "b->c", "bc0 ");
    assert_taken(&r, NULL, NULL, NULL, "b->", "");
    kv_reader_close(&r);
    json_decref(doc);
}

static void filter__refuses_what_can_take_nothing(void **state)
{
    (void)state;
    static const char *const bad[][4] = {
        {"d*", NULL, NULL, "\"d*\""},         {"a->d", NULL, NULL, "\"d\""},    {"->a", NULL, NULL, "\"\""},
        {"a,", NULL, NULL, "\"\""},           {"a", NULL, NULL, "a->*,*->a"},   {NULL, "T=3", NULL, "T=3"},
        {NULL, "T=1,T=1", NULL, "each once"}, {NULL, "T", NULL, "\"T\""},       {NULL, "t=1", NULL, "\"t=1\""},
        {NULL, "T=", NULL, "\"T=\""},         {NULL, "T=1x", NULL, "\"T=1x\""}, {NULL, "e=f15", NULL, "\"e=f15\""},
        {NULL, "T=1,", NULL, "\"\""},         {NULL, NULL, "GOOD", "GOOD"},     {NULL, NULL, "REFUSED,", "\"\""}};
    json_t *doc = three();
    kv_reader r = kvt_reader(doc);
    for (size_t i = 0; i < KVT_COUNT(bad); i++) {
        kv_filter f;
        kv_err err = {0};
        kvt_refused(filter(&r, bad[i][0], bad[i][1], bad[i][2], NULL, &f, &err), KV_EINVAL, &err, bad[i][3],
                    KVT_SAYS("--", bad[i][3]));
        kv_filter_free(&f);
    }
    kv_reader_close(&r);
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter__takes_by_layout_geometry_verdict_and_pair),
        cmocka_unit_test(filter__refuses_what_can_take_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
