/* The shared conformance vectors, where ../shared is there (exit 77 else), every field of every case on every variant;
 * and the reader against hostile bytes, on a file of our own making. */
#include "kernels/codec/kv_codec_vectors.h"

#include "certs/kv_sha256.h"
#include "grid/codec/kv_codec_conform.h"
#include "tests/kernels/codec/kv_test_codec.h"

#define SHARED KV_SOURCE_DIR "/../shared/codec_vectors"

static void told(void *user, const char *name, const char *field, const char *what)
{
    (void)user;
    print_error("%s: %s %s\n", name, field, what);
}

static void shared_vectors__agree_bit_for_bit(void **state)
{
    (void)state;
    kv_err err = {0};
    kv_codec_conform_sum sum;
    if (!kv_path_exists(SHARED "/index.json")) skip();
    kvt_ok(kv_codec_conform(SHARED, told, NULL, NULL, &sum, &err), &err);
    assert_int_equal(sum.fields, 0);
    assert_int_equal(sum.differ, 0);
    assert_int_equal(sum.cases, 46);
    assert_int_equal(sum.slots, 10);
    assert_int_equal(sum.refits, 30 * sum.variants);
}

/* ---- a file of our own ------------------------------------------------------------------- */

#define SECTIONS 15

typedef struct {
    char *bytes; /* 8-byte aligned */
    int64_t size;
} file;

static void put_u32(file *f, int64_t at, uint32_t v)
{
    memcpy(f->bytes + at, &v, sizeof v);
}

/* Codes and rows as the reference makes them, or NULL sections filled with zeros. */
static file make_file(uint64_t *seed)
{
    const kv_codec_params p = {.dim = 6, .d_eff = 3, .k = 2, .bits = 2, .seed = 9, .outliers = true, .threshold = 1};
    const int64_t n = 5, bytes = kv_codec_row_bytes(&p);
    kv_codec_params q = p;
    memcpy(q.level, kv_codec_levels(2), 4 * sizeof(float));
    kv_codec_skeleton s = kvt_skeleton(seed, &q);
    float *x = kvt_rows(seed, &q, &s, n), *y = kvt_take(n * 6, sizeof *y), *ones = kvt_take(n, sizeof *ones);
    kv_codec_work *w = NULL;
    kv_codec_codes c = {0};
    kv_err err = {0};
    kvt_ok(kv_codec_work_new(&q, &s, &w, &err), &err);
    kvt_ok(kv_codec_codes_new(&q, n, true, &c, &err), &err);
    kv_codec_variants()[0].encode(w, x, n, &c);
    kv_codec_variants()[0].decode(w, &c, y);
    const struct {
        uint32_t type;
        const void *data;
        int64_t size;
    } part[SECTIONS] = {{1, x, n * 24},
                        {1, ones, n * 4},
                        {2, s.mean, 12},
                        {2, s.basis, 36},
                        {2, s.centers, 12},
                        {1, q.level, 16},
                        {3, c.seg_id, n * 4},
                        {2, c.t, n * 2},
                        {2, c.norm, n * 2},
                        {5, c.residual, n * bytes},
                        {3, c.outlier_count, n * 4},
                        {4, c.outlier_idx, c.outliers * 2},
                        {2, c.outlier_val, c.outliers * 2},
                        {1, y, n * 24},
                        {1, c.res_norm, n * 4}};
    file f = {.bytes = kvt_take(4096, 1), .size = 64 + SECTIONS * 24};
    memcpy(f.bytes, "KKVEC01", 8);
    const uint32_t head[] = {(uint32_t)n,          6,       3, 2, 4, 2, 0, 9, 0x3F800000u, 1, (uint32_t)bytes,
                             (uint32_t)c.outliers, SECTIONS};
    memcpy(f.bytes + 8, head, sizeof head);
    for (uint32_t i = 0; i < SECTIONS; i++) {
        const uint64_t where[2] = {(uint64_t)f.size, (uint64_t)part[i].size};
        put_u32(&f, 64 + i * 24, i + 1);
        put_u32(&f, 68 + i * 24, part[i].type);
        memcpy(f.bytes + 72 + i * 24, where, sizeof where);
        memcpy(f.bytes + f.size, part[i].data, (size_t)part[i].size);
        f.size += (part[i].size + 7) / 8 * 8;
    }
    kv_codec_codes_free(&c);
    kv_codec_work_free(w);
    kv_codec_skeleton_free(&s);
    free(ones);
    free(y);
    free(x);
    return f;
}

