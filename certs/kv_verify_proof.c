/* A proof's numbers against the re-derived space, and the observations against the numbers. */
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    kv_vf *v;
    const kv_vf_derived *d;
    const json_t *row, *proof;
    size_t i;
    bool unproven; /* parts may be null */
} proof;

static const char *at(proof *p, const char *key)
{
    return kv_vf_at(p->v, "$.rows[%zu].proof.%s", p->i, key);
}

bool kv_vf_present(kv_vf *v, const kv_vf_derived *d, const char *key, bool unproven)
{
    const json_t *value = json_object_get(json_object_get(d->row, "proof"), key);
    if (value != NULL && !json_is_null(value)) return true;
    if (value == NULL || !unproven)
        kv_vf_fault(v, KV_H3_PROOF_MISSING, kv_vf_at(v, "$.rows[%zu].proof.%s", d->i, key), "a value",
                    value == NULL ? "missing" : "null");
    return false;
}

static bool present(proof *p, const char *key)
{
    return kv_vf_present(p->v, p->d, key, p->unproven);
}

static void want(proof *p, kv_hcode code, const char *key, int64_t number)
{
    if (present(p, key)) (void)kv_vf_want_int(p->v, code, at(p, key), number, json_object_get(p->proof, key));
}

/* Checked positions of an UNPROVEN row may be fewer, of any other row they are all. */
static void want_checked(proof *p, const char *key, int64_t total)
{
    char expected[48], actual[KV_VF_TEXT];
    if (!p->unproven) {
        want(p, KV_H4_PROOF_NOT_EXHAUSTIVE, key, total);
        return;
    }
    if (!present(p, key) || kv_vf_number(p->proof, key) <= total) return;
    snprintf(expected, sizeof expected, "at most %" PRId64, total);
    kv_vf_fault(p->v, KV_H4_PROOF_NOT_EXHAUSTIVE, at(p, key), expected,
                kv_vf_show(json_object_get(p->proof, key), actual));
}

static void check_space(proof *p, const kv_vf_geometry *g, const kv_vf_bound b[2])
{
    const kv_hcode h4 = KV_H4_PROOF_NOT_EXHAUSTIVE;
    const int64_t units = g->layers / b[0].unit_layers;
    char expected[48], actual[KV_VF_TEXT];
    want(p, h4, "unit_layers", b[0].unit_layers);
    want(p, h4, "layers", g->layers);
    want_checked(p, "positions_checked", b[1].native);
    want(p, h4, "positions_total", b[1].native);
    want_checked(p, "source_positions_checked", b[0].native);
    want(p, h4, "source_positions_total", b[0].native);
    want(p, h4, "source_padding_positions", b[0].native - b[0].elements);
    want(p, h4, "dest_padding_positions", b[1].native - b[1].elements);
    want(p, KV_H2_VERDICT_NOT_DERIVED, "unread_padding_positions", (b[0].native - b[0].elements) * units);
    want(p, KV_H3_PROOF_MISSING, "gather_payloads", p->d->payloads);
    (void)present(p, "source_bijective");
    (void)present(p, "dest_bijective");
    (void)present(p, "gather_agrees");
    if (!present(p, "roundtrip_diff_positions") ||
        kv_vf_number(p->proof, "roundtrip_diff_positions") <= b[0].native * units)
        return;
    snprintf(expected, sizeof expected, "at most %" PRId64, b[0].native * units);
    kv_vf_fault(p->v, KV_H2_VERDICT_NOT_DERIVED, at(p, "roundtrip_diff_positions"), expected,
                kv_vf_show(json_object_get(p->proof, "roundtrip_diff_positions"), actual));
}

/* The observation must be `derived` where it was made. `known` says that its numbers are all there;
 * without them it may only be null. one_way: it may also be false. */
static void check_observation(proof *p, kv_obs o, bool known, bool derived, bool one_way)
{
    char actual[KV_VF_TEXT];
    const char *name = kv_obs_name(o);
    const json_t *value = json_object_get(json_object_get(p->row, "observations"), name);
    if (!json_is_boolean(value)) return;
    const char *path = kv_vf_at(p->v, "$.rows[%zu].observations.%s", p->i, name);
    if (!known && p->unproven)
        kv_vf_fault(p->v, KV_H2_VERDICT_NOT_DERIVED, path, "null, as its numbers are null", kv_vf_show(value, actual));
    else if (known && json_is_true(value) != derived && !(one_way && json_is_false(value)))
        kv_vf_fault(p->v, KV_H2_VERDICT_NOT_DERIVED, path,
                    derived ? "true, by the proof's numbers" : "false, by the proof's numbers",
                    kv_vf_show(value, actual));
}

