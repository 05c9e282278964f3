/* Moves between TP sizes with threads as ranks: the matrix of the issue, the published cases. */
#include "grid/row/kv_row.h"
#include "tests/kv_test_images.h"
#include "tests/tp/kv_tp_test.h"
#include "tp/kv_tp_shard_index.h"

_Static_assert((int)KV_TP_FALSE == (int)KV_FALSE && (int)KV_TP_TRUE == (int)KV_TRUE &&
                   (int)KV_TP_NULL == (int)KV_NULL && (int)KV_TP_OBS == (int)KV_OBS_COUNT &&
                   (int)KV_TP_FORWARD == (int)KV_OBS_FORWARD && (int)KV_TP_IDENTICAL == (int)KV_OBS_IDENTICAL &&
                   (int)KV_TP_DIFF_IS_PADDING == (int)KV_OBS_DIFF_IS_PADDING && (int)KV_TP_TOKENS == (int)KV_OBS_TOKENS,
               "a result's observations are those of a row");

static const char *const lossless[] = {"vllm-fa",          "vllm-paged-x", "trtllm",         "sglang",
                                       "hf-dynamic-cache", "llamacpp",     "flashinfer-nhd", "lmdeploy-turbomind"};

static kv_verdict grade(const kv_tp_result *r, int64_t tokens)
{
    return kv_grade(r->refused, r->converts, tokens == 0, r->observed);
}

/* Runs the move on its ranks; all must end well and with one result. */
static const kv_tp_result *moved(kvt_tp_move *m)
{
    static kvt_tp_rank rank[KV_TP_RANKS_MAX];
    const int32_t n = (int32_t)kv_tp_group_ranks(m->spec.tp[0], m->spec.tp[1]);
    kvt_tp_group(n, 60, rank, kvt_tp_move_rank, m);
    for (int32_t r = 0; r < n; r++)
        if (rank[r].rc != KV_OK) fail_msg("rank %d: %s: %s", r, kv_rc_name(rank[r].rc), rank[r].err.text);
    for (int32_t r = 1; r < n; r++) assert_memory_equal(&m->result[r], &m->result[0], sizeof m->result[0]);
    return &m->result[0];
}

static void check_exact(const kv_tp_result *r, const kv_tp_spec *s)
{
    const int64_t heads = s->g->kv_heads;
    const kv_verdict v = grade(r, s->g->tokens);
    if (v != KV_VERDICT_EXACT_BYTE && v != KV_VERDICT_EXACT_TOKEN)
        fail_msg("%s/%d -> %s/%d at H %d: verdict %d (%d %d %d %d)", s->layout[0]->name, (int)s->tp[0],
                 s->layout[1]->name, (int)s->tp[1], (int)heads, (int)v, r->observed[0], r->observed[1], r->observed[2],
                 r->observed[3]);
    assert_int_equal(v == KV_VERDICT_EXACT_BYTE, r->unread_padding == 0);
    assert_int_equal(r->diff_positions, r->unread_padding);
    assert_true(r->gather_agrees && r->bijective[0] && r->bijective[1] && r->minimal);
    assert_int_equal(r->checked[0], r->total[0]);
    assert_int_equal(r->checked[1], r->total[1]);
    assert_memory_equal(r->decoded, r->reference, sizeof r->decoded);
    /* bytes by another formula than the library's: head by head */
    const int64_t head =
        s->g->layers * s->g->tokens * (s->g->head_dim + s->g->head_dim_v) * kv_elem_bytes(s->g->element);
    for (int back = 0; back < 2; back++) {
        int64_t sent = 0, received = 0;
        for (int64_t to = 0; to < r->ranks; to++) {
            int64_t lacks = 0;
            for (int64_t h = 0; h < heads; h++)
                lacks +=
                    kv_tp_shard_holds(heads, s->tp[1 - back], to, h) && !kv_tp_shard_holds(heads, s->tp[back], to, h);
            assert_int_equal(r->received[back][to], lacks * head);
            assert_int_equal(r->least[back][to], lacks * head);
            received += r->received[back][to];
            sent += r->sent[back][to];
        }
        assert_int_equal(sent, received);
        assert_int_equal(r->sent_total[back], sent);
        assert_int_equal(r->least_total[back], sent);
    }
}

