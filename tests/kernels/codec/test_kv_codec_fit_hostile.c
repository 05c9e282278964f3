/* The skeleton fit on blocks that the published program cannot take: ours gives a whole skeleton for any finite block, or an
 * error that names the value. */
#include "tests/kernels/codec/kv_test_blocks.h"

#include <math.h>

typedef enum {
    ZEROS,
    ON_MEAN,
    CONSTANT,
    ONE_ROW,
    TWO_ROWS,
    MEAN_BEYOND,
    LARGEST,
    OPPOSITE,
    SUBNORMAL,
    RANK_TWO,
    ONE_COLUMN,
    ONE_SPIKE,
    REPEATS,
    TINY,
    MINUS_ZERO,
    HOSTILES
} hostile;
static const char *const hostile_names[] = {"zeros",         "on the fp16 mean",
                                            "constant",      "one row",
                                            "two rows",      "mean beyond fp16",
                                            "largest float", "opposite largest",
                                            "subnormal",     "rank two",
                                            "one column",    "one spike",
                                            "repeats",       "tiny",
                                            "minus zero"};

static int64_t hostile_rows(hostile h)
{
    return h == ONE_ROW ? 1 : h == TWO_ROWS ? 2 : 40;
}

static float hostile_value(hostile h, int64_t i, int32_t j, float g)
{
    switch (h) {
    case ZEROS: return 0;
    case ON_MEAN: return 1.5f;
    case CONSTANT: return 0.1f * (float)(j + 1);
    case MEAN_BEYOND: return g + 1e6f;
    case LARGEST: return 3.4028235e38f;
    case OPPOSITE: return (i + j) % 2 == 0 ? 3.4028235e38f : -3.4028235e38f;
    case SUBNORMAL: return g * 1e-40f;
    case RANK_TWO: return (float)(i % 5) * (float)(j % 3) + (float)(i % 2);
    case ONE_COLUMN: return j == 7 ? g : 0;
    case ONE_SPIKE: return i == 3 && j == 5 ? 1e30f : 0;
    case REPEATS: return (float)((i % 2 == 0 ? 1 : -1) * (j + 1));
    case TINY: return g * 1e-30f;
    case MINUS_ZERO: return -0.0f;
    case ONE_ROW:
    case TWO_ROWS:
    case HOSTILES:
    default: return g;
    }
}

static void check_hostile(hostile h, kv_codec_solver solver, bool published)
{
    enum { D = 24, E = 20, K = 8 };
    kv_err err = {0};
    const int64_t n = hostile_rows(h);
    uint64_t seed = 31;
    kv_codec_params p = kvt_codec_params(D, E, K, 2);
    if (published) p.rule = KV_CODEC_RULE_PUBLISHED;
    kv_codec_skeleton s = kvt_new_skeleton(&p);
    kv_codec_fit_report r = {0};
    const kv_codec_fit_opts o = kvt_fit_opts(solver, published);
    float *x = kvt_take(n * D, sizeof *x), *back = kvt_take(n * D, sizeof *back);
    for (int64_t i = 0; i < n * D; i++) x[i] = hostile_value(h, i / D, (int32_t)(i % D), (float)kvt_normal(&seed));
    const kv_rc rc = kv_codec_fit(&p, &o, x, NULL, n, &s, &r, &err);
    if (!published) kvt_ok(rc, &err);
    if (rc == KV_OK) {
        kv_codec_codes codes;
        kv_codec_work *w = NULL;
        if (!published && (p.d_eff != E || p.k != K))
            fail_msg("%s: %d directions, %d centres", hostile_names[h], p.d_eff, p.k);
        kvt_check_skeleton(&p, &s, hostile_names[h]);
        kvt_ok(kv_codec_codes_new(&p, n, false, &codes, &err), &err);
        kvt_ok(kv_codec_work_new(&p, &s, &w, &err), &err);
        kv_codec_best()->encode(w, x, n, &codes);
        kv_codec_best()->decode(w, &codes, back);
        for (int64_t i = 0; i < n * D && !published && h < MEAN_BEYOND; i++)
            if (!isfinite(back[i]))
                fail_msg("%s: value %" PRId64 " decodes to %g", hostile_names[h], i, (double)back[i]);
        kv_codec_work_free(w);
        kv_codec_codes_free(&codes);
    } else {
        if (rc != KV_EFORMAT || err.text[0] == '\0') fail_msg("%s: %s: %s", hostile_names[h], kv_rc_name(rc), err.text);
    }
    kv_codec_skeleton_free(&s);
    free(x);
    free(back);
}

