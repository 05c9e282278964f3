/* Pipeline stages, alone and with TP: layers by their ids, between stages of different numbers and sizes. */
#include "tests/kv_test_images.h"
#include "tests/tp/kv_tp_test.h"
#include "tp/kv_tp_shard_index.h"

static kvt_tp_move m;

static const kv_tp_result *moved(void)
{
    static kvt_tp_rank rank[KV_TP_RANKS_MAX];
    const int64_t a = (int64_t)m.spec.n_stages[0] * m.spec.tp[0], b = (int64_t)m.spec.n_stages[1] * m.spec.tp[1];
    const int32_t n = (int32_t)(a > b ? a : b);
    kvt_tp_group(n, 60, rank, kvt_tp_move_rank, &m);
    for (int32_t r = 0; r < n; r++)
        if (rank[r].rc != KV_OK) fail_msg("rank %d: %s: %s", r, kv_rc_name(rank[r].rc), rank[r].err.text);
    for (int32_t r = 1; r < n; r++) assert_memory_equal(&m.result[r], &m.result[0], sizeof m.result[0]);
    return &m.result[0];
}

/* Stage that holds a layer on a side. */
static int64_t stage_of(int side, int64_t layer)
{
    for (size_t s = 0; s < m.spec.n_stages[side]; s++)
        for (size_t i = 0; i < m.spec.stage[side][s].n; i++)
            if (m.spec.stage[side][s].layer[i] == layer) return (int64_t)s;
    fail_msg("no stage holds layer %d", (int)layer);
    return -1;
}

/* Whether a rank holds a head of a layer on a side. */
static bool holds(int side, int64_t rank, int64_t layer, int64_t head)
{
    const kv_tp_spec *s = &m.spec;
    return kv_tp_shard_holds(s->g->kv_heads, s->tp[side], rank - stage_of(side, layer) * s->tp[side], head) != 0;
}

static void check(const kv_tp_result *r)
{
    const kv_tp_spec *s = &m.spec;
    const int64_t row = s->g->tokens * (s->g->head_dim + s->g->head_dim_v) * kv_elem_bytes(s->g->element);
    assert_true(r->observed[KV_TP_FORWARD] == KV_TP_TRUE && r->observed[KV_TP_TOKENS] == KV_TP_TRUE);
    assert_int_equal(r->observed[KV_TP_DIFF_IS_PADDING], KV_TP_TRUE);
    assert_true(r->gather_agrees && r->minimal && r->bijective[0] && r->bijective[1]);
    assert_int_equal(r->diff_positions, r->unread_padding);
    assert_memory_equal(r->decoded, r->reference, sizeof r->decoded);
    assert_memory_equal(r->logits_digest, r->reference_digest, sizeof r->logits_digest);
    for (int i = 0; i < 2; i++) assert_int_equal(r->checked[i], r->total[i]);
    for (int back = 0; back < 2; back++)
        for (int64_t to = 0; to < r->ranks; to++) {
            int64_t lacks = 0;
            for (int64_t l = 0; l < s->g->layers; l++)
                for (int64_t h = 0; h < s->g->kv_heads; h++)
                    lacks += holds(1 - back, to, l, h) && !holds(back, to, l, h);
            assert_int_equal(r->received[back][to], lacks * row);
            assert_int_equal(r->least[back][to], lacks * row);
        }
}

static const int64_t ids[] = {0, 1, 2, 3, 4, 5}, a1[] = {5, 3, 4}, b0[] = {1, 0}, b1[] = {3, 2}, b2[] = {4, 5},
                     odd[] = {5, 1, 3}, even[] = {4, 0, 2}, few[] = {5, 3};

