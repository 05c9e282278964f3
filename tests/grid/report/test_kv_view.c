/* Certificates read row by row: what is taken, what is refused and how. */
#include "grid/campaign/kv_params.h"
#include "tests/kv_test_cert.h"

static void reader__gives_each_row_once_and_again_after_a_rewind(void **state)
{
    (void)state;
    json_t *doc = kvt_cert(2);
    kv_err err = {0};
    kvt_cert_add(doc, "a", "b", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(doc, "b", "c", 1, "nan", "REFUSED");
    kv_reader r = kvt_reader(doc);
    for (int pass = 0; pass < 2; pass++) {
        const json_t *row = NULL;
        kv_view v;
        char params[KV_PARAMS_TEXT];
        kvt_ok(kv_reader_next(&r, &row, &v, &err), &err);
        assert_string_equal(v.src, "a");
        assert_int_equal(v.verdict, KV_VERDICT_EXACT_BYTE);
        assert_int_equal(v.seen[KV_OBS_TOKENS], KV_TRUE);
        assert_false(v.converts);
        kvt_ok(kv_reader_next(&r, &row, &v, &err), &err);
        assert_int_equal(v.geometry, 1);
        assert_int_equal(v.seen[KV_OBS_TOKENS], KV_NULL);
        kv_params_print(v.params, params);
        assert_string_equal(params, ",tail=nan");
        kvt_ok(kv_reader_next(&r, &row, &v, &err), &err);
        assert_null(row);
        kvt_ok(kv_reader_next(&r, &row, NULL, &err), &err);
        assert_null(row);
        kv_reader_rewind(&r);
    }
    assert_int_equal(r.geometries[1].tokens, 2);
    assert_int_equal(r.geometries[1].head_dim_v, 8);
    kv_reader_close(&r);
    kv_reader_close(&r); /* again is fine */
    json_decref(doc);
}

/* One key of a row set to a JSON value (or taken away), and what the refusal names. */
static const struct {
    const char *key, *value, *says;
} edits[] = {{"check", "7", "rows[0].check"},
             {"src", "''", "rows[0].src"},
             {"dst", NULL, "rows[0].dst"},
             {"pair_id", "'a->c'", "rows[0].pair_id"},
             {"pair_id", "'a-b'", "rows[0].pair_id"},
             {"geometry", "2", "rows[0].geometry"},
             {"geometry", "-1", "rows[0].geometry"},
             {"geometry", "'0'", "rows[0].geometry"},
             {"params", "[]", "rows[0].params"},
             {"params", "{'tail':1}", "rows[0].params"},
             {"verdict", "'PERFECT'", "rows[0].verdict"},
             {"verdict", "null", "rows[0].verdict"},
             {"observations", "{}", "rows[0].observations"},
             {"observations", "null", "rows[0].observations"},
             {"proof", "{'detail':{'values_preserved':3}}", "values_preserved"},
             {"proof", "{'gather_agrees':3,'detail':null}", "gather_agrees"}};

static void reader_next__names_the_place_that_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < KVT_COUNT(edits); i++) {
        json_t *doc = kvt_cert(2);
        kv_err err = {0};
        kv_view v;
        const json_t *at;
        json_t *row = kvt_cert_add(doc, "a", "b", 0, NULL, "EXACT_BYTE");
        if (edits[i].value != NULL)
            json_object_set_new(row, edits[i].key, kvt_json(edits[i].value));
        else
            json_object_del(row, edits[i].key);
        kv_reader r = kvt_reader(doc);
        kvt_refused(kv_reader_next(&r, &at, &v, &err), KV_EFORMAT, &err, edits[i].says,
                    KVT_SAYS("test.json", edits[i].says));
        kv_reader_close(&r);
        json_decref(doc);
    }
}

static void reader_of_doc__takes_certificates_only(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"[]", "no certificate"},
        {"{'schema':'kvgrid.campaign/v1'}", "no certificate"},
        {"{'schema':'kvgrid.certificate/v1','rows':[]}", "geometries"},
        {"{'schema':'kvgrid.certificate/v1','geometries':[]}", "rows"},
        {"{'schema':'kvgrid.certificate/v1','geometries':[{'layers':1}],'rows':[]}", "geometries[0].tokens"},
        {"{'schema':'kvgrid.certificate/v1','rows':[],'geometries':[{'layers':1,'tokens':1,'kv_heads':1,"
         "'head_dim':1,'element':'f15'}]}",
         "geometries[0].element"}};
    for (size_t i = 0; i < KVT_COUNT(bad); i++) {
        json_t *doc = kvt_json(bad[i][0]);
        kv_reader r = {0};
        kv_err err = {0};
        kvt_refused(kv_reader_of_doc(doc, "x.json", &r, &err), KV_EFORMAT, &err, bad[i][0],
                    KVT_SAYS("x.json", bad[i][1]));
        kv_reader_close(&r);
        json_decref(doc);
    }
}

static void reader_open__says_what_it_cannot_read(void **state)
{
    (void)state;
    kv_reader r = {0};
    kv_err err = {0};
    kvt_refused(kv_reader_open("/", &r, &err), KV_EREAD, &err, "a folder", KVT_SAYS("/: is a directory"));
    kv_reader_close(&r);
    kvt_refused(kv_reader_open("/no/such", &r, &err), KV_EREAD, &err, "nothing", KVT_SAYS("/no/such"));
    kv_reader_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reader__gives_each_row_once_and_again_after_a_rewind),
        cmocka_unit_test(reader_next__names_the_place_that_is_wrong),
        cmocka_unit_test(reader_of_doc__takes_certificates_only),
        cmocka_unit_test(reader_open__says_what_it_cannot_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
