#include "grid/campaign/kv_expect_read.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "grid/campaign/kv_cells.h"
#include "grid/campaign/kv_expect_int.h"
#include "grid/campaign/kv_shard_spec.h"
#include "layouts/kv_layout_json.h"

void kv_expect_today(char out[KV_DAY_TEXT])
{
    const time_t now = time(NULL);
    struct tm utc;
    strftime(out, KV_DAY_TEXT, "%Y-%m-%d", gmtime_r(&now, &utc));
}

/* A day of the calendar as YYYY-MM-DD. */
static bool is_day(const char *s)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int part[3] = {0};
    if (strlen(s) != 10) return false;
    for (int i = 0, k = 0; i < 10; i++) {
        if (i == 4 || i == 7) {
            if (s[i] != '-') return false;
            k++;
            continue;
        }
        if (s[i] < '0' || s[i] > '9') return false;
        part[k] = 10 * part[k] + (s[i] - '0');
    }
    const int year = part[0], month = part[1], day = part[2];
    if (year < 1 || month < 1 || month > 12 || day < 1) return false;
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return day <= days[month - 1] + (month == 2 && leap);
}

static kv_rc read_pairs(const json_t *obj, const char *where, kv_expect_rule *r, kv_err *err)
{
    kv_rc rc = kv_json_get_text(obj, "pairs", true, where, &r->pairs, err);
    if (rc != KV_OK) return rc;
    const char *arrow = strstr(r->pairs, "->");
    if (arrow == NULL || arrow == r->pairs || arrow[2] == '\0' || strchr(arrow + 2, '>') != NULL)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"pairs\": \"%s\" must be SRC->DST, with * and ? in each", where,
                       r->pairs);
    r->src = kv_strdup(r->pairs);
    if (r->src == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a rule");
    r->src[arrow - r->pairs] = '\0';
    r->dst = r->src + (arrow - r->pairs) + 2;
    return KV_OK;
}

/* Each value of a filter is a good one or a list of at least one. */
static kv_rc check_filter(const json_t *obj, const char *const *keys, bool (*good)(const char *, const json_t *),
                          const char *(*what)(const char *), const char *where, kv_err *err)
{
    const char *key;
    json_t *value;
    kv_rc rc = kv_json_only_keys(obj, keys, where, err);
    if (rc == KV_OK && json_object_size(obj) == 0)
        rc = KV_FAIL(err, KV_EFORMAT, "%s: is empty; leave it out to mean all", where);
    if (rc != KV_OK) return rc;
    json_object_foreach((json_t *)(uintptr_t)obj, key, value)
    {
        const size_t n = json_is_array(value) ? json_array_size(value) : 1;
        bool fine = n > 0;
        for (size_t i = 0; fine && i < n; i++)
            fine = good(key, json_is_array(value) ? json_array_get(value, i) : value);
        if (!fine) return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" must be %s, or a list of them", where, key, what(key));
    }
    return KV_OK;
}

static bool good_field(const char *key, const json_t *v)
{
    kv_elem e;
    if (strcmp(key, "element") == 0) return json_is_string(v) && kv_elem_parse(json_string_value(v), &e);
    return json_is_integer(v) && json_integer_value(v) >= 0;
}

static const char *what_field(const char *key)
{
    return strcmp(key, "element") == 0 ? "an element type" : "a number";
}

/* ---- params: the texts that rows of some check have -------------------------------------- */

static bool is_tail(const char *s)
{
    for (int t = 0; t < KV_TAIL_COUNT; t++)
        if (strcmp(s, kv_tail_name((kv_tail)t)) == 0) return true;
    return false;
}

static bool is_stream(const char *s)
{
    return strcmp(s, "k") == 0 || strcmp(s, "v") == 0;
}

static bool is_bits(const char *s)
{
    return s[0] >= '1' && s[0] <= '4' && s[1] == '\0';
}

static bool is_send(const char *s)
{
    for (int i = 0; i < KV_SHARD_SENDS; i++)
        if (strcmp(s, kv_shard_send_name((kv_shard_send)i)) == 0) return true;
    return false;
}

