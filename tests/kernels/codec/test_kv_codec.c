/* Encode and decode: a row by hand, the two rules, hostile rows, our own golden digests. */
#include "kernels/codec/kv_codec.h"

#include "tests/kernels/codec/kv_test_codec.h"

static uint16_t half(float x)
{
    return kv_codec_h(x);
}

/* One configuration with its skeleton, work and room. */
typedef struct {
    kv_codec_params p;
    kv_codec_skeleton s;
    kv_codec_work *w;
    kv_codec_codes codes;
    float *y;
} codec;

static codec open_codec(const kv_codec_params *p, const kv_codec_skeleton *s, int64_t n)
{
    codec c = {.p = *p, .s = *s};
    kv_err err = {0};
    kvt_ok(kv_codec_work_new(p, s, &c.w, &err), &err);
    kvt_ok(kv_codec_codes_new(p, n, true, &c.codes, &err), &err);
    c.y = kvt_take(n * p->dim, sizeof *c.y);
    return c;
}

static void close_codec(codec *c)
{
    free(c->y);
    kv_codec_codes_free(&c->codes);
    kv_codec_work_free(c->w);
}

/* Axes as directions, axis 0 as the only centre, mean 0. */
static kv_codec_params axes(int32_t dim, int32_t bits, kv_codec_skeleton *s)
{
    kv_codec_params p = {.dim = dim, .d_eff = dim, .k = 1, .bits = bits, .seed = 42};
    kv_err err = {0};
    memcpy(p.level, kv_codec_levels(bits), sizeof(float) << bits);
    kvt_ok(kv_codec_skeleton_new(&p, s, &err), &err);
    for (int32_t a = 0; a < dim; a++) s->basis[a * dim + a] = half(1);
    s->centers[0] = half(1);
    return p;
}

static void a_row_by_hand(void **state)
{
    (void)state;
    const float x[2] = {3, 4}; /* t 3, residual (0, 4), signs - -, rotated (-4, 4), scaled (-1, 1) */
    kv_codec_skeleton s;
    const kv_codec_params p = axes(2, 1, &s);
    for (const kv_codec_variant *v = kv_codec_variants(); v->name != NULL; v++) {
        if (!v->runs_here()) continue;
        codec c = open_codec(&p, &s, 1);
        v->encode(c.w, x, 1, &c.codes);
        assert_int_equal(c.codes.seg_id[0], 0);
        assert_int_equal(c.codes.t[0], half(3));
        assert_int_equal(c.codes.norm[0], half(4));
        assert_int_equal(c.codes.residual[0], 2);
        assert_int_equal(c.codes.outliers, 0);
        assert_true(c.codes.res_norm[0] == 4.0f);
        v->decode(c.w, &c.codes, c.y);
        assert_true(c.y[0] == 3.0f && c.y[1] == 0.798156f * 4);
        close_codec(&c);
    }
    kv_codec_skeleton_free(&s);
}

/* A dot of which every term is -0 is -0: sums start there. */
static void t__may_be_minus_zero(void **state)
{
    (void)state;
    const float x[2] = {2, 0};
    kv_codec_skeleton s;
    const kv_codec_params p = axes(2, 1, &s);
    s.centers[0] = half(-0.0f);
    s.centers[1] = half(-1);
    for (const kv_codec_variant *v = kv_codec_variants(); v->name != NULL; v++) {
        if (!v->runs_here()) continue;
        codec c = open_codec(&p, &s, 1);
        v->encode(c.w, x, 1, &c.codes);
        assert_int_equal(c.codes.t[0], 0x8000);
        close_codec(&c);
    }
    kv_codec_skeleton_free(&s);
}

