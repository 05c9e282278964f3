/* The skeleton fit: its pieces against plain loops, the same bits in every variant and against committed digests, sizes
 * and rules, one basis for several blocks, LAPACKE's fit beside ours. Bad blocks, the decode error against theory and the
 * conformance vectors are in test_kv_codec_fit_{hostile,theory,vectors}.c. */
#include "tests/kernels/codec/kv_test_blocks.h"

#include <math.h>

#include "kernels/codec/kv_codec_fit_part.h"

static const char *const variants[] = {"reference", "sse2", "avx2", "avx512"};

static void hold(const char *variant)
{
    if (variant == NULL)
        (void)unsetenv("KVGRID_CODEC_VARIANT");
    else
        assert_int_equal(setenv("KVGRID_CODEC_VARIANT", variant, 1), 0);
}

/* ---- mean and covariance ------------------------------------------------------------------- */

/* Section 8.1 and 8.2 word for word. */
static void plain_covariance(const float *x, const float *w, int64_t n, int32_t dim, float *mean, float *s)
{
    float total = -0.0f;
    float *z = kvt_take(dim, sizeof *z);
    for (int64_t i = 0; i < n; i++) total += w != NULL ? w[i] : 1;
    for (int32_t j = 0; j < dim; j++) {
        mean[j] = 0;
        for (int64_t i = 0; i < n; i++) mean[j] += (w != NULL ? w[i] : 1) * x[i * dim + j];
        mean[j] /= total;
    }
    memset(s, 0, sizeof *s * (size_t)dim * (size_t)dim);
    for (int64_t i = 0; i < n; i++) {
        const float weight = w != NULL ? w[i] : 1;
        if (!(weight > 0)) continue;
        for (int32_t j = 0; j < dim; j++) z[j] = x[i * dim + j] - mean[j];
        for (int32_t a = 0; a < dim; a++)
            for (int32_t b = 0; b <= a; b++) {
                const float v = (weight * z[a]) * z[b];
                s[a * dim + b] += v;
                if (a != b) s[b * dim + a] += v;
            }
    }
    for (int32_t i = 0; i < dim * dim; i++) s[i] /= total;
    free(z);
}

static void check_covariance(int64_t n, int32_t dim, bool weighted, bool published, uint64_t seed)
{
    kv_err err = {0};
    float *x = kvt_k_like_block(n, dim, 4, 0.9, 0.3, 2, seed), *w = NULL;
    float *mean = kvt_take(dim, sizeof *mean), *want = kvt_take(dim * dim, sizeof *want);
    float *got = kvt_take(dim * dim, sizeof *got);
    if (weighted) w = kvt_take(n, sizeof *w);
    for (int64_t i = 0; weighted && i < n; i++) w[i] = (float)kvt_below(&seed, 5) / 3;
    if (weighted) w[0] = 1;
    plain_covariance(x, w, n, dim, mean, want);
    kv_fit_rows r;
    kvt_ok(kv_fit_rows_look(&r, dim, published, x, w, n, &err), &err);
    kvt_ok(kv_fit_rows_mean(&r, &err), &err);
    kvt_ok(kv_fit_covariance(&r, got, &err), &err);
    for (int32_t j = 0; j < dim; j++) assert_true(r.mean[j] / r.scale == mean[j]);
    for (int32_t i = 0; i < dim * dim; i++)
        if (got[i] / r.scale / r.scale != want[i])
            fail_msg("n %" PRId64 ", dim %d, entry %d: %.9g for %.9g", n, (int)dim, (int)i, (double)got[i],
                     (double)want[i]);
    kv_fit_rows_free(&r);
    free(x);
    free(w);
    free(mean);
    free(want);
    free(got);
}

/* More rows than are centred at once, and the scaling of our own rules changes no bit either. */
static void test_covariance(void **state)
{
    (void)state;
    static const int32_t dims[] = {1, 3, 8, 15, 16, 17, 33, 64, 80, 128, 130};
    for (size_t v = 0; v < KVT_COUNT(variants); v++) {
        hold(variants[v]);
        for (size_t d = 0; d < KVT_COUNT(dims); d++)
            for (int c = 0; c < 4; c++) check_covariance(d % 2 == 0 ? 37 : 64, dims[d], c % 2 == 1, c / 2 == 1, 5 + d);
        check_covariance(512, 20, false, false, 3);
        check_covariance(1500, 20, true, false, 4);
    }
    hold(NULL);
}

