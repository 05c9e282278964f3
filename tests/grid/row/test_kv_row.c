/* The grade over all assignments, and a row's JSON field by field. */
#include "certs/kv_json.h"
#include "grid/row/kv_row.h"
#include "tests/kv_test_grid.h"

/* ---- grades ---------------------------------------------------------------------------------------- */

enum { ALL = 81 };

static void assignment(int n, int32_t o[KV_OBS_COUNT])
{
    for (int i = 0; i < KV_OBS_COUNT; i++, n /= 3) o[i] = n % 3;
}

/* The table of design section 4, line by line. */
static kv_verdict by_table(bool refused, bool differ, bool empty, const int32_t o[KV_OBS_COUNT])
{
    const bool forward = o[KV_OBS_FORWARD] == KV_TRUE, identical = o[KV_OBS_IDENTICAL] == KV_TRUE;
    const bool padding = o[KV_OBS_DIFF_IS_PADDING] == KV_TRUE, tokens = o[KV_OBS_TOKENS] == KV_TRUE;
    if (refused) return KV_VERDICT_REFUSED;
    if (o[0] == KV_NULL || o[1] == KV_NULL || o[2] == KV_NULL || o[3] == KV_NULL) return KV_VERDICT_UNPROVEN;
    if (differ && !empty) return KV_VERDICT_NOT_EXACT;
    if (forward && identical && tokens) return KV_VERDICT_EXACT_BYTE;
    if (forward && padding && tokens) return KV_VERDICT_EXACT_TOKEN;
    return KV_VERDICT_NOT_EXACT;
}

static void grade__follows_the_table_over_all_81_assignments(void **state)
{
    (void)state;
    int count[KV_VERDICT_COUNT] = {0};
    for (int n = 0; n < ALL; n++)
        for (int flags = 0; flags < 8; flags++) {
            int32_t o[KV_OBS_COUNT];
            assignment(n, o);
            const bool refused = (flags & 1) != 0, differ = (flags & 2) != 0, empty = (flags & 4) != 0;
            const kv_verdict v = kv_grade(refused, differ, empty, o);
            assert_int_equal(v, by_table(refused, differ, empty, o));
            if (flags == 0) count[v]++;
        }
    /* by hand: 16 without null; forward and tokens true in 4 of them; 2 identical, 1 more only padding */
    assert_int_equal(count[KV_VERDICT_UNPROVEN], 81 - 16);
    assert_int_equal(count[KV_VERDICT_EXACT_BYTE], 2);
    assert_int_equal(count[KV_VERDICT_EXACT_TOKEN], 1);
    assert_int_equal(count[KV_VERDICT_NOT_EXACT], 13);
}

/* Higher is better; REFUSED is no grade of observations. */
static int rank_of(kv_verdict v)
{
    return v == KV_VERDICT_EXACT_BYTE ? 3 : v == KV_VERDICT_EXACT_TOKEN ? 2 : v == KV_VERDICT_NOT_EXACT ? 1 : 0;
}

static void grade__never_rises_when_an_observation_weakens(void **state)
{
    (void)state;
    for (int n = 0; n < ALL; n++)
        for (int flags = 0; flags < 4; flags++)
            for (int i = 0; i < KV_OBS_COUNT; i++) {
                int32_t o[KV_OBS_COUNT];
                assignment(n, o);
                const bool differ = (flags & 1) != 0, empty = (flags & 2) != 0;
                const int before = rank_of(kv_grade(false, differ, empty, o));
                const int32_t was = o[i];
                if (was == KV_TRUE) {
                    o[i] = KV_FALSE;
                    assert_true(rank_of(kv_grade(false, differ, empty, o)) <= before);
                }
                o[i] = KV_NULL;
                assert_int_equal(kv_grade(false, differ, empty, o), KV_VERDICT_UNPROVEN);
            }
}

