/* What a pair means: every word and frontier code of docs/words.md, the published pairs by hand, laws. */
#include "tests/kv_test.h"
#include "tests/kv_test_layouts.h"

static void print_words(uint32_t w, char out[512])
{
    int n = 0;
    out[0] = '\0';
    for (int i = 0; i < KV_W_COUNT; i++)
        if (w >> i & 1U)
            n += snprintf(out + n, (size_t)(512 - n), "%s%s", n > 0 ? " " : "", kv_layout_word_name((kv_layout_word)i));
}

/* ---- every word ------------------------------------------------------------------------------ */

#define G1 "L=2,T=9,H=2,D=8,e=f16"
#define FA "int k=KV.Tb.Ti.H.D block=16"
#define THD "sep k=T.H.D"

/* Source, destination, geometry, and all words of the pair, sorted. */
static const char *const word_cases[][4] = {
    /* requantize */
    {THD, THD " e=bf16", G1, "requantize"},
    {THD " e=fp8_e4m3", THD, G1, "requantize"},
    {THD " e=f16", THD " row_lanes=9", G1, "page_pad"}, /* f16 is what the geometry has */
    {THD " e=fp8_e4m3", "sep k=H.T.D e=fp8_e4m3", G1, "head_order_transpose"},
    /* reblock */
    {FA, "int k=KV.Tb.Ti.H.D block=32", G1, "reblock"},
    {"int k=KV.T.H.D", FA, G1, "reblock"},
    {FA, "int k=KV.Tb.H.Ti.D block=16", G1, "axis_permute"},
    /* kv_split, kv_merge */
    {"int k=KV.T.H.D", THD, G1, "kv_split"},
    {THD, "int k=KV.T.H.D", G1, "kv_merge"},
    {"int k=KV.T.H.D", "int k=KV.H.T.D", G1, "head_order_transpose"},
    /* head_dim_vectorize, head_dim_devectorize, head_dim_revectorize */
    {THD, "sep k=T.H.Dg.Dx x=4", G1, "axis_permute head_dim_vectorize"},
    {"sep k=T.H.Dg.Dx x=4", THD, G1, "axis_permute head_dim_devectorize"},
    {THD, "sep k=T.H.D v=T.H.Dg.Dx x=4", G1, "head_dim_vectorize v_axis_permute"},
    {"sep k=T.H.Dg.Dx x=4", "sep k=T.H.Dg.Dx x=2", G1, "head_dim_revectorize"},
    {"sep k=T.H.Dg.Dx x=4", "sep k=T.H.Dg.Dx x_bytes=8", G1, "view_reinterpret"},
    {"sep k=T.H.Dg.Dx x=4", "sep k=T.H.Dg.Dx x_bytes=16", G1, "head_dim_revectorize"},
    {"sep k=T.H.Dg.Dx x_bytes=8", "sep k=T.H.Dg.Dx x_bytes=8 e=fp8_e4m3", G1, "head_dim_revectorize requantize"},
    {"sep k=T.H.Dg.Dx x=4", "sep k=T.H.Dg.Dx x=3", G1, "head_dim_revectorize"},   /* refused, but it keeps its words */
    {"sep k=T.H.Dg.Dx x_bytes=3", "sep k=T.H.Dg.Dx x=1", G1, "view_reinterpret"}, /* 3 bytes / 2, rounded down */
    /* v_dim_transpose */
    {THD, "sep k=T.H.D v=H.D.T", G1, "head_order_transpose v_dim_transpose"},
    {"sep k=T.H.D v=D.T.H", THD, G1, "v_dim_transpose"},
    {"sep k=T.H.D v=D.T.H", "sep k=T.H.D v=D.H.T", G1, "head_order_transpose"},
    {"sep k=Tb.Ti.H.D block=4", "sep k=Tb.Ti.H.D v=Tb.D.Ti.H block=4", G1, "v_axis_permute"}, /* blocks are not T */
    /* head_order_transpose */
    {THD, "sep k=H.T.D", G1, "head_order_transpose"},
    {THD, "sep k=T.H.D v=H.T.D", G1, "head_order_transpose"},
    {"sep k=H.T.D v=T.H.D", "sep k=H.T.D", G1, "head_order_transpose"},
    {"sep k=Tb.H.Ti.D block=4", "sep k=H.Tb.Ti.D block=4", G1, "head_order_transpose"},
    {"sep k=Tb.H.Ti.D block=4", "sep k=Tb.Ti.H.D block=4", G1, "axis_permute"},
    /* axis_permute */
    {THD, "sep k=T.D.H", G1, "axis_permute"},
    {"int k=KV.Tb.Ti.H.D block=4", "int k=Tb.KV.Ti.H.D block=4", G1, "axis_permute"},
    /* v_axis_permute */
    {THD, "sep k=T.H.D v=T.D.H", G1, "v_axis_permute"},
    {"int k=KV.T.H.D v=KV.T.D.H", "int k=KV.T.H.D", G1, "v_axis_permute"},
    {"sep k=T.D.H v=T.H.D", "sep k=T.H.D v=T.D.H", G1, "axis_permute"},
    /* kv_move */
    {"int k=KV.T.H.D", "int k=T.KV.H.D", G1, "kv_move"},
    {"int k=T.KV.H.D", "int k=T.H.KV.D", G1, "kv_move"},
    {"int k=Tb.Ti.KV.H.D block=3", "int k=Tb.Ti.H.KV.D block=3", "L=1,T=12,H=2,D=4,e=f16", "kv_move"},
    {"int k=KV.L.T.H.D", "int k=T.L.KV.H.D", G1, "kv_move layer_move"},
    {"int k=KV.T.H.D", "int k=KV.T.D.H", G1, "axis_permute"},
    /* layers */
    {THD, "sep k=L.T.H.D", G1, "layer_merge"},
    {"sep k=T.L.H.D", THD, G1, "layer_split"},
    {"sep k=T.L.H.D", "sep k=L.T.H.D", G1, "layer_move"},
    {"sep k=L.T.H.D v=T.L.H.D", "sep k=L.T.H.D", G1, "layer_move"},
    {"int k=L.KV.T.H.D", "int k=KV.L.T.H.D", G1, "layer_move"},
    {"int k=KV.L.T.H.D", "int k=KV.L.H.T.D", G1, "head_order_transpose"},
    {"sep k=Tb.Ti.L.H.D block=4", "sep k=Tb.L.Ti.H.D block=4", G1, "layer_move"},
    /* tokens */
    {"sep k=Tb.Ti.H.D block=4", "sep k=Tb.Tg.Tx.H.D block=4 tx=2", G1, "axis_permute token_vectorize"},
    {"sep k=Tb.Tg.Tx.H.D block=4 tx=2", "sep k=Tb.Ti.H.D block=4", G1, "axis_permute token_devectorize"},
    {"sep k=Tb.Tg.H.D.Tx block=4 tx=2", "sep k=Tb.Tg.H.D.Tx block=4 tx=4", G1, "token_revectorize"},
    {"sep k=Tb.Tg.H.D.Tx block=4 tx=2", "sep k=Tb.Tg.D.H.Tx block=4 tx=2", G1, "axis_permute"},
    /* page_pad */
    {"sep k=Tb.Ti.H.D block=4", "sep k=Tb.Ti.H.D block=4 page_stride_bytes=512", G1, "page_pad"},
    {"sep k=Tb.Ti.H.D block=4 page_stride_bytes=256", "sep k=Tb.Ti.H.D block=4 page_stride_bytes=512", G1, "page_pad"},
    {THD, "sep k=T.H.D row_lanes=8", G1, "page_pad"},
    /* replicas: more ranks than heads */
    {THD, "sep k=T.H.D tp=0/4", "L=1,T=4,H=1,D=8,e=f16", "head_replicate"},
    {"sep k=T.H.D tp=3/4", THD, "L=1,T=4,H=1,D=8,e=f16", "head_dedupe"},
    {"sep k=T.H.D tp=0/4", "sep k=T.H.D tp=1/4", "L=1,T=4,H=2,D=8,e=f16", "head_dedupe head_replicate"},
    {"sep k=T.H.D tp=1/2", "sep k=H.T.D tp=1/2", G1, "head_order_transpose"},
    /* view_reinterpret */
    {FA, FA, G1, "view_reinterpret"},
    {THD, "sep k=T.H.D v=T.H.D e=f16", G1, "view_reinterpret"},
    {"sep k=T.H.D e=bf16", THD, "L=2,T=9,H=2,D=8,e=bf16", "view_reinterpret"},
    {FA " mla", FA " mla", G1, "view_reinterpret"},
    /* latent to latent */
    {"lat k=T.C", "lat k=Tb.Ti.C block=64", "L=2,T=9,H=1,D=8,e=f16", "reblock"},
    {"lat k=T.C", "lat k=C.T", "L=2,T=9,H=1,D=8,e=f16", "axis_permute"},
    {"lat k=T.C", "lat k=L.T.C row_lanes=9", "L=2,T=9,H=1,D=8,e=f16", "layer_merge page_pad"},
    {"lat k=T.C", "lat k=T.C", "L=2,T=9,H=1,D=8,e=f16", "view_reinterpret"},
    /* nothing: X1, X2, a shard that does not exist */
    {FA, FA " mla", G1, ""},
    {"lat k=T.C", "sep k=T.H.D mla", "L=2,T=9,H=1,D=8,e=f16", ""},
    {FA, FA " tp=0/2", G1, ""},
    {FA " tp=0/2", FA " tp=1/2", G1, ""},
    {FA " tp=0/3", FA " tp=0/3", G1, ""},
    /* one array for two widths is an X4 that keeps its words */
    {THD, FA, "L=1,T=9,H=2,D=6,Dv=4,e=f16", "kv_merge reblock"},
};

