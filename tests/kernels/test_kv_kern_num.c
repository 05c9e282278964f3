/* Conversions against tables built another way: every finite value of the target type as a
 * double, and the nearest one found by comparing with the exact midpoints, ties to the even code. */
#include "kernels/kv_kern_num.h"

#include "tests/kv_test.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- the independent side --------------------------------------------------------------- */

typedef struct {
    int exponent_bits, mantissa_bits, saturates;
    uint32_t nan;   /* code of the NaN without payload and sign */
    uint32_t codes; /* finite codes of one sign: 0 .. codes - 1 */
    double *value;  /* [codes + 1]; the last is what the next code would be worth */
} format;

static format formats[KV_ELEM_COUNT] = {
    [KV_ELEM_F16] = {5, 10, 0, 0x7E00u, 0x7C00u, NULL},
    [KV_ELEM_BF16] = {8, 7, 0, 0x7FC0u, 0x7F80u, NULL},
    [KV_ELEM_F32] = {8, 23, 0, 0x7FC00000u, 0x7F800000u, NULL},
    [KV_ELEM_FP8_E4M3] = {4, 3, 1, 0x7Fu, 0x7Fu, NULL},
};

static double code_value(const format *f, uint32_t code)
{
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    const int exponent = (int)(code >> f->mantissa_bits);
    const double mantissa = (double)(code & ((1u << f->mantissa_bits) - 1u));
    if (exponent == 0) return ldexp(mantissa, 1 - bias - f->mantissa_bits);
    return ldexp(mantissa + ldexp(1.0, f->mantissa_bits), exponent - bias - f->mantissa_bits);
}

static int make_tables(void **state)
{
    (void)state;
    for (int e = 0; e < KV_ELEM_COUNT; e++) {
        if (e == KV_ELEM_F32) continue;
        format *f = &formats[e];
        f->value = malloc((f->codes + 1u) * sizeof *f->value);
        if (f->value == NULL) return -1;
        for (uint32_t c = 0; c <= f->codes; c++) f->value[c] = code_value(f, c);
    }
    return 0;
}

static int free_tables(void **state)
{
    (void)state;
    for (int e = 0; e < KV_ELEM_COUNT; e++) free(formats[e].value);
    return 0;
}

/* The code of the value nearest to |x|; `codes` stands for overflow. */
static uint32_t nearest_code(const format *f, double x)
{
    uint32_t lo = 0, hi = f->codes; /* value[lo] <= x < value[hi] */
    x = fabs(x);
    if (x >= f->value[hi]) return f->saturates ? f->codes - 1u : f->codes;
    while (hi - lo > 1u) {
        const uint32_t mid = lo + (hi - lo) / 2u;
        if (f->value[mid] <= x)
            lo = mid;
        else
            hi = mid;
    }
    if (f->saturates && hi == f->codes) return lo;
    const double middle = (f->value[lo] + f->value[hi]) / 2.0; /* exact */
    if (x < middle) return lo;
    if (x > middle) return hi;
    return (lo & 1u) == 0u ? lo : hi;
}

static int sign_of(kv_elem e, uint32_t bits)
{
    return (int)(bits >> (8 * (int)kv_elem_bytes(e) - 1));
}
static uint32_t magnitude(kv_elem e, uint32_t bits)
{
    return bits & (0xFFFFFFFFu >> (33 - 8 * (int)kv_elem_bytes(e)));
}
static bool is_nan(kv_elem e, uint32_t bits)
{
    return magnitude(e, bits) > (e == KV_ELEM_FP8_E4M3 ? 0x7Eu : formats[e].codes);
}

/* What kv_num_convert must give, by the other way. */
static uint32_t expected(kv_elem from, kv_elem to, uint32_t bits)
{
    const format *f = &formats[from], *t = &formats[to];
    const uint32_t m = magnitude(from, bits);
    const uint32_t sign = (uint32_t)sign_of(from, bits) << (8 * kv_elem_bytes(to) - 1);
    if (is_nan(from, bits)) {
        if (from == KV_ELEM_FP8_E4M3 || to == KV_ELEM_FP8_E4M3) return sign | t->nan;
        const uint32_t payload = m - f->codes;
        const int shift = t->mantissa_bits - f->mantissa_bits;
        return sign | t->nan | (shift >= 0 ? payload << shift : payload >> -shift);
    }
    if (from != KV_ELEM_FP8_E4M3 && m == f->codes) /* Inf */
        return sign | (to == KV_ELEM_FP8_E4M3 ? 0x7Eu : t->codes);
    const double x = code_value(f, m);
    if (to == KV_ELEM_F32) { /* exact: the hardware's double to float */
        const float y = (float)x;
        return sign | kv_num_bits(y);
    }
    return sign | nearest_code(t, x);
}

