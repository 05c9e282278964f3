/* Binding: sizes, existence with reasons, shards, comparing images. */
#include "tests/kv_test.h"
#include "tests/kv_test_layouts.h"

static kv_bind_state bind(const char *layout, const char *geometry, int64_t unit, kv_index *ix,
                          char reason[KV_REASON_TEXT])
{
    kv_layout *l = kvt_layout(layout);
    const kv_geometry g = kvt_geometry(geometry);
    kv_bind_state s;
    kv_err err = {0};
    kvt_ok(kv_layout_bind(l, &g, unit, ix, &s, reason, &err), &err);
    kv_layout_free(l);
    return s;
}

static void bind__counts_as_the_published_rows_do(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t native, elements, bytes;
    } want[] = {{"vllm-fa", 1536, 1280, 3072},          {"vllm-paged-x", 1536, 1280, 3072},
                {"trtllm", 2048, 1280, 4096},           {"sglang", 1280, 1280, 2560},
                {"hf-dynamic-cache", 1280, 1280, 2560}, {"llamacpp", 1280, 1280, 2560},
                {"flashinfer-nhd", 1536, 1280, 3072},   {"lmdeploy-turbomind", 2048, 1280, 4096},
                {"deepseek-mla", 1536, 1280, 3072},     {"vllm-tp2", 768, 640, 1536},
                {"vllm-fp8", 1536, 1280, 1536}};
    kv_catalogue c = kvt_published();
    const kv_geometry g = kvt_geometry(KVT_PUBLISHED_GEOMETRY);
    for (size_t i = 0; i < KVT_COUNT(want); i++) {
        const kv_index ix = kvt_bind(kv_catalogue_find(&c, want[i].name), &g, 1);
        assert_int_equal(ix.native, want[i].native);
        assert_int_equal(ix.elements, want[i].elements);
        assert_int_equal(ix.native * kv_elem_bytes((kv_elem)ix.element), want[i].bytes);
    }
    kv_catalogue_free(&c);
}

static void bind__says_why_a_layout_does_not_exist(void **state)
{
    (void)state;
    static const struct {
        const char *layout, *geometry;
        kv_bind_state want;
        const char *says[3];
    } cases[] = {
        {"n sep k=T.H.Dg.Dx x=16", "L=1,T=4,H=2,D=8,e=f16", KV_BIND_NO_SHAPE, {"n:", "x 16", "head_dim 8"}},
        {"n sep k=T.H.D v=T.H.Dg.Dx x=4", "L=1,T=4,H=2,D=8,Dv=6,e=f16", KV_BIND_NO_SHAPE, {"x 4", "head_dim_v 6", ""}},
        {"n sep k=T.H.Dg.Dx v=T.H.D x=4", "L=1,T=4,H=2,D=6,Dv=8,e=f16", KV_BIND_NO_SHAPE, {"x 4", "head_dim 6", ""}},
        {"n sep k=T.H.Dg.Dx x_bytes=3", "L=1,T=4,H=2,D=8,e=f16", KV_BIND_NO_SHAPE, {"x_bytes 3", "2-byte", ""}},
        {"n sep k=T.H.Dg.Dx x_bytes=2", "L=1,T=4,H=2,D=8,e=f32", KV_BIND_NO_SHAPE, {"x_bytes 2", "4-byte", ""}},
        {"n int k=KV.T.H.D", "L=1,T=9,H=2,D=6,Dv=4,e=f16", KV_BIND_NO_SHAPE, {"K rows are 6", "V rows 4", ""}},
        {"n sep k=T.H.D row_lanes=7", "L=1,T=4,H=2,D=8,e=f16", KV_BIND_NO_SHAPE, {"row_lanes 7", "8 lanes", ""}},
        {"n sep k=T.H.D row_lanes=7", "L=1,T=4,H=2,D=6,Dv=8,e=f16", KV_BIND_NO_SHAPE, {"row_lanes 7", "8 lanes", ""}},
        {"n sep k=Tb.Ti.H.D block=4 page_stride_bytes=127",
         "L=1,T=4,H=2,D=8,e=f16",
         KV_BIND_NO_SHAPE,
         {"page_stride_bytes 127", "multiple", ""}},
        {"n sep k=Tb.Ti.H.D block=4 page_stride_bytes=126",
         "L=1,T=4,H=2,D=8,e=f16",
         KV_BIND_NO_SHAPE,
         {"page_stride_bytes 126", "128 bytes", ""}},
        {"n sep k=Tb.Ti.H.D block=4 page_stride_bytes=128", "L=1,T=4,H=2,D=8,e=f16", KV_BIND_OK, {"", "", ""}},
        {"n sep k=Tb.Ti.H.D v=T.H.D block=4 page_stride_bytes=128",
         "L=1,T=4000,H=2,D=8,e=f16",
         KV_BIND_OK,
         {"", "", ""}},
        {"n lat k=T.C", "L=1,T=4,H=2,D=8,e=f16", KV_BIND_NO_SHAPE, {"one kv head", "2 kv heads", ""}},
        {"n lat k=T.C", "L=1,T=4,H=1,D=8,Dv=4,e=f16", KV_BIND_NO_SHAPE, {"head_dim 8", "head_dim_v 4", ""}},
        {"n sep k=T.H.D tp=0/3", "L=1,T=4,H=4,D=8,e=f16", KV_BIND_NO_SHARD, {"size of 3", "4 kv heads", "rank 0"}},
        {"n sep k=T.H.D tp=5/6", "L=1,T=4,H=4,D=8,e=f16", KV_BIND_NO_SHARD, {"size of 6", "4 kv heads", "rank 5"}},
        {"n sep k=T.H.D tp=0/3", "L=1,T=4,H=4,D=8,e=f16", KV_BIND_NO_SHARD, {"n:", "does not exist", ""}},
    };
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        kv_index ix;
        char reason[KV_REASON_TEXT];
        memset(&ix, 0x5A, sizeof ix);
        const kv_bind_state got = bind(cases[i].layout, cases[i].geometry, 1, &ix, reason);
        if (got != cases[i].want) fail_msg("%s at %s: state %d, %s", cases[i].layout, cases[i].geometry, got, reason);
        for (int k = 0; k < 3; k++)
            if (strstr(reason, cases[i].says[k]) == NULL)
                fail_msg("\"%s\" does not hold \"%s\"", reason, cases[i].says[k]);
        if (got != KV_BIND_OK) assert_true(ix.native == 0x5A5A5A5A5A5A5A5A); /* untouched */
    }
}