/* The costs once more, with every intermediate result stored. */
static int32_t nearest_by_hand(int32_t metric, const float *level, int32_t count, float s)
{
    volatile float least = INFINITY, e, cost;
    int32_t best = 0;
    for (int32_t g = 0; g < count; g++) {
        e = s - level[g];
        if (metric == KV_CODEC_LINF && fabsf(e) < 0.1f) {
            cost = e * e;
            cost = cost / 0.2f;
        } else if (metric == KV_CODEC_LINF) {
            cost = fabsf(e) - 0.05f;
        } else {
            cost = e * e;
        }
        if (cost < least) {
            least = cost;
            best = g;
        }
    }
    return best;
}

/* On levels, on their middles and some steps round them, ties included; tables whose levels lie close too. */
static void nearest_level__is_the_first_of_least_cost(void **state)
{
    (void)state;
    uint64_t seed = 4;
    int64_t ties = 0;
    for (int i = 0; i < 400; i++) {
        kv_codec_params p = kvt_params(&seed);
        const int32_t count = 1 << p.bits;
        if (kvt_one_in(&seed, 2))
            for (int32_t g = 0; g < count; g++) p.level[g] *= 0.1f;
        for (int32_t g = 0; g + 1 < count; g++)
            for (int32_t step = -4; step <= 4; step++) {
                const float middle = p.level[g] + (p.level[g + 1] - p.level[g]) / 2;
                const float s = kv_num_float(kv_num_bits(middle) + (uint32_t)step);
                for (int32_t metric = 0; metric < KV_CODEC_METRIC_COUNT; metric++) {
                    const int32_t want = nearest_by_hand(metric, p.level, count, s);
                    assert_int_equal(kv_codec_nearest_level(metric, p.level, count, s), want);
                    ties += kv_codec_cost(metric, s, p.level[g]) == kv_codec_cost(metric, s, p.level[g + 1]);
                }
            }
    }
    assert_true(ties > 1000);
    assert_int_equal(kv_codec_nearest_level(0, kv_codec_levels(2), 4, NAN), 0);
    assert_int_equal(kv_codec_nearest_level(0, kv_codec_levels(2), 4, 1e30f), 0); /* every cost overflows */
    assert_int_equal(kv_codec_nearest_level(2, kv_codec_levels(2), 4, 1e30f), 0); /* every cost is the same */
}

static void sizes__and_levels(void **state)
{
    (void)state;
    static const int32_t want[][2] = {{1, 1}, {2, 2}, {3, 4}, {64, 64}, {65, 128}, {1000, 1024}, {1024, 1024}};
    for (size_t i = 0; i < KVT_COUNT(want); i++) assert_int_equal(kv_codec_wht_len(want[i][0]), want[i][1]);
    const kv_codec_params p = {.d_eff = 64, .bits = 3}, q = {.d_eff = 1, .bits = 3}, r = {.d_eff = 5, .bits = 1};
    assert_int_equal(kv_codec_row_bytes(&p), 24);
    assert_int_equal(kv_codec_row_bytes(&q), 1);
    assert_int_equal(kv_codec_row_bytes(&r), 1);
    assert_null(kv_codec_levels(0));
    assert_null(kv_codec_levels(5));
    for (int32_t bits = 1; bits <= 4; bits++)
        for (int i = 0; i < 1 << bits; i++) {
            const float *l = kv_codec_levels(bits);
            assert_true(l[i] == -l[(1 << bits) - 1 - i] && (i == 0 || l[i] > l[i - 1]));
        }
    assert_true(kv_codec_levels(3)[7] == 2.151945f && kv_codec_levels(4)[8] == 0.1281f);
}

