/* The published campaign against the published rows, field by field. They stand in a file beside the source
 * tree; without it this is a visible skip. */
#include "grid/row/kv_row.h"
#include "tests/kv_test_grid.h"

#define ROWS KV_SOURCE_DIR "/../shared/published_rows.json"

/* Published numbers that are not to be reproduced: they depend on the payload, or count fp8 as 2 bytes (design
 * section 4). Only in rows that carry a note. */
static bool excused(const json_t *want, const char *key)
{
    return json_object_get(want, "note") != NULL &&
           (strcmp(key, "roundtrip_diff_positions") == 0 || strcmp(key, "native_bytes") == 0);
}

static int compare(const json_t *want, const json_t *got, const json_t *row, const char *pair, int *fields)
{
    int faults = 0;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)want, key, v)
    {
        const json_t *mine = json_object_get(got, key);
        if (strcmp(key, "note") == 0 || excused(row, key)) continue;
        if (strcmp(key, "proof") == 0 || strcmp(key, "observations") == 0) {
            faults += compare(v, mine, row, pair, fields);
            continue;
        }
        (*fields)++;
        if (mine != NULL && json_equal(v, mine)) continue;
        print_error("%s: %s differs\n", pair, key);
        faults++;
    }
    return faults;
}

static void published_campaign__has_the_published_rows(void **state)
{
    (void)state;
    json_error_t je;
    json_t *doc = json_load_file(ROWS, JSON_REJECT_DUPLICATES, &je);
    if (doc == NULL) fail_msg("%s: %s", ROWS, je.text);
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    const json_t *rows = json_object_get(doc, "rows");
    int faults = 0, fields = 0;
    assert_int_equal(json_array_size(rows), 24);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *want = json_array_get(rows, i);
        const char *pair = json_string_value(json_object_get(want, "pair_id"));
        const kv_row row = kvt_run_pair(d, &c, pair);
        json_t *got = kv_row_json_new(&c, &row);
        faults += compare(want, got, want, pair, &fields);
        json_decref(got);
    }
    assert_int_equal(faults, 0);
    assert_true(fields > 24 * 20);
    json_decref(doc);
    kv_campaign_free(&c);
    d->ops->close(d);
}

int main(void)
{
    if (!kv_path_exists(ROWS)) {
        printf("SKIP: %s is not there\n", ROWS);
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(published_campaign__has_the_published_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
