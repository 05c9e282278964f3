/* Cells between tensor-parallel sizes: the section, their order, their rows. */
#include "grid/cell/kv_shard_cell.h"

#include <time.h>

#include "grid/cell/kv_shard_move.h"
#include "grid/cell/kv_shard_pages.h"
#include "grid/row/kv_pack.h"
#include "grid/row/kv_row_text.h"
#include "tests/kv_test_grid.h"
#include "tp/kv_tp_int.h"

#define LAYOUTS "thd sep k=T.H.D; paged int k=Tb.KV.H.Ti.D block=4; shard int k=KV.Tb.Ti.H.D block=16 tp=0/2"

static kv_campaign campaign(const char *geometry, const char *tp)
{
    char more[512];
    snprintf(more, sizeof more, "'pairs':[['thd','paged']],'tp':{%s}", tp);
    return kvt_campaign(LAYOUTS, geometry, more);
}

static size_t tp_cells(const kv_campaign *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_cells; i++) n += c->cells[i].check == KV_CHECK_TP;
    return n;
}

static void cells__stand_behind_the_pairs_in_the_order_of_their_texts(void **state)
{
    (void)state;
    kv_campaign c =
        campaign("L=1,T=5,H=4,D=8,e=f16",
                 "'pairs':'all-ordered','sizes':[2,16,1],'sends':['whole','shard'],"
                 "'pages':{'recipes':['published-serving','kv1']},"
                 "'pipeline':{'pairs':[['thd','thd'],['paged','thd']],'splits':[2,[[0]],11],'sizes':[1,2]}");
    char last[KV_PAIR_ID_TEXT + 80] = "";
    /* two layouts that are no shards: 4 pairs x 9 sizes, without 2 x 3 copies; and 2 sizes above 1, of 4 pairs; two kinds of
     * sealed pages with themselves likewise; two pairs x 4 sizes x 9 splits, without the 2 x 3 copies of one */
    assert_int_equal(tp_cells(&c), 4 * 9 - 2 * 3 + 4 * 2 + 2 * (9 - 3 + 2) + 2 * 4 * 9 - 2 * 3);
    for (size_t i = 0; i < c.n_cells; i++) {
        char id[KV_PAIR_ID_TEXT], now[KV_PAIR_ID_TEXT + 80];
        assert_true(i == 0 || c.cells[i].check >= c.cells[i - 1].check);
        if (c.cells[i].check != KV_CHECK_TP) continue;
        json_t *params = kv_row_params_new(&c, &c.cells[i]);
        char *text = json_dumps(params, JSON_SORT_KEYS | JSON_COMPACT);
        kv_cell_pair_id(&c, &c.cells[i], id);
        snprintf(now, sizeof now, "%s %s", id, text);
        assert_true(strcmp(last, now) < 0);
        memcpy(last, now, sizeof last);
        free(text);
        json_decref(params);
    }
    kv_campaign_free(&c);
}