static void params_check__names_what_is_out_of_range(void **state)
{
    (void)state;
    kv_codec_params good = {.dim = 8, .d_eff = 4, .k = 2, .bits = 2, .outliers = true, .threshold = 2};
    memcpy(good.level, kv_codec_levels(2), 4 * sizeof(float));
    kv_err err = {0};
    kvt_ok(kv_codec_params_check(&good, &err), &err);
#define REFUSED(field_, value_, ...)                                                                                   \
    do {                                                                                                               \
        kv_codec_params p = good;                                                                                      \
        p.field_ = (value_);                                                                                           \
        kvt_refused(kv_codec_params_check(&p, &err), KV_EINVAL, &err, #field_, KVT_SAYS(__VA_ARGS__));                 \
    } while (0)
    REFUSED(dim, 0, "head dimension 0", "1 to 1024");
    REFUSED(dim, 1025, "head dimension 1025");
    REFUSED(d_eff, 9, "d_eff 9", "1 to 8");
    REFUSED(d_eff, 0, "d_eff 0");
    REFUSED(k, 0, "k 0", "4096");
    REFUSED(k, 4097, "k 4097");
    REFUSED(bits, 5, "bits 5", "1 to 4");
    REFUSED(metric, 3, "metric 3");
    REFUSED(rule, -1, "rule -1");
    REFUSED(level[2], good.level[1], "level 2", "not above level 1");
    REFUSED(level[3], NAN, "level 3", "not finite");
    REFUSED(level[3], 65505.0f, "level 3 is 65505", "65504");
    REFUSED(level[0], -1e38f, "level 0 is -9.99999968e+37", "65504");
    REFUSED(threshold, -1.0f, "threshold -1");
    REFUSED(threshold, INFINITY, "threshold inf");
    for (int i = 0; i < 4; i++) good.level[i] = (float)(i - 2) * 0x1p-15f; /* up to 2^-14 in magnitude */
    kvt_ok(kv_codec_params_check(&good, &err), &err);
    for (int i = 0; i < 4; i++) good.level[i] *= 0.5f;
    REFUSED(bits, 2, "the largest level is 3.05175781e-05", "at least 6.10352e-05");
}

static void kv1__a_row_on_its_centre_comes_back_exactly(void **state)
{
    (void)state;
    for (int32_t metric = 0; metric < KV_CODEC_METRIC_COUNT; metric++)
        for (int32_t bits = 1; bits <= 4; bits++) {
            kv_codec_skeleton s;
            kv_codec_params p = axes(8, bits, &s);
            p.metric = metric;
            for (int j = 0; j < 8; j++) s.mean[j] = half((float)j - 2.5f);
            float x[16];
            for (int j = 0; j < 16; j++)
                x[j] = (float)(j % 8) - 2.5f + (j == 8 ? 3.0f : 0.0f); /* the mean; + 3 * centre */
            for (const kv_codec_variant *v = kv_codec_variants(); v->name != NULL; v++) {
                if (!v->runs_here()) continue;
                p.rule = KV_CODEC_RULE_KV1;
                codec c = open_codec(&p, &s, 2);
                v->encode(c.w, x, 2, &c.codes);
                v->decode(c.w, &c.codes, c.y);
                assert_memory_equal(c.y, x, sizeof x);
                assert_int_equal(c.codes.norm[0] | c.codes.norm[1], 0);
                assert_int_equal(c.codes.t[1], half(3));
                close_codec(&c);
                p.rule = KV_CODEC_RULE_PUBLISHED; /* its fault: noise */
                c = open_codec(&p, &s, 2);
                v->encode(c.w, x, 2, &c.codes);
                v->decode(c.w, &c.codes, c.y);
                assert_memory_not_equal(c.y, x, sizeof x);
                close_codec(&c);
            }
            kv_codec_skeleton_free(&s);
        }
}

/* The fp16 rounding of t stays out of the decoded row: the residual is taken against it. */
static void kv1__the_residual_is_against_the_stored_t(void **state)
{
    (void)state;
    const float x[2] = {1.0f + 0x1p-12f, 0}; /* t rounds to 1; what is left is 2^-12 along axis 0 */
    kv_codec_skeleton s;
    kv_codec_params p = axes(2, 1, &s);
    p.rule = KV_CODEC_RULE_KV1;
    codec c = open_codec(&p, &s, 1);
    kv_codec_best()->encode(c.w, x, 1, &c.codes);
    assert_int_equal(c.codes.t[0], half(1));
    assert_true(c.codes.res_norm[0] == 0x1p-12f);
    close_codec(&c);
    p.rule = KV_CODEC_RULE_PUBLISHED;
    c = open_codec(&p, &s, 1);
    kv_codec_best()->encode(c.w, x, 1, &c.codes);
    assert_true(c.codes.res_norm[0] == 0.0f);
    close_codec(&c);
    kv_codec_skeleton_free(&s);
}

static void kv1__t_and_norm_saturate_and_are_counted(void **state)
{
    (void)state;
    const float x[6] = {1e6f, 0, 0, -1e5f, 0, 1e6f}; /* t; -t; norm (and t 0) */
    kv_codec_skeleton s;
    kv_codec_params p = axes(2, 2, &s);
    for (int32_t rule = 0; rule < 2; rule++)
        for (const kv_codec_variant *v = kv_codec_variants(); v->name != NULL; v++) {
            if (!v->runs_here()) continue;
            p.rule = rule;
            codec c = open_codec(&p, &s, 3);
            v->encode(c.w, (const float[6]){x[0], x[1], x[3], x[2], x[4], x[5]}, 3, &c.codes);
            v->decode(c.w, &c.codes, c.y);
            bool finite = true;
            for (int j = 0; j < 6; j++) finite = finite && isfinite(c.y[j]);
            if (rule == KV_CODEC_RULE_KV1) {
                assert_int_equal(c.codes.t[0], 0x7BFF);
                assert_int_equal(c.codes.t[1], 0xFBFF);
                assert_int_equal(c.codes.norm[2], 0x7BFF);
                assert_int_equal(c.codes.saturated, 4); /* row 0: t and what is left of it, row 1: t, row 2: norm */
                assert_true(finite);
            } else {
                assert_int_equal(c.codes.t[0], 0x7C00);
                assert_int_equal(c.codes.t[1], 0xFC00);
                assert_int_equal(c.codes.saturated, 0);
                assert_false(finite);
            }
            close_codec(&c);
        }
    kv_codec_skeleton_free(&s);
}

/* With KV1 the metric changes nothing for mse and inner_product; the norm field is the residual's length. */
static void kv1__inner_product_is_mse_and_norm_is_the_residual(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 60; round++) {
        kv_codec_params p = kvt_params(&seed);
        p.rule = KV_CODEC_RULE_KV1;
        p.metric = KV_CODEC_MSE;
        kv_codec_skeleton s = kvt_skeleton(&seed, &p);
        const int64_t n = 1 + kvt_below(&seed, 50);
        float *x = kvt_rows(&seed, &p, &s, n);
        codec a = open_codec(&p, &s, n);
        p.metric = KV_CODEC_INNER_PRODUCT;
        codec b = open_codec(&p, &s, n);
        kv_codec_best()->encode(a.w, x, n, &a.codes);
        kv_codec_best()->encode(b.w, x, n, &b.codes);
        assert_true(kvt_digest_codes(&p, &a.codes) == kvt_digest_codes(&p, &b.codes));
        kv_codec_best()->decode(a.w, &a.codes, a.y);
        kv_codec_best()->decode(b.w, &b.codes, b.y);
        assert_int_equal(kvt_first_difference(a.y, b.y, n * p.dim), -1);
        for (int64_t i = 0; i < n; i++) {
            const float length = a.codes.res_norm[i], stored = kv_codec_f(a.codes.norm[i]);
            if (length > 65504) continue;
            if (!(length > KV_CODEC_EPS)) assert_true(stored == 0);
            if (length > KV_CODEC_EPS) assert_true(fabsf(stored - length) <= length * 0x1p-10f + 0x1p-24f);
        }
        close_codec(&a);
        close_codec(&b);
        free(x);
        kv_codec_skeleton_free(&s);
    }
}

