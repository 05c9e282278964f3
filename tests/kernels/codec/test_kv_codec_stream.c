/* The stream: the same bytes however tokens are cut, sealed and open parts in order, many sequences, errors that lose
 * nothing. Blocks are small here, so that many are sealed. */
#include "tests/kv_test.h"

#include <math.h>

#include "kernels/codec/kv_codec_stream.h"
#include "kernels/kv_kern_num.h"

enum { LAYERS = 2, HEADS = 3, DIM = 16, BLOCK = 32 };

static float gauss(uint64_t *rnd)
{
    double s = 0;
    for (int i = 0; i < 12; i++) s += (double)(kvt_next(rnd) >> 11) * 0x1p-53;
    return (float)(s - 6);
}

/* rows[tokens][HEADS][DIM] of bf16: a few strong directions on an offset, a little noise. */
static uint16_t *make_rows(int64_t tokens, uint64_t seed)
{
    uint16_t *rows = kvt_take(tokens * HEADS * DIM, sizeof *rows);
    uint64_t rnd = seed;
    for (int64_t r = 0; r < tokens * HEADS; r++) {
        const float a = gauss(&rnd), b = gauss(&rnd);
        for (int j = 0; j < DIM; j++) {
            const float x = 1 + a * (float)(j % 3) + b * (float)(j % 5 - 2) + 0.05F * gauss(&rnd);
            rows[r * DIM + j] = (uint16_t)kv_num_bf16_of_f32(kv_num_bits(x));
        }
    }
    return rows;
}

static kv_codec_stream_config config_of(int32_t recipe)
{
    kv_codec_stream_config c = {.layers = LAYERS, .heads = HEADS, .element = KV_ELEM_BF16, .has = {true, true}};
    kv_err err = {0};
    for (int h = 0; h < 2; h++) {
        kvt_ok(kv_codec_recipe_half(recipe, h, DIM, true, &c.half[h], &err), &err);
        c.half[h].slot.n = BLOCK;
        c.half[h].slot.params.k = c.half[h].fit.k = 4;
    }
    return c;
}

static kv_codec_stream *stream_of(const kv_codec_stream_config *c)
{
    kv_codec_stream *s = NULL;
    kv_err err = {0};
    kvt_ok(kv_codec_stream_new(c, &s, &err), &err);
    return s;
}

static void put(kv_codec_stream *s, uint64_t id, int half, const uint16_t *rows, int64_t tokens)
{
    kv_err err = {0};
    kvt_ok(kv_codec_stream_put(s, id, 1, half, rows, tokens, &err), &err);
}

static void check_same_lanes(const kv_codec_stream *a, const kv_codec_stream *b, uint64_t of_a, uint64_t of_b, int half,
                             int64_t lanes)
{
    kv_err err = {0};
    for (int64_t i = 0; i < lanes; i++) {
        kv_codec_lane_view x, y;
        kvt_ok(kv_codec_stream_lane(a, of_a, 1, half, i, &x, &err), &err);
        kvt_ok(kv_codec_stream_lane(b, of_b, 1, half, i, &y, &err), &err);
        assert_int_equal(x.blocks, y.blocks);
        assert_int_equal(x.sealed_bytes, y.sealed_bytes);
        assert_memory_equal(x.sealed, y.sealed, (size_t)x.sealed_bytes);
        assert_int_equal(x.tail_rows, y.tail_rows);
        assert_memory_equal(x.tail, y.tail, (size_t)x.tail_rows * DIM * 2);
    }
}

