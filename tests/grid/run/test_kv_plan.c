/* Plans: what cells need, known before anything runs. */
#include "grid/run/kv_plan.h"
#include "grid/campaign/kv_cells.h"
#include "mpi/kv_mpi_split.h"
#include "tests/kv_test_grid.h"

static kv_plan plan_of(const kv_campaign *c)
{
    kv_plan p;
    kv_err err = {0};
    kvt_ok(kv_plan_new(c, &p, &err), &err);
    return p;
}

static void plan_new__counts_the_published_campaign(void **state)
{
    (void)state;
    kv_campaign c = kvt_published_campaign();
    kv_plan p = plan_of(&c);
    assert_int_equal(p.cells, 64);
    assert_int_equal(p.refused, 6);
    assert_int_equal(p.largest_positions, 2048); /* trtllm and lmdeploy: blocks of 32 and 64 */
    assert_true(p.peak_cell >= 0 && p.peak_bytes >= 3 * 4096 && p.peak_bytes < 100000); /* the token leg has weights */
    uint64_t sum = 0;
    for (int64_t i = 0; i < p.cells; i++) {
        assert_true(p.costs[i] > 0);
        sum += p.costs[i];
    }
    assert_true((double)sum > 0.999 * p.cost_ns && (double)sum < 1.001 * p.cost_ns);
    kv_plan_free(&p);
    assert_null(p.costs);
    kv_campaign_free(&c);
}

/* A rank keeps the base run of the last seed only, and rows have the seed last. */
static void plan_new__keeps_the_cells_of_a_seed_together(void **state)
{
    (void)state;
    kv_catalogue none = {0};
    kv_campaign c = {0};
    kv_err err = {0};
    kv_mpi_order order = {0};
    json_t *spec = kvt_json("{'schema':'kvgrid.campaign/"
                            "v1','name':'n','attribution':{'recipes':['kv1','published-serving'],'seeds':[3,1,2],"
                            "'cells':['identity','kv','k','v'],'block':64,'passages':2,'evaluated':64},"
                            "'geometries':[{'layers':2,'tokens':128,'kv_heads':2,'head_dim':32,'element':'bf16'}]}");
    kvt_ok(kv_campaign_build(spec, &none, "file.json", &c, &err), &err);
    kv_plan p = plan_of(&c);
    kvt_ok(kv_mpi_order_new(p.cells, p.costs, &order, &err), &err);
    uint64_t last = 0;
    int changes = 0;
    for (int64_t i = 0; i < p.cells; i++) {
        const kv_study_point at = kv_cell_study_point(&c, &c.cells[kv_mpi_order_item(&order, i)]);
        changes += at.seed != last;
        last = at.seed;
    }
    assert_true(p.cells > 12);
    assert_int_equal(changes, 3);
    kv_mpi_order_free(&order);
    kv_plan_free(&p);
    kv_campaign_free(&c);
    json_decref(spec);
}

static void plan_share__gives_all_away_and_evenly(void **state)
{
    (void)state;
    uint64_t costs[1000];
    for (int i = 0; i < 1000; i++) costs[i] = 1000000 + (uint64_t)(i * 7919 % 1000) * 10000;
    const kv_plan p = {.cells = 1000, .costs = costs};
    static const int64_t many[] = {1, 2, 3, 64, 999, 1500};
    for (size_t k = 0; k < sizeof many / sizeof many[0]; k++) {
        kv_share *s = NULL;
        kv_err err = {0};
        kvt_ok(kv_plan_share_new(&p, many[k], &s, &err), &err);
        int64_t items = 0;
        for (int64_t r = 0; r < many[k]; r++) {
            assert_int_equal(s[r].rank, r);
            items += s[r].items;
        }
        const kv_share_sum sum = kv_plan_share_sum(s, many[k]);
        assert_int_equal(items, 1003); /* three items of controls */
        assert_int_equal(sum.idle, many[k] > 1003 ? many[k] - 1003 : 0);
        assert_true(sum.least_ns <= sum.all_ns / (double)many[k] && sum.most_ns >= sum.all_ns / (double)many[k]);
        if (many[k] <= 3) assert_true(sum.most_ns - sum.least_ns < 1.1e7); /* the smallest items come last */
        kv_free(s);
    }
}