static void section__says_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *tp, *says;
    } cases[] = {{"'sizes':[1,2]", "\"pairs\""},
                 {"'pairs':'some','sizes':[1,2]", "\"pairs\""},
                 {"'pairs':[['thd']],'sizes':[1,2]", "\"pairs\"[0]"},
                 {"'pairs':[['thd','thd'],['thd','thd']],'sizes':[1,2]", "twice"},
                 {"'pairs':[['thd','shard']],'sizes':[1,2]", "declared as a shard"},
                 {"'pairs':'all-ordered'", "\"sizes\""},
                 {"'pairs':'all-ordered','sizes':[0]", "\"sizes\"[0]"},
                 {"'pairs':'all-ordered','sizes':[65]", "\"sizes\"[0]"},
                 {"'pairs':'all-ordered','sizes':[2,2]", "twice"},
                 {"'pairs':'all-ordered','sizes':[1,2],'sends':[]", "\"sends\""},
                 {"'pairs':'all-ordered','sizes':[1,2],'sends':['how']", "\"how\" is not known"},
                 {"'pairs':'all-ordered','sizes':[2,4],'sends':['shard']", "no cell sends \"shard\""},
                 {"'pairs':[['thd','thd']],'sizes':[2]", "no cell sends \"whole\""},
                 {"'pairs':'all-ordered','sizes':[1,2],'chunk':4", "\"chunks\""},
                 {"'pairs':'all-ordered','sizes':[1,2],'stored':{'thd':'none'}", "\"none\""},
                 {"'pairs':'all-ordered','sizes':[1,2],'how':1", "how"},
                 {"'pages':[],'sizes':[1,2]", "\"pages\""},
                 {"'pages':{},'sizes':[1,2]", "\"recipes\""},
                 {"'pages':{'recipes':['kv1-shared']},'sizes':[1,2]", "\"kv1-shared\""},
                 {"'pages':{'recipes':['kv1','kv1']},'sizes':[1,2]", "twice"},
                 {"'pages':{'recipes':['kv1'],'block':12},'sizes':[1,2]", "power of two"},
                 {"'pages':{'recipes':['kv1'],'block':1},'sizes':[1,2]", "\"block\""},
                 {"'pages':{'recipes':['kv1'],'moves':1},'sizes':[1,2]", "moves"},
                 {"'pages':{'recipes':['kv1']},'sizes':[2]", "no cell sends \"whole\""},
                 {"'pipeline':{'splits':[1,2]}", "\"pipeline\": \"pairs\""},
                 {"'pipeline':{'pairs':'all-ordered'}", "\"splits\""},
                 {"'pipeline':{'pairs':'all-ordered','splits':[0]}", "\"splits\"[0]"},
                 {"'pipeline':{'pairs':'all-ordered','splits':[1,2,2]}", "\"splits\"[2] stands there twice"},
                 {"'pipeline':{'pairs':'all-ordered','splits':[[]]}", "\"splits\"[0]"},
                 {"'pipeline':{'pairs':'all-ordered','splits':[[[0],[]]]}", "at least one layer"},
                 {"'pipeline':{'pairs':'all-ordered','splits':[[[0],[1,0]]]}", "layer 0 stands there twice"},
                 {"'pipeline':{'pairs':'all-ordered','splits':[[[0],[-1]]]}", "from 0 to 65535"},
                 {"'pipeline':{'pairs':'all-ordered','splits':[1,33],'sizes':[2]}", "33 stages of 2 ranks"},
                 {"'pipeline':{'pairs':'all-ordered','splits':[1,2]},'sizes':[2]", "without \"pairs\" or \"pages\""},
                 {"'pipeline':{'pairs':[['thd','deep']],'splits':[1,2]}", "in one array"},
                 {"'pipeline':{'pairs':[['thd','thd']],'splits':[2]}", "no cell sends \"whole\""},
                 {"'pipeline':{'pairs':'all-ordered','splits':[1,2]},'sends':['layers']", "no cell sends \"layers\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        kv_err err = {0};
        kv_catalogue all = kvt_layouts(LAYOUTS "; deep sep k=L.T.H.D");
        kv_shard_section s;
        snprintf(text, sizeof text, "{%s}", cases[i].tp);
        json_t *v = kvt_json(text);
        assert_int_equal(kv_shard_section_read(v, &all, "file", &s, &err), KV_EFORMAT);
        if (strstr(err.text, cases[i].says) == NULL) fail_msg("%s: %s", cases[i].tp, err.text);
        kv_shard_section_free(&s);
        kv_catalogue_free(&all);
        json_decref(v);
    }
}

/* The row of the cell with these params. */
static kv_row row_of(kv_device *d, const kv_campaign *c, const char *pair, int from, int to, kv_shard_send send)
{
    for (size_t i = 0; i < c->n_cells; i++) {
        char id[KV_PAIR_ID_TEXT];
        if (c->cells[i].check != KV_CHECK_TP) continue;
        const kv_shard_point *p = kv_cell_shard_point(c, &c->cells[i]);
        kv_cell_pair_id(c, &c->cells[i], id);
        if (strcmp(id, pair) == 0 && p->from == from && p->to == to && p->send == (int32_t)send)
            return kvt_run(d, c, (int64_t)i);
    }
    fail_msg("there is no such cell of %s", pair);
    return (kv_row){0};
}