/* ---- the same bits ------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint64_t digest[2]; /* by solver: ours, randomized */
} golden[] = {{"gaussian", {0xA8F644DF921A07AEu, 0xD46DA9C5128DD19Eu}},
              {"k like", {0x1A2BE986BE17029Bu, 0x625E0788663E6E2Bu}},
              {"heavy", {0x8AED23D58F001DD7u, 0xF7813703A8332CA9u}},
              {"few rows", {0x36FE80245910F42Du, 0x7AC372F3D5685BE9u}}};

static float *golden_block(size_t i, int64_t *n)
{
    *n = i == 3 ? 24 : 200;
    if (i == 0) return kvt_gaussian_block(*n, 64, 1, 11);
    if (i == 2) return kvt_heavy_block(*n, 64, 13);
    return kvt_k_like_block(*n, 64, 4, 0.9, 0.3, 2, 12);
}

static void test_same_bits(void **state)
{
    (void)state;
    kv_err err = {0};
    int bad = 0;
    for (size_t v = 0; v < KVT_COUNT(variants); v++)
        for (size_t i = 0; i < KVT_COUNT(golden); i++)
            for (int s = 0; s < 2; s++) {
                int64_t n;
                hold(variants[v]);
                float *x = golden_block(i, &n);
                kv_codec_params p = kvt_codec_params(64, 32, 8, 3);
                kv_codec_skeleton sk = kvt_new_skeleton(&p);
                const kv_codec_fit_opts o =
                    kvt_fit_opts(s == 0 ? KV_CODEC_SOLVER_OWN : KV_CODEC_SOLVER_RANDOMIZED, false);
                kvt_ok(kv_codec_fit(&p, &o, x, NULL, n, &sk, NULL, &err), &err);
                const uint64_t got = kvt_skeleton_digest(&p, &sk);
                if (got != golden[i].digest[s]) {
                    print_error("%s, %s, solver %d: 0x%016" PRIX64 "u\n", variants[v], golden[i].name, s, got);
                    bad++;
                }
                kv_codec_skeleton_free(&sk);
                free(x);
            }
    hold(NULL);
    if (bad > 0) fail_msg("%d digests differ", bad);
}

/* A block times a power of two has the same basis and centres, down to rows near the encoder's EPS and far beyond fp16. */
static void test_scales(void **state)
{
    (void)state;
    kv_err err = {0};
    enum { N = 96, D = 32 };
    static const int exponents[] = {-12, 0, 10, 40, 120};
    float *x = kvt_gaussian_block(N, D, 1, 21), y[N * D];
    uint64_t first = 0;
    for (size_t e = 0; e < KVT_COUNT(exponents); e++)
        for (int solver = 0; solver < 3; solver += 2) {
            const kv_codec_fit_opts o =
                kvt_fit_opts(solver == 0 ? KV_CODEC_SOLVER_OWN : KV_CODEC_SOLVER_RANDOMIZED, false);
            kv_codec_params p = kvt_codec_params(D, 16, 4, 3);
            kv_codec_skeleton s = kvt_new_skeleton(&p);
            kv_codec_fit_report r = {0};
            for (int i = 0; i < N * D; i++) y[i] = ldexpf(x[i], exponents[e]);
            kvt_ok(kv_codec_fit(&p, &o, y, NULL, N, &s, &r, &err), &err);
            kvt_check_skeleton(&p, &s, "scaled");
            assert_int_equal(r.mean_saturated, exponents[e] > 30);
            const uint64_t h = kvt_fnv(0, s.basis, sizeof(uint16_t) * 16 * D);
            if (solver == 0 && e == 0) first = h;
            if (solver == 0) assert_true(h == first);
            kv_codec_skeleton_free(&s);
        }
    /* 2^-100: too short for the encoder to give them a centre, but the basis is still theirs */
    kv_codec_params p = kvt_codec_params(D, 16, 4, 3);
    const kv_codec_fit_opts o = kvt_fit_opts(KV_CODEC_SOLVER_OWN, false);
    kv_codec_skeleton s = kvt_new_skeleton(&p);
    kv_codec_fit_report r = {0};
    for (int i = 0; i < N * D; i++) y[i] = ldexpf(x[i], -100);
    kvt_ok(kv_codec_fit(&p, &o, y, NULL, N, &s, &r, &err), &err);
    assert_true(kvt_fnv(0, s.basis, sizeof(uint16_t) * 16 * D) == first);
    assert_int_equal(r.k_eff, 0);
    assert_int_equal(r.d_eff, 16);
    kv_codec_skeleton_free(&s);
    free(x);
}

