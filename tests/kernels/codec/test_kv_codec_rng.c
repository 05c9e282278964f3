/* The random numbers of the codec against the published check values, and fp16 against arithmetic. */
#include "kernels/codec/kv_codec_rng.h"

#include <math.h>

#include "kernels/codec/kv_codec_step.h"
#include "tests/kv_test.h"

static const struct {
    uint32_t seed;
    uint64_t out[4];
    const char *bools;
} published[] = {
    {0,
     {0x7283e4c96896188c, 0x706b7f2de031bf37, 0xfad96ea1180d0e12, 0x76509766802e6373},
     "--+-+++--+-++-+---+++--+-++-+-+-"},
    {42,
     {0x28cbba42949fbead, 0x4de30ce5d48e3f2e, 0x4baa256270b580a1, 0xba82c370a143ecfd},
     "---++--------++++----++-+++---+-"},
    {KV_CODEC_SEED,
     {0xbc8efd01eec06d42, 0x85358432db538ba0, 0xed668dd0dcc7fa58, 0xd51805e9a19f862f},
     "+++++------+--+--++++--++-++++-+"},
};

static void rng__gives_the_published_outputs(void **state)
{
    (void)state;
    for (size_t i = 0; i < KVT_COUNT(published); i++) {
        kv_codec_rng r = kv_codec_rng_seed(published[i].seed);
        for (int o = 0; o < 4; o++) assert_true(kv_codec_rng_next(&r) == published[i].out[o]);
    }
}

static void signs__are_the_published_bools_and_extend_shorter_patterns(void **state)
{
    (void)state;
    for (size_t i = 0; i < KVT_COUNT(published); i++) {
        float sign[256], shorter[32];
        kv_codec_signs(published[i].seed, sign, 256);
        kv_codec_signs(published[i].seed, shorter, 32);
        assert_memory_equal(sign, shorter, sizeof shorter);
        for (int s = 0; s < 32; s++) assert_true(sign[s] == (published[i].bools[s] == '+' ? 1.0f : -1.0f));
    }
}

static void wide_mul__is_the_128_bit_product(void **state)
{
    (void)state;
    uint64_t s = 7;
    for (int i = 0; i < 100000; i++) {
        const uint64_t a = kvt_next(&s) >> kvt_below(&s, 64), b = kvt_next(&s) >> kvt_below(&s, 64);
        __extension__ const unsigned __int128 want = (unsigned __int128)a * b;
        uint64_t low;
        assert_true(kv_codec_wide_mul(a, b, &low) == (uint64_t)(want >> 64));
        assert_true(low == (uint64_t)want);
    }
    uint64_t low;
    assert_true(kv_codec_wide_mul(UINT64_MAX, UINT64_MAX, &low) == UINT64_MAX - 1 && low == 1);
}

/* The rule by hand on the same outputs: accepted values only, in order. */
static void draw_below__takes_the_high_half_unless_the_low_half_is_past_the_zone(void **state)
{
    (void)state;
    const uint64_t ranges[] = {1, 2, 3, 7, 16, 1000, UINT64_C(0x8000000000000001), UINT64_MAX};
    int64_t rejected = 0;
    for (size_t i = 0; i < KVT_COUNT(ranges); i++) {
        kv_codec_rng r = kv_codec_rng_seed(i), by_hand = r;
        const uint64_t m = ranges[i], zone = (m << __builtin_clzll(m)) - 1;
        for (int d = 0; d < 200; d++) {
            const uint64_t got = kv_codec_draw_below(&r, m);
            __extension__ unsigned __int128 p;
            for (;;) {
                __extension__ typedef unsigned __int128 wide;
                p = (wide)kv_codec_rng_next(&by_hand) * m;
                if ((uint64_t)p <= zone) break;
                rejected++;
            }
            assert_true(got == (uint64_t)(p >> 64) && got < m);
        }
        assert_memory_equal(&r, &by_hand, sizeof r);
    }
    assert_true(rejected > 100); /* the rule was used */
}

static void draw_f32__stays_in_its_range_and_uses_23_bits(void **state)
{
    (void)state;
    kv_codec_rng r = kv_codec_rng_seed(5), same = r;
    double sum = 0;
    for (int i = 0; i < 20000; i++) {
        const float x = kv_codec_draw_f32(&r, 0.0f, 1.0f);
        const uint32_t q = (uint32_t)(kv_codec_rng_next(&same) >> 32) >> 9;
        assert_true(x >= 0.0f && x < 1.0f && x == (float)q * 0x1p-23f);
        sum += (double)x;
    }
    assert_true(fabs(sum / 20000 - 0.5) < 0.01);
    for (int i = 0; i < 20000; i++) {
        const float x = kv_codec_draw_f32(&r, 0x1p-23f, 1.0f);
        assert_true(x >= 0x1p-23f && x < 1.0f);
    }
}

