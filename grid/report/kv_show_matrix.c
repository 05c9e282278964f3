#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/kv_text.h"
#include "grid/campaign/kv_params.h"
#include "grid/report/kv_show.h"

#define TITLES_SHOWN 4 /* geometries named under a matrix that they share */

/* ---- what stands in a cell -------------------------------------------------------------- */

typedef enum { M_NONE, M_BYTE, M_TOKEN, M_NOT, M_UNPROVEN, M_FAILED, M_VIEW, M_X1, M_X2, M_X4, M_X, M_COUNT } mark;
static const char *const mark_text[M_COUNT] = {"", "B", "T", "~", "?", "!", "=", "X1", "X2", "X4", "X"};

static mark mark_of(const json_t *row, const kv_view *v)
{
    const json_t *words = json_object_get(row, "transformations");
    const char *only = json_array_size(words) == 1 ? json_string_value(json_array_get(words, 0)) : NULL;
    const char *code = json_string_value(json_object_get(row, "frontier_code"));
    const bool view = only != NULL && strcmp(only, "view_reinterpret") == 0;
    switch (v->verdict) {
    case KV_VERDICT_EXACT_BYTE: return view ? M_VIEW : M_BYTE;
    case KV_VERDICT_EXACT_TOKEN: return view ? M_VIEW : M_TOKEN;
    case KV_VERDICT_NOT_EXACT: return view ? M_VIEW : M_NOT;
    case KV_VERDICT_UNPROVEN: return view ? M_VIEW : M_UNPROVEN;
    case KV_VERDICT_REFUSED:
        if (code == NULL) return M_X;
        return strncmp(code, "X1", 2) == 0   ? M_X1
               : strncmp(code, "X2", 2) == 0 ? M_X2
               : strncmp(code, "X4", 2) == 0 ? M_X4
                                             : M_X;
    case KV_VERDICT_FAILED:
    case KV_VERDICT_COUNT: break;
    }
    return M_FAILED;
}

static const char *colour_of(uint8_t m)
{
    static const char *const colours[M_COUNT] = {"",         "\033[32m",   "\033[36m", "\033[33m",
                                                 "\033[35m", "\033[1;31m", "\033[32m", "\033[31m",
                                                 "\033[31m", "\033[31m",   "\033[31m"};
    return colours[m];
}

/* ---- collecting ------------------------------------------------------------------------- */

/* Marks by [src][dst], and the geometries (with params) that have them. */
typedef struct {
    uint8_t *mark;
    uint64_t hash;
    size_t titles; /* how many share it */
    char *title[TITLES_SHOWN];
} matrix;

struct kv_matrices {
    const kv_reader *r;
    kv_names layouts;
    bool *used; /* by layout */
    matrix *shared;
    size_t n, cap;
    kv_names params; /* of the geometry at hand */
    uint8_t **open;  /* its marks, by params */
    size_t n_open;
    size_t geometry;
    int64_t others[KV_CHECK_COUNT][KV_VERDICT_COUNT]; /* rows whose sides are no layouts */
};

kv_rc kv_matrices_new(const kv_reader *r, kv_matrices **out, kv_err *err)
{
    const json_t *catalogue = json_object_get(r->doc, "catalogue");
    kv_matrices *m = kv_alloc(1, sizeof *m);
    kv_rc rc = KV_OK;
    if (m == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the matrix");
    m->r = r;
    for (size_t i = 0; rc == KV_OK && i < json_array_size(catalogue); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(catalogue, i), "name"));
        uint32_t number;
        rc = kv_names_add(&m->layouts, name != NULL ? name : "?", &number, err);
    }
    m->used = kv_alloc(m->layouts.n, sizeof *m->used);
    if (rc == KV_OK && m->used == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for the matrix");
    if (rc == KV_OK)
        *out = m;
    else
        kv_matrices_free(m);
    return rc;
}

static uint64_t hash_of(const uint8_t *bytes, size_t n)
{
    uint64_t h = 0xCBF29CE484222325U;
    for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * 0x100000001B3U;
    return h;
}