static void pair_words__every_word_with_and_without(void **state)
{
    (void)state;
    uint32_t seen = 0;
    for (size_t i = 0; i < KVT_COUNT(word_cases); i++) {
        char src[256], dst[256], text[512];
        snprintf(src, sizeof src, "src %s", word_cases[i][0]);
        snprintf(dst, sizeof dst, "dst %s", word_cases[i][1]);
        kv_layout *s = kvt_layout(src), *d = kvt_layout(dst);
        const kv_geometry g = kvt_geometry(word_cases[i][2]);
        const uint32_t w = kv_pair_words(s, d, &g);
        print_words(w, text);
        if (strcmp(text, word_cases[i][3]) != 0)
            fail_msg("%s -> %s: \"%s\" instead of \"%s\"", src, dst, text, word_cases[i][3]);
        seen |= w;
        kv_layout_free(s);
        kv_layout_free(d);
    }
    const uint32_t others = 1U << KV_W_PAGE_REMAP | 1U << KV_W_PP_RESHARD |
                            1U << KV_W_TP_RESHARD; /* of sealed pages, of stages and shards on ranks */
    assert_int_equal(seen & others, 0);
    assert_int_equal(seen | others, (1U << KV_W_COUNT) - 1); /* no other word without a case */
}

static void word_names__stand_in_their_order(void **state)
{
    (void)state;
    for (int i = 1; i < KV_W_COUNT; i++)
        assert_true(strcmp(kv_layout_word_name((kv_layout_word)(i - 1)), kv_layout_word_name((kv_layout_word)i)) < 0);
    assert_string_equal(kv_layout_word_name(KV_W_COUNT), "?");
    assert_null(kv_layout_frontier_name(KV_X_NONE));
    assert_string_equal(kv_layout_frontier_name(KV_X1_LATENT_KV), "X1_LATENT_KV");
    assert_string_equal(kv_layout_frontier_name(KV_X2_HEAD_GATHER), "X2_HEAD_GATHER");
    assert_string_equal(kv_layout_frontier_name(KV_X4_GEOMETRY_UNREPRESENTABLE), "X4_GEOMETRY_UNREPRESENTABLE");
}

