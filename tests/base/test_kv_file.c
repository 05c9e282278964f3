/* Files: whole or not at all. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/kv_test.h"

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        n += e->d_name[0] != '.' || strlen(e->d_name) > 2;
    closedir(d);
    return n;
}

static void assert_holds(const char *path, const char *want)
{
    kv_buf b = {0};
    kv_err err = {0};
    kvt_ok(kv_file_read(path, 1 << 20, &b, &err), &err);
    assert_int_equal(b.len, strlen(want));
    assert_string_equal(b.data, want);
    kv_buf_free(&b);
}

static void file_write__replaces_in_one_step(void **state)
{
    (void)state;
    char folder[128];
    struct stat st;
    kv_err err = {0};
    kvt_folder(folder);
    char *path = kvt_path(folder, "a");
    kvt_ok(kv_file_write(path, "one", 3, 0644, KV_FILE_REPLACE, &err), &err);
    assert_holds(path, "one");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    const int old = open(path, O_RDONLY);
    kvt_ok(kv_file_write(path, "", 0, 0600, KV_FILE_REPLACE, &err), &err);
    assert_holds(path, "");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    char c[4] = {0};
    assert_int_equal(read(old, c, 3), 3); /* who reads the old file goes on reading it */
    assert_string_equal(c, "one");
    close(old);
    assert_int_equal(entries(folder), 1); /* no temporary is left */
    assert_int_equal(unlink(path), 0);
    free(path);
    assert_int_equal(rmdir(folder), 0);
}

static void file_write_new__never_replaces(void **state)
{
    (void)state;
    char folder[128];
    kv_err err = {0};
    kvt_folder(folder);
    char *path = kvt_path(folder, "key"), *link = kvt_path(folder, "link"), *target = kvt_path(folder, "target");
    kvt_ok(kv_file_write(path, "one", 3, 0600, KV_FILE_NEW, &err), &err);
    kvt_refused(kv_file_write(path, "two", 3, 0600, KV_FILE_NEW, &err), KV_EEXIST, &err, "exists",
                KVT_SAYS(path, "not overwritten"));
    assert_holds(path, "one");
    assert_int_equal(symlink(target, link), 0); /* a link that points nowhere exists too */
    kvt_refused(kv_file_write(link, "two", 3, 0600, KV_FILE_NEW, &err), KV_EEXIST, &err, "link", KVT_SAYS(link));
    assert_false(kv_path_exists(target));
    assert_true(kv_path_exists(link));
    assert_int_equal(entries(folder), 2);
    assert_int_equal(unlink(path) + unlink(link), 0);
    assert_int_equal(rmdir(folder), 0);
    free(path);
    free(link);
    free(target);
}

static void file_write__leaves_nothing_where_it_cannot(void **state)
{
    (void)state;
    char folder[128];
    kv_err err = {0};
    kvt_folder(folder);
    char *gone = kvt_path(folder, "no/such/file");
    kvt_refused(kv_file_write(gone, "x", 1, 0644, KV_FILE_REPLACE, &err), KV_EWRITE, &err, "no folder", KVT_SAYS(gone));
    kvt_refused(kv_file_can_write(gone, &err), KV_EWRITE, &err, "no folder", KVT_SAYS(gone));
    kvt_refused(kv_file_write(folder, "x", 1, 0644, KV_FILE_REPLACE, &err), KV_EWRITE, &err, "folder",
                KVT_SAYS(folder, "directory"));
    kvt_refused(kv_file_can_write(folder, &err), KV_EWRITE, &err, "folder", KVT_SAYS(folder, "directory"));
    assert_int_equal(entries(folder), 0);
    char *path = kvt_path(folder, "later");
    kvt_ok(kv_file_can_write(path, &err), &err);
    assert_int_equal(entries(folder), 0);
    assert_int_equal(rmdir(folder), 0);
    free(gone);
    free(path);
}

