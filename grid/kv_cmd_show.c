/* kvgrid show: the matrix of grades of a certificate, some of its rows, or one pair in full. It reads, it does not verify. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "certs/kv_json.h"
#include "grid/campaign/kv_params.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/report/kv_show.h"

static const char *text_of(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s != NULL ? s : "?";
}

static int64_t int_of(const json_t *obj, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(obj, key));
}

/* ---- all of it -------------------------------------------------------------------------- */

static void show_counts(const json_t *doc)
{
    const json_t *o = json_object_get(doc, "observed"), *v = json_object_get(o, "verdicts");
    printf("%" PRId64 " rows: %" PRId64 " EXACT_BYTE, %" PRId64 " EXACT_TOKEN, %" PRId64 " NOT_EXACT, %" PRId64
           " REFUSED",
           int_of(o, "rows"), int_of(v, "EXACT_BYTE"), int_of(v, "EXACT_TOKEN"), int_of(v, "NOT_EXACT"),
           int_of(v, "REFUSED"));
    if (int_of(o, "view_rows") > 0) printf(", %" PRId64 " views", int_of(o, "view_rows"));
    if (int_of(v, "UNPROVEN") > 0) printf(", %" PRId64 " UNPROVEN", int_of(v, "UNPROVEN"));
    if (int_of(v, "FAILED") > 0) printf(", %" PRId64 " FAILED", int_of(v, "FAILED"));
    printf("\n%" PRId64 " destination and %" PRId64 " source positions checked\n", int_of(o, "positions_checked"),
           int_of(o, "source_positions_checked"));
}

/* ---- row by row ------------------------------------------------------------------------- */

/* How rows are told. */
typedef enum { AS_MATRIX, AS_LINE, AS_LEAVES, AS_JSON } manner;

typedef struct {
    kv_reader r;
    kv_filter filter;
    kv_matrices *matrices;
    manner as;
    int64_t taken, of, verdicts[KV_VERDICT_COUNT];
} show;

/* Prints every leaf of a row as path and value. */
static kv_rc print_leaves(const json_t *v, const char *path, kv_err *err)
{
    if (!json_is_object(v)) {
        kv_buf text = {0};
        kv_rc rc = kv_json_write(v, &text, err);
        if (rc == KV_OK) printf("  %-52s %s\n", path, text.data);
        kv_buf_free(&text);
        return rc;
    }
    const char *key;
    json_t *child;
    json_object_foreach((json_t *)(uintptr_t)v, key, child)
    {
        char deeper[256];
        snprintf(deeper, sizeof deeper, "%s%s%s", path, *path != '\0' ? "." : "", key);
        kv_rc rc = print_leaves(child, deeper, err);
        if (rc != KV_OK) return rc;
    }
    return KV_OK;
}

/* "SRC->DST at GEOMETRY" */
static void print_place(const show *s, const kv_view *v)
{
    char geometry[KV_GEOMETRY_TEXT], params[KV_PARAMS_TEXT];
    kv_geometry_print(&s->r.geometries[v->geometry], geometry);
    kv_params_print(v->params, params);
    printf("%s->%s at %s%s", v->src, v->dst, geometry, params);
}

/* Why: the frontier, or what the run says of a failure (run.failures). */
static void print_why(const show *s, const json_t *row, const kv_view *v)
{
    static const char *const keys[] = {"check", "pair_id", "geometry", "params"};
    const json_t *failures = json_object_get(json_object_get(s->r.doc, "run"), "failures");
    if (v->verdict == KV_VERDICT_REFUSED)
        printf(": %s: %s", text_of(row, "frontier_code"), text_of(row, "frontier_reason"));
    if (v->verdict != KV_VERDICT_FAILED) return;
    printf(": %s", text_of(row, "error_class"));
    for (size_t i = 0; i < json_array_size(failures); i++) {
        const json_t *f = json_array_get(failures, i);
        size_t k = 0;
        while (k < 4 && json_equal(json_object_get(f, keys[k]), json_object_get(row, keys[k]))) k++;
        if (k < 4) continue;
        printf(": %s (rank %" PRId64 " on %s)", text_of(f, "text"), int_of(f, "rank"), text_of(f, "host"));
        return;
    }
}

