/* One row against what its cell derives. */
#include "certs/kv_json.h"
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef kv_vf_derived derived;

static const char *row_path(kv_vf *v, const derived *d, const char *key)
{
    return kv_vf_at(v, "$.rows[%zu].%s", d->i, key);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void put_words(kv_word_set set, char out[KV_VF_TEXT])
{
    size_t n = 0;
    n += (size_t)snprintf(out, KV_VF_TEXT, "[");
    for (int w = 0; w < KV_WORD_COUNT && n < KV_VF_TEXT; w++)
        if ((set & KV_WORD_BIT(w)) != 0)
            n += (size_t)snprintf(out + n, KV_VF_TEXT - n, "%s\"%s\"", n > 1 ? "," : "", kv_word_name((kv_word)w));
    if (n < KV_VF_TEXT) snprintf(out + n, KV_VF_TEXT - n, "]");
}

/* The row's words as a set; *listed is false where the list is not exactly such a set, sorted. */
static kv_word_set read_words(const json_t *list, bool *listed)
{
    kv_word_set set = 0;
    *listed = true;
    for (size_t i = 0; i < json_array_size(list); i++) {
        kv_word w;
        if (!kv_word_parse(json_string_value(json_array_get(list, i)), &w)) {
            *listed = false;
            continue;
        }
        if (set >> w != 0) *listed = false; /* not rising, or twice */
        set |= KV_WORD_BIT(w);
    }
    return set;
}

static void check_words(kv_vf *v, const derived *d)
{
    char expected[KV_VF_TEXT], actual[KV_VF_TEXT];
    bool listed;
    const json_t *list = json_object_get(d->row, "transformations");
    const kv_word_set set = read_words(list, &listed);
    v->words |= set;
    const bool exact = strncmp(kv_vf_string(d->row, "verdict"), "EXACT_", 6) == 0;
    if (listed && set == d->words && !(set == 0 && exact)) return;
    put_words(d->words, expected);
    kv_vf_fault(v, d->twins ? KV_H12_PAIR_DECLARED_TWICE : KV_H5_TRIVIAL_TRANSFORMATION,
                row_path(v, d, "transformations"), expected, kv_vf_show(list, actual));
}

/* ---- rows that did not run ------------------------------------------------------------------- */

const char *kv_vf_obs_name(kv_vf_check check, int o)
{
    if (check == KV_VF_ATTRIBUTION) return kv_study_obs_name((kv_study_obs)o);
    return check == KV_VF_CODEC ? kv_codec_obs_name((kv_codec_obs)o) : kv_obs_name((kv_obs)o);
}

/* What a key of a proof says where the row did not run, or NULL where it does say that. */
static const char *not_nothing(const char *key, const json_t *value)
{
    if (strcmp(key, "kind") == 0 || strcmp(key, "witness") == 0) return NULL; /* kv_vf_tp_witness */
    if (strcmp(key, "lemmas") == 0) return json_array_size(value) == 0 ? NULL : "[]";
    if (strcmp(key, "value_preserving") == 0) return json_is_false(value) ? NULL : "false";
    return json_is_null(value) ? NULL : "null";
}

/* All observations, native bytes and proof parts are null, lemmas empty, the kind as given. */
static void check_nothing_claimed(kv_vf *v, const derived *d, const char *kind)
{
    static const size_t proof_keys[KV_VF_CHECK_COUNT] = {15, 22, 21, 21, 29};
    const json_t *observations = json_object_get(d->row, "observations"), *proof = json_object_get(d->row, "proof");
    const char *key;
    json_t *value;
    for (int o = 0; o < KV_OBS_COUNT; o++) {
        const char *name = kv_vf_obs_name(d->cell->check, o);
        (void)kv_vf_want_null(v, KV_H2_VERDICT_NOT_DERIVED, kv_vf_at(v, "$.rows[%zu].observations.%s", d->i, name),
                              json_object_get(observations, name));
    }
    (void)kv_vf_want_null(v, KV_H4_PROOF_NOT_EXHAUSTIVE, row_path(v, d, "native_bytes.src"),
                          json_object_get(json_object_get(d->row, "native_bytes"), "src"));
    (void)kv_vf_want_null(v, KV_H4_PROOF_NOT_EXHAUSTIVE, row_path(v, d, "native_bytes.dst"),
                          json_object_get(json_object_get(d->row, "native_bytes"), "dst"));
    (void)kv_vf_want_bool(v, KV_H2_VERDICT_NOT_DERIVED, row_path(v, d, "same_image"), false,
                          json_object_get(d->row, "same_image"));
    (void)kv_vf_want_text(v, KV_H3_PROOF_MISSING, row_path(v, d, "proof.kind"), kind, json_object_get(proof, "kind"));
    size_t keys = 0;
    json_object_foreach((json_t *)(uintptr_t)proof, key, value)
    {
        char actual[KV_VF_TEXT];
        keys++;
        const char *want = not_nothing(key, value);
        if (want != NULL)
            kv_vf_fault(v, KV_H3_PROOF_MISSING, kv_vf_at(v, "$.rows[%zu].proof.%s", d->i, key), want,
                        kv_vf_show(value, actual));
    }
    if (d->cell->check == KV_VF_TP) kv_vf_tp_witness(v, d);
    if (keys != proof_keys[d->cell->check])
        kv_vf_fault(v, KV_H3_PROOF_MISSING, row_path(v, d, "proof"), "every key of a proof", "fewer");
}

static void check_refused(kv_vf *v, const derived *d)
{
    char actual[KV_VF_TEXT];
    const json_t *reason = json_object_get(d->row, "frontier_reason");
    (void)kv_vf_want_text(v, KV_H14_NO_FRONTIER, row_path(v, d, "frontier_code"), kv_frontier_name(d->frontier),
                          json_object_get(d->row, "frontier_code"));
    if (!json_is_string(reason) || json_string_length(reason) == 0)
        kv_vf_fault(v, KV_H14_NO_FRONTIER, row_path(v, d, "frontier_reason"), "a reason", kv_vf_show(reason, actual));
    (void)kv_vf_want_null(v, KV_H2_VERDICT_NOT_DERIVED, row_path(v, d, "error_class"),
                          json_object_get(d->row, "error_class"));
    check_nothing_claimed(v, d, KV_PROOF_FRONTIER);
}

static void check_failed(kv_vf *v, const derived *d)
{
    char actual[KV_VF_TEXT];
    kv_errclass e;
    const json_t *class = json_object_get(d->row, "error_class");
    if (!json_is_string(class) || !kv_errclass_parse(json_string_value(class), &e))
        kv_vf_fault(v, KV_H2_VERDICT_NOT_DERIVED, row_path(v, d, "error_class"), "memory, device, io or internal",
                    kv_vf_show(class, actual));
    if (!kv_vf_failure_told(v, d->row))
        kv_vf_fault(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, "$.run.failures", "an entry for each FAILED row",
                    kv_vf_string(d->row, "pair_id"));
    check_nothing_claimed(v, d, KV_PROOF_FAILED);
}

/* ---- rows that ran --------------------------------------------------------------------------- */

/* True, false, or -1 where the observation was not made; a missing key is a fault once. */
static int observation(kv_vf *v, const derived *d, int o)
{
    const char *name = kv_vf_obs_name(d->cell->check, o);
    const json_t *value = json_object_get(json_object_get(d->row, "observations"), name);
    if (value == NULL)
        kv_vf_fault(v, KV_H2_VERDICT_NOT_DERIVED, kv_vf_at(v, "$.rows[%zu].observations.%s", d->i, name),
                    "true, false or null", "missing");
    return json_is_boolean(value) ? json_is_true(value) : -1;
}

/* The verdict that four observations give (design section 4); lossy: no value is preserved by definition. */
static kv_verdict grade(const int o[KV_OBS_COUNT], bool lossy)
{
    for (int i = 0; i < KV_OBS_COUNT; i++)
        if (o[i] < 0) return KV_VERDICT_UNPROVEN;
    if (lossy) return KV_VERDICT_NOT_EXACT;
    if (o[KV_OBS_FORWARD] == 1 && o[KV_OBS_TOKENS] == 1) {
        if (o[KV_OBS_IDENTICAL] == 1) return KV_VERDICT_EXACT_BYTE;
        if (o[KV_OBS_DIFF_IS_PADDING] == 1) return KV_VERDICT_EXACT_TOKEN;
    }
    return KV_VERDICT_NOT_EXACT;
}

static void check_native_bytes(kv_vf *v, const derived *d, bool unproven)
{
    static const char *const keys[] = {"src", "dst"};
    for (int s = 0; s < 2; s++) {
        const json_t *value = json_object_get(json_object_get(d->row, "native_bytes"), keys[s]);
        if (unproven && json_is_null(value)) continue;
        (void)kv_vf_want_int(v, KV_H4_PROOF_NOT_EXHAUSTIVE, kv_vf_at(v, "$.rows[%zu].native_bytes.%s", d->i, keys[s]),
                             d->bound[s].native * kv_vf_element_bytes(d->bound[s].element), value);
    }
}

static void check_ran(kv_vf *v, const derived *d, kv_verdict claimed)
{
    int o[KV_OBS_COUNT];
    const kv_vf_check check = d->cell->check;
    const bool unproven = claimed == KV_VERDICT_UNPROVEN,
               images = check == KV_VF_PAIR || check == KV_VF_MOVE || check == KV_VF_TP;
    const bool lossy = images ? d->bound[0].element != d->bound[1].element && d->g->tokens > 0 : true;
    const json_t *same = json_object_get(d->row, "same_image");
    for (int i = 0; i < KV_OBS_COUNT; i++) o[i] = observation(v, d, i);
    const kv_verdict want = grade(o, lossy);
    (void)kv_vf_want_text(v, KV_H2_VERDICT_NOT_DERIVED, row_path(v, d, "verdict"), kv_verdict_name(want),
                          json_object_get(d->row, "verdict"));
    (void)kv_vf_want_null(v, KV_H2_VERDICT_NOT_DERIVED, row_path(v, d, "error_class"),
                          json_object_get(d->row, "error_class"));
    if (!(unproven && json_is_false(same)))
        (void)kv_vf_want_bool(v, KV_H2_VERDICT_NOT_DERIVED, row_path(v, d, "same_image"), d->same_image, same);
    if (images) check_native_bytes(v, d, unproven);
    kv_vf_proof(v, d, unproven);
}

/* A cell that derives no frontier: any claim of one is a fault. */
static void check_runnable(kv_vf *v, const derived *d, kv_verdict claimed)
{
    (void)kv_vf_want_null(v, KV_H14_NO_FRONTIER, row_path(v, d, "frontier_code"),
                          json_object_get(d->row, "frontier_code"));
    (void)kv_vf_want_null(v, KV_H14_NO_FRONTIER, row_path(v, d, "frontier_reason"),
                          json_object_get(d->row, "frontier_reason"));
    switch (claimed) {
    case KV_VERDICT_REFUSED:
        kv_vf_fault(v, KV_H14_NO_FRONTIER, row_path(v, d, "verdict"), "a grade, as no frontier code applies",
                    "REFUSED");
        return;
    case KV_VERDICT_FAILED: check_failed(v, d); return;
    case KV_VERDICT_EXACT_BYTE:
    case KV_VERDICT_EXACT_TOKEN:
    case KV_VERDICT_NOT_EXACT:
    case KV_VERDICT_UNPROVEN:
    case KV_VERDICT_COUNT: break;
    }
    check_ran(v, d, claimed);
}

/* ---- counting -------------------------------------------------------------------------------- */

static int64_t at_least_0(int64_t n)
{
    return n > 0 ? n : 0;
}

/* Counts what the row claims, whether or not the claim is good. */
static void count(kv_vf *v, const derived *d, kv_verdict claimed)
{
    const json_t *proof = json_object_get(d->row, "proof");
    const int64_t checked = at_least_0(kv_vf_number(proof, "positions_checked"));
    const int64_t source = at_least_0(kv_vf_number(proof, "source_positions_checked"));
    const char *code = kv_vf_string(d->row, "frontier_code");
    const bool exact = claimed == KV_VERDICT_EXACT_BYTE || claimed == KV_VERDICT_EXACT_TOKEN;
    const bool ran = exact || claimed == KV_VERDICT_NOT_EXACT;
    kv_frontier f;
    bool listed;
    const kv_word_set set = read_words(json_object_get(d->row, "transformations"), &listed);
    const bool view = ran && set == KV_WORD_BIT(KV_WORD_VIEW_REINTERPRET);
    if (code != NULL && kv_frontier_parse(code, &f)) v->frontiers |= 1U << f;
    v->report->verdicts[claimed]++;
    (void)kv_add_i64(v->report->positions, checked, &v->report->positions); /* where it overflows, H4 has spoken */
    if (json_is_true(json_object_get(d->row, "same_image"))) v->same_image_rows++;
    if (ran && d->g->tokens == 0) v->empty_rows++;
    if (view) {
        v->view_rows++;
        return;
    }
    v->verdicts[claimed]++;
    (void)kv_add_i64(v->positions, checked, &v->positions);
    (void)kv_add_i64(v->source_positions, source, &v->source_positions);
    if (d->cell->check != KV_VF_PAIR) return; /* the hunt is for pairs */
    if (exact) v->claims_exact = true;
    if (claimed != KV_VERDICT_FAILED && claimed != KV_VERDICT_UNPROVEN && d->frontier == KV_FRONTIER_NONE &&
        d->bound[0].element == d->bound[1].element && (d->words & KV_WORD_BIT(KV_WORD_VIEW_REINTERPRET)) == 0)
        v->could_be_exact = true;
}

/* ---- all of it --------------------------------------------------------------------------------- */

/* What a cell of check pair derives; false where its sizes are more than a document can say. */
static bool derive_pair(const kv_vf *v, derived *d)
{
    const kv_vf_layout *src = &v->layouts[d->cell->src], *dst = &v->layouts[d->cell->dst];
    const int64_t unit = kv_vf_unit_layers(src, dst, d->g);
    kv_vf_bind(src, d->g, unit, &d->bound[0]);
    kv_vf_bind(dst, d->g, unit, &d->bound[1]);
    if (d->bound[0].too_large || d->bound[1].too_large) return false;
    d->frontier = kv_vf_frontier(src, dst, &d->bound[0], &d->bound[1]);
    d->words = kv_vf_words(src, dst, d->g, &d->bound[0], &d->bound[1]);
    d->twins = kv_vf_same_descriptor(src, dst, d->g);
    d->same_image = d->frontier == KV_FRONTIER_NONE && kv_vf_same_image(&d->bound[0], &d->bound[1], d->g);
    d->payloads = kv_vf_payloads(v, d->g);
    return true;
}

void kv_vf_row(kv_vf *v, const json_t *row, size_t i, const kv_vf_cell *cell)
{
    derived d = {.row = row, .i = i, .cell = cell, .g = &v->geometries[cell->geometry]};
    kv_verdict claimed;
    d.tail = v->campaign.tails[cell->tail];
    if (!(cell->check == KV_VF_PAIR ? derive_pair(v, &d) : kv_vf_point_derive(v, &d))) {
        kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, kv_vf_at(v, "$.rows[%zu]", i), "sizes that a certificate can say",
                    kv_vf_string(row, "pair_id"));
        return;
    }
    check_words(v, &d);
    if (!kv_verdict_parse(kv_vf_string(row, "verdict"), &claimed)) {
        kv_vf_fault(v, KV_H2_VERDICT_NOT_DERIVED, row_path(v, &d, "verdict"), "one of the six verdicts",
                    kv_vf_string(row, "verdict"));
        return;
    }
    count(v, &d, claimed);
    kv_vf_note_checks(v, &d, claimed);
    if (d.frontier == KV_FRONTIER_NONE)
        check_runnable(v, &d, claimed);
    else if (kv_vf_want_text(v, KV_H14_NO_FRONTIER, row_path(v, &d, "verdict"), kv_verdict_name(KV_VERDICT_REFUSED),
                             json_object_get(row, "verdict")))
        check_refused(v, &d);
}