static void test_hostile(void **state)
{
    (void)state;
    for (hostile h = ZEROS; h < HOSTILES; h++)
        for (int solver = 0; solver < 3; solver++) {
            if (solver == KV_CODEC_SOLVER_LAPACK && !kv_codec_has_lapack()) continue;
            check_hostile(h, (kv_codec_solver)solver, false);
            check_hostile(h, (kv_codec_solver)solver, true);
        }
}

/* The published rules say which value was in the way. */
static void test_published_refusals(void **state)
{
    (void)state;
    enum { D = 8 };
    kv_err err = {0};
    float x[4 * D] = {0}, w[4] = {1e-8f, 1e-8f, 1e-8f, 1e-8f};
    kv_codec_params p = kvt_codec_params(D, 4, 2, 2);
    kv_codec_skeleton s = kvt_new_skeleton(&p);
    kv_codec_fit_opts o = kvt_fit_opts(KV_CODEC_SOLVER_OWN, true);
    kvt_refused(kv_codec_fit(&p, &o, x, NULL, 4, &s, NULL, &err), KV_EFORMAT, &err, "all zero", KVT_SAYS("direction"));
    p = kvt_codec_params(D, 4, 2, 2);
    for (int i = 0; i < 4; i++) x[i * D + 3] = 70000;
    kvt_refused(kv_codec_fit(&p, &o, x, NULL, 4, &s, NULL, &err), KV_EFORMAT, &err, "mean",
                KVT_SAYS("column 3", "70000"));
    for (int i = 0; i < 4 * D; i++) x[i] = (float)(i * i % 7);
    kvt_refused(kv_codec_fit(&p, &o, x, w, 4, &s, NULL, &err), KV_EFORMAT, &err, "weights",
                KVT_SAYS("weights", "2^-23"));
    o.solver = KV_CODEC_SOLVER_RANDOMIZED;
    kvt_refused(kv_codec_fit(&p, &o, x, NULL, 4, &s, NULL, &err), KV_EFORMAT, &err, "few rows",
                KVT_SAYS("4 rows", "8 columns"));
    for (int i = 0; i < 4 * D; i++) x[i] *= i % 2 == 0 ? 1e30f : -1e30f;
    for (int i = D; i < 2 * D; i++) x[i] = -x[i - D];
    for (int i = 2 * D; i < 4 * D; i++) x[i] = 0;
    o.solver = KV_CODEC_SOLVER_OWN;
    kvt_refused(kv_codec_fit(&p, &o, x, NULL, 4, &s, NULL, &err), KV_EFORMAT, &err, "overflow", KVT_SAYS("float32"));
    kv_codec_skeleton_free(&s);
}

