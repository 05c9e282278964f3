/* campaign.spec.expect: its shape. What it demands is the business of those who run a gate, on the day they run it:
 * nothing in the body follows from it, so nothing is derived here. */
#include "certs/kv_verify_int.h"

#include <stdio.h>
#include <string.h>

#define WHERE "$.campaign.spec.expect"

static bool malformed(kv_vf *v, size_t at, const char *key, const char *expected, const json_t *value)
{
    char actual[KV_VF_TEXT];
    kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, kv_vf_at(v, WHERE "[%zu]%s%.64s", at, *key != '\0' ? "." : "", key),
                expected, kv_vf_show(value, actual));
    return false;
}

/* An object, and every key of it is one of `known` (NULL-terminated). */
static bool is_object_of(kv_vf *v, size_t at, const char *name, const json_t *o, const char *const *known)
{
    bool good = true;
    const char *key;
    json_t *value;
    if (!json_is_object(o) || json_object_size(o) == 0) return malformed(v, at, name, "an object that is not empty", o);
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        const char *const *k = known;
        while (*k != NULL && strcmp(*k, key) != 0) k++;
        if (*k == NULL) good = malformed(v, at, key, "no such key", value);
    }
    return good;
}

/* Whether v is one of the words of a list that '|' separates. */
static bool is_word_of(const char *list, const json_t *v)
{
    const char *s = json_string_value(v);
    const size_t n = s != NULL ? strlen(s) : 0;
    for (const char *at = list; n > 0 && at != NULL; at = strchr(at, '|') != NULL ? strchr(at, '|') + 1 : NULL)
        if (strncmp(at, s, n) == 0 && (at[n] == '|' || at[n] == '\0')) return strchr(s, '|') == NULL;
    return false;
}

static bool is_tail(const json_t *v)
{
    return is_word_of("stale|zero|nan", v);
}

static bool is_stream(const json_t *v)
{
    return is_word_of("k|v", v);
}

static bool is_bits(const json_t *v)
{
    return is_word_of("1|2|3|4", v);
}

static bool is_send(const json_t *v)
{
    return is_word_of("chunks|layers|shard|whole", v);
}

/* A decimal number of at most `digits` digits, without zeros before it. */
static bool is_decimal(const json_t *v, size_t digits)
{
    const char *s = json_string_value(v);
    const size_t n = s != NULL ? strspn(s, "0123456789") : 0;
    return n > 0 && n <= digits && s[n] == '\0' && (s[0] != '0' || n == 1);
}

static bool is_seed(const json_t *v)
{
    return is_decimal(v, 16);
}

static bool is_ranks(const json_t *v)
{
    const char *s = json_string_value(v);
    if (!is_decimal(v, 2)) return false;
    const int n = s[1] == '\0' ? s[0] - '0' : 10 * (s[0] - '0') + (s[1] - '0');
    return n >= 1 && n <= 64;
}

static bool is_name(const json_t *v)
{
    const char *s = json_string_value(v);
    const size_t n = s != NULL ? strspn(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._:-") : 0;
    return n > 0 && n <= 80 && s[n] == '\0';
}

static bool is_element(const json_t *v)
{
    kv_vf_element e;
    return json_is_string(v) && kv_vf_element_parse(json_string_value(v), &e);
}

static bool is_split(const json_t *v)
{
    const char *s = json_string_value(v);
    const size_t n = s != NULL ? strspn(s, "0123456789,[]") : 0;
    return n > 0 && n <= 4096 && s[n] == '\0' && json_string_length(v) == n;
}

static bool is_number(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) >= 0;
}

static bool is_verdict(const json_t *v)
{
    kv_verdict verdict;
    return json_is_string(v) && kv_verdict_parse(json_string_value(v), &verdict) && verdict != KV_VERDICT_FAILED;
}

/* One, or a list of at least one. */
static bool is_one_or_more(const json_t *v, bool (*good)(const json_t *))
{
    if (!json_is_array(v)) return good(v);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!good(json_array_get(v, i))) return false;
    return json_array_size(v) > 0;
}

