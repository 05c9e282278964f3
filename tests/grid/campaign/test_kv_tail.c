/* What tails hold: two patterns of each element type. */
#include "grid/campaign/kv_tail.h"
#include "kernels/kv_kern_num.h"
#include "tests/kv_test.h"

static void tail_bits__are_two_patterns_of_each_type(void **state)
{
    (void)state;
    static const char *const names[] = {"stale", "zero", "nan"};
    for (int t = 0; t < KV_TAIL_COUNT; t++) assert_string_equal(kv_tail_name((kv_tail)t), names[t]);
    for (int e = 0; e < KV_ELEM_COUNT; e++) {
        const kv_elem k = (kv_elem)e;
        const float stale = kv_num_float(kv_num_to_f32(k, kv_tail_stale_bits(KV_TAIL_STALE, k))),
                    fill = kv_num_float(kv_num_to_f32(k, kv_tail_fill_bits(KV_TAIL_STALE, k)));
        assert_true(stale >= 96.0F && stale <= 100.0F && fill > 0.3F && fill < 0.36F);
        assert_int_equal(kv_tail_stale_bits(KV_TAIL_ZERO, k) | kv_tail_fill_bits(KV_TAIL_ZERO, k), 0);
        const float nan = kv_num_float(kv_num_to_f32(k, kv_tail_stale_bits(KV_TAIL_NAN, k)));
        assert_true(nan != nan);
        assert_int_not_equal(kv_tail_fill_bits(KV_TAIL_NAN, k), 0);
        assert_int_equal((uint64_t)kv_tail_stale_bits(KV_TAIL_STALE, k) >> (8 * kv_elem_bytes(k)), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tail_bits__are_two_patterns_of_each_type)};
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