/* NaN, Inf and the largest float in one row touch no other row; a NaN row decodes to the mean with KV1. */
static void hostile_rows__stay_alone(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 100; round++) {
        kv_codec_params p = kvt_params(&seed);
        kv_codec_skeleton s = kvt_skeleton(&seed, &p);
        const float bad[] = {NAN, INFINITY, -INFINITY, 3.4e38f, -1e20f, 1e-45f};
        const int64_t n = 40, at = kvt_below(&seed, n), kind = kvt_below(&seed, KVT_COUNT(bad));
        float *x = kvt_rows(&seed, &p, &s, n);
        for (const kv_codec_variant *v = kv_codec_variants(); v->name != NULL; v++) {
            if (!v->runs_here()) continue;
            codec clean = open_codec(&p, &s, n), c = open_codec(&p, &s, n);
            v->encode(clean.w, x, n, &clean.codes);
            v->decode(clean.w, &clean.codes, clean.y);
            const float before = x[at * p.dim];
            x[at * p.dim] = bad[kind];
            v->encode(c.w, x, n, &c.codes);
            v->decode(c.w, &c.codes, c.y);
            x[at * p.dim] = before;
            for (int64_t i = 0; i < n; i++)
                if (i != at) assert_int_equal(kvt_first_difference(c.y + i * p.dim, clean.y + i * p.dim, p.dim), -1);
            if (kind == 0 && p.rule == KV_CODEC_RULE_KV1)
                for (int32_t j = 0; j < p.dim; j++) assert_true(c.y[at * p.dim + j] == kv_codec_f(s.mean[j]));
            if (kind == 0) assert_int_equal(c.codes.t[at] | c.codes.seg_id[at], 0);
            close_codec(&c);
            close_codec(&clean);
        }
        free(x);
        kv_codec_skeleton_free(&s);
    }
}