static kv_rc tell_row(show *s, const json_t *row, const kv_view *v, kv_err *err)
{
    switch (s->as) {
    case AS_MATRIX: return kv_matrices_add(s->matrices, row, v, err);
    case AS_JSON: return kv_ask_print_json(row, err);
    case AS_LINE:
        printf("%-11s ", kv_verdict_name(v->verdict));
        print_place(s, v);
        print_why(s, row, v);
        printf("\n");
        return KV_OK;
    case AS_LEAVES: break;
    }
    print_place(s, v);
    printf(": %s\n", kv_verdict_name(v->verdict));
    return print_leaves(row, "", err);
}

static kv_rc tell_rows(show *s, kv_err *err)
{
    for (;;) {
        const json_t *row = NULL;
        kv_view v;
        kv_rc rc = kv_reader_next(&s->r, &row, &v, err);
        if (rc != KV_OK || row == NULL) return rc;
        s->of++;
        if (!kv_filter_takes(&s->filter, &v)) continue;
        s->taken++;
        s->verdicts[v.verdict]++;
        rc = tell_row(s, row, &v, err);
        if (rc != KV_OK) return rc;
    }
}

static void print_taken(const show *s)
{
    const char *before = ": ";
    printf("%" PRId64 " of %" PRId64 " rows", s->taken, s->of);
    for (int v = 0; v < KV_VERDICT_COUNT; v++) {
        if (s->verdicts[v] == 0) continue;
        printf("%s%" PRId64 " %s", before, s->verdicts[v], kv_verdict_name((kv_verdict)v));
        before = ", ";
    }
    printf("\n");
}

static kv_rc show_rows(const kv_opts *o, show *s, kv_err *err)
{
    const bool colour = isatty(STDOUT_FILENO) == 1 && getenv("NO_COLOR") == NULL;
    const json_t *doc = s->r.doc;
    kv_rc rc;
    s->as = o->json ? AS_JSON : s->filter.pair != NULL ? AS_LEAVES : s->filter.verdicts != 0 ? AS_LINE : AS_MATRIX;
    if (s->as == AS_MATRIX) KV_TRY(rc, out, kv_matrices_new(&s->r, &s->matrices, err));
    KV_TRY(rc, out, tell_rows(s, err));
    if (s->filter.pair != NULL && s->taken == 0) {
        rc = KV_FAIL(err, KV_EINVAL, "the certificate has no %s \"%s\" (a pair is named SRC->DST, in quotes)",
                     o->select != NULL || o->n_geometry > 0 || o->verdict != NULL ? "such row of" : "pair",
                     s->filter.pair);
        goto out;
    }
    if (s->as == AS_MATRIX) KV_TRY(rc, out, kv_matrices_print(s->matrices, s->filter.n == 0, colour, err));
    if (s->as == AS_JSON || s->as == AS_LEAVES) goto out;
    if (s->filter.any)
        print_taken(s);
    else
        show_counts(doc);
    printf("campaign %s, body digest %s (show does not verify: kvgrid verify does)\n",
           text_of(json_object_get(doc, "campaign"), "name"), text_of(doc, "body_digest"));
out:
    return rc;
}

int kv_cmd_show(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    show s = {0};
    kv_rc rc;
    KV_TRY(rc, out, kv_reader_open(o->positional[0], &s.r, &err));
    KV_TRY(rc, out, kv_filter_new(o, &s.r, &s.filter, &err));
    if (o->json && !s.filter.any)
        rc = kv_ask_print_json(json_object_get(s.r.doc, "observed"), &err);
    else
        rc = show_rows(o, &s, &err);
out:
    kv_matrices_free(s.matrices);
    kv_filter_free(&s.filter);
    kv_reader_close(&s.r);
    return rc == KV_OK ? kv_ask_finish(KV_EXIT_OK) : kv_ask_fail(&err);
}