static void stages__by_layer_id(void **state)
{
    (void)state;
    kv_layout *a = kvt_layout("a int k=KV.Tb.Ti.H.D v=KV.Tb.Ti.H.D block=4"), *b = kvt_layout("b sep k=H.T.D v=H.D.T");
    const kv_geometry g = kvt_geometry("L=6,T=9,H=2,D=6,e=f16");
    const kv_tp_stage src[] = {{ids, 3}, {a1, 3}}, dst[] = {{b0, 2}, {b1, 2}, {b2, 2}};
    m.spec = kvt_tp_spec(a, 1, b, 1, &g);
    m.spec.stage[0] = src;
    m.spec.stage[1] = dst;
    m.spec.n_stages[0] = 2;
    m.spec.n_stages[1] = 3;
    const kv_tp_result *r = moved();
    check(r);
    assert_int_equal(r->moved, 3); /* layers 2, 4 and 5 change stage */
    assert_int_equal(r->sent_total[0], 3 * 9 * 2 * 12 * 2);
    assert_int_equal(r->ranks, 3);
    kv_layout_free(a);
    kv_layout_free(b);
}

static void stages__with_tensor_parallel_shards(void **state)
{
    (void)state;
    kv_layout *a = kvt_layout("a int k=Tb.KV.H.Ti.D v=Tb.KV.H.Ti.D block=4"), *b = kvt_layout("b sep k=T.H.D v=H.D.T");
    const kv_tp_stage one[] = {{ids, 6}}, two[] = {{ids, 3}, {a1, 3}}, three[] = {{b0, 2}, {b1, 2}, {b2, 2}},
                      turn[] = {{odd, 3}, {even, 3}};
    const struct {
        const kv_tp_stage *stage;
        size_t n;
    } splits[] = {{one, 1}, {two, 2}, {three, 3}, {turn, 2}};
    static const int64_t sizes[][2] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {4, 1}, {2, 4}};
    int cells = 0;
    for (size_t i = 0; i < KVT_COUNT(sizes); i++)
        for (size_t x = 0; x < 16; x++, cells++) {
            const kv_geometry g = kvt_geometry(cells % 2 == 0 ? "L=6,T=5,H=2,D=4,e=f16" : "L=6,T=5,H=4,D=4,e=bf16");
            m.spec = kvt_tp_spec(cells % 3 == 0 ? b : a, sizes[i][0], cells % 5 == 0 ? a : b, sizes[i][1], &g);
            m.spec.stage[0] = splits[x / 4].stage;
            m.spec.n_stages[0] = splits[x / 4].n;
            m.spec.stage[1] = splits[x % 4].stage;
            m.spec.n_stages[1] = splits[x % 4].n;
            check(moved());
        }
    kv_layout_free(a);
    kv_layout_free(b);
}

/* One bit of a layer that arrived in another stage; copies that differ in the second stage. */
static void deny(void *ctx, kv_tp_point point, void *data)
{
    kvt_tp_at *at = ctx;
    const uint64_t which = at->move->spec.seed;
    if (which == 1 && point == KV_TP_AT_ARRIVED && at->rank == 1 && at->arrived++ == 0)
        ((unsigned char *)kv_image_host_view(data))[8] ^= 2;
    if (which == 2 && point == KV_TP_AT_HEADERS && at->rank == 0) {
        kv_tp_header *h = data;
        for (int r = 0; r < at->t->size; r++) {
            if (h[r].magic == 0) continue;
            h[r].layer ^= 1; /* as if layers were paired by their places */
            kv_tp_header_seal(&h[r]);
        }
    }
}

static void stages__can_fail(void **state)
{
    (void)state;
    static kvt_tp_rank rank[2];
    kv_layout *l = kvt_layout("a sep k=T.H.D v=T.H.D");
    const kv_geometry g = kvt_geometry("L=2,T=3,H=1,D=4,e=f16");
    const kv_tp_stage one[] = {{ids, 2}}, two[] = {{b0, 1}, {ids, 1}};
    m.spec = kvt_tp_spec(l, 1, l, 1, &g);
    m.spec.stage[0] = one;
    m.spec.stage[1] = two;
    m.spec.n_stages[0] = 1;
    m.spec.n_stages[1] = 2;
    m.hook = deny;
    m.spec.seed = 1;
    const kv_tp_result *r = moved();
    assert_int_equal(r->observed[KV_TP_FORWARD], KV_TP_FALSE);
    assert_int_equal(r->diff_positions, 1);
    m.spec.seed = 2;
    kvt_tp_group(2, 60, rank, kvt_tp_move_rank, &m);
    for (int i = 0; i < 2; i++) kvt_refused(rank[i].rc, KV_EFORMAT, &rank[i].err, "layers", KVT_SAYS("layer"));
    m.hook = NULL;
    kv_layout_free(l);
}