static void cell_plan__says_what_the_cell_then_has(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    for (size_t i = 0; i < c.n_cells; i++) {
        kv_cell_need n;
        kv_err err = {0};
        kvt_ok(kv_cell_plan(&c, (int64_t)i, &n, &err), &err);
        const kv_row row = kvt_run(d, &c, (int64_t)i);
        assert_int_equal(n.runs, row.verdict != KV_VERDICT_REFUSED);
        assert_int_equal(n.positions[0], row.source_total);
        assert_int_equal(n.positions[1], row.total);
        assert_true(n.peak_bytes >= row.native_bytes[0] + row.native_bytes[1]);
    }
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* 32 layers x 8192 tokens x 8 heads x 128, f16: one layer of one side is 32 MiB; three images, whatever L is. */
static void plan_new__takes_three_images_of_one_layer(void **state)
{
    (void)state;
    kv_campaign c = kvt_campaign("a sep k=T.H.D; b sep k=H.T.D", "L=32,T=8192,H=8,D=128,e=f16", ""),
                one = kvt_campaign("a sep k=T.H.D; b sep k=H.T.D", "L=1,T=8192,H=8,D=128,e=f16", "");
    kv_plan p = plan_of(&c), q = plan_of(&one);
    const int64_t layer = INT64_C(2) * 8192 * 8 * 128;
    assert_int_equal(p.largest_positions, layer);
    assert_int_equal(p.peak_bytes, q.peak_bytes);
    assert_true(p.peak_bytes >= 3 * layer * 2 && p.peak_bytes < 3 * layer * 2 + layer);
    assert_true(p.cost_ns > 10 * q.cost_ns);
    kv_plan_free(&p);
    kv_plan_free(&q);
    kv_campaign_free(&c);
    kv_campaign_free(&one);
    c = kvt_campaign("a sep k=T.H.D; b sep k=L.H.T.D", "L=32,T=8192,H=8,D=128,e=f16",
                     ""); /* a layer axis: all layers at once */
    p = plan_of(&c);
    assert_int_equal(p.largest_positions, 32 * layer);
    kv_plan_free(&p);
    kv_campaign_free(&c);
}

/* Elements past 2^31 and 2^32 in one image, and bytes past 2^33. */
static void plan_new__is_right_past_2_to_the_32_positions(void **state)
{
    (void)state;
    kv_campaign c = kvt_campaign("a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=16; r sep k=T.H.D e=f32",
                                 "L=1,T=3000001,H=8,D=128,e=f16", "");
    kv_plan p = plan_of(&c);
    kv_cell_need n;
    const int64_t a = INT64_C(3000001) * 8 * 256, b = INT64_C(3000016) * 8 * 256;
    assert_true(a > INT64_C(1) << 32);
    kv_err err = {0};
    kvt_ok(kv_cell_plan(&c, kvt_cell(&c, "a->b"), &n, &err), &err);
    assert_true(n.positions[0] == a && n.positions[1] == b);
    assert_true(n.peak_bytes >= 2 * (a + 2 * b) && n.peak_bytes < 2 * (a + 2 * b) + b);
    assert_true(p.largest_positions == b);
    assert_int_equal(c.cells[p.peak_cell].src == 2 || c.cells[p.peak_cell].dst == 2,
                     true); /* the f32 side is the largest */
    kv_plan_free(&p);
    kv_campaign_free(&c);
}

static void plan_new__refuses_sizes_past_64_bits_by_layout_and_geometry(void **state)
{
    (void)state;
    kv_campaign c = kvt_campaign("a sep k=T.H.D; b sep k=H.T.D", "L=1,T=1099511627776,H=1048576,D=1048576,e=f32", "");
    kv_plan p;
    kv_err err = {0};
    kvt_refused(kv_plan_new(&c, &p, &err), KV_EINVAL, &err, "2^80", KVT_SAYS("layout a", "T=1099511627776", "64 bits"));
    kv_campaign_free(&c);
    /* one image fits, three do not */
    c = kvt_campaign("a sep k=T.H.D; b sep k=H.T.D", "L=1,T=1099511627776,H=524288,D=1,e=f32", "");
    kvt_refused(kv_plan_new(&c, &p, &err), KV_EINVAL, &err, "3 x 2^62", KVT_SAYS("64 bits"));
    kv_campaign_free(&c);
}

static void plan_check_memory__compares_with_the_host(void **state)
{
    (void)state;
    kv_campaign c = kvt_published_campaign(),
                large = kvt_campaign("a sep k=T.H.D; b sep k=H.T.D", "L=1,T=1000000000,H=8,D=128,e=f16", "");
    kv_plan p = plan_of(&c), q = plan_of(&large);
    kv_err err = {0};
    kv_memory m = {.host = {1 << 30, 1 << 30}, .host_ranks = 4, .gpu_ranks = 1};
    kvt_ok(kv_plan_check_memory(&c, &p, &m, &err), &err);
    m.host_ranks = 2;
    /* a dense layer of 4,096,000,000,000 bytes is what is least */
    kvt_refused(kv_plan_check_memory(&large, &q, &m, &err), KV_ENOMEM, &err, "4 TB",
                KVT_SAYS("->", "T=1000000000", "2 ranks", "1073741824", " 4"));
    /* in one piece it does not fit, in windows it does: and by how much is told */
    m.host.total_bytes = m.host.available_bytes = 2 * q.least.bytes;
    assert_true(q.least.bytes < q.peak_bytes / 2 && q.least.bytes > INT64_C(4096000000000));
    kvt_ok(kv_plan_check_memory(&large, &q, &m, &err), &err);
    assert_int_equal(kv_plan_cell_memory(&q, &m), q.least.bytes);
    m.host.total_bytes--;
    kvt_refused(kv_plan_check_memory(&large, &q, &m, &err), KV_ENOMEM, &err, "a byte less", KVT_SAYS("2 ranks"));
    /* a GPU's memory counts, not the host's */
    const kv_memory gpu = {.host = {4096, 4096},
                           .host_ranks = 1000000000,
                           .gpu = {.name = "card", .uuid = "GPU-1"},
                           .gpu_bytes = 1 << 20,
                           .gpu_ranks = 3};
    kvt_ok(kv_plan_check_memory(&c, &p, &gpu, &err), &err);
    assert_int_equal(kv_plan_cell_memory(&p, &gpu), 3 << 18);
    kvt_refused(kv_plan_check_memory(&large, &q, &gpu, &err), KV_ENOMEM, &err, "a small card",
                KVT_SAYS("->", "T=1000000000", "GPU-1", "card", "1048576", "shares"));
    kv_plan_free(&p);
    kv_plan_free(&q);
    kv_campaign_free(&c);
    kv_campaign_free(&large);
    c = kvt_campaign("a sep k=T.H.D; b int k=KV.T.H.D mla", "L=1,T=4,H=2,D=8,e=f16", ""); /* nothing runs */
    p = plan_of(&c);
    assert_int_equal(p.peak_cell, -1);
    assert_int_equal(p.refused, 2);
    assert_int_equal(p.least.cell, -1);
    kvt_ok(kv_plan_check_memory(&c, &p, &m, &err), &err);
    kv_plan_free(&p);
    kv_campaign_free(&c);
}

static void plan_split__tells_the_cell_that_is_cut_most(void **state)
{
    (void)state;
    kv_campaign c =
        kvt_campaign("a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=16; r sep k=L.T.H.D", "L=4,T=4096,H=8,D=64,e=f16", "");
    kv_plan p = plan_of(&c);
    kv_plan_split s;
    kv_err err = {0};
    kvt_ok(kv_plan_split_of(&c, &p, 0, &s, &err), &err);
    assert_int_equal(s.cells, 0);
    kvt_ok(kv_plan_split_of(&c, &p, p.peak_bytes, &s, &err), &err);
    assert_true(s.cells == 0 && s.cell == -1);
    kvt_ok(kv_plan_split_of(&c, &p, p.peak_bytes / 2, &s, &err), &err);
    assert_int_equal(s.cells, 4); /* those with a layer axis */
    assert_true(s.cell >= 0 && (c.cells[s.cell].src == 2 || c.cells[s.cell].dst == 2));
    assert_true(s.most.windows == 2 || s.most.windows == 3);
    kvt_ok(kv_plan_split_of(&c, &p, p.least.bytes, &s, &err), &err);
    assert_int_equal(s.cells, 6);
    assert_true(s.most.windows > 100);
    kvt_refused(kv_plan_split_of(&c, &p, p.least.bytes / 2, &s, &err), KV_ENOMEM, &err, "too little",
                KVT_SAYS("bytes"));
    kv_plan_free(&p);
    kv_campaign_free(&c);
}

static void plan_new__survives_every_failed_allocation(void **state)
{
    (void)state;
    kv_campaign c = kvt_published_campaign();
    for (long n = 0;; n++) {
        kv_plan p;
        kv_alloc_fail_after(n);
        const kv_rc rc = kv_plan_new(&c, &p, NULL);
        kv_alloc_fail_after(-1);
        if (rc == KV_OK) {
            kv_plan_free(&p);
            break;
        }
        assert_int_equal(rc, KV_ENOMEM);
        assert_true(n < 100);
    }
    kv_campaign_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_new__counts_the_published_campaign),
        cmocka_unit_test(plan_new__keeps_the_cells_of_a_seed_together),
        cmocka_unit_test(plan_share__gives_all_away_and_evenly),
        cmocka_unit_test(cell_plan__says_what_the_cell_then_has),
        cmocka_unit_test(plan_new__takes_three_images_of_one_layer),
        cmocka_unit_test(plan_new__is_right_past_2_to_the_32_positions),
        cmocka_unit_test(plan_new__refuses_sizes_past_64_bits_by_layout_and_geometry),
        cmocka_unit_test(plan_check_memory__compares_with_the_host),
        cmocka_unit_test(plan_split__tells_the_cell_that_is_cut_most),
        cmocka_unit_test(plan_new__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
