/* Cells in windows of tokens: the same rows, field by field, as in one piece, with any memory; a window that is wrong is
 * seen; the fewest windows. Built twice: for the CPU, and (KVT_EMULATED) for the emulated GPU, where what a cell is said to
 * need is also all the memory that there is. */
#include "grid/cell/kv_cell_windows.h"
#include "tests/kv_test_grid.h"

#ifdef KVT_EMULATED
#include "kernels/cuda/kv_cuda.h"
#include "tests/emulated/kv_emu.h"

#define ON_GPU true
#define CASES 9

static int64_t base; /* bytes in use when no cell is at work and nothing is kept */

static kv_device *open_device(void)
{
    kv_device *d = NULL;
    kv_err err = {0};
    kv_emu_set_memory(0);
    kvt_ok(kv_device_cuda_new(0, &d, &err), &err);
    kv_cuda_keep_at_most(d, 0); /* each cell takes its memory anew */
    base = kv_emu_used();
    return d;
}
#else
#define ON_GPU false
#define CASES 500

static kv_device *open_device(void)
{
    return kvt_cpu();
}
#endif

/* ---- pairs ------------------------------------------------------------------------------ */

typedef struct {
    kv_campaign c;
    const kv_layout *side[2];
    kv_windows w; /* one window */
    int64_t whole, least;
} pair;

static int64_t need_of(const kv_windows *w, const kv_geometry *g)
{
    kv_windows_need n;
    assert_true(kv_windows_bytes(w, g, &n));
    return ON_GPU ? n.gpu : n.host;
}

/* Cell a->b of a campaign. */
static pair pair_new(const char *layouts, const char *geometry, const char *more)
{
    pair p = {.c = kvt_campaign(layouts, geometry, more)};
    kv_err err = {0};
    kv_cell_need n;
    const int64_t cell = kvt_cell(&p.c, "a->b");
    p.side[0] = p.c.catalogue.item[0];
    p.side[1] = p.c.catalogue.item[1];
    kvt_ok(kv_cell_plan(&p.c, cell, &n, &err), &err);
    if (!n.runs) return p;
    const kv_geometry *g = &p.c.geometries[0];
    kvt_ok(kv_windows_one(p.side, g, kv_pair_unit_layers(p.side[0], p.side[1], g), &p.w, &err), &err);
    p.whole = ON_GPU ? n.gpu_bytes : n.peak_bytes;
    p.least = ON_GPU ? n.gpu_least_bytes : n.least_bytes;
    assert_int_equal(p.whole, need_of(&p.w, g));
    return p;
}

/* Cell a->b where a cell may take `limit` bytes; the emulated device has no more either. */
static kv_row row_within(kv_device *d, const pair *p, int64_t limit)
{
    kv_runner r = {.dev = d, .memory_bytes = limit};
    kv_row row;
    kv_err err = {0};
#ifdef KVT_EMULATED
    if (limit > 0) kv_emu_set_memory(base + limit);
#endif
    kvt_ok(kv_cell_run(&r, &p->c, kvt_cell(&p->c, "a->b"), &row, &err), &err);
#ifdef KVT_EMULATED
    kv_emu_set_memory(0);
#endif
    kv_runner_free(&r);
    return row;
}

static kv_windows fit(const pair *p, int64_t limit)
{
    kv_windows w = p->w;
    kv_err err = {0};
    kvt_ok(kv_windows_fit(p->side, &p->c.geometries[0], limit, ON_GPU, &w, &err), &err);
    return w;
}