static void rows__count_what_travels(void **state)
{
    kv_device *d = *state;
    kv_campaign c = campaign("L=2,T=5,H=4,D=8,e=f16",
                             "'pairs':'all-ordered','sizes':[1,2,8,3],'sends':['whole','chunks'],'chunk':2");
    const int64_t head = 2 * 5 * (8 + 8) * 2;
    kv_row r = row_of(d, &c, "thd->paged", 2, 1, KV_SHARD_WHOLE);
    kvt_assert_verdict(&r, KV_VERDICT_EXACT_BYTE, "gather");
    assert_int_equal(r.tp.wire[0], 2 * head); /* rank 0 holds two of four */
    assert_int_equal(r.tp.least[0], 2 * head);
    assert_int_equal(r.tp.wire[1], 2 * head);
    assert_int_equal(r.tp.rounds, 1);
    assert_true(r.words >> KV_W_TP_RESHARD & 1U);
    r = row_of(d, &c, "paged->paged", 8, 2, KV_SHARD_CHUNKS);
    kvt_assert_verdict(&r, KV_VERDICT_EXACT_TOKEN, "copies to slices");
    assert_true(r.words >> KV_W_HEAD_DEDUPE & 1U);
    assert_int_equal(r.tp.rounds, 2); /* the page of four tokens with the second chunk, the rest with the third */
    assert_true(r.tp.minimal);
    assert_int_equal(r.native_bytes[0], 8 * (8 * 16 * 2)); /* eight shards of one head and two pages */
    r = row_of(d, &c, "thd->thd", 1, 3, KV_SHARD_WHOLE);
    kvt_assert_verdict(&r, KV_VERDICT_REFUSED, "three shards of four heads");
    assert_int_equal(r.frontier, KV_X4_GEOMETRY_UNREPRESENTABLE);
    kv_campaign_free(&c);
}

static void rows__of_a_shard_alone_show_why_not(void **state)
{
    kv_device *d = *state;
    kv_campaign c = campaign("L=1,T=5,H=2,D=8,e=f16", "'pairs':'all-ordered','sizes':[1,2],'sends':['shard']");
    kv_row r = row_of(d, &c, "paged->thd", 2, 1, KV_SHARD_ONE);
    kvt_assert_verdict(&r, KV_VERDICT_REFUSED, "shard");
    assert_int_equal(r.frontier, KV_X2_HEAD_GATHER);
    assert_int_equal(r.tp.heads, 1);
    assert_int_equal(r.tp.of_heads, 2);
    assert_int_equal(r.tp.shard_differs, 0);
    assert_true(r.tp.whole_differs > 0 && r.tp.whole_differs <= 5 * 16);
    kv_campaign_free(&c);
    c = campaign("L=1,T=5,H=1,D=8,e=f16", "'pairs':'all-ordered','sizes':[1,2],'sends':['shard']");
    r = row_of(d, &c, "paged->thd", 2, 1, KV_SHARD_ONE); /* of one head: the shard is the whole */
    kvt_assert_verdict(&r, KV_VERDICT_EXACT_TOKEN, "shard");
    assert_int_equal(r.tp.wire[0], 0);
    kv_campaign_free(&c);
}

#define PAGES "'pages':{'recipes':['kv1'],'block':8}"

/* Bytes that one head has in one page of kv1, by the terms of docs/codec.md: header, basis and mean, centroids, labels and two
 * fp16 fields a row, residual rows; and K's outliers (8 in 100 lanes, two bytes a row). */
static int64_t page_bytes(int64_t dim, int64_t dim_v)
{
    int64_t bytes = 0;
    for (int kv = 0; kv < 2; kv++) {
        const int64_t d = kv == 0 ? dim : dim_v, e = 4, lanes = 8 * e; /* e: of widths 5 to 8 */
        bytes += 48 + 2 * e * d + 2 * d + 2 * 16 * e + 4 + 4 * 8 + 8 * (kv == 0 ? 2 : 1);
        if (kv == 0) bytes += 2 * 8 + 4 * ((lanes * 8 + 99) / 100);
    }
    return bytes;
}

