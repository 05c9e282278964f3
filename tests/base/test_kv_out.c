/* Outputs written piece by piece: whole or not at all, the first error told at the end. */
#include "base/kv_out.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "tests/kv_test.h"

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static void out__appears_whole_at_the_end(void **state)
{
    (void)state;
    char folder[128];
    struct stat st;
    kv_err err = {0};
    kv_out *o = NULL;
    kv_buf b = {0};
    kvt_folder(folder);
    char *path = kvt_path(folder, "f");
    kvt_put(folder, "f", "old");
    kvt_ok(kv_out_open(path, &o, &err), &err);
    assert_int_equal(entries(folder), 1); /* nothing is touched before the first byte */
    kv_out_puts(o, "one ");
    kv_out_printf(o, "%d ", 2);
    kv_out_bytes(o, "\0x", 2);
    kvt_ok(kv_file_read(path, 100, &b, &err), &err);
    assert_string_equal(b.data, "old");
    kv_buf_free(&b);
    kvt_ok(kv_out_close(o, KV_OK, &err), &err);
    kvt_ok(kv_file_read(path, 100, &b, &err), &err);
    assert_int_equal(b.len, 8);
    assert_memory_equal(b.data, "one 2 \0x", 8);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    assert_int_equal(entries(folder), 1);
    kv_buf_free(&b);
    kvt_remove(folder, "f");
    assert_int_equal(rmdir(folder), 0);
    free(path);
}

static void out__an_error_leaves_the_old_file(void **state)
{
    (void)state;
    char folder[128];
    kv_err err = {0};
    kv_out *o = NULL;
    kv_buf b = {0};
    kvt_folder(folder);
    char *path = kvt_path(folder, "f");
    kvt_put(folder, "f", "old");
    kvt_ok(kv_out_open(path, &o, &err), &err);
    kv_out_puts(o, "half");
    assert_int_equal(kv_out_close(o, KV_EFORMAT, &err), KV_EFORMAT); /* given back as it came */
    kvt_ok(kv_file_read(path, 100, &b, &err), &err);
    assert_string_equal(b.data, "old");
    assert_int_equal(entries(folder), 1);
    kv_buf_free(&b);
    kvt_remove(folder, "f");
    assert_int_equal(rmdir(folder), 0);
    free(path);
}

static void out__an_empty_file_is_a_file(void **state)
{
    (void)state;
    char folder[128];
    kv_err err = {0};
    kv_out *o = NULL;
    kvt_folder(folder);
    char *path = kvt_path(folder, "f");
    kvt_ok(kv_out_open(path, &o, &err), &err);
    kvt_ok(kv_out_close(o, KV_OK, &err), &err);
    assert_int_equal(entries(folder), 1);
    kvt_remove(folder, "f");
    assert_int_equal(rmdir(folder), 0);
    free(path);
}

static void out__says_what_cannot_be_written(void **state)
{
    (void)state;
    kv_err err = {0};
    kv_out *o = NULL;
    kvt_refused(kv_out_open("/", &o, &err), KV_EWRITE, &err, "a folder", KVT_SAYS("/: is a directory"));
    kvt_ok(kv_out_open("/no/such/file", &o, &err), &err);
    kv_out_puts(o, "x");
    kv_out_puts(o, "y"); /* after an error nothing more happens */
    kvt_refused(kv_out_close(o, KV_OK, &err), KV_EWRITE, &err, "no folder",
                KVT_SAYS("/no/such/file", strerror(ENOENT)));
    assert_int_equal(kv_out_close(NULL, KV_EREAD, &err), KV_EREAD);
}

static void out_open__survives_every_failed_allocation(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        kv_err err = {0};
        kv_out *o = NULL;
        kv_alloc_fail_after(n);
        const kv_rc rc = kv_out_open("/tmp/never-written", &o, &err);
        kv_alloc_fail_after(-1);
        if (rc == KV_OK) assert_int_equal(kv_out_close(o, KV_EINTR, &err), KV_EINTR);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        assert_true(n < 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out__appears_whole_at_the_end),
        cmocka_unit_test(out__an_error_leaves_the_old_file),
        cmocka_unit_test(out__an_empty_file_is_a_file),
        cmocka_unit_test(out__says_what_cannot_be_written),
        cmocka_unit_test(out_open__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