static void decode__ignores_outliers_past_the_rotation(void **state)
{
    (void)state;
    kv_codec_skeleton s;
    kv_codec_params p = axes(3, 2, &s);
    p.outliers = true;
    p.threshold = 0.1f;
    const float x[3] = {1, 2, 3};
    for (const kv_codec_variant *v = kv_codec_variants(); v->name != NULL; v++) {
        if (!v->runs_here()) continue;
        codec c = open_codec(&p, &s, 1), d = open_codec(&p, &s, 1);
        v->encode(c.w, x, 1, &c.codes);
        v->encode(d.w, x, 1, &d.codes);
        assert_true(c.codes.outliers >= 2);
        c.codes.outlier_count[0] = 1;
        d.codes.outlier_count[0] = 2;
        d.codes.outlier_idx[1] = 4; /* wht_len */
        v->decode(c.w, &c.codes, c.y);
        v->decode(d.w, &d.codes, d.y);
        assert_memory_equal(c.y, d.y, sizeof x);
        d.codes.outlier_idx[1] = 65535;
        v->decode(d.w, &d.codes, d.y);
        assert_memory_equal(c.y, d.y, sizeof x);
        close_codec(&c);
        close_codec(&d);
    }
    kv_codec_skeleton_free(&s);
}

/* Our own inputs and outputs, fixed once the shared vectors agreed bit for bit: codes, decoded rows. */
static void golden__digests(void **state)
{
    (void)state;
    static const uint64_t golden[][2] = {
        {0x45777f4e54b44745, 0x74fa592ae8c70b41}, {0xdfcd99e81cdbb128, 0x4d42fe6ab0a6ec88},
        {0xa22632fb4ecec9a6, 0xeec500970a50374f}, {0x7c9253cd4accbaa8, 0x62a0ede1bc7b2152},
        {0xebf85c21ce2447bc, 0x742731eae6ab98bc}, {0x10d1d4ab0b1bc1a9, 0x4168d01b880825e0},
        {0xe02c98117a8e4cdb, 0x5c86ac4ed1733844}, {0xb357397f2acc2f1a, 0x21e68b46f5bf62db},
    };
    uint64_t seed = 2026;
    for (size_t i = 0; i < KVT_COUNT(golden); i++) {
        kv_codec_params p = kvt_params(&seed);
        if (i == 0)
            p = (kv_codec_params){.dim = 128,
                                  .d_eff = 64,
                                  .k = 16,
                                  .bits = 3,
                                  .seed = KV_CODEC_SEED,
                                  .outliers = true,
                                  .threshold = 2,
                                  .rule = KV_CODEC_RULE_KV1};
        if (i == 0) memcpy(p.level, kv_codec_levels(3), 8 * sizeof(float));
        kv_codec_skeleton s = kvt_skeleton(&seed, &p);
        float *x = kvt_rows(&seed, &p, &s, 48);
        for (const kv_codec_variant *v = kv_codec_variants(); v->name != NULL; v++) {
            if (!v->runs_here()) continue;
            codec c = open_codec(&p, &s, 48);
            v->encode(c.w, x, 48, &c.codes);
            v->decode(c.w, &c.codes, c.y);
            const uint64_t codes = kvt_digest_codes(&p, &c.codes);
            const uint64_t rows = kvt_digest(KVT_DIGEST, c.y, 48 * (size_t)p.dim * sizeof(float));
            if (codes != golden[i][0] || rows != golden[i][1])
                fail_msg("%s, case %zu: {0x%016" PRIx64 ", 0x%016" PRIx64 "},", v->name, i, codes, rows);
            close_codec(&c);
        }
        free(x);
        kv_codec_skeleton_free(&s);
    }
}

