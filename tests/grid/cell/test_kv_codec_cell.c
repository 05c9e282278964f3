/* Codec and move cells: what the section expands to, what rows say, packed and journal forms, refusals. */
#include "grid/cell/kv_codec_cell.h"
#include "grid/row/kv_pack.h"
#include "grid/row/kv_row_text.h"
#include "tests/kv_test_grid.h"

#define LAYOUT "th sep k=T.H.D"

static kv_campaign campaign(const char *geometry, const char *codec)
{
    char more[1024];
    snprintf(more, sizeof more, "'pairs':'all-ordered','codec':{%s}", codec);
    return kvt_campaign(LAYOUT "; ht sep k=H.T.D", geometry, more);
}

/* The row of a cell by its id and params ("" for any). */
static kv_row run_cell(kv_campaign *c, kv_check check, const char *id, const char *params)
{
    kv_device *d = kvt_cpu();
    kv_row row = {.cell = -1};
    for (size_t i = 0; i < c->n_cells; i++) {
        char own[KV_PAIR_ID_TEXT];
        kv_cell_pair_id(c, &c->cells[i], own);
        json_t *p = kv_row_params_new(c, &c->cells[i]);
        char *text = json_dumps(p, JSON_COMPACT | JSON_SORT_KEYS);
        if (c->cells[i].check == (int32_t)check && strcmp(own, id) == 0 &&
            (*params == '\0' || strcmp(text, params) == 0))
            row = kvt_run(d, c, (int64_t)i);
        free(text);
        json_decref(p);
    }
    d->ops->close(d);
    assert_true(row.cell >= 0);
    return row;
}

static void section__expands_in_row_order(void **state)
{
    (void)state;
    kv_campaign c = campaign("L=1,T=40,H=1,D=8,e=f16",
                             "'recipes':['rotation','fp8','kv1'],'bits':[4,2],'streams':['v','k'],'payloads':['zeros',"
                             "'gaussian'],'block':16,'moves':['table','pages']");
    char last[512] = "";
    size_t codec = 0, move = 0;
    for (size_t i = 0; i < c.n_cells; i++) {
        char id[KV_PAIR_ID_TEXT], now[512];
        kv_cell_pair_id(&c, &c.cells[i], id);
        json_t *p = kv_row_params_new(&c, &c.cells[i]);
        char *text = json_dumps(p, JSON_COMPACT | JSON_SORT_KEYS);
        snprintf(now, sizeof now, "%s %d %s %s", kv_check_name((kv_check)c.cells[i].check), c.cells[i].geometry, id,
                 text);
        assert_true(strcmp(last, now) < 0);
        snprintf(last, sizeof last, "%s", now);
        codec += c.cells[i].check == KV_CHECK_CODEC;
        move += c.cells[i].check == KV_CHECK_MOVE;
        free(text);
        json_decref(p);
    }
    assert_int_equal(codec, 2 * 2 * (2 + 2 + 1)); /* two with bits, fp8 without */
    assert_int_equal(move, 2);
    assert_int_equal(c.n_cells, codec + move + 2);
    kv_campaign_free(&c);
}

static void section__refuses_what_it_does_not_know(void **state)
{
    (void)state;
    static const struct {
        const char *codec, *says;
    } cases[] = {{"'recipes':['kv2'],'payloads':['zeros']", "\"kv2\" is not known (fp8, int4-token"},
                 {"'recipes':['kv1','kv1'],'payloads':['zeros']", "\"kv1\" twice"},
                 {"'recipes':['kv1']", "\"payloads\" is missing"},
                 {"'recipes':[],'payloads':['zeros']", "at least one"},
                 {"'recipes':['kv1'],'payloads':['zeros'],'bits':[5]", "from 1 to 4"},
                 {"'recipes':['kv1'],'payloads':['zeros'],'bits':[2,2]", "different"},
                 {"'recipes':['kv1'],'payloads':['zeros'],'block':48", "power of two"},
                 {"'recipes':['kv1'],'payloads':['zeros'],'moves':['pages']", "at least two"},
                 {"'recipes':['fp8'],'payloads':['zeros'],'moves':['pages','table']", "kv1 or published-serving"},
                 {"'recipes':['kv1'],'payloads':['zeros'],'rows':3", "rows"}};
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        char text[512];
        snprintf(text, sizeof text, "{%s}", cases[i].codec);
        json_t *v = kvt_json(text);
        kv_codec_section s;
        kv_err err = {0};
        assert_int_equal(kv_codec_section_read(v, "file", &s, &err), KV_EFORMAT);
        if (strstr(err.text, cases[i].says) == NULL) fail_msg("%s: %s", cases[i].codec, err.text);
        json_decref(v);
    }
}

