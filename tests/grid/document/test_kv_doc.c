/* The document: every part follows from the campaign and its rows. */
#include "certs/kv_cert.h"
#include "certs/kv_json.h"
#include "grid/document/kv_doc.h"
#include "tests/kv_test_grid.h"

static kv_row *rows_of(kv_device *d, const kv_campaign *c)
{
    kv_row *rows = kvt_take((int64_t)c->n_cells, sizeof *rows);
    for (size_t i = 0; i < c->n_cells; i++) rows[i] = kvt_run(d, c, (int64_t)i);
    return rows;
}

static json_t *doc_of(const kv_campaign *c, const kv_row *rows, const char *started)
{
    json_t *doc = NULL, *devices = kvt_json("['cpu']"), *versions = kvt_json("{'jansson':'2'}"),
           *failures = kvt_json("[]");
    kv_run_facts facts = {.ranks = 1, .devices = devices, .versions = versions, .failures = failures, .elapsed_ms = 12};
    const kv_assurance none = {0};
    kv_err err = {0};
    snprintf(facts.started, sizeof facts.started, "%s", started);
    kvt_ok(kv_doc_new(c, kv_row_set_of(rows), NULL, &none, &facts, &doc, &err), &err);
    json_decref(devices);
    json_decref(versions);
    json_decref(failures);
    return doc;
}

static json_int_t number(const json_t *o, const char *a, const char *b)
{
    const json_t *v = b != NULL ? json_object_get(json_object_get(o, a), b) : json_object_get(o, a);
    if (!json_is_integer(v)) fail_msg("%s.%s is no number", a, b != NULL ? b : "");
    return json_integer_value(v);
}