static void file_read__says_what_it_cannot(void **state)
{
    (void)state;
    char folder[128];
    kv_buf b = {0};
    kv_err err = {0};
    kvt_folder(folder);
    char *path = kvt_path(folder, "f");
    kvt_refused(kv_file_read(path, 100, &b, &err), KV_EREAD, &err, "gone", KVT_SAYS(path));
    kvt_refused(kv_file_read(folder, 100, &b, &err), KV_EREAD, &err, "folder", KVT_SAYS(folder, "directory"));
    kvt_put(folder, "f", "12345");
    kvt_refused(kv_file_read(path, 4, &b, &err), KV_EREAD, &err, "limit", KVT_SAYS(path, "4 bytes"));
    assert_null(b.data);
    kvt_ok(kv_file_read(path, 5, &b, &err), &err);
    assert_string_equal(b.data, "12345");
    kv_buf_free(&b);
    kvt_put(folder, "f", "");
    kvt_ok(kv_file_read(path, 0, &b, &err), &err);
    assert_string_equal(b.data, "");
    kv_buf_free(&b);
    kvt_remove(folder, "f");
    assert_int_equal(rmdir(folder), 0);
    free(path);
}

/* A pipe by its name is refused at once, though nobody writes into it; one that is open already is read to its end, and
 * not waited for longer than said. */
static void file_read__does_not_wait_for_a_pipe(void **state)
{
    (void)state;
    char folder[128], name[32];
    int ends[2];
    kv_buf b = {0};
    kv_err err = {0};
    FILE *f = NULL;
    kvt_folder(folder);
    char *path = kvt_path(folder, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    kvt_refused(kv_file_read(path, 100, &b, &err), KV_EREAD, &err, "pipe",
                KVT_SAYS(path, "is a pipe, a file is needed"));
    kvt_refused(kv_file_open_regular(path, &f, &err), KV_EREAD, &err, "pipe", KVT_SAYS(path, "no regular file"));
    kvt_refused(kv_file_open_regular(folder, &f, &err), KV_EREAD, &err, "folder", KVT_SAYS(folder, "no regular file"));
    assert_int_equal(pipe(ends), 0);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    kvt_refused(kv_file_wait(ends[0], name, 0, &err), KV_EREAD, &err, "silent", KVT_SAYS(name, "nothing came from"));
    assert_int_equal(write(ends[1], "12345", 5), 5);
    close(ends[1]);
    kvt_ok(kv_file_read(name, 5, &b, &err), &err);
    assert_string_equal(b.data, "12345");
    kv_buf_free(&b);
    close(ends[0]);
    kvt_remove(folder, "pipe");
    kvt_put(folder, "pipe", "12345");
    kvt_ok(kv_file_open_regular(path, &f, &err), &err);
    assert_int_equal(fgetc(f), '1');
    fclose(f);
    kvt_remove(folder, "pipe");
    assert_int_equal(rmdir(folder), 0);
    free(path);
}

static void path_beside__joins_folders(void **state)
{
    (void)state;
    static const char *const cases[][3] = {{"a/b/c.json", "d", "a/b/d"},
                                           {"c.json", "d", "d"},
                                           {"/c.json", "d", "/d"},
                                           {"a/c.json", "/d", "/d"},
                                           {"a/c.json", "../d", "a/../d"}};
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        char *p = kv_path_beside(cases[i][0], cases[i][1]);
        assert_string_equal(p, cases[i][2]);
        kv_free(p);
    }
}

static void file__survives_every_failed_allocation(void **state)
{
    (void)state;
    char folder[128];
    kvt_folder(folder);
    char *path = kvt_path(folder, "f");
    for (long n = 0;; n++) {
        kv_buf b = {0};
        kv_err err = {0};
        kv_alloc_fail_after(n);
        kv_rc rc = kv_file_write(path, "abc", 3, 0644, KV_FILE_REPLACE, &err);
        if (rc == KV_OK) rc = kv_file_can_write(path, &err);
        if (rc == KV_OK) rc = kv_file_read(path, 100, &b, &err);
        kv_alloc_fail_after(-1);
        kv_buf_free(&b);
        assert_true(entries(folder) <= 1);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        assert_true(n < 10);
    }
    kvt_remove(folder, "f");
    assert_int_equal(rmdir(folder), 0);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_write__replaces_in_one_step),           cmocka_unit_test(file_write_new__never_replaces),
        cmocka_unit_test(file_write__leaves_nothing_where_it_cannot), cmocka_unit_test(file_read__says_what_it_cannot),
        cmocka_unit_test(file_read__does_not_wait_for_a_pipe),        cmocka_unit_test(path_beside__joins_folders),
        cmocka_unit_test(file__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