static void move__matrix(void **state)
{
    (void)state;
    static const int64_t all_heads[] = {1, 2, 3, 4, 8, 12}, sizes[] = {1, 2, 3, 4, 8};
    static kvt_tp_move m;
    kv_catalogue c = kvt_published();
    int cells = 0;
    for (size_t i = 0; i < KVT_COUNT(all_heads); i++)
        for (size_t a = 0; a < KVT_COUNT(sizes); a++)
            for (size_t b = 0; b < KVT_COUNT(sizes); b++) {
                char text[64];
                snprintf(text, sizeof text, "L=2,T=37,H=%d,D=8,e=%s", (int)all_heads[i],
                         cells % 3 == 1 ? "bf16" : "f16");
                const kv_geometry g = kvt_geometry(text);
                const size_t pair = (size_t)cells % 64; /* all 64 ordered pairs of the eight come by */
                m.spec = kvt_tp_spec(kv_catalogue_find(&c, lossless[pair / 8]), sizes[a],
                                     kv_catalogue_find(&c, lossless[(pair + pair / 8) % 8]), sizes[b], &g);
                if (!kv_tp_shard_exists(all_heads[i], sizes[a]) || !kv_tp_shard_exists(all_heads[i], sizes[b])) {
                    kv_tp_result r;
                    kv_err err = {0};
                    kvt_ok(kv_tp_examine(&m.spec, &r, &err), &err);
                    assert_true(r.refused && r.frontier == (int32_t)KV_X4_GEOMETRY_UNREPRESENTABLE);
                    assert_non_null(strstr(r.reason, "does not exist"));
                    continue;
                }
                check_exact(moved(&m), &m.spec);
                cells++;
            }
    assert_int_equal(cells, 93);
    kv_catalogue_free(&c);
}

/* Layer axes, pad lanes, page strides, latents, V of another width, no tokens, one token, all element types. */
static void move__other_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *src, *dst, *g;
        int64_t p, q;
    } all[] = {
        {"a int k=Tb.L.KV.H.Ti.D v=Tb.L.KV.H.Ti.D block=4", "b sep k=T.H.D v=H.D.T", "L=3,T=9,H=4,D=6,e=f32", 2, 4},
        {"a sep k=T.H.D v=T.H.D", "b int k=L.KV.Tb.Ti.H.D v=L.KV.Tb.Ti.H.D block=3", "L=3,T=7,H=4,D=6,e=bf16", 4, 1},
        {"a sep k=Tb.H.Ti.D v=Tb.H.Ti.D block=4 row_lanes=9", "b sep k=Tb.Ti.H.D v=Tb.H.D.Ti block=5",
         "L=2,T=11,H=6,D=6,e=f16", 3, 2},
        {"a sep k=Tb.H.Ti.D v=Tb.H.Ti.D block=4 page_stride_bytes=512", "b sep k=T.H.D v=T.H.D",
         "L=2,T=9,H=4,D=6,e=f16", 2, 4},
        {"a sep k=T.H.D v=T.H.D", "b sep k=Tb.H.Ti.D v=Tb.H.Ti.D block=4 page_stride_bytes=512",
         "L=2,T=9,H=4,D=6,e=f16", 1, 4},
        {"a sep k=T.H.D v=T.H.D", "b sep k=H.T.D v=H.D.T", "L=2,T=9,H=4,D=6,Dv=4,e=f16", 2, 8},
        {"a lat k=Tb.Ti.C block=4", "b lat k=T.C", "L=2,T=9,H=1,D=12,e=bf16", 2, 4},
        {"a lat k=L.T.C", "b lat k=Tb.Ti.C block=5", "L=2,T=9,H=1,D=12,e=bf16", 4, 1},
        {"a sep k=T.H.D v=T.H.D", "b sep k=H.T.D v=H.T.D", "L=2,T=1,H=4,D=6,e=fp8_e4m3", 4, 2},
        {"a sep k=T.H.D v=T.H.D", "b sep k=Tb.H.Ti.D v=Tb.H.Ti.D block=4", "L=2,T=0,H=4,D=6,e=f16", 2, 4},
    };
    static kvt_tp_move m;
    for (size_t i = 0; i < KVT_COUNT(all); i++) {
        kv_layout *src = kvt_layout(all[i].src), *dst = kvt_layout(all[i].dst);
        const kv_geometry g = kvt_geometry(all[i].g);
        m.spec = kvt_tp_spec(src, all[i].p, dst, all[i].q, &g);
        m.spec.stale = kvt_pad(g.element, 0);
        m.spec.fill[0] = m.spec.fill[1] = kvt_pad(g.element, 1);
        m.spec.payloads = KV_PAYLOADS;
        const kv_tp_result *r = moved(&m);
        if (r->refused) fail_msg("%s", r->reason);
        const kv_verdict v = grade(r, g.tokens);
        if (v != KV_VERDICT_EXACT_BYTE && v != KV_VERDICT_EXACT_TOKEN)
            fail_msg("%s -> %s: %d", all[i].src, all[i].dst, v);
        assert_true(r->minimal);
        if (g.tokens > 0 && all[i].p != all[i].q && strstr(all[i].src, " lat ") == NULL) check_exact(r, &m.spec);
        if (g.tokens == 0) assert_int_equal(r->sent_total[0] + r->total[0], 0);
        if (strcmp(all[i].dst, "b lat k=T.C") == 0) { /* ranks 2 and 3 receive the row, from a sender each */
            assert_int_equal(r->received[0][2], 2 * 9 * 12 * 2);
            assert_int_equal(r->sent[0][0], r->sent[0][1]);
            assert_int_equal(r->sent_total[1], 0);
        }
        kv_layout_free(src);
        kv_layout_free(dst);
    }
}

