/* Level tables: the scaled values are those that the encoder quantised, and Lloyd-Max finds known optima. */
#include "tests/kv_test.h"

#include <math.h>

#include "kernels/codec/kv_codec_recipe.h"
#include "kernels/codec/kv_codec_step.h"
#include "kernels/codec/kv_codec_table.h"

static float gauss(uint64_t *rnd)
{
    const double u = ((double)(kvt_next(rnd) >> 11) + 1) * 0x1p-53, v = (double)(kvt_next(rnd) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

/* Quantising the scaled rows gives the encoder's own levels and outliers. */
static void test_scaled_rows_are_the_encoders(void **state)
{
    enum { N = 64, D = 32 };
    kv_codec_half_config h;
    kv_err err = {0};
    uint64_t rnd = 1;
    float x[N * D], c[N * D], s[N * 64], kept[N * 64];
    (void)state;
    kvt_ok(kv_codec_recipe_half(KV_CODEC_KV1, KV_CODEC_K, D, false, &h, &err), &err);
    kv_codec_params p = h.slot.params;
    for (int i = 0; i < N * D; i++) x[i] = 2 + gauss(&rnd) * (i % D < 4 ? 3.0F : 0.5F);
    memcpy(x, x + D, D * sizeof *x); /* two rows alike */
    kv_codec_skeleton sk;
    kv_codec_codes codes;
    kv_codec_fit_report r;
    kv_codec_work *w = NULL;
    kvt_ok(kv_codec_skeleton_new(&p, &sk, &err), &err);
    kvt_ok(kv_codec_fit(&p, &h.fit, x, NULL, N, &sk, &r, &err), &err);
    kvt_ok(kv_codec_codes_new(&p, N, true, &codes, &err), &err);
    kvt_ok(kv_codec_work_new(&p, &sk, &w, &err), &err);
    kv_codec_scaled_rows(kv_codec_best(), w, &p, &sk, x, N, &codes, c, s);
    const int32_t wht = kv_codec_wht_len(p.d_eff);
    int64_t outliers = 0;
    for (int64_t i = 0; i < N; i++)
        for (int32_t j = 0; j < wht; j++) {
            const uint8_t *packed = codes.residual + i * kv_codec_row_bytes(&p);
            assert_int_equal(kv_codec_get(packed, j, p.bits),
                             kv_codec_nearest_level(p.metric, p.level, 8, s[i * wht + j]));
            if (fabsf(s[i * wht + j]) > 2) {
                assert_int_equal(codes.outlier_idx[outliers], j);
                assert_int_equal(codes.outlier_val[outliers++], kv_codec_h(s[i * wht + j]));
            }
        }
    assert_int_equal(outliers, codes.outliers);
    assert_true(outliers > 0);
    codes.res_norm[3] = 0; /* a row without residual does not count */
    assert_int_equal(kv_codec_scaled_pick(&p, &codes, s, kept), N * wht - outliers - wht + codes.outlier_count[3]);
    kv_codec_work_free(w);
    kv_codec_codes_free(&codes);
    kv_codec_skeleton_free(&sk);
}

/* Of a normal distribution the best levels are the built-in ones (Max 1960: errors 0.3634, 0.1175, 0.03454, 0.009497). */
static void test_normal_samples(void **state)
{
    enum { N = 400000 };
    static const double errors[] = {0.3634, 0.1175, 0.03454, 0.009497};
    kv_err err = {0};
    (void)state;
    float *x = kvt_take(N, sizeof *x);
    uint64_t rnd = 2;
    for (int i = 0; i < N; i++) x[i] = gauss(&rnd);
    for (int32_t bits = 1; bits <= 4; bits++) {
        float levels[16], start[16];
        int32_t rounds = 0;
        for (int32_t g = 0; g < 1 << bits; g++) start[g] = (float)(g - (1 << bits) / 2) * 0.3F + 0.2F;
        kvt_ok(kv_codec_table_fit(x, N, bits, start, levels, &rounds, &err), &err);
        for (int32_t g = 0; g < 1 << bits; g++) assert_true(fabsf(levels[g] - kv_codec_levels(bits)[g]) < 0.05F);
        const double e = kv_codec_table_error(x, N, levels, bits);
        assert_true(fabs(e / errors[bits - 1] - 1) < 0.02);
        assert_true(e <= kv_codec_table_error(x, N, kv_codec_levels(bits), bits));
        assert_in_range(rounds, 2, KV_CODEC_TABLE_ROUNDS);
    }
    free(x);
}

static void test_exact_optimum(void **state)
{
    float x[] = {5, -1, 5.5F, -1.5F, 4.5F, -0.5F, 9, 9, -7, -7}, levels[4];
    static const float start[] = {-10, -2, 2, 10}, want[] = {-7, -1, 5, 9};
    kv_err err = {0};
    int32_t rounds;
    (void)state;
    kvt_ok(kv_codec_table_fit(x, 10, 2, start, levels, &rounds, &err), &err);
    assert_memory_equal(levels, want, sizeof want);
    assert_true(fabs(kv_codec_table_error(x, 10, levels, 2) - 0.1) < 1e-12);
}

/* Where outliers are cut off, the outer levels of the table to start from have nothing left: they are of use elsewhere. */
static void test_no_level_is_idle(void **state)
{
    enum { N = 40000 };
    kv_err err = {0};
    (void)state;
    float *x = kvt_take(N, sizeof *x);
    uint64_t rnd = 4;
    for (int i = 0; i < N; i++) x[i] = (float)(kvt_next(&rnd) >> 40) * 0x1p-24F - 0.5F; /* even over [-1/2, 1/2) */
    for (int32_t bits = 1; bits <= 4; bits++) {
        float levels[16];
        int32_t rounds = 0;
        kvt_ok(kv_codec_table_fit(x, N, bits, kv_codec_levels(bits), levels, &rounds, &err), &err);
        const double step = 1.0 / (1 << bits);
        assert_true(kv_codec_table_error(x, N, levels, bits) < 1.05 * step * step / 12);
    }
    /* As many values as levels: each has its own. */
    float y[8] = {3, 1, 2, 100, 101, 102, 103, 99}, want[8] = {1, 2, 3, 99, 100, 101, 102, 103}, levels[8];
    int32_t rounds;
    kvt_ok(kv_codec_table_fit(y, 8, 3, kv_codec_levels(3), levels, &rounds, &err), &err);
    assert_memory_equal(levels, want, sizeof want);
    free(x);
}

static void test_refused(void **state)
{
    float x[] = {1, 1, 1, 2}, levels[4];
    kv_err err = {0};
    int32_t rounds;
    (void)state;
    kvt_refused(kv_codec_table_fit(x, 4, 2, kv_codec_levels(2), levels, &rounds, &err), KV_EFORMAT, &err, "few",
                KVT_SAYS("2 different values", "4 levels"));
    kvt_refused(kv_codec_table_fit(x, 0, 1, kv_codec_levels(1), levels, &rounds, &err), KV_EFORMAT, &err, "none",
                KVT_SAYS("0 different values"));
    x[2] = NAN;
    kvt_refused(kv_codec_table_fit(x, 4, 1, kv_codec_levels(1), levels, &rounds, &err), KV_EFORMAT, &err, "nan",
                KVT_SAYS("not a number"));
    x[2] = INFINITY;
    kvt_refused(kv_codec_table_fit(x, 4, 1, kv_codec_levels(1), levels, &rounds, &err), KV_EFORMAT, &err, "inf",
                KVT_SAYS("not finite"));
    assert_true(kv_codec_table_error(x, 0, levels, 1) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaled_rows_are_the_encoders),
        cmocka_unit_test(test_normal_samples),
        cmocka_unit_test(test_exact_optimum),
        cmocka_unit_test(test_no_level_is_idle),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
