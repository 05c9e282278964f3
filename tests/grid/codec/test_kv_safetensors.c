/* safetensors files: there and back, and headers that lie. */
#include "tests/kv_test.h"

#include "grid/codec/kv_safetensors.h"

/* A file of a header (' for ") and n data bytes. */
static kv_buf file_of(const char *header, size_t n)
{
    kv_buf b = {0};
    kv_err err = {0};
    const size_t len = strlen(header);
    for (int i = 0; i < 8; i++) {
        const char byte = (char)((uint64_t)len >> (8 * i));
        kvt_ok(kv_buf_append(&b, &byte, 1, &err), &err);
    }
    kvt_ok(kv_buf_puts(&b, header, &err), &err);
    for (char *c = b.data + 8; *c != '\0'; c++)
        if (*c == '\'') *c = '"';
    for (size_t i = 0; i < n; i++) {
        const char byte = (char)i;
        kvt_ok(kv_buf_append(&b, &byte, 1, &err), &err);
    }
    return b;
}

static kv_rc parse(const kv_buf *b, kv_safetensors *s, kv_err *err)
{
    char *copy = malloc(b->len); /* exactly as long: a read past the end is seen by the sanitizers */
    memcpy(copy, b->data, b->len);
    memset(s, 0, sizeof *s);
    const kv_rc rc = kv_safetensors_parse(copy, b->len, s, err);
    if (rc != KV_OK) kv_safetensors_free(s);
    free(copy);
    return rc;
}

static void test_a_good_header(void **state)
{
    kv_safetensors s = {0};
    kv_err err = {0};
    (void)state;
    kv_buf b = file_of("{'b':{'dtype':'BF16','shape':[3],'data_offsets':[8,14]},"
                       "'__metadata__':{'format':'pt','x':'y'},"
                       "'a':{'dtype':'F32','shape':[2,1],'data_offsets':[0,8]},"
                       "'none':{'dtype':'U8','shape':[0,7],'data_offsets':[14,14]}}   ",
                       14);
    kvt_ok(kv_safetensors_parse(b.data, b.len, &s, &err), &err);
    assert_int_equal(s.n, 3);
    assert_string_equal(s.tensor[0].name, "a");
    assert_string_equal(s.format, "pt");
    const kv_st_tensor *t = kv_safetensors_find(&s, "b");
    assert_non_null(t);
    assert_string_equal(t->dtype, "BF16");
    assert_int_equal(t->dims, 1);
    assert_int_equal(t->shape[0], 3);
    assert_int_equal(s.data[t->offset], 8);
    assert_null(kv_safetensors_find(&s, "c"));
    kv_safetensors_free(&s);
    kv_buf_free(&b);
}