/* Case d1: once TP exceeds the kv heads every rank keeps one replicated head; H8 as the control. */
static void move__d1(void **state)
{
    (void)state;
    static kvt_tp_move m;
    kv_layout *l = kvt_layout("pages int k=KV.Tb.H.Ti.D v=KV.Tb.H.Ti.D block=4");
    const kv_geometry g = kvt_geometry("L=1,T=8,H=4,D=8,e=bf16"), control = kvt_geometry("L=1,T=8,H=8,D=8,e=bf16");
    m.spec = kvt_tp_spec(l, 4, l, 8, &g);
    const kv_tp_result *r = moved(&m);
    check_exact(r, &m.spec);
    assert_int_equal(grade(r, 8), KV_VERDICT_EXACT_BYTE);
    assert_int_equal(r->received[0][0], 0);      /* rank 0 keeps head 0 */
    assert_int_equal(r->sent[0][0], 8 * 16 * 2); /* and gives it to rank 1 */
    assert_int_equal(r->copies_compared, 4 * 3); /* ranks 2k and 2k+1: after the move, and before each way back */
    static const int64_t chunk[] = {4, 4};
    m.spec.send = KV_TP_SEND_CHUNKS;
    m.spec.chunk = chunk;
    m.spec.n_chunks = 2;
    r = moved(&m);
    check_exact(r, &m.spec);
    assert_int_equal(r->rounds, 2);
    assert_int_equal(r->copies_compared, 4 * 3); /* not once more each round: a leg of many would take for ever */
    m.spec = kvt_tp_spec(l, 8, l, 4, &g);        /* back: each head has two holders */
    check_exact(moved(&m), &m.spec);
    m.spec = kvt_tp_spec(l, 2, l, 8, &control);
    check_exact(moved(&m), &m.spec);
    kv_layout_free(l);
}

