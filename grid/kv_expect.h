/* What a campaign expects of its rows: the policy of a CI gate (docs/ci.md). A list of rules
 *
 *   {"pairs": "SRC->DST", "geometry": {FIELD: value or list}, "params": {KEY: text or list},
 *    "verdict": V or [V, ...]  |  "at_least": V,
 *    "waiver": {"reason": TEXT, "until": "YYYY-MM-DD"}}
 *
 * For each row the first rule whose pairs (patterns with * and ? for source and destination), geometry and params fit
 * decides, so that exceptions stand before what is general. A rule is unmet where one of its rows has another verdict,
 * and always where it has no row at all; a waiver excuses its rows, not their absence, to the end of its day (UTC). */
#ifndef KV_EXPECT_H
#define KV_EXPECT_H

#include "grid/kv_view.h"

#define KV_EXPECT_RULES_MAX 2048
#define KV_EXPECT_NOBODY SIZE_MAX /* no rule fits the row */

/* The day in UTC, "2026-11-29". */
#define KV_DAY_TEXT 11
void kv_expect_today(char out[KV_DAY_TEXT]);

typedef struct kv_expect kv_expect;

/* Reads the rules of a spec's `expect` (NULL: none, *out is NULL then), of which they keep a reference. today decides
 * which waivers count. KV_EFORMAT: "WHERE: "expect"[3]: what". */
kv_rc kv_expect_new(json_t *list, const char *today, const char *where, kv_expect **out, kv_err *err) KV_MUST_USE;
void kv_expect_free(kv_expect *e);
/* Only whether the list is well formed. */
kv_rc kv_expect_check(json_t *list, const char *where, kv_err *err) KV_MUST_USE;

/* The rule that decides about a row, or KV_EXPECT_NOBODY. */
size_t kv_expect_find(const kv_expect *e, const kv_view *v, const kv_geometry *g);
/* Whether rule number i has this verdict. */
bool kv_expect_allows(const kv_expect *e, size_t i, kv_verdict v);
/* Whether it has a waiver that still counts. */
bool kv_expect_waived(const kv_expect *e, size_t i);

/* Judges a row: counts it with its rule. */
void kv_expect_row(kv_expect *e, const kv_view *v, const kv_geometry *g);

/* ---- after all rows --------------------------------------------------------------------- */

typedef struct {
    size_t rules, met, waived, unmet; /* unmet: with the next two */
    size_t absent;                    /* rules without a row */
    size_t expired;                   /* unmet rules whose waiver ran out */
} kv_expect_counts;
kv_expect_counts kv_expect_count(const kv_expect *e); /* NULL: all 0 */

/* "expect[3] "*->a" (at least EXACT_TOKEN)" */
kv_rc kv_expect_name(const kv_expect *e, size_t i, kv_buf *out, kv_err *err) KV_MUST_USE;
/* Of a waived or expired rule: "waived until 2026-12-31: why"; "" where there is no waiver. */
kv_rc kv_expect_excuse(const kv_expect *e, size_t i, kv_buf *out, kv_err *err) KV_MUST_USE;
size_t kv_expect_rules(const kv_expect *e); /* NULL: 0 */
bool kv_expect_absent(const kv_expect *e, size_t i);

/* One line for rule i where it is unmet or waived: what, how many rows, the first of them; "" where it is met. */
kv_rc kv_expect_line(const kv_expect *e, size_t i, kv_buf *out, kv_err *err) KV_MUST_USE;
/* A new object {rules, met, waived, unmet, absent, expired, lines[]}. */
kv_rc kv_expect_json(const kv_expect *e, json_t **out, kv_err *err) KV_MUST_USE;
/* The lines of all unmet and waived rules, each with "kvgrid: " before it, on stderr. */
kv_rc kv_expect_say(const kv_expect *e, kv_err *err) KV_MUST_USE;

#endif