static void rows__of_sealed_pages_are_exact_to_the_byte(void **state)
{
    kv_device *d = *state;
    static const struct {
        int from, to;
        kv_shard_send send;
        int64_t there, back, rounds; /* heads that travel */
    } cells[] = {{2, 1, KV_SHARD_WHOLE, 2, 2, 1}, {1, 4, KV_SHARD_WHOLE, 3, 3, 1},  {4, 2, KV_SHARD_CHUNKS, 3, 3, 3},
                 {8, 2, KV_SHARD_WHOLE, 3, 7, 1}, {2, 8, KV_SHARD_CHUNKS, 7, 3, 3}, {8, 4, KV_SHARD_LAYERS, 3, 7, 1}};
    kv_campaign c = campaign("L=2,T=29,H=4,D=8,Dv=6,e=f16",
                             PAGES ",'sizes':[1,2,4,8],'sends':['whole','chunks','layers'],'chunk':11");
    const int64_t head = 3 * page_bytes(8, 6);
    for (size_t i = 0; i < KVT_COUNT(cells); i++) {
        const kv_row r = row_of(d, &c, "kv1:pages->kv1:pages", cells[i].from, cells[i].to, cells[i].send);
        char what[32];
        snprintf(what, sizeof what, "%d to %d", cells[i].from, cells[i].to);
        kvt_assert_verdict(&r, KV_VERDICT_EXACT_BYTE, what);
        assert_int_equal(r.tp.wire[0], 2 * head * cells[i].there);
        assert_int_equal(r.tp.wire[1], 2 * head * cells[i].back);
        assert_true(r.tp.minimal && r.tp.least[0] == r.tp.wire[0] && r.tp.least[1] == r.tp.wire[1]);
        assert_int_equal(r.tp.rounds, cells[i].rounds);
        assert_int_equal(r.native_bytes[0], head * (cells[i].from > 4 ? cells[i].from : 4));
        assert_int_equal(r.checked, head * (cells[i].to > 4 ? cells[i].to : 4));
        assert_int_equal(r.gather_payloads, KV_CERT_PAYLOADS);
        assert_memory_equal(r.decoded, r.reference, sizeof r.decoded);
    }
    kv_campaign_free(&c);
}

/* A device that spoils one byte of what it moves. */
static const kv_device_ops *sound;

static kv_rc spoilt_translate(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, kv_image *dst,
                              uint32_t fill, kv_err *err)
{
    const kv_rc rc = sound->translate(d, s, src, t, dst, fill, err);
    if (rc == KV_OK && t->half[0].kind[0] == KV_F_T) ((uint8_t *)kv_image_host_view(dst))[60] ^= 4; /* no wire image */
    return rc;
}

static void rows__of_sealed_pages_can_be_wrong(void **state)
{
    kv_device *d = *state;
    kv_device_ops spoilt = *d->ops;
    kv_campaign c = campaign("L=1,T=8,H=1,D=8,e=f16", PAGES ",'sizes':[1,2],'sends':['shard']");
    sound = d->ops;
    spoilt.translate = spoilt_translate;
    kv_row r = row_of(d, &c, "kv1:pages->kv1:pages", 2, 1, KV_SHARD_ONE); /* one rank: on this device */
    kvt_assert_verdict(&r, KV_VERDICT_EXACT_BYTE, "sound");
    d->ops = &spoilt;
    r = row_of(d, &c, "kv1:pages->kv1:pages", 2, 1, KV_SHARD_ONE);
    d->ops = sound;
    kvt_assert_verdict(&r, KV_VERDICT_NOT_EXACT, "spoilt");
    assert_int_equal(r.observed[KV_OBS_FORWARD], KV_FALSE);
    assert_int_equal(r.observed[KV_OBS_TOKENS], KV_FALSE);
    assert_int_equal(r.gather_agrees, 0);
    kv_campaign_free(&c);
}

