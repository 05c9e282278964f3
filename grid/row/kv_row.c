#include "grid/row/kv_row.h"

#include <stdio.h>
#include <string.h>

#include "grid/row/kv_row_codec.h"
#include "grid/row/kv_row_shard.h"

void kv_row_set_get(kv_row_set rows, size_t cell, kv_row *out)
{
    rows.get(rows.ctx, (int64_t)cell, out);
}

static void of_array(const void *ctx, int64_t cell, kv_row *out)
{
    *out = ((const kv_row *)ctx)[cell];
}

kv_row_set kv_row_set_of(const kv_row *rows)
{
    return (kv_row_set){rows, of_array};
}

kv_verdict kv_grade(bool refused, bool elements_differ, bool empty, const int32_t o[KV_OBS_COUNT])
{
    if (refused) return KV_VERDICT_REFUSED;
    for (int i = 0; i < KV_OBS_COUNT; i++)
        if (o[i] == KV_NULL) return KV_VERDICT_UNPROVEN;
    if (elements_differ && !empty) return KV_VERDICT_NOT_EXACT;
    if (o[KV_OBS_FORWARD] == KV_TRUE && o[KV_OBS_TOKENS] == KV_TRUE) {
        if (o[KV_OBS_IDENTICAL] == KV_TRUE) return KV_VERDICT_EXACT_BYTE;
        if (o[KV_OBS_DIFF_IS_PADDING] == KV_TRUE) return KV_VERDICT_EXACT_TOKEN;
    }
    return KV_VERDICT_NOT_EXACT;
}

bool kv_row_ran(const kv_row *r)
{
    return r->verdict == KV_VERDICT_EXACT_BYTE || r->verdict == KV_VERDICT_EXACT_TOKEN ||
           r->verdict == KV_VERDICT_NOT_EXACT;
}

json_t *kv_row_params_new(const kv_campaign *c, const kv_cell *cell)
{
    if (cell->check == KV_CHECK_ATTRIBUTION) {
        const kv_study_point p = kv_cell_study_point(c, cell);
        return kv_study_point_params_new(&p);
    }
    if (cell->check == KV_CHECK_CODEC) {
        const kv_codec_point p = kv_codec_point_at(&c->codec, (size_t)cell->src);
        return kv_codec_point_params_new(&p);
    }
    if (cell->check == KV_CHECK_TP) return kv_shard_point_params_new(kv_cell_shard_point(c, cell));
    if (c->n_tails < 2 || cell->check != KV_CHECK_PAIR) return json_object();
    return json_pack("{s:s}", "tail", kv_tail_name((kv_tail)cell->tail));
}

const char *kv_row_obs_name(kv_check check, int i)
{
    if (check == KV_CHECK_ATTRIBUTION) return kv_study_obs_name((kv_study_obs)i);
    return check == KV_CHECK_CODEC ? kv_codec_obs_name((kv_codec_obs)i) : kv_obs_name((kv_obs)i);
}

/* A number, a truth value or a list; null for rows that did not run. */
static json_t *number(const kv_row *r, int64_t v)
{
    return r->ran ? json_integer((json_int_t)v) : json_null();
}

static json_t *truth(const kv_row *r, int32_t v)
{
    return r->ran ? json_boolean(v) : json_null();
}

static json_t *text(const kv_row *r, const char *s)
{
    return r->ran ? json_string(s) : json_null();
}

static json_t *tri(int32_t v)
{
    return v == KV_NULL ? json_null() : json_boolean(v == KV_TRUE);
}

static json_t *tokens(const kv_row *r, const int32_t t[KV_DECODE_STEPS])
{
    if (!r->ran) return json_null();
    json_t *list = json_array();
    for (int i = 0; list != NULL && i < KV_DECODE_STEPS; i++) json_array_append_new(list, json_integer(t[i]));
    return list;
}

static json_t *word_list(uint32_t words)
{
    json_t *list = json_array();
    for (int w = 0; list != NULL && w < KV_W_COUNT; w++)
        if (words >> w & 1U) json_array_append_new(list, json_string(kv_layout_word_name((kv_layout_word)w)));
    return list;
}

static json_t *lemma_list(const kv_row *r)
{
    json_t *list = json_array();
    for (int l = 0; list != NULL && r->ran && l < KV_LEMMA_COUNT; l++)
        json_array_append_new(list, json_string(kv_lemma_name((kv_lemma)l)));
    return list;
}