static void bind__takes_x_in_bytes_from_the_element(void **state)
{
    (void)state;
    static const struct {
        const char *layout, *element;
        int64_t x;
    } cases[] = {{"n sep k=T.H.Dg.Dx x_bytes=16", "f16", 8},
                 {"n sep k=T.H.Dg.Dx x_bytes=16", "f32", 4},
                 {"n sep k=T.H.Dg.Dx x_bytes=16", "fp8_e4m3", 16},
                 {"n sep k=T.H.Dg.Dx x_bytes=16 e=fp8_e4m3", "f16", 16},
                 {"n sep k=T.H.Dg.Dx x=4", "fp8_e4m3", 4}};
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        kv_index ix;
        char reason[KV_REASON_TEXT], geometry[64];
        snprintf(geometry, sizeof geometry, "L=1,T=4,H=2,D=32,e=%s", cases[i].element);
        assert_int_equal(bind(cases[i].layout, geometry, 1, &ix, reason), KV_BIND_OK);
        assert_int_equal(ix.x, cases[i].x);
        assert_int_equal(ix.half[0].size[2], 32 / cases[i].x);
    }
}

/* Against the definition: heads [r*H/size, (r+1)*H/size), or the one head r*H/size where size is a multiple. */
static void layout_heads__follows_the_definition(void **state)
{
    (void)state;
    for (int64_t H = 1; H <= 12; H++)
        for (int64_t size = 1; size <= 26; size++) {
            int64_t covered = 0;
            for (int64_t rank = 0; rank < size; rank++) {
                char text[96], reason[KV_REASON_TEXT];
                snprintf(text, sizeof text, "n sep k=T.H.D tp=%" PRId64 "/%" PRId64, rank, size);
                kv_layout *l = kvt_layout(text);
                const kv_geometry g = {1, 4, H, 8, 8, KV_ELEM_F16};
                int64_t first = -1, count = -1;
                const bool there = kv_layout_heads(l, &g, &first, &count, reason);
                kv_layout_free(l);
                assert_int_equal(there, H % size == 0 || (size > H && size % H == 0));
                if (!there) continue;
                assert_int_equal(count, H % size == 0 ? H / size : 1);
                assert_int_equal(first, rank * H / size);
                covered += count;
            }
            if (H % size == 0) assert_int_equal(covered, H); /* the shards are a partition */
            if (size > H && size % H == 0) assert_int_equal(covered, size);
        }
}

