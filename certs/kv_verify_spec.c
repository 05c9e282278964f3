/* campaign.spec: read strictly, and which pairs it means. */
#include "certs/kv_cert.h"
#include "certs/kv_verify_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool malformed(kv_vf *v, const char *key, const char *expected, const json_t *value)
{
    char actual[KV_VF_TEXT];
    kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, kv_vf_at(v, "$.campaign.spec%s%.64s", key[0] != '\0' ? "." : "", key),
                expected, kv_vf_show(value, actual));
    return false;
}

static bool is_list_of_texts(const json_t *list)
{
    if (!json_is_array(list) || json_array_size(list) > KV_VF_LIST_MAX) return false;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i))) return false;
    return true;
}

/* Every key of o is one of `known` (NULL-terminated). */
static bool only_keys(kv_vf *v, const json_t *o, const char *const *known)
{
    bool good = true;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        const char *const *k = known;
        while (*k != NULL && strcmp(*k, key) != 0) k++;
        if (*k == NULL) good = malformed(v, key, "no such key", value);
    }
    return good;
}

/* Whether name matches a pattern of letters, * (any text) and ? (one character). */
static bool matches(const char *pattern, const char *name)
{
    const char *star = NULL, *resume = NULL;
    while (*name != '\0') {
        if (*pattern == '*') {
            star = ++pattern;
            resume = name;
        } else if (*pattern != '\0' && (*pattern == '?' || *pattern == *name)) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == '\0';
}

/* Every layout is selected, and every pattern selects one. */
static bool check_select(kv_vf *v, const json_t *select)
{
    if (select == NULL) return true;
    if (!is_list_of_texts(select)) return malformed(v, "select", "a list of names and patterns", select);
    bool *chosen = kv_alloc(v->n_layouts, sizeof *chosen);
    if (chosen == NULL) {
        kv_vf_no_memory(v);
        return false;
    }
    for (size_t k = 0; k < json_array_size(select); k++) {
        const char *pattern = json_string_value(json_array_get(select, k));
        bool found = false;
        for (size_t i = 0; i < v->n_layouts; i++)
            if (matches(pattern, v->layouts[i].name)) found = chosen[i] = true;
        if (!found)
            kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, kv_vf_at(v, "$.campaign.spec.select[%zu]", k),
                        "a layout of the catalogue", pattern);
    }
    for (size_t i = 0; i < v->n_layouts; i++)
        if (!chosen[i])
            kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, kv_vf_at(v, "$.catalogue[%zu].name", v->layouts[i].entry),
                        "a layout that campaign.spec selects", v->layouts[i].name);
    kv_free(chosen);
    return true;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

static int by_pair(const void *pa, const void *pb)
{
    const kv_vf_pair *a = pa, *b = pb;
    if (a->src != b->src) return a->src < b->src ? -1 : 1;
    return a->dst < b->dst ? -1 : a->dst > b->dst;
}

/* One entry of an explicit list; *found is false where it names no layout (an H11). */
static bool read_pair(kv_vf *v, const json_t *entry, size_t i, kv_vf_pair *out, bool *found)
{
    const char *name[2] = {json_string_value(json_array_get(entry, 0)), json_string_value(json_array_get(entry, 1))};
    size_t index[2];
    char key[64];
    snprintf(key, sizeof key, "pairs[%zu]", i);
    if (json_array_size(entry) != 2 || name[0] == NULL || name[1] == NULL || strcmp(name[0], name[1]) == 0)
        return malformed(v, key, "[\"SRC\",\"DST\"] of two layouts", entry);
    *found = true;
    for (int s = 0; s < 2; s++) {
        index[s] = kv_vf_find(v, name[s]);
        if (index[s] < v->n_layouts) continue;
        kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, kv_vf_at(v, "$.campaign.spec.pairs[%zu][%d]", i, s),
                    "a layout of the catalogue", name[s]);
        *found = false;
    }
    out->src = (uint32_t)index[0];
    out->dst = (uint32_t)index[1];
    return true;
}

/* Room for n more pairs. */
static bool grow_pairs(kv_vf *v, size_t n)
{
    v->campaign.pairs = kv_alloc(n, sizeof *v->campaign.pairs);
    if (v->campaign.pairs == NULL) kv_vf_no_memory(v);
    return v->campaign.pairs != NULL;
}

static void add_pair(kv_vf *v, size_t src, size_t dst)
{
    v->campaign.pairs[v->campaign.n_pairs++] = (kv_vf_pair){(uint32_t)src, (uint32_t)dst};
}

