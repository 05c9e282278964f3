/* The published fit against the conformance vectors whose skeleton the oracle fitted: the mean bit for bit, as many
 * directions, the same subspace, no more reconstruction error. (The k-means half, bit for bit given the basis, is in
 * test_kv_codec_vectors.c.) Skipped where ../shared is not there. */
#include "tests/kernels/codec/kv_test_blocks.h"

#include <math.h>

#include "kernels/codec/kv_codec_vectors.h"

#define VECTORS KV_SOURCE_DIR "/../shared/codec_vectors"

static void *read_all(const char *name, int64_t *size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", VECTORS, name);
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("%s cannot be read", path);
    fseek(f, 0, SEEK_END);
    *size = ftell(f);
    rewind(f);
    void *bytes = kvt_take(*size, 1);
    if (fread(bytes, 1, (size_t)*size, f) != (size_t)*size) fail_msg("%s is short", path);
    fclose(f);
    return bytes;
}

static kv_codec_fit_opts opts_of(const json_t *c, kv_codec_solver solver)
{
    const json_t *stage = json_object_get(c, "stage1");
    kv_codec_fit_opts o = kvt_fit_opts(solver, true);
    const bool random = strcmp(json_string_value(json_object_get(stage, "pca")), "randomized") == 0;
    if (random) o.solver = KV_CODEC_SOLVER_RANDOMIZED;
    o.variance_ratio = json_number_value(json_object_get(stage, "variance_ratio"));
    o.rank_cap = (int32_t)json_integer_value(json_object_get(stage, random ? "target_rank" : "rank_cap"));
    return o;
}

/* Rows of a rank below the cap leave eigenvalues that are rounding alone, and the f32 sum of the rule stops a few
 * directions sooner or later. */
static int32_t slack_of(const char *name)
{
    static const char *const loose[] = {"zero_rows", "constant_rows_n2", "d32_n16_linf_b1", "k_shrinks", "d8_n2_b2"};
    for (size_t i = 0; i < KVT_COUNT(loose); i++)
        if (strcmp(name, loose[i]) == 0) return 1;
    return 0;
}

static void check_case(const json_t *c, kv_codec_solver solver)
{
    kv_err err = {0};
    kv_codec_vector v;
    int64_t size;
    const char *name = json_string_value(json_object_get(c, "name"));
    void *bytes = read_all(json_string_value(json_object_get(c, "file")), &size);
    kvt_ok(kv_codec_vector_parse(bytes, size, &v, &err), &err);
    kv_codec_params p = v.params;
    const kv_codec_fit_opts o = opts_of(c, solver);
    p.d_eff = o.rank_cap > 0 ? o.rank_cap : p.dim;
    p.k = (int32_t)json_integer_value(json_object_get(c, "k_requested"));
    kv_codec_skeleton s;
    kv_codec_fit_report r = {0};
    kv_codec_fit_distance d = {0};
    kvt_ok(kv_codec_skeleton_new(&p, &s, &err), &err);
    kvt_ok(kv_codec_fit(&p, &o, v.x, v.weights, v.n, &s, &r, &err), &err);
    assert_memory_equal(s.mean, v.skeleton.mean, (size_t)p.dim * 2);
    if (abs(p.d_eff - v.params.d_eff) > slack_of(name))
        fail_msg("%s: %d directions instead of %d", name, (int)p.d_eff, (int)v.params.d_eff);
    if (p.k != v.params.k) fail_msg("%s: %d centres instead of %d", name, (int)p.k, (int)v.params.k);
    if (p.d_eff == v.params.d_eff) kvt_ok(kv_codec_fit_compare(&p, &s, &v.skeleton, v.x, v.n, &d, &err), &err);
    print_message("%-22s solver %d: d_eff %3d (%3d), k %2d, sine %.1e, errors %.7f %.7f\n", name, (int)o.solver,
                  (int)p.d_eff, (int)v.params.d_eff, (int)p.k, d.sine, d.error_a, d.error_b);
    if (!(d.error_a <= d.error_b * (1 + 2e-5) + 1e-5)) fail_msg("%s: more error than the oracle's basis leaves", name);
    kv_codec_skeleton_free(&s);
    free(bytes);
}

static void run(kv_codec_solver solver)
{
    json_error_t je;
    if (access(VECTORS "/index.json", R_OK) != 0) {
        print_message("no %s here\n", VECTORS);
        skip();
    }
    json_t *index = json_load_file(VECTORS "/index.json", 0, &je), *c;
    if (index == NULL) fail_msg("index.json: %s", je.text);
    size_t i;
    int seen = 0;
    json_array_foreach(json_object_get(index, "cases"), i, c)
    {
        const char *skeleton = json_string_value(json_object_get(c, "skeleton"));
        const char *name = json_string_value(json_object_get(c, "name"));
        if (strcmp(skeleton, "fitted") != 0 || strncmp(name, "shared_basis", 12) == 0) continue;
        check_case(c, solver);
        seen++;
    }
    json_decref(index);
    assert_true(seen >= 20);
}

static void test_own(void **state)
{
    (void)state;
    run(KV_CODEC_SOLVER_OWN);
}

static void test_lapack(void **state)
{
    (void)state;
    if (!kv_codec_has_lapack()) {
        print_message("%s\n", kv_codec_lapack_name());
        skip();
    }
    run(KV_CODEC_SOLVER_LAPACK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own), cmocka_unit_test(test_lapack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
