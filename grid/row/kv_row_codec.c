#include "grid/row/kv_row_codec.h"

#include <string.h>

#include "certs/kv_json.h"

/* a / b in parts per million, rounded down, without overflow. */
static int64_t ratio_ppm(int64_t a, int64_t b)
{
    const int64_t ppm = 1000000;
    return a / b * ppm + (int64_t)((unsigned __int128)(uint64_t)(a % b) * (uint64_t)ppm / (uint64_t)b);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static const char *const digest_keys[3][2] = {{"codes_digest", "reference_codes_digest"},
                                              {"slots_digest", "repacked_slots_digest"},
                                              {"values_digest", "reference_values_digest"}};

static json_t *number(const kv_row *r, int64_t v)
{
    return r->has_codec ? json_integer((json_int_t)v) : json_null();
}

static json_t *number_if(const kv_row *r, int32_t has, int64_t v)
{
    return r->has_codec && has ? json_integer((json_int_t)v) : json_null();
}

static json_t *tokens(const kv_row *r, const int32_t t[KV_DECODE_STEPS])
{
    json_t *list = r->has_codec ? json_array() : json_null();
    for (int i = 0; r->has_codec && list != NULL && i < KV_DECODE_STEPS; i++)
        json_array_append_new(list, json_integer(t[i]));
    return list;
}

static json_t *digest(const kv_row *r, const uint8_t bytes[KV_HASH_BYTES])
{
    char hex[KV_HASH_HEX];
    kv_hex_encode(bytes, KV_HASH_BYTES, hex);
    return r->has_codec ? json_string(hex) : json_null();
}

json_t *kv_row_codec_proof_new(const kv_row *r)
{
    const kv_row_codec *o = &r->codec;
    const char *kind = r->verdict == KV_VERDICT_REFUSED  ? KV_PROOF_FRONTIER
                       : r->verdict == KV_VERDICT_FAILED ? KV_PROOF_FAILED
                                                         : KV_PROOF_CODEC;
    json_t *p = json_pack(
        "{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b}", "kind", kind, "rows", number(r, o->rows), "encoded_rows",
        number(r, o->encoded_rows), "blocks", number(r, o->blocks), "overflow_blocks", number(r, o->overflow_blocks),
        "outliers", number(r, o->outliers), "saturated", number(r, o->saturated), "relative_l2_ppm",
        number_if(r, o->has_l2, o->l2_ppm), "worst_element_ppm", number_if(r, o->has_worst, o->worst_ppm), "cosine_ppm",
        number_if(r, o->has_cosine, o->cosine_ppm), "ratio_ppm",
        number_if(r, o->stored_bytes > 0, o->stored_bytes > 0 ? ratio_ppm(o->plain_bytes, o->stored_bytes) : 0),
        "value_preserving", false);
    for (int k = 0; p != NULL && k < 3; k++)
        for (int i = 0; i < 2; i++) json_object_set_new(p, digest_keys[k][i], digest(r, o->digest[k][i]));
    if (p == NULL) return NULL;
    json_object_set_new(p, "decoded_tokens", tokens(r, r->decoded));
    json_object_set_new(p, "reference_tokens", tokens(r, r->reference));
    json_object_set_new(p, "logits_digest", r->has_codec ? json_string(r->logits_digest) : json_null());
    json_object_set_new(p, "reference_logits_digest", r->has_codec ? json_string(r->reference_digest) : json_null());
    return p;
}

static bool take_digest(const json_t *proof, const char *key, uint8_t out[KV_HASH_BYTES])
{
    const char *hex = json_string_value(json_object_get(proof, key));
    return hex != NULL && kv_hex_decode(hex, out, KV_HASH_BYTES);
}

static bool take_hex(const json_t *proof, const char *key, char out[KV_HASH_HEX])
{
    uint8_t bytes[KV_HASH_BYTES];
    if (!take_digest(proof, key, bytes)) return false;
    kv_hex_encode(bytes, sizeof bytes, out);
    return true;
}

static void take_tokens(const json_t *list, int32_t out[KV_DECODE_STEPS])
{
    for (int i = 0; i < KV_DECODE_STEPS; i++) out[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
}

static int64_t value(const json_t *proof, const char *key)
{
    return json_integer_value(json_object_get(proof, key));
}

bool kv_row_codec_of_proof(const json_t *proof, kv_row *r)
{
    static const char *const ppm[3] = {"relative_l2_ppm", "worst_element_ppm", "cosine_ppm"};
    kv_row_codec *o = &r->codec;
    int32_t *const has[3] = {&o->has_l2, &o->has_worst, &o->has_cosine};
    int64_t *const to[3] = {&o->l2_ppm, &o->worst_ppm, &o->cosine_ppm};
    r->has_codec = json_is_integer(json_object_get(proof, "rows"));
    if (!r->has_codec) return true;
    o->rows = value(proof, "rows");
    o->encoded_rows = value(proof, "encoded_rows");
    o->blocks = value(proof, "blocks");
    o->overflow_blocks = value(proof, "overflow_blocks");
    o->outliers = value(proof, "outliers");
    o->saturated = value(proof, "saturated");
    o->stored_bytes = r->native_bytes[1];
    o->plain_bytes = r->native_bytes[0];
    for (int i = 0; i < 3; i++) {
        *has[i] = json_is_integer(json_object_get(proof, ppm[i]));
        *to[i] = value(proof, ppm[i]);
    }
    take_tokens(json_object_get(proof, "decoded_tokens"), r->decoded);
    take_tokens(json_object_get(proof, "reference_tokens"), r->reference);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 2; i++)
            if (!take_digest(proof, digest_keys[k][i], o->digest[k][i])) return false;
    return take_hex(proof, "logits_digest", r->logits_digest) &&
           take_hex(proof, "reference_logits_digest", r->reference_digest);
}