/* ---- the 56 published pairs, by hand ---------------------------------------------------------- */

/* D devectorize, M kv_merge, O head_order_transpose, P axis_permute, R reblock, S kv_split, T v_dim_transpose,
 * V vectorize. Worked out from the table in design section 3:
 *   blocks 16 0 0 64 0 32 16 16; one array: fi, tr, fa; Dx: px alone; V over whole T with D before it: lc alone;
 *   H first: hf (K, V), lc (V); normal K: T H D for fa, sg, lc, Tb H Ti D for lm, tr, the others alone. */
static const char *const short_names[] = {"fi", "hf", "lc", "lm", "sg", "tr", "fa", "px"};
static const char *const long_names[] = {"flashinfer-nhd", "hf-dynamic-cache", "llamacpp", "lmdeploy-turbomind",
                                         "sglang",         "trtllm",           "vllm-fa",  "vllm-paged-x"};
static const char *const published_pairs[8][8] = {
    /*         fi       hf      lc       lm      sg     tr      fa      px */
    /* fi */ {NULL, "ORS", "OPRST", "PRS", "PRS", "PR", "P", "PSV"},
    /* hf */ {"MOR", NULL, "OT", "OR", "O", "MOR", "MOR", "ORV"},
    /* lc */ {"MOPRT", "OT", NULL, "OPRT", "OT", "MOPRT", "MORT", "OPRTV"},
    /* lm */ {"MPR", "OR", "OPRT", NULL, "PR", "MR", "MPR", "PRV"},
    /* sg */ {"MPR", "O", "OT", "PR", NULL, "MPR", "MR", "PRV"},
    /* tr */ {"PR", "ORS", "OPRST", "RS", "PRS", NULL, "PR", "PRSV"},
    /* fa */ {"P", "ORS", "ORST", "PRS", "RS", "PR", NULL, "PSV"},
    /* px */ {"DMP", "DOR", "DOPRT", "DPR", "DPR", "DMPR", "DMP", NULL},
};