static bool read_pair_list(kv_vf *v, const json_t *list)
{
    kv_vf_campaign *c = &v->campaign;
    const size_t n = json_array_size(list);
    size_t unique = 0;
    if (!grow_pairs(v, n)) return false;
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        if (!read_pair(v, json_array_get(list, i), i, &c->pairs[c->n_pairs], &found)) return false;
        if (found) c->n_pairs++;
    }
    if (c->n_pairs > 1) qsort(c->pairs, c->n_pairs, sizeof *c->pairs, by_pair);
    for (size_t i = 0; i < c->n_pairs; i++) {
        if (unique > 0 && by_pair(&c->pairs[unique - 1], &c->pairs[i]) == 0)
            kv_vf_fault(v, KV_H12_PAIR_DECLARED_TWICE, "$.campaign.spec.pairs", "each pair once",
                        v->layouts[c->pairs[i].src].name);
        else
            c->pairs[unique++] = c->pairs[i];
    }
    c->n_pairs = unique;
    return true;
}

/* Every ordered pair; `published`: of lossless layouts, and each other layout with the anchor both ways. */
static bool select_pairs(kv_vf *v, bool published)
{
    const size_t n = v->n_layouts, anchor = published ? kv_vf_find(v, KV_CERT_ANCHOR) : n;
    if (published && anchor == n)
        kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, "$.campaign.spec.pairs", "the layout " KV_CERT_ANCHOR,
                    "no such layout");
    if (!grow_pairs(v, n * n)) return false;
    for (size_t s = 0; s < n; s++)
        for (size_t d = 0; d < n; d++) {
            const bool lossless_s = v->layouts[s].lossless, lossless_d = v->layouts[d].lossless;
            if (s != d && (!published || (lossless_s && lossless_d) || (s == anchor && !lossless_d) ||
                           (d == anchor && !lossless_s)))
                add_pair(v, s, d);
        }
    return true;
}

static bool read_pairs(kv_vf *v, const json_t *pairs)
{
    const char *word = json_string_value(pairs);
    if (pairs == NULL && (v->campaign.codec.present || v->campaign.study.present || v->campaign.tp.present))
        return true; /* these alone */
    if (json_is_array(pairs) && json_array_size(pairs) > 0) return read_pair_list(v, pairs);
    if (word != NULL && strcmp(word, "all-ordered") == 0) return select_pairs(v, false);
    if (word != NULL && strcmp(word, "published") == 0) return select_pairs(v, true);
    return malformed(v, "pairs", "\"all-ordered\", \"published\" or a list of [\"SRC\",\"DST\"]", pairs);
}

bool kv_vf_in_campaign(const kv_vf *v, size_t src, size_t dst)
{
    const kv_vf_campaign *c = &v->campaign;
    const kv_vf_pair key = {(uint32_t)src, (uint32_t)dst};
    return c->n_pairs > 0 && bsearch(&key, c->pairs, c->n_pairs, sizeof key, by_pair) != NULL;
}

/* The part of a cell is a hash of its number, so that parts are alike whatever the pairs are. */
bool kv_vf_in_part(const kv_vf *v, uint64_t geometry, uint64_t src, uint64_t dst, uint64_t tail)
{
    const uint64_t n = v->n_layouts, number = ((geometry * n + src) * n + dst) * v->campaign.n_tails + tail;
    const uint64_t hash = number * 2654435761u & 0xFFFFFFFFu;
    return hash / 65536 % v->campaign.parts + 1 == v->campaign.part;
}

/* "i/n", 1 <= i <= n <= 65536. Claims and floors hold for the whole campaign, not for a part of it. */
static bool read_part(kv_vf *v, const json_t *part)
{
    kv_vf_campaign *c = &v->campaign;
    const char *text = json_string_value(part);
    char first[8] = "";
    int64_t i = 1, n = 1;
    c->part = c->parts = 1;
    if (part == NULL) return true;
    const char *slash = text != NULL ? strchr(text, '/') : NULL;
    if (slash == NULL || slash - text >= (ptrdiff_t)sizeof first || text[0] == '0' || slash[1] == '0')
        return malformed(v, "part", "\"i/n\"", part);
    memcpy(first, text, (size_t)(slash - text));
    if (!kv_parse_i64(slash + 1, 1, 65536, &n) || !kv_parse_i64(first, 1, n, &i))
        return malformed(v, "part", "\"i/n\" with 1 <= i <= n <= 65536", part);
    c->part = (uint64_t)i;
    c->parts = (uint64_t)n;
    v->report->part = i;
    v->report->parts = n;
    c->claims = c->floors = NULL;
    return true;
}

/* ---- the other keys ------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_tail(const char *s)
{
    return s != NULL && (strcmp(s, "stale") == 0 || strcmp(s, "zero") == 0 || strcmp(s, "nan") == 0);
}

/* The tails, sorted by name, which is the order of their params. */
static bool read_tails(kv_vf *v, const json_t *tail)
{
    kv_vf_campaign *c = &v->campaign;
    const size_t n = json_is_array(tail) ? json_array_size(tail) : 1;
    if (n < 1 || n > 3) return malformed(v, "tail", "\"stale\", \"zero\", \"nan\" or a list of them", tail);
    c->tails = kv_alloc(n, sizeof *c->tails);
    if (c->tails == NULL) {
        kv_vf_no_memory(v);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const char *s =
            tail == NULL ? "stale" : json_string_value(json_is_array(tail) ? json_array_get(tail, i) : tail);
        if (!is_tail(s)) return malformed(v, "tail", "\"stale\", \"zero\", \"nan\" or a list of them", tail);
        c->tails[i] = s;
    }
    qsort(c->tails, n, sizeof *c->tails, by_text);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(c->tails[i], c->tails[i - 1]) != 0)
            c->tails[c->n_tails++] = c->tails[i];
        else
            kv_vf_fault(v, KV_H12_PAIR_DECLARED_TWICE, "$.campaign.spec.tail", "each tail once", c->tails[i]);
    return true;
}