/* Case d2: token-major bytes declared head-major. Equal TP copies whole pages and looks right; unequal TP shows it. */
static void move__d2(void **state)
{
    (void)state;
    static kvt_tp_move m;
    kv_layout *declared = kvt_layout("trtllm int k=Tb.KV.H.Ti.D v=Tb.KV.H.Ti.D block=4");
    kv_layout *stored = kvt_layout("stored int k=Tb.KV.Ti.H.D v=Tb.KV.Ti.H.D block=4");
    const kv_geometry g = kvt_geometry("L=1,T=8,H=4,D=8,e=f16"), two = kvt_geometry("L=1,T=8,H=2,D=8,e=f16");
    m.spec = kvt_tp_spec(declared, 2, declared, 2, &two);
    m.spec.stored[0] = m.spec.stored[1] = stored;
    assert_int_equal(grade(moved(&m), 8), KV_VERDICT_EXACT_BYTE);
    m.spec.tp[1] = 1;
    const kv_tp_result *r = moved(&m);
    assert_int_equal(grade(r, 8), KV_VERDICT_NOT_EXACT);
    assert_int_equal(r->observed[KV_TP_FORWARD], KV_TP_FALSE);
    assert_int_equal(r->observed[KV_TP_TOKENS], KV_TP_FALSE);
    m.spec = kvt_tp_spec(declared, 1, declared, 4, &g);
    m.spec.stored[0] = m.spec.stored[1] = stored;
    assert_int_equal(grade(moved(&m), 8), KV_VERDICT_NOT_EXACT);
    m.spec.stored[0] = m.spec.stored[1] = NULL;
    assert_int_equal(grade(moved(&m), 8), KV_VERDICT_EXACT_BYTE);
    kv_layout_free(declared);
    kv_layout_free(stored);
}

/* Case d4 with bytes, and layer by layer: the same result, in more rounds. */
static void move__in_rounds(void **state)
{
    (void)state;
    static kvt_tp_move m;
    kv_layout *a = kvt_layout("a int k=Tb.L.KV.H.Ti.D v=Tb.L.KV.H.Ti.D block=4"),
              *b = kvt_layout("b sep k=H.T.D v=H.D.T");
    const kv_geometry g = kvt_geometry("L=3,T=11,H=4,D=6,e=f16");
    const int64_t chunk[] = {6, 5}, ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    m.spec = kvt_tp_spec(a, 2, b, 4, &g);
    const kv_tp_result whole = *moved(&m);
    check_exact(&whole, &m.spec);
    assert_int_equal(whole.rounds, 1);
    for (int i = 0; i < 3; i++) {
        m.spec.send = i == 0 ? KV_TP_SEND_LAYERS : KV_TP_SEND_CHUNKS;
        m.spec.chunk = i == 0 ? NULL : i == 1 ? chunk : ones;
        m.spec.n_chunks = i == 0 ? 0 : i == 1 ? 2 : 11;
        kv_tp_result r = *moved(&m);
        check_exact(&r, &m.spec);
        assert_int_equal(r.rounds, i == 1 ? 2 : 3);
        r.rounds = 1;
        assert_memory_equal(&r, &whole, sizeof r);
    }
    kv_layout_free(a);
    kv_layout_free(b);
}

/* fp8 on one side: it runs, is a conversion, and the narrower type travels. */
static void move__converts(void **state)
{
    (void)state;
    static kvt_tp_move m;
    kv_catalogue c = kvt_published();
    const kv_geometry g = kvt_geometry("L=1,T=37,H=4,D=8,e=f16");
    for (int turned = 0; turned < 2; turned++) {
        const kv_layout *fp8 = kv_catalogue_find(&c, "vllm-fp8"), *fa = kv_catalogue_find(&c, "vllm-fa");
        m.spec = kvt_tp_spec(turned ? fp8 : fa, 2, turned ? fa : fp8, 4, &g);
        m.spec.fill[turned ? 0 : 1] = 0x2B;
        if (turned) m.spec.stale = 0x6C;
        const kv_tp_result *r = moved(&m);
        assert_int_equal(grade(r, 37), KV_VERDICT_NOT_EXACT);
        assert_true(r->converts && r->gather_agrees && r->minimal && r->finite);
        assert_int_equal(r->sent_total[0], 3 * 37 * 16); /* ranks 1 to 3 lack one head each, a byte an element */
        assert_int_equal(r->worst_ppm > 0, !turned);     /* fp8 to f16 is exact */
        assert_int_equal(r->values_preserved, turned);
    }
    kv_catalogue_free(&c);
}

/* What a result says, it can also deny: one byte too many, one bit of a cached value in the token leg, one in a
 * payload, one on the way back. */