static void check(kv_elem from, kv_elem to, uint32_t bits)
{
    const uint32_t got = kv_num_convert(from, to, bits), want = expected(from, to, bits);
    if (got == want) return;
    fail_msg("%s 0x%X to %s: got 0x%X, want 0x%X", kv_elem_name(from), bits, kv_elem_name(to), got, want);
}

/* ---- tests ------------------------------------------------------------------------------ */

static void num__converts_every_16_and_8_bit_value_like_the_tables(void **state)
{
    (void)state;
    const kv_elem types[] = {KV_ELEM_F16, KV_ELEM_BF16, KV_ELEM_FP8_E4M3};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (int to = 0; to < KV_ELEM_COUNT; to++) {
            if ((kv_elem)to == types[i]) continue;
            const uint32_t end = types[i] == KV_ELEM_FP8_E4M3 ? 0x100u : 0x10000u;
            for (uint32_t bits = 0; bits < end; bits++) check(types[i], (kv_elem)to, bits);
        }
}

static void check_f32(uint32_t bits)
{
    const kv_elem to[] = {KV_ELEM_F16, KV_ELEM_BF16, KV_ELEM_FP8_E4M3};
    for (size_t i = 0; i < sizeof to / sizeof to[0]; i++) {
        check(KV_ELEM_F32, to[i], bits);
        check(KV_ELEM_F32, to[i], bits ^ 0x80000000u);
    }
}

static void num__rounds_f32_to_nearest_even_everywhere(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x80000000u - 2039u; bits += 2039u) check_f32(bits);
    for (uint32_t bits = 0; bits < 0x1000u; bits++) {
        check_f32(bits);               /* subnormals */
        check_f32(0x007FF000u + bits); /* and around the least normal */
        check_f32(0x7F7FF000u + bits); /* the largest */
        check_f32(0x7F800000u + bits); /* Inf and NaN */
    }
}

/* The midpoint of every two neighbours, one step below it and one step above. */
static void num__breaks_ties_to_even_at_every_midpoint(void **state)
{
    (void)state;
    for (int e = 0; e < KV_ELEM_COUNT; e++) {
        const format *f = &formats[e];
        for (uint32_t c = 0; e != KV_ELEM_F32 && c < f->codes; c++) {
            const float middle = (float)((f->value[c] + f->value[c + 1u]) / 2.0);
            if (!(middle < FLT_MAX)) continue;
            const uint32_t bits = kv_num_bits(middle);
            check_f32(bits - (bits != 0u));
            check_f32(bits);
            check_f32(bits + 1u);
        }
    }
}