/* d1: once TP exceeds the kv heads each rank keeps one replicated head; ranks 2k and 2k+1 both hold head k. */
static void layout_heads__replicates_past_the_kv_heads(void **state)
{
    (void)state;
    const kv_geometry g = kvt_geometry("L=1,T=8,H=4,D=8,e=bf16"), control = kvt_geometry("L=1,T=8,H=8,D=8,e=bf16");
    for (int64_t rank = 0; rank < 8; rank++) {
        char wide[96], narrow[96], reason[KV_REASON_TEXT];
        int64_t first = -1, count = -1;
        kv_layout_frontier f;
        snprintf(wide, sizeof wide, "w int k=Tb.KV.H.Ti.D block=4 tp=%" PRId64 "/8", rank);
        kv_layout *w = kvt_layout(wide);
        assert_true(kv_layout_heads(w, &g, &first, &count, reason));
        assert_int_equal(first, rank / 2);
        assert_int_equal(count, 1);
        for (int64_t from = 0; from < 4; from++) {
            snprintf(narrow, sizeof narrow, "n int k=Tb.KV.H.Ti.D block=4 tp=%" PRId64 "/4", from);
            kv_layout *n = kvt_layout(narrow);
            assert_int_equal(kv_pair_frontier(n, w, &g, &f, reason, NULL), KV_OK);
            assert_int_equal(f, from == rank / 2 ? KV_X_NONE : KV_X2_HEAD_GATHER);
            assert_int_equal(kv_pair_words(n, w, &g), from == rank / 2 ? 1U << KV_W_HEAD_REPLICATE : 0U);
            kv_layout_free(n);
        }
        for (int64_t from = 0; from < 2; from++) { /* control: 8 heads, TP 2 to 8 is a gather */
            snprintf(narrow, sizeof narrow, "n int k=Tb.KV.H.Ti.D block=4 tp=%" PRId64 "/2", from);
            kv_layout *n = kvt_layout(narrow);
            assert_int_equal(kv_pair_frontier(n, w, &control, &f, reason, NULL), KV_OK);
            assert_int_equal(f, KV_X2_HEAD_GATHER);
            kv_layout_free(n);
        }
        kv_layout_free(w);
    }
}

static void bind__refuses_sizes_past_64_bits(void **state)
{
    (void)state;
    static const char *const layouts[] = {"big sep k=T.H.D", "big int k=KV.Tb.Ti.H.D block=2147483647",
                                          "big int k=L.Tb.KV.H.Ti.D block=16",
                                          "big sep k=Tb.Ti.H.D block=1 page_stride_bytes=1125899906842624"};
    const kv_geometry g = {KV_LAYERS_MAX, KV_TOKENS_MAX, KV_HEADS_MAX, KV_HEAD_DIM_MAX, KV_HEAD_DIM_MAX, KV_ELEM_F32};
    const kv_geometry wide = kvt_geometry("L=1,T=1099511627776,H=1,D=1,e=f16");
    for (size_t i = 0; i < KVT_COUNT(layouts); i++) {
        kv_layout *l = kvt_layout(layouts[i]);
        kv_index ix;
        kv_bind_state s;
        char reason[KV_REASON_TEXT];
        kv_err err = {0};
        kvt_refused(kv_layout_bind(l, i < 3 ? &g : &wide, i < 3 ? g.layers : 1, &ix, &s, reason, &err), KV_EINVAL, &err,
                    layouts[i], KVT_SAYS("layout big", "64 bits", "T=1099511627776"));
        kv_layout_free(l);
    }
    /* bytes must fit too: 2^60 positions of 4 bytes fit, 2^61 do not */
    kv_layout *l = kvt_layout("big sep k=T.H.D");
    kv_geometry edge = {1, INT64_C(1) << 40, 1 << 19, 1, 1, KV_ELEM_F32};
    kv_index ix;
    kv_bind_state s;
    char reason[KV_REASON_TEXT];
    assert_int_equal(kv_layout_bind(l, &edge, 1, &ix, &s, reason, NULL), KV_OK);
    assert_true(ix.native == INT64_C(1) << 60);
    edge.kv_heads = 1 << 20;
    assert_int_equal(kv_layout_bind(l, &edge, 1, &ix, &s, reason, NULL), KV_EINVAL);
    edge.element = KV_ELEM_F16;
    assert_int_equal(kv_layout_bind(l, &edge, 1, &ix, &s, reason, NULL), KV_OK);
    kv_layout_free(l);
}

