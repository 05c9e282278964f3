/* Reports of the hand-out as bytes: what goes in comes out, and nothing torn is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mpi/kv_mpi_msg.h"

static void build(kv_mpi_report *r)
{
    const kv_err err = {.rc = KV_EDEVICE, .text = "it burns"};
    assert_int_equal(kv_mpi_report_begin(r, NULL), KV_OK);
    assert_int_equal(kv_mpi_report_add(r, 7, "seven", 5, NULL), KV_OK);
    assert_int_equal(kv_mpi_report_add(r, 8, NULL, 0, NULL), KV_OK);
    assert_int_equal(kv_mpi_report_add(r, 1LL << 40, "x", 1, NULL), KV_OK);
    r->head.busy_ns = 99;
    r->head.flags = KV_MPI_FINAL;
    kv_mpi_outcome_set(&r->head.outcome, KV_EDEVICE, 3, 9, &err);
    kv_mpi_report_close(r);
}

static void report__comes_back_as_it_went_in(void **state)
{
    (void)state;
    kv_mpi_report r = {0};
    kv_mpi_report_head head;
    kv_mpi_report_reader reader;
    kv_mpi_result res;
    build(&r);
    assert_true(kv_mpi_report_open(r.bytes.data, r.bytes.len, &head, &reader));
    assert_int_equal(head.busy_ns, 99);
    assert_int_equal(head.flags, KV_MPI_FINAL);
    assert_int_equal(head.n_results, 3);
    assert_int_equal(head.outcome.rank, 3);
    assert_string_equal(head.outcome.text, "it burns");
    assert_true(kv_mpi_report_next(&reader, &res));
    assert_int_equal(res.item, 7);
    assert_int_equal(res.n, 5);
    assert_memory_equal(res.bytes, "seven", 5);
    assert_true(kv_mpi_report_next(&reader, &res));
    assert_int_equal(res.n, 0);
    assert_true(kv_mpi_report_next(&reader, &res));
    assert_true(res.item == 1LL << 40);
    assert_false(kv_mpi_report_next(&reader, &res));
    assert_int_equal(reader.left, 0);
    assert_int_equal(kv_mpi_report_begin(&r, NULL), KV_OK); /* again: empty */
    assert_int_equal(r.head.n_results, 0);
    kv_buf_free(&r.bytes);
}

static void report__cut_anywhere_is_seen(void **state)
{
    (void)state;
    kv_mpi_report r = {0};
    build(&r);
    for (size_t n = 0; n < r.bytes.len; n++) {
        kv_mpi_report_head head;
        kv_mpi_report_reader reader;
        kv_mpi_result res;
        if (!kv_mpi_report_open(r.bytes.data, n, &head, &reader)) continue;
        while (kv_mpi_report_next(&reader, &res)) continue;
        assert_true(reader.results_left > 0 || reader.left > 0);
    }
    kv_buf_free(&r.bytes);
}

static void report_add__that_fails_leaves_no_half_result(void **state)
{
    (void)state;
    static char big[100000];
    kv_mpi_report r = {0};
    kv_mpi_report_head head;
    kv_mpi_report_reader reader;
    kv_mpi_result res;
    build(&r);
    kv_alloc_fail_after(0);
    assert_int_equal(kv_mpi_report_add(&r, 5, big, sizeof big, NULL), KV_ENOMEM);
    kv_alloc_fail_after(-1);
    kv_mpi_report_close(&r);
    assert_true(kv_mpi_report_open(r.bytes.data, r.bytes.len, &head, &reader));
    while (kv_mpi_report_next(&reader, &res)) continue;
    assert_int_equal(reader.results_left, 0);
    assert_int_equal(reader.left, 0);
    kv_buf_free(&r.bytes);
}

static void outcome__keeps_the_first_cause(void **state)
{
    (void)state;
    kv_mpi_outcome o = {0};
    const kv_err first = {.rc = KV_ENOMEM, .text = "first"}, second = {.rc = KV_EDEVICE, .text = "second"};
    kv_mpi_outcome_set(&o, KV_ENOMEM, 1, 2, &first);
    kv_mpi_outcome_set(&o, KV_EDEVICE, 3, 4, &second);
    assert_int_equal(o.rc, KV_ENOMEM);
    assert_int_equal(o.item, 2);
    assert_string_equal(o.text, "first");
    memset(&o, 0, sizeof o);
    kv_mpi_outcome_set(&o, KV_EINTR, 0, -1, NULL);
    assert_string_equal(o.text, "KV_EINTR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(report__comes_back_as_it_went_in),
        cmocka_unit_test(report__cut_anywhere_is_seen),
        cmocka_unit_test(report_add__that_fails_leaves_no_half_result),
        cmocka_unit_test(outcome__keeps_the_first_cause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