static void doc_new__of_the_published_campaign_counts_as_published(void **state)
{
    (void)state;
    static const char *const keys[] = {"schema",   "campaign",     "method",   "catalogue", "geometries",
                                       "bindings", "vocabulary",   "boundary", "rows",      "controls",
                                       "checks",   "known_limits", "floors",   "observed",  "run"};
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    kv_row *rows = rows_of(d, &c);
    json_t *doc = doc_of(&c, rows, "2026-11-29T18:00:00Z");
    const json_t *observed = json_object_get(doc, "observed");
    assert_int_equal(json_object_size(doc), KVT_COUNT(keys));
    for (size_t i = 0; i < KVT_COUNT(keys); i++) assert_non_null(json_object_get(doc, keys[i]));
    assert_int_equal(json_array_size(json_object_get(doc, "catalogue")), 12);
    assert_int_equal(json_array_size(json_object_get(doc, "bindings")), 12);
    assert_int_equal(json_array_size(json_object_get(doc, "rows")), 64);
    assert_int_equal(json_array_size(json_object_get(doc, "vocabulary")),
                     12); /* 9 words and 3 frontier codes, as claimed */
    assert_int_equal(number(observed, "rows", NULL), 64);
    assert_int_equal(number(observed, "verdicts", "EXACT_BYTE"), 21);
    assert_int_equal(number(observed, "verdicts", "EXACT_TOKEN"), 35);
    assert_int_equal(number(observed, "verdicts", "NOT_EXACT"), 2);
    assert_int_equal(number(observed, "verdicts", "REFUSED"), 6);
    assert_int_equal(number(observed, "verdicts", "UNPROVEN") + number(observed, "verdicts", "FAILED"), 0);
    assert_int_equal(number(observed, "positions_checked", NULL), 90880);
    assert_int_equal(number(observed, "source_positions_checked", NULL), 90880);
    assert_int_equal(number(observed, "words", NULL), 9);
    assert_int_equal(number(observed, "frontier_codes", NULL), 3);
    assert_int_equal(number(observed, "view_rows", NULL) + number(observed, "same_image_rows", NULL) +
                         number(observed, "empty_rows", NULL),
                     0);
    assert_true(kv_floors_met(doc, NULL));
    assert_int_equal(number(doc, "floors", "exact_byte"), 21);
    assert_int_equal(number(doc, "method", "payloads"), 6);
    json_decref(doc);
    free(rows);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* The same rows another day: the same body; another seed: another body. */
static void doc_new__puts_nothing_of_the_machine_into_the_body(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=4", "L=1,T=5,H=2,D=4,e=f16", ""),
                other =
                    kvt_campaign("a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=4", "L=1,T=5,H=2,D=4,e=f16", "'seed':2");
    kv_row *rows = rows_of(d, &c), *rows2 = rows_of(d, &other);
    json_t *a = doc_of(&c, rows, "2026-11-29T18:00:00Z"), *b = doc_of(&c, rows, "2031-01-01T00:00:00Z"),
           *x = doc_of(&other, rows2, "2026-11-29T18:00:00Z");
    char da[KV_HASH_HEX], db[KV_HASH_HEX], dx[KV_HASH_HEX];
    kv_err err = {0};
    kvt_ok(kv_cert_body_digest(a, da, &err), &err);
    kvt_ok(kv_cert_body_digest(b, db, &err), &err);
    kvt_ok(kv_cert_body_digest(x, dx, &err), &err);
    assert_string_equal(da, db);
    assert_string_not_equal(da, dx);
    json_decref(a);
    json_decref(b);
    json_decref(x);
    free(rows);
    free(rows2);
    kv_campaign_free(&c);
    kv_campaign_free(&other);
    d->ops->close(d);
}

static void doc_new__binds_every_layout_at_every_geometry(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("can sep k=T.H.D; lay sep k=L.T.H.Dg.Dx v=L.H.D.T x=4; wide sep k=T.H.D row_lanes=6; "
                                 "lat lat k=Tb.Ti.C block=4; f8 sep k=T.H.D e=fp8_e4m3",
                                 "L=2,T=5,H=1,D=6,e=f16", "'pairs':[['can','wide']]");
    kv_row *rows = rows_of(d, &c);
    json_t *doc = doc_of(&c, rows, "now");
    json_t *want = kvt_json("[{'layout':'can','geometry':0,'exists':true,'reason':null,'native_shapes':{'k':[5,1,6],'v'"
                            ":[5,1,6]},'is_identity':true},"
                            "{'layout':'f8','geometry':0,'exists':true,'reason':null,'native_shapes':{'k':[5,1,6],'v':["
                            "5,1,6]},'is_identity':false},"
                            "{'layout':'lat','geometry':0,'exists':true,'reason':null,'native_shapes':{'k':[2,4,6],'v':"
                            "[]},'is_identity':false},"
                            "{'layout':'lay','geometry':0,'exists':false,'reason':'lay: x 4 does not divide head_dim "
                            "6','native_shapes':null,'is_identity':false},"
                            "{'layout':'wide','geometry':0,'exists':true,'reason':null,'native_shapes':{'k':[5,1,6],'v'"
                            ":[5,1,6]},'is_identity':true}]");
    char *got = json_dumps(json_object_get(doc, "bindings"), JSON_SORT_KEYS);
    if (!json_equal(json_object_get(doc, "bindings"), want)) fail_msg("%s", got);
    free(got);
    json_decref(want);
    json_decref(doc);
    free(rows);
    kv_campaign_free(&c);
    d->ops->close(d);
}

static void observe__counts_views_same_images_and_empty_rows(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c =
        kvt_campaign("a sep k=T.H.D; b sep k=T.H.D; h sep k=H.T.D; m sep k=T.H.D mla", "L=1,T=5,H=1,D=4,e=f16", "");
    kv_row *rows = rows_of(d, &c);
    kv_observed o;
    kv_observe(&c, kv_row_set_of(rows), &o);
    assert_int_equal(o.rows, 12);
    assert_int_equal(o.view_rows, 2);       /* a<->b: counted there, and not as exact */
    assert_int_equal(o.same_image_rows, 6); /* one head: a, b and h lie alike */
    assert_int_equal(o.verdicts[KV_VERDICT_EXACT_BYTE], 4);
    assert_int_equal(o.verdicts[KV_VERDICT_REFUSED], 6);
    assert_int_equal(o.positions, 4 * 40);
    assert_int_equal(o.empty_rows, 0);
    assert_int_equal(o.words, 1U << KV_W_VIEW_REINTERPRET | 1U << KV_W_HEAD_ORDER_TRANSPOSE);
    free(rows);
    kv_campaign_free(&c);
    c = kvt_campaign("a sep k=T.H.D; h sep k=H.T.D; m sep k=T.H.D mla", "L=1,T=0,H=2,D=4,e=f16", "");
    rows = rows_of(d, &c);
    kv_observe(&c, kv_row_set_of(rows), &o);
    assert_int_equal(o.empty_rows, 2);
    assert_int_equal(o.same_image_rows, 2);
    assert_int_equal(o.positions + o.source_positions, 0);
    rows[0].verdict = KV_VERDICT_FAILED; /* what did not run is no empty row */
    kv_observe(&c, kv_row_set_of(rows), &o);
    assert_int_equal(o.empty_rows, 1);
    free(rows);
    kv_campaign_free(&c);
    d->ops->close(d);
}

static void floors_met__must_be_equal_either_way(void **state)
{
    (void)state;
    static const struct {
        const char *floors;
        bool met;
        const char *says;
    } cases[] = {{"'floors':{'exact_byte':1,'exact_token':1}", true, ""},
                 {"'floors':{'exact_byte':0}", false, "exact_byte"},
                 {"'floors':{'exact_byte':2}", false, "exact_byte"},
                 {"'floors':{'positions_checked':103}", false, "positions_checked"},
                 {"'floors':{'positions_checked':104,'source_positions_checked':104,'words':4,'frontier_codes':0,'"
                  "refused':0,'not_exact':0}",
                  false, "words"},
                 {"'floors':{'words':3}", true, ""},
                 {"", true, ""}};
    kv_device *d = kvt_cpu();
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        kv_campaign c =
            kvt_campaign("a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=4", "L=1,T=5,H=1,D=4,e=f16", cases[i].floors);
        kv_row *rows = rows_of(d, &c);
        json_t *doc = doc_of(&c, rows, "now");
        kv_err err = {0};
        if (kv_floors_met(doc, &err) != cases[i].met) fail_msg("%s: %s", cases[i].floors, err.text);
        if (strstr(err.text, cases[i].says) == NULL) fail_msg("%s: %s", cases[i].floors, err.text);
        json_decref(doc);
        free(rows);
        kv_campaign_free(&c);
    }
    d->ops->close(d);
}

