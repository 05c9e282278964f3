/* Spherical k-means: small cases by hand, every variant against the reference, what cannot be clustered. */
#include "kernels/codec/kv_codec_kmeans.h"

#include "kernels/codec/kv_codec_fit.h"
#include "kernels/codec/kv_codec_rng.h"
#include "tests/kernels/codec/kv_test_codec.h"

typedef struct {
    float centers[64 * 128];
    int32_t k_eff, rounds;
} answer;

static kv_rc cluster(const kv_codec_variant *v, const float *c, const float *weights, int64_t n, int32_t d, int32_t k,
                     uint32_t seed, answer *out, kv_err *err)
{
    memset(out, 0, sizeof *out);
    return kv_codec_kmeans_on(v, c, weights, n, d, k, seed, 32, out->centers, &out->k_eff, &out->rounds, err);
}

static void one_centre__is_the_drawn_direction(void **state)
{
    (void)state;
    const float c[] = {3, 4, 0, 2, -1, 0, 5, 12};
    for (uint32_t seed = 0; seed < 20; seed++) {
        kv_codec_rng r = kv_codec_rng_seed(seed);
        const size_t i = (size_t)kv_codec_draw_below(&r, 4);
        const float length = sqrtf(c[2 * i] * c[2 * i] + c[2 * i + 1] * c[2 * i + 1]);
        answer a;
        kv_err err = {0};
        kvt_ok(cluster(kv_codec_best(), c, NULL, 4, 2, 1, seed, &a, &err), &err);
        assert_int_equal(a.k_eff, 1);
        assert_int_equal(a.rounds, 0);
        assert_true(a.centers[0] == c[2 * i] / length && a.centers[1] == c[2 * i + 1] / length);
    }
}

/* Two lines, both ways along each: by signed distance the second start is the opposite of the first, so that the centres
 * may share a line; a row and its opposite always count as one. */
static void opposite_rows__are_one_line(void **state)
{
    (void)state;
    const float c[] = {2, 0, -1, 0, 5, 0, -3, 0};
    for (uint32_t seed = 0; seed < 20; seed++) {
        answer a;
        kv_err err = {0};
        kvt_ok(cluster(kv_codec_best(), c, NULL, 4, 2, 2, seed, &a, &err), &err);
        assert_true(fabsf(a.centers[0]) == 1.0f && a.centers[1] == 0.0f); /* not 0 from 1 and -1 cancelling */
        assert_true(a.centers[2] == -a.centers[0]);
    }
}

static void clusters__are_found_and_weights_count(void **state)
{
    (void)state;
    /* Three tight bundles; in the last one the heavy row decides. */
    const float c[] = {1, 0.01f, 0, -1, 0.01f, 0, 0, 1, 0.02f, 0, 1, -0.02f, 0, 0, 1, 0.3f, 0, 1};
    const float weights[] = {1, 1, 1, 1, 0x1p-20f, 1};
    answer a;
    kv_err err = {0};
    kvt_ok(cluster(kv_codec_best(), c, weights, 6, 3, 3, 7, &a, &err), &err);
    assert_int_equal(a.k_eff, 3);
    int seen = 0;
    for (int g = 0; g < 3; g++) {
        const float *m = a.centers + 3 * g;
        assert_true(fabsf(kv_codec_dot(m, m, 3) - 1.0f) < 1e-6f);
        if (fabsf(m[0]) > 0.99f) seen |= 1;
        if (fabsf(m[1]) > 0.99f) seen |= 2;
        if (fabsf(m[2]) > 0.9f && fabsf(fabsf(m[0] / m[2]) - 0.3f) < 1e-3f) seen |= 4;
    }
    assert_int_equal(seen, 7);
}

/* k_eff is at most the rows with a weight and a coefficient above EPS. */
static void k_eff__counts_rows_that_can_be_told(void **state)
{
    (void)state;
    const float c[] = {1, 0, 0, 1, 0x1p-24f, 0x1p-24f, 3, 3, 0, 0};
    const float weights[] = {1, 1, 1, 0, 1};
    answer a;
    kv_err err = {0};
    kvt_ok(cluster(kv_codec_best(), c, weights, 5, 2, 8, 1, &a, &err), &err);
    assert_int_equal(a.k_eff, 2);
    kvt_ok(cluster(kv_codec_best(), c, NULL, 5, 2, 8, 1, &a, &err), &err);
    assert_int_equal(a.k_eff, 3);
}