/* A slot that cannot be read is zeros, not an error; and the tokens are others. */
static void pages__that_cannot_be_read(void **state)
{
    (void)state;
    const kv_geometry g = kvt_geometry("L=1,T=16,H=4,D=8,e=f16");
    kv_sealed_shape z;
    char reason[KV_REASON_TEXT];
    kv_err err = {0};
    kvt_ok(kv_sealed_shape_of(KV_STORE_KV1, 8, &g, &z, reason, &err), &err);
    const kv_geometry paged = kv_shard_pages_geometry(&z, &g);
    for (int spoilt = 0; spoilt < 3; spoilt++) {
        kv_shard_pages *p = NULL;
        kv_tp_content content;
        kv_index ix;
        bool exists;
        int32_t tokens[2][KV_DECODE_STEPS];
        uint8_t digest[2][KV_TP_DIGEST_BYTES];
        kvt_ok(kv_shard_pages_new("kv1:pages", &z, &g, 7, &p, &content, &err), &err);
        kvt_ok(kv_tp_pages_index("kv1:pages", &paged, 2, 1, &ix, &exists, reason, &err), &err);
        uint8_t *bytes = kv_alloc((size_t)ix.native, 1);
        kvt_ok(content.build(content.ctx, &ix, 0, bytes, &err), &err);
        if (spoilt == 1) bytes[0] ^= 0xFF;          /* of the header of a K slot */
        if (spoilt == 2) bytes[ix.native - 1] ^= 4; /* of the last V slot's residual rows */
        kvt_ok(content.decode(content.ctx, &ix, 0, bytes, &err), &err);
        content.finish(content.ctx, tokens, digest);
        assert_int_equal(memcmp(digest[0], digest[1], sizeof digest[0]) == 0, spoilt == 0);
        if (spoilt == 0) assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
        kv_free(bytes);
        kv_shard_pages_free(p);
    }
}

static void rows__of_sealed_pages_that_there_are_not(void **state)
{
    kv_device *d = *state;
    static const struct {
        const char *g;
        int from;
        kv_layout_frontier frontier;
        const char *says;
    } cells[] = {{"L=1,T=16,H=4,D=8,e=f16", 3, KV_X4_GEOMETRY_UNREPRESENTABLE, "size of 3 neither divides 4 kv heads"},
                 {"L=1,T=7,H=4,D=8,e=f16", 2, KV_X4_GEOMETRY_UNREPRESENTABLE, "fill no block"},
                 {"L=1,T=16,H=4,D=2048,e=f16", 2, KV_X4_GEOMETRY_UNREPRESENTABLE, "2048"},
                 {"L=1,T=16,H=4,D=8,e=f16", 2, KV_X2_HEAD_GATHER, "2 of 4 kv heads"}};
    for (size_t i = 0; i < KVT_COUNT(cells); i++) {
        kv_campaign c = campaign(cells[i].g, PAGES ",'sizes':[1,2,3],'sends':['shard']");
        const kv_row r = row_of(d, &c, "kv1:pages->kv1:pages", cells[i].from, 1, KV_SHARD_ONE);
        kvt_assert_verdict(&r, KV_VERDICT_REFUSED, cells[i].says);
        assert_int_equal(r.frontier, cells[i].frontier);
        if (strstr(r.reason, cells[i].says) == NULL) fail_msg("%s: %s", cells[i].says, r.reason);
        if (cells[i].frontier == KV_X2_HEAD_GATHER) {
            const int64_t head = 2 * page_bytes(8, 8);
            assert_int_equal(r.tp.whole_positions, 4 * head);
            assert_int_equal(r.tp.shard_positions, 2 * head);
            assert_true(r.tp.shard_differs == 0 && r.tp.whole_differs > 0 && r.tp.whole_differs <= 2 * head);
        }
        kv_campaign_free(&c);
    }
}

/* The row of a cell between stages. */
static kv_row row_between(kv_device *d, const kv_campaign *c, const char *pair, const char *from, const char *to)
{
    for (size_t i = 0; i < c->n_cells; i++) {
        char id[KV_PAIR_ID_TEXT], at[2][80];
        if (c->cells[i].check != KV_CHECK_TP) continue;
        const kv_shard_point *p = kv_cell_shard_point(c, &c->cells[i]);
        if (p->split[0] == NULL) continue;
        kv_cell_pair_id(c, &c->cells[i], id);
        snprintf(at[0], sizeof at[0], "%d x %s", p->from, p->split[0]->text);
        snprintf(at[1], sizeof at[1], "%d x %s", p->to, p->split[1]->text);
        if (strcmp(id, pair) == 0 && strcmp(at[0], from) == 0 && strcmp(at[1], to) == 0)
            return kvt_run(d, c, (int64_t)i);
    }
    fail_msg("there is no such cell of %s", pair);
    return (kv_row){0};
}