static void deny(void *ctx, kv_tp_point point, void *data)
{
    kvt_tp_at *at = ctx;
    const uint64_t which = at->move->spec.seed;
    if (which == 1 && point == KV_TP_AT_PAYLOAD && at->rank == 1) at->t->received_bytes++;
    if (point != KV_TP_AT_ARRIVED || at->rank != 0) return;
    at->arrived++; /* rank 0 of 2 -> 1: the payload there, then back, then the tokens there */
    if (which >= 2 && (uint64_t)at->arrived == which - 1) ((unsigned char *)kv_image_host_view(data))[8] ^= 2;
}

static void move__can_fail(void **state)
{
    (void)state;
    static kvt_tp_move m;
    kv_layout *l = kvt_layout("a sep k=T.H.D v=T.H.D");
    const kv_geometry g = kvt_geometry("L=1,T=5,H=2,D=6,e=f16");
    m.hook = deny;
    for (uint64_t which = 0; which <= 4; which++) {
        m.spec = kvt_tp_spec(l, 2, l, 1, &g);
        m.spec.seed = which;
        m.spec.payloads = 1;
        const kv_tp_result *r = moved(&m);
        assert_int_equal(r->minimal, which != 1);
        assert_int_equal(r->observed[KV_TP_FORWARD], which != 2);
        assert_int_equal(r->gather_agrees, which != 2);
        assert_int_equal(r->observed[KV_TP_IDENTICAL], which != 2 && which != 3);
        assert_int_equal(r->diff_positions, which == 2 || which == 3);
        assert_int_equal(r->observed[KV_TP_DIFF_IS_PADDING], which != 2 && which != 3);
        assert_int_equal(r->observed[KV_TP_TOKENS], which != 4);
        assert_int_equal(memcmp(r->logits_digest, r->reference_digest, sizeof r->logits_digest) == 0, which != 4);
    }
    m.hook = NULL;
    kv_layout_free(l);
}

/* Pages whose bytes only the caller can read: its own mark for each layer, head, page and byte. */
typedef struct {
    kvt_tp_move *move;
    uint8_t digest[2][KV_TP_DIGEST_BYTES]; /* sums of what arrived, and of what was there before */
    int32_t layers;
} page_reader;

static uint8_t page_byte(const kv_index *ix, int64_t layer, int64_t at)
{
    kv_coord c;
    assert_true(kv_index_inverse(ix, at, &c));
    return (
        uint8_t)(kv_payload_mix((uint64_t)(((layer * 16 + ix->first_head + c.head) * 64 + c.token) * 64 + c.lane)) >>
                 9);
}

static kv_rc page_build(void *ctx, const kv_index *ix, int64_t layer, uint8_t *bytes, kv_err *err)
{
    (void)ctx;
    (void)err;
    for (int64_t i = 0; i < ix->native; i++) bytes[i] = page_byte(ix, layer, i);
    return KV_OK;
}

static kv_rc page_decode(void *ctx, const kv_index *ix, int64_t layer, const uint8_t *bytes, kv_err *err)
{
    page_reader *p = ctx;
    (void)err;
    assert_int_equal(p->layers++, layer);
    for (int64_t i = 0; i < ix->native; i++) {
        p->digest[0][i % KV_TP_DIGEST_BYTES] = (uint8_t)(p->digest[0][i % KV_TP_DIGEST_BYTES] * 3 + bytes[i]);
        p->digest[1][i % KV_TP_DIGEST_BYTES] =
            (uint8_t)(p->digest[1][i % KV_TP_DIGEST_BYTES] * 3 + page_byte(ix, layer, i));
    }
    return KV_OK;
}

static void page_finish(void *ctx, int32_t tokens[2][KV_DECODE_STEPS], uint8_t digest[2][KV_TP_DIGEST_BYTES])
{
    const page_reader *p = ctx;
    memcpy(digest, p->digest, sizeof p->digest);
    for (int i = 0; i < KV_DECODE_STEPS; i++) tokens[0][i] = tokens[1][i] = p->digest[1][i] % KV_VOCABULARY;
}

