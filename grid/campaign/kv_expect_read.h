/* What a campaign expects of its rows: the policy of a CI gate (docs/ci.md). A list of rules
 *
 *   {"pairs": "SRC->DST", "geometry": {FIELD: value or list}, "params": {KEY: text or list},
 *    "verdict": V or [V, ...]  |  "at_least": V,
 *    "waiver": {"reason": TEXT, "until": "YYYY-MM-DD"}}
 *
 * For each row the first rule whose pairs (patterns with * and ? for source and destination), geometry and params fit
 * decides, so that exceptions stand before what is general. A rule is unmet where one of its rows has another verdict,
 * and always where it has no row at all; a waiver excuses its rows, not their absence, to the end of its day (UTC). */
#ifndef KV_EXPECT_READ_H
#define KV_EXPECT_READ_H

#include <jansson.h>

#include "base/kv_base.h"

#define KV_EXPECT_RULES_MAX 2048

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

#endif
