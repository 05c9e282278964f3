/* The cells of the attribution study: what must be zero is zero, what must differ differs, bits are committed. */
#include "kernels/codec/kv_codec_study.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* 120 tokens are three full blocks of 32 and a tail of 24 */
static const kv_codec_study_params small = {
    .seed = 7, .layers = 3, .kv_heads = 2, .head_dim = 32, .passages = 2, .prefix = 120, .evaluated = 40};
enum { ROWS = 32, VOCAB = KV_CODEC_STUDY_VOCAB };

/* Digests of logits. A change means that rows of old certificates cannot be made again. */
#define DIGEST_BASE 0x45C6950C31532F93u
#define DIGEST_KV1 0x5D055962C2673C3Au
#define DIGEST_SERVING 0x5B45ABB99F5558D0u
/* All cells of a recipe in order. */
static const uint64_t digest_cells[KV_CODEC_RECIPE_COUNT] = {0x54923680DF52E6A1u, 0x161BB9C6EA3A8439u,
                                                             0xF76285C8E804D937u, 0x4C65271FFA250095u};

static kv_codec_study *make(const kv_codec_study_params *p)
{
    kv_codec_study *s = NULL;
    kv_err err = {0};
    if (kv_codec_study_new(p, &s, &err) != KV_OK) fail_msg("%s", err.text);
    return s;
}

static kv_codec_study_result run(kv_codec_study *s, const kv_codec_study_how *how, const char *cell)
{
    kv_codec_study_result r;
    kv_err err = {0};
    if (kv_codec_study_run(s, how, cell, &r, &err) != KV_OK) fail_msg("%s", err.text);
    return r;
}

static kv_codec_study_how recipe(int32_t id)
{
    return (kv_codec_study_how){.recipe = id, .block_rows = ROWS};
}

/* ---- logits ----------------------------------------------------------------------------- */

