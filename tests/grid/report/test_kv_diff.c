/* Two certificates compared: what matches, what is worse, what is declared otherwise. */
#include "grid/report/kv_diff.h"
#include "tests/kv_test_cert.h"

static kv_diff compared(json_t *old, json_t *new)
{
    kv_diff d = {0};
    kv_err err = {0};
    json_t *const doc[KV_SIDES] = {old, new};
    for (int s = 0; s < KV_SIDES; s++) {
        kv_reader r = kvt_reader(doc[s]);
        kvt_ok(kv_diff_add_reader(&d, s, &r, &err), &err);
        kv_reader_close(&r);
    }
    kvt_ok(kv_diff_compare(&d, &err), &err);
    return d;
}

static void assert_counts(const kv_diff *d, int64_t same, int64_t worse, int64_t better, int64_t added, int64_t gone,
                          int64_t redeclared)
{
    assert_int_equal(d->counts[KV_DIFF_SAME], same);
    assert_int_equal(d->counts[KV_DIFF_WORSE], worse);
    assert_int_equal(d->counts[KV_DIFF_BETTER], better);
    assert_int_equal(d->counts[KV_DIFF_ADDED], added);
    assert_int_equal(d->counts[KV_DIFF_GONE], gone);
    assert_int_equal(d->redeclared, redeclared);
}

static void done(kv_diff *d, json_t *old, json_t *new)
{
    kv_diff_free(d);
    json_decref(old);
    json_decref(new);
}

static void assert_line(const kv_diff *d, size_t i, const char *want)
{
    kv_buf line = {0};
    kv_err err = {0};
    kvt_ok(kv_diff_line(d, &d->pair[i], &line, &err), &err);
    assert_string_equal(line.data, want);
    kv_buf_free(&line);
}

static void diff_grade__the_scale_is_total_and_turns_around(void **state)
{
    (void)state;
    for (int a = 0; a < KV_VERDICT_COUNT; a++)
        for (int b = 0; b < KV_VERDICT_COUNT; b++) {
            kv_diff_row o = {.verdict = (uint8_t)a}, n = {.verdict = (uint8_t)b};
            assert_int_equal(kv_diff_grade(&o, &n), a == b ? KV_DIFF_SAME : b > a ? KV_DIFF_WORSE : KV_DIFF_BETTER);
        }
}

/* Over all pairs of observations at one verdict: anything lost is worse, whatever was gained. */
static void diff_grade__a_lost_observation_is_worse(void **state)
{
    (void)state;
    static const uint8_t tri[] = {KV_NULL, KV_FALSE, KV_TRUE}; /* rising */
    for (int i = 0; i < 3 * 3 * 3 * 3; i++) {
        const int a = i % 3, b = i / 3 % 3, c = i / 9 % 3, e = i / 27;
        kv_diff_row o = {.verdict = KV_VERDICT_NOT_EXACT}, n = o;
        memset(o.seen, KV_FALSE, sizeof o.seen);
        memset(n.seen, KV_FALSE, sizeof n.seen);
        o.seen[KV_OBS_TOKENS] = tri[a];
        n.seen[KV_OBS_TOKENS] = tri[b];
        o.seen[KV_SEEN_VALUES] = tri[c];
        n.seen[KV_SEEN_VALUES] = tri[e];
        const kv_diff_change want = b < a || e < c ? KV_DIFF_WORSE : b > a || e > c ? KV_DIFF_BETTER : KV_DIFF_SAME;
        assert_int_equal(kv_diff_grade(&o, &n), want);
    }
}