static void random_pair(uint64_t *r, int i, char texts[2 * KVT_TEXT], char geometry[KV_GEOMETRY_TEXT])
{
    const kv_store store = (kv_store)(i % 3), other = store == KV_STORE_LATENT ? store : (kv_store)kvt_below(r, 2);
    kv_geometry g =
        kvt_random_geometry(r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE || other != KV_STORE_SEPARATE);
    char one[KVT_TEXT];
    g.tokens = 1 + kvt_below(r, 50);
    kvt_desc a = kvt_random_desc(r, &g, store), b = kvt_random_desc(r, &g, other);
    if (store != KV_STORE_LATENT && kvt_one_in(r, 3)) kvt_shard(r, &g, &a, &b);
    kvt_desc_text(&a, "a", one);
    const int n = snprintf(texts, 2 * KVT_TEXT, "%s; ", one);
    kvt_desc_text(&b, "b", one);
    snprintf(texts + n, 2 * KVT_TEXT - (size_t)n, "%s", one);
    kv_geometry_print(&g, geometry);
}

/* ---- the same rows ---------------------------------------------------------------------- */

static void windows__give_the_row_of_the_whole(void **state)
{
    (void)state;
    static const char *const more[] = {"", "'tail':'nan','seed':77", "'tail':'zero'"};
    kv_device *d = open_device();
    uint64_t r = 83;
    int split = 0, layered = 0, converting = 0, tails = 0, latent = 0, inexact = 0;
    for (int i = 0; i < CASES; i++) {
        char texts[2 * KVT_TEXT], geometry[KV_GEOMETRY_TEXT];
        random_pair(&r, i, texts, geometry);
        pair p = pair_new(texts, geometry, more[i % 3]);
        const kv_row want = row_within(d, &p, 0);
        for (int k = 0; k < 3 && p.least < p.whole; k++) {
            const int64_t limit = p.least + (p.whole - 1 - p.least) * k / 2;
            const kv_windows w = fit(&p, limit);
            const kv_row got = row_within(d, &p, limit);
            assert_true(w.count > 1 && need_of(&w, &p.c.geometries[0]) <= limit);
            if (memcmp(&got, &want, sizeof got) != 0)
                fail_msg("%s at %s in %" PRId64 " windows of %" PRId64 " tokens: %s instead of %s (%s)", texts,
                         geometry, w.count, w.tokens, kv_verdict_name((kv_verdict)got.verdict),
                         kv_verdict_name((kv_verdict)want.verdict), got.reason);
            split++;
            layered += want.unit_layers > 1;
            converting += want.converts;
            tails += w.last[0].tokens != w.tokens;
            latent += w.whole[0].halves == 1;
            inexact += want.verdict == KV_VERDICT_NOT_EXACT;
        }
        kv_campaign_free(&p.c);
    }
    if (split < CASES / 2 || layered < CASES / 4 || converting < CASES / 9 || tails < CASES / 3 || latent < CASES / 9 ||
        inexact < CASES / 20)
        fail_msg("%d split: %d with layers, %d converting, %d with tails, %d latent, %d not exact", split, layered,
                 converting, tails, latent, inexact);
    d->ops->close(d);
}

/* All pairs of the published layouts, blocks of 16, 32 and 64 among them. */
static void windows__give_the_rows_of_the_published_layouts(void **state)
{
    (void)state;
    kv_device *d = open_device();
    kv_campaign c = kvt_published_campaign();
    int split = 0;
    c.geometries[0].layers = 1;
    c.geometries[0].tokens = ON_GPU ? 71 : 151;
    for (size_t i = 0; i < c.n_cells; i++) {
        kv_runner whole = {.dev = d}, parts = {.dev = d};
        kv_row want, got;
        kv_cell_need n;
        kv_err err = {0};
        if (ON_GPU && i % 21 != 5) continue;
        kvt_ok(kv_cell_plan(&c, (int64_t)i, &n, &err), &err);
        parts.memory_bytes = ON_GPU ? n.gpu_least_bytes : n.least_bytes;
        kvt_ok(kv_cell_run(&whole, &c, (int64_t)i, &want, &err), &err);
        kvt_ok(kv_cell_run(&parts, &c, (int64_t)i, &got, &err), &err);
        assert_int_not_equal(got.verdict, KV_VERDICT_FAILED);
        kvt_assert_same_row(&got, &want);
        split += n.runs && parts.memory_bytes < (ON_GPU ? n.gpu_bytes : n.peak_bytes);
        kv_runner_free(&whole);
        kv_runner_free(&parts);
    }
    assert_true(split >= (ON_GPU ? 3 : 58));
    kv_campaign_free(&c);
    d->ops->close(d);
}