/* Failing allocations of our own (jansson's own are not ours to fail). */
static void doc_new__survives_failed_allocations(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=4", "L=1,T=5,H=2,D=4,e=f16", "");
    kv_row *rows = rows_of(d, &c);
    for (long n = 0; n < 200; n++) {
        json_t *doc = NULL, *list = kvt_json("[]"), *none = kvt_json("{}");
        const kv_run_facts facts = {.ranks = 1, .devices = list, .versions = none, .failures = list, .started = "now"};
        const kv_assurance a = {0};
        kv_err err = {0};
        kv_alloc_fail_after(n);
        const kv_rc rc = kv_doc_new(&c, kv_row_set_of(rows), NULL, &a, &facts, &doc, &err);
        kv_alloc_fail_after(-1);
        json_decref(doc);
        json_decref(list);
        json_decref(none);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
    }
    free(rows);
    kv_campaign_free(&c);
    d->ops->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doc_new__of_the_published_campaign_counts_as_published),
        cmocka_unit_test(doc_new__puts_nothing_of_the_machine_into_the_body),
        cmocka_unit_test(doc_new__binds_every_layout_at_every_geometry),
        cmocka_unit_test(observe__counts_views_same_images_and_empty_rows),
        cmocka_unit_test(floors_met__must_be_equal_either_way),
        cmocka_unit_test(doc_new__survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
