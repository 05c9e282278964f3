/* Rows in a file beside the certificate: reader, writer, Merkle tree, and both verifiers on sound and broken files (made
 * by tests/certs/row_files.py). */
#include "tests/kv_test.h"

#include "certs/kv_json.h"
#include "certs/kv_rows.h"
#include "certs/kv_verify.h"

static char dir[128];
static kv_trust *trust;

/* ---- the Merkle tree ---------------------------------------------------------------------- */

static void hash2(uint8_t tag, const void *a, size_t na, const void *b, size_t nb, uint8_t out[KV_HASH_BYTES])
{
    kv_hash h;
    kv_hash_init(&h);
    kv_hash_update(&h, &tag, 1);
    kv_hash_update(&h, a, na);
    kv_hash_update(&h, b, nb);
    kv_hash_final(&h, out);
}

static void merkle__is_the_tree_built_level_by_level(void **state)
{
    (void)state;
    static uint8_t level[70][KV_HASH_BYTES];
    char want[KV_HASH_HEX], got[KV_HASH_HEX], line[16];
    for (size_t n = 1; n <= 70; n++) {
        kv_merkle m = {0};
        for (size_t i = 0; i < n; i++) {
            const size_t len = (size_t)snprintf(line, sizeof line, "line %zu", i);
            hash2(0, line, len, "", 0, level[i]);
            kv_merkle_add(&m, line, len);
        }
        for (size_t left = n; left > 1; left = (left + 1) / 2)
            for (size_t i = 0; i < left; i += 2) {
                if (i + 1 < left)
                    hash2(1, level[i], KV_HASH_BYTES, level[i + 1], KV_HASH_BYTES, level[i / 2]);
                else
                    memmove(level[i / 2], level[i], KV_HASH_BYTES);
            }
        kv_hex_encode(level[0], KV_HASH_BYTES, want);
        kv_merkle_root(&m, got);
        assert_string_equal(got, want);
    }
}

static void merkle__of_nothing_is_the_hash_of_nothing(void **state)
{
    (void)state;
    kv_merkle m = {0};
    char want[KV_HASH_HEX], got[KV_HASH_HEX];
    kv_hash_hex("", 0, want);
    kv_merkle_root(&m, got);
    assert_string_equal(got, want);
}

/* A line that holds two hashes is no node, and one that begins with 0x01 neither. */
static void merkle__leaves_are_no_nodes(void **state)
{
    (void)state;
    kv_merkle two = {0}, one = {0};
    uint8_t forged[2 * KV_HASH_BYTES];
    char a[KV_HASH_HEX], b[KV_HASH_HEX];
    hash2(0, "a", 1, "", 0, forged);
    hash2(0, "b", 1, "", 0, forged + KV_HASH_BYTES);
    kv_merkle_add(&two, "a", 1);
    kv_merkle_add(&two, "b", 1);
    kv_merkle_add(&one, forged, sizeof forged);
    kv_merkle_root(&two, a);
    kv_merkle_root(&one, b);
    assert_string_not_equal(a, b);
}

/* ---- writing and reading ------------------------------------------------------------------ */

static json_t *row_new(size_t i)
{
    char text[600];
    memset(text, 'x', sizeof text);
    text[i % sizeof text] = '\0';
    return json_pack("{s:I,s:s}", "number", (json_int_t)i, "text", text);
}

/* A document of n rows beside its row file; the caller frees it. */
static json_t *write_rows(const char *path, size_t n)
{
    kv_err err = {0};
    kv_rows_writer *w = NULL;
    json_t *file = NULL;
    kvt_ok(kv_rows_create(path, &w, &err), &err);
    for (size_t i = 0; i < n; i++) {
        json_t *row = row_new(i);
        kvt_ok(kv_rows_put(w, row, &err), &err);
        json_decref(row);
    }
    kvt_ok(kv_rows_declare(w, &file, &err), &err);
    kvt_ok(kv_rows_commit(w, KV_OK, &err), &err);
    json_t *doc = json_pack("{s:[],s:o}", "rows", "rows_file", file);
    assert_non_null(doc);
    return doc;
}

static size_t read_rows(kv_rows *r)
{
    kv_err err = {0};
    for (size_t i = 0;; i++) {
        const json_t *row;
        kvt_ok(kv_rows_next(r, &row, &err), &err);
        if (row == NULL) return i;
        json_t *want = row_new(i);
        assert_true(json_equal(row, want));
        json_decref(want);
    }
}

static void rows__come_back_as_they_were_put(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 2, 3, 1000, 5000};
    char *path = kvt_path(dir, "plain.json");
    for (size_t i = 0; i < KVT_COUNT(counts); i++) {
        kv_err err = {0};
        kv_rows *r = NULL;
        json_t *doc = write_rows(path, counts[i]);
        kvt_ok(kv_rows_open(doc, path, &r, &err), &err);
        assert_true(kv_rows_in_file(r));
        assert_int_equal(read_rows(r), counts[i]);
        kv_rows_rewind(r);
        assert_int_equal(read_rows(r), counts[i]);
        kv_rows_close(r);
        json_decref(doc);
    }
    free(path);
}

