/* The index algebra: offsets worked out by hand, and its laws over every position of many images,
 * against an enumeration of the positions in storage order (tests/kv_test_layouts.h). */
#include "tests/kv_test.h"
#include "tests/kv_test_layouts.h"

/* ---- offsets by hand ------------------------------------------------------------------------ */

typedef struct {
    const char *layout;
    int64_t kv, token, head, lane, position;
} by_hand;

/* T = 40, H = 2, D = 8, one layer. The sums are written as (digit * stride) + ... in storage order. */
static const by_hand published[] = {
    {"vllm-fa", 0, 0, 0, 0, 0},
    {"vllm-fa", 0, 17, 1, 5, 1 * 256 + 1 * 16 + 1 * 8 + 5},
    {"vllm-fa", 1, 39, 1, 7, 1 * 768 + 2 * 256 + 7 * 16 + 1 * 8 + 7},
    {"vllm-paged-x", 0, 17, 1, 5, 1 * 256 + 1 * 128 + 1 * 64 + 1 * 4 + 1},
    {"vllm-paged-x", 0, 16, 0, 3, 256 + 3},
    {"vllm-paged-x", 1, 0, 0, 1, 768 + 16},
    {"vllm-paged-x", 1, 39, 1, 7, 768 + 2 * 256 + 1 * 128 + 7 * 16 + 7},
    {"trtllm", 0, 17, 1, 5, 0 * 1024 + 0 * 512 + 1 * 256 + 17 * 8 + 5},
    {"trtllm", 1, 39, 1, 7, 1 * 1024 + 1 * 512 + 1 * 256 + 7 * 8 + 7},
    {"sglang", 0, 17, 1, 5, 17 * 16 + 8 + 5},
    {"sglang", 1, 39, 1, 7, 640 + 39 * 16 + 8 + 7},
    {"hf-dynamic-cache", 0, 17, 1, 5, 320 + 17 * 8 + 5},
    {"hf-dynamic-cache", 1, 1, 0, 0, 640 + 8},
    {"llamacpp", 0, 17, 1, 5, 17 * 16 + 8 + 5},
    {"llamacpp", 1, 17, 1, 5, 640 + 320 + 5 * 40 + 17},
    {"flashinfer-nhd", 0, 17, 1, 5, 1 * 512 + 0 * 256 + 1 * 16 + 1 * 8 + 5},
    {"flashinfer-nhd", 1, 39, 1, 7, 2 * 512 + 1 * 256 + 7 * 16 + 1 * 8 + 7},
    {"lmdeploy-turbomind", 0, 17, 1, 5, 512 + 17 * 8 + 5},
    {"lmdeploy-turbomind", 1, 39, 1, 7, 1024 + 512 + 39 * 8 + 7},
    {"deepseek-mla", 1, 39, 1, 7, 768 + 2 * 256 + 7 * 16 + 8 + 7},
    {"vllm-tp2", 0, 17, 0, 5, 1 * 128 + 1 * 8 + 5}, /* one head of two */
    {"vllm-tp2", 1, 39, 0, 7, 384 + 2 * 128 + 7 * 8 + 7},
    {"vllm-fp8", 1, 39, 1, 7, 768 + 2 * 256 + 7 * 16 + 8 + 7},
};

/* D = 32, where x = 16 divides. */
static const by_hand published_wide[] = {
    {"vllm-paged-x16", 0, 17, 1, 20, 1 * 1024 + 1 * 512 + 1 * 256 + 1 * 16 + 4},
    {"vllm-paged-x16", 1, 39, 1, 31, 3072 + 2 * 1024 + 1 * 512 + 31 * 16 + 7},
    {"vllm-paged-x16", 0, 0, 0, 15, 15},
    {"vllm-paged-x16", 0, 0, 0, 16, 256},
};

