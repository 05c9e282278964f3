/* One declaration, three readers: the loader of layouts/, the verifier and certs/verify.py take the same ones. A verifier that
 * takes more would judge layouts that no run can have had. */
#include "tests/kv_test.h"

#include "certs/kv_json.h"
#include "certs/kv_verify_int.h"
#include "layouts/kv_layout.h"

static bool loader_takes(json_t *object)
{
    kv_layout *l = NULL;
    kv_err err = {0};
    const kv_rc rc = kv_layout_new(object, "line", &l, &err);
    assert_true(rc == KV_OK || rc == KV_EFORMAT);
    kv_layout_free(l);
    return rc == KV_OK;
}

static bool verifier_takes(json_t *object)
{
    kv_verify_report report = {0};
    kv_vf v = {.doc = object, .report = &report};
    kv_vf_layout l;
    const bool good = kv_vf_layout_parse(&v, object, 0, &l);
    assert_int_equal(v.rc, KV_OK);
    assert_int_equal(good, report.n_faults == 0);
    kv_verify_report_free(&report);
    return good;
}

static void declarations__are_taken_by_all_readers_or_by_none(void **state)
{
    (void)state;
    char command[512], *line = NULL;
    size_t room = 0;
    long n = 0, taken = 0;
    ssize_t len;
    snprintf(command, sizeof command, "python3 '%s/tests/certs/declarations.py' 30000", KV_SOURCE_DIR);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while ((len = getline(&line, &room, f)) > 0) {
        json_t *o = json_loadb(line, (size_t)len, 0, NULL);
        assert_non_null(o);
        json_t *layout = json_object_get(o, "layout");
        const bool python = json_is_true(json_object_get(o, "accepted"));
        const bool loader = loader_takes(layout), verifier = verifier_takes(layout);
        if (loader != verifier || verifier != python)
            fail_msg("loader %d, verifier %d, verify.py %d: %s", loader, verifier, python, line);
        n++;
        taken += loader;
        json_decref(o);
    }
    free(line);
    assert_int_equal(pclose(f), 0);
    print_message("%ld of %ld declarations taken\n", taken, n);
    assert_true(n > 30000 && taken > n / 10 && taken < n * 9 / 10);
}

int main(void)
{
    if (system("command -v python3 >/dev/null") != 0) {
        print_message("python3 is needed\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(declarations__are_taken_by_all_readers_or_by_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
