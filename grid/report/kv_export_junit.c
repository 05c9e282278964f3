/* JUnit XML: what the xUnit schema of Jenkins (junit-10.xsd) and GitLab's reader take. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/campaign/kv_params.h"
#include "grid/report/kv_expect.h"
#include "grid/report/kv_export.h"

typedef enum { CASE_PASSED, CASE_SKIPPED, CASE_FAILED, CASE_OUTCOMES } outcome;

typedef struct {
    size_t geometry;
    char check[32];
    int64_t n[CASE_OUTCOMES];
} suite;

typedef struct {
    kv_reader *r;
    kv_expect *expect; /* or NULL */
    kv_out *out;
    kv_err *err;
    const char *campaign;
    suite *suites;
    size_t n_suites, cap;
    size_t next_failure; /* of run.failures: they stand in the order of the rows */
} junit;

/* A change of the element type that moved each element as it should, which is all that can be asked of it. */
static bool is_conversion(const kv_view *v)
{
    return v->converts && v->seen[KV_SEEN_GATHER] == KV_TRUE;
}

/* A row of the codec is not exact by definition: what can be asked of it is that it agrees with its reference. */
static bool agrees(const kv_view *v)
{
    const bool codec = strcmp(v->check, "codec") == 0, study = strcmp(v->check, "attribution") == 0;
    const int last = codec ? KV_CODEC_OBS_TOKENS : KV_STUDY_OBS_FINITE;
    for (int o = 0; o < last; o++)
        if (v->seen[o] != KV_TRUE) return false;
    return codec || study;
}

static outcome outcome_of(const junit *j, const kv_view *v, size_t rule)
{
    if (v->verdict == KV_VERDICT_FAILED || v->verdict == KV_VERDICT_UNPROVEN) return CASE_FAILED;
    if (rule == KV_EXPECT_NOBODY)
        return v->verdict == KV_VERDICT_NOT_EXACT && !is_conversion(v) && !agrees(v) ? CASE_FAILED : CASE_PASSED;
    if (kv_expect_allows(j->expect, rule, v->verdict)) return CASE_PASSED;
    return kv_expect_waived(j->expect, rule) ? CASE_SKIPPED : CASE_FAILED;
}

/* ---- the first pass: how many ----------------------------------------------------------- */

static kv_rc suite_of(junit *j, const kv_view *v, suite **out)
{
    suite *last = j->n_suites > 0 ? &j->suites[j->n_suites - 1] : NULL;
    if (last == NULL || last->geometry != v->geometry || strcmp(last->check, v->check) != 0) {
        if (j->n_suites == j->cap) {
            const size_t cap = j->cap > 0 ? 2 * j->cap : 64;
            suite *grown = kv_realloc(j->suites, cap, sizeof *grown);
            if (grown == NULL) return KV_FAIL(j->err, KV_ENOMEM, "no memory for %zu suites", cap);
            j->suites = grown;
            j->cap = cap;
        }
        last = &j->suites[j->n_suites++];
        *last = (suite){.geometry = v->geometry};
        snprintf(last->check, sizeof last->check, "%s", v->check);
    }
    *out = last;
    return KV_OK;
}

static kv_rc count(junit *j)
{
    kv_reader_rewind(j->r);
    for (;;) {
        const json_t *row = NULL;
        kv_view v;
        suite *s = NULL;
        kv_rc rc = kv_reader_next(j->r, &row, &v, j->err);
        if (rc == KV_OK && row != NULL) rc = suite_of(j, &v, &s);
        if (rc != KV_OK || row == NULL) return rc;
        s->n[outcome_of(j, &v, kv_expect_find(j->expect, &v, &j->r->geometries[v.geometry]))]++;
        if (j->expect != NULL) kv_expect_row(j->expect, &v, &j->r->geometries[v.geometry]);
    }
}

/* ---- the second: what ------------------------------------------------------------------- */

static void put_attribute(kv_out *out, const char *name, const char *value)
{
    kv_out_printf(out, " %s=\"", name);
    kv_xml_text(out, value);
    kv_out_puts(out, "\"");
}

/* Name of a suite, and of its class: the geometry, with the check before it where it is not "pair". */
static void suite_name(const junit *j, const suite *s, char out[KV_GEOMETRY_TEXT + 40])
{
    char geometry[KV_GEOMETRY_TEXT];
    kv_geometry_print(&j->r->geometries[s->geometry], geometry);
    if (strcmp(s->check, "pair") == 0)
        snprintf(out, KV_GEOMETRY_TEXT + 40, "%s", geometry);
    else
        snprintf(out, KV_GEOMETRY_TEXT + 40, "%s %s", s->check, geometry);
}