static void test_any_chunking(void **state)
{
    enum { T = 5 * BLOCK + 7 };
    uint64_t rnd = 1;
    kv_err err = {0};
    (void)state;
    uint16_t *rows = make_rows(T, 2);
    for (int32_t recipe = 0; recipe < KV_CODEC_RECIPE_COUNT; recipe++) {
        const kv_codec_stream_config c = config_of(recipe);
        kv_codec_stream *whole = stream_of(&c), *cut = stream_of(&c);
        for (int half = 0; half < 2; half++) {
            put(whole, 7, half, rows, T);
            for (int64_t at = 0, n; at < T; at += n) {
                n = kvt_below(&rnd, 40);
                if (n > T - at) n = T - at;
                put(cut, 7, half, rows + at * HEADS * DIM, n);
            }
            check_same_lanes(whole, cut, 7, 7, half, kv_codec_lanes(&c.half[half], HEADS));
            kvt_ok(kv_codec_stream_finish(whole, 7, 1, half, &err), &err);
            kvt_ok(kv_codec_stream_finish(cut, 7, 1, half, &err), &err);
            check_same_lanes(whole, cut, 7, 7, half, kv_codec_lanes(&c.half[half], HEADS));
        }
        kv_codec_stream_free(whole);
        kv_codec_stream_free(cut);
    }
    free(rows);
}

/* Relative error of tokens [first, first + n) against what was put. */
static double read_error(kv_codec_stream *s, uint64_t id, int half, const uint16_t *rows, int64_t first, int64_t n)
{
    float *out = kvt_take(n * HEADS * DIM, sizeof *out);
    double off = 0, all = 0;
    kv_err err = {0};
    kvt_ok(kv_codec_stream_get(s, id, 1, half, first, n, out, &err), &err);
    for (int64_t i = 0; i < n * HEADS * DIM; i++) {
        const double x = (double)kv_num_float(kv_num_f32_of_bf16(rows[first * HEADS * DIM + i]));
        off += ((double)out[i] - x) * ((double)out[i] - x);
        all += x * x;
    }
    free(out);
    return sqrt(off / all);
}

static void test_reads_back_in_order(void **state)
{
    enum { T = 4 * BLOCK + 9 };
    static const int64_t sealed[KV_CODEC_RECIPE_COUNT] = {4 * BLOCK, 12 * BLOCK + 27, 4 * BLOCK, 4 * BLOCK};
    kv_err err = {0};
    uint64_t rnd = 3;
    (void)state;
    uint16_t *rows = make_rows(T, 4);
    for (int32_t recipe = 0; recipe < KV_CODEC_RECIPE_COUNT; recipe++) {
        if (recipe == KV_CODEC_PUBLISHED_HARNESS) continue; /* below */
        kv_codec_stream_config c = config_of(recipe);
        c.half[0].slot.params.metric = KV_CODEC_MSE; /* as published, inner_product loses the residuals' length */
        kv_codec_stream *s = stream_of(&c);
        put(s, 1, 0, rows, T);
        assert_int_equal(kv_codec_stream_tokens(s, 1, 1, 0), T);
        const double compressed = read_error(s, 1, 0, rows, 0, sealed[recipe]);
        assert_true(compressed > 1e-4 && compressed < 0.1);
        assert_true(read_error(s, 1, 0, rows, sealed[recipe], T - sealed[recipe]) == 0); /* the tail is as it came */
        float *all = kvt_take(T * HEADS * DIM, sizeof *all), one[7 * HEADS * DIM];
        kvt_ok(kv_codec_stream_get(s, 1, 1, 0, 0, T, all, &err), &err);
        for (int i = 0; i < 40; i++) { /* any piece is a piece of the whole */
            const int64_t n = kvt_below(&rnd, 8), first = kvt_below(&rnd, T - n + 1);
            kvt_ok(kv_codec_stream_get(s, 1, 1, 0, first, n, one, &err), &err);
            assert_memory_equal(one, all + first * HEADS * DIM, (size_t)(n * HEADS * DIM) * sizeof *one);
        }
        free(all);
        kv_codec_stream_free(s);
    }
    free(rows);
}

