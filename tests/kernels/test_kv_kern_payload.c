/* Payloads: pure functions of the place, the same from any shard, telling positions and halves apart. */
#include "kernels/kv_kern_payload.h"
#include "tests/kv_test_images.h"

static uint32_t bits_of(int32_t kind, kv_elem e, uint64_t seed, int64_t kv, uint64_t n)
{
    const kv_payload_half h = kv_payload_half_of(seed, kind, (int32_t)e, kv);
    return kv_payload_half_bits(&h, n);
}

/* From a second implementation (Python, unbounded integers). */
static void payload__keeps_its_golden_values(void **state)
{
    (void)state;
    static const struct {
        int32_t kind;
        kv_elem e;
        uint64_t seed;
        int64_t kv;
        uint64_t n;
        uint32_t want;
    } golden[] = {
        {0, KV_ELEM_F16, 1, 0, 0U, 0x0},
        {0, KV_ELEM_F16, 1, 1, 40000U, 0x3881},
        {0, KV_ELEM_FP8_E4M3, 1, 0, 300U, 0x58},
        {1, KV_ELEM_F16, 1, 0, 5U, 0x5D76},
        {1, KV_ELEM_F16, 1, 1, 40000U, 0xE3A1},
        {2, KV_ELEM_FP8_E4M3, 7, 0, 123456789U, 0x6},
        {3, KV_ELEM_F32, 1, 1, 1099511627793U, 0xC60CE20F},
        {4, KV_ELEM_F16, 1, 0, 8589934597U, 0xE00},
        {5, KV_ELEM_F16, 1, 0, 0U, 0xC68A},
        {5, KV_ELEM_F32, 1, 1, 99U, 0xBC296CF5},
        {5, KV_ELEM_FP8_E4M3, 99, 0, 12345U, 0x8A},
    };
    for (size_t i = 0; i < KVT_COUNT(golden); i++)
        assert_int_equal(bits_of(golden[i].kind, golden[i].e, golden[i].seed, golden[i].kv, golden[i].n),
                         golden[i].want);
}

/* The whole model, one rank's shard of one layer, a unit of some layers, and a window of tokens: one element, one
 * pattern. */
static void payload__is_the_same_from_any_split(void **state)
{
    (void)state;
    const kv_payload whole = {.seed = 5, .tokens = 7, .kv_heads = 6, .lanes = {5, 3}, .element = KV_ELEM_BF16};
    for (int32_t kind = 0; kind <= KV_PAYLOAD_SWEEP + 3; kind++)
        for (int64_t layer = 0; layer < 4; layer++)
            for (int64_t head = 0; head < 6; head++) {
                kv_payload a = whole, shard = whole, unit = whole, window = whole;
                a.kind = shard.kind = unit.kind = window.kind = kind;
                shard.first_head = head / 2 * 2;
                shard.first_layer = layer;
                unit.first_layer = layer / 2 * 2;
                window.first_token = head;
                for (int64_t kv = 0; kv < 2; kv++)
                    for (int64_t token = 0; token < 7; token++)
                        for (int64_t lane = 0; lane < whole.lanes[kv]; lane++) {
                            const kv_coord c = {layer, kv, token, head, lane},
                                           s = {0, kv, token, head - shard.first_head, lane};
                            const kv_coord u = {layer - unit.first_layer, kv, token, head, lane};
                            assert_int_equal(kv_payload_bits(&a, &c), kv_payload_bits(&shard, &s));
                            assert_int_equal(kv_payload_bits(&a, &c), kv_payload_bits(&unit, &u));
                            const kv_coord w = {layer, kv, token - window.first_token, head, lane};
                            if (w.token >= 0) assert_int_equal(kv_payload_bits(&a, &c), kv_payload_bits(&window, &w));
                        }
            }
}

static void payload_number__counts_every_element_once(void **state)
{
    (void)state;
    const kv_payload p = {.tokens = 3, .kv_heads = 2, .lanes = {4, 5}};
    for (int64_t kv = 0; kv < 2; kv++) {
        int64_t n = 0;
        for (int64_t layer = 0; layer < 2; layer++)
            for (int64_t token = 0; token < 3; token++)
                for (int64_t head = 0; head < 2; head++)
                    for (int64_t lane = 0; lane < p.lanes[kv]; lane++, n++) {
                        const kv_coord c = {layer, kv, token, head, lane};
                        assert_int_equal(kv_payload_number(&p, &c), n);
                    }
    }
}

static void payload__k_and_v_share_no_pattern(void **state)
{
    (void)state;
    for (int e = 0; e < KV_ELEM_COUNT; e++)
        for (int32_t kind = 0; kind <= KV_PAYLOAD_TOKENS; kind++)
            for (uint64_t n = 0; n < 3000; n++)
                for (int64_t kv = 0; kv < 2; kv++) assert_int_equal(bits_of(kind, (kv_elem)e, 3, kv, n) & 1U, kv);
}

static void payload__fits_the_element(void **state)
{
    (void)state;
    for (int e = 0; e < KV_ELEM_COUNT; e++)
        for (int32_t kind = 0; kind < KV_PAYLOAD_SWEEP + 300; kind += kind < 8 ? 1 : 37)
            for (uint64_t n = 0; n < 500; n++)
                assert_int_equal((uint64_t)bits_of(kind, (kv_elem)e, 3, (int64_t)(n & 1U), n * 7919) >>
                                     (8 * kv_elem_bytes((kv_elem)e)),
                                 0);
}

typedef struct {
    uint32_t digit[5];
} digits;

static int by_digits(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(digits));
}