#ifndef KVT_EMULATED
/* ---- wrong windows ---------------------------------------------------------------------- */

typedef enum { WRONG_NONE, WRONG_SOURCE, WRONG_ALL, WRONG_PLACE, WRONG_KINDS } wrong_kind;

typedef struct {
    kv_device dev; /* first */
    kv_device_ops ops;
    kv_device *base;
    wrong_kind kind;
    int64_t block;
    const kv_index *source; /* the first that is built */
} wrong;

/* A window's payload begins a block too early: of the source alone, or of all images. */
static kv_rc wrong_build(kv_device *d, kv_image *im, const kv_index *ix, const kv_payload *p, int32_t via, uint32_t pad,
                         kv_err *err)
{
    wrong *w = (wrong *)(void *)d;
    kv_payload early = *p;
    if (w->source == NULL) w->source = ix;
    if (p->first_token > 0 && (w->kind == WRONG_ALL || (w->kind == WRONG_SOURCE && ix == w->source)))
        early.first_token -= w->block;
    return w->base->ops->build(w->base, im, ix, &early, via, pad, err);
}

/* A window's elements go to the places of the block before. */
static kv_rc wrong_gather(kv_device *d, const kv_index *ix, const kv_image *im, const kv_payload *p, int64_t layer,
                          const kv_window *at, kv_image *dense, kv_err *err)
{
    wrong *w = (wrong *)(void *)d;
    kv_window early = *at;
    if (at->first > 0 && w->kind == WRONG_PLACE) early.first -= w->block;
    return w->base->ops->gather(w->base, ix, im, p, layer, &early, dense, err);
}

static void windows__that_begin_a_block_off_are_seen(void **state)
{
    (void)state;
    static const char *const texts[] = {"a int k=KV.Tb.Ti.H.D block=4; b sep k=H.T.D",
                                        "a sep k=L.T.H.D; b int k=Tb.L.KV.Ti.H.D block=4",
                                        "a lat k=Tb.Ti.C block=4; b lat k=T.C"};
    kv_device *d = open_device();
    for (size_t i = 0; i < KVT_COUNT(texts); i++) {
        pair p = pair_new(texts[i], i == 2 ? "L=2,T=21,H=1,D=8,e=f16" : "L=2,T=21,H=2,D=8,e=f16", "");
        const kv_row want = row_within(d, &p, 0);
        for (int k = WRONG_NONE; k < WRONG_KINDS; k++) {
            wrong w = {.base = d, .kind = (wrong_kind)k, .block = 4, .ops = *d->ops};
            w.ops.build = wrong_build;
            w.ops.gather = wrong_gather;
            w.dev.ops = &w.ops;
            const kv_row got = row_within(&w.dev, &p, p.least);
            if (k == WRONG_NONE) {
                kvt_assert_same_row(&got, &want);
                continue;
            }
            kvt_assert_verdict(&got, KV_VERDICT_NOT_EXACT, texts[i]);
            assert_int_equal(got.observed[KV_OBS_FORWARD], k != WRONG_SOURCE);
            assert_int_equal(got.observed[KV_OBS_TOKENS], KV_FALSE);
        }
        kv_campaign_free(&p.c);
    }
    d->ops->close(d);
}

#endif

/* ---- how many, and how large ------------------------------------------------------------ */