static bool has_value(const proof *p, const char *key)
{
    const json_t *value = json_object_get(p->proof, key);
    return value != NULL && !json_is_null(value);
}

static bool is_true(const proof *p, const char *key)
{
    return json_is_true(json_object_get(p->proof, key));
}

/* Where element types differ, the numbers bound the observations; else they give them. */
static void check_observations(proof *p, const kv_vf_geometry *g, const kv_vf_bound b[2], const char *tail)
{
    const bool conversion = b[0].element != b[1].element;
    const bool maps_known =
        has_value(p, "source_bijective") && has_value(p, "dest_bijective") && has_value(p, "gather_agrees");
    const bool maps = is_true(p, "source_bijective") && is_true(p, "dest_bijective") && is_true(p, "gather_agrees");
    const bool diff_known = has_value(p, "roundtrip_diff_positions");
    const int64_t diff = kv_vf_number(p->proof, "roundtrip_diff_positions");
    const int64_t unread = (b[0].native - b[0].elements) * (g->layers / b[0].unit_layers);
    const int64_t stale = strcmp(tail, "zero") == 0 ? 0 : unread;
    check_observation(p, KV_OBS_FORWARD, maps_known, maps, conversion && b[0].element != g->element);
    check_observation(p, KV_OBS_IDENTICAL, diff_known, diff == 0, false);
    check_observation(p, KV_OBS_DIFF_IS_PADDING, diff_known, diff == stale,
                      diff > 0 && (conversion || p->d->cell->check == KV_VF_TP)); /* as many may differ elsewhere */
}

/* Lemmas: known names, sorted, each once; at least one in an exact row. */
static void check_lemmas(proof *p)
{
    char actual[KV_VF_TEXT];
    const json_t *list = json_object_get(p->proof, "lemmas");
    const char *verdict = kv_vf_string(p->row, "verdict"), *last = "";
    bool good = json_is_array(list);
    kv_lemma l;
    if (strncmp(verdict, "EXACT_", 6) == 0 && json_array_size(list) == 0) good = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!kv_lemma_parse(name, &l) || strcmp(last, name) >= 0) good = false;
        last = name;
    }
    if (!good)
        kv_vf_fault(p->v, KV_H3_PROOF_MISSING, at(p, "lemmas"),
                    "names of lemmas, sorted, at least one for an exact row", kv_vf_show(list, actual));
}

/* A conversion has a detail, whose parts fit each other; any other row has none. */
static void check_detail(proof *p, const kv_vf_bound b[2])
{
    char expected[64];
    const json_t *detail = json_object_get(p->proof, "detail");
    if (b[0].element == b[1].element) {
        (void)kv_vf_want_null(p->v, KV_H3_PROOF_MISSING, at(p, "detail"), detail);
        return;
    }
    if (!present(p, "detail")) return;
    snprintf(expected, sizeof expected, "%s->%s", kv_vf_element_name(b[0].element), kv_vf_element_name(b[1].element));
    (void)kv_vf_want_text(p->v, KV_H3_PROOF_MISSING, at(p, "detail.conversion"), expected,
                          json_object_get(detail, "conversion"));
    const json_t *preserved = json_object_get(detail, "values_preserved");
    if (kv_vf_element_widens(b[0].element, b[1].element) || b[1].elements == 0)
        (void)kv_vf_want_bool(p->v, KV_H2_VERDICT_NOT_DERIVED, at(p, "detail.values_preserved"), true, preserved);
    if (json_is_true(preserved))
        (void)kv_vf_want_int(p->v, KV_H2_VERDICT_NOT_DERIVED, at(p, "detail.worst_relative_error_ppm"), 0,
                             json_object_get(detail, "worst_relative_error_ppm"));
}

/* ---- the token leg --------------------------------------------------------------------------- */

bool kv_vf_tokens_good(const json_t *list)
{
    if (json_array_size(list) != KV_CERT_DECODE_STEPS) return false;
    for (size_t i = 0; i < KV_CERT_DECODE_STEPS; i++)
        if (json_integer_value(json_array_get(list, i)) >= KV_CERT_VOCABULARY) return false;
    return true;
}