/* ---- sizes, weights, rules ------------------------------------------------------------------- */

/* variance_ratio and rank_cap in the report; the basis keeps its size. Weight 0 is the same as not being there. */
static void test_rules(void **state)
{
    (void)state;
    enum { D = 32, N = 128 };
    kv_err err = {0};
    float *x = kvt_k_like_block(N, D, 8, 0.5, 0.001, 1, 41), w[N];
    for (int i = 0; i < N; i++) w[i] = i < 100 ? 4.0f : 0;
    kv_codec_params p = kvt_codec_params(D, 20, 6, 3), q = p, pub = p;
    kv_codec_skeleton a = kvt_new_skeleton(&p), b = kvt_new_skeleton(&p);
    kv_codec_fit_report r = {0};
    kv_codec_fit_opts o = kvt_fit_opts(KV_CODEC_SOLVER_OWN, false);
    o.variance_ratio = 0.9;
    kvt_ok(kv_codec_fit(&p, &o, x, NULL, N, &a, &r, &err), &err);
    const int32_t kept = r.d_eff;
    assert_in_range(kept, 1, 6);
    assert_int_equal(p.d_eff, 20);
    assert_true(r.kept_ppm > 999000 && r.kept_ppm <= 1e6);
    kvt_check_skeleton(&p, &a, "rules");
    o.published = true;
    kvt_ok(kv_codec_fit(&pub, &o, x, NULL, N, &a, &r, &err), &err);
    assert_int_equal(pub.d_eff, kept);
    assert_int_equal(r.d_eff, kept);
    assert_true(r.kept_ppm >= 899999 && r.kept_ppm < 999000);
    o.published = false;
    o.rank_cap = 2;
    o.k = 3;
    kvt_ok(kv_codec_fit(&p, &o, x, NULL, N, &a, &r, &err), &err);
    assert_int_equal(r.d_eff, 2);
    assert_int_equal(r.k_eff, 3);
    for (int g = 3; g < 6; g++) assert_memory_equal(a.centers + g * 20, a.centers + (g - 3) * 20, 40);
    /* equal weights and rows of weight 0 or below against the rows alone: the same bits */
    o = kvt_fit_opts(KV_CODEC_SOLVER_OWN, false);
    w[N - 1] = -3;
    kvt_ok(kv_codec_fit(&p, &o, x, w, N, &a, &r, &err), &err);
    kvt_ok(kv_codec_fit(&q, &o, x, NULL, 100, &b, &r, &err), &err);
    assert_true(kvt_skeleton_digest(&p, &a) == kvt_skeleton_digest(&q, &b));
    w[50] = 40;
    kvt_ok(kv_codec_fit(&p, &o, x, w, N, &a, &r, &err), &err);
    assert_true(kvt_skeleton_digest(&p, &a) != kvt_skeleton_digest(&q, &b));
    kv_codec_skeleton_free(&a);
    kv_codec_skeleton_free(&b);
    free(x);
}

/* One basis for several blocks: the pooled fit, then centres of each. */
static void test_shared_basis(void **state)
{
    (void)state;
    enum { D = 32, N = 64, BLOCKS = 3 };
    kv_err err = {0};
    float *x = kvt_k_like_block(N * BLOCKS, D, 4, 0.8, 0.1, 1, 51);
    kv_codec_params p = kvt_codec_params(D, 16, 4, 3);
    kv_codec_skeleton s = kvt_new_skeleton(&p), whole = kvt_new_skeleton(&p);
    const kv_codec_fit_opts o = kvt_fit_opts(KV_CODEC_SOLVER_OWN, false);
    kvt_ok(kv_codec_fit_basis(&p, &o, x, NULL, N * BLOCKS, &s, NULL, &err), &err);
    kvt_ok(kv_codec_fit(&p, &o, x, NULL, N * BLOCKS, &whole, NULL, &err), &err);
    assert_memory_equal(s.mean, whole.mean, D * 2);
    assert_memory_equal(s.basis, whole.basis, 16 * D * 2);
    uint64_t seen[BLOCKS];
    for (int b = 0; b < BLOCKS; b++) {
        kv_codec_fit_report r = {0};
        kvt_ok(kv_codec_fit_centers(&p, &o, x + b * N * D, NULL, N, &s, &r, &err), &err);
        assert_int_equal(r.k_eff, 4);
        kvt_check_skeleton(&p, &s, "shared");
        seen[b] = kvt_fnv(0, s.centers, 4 * 16 * 2);
        for (int c = 0; c < b; c++) assert_true(seen[c] != seen[b]);
        assert_memory_equal(s.basis, whole.basis, 16 * D * 2);
    }
    kv_codec_skeleton_free(&s);
    kv_codec_skeleton_free(&whole);
    free(x);
}