static void check_by_hand(const by_hand *list, size_t n, const char *geometry)
{
    kv_catalogue cat = kvt_published();
    const kv_geometry g = kvt_geometry(geometry);
    for (size_t i = 0; i < n; i++) {
        const by_hand *h = &list[i];
        const kv_index ix = kvt_bind(kv_catalogue_find(&cat, h->layout), &g, 1);
        const kv_coord c = {0, h->kv, h->token, h->head, h->lane};
        kv_coord back;
        if (kv_index_forward(&ix, &c) != h->position)
            fail_msg("%s: line %zu: %" PRId64 " instead of %" PRId64, h->layout, i, kv_index_forward(&ix, &c),
                     h->position);
        assert_int_equal(kv_index_inverse(&ix, h->position, &back), 1);
        assert_memory_equal(&c, &back, sizeof c);
    }
    kv_catalogue_free(&cat);
}

static void index_forward__gives_the_offsets_worked_out_by_hand(void **state)
{
    (void)state;
    check_by_hand(published, KVT_COUNT(published), KVT_PUBLISHED_GEOMETRY);
    check_by_hand(published_wide, KVT_COUNT(published_wide), "L=1,T=40,H=2,D=32,e=f16");
}

/* Two layers, pages with a stride, pad lanes, split inner tokens, other layer order: one layout that has it all. */
static void index_forward__gives_the_offsets_of_the_wider_model(void **state)
{
    (void)state;
    const kv_geometry g = kvt_geometry("L=2,T=7,H=2,D=3,e=f16");
    kv_layout *l = kvt_layout("wide int k=Tb.L.KV.H.Tg.D.Tx block=4 tx=2 row_lanes=5 page_stride_bytes=400");
    const kv_index ix = kvt_bind(l, &g, 2);
    /* page: 2 layers x 2 x 2 heads x 2 groups x 5 lanes x 2 tokens = 160 positions of 200 */
    assert_int_equal(ix.native, 400);
    assert_int_equal(ix.half[0].page_payload, 160);
    assert_int_equal(ix.half[0].page_span, 200);
    const kv_coord a = {1, 1, 6, 1, 2}, b = {0, 0, 3, 1, 0};
    assert_int_equal(kv_index_forward(&ix, &a), 1 * 200 + 1 * 80 + 1 * 40 + 1 * 20 + 1 * 10 + 2 * 2 + 0);
    assert_int_equal(kv_index_forward(&ix, &b), 0 * 200 + 0 * 80 + 0 * 40 + 1 * 20 + 1 * 10 + 0 * 2 + 1);
    kv_coord c;
    assert_int_equal(kv_index_inverse(&ix, 160, &c), 0);      /* slack of page 0 */
    assert_int_equal(kv_index_inverse(&ix, 3 * 2, &c), 0);    /* pad lane 3 */
    assert_int_equal(kv_index_inverse(&ix, 200 + 11, &c), 0); /* token 7: the tail */
    assert_int_equal(kv_index_inverse(&ix, 200 + 10, &c), 1); /* token 6 */
    kv_layout_free(l);
    l = kvt_layout("two sep k=Tb.H.Dg.Ti.Dx v=H.D.T block=4 x=3");
    const kv_index two = kvt_bind(l, &g, 2); /* no layer axis: K, V of layer 0, then of layer 1 */
    const kv_coord v = {1, 1, 6, 1, 2}, k = {1, 0, 6, 1, 2};
    assert_int_equal(two.native, 2 * (2 * 2 * 1 * 4 * 3 + 2 * 3 * 7));
    assert_int_equal(kv_index_forward(&two, &v), 90 + 48 + 1 * 21 + 2 * 7 + 6);
    assert_int_equal(kv_index_forward(&two, &k), 90 + 1 * 24 + 1 * 12 + 0 + 2 * 3 + 2);
    kv_layout_free(l);
}

/* ---- the laws over every position ------------------------------------------------------------ */

static bool same_place(const kv_coord *a, const kv_coord *b)
{
    return a->layer == b->layer && a->kv == b->kv && a->token == b->token && a->head == b->head && a->lane == b->lane;
}

static bool same_walk(const kv_walk *a, const kv_walk *b)
{
    for (int i = 0; i < KV_FACTORS_MAX; i++)
        if (a->digit[i] != b->digit[i]) return false;
    return a->position == b->position && a->layer == b->layer && a->half == b->half && a->slack == b->slack;
}