static void codec__never_is_exact_and_keeps_its_two_implementations_together(void **state)
{
    (void)state;
    kv_campaign c =
        campaign("L=2,T=70,H=2,D=16,e=bf16",
                 "'recipes':['kv1','kv1-shared','published-serving','published-harness','fp8','int4-token',"
                 "'rotation'],'payloads':['constant','gaussian','heavy-tailed','k-like-1','zeros'],'block':32");
    kv_device *d = kvt_cpu();
    for (size_t i = 0; i < c.n_cells; i++) {
        if (c.cells[i].check != KV_CHECK_CODEC) continue;
        const kv_row row = kvt_run(d, &c, (int64_t)i);
        kvt_assert_verdict(&row, KV_VERDICT_NOT_EXACT, "codec");
        for (int o = 0; o < KV_CODEC_OBS_TOKENS; o++) assert_int_equal(row.observed[o], KV_TRUE);
        assert_int_equal(row.codec.rows, 2 * 70 * 2);
        assert_int_equal(row.codec.plain_bytes, 2 * 70 * 2 * 16 * 2);
        const kv_codec_point p = kv_codec_point_at(&c.codec, (size_t)c.cells[i].src);
        assert_int_equal(row.codec.has_l2, p.payload->kind != KV_VALUES_ZEROS);
        assert_true(row.codec.stored_bytes > 0);
    }
    d->ops->close(d);
    kv_campaign_free(&c);
}

/* The fault of the published K stream, and that keeping the residual's length mends it at no byte. */
static void codec__published_k_loses_what_kv1_keeps(void **state)
{
    (void)state;
    static const char *const kinds[] = {"k-like-1", "k-like-2", "k-like-3", "k-like-4"};
    kv_campaign c = campaign("L=1,T=512,H=1,D=128,e=f32",
                             "'recipes':['kv1','published-serving'],'payloads':['k-like-1','k-like-2','k-like-3',"
                             "'k-like-4']");
    for (size_t k = 0; k < KVT_COUNT(kinds); k++) {
        char params[128];
        snprintf(params, sizeof params, "{\"payload\":\"%s\",\"stream\":\"k\"}", kinds[k]);
        const kv_row ours = run_cell(&c, KV_CHECK_CODEC, "canonical->kv1", params);
        const kv_row published = run_cell(&c, KV_CHECK_CODEC, "canonical->published-serving", params);
        assert_int_equal(ours.codec.stored_bytes, 44840);
        assert_int_equal(published.codec.stored_bytes, 44840);
        assert_true(ours.codec.l2_ppm < 150000);
        assert_true(published.codec.l2_ppm > 2 * ours.codec.l2_ppm);
        assert_int_equal(published.codec.l2_ppm > 1000000, k == 3);
    }
    kv_campaign_free(&c);
}

static void codec__a_slot_that_does_not_exist_is_refused(void **state)
{
    (void)state;
    kv_campaign c =
        campaign("L=1,T=64,H=1,D=4,e=f16", /* 2 directions of 3 bits are no whole byte */
                 "'recipes':['published-serving','kv1'],'payloads':['gaussian'],'block':32,'streams':['k']");
    const kv_row row = run_cell(&c, KV_CHECK_CODEC, "canonical->published-serving", "");
    kvt_assert_verdict(&row, KV_VERDICT_REFUSED, "published slot");
    assert_int_equal(row.frontier, KV_X4_GEOMETRY_UNREPRESENTABLE);
    assert_true(row.reason[0] != '\0');
    const kv_row ours = run_cell(&c, KV_CHECK_CODEC, "canonical->kv1", "");
    kvt_assert_verdict(&ours, KV_VERDICT_NOT_EXACT, "kv1 slot");
    kv_campaign_free(&c);
}