static void page_rank(void *ctx, int32_t rank, kv_tp_transport *t, kv_device *dev, kv_rc *rc, kv_err *err)
{
    kvt_tp_move *m = ctx;
    kv_tp_spec s = m->spec;
    kvt_tp_at at = {m, rank, t, 0};
    page_reader reader = {.move = m};
    const kv_tp_content content = {"pages", &reader, page_build, page_decode, page_finish};
    s.transport = t;
    s.device = dev;
    s.content = &content;
    s.hook = m->hook;
    s.hook_ctx = &at;
    *rc = kv_tp_move(&s, &m->result[rank], err);
}

/* One byte of the last payload (the content) on its way into rank 0, or on its way back. */
static void deny_page(void *ctx, kv_tp_point point, void *data)
{
    kvt_tp_at *at = ctx;
    if (point != KV_TP_AT_ARRIVED || at->rank != 0) return;
    at->arrived++; /* two payloads of layer 0: there, back, there, back */
    if (at->arrived == (int)at->move->spec.seed) ((unsigned char *)kv_image_host_view(data))[5] ^= 1;
}

static void move__of_pages_of_bytes(void **state)
{
    (void)state;
    static kvt_tp_move m;
    static kvt_tp_rank rank[KV_TP_RANKS_MAX];
    static const int64_t sizes[][2] = {{2, 1}, {1, 4}, {4, 2}, {2, 8}, {8, 4}};
    const kv_geometry g = kvt_geometry("L=2,T=3,H=4,D=24,e=fp8_e4m3");
    m.hook = deny_page;
    for (size_t i = 0; i < KVT_COUNT(sizes); i++)
        for (uint64_t spoilt = 0; spoilt <= 4; spoilt++) {
            const int32_t n = (int32_t)kv_tp_group_ranks(sizes[i][0], sizes[i][1]);
            const bool copies = sizes[i][0] > 4 || sizes[i][1] > 4;
            if (copies && spoilt > 0) continue; /* copies that differ are another error */
            m.spec = (kv_tp_spec){.tp = {sizes[i][0], sizes[i][1]}, .g = &g, .seed = spoilt, .payloads = 2};
            kvt_tp_group(n, 60, rank, page_rank, &m);
            for (int32_t r = 0; r < n; r++)
                if (rank[r].rc != KV_OK) fail_msg("rank %d: %s", r, rank[r].err.text);
            const kv_tp_result *r = &m.result[0];
            for (int32_t k = 1; k < n; k++) assert_memory_equal(&m.result[k], r, sizeof *r);
            assert_true(r->minimal && r->bijective[0] && r->bijective[1]);
            assert_int_equal(r->total[1], 3 * 24 * (sizes[i][1] > 4 ? sizes[i][1] : 4));
            assert_int_equal(r->checked[1], r->total[1]);
            assert_int_equal(r->padding[0] + r->padding[1], 0);
            assert_int_equal(r->observed[KV_TP_FORWARD], spoilt != 1 && spoilt != 3);
            assert_int_equal(r->observed[KV_TP_IDENTICAL], spoilt == 0);
            assert_int_equal(r->observed[KV_TP_TOKENS], spoilt != 3); /* the content, where it arrived */
            int64_t lacks = 0;
            for (int64_t k = 0; k < n; k++) lacks += kv_tp_shard_lacks(4, sizes[i][0], sizes[i][1], k);
            assert_int_equal(r->sent_total[0], lacks * 2 * 3 * 24);
        }
    m.hook = NULL;
}

