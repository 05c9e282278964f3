/* Params as text: what is shortened, and that it is still told apart. */
#include "grid/campaign/kv_params.h"
#include "tests/kv_test.h"

static void params_print__tells_apart_what_it_shortens(void **state)
{
    (void)state;
    char out[KV_PARAMS_TEXT], other[KV_PARAMS_TEXT], key[KV_PARAMS_TEXT], value[2000];
    json_t *params = json_object();
    kv_params_print(params, out);
    assert_string_equal(out, "");
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    json_object_set_new(params, key, json_string("v"));
    kv_params_print(params, out); /* no key is that long, but nothing may break */
    assert_true(strlen(out) < KV_PARAMS_TEXT);
    assert_non_null(strstr(out, "...#"));
    json_object_clear(params);
    memset(value, '1', sizeof value - 1); /* as lists of stages are */
    value[sizeof value - 1] = '\0';
    json_object_set_new(params, "from_stages", json_string(value));
    json_object_set_new(params, "send", json_string("chunks"));
    json_object_set_new(params, "to_stages", json_string(value));
    kv_params_print(params, out);
    assert_non_null(strstr(out, ",send=chunks,to_stages=111"));
    value[1990] = '2';
    json_object_set_new(params, "to_stages", json_string(value));
    kv_params_print(params, other);
    assert_string_not_equal(out, other);
    value[80] = '\0'; /* the longest that stands whole */
    json_object_set_new(params, "to_stages", json_string(value));
    kv_params_print(params, out);
    assert_non_null(strstr(out, value));
    json_decref(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(params_print__tells_apart_what_it_shortens)};
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