/* Names the value, with either set of rules. */
static void test_refuses(void **state)
{
    (void)state;
    enum { D = 8, N = 12 };
    kv_err err = {0};
    for (int published = 0; published < 2; published++) {
        float x[N * D], w[N];
        uint64_t seed = 3;
        for (int i = 0; i < N * D; i++) x[i] = (float)kvt_normal(&seed);
        for (int i = 0; i < N; i++) w[i] = 1;
        kv_codec_params p = kvt_codec_params(D, 4, 2, 2);
        kv_codec_skeleton s = kvt_new_skeleton(&p);
        kv_codec_fit_opts o = kvt_fit_opts(KV_CODEC_SOLVER_OWN, published == 1);
        x[5 * D + 3] = NAN;
        kvt_refused(kv_codec_fit(&p, &o, x, w, N, &s, NULL, &err), KV_EFORMAT, &err, "nan",
                    KVT_SAYS("row 5, column 3"));
        x[5 * D + 3] = -INFINITY;
        kvt_refused(kv_codec_fit_centers(&p, &o, x, w, N, &s, NULL, &err), KV_EFORMAT, &err, "inf",
                    KVT_SAYS("row 5, column 3"));
        x[5 * D + 3] = 1;
        w[7] = INFINITY;
        kvt_refused(kv_codec_fit(&p, &o, x, w, N, &s, NULL, &err), KV_EFORMAT, &err, "weight", KVT_SAYS("row 7"));
        for (int i = 0; i < N; i++) w[i] = i % 2 == 0 ? 0 : -1;
        kvt_refused(kv_codec_fit(&p, &o, x, w, N, &s, NULL, &err), KV_EFORMAT, &err, "weights",
                    KVT_SAYS("positive weight"));
        kvt_refused(kv_codec_fit(&p, &o, x, NULL, 0, &s, NULL, &err), KV_EFORMAT, &err, "no rows", KVT_SAYS("no rows"));
        o.solver = 3;
        kvt_refused(kv_codec_fit(&p, &o, x, NULL, N, &s, NULL, &err), KV_EINVAL, &err, "solver", KVT_SAYS("solver 3"));
        o.solver = KV_CODEC_SOLVER_OWN;
        o.variance_ratio = NAN;
        kvt_refused(kv_codec_fit(&p, &o, x, NULL, N, &s, NULL, &err), KV_EINVAL, &err, "ratio",
                    KVT_SAYS("variance_ratio"));
        o = kvt_fit_opts(KV_CODEC_SOLVER_LAPACK, false);
        if (!kv_codec_has_lapack())
            kvt_refused(kv_codec_fit(&p, &o, x, NULL, N, &s, NULL, &err), KV_EUNSUP, &err, "LAPACKE",
                        KVT_SAYS("LAPACKE"));
        kv_codec_skeleton_free(&s);
    }
}

/* Each allocation fails once: KV_ENOMEM, nothing leaks (seen with the sanitizers). */
static void test_no_memory(void **state)
{
    (void)state;
    enum { D = 8, N = 24 };
    kv_err err = {0};
    float *x = kvt_gaussian_block(N, D, 1, 4), w[N];
    for (int i = 0; i < N; i++) w[i] = (float)(1 + i % 2);
    kv_codec_params p = kvt_codec_params(D, 4, 2, 2);
    kv_codec_skeleton s = kvt_new_skeleton(&p), s2 = kvt_new_skeleton(&p);
    for (int solver = 0; solver < 3; solver++) {
        if (solver == KV_CODEC_SOLVER_LAPACK && !kv_codec_has_lapack()) continue;
        const kv_codec_fit_opts o = kvt_fit_opts((kv_codec_solver)solver, false);
        long n = 0;
        for (kv_rc rc = KV_ENOMEM; rc != KV_OK; n++) {
            kv_alloc_fail_after(n);
            rc = kv_codec_fit(&p, &o, x, w, N, &s, NULL, &err);
            kv_alloc_fail_after(-1);
            if (rc != KV_OK) kvt_refused(rc, KV_ENOMEM, &err, "memory", KVT_SAYS("no memory"));
        }
        assert_true(n > 8);
    }
    kv_codec_fit_distance d;
    long n = 0;
    for (kv_rc rc = KV_ENOMEM; rc != KV_OK; n++) {
        kv_alloc_fail_after(n);
        rc = kv_codec_fit_compare(&p, &s, &s2, x, N, &d, &err);
        kv_alloc_fail_after(-1);
        kv_err_clear(&err);
    }
    assert_true(n > 5);
    kv_codec_skeleton_free(&s);
    kv_codec_skeleton_free(&s2);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hostile), cmocka_unit_test(test_published_refusals),
                                       cmocka_unit_test(test_refuses), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
