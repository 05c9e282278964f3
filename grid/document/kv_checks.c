/* Checks over all rows of a run: what must hold whatever the campaign is. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grid/document/kv_assurance.h"
#include "grid/document/kv_doc.h"

typedef struct {
    const kv_campaign *c;
    kv_row_set rows;
    const json_t *controls;
    json_t *list;
    kv_err *err;
} checks;

/* Adds {name, passed, detail}. */
static kv_rc add(checks *k, const char *name, bool passed, const char *fmt, ...) KV_PRINTF(4, 5);
static kv_rc add(checks *k, const char *name, bool passed, const char *fmt, ...)
{
    char detail[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    json_t *entry = json_pack("{s:s,s:b,s:s}", "name", name, "passed", passed, "detail", detail);
    if (entry != NULL && json_array_append_new(k->list, entry) == 0) return KV_OK;
    return KV_FAIL(k->err, KV_ENOMEM, "no memory for a check");
}

static bool is_exact(const kv_row *r)
{
    return r->verdict == KV_VERDICT_EXACT_BYTE || r->verdict == KV_VERDICT_EXACT_TOKEN;
}

static bool is_view(const kv_row *r)
{
    return r->words == (uint32_t)1 << KV_W_VIEW_REINTERPRET;
}

static const kv_geometry *geometry_of(const checks *k, size_t row)
{
    return &k->c->geometries[k->c->cells[row].geometry];
}

static const kv_layout *side_of(const checks *k, size_t row, int side)
{
    const kv_cell *cell = &k->c->cells[row];
    return k->c->catalogue.item[side == 0 ? cell->src : cell->dst];
}

/* A row as it is asked: with its cell, and as it will stand in the document. */
typedef struct {
    size_t cell;
    const kv_row *r;
    const json_t *json;
} asked;
typedef bool (*row_test)(const checks *k, const asked *a);

static kv_check check_of(const checks *k, size_t row)
{
    return (kv_check)k->c->cells[row].check;
}

/* ---- tests of one row: true = it is at fault --------------------------------------------- */

static bool has_null(const json_t *v)
{
    if (json_is_null(v)) return true;
    const char *key;
    json_t *child;
    json_object_foreach((json_t *)(uintptr_t)v, key, child) if (strcmp(key, "detail") != 0 &&
                                                                strcmp(key, "witness") != 0 &&
                                                                has_null(child)) return true;
    return false;
}

static bool proof_incomplete(const checks *k, const asked *a)
{
    const json_t *proof = json_object_get(a->json, "proof");
    if (!kv_row_ran(a->r)) return false;
    if (check_of(k, a->cell) == KV_CHECK_CODEC) return json_object_size(proof) != 22; /* some may be null: no number */
    if (check_of(k, a->cell) == KV_CHECK_ATTRIBUTION) return json_object_size(proof) != 15;
    return json_object_size(proof) != (check_of(k, a->cell) == KV_CHECK_TP ? 29 : 21) || has_null(proof) ||
           has_null(json_object_get(a->json, "native_bytes"));
}

static bool exact_not_whole(const checks *k, const asked *a)
{
    const kv_row *r = a->r;
    if (!is_exact(r)) return false;
    if (check_of(k, a->cell) == KV_CHECK_MOVE || check_of(k, a->cell) == KV_CHECK_TP)
        return r->checked != r->total || r->source_checked != r->source_total || !r->source_bijective ||
               !r->dest_bijective || !r->gather_agrees;
    const kv_geometry *g = geometry_of(k, a->cell);
    const int64_t unit = kv_pair_unit_layers(side_of(k, a->cell, 0), side_of(k, a->cell, 1), g);
    const int64_t checked[2] = {r->source_checked, r->checked}, total[2] = {r->source_total, r->total};
    for (int s = 0; s < 2; s++) {
        kv_index ix;
        kv_bind_state state;
        char reason[KV_REASON_TEXT];
        if (kv_layout_bind(side_of(k, a->cell, s), g, unit, &ix, &state, reason, NULL) != KV_OK ||
            state != KV_BIND_OK || checked[s] != ix.native || total[s] != ix.native)
            return true;
    }
    return !r->source_bijective || !r->dest_bijective || !r->gather_agrees;
}

static bool exact_relabelling(const checks *k, const asked *a)
{
    (void)k;
    return is_exact(a->r) && a->r->words == 0;
}

/* With stale tails: EXACT_TOKEN exactly where padding is left unread; with zero tails: never. */
static bool class_is_not_padding(const checks *k, const asked *a)
{
    const kv_row *r = a->r;
    const bool padding_shows = k->c->cells[a->cell].tail != KV_TAIL_ZERO && r->unread_padding > 0;
    return is_exact(r) && (r->verdict == KV_VERDICT_EXACT_TOKEN) != padding_shows;
}

static bool token_differs_elsewhere(const checks *k, const asked *a)
{
    (void)k;
    const kv_row *r = a->r;
    return r->verdict == KV_VERDICT_EXACT_TOKEN && (r->diff_positions != r->unread_padding || r->diff_positions == 0);
}

/* Two declarations that say the same but for names and words about them. */
static bool same_declaration(const kv_layout *a, const kv_layout *b)
{
    static const char *const names[] = {"name", "engine", "version", "cite", "evidence", "notes", "role", NULL};
    json_t *x = json_copy(a->json), *y = json_copy(b->json);
    for (const char *const *n = names; *n != NULL; n++) {
        json_object_del(x, *n);
        json_object_del(y, *n);
    }
    const bool equal = json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return equal;
}

static bool equal_but_no_view(const checks *k, const asked *a)
{
    const kv_row *r = a->r;
    return check_of(k, a->cell) == KV_CHECK_PAIR && r->verdict != KV_VERDICT_REFUSED &&
           same_declaration(side_of(k, a->cell, 0), side_of(k, a->cell, 1)) && !is_view(r);
}

static bool same_image_wrong(const checks *k, const asked *a)
{
    const kv_row *r = a->r;
    if (!kv_row_ran(r) || check_of(k, a->cell) != KV_CHECK_PAIR) return r->same_image != 0;
    const kv_geometry *g = geometry_of(k, a->cell);
    const int64_t unit = kv_pair_unit_layers(side_of(k, a->cell, 0), side_of(k, a->cell, 1), g);
    kv_index ix[2];
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    for (int s = 0; s < 2; s++)
        if (kv_layout_bind(side_of(k, a->cell, s), g, unit, &ix[s], &state, reason, NULL) != KV_OK ||
            state != KV_BIND_OK)
            return true;
    return kv_index_same_image(&ix[0], &ix[1]) != (r->same_image != 0);
}

static bool lemma_missing(const checks *k, const asked *a)
{
    (void)k;
    if (!is_exact(a->r)) return false;
    const json_t *lemmas = json_object_get(json_object_get(a->json, "proof"), "lemmas");
    bool bad = json_array_size(lemmas) == 0;
    for (size_t l = 0; !bad && l < json_array_size(lemmas); l++) {
        kv_lemma known;
        bad = !kv_lemma_parse(json_string_value(json_array_get(lemmas, l)), &known);
    }
    return bad;
}

static bool codec_disagrees(const checks *k, const asked *a)
{
    const kv_check check = check_of(k, a->cell);
    if ((check != KV_CHECK_CODEC && check != KV_CHECK_ATTRIBUTION) || !kv_row_ran(a->r)) return false;
    const int last = check == KV_CHECK_CODEC ? KV_CODEC_OBS_TOKENS : KV_STUDY_OBS_FINITE; /* from there on: findings */
    for (int o = 0; o < last; o++)
        if (a->r->observed[o] != KV_TRUE) return true;
    return false;
}

static bool more_than_the_least(const checks *k, const asked *a)
{
    const kv_row *r = a->r;
    if (check_of(k, a->cell) != KV_CHECK_TP) return false;
    if (r->verdict == KV_VERDICT_REFUSED)
        return r->frontier == KV_X2_HEAD_GATHER &&
               (!r->has_tp || r->tp.shard_differs != 0 || r->tp.heads >= r->tp.of_heads);
    if (!kv_row_ran(r)) return false;
    return !r->tp.minimal || r->tp.wire[0] != r->tp.least[0] || r->tp.wire[1] != r->tp.least[1];
}

static bool row_of_another_cell(const checks *k, const asked *a)
{
    (void)k;
    return a->r->cell != (int64_t)a->cell;
}

/* ---- checks ----------------------------------------------------------------------------- */

static bool has_tp(const kv_campaign *c)
{
    return c->tp.present;
}

static const struct {
    const char *name;
    row_test fault;
    const char *what;
    bool (*stands)(const kv_campaign *c); /* NULL: always */
} table[] = {
    {"proofs_have_every_field", proof_incomplete, "rows that ran lack a proof field", NULL},
    {"exact_rows_proved_over_the_whole_space", exact_not_whole, "exact rows are not proved over their whole space",
     NULL},
    {"no_exact_row_is_a_relabelling", exact_relabelling, "exact rows have no word", NULL},
    {"token_class_is_unread_padding", class_is_not_padding,
     "exact rows are in the wrong class for their padding and tail", NULL},
    {"token_identical_means_padding_only", token_differs_elsewhere,
     "EXACT_TOKEN rows differ elsewhere than in unread padding", NULL},
    {"equal_descriptors_are_views", equal_but_no_view, "pairs of equal declarations are no view_reinterpret", NULL},
    {"equal_images_are_same_image", same_image_wrong, "rows say same_image wrongly", NULL},
    {"lemmas_of_exact_rows_exist", lemma_missing, "exact rows name no lemma, or an unknown one", NULL},
    {"every_cell_has_a_row", row_of_another_cell, "cells of the expanded campaign have no row", NULL},
    {"codec_agrees", codec_disagrees, "rows of the codec differ from their reference", kv_campaign_has_codec},
    {"tp_wire_is_minimal", more_than_the_least,
     "rows between tensor-parallel sizes sent more than was lacking, or have no witness", has_tp}};
#define N_TESTS (sizeof table / sizeof table[0])

/* Asks every row everything; a row is made and written out once. */
static kv_rc of_all_rows(checks *k)
{
    int64_t faults[N_TESTS] = {0};
    kv_rc rc = KV_OK;
    for (size_t i = 0; i < k->c->n_cells; i++) {
        kv_row row;
        kv_row_set_get(k->rows, i, &row);
        const bool mine = row.cell == (int64_t)i;
        json_t *json = mine ? kv_row_json_new(k->c, &row) : NULL;
        if (mine && json == NULL) return KV_FAIL(k->err, KV_ENOMEM, "no memory to check rows");
        const asked a = {i, &row, json};
        for (size_t t = 0; t < N_TESTS; t++) faults[t] += table[t].fault(k, &a);
        json_decref(json);
    }
    for (size_t t = 0; rc == KV_OK && t < N_TESTS; t++)
        if (table[t].stands == NULL || table[t].stands(k->c))
            rc = add(k, table[t].name, faults[t] == 0, "%" PRId64 " of %zu rows: %s", faults[t], k->c->n_cells,
                     table[t].what);
    return rc;
}

static kv_rc of_claims(checks *k)
{
    const json_t *claims = k->c->parts == 1 ? json_object_get(k->c->spec, "claims") : NULL; /* of the whole */
    const json_t *words = json_object_get(claims, "words"), *codes = json_object_get(claims, "frontier_codes");
    kv_observed o;
    size_t missing_words = 0, missing_codes = 0;
    kv_observe(k->c, k->rows, &o);
    for (size_t i = 0; i < json_array_size(words); i++)
        for (int w = 0; w < KV_W_COUNT; w++)
            if (strcmp(json_string_value(json_array_get(words, i)), kv_layout_word_name((kv_layout_word)w)) == 0 &&
                !(o.words >> w & 1U))
                missing_words++;
    for (size_t i = 0; i < json_array_size(codes); i++)
        for (int f = KV_X1_LATENT_KV; f <= KV_X4_GEOMETRY_UNREPRESENTABLE; f++)
            if (strcmp(json_string_value(json_array_get(codes, i)), kv_layout_frontier_name((kv_layout_frontier)f)) ==
                    0 &&
                !(o.frontiers >> f & 1U))
                missing_codes++;
    kv_rc rc = add(k, "claimed_vocabulary_exercised", missing_words == 0, "%zu of %zu claimed words are in no row",
                   missing_words, json_array_size(words));
    if (rc == KV_OK)
        rc = add(k, "claimed_frontier_codes_reached", missing_codes == 0,
                 "%zu of %zu claimed frontier codes are in no row", missing_codes, json_array_size(codes));
    return rc;
}

static bool control_passed(const checks *k, const char *name)
{
    for (size_t i = 0; i < json_array_size(k->controls); i++) {
        const json_t *e = json_array_get(k->controls, i);
        if (strcmp(json_string_value(json_object_get(e, "name")), name) == 0)
            return json_is_true(json_object_get(e, "passed"));
    }
    return false;
}

static kv_rc of_tokens(checks *k)
{
    bool any = false, varied = false;
    for (size_t i = 0; i < k->c->n_cells; i++) {
        kv_row row;
        const kv_row *r = &row;
        kv_row_set_get(k->rows, i, &row);
        if (!kv_row_ran(r) || r->has_study || geometry_of(k, i)->tokens == 0) continue; /* no token leg */
        any = true;
        for (int t = 1; t < KV_DECODE_STEPS; t++) varied = varied || r->reference[t] != r->reference[0];
    }
    kv_rc rc = add(k, "token_leg_not_vacuous",
                   control_passed(k, "corrupted_cache_element") && control_passed(k, "source_tail_in_the_tokens"),
                   "one changed bit of the cache, and a tail read as tokens, both change tokens or logits");
    if (rc == KV_OK)
        rc = add(k, "reference_sequence_not_degenerate", varied || !any,
                 any ? "at least one reference sequence has two different tokens" : "no row has a token in its cache");
    if (rc == KV_OK)
        rc = add(k, "round_trip_alone_is_not_exact", control_passed(k, "reinterpreting_translator"),
                 "a translator that relabels bytes has a perfect round trip and is NOT_EXACT");
    return rc;
}

/* No missing observation improves a row: all 81 assignments. */
static kv_rc of_grades(checks *k)
{
    int64_t bad = 0;
    for (int code = 0; code < 81; code++) {
        const int32_t o[KV_OBS_COUNT] = {code % 3, code / 3 % 3, code / 9 % 3, code / 27};
        for (int i = 0; i < KV_OBS_COUNT; i++) {
            int32_t less[KV_OBS_COUNT];
            memcpy(less, o, sizeof less);
            less[i] = KV_NULL;
            if (kv_grade(false, false, false, less) != KV_VERDICT_UNPROVEN) bad++;
            less[i] = KV_FALSE;
            if (o[i] == KV_TRUE && kv_grade(false, false, false, less) < kv_grade(false, false, false, o)) bad++;
        }
    }
    return add(k, "no_missing_observation_improves_a_row", bad == 0,
               "%" PRId64 " of 81 assignments get better by losing an observation", bad);
}

static kv_rc of_layouts(checks *k)
{
    size_t uncited = 0;
    for (size_t i = 0; i < k->c->catalogue.n; i++) {
        const char *cite = json_string_value(json_object_get(k->c->catalogue.item[i]->json, "cite"));
        uncited += cite == NULL || *cite == '\0';
    }
    return add(k, "every_layout_cited", uncited == 0, "%zu of %zu layouts have no citation", uncited,
               k->c->catalogue.n);
}

kv_rc kv_checks_run(const kv_campaign *c, kv_row_set rows, const json_t *controls, json_t *list, kv_err *err)
{
    checks k = {c, rows, controls, list, err};
    kv_rc rc;
    KV_TRY(rc, out, of_all_rows(&k));
    KV_TRY(rc, out, of_claims(&k));
    KV_TRY(rc, out, of_tokens(&k));
    KV_TRY(rc, out, of_grades(&k));
    KV_TRY(rc, out, of_layouts(&k));
out:
    return rc;
}
