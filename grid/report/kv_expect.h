/* `expect` of a campaign (kv_expect_read.h), held against rows. */
#ifndef KV_EXPECT_H
#define KV_EXPECT_H

#include "grid/campaign/kv_expect_read.h"
#include "grid/report/kv_view.h"

#define KV_EXPECT_NOBODY SIZE_MAX /* no rule fits the row */

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
