/* method, vocabulary. */
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- method --------------------------------------------------------------------------------- */

/* Exactly 2 * bytes lower-case hex digits; *bits is their value. */
static bool read_bits(const json_t *value, int64_t bytes, uint32_t *bits)
{
    const char *s = json_string_value(value);
    if (s == NULL || strlen(s) != (size_t)(2 * bytes) || s[strspn(s, "0123456789abcdef")] != '\0') return false;
    *bits = (uint32_t)strtoul(s, NULL, 16);
    return true;
}

static bool is_nan(kv_vf_element e, uint32_t bits)
{
    switch (e) {
    case KV_VF_F16: return (bits & 0x7FFF) > 0x7C00;
    case KV_VF_BF16: return (bits & 0x7FFF) > 0x7F80;
    case KV_VF_F32: return (bits & 0x7FFFFFFF) > 0x7F800000;
    case KV_VF_FP8: return (bits & 0x7F) == 0x7F;
    case KV_VF_ELEMENT_COUNT: break;
    }
    return false;
}

/* What the observations of a tail model rest on: stale and fill differ, unless the tail is zero. */
static bool bits_fit(const char *tail, kv_vf_element e, uint32_t stale, uint32_t fill)
{
    if (strcmp(tail, "zero") == 0) return stale == 0 && fill == 0;
    if (fill == 0 || stale == fill || is_nan(e, fill)) return false;
    return strcmp(tail, "nan") == 0 ? is_nan(e, stale) : stale != 0 && !is_nan(e, stale);
}

static void check_tail_bits(kv_vf *v, const char *tail, const json_t *by_element)
{
    char actual[KV_VF_TEXT];
    for (int e = 0; e < KV_VF_ELEMENT_COUNT; e++) {
        uint32_t stale, fill;
        const char *name = kv_vf_element_name((kv_vf_element)e);
        const json_t *o = json_object_get(by_element, name);
        const int64_t bytes = kv_vf_element_bytes((kv_vf_element)e);
        if (json_object_size(o) == 2 && read_bits(json_object_get(o, "stale"), bytes, &stale) &&
            read_bits(json_object_get(o, "fill"), bytes, &fill) && bits_fit(tail, (kv_vf_element)e, stale, fill))
            continue;
        kv_vf_fault(v, KV_H2_VERDICT_NOT_DERIVED, kv_vf_at(v, "$.method.tail_bits.%s.%s", tail, name),
                    "{\"fill\",\"stale\"} bit patterns of this tail model", kv_vf_show(o, actual));
    }
}

/* The tail as the spec has it, and bits for exactly its tails and all element types. */
static void check_tails(kv_vf *v, const json_t *method, const json_t *spec)
{
    char actual[KV_VF_TEXT];
    const json_t *declared = json_object_get(spec, "tail"), *tail = json_object_get(method, "tail");
    const json_t *bits = json_object_get(method, "tail_bits");
    const kv_vf_campaign *c = &v->campaign;
    if (declared == NULL)
        (void)kv_vf_want_text(v, KV_H11_ENGINE_UNDECLARED, "$.method.tail", "stale", tail);
    else if (!json_equal(declared, tail))
        kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, "$.method.tail", "the tail of campaign.spec",
                    kv_vf_show(tail, actual));
    if (json_object_size(bits) != c->n_tails)
        kv_vf_fault(v, KV_H2_VERDICT_NOT_DERIVED, "$.method.tail_bits", "one entry for each tail",
                    kv_vf_show(bits, actual));
    for (size_t i = 0; i < c->n_tails; i++) {
        const json_t *one = json_object_get(bits, c->tails[i]);
        if (json_object_size(one) != KV_VF_ELEMENT_COUNT)
            kv_vf_fault(v, KV_H2_VERDICT_NOT_DERIVED, kv_vf_at(v, "$.method.tail_bits.%s", c->tails[i]),
                        "one entry for each element type", kv_vf_show(one, actual));
        check_tail_bits(v, c->tails[i], one);
    }
}

int64_t kv_vf_payloads(const kv_vf *v, const kv_vf_geometry *g)
{
    return v->campaign.exhaustive ? INT64_C(1) << (8 * kv_vf_element_bytes(g->element)) : KV_CERT_PAYLOADS;
}

/* The number of payloads is the largest of any row's, and their names fit it. */
static void check_payloads(kv_vf *v, const json_t *method)
{
    char actual[KV_VF_TEXT];
    const json_t *kinds = json_object_get(method, "payload_kinds");
    int64_t most = v->campaign.exhaustive ? 0 : KV_CERT_PAYLOADS;
    for (size_t i = 0; i < v->n_geometries; i++)
        if (kv_vf_payloads(v, &v->geometries[i]) > most) most = kv_vf_payloads(v, &v->geometries[i]);
    (void)kv_vf_want_int(v, KV_H3_PROOF_MISSING, "$.method.payloads", most, json_object_get(method, "payloads"));
    bool good = json_array_size(kinds) == (v->campaign.exhaustive ? 1 : KV_CERT_PAYLOADS);
    for (size_t i = 0; i < json_array_size(kinds) && good; i++) {
        const char *kind = json_string_value(json_array_get(kinds, i));
        good = v->campaign.exhaustive ? strcmp(kind, "every_bit_pattern") == 0 : kind[0] != '\0';
        for (size_t k = 0; k < i && good; k++) good = strcmp(json_string_value(json_array_get(kinds, k)), kind) != 0;
    }
    if (!good)
        kv_vf_fault(v, KV_H3_PROOF_MISSING, "$.method.payload_kinds",
                    v->campaign.exhaustive ? "[\"every_bit_pattern\"]" : "six different names",
                    kv_vf_show(kinds, actual));
}