/* A number as it is printed. */
static bool is_decimal(const char *s)
{
    const size_t n = strspn(s, "0123456789");
    return n > 0 && n <= 16 && s[n] == '\0' && (s[0] != '0' || n == 1);
}

static bool is_ranks(const char *s)
{
    int64_t n;
    return is_decimal(s) && kv_parse_i64(s, 1, KV_SHARD_SIZE_MAX, &n);
}

/* A split over pipeline stages as rows have it: "2", "[[0,3],[1,2]]". */
static bool is_split(const char *s)
{
    kv_shard_split split = {0};
    kv_err why;
    json_t *v = NULL;
    const bool good = kv_json_load_strict(s, strlen(s), "params", &v, &why) == KV_OK &&
                      kv_shard_split_read(v, "params", &split, &why) == KV_OK && strcmp(split.text, s) == 0;
    kv_shard_split_free(&split);
    json_decref(v);
    return good;
}

static bool is_name(const char *s)
{
    const size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-");
    return n > 0 && n <= 80 && s[n] == '\0';
}

static const struct {
    const char *key, *what;
    bool (*good)(const char *s);
} params[] = {
    {"tail", "stale, zero or nan", is_tail},
    {"payload", "the name of a payload", is_name},
    {"stream", "k or v", is_stream},
    {"bits", "\"1\" to \"4\"", is_bits},
    {"cell", "the name of an attribution cell", is_name},
    {"seed", "a number as a text", is_decimal},
    {"from", "\"1\" to \"64\"", is_ranks},
    {"send", "chunks, layers, shard or whole", is_send},
    {"to", "\"1\" to \"64\"", is_ranks},
    {"from_stages", "a split over stages as a text", is_split},
    {"to_stages", "a split over stages as a text", is_split},
};
#define N_PARAMS (sizeof params / sizeof params[0])

static bool good_param(const char *key, const json_t *v)
{
    const char *s = json_string_value(v);
    for (size_t i = 0; s != NULL && i < N_PARAMS; i++)
        if (strcmp(params[i].key, key) == 0) return params[i].good(s);
    return false;
}

static const char *what_param(const char *key)
{
    for (size_t i = 0; i < N_PARAMS; i++)
        if (strcmp(params[i].key, key) == 0) return params[i].what;
    return "";
}

static kv_rc read_filters(const json_t *obj, const char *where, kv_expect_rule *r, kv_err *err)
{
    static const char *const fields[] = {"layers", "tokens", "kv_heads", "head_dim", "head_dim_v", "element", NULL};
    const char *keys[N_PARAMS + 1] = {NULL};
    char place[KV_ERR_TEXT];
    kv_rc rc = KV_OK;
    for (size_t i = 0; i < N_PARAMS; i++) keys[i] = params[i].key;
    r->geometry = json_object_get(obj, "geometry");
    r->params = json_object_get(obj, "params");
    snprintf(place, sizeof place, "%.600s: \"geometry\"", where);
    if (r->geometry != NULL) KV_TRY(rc, out, check_filter(r->geometry, fields, good_field, what_field, place, err));
    snprintf(place, sizeof place, "%.600s: \"params\"", where);
    if (r->params != NULL) KV_TRY(rc, out, check_filter(r->params, keys, good_param, what_param, place, err));
out:
    return rc;
}

/* FAILED is no verdict: nothing can expect it. */
static kv_rc read_verdict(const json_t *v, const char *key, const char *where, kv_verdict *out, kv_err *err)
{
    const char *name = json_string_value(v);
    if (name != NULL && kv_verdict_parse(name, out) && *out != KV_VERDICT_FAILED) return KV_OK;
    return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\": %s is none of EXACT_BYTE, EXACT_TOKEN, NOT_EXACT, REFUSED, UNPROVEN",
                   where, key, name != NULL ? name : "(not a text)");
}

