/* Sealed pages: the two implementations of where bytes stand agree; a mover that is wrong is seen. */
#include "grid/cell/kv_codec_pages.h"
#include "tests/kv_test.h"
#include "tests/kv_test_grid.h"

static kv_pages open_pages(kv_pages_kind kind, int64_t blocks, int64_t heads, int64_t k, int64_t v, uint64_t seed)
{
    kv_pages p;
    kv_err err = {0};
    const int64_t slot[2] = {k, v};
    kvt_ok(kv_pages_open(kind, blocks, heads, slot, seed, &p, &err), &err);
    return p;
}

static void pages__walk_and_strides_name_the_same_bytes(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{1, 1, 5, 3}, {3, 2, 7, 4}, {2, 3, 4, 4}, {5, 1, 6, 11}, {4, 8, 13, 9}};
    for (int kind = 0; kind < KV_PAGES_COUNT; kind++)
        for (size_t s = 0; s < KVT_COUNT(shapes); s++) {
            const int64_t nb = shapes[s][0], heads = shapes[s][1], k = shapes[s][2], v = shapes[s][3];
            kv_pages p = open_pages((kv_pages_kind)kind, nb, heads, k, v, 7 + s);
            const int64_t n = kv_pages_positions(&p);
            assert_int_equal(n, nb * heads * (k + v));
            for (int64_t b = 0; b < nb; b++)
                for (int64_t h = 0; h < heads; h++)
                    for (int64_t i = 0; i < k + v; i++) {
                        const int kv = i >= k;
                        const int64_t canonical = (b * heads + h) * (k + v) + i;
                        const int64_t at = kv_pages_forward(&p, canonical);
                        assert_in_range(at, 0, n - 1);
                        assert_int_equal(kv_pages_inverse(&p, at), canonical);
                        assert_int_equal(kv_pages_offset(&p, at),
                                         kv_pages_slot_offset(&p, b, h, kv) + (kv ? i - k : i));
                    }
            kv_pages_close(&p);
        }
}

static void pages__of_a_table_stand_shuffled_in_a_larger_pool(void **state)
{
    (void)state;
    for (int64_t blocks = 1; blocks < 40; blocks++) {
        kv_pages p = open_pages(KV_PAGES_TABLE, blocks, 2, 3, 5, (uint64_t)blocks);
        const int64_t page = 16, pool = p.pool_bytes / page;
        assert_true(pool > blocks);
        for (int64_t b = 0; b < blocks; b++) {
            assert_in_range(p.table[b], 0, pool - 1);
            assert_int_not_equal(p.table[b], b);
            for (int64_t c = 0; c < b; c++) assert_int_not_equal(p.table[b], p.table[c]);
        }
        kv_pages_close(&p);
    }
}

static void pages__move_every_slot_between_any_two_arrangements(void **state)
{
    (void)state;
    for (int a = 0; a < KV_PAGES_COUNT; a++)
        for (int b = 0; b < KV_PAGES_COUNT; b++) {
            kv_pages src = open_pages((kv_pages_kind)a, 3, 2, 7, 4, 1),
                     dst = open_pages((kv_pages_kind)b, 3, 2, 7, 4, 2);
            uint8_t *from = kv_alloc((size_t)src.pool_bytes, 1), *to = kv_alloc((size_t)dst.pool_bytes, 1);
            for (int64_t i = 0; i < kv_pages_positions(&src); i++)
                from[kv_pages_offset(&src, i)] = (uint8_t)(1 + kv_pages_inverse(&src, i));
            kv_pages_move(&src, from, &dst, to);
            int64_t written = 0;
            for (int64_t i = 0; i < dst.pool_bytes; i++) written += to[i] != 0;
            assert_int_equal(written, kv_pages_positions(&dst));
            for (int64_t i = 0; i < kv_pages_positions(&dst); i++)
                assert_int_equal(to[kv_pages_offset(&dst, i)], (uint8_t)(1 + kv_pages_inverse(&dst, i)));
            kv_free(from);
            kv_free(to);
            kv_pages_close(&src);
            kv_pages_close(&dst);
        }
}

static void pages__too_large_for_64_bits_are_refused(void **state)
{
    (void)state;
    kv_pages p;
    kv_err err = {0};
    const int64_t slot[2] = {INT64_MAX / 4, 1};
    assert_int_equal(kv_pages_open(KV_PAGES_PAGES, 3, 2, slot, 1, &p, &err), KV_ENOMEM);
    assert_non_null(strstr(err.text, "64 bits"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages__walk_and_strides_name_the_same_bytes),
        cmocka_unit_test(pages__of_a_table_stand_shuffled_in_a_larger_pool),
        cmocka_unit_test(pages__move_every_slot_between_any_two_arrangements),
        cmocka_unit_test(pages__too_large_for_64_bits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
