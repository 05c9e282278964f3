#include <string.h>

#include "grid/run/kv_differences.h"
#include "tests/kv_test.h"

static json_t *versions(const char *a, const char *b)
{
    json_t *v = json_pack("{s:s}", "mpi", a);
    if (b != NULL) json_object_set_new(v, "driver", json_string(b));
    return v;
}

static void same_is_no_entry(void **state)
{
    (void)state;
    kv_err err = {0};
    json_t *v = versions("4.1", "470"), *list = json_array();
    const kv_stands_on who[] = {{v, 0, "a", NULL}, {v, 1, "b", NULL}, {v, 2, "b", NULL}};
    assert_int_equal(kv_differences_find(who, 3, list, &err), KV_OK);
    assert_int_equal(json_array_size(list), 0);
    assert_int_equal(kv_differences_find(who, 1, list, &err), KV_OK);
    assert_int_equal(json_array_size(list), 0);
    json_decref(v);
    json_decref(list);
}

static void each_value_names_its_ranks(void **state)
{
    (void)state;
    kv_err err = {0};
    json_t *v[4] = {versions("4.1", NULL), versions("4.2", "470"), versions("4.1", "470"), versions("4.1", NULL)};
    json_t *list = json_array();
    const kv_stands_on who[] = {{v[0], 0, "a", NULL}, {v[1], 1, "a", NULL}, {v[2], 2, "b", NULL}, {v[3], 3, "b", NULL}};
    assert_int_equal(kv_differences_find(who, 4, list, &err), KV_OK);
    char *text = json_dumps(list, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "[{\"values\":[{\"hosts\":[\"a\",\"b\"],\"ranks\":[0,2,3],\"value\":\"4.1\"},"
                              "{\"hosts\":[\"a\"],\"ranks\":[1],\"value\":\"4.2\"}],\"what\":\"mpi\"},"
                              "{\"values\":[{\"hosts\":[\"a\",\"b\"],\"ranks\":[0,3],\"value\":\"none\"},"
                              "{\"hosts\":[\"a\",\"b\"],\"ranks\":[1,2],\"value\":\"470\"}],\"what\":\"driver\"}]");
    free(text);
    for (int i = 0; i < 4; i++) json_decref(v[i]);
    json_decref(list);
}

static void parts_are_named_as_parts(void **state)
{
    (void)state;
    kv_err err = {0};
    json_t *a = versions("4.1", NULL), *b = versions("4.2", NULL), *list = json_array();
    const kv_stands_on who[] = {{.versions = a, .part = "1/2"}, {.versions = b, .part = "2/2"}};
    assert_int_equal(kv_differences_find(who, 2, list, &err), KV_OK);
    char *text = json_dumps(list, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "[{\"values\":[{\"parts\":[\"1/2\"],\"value\":\"4.1\"},"
                              "{\"parts\":[\"2/2\"],\"value\":\"4.2\"}],\"what\":\"mpi\"}]");
    free(text);
    json_decref(a);
    json_decref(b);
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_is_no_entry), cmocka_unit_test(each_value_names_its_ranks),
                                       cmocka_unit_test(parts_are_named_as_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
