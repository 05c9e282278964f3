/* Whitening: the factors against what defines them, the order of sums, and what is refused. */
#include "tests/kv_test.h"

#include <math.h>

#include "kernels/codec/kv_codec_whiten.h"

static float gauss(uint64_t *rnd)
{
    double s = 0;
    for (int i = 0; i < 12; i++) s += (double)(kvt_next(rnd) >> 11) * 0x1p-53;
    return (float)(s - 6);
}

/* Queries with very different spreads along mixed directions. */
static float *queries(int64_t n, int32_t dim, uint64_t seed)
{
    float *q = kvt_take(n * dim, sizeof *q);
    uint64_t rnd = seed;
    for (int64_t r = 0; r < n; r++) {
        float carry = 0;
        for (int32_t i = 0; i < dim; i++) {
            carry = 0.7F * carry + gauss(&rnd) * (1 + (float)i * 0.3F);
            q[r * dim + i] = carry;
        }
    }
    return q;
}

static void fit(const float *q, int64_t n, int32_t dim, double ridge, float *l, float *inverse, double *condition)
{
    double *sums = kvt_take((int64_t)dim * dim, sizeof *sums);
    kv_err err = {0};
    kv_codec_whiten_sum(q, n, dim, sums);
    kvt_ok(kv_codec_whiten_fit(sums, n, dim, ridge, l, inverse, condition, &err), &err);
    free(sums);
}

static void test_factors_of_a_covariance(void **state)
{
    enum { N = 500, D = 24 };
    float l[D * D], inverse[D * D];
    double condition = 0;
    (void)state;
    float *q = queries(N, D, 1);
    fit(q, N, D, 0, l, inverse, &condition);
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            double want = 0, got = 0, one = 0, scale = 0;
            for (int r = 0; r < N; r++) want += (double)q[r * D + i] * (double)q[r * D + j] / N;
            for (int m = 0; m < D; m++) {
                got += (double)l[i * D + m] * (double)l[j * D + m];
                one += (double)l[i * D + m] * (double)inverse[m * D + j];
                scale += fabs((double)l[i * D + m] * (double)l[j * D + m]);
            }
            assert_true(fabs(got - want) <= 1e-6 * (scale + 1));
            assert_true(fabs(one - (i == j)) <= KV_CODEC_WHITEN_TOLERANCE);
            if (j > i) assert_true(l[i * D + j] == 0 && inverse[i * D + j] == 0);
        }
    assert_true(condition > 10 && condition < 1e6);
    free(q);
}

static void test_ridge_bounds_the_condition(void **state)
{
    enum { D = 8 };
    float l[D * D], inverse[D * D], q[D] = {1, 2, 3, 4, 5, 6, 7, 8}; /* one query: rank 1, trace 204 */
    double condition = 0;
    (void)state;
    fit(q, 1, D, KV_CODEC_WHITEN_RIDGE, l, inverse, &condition);
    const double ridge = 1e-3 * 204 / 8;
    assert_true(fabs(condition - (204 + ridge) / ridge) < 1e-6 * condition);
}

/* Squared error of a whitened row is the query-weighted error of the row. */
static void test_error_is_query_weighted(void **state)
{
    enum { N = 300, D = 16 };
    float l[D * D], inverse[D * D], e[D], white[D];
    double condition, weighted = 0, plain = 0;
    uint64_t rnd = 3;
    (void)state;
    float *q = queries(N, D, 2);
    fit(q, N, D, 0, l, inverse, &condition);
    for (int i = 0; i < D; i++) e[i] = gauss(&rnd);
    for (int r = 0; r < N; r++) {
        double dot = 0;
        for (int i = 0; i < D; i++) dot += (double)q[r * D + i] * (double)e[i];
        weighted += dot * dot / N;
    }
    kv_codec_whiten_rows(l, D, e, 1, white);
    for (int i = 0; i < D; i++) plain += (double)white[i] * (double)white[i];
    assert_true(fabs(plain - weighted) < 1e-5 * weighted);
    free(q);
}

/* The sum of each entry runs over ascending i from +0, one rounding a step. */
static void test_order_of_sums(void **state)
{
    enum { D = 33, N = 5 };
    float m[D * D], x[N * D], out[N * D];
    uint64_t rnd = 4;
    (void)state;
    for (int i = 0; i < D * D; i++) m[i] = gauss(&rnd) * (i % 7 == 0 ? 1e6F : 1.0F);
    for (int i = 0; i < N * D; i++) x[i] = gauss(&rnd) * (i % 5 == 0 ? 1e-6F : 1.0F);
    kv_codec_whiten_rows(m, D, x, N, out);
    for (int r = 0; r < N; r++)
        for (int j = 0; j < D; j++) {
            float sum = 0.0F;
            for (int i = 0; i < D; i++) {
                const volatile float product = x[r * D + i] * m[i * D + j];
                sum = sum + product;
            }
            assert_memory_equal(&sum, &out[r * D + j], sizeof sum);
        }
}