static void refused(file *f, int64_t at, uint32_t value, const char *needle)
{
    kv_codec_vector v;
    kv_err err = {0};
    uint32_t before;
    memcpy(&before, f->bytes + at, sizeof before);
    put_u32(f, at, value);
    kvt_refused(kv_codec_vector_parse(f->bytes, f->size, &v, &err), KV_EFORMAT, &err, needle, KVT_SAYS(needle));
    put_u32(f, at, before);
}

/* Such codes can be read and compared, but no decoder takes them. */
static void not_decodable(file *f, int64_t at, uint32_t value, const char *needle)
{
    kv_codec_vector v;
    kv_err err = {0};
    uint32_t before;
    memcpy(&before, f->bytes + at, sizeof before);
    put_u32(f, at, value);
    kvt_ok(kv_codec_vector_parse(f->bytes, f->size, &v, &err), &err);
    kvt_refused(kv_codec_vector_check_codes(&v, &err), KV_EFORMAT, &err, needle, KVT_SAYS(needle));
    put_u32(f, at, before);
}

static void parse__names_what_is_wrong(void **state)
{
    (void)state;
    uint64_t seed = 1;
    file f = make_file(&seed);
    kv_codec_vector v;
    kv_err err = {0};
    kvt_ok(kv_codec_vector_parse(f.bytes, f.size, &v, &err), &err);
    assert_int_equal(v.n, 5);
    assert_int_equal(v.params.d_eff, 3);
    assert_null(v.decoded_res_norm);
    refused(&f, 0, 0, "not a KKVEC01 file");
    refused(&f, 8, 0, "0 rows");
    refused(&f, 8, 6, "section 1: 120 bytes, expected 144");
    refused(&f, 12, 1 << 20, "head dimension");
    refused(&f, 16, 7, "d_eff 7");
    refused(&f, 24, 8, "wht_len 8");
    refused(&f, 28, 0, "bits 0");
    refused(&f, 32, 3, "metric 3");
    refused(&f, 48, 2, "do not follow");
    refused(&f, 52, 70000, "section 12");
    refused(&f, 56, 65, "65 sections");
    refused(&f, 56, 14, "section 15 is missing");
    refused(&f, 68, 2, "section 1: type 2, expected 1");
    refused(&f, 72, 4, "section 1: offset 4");
    refused(&f, 76, 0x7FFFFFFFu, "section 1: offset");
    not_decodable(&f, (char *)v.want.seg_id - f.bytes, 2, "row 0: seg_id 2 of 2 centres");
    not_decodable(&f, (char *)v.want.outlier_count - f.bytes, 1000, "outlier counts add up to");
    kvt_refused(kv_codec_vector_parse(f.bytes, 63, &v, &err), KV_EFORMAT, &err, "short", KVT_SAYS("not a KKVEC01"));
    free(f.bytes);
}

/* Whatever parses can be decoded; under a sanitizer nothing is read past the end. */
static void parse__survives_random_bytes(void **state)
{
    (void)state;
    uint64_t seed = 77;
    file f = make_file(&seed);
    int64_t parsed = 0;
    for (int i = 0; i < 20000; i++) {
        const int64_t size = kvt_one_in(&seed, 3) ? kvt_below(&seed, f.size + 1) : f.size;
        char *copy = kvt_take(size, 1);
        memcpy(copy, f.bytes, (size_t)size);
        for (int64_t k = kvt_below(&seed, 4); k >= 0 && size > 0; k--)
            copy[kvt_below(&seed, kvt_one_in(&seed, 2) ? size
                                  : size < 424         ? size
                                                       : 424)] ^= (char)(1 << kvt_below(&seed, 8));
        kv_codec_vector v;
        kv_err err = {0};
        if (kv_codec_vector_parse(copy, size, &v, &err) == KV_OK && kv_codec_vector_check_codes(&v, &err) == KV_OK) {
            kv_codec_work *w = NULL;
            float *y = kvt_take(v.n * v.params.dim, sizeof *y);
            parsed++;
            kvt_ok(kv_codec_work_new(&v.params, &v.skeleton, &w, &err), &err);
            kv_codec_best()->decode(w, &v.want, y);
            kv_codec_work_free(w);
            free(y);
        } else {
            assert_int_equal(err.rc, KV_EFORMAT);
        }
        free(copy);
    }
    assert_true(parsed > 1000);
    free(f.bytes);
}