/* forward(inverse(p)) = p, the walk is the successor, padding is the complement, each element once: all of
 * it follows from agreement with the enumeration, in which each element must stand once. */
static void check_laws(const kv_layout *l, const kv_geometry *g, int64_t unit, const char *what)
{
    const kv_index ix = kvt_bind(l, g, unit);
    kvt_map m = kvt_map_new(l, g, unit);
    unsigned char *seen = kvt_take(m.elements, 1);
    int64_t elements = 0;
    kv_walk w;
    if (ix.native != m.n) fail_msg("%s: N is %" PRId64 ", enumerated %" PRId64, what, ix.native, m.n);
    if (ix.elements != m.elements) fail_msg("%s: %" PRId64 " elements", what, ix.elements);
    kv_walk_start(&w);
    for (int64_t p = 0; p < m.n; p++, kv_walk_next(&ix, &w)) {
        kv_coord c, walked;
        kv_walk sought;
        kv_walk_seek(&ix, p, &sought);
        if (!same_walk(&sought, &w)) fail_msg("%s: a walk sought at %" PRId64 " stands elsewhere", what, p);
        const int holds = kv_index_inverse(&ix, p, &c), held = kv_walk_coord(&ix, &w, &walked);
        if (w.position != p || holds != held || holds != (m.at[p] >= 0))
            fail_msg("%s: position %" PRId64 " holds %d, walk %d", what, p, holds, held);
        if (!holds) continue;
        if (!same_place(&c, &walked)) fail_msg("%s: the walk is elsewhere at %" PRId64, what, p);
        if (kv_index_canonical(&ix, &c) != m.at[p]) fail_msg("%s: position %" PRId64 " is another element", what, p);
        if (kv_index_forward(&ix, &c) != p)
            fail_msg("%s: forward(inverse(%" PRId64 ")) = %" PRId64, what, p, kv_index_forward(&ix, &c));
        if (seen[m.at[p]]++ != 0) fail_msg("%s: an element stands twice, again at %" PRId64, what, p);
        elements++;
    }
    if (elements != ix.elements) fail_msg("%s: %" PRId64 " of %" PRId64 " elements stand", what, elements, ix.elements);
    if (m.n > 0 && w.layer != (ix.has_layer ? 0 : unit)) fail_msg("%s: the walk ends at layer %" PRId64, what, w.layer);
    for (int64_t n = 0; n < ix.elements; n++) { /* inverse(forward(c)) = c */
        const kv_coord c = kvt_place(&ix, n), placed = kv_index_place(&ix, n);
        kv_coord back;
        if (!same_place(&c, &placed)) fail_msg("%s: element %" PRId64 " is placed elsewhere", what, n);
        if (kv_index_canonical(&ix, &c) != n) fail_msg("%s: canonical number of %" PRId64, what, n);
        if (!kv_index_inverse(&ix, kv_index_forward(&ix, &c), &back) || !same_place(&c, &back))
            fail_msg("%s: element %" PRId64, what, n);
    }
    free(seen);
    kvt_map_free(&m);
}

static void index__laws_hold_for_the_published_layouts(void **state)
{
    (void)state;
    static const int64_t tokens[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129};
    static const int64_t heads[] = {1, 2, 3, 8}, dims[] = {4, 6, 8, 16, 48, 80};
    kv_catalogue cat = kvt_published();
    int checked = 0;
    for (size_t i = 0; i < cat.n; i++)
        for (size_t t = 0; t < KVT_COUNT(tokens); t++)
            for (size_t k = 0; k < KVT_COUNT(heads) * KVT_COUNT(dims); k++) {
                kv_geometry g = {2, tokens[t], heads[k % KVT_COUNT(heads)], dims[k / KVT_COUNT(heads)], 0, KV_ELEM_F16};
                kv_index ix;
                kv_bind_state bound;
                char reason[KV_REASON_TEXT];
                g.head_dim_v = g.head_dim;
                if (g.tokens * g.kv_heads * g.head_dim > 20000) continue;
                assert_int_equal(kv_layout_bind(cat.item[i], &g, 1, &ix, &bound, reason, NULL), KV_OK);
                if (bound != KV_BIND_OK) continue;
                check_laws(cat.item[i], &g, 1, cat.item[i]->name);
                if (g.tokens < 20) check_laws(cat.item[i], &g, 2, cat.item[i]->name);
                checked++;
            }
    kv_catalogue_free(&cat);
    assert_true(checked > 2500);
}

