#include "grid/report/kv_gate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/document/kv_assurance.h"
#include "grid/report/kv_expect.h"

#define LISTED 100 /* rows of the comparison that are told after a run; diff tells all */

static kv_rc no_memory(kv_err *err)
{
    return KV_FAIL(err, KV_ENOMEM, "no memory for the judgement");
}

/* Notes why the gate closes; the gravest code stays. */
static kv_rc close_gate(kv_gate *g, const char *reason, int code, kv_err *err)
{
    if (g->code != KV_EXIT_FAILED) g->code = code;
    return json_array_append_new(g->reasons, json_string(reason)) == 0 ? KV_OK : no_memory(err);
}

/* ---- the certificate by itself ---------------------------------------------------------- */

static const char *failed(const kv_gate_facts *f, const kv_observed *n)
{
    const json_t *first = json_array_get(json_object_get(json_object_get(f->doc, "run"), "failures"), 0);
    if (n->verdicts[KV_VERDICT_FAILED] == 0) return NULL;
    fprintf(stderr, "kvgrid: %" PRId64 " rows FAILED; the first is %s: %s\n", n->verdicts[KV_VERDICT_FAILED],
            json_string_value(json_object_get(first, "pair_id")), json_string_value(json_object_get(first, "text")));
    return "failed";
}

/* Why the rows are not a pass, whatever is expected of them; NULL where they are. Says it. */
static const char *weakness(const kv_gate_facts *f, const kv_observed *n)
{
    static const char *const guards[][2] = {
        {"controls", "passed"}, {"checks", "passed"}, {"known_limits", "demonstrated"}};
    kv_err floor = {0};
    for (size_t i = 0; i < 3; i++) {
        const char *first = NULL;
        if (kv_entries_hold(json_object_get(f->doc, guards[i][0]), guards[i][1], &first)) continue;
        fprintf(stderr, "kvgrid: %s: \"%s\" did not hold; the certificate says so and verify refuses it (H9)\n",
                guards[i][0], first);
        return guards[i][0];
    }
    if (!kv_floors_met(f->doc, &floor)) {
        fprintf(stderr, "kvgrid: %s\n", floor.text);
        return "floors";
    }
    if (n->verdicts[KV_VERDICT_UNPROVEN] > 0 && !f->allow_unproven) {
        fprintf(stderr, "kvgrid: %" PRId64 " rows are UNPROVEN\n", n->verdicts[KV_VERDICT_UNPROVEN]);
        return "unproven";
    }
    if (n->positions == 0 && n->source_positions == 0 && n->view_rows == 0 && n->measured == 0) {
        fprintf(stderr,
                "kvgrid: no position was checked in any row; a run in which nothing was checked is not a pass\n");
        return "nothing_checked";
    }
    return NULL;
}

/* ---- against the policy and the baseline ------------------------------------------------ */

static kv_rc hold_against_expect(const kv_gate_facts *f, kv_gate *g, kv_err *err)
{
    kv_expect *e = NULL;
    char today[KV_DAY_TEXT];
    kv_rc rc;
    if (f->c->parts > 1) return KV_OK;
    kv_expect_today(today);
    KV_TRY(rc, out, kv_expect_new(json_object_get(f->c->spec, "expect"), today, f->c->name, &e, err));
    for (size_t i = 0; e != NULL && i < f->c->n_cells; i++) {
        kv_row row;
        kv_view v;
        json_t *params = NULL;
        kv_row_set_get(f->rows, i, &row);
        rc = kv_view_of_row(f->c, &row, &v, &params, err);
        if (rc == KV_OK) kv_expect_row(e, &v, &f->c->geometries[v.geometry]);
        json_decref(params);
        if (rc != KV_OK) goto out;
    }
    if (e == NULL) goto out;
    KV_TRY(rc, out, kv_expect_say(e, err));
    KV_TRY(rc, out, kv_expect_json(e, &g->expect, err));
    if (kv_expect_count(e).unmet > 0) rc = close_gate(g, "expect", KV_EXIT_WORSE, err);
out:
    kv_expect_free(e);
    return rc;
}

