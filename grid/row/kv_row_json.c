/* A row of a certificate back as plain data: the inverse of kv_row_json_new, for merge. The certificate has been
 * verified before, so what is missing here is a fault of this program. */
#include <string.h>

#include "grid/row/kv_row.h"
#include "grid/row/kv_row_codec.h"
#include "grid/row/kv_row_shard.h"

static int64_t number(const json_t *obj, const char *key)
{
    return json_integer_value(json_object_get(obj, key));
}

static int32_t truth(const json_t *obj, const char *key)
{
    return json_is_true(json_object_get(obj, key));
}

static bool take_text(const json_t *v, char *out, size_t n)
{
    const char *s = json_string_value(v);
    if (s == NULL) return true; /* null: nothing to say */
    if (strlen(s) >= n) return false;
    memcpy(out, s, strlen(s) + 1);
    return true;
}

static bool take_words(const json_t *list, uint32_t *words)
{
    *words = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        int w = 0;
        while (name != NULL && w < KV_W_COUNT && strcmp(name, kv_layout_word_name((kv_layout_word)w)) != 0) w++;
        if (name == NULL || w == KV_W_COUNT) return false;
        *words |= (uint32_t)1 << w;
    }
    return true;
}

static bool take_verdict(const json_t *row, kv_row *r)
{
    kv_verdict v;
    kv_errclass e;
    const char *verdict = json_string_value(json_object_get(row, "verdict")),
               *code = json_string_value(json_object_get(row, "frontier_code"));
    const char *error = json_string_value(json_object_get(row, "error_class"));
    if (verdict == NULL || !kv_verdict_parse(verdict, &v)) return false;
    r->verdict = (int32_t)v;
    r->error_class = -1;
    if (error != NULL && !kv_errclass_parse(error, &e)) return false;
    if (error != NULL) r->error_class = (int32_t)e;
    r->frontier = KV_X_NONE;
    for (int f = KV_X1_LATENT_KV; code != NULL && f <= KV_X4_GEOMETRY_UNREPRESENTABLE; f++)
        if (strcmp(code, kv_layout_frontier_name((kv_layout_frontier)f)) == 0) r->frontier = f;
    return code == NULL || r->frontier != KV_X_NONE;
}

static void take_tokens(const json_t *list, int32_t out[KV_DECODE_STEPS])
{
    for (int i = 0; i < KV_DECODE_STEPS; i++) out[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
}

static bool take_proof(const json_t *proof, kv_row *r)
{
    const json_t *detail = json_object_get(proof, "detail");
    r->unit_layers = number(proof, "unit_layers");
    r->layers = number(proof, "layers");
    r->checked = number(proof, "positions_checked");
    r->total = number(proof, "positions_total");
    r->source_checked = number(proof, "source_positions_checked");
    r->source_total = number(proof, "source_positions_total");
    r->source_bijective = truth(proof, "source_bijective");
    r->dest_bijective = truth(proof, "dest_bijective");
    r->source_padding = number(proof, "source_padding_positions");
    r->dest_padding = number(proof, "dest_padding_positions");
    r->unread_padding = number(proof, "unread_padding_positions");
    r->diff_positions = number(proof, "roundtrip_diff_positions");
    r->gather_payloads = (int32_t)number(proof, "gather_payloads");
    r->gather_agrees = truth(proof, "gather_agrees");
    take_tokens(json_object_get(proof, "decoded_tokens"), r->decoded);
    take_tokens(json_object_get(proof, "reference_tokens"), r->reference);
    r->converts = json_is_object(detail);
    r->values_preserved = truth(detail, "values_preserved");
    r->finite = json_is_integer(json_object_get(detail, "worst_relative_error_ppm"));
    r->worst_ppm = number(detail, "worst_relative_error_ppm");
    return take_text(json_object_get(proof, "logits_digest"), r->logits_digest, sizeof r->logits_digest) &&
           take_text(json_object_get(proof, "reference_logits_digest"), r->reference_digest,
                     sizeof r->reference_digest);
}

static bool take_any_proof(const json_t *proof, kv_check check, kv_row *r)
{
    if (check == KV_CHECK_ATTRIBUTION) return kv_row_study_of_proof(proof, r);
    if (check == KV_CHECK_TP) return take_proof(proof, r) && kv_row_shard_of_proof(proof, r);
    return check == KV_CHECK_CODEC ? kv_row_codec_of_proof(proof, r) : take_proof(proof, r);
}

kv_rc kv_row_of_json(const json_t *row, kv_check check, int64_t cell, kv_row *out, kv_err *err)
{
    kv_row r;
    const json_t *bytes = json_object_get(row, "native_bytes"), *seen = json_object_get(row, "observations");
    memset(&r, 0, sizeof r);
    r.cell = cell;
    for (int i = 0; i < KV_OBS_COUNT; i++) {
        const json_t *v = json_object_get(seen, kv_row_obs_name(check, i));
        r.observed[i] = json_is_true(v) ? KV_TRUE : json_is_false(v) ? KV_FALSE : KV_NULL;
    }
    r.native_bytes[0] = number(bytes, "src");
    r.native_bytes[1] = number(bytes, "dst");
    r.same_image = truth(row, "same_image");
    const json_t *proof = json_object_get(row, "proof");
    static const char *const measured[KV_CHECK_COUNT] = {"passages", "rows", "positions_checked", "positions_checked",
                                                         "positions_checked"};
    r.ran = json_is_integer(json_object_get(proof, measured[check]));
    if (!take_verdict(row, &r) || !take_words(json_object_get(row, "transformations"), &r.words) ||
        !take_any_proof(proof, check, &r) ||
        !take_text(json_object_get(row, "frontier_reason"), r.reason, sizeof r.reason))
        return KV_FAIL(err, KV_EFORMAT, "a row of cell %lld cannot be read back", (long long)cell);
    *out = r;
    return KV_OK;
}