static void index__laws_hold_for_random_descriptors(void **state)
{
    (void)state;
    uint64_t r = 20261129;
    int layered = 0, paged = 0, groups = 0, two_orders = 0, mixed = 0, latent = 0, empty = 0;
    for (int i = 0; i < 9000; i++) {
        const kv_store store = (kv_store)(i % 3);
        const kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE);
        char text[KVT_TEXT];
        const kvt_desc d = kvt_random_desc(&r, &g, store);
        kvt_desc_text(&d, "random", text);
        kv_layout *l = kvt_layout(text);
        const bool has_l = kvt_has(&d, KV_F_L);
        check_laws(l, &g, has_l || kvt_one_in(&r, 2) ? g.layers : 1, text);
        layered += has_l;
        paged += d.page_stride_bytes > 0;
        groups += d.tx > 0;
        latent += store == KV_STORE_LATENT;
        empty += g.tokens == 0;
        two_orders += store == KV_STORE_INTERLEAVED && memcmp(&d.axes[0], &d.axes[1], sizeof d.axes[0]) != 0;
        mixed += store == KV_STORE_SEPARATE && kv_axes_has(&d.axes[0], KV_F_T) != kv_axes_has(&d.axes[1], KV_F_T);
        kv_layout_free(l);
    }
    /* the sample is what it claims to be */
    assert_true(layered > 1000 && paged > 500 && groups > 1000 && two_orders > 500 && mixed > 300 && latent == 3000 &&
                empty > 300);
}

/* Every order of the factors of small arrays, at every small size. */
static void permute(kvt_desc *d, int from, const kv_geometry *g, int *count)
{
    kv_axes *a = &d->axes[0];
    if (from == a->n) {
        char text[KVT_TEXT];
        d->axes[1] = d->store == KV_STORE_LATENT ? (kv_axes){0} : *a;
        kvt_desc_text(d, "order", text);
        kv_layout *l = kvt_layout(text);
        for (int64_t t = 0; t <= 5; t++) {
            kv_geometry at = *g;
            at.tokens = t;
            check_laws(l, &at, at.layers, text);
        }
        kv_layout_free(l);
        (*count)++;
        return;
    }
    for (int i = from; i < a->n; i++) {
        const kv_factor f = a->f[from];
        a->f[from] = a->f[i];
        a->f[i] = f;
        permute(d, from + 1, g, count);
        a->f[i] = a->f[from];
        a->f[from] = f;
    }
}

static void index__laws_hold_for_every_order_of_the_factors(void **state)
{
    (void)state;
    const kv_geometry g = kvt_geometry("L=2,T=0,H=2,D=2,e=f16");
    int count = 0;
    kvt_desc d = {.store = KV_STORE_INTERLEAVED, .element = -1, .tp_size = 1, .block = 2};
    d.axes[0] = kvt_factors(true, true, 1, 0);
    permute(&d, 0, &g, &count);
    d.row_lanes = 3;
    d.axes[0] = kvt_factors(false, true, 1, 0);
    permute(&d, 0, &g, &count);
    d = (kvt_desc){.store = KV_STORE_SEPARATE, .element = -1, .tp_size = 1, .block = 4, .tx = 2, .x = 1};
    d.axes[0] = kvt_factors(false, false, 2, 1);
    permute(&d, 0, &g, &count);
    assert_int_equal(count, 720 + 120 + 720);
}

/* ---- 64 bits --------------------------------------------------------------------------------- */