static void num__knows_the_values_worked_out_by_hand(void **state)
{
    (void)state;
    static const struct {
        float from;
        kv_elem to;
        uint32_t bits;
    } cases[] = {
        {65504.0f, KV_ELEM_F16, 0x7BFF},     {65519.99f, KV_ELEM_F16, 0x7BFF},  {65520.0f, KV_ELEM_F16, 0x7C00},
        {-65520.0f, KV_ELEM_F16, 0xFC00},    {1e30f, KV_ELEM_F16, 0x7C00},      {0x1p-14f, KV_ELEM_F16, 0x0400},
        {0x1p-24f, KV_ELEM_F16, 0x0001},     {0x1p-25f, KV_ELEM_F16, 0x0000},   {0x1.000002p-25f, KV_ELEM_F16, 0x0001},
        {0x1.8p-24f, KV_ELEM_F16, 0x0002},   {0x1p-26f, KV_ELEM_F16, 0x0000},   {-0x1p-25f, KV_ELEM_F16, 0x8000},
        {0x1.ffep-15f, KV_ELEM_F16, 0x0400}, {1.0f, KV_ELEM_F16, 0x3C00},       {1.0f, KV_ELEM_BF16, 0x3F80},
        {0x1.01p0f, KV_ELEM_BF16, 0x3F80},   {0x1.03p0f, KV_ELEM_BF16, 0x3F82}, {FLT_MAX, KV_ELEM_BF16, 0x7F80},
        {448.0f, KV_ELEM_FP8_E4M3, 0x7E},    {464.0f, KV_ELEM_FP8_E4M3, 0x7E},  {-1e30f, KV_ELEM_FP8_E4M3, 0xFE},
        {1.0f, KV_ELEM_FP8_E4M3, 0x38},      {1.0625f, KV_ELEM_FP8_E4M3, 0x38}, {1.1875f, KV_ELEM_FP8_E4M3, 0x3A},
        {0x1p-9f, KV_ELEM_FP8_E4M3, 0x01},   {0x1p-10f, KV_ELEM_FP8_E4M3, 0},   {0x1.8p-9f, KV_ELEM_FP8_E4M3, 0x02},
        {-0x1p-6f, KV_ELEM_FP8_E4M3, 0x88},  {-0.0f, KV_ELEM_FP8_E4M3, 0x80},   {0.0f, KV_ELEM_F16, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(kv_num_convert(KV_ELEM_F32, cases[i].to, kv_num_bits(cases[i].from)), cases[i].bits);
    assert_int_equal(kv_num_convert(KV_ELEM_F16, KV_ELEM_FP8_E4M3, 0xFC00), 0xFE);
    assert_int_equal(kv_num_convert(KV_ELEM_F16, KV_ELEM_FP8_E4M3, 0xFC01), 0xFF);
    assert_int_equal(kv_num_convert(KV_ELEM_F16, KV_ELEM_F32, 0x7C01), 0x7FC02000);
    assert_int_equal(kv_num_convert(KV_ELEM_F16, KV_ELEM_BF16, 0xFC01), 0xFFC0);
    assert_int_equal(kv_num_convert(KV_ELEM_F32, KV_ELEM_F16, 0x7F802000), 0x7E01);
    assert_int_equal(kv_num_convert(KV_ELEM_FP8_E4M3, KV_ELEM_F16, 0xFF), 0xFE00);
    assert_int_equal(kv_num_convert(KV_ELEM_FP8_E4M3, KV_ELEM_BF16, 0x7F), 0x7FC0);
}

static void num__gives_back_every_value_of_a_narrower_type(void **state)
{
    (void)state;
    const kv_elem wide[] = {KV_ELEM_F16, KV_ELEM_BF16, KV_ELEM_F32};
    for (uint32_t bits = 0; bits < 0x100u; bits++)
        for (size_t i = 0; i < 3; i++) {
            const uint32_t there = kv_num_convert(KV_ELEM_FP8_E4M3, wide[i], bits);
            assert_int_equal(kv_num_convert(wide[i], KV_ELEM_FP8_E4M3, there), bits);
        }
    for (uint32_t bits = 0; bits < 0x10000u; bits++)
        for (size_t i = 0; i < 2; i++) {
            const uint32_t quiet = i == 0 ? 0x0200u : 0x0040u;
            const uint32_t want = is_nan(wide[i], bits) ? bits | quiet : bits;
            const uint32_t there = kv_num_convert(wide[i], KV_ELEM_F32, bits);
            assert_int_equal(kv_num_convert(KV_ELEM_F32, wide[i], there), want);
        }
}

static void num__leaves_the_bits_alone_within_a_type(void **state)
{
    (void)state;
    for (int e = 0; e < KV_ELEM_COUNT; e++)
        for (uint32_t bits = 0; bits < 0x100u; bits++)
            assert_int_equal(kv_num_convert((kv_elem)e, (kv_elem)e, bits), bits);
    assert_int_equal(kv_num_convert(KV_ELEM_F16, KV_ELEM_F16, 0xFC01), 0xFC01);
    assert_int_equal(kv_num_convert(KV_ELEM_BF16, KV_ELEM_BF16, 0x7F81), 0x7F81);
    assert_int_equal(kv_num_convert(KV_ELEM_F32, KV_ELEM_F32, 0xFF800001), 0xFF800001);
}

/* Which instruction set the rows may use. */
static int plain(void **state)
{
    (void)state;
    kv_num_rows_at_most(0);
    return 0;
}

static int avx2(void **state)
{
    (void)state;
    kv_num_rows_at_most(1);
    return 0;
}

static int avx512(void **state)
{
    (void)state;
    kv_num_rows_at_most(2);
    return 0;
}

/* All element values at odd addresses and every short length; nothing written past the end. */
static void num_row__equals_the_single_conversions(void **state)
{
    (void)state;
    enum { N = 0x10000 };
    unsigned char *src = malloc(4 * N + 1), *out = malloc(4 * N + 4);
    float *dst = malloc((N + 1) * sizeof *dst);
    assert_non_null(src);
    assert_non_null(out);
    assert_non_null(dst);
    for (int e = 0; e < KV_ELEM_COUNT; e++) {
        for (uint32_t i = 0; i < N; i++) kv_num_store((kv_elem)e, src + 1, i, e == KV_ELEM_F32 ? i * 65537u : i);
        for (size_t n = 0; n <= N; n = n < 70 ? n + 1 : n + 8191) {
            memset(dst, 0xA5, (N + 1) * sizeof *dst);
            kv_num_to_f32_row((kv_elem)e, src + 1, dst, n);
            for (size_t i = 0; i < n; i++)
                if (kv_num_bits(dst[i]) != kv_num_to_f32((kv_elem)e, kv_num_load((kv_elem)e, src + 1, (int64_t)i)))
                    fail_msg("%s row of %zu, place %zu", kv_elem_name((kv_elem)e), n, i);
            assert_int_equal(kv_num_bits(dst[n]), 0xA5A5A5A5u);
        }
        for (int to = 0; to < KV_ELEM_COUNT; to++) {
            memset(out, 0xA5, 4 * N + 4);
            kv_num_convert_row((kv_elem)e, (kv_elem)to, src + 1, out, N);
            for (int64_t i = 0; i < N; i++) {
                const uint32_t bits = kv_num_load((kv_elem)e, src + 1, i);
                assert_int_equal(kv_num_load((kv_elem)to, out, i), kv_num_convert((kv_elem)e, (kv_elem)to, bits));
            }
            assert_int_equal(out[N * kv_elem_bytes((kv_elem)to)], 0xA5);
        }
    }
    free(dst);
    free(out);
    free(src);
}

/* Rows of f32 around every boundary of the narrower types, both signs, and values from all over. */
static void num_row__equals_the_single_conversions_of_f32(void **state)
{
    (void)state;
    enum { N = 1 << 12 };
    static const uint32_t edge[] = {0x00000000u, 0x00800000u, 0x33000000u, 0x33800000u, 0x387FE000u, 0x38800000u,
                                    0x3A800000u, 0x3B000000u, 0x3C800000u, 0x43DF0000u, 0x43E00000u, 0x43E80000u,
                                    0x477FE000u, 0x477FF000u, 0x47800000u, 0x7F7F8000u, 0x7F800000u, 0x7FC00000u};
    uint32_t *in = kvt_take(N, sizeof *in);
    unsigned char *out = kvt_take(N, sizeof *in);
    uint64_t seed = 7;
    for (size_t e = 0; e < KVT_COUNT(edge) + 64; e++)
        for (int to = 0; to < KV_ELEM_COUNT; to++) {
            for (uint32_t i = 0; i < N; i++)
                in[i] = e < KVT_COUNT(edge) ? (edge[e] + i / 2 - N / 4) ^ i << 31 : (uint32_t)kvt_next(&seed);
            kv_num_convert_row(KV_ELEM_F32, (kv_elem)to, in, out, N);
            for (int64_t i = 0; i < N; i++)
                if (kv_num_load((kv_elem)to, out, i) != kv_num_convert(KV_ELEM_F32, (kv_elem)to, in[i]))
                    fail_msg("%08x to %s", in[i], kv_elem_name((kv_elem)to));
        }
    free(out);
    free(in);
}

static void elem__names_and_sizes(void **state)
{
    (void)state;
    const char *const names[] = {"f16", "bf16", "f32", "fp8_e4m3"};
    const int64_t bytes[] = {2, 2, 4, 1};
    const char *const wrong[] = {"", "f", "f1", "f160", "F16", " f16", "fp8", "fp8_e4m3fn", "?", NULL};
    kv_elem e;
    for (int i = 0; i < KV_ELEM_COUNT; i++) {
        assert_string_equal(kv_elem_name((kv_elem)i), names[i]);
        assert_int_equal(kv_elem_bytes((kv_elem)i), bytes[i]);
        assert_true(kv_elem_parse(names[i], &e));
        assert_int_equal(e, i);
    }
    e = KV_ELEM_BF16;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) assert_false(kv_elem_parse(wrong[i], &e));
    assert_int_equal(e, KV_ELEM_BF16);
    assert_string_equal(kv_elem_name(KV_ELEM_COUNT), "?");
    assert_int_equal(kv_elem_bytes(KV_ELEM_COUNT), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(num__converts_every_16_and_8_bit_value_like_the_tables),
        cmocka_unit_test(num__rounds_f32_to_nearest_even_everywhere),
        cmocka_unit_test(num__breaks_ties_to_even_at_every_midpoint),
        cmocka_unit_test(num__knows_the_values_worked_out_by_hand),
        cmocka_unit_test(num__gives_back_every_value_of_a_narrower_type),
        cmocka_unit_test(num__leaves_the_bits_alone_within_a_type),
        cmocka_unit_test_setup(num_row__equals_the_single_conversions, plain),
        cmocka_unit_test_setup(num_row__equals_the_single_conversions, avx2),
        cmocka_unit_test_setup(num_row__equals_the_single_conversions, avx512),
        cmocka_unit_test_setup(num_row__equals_the_single_conversions_of_f32, plain),
        cmocka_unit_test_setup(num_row__equals_the_single_conversions_of_f32, avx2),
        cmocka_unit_test_setup(num_row__equals_the_single_conversions_of_f32, avx512),
        cmocka_unit_test(elem__names_and_sizes),
    };
    return cmocka_run_group_tests(tests, make_tables, free_tables) != 0;
}