static void test_mixed_heads(void **state)
{
    enum { T = 3 * BLOCK + 5 }; /* 303 rows: 9 blocks and 15 rows, 5 tokens */
    kv_err err = {0};
    (void)state;
    const kv_codec_stream_config c = config_of(KV_CODEC_PUBLISHED_HARNESS);
    kv_codec_stream *s = stream_of(&c);
    uint16_t *rows = make_rows(T, 5);
    kv_codec_lane_view v;
    for (int half = 0; half < 2; half++) {
        put(s, 1, half, rows, T);
        kvt_ok(kv_codec_stream_lane(s, 1, 1, half, 0, &v, &err), &err);
        assert_int_equal(v.blocks, half == 0 ? 9 : 0); /* V waits for the whole layer */
        kvt_ok(kv_codec_stream_finish(s, 1, 1, half, &err), &err);
        kvt_ok(kv_codec_stream_lane(s, 1, 1, half, 0, &v, &err), &err);
        assert_int_equal(v.blocks, 9);
        assert_int_equal(v.tail_rows, 15);
        assert_true(read_error(s, 1, half, rows, 0, 3 * BLOCK) < 0.1);
        assert_true(read_error(s, 1, half, rows, 3 * BLOCK, 5) == 0);
    }
    kvt_refused(kv_codec_stream_put(s, 1, 1, 0, rows, 1, &err), KV_EINVAL, &err, "finished", KVT_SAYS("finished"));
    kv_codec_stream_free(s);
    free(rows);
}

static void test_bytes_are_those_of_the_account(void **state)
{
    enum { T = 11 * BLOCK + 3 };
    static const bool skip[LAYERS] = {true, false};
    kv_err err = {0};
    (void)state;
    uint16_t *rows = make_rows(T, 6);
    for (int32_t recipe = 0; recipe < KV_CODEC_RECIPE_COUNT; recipe++) {
        kv_codec_stream_config c = config_of(recipe);
        c.skip = skip;
        kv_codec_stream *s = stream_of(&c);
        for (int half = 0; half < 2; half++) {
            kv_codec_account a;
            int64_t bytes = 0, want_bytes, want_blocks;
            for (int32_t layer = 0; layer < LAYERS; layer++) {
                kvt_ok(kv_codec_stream_put(s, 1, layer, half, rows, T, &err), &err);
                for (int finished = 0; finished < 2; finished++) {
                    bytes = 0;
                    if (finished) kvt_ok(kv_codec_stream_finish(s, 1, layer, half, &err), &err);
                    for (int64_t i = 0; i < kv_codec_lanes(&c.half[half], HEADS); i++) {
                        kv_codec_lane_view v;
                        kvt_ok(kv_codec_stream_lane(s, 1, layer, half, i, &v, &err), &err);
                        bytes += v.sealed_bytes + v.tail_rows * DIM * 2;
                        kv_codec_stream_sealed(s, layer, half, v.tail_rows + v.blocks * BLOCK, &want_bytes,
                                               &want_blocks);
                        if (finished) assert_int_equal(v.sealed_bytes, want_bytes);
                        if (finished) assert_int_equal(v.blocks, want_blocks);
                        if (layer == 0) assert_int_equal(v.blocks, 0); /* really skipped */
                    }
                    kvt_ok(kv_codec_account_of(&c.half[half], 1, &skip[layer], HEADS, T, 2, finished, &a, &err), &err);
                    assert_int_equal(bytes, a.bytes);
                }
            }
        }
        assert_true(read_error(s, 1, 1, rows, 0, T) > 0);
        kv_codec_stream_free(s);
    }
    free(rows);
}

static void test_many_sequences(void **state)
{
    enum { SEQUENCES = 20, T = 2 * BLOCK + 11 };
    uint64_t rnd = 7;
    int64_t at[SEQUENCES] = {0};
    uint16_t *rows[SEQUENCES];
    (void)state;
    const kv_codec_stream_config c = config_of(KV_CODEC_KV1);
    kv_codec_stream *s = stream_of(&c);
    for (int i = 0; i < SEQUENCES; i++) rows[i] = make_rows(T, 100 + (uint64_t)i);
    for (int left = SEQUENCES; left > 0;) { /* in any order */
        const int i = (int)kvt_below(&rnd, SEQUENCES);
        const int64_t n = T - at[i] < 17 ? T - at[i] : 17;
        if (n == 0) continue;
        put(s, (uint64_t)i * 7919 % 31, 1, rows[i] + at[i] * HEADS * DIM, n);
        at[i] += n;
        left -= at[i] == T;
    }
    for (int i = 0; i < SEQUENCES; i++) {
        kv_codec_stream *alone = stream_of(&c);
        put(alone, 5, 1, rows[i], T);
        check_same_lanes(s, alone, (uint64_t)i * 7919 % 31, 5, 1, HEADS);
        kv_codec_stream_free(alone);
    }
    kv_codec_stream_drop(s, 7919 % 31);
    kv_codec_stream_drop(s, 1000);
    assert_int_equal(kv_codec_stream_tokens(s, 7919 % 31, 1, 1), 0);
    assert_int_equal(kv_codec_stream_tokens(s, 0, 1, 1), T);
    assert_int_equal(kv_codec_stream_tokens(s, 2 * 7919 % 31, 1, 1), T);
    kv_codec_stream_free(s);
    for (int i = 0; i < SEQUENCES; i++) free(rows[i]);
}