static void windows__are_cut_where_all_blocks_begin(void **state)
{
    (void)state;
    pair p =
        pair_new("a int k=KV.Tb.Ti.H.D block=6; b int k=Tb.KV.Tg.H.Tx.D block=4 tx=2", "L=1,T=50,H=2,D=8,e=f16", "");
    const kv_geometry *g = &p.c.geometries[0];
    kv_windows w = p.w;
    kv_err err = {0};
    bool splits = false;
    assert_int_equal(w.count, 1);
    assert_int_equal(kv_windows_step(&w), 12);
    kvt_ok(kv_windows_cut(p.side, g, 24, &w, &splits, &err), &err);
    assert_true(splits);
    assert_int_equal(w.count, 3);
    assert_int_equal(kv_windows_first(&w, 2), 48);
    assert_ptr_equal(kv_windows_at(&w, 1), w.part);
    assert_ptr_equal(kv_windows_at(&w, 2), w.last);
    assert_int_equal(w.last[0].tokens, 2);
    assert_int_equal(w.last[0].native, 6 * 2 * 8 * 2);
    assert_int_equal(2 * w.part[1].native + w.last[1].native, w.whole[1].native);
    /* windows that do not begin where a block does mostly have more padding than the whole */
    int refused = 0;
    w = p.w;
    for (int64_t tokens = 1; tokens < 50; tokens++) {
        kvt_ok(kv_windows_cut(p.side, g, tokens, &w, &splits, &err), &err);
        if (tokens % 12 == 0) assert_true(splits);
        if (!splits) assert_int_equal(w.count, 1);
        refused += !splits;
        w = p.w;
    }
    if (refused < 30) fail_msg("%d of 45 refused", refused);
    kv_campaign_free(&p.c);
    p = pair_new("a int k=KV.Tb.Ti.H.D block=64; b sep k=T.H.D", "L=1,T=64,H=2,D=8,e=f16", "");
    assert_int_equal(kv_windows_step(&p.w), 0); /* one block */
    assert_int_equal(p.least, p.whole);
    kv_campaign_free(&p.c);
    p = pair_new("a int k=KV.Tb.Ti.H.D block=2147483647; b int k=Tb.KV.Ti.H.D block=2147483629",
                 "L=1,T=5,H=1,D=1,e=f16", "");
    assert_int_equal(kv_windows_step(&p.w), 0); /* the least common multiple is about 2^62 */
    kv_campaign_free(&p.c);
}

static void windows_fit__takes_the_fewest(void **state)
{
    (void)state;
    pair p = pair_new("a int k=KV.Tb.Ti.H.D block=16; b sep k=T.H.D", "L=1,T=1000,H=8,D=64,e=f16", "");
    const kv_geometry *g = &p.c.geometries[0];
    kv_err err = {0};
    kv_windows w = p.w;
    assert_int_equal(fit(&p, 0).count, 1); /* no limit */
    assert_int_equal(fit(&p, p.whole).count, 1);
    int64_t before = 1;
    for (int64_t limit = p.whole - 1; limit >= p.least; limit -= (p.whole - p.least) / 40 + 1) {
        const kv_windows got = fit(&p, limit);
        bool splits;
        assert_true(need_of(&got, g) <= limit && got.count >= before && got.tokens % 16 == 0);
        assert_true(got.count * got.tokens >= 1000 && (got.count - 1) * got.tokens < 1000);
        if (got.count > 2) { /* one less is too much */
            const int64_t fewer = ((1000 + got.count - 2) / (got.count - 1) + 15) / 16 * 16;
            kvt_ok(kv_windows_cut(p.side, g, fewer, &w, &splits, &err), &err);
            assert_true(splits && need_of(&w, g) > limit);
            w = p.w;
        }
        before = got.count;
    }
    assert_true(before > 20);
    assert_int_equal(fit(&p, p.least).tokens, 16);
    w = fit(&p, p.least); /* the last window has a set of differences of its own */
    const int64_t two_sets = need_of(&w, g), set = w.part[0].native / 8;
    w.count = 1;
    assert_int_equal(two_sets - need_of(&w, g), set);
    w = p.w;
    char needed[32], there[32];
    snprintf(needed, sizeof needed, "%" PRId64 " bytes", p.least);
    snprintf(there, sizeof there, "%" PRId64 " for", p.least - 1);
    kvt_refused(kv_windows_fit(p.side, g, p.least - 1, ON_GPU, &w, &err), KV_ENOMEM, &err, "too little",
                KVT_SAYS(needed, there, "windows", ON_GPU ? "GPU" : "host"));
    kv_campaign_free(&p.c);
}