static uint32_t words_of_letters(const char *letters)
{
    static const struct {
        char letter;
        kv_layout_word word;
    } map[] = {{'D', KV_W_HEAD_DIM_DEVECTORIZE}, {'M', KV_W_KV_MERGE},          {'O', KV_W_HEAD_ORDER_TRANSPOSE},
               {'P', KV_W_AXIS_PERMUTE},         {'R', KV_W_REBLOCK},           {'S', KV_W_KV_SPLIT},
               {'T', KV_W_V_DIM_TRANSPOSE},      {'V', KV_W_HEAD_DIM_VECTORIZE}};
    uint32_t w = 0;
    for (const char *c = letters; *c != '\0'; c++)
        for (size_t i = 0; i < KVT_COUNT(map); i++)
            if (map[i].letter == *c) w |= 1U << map[i].word;
    return w;
}

static void pair_words__of_the_56_published_pairs_are_those_found_by_hand(void **state)
{
    (void)state;
    kv_catalogue c = kvt_published();
    const kv_geometry g = kvt_geometry(KVT_PUBLISHED_GEOMETRY);
    int pairs = 0;
    for (int s = 0; s < 8; s++)
        for (int d = 0; d < 8; d++) {
            if (s == d) continue;
            char text[512];
            const uint32_t w =
                kv_pair_words(kv_catalogue_find(&c, long_names[s]), kv_catalogue_find(&c, long_names[d]), &g);
            print_words(w, text);
            if (w != words_of_letters(published_pairs[s][d]))
                fail_msg("%s->%s: %s", short_names[s], short_names[d], text);
            pairs++;
        }
    assert_int_equal(pairs, 56);
    kv_catalogue_free(&c);
}

/* ---- frontiers --------------------------------------------------------------------------------- */