/* Powers of two on the diagonal: whitening is then exact, and the same as storing scaled rows. */
static void test_whitening(void **state)
{
    enum { T = 2 * BLOCK + 3, N = T * HEADS * DIM };
    kv_codec_whiten w;
    kv_err err = {0};
    (void)state;
    uint16_t *rows = make_rows(T, 8), *scaled = make_rows(T, 8);
    kvt_ok(kv_codec_whiten_new(LAYERS, HEADS, DIM, &w, &err), &err);
    kvt_ok(kv_codec_whiten_add(&w, 1, &err), &err);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < DIM; i++) {
            const int at = h * DIM * DIM + i * DIM + i;
            w.l[1][at] = (float)(1 << (i + h) % 4);
            w.inverse[1][at] = 1 / w.l[1][at];
        }
    for (int i = 0; i < N; i++) scaled[i] = (uint16_t)(scaled[i] + ((i % DIM + i / DIM % HEADS) % 4 << 7));
    for (int32_t recipe = 0; recipe < KV_CODEC_RECIPE_COUNT; recipe++) {
        kv_codec_stream_config c = config_of(recipe);
        c.half[0].slot.budget_ppm = 500000;
        kv_codec_stream *by_hand = stream_of(&c), *with;
        c.whiten = &w;
        with = stream_of(&c);
        static float x[N], y[N];
        const int64_t lanes = kv_codec_lanes(&c.half[0], HEADS);
        for (int half = 0; half < 2; half++) { /* V is not whitened */
            put(with, 1, half, rows, T);
            put(by_hand, 1, half, half == 0 ? scaled : rows, T);
            kvt_ok(kv_codec_stream_finish(with, 1, 1, half, &err), &err);
            kvt_ok(kv_codec_stream_finish(by_hand, 1, 1, half, &err), &err);
            for (int64_t i = 0; i < lanes; i++) {
                kv_codec_lane_view a, b;
                kvt_ok(kv_codec_stream_lane(with, 1, 1, half, i, &a, &err), &err);
                kvt_ok(kv_codec_stream_lane(by_hand, 1, 1, half, i, &b, &err), &err);
                assert_true(a.blocks > 0 && a.sealed_bytes == b.sealed_bytes);
                assert_memory_equal(a.sealed, b.sealed, (size_t)a.sealed_bytes);
            }
        }
        kvt_ok(kv_codec_stream_get(with, 1, 1, 0, 0, T, x, &err), &err);
        kvt_ok(kv_codec_stream_get(by_hand, 1, 1, 0, 0, T, y, &err), &err);
        for (int i = 0; i < N; i++) assert_true(x[i] == y[i] / (float)(1 << (i % DIM + i / DIM % HEADS) % 4));
        kv_codec_stream_free(with);
        kv_codec_stream_free(by_hand);
    }
    kv_codec_whiten_free(&w);
    free(rows);
    free(scaled);
}