static void memory__every_allocation_may_fail(void **state)
{
    (void)state;
    kv_codec_skeleton s;
    const kv_codec_params p = axes(4, 2, &s);
    for (int what = 0; what < 3; what++)
        for (long n = 0;; n++) {
            kv_err err = {0};
            kv_codec_skeleton t = {0};
            kv_codec_work *w = NULL;
            kv_codec_codes c = {0};
            kv_alloc_fail_after(n);
            const kv_rc rc = what == 0   ? kv_codec_skeleton_new(&p, &t, &err)
                             : what == 1 ? kv_codec_work_new(&p, &s, &w, &err)
                                         : kv_codec_codes_new(&p, 5, true, &c, &err);
            kv_alloc_fail_after(-1);
            kv_codec_skeleton_free(&t);
            kv_codec_work_free(w);
            kv_codec_codes_free(&c);
            if (rc == KV_OK) {
                assert_true(n > 0);
                break;
            }
            assert_int_equal(rc, KV_ENOMEM);
            assert_int_equal(err.rc, KV_ENOMEM);
        }
    kv_codec_skeleton_free(&s);
}

static void best__can_be_held_down_by_name(void **state)
{
    (void)state;
    assert_int_equal(setenv("KVGRID_CODEC_VARIANT", "reference", 1), 0);
    assert_string_equal(kv_codec_best()->name, "reference");
    assert_int_equal(setenv("KVGRID_CODEC_VARIANT", "no such one", 1), 0);
    const kv_codec_variant *best = kv_codec_best();
    assert_int_equal(unsetenv("KVGRID_CODEC_VARIANT"), 0);
    assert_ptr_equal(kv_codec_best(), best);
    assert_true(best->runs_here());
    assert_string_equal(kv_codec_variants()[0].name, "reference");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_by_hand),
        cmocka_unit_test(t__may_be_minus_zero),
        cmocka_unit_test(nearest_level__is_the_first_of_least_cost),
        cmocka_unit_test(sizes__and_levels),
        cmocka_unit_test(params_check__names_what_is_out_of_range),
        cmocka_unit_test(kv1__a_row_on_its_centre_comes_back_exactly),
        cmocka_unit_test(kv1__the_residual_is_against_the_stored_t),
        cmocka_unit_test(kv1__t_and_norm_saturate_and_are_counted),
        cmocka_unit_test(kv1__inner_product_is_mse_and_norm_is_the_residual),
        cmocka_unit_test(hostile_rows__stay_alone),
        cmocka_unit_test(decode__ignores_outliers_past_the_rotation),
        cmocka_unit_test(golden__digests),
        cmocka_unit_test(memory__every_allocation_may_fail),
        cmocka_unit_test(best__can_be_held_down_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
