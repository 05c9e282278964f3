/* Whitening factors in a file: there and back, and files that must not pass. */
#include "tests/kv_test.h"

#include "grid/codec/kv_safetensors.h"
#include "grid/codec/kv_whiten_file.h"

enum { LAYERS = 3, HEADS = 2, DIM = 4, ENTRIES = HEADS * DIM * DIM };

static char folder[128], *path;

static int set_up(void **state)
{
    (void)state;
    kvt_folder(folder);
    path = kvt_path(folder, "w.st");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kvt_remove(folder, "w.st");
    rmdir(folder);
    free(path);
    return 0;
}

static void fill(float *l, float *inverse, float scale)
{
    memset(l, 0, ENTRIES * sizeof *l);
    memset(inverse, 0, ENTRIES * sizeof *inverse);
    for (int i = 0; i < ENTRIES; i += DIM * DIM)
        for (int d = 0; d < DIM; d++) {
            l[i + d * DIM + d] = scale;
            inverse[i + d * DIM + d] = 1 / scale;
        }
}

static void test_there_and_back(void **state)
{
    kv_codec_whiten w, r = {0};
    char digest[KV_HASH_HEX], again[KV_HASH_HEX];
    kv_err err = {0};
    (void)state;
    kvt_ok(kv_codec_whiten_new(LAYERS, HEADS, DIM, &w, &err), &err);
    for (int32_t i = 0; i < LAYERS; i += 2) {
        kvt_ok(kv_codec_whiten_add(&w, i, &err), &err);
        fill(w.l[i], w.inverse[i], (float)(1 << i));
    }
    kvt_ok(kv_whiten_file_write(path, &w, &err), &err);
    kvt_ok(kv_whiten_file_read(path, LAYERS, HEADS, DIM, &r, digest, &err), &err);
    assert_int_equal(kv_codec_whiten_identities(&r), 1);
    assert_null(r.l[1]);
    for (int32_t i = 0; i < LAYERS; i += 2) {
        assert_memory_equal(r.l[i], w.l[i], ENTRIES * sizeof(float));
        assert_memory_equal(r.inverse[i], w.inverse[i], ENTRIES * sizeof(float));
    }
    kv_codec_whiten_free(&r);
    w.l[2][0] = 4.00001F; /* within the tolerance, and another file */
    kvt_ok(kv_whiten_file_write(path, &w, &err), &err);
    kvt_ok(kv_whiten_file_read(path, LAYERS, HEADS, DIM, &r, again, &err), &err);
    assert_string_not_equal(digest, again);
    kv_codec_whiten_free(&r);
    kv_codec_whiten_free(&w);
}

/* A file of up to two tensors. */
static void put(const kv_st_write *list, size_t n)
{
    kv_err err = {0};
    kvt_ok(kv_safetensors_write(path, list, n, KV_WHITEN_FORMAT, &err), &err);
}

static void test_refused(void **state)
{
    float l[ENTRIES], inverse[ENTRIES];
    kv_codec_whiten r = {0};
    char digest[KV_HASH_HEX];
    kv_err err = {0};
    (void)state;
    fill(l, inverse, 2);
    kv_st_write list[2] = {{"layers.1.k.whiten", "F32", 3, {HEADS, DIM, DIM}, l},
                           {"layers.1.k.unwhiten", "F32", 3, {HEADS, DIM, DIM}, inverse}};
#define REFUSED(n_, ...)                                                                                               \
    do {                                                                                                               \
        put(list, n_);                                                                                                 \
        kvt_refused(kv_whiten_file_read(path, LAYERS, HEADS, DIM, &r, digest, &err), KV_EFORMAT, &err, #__VA_ARGS__,   \
                    KVT_SAYS("w.st", __VA_ARGS__));                                                                    \
        assert_null(r.l);                                                                                              \
    } while (0)
    REFUSED(0, "holds no factors");
    REFUSED(1, "layers.1.k.unwhiten", "missing");
    list[0].name = "layers.01.k.whiten";
    REFUSED(2, "missing");
    list[0].name = "layers.1.k.whiten";
    list[1].name = "layers.1.k.inverse";
    REFUSED(2, "layers.1.k.unwhiten", "missing");
    list[1].name = "layers.1.k.unwhiten";
    const kv_st_write three[3] = {list[0], list[1], {"layers.3.k.whiten", "F32", 1, {1}, l}};
    put(three, 3);
    kvt_refused(kv_whiten_file_read(path, LAYERS, HEADS, DIM, &r, digest, &err), KV_EFORMAT, &err, "layer 3",
                KVT_SAYS("layers.3.k.whiten", "N from 0 to 2"));
    list[0].dtype = "I32";
    REFUSED(2, "I32", "F32 [2, 4, 4]");
    list[0].dtype = "F32";
    list[0].dims = 2;
    REFUSED(2, "2 dimensions");
    list[0].dims = 3;
    l[3] = 1;
    REFUSED(2, "layer 1, head 0", "lower triangular");
    l[3] = 0;
    inverse[DIM * DIM + 5] = 0.51F;
    REFUSED(2, "layer 1, head 1", "off the identity");
    inverse[DIM * DIM + 5] = 0.5F;
#undef REFUSED
    put(list, 2);
    kvt_refused(kv_whiten_file_read(path, LAYERS, HEADS + 1, DIM, &r, digest, &err), KV_EFORMAT, &err, "heads",
                KVT_SAYS("F32 [3, 4, 4]"));
    kvt_refused(kv_whiten_file_read("/no/such/file", LAYERS, HEADS, DIM, &r, digest, &err), KV_EREAD, &err, "gone",
                KVT_SAYS("/no/such/file"));
    kvt_ok(kv_whiten_file_read(path, LAYERS, HEADS, DIM, &r, digest, &err), &err);
    kv_codec_whiten_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
