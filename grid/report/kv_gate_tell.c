/* The answer of a run on stdout. */
#include <inttypes.h>
#include <stdio.h>

#include "base/kv_text.h"
#include "grid/cli/kv_ask.h"
#include "grid/report/kv_gate.h"

#define LISTED 20 /* rows of each list of the comparison */

static void print_counts(const kv_observed *n)
{
    printf("%" PRId64 " rows: %" PRId64 " EXACT_BYTE, %" PRId64 " EXACT_TOKEN, %" PRId64 " NOT_EXACT, %" PRId64
           " REFUSED",
           n->rows, n->verdicts[KV_VERDICT_EXACT_BYTE], n->verdicts[KV_VERDICT_EXACT_TOKEN],
           n->verdicts[KV_VERDICT_NOT_EXACT], n->verdicts[KV_VERDICT_REFUSED]);
    if (n->view_rows > 0) printf(", %" PRId64 " views", n->view_rows);
    if (n->verdicts[KV_VERDICT_UNPROVEN] > 0) printf(", %" PRId64 " UNPROVEN", n->verdicts[KV_VERDICT_UNPROVEN]);
    if (n->verdicts[KV_VERDICT_FAILED] > 0) printf(", %" PRId64 " FAILED", n->verdicts[KV_VERDICT_FAILED]);
    printf("\n%" PRId64 " destination and %" PRId64 " source positions checked\n", n->positions, n->source_positions);
}

kv_rc kv_gate_print_text(const kv_gate_facts *f, const char *cert, kv_err *err)
{
    kv_observed n;
    kv_observe(f->c, f->rows, &n);
    print_counts(&n);
    char name[KV_TEXT_SHOWN];
    printf("certificate %s\nbody digest %s\n", kv_text_show(cert, name),
           json_string_value(json_object_get(f->doc, "body_digest")));
    return f->baseline != NULL ? kv_diff_text(f->baseline, f->baseline_name, "this run", LISTED, err) : KV_OK;
}

static json_t *or_null(json_t *v)
{
    return v != NULL ? json_incref(v) : json_null();
}

kv_rc kv_gate_print_json(const kv_gate_facts *f, const kv_gate *g, const char *cert, kv_err *err)
{
    const json_t *campaign = json_object_get(f->doc, "campaign");
    json_t *v = json_pack("{s:s,s:O,s:{s:O,s:O},s:O,s:i,s:O,s:o,s:o}", "certificate", cert, "body_digest",
                          json_object_get(f->doc, "body_digest"), "campaign", "name", json_object_get(campaign, "name"),
                          "digest", json_object_get(campaign, "digest"), "observed",
                          json_object_get(f->doc, "observed"), "exit_code", g->code, "reasons", g->reasons, "expect",
                          or_null(g->expect), "baseline", or_null(g->baseline));
    kv_rc rc = v != NULL ? kv_ask_print_json(v, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the answer");
    json_decref(v);
    return rc;
}