static const struct {
    const char *src, *dst, *geometry;
    kv_layout_frontier want;
    const char *says[3];
} frontier_cases[] = {
    {FA, "sep k=T.H.D", G1, KV_X_NONE, {"", "", ""}},
    {FA, FA " mla", G1, KV_X1_LATENT_KV, {"dst caches a latent row", "2 kv heads", "head_dim 8"}},
    {FA " mla", FA, G1, KV_X1_LATENT_KV, {"src caches a latent row", "", ""}},
    {"lat k=T.C", FA, "L=1,T=9,H=1,D=8,e=f16", KV_X1_LATENT_KV, {"src caches", "dst", ""}},
    {"lat k=T.C", "int k=KV.T.H.D mla", "L=1,T=9,H=1,D=8,e=f16", KV_X1_LATENT_KV, {"", "", ""}},
    {FA " mla", FA " mla tp=0/2", G1, KV_X2_HEAD_GATHER, {"rank 0 of 2", "holds 1", "2"}},
    /* X1 before all others */
    {FA, FA " mla tp=0/3", G1, KV_X1_LATENT_KV, {"", "", ""}},
    {"sep k=T.H.Dg.Dx x=16", FA " mla", G1, KV_X1_LATENT_KV, {"", "", ""}},
    /* a missing shard before a gather, a gather before a missing shape */
    {FA " tp=0/3", FA, G1, KV_X4_GEOMETRY_UNREPRESENTABLE, {"src", "size of 3", "2 kv heads"}},
    {FA, FA " tp=2/3", G1, KV_X4_GEOMETRY_UNREPRESENTABLE, {"dst", "size of 3", "rank 2"}},
    {FA " tp=0/2", FA " tp=2/3", G1, KV_X4_GEOMETRY_UNREPRESENTABLE, {"dst", "3", ""}},
    {"sep k=T.H.Dg.Dx x=16 tp=0/2", FA, G1, KV_X2_HEAD_GATHER, {"rank 0 of 2", "1 of 2", "2"}},
    {FA " tp=0/2", FA " tp=1/2", G1, KV_X2_HEAD_GATHER, {"from head 0", "from head 1", ""}},
    {FA " tp=0/2", FA " tp=0/4", "L=1,T=9,H=4,D=8,e=f16", KV_X2_HEAD_GATHER, {"2 of 4", "holds 1 from", ""}},
    {FA " tp=1/4", FA " tp=2/8", "L=1,T=9,H=4,D=8,e=f16", KV_X_NONE, {"", "", ""}},
    {FA " tp=0/2", FA, "L=1,T=9,H=1,D=8,e=f16", KV_X_NONE, {"", "", ""}}, /* one head: the shard is the whole */
    {"sep k=T.H.D",
     "sep k=T.H.Dg.Dx x=4",
     "L=1,T=40,H=2,D=6,e=f16",
     KV_X4_GEOMETRY_UNREPRESENTABLE,
     {"dst", "x 4", "head_dim 6"}},
    {"sep k=T.H.Dg.Dx x=16", "sep k=T.H.D", G1, KV_X4_GEOMETRY_UNREPRESENTABLE, {"src", "x 16", "head_dim 8"}},
    {"sep k=T.H.D", FA, "L=1,T=9,H=2,D=6,Dv=4,e=f16", KV_X4_GEOMETRY_UNREPRESENTABLE, {"dst", "6", "4"}},
    {"sep k=T.H.D", "sep k=H.T.D", "L=1,T=9,H=2,D=6,Dv=4,e=f16", KV_X_NONE, {"", "", ""}},
    {"lat k=T.C", "lat k=C.T", G1, KV_X4_GEOMETRY_UNREPRESENTABLE, {"src", "2 kv heads", ""}},
    {"lat k=T.C",
     "lat k=C.T tp=1/2",
     "L=1,T=9,H=1,D=8,e=f16",
     KV_X_NONE,
     {"", "", ""}}, /* a latent row is on every rank */
};

static void pair_frontier__finds_the_first_in_order_with_its_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < KVT_COUNT(frontier_cases); i++) {
        char src[256], dst[256], reason[KV_REASON_TEXT];
        snprintf(src, sizeof src, "src %s", frontier_cases[i].src);
        snprintf(dst, sizeof dst, "dst %s", frontier_cases[i].dst);
        kv_layout *s = kvt_layout(src), *d = kvt_layout(dst);
        const kv_geometry g = kvt_geometry(frontier_cases[i].geometry);
        kv_layout_frontier f;
        kv_err err = {0};
        kvt_ok(kv_pair_frontier(s, d, &g, &f, reason, &err), &err);
        if (f != frontier_cases[i].want)
            fail_msg("%s -> %s at %s: X%d, %s", src, dst, frontier_cases[i].geometry, (int)f, reason);
        for (int k = 0; k < 3; k++)
            if (strstr(reason, frontier_cases[i].says[k]) == NULL)
                fail_msg("%s -> %s: \"%s\" lacks \"%s\"", src, dst, reason, frontier_cases[i].says[k]);
        if (f == KV_X_NONE) assert_string_equal(reason, "");
        kv_layout_free(s);
        kv_layout_free(d);
    }
}