/* d9: pages of 1,039,680 bytes; block 2065 ends below 2^31 bytes, block 2066 does not. */
static void index__passes_2_to_the_31_and_32_without_overflow(void **state)
{
    (void)state;
    static const int64_t blocks[] = {0, 1, 2065, 2066, 4130, 4131, 4132, 8263, 1000000};
    const kv_geometry g = kvt_geometry("L=1,T=16000016,H=8,D=128,e=fp8_e4m3");
    kv_layout *l = kvt_layout("pages int k=Tb.KV.Ti.H.D block=16 page_stride_bytes=1039680");
    const kv_index ix = kvt_bind(l, &g, 1);
    assert_true(ix.native == 1000001 * INT64_C(1039680));
    assert_true(2065 * INT64_C(1039680) < (INT64_C(1) << 31) && 2066 * INT64_C(1039680) > (INT64_C(1) << 31));
    for (size_t i = 0; i < KVT_COUNT(blocks); i++) {
        const kv_coord c = {0, 1, blocks[i] * 16 + 5, 3, 100};
        const int64_t want = blocks[i] * INT64_C(1039680) + 16 * 8 * 128 + 5 * 8 * 128 + 3 * 128 + 100;
        kv_coord back;
        assert_true(kv_index_forward(&ix, &c) == want);
        assert_int_equal(kv_index_inverse(&ix, want, &back), 1);
        assert_true(same_place(&c, &back));
        assert_int_equal(kv_index_inverse(&ix, blocks[i] * INT64_C(1039680) + 2 * 16 * 8 * 128, &back), 0); /* slack */
        assert_int_equal(kv_index_inverse(&ix, (blocks[i] + 1) * INT64_C(1039680) - 1, &back), 0);
    }
    kv_layout_free(l);
}

static void index__is_exact_at_the_largest_sizes(void **state)
{
    (void)state;
    static const char *const layouts[] = {"a sep k=H.D.T", "b int k=KV.Tb.Ti.H.D block=2147483647",
                                          "c int k=L.Tb.KV.H.Ti.Dg.Dx block=16 x=64",
                                          "d sep k=Dx.Dg.H.L.Tx.Tg.Tb v=T.L.H.D block=1024 tx=2 x=32"};
    const kv_geometry g = {80, INT64_C(1) << 40, 8, 128, 128, KV_ELEM_F16};
    uint64_t r = 7;
    for (size_t i = 0; i < KVT_COUNT(layouts); i++) {
        kv_layout *l = kvt_layout(layouts[i]);
        const kv_index ix = kvt_bind(l, &g, g.layers);
        assert_true(ix.elements == (INT64_C(80) << 40) * 8 * 256);
        for (int k = 0; k < 2000; k++) {
            const int64_t n = (int64_t)(kvt_next(&r) % (uint64_t)ix.elements),
                          p = (int64_t)(kvt_next(&r) % (uint64_t)ix.native);
            const kv_coord c = kvt_place(&ix, n);
            kv_coord back;
            const int64_t at = kv_index_forward(&ix, &c);
            assert_true(at >= 0 && at < ix.native);
            assert_int_equal(kv_index_inverse(&ix, at, &back), 1);
            assert_true(same_place(&c, &back));
            if (kv_index_inverse(&ix, p, &back)) assert_true(kv_index_forward(&ix, &back) == p);
        }
        kv_layout_free(l);
    }
}

/* From a place far out, the walk's step is still the successor (no walk starts there, so it is put there). */
static void walk_next__is_the_successor_far_out(void **state)
{
    (void)state;
    const kv_geometry g = kvt_geometry("L=4,T=1000003,H=8,D=128,e=f16");
    kv_layout *l = kvt_layout("far int k=KV.L.Tb.H.Ti.D v=KV.Tb.D.L.Ti.H block=16");
    const kv_index ix = kvt_bind(l, &g, 4);
    uint64_t r = 11;
    for (int k = 0; k < 3000; k++) {
        const int64_t p = (int64_t)(kvt_next(&r) % (uint64_t)(ix.native - 1));
        kv_walk w = {.position = p};
        kv_coord c, walked;
        (void)kv_index_inverse(&ix, p, &c);
        w.half = c.kv;
        for (int i = 0; i < ix.half[w.half].n; i++) w.digit[i] = kv_index_digit(&ix, ix.half[w.half].kind[i], &c);
        kv_walk_next(&ix, &w);
        const int holds = kv_index_inverse(&ix, p + 1, &c);
        assert_int_equal(kv_walk_coord(&ix, &w, &walked), holds);
        assert_true(w.position == p + 1 && same_place(&c, &walked));
    }
    kv_layout_free(l);
}