/* ---- ours beside LAPACKE's ------------------------------------------------------------------- */

static void test_lapack(void **state)
{
    (void)state;
    enum { D = 128, E = 64, N = 512 };
    kv_err err = {0};
    if (!kv_codec_has_lapack()) {
        print_message("%s\n", kv_codec_lapack_name());
        skip();
    }
    for (int b = 0; b < 3; b++) {
        float *x = b == 0   ? kvt_gaussian_block(N, D, 1, 61)
                   : b == 1 ? kvt_k_like_block(N, D, 4, 0.95, 0.3, 2, 62)
                            : kvt_heavy_block(N, D, 63);
        kv_codec_params p = kvt_codec_params(D, E, 16, 3);
        kv_codec_skeleton own = kvt_new_skeleton(&p), lapack = kvt_new_skeleton(&p);
        kv_codec_fit_opts o = kvt_fit_opts(KV_CODEC_SOLVER_OWN, false);
        kvt_ok(kv_codec_fit(&p, &o, x, NULL, N, &own, NULL, &err), &err);
        o.solver = KV_CODEC_SOLVER_LAPACK;
        kvt_ok(kv_codec_fit(&p, &o, x, NULL, N, &lapack, NULL, &err), &err);
        kv_codec_fit_distance d;
        kvt_ok(kv_codec_fit_compare(&p, &own, &lapack, x, N, &d, &err), &err);
        print_message("ours and LAPACKE, block %d: sine %.2e, errors %.9f %.9f\n", b, d.sine, d.error_a, d.error_b);
        assert_true(d.sine < 2e-3 && d.error_a <= d.error_b * (1 + 1e-6) && d.error_b <= d.error_a * (1 + 1e-6));
        kv_codec_skeleton_free(&own);
        kv_codec_skeleton_free(&lapack);
        free(x);
    }
}

/* What compare says where the answer is known: the same basis, one turned by 45 degrees, one of other directions. */
static void test_compare(void **state)
{
    (void)state;
    enum { D = 8, E = 2 };
    kv_err err = {0};
    kv_codec_params p = kvt_codec_params(D, E, 1, 1);
    kv_codec_skeleton a = kvt_new_skeleton(&p), b = kvt_new_skeleton(&p);
    const float x[2 * D] = {3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0};
    kv_codec_fit_distance d;
    a.basis[0] = a.basis[D + 1] = 0x3C00; /* e0, e1 */
    b.basis[1] = b.basis[D + 0] = 0x3C00; /* e1, e0: the same plane */
    kvt_ok(kv_codec_fit_compare(&p, &a, &b, x, 2, &d, &err), &err);
    assert_true(d.sine == 0 && fabs(d.error_a - sqrt(0.5)) < 1e-12 && d.error_a == d.error_b);
    b.basis[D + 2] = 0x3C00; /* e1, e0 + e2 */
    kvt_ok(kv_codec_fit_compare(&p, &a, &b, x, 2, &d, &err), &err);
    assert_true(fabs(d.sine - sqrt(0.5)) < 1e-12 && d.error_b > d.error_a);
    b.basis[D + 0] = 0; /* e1, e2 */
    kvt_ok(kv_codec_fit_compare(&p, &a, &b, x, 2, &d, &err), &err);
    assert_true(fabs(d.sine - 1) < 1e-12);
    kv_codec_skeleton_free(&a);
    kv_codec_skeleton_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_covariance),   cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_scales),       cmocka_unit_test(test_rules),
                                       cmocka_unit_test(test_shared_basis), cmocka_unit_test(test_lapack),
                                       cmocka_unit_test(test_compare)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