/* Findings: how many, and the first of them. */
typedef struct {
    int64_t count;
    char first[256];
} findings;

static void count(void *user, const char *name, const char *field, const char *what)
{
    findings *f = user;
    assert_true(strcmp(field, "file") == 0 || strchr(field, ' ') != NULL);
    if (f->count++ == 0) snprintf(f->first, sizeof f->first, "%s %s %s", name, field, what);
}

/* The folder's cases: how many differ and cannot be used, what is told first. */
static void expect(const char *folder, kv_rc want, int64_t differ, int64_t unusable, const char *first)
{
    findings f = {0};
    kv_codec_conform_sum sum = {0};
    kv_err err = {0};
    assert_int_equal(kv_codec_conform(folder, count, NULL, &f, &sum, &err), want);
    assert_int_equal(sum.differ, differ);
    assert_int_equal(sum.unusable, unusable);
    if (strstr(f.first, first) == NULL) fail_msg("told \"%s\", not \"%s\"", f.first, first);
}

static void put_file(const char *folder, const char *name, const file *f)
{
    kv_err err = {0};
    char *path = kvt_path(folder, name);
    kvt_ok(kv_file_write(path, f->bytes, (size_t)f->size, 0600, KV_FILE_REPLACE, &err), &err);
    free(path);
}

/* Each section of the file, one bit of one value: told by its name on every variant. */
static void conform__holds_every_field(void **state)
{
    (void)state;
    static const struct {
        int section, bytes; /* of a value */
        const char *field;
    } fields[] = {{7, 4, "a reference seg_id at 0: got "},       {8, 2, "a reference t at 0: got "},
                  {9, 2, "a reference norm at 0: got "},         {10, 1, "a reference residual at 0: got "},
                  {11, 4, "a reference outlier_count at 0: "},   {12, 2, "a reference outlier_idx at 0: got "},
                  {13, 2, "a reference outlier_val at 0: got "}, {14, 4, "a reference decoded at 0: got "},
                  {15, 4, "a reference res_norm at 0: got "}};
    uint64_t seed = 5;
    file f = make_file(&seed);
    char folder[128];
    kvt_folder(folder);
    kvt_put(folder, "index.json", "{'cases': [{'name': 'a', 'file': 'a.bin'}]}");
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        for (int high = 0; high < 2; high++) { /* the lowest byte; the highest: seg ids and counts beyond any size */
            uint64_t at;
            memcpy(&at, f.bytes + 64 + (fields[i].section - 1) * 24 + 8, sizeof at);
            at += high ? (uint64_t)fields[i].bytes - 1 : 0;
            f.bytes[at] ^= 1;
            put_file(folder, "a.bin", &f);
            expect(folder, KV_OK, 1, 0, fields[i].field);
            f.bytes[at] ^= 1;
        }
    put_file(folder, "a.bin", &f);
    expect(folder, KV_OK, 0, 0, "");
    kvt_remove(folder, "a.bin");
    kvt_remove(folder, "index.json");
    (void)rmdir(folder);
    free(f.bytes);
}