static void row_ran__is_true_for_graded_rows_only(void **state)
{
    (void)state;
    static const bool ran[KV_VERDICT_COUNT] = {true, true, true, false, false, false};
    for (int v = 0; v < KV_VERDICT_COUNT; v++) {
        const kv_row r = {.verdict = v};
        assert_int_equal(kv_row_ran(&r), ran[v]);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

static const char *const row_keys[] = {
    "check",           "pair_id",         "src",          "dst",          "geometry",
    "params",          "same_image",      "verdict",      "error_class",  "frontier_code",
    "frontier_reason", "transformations", "native_bytes", "observations", "proof"};
static const char *const proof_keys[] = {"kind",
                                         "unit_layers",
                                         "layers",
                                         "positions_checked",
                                         "positions_total",
                                         "source_positions_checked",
                                         "source_positions_total",
                                         "source_bijective",
                                         "dest_bijective",
                                         "source_padding_positions",
                                         "dest_padding_positions",
                                         "unread_padding_positions",
                                         "roundtrip_diff_positions",
                                         "gather_payloads",
                                         "gather_agrees",
                                         "decoded_tokens",
                                         "reference_tokens",
                                         "logits_digest",
                                         "reference_logits_digest",
                                         "lemmas",
                                         "detail"};

static void assert_keys(const json_t *o, const char *const *keys, size_t n)
{
    assert_int_equal(json_object_size(o), n);
    for (size_t i = 0; i < n; i++)
        if (json_object_get(o, keys[i]) == NULL) fail_msg("key %s is missing", keys[i]);
}

static json_t *json_of(const kv_campaign *c, const kv_row *row)
{
    json_t *o = kv_row_json_new(c, row);
    kv_buf text = {0};
    kv_err err = {0};
    assert_non_null(o);
    assert_keys(o, row_keys, KVT_COUNT(row_keys));
    assert_keys(json_object_get(o, "proof"), proof_keys, KVT_COUNT(proof_keys));
    kvt_ok(kv_json_write(o, &text, &err), &err); /* it has a canonical form */
    kv_buf_free(&text);
    return o;
}

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void row_json__holds_what_the_row_holds(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    const kv_row row = kvt_run_pair(d, &c, "flashinfer-nhd->sglang");
    json_t *o = json_of(&c, &row), *proof = json_object_get(o, "proof");
    static const struct {
        const char *key;
        int64_t want;
    } numbers[] = {{"unit_layers", 1},
                   {"layers", 3},
                   {"positions_checked", 1280},
                   {"positions_total", 1280},
                   {"source_positions_checked", 1536},
                   {"source_positions_total", 1536},
                   {"source_padding_positions", 256},
                   {"dest_padding_positions", 0},
                   {"unread_padding_positions", 768},
                   {"roundtrip_diff_positions", 768},
                   {"gather_payloads", 6}};
    for (size_t i = 0; i < KVT_COUNT(numbers); i++)
        assert_int_equal(json_integer_value(json_object_get(proof, numbers[i].key)), numbers[i].want);
    json_t *words = kvt_json("['axis_permute','kv_split','reblock']"), *bytes = kvt_json("{'src':3072,'dst':2560}"),
           *none = kvt_json("{}");
    json_t *obs = kvt_json("{'forward_reproduces_target':true,'roundtrip_byte_identical':false,"
                           "'roundtrip_diff_is_exactly_unread_padding':true,'tokens_identical':true}");
    assert_true(json_equal(json_object_get(o, "transformations"), words));
    assert_true(json_equal(json_object_get(o, "native_bytes"), bytes));
    assert_true(json_equal(json_object_get(o, "observations"), obs));
    assert_true(json_equal(json_object_get(o, "params"), none));
    assert_string_equal(text_of(o, "verdict"), "EXACT_TOKEN");
    assert_string_equal(text_of(o, "pair_id"), "flashinfer-nhd->sglang");
    assert_true(json_is_null(json_object_get(o, "error_class")) && json_is_null(json_object_get(proof, "detail")));
    assert_int_equal(json_array_size(json_object_get(proof, "decoded_tokens")), 8);
    assert_true(json_equal(json_object_get(proof, "decoded_tokens"), json_object_get(proof, "reference_tokens")));
    assert_int_equal(strlen(text_of(proof, "logits_digest")), 64);
    assert_int_equal(json_array_size(json_object_get(proof, "lemmas")), KV_LEMMA_COUNT);
    json_decref(words);
    json_decref(bytes);
    json_decref(none);
    json_decref(obs);
    json_decref(o);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* Numbers, observations and bytes are null where nothing was found out. */
static void assert_nothing_found(const json_t *o, const char *kind)
{
    const json_t *proof = json_object_get(o, "proof"), *v;
    const char *key;
    assert_string_equal(text_of(proof, "kind"), kind);
    json_object_foreach((json_t *)(uintptr_t)proof, key, v)
    {
        if (strcmp(key, "kind") == 0) continue;
        if (strcmp(key, "lemmas") == 0)
            assert_int_equal(json_array_size(v), 0);
        else
            assert_true(json_is_null(v));
    }
    json_object_foreach(json_object_get(o, "observations"), key, v) assert_true(json_is_null(v));
    json_object_foreach(json_object_get(o, "native_bytes"), key, v) assert_true(json_is_null(v));
    assert_int_equal(json_object_size(json_object_get(o, "observations")), 4);
    assert_true(json_is_false(json_object_get(o, "same_image")));
}

static void row_json__of_refused_and_failed_rows_keeps_all_keys(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    const kv_row refused = kvt_run_pair(d, &c, "vllm-fa->vllm-paged-x16");
    json_t *o = json_of(&c, &refused);
    assert_nothing_found(o, "frontier");
    assert_string_equal(text_of(o, "verdict"), "REFUSED");
    assert_string_equal(text_of(o, "frontier_code"), "X4_GEOMETRY_UNREPRESENTABLE");
    assert_non_null(strstr(text_of(o, "frontier_reason"), "16"));
    assert_int_equal(json_array_size(json_object_get(o, "transformations")), 3);
    json_decref(o);
    kv_alloc_fail_after(0);
    const kv_row failed = kvt_run_pair(d, &c, "vllm-fa->sglang");
    kv_alloc_fail_after(-1);
    o = json_of(&c, &failed);
    assert_nothing_found(o, "failed");
    assert_string_equal(text_of(o, "verdict"), "FAILED");
    assert_string_equal(text_of(o, "error_class"), "memory");
    assert_true(json_is_null(json_object_get(o, "frontier_code")) &&
                json_is_null(json_object_get(o, "frontier_reason")));
    assert_int_equal(json_array_size(json_object_get(o, "transformations")), 2); /* the derived ones */
    json_decref(o);
    kv_campaign_free(&c);
    d->ops->close(d);
}

static void row_json__tells_of_conversions_and_tails(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c =
        kvt_campaign("a sep k=T.H.D; b sep k=T.H.D e=fp8_e4m3", "L=1,T=20,H=2,D=8,e=f16", "'tail':['zero','nan']");
    assert_int_equal(c.n_cells, 4);
    for (int64_t i = 0; i < 4; i++) {
        const kv_row row = kvt_run(d, &c, i);
        json_t *o = json_of(&c, &row), *detail = json_object_get(json_object_get(o, "proof"), "detail");
        assert_string_equal(text_of(json_object_get(o, "params"), "tail"), i % 2 == 0 ? "nan" : "zero");
        assert_int_equal(json_object_size(detail), 3);
        assert_string_equal(text_of(detail, "conversion"), i < 2 ? "f16->fp8_e4m3" : "fp8_e4m3->f16");
        assert_int_equal(json_is_true(json_object_get(detail, "values_preserved")), i >= 2);
        const int64_t ppm = json_integer_value(json_object_get(detail, "worst_relative_error_ppm"));
        if (i < 2) /* three mantissa bits: half of 1/8 at most, and nearly that in 320 values */
            assert_true(ppm > 50000 && ppm <= 62500);
        else
            assert_int_equal(ppm, 0);
        assert_string_equal(text_of(o, "verdict"), "NOT_EXACT");
        json_decref(o);
    }
    kv_campaign_free(&c);
    d->ops->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grade__follows_the_table_over_all_81_assignments),
        cmocka_unit_test(grade__never_rises_when_an_observation_weakens),
        cmocka_unit_test(row_ran__is_true_for_graded_rows_only),
        cmocka_unit_test(row_json__holds_what_the_row_holds),
        cmocka_unit_test(row_json__of_refused_and_failed_rows_keeps_all_keys),
        cmocka_unit_test(row_json__tells_of_conversions_and_tails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