/* Sizes are checked before anything is multiplied: the program says which geometry, and ends. */
static void codec__of_a_geometry_beyond_64_bits_is_an_error(void **state)
{
    (void)state;
    kv_campaign c = campaign("L=1,T=64,H=1,D=16,e=f16", "'recipes':['fp8','kv1'],'payloads':['gaussian'],'block':32");
    kv_geometry g = c.geometries[0];
    g.layers = KV_LAYERS_MAX;
    g.tokens = KV_TOKENS_MAX;
    g.kv_heads = KV_HEADS_MAX;
    for (size_t i = 0; i < kv_codec_point_count(&c.codec); i++) {
        const kv_codec_point p = kv_codec_point_at(&c.codec, i);
        kv_codec_size z;
        char reason[KV_REASON_TEXT];
        kv_err err = {0};
        assert_int_equal(kv_codec_size_of(&c.codec, &p, &g, &z, reason, &err), KV_EFORMAT);
        assert_non_null(strstr(err.text, "2^49"));
    }
    kv_campaign_free(&c);
}

static void move__is_exact_to_the_byte_and_needs_a_page(void **state)
{
    (void)state;
    static const char section[] = "'recipes':['kv1','published-serving'],'payloads':['zeros'],'block':32,"
                                  "'moves':['head-major','kv-pools','pages','table']";
    kv_device *d = kvt_cpu();
    kv_campaign c = campaign("L=2,T=100,H=3,D=16,e=f16", section), small = campaign("L=1,T=31,H=1,D=16,e=f16", section);
    for (size_t i = 0; i < c.n_cells; i++) {
        if (c.cells[i].check != KV_CHECK_MOVE) continue;
        const kv_row row = kvt_run(d, &c, (int64_t)i), none = kvt_run(d, &small, (int64_t)i);
        kvt_assert_verdict(&row, KV_VERDICT_EXACT_BYTE, "move");
        assert_int_equal(row.checked, row.native_bytes[0]);
        assert_int_equal(row.native_bytes[0] % (3 * 3), 0); /* three blocks of three heads */
        assert_true(row.words != 0 && row.source_bijective && row.dest_bijective);
        kvt_assert_verdict(&none, KV_VERDICT_REFUSED, "no page");
    }
    d->ops->close(d);
    kv_campaign_free(&small);
    kv_campaign_free(&c);
}

/* Journal and packed form give a row back. */
static void rows__of_a_codec_cell_come_back(void **state)
{
    (void)state;
    kv_campaign c = campaign("L=1,T=40,H=1,D=16,e=f16", "'recipes':['kv1','fp8'],'payloads':['zeros','k-like-3'],"
                                                        "'block':32,'moves':['pages','table']");
    kv_device *d = kvt_cpu();
    for (size_t i = 0; i < c.n_cells; i++) {
        const kv_row row = kvt_run(d, &c, (int64_t)i);
        kv_row again, of_json;
        kv_buf text = {0}, packed = {0};
        kv_err err = {0};
        kvt_ok(kv_row_encode(&row, &text, &err), &err);
        kvt_ok(kv_row_decode(&c, text.data, text.len, &again, &err), &err);
        kvt_assert_same_row(&row, &again);
        assert_memory_equal(&row.codec, &again.codec, sizeof row.codec);
        kvt_ok(kv_row_pack(&c, &row, &packed, &err), &err);
        kvt_ok(kv_row_unpack(&c, packed.data, packed.len, &again, &err), &err);
        kvt_assert_same_row(&row, &again);
        assert_memory_equal(&row.codec, &again.codec, sizeof row.codec);
        json_t *json = kv_row_json_new(&c, &row);
        kvt_ok(kv_row_of_json(json, (kv_check)c.cells[i].check, (int64_t)i, &of_json, &err), &err);
        json_t *twice = kv_row_json_new(&c, &of_json);
        assert_true(json_equal(json, twice));
        json_decref(json);
        json_decref(twice);
        kv_buf_free(&text);
        kv_buf_free(&packed);
    }
    d->ops->close(d);
    kv_campaign_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(section__expands_in_row_order),
        cmocka_unit_test(section__refuses_what_it_does_not_know),
        cmocka_unit_test(codec__never_is_exact_and_keeps_its_two_implementations_together),
        cmocka_unit_test(codec__published_k_loses_what_kv1_keeps),
        cmocka_unit_test(codec__a_slot_that_does_not_exist_is_refused),
        cmocka_unit_test(codec__of_a_geometry_beyond_64_bits_is_an_error),
        cmocka_unit_test(move__is_exact_to_the_byte_and_needs_a_page),
        cmocka_unit_test(rows__of_a_codec_cell_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