/* The five digit payloads of a position, read together, are unlike those of any other, even in 8 bits. */
static void payload_digits__tell_every_position_apart(void **state)
{
    (void)state;
    enum { N = 60000 };
    digits *d = kvt_take(N, sizeof *d);
    for (int e = 0; e < KV_ELEM_COUNT; e++)
        for (int64_t kv = 0; kv < 2; kv++)
            for (int far = 0; far < 2; far++) {
                uint64_t r = 9;
                for (uint64_t n = 0; n < N; n++) {
                    /* far: up to 2^35, what five digits of 7 bits can tell apart; steps without repeats */
                    const uint64_t at = far ? n * 572662 + (kvt_next(&r) & 0x7FFFF) : n;
                    for (int32_t k = 0; k < 5; k++) d[n].digit[k] = bits_of(k, (kv_elem)e, 1, kv, at);
                }
                qsort(d, N, sizeof *d, by_digits);
                for (int i = 1; i < N; i++)
                    if (by_digits(&d[i - 1], &d[i]) == 0)
                        fail_msg("%s: two positions are alike", kv_elem_name((kv_elem)e));
            }
    free(d);
}

/* No payload is the same everywhere in a small tensor: neighbours differ in each one most of the time. */
static void payload__is_never_constant(void **state)
{
    (void)state;
    for (int e = 0; e < KV_ELEM_COUNT; e++)
        for (int32_t kind = 0; kind <= KV_PAYLOAD_TOKENS; kind++) {
            int differ = 0;
            for (uint64_t n = 1; n < 640; n++)
                differ += bits_of(kind, (kv_elem)e, 1, 0, n) != bits_of(kind, (kv_elem)e, 1, 0, n - 1);
            assert_true(differ > 500);
        }
}

static void payload__depends_on_seed_and_kind(void **state)
{
    (void)state;
    for (int32_t kind = 1; kind <= KV_PAYLOAD_TOKENS; kind++) {
        int seeds = 0, kinds = 0;
        for (uint64_t n = 0; n < 1000; n++) {
            seeds += bits_of(kind, KV_ELEM_F32, 1, 0, n) != bits_of(kind, KV_ELEM_F32, 2, 0, n);
            kinds += bits_of(kind, KV_ELEM_F32, 1, 0, n) != bits_of(kind - 1, KV_ELEM_F32, 1, 0, n);
        }
        assert_true(seeds > 990 && kinds > 990);
    }
}

/* Random bits hold what an opaque copy must not touch: NaN, Inf, subnormals, negative zero. */
static void payload_bits__holds_the_odd_patterns(void **state)
{
    (void)state;
    int nan = 0, subnormal = 0, negative = 0;
    for (uint64_t n = 0; n < 20000; n++) {
        const uint32_t b = bits_of(KV_PAYLOAD_BITS, KV_ELEM_F16, 1, (int64_t)(n & 1U), n);
        nan += (b & 0x7C00U) == 0x7C00U && (b & 0x3FFU) != 0;
        subnormal += (b & 0x7C00U) == 0 && (b & 0x3FFU) != 0;
        negative += b >> 15 != 0;
    }
    assert_true(nan > 300 && subnormal > 300 && negative > 9000 && negative < 11000);
}

static void payload_tokens__are_between_a_half_and_two(void **state)
{
    (void)state;
    for (int e = 0; e < KV_ELEM_COUNT; e++) {
        int negative = 0, small = 0;
        for (uint64_t n = 0; n < 20000; n++) {
            const float v = kv_num_float(
                kv_num_to_f32((kv_elem)e, bits_of(KV_PAYLOAD_TOKENS, (kv_elem)e, 1, (int64_t)(n & 1U), n)));
            const float m = v < 0 ? -v : v;
            if (!(m >= 0.5F && m < 2.0F)) fail_msg("%s: %g", kv_elem_name((kv_elem)e), (double)v);
            negative += v < 0;
            small += m < 1.0F;
        }
        assert_true(negative > 9000 && negative < 11000 && small > 9000 && small < 11000);
    }
}

/* Over the sweep every place holds every pattern exactly once. */
static void payload_sweep__holds_every_pattern_everywhere(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 40; n++)
        for (int64_t kv = 0; kv < 2; kv++) {
            unsigned char seen[256] = {0};
            for (int32_t v = 0; v < 256; v++) seen[bits_of(KV_PAYLOAD_SWEEP + v, KV_ELEM_FP8_E4M3, 1, kv, n)]++;
            for (int v = 0; v < 256; v++) assert_int_equal(seen[v], 1);
        }
    const uint32_t zero = bits_of(KV_PAYLOAD_SWEEP, KV_ELEM_BF16, 1, 1, 77);
    for (int32_t v = 0; v < 65536; v++)
        assert_int_equal(bits_of(KV_PAYLOAD_SWEEP + v, KV_ELEM_BF16, 1, 1, 77) ^ zero, v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payload__keeps_its_golden_values),
        cmocka_unit_test(payload__is_the_same_from_any_split),
        cmocka_unit_test(payload_number__counts_every_element_once),
        cmocka_unit_test(payload__k_and_v_share_no_pattern),
        cmocka_unit_test(payload__fits_the_element),
        cmocka_unit_test(payload_digits__tell_every_position_apart),
        cmocka_unit_test(payload__is_never_constant),
        cmocka_unit_test(payload__depends_on_seed_and_kind),
        cmocka_unit_test(payload_bits__holds_the_odd_patterns),
        cmocka_unit_test(payload_tokens__are_between_a_half_and_two),
        cmocka_unit_test(payload_sweep__holds_every_pattern_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