/* ---- d3, d5 ---------------------------------------------------------------------------------------- */

/* d3: [blocks, B, 2, 2D] with two kv heads reads equally well as packed K,V per head or as K/V planes. */
static void pair__two_readings_of_one_shape_are_two_layouts(void **state)
{
    (void)state;
    kv_layout *packed = kvt_layout("packed int k=Tb.Ti.H.KV.D block=4"),
              *planes = kvt_layout("planes int k=Tb.Ti.KV.H.D block=4");
    const kv_geometry g = kvt_geometry("L=1,T=12,H=2,D=4,e=f16");
    const kv_index a = kvt_bind(packed, &g, 1), b = kvt_bind(planes, &g, 1);
    assert_int_equal(a.native, 3 * 4 * 2 * 8);
    assert_int_equal(b.native, a.native);
    assert_false(kv_index_same_image(&a, &b));
    assert_int_equal(kv_pair_words(packed, planes, &g), 1U << KV_W_KV_MOVE);
    const kv_geometry one =
        kvt_geometry("L=1,T=12,H=1,D=4,e=f16"); /* one head: the readings agree, the name of the move stays */
    const kv_index c = kvt_bind(packed, &one, 1), d = kvt_bind(planes, &one, 1);
    assert_true(kv_index_same_image(&c, &d));
    assert_int_equal(kv_pair_words(packed, planes, &one), 1U << KV_W_KV_MOVE);
    kv_layout_free(packed);
    kv_layout_free(planes);
}

/* ---- laws ----------------------------------------------------------------------------------------- */

/* One field of a descriptor changed, or the whole another one. */
static kvt_desc neighbour(uint64_t *r, const kvt_desc *d, const kv_geometry *g)
{
    kvt_desc n = *d;
    const int from = d->store == KV_STORE_INTERLEAVED ? kvt_place_of(&d->axes[0], KV_F_KV) + 1 : 0;
    switch (kvt_below(r, 8)) {
    case 0: kvt_shuffle(r, &n.axes[1], from); break;
    case 1: kvt_shuffle(r, &n.axes[0], from); break;
    case 2: n.block = d->block > 0 ? d->block * 2 : 0; break;
    case 3: n.element = (int)kvt_below(r, KV_ELEM_COUNT); break;
    case 4: n.row_lanes = d->row_lanes > 0 ? d->row_lanes + 1 : 0; break;
    case 5: n.page_stride_bytes = 0; break;
    case 6:
        n.tp_size = 1 + kvt_below(r, 3);
        n.tp_rank = kvt_below(r, n.tp_size);
        break;
    default: n = kvt_random_desc(r, g, d->store == KV_STORE_LATENT ? d->store : (kv_store)kvt_below(r, 2)); break;
    }
    if (n.store == KV_STORE_LATENT) n.axes[1].n = 0;
    if (n.store == KV_STORE_INTERLEAVED && !kvt_same_pages(&n)) n.page_stride_bytes = 0;
    return n;
}

static bool same_desc(const kvt_desc *a, const kvt_desc *b, kv_elem geometry)
{
    const int ea = a->element < 0 ? (int)geometry : a->element, eb = b->element < 0 ? (int)geometry : b->element;
    const int64_t bytes = kv_elem_bytes((kv_elem)ea);
    const int64_t xa = a->x > 0 ? a->x : a->x_bytes / bytes, xb = b->x > 0 ? b->x : b->x_bytes / bytes;
    bool same = a->store == b->store && a->block == b->block && a->tx == b->tx && ea == eb && xa == xb &&
                a->page_stride_bytes == b->page_stride_bytes && a->row_lanes == b->row_lanes &&
                a->tp_size == b->tp_size && a->tp_rank == b->tp_rank;
    for (int half = 0; half < 2; half++) {
        same = same && a->axes[half].n == b->axes[half].n;
        for (int i = 0; same && i < a->axes[half].n; i++) same = a->axes[half].f[i] == b->axes[half].f[i];
    }
    return same;
}