static void move__frontiers(void **state)
{
    (void)state;
    kv_catalogue c = kvt_published();
    kv_layout *shard = kvt_layout("s sep k=T.H.D v=T.H.D tp=1/2");
    const kv_geometry g = kvt_geometry("L=1,T=8,H=2,D=8,e=f16");
    const kv_layout *fa = kv_catalogue_find(&c, "vllm-fa");
    kv_tp_result r;
    kv_err err = {0};
    kv_tp_spec s = kvt_tp_spec(kv_catalogue_find(&c, "deepseek-mla"), 2, fa, 1, &g);
    kvt_ok(kv_tp_examine(&s, &r, &err), &err);
    assert_int_equal(r.frontier, KV_X1_LATENT_KV);
    for (int i = 0; i < KV_TP_OBS; i++) assert_int_equal(r.observed[i], KV_TP_NULL);
    s = kvt_tp_spec(fa, 2, kv_catalogue_find(&c, "vllm-paged-x16"), 1, &g);
    kvt_ok(kv_tp_examine(&s, &r, &err), &err);
    assert_int_equal(r.frontier, KV_X4_GEOMETRY_UNREPRESENTABLE);
    assert_non_null(strstr(r.reason, "x 16 does not divide head_dim 8"));
    s = kvt_tp_spec(fa, 3, fa, 1, &g);
    kvt_ok(kv_tp_examine(&s, &r, &err), &err);
    assert_true(r.refused && strstr(r.reason, "size of 3 neither divides 2 kv heads") != NULL);
    s = kvt_tp_spec(shard, 2, fa, 1, &g);
    kvt_refused(kv_tp_examine(&s, &r, &err), KV_EINVAL, &err, "shard", KVT_SAYS("declared as a shard of 2"));
    s = kvt_tp_spec(fa, 128, fa, 1, &g);
    kvt_refused(kv_tp_examine(&s, &r, &err), KV_EINVAL, &err, "size", KVT_SAYS("size of 128", "64"));
    kv_layout_free(shard);
    kv_catalogue_free(&c);
}

static void wrong_group(void *ctx, int32_t rank, kv_tp_transport *t, kv_device *dev, kv_rc *rc, kv_err *err)
{
    kvt_tp_move_rank(ctx, rank, t, dev, rc, err);
}

static void move__needs_its_ranks(void **state)
{
    (void)state;
    static kvt_tp_move m;
    kvt_tp_rank rank[2];
    kv_layout *l = kvt_layout("a sep k=T.H.D v=T.H.D");
    const kv_geometry g = kvt_geometry("L=1,T=5,H=4,D=6,e=f16");
    m.spec = kvt_tp_spec(l, 4, l, 1, &g);
    kvt_tp_group(2, 60, rank, wrong_group, &m);
    for (int r = 0; r < 2; r++)
        kvt_refused(rank[r].rc, KV_EINVAL, &rank[r].err, "group", KVT_SAYS("takes 4 ranks, the group has 2"));
    kv_layout_free(l);
}

static void move__survives_every_allocation_failure(void **state)
{
    (void)state;
    static kvt_tp_move m;
    kv_layout *l = kvt_layout("a sep k=T.H.D v=T.H.D"), *b = kvt_layout("b sep k=Tb.H.Ti.D v=Tb.H.Ti.D block=4");
    const kv_geometry g = kvt_geometry("L=1,T=5,H=2,D=6,e=f16");
    kv_device *dev = kvt_cpu();
    m.spec = kvt_tp_spec(l, 1, b, 1, &g);
    m.spec.device = dev;
    for (long n = 0;; n++) {
        kv_err err = {0};
        kv_tp_hub *hub = NULL;
        kvt_ok(kv_tp_hub_new(1, &hub, &err), &err);
        kvt_ok(kv_tp_local_new(hub, 0, 5, &m.spec.transport, &err), &err);
        kv_alloc_fail_after(n);
        const kv_rc rc = kv_tp_move(&m.spec, &m.result[0], &err);
        kv_alloc_fail_after(-1);
        kv_tp_close(m.spec.transport);
        kv_tp_hub_free(hub);
        if (rc == KV_OK) {
            assert_true(n > 20);
            check_exact(&m.result[0], &m.spec);
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
        cmocka_unit_test(move__matrix),
        cmocka_unit_test(move__other_layouts),
        cmocka_unit_test(move__d1),
        cmocka_unit_test(move__d2),
        cmocka_unit_test(move__in_rounds),
        cmocka_unit_test(move__converts),
        cmocka_unit_test(move__can_fail),
        cmocka_unit_test(move__of_pages_of_bytes),
        cmocka_unit_test(move__frontiers),
        cmocka_unit_test(move__needs_its_ranks),
        cmocka_unit_test(move__survives_every_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
