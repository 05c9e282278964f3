/* The published slot images: packed from the vectors' fields, and unpacked and packed again. */
#include "tests/kv_test.h"

#include "kernels/codec/kv_codec_slot.h"
#include "kernels/codec/kv_codec_vectors.h"

#define VECTORS KV_SOURCE_DIR "/../shared/codec_vectors"

static kv_buf read_vector_file(const char *name, const char *suffix)
{
    char path[512];
    kv_buf b = {0};
    kv_err err = {0};
    snprintf(path, sizeof path, VECTORS "/%s%s", name, suffix);
    kvt_ok(kv_file_read(path, (size_t)1 << 30, &b, &err), &err);
    return b;
}

static void check_image(const char *name, const kv_codec_slot_config *c, const kv_codec_vector *v, uint8_t *out)
{
    kv_buf want = read_vector_file(name, ".slot");
    kv_codec_params room = c->params;
    kv_codec_skeleton s = {0};
    kv_codec_codes codes = {0};
    kv_err err = {0};
    kvt_ok(kv_codec_slot_pack(c, &v->skeleton, &v->want, out, &err), &err);
    if (memcmp(out, want.data, want.len) != 0) fail_msg("%s: the slot differs", name);
    room.outliers = true;
    kvt_ok(kv_codec_skeleton_new(&room, &s, &err), &err);
    kvt_ok(kv_codec_codes_new(&room, c->n, false, &codes, &err), &err);
    kvt_ok(kv_codec_slot_unpack(c, want.data, (int64_t)want.len, &s, &codes, &err), &err);
    assert_memory_equal(codes.seg_id, v->want.seg_id, 4 * (size_t)c->n);
    assert_memory_equal(codes.norm, v->want.norm, 2 * (size_t)c->n);
    memset(out, 0xA5, want.len);
    kvt_ok(kv_codec_slot_pack(c, &s, &codes, out, &err), &err);
    assert_memory_equal(out, want.data, want.len);
    kv_codec_skeleton_free(&s);
    kv_codec_codes_free(&codes);
    kv_buf_free(&want);
}

/* A case with a slot; true for an image, false for the overflow. */
static bool check_case(const json_t *one)
{
    const json_t *slot = json_object_get(one, "slot");
    const char *name = json_string_value(json_object_get(one, "name"));
    const double budget = json_number_value(json_object_get(slot, "outlier_budget_frac"));
    const bool image = strcmp(json_string_value(json_object_get(slot, "expect")), "bytes") == 0;
    kv_buf file = read_vector_file(name, ".bin");
    kv_codec_vector v;
    kv_codec_slot_layout l;
    kv_err err = {0};
    kvt_ok(kv_codec_vector_parse(file.data, (int64_t)file.len, &v, &err), &err);
    const kv_codec_slot_config c = {.params = v.params, .n = v.n, .budget_ppm = (int32_t)(budget * 1e6 + 0.5)};
    kvt_ok(kv_codec_slot_sizes(&c, &l, &err), &err);
    assert_int_equal(l.total, json_integer_value(json_object_get(slot, "slot_size")));
    uint8_t *out = kvt_take(l.total, 1);
    if (image) {
        check_image(name, &c, &v, out);
    } else {
        kvt_refused(kv_codec_slot_pack(&c, &v.skeleton, &v.want, out, &err), KV_EFORMAT, &err, name,
                    KVT_SAYS("272 outliers", "holds 164"));
        for (int64_t i = 0; i < l.total; i++) assert_int_equal(out[i], 0);
    }
    free(out);
    kv_buf_free(&file);
    return image;
}

static void test_published_images(void **state)
{
    int images = 0, overflows = 0;
    (void)state;
    json_t *index = json_load_file(VECTORS "/index.json", 0, NULL);
    const json_t *cases = json_object_get(index, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        if (json_object_get(one, "slot") == NULL) continue;
        if (check_case(one))
            images++;
        else
            overflows++;
    }
    json_decref(index);
    assert_int_equal(images, 9);
    assert_int_equal(overflows, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_images)};
    if (!kv_path_exists(VECTORS "/index.json")) {
        printf("%s is not there: the published images were not looked at\n", VECTORS);
        return 77; /* a visible skip */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