static void open_suite(const junit *j, const char *name, int64_t tests, int64_t failures, int64_t skipped)
{
    const json_t *run = json_object_get(j->r->doc, "run");
    const json_t *first = json_array_get(json_object_get(run, "devices"), 0);
    const char *started = json_string_value(json_object_get(run, "started")),
               *host = json_string_value(json_object_get(first, "host"));
    char stamp[20] = ""; /* without the Z, which some readers do not take */
    kv_out_puts(j->out, " <testsuite");
    put_attribute(j->out, "name", name);
    kv_out_printf(j->out,
                  " tests=\"%" PRId64 "\" failures=\"%" PRId64 "\" errors=\"0\" skipped=\"%" PRId64 "\" time=\"0\"",
                  tests, failures, skipped);
    if (started != NULL) snprintf(stamp, sizeof stamp, "%s", started);
    if (started != NULL) put_attribute(j->out, "timestamp", stamp);
    if (host != NULL) put_attribute(j->out, "hostname", host);
    kv_out_puts(j->out, ">\n");
}

static void open_case(const junit *j, const char *suite_text, const char *name)
{
    char class[KV_NAME_MAX + KV_GEOMETRY_TEXT + 48];
    snprintf(class, sizeof class, "%s.%s", j->campaign, suite_text);
    kv_out_puts(j->out, "  <testcase");
    put_attribute(j->out, "name", name);
    put_attribute(j->out, "classname", class);
    kv_out_puts(j->out, " time=\"0\"");
}

/* The entry of run.failures for a row, or NULL. */
static const json_t *failure_of(junit *j, const json_t *row)
{
    static const char *const keys[] = {"check", "pair_id", "geometry", "params"};
    const json_t *list = json_object_get(json_object_get(j->r->doc, "run"), "failures");
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_array_get(list, (j->next_failure + i) % n);
        size_t k = 0;
        while (k < 4 && json_equal(json_object_get(f, keys[k]), json_object_get(row, keys[k]))) k++;
        if (k < 4) continue;
        j->next_failure = (j->next_failure + i + 1) % n;
        return f;
    }
    return NULL;
}

static const char *text_of(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s != NULL ? s : "?";
}

static kv_rc put_failed(junit *j, const json_t *row, kv_buf *out)
{
    const json_t *f = failure_of(j, row);
    kv_rc rc = kv_buf_printf(out, j->err, "FAILED (%s)", text_of(row, "error_class"));
    if (rc == KV_OK && f != NULL)
        rc = kv_buf_printf(out, j->err, ": %s (rank %" PRId64 " on %s, device %s)", text_of(f, "text"),
                           (int64_t)json_integer_value(json_object_get(f, "rank")), text_of(f, "host"),
                           text_of(f, "device"));
    return rc;
}

/* One line: why the case is no pass. */
static kv_rc put_reason(junit *j, const json_t *row, const kv_view *v, size_t rule, kv_buf *out)
{
    kv_rc rc;
    if (v->verdict == KV_VERDICT_FAILED) return put_failed(j, row, out);
    if (v->verdict == KV_VERDICT_UNPROVEN) return kv_buf_puts(out, "UNPROVEN: an observation was not made", j->err);
    if (rule == KV_EXPECT_NOBODY && (strcmp(v->check, "codec") == 0 || strcmp(v->check, "attribution") == 0))
        return kv_buf_puts(out, "NOT_EXACT, and not by the codec alone: it differs from its reference", j->err);
    if (rule == KV_EXPECT_NOBODY)
        return kv_buf_puts(out,
                           v->converts ? "NOT_EXACT, and not for the element type alone: elements arrive wrong"
                                       : "NOT_EXACT without a change of the element type: the translation is wrong",
                           j->err);
    KV_TRY(rc, out, kv_buf_printf(out, j->err, "%s, not as ", kv_verdict_name(v->verdict)));
    KV_TRY(rc, out, kv_expect_name(j->expect, rule, out, j->err));
    KV_TRY(rc, out, kv_buf_puts(out, " demands", j->err));
    if (v->verdict == KV_VERDICT_REFUSED)
        KV_TRY(rc, out,
               kv_buf_printf(out, j->err, "; %s: %s", text_of(row, "frontier_code"), text_of(row, "frontier_reason")));
    kv_buf excuse = {0};
    rc = kv_expect_excuse(j->expect, rule, &excuse, j->err);
    if (rc == KV_OK && excuse.len > 0) rc = kv_buf_printf(out, j->err, "; %s", excuse.data);
    kv_buf_free(&excuse);
out:
    return rc;
}

/* What was observed, and where to look. */
static void put_evidence(const junit *j, const kv_view *v)
{
    static const char *const tri[] = {"false", "true", "not made"};
    for (int i = 0; i < KV_SEEN_COUNT; i++)
        kv_out_printf(j->out, "%s: %s\n", kv_seen_name(v->check, i), tri[v->seen[i]]);
    kv_out_puts(j->out, "certificate body ");
    kv_xml_text(j->out, text_of(j->r->doc, "body_digest"));
    kv_out_puts(j->out, "\n");
}