void kv_vf_method(kv_vf *v)
{
    const json_t *method = json_object_get(v->doc, "method");
    const json_t *spec = json_object_get(json_object_get(v->doc, "campaign"), "spec");
    const json_t *seed = json_object_get(spec, "seed");
    char text[32] = "1";
    uint64_t number = 1;
    check_payloads(v, method);
    (void)kv_vf_want_int(v, KV_H13_TOKEN_CLAIM_WITHOUT_A_DECODE, "$.method.decode_steps", KV_CERT_DECODE_STEPS,
                         json_object_get(method, "decode_steps"));
    (void)kv_vf_want_int(v, KV_H13_TOKEN_CLAIM_WITHOUT_A_DECODE, "$.method.vocabulary", KV_CERT_VOCABULARY,
                         json_object_get(method, "vocabulary"));
    (void)kv_vf_want_text(v, KV_H11_ENGINE_UNDECLARED, "$.method.values",
                          v->campaign.exhaustive ? "exhaustive" : "payloads", json_object_get(method, "values"));
    if (json_is_integer(seed))
        number = (uint64_t)json_integer_value(seed);
    else if (json_is_string(seed))
        (void)kv_parse_u64(json_string_value(seed), &number);
    snprintf(text, sizeof text, "%" PRIu64, number);
    (void)kv_vf_want_text(v, KV_H11_ENGINE_UNDECLARED, "$.method.weight_seed", text,
                          json_object_get(method, "weight_seed"));
    (void)kv_vf_want_text(v, KV_H11_ENGINE_UNDECLARED, "$.method.value_seed", text,
                          json_object_get(method, "value_seed"));
    check_tails(v, method, spec);
}

/* ---- vocabulary ----------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool kv_vf_occurs(const kv_vf *v, const char *name)
{
    kv_word w;
    kv_frontier f;
    if (kv_word_parse(name, &w)) return (v->words & KV_WORD_BIT(w)) != 0;
    return kv_frontier_parse(name, &f) && (v->frontiers >> f & 1U) != 0;
}

/* The words and codes that the list must hold, sorted, each once; the caller frees *out. */
static size_t wanted_vocabulary(kv_vf *v, const char ***out)
{
    static const char *const keys[] = {"words", "frontier_codes"};
    const json_t *claims = v->campaign.claims;
    const size_t most = KV_WORD_COUNT + KV_FRONTIER_COUNT + json_array_size(json_object_get(claims, keys[0])) +
                        json_array_size(json_object_get(claims, keys[1]));
    size_t n = 0, unique = 0;
    *out = kv_alloc(most, sizeof **out);
    if (*out == NULL) {
        kv_vf_no_memory(v);
        return 0;
    }
    for (int k = 0; k < 2; k++) {
        const json_t *list = json_object_get(claims, keys[k]);
        for (size_t i = 0; i < json_array_size(list); i++) (*out)[n++] = json_string_value(json_array_get(list, i));
    }
    for (int w = 0; claims == NULL && w < KV_WORD_COUNT; w++)
        if ((v->words & KV_WORD_BIT(w)) != 0) (*out)[n++] = kv_word_name((kv_word)w);
    for (int f = KV_FRONTIER_X1; claims == NULL && f < KV_FRONTIER_COUNT; f++)
        if ((v->frontiers >> f & 1U) != 0) (*out)[n++] = kv_frontier_name((kv_frontier)f);
    if (n > 1) qsort(*out, n, sizeof **out, by_text);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp((*out)[i], (*out)[i - 1]) != 0) (*out)[unique++] = (*out)[i];
    return unique;
}

/* A claimed check is the kind of a row or the name of an entry in checks. */
static bool check_occurs(const kv_vf *v, const char *name)
{
    const json_t *checks = json_object_get(v->doc, "checks");
    kv_vf_check check;
    if (kv_vf_check_parse(name, &check)) return v->seen.check[check];
    for (size_t i = 0; i < json_array_size(checks); i++)
        if (strcmp(kv_vf_string(json_array_get(checks, i), "name"), name) == 0) return true;
    return false;
}

void kv_vf_vocabulary(kv_vf *v)
{
    const char **want = NULL;
    const json_t *list = json_object_get(v->doc, "vocabulary"), *checks = json_object_get(v->campaign.claims, "checks");
    const size_t n = wanted_vocabulary(v, &want);
    const size_t listed = json_array_size(list);
    for (size_t i = 0; i < n || i < listed; i++)
        if (i >= n || i >= listed || strcmp(want[i], json_string_value(json_array_get(list, i))) != 0) {
            kv_vf_fault(v, KV_H7_VOCABULARY_NOT_EXERCISED, kv_vf_at(v, "$.vocabulary[%zu]", i),
                        i < n ? want[i] : "no further entry",
                        i < listed ? json_string_value(json_array_get(list, i)) : "missing");
            break; /* one shift would make all that follow differ */
        }
    for (size_t i = 0; i < n; i++)
        if (!kv_vf_occurs(v, want[i])) kv_vf_fault(v, KV_H7_VOCABULARY_NOT_EXERCISED, "$.rows", want[i], "in no row");
    for (size_t i = 0; i < json_array_size(checks); i++)
        if (!check_occurs(v, json_string_value(json_array_get(checks, i))))
            kv_vf_fault(v, KV_H8_FLOOR_BELOW_OBSERVATION, "$.checks", json_string_value(json_array_get(checks, i)),
                        "claimed, but not made");
    kv_free(want);
}
