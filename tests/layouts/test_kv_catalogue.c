/* Catalogues: files, lists, folders, names. */
#include "tests/kv_test.h"

#define LAYOUT(name_)                                                                                                  \
    "{'name':'" name_ "','engine':'e','attention':'gqa','kv':'separate','k_axes':['T','H','D'],'cite':'c'}"

static kv_rc load(const char *folder, const char *name, kv_catalogue *c, kv_err *err)
{
    char *path = kvt_path(folder, name);
    const kv_rc rc = kv_catalogue_load(c, path, err);
    free(path);
    return rc;
}

static void catalogue_load__reads_the_published_twelve(void **state)
{
    (void)state;
    static const char *const names[] = {"deepseek-mla",       "flashinfer-nhd", "hf-dynamic-cache", "llamacpp",
                                        "lmdeploy-turbomind", "sglang",         "trtllm",           "vllm-fa",
                                        "vllm-fp8",           "vllm-paged-x",   "vllm-paged-x16",   "vllm-tp2"};
    kv_catalogue c = kvt_published();
    int lossless = 0, frontier = 0, lossy = 0;
    for (size_t i = 0; i < c.n; i++) {
        assert_string_equal(c.item[i]->name, names[i]);
        assert_ptr_equal(kv_catalogue_find(&c, names[i]), c.item[i]);
        lossless += c.item[i]->role == KV_ROLE_LOSSLESS;
        frontier += c.item[i]->role == KV_ROLE_FRONTIER;
        lossy += c.item[i]->role == KV_ROLE_LOSSY;
    }
    assert_int_equal(lossless, 8);
    assert_int_equal(frontier, 3);
    assert_int_equal(lossy, 1);
    assert_null(kv_catalogue_find(&c, "vllm"));
    assert_null(kv_catalogue_find(&c, ""));
    assert_null(kv_catalogue_find(&c, "zzz"));
    kv_catalogue_free(&c);
    assert_int_equal(c.n, 0);
    assert_null(kv_catalogue_find(&c, "vllm-fa"));
}

static void catalogue_load__reads_files_lists_and_folders(void **state)
{
    (void)state;
    char folder[128];
    kv_catalogue c = {0};
    kv_err err = {0};
    kvt_folder(folder);
    kvt_put(folder, "one.json", LAYOUT("m"));
    kvt_put(folder, "list.json", "[" LAYOUT("z") "," LAYOUT("a") "]");
    kvt_put(folder, "notes.txt", "not JSON");
    kvt_put(folder, ".hidden.json", "not JSON");
    kvt_put(folder, ".json", "not JSON");
    kvt_ok(kv_catalogue_load(&c, folder, &err), &err);
    assert_int_equal(c.n, 3);
    assert_string_equal(c.item[0]->name, "a");
    assert_string_equal(c.item[1]->name, "m");
    assert_string_equal(c.item[2]->name, "z");
    kvt_refused(load(folder, "one.json", &c, &err), KV_EFORMAT, &err, "twice",
                KVT_SAYS("one.json", "layout m", "twice"));
    kv_catalogue_free(&c);
    kvt_put(folder, "two.json", LAYOUT("a"));
    kvt_refused(kv_catalogue_load(&c, folder, &err), KV_EFORMAT, &err, "twice in a folder",
                KVT_SAYS("two.json", "layout a"));
    kv_catalogue_free(&c);
    static const char *const files[] = {"one.json", "list.json", "two.json", "notes.txt", ".hidden.json", ".json"};
    for (size_t i = 0; i < KVT_COUNT(files); i++) kvt_remove(folder, files[i]);
    kvt_refused(kv_catalogue_load(&c, folder, &err), KV_EREAD, &err, "empty folder", KVT_SAYS(folder, "no *.json"));
    kv_catalogue_free(&c);
    assert_int_equal(rmdir(folder), 0);
}

static void catalogue_load__names_the_file_that_is_wrong(void **state)
{
    (void)state;
    char folder[128];
    kv_catalogue c = {0};
    kv_err err = {0};
    kvt_folder(folder);
    static const char *const bad[][2] = {{"[]", "empty list"},
                                         {"{", "line 1"},
                                         {"7", "object"},
                                         {"[" LAYOUT("a") ",7]", "object"},
                                         {"[" LAYOUT("a") "," LAYOUT("a") "]", "layout a is declared twice"},
                                         {"{'name':'a','name':'b'}", "duplicate"},
                                         {"", "bad.json"}};
    for (size_t i = 0; i < KVT_COUNT(bad); i++) {
        kvt_put(folder, "bad.json", bad[i][0]);
        kvt_refused(load(folder, "bad.json", &c, &err), KV_EFORMAT, &err, bad[i][0], KVT_SAYS("bad.json", bad[i][1]));
        kv_catalogue_free(&c);
    }
    kvt_remove(folder, "bad.json");
    kvt_refused(load(folder, "bad.json", &c, &err), KV_EREAD, &err, "gone", KVT_SAYS("bad.json"));
    kv_catalogue_free(&c);
    assert_int_equal(rmdir(folder), 0);
}

static void catalogue_load__survives_every_failed_allocation(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        kv_catalogue c = {0};
        kv_err err = {0};
        kv_alloc_fail_after(n);
        const kv_rc rc = kv_catalogue_load(&c, KVT_PUBLISHED_LAYOUTS, &err);
        kv_alloc_fail_after(-1);
        kv_catalogue_free(&c);
        if (rc == KV_OK) {
            assert_true(n > 20);
            break;
        }
        assert_int_equal(rc, KV_ENOMEM);
        assert_int_equal(err.rc, KV_ENOMEM);
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catalogue_load__reads_the_published_twelve),
        cmocka_unit_test(catalogue_load__reads_files_lists_and_folders),
        cmocka_unit_test(catalogue_load__names_the_file_that_is_wrong),
        cmocka_unit_test(catalogue_load__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