static void too_few_directions__are_refused(void **state)
{
    (void)state;
    const float zeros[8] = {0};
    const float nan_rows[4] = {NAN, 1, NAN, 2}; /* they count (1 and 2 are above EPS) and have no length */
    const float none[4] = {0};
    answer a;
    for (const kv_codec_variant *v = kv_codec_variants(); v->name != NULL; v++) {
        kv_err err = {0};
        if (!v->runs_here()) continue;
        kvt_refused(cluster(v, zeros, NULL, 4, 2, 3, 1, &a, &err), KV_EFORMAT, &err, "zeros",
                    KVT_SAYS("0 rows have a direction", "1 centres"));
        kvt_refused(cluster(v, nan_rows, NULL, 2, 2, 2, 1, &a, &err), KV_EFORMAT, &err, "nan",
                    KVT_SAYS("0 rows have a direction", "2 centres"));
        kvt_refused(cluster(v, nan_rows, none, 2, 2, 2, 1, &a, &err), KV_EFORMAT, &err, "no weight",
                    KVT_SAYS("0 rows"));
        kvt_refused(cluster(v, zeros, NULL, 0, 2, 3, 1, &a, &err), KV_EINVAL, &err, "no rows", KVT_SAYS("0 rows"));
        kvt_refused(cluster(v, zeros, NULL, 4, 2, 0, 1, &a, &err), KV_EINVAL, &err, "no centres",
                    KVT_SAYS("0 centres"));
    }
}

/* Random rows with duplicates, opposites, zeros, NaN, Inf, weights of 0. */
static float *rows(uint64_t *seed, int64_t n, int32_t d)
{
    float *c = kvt_take(n * d, sizeof *c);
    for (int64_t i = 0; i < n; i++) {
        const int64_t kind = kvt_below(seed, 16);
        for (int32_t a = 0; a < d; a++) {
            float *x = &c[i * d + a];
            *x = kvt_about_normal(seed) * (kind == 5 ? 1e-4f : 1.0f);
            if (kind == 0) *x = 0;
            if (kind == 1 && i > 0) *x = x[-d];
            if (kind == 2 && i > 0) *x = -x[-d];
            if (kind == 3 && a == 0 && kvt_one_in(seed, 8)) *x = NAN;
            if (kind == 4 && a == 0 && kvt_one_in(seed, 8)) *x = INFINITY;
        }
    }
    return c;
}

static void variants__give_the_bits_of_the_reference(void **state)
{
    (void)state;
    uint64_t seed = 99, digest = KVT_DIGEST;
    int64_t refused = 0, rounds = 0;
    for (int i = 0; i < 600; i++) {
        const int64_t n = 1 + kvt_below(&seed, 150);
        const int32_t d = 1 + (int32_t)kvt_below(&seed, 70), k = 1 + (int32_t)kvt_below(&seed, 20);
        float *c = rows(&seed, n, d), *weights = kvt_take(n, sizeof *weights);
        for (int64_t w = 0; w < n; w++) weights[w] = kvt_one_in(&seed, 5) ? 0 : kvt_between(&seed, 0, 2);
        const float *given = kvt_one_in(&seed, 2) ? weights : NULL;
        answer want, got;
        kv_err err = {0};
        const kv_rc rc = cluster(&kv_codec_variants()[0], c, given, n, d, k, (uint32_t)i, &want, &err);
        refused += rc != KV_OK;
        rounds += want.rounds;
        for (const kv_codec_variant *v = kv_codec_variants() + 1; v->name != NULL; v++) {
            if (!v->runs_here()) continue;
            kv_err_clear(&err);
            if (cluster(v, c, given, n, d, k, (uint32_t)i, &got, &err) != rc) fail_msg("case %d: %s", i, v->name);
            if (rc != KV_OK) continue;
            if (got.k_eff != want.k_eff || got.rounds != want.rounds) fail_msg("case %d: %s, rounds", i, v->name);
            if (kvt_first_difference(got.centers, want.centers, (int64_t)want.k_eff * d) >= 0)
                fail_msg("case %d: %s, centres differ", i, v->name);
        }
        if (rc == KV_OK)
            for (int64_t a = 0; a < (int64_t)want.k_eff * d; a++) {
                const uint32_t bits = isnan(want.centers[a]) ? KV_NUM_NAN : kv_num_bits(want.centers[a]);
                digest = kvt_digest(digest, &bits, sizeof bits);
            }
        free(weights);
        free(c);
    }
    print_message("%" PRId64 " cases refused, %" PRId64 " rounds\n", refused, rounds);
    assert_true(refused < 40 && rounds > 500);
    if (digest != UINT64_C(0x08858cbaffdbae67))
        fail_msg("0x%016" PRIx64, digest); /* as when the shared vectors agreed */
}

