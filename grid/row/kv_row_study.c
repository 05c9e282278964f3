/* The proof of an attribution row. */
#include <string.h>

#include "grid/row/kv_row_codec.h"

static const char *const digest_keys[2] = {"base_logits_digest", "logits_digest"};

static json_t *number(const kv_row *r, int64_t v)
{
    return r->has_study ? json_integer((json_int_t)v) : json_null();
}

/* A number that means nothing where a logit was not finite. */
static json_t *score(const kv_row *r, int64_t v)
{
    return r->has_study && r->study.finite ? json_integer((json_int_t)v) : json_null();
}

static json_t *passages_new(const kv_row *r)
{
    if (!r->has_study) return json_null();
    json_t *list = json_array();
    for (int32_t i = 0; list != NULL && i < r->study.passages; i++)
        json_array_append_new(list, json_pack("{s:o,s:o,s:o}", "ppl_change_ppm", score(r, r->study.passage[i][0]),
                                              "kl_nano", score(r, r->study.passage[i][1]), "top1_ppm",
                                              score(r, r->study.passage[i][2])));
    return list;
}

json_t *kv_row_study_proof_new(const kv_row *r)
{
    const kv_row_study *o = &r->study;
    const char *kind = r->verdict == KV_VERDICT_REFUSED  ? KV_PROOF_FRONTIER
                       : r->verdict == KV_VERDICT_FAILED ? KV_PROOF_FAILED
                                                         : KV_PROOF_ATTRIBUTION;
    json_t *p = json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "kind", kind, "passages",
                          number(r, o->passages), "base_nll_nano", number(r, o->base_nll_nano), "nll_nano",
                          score(r, o->nll_nano), "ppl_change_ppm", score(r, o->ppl_change_ppm), "kl_nano",
                          score(r, o->kl_nano), "top1_ppm", score(r, o->top1_ppm), "accept",
                          r->has_study ? json_string(kv_codec_study_verdict_name(o->accept)) : json_null(),
                          "k_error_ppm", number(r, o->error_ppm[0]), "v_error_ppm", number(r, o->error_ppm[1]),
                          "k_overflow_blocks", number(r, o->overflow_blocks[0]), "v_overflow_blocks",
                          number(r, o->overflow_blocks[1]), "per_passage", passages_new(r));
    for (int i = 0; p != NULL && i < 2; i++) {
        char hex[KV_HASH_HEX];
        kv_hex_encode(o->digest[i], KV_HASH_BYTES, hex);
        json_object_set_new(p, digest_keys[i], r->has_study ? json_string(hex) : json_null());
    }
    return p;
}

static int64_t value(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static bool take_accept(const char *name, int32_t *out)
{
    for (int32_t v = KV_CODEC_STUDY_ACCEPT; name != NULL && v <= KV_CODEC_STUDY_REJECT; v++)
        if (strcmp(name, kv_codec_study_verdict_name(v)) == 0) {
            *out = v;
            return true;
        }
    return false;
}

bool kv_row_study_of_proof(const json_t *proof, kv_row *r)
{
    const json_t *list = json_object_get(proof, "per_passage");
    kv_row_study *o = &r->study;
    r->has_study = json_is_integer(json_object_get(proof, "passages"));
    if (!r->has_study) return true;
    o->passages = (int32_t)value(proof, "passages");
    o->finite = json_is_integer(json_object_get(proof, "kl_nano"));
    o->base_nll_nano = value(proof, "base_nll_nano");
    o->nll_nano = value(proof, "nll_nano");
    o->ppl_change_ppm = value(proof, "ppl_change_ppm");
    o->kl_nano = value(proof, "kl_nano");
    o->top1_ppm = value(proof, "top1_ppm");
    o->error_ppm[0] = value(proof, "k_error_ppm");
    o->error_ppm[1] = value(proof, "v_error_ppm");
    o->overflow_blocks[0] = value(proof, "k_overflow_blocks");
    o->overflow_blocks[1] = value(proof, "v_overflow_blocks");
    if (o->passages < 1 || o->passages > KV_STUDY_PASSAGES_MAX || json_array_size(list) != (size_t)o->passages)
        return false;
    for (int32_t i = 0; i < o->passages; i++) {
        const json_t *p = json_array_get(list, (size_t)i);
        o->passage[i][0] = value(p, "ppl_change_ppm");
        o->passage[i][1] = value(p, "kl_nano");
        o->passage[i][2] = value(p, "top1_ppm");
    }
    for (int i = 0; i < 2; i++) {
        const char *hex = json_string_value(json_object_get(proof, digest_keys[i]));
        if (hex == NULL || !kv_hex_decode(hex, o->digest[i], KV_HASH_BYTES)) return false;
    }
    return take_accept(json_string_value(json_object_get(proof, "accept")), &o->accept);
}