static kv_rc read_demand(const json_t *obj, const char *where, kv_expect_rule *r, kv_err *err)
{
    const json_t *verdict = json_object_get(obj, "verdict"), *least = json_object_get(obj, "at_least");
    const size_t n = json_is_array(verdict) ? json_array_size(verdict) : 1;
    kv_verdict v;
    kv_rc rc = KV_OK;
    if ((verdict == NULL) == (least == NULL) || n == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: needs \"verdict\" (one or a list) or \"at_least\", and not both", where);
    r->bound = least != NULL;
    if (r->bound) {
        rc = read_verdict(least, "at_least", where, &v, err);
        if (rc == KV_OK) r->allowed = (2U << v) - 1; /* the scale is the order of the names */
        return rc;
    }
    for (size_t i = 0; i < n; i++) {
        KV_TRY(rc, out,
               read_verdict(json_is_array(verdict) ? json_array_get(verdict, i) : verdict, "verdict", where, &v, err));
        if (r->allowed >> v & 1U)
            return KV_FAIL(err, KV_EFORMAT, "%s: \"verdict\" holds %s twice", where, kv_verdict_name(v));
        r->allowed |= 1U << v;
    }
out:
    return rc;
}

static kv_rc read_waiver(const json_t *obj, const char *where, kv_expect_rule *r, kv_err *err)
{
    static const char *const keys[] = {"reason", "until", NULL};
    const json_t *waiver = json_object_get(obj, "waiver");
    char place[KV_ERR_TEXT];
    kv_rc rc = KV_OK;
    if (waiver == NULL) return KV_OK;
    snprintf(place, sizeof place, "%.600s: \"waiver\"", where);
    KV_TRY(rc, out, kv_json_only_keys(waiver, keys, place, err));
    KV_TRY(rc, out, kv_json_get_text(waiver, "reason", true, place, &r->reason, err));
    KV_TRY(rc, out, kv_json_get_text(waiver, "until", true, place, &r->until, err));
    if (!is_day(r->until))
        rc = KV_FAIL(err, KV_EFORMAT, "%s: \"until\": \"%s\" must be a day as YYYY-MM-DD", place, r->until);
out:
    return rc;
}

static kv_rc read_rule(const json_t *obj, const char *where, kv_expect_rule *r, kv_err *err)
{
    static const char *const keys[] = {"pairs", "geometry", "params", "verdict", "at_least", "waiver", NULL};
    kv_rc rc;
    KV_TRY(rc, out, kv_json_only_keys(obj, keys, where, err));
    KV_TRY(rc, out, read_pairs(obj, where, r, err));
    KV_TRY(rc, out, read_filters(obj, where, r, err));
    KV_TRY(rc, out, read_demand(obj, where, r, err));
    KV_TRY(rc, out, read_waiver(obj, where, r, err));
out:
    return rc;
}

kv_rc kv_expect_new(json_t *list, const char *today, const char *where, kv_expect **out, kv_err *err)
{
    const size_t n = json_array_size(list);
    kv_rc rc = KV_OK;
    *out = NULL;
    if (list == NULL) return KV_OK;
    if (n == 0 || n > KV_EXPECT_RULES_MAX)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"expect\" must be a list of 1 to %d rules", where, KV_EXPECT_RULES_MAX);
    kv_expect *e = kv_alloc(1, sizeof *e);
    if (e == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for rules");
    e->list = json_incref(list);
    snprintf(e->today, sizeof e->today, "%s", today);
    e->rule = kv_alloc(n, sizeof *e->rule);
    if (e->rule == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for %zu rules", n);
    for (; rc == KV_OK && e->n < n; e->n++) {
        char place[KV_ERR_TEXT];
        snprintf(place, sizeof place, "%.600s: \"expect\"[%zu]", where, e->n);
        rc = read_rule(json_array_get(list, e->n), place, &e->rule[e->n], err);
    }
    if (rc == KV_OK)
        *out = e;
    else
        kv_expect_free(e);
    return rc;
}

kv_rc kv_expect_check(json_t *list, const char *where, kv_err *err)
{
    kv_expect *e = NULL;
    const kv_rc rc = kv_expect_new(list, "", where, &e, err);
    kv_expect_free(e);
    return rc;
}

void kv_expect_free(kv_expect *e)
{
    if (e == NULL) return;
    for (size_t i = 0; e->rule != NULL && i < e->n; i++) kv_free(e->rule[i].src);
    kv_free(e->rule);
    json_decref(e->list);
    kv_free(e);
}