static void test_an_error_loses_nothing(void **state)
{
    kv_err err = {0};
    (void)state;
    kv_codec_stream_config c = config_of(KV_CODEC_KV1);
    c.half[0].slot.params.threshold = 0.01F; /* nearly all are outliers */
    kv_codec_stream *s = stream_of(&c);
    uint16_t *rows = make_rows(2 * BLOCK, 9);
    put(s, 1, 0, rows, BLOCK - 1);
    kvt_refused(kv_codec_stream_put(s, 1, 1, 0, rows + (BLOCK - 1) * HEADS * DIM, BLOCK + 1, &err), KV_EFORMAT, &err,
                "overflow", KVT_SAYS("layer 1, k, head 0: block 0", "outliers do not fit"));
    assert_int_equal(kv_codec_stream_tokens(s, 1, 1, 0), 2 * BLOCK);
    assert_true(read_error(s, 1, 0, rows, 0, 2 * BLOCK) == 0);
    assert_int_equal(kv_codec_stream_stats_view(s, 0)->blocks, 0);
    rows[3] = 0x7F80; /* Inf */
    kvt_refused(kv_codec_stream_put(s, 2, 1, 1, rows, BLOCK, &err), KV_EFORMAT, &err, "inf",
                KVT_SAYS("layer 1, v, head 0"));
    kv_codec_stream_free(s);
    free(rows);
}

/* The first block of a group fits and the second does not: nothing of the group counts. */
static void test_half_a_group_is_nothing(void **state)
{
    kv_err err = {0};
    int seen = 0;
    (void)state;
    uint16_t *rows = make_rows(2 * BLOCK, 12);
    kv_codec_stream_config c = config_of(KV_CODEC_KV1_SHARED);
    for (float t = 0.5F; t < 2.5F; t += 0.01F) { /* some threshold parts the two */
        c.half[0].slot.params.threshold = t;
        kv_codec_stream *s = stream_of(&c);
        put(s, 1, 0, rows, 2 * BLOCK);
        if (kv_codec_stream_finish(s, 1, 1, 0, &err) != KV_OK && strstr(err.text, ": block 1") != NULL) {
            const kv_codec_stream_stats *st = kv_codec_stream_stats_view(s, 0);
            const int64_t head = strtol(strstr(err.text, "head ") + 5, NULL, 10);
            assert_int_equal(st->blocks, 2 * head); /* of the heads before it */
            assert_int_equal(st->values, st->blocks * BLOCK * 8);
            assert_true(read_error(s, 1, 0, rows, 0, 2 * BLOCK) < 0.2);
            seen++;
        }
        kv_err_clear(&err);
        kv_codec_stream_free(s);
    }
    assert_true(seen > 0);
    free(rows);
}

static void test_load_and_stats(void **state)
{
    enum { T = 3 * BLOCK + 5 };
    kv_err err = {0};
    (void)state;
    uint16_t *rows = make_rows(T, 10);
    for (int32_t recipe = 0; recipe < KV_CODEC_RECIPE_COUNT; recipe++) {
        const kv_codec_stream_config c = config_of(recipe);
        kv_codec_stream *s = stream_of(&c), *t = stream_of(&c);
        float x[T * HEADS * DIM], y[T * HEADS * DIM];
        const int64_t lanes = kv_codec_lanes(&c.half[1], HEADS), lane_rows = T * HEADS / lanes;
        put(s, 1, 1, rows, T);
        kvt_ok(kv_codec_stream_finish(s, 1, 1, 1, &err), &err);
        for (int64_t i = 0; i < lanes; i++) {
            kv_codec_lane_view v;
            kvt_ok(kv_codec_stream_lane(s, 1, 1, 1, i, &v, &err), &err);
            kvt_refused(kv_codec_stream_load(t, 9, 1, 1, i, lane_rows, v.sealed, v.sealed_bytes - 1, v.tail, &err),
                        KV_EFORMAT, &err, "size", KVT_SAYS("sealed bytes"));
            kvt_ok(kv_codec_stream_load(t, 9, 1, 1, i, lane_rows, v.sealed, v.sealed_bytes, v.tail, &err), &err);
        }
        kvt_ok(kv_codec_stream_get(s, 1, 1, 1, 0, T, x, &err), &err);
        kvt_ok(kv_codec_stream_get(t, 9, 1, 1, 0, T, y, &err), &err);
        assert_memory_equal(x, y, sizeof x);
        const kv_codec_stream_stats *st = kv_codec_stream_stats_view(s, 1);
        assert_int_equal(st->blocks, 9);
        assert_int_equal(st->values, st->blocks * BLOCK * 8);
        assert_true(st->kept_ppm > 900000.0 * (double)st->blocks && st->kept_ppm <= 1e6 * (double)st->blocks);
        kv_codec_lane_view v;
        kvt_ok(kv_codec_stream_lane(t, 9, 1, 1, 0, &v, &err), &err);
        ((uint8_t *)(uintptr_t)v.sealed)[0] = 'X';
        kvt_refused(kv_codec_stream_get(t, 9, 1, 1, 0, 1, y, &err), KV_EFORMAT, &err, "magic",
                    KVT_SAYS("layer 1, v", "block 0", "magic"));
        kv_codec_stream_free(s);
        kv_codec_stream_free(t);
    }
    free(rows);
}