static void rows__between_stages(void **state)
{
    kv_device *d = *state;
    static const struct {
        const char *pair, *from, *to;
        int64_t there, back; /* heads of a layer that travel */
        uint32_t words;
    } cells[] = {
        /* 0 1 | 2 3 to 0 | 1 2 | 3: layers 1 and 3 go on to the next stage */
        {"thd->thd", "1 x 2", "1 x [[0],[1,2],[3]]", 2 * 4, 2 * 4, 1U << KV_W_PP_RESHARD | 1U << KV_W_VIEW_REINTERPRET},
        {"thd->paged", "1 x [[0,1],[2,3]]", "1 x [[1,0],[3,2]]", 0, 0, 0},
        {"thd->thd", "1 x 1", "1 x 2", 2 * 4, 2 * 4, 1U << KV_W_PP_RESHARD | 1U << KV_W_VIEW_REINTERPRET},
        /* one rank becomes two of each of two stages: rank 0 keeps its half of two layers */
        {"thd->paged", "1 x 1", "2 x 2", 2 * 2 + 2 * 4, 2 * 2 + 2 * 4, 1U << KV_W_PP_RESHARD | 1U << KV_W_TP_RESHARD},
        /* two stages of one rank to one stage of two: rank 1 holds layers 2 and 3 whole, and lacks its half of 0 and 1 */
        {"thd->thd", "1 x 2", "2 x 1", 2 * 2 + 2 * 2, 2 * 2 + 2 * 2,
         1U << KV_W_PP_RESHARD | 1U << KV_W_TP_RESHARD | 1U << KV_W_VIEW_REINTERPRET},
    };
    kv_campaign c = campaign("L=4,T=5,H=4,D=8,e=f16", "'pipeline':{'pairs':'all-ordered','sizes':[1,2],'splits':"
                                                      "[1,2,[[0],[1,2],[3]],[[0,1],[2,3]],[[1,0],[3,2]]]}");
    const int64_t head = 5 * 16 * 2;
    for (size_t i = 0; i < KVT_COUNT(cells); i++) {
        const kv_row r = row_between(d, &c, cells[i].pair, cells[i].from, cells[i].to);
        kvt_assert_verdict(&r, KV_VERDICT_EXACT_BYTE, cells[i].to);
        assert_int_equal(r.tp.wire[0], head * cells[i].there);
        assert_int_equal(r.tp.wire[1], head * cells[i].back);
        assert_true(r.tp.minimal && r.tp.least[0] == r.tp.wire[0] && r.tp.least[1] == r.tp.wire[1]);
        assert_int_equal(r.unit_layers, 1);
        assert_int_equal(r.native_bytes[0], 4 * head);
        const uint32_t both = 1U << KV_W_PP_RESHARD | 1U << KV_W_TP_RESHARD;
        assert_int_equal(r.words & both, cells[i].words & both);
        assert_int_equal(r.words >> KV_W_VIEW_REINTERPRET & 1U, 0);
    }
    kv_campaign_free(&c);
}

static void rows__of_stages_that_do_not_hold_the_model(void **state)
{
    kv_device *d = *state;
    static const struct {
        const char *from, *to, *says;
    } cells[] = {{"1 x 1", "1 x [[0],[2]]", "layer 1 is missing: none of the stages [[0],[2]] holds it"},
                 {"1 x [[0],[2]]", "1 x 1", "layer 1 is missing"},
                 {"1 x 1", "1 x [[0,1],[2,3]]", "hold layer 3 of a model of 3 layers"},
                 {"1 x 1", "1 x 4", "3 layers leave one of 4 stages without any"},
                 {"1 x [[0],[2]]", "3 x 1", "a tensor-parallel size of 3 neither divides"}};
    kv_campaign c =
        campaign("L=3,T=5,H=4,D=8,e=f16",
                 "'pipeline':{'pairs':[['thd','paged']],'splits':[1,4,[[0],[2]],[[0,1],[2,3]]],'sizes':[1,3]}");
    for (size_t i = 0; i < KVT_COUNT(cells); i++) {
        const kv_row r = row_between(d, &c, "thd->paged", cells[i].from, cells[i].to);
        kvt_assert_verdict(&r, KV_VERDICT_REFUSED, cells[i].says);
        assert_int_equal(r.frontier, KV_X4_GEOMETRY_UNREPRESENTABLE);
        if (strstr(r.reason, cells[i].says) == NULL) fail_msg("%s: %s", cells[i].says, r.reason);
    }
    kv_campaign_free(&c);
}

