/* Stored caches: what is written is read, and no byte of it can be changed unseen. */
#include "tests/kv_test.h"

#include <math.h>

#include "certs/kv_json.h"
#include "grid/codec/kv_codec_setup.h"

enum { LAYERS = 2, TOKENS = 21, HEADS = 2, DIM = 8, BLOCK = 8 };

static char folder[128], *path;

static int set_up(void **state)
{
    (void)state;
    kvt_folder(folder);
    path = kvt_path(folder, "a.kvc");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kvt_remove(folder, "a.kvc");
    rmdir(folder);
    free(path);
    return 0;
}

static kv_codec_facts facts_of(int32_t recipe, bool k, bool v)
{
    kv_codec_facts f = {
        .recipe = recipe, .geometry = {LAYERS, TOKENS, HEADS, DIM, 2 * DIM, KV_ELEM_F16}, .solver = "own"};
    kv_err err = {0};
    f.skip = kvt_take(LAYERS, sizeof *f.skip);
    f.skip[1] = true;
    f.config = (kv_codec_stream_config){
        .layers = LAYERS, .heads = HEADS, .element = KV_ELEM_F16, .has = {k, v}, .skip = f.skip};
    for (int h = 0; h < 2; h++) {
        kvt_ok(kv_codec_recipe_half(recipe, h, h == 0 ? DIM : 2 * DIM, false, &f.config.half[h], &err), &err);
        kv_codec_half_levels(&f.config.half[h], 2, NULL);
        f.config.half[h].slot.n = BLOCK;
        f.config.half[h].slot.params.k = f.config.half[h].fit.k = 2;
        f.config.half[h].slot.params.outliers = false;
        f.config.half[h].slot.budget_ppm = 0;
    }
    return f;
}

/* Puts rows and writes the file; the decoded planes, one after the other, stand in *out. */
static void write_file(const kv_codec_facts *f, float *out)
{
    kv_codec_stream *s = NULL;
    kv_codec_writer *w = NULL;
    kv_err err = {0};
    uint64_t rnd = 3;
    static uint16_t rows[TOKENS * HEADS * DIM * 2];
    kvt_ok(kv_codec_stream_new(&f->config, &s, &err), &err);
    kvt_ok(kv_codec_writer_open(path, f, &w, &err), &err);
    for (int32_t layer = 0; layer < LAYERS; layer++)
        for (int32_t half = 0; half < 2; half++) {
            if (!f->config.has[half]) continue;
            for (size_t i = 0; i < KVT_COUNT(rows); i++) rows[i] = (uint16_t)(0x3C00 + kvt_below(&rnd, 2048));
            kvt_ok(kv_codec_stream_put(s, 0, layer, half, rows, TOKENS, &err), &err);
            kvt_ok(kv_codec_stream_finish(s, 0, layer, half, &err), &err);
            kvt_ok(kv_codec_writer_plane(w, s, 0, layer, half, &err), &err);
            kvt_ok(kv_codec_stream_get(s, 0, layer, half, 0, TOKENS, out, &err), &err);
            out += TOKENS * HEADS * (half == 0 ? DIM : 2 * DIM);
            kv_codec_stream_drop(s, 0);
        }
    kvt_ok(kv_codec_writer_close(w, KV_OK, &err), &err);
    kv_codec_stream_free(s);
}

/* Decodes all of a file; its first error otherwise. */
static kv_rc read_file(float *out, int64_t *bytes, kv_err *err)
{
    kv_codec_reader *r = NULL;
    kv_codec_stream *s = NULL;
    kv_rc rc = kv_codec_reader_open(path, &r, err);
    if (rc != KV_OK) return rc;
    const kv_codec_facts *f = kv_codec_reader_facts(r);
    *bytes = kv_codec_reader_bytes(r);
    rc = kv_codec_stream_new(&f->config, &s, err);
    for (int32_t layer = 0; rc == KV_OK && layer < f->config.layers; layer++)
        for (int32_t half = 0; rc == KV_OK && half < 2; half++) {
            if (!f->config.has[half]) continue;
            rc = kv_codec_reader_plane(r, s, 0, layer, half, err);
            if (rc == KV_OK) rc = kv_codec_stream_get(s, 0, layer, half, 0, f->geometry.tokens, out, err);
            out += f->geometry.tokens * f->geometry.kv_heads * f->config.half[half].slot.params.dim;
            kv_codec_stream_drop(s, 0);
        }
    kv_codec_stream_free(s);
    kv_codec_reader_close(r);
    return rc;
}