static void diff__matches_by_values_not_by_place(void **state)
{
    (void)state;
    json_t *old = kvt_cert(2), *new = kvt_cert(2);
    json_t *list = json_object_get(new, "geometries"); /* the same two, the other way round */
    json_t *first = json_incref(json_array_get(list, 0));
    json_array_remove(list, 0);
    json_array_append_new(list, first);
    kvt_cert_add(old, "a", "b", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(old, "a", "b", 1, NULL, "NOT_EXACT");
    kvt_cert_add(new, "a", "b", 0, NULL, "NOT_EXACT");
    kvt_cert_add(new, "a", "b", 1, NULL, "EXACT_BYTE");
    kv_diff d = compared(old, new);
    assert_counts(&d, 2, 0, 0, 0, 0, 0);
    assert_true(kv_diff_passes(&d, false));
    done(&d, old, new);
}

static void diff__tells_rows_in_the_order_of_the_new_then_what_is_gone(void **state)
{
    (void)state;
    json_t *old = kvt_cert(1), *new = kvt_cert(1);
    kvt_cert_add(old, "a", "b", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(old, "a", "c", 0, "nan", "REFUSED");
    kvt_cert_add(old, "b", "a", 0, NULL, "EXACT_TOKEN");
    kvt_cert_add(new, "c", "b", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(new, "b", "a", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(new, "a", "b", 0, NULL, "FAILED");
    kvt_cert_add(new, "a", "c", 0, "zero", "REFUSED"); /* other params, another row */
    kv_diff d = compared(old, new);
    assert_counts(&d, 0, 1, 1, 2, 1, 0);
    assert_int_equal(d.n, 5);
    assert_line(&d, 0, "c->b at L=1,T=1,H=2,D=8,e=f16: EXACT_BYTE");
    assert_line(&d, 1, "b->a at L=1,T=1,H=2,D=8,e=f16: EXACT_TOKEN -> EXACT_BYTE");
    assert_line(&d, 2, "a->b at L=1,T=1,H=2,D=8,e=f16: EXACT_BYTE -> FAILED");
    assert_line(&d, 4, "a->c at L=1,T=1,H=2,D=8,e=f16,tail=nan: REFUSED");
    assert_false(kv_diff_passes(&d, true));
    done(&d, old, new);
}

static void diff__new_and_gone_alone_pass(void **state)
{
    (void)state;
    json_t *old = kvt_cert(1), *new = kvt_cert(1);
    kvt_cert_add(old, "a", "b", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(old, "a", "c", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(new, "a", "b", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(new, "b", "c", 0, NULL, "FAILED");
    kv_diff d = compared(old, new);
    assert_counts(&d, 1, 0, 0, 1, 1, 0);
    assert_true(kv_diff_passes(&d, false));
    done(&d, old, new);
}

/* Other names on both sides: nothing worse, and nothing compared. */
static void diff__nothing_in_common_is_no_pass(void **state)
{
    (void)state;
    json_t *old = kvt_cert(1), *new = kvt_cert(1);
    kvt_cert_add(old, "a", "b", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(new, "b", "c", 0, NULL, "EXACT_BYTE");
    kv_diff d = compared(old, new);
    assert_true(kv_diff_is_void(&d));
    assert_false(kv_diff_passes(&d, true));
    done(&d, old, new);
}

static void diff__a_changed_declaration_is_redeclared(void **state)
{
    (void)state;
    json_t *old = kvt_cert(1), *new = kvt_cert(1);
    json_object_set_new(json_array_get(json_object_get(new, "catalogue"), 1), "block", json_integer(16));
    kvt_cert_add(old, "a", "b", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(old, "a", "c", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(old, "b", "a", 0, NULL, "EXACT_TOKEN");
    kvt_cert_add(new, "a", "b", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(new, "a", "c", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(new, "b", "a", 0, NULL, "NOT_EXACT");
    kv_diff d = compared(old, new);
    assert_counts(&d, 2, 1, 0, 0, 0, 2);
    assert_line(&d, 2, "b->a at L=1,T=1,H=2,D=8,e=f16: EXACT_TOKEN -> NOT_EXACT [redeclared: b]");
    assert_false(kv_diff_passes(&d, true)); /* accepted, and still worse */
    done(&d, old, new);
}

static void diff__a_redeclared_row_passes_once_accepted(void **state)
{
    (void)state;
    json_t *old = kvt_cert(1), *new = kvt_cert(1);
    json_object_set_new(json_array_get(json_object_get(old, "catalogue"), 0), "digest",
                        json_string("what it says does not count"));
    json_object_set_new(json_array_get(json_object_get(new, "catalogue"), 1), "block", json_integer(16));
    kvt_cert_add(old, "a", "b", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(new, "a", "b", 0, NULL, "EXACT_BYTE");
    kv_diff d = compared(old, new);
    assert_counts(&d, 1, 0, 0, 0, 0, 1);
    assert_int_equal(d.pair[0].redeclared, KV_DIFF_BY_DST);
    assert_false(kv_diff_passes(&d, false));
    assert_true(kv_diff_passes(&d, true));
    done(&d, old, new);
}

/* T = 2 became T = 5 at its place; T = 1 is the same; a third geometry is new. */
static void diff__a_geometry_changed_in_its_place_is_redeclared(void **state)
{
    (void)state;
    json_t *old = kvt_cert(2), *new = kvt_cert(3);
    json_object_set_new(json_array_get(json_object_get(new, "geometries"), 1), "tokens", json_integer(5));
    for (int g = 0; g < 2; g++) kvt_cert_add(old, "a", "b", g, NULL, "EXACT_BYTE");
    kvt_cert_add(new, "a", "b", 0, NULL, "EXACT_BYTE");
    kvt_cert_add(new, "a", "b", 1, NULL, "EXACT_TOKEN");
    kvt_cert_add(new, "a", "b", 2, NULL, "EXACT_BYTE");
    kv_diff d = compared(old, new);
    assert_counts(&d, 1, 1, 0, 1, 0, 1);
    assert_line(&d, 1, "a->b at L=1,T=2,H=2,D=8,e=f16: EXACT_BYTE -> EXACT_TOKEN [redeclared: L=1,T=5,H=2,D=8,e=f16]");
    done(&d, old, new);
}

/* One more geometry before the others moves them, and redeclares none. */
static void diff__an_inserted_geometry_redeclares_nothing(void **state)
{
    (void)state;
    json_t *old = kvt_cert(2), *new = kvt_cert(3);
    json_array_remove(json_object_get(old, "geometries"), 0); /* T = 2; new has 1, 2, 3 */
    kvt_cert_add(old, "a", "b", 0, NULL, "EXACT_BYTE");
    for (int g = 0; g < 3; g++) kvt_cert_add(new, "a", "b", g, NULL, "EXACT_BYTE");
    kv_diff d = compared(old, new);
    assert_counts(&d, 1, 0, 0, 2, 0, 0);
    done(&d, old, new);
}

/* d12 */
static void diff__256_worse_rows_are_no_pass(void **state)
{
    (void)state;
    json_t *old = kvt_cert(256), *new = kvt_cert(256);
    for (int g = 0; g < 256; g++) {
        kvt_cert_add(old, "a", "b", g, NULL, "EXACT_BYTE");
        kvt_cert_add(new, "a", "b", g, NULL, "EXACT_TOKEN");
    }
    kv_diff d = compared(old, new);
    assert_counts(&d, 0, 256, 0, 0, 0, 0);
    assert_false(kv_diff_passes(&d, false));
    done(&d, old, new);
}

static void diff__a_row_that_stands_twice_is_refused(void **state)
{
    (void)state;
    for (int s = 0; s < KV_SIDES; s++) {
        json_t *doc[KV_SIDES] = {kvt_cert(1), kvt_cert(1)};
        kv_diff d = {0};
        kv_err err = {0};
        kvt_cert_add(doc[0], "a", "b", 0, NULL, "EXACT_BYTE");
        kvt_cert_add(doc[1], "a", "b", 0, NULL, "EXACT_BYTE");
        kvt_cert_add(doc[s], "a", "b", 0, NULL, "EXACT_BYTE");
        for (int k = 0; k < KV_SIDES; k++) {
            kv_reader r = kvt_reader(doc[k]);
            kvt_ok(kv_diff_add_reader(&d, k, &r, &err), &err);
            kv_reader_close(&r);
        }
        kvt_refused(kv_diff_compare(&d, &err), KV_EFORMAT, &err, "twice",
                    KVT_SAYS(s == 0 ? "old" : "new", "a->b", "twice"));
        done(&d, doc[0], doc[1]);
    }
}

static void diff_json__counts_and_lists(void **state)
{
    (void)state;
    json_t *old = kvt_cert(3), *new = kvt_cert(3), *v = NULL;
    kv_err err = {0};
    for (int g = 0; g < 3; g++) {
        kvt_cert_add(old, "a", "b", g, NULL, "EXACT_BYTE");
        kvt_cert_add(new, "a", "b", g, NULL, g > 0 ? "NOT_EXACT" : "EXACT_BYTE");
    }
    kv_diff d = compared(old, new);
    kvt_ok(kv_diff_json(&d, false, 1, &v, &err), &err);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "counts"), "worse")), 2);
    assert_true(json_is_false(json_object_get(json_object_get(v, "counts"), "passes")));
    const json_t *worse = json_object_get(v, "worse");
    assert_int_equal(json_array_size(worse), 1); /* no more than asked for */
    assert_string_equal(json_string_value(json_object_get(json_array_get(worse, 0), "new")), "NOT_EXACT");
    json_decref(v);
    done(&d, old, new);
}

static void diff__survives_every_failed_allocation(void **state)
{
    (void)state;
    json_t *old = kvt_cert(2), *new = kvt_cert(3);
    for (int g = 0; g < 2; g++) {
        kvt_cert_add(old, "a", "b", g, NULL, "EXACT_BYTE");
        kvt_cert_add(new, "b", "a", g, NULL, "EXACT_BYTE");
    }
    kv_reader r[KV_SIDES] = {kvt_reader(old), kvt_reader(new)};
    for (long n = 0;; n++) {
        kv_diff d = {0};
        kv_err err = {0};
        kv_alloc_fail_after(n);
        kv_rc rc = kv_diff_add_reader(&d, KV_OLD, &r[KV_OLD], &err);
        if (rc == KV_OK) rc = kv_diff_add_reader(&d, KV_NEW, &r[KV_NEW], &err);
        if (rc == KV_OK) rc = kv_diff_compare(&d, &err);
        kv_alloc_fail_after(-1);
        kv_diff_free(&d);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        assert_true(n < 500);
    }
    for (int s = 0; s < KV_SIDES; s++) kv_reader_close(&r[s]);
    json_decref(old);
    json_decref(new);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(diff_grade__the_scale_is_total_and_turns_around),
        cmocka_unit_test(diff_grade__a_lost_observation_is_worse),
        cmocka_unit_test(diff__matches_by_values_not_by_place),
        cmocka_unit_test(diff__tells_rows_in_the_order_of_the_new_then_what_is_gone),
        cmocka_unit_test(diff__new_and_gone_alone_pass),
        cmocka_unit_test(diff__nothing_in_common_is_no_pass),
        cmocka_unit_test(diff__a_changed_declaration_is_redeclared),
        cmocka_unit_test(diff__a_redeclared_row_passes_once_accepted),
        cmocka_unit_test(diff__a_geometry_changed_in_its_place_is_redeclared),
        cmocka_unit_test(diff__an_inserted_geometry_redeclares_nothing),
        cmocka_unit_test(diff__256_worse_rows_are_no_pass),
        cmocka_unit_test(diff__a_row_that_stands_twice_is_refused),
        cmocka_unit_test(diff_json__counts_and_lists),
        cmocka_unit_test(diff__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