static void pair_unit_layers__is_all_layers_where_a_side_keeps_them(void **state)
{
    (void)state;
    kv_layout *a = kvt_layout("a sep k=T.H.D"), *b = kvt_layout("b sep k=L.T.H.D");
    const kv_geometry g = kvt_geometry("L=5,T=4,H=2,D=8,e=f16");
    assert_int_equal(kv_pair_unit_layers(a, a, &g), 1);
    assert_int_equal(kv_pair_unit_layers(a, b, &g), 5);
    assert_int_equal(kv_pair_unit_layers(b, a, &g), 5);
    assert_int_equal(kv_pair_unit_layers(b, b, &g), 5);
    kv_layout_free(a);
    kv_layout_free(b);
}

/* same_image works from one line an axis, is_identity from a few places of it; here every position is looked at. */
static void index_same_image__agrees_with_every_position(void **state)
{
    (void)state;
    uint64_t r = 99;
    int same = 0, identity = 0;
    for (int i = 0; i < 12000; i++) {
        const kv_store store = (kv_store)(i % 3);
        kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, true);
        if (kvt_one_in(&r, 2)) g.tokens = kvt_below(&r, 3); /* degenerate sizes make equal images */
        if (kvt_one_in(&r, 2)) g.kv_heads = 1;
        if (kvt_one_in(&r, 3)) g.head_dim = g.head_dim_v = 1;
        kv_layout *a = kvt_random_layout(&r, &g, store, "a"),
                  *b = kvt_random_layout(&r, &g, store == KV_STORE_LATENT ? store : (kv_store)kvt_below(&r, 2), "b");
        const int64_t unit = kv_pair_unit_layers(a, b, &g);
        const kv_index ia = kvt_bind(a, &g, unit), ib = kvt_bind(b, &g, unit);
        kvt_map ma = kvt_map_new(a, &g, unit), mb = kvt_map_new(b, &g, unit);
        const bool want =
            ia.element == ib.element && ma.n == mb.n && memcmp(ma.at, mb.at, (size_t)ma.n * sizeof *ma.at) == 0;
        bool straight = ma.n == ma.elements;
        for (int64_t p = 0; straight && p < ma.n; p++) straight = ma.at[p] == p;
        if (kv_index_same_image(&ia, &ib) != want) fail_msg("pair %d: same_image is not %d", i, want);
        if (kv_index_is_identity(&ia) != straight) fail_msg("pair %d: is_identity is not %d", i, straight);
        same += want && ma.n > 0;
        identity += straight && ma.n > 0;
        kvt_map_free(&ma);
        kvt_map_free(&mb);
        kv_layout_free(a);
        kv_layout_free(b);
    }
    assert_true(same > 100 && identity > 100);
}

/* Whether native position = canonical position, looked at everywhere. */
static bool walk_is_identity(const kv_index *ix)
{
    bool straight = ix->native == ix->elements;
    for (int64_t l = 0; l < ix->layers; l++)
        for (int64_t kv = 0; kv < ix->halves; kv++)
            for (int64_t t = 0; t < ix->tokens; t++)
                for (int64_t h = 0; h < ix->heads; h++)
                    for (int64_t i = 0; i < ix->lanes[kv]; i++) {
                        const kv_coord c = {l, kv, t, h, i};
                        straight = straight && kv_index_forward(ix, &c) == kv_index_canonical(ix, &c);
                    }
    return straight;
}

typedef struct {
    int64_t layouts, bound, identity;
} walked;

static void compare_with_walk(const char *text, walked *sum)
{
    kv_err err = {0};
    kv_layout *l = NULL;
    json_t *o = kvt_layout_json(text);
    const kv_rc rc = kv_layout_new(o, text, &l, &err);
    json_decref(o);
    if (rc != KV_OK) return; /* an order that no layout has */
    sum->layouts++;
    for (int64_t n = 0; n < 11 * 2 * 3 * 2; n++) {
        const kv_geometry g = {.layers = 1 + n / 66 % 2,
                               .tokens = n % 11,
                               .kv_heads = 1 + n / 11 % 2,
                               .head_dim = 2 * (1 + n / 22 % 3),
                               .head_dim_v = 2 * (1 + n / 22 % 3),
                               .element = KV_ELEM_F16};
        kv_index ix;
        kv_bind_state state;
        char reason[KV_REASON_TEXT];
        kvt_ok(kv_layout_bind(l, &g, kv_pair_unit_layers(l, l, &g), &ix, &state, reason, &err), &err);
        if (state != KV_BIND_OK) continue;
        sum->bound++;
        const bool want = walk_is_identity(&ix);
        sum->identity += want && ix.elements > 0;
        if (kv_index_is_identity(&ix) != want) fail_msg("%s at T=%" PRId64 ": not %d", text, g.tokens, want);
    }
    kv_layout_free(l);
}