/* ---- fp16 -------------------------------------------------------------------------------- */

static double half_value(uint32_t h)
{
    const int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
    const double size = e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25);
    return (h & 0x8000u) != 0 ? -size : size;
}

static void f__gives_every_fp16_value_and_h_gives_it_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float x = kv_codec_f((uint16_t)h);
        const uint32_t back = kv_codec_h(x);
        if ((h & 0x7FFF) > 0x7C00) {
            assert_true(isnan(x) && back == KV_CODEC_F16_NAN);
        } else if ((h & 0x7FFF) == 0x7C00) {
            assert_true(isinf(x) && (signbit(x) != 0) == (h >> 15 != 0) && back == h);
        } else {
            assert_true((double)x == half_value(h) && (signbit(x) != 0) == (h >> 15 != 0) && back == h);
        }
    }
}

/* Nearest of its two neighbours, ties to the even one; 65504 and 65536 are the last neighbours. */
static void check_rounding(float x)
{
    const uint32_t h = kv_codec_h(x), size = h & 0x7FFFu;
    const double a = fabs((double)x), here = half_value(size); /* 0x7C00 counts as 65536 */
    assert_int_equal(h >> 15, signbit(x) != 0);
    assert_true(size <= 0x7C00);
    if (size == 0x7C00 && a >= 65536) return;
    if (size > 0) {
        const double below = half_value(size - 1), middle = (below + here) / 2;
        assert_true(a > middle || (a == middle && size % 2 == 0));
    }
    if (size < 0x7C00) {
        const double above = half_value(size + 1), middle = (above + here) / 2;
        assert_true(a < middle || (a == middle && size % 2 == 0));
    }
}

static void h__rounds_to_the_nearest_ties_to_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7C00; h++) { /* each value, each middle, and what lies next to them */
        const float at[] = {(float)half_value(h), (float)((half_value(h) + half_value(h + 1)) / 2)};
        for (int i = 0; i < 2; i++) {
            check_rounding(at[i]);
            check_rounding(-at[i]);
            check_rounding(nextafterf(at[i], 1e30f));
            check_rounding(nextafterf(at[i], -1e30f));
        }
    }
    for (uint64_t bits = 0; bits < 0x7F800000u; bits += 997) {
        check_rounding(kv_num_float((uint32_t)bits));
        check_rounding(kv_num_float((uint32_t)bits | 0x80000000u));
    }
    assert_int_equal(kv_codec_h(65520.0f), 0x7C00);
    assert_int_equal(kv_codec_h(65519.996f), 0x7BFF);
    assert_int_equal(kv_codec_h(0x1p-25f), 0);
    assert_int_equal(kv_codec_h(-0x1p-25f), 0x8000);
    assert_int_equal(kv_codec_h(nextafterf(0x1p-25f, 1)), 1);
    assert_int_equal(kv_codec_h(INFINITY), 0x7C00);
    assert_int_equal(kv_codec_h(-INFINITY), 0xFC00);
}

static void h_held__saturates_and_counts(void **state)
{
    (void)state;
    int64_t count = 0;
    assert_int_equal(kv_codec_h_held(65504.0f, &count), 0x7BFF);
    assert_int_equal(kv_codec_h_held(-3.0f, &count), 0xC200);
    assert_int_equal(kv_codec_h_held(NAN, &count), KV_CODEC_F16_NAN);
    assert_int_equal(count, 0);
    assert_int_equal(kv_codec_h_held(65520.0f, &count), 0x7BFF);
    assert_int_equal(kv_codec_h_held(-INFINITY, &count), 0xFBFF);
    assert_int_equal(count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rng__gives_the_published_outputs),
        cmocka_unit_test(signs__are_the_published_bools_and_extend_shorter_patterns),
        cmocka_unit_test(wide_mul__is_the_128_bit_product),
        cmocka_unit_test(draw_below__takes_the_high_half_unless_the_low_half_is_past_the_zone),
        cmocka_unit_test(draw_f32__stays_in_its_range_and_uses_23_bits),
        cmocka_unit_test(f__gives_every_fp16_value_and_h_gives_it_back),
        cmocka_unit_test(h__rounds_to_the_nearest_ties_to_even),
        cmocka_unit_test(h_held__saturates_and_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
