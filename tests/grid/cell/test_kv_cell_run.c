/* Cells: right grades for right translators, counts, special geometries, FAILED where memory is out. */
#include "grid/cell/kv_cell_run.h"
#include "tests/kv_test_grid.h"

/* ---- the published campaign ------------------------------------------------------------------------- */

static void cell_run__gives_the_published_totals(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    kv_runner r = {.dev = d};
    int64_t count[KV_VERDICT_COUNT] = {0}, positions = 0, source = 0;
    for (size_t i = 0; i < c.n_cells; i++) {
        kv_row row;
        kv_err err = {0};
        kvt_ok(kv_cell_run(&r, &c, (int64_t)i, &row, &err), &err);
        count[row.verdict]++;
        positions += row.checked;
        source += row.source_checked;
        const kv_row alone = kvt_run(d, &c, (int64_t)i); /* a fresh runner finds the same */
        kvt_assert_same_row(&row, &alone);
    }
    assert_int_equal(c.n_cells, 64);
    assert_int_equal(count[KV_VERDICT_EXACT_BYTE], 21);
    assert_int_equal(count[KV_VERDICT_EXACT_TOKEN], 35);
    assert_int_equal(count[KV_VERDICT_NOT_EXACT], 2);
    assert_int_equal(count[KV_VERDICT_REFUSED], 6);
    assert_int_equal(positions, 90880);
    assert_int_equal(source, 90880);
    kv_runner_free(&r);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* ---- special cells -------------------------------------------------------------------------------------- */

static void cell_run__grades_by_the_tail_model(void **state)
{
    (void)state;
    static const struct {
        const char *pair;
        const char *tail;
        kv_verdict want;
        int64_t diff;
    } cases[] = {{"fa->th", "stale", KV_VERDICT_EXACT_TOKEN, 768}, {"fa->th", "zero", KV_VERDICT_EXACT_BYTE, 0},
                 {"fa->th", "nan", KV_VERDICT_EXACT_TOKEN, 768},   {"th->fa", "stale", KV_VERDICT_EXACT_BYTE, 0},
                 {"th->fa", "zero", KV_VERDICT_EXACT_BYTE, 0},     {"th->fa", "nan", KV_VERDICT_EXACT_BYTE, 0}};
    static const char *const elements[] = {"f16", "bf16", "f32", "fp8_e4m3"};
    kv_device *d = kvt_cpu();
    for (size_t i = 0; i < KVT_COUNT(cases); i++)
        for (size_t e = 0; e < KVT_COUNT(elements); e++) {
            char geometry[64], more[64];
            snprintf(geometry, sizeof geometry, "L=3,T=40,H=2,D=8,e=%s", elements[e]);
            snprintf(more, sizeof more, "'tail':'%s'", cases[i].tail);
            kv_campaign c = kvt_campaign("fa int k=KV.Tb.Ti.H.D block=16; th sep k=T.H.D", geometry, more);
            const kv_row row = kvt_run_pair(d, &c, cases[i].pair);
            kvt_assert_verdict(&row, cases[i].want, more);
            assert_int_equal(row.diff_positions, cases[i].diff);
            assert_int_equal(row.unread_padding, cases[i].pair[0] == 'f' ? 768 : 0);
            assert_int_equal(row.observed[KV_OBS_DIFF_IS_PADDING], KV_TRUE);
            kv_campaign_free(&c);
        }
    d->ops->close(d);
}

static void cell_run__of_an_empty_geometry_is_exact_and_empty(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("a int k=KV.Tb.Ti.H.D block=16; b sep k=T.H.D e=fp8_e4m3; e sep k=L.H.T.D; f sep "
                                 "k=Tb.H.D.Ti block=4 page_stride_bytes=640",
                                 "L=2,T=0,H=2,D=8,e=f16", "");
    for (size_t i = 0; i < c.n_cells; i++) {
        const kv_row row = kvt_run(d, &c, (int64_t)i);
        kvt_assert_verdict(&row, KV_VERDICT_EXACT_BYTE, "T = 0");
        assert_int_equal(row.checked + row.source_checked + row.total + row.native_bytes[0] + row.native_bytes[1], 0);
        assert_int_equal(row.same_image, !row.converts);
        assert_int_equal(row.source_bijective && row.dest_bijective, true);
    }
    kv_campaign_free(&c);
    d->ops->close(d);
}

static void cell_run__takes_all_layers_where_a_side_keeps_them(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c =
        kvt_campaign("flat sep k=T.H.D; layered int k=Tb.L.KV.Ti.H.D block=16; paged int k=KV.Tb.Ti.H.D block=16",
                     "L=3,T=40,H=2,D=8,e=f16", "");
    const kv_row a = kvt_run_pair(d, &c, "flat->layered"), b = kvt_run_pair(d, &c, "layered->flat"),
                 p = kvt_run_pair(d, &c, "paged->layered");
    kvt_assert_verdict(&a, KV_VERDICT_EXACT_BYTE, "flat->layered");
    kvt_assert_verdict(&b, KV_VERDICT_EXACT_TOKEN, "layered->flat");
    kvt_assert_verdict(&p, KV_VERDICT_EXACT_TOKEN, "paged->layered");
    assert_int_equal(a.unit_layers, 3);
    assert_int_equal(a.checked, 3 * 1536);
    assert_int_equal(a.source_checked, 3 * 1280);
    assert_int_equal(a.native_bytes[0], 3 * 2560);
    assert_int_equal(b.unread_padding, 768);
    assert_int_equal(b.diff_positions, 768);
    const kv_row one = kvt_run_pair(d, &c, "flat->paged"); /* per layer: the same tokens and digest */
    assert_int_equal(one.unit_layers, 1);
    assert_string_equal(one.logits_digest, a.logits_digest);
    assert_memory_equal(one.decoded, a.decoded, sizeof a.decoded);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* At H = 1 a latent row and a head have the same numbers, but not the same decode: a runner that goes from one to
 * the other must not take one for the other. */
static void cell_run__keeps_the_references_of_latent_rows_apart(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("a lat k=T.C; b lat k=Tb.Ti.C block=16; c sep k=T.H.D; d sep k=H.T.D",
                                 "L=2,T=20,H=1,D=8,e=f16", "'pairs':[['a','b'],['b','a'],['c','d'],['d','c']]");
    kv_runner r = {.dev = d};
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < c.n_cells; i++) {
            kv_row row;
            char id[KV_PAIR_ID_TEXT];
            kv_err err = {0};
            const size_t cell = turn == 0 ? i : c.n_cells - 1 - i;
            kvt_ok(kv_cell_run(&r, &c, (int64_t)cell, &row, &err), &err);
            kv_cell_pair_id(&c, &c.cells[cell], id);
            kvt_assert_verdict(&row, strcmp(id, "b->a") == 0 ? KV_VERDICT_EXACT_TOKEN : KV_VERDICT_EXACT_BYTE, id);
        }
    kv_runner_free(&r);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* d1, d3, d5, d6 and a view. */
static void cell_run__grades_the_reported_cases(void **state)
{
    (void)state;
    static const struct {
        const char *what, *layouts, *geometry, *pair;
        kv_verdict want;
        int same_image;
    } cases[] = {
        {"d1", "a int k=Tb.KV.H.Ti.D block=4 tp=1/4; b int k=Tb.KV.H.Ti.D block=4 tp=2/8", "L=1,T=8,H=4,D=8,e=bf16",
         "a->b", KV_VERDICT_EXACT_BYTE, 1},
        {"d1", "a int k=Tb.KV.H.Ti.D block=4 tp=1/4; b int k=Tb.KV.H.Ti.D block=4 tp=3/8", "L=1,T=8,H=4,D=8,e=bf16",
         "b->a", KV_VERDICT_EXACT_BYTE, 1},
        {"d1", "a int k=Tb.KV.H.Ti.D block=4 tp=0/2; b int k=Tb.KV.H.Ti.D block=4 tp=0/8", "L=1,T=8,H=8,D=8,e=bf16",
         "a->b", KV_VERDICT_REFUSED, 0},
        {"d3", "a int k=Tb.Ti.H.KV.D block=4; b int k=Tb.Ti.KV.H.D block=4", "L=1,T=12,H=2,D=4,e=f16", "a->b",
         KV_VERDICT_EXACT_BYTE, 0},
        {"d5", "a sep k=T.H.D; b sep k=H.T.D", "L=1,T=9,H=2,D=6,Dv=4,e=f16", "a->b", KV_VERDICT_EXACT_BYTE, 0},
        {"d5", "a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=4", "L=1,T=9,H=2,D=6,Dv=4,e=f16", "a->b", KV_VERDICT_REFUSED,
         0},
        {"d6", "a sep k=T.H.D; b sep k=T.H.D e=f16", "L=1,T=9,H=2,D=8,e=bf16", "a->b", KV_VERDICT_NOT_EXACT, 0},
        {"d6 back", "a sep k=T.H.D; b sep k=T.H.D e=f16", "L=1,T=9,H=2,D=8,e=bf16", "b->a", KV_VERDICT_NOT_EXACT, 0},
        {"d6 empty", "a sep k=T.H.D; b sep k=T.H.D e=f16", "L=1,T=0,H=2,D=8,e=bf16", "a->b", KV_VERDICT_EXACT_BYTE, 0},
        {"view", "a sep k=T.H.D; b sep k=T.H.D", "L=1,T=9,H=2,D=8,e=bf16", "a->b", KV_VERDICT_EXACT_BYTE, 1},
        {"H=1 shard", "a int k=KV.Tb.Ti.H.D block=16; b int k=KV.Tb.Ti.H.D block=16 tp=0/2", "L=1,T=16,H=1,D=8,e=f16",
         "a->b", KV_VERDICT_EXACT_BYTE, 1},
    };
    kv_device *d = kvt_cpu();
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        kv_campaign c = kvt_campaign(cases[i].layouts, cases[i].geometry, "");
        const kv_row row = kvt_run_pair(d, &c, cases[i].pair);
        kvt_assert_verdict(&row, cases[i].want, cases[i].what);
        if (row.same_image != cases[i].same_image) fail_msg("%s: same_image %d", cases[i].what, row.same_image);
        if (cases[i].what[1] == '6' && row.total > 0) {
            assert_true(row.converts && row.values_preserved && row.finite &&
                        row.worst_ppm == 0); /* by value, in [0.5, 2) */
        }
        if (row.verdict == KV_VERDICT_REFUSED && cases[i].what[1] == '5')
            assert_true(strstr(row.reason, "6") != NULL && strstr(row.reason, "4") != NULL);
        kv_campaign_free(&c);
    }
    d->ops->close(d);
}

/* Random pairs of the general form: all exact, with counts that the enumeration gives. */
static void cell_run__finds_random_pairs_exact(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    uint64_t r = 71;
    int padded = 0;
    for (int i = 0; i < 600; i++) {
        const kv_store store = (kv_store)(i % 3), other = store == KV_STORE_LATENT ? store : (kv_store)kvt_below(&r, 2);
        kv_geometry g =
            kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE || other != KV_STORE_SEPARATE);
        kvt_desc a = kvt_random_desc_same(&r, &g, store), b = kvt_random_desc_same(&r, &g, other);
        if (store != KV_STORE_LATENT && kvt_one_in(&r, 3)) kvt_shard(&r, &g, &a, &b);
        char texts[2 * KVT_TEXT], one[KVT_TEXT], geometry[KV_GEOMETRY_TEXT];
        kvt_desc_text(&a, "a", one);
        int n = snprintf(texts, sizeof texts, "%s; ", one);
        kvt_desc_text(&b, "b", one);
        snprintf(texts + n, sizeof texts - (size_t)n, "%s", one);
        kv_geometry_print(&g, geometry);
        kv_campaign c = kvt_campaign(texts, geometry, kvt_one_in(&r, 2) ? "'tail':'nan','seed':77" : "");
        const kv_row row = kvt_run_pair(d, &c, "a->b");
        const int64_t unit = kv_pair_unit_layers(c.catalogue.item[0], c.catalogue.item[1], &g);
        kvt_map ma = kvt_map_new(c.catalogue.item[0], &g, unit), mb = kvt_map_new(c.catalogue.item[1], &g, unit);
        const int64_t unread = (ma.n - ma.elements) * (g.layers / unit);
        if (row.verdict != (int32_t)(unread > 0 ? KV_VERDICT_EXACT_TOKEN : KV_VERDICT_EXACT_BYTE))
            fail_msg("%s at %s: %s", texts, geometry, kv_verdict_name((kv_verdict)row.verdict));
        assert_int_equal(row.source_total, ma.n);
        assert_int_equal(row.total, mb.n);
        assert_int_equal(row.source_padding, ma.n - ma.elements);
        assert_int_equal(row.dest_padding, mb.n - mb.elements);
        assert_int_equal(row.unread_padding, unread);
        assert_int_equal(row.diff_positions, unread);
        padded += unread > 0;
        kvt_map_free(&ma);
        kvt_map_free(&mb);
        kv_campaign_free(&c);
    }
    assert_true(padded > 200);
    d->ops->close(d);
}

