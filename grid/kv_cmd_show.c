/* kvgrid show: the matrix of grades of a certificate, or one pair in full. It reads, it does not verify. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "certs/kv_cert_names.h"
#include "certs/kv_json.h"
#include "grid/kv_ask.h"
#include "grid/kv_exit.h"

#define SHOW_BYTES_MAX ((size_t)1 << 30)

static const char *text_of(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s != NULL ? s : "?";
}

static long long int_of(const json_t *obj, const char *key)
{
    return (long long)json_integer_value(json_object_get(obj, key));
}

/* ---- what stands in a cell of the matrix ------------------------------------------------ */

typedef struct {
    const char *mark, *colour;
} cell_mark;

static cell_mark mark_of(const json_t *row)
{
    static const char *const marks[KV_VERDICT_COUNT] = {"B", "T", "~", "X", "?", "!"};
    static const char *const colours[KV_VERDICT_COUNT] = {"\033[32m", "\033[36m", "\033[33m", "\033[31m", "\033[35m", "\033[1;31m"};
    const json_t *words = json_object_get(row, "transformations");
    kv_verdict v;
    if (!kv_verdict_parse(text_of(row, "verdict"), &v)) return (cell_mark){"?", ""};
    if (v == KV_VERDICT_REFUSED) {
        const char *code = text_of(row, "frontier_code");
        return (cell_mark){strncmp(code, "X1", 2) == 0 ? "X1" : strncmp(code, "X2", 2) == 0 ? "X2" : strncmp(code, "X4", 2) == 0 ? "X4" : "X",
                           colours[v]};
    }
    const char *only = json_array_size(words) == 1 ? json_string_value(json_array_get(words, 0)) : NULL;
    if (only != NULL && strcmp(only, "view_reinterpret") == 0) return (cell_mark){"=", colours[v]};
    return (cell_mark){marks[v], colours[v]};
}

typedef struct {
    const char **name;
    const json_t **row; /* [src][dst], NULL where there is none */
    size_t n;
} matrix;

static size_t layout_index(const matrix *m, const char *name)
{
    size_t i = 0;
    while (i < m->n && strcmp(m->name[i], name) != 0) i++;
    return i;
}

static void print_matrix(const matrix *m, bool colour)
{
    int width = 6;
    for (size_t i = 0; i < m->n; i++)
        if ((int)strlen(m->name[i]) > width) width = (int)strlen(m->name[i]);
    printf("%*s  to:", width + 5, "");
    for (size_t i = 0; i < m->n; i++) printf(" %2zu", i + 1);
    printf("\n");
    for (size_t s = 0; s < m->n; s++) {
        printf("%2zu %-*s       ", s + 1, width, m->name[s]);
        for (size_t d = 0; d < m->n; d++) {
            const json_t *row = m->row[s * m->n + d];
            const cell_mark mark = row != NULL ? mark_of(row) : (cell_mark){s == d ? "." : "", ""};
            printf(" %s%2s%s", colour ? mark.colour : "", mark.mark, colour && *mark.colour != '\0' ? "\033[0m" : "");
        }
        printf("\n");
    }
}

static void print_geometry(const json_t *g)
{
    printf("L=%lld,T=%lld,H=%lld,D=%lld", int_of(g, "layers"), int_of(g, "tokens"), int_of(g, "kv_heads"), int_of(g, "head_dim"));
    if (json_object_get(g, "head_dim_v") != NULL) printf(",Dv=%lld", int_of(g, "head_dim_v"));
    printf(",e=%s", text_of(g, "element"));
}