static kv_rc add_title(kv_matrices *m, matrix *to, const char *params, kv_err *err)
{
    char geometry[KV_GEOMETRY_TEXT], title[KV_GEOMETRY_TEXT + KV_PARAMS_TEXT];
    if (to->titles < TITLES_SHOWN) {
        kv_geometry_print(&m->r->geometries[m->geometry], geometry);
        snprintf(title, sizeof title, "%s%s", geometry, params);
        to->title[to->titles] = kv_strdup(title);
        if (to->title[to->titles] == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the matrix");
    }
    to->titles++;
    return KV_OK;
}

/* Puts the marks (taken) among the shared matrices. */
static kv_rc share(kv_matrices *m, uint8_t *marks, const char *params, kv_err *err)
{
    const size_t bytes = m->layouts.n * m->layouts.n;
    const uint64_t hash = hash_of(marks, bytes);
    for (size_t i = 0; i < m->n; i++) {
        if (m->shared[i].hash != hash || memcmp(m->shared[i].mark, marks, bytes) != 0) continue;
        kv_free(marks);
        return add_title(m, &m->shared[i], params, err);
    }
    if (m->n == m->cap) {
        const size_t cap = m->cap > 0 ? 2 * m->cap : 16;
        matrix *grown = kv_realloc(m->shared, cap, sizeof *grown);
        if (grown == NULL) {
            kv_free(marks);
            return KV_FAIL(err, KV_ENOMEM, "no memory for %zu matrices", cap);
        }
        m->shared = grown;
        m->cap = cap;
    }
    m->shared[m->n] = (matrix){.mark = marks, .hash = hash};
    return add_title(m, &m->shared[m->n++], params, err);
}

/* Ends the geometry at hand. */
static kv_rc close_geometry(kv_matrices *m, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (size_t i = 0; i < m->n_open; i++) {
        uint8_t *marks = m->open[i];
        m->open[i] = NULL;
        if (rc == KV_OK)
            rc = share(m, marks, m->params.text[i], err);
        else
            kv_free(marks);
    }
    kv_free(m->open);
    kv_names_free(&m->params);
    m->open = NULL;
    m->n_open = 0;
    return rc;
}

/* The marks of the geometry at hand with these params. */
static kv_rc open_marks(kv_matrices *m, const json_t *params, uint8_t **out, kv_err *err)
{
    char text[KV_PARAMS_TEXT];
    uint32_t number;
    kv_params_print(params, text);
    const kv_rc rc = kv_names_add(&m->params, text, &number, err);
    if (rc != KV_OK) return rc;
    if (number == m->n_open) {
        uint8_t **grown = kv_realloc(m->open, m->n_open + 1, sizeof *grown);
        uint8_t *marks = kv_alloc(m->layouts.n * m->layouts.n, 1);
        if (grown != NULL) m->open = grown;
        if (grown == NULL || marks == NULL) {
            kv_free(marks);
            return KV_FAIL(err, KV_ENOMEM, "no memory for the matrix");
        }
        m->open[m->n_open++] = marks;
    }
    *out = m->open[number];
    return KV_OK;
}

kv_rc kv_matrices_add(kv_matrices *m, const json_t *row, const kv_view *v, kv_err *err)
{
    const uint32_t s = kv_names_find(&m->layouts, v->src), d = kv_names_find(&m->layouts, v->dst);
    uint8_t *marks = NULL;
    if (s == KV_NAMES_NONE || d == KV_NAMES_NONE) {
        for (int c = 0; c < KV_CHECK_COUNT; c++)
            if (strcmp(v->check, kv_check_name((kv_check)c)) == 0) m->others[c][v->verdict]++;
        return KV_OK;
    }
    kv_rc rc = m->n_open > 0 && m->geometry != v->geometry ? close_geometry(m, err) : KV_OK;
    m->geometry = v->geometry;
    if (rc == KV_OK) rc = open_marks(m, v->params, &marks, err);
    if (rc != KV_OK) return rc;
    m->used[s] = m->used[d] = true;
    marks[s * m->layouts.n + d] = (uint8_t)mark_of(row, v);
    return KV_OK;
}

/* ---- printing --------------------------------------------------------------------------- */

static void print_titles(const matrix *x)
{
    printf("%s\n", x->title[0]);
    if (x->titles == 1) return;
    printf("and the same at %zu more:", x->titles - 1);
    for (size_t i = 1; i < x->titles && i < TITLES_SHOWN; i++) printf(" %s", x->title[i]);
    printf("%s\n", x->titles > TITLES_SHOWN ? " ..." : "");
}

static void print_matrix(const kv_matrices *m, const matrix *x, bool colour)
{
    int width = 6, number = 0;
    for (size_t i = 0; i < m->layouts.n; i++)
        if (m->used[i] && (int)strlen(m->layouts.text[i]) > width) width = (int)strlen(m->layouts.text[i]);
    printf("%*s  to:", width + 5, "");
    for (size_t i = 0; i < m->layouts.n; i++)
        if (m->used[i]) printf(" %2d", ++number);
    printf("\n");
    number = 0;
    for (size_t s = 0; s < m->layouts.n; s++) {
        if (!m->used[s]) continue;
        printf("%2d %-*s       ", ++number, width, m->layouts.text[s]);
        for (size_t d = 0; d < m->layouts.n; d++) {
            const uint8_t cell = x->mark[s * m->layouts.n + d];
            const bool paint = colour && cell != M_NONE;
            if (!m->used[d]) continue;
            printf(" %s%2s%s", paint ? colour_of(cell) : "", s == d && cell == M_NONE ? "." : mark_text[cell],
                   paint ? "\033[0m" : "");
        }
        printf("\n");
    }
}

/* "codec: 18 NOT_EXACT, 2 REFUSED" and where such rows can be seen. */
static void print_others(const kv_matrices *m)
{
    char name[KV_TEXT_SHOWN];
    for (int c = 0; c < KV_CHECK_COUNT; c++) {
        const char *before = ": ";
        bool any = false;
        for (int v = 0; v < KV_VERDICT_COUNT; v++) {
            if (m->others[c][v] == 0) continue;
            printf("%s%s%" PRId64 " %s", any ? "" : kv_check_name((kv_check)c), before, m->others[c][v],
                   kv_verdict_name((kv_verdict)v));
            before = ", ";
            any = true;
        }
        if (!any) continue;
        if (c == KV_CHECK_CODEC || c == KV_CHECK_ATTRIBUTION)
            printf("; side by side: kvgrid codec table %s\n", kv_text_show(m->r->path, name));
        else
            printf("; one a line: --verdict\n");
    }
}

kv_rc kv_matrices_print(kv_matrices *m, bool all, bool colour, kv_err *err)
{
    const kv_rc rc = close_geometry(m, err);
    if (rc != KV_OK) return rc;
    for (size_t i = 0; all && i < m->layouts.n; i++) m->used[i] = true;
    for (size_t i = 0; i < m->n; i++) {
        print_titles(&m->shared[i]);
        print_matrix(m, &m->shared[i], colour);
        printf("\n");
    }
    if (m->n > 0)
        printf("B byte for byte, T every decoded token (only unread padding differs), ~ not exact, = the same shape "
               "under two names,\n"
               "X1 latent against heads, X2 other heads held, X4 no such shape here, ? unproven, ! failed\n");
    print_others(m);
    return KV_OK;
}

void kv_matrices_free(kv_matrices *m)
{
    if (m == NULL) return;
    for (size_t i = 0; i < m->n_open; i++) kv_free(m->open[i]);
    for (size_t i = 0; i < m->n; i++) {
        kv_free(m->shared[i].mark);
        for (size_t k = 0; k < TITLES_SHOWN; k++) kv_free(m->shared[i].title[k]);
    }
    kv_free(m->open);
    kv_free(m->shared);
    kv_free(m->used);
    kv_names_free(&m->params);
    kv_names_free(&m->layouts);
    kv_free(m);
}