static bool check_filters(kv_vf *v, size_t at, const json_t *rule)
{
    static const char *const fields[] = {"layers", "tokens", "kv_heads", "head_dim", "head_dim_v", "element", NULL};
    static const char *const names[] = {"tail", "payload", "stream", "bits",        "cell",      "seed",
                                        "from", "send",    "to",     "from_stages", "to_stages", NULL};
    static bool (*const goods[])(const json_t *) = {is_tail,  is_name, is_stream, is_bits,  is_name, is_seed,
                                                    is_ranks, is_send, is_ranks,  is_split, is_split};
    const json_t *geometry = json_object_get(rule, "geometry"), *params = json_object_get(rule, "params");
    bool good = geometry == NULL || is_object_of(v, at, "geometry", geometry, fields);
    for (size_t i = 0; good && fields[i] != NULL; i++) {
        const json_t *value = json_object_get(geometry, fields[i]);
        if (value != NULL && !is_one_or_more(value, strcmp(fields[i], "element") == 0 ? is_element : is_number))
            good = malformed(v, at, fields[i], "a value of that field, or a list of them", value);
    }
    if (params == NULL) return good;
    if (!is_object_of(v, at, "params", params, names)) return false;
    for (size_t i = 0; names[i] != NULL; i++) {
        const json_t *value = json_object_get(params, names[i]);
        char key[32];
        snprintf(key, sizeof key, "params.%s", names[i]);
        if (value != NULL && !is_one_or_more(value, goods[i]))
            good = malformed(v, at, key, "a value of that key, or a list of them", value);
    }
    return good;
}

/* SRC->DST, and neither is empty. */
static bool is_pair_pattern(const char *s)
{
    const char *arrow = s != NULL ? strstr(s, "->") : NULL;
    return arrow != NULL && arrow != s && arrow[2] != '\0' && strchr(arrow + 2, '>') == NULL;
}

static bool check_demand(kv_vf *v, size_t at, const json_t *rule)
{
    const json_t *verdict = json_object_get(rule, "verdict"), *least = json_object_get(rule, "at_least");
    if ((verdict == NULL) == (least == NULL)) return malformed(v, at, "", "either verdict or at_least", rule);
    if (least != NULL && !is_verdict(least)) return malformed(v, at, "at_least", "a verdict", least);
    if (verdict != NULL && !is_one_or_more(verdict, is_verdict))
        return malformed(v, at, "verdict", "a verdict, or a list of them", verdict);
    for (size_t i = 0; json_is_array(verdict) && i < json_array_size(verdict); i++)
        for (size_t k = 0; k < i; k++)
            if (json_equal(json_array_get(verdict, i), json_array_get(verdict, k)))
                return malformed(v, at, "verdict", "each verdict once", verdict);
    return true;
}

/* The number in n digits, or -1. */
static int digits(const char *s, int n)
{
    int value = 0;
    for (int i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return -1;
        value = 10 * value + (s[i] - '0');
    }
    return value;
}

bool kv_vf_is_date(const char *s)
{
    if (s == NULL || strlen(s) != 10 || s[4] != '-' || s[7] != '-') return false;
    const int y = digits(s, 4), m = digits(s + 5, 2), d = digits(s + 8, 2);
    const int february = y % 400 == 0 || (y % 4 == 0 && y % 100 != 0) ? 29 : 28;
    const int last = m == 2 ? february : m == 4 || m == 6 || m == 9 || m == 11 ? 30 : 31;
    return y >= 1 && m >= 1 && m <= 12 && d >= 1 && d <= last;
}

static bool check_waiver(kv_vf *v, size_t at, const json_t *waiver)
{
    static const char *const keys[] = {"reason", "until", NULL};
    if (waiver == NULL) return true;
    if (!is_object_of(v, at, "waiver", waiver, keys)) return false;
    const char *reason = kv_vf_string(waiver, "reason");
    if (reason == NULL || *reason == '\0')
        return malformed(v, at, "waiver.reason", "a text", json_object_get(waiver, "reason"));
    if (!kv_vf_is_date(kv_vf_string(waiver, "until")))
        return malformed(v, at, "waiver.until", "a day YYYY-MM-DD", json_object_get(waiver, "until"));
    return true;
}

bool kv_vf_expect(kv_vf *v, const json_t *expect)
{
    static const char *const keys[] = {"pairs", "geometry", "params", "verdict", "at_least", "waiver", NULL};
    char actual[KV_VF_TEXT];
    const size_t n = json_array_size(expect);
    bool good = true;
    if (expect == NULL) return true;
    if (n == 0 || n > KV_VF_LIST_MAX) {
        kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, WHERE, "a list of rules", kv_vf_show(expect, actual));
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *rule = json_array_get(expect, i);
        if (!is_object_of(v, i, "", rule, keys)) {
            good = false;
            continue;
        }
        if (!is_pair_pattern(kv_vf_string(rule, "pairs")))
            good = malformed(v, i, "pairs", "SRC->DST", json_object_get(rule, "pairs"));
        good = check_filters(v, i, rule) && good;
        good = check_demand(v, i, rule) && good;
        good = check_waiver(v, i, json_object_get(rule, "waiver")) && good;
    }
    return good;
}
