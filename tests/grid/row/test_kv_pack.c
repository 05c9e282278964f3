/* Rows packed and back. */
#include "grid/row/kv_pack.h"
#include "tests/kv_test_grid.h"

static kv_campaign mixed(void)
{
    return kvt_campaign("a sep k=T.H.D; b sep k=Tb.Ti.H.D block=4; c sep k=T.H.D e=fp8_e4m3; d sep k=T.H.D tp=1/2",
                        "L=2,T=5,H=2,D=8,e=f16", "'tail':['stale','zero']");
}

static kv_row back(const kv_campaign *c, const kv_row *row, size_t *bytes)
{
    kv_buf b = {0};
    kv_row r;
    kv_err err = {0};
    kvt_ok(kv_row_pack(c, row, &b, &err), &err);
    kvt_ok(kv_row_unpack(c, b.data, b.len, &r, &err), &err);
    *bytes = b.len;
    kv_buf_free(&b);
    return r;
}

static void pack__every_row_comes_back(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c[2] = {kvt_published_campaign(), mixed()};
    size_t all = 0, n = 0, refused = 0, bytes;
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < c[k].n_cells; i++, n++) {
            const kv_row row = kvt_run(d, &c[k], (int64_t)i), r = back(&c[k], &row, &bytes);
            kvt_assert_same_row(&row, &r);
            all += bytes;
            refused += row.verdict == KV_VERDICT_REFUSED && row.reason[0] != '\0';
        }
        kv_campaign_free(&c[k]);
    }
    print_message("%zu rows, %zu bytes each\n", n, all / n);
    assert_true(all / n < 120);
    assert_true(refused > 0);
    d->ops->close(d);
}

/* What cannot be derived again is kept as it was given. */
static void pack__texts_that_were_given_stay(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    size_t bytes;
    kv_row row = kvt_run_pair(d, &c, "vllm-fa->deepseek-mla");
    snprintf(row.reason, sizeof row.reason, "of another version");
    kv_row r = back(&c, &row, &bytes);
    assert_string_equal(r.reason, "of another version");
    kv_row failed = {.cell = 3, .verdict = KV_VERDICT_FAILED, .error_class = KV_ERRCLASS_DEVICE};
    memset(failed.reason, 'r', sizeof failed.reason - 1);
    memset(failed.failed_at, 'a', sizeof failed.failed_at - 1);
    r = back(&c, &failed, &bytes);
    kvt_assert_same_row(&r, &failed);
    kv_campaign_free(&c);
    d->ops->close(d);
}

static void unpack__refuses_what_is_no_row(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    const kv_row row = kvt_run(d, &c, 1);
    kv_buf b = {0};
    kv_row r;
    uint64_t rng = 1;
    assert_int_equal(kv_row_pack(&c, &row, &b, NULL), KV_OK);
    for (size_t n = 0; n < b.len; n++) assert_int_equal(kv_row_unpack(&c, b.data, n, &r, NULL), KV_EFORMAT);
    assert_int_equal(kv_buf_append(&b, "x", 1, NULL), KV_OK);
    assert_int_equal(kv_row_unpack(&c, b.data, b.len, &r, NULL), KV_EFORMAT);
    for (int i = 0; i < 20000; i++) { /* whatever is taken can be packed again */
        char bytes[200];
        kv_buf again = {0};
        const size_t n = b.len < sizeof bytes ? b.len - 1 : sizeof bytes;
        memcpy(bytes, b.data, n);
        for (int k = 0; k < 3; k++) bytes[kvt_below(&rng, (int64_t)n)] = (char)kvt_below(&rng, 256);
        if (kv_row_unpack(&c, bytes, n, &r, NULL) == KV_OK) assert_int_equal(kv_row_pack(&c, &r, &again, NULL), KV_OK);
        kv_buf_free(&again);
    }
    kv_buf_free(&b);
    kv_campaign_free(&c);
    d->ops->close(d);
}

static void store__keeps_the_last_row_of_each_cell(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    kv_pack *p = NULL;
    kv_err err = {0};
    kv_row r;
    kvt_ok(kv_pack_new(&c, &p, &err), &err);
    kv_pack_get(p, 5, &r);
    assert_int_equal(r.cell, -1);
    assert_false(kv_pack_has(p, 5));
    const kv_row row = kvt_run(d, &c, 5);
    for (int i = 0; i < 30000; i++) { /* over several chunks */
        kv_row now = row;
        now.worst_ppm = i;
        kvt_ok(kv_pack_put(p, &now, &err), &err);
    }
    assert_true(kv_pack_has(p, 5));
    kv_row_set_get(kv_pack_rows(p), 5, &r);
    assert_int_equal(r.worst_ppm, 29999);
    r.worst_ppm = row.worst_ppm;
    kvt_assert_same_row(&r, &row);
    assert_false(kv_pack_has(p, 6));
    kv_pack_free(p);
    kv_pack_free(NULL);
    kv_campaign_free(&c);
    d->ops->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pack__every_row_comes_back),
        cmocka_unit_test(pack__texts_that_were_given_stay),
        cmocka_unit_test(unpack__refuses_what_is_no_row),
        cmocka_unit_test(store__keeps_the_last_row_of_each_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