static bool read_claims(kv_vf *v, const json_t *claims)
{
    static const char *const keys[] = {"words", "frontier_codes", "checks", NULL};
    if (claims == NULL) return true;
    if (!json_is_object(claims)) return malformed(v, "claims", "an object", claims);
    bool good = only_keys(v, claims, keys);
    for (int i = 0; keys[i] != NULL; i++) {
        const json_t *list = json_object_get(claims, keys[i]);
        if (list != NULL && !is_list_of_texts(list)) good = malformed(v, "claims", "lists of texts", claims);
    }
    v->campaign.claims = claims;
    return good;
}

static bool read_floors(kv_vf *v, const json_t *floors)
{
    static const char *const keys[] = {
        "exact_byte", "exact_token",    "not_exact", "refused",  "positions_checked", "source_positions_checked",
        "words",      "frontier_codes", "checks",    "controls", "known_limits",      NULL};
    const char *key;
    json_t *value;
    if (floors == NULL) return true;
    if (!json_is_object(floors)) return malformed(v, "floors", "an object", floors);
    bool good = only_keys(v, floors, keys);
    json_object_foreach((json_t *)(uintptr_t)floors, key, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0) good = malformed(v, key, "a number >= 0", value);
    }
    v->campaign.floors = floors;
    return good;
}

static bool read_values(kv_vf *v, const json_t *spec)
{
    const json_t *values = json_object_get(spec, "values"), *seed = json_object_get(spec, "seed");
    uint64_t number;
    const char *word = values == NULL ? "payloads" : json_string_value(values);
    if (word == NULL || (strcmp(word, "payloads") != 0 && strcmp(word, "exhaustive") != 0))
        return malformed(v, "values", "\"payloads\" or \"exhaustive\"", values);
    v->campaign.exhaustive = strcmp(word, "exhaustive") == 0;
    if (seed != NULL && !(json_is_integer(seed) && json_integer_value(seed) >= 0) &&
        !(json_is_string(seed) && kv_parse_u64(json_string_value(seed), &number)))
        return malformed(v, "seed", "a number >= 0 or a decimal string", seed);
    return true;
}

/* name and digest of the campaign belong to the spec and the catalogue. */
static void check_identity(kv_vf *v, const json_t *campaign, const json_t *spec)
{
    char digest[KV_HASH_HEX];
    const char *name = kv_vf_string(spec, "name");
    if (name != NULL)
        (void)kv_vf_want_text(v, KV_H11_ENGINE_UNDECLARED, "$.campaign.name", name, json_object_get(campaign, "name"));
    const kv_rc rc = kv_cert_campaign_digest(spec, json_object_get(v->doc, "catalogue"), digest, NULL);
    if (rc == KV_OK)
        (void)kv_vf_want_text(v, KV_H11_ENGINE_UNDECLARED, "$.campaign.digest", digest,
                              json_object_get(campaign, "digest"));
    else if (rc == KV_ENOMEM)
        kv_vf_no_memory(v);
}

bool kv_vf_spec(kv_vf *v)
{
    static const char *const keys[] = {"schema", "name",        "select", "pairs",  "geometries", "tail",
                                       "values", "seed",        "claims", "floors", "expect",     "part",
                                       "codec",  "attribution", "tp",     NULL};
    const json_t *campaign = json_object_get(v->doc, "campaign"), *spec = json_object_get(campaign, "spec");
    check_identity(v, campaign, spec);
    bool good = only_keys(v, spec, keys);
    if (kv_vf_string(spec, "name") == NULL) good = malformed(v, "name", "a text", json_object_get(spec, "name"));
    if (!kv_vf_want_text(v, KV_H0_DOCUMENT_UNREADABLE, "$.campaign.spec.schema", KV_CAMPAIGN_SCHEMA,
                         json_object_get(spec, "schema")))
        good = false;
    good = kv_vf_expect(v, json_object_get(spec, "expect")) && good;
    good = read_values(v, spec) && good;
    good = read_claims(v, json_object_get(spec, "claims")) && good;
    good = read_floors(v, json_object_get(spec, "floors")) && good;
    good = check_select(v, json_object_get(spec, "select")) && good;
    good = kv_vf_sections(v, spec) && good;
    good = read_pairs(v, json_object_get(spec, "pairs")) && good;
    good = read_tails(v, json_object_get(spec, "tail")) && good;
    good = read_part(v, json_object_get(spec, "part")) && good; /* after claims and floors */
    return good;
}
