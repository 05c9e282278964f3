/* Rows: which cell each one is, and whether every cell has one. What a row says: kv_verify_row.c. */
#include "certs/kv_json.h"
#include "certs/kv_verify_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELLS_COUNTED ((uint64_t)1 << 32) /* a campaign of more cells has no certificate anyway */
#define MISSING_LISTED 100                /* cells without a row that are named one by one */

/* Index of the row's tail among the campaign's, or n_tails where params are not a cell's. */
static size_t find_tail(const kv_vf *v, const json_t *params)
{
    const kv_vf_campaign *c = &v->campaign;
    const char *tail = kv_vf_string(params, "tail");
    if (c->n_tails == 1) return json_object_size(params) == 0 ? 0 : 1;
    if (json_object_size(params) != 1 || tail == NULL) return c->n_tails;
    size_t t = 0;
    while (t < c->n_tails && strcmp(c->tails[t], tail) != 0) t++;
    return t;
}

static bool undeclared(kv_vf *v, size_t i, const char *key, const char *expected, const json_t *row)
{
    char actual[KV_VF_TEXT];
    kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, kv_vf_at(v, "$.rows[%zu].%s", i, key), expected,
                kv_vf_show(json_object_get(row, key), actual));
    return false;
}

/* The cell that a row is of; false (and a fault) where the campaign has no such cell. */
static bool find_cell(kv_vf *v, const json_t *row, size_t i, kv_vf_cell *out)
{
    char id[2 * 64 + 3];
    const size_t src = kv_vf_find(v, kv_vf_string(row, "src")), dst = kv_vf_find(v, kv_vf_string(row, "dst"));
    const int64_t geometry = kv_vf_number(row, "geometry");
    const size_t tail = find_tail(v, json_object_get(row, "params"));
    bool good = true;
    if (strcmp(kv_vf_string(row, "check"), "pair") != 0) good = undeclared(v, i, "check", "\"pair\"", row);
    if (src == v->n_layouts) good = undeclared(v, i, "src", "a layout of the catalogue", row);
    if (dst == v->n_layouts) good = undeclared(v, i, "dst", "a layout of the catalogue", row);
    if ((uint64_t)geometry >= v->n_geometries) good = undeclared(v, i, "geometry", "an index in geometries", row);
    if (tail >= v->campaign.n_tails) good = undeclared(v, i, "params", "parameters of a cell", row);
    if (!good) return false;
    snprintf(id, sizeof id, "%s->%s", v->layouts[src].name, v->layouts[dst].name);
    if (!kv_vf_want_text(v, KV_H11_ENGINE_UNDECLARED, kv_vf_at(v, "$.rows[%zu].pair_id", i), id,
                         json_object_get(row, "pair_id")))
        return false;
    if (!kv_vf_in_campaign(v, src, dst)) return undeclared(v, i, "pair_id", "a pair of the campaign", row);
    if (!kv_vf_in_part(v, (uint64_t)geometry, src, dst, tail))
        return undeclared(v, i, "pair_id", "a cell of this part of the campaign", row);
    *out = (kv_vf_cell){(uint32_t)geometry, (uint32_t)src, (uint32_t)dst, (uint32_t)tail, i};
    return true;
}

/* Rows stand in the order of check, geometry, pair_id, canonical params. */
static int by_place(const json_t *a, const json_t *b)
{
    const int check = strcmp(kv_vf_string(a, "check"), kv_vf_string(b, "check"));
    if (check != 0) return check;
    const int64_t ga = kv_vf_number(a, "geometry"), gb = kv_vf_number(b, "geometry");
    if (ga != gb) return ga < gb ? -1 : 1;
    const int id = strcmp(kv_vf_string(a, "pair_id"), kv_vf_string(b, "pair_id"));
    if (id != 0) return id;
    const char *ta = kv_vf_string(json_object_get(a, "params"), "tail");
    const char *tb = kv_vf_string(json_object_get(b, "params"), "tail");
    return strcmp(ta != NULL ? ta : "", tb != NULL ? tb : "");
}

static int by_cell(const void *pa, const void *pb)
{
    const kv_vf_cell *a = pa, *b = pb;
    if (a->geometry != b->geometry) return a->geometry < b->geometry ? -1 : 1;
    if (a->src != b->src) return a->src < b->src ? -1 : 1;
    if (a->dst != b->dst) return a->dst < b->dst ? -1 : 1;
    return a->tail < b->tail ? -1 : a->tail > b->tail;
}

static int by_cell_then_row(const void *pa, const void *pb)
{
    const int order = by_cell(pa, pb);
    const size_t a = ((const kv_vf_cell *)pa)->row, b = ((const kv_vf_cell *)pb)->row;
    return order != 0 ? order : a < b ? -1 : a > b;
}

/* Drops second rows of a cell from v->cells, with a fault for each, and puts false in first[row]. */
static void drop_doubles(kv_vf *v, bool *first)
{
    char text[64];
    size_t unique = 0;
    if (v->n_cells > 1) qsort(v->cells, v->n_cells, sizeof *v->cells, by_cell_then_row);
    for (size_t i = 0; i < v->n_cells; i++) {
        if (unique > 0 && by_cell(&v->cells[unique - 1], &v->cells[i]) == 0) {
            snprintf(text, sizeof text, "the same cell as row %zu", v->cells[unique - 1].row);
            kv_vf_fault(v, KV_H12_PAIR_DECLARED_TWICE, kv_vf_at(v, "$.rows[%zu]", v->cells[i].row), "each cell once",
                        text);
            first[v->cells[i].row] = false;
        } else {
            v->cells[unique++] = v->cells[i];
        }
    }
    v->n_cells = unique;
}

