/* Randomized principal directions: how much more error than the exact ones they leave (the table of docs), that they are
 * orthonormal whatever the block, and what they do where the sketch is short. */
#include "tests/kernels/codec/kv_test_blocks.h"

#include <math.h>

#include "kernels/codec/kv_codec_fit_part.h"

enum { D = 128, N = 512 };

static kv_codec_skeleton fit(kv_codec_params *p, const kv_codec_fit_opts *o, const float *x, int64_t n,
                             kv_codec_fit_report *r)
{
    kv_err err = {0};
    kv_codec_skeleton s;
    kvt_ok(kv_codec_skeleton_new(p, &s, &err), &err);
    kvt_ok(kv_codec_fit_basis(p, o, x, NULL, n, &s, r, &err), &err);
    return s;
}

static const struct {
    const char *name;
    int32_t d_eff, power_iters;
    double most; /* error over that of the exact basis */
} table[] = {
    {"gaussian", 64, 0, 1.25}, {"gaussian", 64, 2, 1.05}, {"gaussian", 32, 2, 1.05}, {"k like", 64, 0, 1.45},
    {"k like", 64, 2, 1.05},   {"k like", 16, 2, 1.05},   {"heavy", 64, 0, 1.45},    {"heavy", 64, 2, 1.05},
};

static float *block_of(const char *name)
{
    if (name[0] == 'g') return kvt_gaussian_block(N, D, 1, 81);
    if (name[0] == 'k') return kvt_k_like_block(N, D, 4, 0.95, 0.3, 2, 82);
    return kvt_heavy_block(N, D, 83);
}

static void test_table(void **state)
{
    (void)state;
    kv_err err = {0};
    print_message("block      d_eff  power iterations  exact    randomized  ratio\n");
    for (size_t i = 0; i < KVT_COUNT(table); i++) {
        float *x = block_of(table[i].name);
        kv_codec_params p = kvt_codec_params(D, table[i].d_eff, 1, 3);
        kv_codec_fit_opts o = kvt_fit_opts(KV_CODEC_SOLVER_OWN, false);
        kv_codec_fit_report re = {0}, rr = {0};
        kv_codec_skeleton exact = fit(&p, &o, x, N, &re);
        o.solver = KV_CODEC_SOLVER_RANDOMIZED;
        o.power_iters = table[i].power_iters;
        kv_codec_skeleton random = fit(&p, &o, x, N, &rr);
        kv_codec_fit_distance d;
        kvt_ok(kv_codec_fit_compare(&p, &exact, &random, x, N, &d, &err), &err);
        print_message("%-9s  %5d  %16d  %.5f  %.5f     %.5f\n", table[i].name, (int)table[i].d_eff,
                      (int)table[i].power_iters, d.error_a, d.error_b, d.error_b / d.error_a);
        assert_int_equal(rr.sketch, table[i].d_eff + 8);
        assert_true(rr.kept_ppm <= re.kept_ppm);
        assert_true(d.error_b >= d.error_a * (1 - 1e-6));
        if (!(d.error_b <= table[i].most * d.error_a)) fail_msg("%s: at most %g", table[i].name, table[i].most);
        kv_codec_skeleton_free(&exact);
        kv_codec_skeleton_free(&random);
        free(x);
    }
}

/* A block of low rank within the sketch is found exactly. */
static void test_low_rank(void **state)
{
    (void)state;
    kv_err err = {0};
    float *x = kvt_k_like_block(N, D, 4, 0.95, 0, 2, 84); /* 24 directions, no noise */
    kv_codec_params p = kvt_codec_params(D, 24, 1, 3);
    kv_codec_fit_opts o = kvt_fit_opts(KV_CODEC_SOLVER_OWN, false);
    kv_codec_skeleton exact = fit(&p, &o, x, N, NULL);
    o.solver = KV_CODEC_SOLVER_RANDOMIZED;
    kv_codec_skeleton random = fit(&p, &o, x, N, NULL);
    kv_codec_fit_distance d;
    kvt_ok(kv_codec_fit_compare(&p, &exact, &random, x, N, &d, &err), &err);
    assert_true(d.sine < 2e-3 && d.error_a < 1e-3 && d.error_b < 1e-3);
    kv_codec_skeleton_free(&exact);
    kv_codec_skeleton_free(&random);
    free(x);
}

/* Fewer rows than the sketch has columns: it shrinks and says so; the basis is whole all the same. */
static void test_few_rows(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 40; n += 6) {
        float *x = kvt_gaussian_block(n, 32, 1, 85);
        kv_codec_params p = kvt_codec_params(32, 20, 2, 3);
        const kv_codec_fit_opts o = kvt_fit_opts(KV_CODEC_SOLVER_RANDOMIZED, false);
        kv_codec_fit_report r = {0};
        kv_codec_skeleton s = fit(&p, &o, x, n, &r);
        assert_int_equal(r.sketch, n < 28 ? n : 28);
        kvt_check_skeleton(&p, &s, "few rows");
        kv_codec_skeleton_free(&s);
        free(x);
    }
}

/* Rows that repeat, that are zero and that are too small against the first: replaced by unit vectors. */
static void test_orthonormalise(void **state)
{
    (void)state;
    enum { R = 7, L = 7 };
    static const double start[R * L] = {1, 1, 0, 0, 0,     0,  0, 1, 1, 0, 0, 0, 0, 0,     0, 0, 0,
                                        0, 0, 0, 0, 1,     -1, 0, 0, 0, 0, 0, 1, 1, 1e-14, 0, 0, 0,
                                        0, 0, 0, 0, 1e-30, 0,  0, 0, 0, 0, 0, 0, 0, 0,     5};
    double m[R * L];
    memcpy(m, start, sizeof m);
    kv_fit_orthonormalise(m, R, L);
    for (int a = 0; a < R; a++)
        for (int b = 0; b <= a; b++) {
            double sum = a == b ? -1 : 0;
            for (int j = 0; j < L; j++) sum += m[a * L + j] * m[b * L + j];
            assert_true(fabs(sum) < 1e-14);
        }
    assert_true(fabs(m[0] - sqrt(0.5)) < 1e-15);
    assert_true(fabs(m[3 * L + 2]) < 1e-15 || fabs(fabs(m[3 * L]) - sqrt(0.5)) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_low_rank),
                                       cmocka_unit_test(test_few_rows), cmocka_unit_test(test_orthonormalise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