static void stages__that_do_not_fit(void **state)
{
    (void)state;
    kv_layout *a = kvt_layout("a sep k=T.H.D v=T.H.D"), *deep = kvt_layout("deep sep k=L.T.H.D v=L.T.H.D");
    const kv_geometry g = kvt_geometry("L=6,T=9,H=2,D=6,e=f16");
    const kv_tp_stage src[] = {{ids, 3}, {a1, 3}}, gap[] = {{ids, 3}, {few, 2}};
    kv_tp_result r;
    kv_err err = {0};
    kv_tp_spec s = kvt_tp_spec(a, 1, a, 1, &g);
    s.stage[0] = gap;
    s.stage[1] = src;
    s.n_stages[0] = s.n_stages[1] = 2;
    kvt_ok(kv_tp_examine(&s, &r, &err), &err);
    assert_true(r.refused && r.frontier == (int32_t)KV_X4_GEOMETRY_UNREPRESENTABLE);
    assert_non_null(strstr(r.reason, "layer 4 is missing: destination stage 1 wants it"));
    s.stage[0] = src;
    s.layout[1] = deep;
    kvt_refused(kv_tp_examine(&s, &r, &err), KV_EINVAL, &err, "deep", KVT_SAYS("keeps its layers in one array"));
    s.layout[1] = a;
    s.tp[0] = 33;
    kvt_refused(kv_tp_examine(&s, &r, &err), KV_EINVAL, &err, "ranks", KVT_SAYS("2 stages of 33 ranks"));
    s.tp[0] = 1;
    s.stage[0] = NULL;
    kvt_refused(kv_tp_examine(&s, &r, &err), KV_EINVAL, &err, "one side", KVT_SAYS("the other has not"));
    kv_layout_free(a);
    kv_layout_free(deep);
}

static void stages__survive_every_allocation_failure(void **state)
{
    (void)state;
    kv_layout *l = kvt_layout("a sep k=T.H.D v=T.H.D"), *b = kvt_layout("b sep k=Tb.H.Ti.D v=Tb.H.Ti.D block=4");
    const kv_geometry g = kvt_geometry("L=2,T=5,H=2,D=6,e=f16");
    const kv_tp_stage up[] = {{ids, 2}}, down[] = {{b0, 2}};
    kv_device *dev = kvt_cpu();
    kv_tp_spec s = kvt_tp_spec(l, 1, b, 1, &g);
    s.device = dev;
    s.stage[0] = up;
    s.stage[1] = down;
    s.n_stages[0] = s.n_stages[1] = 1;
    for (long n = 0;; n++) {
        kv_tp_result r;
        kv_err err = {0};
        kv_tp_hub *hub = NULL;
        kvt_ok(kv_tp_hub_new(1, &hub, &err), &err);
        kvt_ok(kv_tp_local_new(hub, 0, 5, &s.transport, &err), &err);
        kv_alloc_fail_after(n);
        const kv_rc rc = kv_tp_move(&s, &r, &err);
        kv_alloc_fail_after(-1);
        kv_tp_close(s.transport);
        kv_tp_hub_free(hub);
        if (rc == KV_OK) {
            assert_true(n > 20 && r.observed[KV_TP_FORWARD] == KV_TP_TRUE && r.sent_total[0] == 0);
            break;
        }
        assert_int_equal(rc, KV_ENOMEM);
    }
    dev->ops->close(dev);
    kv_layout_free(l);
    kv_layout_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages__by_layer_id),
        cmocka_unit_test(stages__with_tensor_parallel_shards),
        cmocka_unit_test(stages__can_fail),
        cmocka_unit_test(stages__that_do_not_fit),
        cmocka_unit_test(stages__survive_every_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