static void test_there_and_back(void **state)
{
    static float want[LAYERS * TOKENS * HEADS * DIM * 3], got[LAYERS * TOKENS * HEADS * DIM * 3];
    kv_err err = {0};
    (void)state;
    for (int32_t recipe = KV_CODEC_PUBLISHED_HARNESS; recipe < KV_CODEC_RECIPE_COUNT; recipe++)
        for (int which = 1; which <= 3; which++) {
            kv_codec_facts f = facts_of(recipe, (which & 1) != 0, (which & 2) != 0);
            int64_t bytes = 0, sum = 0;
            memset(want, 0, sizeof want);
            memset(got, 0, sizeof got);
            write_file(&f, want);
            kvt_ok(read_file(got, &bytes, &err), &err);
            assert_memory_equal(want, got, sizeof want);
            for (int half = 0; half < 2; half++) {
                kv_codec_account a;
                if (!f.config.has[half]) continue;
                kvt_ok(kv_codec_account_of(&f.config.half[half], LAYERS, f.skip, HEADS, TOKENS, 2, true, &a, &err),
                       &err);
                sum += a.bytes;
            }
            assert_in_range(bytes - sum, 16 + 32 + 100, 16 + 32 + 1000); /* the rest is the header */
            kv_codec_facts_free(&f);
        }
}

/* Any single byte changed, cut or added is refused, before a row is decoded. */
static void test_no_byte_changes_unseen(void **state)
{
    static float out[LAYERS * TOKENS * HEADS * DIM * 3];
    kv_err err = {0};
    kv_buf file = {0};
    int64_t bytes;
    uint64_t rnd = 4;
    (void)state;
    kv_codec_facts f = facts_of(KV_CODEC_KV1, true, true);
    write_file(&f, out);
    kvt_ok(kv_file_read(path, 1 << 20, &file, &err), &err);
    for (size_t i = 0; i < file.len; i += i < 800 ? 1 : 37) {
        const char was = file.data[i];
        file.data[i] = (char)(was ^ (1 << kvt_below(&rnd, 8)));
        kvt_ok(kv_file_write(path, file.data, file.len, 0644, KV_FILE_REPLACE, &err), &err);
        const kv_rc rc = read_file(out, &bytes, &err);
        if (rc != KV_EFORMAT) fail_msg("byte %zu: %s %s", i, kv_rc_name(rc), err.text);
        assert_non_null(strstr(err.text, "a.kvc"));
        kv_err_clear(&err);
        file.data[i] = was;
    }
    static const size_t lengths[] = {0, 7, 15, 16, 47, 300};
    for (size_t i = 0; i < KVT_COUNT(lengths); i++) {
        kvt_ok(kv_file_write(path, file.data, lengths[i], 0644, KV_FILE_REPLACE, &err), &err);
        assert_int_equal(read_file(out, &bytes, &err), KV_EFORMAT);
        kv_err_clear(&err);
    }
    kvt_ok(kv_file_write(path, file.data, file.len - 1, 0644, KV_FILE_REPLACE, &err), &err);
    kvt_refused(read_file(out, &bytes, &err), KV_EFORMAT, &err, "cut", KVT_SAYS("cut off"));
    kv_buf_free(&file);
    kv_codec_facts_free(&f);
}