/* Every order of the factors, with tokens and lanes split or not. */
static void index_is_identity__agrees_with_a_walk_everywhere(void **state)
{
    (void)state;
    static const struct {
        const char *store, *factors[7], *sizes;
        int n;
    } families[] = {{"sep", {"T", "H", "D"}, "", 3},
                    {"int", {"KV", "T", "H", "D"}, "", 4},
                    {"sep", {"L", "Tb", "Ti", "H", "D"}, " block=4", 5},
                    {"sep", {"L", "T", "H", "Dg", "Dx"}, " x=2", 5},
                    {"int", {"KV", "Tb", "Ti", "H", "D"}, " block=4", 5},
                    {"sep", {"Tb", "Tg", "Tx", "H", "D"}, " block=4 tx=2", 5},
                    {"sep", {"Tb", "Tg", "Tx", "H", "Dg", "Dx"}, " block=6 tx=2 x=2", 6},
                    {"int", {"KV", "Tb", "Tg", "Tx", "H", "Dg", "Dx"}, " block=4 tx=2 x=2", 7}};
    walked sum = {0};
    for (size_t f = 0; f < KVT_COUNT(families); f++) {
        int at[7], count = families[f].n, orders = 1;
        for (int i = 2; i <= count; i++) orders *= i;
        for (int order = 0; order < orders; order++) {
            char text[KVT_TEXT];
            bool used[7] = {false};
            int left = order, n = snprintf(text, sizeof text, "a %s k=", families[f].store);
            for (int i = count, radix = orders; i > 0; i--) { /* the order's number in factorial digits */
                radix /= i;
                int k = left / radix, pick = 0;
                left %= radix;
                for (; used[pick] || k > 0; pick++) k -= !used[pick];
                used[pick] = true;
                at[count - i] = pick;
            }
            for (int i = 0; i < count; i++)
                n += snprintf(text + n, sizeof text - (size_t)n, "%s%s", i > 0 ? "." : "", families[f].factors[at[i]]);
            snprintf(text + n, sizeof text - (size_t)n, "%s", families[f].sizes);
            compare_with_walk(text, &sum);
        }
    }
    print_message("%" PRId64 " orders, %" PRId64 " bound, %" PRId64 " of them the identity\n", sum.layouts, sum.bound,
                  sum.identity);
    assert_true(sum.layouts > 1000 && sum.identity > 1000);
}

/* However many tokens there are. */
static void index_is_identity__walks_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *layout;
        bool identity;
    } cases[] = {{"a sep k=T.H.D", true}, {"a sep k=Tb.Ti.H.D block=16", true}, {"a sep k=H.T.D", false}};
    const kv_geometry g = kvt_geometry("L=1,T=1099511627776,H=2,D=2,e=f16");
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        kv_layout *l = kvt_layout(cases[i].layout);
        const kv_index ix = kvt_bind(l, &g, 1);
        assert_int_equal(kv_index_is_identity(&ix), cases[i].identity);
        kv_layout_free(l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(index_is_identity__agrees_with_a_walk_everywhere),
        cmocka_unit_test(index_is_identity__walks_nothing),
        cmocka_unit_test(bind__counts_as_the_published_rows_do),
        cmocka_unit_test(bind__says_why_a_layout_does_not_exist),
        cmocka_unit_test(bind__takes_x_in_bytes_from_the_element),
        cmocka_unit_test(layout_heads__follows_the_definition),
        cmocka_unit_test(layout_heads__replicates_past_the_kv_heads),
        cmocka_unit_test(bind__refuses_sizes_past_64_bits),
        cmocka_unit_test(pair_unit_layers__is_all_layers_where_a_side_keeps_them),
        cmocka_unit_test(index_same_image__agrees_with_every_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