/* ---- failures -------------------------------------------------------------------------------------------- */

static void cell_run__is_failed_of_class_memory_at_every_allocation(void **state)
{
    (void)state;
    static const char *const pairs[] = {"vllm-fa->sglang", "llamacpp->vllm-paged-x", "vllm-fa->vllm-fp8"};
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    for (size_t i = 0; i < KVT_COUNT(pairs); i++) {
        const int64_t cell = kvt_cell(&c, pairs[i]);
        const kv_row want = kvt_run(d, &c, cell);
        kv_runner r = {.dev = d}; /* goes on after each failure */
        for (long n = 0;; n++) {
            kv_row row;
            kv_err err = {0};
            kv_alloc_fail_after(n);
            const kv_rc rc = kv_cell_run(&r, &c, cell, &row, &err);
            kv_alloc_fail_after(-1);
            kvt_ok(rc, &err);
            if (row.verdict != KV_VERDICT_FAILED) {
                kvt_assert_same_row(&row, &want);
                assert_true(n > 8);
                break;
            }
            assert_int_equal(row.error_class, KV_ERRCLASS_MEMORY);
            assert_int_equal(row.words, want.words);
            assert_int_equal(row.ran, false);
            if (strstr(row.reason, "memory") == NULL) fail_msg("allocation %ld: %s", n, row.reason);
            for (int o = 0; o < KV_OBS_COUNT; o++) assert_int_equal(row.observed[o], KV_NULL);
            assert_true(n < 2000);
        }
        kv_runner_free(&r);
    }
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* Both sides in a type that is not the geometry's: the move itself is a plain copy of values. */
static void cell_run__moves_between_two_sides_of_another_type(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("a sep k=T.H.D e=fp8_e4m3; b sep k=H.T.D e=fp8_e4m3", "L=2,T=20,H=2,D=8,e=f16", "");
    const kv_row row = kvt_run_pair(d, &c, "a->b");
    assert_int_equal(row.converts, false);
    assert_int_equal(row.gather_agrees, true);
    assert_int_equal(row.observed[KV_OBS_FORWARD], KV_TRUE);
    assert_int_equal(row.observed[KV_OBS_IDENTICAL], KV_TRUE);
    kv_campaign_free(&c);
    d->ops->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cell_run__gives_the_published_totals),
        cmocka_unit_test(cell_run__grades_by_the_tail_model),
        cmocka_unit_test(cell_run__of_an_empty_geometry_is_exact_and_empty),
        cmocka_unit_test(cell_run__takes_all_layers_where_a_side_keeps_them),
        cmocka_unit_test(cell_run__keeps_the_references_of_latent_rows_apart),
        cmocka_unit_test(cell_run__grades_the_reported_cases),
        cmocka_unit_test(cell_run__finds_random_pairs_exact),
        cmocka_unit_test(cell_run__is_failed_of_class_memory_at_every_allocation),
        cmocka_unit_test(cell_run__moves_between_two_sides_of_another_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
