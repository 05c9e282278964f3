/* controls, checks, known_limits: the names and guards of the verifier's own list, and what the rows say of the checks. */
#include "certs/kv_verify_int.h"

#include <string.h>

/* ---- the lists ------------------------------------------------------------------------------ */

enum { CONTROLS, CHECKS, LIMITS, LISTS };
static const char *const lists[LISTS] = {"controls", "checks", "known_limits"};
static const char *const flags[LISTS] = {"passed", "passed", "demonstrated"};

#define CODEC_CHECK "codec_agrees" /* stands there exactly where the campaign has such rows */

#define TP_CHECK "tp_wire_is_minimal" /* likewise */

static bool has_codec(const kv_vf *v)
{
    const json_t *spec = json_object_get(json_object_get(v->doc, "campaign"), "spec");
    return json_object_get(spec, "codec") != NULL || json_object_get(spec, "attribution") != NULL;
}

static bool has_tp(const kv_vf *v)
{
    return json_object_get(json_object_get(json_object_get(v->doc, "campaign"), "spec"), "tp") != NULL;
}

/* The i-th name that the list must hold; NULL behind the last. */
static const char *required_name(const kv_vf *v, int list, size_t i)
{
    size_t n = 0;
    switch (list) {
    case CONTROLS: return v->required->controls[i].name;
    case CHECKS:
        while (v->required->checks[n] != NULL) n++;
        if (i == n && has_codec(v)) return CODEC_CHECK;
        if (i == n + has_codec(v)) return has_tp(v) ? TP_CHECK : NULL;
        return i < n ? v->required->checks[i] : NULL;
    default: return v->required->known_limits[i];
    }
}

/* Index of the name among those required, or their number. */
static size_t find_required(const kv_vf *v, int list, const char *name)
{
    size_t i = 0;
    while (required_name(v, list, i) != NULL && strcmp(required_name(v, list, i), name) != 0) i++;
    return i;
}

static void check_guard(kv_vf *v, size_t i, const json_t *entry, const char *guard)
{
    (void)kv_vf_want_text(v, KV_H9_GUARD_FAILED_OPEN, kv_vf_at(v, "$.controls[%zu].expected_guard", i), guard,
                          json_object_get(entry, "expected_guard"));
    (void)kv_vf_want_text(v, KV_H9_GUARD_FAILED_OPEN, kv_vf_at(v, "$.controls[%zu].actual_guard", i), guard,
                          json_object_get(entry, "actual_guard"));
}

/* Every entry is on the list and holds; every name of the list has one entry. */
static void check_list(kv_vf *v, int list)
{
    const json_t *entries = json_object_get(v->doc, lists[list]);
    size_t n = 0;
    while (required_name(v, list, n) != NULL) n++;
    bool *seen = kv_alloc(n + 1, sizeof *seen);
    if (seen == NULL) {
        kv_vf_no_memory(v);
        return;
    }
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);
        const char *name = kv_vf_string(entry, "name");
        const size_t at = find_required(v, list, name);
        (void)kv_vf_want_bool(v, KV_H9_GUARD_FAILED_OPEN, kv_vf_at(v, "$.%s[%zu].%s", lists[list], i, flags[list]),
                              true, json_object_get(entry, flags[list]));
        if (at == n || seen[at])
            kv_vf_fault(v, KV_H8_FLOOR_BELOW_OBSERVATION, kv_vf_at(v, "$.%s[%zu].name", lists[list], i),
                        at == n ? "a name that can be judged here" : "each name once", name);
        if (at < n && list == CONTROLS) check_guard(v, i, entry, v->required->controls[at].guard);
        if (at < n) seen[at] = true;
    }
    for (size_t at = 0; at < n; at++)
        if (!seen[at])
            kv_vf_fault(v, KV_H8_FLOOR_BELOW_OBSERVATION, kv_vf_at(v, "$.%s", lists[list]), required_name(v, list, at),
                        "no entry of this name");
    kv_free(seen);
}

void kv_vf_guards(kv_vf *v)
{
    for (int list = 0; list < LISTS; list++) check_list(v, list);
}

/* ---- checks that follow from rows and controls ------------------------------------------------ */

/* A row of check codec or attribution that ran: whether it agrees with its reference. What its other observations say is a
 * finding. */
static void note_codec(kv_vf_seen *s, const kv_vf_derived *d)
{
    const bool codec = d->cell->check == KV_VF_CODEC;
    const json_t *observations = json_object_get(d->row, "observations");
    const int last = codec ? KV_CODEC_OBS_TOKENS : KV_STUDY_OBS_FINITE;
    if (codec)
        s->stored++;
    else
        s->studied++;
    s->measured = s->measured || !codec || d->g->tokens > 0;
    for (int o = 0; o < last; o++)
        if (!json_is_true(json_object_get(observations, kv_vf_obs_name(d->cell->check, o)))) s->codec_disagrees = true;
}