static void test_there_and_back(void **state)
{
    enum { N = 400, D = 64 };
    float *l = kvt_take(D * D, sizeof *l), *inverse = kvt_take(D * D, sizeof *l), white[D], back[D];
    double condition, off = 0, all = 0;
    (void)state;
    float *q = queries(N, D, 5), *x = queries(50, D, 6);
    fit(q, N, D, KV_CODEC_WHITEN_RIDGE, l, inverse, &condition);
    for (int r = 0; r < 50; r++) {
        kv_codec_whiten_rows(l, D, x + r * D, 1, white);
        kv_codec_whiten_rows(inverse, D, white, 1, back);
        for (int j = 0; j < D; j++) {
            const double d = (double)back[j] - (double)x[r * D + j];
            off += d * d;
            all += (double)x[r * D + j] * (double)x[r * D + j];
        }
    }
    assert_true(sqrt(off / all) < 1e-5);
    free(q);
    free(x);
    free(l);
    free(inverse);
}

static void test_fit_refuses(void **state)
{
    double sums[4] = {0}, condition;
    float l[4], inverse[4];
    kv_err err = {0};
    (void)state;
    kvt_refused(kv_codec_whiten_fit(sums, 10, 2, 1e-3, l, inverse, &condition, &err), KV_EFORMAT, &err, "zero",
                KVT_SAYS("all queries are zero"));
    sums[3] = NAN;
    kvt_refused(kv_codec_whiten_fit(sums, 10, 2, 1e-3, l, inverse, &condition, &err), KV_EFORMAT, &err, "nan",
                KVT_SAYS("[1][1]", "not finite"));
    memcpy(sums, (const double[4]){1, 1, 1, 1}, sizeof sums); /* rank 1, no ridge */
    kvt_refused(kv_codec_whiten_fit(sums, 1, 2, 0, l, inverse, &condition, &err), KV_EFORMAT, &err, "rank",
                KVT_SAYS("not positive definite"));
    kvt_refused(kv_codec_whiten_fit(sums, 0, 2, 0, l, inverse, &condition, &err), KV_EINVAL, &err, "none",
                KVT_SAYS("no queries"));
}

static void set_identity(kv_codec_whiten *w, int32_t layer)
{
    kv_err err = {0};
    kvt_ok(kv_codec_whiten_add(w, layer, &err), &err);
    for (int32_t h = 0; h < w->heads; h++)
        for (int32_t i = 0; i < w->dim; i++) {
            const int64_t at = (int64_t)h * w->dim * w->dim + (int64_t)i * w->dim + i;
            w->l[layer][at] = w->inverse[layer][at] = 1;
        }
}

static void test_check(void **state)
{
    kv_codec_whiten w;
    kv_err err = {0};
    (void)state;
    kvt_ok(kv_codec_whiten_new(3, 2, 4, &w, &err), &err);
    set_identity(&w, 1);
    assert_int_equal(kv_codec_whiten_identities(&w), 2);
    kvt_ok(kv_codec_whiten_check(&w, &err), &err);
    float *l = w.l[1] + 16, *inverse = w.inverse[1] + 16; /* head 1 */
#define BAD(set_, undo_, ...)                                                                                          \
    do {                                                                                                               \
        set_;                                                                                                          \
        kvt_refused(kv_codec_whiten_check(&w, &err), KV_EFORMAT, &err, #set_,                                          \
                    KVT_SAYS("layer 1, head 1", __VA_ARGS__));                                                         \
        undo_;                                                                                                         \
    } while (0)
    BAD(l[1] = 0.5F, l[1] = 0, "L[0][1]", "lower triangular");
    BAD(l[5] = 0, l[5] = 1, "L[1][1]", "positive");
    BAD(l[5] = -1, l[5] = 1, "L[1][1]", "positive");
    BAD(l[4] = NAN, l[4] = 0, "L[1][0]", "not finite");
    BAD(l[4] = 3e-5F, l[4] = 0, "[1][0]", "3e-05", "2e-05");
    BAD(inverse[3] = 3e-5F, inverse[3] = 0, "[0][3]");
    BAD(inverse[10] = INFINITY, inverse[10] = 1, "[2]");
#undef BAD
    l[4] = 1e-5F; /* within the tolerance */
    kvt_ok(kv_codec_whiten_check(&w, &err), &err);
    kv_codec_whiten_free(&w);
    kvt_refused(kv_codec_whiten_new(1, 1, 1025, &w, &err), KV_EINVAL, &err, "dim", KVT_SAYS("1025"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factors_of_a_covariance),
        cmocka_unit_test(test_ridge_bounds_the_condition),
        cmocka_unit_test(test_error_is_query_weighted),
        cmocka_unit_test(test_order_of_sums),
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_fit_refuses),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