/* The rules written down once more, everything worked out in every round: rows with a length, weights of 1. */
static int32_t plainly(const float *c, int64_t n, int32_t d, int32_t k, uint32_t seed, float *centers)
{
    float unit[16 * 4], best[16], dot[16];
    int32_t seg[16] = {0}, now[16];
    kv_codec_rng r = kv_codec_rng_seed(seed);
    int64_t pick = (int64_t)kv_codec_draw_below(&r, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) {
        const float length = sqrtf(kv_codec_dot(c + i * d, c + i * d, d));
        for (int32_t a = 0; a < d; a++) unit[i * d + a] = c[i * d + a] / length;
        best[i] = -INFINITY;
    }
    for (int32_t g = 0; g < k; g++) {
        float most = -INFINITY;
        memcpy(centers + g * d, unit + pick * d, (size_t)d * sizeof *centers);
        for (int64_t i = 0; i < n; i++) best[i] = fmaxf(best[i], kv_codec_dot(unit + i * d, centers + g * d, d));
        for (int64_t i = 0; i < n; i++)
            if (1.0f - best[i] > most) {
                most = 1.0f - best[i];
                pick = i;
            }
    }
    for (int32_t round = 0; round < 32; round++) {
        for (int64_t i = 0; i < n; i++) {
            float most = -1;
            for (int32_t g = 0; g < k; g++) {
                const float along = kv_codec_dot(unit + i * d, centers + g * d, d);
                if (!(fabsf(along) > most)) continue;
                most = fabsf(along);
                now[i] = g;
                dot[i] = along;
            }
        }
        if (memcmp(now, seg, (size_t)n * sizeof *now) == 0) return round;
        memcpy(seg, now, (size_t)n * sizeof *now);
        for (int32_t g = 0; g < k; g++) {
            float sum[4] = {0}, mass = 0;
            for (int64_t i = 0; i < n; i++) {
                if (seg[i] != g) continue;
                for (int32_t a = 0; a < d; a++) sum[a] = sum[a] + copysignf(1, dot[i]) * unit[i * d + a];
                mass += 1;
            }
            const float length = sqrtf(kv_codec_dot(sum, sum, d));
            for (int32_t a = 0; mass > 0 && a < d; a++)
                centers[g * d + a] = length > KV_CODEC_EPS ? sum[a] / length : sum[a];
        }
    }
    return 32;
}

/* What is kept from round to round changes nothing: many small cases, whose lines turn and whose clusters exchange rows. */
static void rounds__keep_only_what_stays(void **state)
{
    (void)state;
    uint64_t seed = 17;
    int64_t rounds = 0;
    for (int i = 0; i < 30000; i++) {
        float c[16 * 4], want[5 * 4];
        const int64_t n = 6 + kvt_below(&seed, 11);
        const int32_t d = 2 + (int32_t)kvt_below(&seed, 3), k = 3 + (int32_t)kvt_below(&seed, 3);
        answer got;
        kv_err err = {0};
        for (int64_t a = 0; a < n * d; a++) c[a] = (float)(kvt_below(&seed, 41) - 20) + 0.125f; /* never 0 */
        const int32_t used = plainly(c, n, d, k, (uint32_t)i, want);
        kvt_ok(cluster(kv_codec_best(), c, NULL, n, d, k, (uint32_t)i, &got, &err), &err);
        if (got.rounds != used || kvt_first_difference(got.centers, want, (int64_t)k * d) >= 0)
            fail_msg("case %d: %" PRId32 " rounds, %" PRId32 " when worked out plainly", i, got.rounds, used);
        rounds += used;
    }
    assert_true(rounds > 30000);
}

static void rounds__are_bounded(void **state)
{
    (void)state;
    uint64_t seed = 5;
    float *c = rows(&seed, 150, 20), centers[16 * 20];
    int32_t k_eff, used, full;
    kv_err err = {0};
    kvt_ok(kv_codec_kmeans(c, NULL, 150, 20, 16, 1, 32, centers, &k_eff, &full, &err), &err);
    assert_true(full > 3 && full <= 32);
    kvt_ok(kv_codec_kmeans(c, NULL, 150, 20, 16, 1, 2, centers, &k_eff, &used, &err), &err);
    assert_int_equal(used, 2);
    kvt_ok(kv_codec_kmeans(c, NULL, 150, 20, 16, 1, 0, centers, &k_eff, NULL, &err), &err);
    free(c);
}

static void memory__every_allocation_may_fail(void **state)
{
    (void)state;
    const float c[] = {3, 4, 0, 2, -1, 0, 5, 12};
    for (long n = 0;; n++) {
        answer a;
        kv_err err = {0};
        kv_alloc_fail_after(n);
        const kv_rc rc = cluster(kv_codec_best(), c, NULL, 4, 2, 2, 1, &a, &err);
        kv_alloc_fail_after(-1);
        if (rc == KV_OK) {
            assert_true(n > 5);
            return;
        }
        assert_int_equal(rc, KV_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_centre__is_the_drawn_direction),
        cmocka_unit_test(opposite_rows__are_one_line),
        cmocka_unit_test(clusters__are_found_and_weights_count),
        cmocka_unit_test(k_eff__counts_rows_that_can_be_told),
        cmocka_unit_test(too_few_directions__are_refused),
        cmocka_unit_test(variants__give_the_bits_of_the_reference),
        cmocka_unit_test(rounds__keep_only_what_stays),
        cmocka_unit_test(rounds__are_bounded),
        cmocka_unit_test(memory__every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