static json_t *detail(const kv_campaign *c, const kv_row *r)
{
    if (!r->ran || !r->converts) return json_null();
    const kv_cell *cell = &c->cells[r->cell];
    const kv_geometry *g = &c->geometries[cell->geometry];
    char conversion[64];
    const bool tp = cell->check == KV_CHECK_TP;
    const int32_t src = tp ? kv_cell_shard_point(c, cell)->src : cell->src;
    const int32_t dst = tp ? kv_cell_shard_point(c, cell)->dst : cell->dst;
    snprintf(conversion, sizeof conversion, "%s->%s", kv_elem_name(kv_layout_element(c->catalogue.item[src], g)),
             kv_elem_name(kv_layout_element(c->catalogue.item[dst], g)));
    return json_pack("{s:s,s:b,s:o}", "conversion", conversion, "values_preserved", r->values_preserved,
                     "worst_relative_error_ppm", r->finite ? json_integer((json_int_t)r->worst_ppm) : json_null());
}

static json_t *proof(const kv_campaign *c, const kv_row *r)
{
    const bool tp = c->cells[r->cell].check == KV_CHECK_TP;
    const char *kind = r->verdict == KV_VERDICT_REFUSED  ? KV_PROOF_FRONTIER
                       : r->verdict == KV_VERDICT_FAILED ? KV_PROOF_FAILED
                       : tp                              ? KV_PROOF_TP
                                                         : KV_PROOF_EXHAUSTIVE;
    return json_pack(
        "{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "kind", kind,
        "unit_layers", number(r, r->unit_layers), "layers", number(r, r->layers), "positions_checked",
        number(r, r->checked), "positions_total", number(r, r->total), "source_positions_checked",
        number(r, r->source_checked), "source_positions_total", number(r, r->source_total), "source_bijective",
        truth(r, r->source_bijective), "dest_bijective", truth(r, r->dest_bijective), "source_padding_positions",
        number(r, r->source_padding), "dest_padding_positions", number(r, r->dest_padding), "unread_padding_positions",
        number(r, r->unread_padding), "roundtrip_diff_positions", number(r, r->diff_positions), "gather_payloads",
        number(r, r->gather_payloads), "gather_agrees", truth(r, r->gather_agrees), "decoded_tokens",
        tokens(r, r->decoded), "reference_tokens", tokens(r, r->reference), "logits_digest", text(r, r->logits_digest),
        "reference_logits_digest", text(r, r->reference_digest), "lemmas", lemma_list(r), "detail", detail(c, r));
}

static json_t *proof_of(const kv_campaign *c, const kv_cell *cell, const kv_row *r)
{
    if (cell->check == KV_CHECK_ATTRIBUTION) return kv_row_study_proof_new(r);
    if (cell->check == KV_CHECK_TP) return kv_row_shard_proof_add(c, r, proof(c, r));
    return cell->check == KV_CHECK_CODEC ? kv_row_codec_proof_new(r) : proof(c, r);
}

json_t *kv_row_json_new(const kv_campaign *c, const kv_row *r)
{
    const kv_cell *cell = &c->cells[r->cell];
    const bool refused = r->verdict == KV_VERDICT_REFUSED;
    char id[KV_PAIR_ID_TEXT];
    kv_cell_pair_id(c, cell, id);
    json_t *observations = json_object();
    for (int i = 0; observations != NULL && i < KV_OBS_COUNT; i++)
        json_object_set_new(observations, kv_row_obs_name((kv_check)cell->check, i), tri(r->observed[i]));
    return json_pack("{s:s,s:s,s:s,s:s,s:i,s:o,s:b,s:s,s:o,s:o,s:o,s:o,s:{s:o,s:o},s:o,s:o}", "check",
                     kv_check_name((kv_check)cell->check), "pair_id", id, "src", kv_cell_side(c, cell, 0), "dst",
                     kv_cell_side(c, cell, 1), "geometry", cell->geometry, "params", kv_row_params_new(c, cell),
                     "same_image", r->same_image, "verdict", kv_verdict_name((kv_verdict)r->verdict), "error_class",
                     r->error_class >= 0 ? json_string(kv_errclass_name((kv_errclass)r->error_class)) : json_null(),
                     "frontier_code",
                     refused ? json_string(kv_layout_frontier_name((kv_layout_frontier)r->frontier)) : json_null(),
                     "frontier_reason", refused ? json_string(r->reason) : json_null(), "transformations",
                     word_list(r->words), "native_bytes", "src", number(r, r->native_bytes[0]), "dst",
                     number(r, r->native_bytes[1]), "observations", observations, "proof", proof_of(c, cell, r));
}