static void rows__come_back_from_journal_pack_and_document(void **state)
{
    kv_device *d = *state;
    kv_err err = {0};
    kv_campaign c =
        campaign("L=2,T=8,H=2,D=8,e=f16", "'pairs':'all-ordered','sizes':[1,2],'sends':['shard','whole']," PAGES
                                          ",'pipeline':{'pairs':'all-ordered','splits':[2,[[0],[1,5]]]}");
    for (size_t i = 0; i < c.n_cells; i++) {
        kv_buf text = {0}, packed = {0};
        kv_row row, again;
        if (c.cells[i].check != KV_CHECK_TP) continue;
        row = kvt_run(d, &c, (int64_t)i);
        kvt_ok(kv_row_encode(&row, &text, &err), &err);
        kvt_ok(kv_row_decode(&c, text.data, text.len, &again, &err), &err);
        assert_memory_equal(&row.tp, &again.tp, sizeof row.tp);
        kvt_ok(kv_row_pack(&c, &row, &packed, &err), &err);
        kvt_ok(kv_row_unpack(&c, packed.data, packed.len, &again, &err), &err);
        assert_int_equal(row.has_tp, again.has_tp);
        assert_memory_equal(&row.tp, &again.tp, sizeof row.tp);
        json_t *json = kv_row_json_new(&c, &row);
        assert_int_equal(json_object_size(json_object_get(json, "proof")), 29);
        kvt_ok(kv_row_of_json(json, KV_CHECK_TP, (int64_t)i, &again, &err), &err);
        assert_memory_equal(&row.tp, &again.tp, sizeof row.tp);
        json_t *twice = kv_row_json_new(&c, &again);
        assert_true(json_equal(json, twice));
        json_decref(twice);
        json_decref(json);
        kv_buf_free(&text);
        kv_buf_free(&packed);
    }
    kv_campaign_free(&c);
}

static void rows__without_ranks_say_how_many(void **state)
{
    (void)state;
    static const struct {
        const char *tp;
        int ranks;
    } cells[] = {{"'pairs':[['thd','paged']],'sizes':[2,4]", 4},
                 {PAGES ",'sizes':[2,4]", 4},
                 {"'pipeline':{'pairs':[['thd','paged']],'splits':[3],'sizes':[2]}", 6}};
    for (size_t i = 0; i < KVT_COUNT(cells); i++) { /* the last cell of each */
        kv_campaign c = campaign("L=3,T=8,H=2,D=8,e=f16", cells[i].tp);
        kv_row row;
        kv_err err = {0};
        int64_t ranks = 0;
        const int64_t cell = (int64_t)c.n_cells - 1;
        kvt_ok(kv_shard_cell_ranks(&c, cell, &ranks, &err), &err);
        assert_int_equal(ranks, cells[i].ranks);
        kv_shard_cell_unproven(&c, cell, &row);
        json_t *json = kv_row_json_new(&c, &row);
        assert_string_equal(json_string_value(json_object_get(json, "verdict")), "UNPROVEN");
        assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "proof"), "ranks")), cells[i].ranks);
        assert_true(json_is_null(json_object_get(json_object_get(json, "proof"), "positions_checked")));
        json_decref(json);
        kv_campaign_free(&c);
    }
}

/* Chunk after chunk, as the tokens come. */
static size_t chunks_one_by_one(int64_t tokens, int64_t chunk, int64_t page, int64_t *out)
{
    size_t n = 0;
    int64_t sent = 0;
    for (int64_t end = chunk, here; end < tokens + chunk; end += chunk, sent = here) {
        here = (end < tokens ? end : tokens) / page;
        if (here > sent) out[n++] = here - sent;
    }
    return n;
}