bool kv_vf_digest_good(const json_t *value)
{
    const char *s = json_string_value(value);
    return s != NULL && strlen(s) == 64 && s[strspn(s, "0123456789abcdef")] == '\0';
}

/* tokens_identical is what tokens and digests of both sides say, and needs them all. */
static void check_tokens(kv_vf *v, const json_t *row, size_t i)
{
    static const char *const keys[] = {"decoded_tokens", "reference_tokens", "logits_digest",
                                       "reference_logits_digest"};
    const kv_hcode h13 = KV_H13_TOKEN_CLAIM_WITHOUT_A_DECODE;
    const json_t *proof_of_row = json_object_get(row, "proof"), *value[4];
    const json_t *claim = json_object_get(json_object_get(row, "observations"), kv_obs_name(KV_OBS_TOKENS));
    char actual[KV_VF_TEXT];
    bool all = true;
    for (int k = 0; k < 4; k++) {
        value[k] = json_object_get(proof_of_row, keys[k]);
        const bool none = value[k] == NULL || json_is_null(value[k]);
        if (none) all = false;
        if (none ? !json_is_boolean(claim) : k < 2 ? kv_vf_tokens_good(value[k]) : kv_vf_digest_good(value[k]))
            continue;
        kv_vf_fault(v, h13, kv_vf_at(v, "$.rows[%zu].proof.%s", i, keys[k]),
                    k < 2 ? "8 tokens below 64, as tokens_identical was observed"
                          : "64 hex digits, as tokens_identical was observed",
                    kv_vf_show(value[k], actual));
        all = false;
    }
    if (!all || !json_is_boolean(claim)) return;
    (void)kv_vf_want_bool(v, h13, kv_vf_at(v, "$.rows[%zu].observations.tokens_identical", i),
                          json_equal(value[0], value[1]) && json_equal(value[2], value[3]), claim);
}

void kv_vf_token_leg(kv_vf *v, const kv_vf_derived *d, bool unproven)
{
    static const char *const legs[] = {"decoded_tokens", "reference_tokens", "logits_digest",
                                       "reference_logits_digest"};
    const json_t *of_row = json_object_get(d->row, "proof");
    for (int k = 0; k < 4; k++) /* null is judged with the token claim (H13) */
        if (json_object_get(of_row, legs[k]) == NULL) (void)kv_vf_present(v, d, legs[k], unproven);
    check_tokens(v, d->row, d->i);
    kv_vf_reference_check(v, d);
}

/* ---- all of it --------------------------------------------------------------------------------- */

static void check_permutation(kv_vf *v, const kv_vf_derived *d, bool unproven)
{
    proof p = {v, d, d->row, json_object_get(d->row, "proof"), d->i, unproven};
    (void)kv_vf_want_text(v, KV_H3_PROOF_MISSING, at(&p, "kind"),
                          d->cell->check == KV_VF_TP ? KV_PROOF_TP : KV_PROOF_EXHAUSTIVE,
                          json_object_get(p.proof, "kind"));
    check_space(&p, d->g, d->bound);
    check_observations(&p, d->g, d->bound, d->tail);
    check_lemmas(&p);
    check_detail(&p, d->bound);
    kv_vf_token_leg(v, d, unproven);
}

void kv_vf_proof(kv_vf *v, const kv_vf_derived *d, bool unproven)
{
    const json_t *of_row = json_object_get(d->row, "proof");
    if (of_row == NULL || json_is_null(of_row)) {
        kv_vf_fault(v, KV_H3_PROOF_MISSING, kv_vf_at(v, "$.rows[%zu].proof", d->i), "a proof",
                    of_row == NULL ? "missing" : "null");
        return;
    }
    switch (d->cell->check) {
    case KV_VF_ATTRIBUTION: kv_vf_study_proof(v, d, unproven); return;
    case KV_VF_CODEC: kv_vf_codec_proof(v, d, unproven); return;
    case KV_VF_MOVE:
    case KV_VF_PAIR:
    case KV_VF_TP:
    case KV_VF_CHECK_COUNT: break;
    }
    check_permutation(v, d, unproven);
    if (d->cell->check == KV_VF_TP) kv_vf_tp_proof(v, d, unproven);
}