/* A row of check tp: what went over the wire, or the witness of a refusal. */
static void note_tp(kv_vf_seen *s, const kv_vf_derived *d, kv_verdict claimed)
{
    const json_t *proof = json_object_get(d->row, "proof"), *w = json_object_get(proof, "witness");
    const char *code = kv_vf_string(d->row, "frontier_code");
    if (code != NULL && strcmp(code, kv_frontier_name(KV_FRONTIER_X2)) == 0) {
        s->shown++;
        if (!json_is_object(w) || kv_vf_number(w, "shard_differs") != 0 ||
            kv_vf_number(w, "shard_heads") >= kv_vf_number(w, "heads"))
            s->tp_wrong = true;
    }
    if (claimed == KV_VERDICT_REFUSED || claimed == KV_VERDICT_FAILED || claimed == KV_VERDICT_UNPROVEN) return;
    s->resharded++;
    if (!json_is_true(json_object_get(proof, "wire_minimal")) ||
        kv_vf_number(proof, "wire_bytes") != kv_vf_number(proof, "least_wire_bytes") ||
        kv_vf_number(proof, "wire_bytes_back") != kv_vf_number(proof, "least_wire_bytes_back"))
        s->tp_wrong = true;
}

void kv_vf_note_checks(kv_vf *v, const kv_vf_derived *d, kv_verdict claimed)
{
    kv_vf_seen *s = &v->seen;
    const kv_vf_geometry *g = d->g;
    const kv_vf_bound *bound = d->bound;
    const json_t *proof = json_object_get(d->row, "proof"), *reference = json_object_get(proof, "reference_tokens");
    const json_t *tokens = json_object_get(json_object_get(d->row, "observations"), kv_obs_name(KV_OBS_TOKENS));
    const bool token = claimed == KV_VERDICT_EXACT_TOKEN, exact = token || claimed == KV_VERDICT_EXACT_BYTE;
    if (d->cell->check == KV_VF_TP) note_tp(s, d, claimed);
    if (!exact && claimed != KV_VERDICT_NOT_EXACT) return;
    if (d->cell->check == KV_VF_CODEC || d->cell->check == KV_VF_ATTRIBUTION) {
        note_codec(s, d);
    } else {
        s->ran++;
        if (json_is_true(tokens)) s->decoded++;
    }
    if (d->cell->check == KV_VF_ATTRIBUTION) return; /* no token leg */
    if (g->tokens > 0) s->has_tokens = true;
    for (size_t i = 1; g->tokens > 0 && i < json_array_size(reference); i++)
        if (!json_equal(json_array_get(reference, i), json_array_get(reference, 0))) s->reference_varies = true;
    if (!exact || !bound[0].exists) return;
    const int64_t unread = (bound[0].native - bound[0].elements) * (g->layers / bound[0].unit_layers);
    const int64_t diff = kv_vf_number(proof, "roundtrip_diff_positions");
    const bool shows = unread > 0 && strcmp(d->tail, "zero") != 0;
    if (token != shows) s->class_is_not_padding = true;
    if (token && (diff != unread || diff == 0)) s->differs_elsewhere = true;
}

static bool control_held(const kv_vf *v, const char *name)
{
    const json_t *controls = json_object_get(v->doc, "controls");
    for (size_t i = 0; i < json_array_size(controls); i++)
        if (strcmp(kv_vf_string(json_array_get(controls, i), "name"), name) == 0)
            return json_is_true(json_object_get(json_array_get(controls, i), "passed"));
    return false;
}

/* Every claimed word or frontier code is in a row. */
static bool claims_occur(const kv_vf *v, const char *key)
{
    const json_t *claimed = json_object_get(v->campaign.claims, key);
    for (size_t i = 0; i < json_array_size(claimed); i++)
        if (!kv_vf_occurs(v, json_string_value(json_array_get(claimed, i)))) return false;
    return true;
}

void kv_vf_checks(kv_vf *v)
{
    const kv_vf_seen *s = &v->seen;
    const json_t *list = json_object_get(v->doc, "checks");
    const struct {
        const char *name;
        bool holds;
    } derived[] = {
        {"token_class_is_unread_padding", !s->class_is_not_padding},
        {"token_identical_means_padding_only", !s->differs_elsewhere},
        {CODEC_CHECK, !s->codec_disagrees},
        {TP_CHECK, !s->tp_wrong},
        {"reference_sequence_not_degenerate", s->reference_varies || !s->has_tokens},
        {"claimed_vocabulary_exercised", claims_occur(v, "words")},
        {"claimed_frontier_codes_reached", claims_occur(v, "frontier_codes")},
        {"token_leg_not_vacuous",
         control_held(v, "corrupted_cache_element") && control_held(v, "source_tail_in_the_tokens")},
        {"round_trip_alone_is_not_exact", control_held(v, "reinterpreting_translator")},
    };
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        for (size_t k = 0; k < sizeof derived / sizeof *derived; k++)
            if (strcmp(kv_vf_string(entry, "name"), derived[k].name) == 0 && !derived[k].holds &&
                json_is_true(json_object_get(entry, "passed")))
                kv_vf_fault(v, KV_H9_GUARD_FAILED_OPEN, kv_vf_at(v, "$.checks[%zu].passed", i),
                            "false, by the rows and controls", "true");
    }
}