static bool maps_differ(const kv_layout *a, const kv_layout *b, const kv_geometry *g)
{
    const int64_t unit = kv_pair_unit_layers(a, b, g);
    kvt_map ma = kvt_map_new(a, g, unit), mb = kvt_map_new(b, g, unit);
    const bool differ = kv_layout_element(a, g) != kv_layout_element(b, g) || ma.n != mb.n ||
                        memcmp(ma.at, mb.at, (size_t)ma.n * sizeof *ma.at) != 0;
    kvt_map_free(&ma);
    kvt_map_free(&mb);
    return differ;
}

typedef struct {
    int views, differing, refused, quiet;
} tally;

static void check_words(const kvt_desc *da, const kvt_desc *db, const kv_layout *a, const kv_layout *b,
                        const kv_geometry *g, const char *what, tally *t)
{
    kv_layout_frontier f;
    char reason[KV_REASON_TEXT];
    kv_err err = {0};
    kvt_ok(kv_pair_frontier(a, b, g, &f, reason, &err), &err);
    const uint32_t w = kv_pair_words(a, b, g), back = kv_pair_words(b, a, g), view = 1U << KV_W_VIEW_REINTERPRET;
    if ((w == 0) != (back == 0) || (w == view) != (back == view)) fail_msg("%s: the way back says otherwise", what);
    if ((w & view) != 0 && w != view) fail_msg("%s: view_reinterpret stands with others", what);
    if (f == KV_X1_LATENT_KV || f == KV_X2_HEAD_GATHER) {
        if (w != 0) fail_msg("%s: refused, but with words", what);
        t->refused++;
        return;
    }
    if (w == 0) { /* only a missing shard */
        if (f != KV_X4_GEOMETRY_UNREPRESENTABLE || strstr(reason, "tensor-parallel") == NULL)
            fail_msg("%s: no word", what);
        return;
    }
    if ((w == view) != same_desc(da, db, g->element))
        fail_msg("%s: words %x, descriptors %s", what, w, same_desc(da, db, g->element) ? "equal" : "differ");
    if (f != KV_X_NONE) return;
    const bool differ = maps_differ(a, b, g);
    if (differ && w == view) fail_msg("%s: the images differ, yet it is called a view", what);
    t->views += w == view;
    t->differing += differ;
    t->quiet += !differ && w != view;
}

static void pair_words__name_every_difference(void **state)
{
    (void)state;
    uint64_t r = 4711;
    tally t = {0};
    for (int i = 0; i < 6000; i++) {
        const kv_store store = (kv_store)(i % 3);
        const kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, true);
        const kvt_desc da = kvt_random_desc(&r, &g, store), db = kvt_one_in(&r, 10) ? da : neighbour(&r, &da, &g);
        char ta[KVT_TEXT], tb[KVT_TEXT], what[2 * KVT_TEXT + 256], geometry[KV_GEOMETRY_TEXT];
        kvt_desc_text(&da, "a", ta);
        kvt_desc_text(&db, "b", tb);
        kv_layout *a = kvt_layout(ta), *b = kvt_layout(tb);
        for (int k = 0; k < 6; k++) {
            kv_geometry at = g;
            if (k > 0) {
                at.layers = 1 + kvt_below(&r, 3);
                at.tokens = kvt_below(&r, 20);
                at.element = (kv_elem)kvt_below(&r, KV_ELEM_COUNT);
                if (store != KV_STORE_LATENT) at.kv_heads = 1 + kvt_below(&r, 4);
                if (k > 3) at.head_dim = at.head_dim_v = 1 + kvt_below(&r, 24);
            }
            kv_geometry_print(&at, geometry);
            snprintf(what, sizeof what, "%s -> %s at %s", ta, tb, geometry);
            check_words(&da, &db, a, b, &at, what, &t);
        }
        kv_layout_free(a);
        kv_layout_free(b);
    }
    assert_true(t.views > 1000 && t.differing > 5000 && t.refused > 100 && t.quiet > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair_words__every_word_with_and_without),
        cmocka_unit_test(word_names__stand_in_their_order),
        cmocka_unit_test(pair_words__of_the_56_published_pairs_are_those_found_by_hand),
        cmocka_unit_test(pair_frontier__finds_the_first_in_order_with_its_numbers),
        cmocka_unit_test(pair__two_readings_of_one_shape_are_two_layouts),
        cmocka_unit_test(pair_words__name_every_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