/* A case whose file is damaged or gone hides no other. */
static void conform__goes_on_behind_a_bad_file(void **state)
{
    (void)state;
    uint64_t seed = 6;
    file f = make_file(&seed);
    char folder[128];
    kvt_folder(folder);
    kvt_put(folder, "index.json",
            "{'cases': [{'name': 'gone', 'file': 'gone.bin'}, {'name': 'cut', 'file': 'cut.bin'},"
            " {'name': 'good', 'file': 'good.bin'}, {'name': 'off', 'file': 'off.bin'}]}");
    put_file(folder, "good.bin", &f);
    f.bytes[f.size - 8] ^= 1; /* res_norm of the last row */
    put_file(folder, "off.bin", &f);
    f.size = 400;
    put_file(folder, "cut.bin", &f);
    expect(folder, KV_EREAD, 1, 2, "gone file cannot be used: ");
    const char *const names[] = {"cut.bin", "good.bin", "off.bin", "index.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) kvt_remove(folder, names[i]);
    (void)rmdir(folder);
    free(f.bytes);
}

/* The command's core on a folder of our own: agrees, then says what differs, then refuses. */
static void conform__says_what_differs(void **state)
{
    (void)state;
    uint64_t seed = 5;
    file f = make_file(&seed);
    char folder[128];
    kv_err err = {0};
    kv_codec_conform_sum sum;
    kv_codec_vector v;
    findings told_here = {0};
    kvt_folder(folder);
    char *path = kvt_path(folder, "a.bin");
    kvt_put(folder, "index.json", "{'cases': [{'name': 'a', 'file': 'a.bin', 'n': 5, 'bits': 2}]}");
    kvt_ok(kv_codec_vector_parse(f.bytes, f.size, &v, &err), &err);
    for (int round = 0; round < 3; round++) {
        if (round == 1) v.want.t[4] ^= 1;
        if (round == 2) v.want.t[4] ^= 1, ((float *)v.decoded)[7] += 1;
        kvt_ok(kv_file_write(path, f.bytes, (size_t)f.size, 0600, KV_FILE_REPLACE, &err), &err);
        kvt_ok(kv_codec_conform(folder, count, NULL, &told_here, &sum, &err), &err);
        assert_int_equal(sum.cases, 1);
        assert_int_equal(sum.differ, round > 0);
        assert_int_equal(told_here.count, sum.fields);
        told_here.count = 0;
        if (round == 2) assert_int_equal(sum.fields, sum.variants);
        if (round == 1) assert_true(sum.fields >= sum.variants); /* t, and the row that t decodes to */
    }
    free(f.bytes);
    seed = 5;
    f = make_file(&seed);
    put_file(folder, "a.bin", &f);
    kvt_put(folder, "index.json", "{'cases': [{'name': 'a', 'file': 'a.bin', 'n': 6}]}");
    expect(folder, KV_OK, 1, 0, "a file n got 5, want 6");
    kvt_put(folder, "index.json", "{'cases': [{'name': 'a', 'file': 'a.bin', 'bits': '2'}]}");
    expect(folder, KV_OK, 1, 0, "a file bits got 2, want no whole number");
    char text[256], digest[KV_SHA256_HEX];
    kv_sha256_hex(f.bytes, (size_t)f.size, digest);
    for (int wrong = 0; wrong < 3; wrong++) { /* the file's digest, one digit of it another, no digest at all */
        snprintf(text, sizeof text, "{'cases': [{'name': 'a', 'file': 'a.bin', 'sha256': %s%s%s}]}",
                 wrong < 2 ? "'" : "", wrong < 2 ? digest : "7", wrong < 2 ? "'" : "");
        if (wrong == 1) text[strlen(text) - 6] = text[strlen(text) - 6] == '0' ? '1' : '0';
        kvt_put(folder, "index.json", text);
        snprintf(text, sizeof text, "a file sha256 got %s, want ", digest);
        expect(folder, KV_OK, wrong > 0, 0, wrong > 0 ? text : "");
    }
    kvt_put(folder, "index.json", "{'cases': [{'name': 'a', 'file': '../a.bin'}]}");
    kvt_refused(kv_codec_conform(folder, count, NULL, &told_here, &sum, &err), KV_EFORMAT, &err, "path",
                KVT_SAYS("no file"));
    kvt_put(folder, "index.json", "{'cases': []}");
    kvt_refused(kv_codec_conform(folder, count, NULL, &told_here, &sum, &err), KV_EFORMAT, &err, "none",
                KVT_SAYS("no list"));
    kvt_put(folder, "index.json", "[");
    kvt_refused(kv_codec_conform(folder, count, NULL, &told_here, &sum, &err), KV_EFORMAT, &err, "json",
                KVT_SAYS("line 1"));
    kvt_remove(folder, "index.json");
    kvt_refused(kv_codec_conform(folder, count, NULL, &told_here, &sum, &err), KV_EREAD, &err, "gone",
                KVT_SAYS("index.json"));
    kvt_remove(folder, "a.bin");
    (void)rmdir(folder);
    free(path);
    free(f.bytes);
}

int main(void)
{
    const struct CMUnitTest own[] = {
        cmocka_unit_test(parse__names_what_is_wrong),         cmocka_unit_test(parse__survives_random_bytes),
        cmocka_unit_test(conform__says_what_differs),         cmocka_unit_test(conform__holds_every_field),
        cmocka_unit_test(conform__goes_on_behind_a_bad_file),
    };
    const struct CMUnitTest shared[] = {cmocka_unit_test(shared_vectors__agree_bit_for_bit)};
    if (cmocka_run_group_tests(own, NULL, NULL) != 0 || cmocka_run_group_tests(shared, NULL, NULL) != 0) return 1;
    return kv_path_exists(SHARED "/index.json") ? 0 : 77;
}