/* ---- too little memory ------------------------------------------------------------------ */

static void cell_run__fails_with_both_numbers_where_no_window_fits(void **state)
{
    (void)state;
    kv_device *d = open_device();
    pair p = pair_new("a int k=KV.Tb.Ti.H.D block=16; b sep k=T.H.D", "L=1,T=100,H=2,D=8,e=f16", "");
    const kv_row want = row_within(d, &p, 0), got = row_within(d, &p, p.least - 1);
    char text[64];
    assert_int_equal(got.verdict, KV_VERDICT_FAILED);
    assert_int_equal(got.error_class, KV_ERRCLASS_MEMORY);
    snprintf(text, sizeof text, "%" PRId64 " bytes", p.least);
    assert_non_null(strstr(got.reason, text));
    const kv_row again = row_within(d, &p, p.least);
    kvt_assert_same_row(&again, &want);
    kv_campaign_free(&p.c);
    d->ops->close(d);
}

#ifdef KVT_EMULATED
/* Memory that ends in the middle of a cell, at every place: the row says so, nothing is lost, the next cell is right. */
static void device__goes_on_after_memory_ended_in_a_cell(void **state)
{
    (void)state;
    kv_device *d = open_device();
    pair p = pair_new("a int k=KV.Tb.Ti.H.D block=16; b sep k=T.H.D", "L=1,T=70,H=2,D=16,e=f16", "");
    const kv_row want = row_within(d, &p, p.least), whole = row_within(d, &p, 0);
    const long open = kv_emu_allocations();
    const int64_t images = 3 * kv_index_bytes(&p.w.whole[0]);
    int failed = 0;
    kvt_assert_same_row(&whole, &want);
    for (int i = 0; i < 7; i++)
        for (int windows = 0; windows < 2; windows++) {
            kv_runner r = {.dev = d, .memory_bytes = windows ? p.least : 0};
            kv_row row;
            kv_err err = {0};
            kv_emu_set_memory(base + images * i / 6 + (i == 6 ? p.whole : 0));
            kvt_ok(kv_cell_run(&r, &p.c, kvt_cell(&p.c, "a->b"), &row, &err), &err);
            kv_emu_set_memory(0);
            if (row.verdict == KV_VERDICT_FAILED) {
                failed++;
                assert_int_equal(row.error_class, KV_ERRCLASS_MEMORY);
                if (strstr(row.reason, "no room") == NULL) fail_msg("%s", row.reason);
            } else {
                kvt_assert_same_row(&row, &want);
            }
            assert_true(kv_emu_allocations() <= open); /* fewer where what was kept had to go */
            kv_runner_free(&r);
            const kv_row after = row_within(d, &p, 0);
            kvt_assert_same_row(&after, &want);
        }
    if (failed < 8 || failed > 12) fail_msg("%d failed", failed);
    kv_campaign_free(&p.c);
    d->ops->close(d);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows__give_the_row_of_the_whole),
        cmocka_unit_test(windows__give_the_rows_of_the_published_layouts),
#ifndef KVT_EMULATED
        cmocka_unit_test(windows__that_begin_a_block_off_are_seen),
#endif
        cmocka_unit_test(windows__are_cut_where_all_blocks_begin),
        cmocka_unit_test(windows_fit__takes_the_fewest),
        cmocka_unit_test(cell_run__fails_with_both_numbers_where_no_window_fits),
#ifdef KVT_EMULATED
        cmocka_unit_test(device__goes_on_after_memory_ended_in_a_cell),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