/* FNV-1a */
static void fold(void *ctx, const void *bytes, size_t n)
{
    uint64_t *h = ctx;
    for (size_t i = 0; i < n; i++) *h = (*h ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
}

static uint64_t digest(const kv_codec_study *s)
{
    uint64_t h = 14695981039346656037u;
    kv_codec_study_logits(s, fold, &h);
    return h;
}

static uint64_t base_digest(const kv_codec_study *s)
{
    uint64_t h = 14695981039346656037u;
    kv_codec_study_base_logits(s, fold, &h);
    return h;
}

typedef struct {
    unsigned char *bytes;
    size_t n;
} text;

static void append(void *ctx, const void *bytes, size_t n)
{
    text *t = ctx;
    t->bytes = realloc(t->bytes, t->n + n);
    assert_non_null(t->bytes);
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
}

static text logits(const kv_codec_study *s)
{
    text t = {0};
    kv_codec_study_logits(s, append, &t);
    return t;
}

/* Evaluated tokens from the first on with equal logits, passage p. */
static int64_t equal_tokens(const text *a, const text *b, int64_t evaluated, int64_t p)
{
    const size_t row = 4 * VOCAB;
    int64_t t = 0;
    for (; t < evaluated; t++) {
        const size_t at = (size_t)(p * evaluated + t) * row;
        if (memcmp(a->bytes + at, b->bytes + at, row) != 0) break;
    }
    return t;
}

/* ---- tests ------------------------------------------------------------------------------ */

static void assert_no_change(const kv_codec_study_score *s)
{
    assert_true(s->finite);
    assert_int_equal(s->ppl_change_ppm, 0);
    assert_int_equal(s->kl_nano, 0);
    assert_int_equal(s->top1_ppm, 1000000);
}

static void identity_changes_nothing(void **state)
{
    (void)state;
    kv_codec_study_params three = small;
    three.kv_heads = 3; /* mixed blocks of 32 rows then end inside a token */
    const kv_codec_study_params *const shapes[] = {&small, &three};
    for (int i = 0; i < 2; i++) {
        kv_codec_study *s = make(shapes[i]);
        for (int32_t r = 0; r < KV_CODEC_RECIPE_COUNT; r++) {
            const kv_codec_study_how how = recipe(r);
            (void)run(s, &how, "kv"); /* leaves other logits behind */
            assert_true(digest(s) != base_digest(s));
            const kv_codec_study_result x = run(s, &how, "identity");
            assert_true(digest(s) == base_digest(s));
            assert_no_change(&x.mean);
            for (int32_t p = 0; p < small.passages; p++) assert_no_change(&x.passage[p]);
            assert_int_equal(x.mean.nll_nano, x.base_nll_nano);
            assert_int_equal(x.verdict, KV_CODEC_STUDY_ACCEPT);
            for (int half = 0; half < KV_CODEC_HALVES; half++) {
                assert_true(x.damage[half].rows > 0);
                assert_int_equal(x.damage[half].error_ppm, 0);
            }
        }
        kv_codec_study_free(s);
    }
}

static void whitening_alone_is_rounding(void **state)
{
    (void)state;
    kv_codec_study *s = make(&small);
    const kv_codec_study_how how = recipe(KV_CODEC_KV1);
    const kv_codec_study_result x = run(s, &how, "whiten-only"), y = run(s, &how, "kv");
    assert_in_range(x.damage[KV_CODEC_K].error_ppm, 1, 2000); /* bf16 halves that fall the other way */
    assert_int_equal(x.damage[KV_CODEC_V].error_ppm, 0);
    assert_true(x.mean.kl_nano * 1000 < y.mean.kl_nano);
    kv_codec_study_free(s);
}

static void bits_are_committed(void **state)
{
    (void)state;
    for (int32_t i = 0; kv_codec_study_variant(i) != NULL; i++) {
        kv_codec_study *s = make(&small);
        kv_codec_study_how how = recipe(KV_CODEC_KV1);
        kv_err err = {0};
        const kv_rc rc = kv_codec_study_use(s, kv_codec_study_variant(i), &err);
        if (rc == KV_EUNSUP) {
            kv_codec_study_free(s);
            continue;
        }
        assert_int_equal(rc, KV_OK);
        assert_int_equal(base_digest(s), DIGEST_BASE);
        (void)run(s, &how, "identity");
        assert_int_equal(digest(s), DIGEST_BASE);
        (void)run(s, &how, "kv");
        assert_int_equal(digest(s), DIGEST_KV1);
        how.recipe = KV_CODEC_PUBLISHED_SERVING;
        (void)run(s, &how, "kv");
        assert_int_equal(digest(s), DIGEST_SERVING);
        kv_codec_study_free(s);
    }
}

static void bits_of_all_cells_are_committed(void **state)
{
    (void)state;
    kv_codec_study *s = make(&small);
    char room[16];
    const char *cell;
    for (int32_t r = 0; r < KV_CODEC_RECIPE_COUNT; r++) {
        const kv_codec_study_how how = recipe(r);
        uint64_t h = 14695981039346656037u;
        for (int32_t i = 0; (cell = kv_codec_study_cell(small.layers, i, room)) != NULL; i++) {
            (void)run(s, &how, cell);
            kv_codec_study_logits(s, fold, &h);
        }
        assert_int_equal(h, digest_cells[r]);
    }
    kv_codec_study_free(s);
}

/* A cell gives the same in any order of cells, and in another study. */
static void cells_do_not_depend_on_order(void **state)
{
    (void)state;
    kv_codec_study *a = make(&small), *b = make(&small);
    const kv_codec_study_how how = recipe(KV_CODEC_KV1), other = recipe(KV_CODEC_PUBLISHED_HARNESS);
    char room[16];
    const char *cell;
    int32_t count = 0;
    while ((cell = kv_codec_study_cell(small.layers, count, room)) != NULL) count++;
    assert_int_equal(count, 11 + small.layers);
    for (int32_t i = 0; i < count; i++) {
        cell = kv_codec_study_cell(small.layers, i, room);
        const kv_codec_study_result x = run(a, &how, cell);
        (void)run(b, &other, i % 2 == 0 ? "kv" : "noise");
        const kv_codec_study_result y = run(b, &how, cell);
        assert_true(digest(a) == digest(b));
        assert_int_equal(x.mean.kl_nano, y.mean.kl_nano);
        for (int half = 0; half < KV_CODEC_HALVES; half++) {
            assert_int_equal(x.damage[half].rows, y.damage[half].rows);
            assert_int_equal(x.damage[half].error_ppm, y.damage[half].error_ppm);
        }
    }
    kv_codec_study_free(a);
    kv_codec_study_free(b);
}

/* The published K stream loses the length of its residual; on the same blocks of K ours does not. */
static void the_published_k_fault_shows(void **state)
{
    (void)state;
    kv_codec_study *s = make(&small);
    for (int plain = 0; plain < 2; plain++) {
        kv_codec_study_how ours = recipe(KV_CODEC_KV1), theirs = recipe(KV_CODEC_PUBLISHED_SERVING);
        ours.no_factors = theirs.no_factors = plain != 0;
        const kv_codec_study_result x = run(s, &ours, "k"), y = run(s, &theirs, "k");
        assert_int_equal(x.damage[KV_CODEC_K].rows, y.damage[KV_CODEC_K].rows);
        assert_int_equal(x.damage[KV_CODEC_V].rows, 0);
        assert_true(y.damage[KV_CODEC_K].error_ppm * 2 > x.damage[KV_CODEC_K].error_ppm * 3);
        assert_true(y.mean.kl_nano > 2 * x.mean.kl_nano);
        /* the same at the same place: K before RoPE with the same factors */
        const kv_codec_study_result m = run(s, &ours, "k-whiten-before"), n = run(s, &theirs, "k-whiten-before");
        assert_true(n.damage[KV_CODEC_K].error_ppm * 2 > m.damage[KV_CODEC_K].error_ppm * 3);
        assert_true(n.mean.kl_nano > 2 * m.mean.kl_nano);
    }
    kv_codec_study_free(s);
}

static void noise_is_as_large_as_the_error(void **state)
{
    (void)state;
    kv_codec_study *s = make(&small);
    /* seals no new blocks, so that both cells have the same rows */
    const kv_codec_study_how how = recipe(KV_CODEC_KV1_SHARED);
    const kv_codec_study_result x = run(s, &how, "kv");
    const uint64_t codec = digest(s);
    const kv_codec_study_result y = run(s, &how, "noise");
    assert_true(digest(s) != codec);
    for (int half = 0; half < KV_CODEC_HALVES; half++) {
        const int64_t error = x.damage[half].error_ppm;
        assert_int_equal(y.damage[half].rows, x.damage[half].rows);
        assert_true(error > 50000);
        assert_in_range(y.damage[half].error_ppm, error - error / 1000, error + error / 1000); /* bf16 */
    }
    kv_codec_study_free(s);
}

/* Blocks of 32 are sealed when they are full: token 127, the 8th evaluated one, is the first to see a new block. */
static void new_blocks_are_sealed_when_full(void **state)
{
    (void)state;
    kv_codec_study *s = make(&small);
    const int32_t recipes[] = {KV_CODEC_KV1, KV_CODEC_PUBLISHED_SERVING, KV_CODEC_KV1_SHARED};
    const int64_t first[] = {7, 7, 40}; /* a group of four blocks is not filled up */
    for (int i = 0; i < 3; i++) {
        const kv_codec_study_how how = recipe(recipes[i]);
        (void)run(s, &how, "kv-prefix");
        text a = logits(s);
        (void)run(s, &how, "kv");
        text b = logits(s);
        for (int32_t p = 0; p < small.passages; p++)
            assert_int_equal(equal_tokens(&a, &b, small.evaluated, p), first[i]);
        free(a.bytes);
        free(b.bytes);
    }
    kv_codec_study_free(s);
}

/* Rows that are sealed, from the rules in the header. */
static void rows_are_counted(void **state)
{
    (void)state;
    kv_codec_study_params p = small;
    p.kv_heads = 3;
    kv_codec_study *s = make(&p);
    const int64_t units = (int64_t)p.layers * p.passages, all = p.prefix + p.evaluated;
    for (int32_t r = 0; r < KV_CODEC_RECIPE_COUNT; r++) {
        const kv_codec_study_how how = recipe(r);
        const kv_codec_study_result x = run(s, &how, "kv");
        int64_t k = 3 * (all / ROWS) * ROWS, v = k;
        if (r == KV_CODEC_PUBLISHED_HARNESS) {
            k = 3 * all / ROWS * ROWS;
            v = 3 * (int64_t)p.prefix / ROWS * ROWS; /* one basis: nothing is sealed later */
        }
        if (r == KV_CODEC_KV1_SHARED) k = v = 3 * ((int64_t)p.prefix / ROWS) * ROWS;
        assert_int_equal(x.damage[KV_CODEC_K].rows, units * k);
        assert_int_equal(x.damage[KV_CODEC_V].rows, units * v);
        assert_int_equal(x.damage[KV_CODEC_K].blocks * ROWS, x.damage[KV_CODEC_K].rows);
    }
    kv_codec_study_free(s);
}

static void layers_are_skipped(void **state)
{
    (void)state;
    kv_codec_study *s = make(&small);
    kv_codec_study_how how = recipe(KV_CODEC_KV1);
    const kv_codec_study_result all = run(s, &how, "kv"), one = run(s, &how, "layer-1");
    assert_int_equal(one.damage[KV_CODEC_K].rows * small.layers, all.damage[KV_CODEC_K].rows);
    assert_true(one.mean.kl_nano < all.mean.kl_nano);
    const uint64_t alone = digest(s);
    const bool ends[] = {true, false, true}, every[] = {true, true, true};
    how.skip = ends;
    (void)run(s, &how, "kv");
    assert_true(digest(s) == alone);
    how.skip = every;
    const kv_codec_study_result none = run(s, &how, "kv");
    assert_true(digest(s) == base_digest(s));
    assert_int_equal(none.damage[KV_CODEC_K].rows, 0);
    (void)run(s, &how, "layer-1");
    assert_true(digest(s) == alone);
    kv_codec_study_free(s);
}

/* published-harness leaves the first and last two of 5 and more layers alone. */
static void boundary_layers_are_the_recipes(void **state)
{
    (void)state;
    kv_codec_study_params p = small;
    p.layers = 5;
    p.passages = 1;
    kv_codec_study *s = make(&p);
    kv_codec_study_how how = recipe(KV_CODEC_PUBLISHED_HARNESS);
    const kv_codec_study_result x = run(s, &how, "kv");
    const uint64_t skipped = digest(s);
    const kv_codec_study_result y = run(s, &how, "layer-2");
    assert_true(digest(s) == skipped);
    assert_int_equal(x.damage[KV_CODEC_K].rows, y.damage[KV_CODEC_K].rows);
    how.recipe = KV_CODEC_KV1;
    assert_int_equal(run(s, &how, "kv").damage[KV_CODEC_V].rows, 5 * 2 * 160);
    kv_codec_study_free(s);
}

static void passages_and_seeds_differ(void **state)
{
    (void)state;
    kv_codec_study_params p = small;
    kv_codec_study *a = make(&p);
    p.seed++;
    kv_codec_study *b = make(&p);
    const size_t n = (size_t)(small.prefix + small.evaluated + 1);
    assert_memory_not_equal(kv_codec_study_tokens(a, 0), kv_codec_study_tokens(a, 1), n);
    assert_memory_not_equal(kv_codec_study_tokens(a, 0), kv_codec_study_tokens(b, 0), n);
    bool seen[VOCAB] = {false};
    int kinds = 0;
    for (size_t i = 0; i < n; i++) {
        const uint8_t t = kv_codec_study_tokens(a, 0)[i];
        assert_true(t < VOCAB);
        kinds += !seen[t];
        seen[t] = true;
    }
    assert_true(kinds > VOCAB / 2);
    const kv_codec_study_how how = recipe(KV_CODEC_KV1);
    const kv_codec_study_result x = run(a, &how, "kv");
    assert_true(x.passage[0].kl_nano != x.passage[1].kl_nano);
    /* the model knows its own text: far below ln 64 = 4.158883083 */
    assert_in_range(x.base_nll_nano, 500000000, 3000000000);
    kv_codec_study_free(a);
    kv_codec_study_free(b);
}

static void means_and_verdicts_agree(void **state)
{
    (void)state;
    kv_codec_study *s = make(&small);
    kv_codec_study_result x, of[3];
    const char *const names[] = {"kv", "k", "v"};
    int seen[3] = {0};
    char room[16];
    for (int32_t r = 0; r < KV_CODEC_RECIPE_COUNT; r++) {
        const kv_codec_study_how how = recipe(r);
        for (int32_t i = 0; i < 11 + small.layers; i++) {
            x = run(s, &how, kv_codec_study_cell(small.layers, i, room));
            assert_true(llabs(x.passage[0].kl_nano + x.passage[1].kl_nano - 2 * x.mean.kl_nano) <= 3);
            assert_true(llabs(x.passage[0].nll_nano + x.passage[1].nll_nano - 2 * x.mean.nll_nano) <= 3);
            assert_true(llabs(x.passage[0].ppl_change_ppm + x.passage[1].ppl_change_ppm - 2 * x.mean.ppl_change_ppm) <=
                        3);
            assert_int_equal(x.passage[0].top1_ppm + x.passage[1].top1_ppm, 2 * x.mean.top1_ppm);
            assert_true(x.mean.kl_nano >= 0);
            const int64_t change = llabs(x.mean.ppl_change_ppm), top = x.mean.top1_ppm;
            const int want = change <= 10000 && top >= 950000 ? 0 : change <= 30000 && top >= 850000 ? 1 : 2;
            assert_int_equal(x.verdict, want);
            seen[want]++;
        }
        for (int i = 0; i < 3; i++) of[i] = run(s, &how, names[i]);
        const kv_codec_study_gap gap = kv_codec_study_additivity(&of[0], &of[1], &of[2]);
        assert_true(gap.finite);
        assert_int_equal(gap.kl_nano, of[0].mean.kl_nano - of[1].mean.kl_nano - of[2].mean.kl_nano);
        assert_int_equal(gap.ppl_change_ppm,
                         of[0].mean.ppl_change_ppm - of[1].mean.ppl_change_ppm - of[2].mean.ppl_change_ppm);
    }
    for (int i = 0; i < 3; i++) assert_true(seen[i] > 0);
    assert_string_equal(kv_codec_study_verdict_name(KV_CODEC_STUDY_MARGINAL), "MARGINAL");
    assert_null(kv_codec_study_verdict_name(3));
    kv_codec_study_free(s);
}

static void refuse(const kv_codec_study_params *p, const char *word)
{
    kv_codec_study *s = NULL;
    kv_err err = {0};
    assert_int_equal(kv_codec_study_new(p, &s, &err), KV_EINVAL);
    assert_null(s);
    if (strstr(err.text, word) == NULL) fail_msg("\"%s\" does not name %s", err.text, word);
}

static void bad_parameters_are_refused(void **state)
{
    (void)state;
    const struct {
        size_t at;
        int32_t bad[2];
        const char *word;
    } cases[] = {
        {offsetof(kv_codec_study_params, layers), {0, 65}, "layers"},
        {offsetof(kv_codec_study_params, kv_heads), {0, 65}, "kv_heads"},
        {offsetof(kv_codec_study_params, head_dim), {0, 1026}, "head_dim"},
        {offsetof(kv_codec_study_params, head_dim), {31, -2}, "head_dim"},
        {offsetof(kv_codec_study_params, passages), {0, 17}, "passages"},
        {offsetof(kv_codec_study_params, prefix), {0, 65536}, "prefix"},
        {offsetof(kv_codec_study_params, evaluated), {0, 65417}, "evaluated"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int j = 0; j < 2; j++) {
            kv_codec_study_params p = small;
            memcpy((unsigned char *)&p + cases[i].at, &cases[i].bad[j], sizeof(int32_t));
            refuse(&p, cases[i].word);
        }
}

static void bad_cells_are_refused(void **state)
{
    (void)state;
    kv_codec_study *s = make(&small);
    const struct {
        kv_codec_study_how how;
        const char *cell, *word;
    } cases[] = {
        {recipe(KV_CODEC_KV1), "kvv", "kvv"},
        {recipe(KV_CODEC_KV1), "layer-3", "layer-3"},
        {recipe(KV_CODEC_RECIPE_COUNT), "kv", "recipe"},
        {{.recipe = KV_CODEC_KV1, .block_rows = 48}, "kv", "48"},
        {{.recipe = KV_CODEC_KV1, .block_rows = -32}, "kv", "-32"},
        {{.recipe = KV_CODEC_KV1, .block_rows = 32, .d_eff = 33}, "kv", "d_eff"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kv_codec_study_result r = {.verdict = 77};
        kv_err err = {0};
        assert_int_equal(kv_codec_study_run(s, &cases[i].how, cases[i].cell, &r, &err), KV_EINVAL);
        assert_int_equal(r.verdict, 77);
        if (strstr(err.text, cases[i].word) == NULL) fail_msg("\"%s\" does not name %s", err.text, cases[i].word);
    }
    char room[16];
    assert_null(kv_codec_study_cell(small.layers, -1, room));
    assert_null(kv_codec_study_cell(small.layers, 11 + small.layers, room));
    kv_codec_study_free(s);
    kv_codec_study_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identity_changes_nothing),
        cmocka_unit_test(whitening_alone_is_rounding),
        cmocka_unit_test(bits_are_committed),
        cmocka_unit_test(bits_of_all_cells_are_committed),
        cmocka_unit_test(cells_do_not_depend_on_order),
        cmocka_unit_test(the_published_k_fault_shows),
        cmocka_unit_test(noise_is_as_large_as_the_error),
        cmocka_unit_test(new_blocks_are_sealed_when_full),
        cmocka_unit_test(rows_are_counted),
        cmocka_unit_test(layers_are_skipped),
        cmocka_unit_test(boundary_layers_are_the_recipes),
        cmocka_unit_test(passages_and_seeds_differ),
        cmocka_unit_test(means_and_verdicts_agree),
        cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(bad_cells_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