/* ---- division by inverses ---------------------------------------------------------------- */

static void divide_all(int64_t n, int64_t d)
{
    const uint64_t inverse = kv_index_inverse_of(d);
    if (kv_index_divide(n, d, inverse) != n / d || kv_index_divide(n, d, 0) != n / d)
        fail_msg("%" PRId64 " / %" PRId64 " gave %" PRId64, n, d, kv_index_divide(n, d, inverse));
}

static void divide__is_division(void **state)
{
    (void)state;
    static const int64_t edges[] = {0,          1,          2,          3,          5,           7,        15,
                                    16,         17,         255,        65535,      65536,       65537,    0x7FFFFFFF,
                                    0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x100000000, INT64_MAX};
    enum { EDGES = sizeof edges / sizeof edges[0] };
    uint64_t r = 3;
    for (int i = 0; i < EDGES; i++)
        for (int k = 1; k < EDGES; k++) divide_all(edges[i], edges[k]);
    for (int64_t d = 1; d < 70000; d += 1 + d / 1000) { /* where the quotient steps */
        const int64_t most = 0xFFFFFFFF / d * d;
        divide_all(most, d);
        divide_all(most - 1, d);
        divide_all(most / 2 / d * d, d);
        divide_all(d - 1, d);
        divide_all(0xFFFFFFFF, d);
    }
    for (int i = 0; i < 200000; i++) {
        const int64_t d = 1 + (int64_t)(kvt_next(&r) >> (32 + kvt_below(&r, 31)));
        const int64_t n = (int64_t)(kvt_next(&r) >> (1 + kvt_below(&r, 60)));
        divide_all(n, d);
        divide_all(n - n % d, d);
    }
}

static void index__is_the_same_without_inverses(void **state)
{
    (void)state;
    uint64_t r = 17;
    for (int i = 0; i < 60; i++) {
        const kv_store store = (kv_store)(i % 3);
        const kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE);
        kvt_desc desc = kvt_random_desc(&r, &g, store);
        char text[KVT_TEXT];
        kvt_desc_text(&desc, "a", text);
        kv_layout *l = kvt_layout(text);
        const kv_index ix = kvt_bind(l, &g, 1);
        kv_index plain = ix;
        for (int kv = 0; kv < 2; kv++) {
            memset(plain.half[kv].size_inverse, 0, sizeof plain.half[kv].size_inverse);
            plain.half[kv].page_inverse = 0;
        }
        plain.kv_inverse = plain.layer_inverse = plain.block_inverse = plain.tx_inverse = plain.x_inverse = 0;
        for (int64_t p = 0; p < ix.native; p++) {
            kv_coord a = {0}, b = {0};
            assert_int_equal(kv_index_inverse(&ix, p, &a), kv_index_inverse(&plain, p, &b));
            assert_memory_equal(&a, &b, sizeof a);
            if (kv_index_inverse(&ix, p, &a)) assert_int_equal(kv_index_forward(&ix, &a), kv_index_forward(&plain, &a));
        }
        kv_layout_free(l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(index_forward__gives_the_offsets_worked_out_by_hand),
        cmocka_unit_test(index_forward__gives_the_offsets_of_the_wider_model),
        cmocka_unit_test(index__laws_hold_for_the_published_layouts),
        cmocka_unit_test(index__laws_hold_for_random_descriptors),
        cmocka_unit_test(index__laws_hold_for_every_order_of_the_factors),
        cmocka_unit_test(index__passes_2_to_the_31_and_32_without_overflow),
        cmocka_unit_test(index__is_exact_at_the_largest_sizes),
        cmocka_unit_test(walk_next__is_the_successor_far_out),
        cmocka_unit_test(divide__is_division),
        cmocka_unit_test(index__is_the_same_without_inverses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