static void test_bad_headers(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } bad[] = {
        {"", 0, "does not begin with {"},
        {"[1]", 0, "does not begin with {"},
        {"{", 0, "header, byte"},
        {"{}", 1, "1 bytes behind the last tensor"},
        {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]},'a':1}", 4, "header, byte"},
        {"{'a':1}", 0, "must be an object"},
        {"{'a':{'dtype':'F32','shape':[1]}}", 4, "must be an object of dtype"},
        {"{'a':{'dtype':'F33','shape':[1],'data_offsets':[0,4]}}", 4, "F33"},
        {"{'a':{'dtype':'F32','shape':[1.5],'data_offsets':[0,4]}}", 4, "shape[0]"},
        {"{'a':{'dtype':'F32','shape':[-1],'data_offsets':[0,4]}}", 4, "shape[0]"},
        {"{'a':{'dtype':'F32','shape':[4611686018427387904,4],'data_offsets':[0,4]}}", 4, "64 bits"},
        {"{'a':{'dtype':'F32','shape':[1,1,1,1,1,1,1,1,1],'data_offsets':[0,4]}}", 4, "at most 8"},
        {"{'a':{'dtype':'F32','shape':1,'data_offsets':[0,4]}}", 4, "shape"},
        {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0]}}", 4, "two integers"},
        {"{'a':{'dtype':'F32','shape':[1],'data_offsets':['0','4']}}", 4, "two integers"},
        {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,8]}}", 4, "do not lie"},
        {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[4,0]}}", 4, "do not lie"},
        {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[-4,0]}}", 4, "do not lie"},
        {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,4]}}", 4, "its shape takes 8"},
        {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[4,8]}}", 8, "begins at 4, 0"},
        {"{'a':{'dtype':'U8','shape':[4],'data_offsets':[0,4]},'b':{'dtype':'U8','shape':[3],'data_offsets':[3,6]}}", 6,
         "begins at 3, 4"},
        {"{'__metadata__':[]}", 0, "__metadata__"},
        {"{'__metadata__':{'n':1}}", 0, "is no text"},
    };
    kv_safetensors s = {0};
    kv_err err = {0};
    (void)state;
    for (size_t i = 0; i < KVT_COUNT(bad); i++) {
        kv_buf b = file_of(bad[i].header, bad[i].data);
        kvt_refused(parse(&b, &s, &err), KV_EFORMAT, &err, bad[i].header, KVT_SAYS(bad[i].says));
        kv_buf_free(&b);
    }
}

static void test_bad_lengths(void **state)
{
    kv_safetensors s = {0};
    kv_err err = {0};
    (void)state;
    kv_buf b = file_of("{}", 0);
    b.len = 7;
    kvt_refused(parse(&b, &s, &err), KV_EFORMAT, &err, "short", KVT_SAYS("7 bytes"));
    b.len = 10;
    b.data[0] = 3;
    kvt_refused(parse(&b, &s, &err), KV_EFORMAT, &err, "long", KVT_SAYS("header of 3 bytes"));
    memset(b.data, 0xFF, 8);
    kvt_refused(parse(&b, &s, &err), KV_EFORMAT, &err, "huge", KVT_SAYS("18446744073709551615"));
    kv_buf_free(&b);
}

static void test_there_and_back(void **state)
{
    static const float x[6] = {1, 2, 3, -4, 5, 6};
    static const uint16_t y[2] = {7, 8};
    char folder[128];
    kv_safetensors s = {0};
    kv_err err = {0};
    (void)state;
    kvt_folder(folder);
    char *path = kvt_path(folder, "t.st");
    const kv_st_write list[] = {{"second", "F32", 2, {2, 3}, x}, {"first", "U16", 1, {2}, y}};
    kvt_ok(kv_safetensors_write(path, list, 2, "f/v1", &err), &err);
    kvt_ok(kv_safetensors_read(path, 1 << 20, &s, &err), &err);
    assert_int_equal(s.n, 2);
    assert_string_equal(s.format, "f/v1");
    assert_int_equal((s.data - (const uint8_t *)s.file.data) % 8, 0);
    assert_memory_equal(s.data + kv_safetensors_find(&s, "second")->offset, x, sizeof x);
    assert_memory_equal(s.data + kv_safetensors_find(&s, "first")->offset, y, sizeof y);
    kv_safetensors_free(&s);
    kvt_refused(kv_safetensors_read(path, 10, &s, &err), KV_EREAD, &err, "limit", KVT_SAYS("t.st", "limit"));
    const kv_st_write twice[] = {{"a", "U16", 1, {2}, y}, {"a", "U16", 1, {2}, y}}, odd = {"a", "U17", 1, {2}, y};
    kvt_refused(kv_safetensors_write(path, twice, 2, NULL, &err), KV_EINVAL, &err, "twice", KVT_SAYS("named twice"));
    kvt_refused(kv_safetensors_write(path, &odd, 1, NULL, &err), KV_EINVAL, &err, "dtype", KVT_SAYS("U17"));
    kvt_remove(folder, "t.st");
    rmdir(folder);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_header),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