static kv_rc show_matrices(const json_t *doc, bool colour, kv_err *err)
{
    const json_t *catalogue = json_object_get(doc, "catalogue"), *rows = json_object_get(doc, "rows");
    const json_t *geometries = json_object_get(doc, "geometries");
    matrix m = {.n = json_array_size(catalogue)};
    kv_rc rc = KV_OK;
    size_t at = 0;
    m.name = kv_alloc(m.n, sizeof *m.name);
    m.row = kv_alloc(m.n * m.n, sizeof *m.row);
    if (m.name == NULL || m.row == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for the matrix");
        goto out;
    }
    for (size_t i = 0; i < m.n; i++) m.name[i] = text_of(json_array_get(catalogue, i), "name");
    for (size_t g = 0; g < json_array_size(geometries); g++) {
        memset(m.row, 0, m.n * m.n * sizeof *m.row);
        for (; at < json_array_size(rows); at++) {
            const json_t *row = json_array_get(rows, at);
            if ((size_t)int_of(row, "geometry") != g) break;
            const size_t s = layout_index(&m, text_of(row, "src")), d = layout_index(&m, text_of(row, "dst"));
            if (s < m.n && d < m.n) m.row[s * m.n + d] = row;
        }
        print_geometry(json_array_get(geometries, g));
        printf("\n");
        print_matrix(&m, colour);
        printf("\n");
    }
    printf("B byte for byte, T every decoded token (only unread padding differs), ~ not exact, = the same shape under two names,\n"
           "X1 latent against heads, X2 other heads held, X4 no such shape here, ? unproven, ! failed\n");
out:
    kv_free(m.name);
    kv_free(m.row);
    return rc;
}

static void show_counts(const json_t *doc)
{
    const json_t *o = json_object_get(doc, "observed"), *v = json_object_get(o, "verdicts");
    printf("%lld rows: %lld EXACT_BYTE, %lld EXACT_TOKEN, %lld NOT_EXACT, %lld REFUSED", int_of(o, "rows"), int_of(v, "EXACT_BYTE"),
           int_of(v, "EXACT_TOKEN"), int_of(v, "NOT_EXACT"), int_of(v, "REFUSED"));
    if (int_of(o, "view_rows") > 0) printf(", %lld views", int_of(o, "view_rows"));
    if (int_of(v, "UNPROVEN") > 0) printf(", %lld UNPROVEN", int_of(v, "UNPROVEN"));
    if (int_of(v, "FAILED") > 0) printf(", %lld FAILED", int_of(v, "FAILED"));
    printf("\n%lld destination and %lld source positions checked\n", int_of(o, "positions_checked"), int_of(o, "source_positions_checked"));
}

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

static kv_rc show_pair(const json_t *doc, const char *pair, bool as_json, kv_err *err)
{
    const json_t *rows = json_object_get(doc, "rows");
    size_t found = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(text_of(row, "pair_id"), pair) != 0) continue;
        found++;
        kv_rc rc = KV_OK;
        if (as_json) {
            rc = kv_ask_print_json(row, err);
        } else {
            printf("%s at ", pair);
            print_geometry(json_array_get(json_object_get(doc, "geometries"), (size_t)int_of(row, "geometry")));
            printf(": %s\n", text_of(row, "verdict"));
            rc = print_leaves(row, "", err);
        }
        if (rc != KV_OK) return rc;
    }
    if (found > 0) return KV_OK;
    return KV_FAIL(err, KV_EINVAL, "the certificate has no pair \"%s\" (a pair is named SRC->DST, in quotes)", pair);
}

int kv_cmd_show(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    json_t *doc = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_json_parse_file(o->positional[0], SHOW_BYTES_MAX, &doc, &err));
    if (strcmp(text_of(doc, "schema"), KV_CERT_SCHEMA) != 0) {
        rc = KV_FAIL(&err, KV_EFORMAT, "%s: is no certificate (schema \"%s\" is needed)", o->positional[0], KV_CERT_SCHEMA);
        goto out;
    }
    if (o->n_positional > 1) {
        rc = show_pair(doc, o->positional[1], o->json, &err);
    } else if (o->json) {
        rc = kv_ask_print_json(json_object_get(doc, "observed"), &err);
    } else {
        KV_TRY(rc, out, show_matrices(doc, isatty(STDOUT_FILENO) == 1 && getenv("NO_COLOR") == NULL, &err));
        show_counts(doc);
        printf("campaign %s, body digest %s (show does not verify: kvgrid verify does)\n", text_of(json_object_get(doc, "campaign"), "name"),
               text_of(doc, "body_digest"));
    }
out:
    json_decref(doc);
    return rc == KV_OK ? kv_ask_finish(KV_EXIT_OK) : kv_ask_fail(&err);
}