static void test_refused(void **state)
{
    kv_err err = {0};
    kv_codec_stream *s = NULL;
    kv_codec_whiten w = {.layers = 1, .heads = HEADS, .dim = DIM};
    float out[HEADS * DIM];
    uint16_t row[HEADS * DIM] = {0};
    (void)state;
    kv_codec_stream_config c = config_of(KV_CODEC_KV1);
    c.element = KV_ELEM_FP8_E4M3;
    kvt_refused(kv_codec_stream_new(&c, &s, &err), KV_EINVAL, &err, "fp8", KVT_SAYS("fp8_e4m3", "bf16"));
    c.element = KV_ELEM_BF16;
    c.whiten = &w;
    kvt_refused(kv_codec_stream_new(&c, &s, &err), KV_EINVAL, &err, "factors", KVT_SAYS("1 layers", "2 layers"));
    c.whiten = NULL;
    c.half[0].group = 3;
    kvt_refused(kv_codec_stream_new(&c, &s, &err), KV_EINVAL, &err, "group", KVT_SAYS("group of 3"));
    c.half[0].group = 1;
    c.has[1] = false;
    s = stream_of(&c);
    kvt_refused(kv_codec_stream_put(s, 1, 2, 0, row, 1, &err), KV_EINVAL, &err, "layer", KVT_SAYS("layer 2 of 2"));
    kvt_refused(kv_codec_stream_put(s, 1, 0, 1, row, 1, &err), KV_EINVAL, &err, "half", KVT_SAYS("stream 1"));
    put(s, 1, 0, row, 1);
    kvt_refused(kv_codec_stream_get(s, 1, 1, 0, 0, 2, out, &err), KV_EINVAL, &err, "end", KVT_SAYS("0 to 2", "has 1"));
    kvt_refused(kv_codec_stream_get(s, 8, 1, 0, 0, 1, out, &err), KV_EINVAL, &err, "unknown", KVT_SAYS("sequence 8"));
    kv_codec_stream_free(s);
}

static void test_memory_runs_out(void **state)
{
    kv_err err = {0};
    (void)state;
    const kv_codec_stream_config c = config_of(KV_CODEC_KV1_SHARED);
    uint16_t *rows = make_rows(4 * BLOCK + 1, 11);
    for (long n = 0;; n++) {
        kv_codec_stream *s = NULL;
        kv_alloc_fail_after(n);
        kv_rc rc = kv_codec_stream_new(&c, &s, &err);
        if (rc == KV_OK) rc = kv_codec_stream_put(s, 1, 1, 0, rows, 4 * BLOCK + 1, &err);
        kv_alloc_fail_after(-1);
        kv_codec_stream_free(s);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        kv_err_clear(&err);
        assert_in_range(n, 0, 100000);
    }
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_chunking),
        cmocka_unit_test(test_reads_back_in_order),
        cmocka_unit_test(test_mixed_heads),
        cmocka_unit_test(test_bytes_are_those_of_the_account),
        cmocka_unit_test(test_many_sequences),
        cmocka_unit_test(test_whitening),
        cmocka_unit_test(test_an_error_loses_nothing),
        cmocka_unit_test(test_half_a_group_is_nothing),
        cmocka_unit_test(test_load_and_stats),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
