/* A folder of documents made by tests/certs/mutations.py, both verifiers over all of it, and the JSON schemas. */
#ifndef KV_VERIFY_DOCS_H
#define KV_VERIFY_DOCS_H

#include "tests/kv_test.h"

#include "certs/kv_verify.h"

static char dir[128];
static kv_trust *trust;

static kv_verify_report verify(const void *bytes, size_t n, const kv_trust *trusted)
{
    kv_err err = {0};
    kv_verify_report r = {0};
    kvt_ok(kv_verify_bytes(bytes, n, trusted, NULL, &r, &err), &err);
    return r;
}

static void put_codes(const kv_verify_report *r, char out[80])
{
    size_t n = 0;
    out[0] = '\0';
    for (int h = 0; h < KV_HCODE_COUNT; h++)
        if (r->has[h]) n += (size_t)snprintf(out + n, 80 - n, "%sH%d", n > 0 ? "," : "", h);
    if (n == 0) snprintf(out, 80, "-");
}

static kv_buf read_file(const char *name)
{
    kv_err err = {0};
    kv_buf b = {0};
    char *path = kvt_path(dir, name);
    kvt_ok(kv_file_read(path, KV_VERIFY_BYTES_MAX, &b, &err), &err);
    free(path);
    return b;
}

static bool holds_code(const char *list, const char *code)
{
    const size_t n = strlen(code);
    for (const char *p = strstr(list, code); p != NULL; p = strstr(p + 1, code))
        if ((p == list || p[-1] == ',') && (p[n] == '\0' || p[n] == ',')) return true;
    return false;
}

/* One line of expect.txt: NAME EXIT CODES. */
static void check_expectation(char *line)
{
    char name[96], want_codes[64], file[128], codes[80];
    int want_exit;
    if (sscanf(line, "%95s %d %63s", name, &want_exit, want_codes) != 3) return; /* "?": no expectation */
    snprintf(file, sizeof file, "%s.json", name);
    kv_buf bytes = read_file(file);
    kv_verify_report r = verify(bytes.data, bytes.len, trust);
    put_codes(&r, codes);
    if (r.exit_code != want_exit) fail_msg("%s: exit %d (%s), expected %d", name, r.exit_code, codes, want_exit);
    if (strcmp(want_codes, "-") == 0 && r.n_faults > 0)
        fail_msg("%s: %s %s: %s, not %s", name, codes, r.faults[0].path, r.faults[0].actual, r.faults[0].expected);
    char *rest = want_codes;
    for (char *code = strtok_r(want_codes, ",-", &rest); code != NULL; code = strtok_r(NULL, ",-", &rest))
        if (!holds_code(codes, code)) fail_msg("%s: %s lacks %s", name, codes, code);
    kv_verify_report_free(&r);
    kv_buf_free(&bytes);
}

static void verify__gives_each_mutation_its_code(void **state)
{
    (void)state;
    kv_buf expect = read_file("expect.txt");
    char *rest = NULL;
    int n = 0;
    for (char *line = strtok_r(expect.data, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest), n++)
        check_expectation(line);
    assert_true(n > 150);
    kv_buf_free(&expect);
}

#ifndef __SANITIZE_ADDRESS__ /* which have nothing to find in the second verifier */
static void verify__agrees_with_the_second_verifier(void **state)
{
    (void)state;
    char command[512], name[96], want[128], got[192], file[128], codes[80];
    snprintf(command, sizeof command, "python3 '%s/tests/certs/judge.py' '%s'", KV_SOURCE_DIR, dir);
    FILE *lines = popen(command, "r");
    assert_non_null(lines);
    int n = 0;
    while (fscanf(lines, "%95s %127[^\n]", name, want) == 2) {
        snprintf(file, sizeof file, "%s.json", name);
        kv_buf bytes = read_file(file);
        kv_verify_report r = verify(bytes.data, bytes.len, trust);
        put_codes(&r, codes);
        snprintf(got, sizeof got, "%d %s", r.exit_code, codes);
        if (strcmp(got, want) != 0) fail_msg("%s: kvgrid says %s, verify.py %s", name, got, want);
        kv_verify_report_free(&r);
        kv_buf_free(&bytes);
        n++;
    }
    assert_int_equal(pclose(lines), 0);
    assert_true(n > 200);
}
#define KVT_BOTH_VERIFIERS cmocka_unit_test(verify__agrees_with_the_second_verifier),
#else
#define KVT_BOTH_VERIFIERS
#endif

static void schema__fits_what_is_sound(void **state)
{
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "python3 '%s/tests/certs/check_schema.py' '%s'", KV_SOURCE_DIR, dir);
    const int status = system(command);
    if (status / 256 == 77) skip();
    assert_int_equal(status, 0);
}

/* mutations.py with these options, into dir, and its trust; false where it failed. */
static bool make_folder(const char *options)
{
    char command[512];
    kv_err err = {0};
    kvt_folder(dir);
    snprintf(command, sizeof command, "python3 '%s/tests/certs/mutations.py' '%s' %s", KV_SOURCE_DIR, dir, options);
    if (system(command) != 0) return false;
    char *path = kvt_path(dir, "trusted.pub");
    kvt_ok(kv_trust_load(path, &trust, &err), &err);
    free(path);
    return true;
}

static int remove_folder(void)
{
    char command[256];
    kv_trust_free(trust);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command);
}

#endif