static void chunks__are_those_that_complete_a_page(void **state)
{
    (void)state;
    int64_t want[130], *got = NULL;
    kv_err err = {0};
    size_t n;
    for (int64_t tokens = 0; tokens < 130; tokens++)
        for (int64_t chunk = 1; chunk < 40; chunk++)
            for (int64_t page = 1; page <= 32; page++) {
                const size_t wanted = chunks_one_by_one(tokens, chunk, page, want);
                kvt_ok(kv_shard_chunks_new(tokens, chunk, page, &got, &n, &err), &err);
                assert_int_equal(n, wanted);
                if (n > 0) assert_memory_equal(got, want, n * sizeof *got);
                kv_free(got);
            }
    /* 23 thousand million chunks for a million pages */
    kvt_ok(kv_shard_chunks_new((int64_t)1 << 36, 3, 65536, &got, &n, &err), &err);
    assert_int_equal(n, 1 << 20);
    assert_int_equal(got[n - 1], 1);
    kv_free(got);
}

/* Many layers, tokens and chunks cost nothing before anything runs. */
static void plans__of_large_shapes_take_no_time(void **state)
{
    (void)state;
    static const struct {
        const char *geometry, *tp;
        int64_t ranks;
    } cases[] = {{"L=65536,T=1,H=1,D=8,e=bf16",
                  "'pipeline':{'pairs':'all-ordered','sizes':[1],"
                  "'splits':[64,63,62,61,60,59,58,57,56,55,54,53,52,51,50,49]}",
                  64},
                 {"L=1,T=1073741824,H=2,D=32,e=bf16",
                  "'pages':{'recipes':['published-serving'],'block':65536},'sizes':[1,2],'sends':['chunks'],'chunk':1",
                  2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const clock_t start = clock();
        kv_campaign c = campaign(cases[i].geometry, cases[i].tp);
        int64_t most = 0, ranks;
        kv_err err = {0};
        for (size_t k = 0; k < c.n_cells; k++) {
            const kv_cell *at = &c.cells[k];
            kv_cell_need need;
            if (at->check != KV_CHECK_TP) continue;
            kvt_ok(kv_shard_cell_ranks(&c, (int64_t)k, &ranks, &err), &err);
            kvt_ok(kv_shard_cell_plan(&c, kv_cell_shard_point(&c, at), &c.geometries[at->geometry], &need, &err), &err);
            assert_true(need.runs && need.peak_bytes > 0);
            if (ranks > most) most = ranks;
        }
        assert_int_equal(most, cases[i].ranks);
        assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 1); /* was 20 s, and 8 bytes for each chunk */
        kv_campaign_free(&c);
    }
}

static int open_cpu(void **state)
{
    kv_device *d = NULL;
    if (kv_device_cpu_new(&d, NULL) != KV_OK) return -1;
    *state = d;
    return 0;
}

static int close_cpu(void **state)
{
    kv_device *d = *state;
    d->ops->close(d);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells__stand_behind_the_pairs_in_the_order_of_their_texts),
        cmocka_unit_test(section__says_what_is_wrong),
        cmocka_unit_test(rows__count_what_travels),
        cmocka_unit_test(rows__of_a_shard_alone_show_why_not),
        cmocka_unit_test(rows__of_sealed_pages_are_exact_to_the_byte),
        cmocka_unit_test(rows__of_sealed_pages_can_be_wrong),
        cmocka_unit_test(pages__that_cannot_be_read),
        cmocka_unit_test(rows__of_sealed_pages_that_there_are_not),
        cmocka_unit_test(rows__between_stages),
        cmocka_unit_test(rows__of_stages_that_do_not_hold_the_model),
        cmocka_unit_test(rows__come_back_from_journal_pack_and_document),
        cmocka_unit_test(rows__without_ranks_say_how_many),
        cmocka_unit_test(chunks__are_those_that_complete_a_page),
        cmocka_unit_test(plans__of_large_shapes_take_no_time),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu) != 0;
}