static void rows__stand_in_the_document_too(void **state)
{
    (void)state;
    kv_err err = {0};
    kv_rows *r = NULL;
    json_t *doc = json_pack("{s:[o,o,o]}", "rows", row_new(0), row_new(1), row_new(2));
    kvt_ok(kv_rows_open(doc, NULL, &r, &err), &err);
    assert_false(kv_rows_in_file(r));
    assert_int_equal(read_rows(r), 3);
    kv_rows_rewind(r);
    assert_int_equal(read_rows(r), 3);
    kv_rows_close(r);
    json_decref(doc);
}

static kv_rc read_all(const json_t *doc, const char *path, kv_err *err)
{
    kv_rows *r = NULL;
    const json_t *row = NULL;
    kv_rc rc = kv_rows_open(doc, path, &r, err);
    do {
        if (rc == KV_OK) rc = kv_rows_next(r, &row, err);
    } while (rc == KV_OK && row != NULL);
    kv_rows_close(r);
    return rc;
}

static void rows__another_or_no_file_is_told(void **state)
{
    (void)state;
    char *path = kvt_path(dir, "a.json"), *other = kvt_path(dir, "b.json"), *file = kvt_path(dir, "a.json.rows"),
         *other_file = kvt_path(dir, "b.json.rows");
    json_t *doc = write_rows(path, 10), *longer = write_rows(other, 11);
    kv_err err = {0};
    assert_int_equal(read_all(doc, path, NULL), KV_OK);
    assert_int_equal(read_all(longer, path, &err), KV_ESIG);
    assert_non_null(strstr(err.text, "a.json.rows: is not the row file of this certificate"));
    assert_int_equal(read_all(doc, other, NULL), KV_ESIG);
    assert_int_equal(read_all(doc, NULL, NULL), KV_EREAD);
    assert_int_equal(remove(file), 0);
    err = (kv_err){0};
    assert_int_equal(read_all(doc, path, &err), KV_EREAD);
    assert_non_null(strstr(err.text, "a.json.rows"));
    assert_int_equal(remove(other_file), 0);
    json_decref(doc);
    json_decref(longer);
    free(path);
    free(other);
    free(file);
    free(other_file);
}

static void rows__a_dropped_writer_leaves_the_old_file(void **state)
{
    (void)state;
    char *path = kvt_path(dir, "kept.json");
    kv_err err = {0};
    kv_rows_writer *w = NULL;
    json_t *doc = write_rows(path, 10), *row = row_new(77);
    kvt_ok(kv_rows_create(path, &w, &err), &err);
    kvt_ok(kv_rows_put(w, row, &err), &err);
    assert_int_equal(kv_rows_commit(w, KV_EINTR, NULL), KV_EINTR);
    assert_int_equal(read_all(doc, path, NULL), KV_OK);
    assert_int_equal(kv_rows_create("/nonexistent/x.json", &w, &err), KV_OK); /* told where it is kept */
    assert_int_equal(kv_rows_commit(w, KV_OK, &err), KV_EWRITE);
    json_decref(row);
    json_decref(doc);
    free(path);
}

/* Each allocation fails once: an error, never a crash or a leak, and never rows that were not there. */
static void rows__survive_every_failed_allocation(void **state)
{
    (void)state;
    char *path = kvt_path(dir, "alloc.json");
    json_t *doc = write_rows(path, 3);
    kv_rc rc = KV_ENOMEM;
    for (long n = 0; rc != KV_OK; n++) {
        kv_alloc_fail_after(n);
        rc = read_all(doc, path, NULL);
        kv_alloc_fail_after(-1);
        assert_true(rc == KV_OK || rc == KV_ENOMEM);
    }
    json_decref(doc);
    free(path);
}

/* ---- both verifiers ----------------------------------------------------------------------- */

static kv_verify_report verify(const char *name)
{
    char file[128];
    kv_err err = {0};
    kv_verify_report r = {0};
    kv_buf bytes = {0};
    snprintf(file, sizeof file, "%s.json", name);
    char *path = kvt_path(dir, file);
    const kv_verify_opts opts = {.path = path};
    kvt_ok(kv_file_read(path, KV_VERIFY_BYTES_MAX, &bytes, &err), &err);
    kvt_ok(kv_verify_bytes(bytes.data, bytes.len, trust, &opts, &r, &err), &err);
    kv_buf_free(&bytes);
    free(path);
    return r;
}