/* Doubled rows have their own fault and do not count as misplaced. */
static void check_order(kv_vf *v, const json_t *rows, const bool *first)
{
    const json_t *last = NULL;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (!first[i]) continue;
        if (last != NULL && by_place(last, row) > 0) {
            kv_vf_fault(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, kv_vf_at(v, "$.rows[%zu]", i),
                        "rows in the order of check, geometry, pair_id, params", kv_vf_string(row, "pair_id"));
            return; /* one misplaced row can make many others look so */
        }
        last = row;
    }
}

static void judge_rows(kv_vf *v, const json_t *rows, bool *first)
{
    for (size_t i = 0; i < json_array_size(rows) && v->rc == KV_OK; i++) {
        const json_t *row = json_array_get(rows, i);
        first[i] = true;
        if (!find_cell(v, row, i, &v->cells[v->n_cells])) continue;
        kv_vf_row(v, row, i, &v->cells[v->n_cells]);
        v->n_cells++;
    }
}

void kv_vf_rows(kv_vf *v)
{
    const json_t *rows = json_object_get(v->doc, "rows");
    const size_t n = json_array_size(rows);
    bool *first = kv_alloc(n, sizeof *first);
    v->cells = kv_alloc(n, sizeof *v->cells);
    if (v->cells == NULL || first == NULL) {
        kv_vf_no_memory(v);
    } else {
        judge_rows(v, rows, first);
        drop_doubles(v, first);
        check_order(v, rows, first);
    }
    v->report->rows = (int64_t)n;
    v->report->nothing_checked = v->report->positions == 0;
    kv_free(first);
}

/* ---- cells without a row ------------------------------------------------------------------- */

static bool has_row(const kv_vf *v, const kv_vf_cell *cell)
{
    return v->n_cells > 0 && bsearch(cell, v->cells, v->n_cells, sizeof *cell, by_cell) != NULL;
}

static void missing_fault(kv_vf *v, const kv_vf_cell *c)
{
    char text[2 * 64 + 96];
    snprintf(text, sizeof text, "%s->%s at geometry %u, tail %s", v->layouts[c->src].name, v->layouts[c->dst].name,
             c->geometry, v->campaign.tails[c->tail]);
    kv_vf_fault(v, KV_H15_CELL_MISSING, "$.rows", text, "no row");
}

/* A cell that no row is of might still have been an exact one: then finding nothing is a fault. */
static void note_possible(kv_vf *v, const kv_vf_cell *c)
{
    const kv_vf_layout *a = &v->layouts[c->src], *b = &v->layouts[c->dst];
    const kv_vf_geometry *g = &v->geometries[c->geometry];
    kv_vf_bound ba, bb;
    kv_vf_bind(a, g, 1, &ba);
    kv_vf_bind(b, g, 1, &bb);
    if (kv_vf_frontier(a, b, &ba, &bb) == KV_FRONTIER_NONE && ba.element == bb.element &&
        !kv_vf_same_descriptor(a, b, g))
        v->could_be_exact = true;
}

/* How many cells this certificate must have rows of. */
static uint64_t cells_wanted(const kv_vf *v)
{
    const kv_vf_campaign *c = &v->campaign;
    uint64_t want;
    if (__builtin_mul_overflow((uint64_t)c->n_pairs, (uint64_t)v->n_geometries, &want) ||
        __builtin_mul_overflow(want, (uint64_t)c->n_tails, &want))
        return UINT64_MAX;
    if (c->parts == 1 || want > CELLS_COUNTED) return want;
    want = 0;
    for (size_t g = 0; g < v->n_geometries; g++)
        for (size_t p = 0; p < c->n_pairs; p++)
            for (size_t t = 0; t < c->n_tails; t++) want += kv_vf_in_part(v, g, c->pairs[p].src, c->pairs[p].dst, t);
    return want;
}

void kv_vf_missing(kv_vf *v)
{
    const uint64_t n_tails = v->campaign.n_tails, want = cells_wanted(v);
    uint64_t listed = 0;
    char text[64];
    const uint64_t missing = want - v->n_cells;
    /* every step meets a cell that has a row or one that has none, so this ends early enough */
    for (uint32_t g = 0; g < v->n_geometries; g++)
        for (size_t p = 0; p < v->campaign.n_pairs; p++)
            for (uint32_t t = 0; t < n_tails; t++) {
                if (listed >= missing || listed >= MISSING_LISTED) goto listed_enough;
                const kv_vf_cell cell = {g, v->campaign.pairs[p].src, v->campaign.pairs[p].dst, t, 0};
                if (has_row(v, &cell) || !kv_vf_in_part(v, g, cell.src, cell.dst, t)) continue;
                missing_fault(v, &cell);
                note_possible(v, &cell);
                listed++;
            }
listed_enough:
    if (missing <= listed) return;
    snprintf(text, sizeof text, "%llu further cells", (unsigned long long)(missing - listed));
    kv_vf_fault(v, KV_H15_CELL_MISSING, "$.rows", text, "no row");
}