static kv_rc hold_against_baseline(const kv_gate_facts *f, kv_gate *g, kv_err *err)
{
    kv_rc rc;
    if (f->baseline == NULL) return KV_OK;
    KV_TRY(rc, out, kv_diff_add_run(f->baseline, f->c, f->rows, err));
    KV_TRY(rc, out, kv_diff_compare(f->baseline, err));
    const bool passes = kv_diff_passes(f->baseline, f->accept_redeclared);
    KV_TRY(rc, out, kv_diff_json(f->baseline, passes, LISTED, &g->baseline, err));
    if (passes) goto out;
    KV_TRY(rc, out, kv_diff_say(f->baseline, f->baseline_name, f->accept_redeclared, err));
    rc = close_gate(g, "baseline", KV_EXIT_WORSE, err);
out:
    return rc;
}

kv_rc kv_gate_judge(const kv_gate_facts *f, kv_gate *out, kv_err *err)
{
    kv_observed n;
    kv_rc rc;
    kv_observe(f->c, f->rows, &n);
    out->reasons = json_array();
    if (out->reasons == NULL) return no_memory(err);
    const char *reason = failed(f, &n);
    const int code = reason != NULL ? KV_EXIT_FAILED : KV_EXIT_WORSE;
    if (reason == NULL) reason = weakness(f, &n);
    if (reason != NULL) KV_TRY(rc, out, close_gate(out, reason, code, err));
    KV_TRY(rc, out, hold_against_expect(f, out, err));
    rc = hold_against_baseline(f, out, err);
out:
    return rc;
}

void kv_gate_free(kv_gate *g)
{
    json_decref(g->reasons);
    json_decref(g->expect);
    json_decref(g->baseline);
    memset(g, 0, sizeof *g);
}

kv_rc kv_gate_open_baseline(const char *path, kv_diff **out, kv_err *err)
{
    kv_reader r = {0};
    kv_diff *d = kv_alloc(1, sizeof *d);
    if (d == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the baseline");
    kv_rc rc = kv_reader_open(path, &r, err);
    if (rc == KV_OK) rc = kv_diff_add_reader(d, KV_OLD, &r, err);
    kv_reader_close(&r);
    if (rc == KV_OK)
        *out = d;
    else
        kv_gate_close_baseline(d);
    return rc;
}

void kv_gate_close_baseline(kv_diff *d)
{
    if (d == NULL) return;
    kv_diff_free(d);
    kv_free(d);
}

kv_rc kv_gate_expect_doc(json_t *doc, const char *path, size_t *unmet, kv_err *err)
{
    json_t *spec = json_object_get(json_object_get(doc, "campaign"), "spec");
    kv_expect *e = NULL;
    kv_reader r = {0};
    char today[KV_DAY_TEXT];
    const json_t *row = NULL;
    kv_view v;
    kv_rc rc;
    kv_expect_today(today);
    KV_TRY(rc, out, kv_reader_of_doc(doc, path, &r, err));
    KV_TRY(rc, out, kv_expect_new(json_object_get(spec, "expect"), today, path, &e, err));
    if (json_object_get(spec, "part") != NULL) {
        rc = KV_FAIL(err, KV_EINVAL, "%s: is part %s of a campaign; what it expects holds for the whole (kvgrid merge)",
                     path, json_string_value(json_object_get(spec, "part")));
        goto out;
    }
    if (e == NULL) {
        rc = KV_FAIL(err, KV_EINVAL, "%s: its campaign has no \"expect\" to hold the rows against", path);
        goto out;
    }
    do {
        KV_TRY(rc, out, kv_reader_next(&r, &row, &v, err));
        if (row != NULL) kv_expect_row(e, &v, &r.geometries[v.geometry]);
    } while (row != NULL);
    rc = kv_expect_say(e, err);
    *unmet = kv_expect_count(e).unmet;
out:
    kv_expect_free(e);
    kv_reader_close(&r);
    return rc;
}