/* Headers that are good JSON and say something impossible. */
static void test_headers_that_lie(void **state)
{
    static const struct {
        const char *key, *value, *says;
    } bad[] = {
        {"format", "'kvgrid.codec/v2'", "kvgrid.codec/v2"},
        {"recipe", "'kv3'", "kv3"},
        {"solver", "'a name that is far too long'", "solver"},
        {"whiten", "'abc'", "whiten"},
        {"skip_layers", "[1,1]", "skip_layers[1]"},
        {"skip_layers", "[2]", "skip_layers[0]"},
        {"skip_layers", "{}", "skip_layers"},
        {"streams", "{}", "neither k nor v"},
        {"streams", "{'x':{}}", "x"},
        {"streams", "{'k':{}}", "bits"},
        {"geometry", "{}", "geometry"},
        {"more", "1", "more"},
    };
    static const struct {
        const char *key, *value, *says;
    } bad_k[] = {
        {"bits", "5", "bits"},
        {"bits", "3", "levels"},
        {"d_eff", "9", "d_eff"},
        {"centres", "0", "centres"},
        {"rows", "70000", "rows"},
        {"group", "-1", "group"},
        {"metric", "'l3'", "l3"},
        {"budget_ppm", "1000001", "budget_ppm"},
        {"seed", "4294967296", "seed"},
        {"levels", "[]", "levels"},
        {"threshold", "'x'", "threshold"},
        {"levels", "['3f800000','3f000000','40000000','40400000']", "level"},
    };
    kv_err err = {0};
    (void)state;
    kv_codec_facts f = facts_of(KV_CODEC_KV1, true, true), g = {0};
    json_t *v = kv_codec_facts_json_new(&f);
    kvt_ok(kv_codec_facts_read(v, &g, &err), &err);
    kv_codec_facts_free(&g);
    for (size_t i = 0; i < KVT_COUNT(bad) + KVT_COUNT(bad_k); i++) {
        const bool top = i < KVT_COUNT(bad);
        const size_t k = i - KVT_COUNT(bad);
        json_t *copy = json_deep_copy(v);
        json_t *at = top ? copy : json_object_get(json_object_get(copy, "streams"), "k");
        json_object_set_new(at, top ? bad[i].key : bad_k[k].key, kvt_json(top ? bad[i].value : bad_k[k].value));
        kvt_refused(kv_codec_facts_read(copy, &g, &err), KV_EFORMAT, &err, top ? bad[i].value : bad_k[k].key,
                    KVT_SAYS(top ? bad[i].says : bad_k[k].says));
        kv_codec_facts_free(&g);
        json_decref(copy);
    }
    json_decref(v);
    kv_codec_facts_free(&f);
}

static void test_a_dropped_writer_leaves_nothing(void **state)
{
    kv_codec_writer *w = NULL;
    kv_err err = {0};
    (void)state;
    kv_codec_facts f = facts_of(KV_CODEC_KV1, true, true);
    kvt_remove(folder, "a.kvc");
    kvt_ok(kv_codec_writer_open(path, &f, &w, &err), &err);
    assert_int_equal(kv_codec_writer_close(w, KV_EINTR, &err), KV_EINTR);
    assert_false(kv_path_exists(path));
    kvt_ok(kv_codec_writer_open(path, &f, &w, &err), &err);
    kvt_refused(kv_codec_writer_close(w, KV_OK, &err), KV_EBUG, &err, "planes", KVT_SAYS("only 0 planes"));
    assert_false(kv_path_exists(path));
    kv_codec_facts_free(&f);
}

static void test_error_sums(void **state)
{
    static const float want[4] = {3, 4, 0, 0}, got[4] = {3, 4, 0, 1}, nan[1] = {NAN};
    kv_codec_error e = {0}, f = {0};
    (void)state;
    kv_codec_error_add(&e, want, want, 2);
    assert_true(kv_codec_error_relative(&e) == 0 && kv_codec_error_cosine(&e) == 1);
    kv_codec_error_add(&f, want, got, 4);
    kv_codec_error_merge(&e, &f);
    assert_true(fabs(kv_codec_error_relative(&e) - sqrt(1 / 50.0)) < 1e-12);
    assert_int_equal(e.worst_at, 5);
    assert_int_equal(e.count, 6);
    kv_codec_error_add(&e, want, nan, 1);
    assert_true(isnan(kv_codec_error_relative(&e)) && isnan(kv_codec_error_cosine(&e)));
    memset(&f, 0, sizeof f);
    kv_codec_error_add(&f, want + 2, got + 3, 1);
    assert_true(isnan(kv_codec_error_relative(&f)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),   cmocka_unit_test(test_no_byte_changes_unseen),
        cmocka_unit_test(test_headers_that_lie), cmocka_unit_test(test_a_dropped_writer_leaves_nothing),
        cmocka_unit_test(test_error_sums),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