/* "3 H1,H10" */
static void judge(const char *name, char out[96])
{
    kv_verify_report r = verify(name);
    size_t n = (size_t)snprintf(out, 96, "%d ", r.exit_code), begin = n;
    for (int h = 0; h < KV_HCODE_COUNT; h++)
        if (r.has[h]) n += (size_t)snprintf(out + n, 96 - n, "%sH%d", n > begin ? "," : "", h);
    if (n == begin) snprintf(out + n, 96 - n, "-");
    kv_verify_report_free(&r);
}

static bool holds_code(const char *list, const char *code)
{
    const size_t n = strlen(code);
    for (const char *p = strstr(list, code); p != NULL; p = strstr(p + 1, code))
        if ((p[-1] == ',' || p[-1] == ' ') && (p[n] == '\0' || p[n] == ',')) return true;
    return false;
}

static void verify__gives_each_row_file_its_code(void **state)
{
    (void)state;
    char name[64], codes[64], got[96];
    int want, n = 0;
    char *path = kvt_path(dir, "expect.txt");
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (; fscanf(f, "%63s", name) == 1; n++) {
        if (fscanf(f, " %d %63s", &want, codes) != 2) {
            assert_int_equal(fscanf(f, "%63s %63s", codes, codes), 2); /* "? ?" */
            continue;
        }
        judge(name, got);
        if (got[0] - '0' != want || (strcmp(codes, "-") == 0) != (strstr(got, "-") != NULL))
            fail_msg("%s: %s, expected %d %s", name, got, want, codes);
        char *rest = NULL;
        for (char *code = strtok_r(codes, ",-", &rest); code != NULL; code = strtok_r(NULL, ",-", &rest))
            if (!holds_code(got, code)) fail_msg("%s: %s lacks %s", name, got, code);
    }
    fclose(f);
    free(path);
    assert_true(n > 90);
}

static void verify__agrees_with_the_second_verifier(void **state)
{
    (void)state;
    char command[512], name[64], want[96], got[96];
    int n = 0;
    snprintf(command, sizeof command, "python3 '%s/tests/certs/judge.py' '%s'", KV_SOURCE_DIR, dir);
    FILE *lines = popen(command, "r");
    assert_non_null(lines);
    for (; fscanf(lines, "%63s %95[^\n]", name, want) == 2; n++) {
        judge(name, got);
        if (strcmp(got, want) != 0) fail_msg("%s: kvgrid says %s, verify.py %s", name, got, want);
    }
    assert_int_equal(pclose(lines), 0);
    assert_true(n > 90);
}

static void verify__counts_the_rows_of_the_file(void **state)
{
    (void)state;
    kv_verify_report r = verify("sound_rows_file");
    assert_true(r.rows > 50);
    assert_true(r.positions > 0);
    assert_true(r.signature_good);
    kv_verify_report_free(&r);
}

static void verify__needs_the_path_for_a_row_file(void **state)
{
    (void)state;
    kv_err err = {0};
    kv_verify_report r = {0};
    kv_buf bytes = {0};
    char *path = kvt_path(dir, "sound_rows_file.json");
    kvt_ok(kv_file_read(path, KV_VERIFY_BYTES_MAX, &bytes, &err), &err);
    kvt_ok(kv_verify_bytes(bytes.data, bytes.len, trust, NULL, &r, &err), &err);
    assert_int_equal(r.exit_code, 1);
    kv_verify_report_free(&r);
    kv_buf_free(&bytes);
    free(path);
}

static int make_files(void **state)
{
    (void)state;
    char command[512];
    kv_err err = {0};
    kvt_folder(dir);
    snprintf(command, sizeof command, "python3 '%s/tests/certs/row_files.py' '%s' --random 60", KV_SOURCE_DIR, dir);
    if (system(command) != 0) return 1;
    char *path = kvt_path(dir, "trusted.pub");
    kvt_ok(kv_trust_load(path, &trust, &err), &err);
    free(path);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    char command[256];
    kv_trust_free(trust);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command);
}

int main(void)
{
    if (system("command -v python3 >/dev/null && command -v openssl >/dev/null") != 0) {
        print_message("python3 and openssl are needed to make certificates\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merkle__is_the_tree_built_level_by_level),
        cmocka_unit_test(merkle__of_nothing_is_the_hash_of_nothing),
        cmocka_unit_test(merkle__leaves_are_no_nodes),
        cmocka_unit_test(rows__come_back_as_they_were_put),
        cmocka_unit_test(rows__stand_in_the_document_too),
        cmocka_unit_test(rows__another_or_no_file_is_told),
        cmocka_unit_test(rows__a_dropped_writer_leaves_the_old_file),
        cmocka_unit_test(rows__survive_every_failed_allocation),
        cmocka_unit_test(verify__gives_each_row_file_its_code),
        cmocka_unit_test(verify__agrees_with_the_second_verifier),
        cmocka_unit_test(verify__counts_the_rows_of_the_file),
        cmocka_unit_test(verify__needs_the_path_for_a_row_file),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files) != 0;
}