static kv_rc put_case(junit *j, const json_t *row, const kv_view *v, const char *suite_text)
{
    static const char *const tags[CASE_OUTCOMES] = {NULL, "skipped", "failure"};
    const size_t rule = kv_expect_find(j->expect, v, &j->r->geometries[v->geometry]);
    const outcome o = outcome_of(j, v, rule);
    char params[KV_PARAMS_TEXT];
    kv_buf name = {0}, reason = {0};
    kv_rc rc;
    kv_params_print(v->params, params);
    KV_TRY(rc, out, kv_buf_printf(&name, j->err, "%s->%s%s", v->src, v->dst, params));
    open_case(j, suite_text, name.data);
    if (o == CASE_PASSED) {
        kv_out_puts(j->out, "/>\n");
        goto out;
    }
    KV_TRY(rc, out, put_reason(j, row, v, rule, &reason));
    kv_out_printf(j->out, ">\n   <%s", tags[o]);
    put_attribute(j->out, "type", kv_verdict_name(v->verdict));
    put_attribute(j->out, "message", reason.data);
    kv_out_puts(j->out, ">");
    kv_xml_text(j->out, reason.data);
    kv_out_puts(j->out, "\n");
    put_evidence(j, v);
    kv_out_printf(j->out, "</%s>\n  </testcase>\n", tags[o]);
out:
    kv_buf_free(&name);
    kv_buf_free(&reason);
    return rc;
}

static kv_rc put_suites(junit *j)
{
    char name[KV_GEOMETRY_TEXT + 40];
    kv_reader_rewind(j->r);
    for (size_t s = 0; s < j->n_suites; s++) {
        const suite *now = &j->suites[s];
        const int64_t tests = now->n[CASE_PASSED] + now->n[CASE_SKIPPED] + now->n[CASE_FAILED];
        suite_name(j, now, name);
        open_suite(j, name, tests, now->n[CASE_FAILED], now->n[CASE_SKIPPED]);
        for (int64_t i = 0; i < tests; i++) {
            const json_t *row = NULL;
            kv_view v;
            kv_rc rc = kv_reader_next(j->r, &row, &v, j->err);
            if (rc == KV_OK && row != NULL) rc = put_case(j, row, &v, name);
            if (rc != KV_OK) return rc;
        }
        kv_out_puts(j->out, " </testsuite>\n");
    }
    const json_t *none;
    return kv_reader_next(j->r, &none, NULL, j->err); /* the end, where a row file is compared */
}

/* A case for each rule: it fails where no row is left to it. */
static kv_rc put_rules(junit *j)
{
    const size_t n = kv_expect_rules(j->expect);
    kv_rc rc = KV_OK;
    if (n == 0) return KV_OK;
    open_suite(j, "expect", (int64_t)n, (int64_t)kv_expect_count(j->expect).absent, 0);
    for (size_t i = 0; rc == KV_OK && i < n; i++) {
        kv_buf name = {0}, line = {0};
        rc = kv_expect_name(j->expect, i, &name, j->err);
        if (rc == KV_OK) open_case(j, "expect", name.data);
        if (rc == KV_OK && !kv_expect_absent(j->expect, i)) {
            kv_out_puts(j->out, "/>\n");
        } else if (rc == KV_OK) {
            rc = kv_expect_line(j->expect, i, &line, j->err);
            kv_out_puts(j->out, ">\n   <failure type=\"ABSENT\"");
            put_attribute(j->out, "message", rc == KV_OK ? line.data : "");
            kv_out_puts(j->out, "/>\n  </testcase>\n");
        }
        kv_buf_free(&name);
        kv_buf_free(&line);
    }
    kv_out_puts(j->out, " </testsuite>\n");
    return rc;
}

static void open_all(const junit *j)
{
    int64_t tests = (int64_t)kv_expect_rules(j->expect), failures = (int64_t)kv_expect_count(j->expect).absent;
    for (size_t i = 0; i < j->n_suites; i++) {
        for (int o = 0; o < CASE_OUTCOMES; o++) tests += j->suites[i].n[o];
        failures += j->suites[i].n[CASE_FAILED];
    }
    kv_out_puts(j->out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites");
    put_attribute(j->out, "name", j->campaign);
    kv_out_printf(j->out, " tests=\"%" PRId64 "\" failures=\"%" PRId64 "\" errors=\"0\" time=\"0\">\n", tests,
                  failures);
}

kv_rc kv_export_junit(kv_reader *r, const char *today, kv_out *out, kv_err *err)
{
    const json_t *campaign = json_object_get(r->doc, "campaign"), *spec = json_object_get(campaign, "spec");
    junit j = {.r = r, .out = out, .err = err, .campaign = text_of(campaign, "name")};
    kv_rc rc = KV_OK;
    if (json_object_get(spec, "part") == NULL) /* it holds for the whole campaign */
        KV_TRY(rc, out, kv_expect_new(json_object_get(spec, "expect"), today, r->path, &j.expect, err));
    KV_TRY(rc, out, count(&j));
    open_all(&j);
    KV_TRY(rc, out, put_suites(&j));
    KV_TRY(rc, out, put_rules(&j));
    kv_out_puts(out, "</testsuites>\n");
out:
    kv_expect_free(j.expect);
    kv_free(j.suites);
    return rc;
}
