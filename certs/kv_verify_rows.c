/* Rows: which cell each one is, and whether every cell has one. What a row says: kv_verify_row.c. */
#include "certs/kv_json.h"
#include "certs/kv_rows.h"
#include "certs/kv_verify_int.h"

#include <stdio.h>
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
static bool find_pair_cell(kv_vf *v, const json_t *row, size_t i, kv_vf_cell *out)
{
    char id[2 * 64 + 3];
    const size_t src = kv_vf_find(v, kv_vf_string(row, "src")), dst = kv_vf_find(v, kv_vf_string(row, "dst"));
    const int64_t geometry = kv_vf_number(row, "geometry");
    const size_t tail = find_tail(v, json_object_get(row, "params"));
    bool good = true;
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
    *out = (kv_vf_cell){(uint32_t)geometry, (uint32_t)src, (uint32_t)dst, (uint32_t)tail, KV_VF_PAIR, {0}};
    return true;
}

static bool find_cell(kv_vf *v, const json_t *row, size_t i, kv_vf_cell *out)
{
    kv_vf_check check;
    if (!kv_vf_check_parse(kv_vf_string(row, "check"), &check))
        return undeclared(v, i, "check", "attribution, codec, move, pair or tp", row);
    return check == KV_VF_PAIR ? find_pair_cell(v, row, i, out) : kv_vf_point_find(v, row, i, check, out);
}

/* By the bytes of their canonical form. */
static int by_bytes(kv_vf *v, const json_t *a, const json_t *b)
{
    kv_buf text[2] = {{0}, {0}};
    int order = 0;
    if (json_object_size(a) + json_object_size(b) == 0) return 0;
    kv_rc rc = kv_json_write(a, &text[0], NULL);
    if (rc == KV_OK) rc = kv_json_write(b, &text[1], NULL);
    if (rc == KV_OK) order = strcmp(text[0].data, text[1].data); /* no byte of it is 0 */
    if (rc == KV_ENOMEM) kv_vf_no_memory(v);
    for (int i = 0; i < 2; i++) kv_buf_free(&text[i]);
    return order;
}

/* Rows stand in the order of check, geometry, pair_id, canonical params. */
static int by_place(kv_vf *v, const json_t *a, const json_t *b)
{
    const int check = strcmp(kv_vf_string(a, "check"), kv_vf_string(b, "check"));
    if (check != 0) return check;
    const int64_t ga = kv_vf_number(a, "geometry"), gb = kv_vf_number(b, "geometry");
    if (ga != gb) return ga < gb ? -1 : 1;
    const int id = strcmp(kv_vf_string(a, "pair_id"), kv_vf_string(b, "pair_id"));
    if (id != 0) return id;
    return by_bytes(v, json_object_get(a, "params"), json_object_get(b, "params"));
}

/* How far the rows have been read. */
typedef struct {
    json_t *last; /* the row before, doubles left out */
    bool judge;   /* the declarations, and all rows so far, are of the right types */
    bool misplaced;
} walk;

/* One misplaced row can make many others look so: only the first is told. */
static void check_order(kv_vf *v, walk *w, const json_t *row, size_t i)
{
    if (w->last != NULL && !w->misplaced && by_place(v, w->last, row) > 0) {
        kv_vf_fault(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, kv_vf_at(v, "$.rows[%zu]", i),
                    "rows in the order of check, geometry, pair_id, params", kv_vf_string(row, "pair_id"));
        w->misplaced = true;
    }
    json_decref(w->last);
    w->last = json_incref((json_t *)(uintptr_t)row); /* takes a reference only */
}

static void judge_row(kv_vf *v, walk *w, const json_t *row, size_t i)
{
    char text[64];
    kv_vf_cell cell;
    size_t first;
    if (find_cell(v, row, i, &cell)) {
        v->seen.check[cell.check] = true;
        kv_vf_row(v, row, i, &cell);
        if (!kv_vf_cells_add(v, &cell, i, &first)) {
            snprintf(text, sizeof text, "the same cell as row %zu", first);
            kv_vf_fault(v, KV_H12_PAIR_DECLARED_TWICE, kv_vf_at(v, "$.rows[%zu]", i), "each cell once", text);
            return; /* a fault of its own: it does not count as misplaced */
        }
    }
    check_order(v, w, row, i);
}

/* The row file ended, and is not the one that the document names. */
static void check_file(kv_vf *v, const kv_rows *rows)
{
    char expected[32], actual[32];
    kv_rows_sum found;
    const kv_rows_sum *want = kv_rows_declared_view(rows);
    const json_t *file = json_object_get(v->doc, "rows_file");
    kv_rows_found(rows, &found);
    const uint64_t counts[2][2] = {{want->count, found.count}, {want->bytes, found.bytes}};
    for (int i = 0; i < 2; i++) {
        if (counts[i][0] == counts[i][1]) continue;
        snprintf(expected, sizeof expected, "%llu", (unsigned long long)counts[i][1]);
        snprintf(actual, sizeof actual, "%llu", (unsigned long long)counts[i][0]);
        kv_vf_fault(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, i == 0 ? "$.rows_file.count" : "$.rows_file.bytes", expected,
                    actual);
    }
    (void)kv_vf_want_text(v, KV_H1_SIGNATURE_INVALID, "$.rows_file.merkle_root", found.root,
                          json_object_get(file, "merkle_root"));
}

/* One row after another; false where one cannot be read, with what is wrong in *err. */
static kv_rc walk_rows(kv_vf *v, walk *w, kv_rows *rows, kv_err *err)
{
    for (size_t i = 0; v->rc == KV_OK; i++) {
        const json_t *row;
        kv_rc rc = kv_rows_next(rows, &row, err);
        if (rc != KV_OK || row == NULL) return rc;
        v->n_rows++;
        if (kv_rows_in_file(rows) && !kv_vf_row_shape(v, row, i)) w->judge = false;
        if (w->judge) judge_row(v, w, row, i);
    }
    return v->rc;
}

bool kv_vf_rows(kv_vf *v, bool judge)
{
    walk w = {.judge = judge};
    kv_rows *rows = NULL;
    kv_err err = {0};
    if (!judge && json_object_get(v->doc, "rows_file") == NULL) return false;
    kv_rc rc = kv_rows_open(v->doc, v->doc_path, &rows, &err);
    if (rc == KV_OK) rc = walk_rows(v, &w, rows, &err);
    json_decref(w.last);
    if (rc == KV_ENOMEM)
        kv_vf_no_memory(v);
    else if (rc == KV_ESIG)
        check_file(v, rows);
    else if (rc != KV_OK)
        kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, kv_vf_at(v, "$.rows[%lld]", (long long)v->n_rows),
                    "a row file of canonical rows, each with its newline", err.text);
    kv_rows_close(rows);
    v->report->rows = judge ? v->n_rows : 0;
    v->report->nothing_checked = v->report->positions == 0 && !v->seen.measured;
    return w.judge && (rc == KV_OK || rc == KV_ESIG);
}

/* ---- cells without a row ------------------------------------------------------------------- */

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

/* How many cells of the pairs this certificate must have rows of. */
static uint64_t pairs_wanted(const kv_vf *v)
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

/* And of all checks. */
static uint64_t cells_wanted(const kv_vf *v)
{
    uint64_t want = 0;
    for (int k = 0; k < KV_VF_CHECK_COUNT; k++)
        for (size_t g = 0; k != KV_VF_PAIR && g < v->n_geometries; g++) {
            const kv_vf_check check = (kv_vf_check)k;
            const uint64_t n = kv_vf_point_count(v, check, g);
            if (v->campaign.parts == 1) want += n;
            for (uint64_t i = 0; i < n && v->campaign.parts > 1; i++) want += kv_vf_point_in_part(v, check, g, i);
        }
    const uint64_t pairs = pairs_wanted(v);
    return __builtin_add_overflow(want, pairs, &want) ? UINT64_MAX : want;
}

/* Tells cells of pairs without a row, until `listed` is as many as are missing or can be told. */
static void missing_pairs(kv_vf *v, uint64_t most, uint64_t *listed)
{
    /* every step meets a cell that has a row or one that has none, so this ends early enough */
    for (uint32_t g = 0; g < v->n_geometries; g++)
        for (size_t p = 0; p < v->campaign.n_pairs; p++)
            for (uint32_t t = 0; t < v->campaign.n_tails; t++) {
                if (*listed >= most) return;
                const kv_vf_cell cell = {g, v->campaign.pairs[p].src, v->campaign.pairs[p].dst, t, KV_VF_PAIR, {0}};
                if (kv_vf_cells_has(v, &cell) || !kv_vf_in_part(v, g, cell.src, cell.dst, t)) continue;
                missing_fault(v, &cell);
                note_possible(v, &cell);
                ++*listed;
            }
}

static void missing_points(kv_vf *v, kv_vf_check check, uint64_t most, uint64_t *listed)
{
    for (uint32_t g = 0; g < v->n_geometries; g++)
        for (uint32_t i = 0, n = (uint32_t)kv_vf_point_count(v, check, g); i < n; i++) {
            if (*listed >= most) return;
            const kv_vf_cell cell = {.geometry = g, .src = i, .check = check};
            if (kv_vf_cells_has(v, &cell) || !kv_vf_point_in_part(v, check, g, i)) continue;
            kv_vf_point_missing(v, check, g, i);
            ++*listed;
        }
}

void kv_vf_missing(kv_vf *v)
{
    const uint64_t missing = cells_wanted(v) - v->cells.n, most = missing < MISSING_LISTED ? missing : MISSING_LISTED;
    uint64_t listed = 0;
    char text[64];
    for (int k = 0; k < KV_VF_PAIR; k++) missing_points(v, (kv_vf_check)k, most, &listed);
    missing_pairs(v, most, &listed);
    missing_points(v, KV_VF_TP, most, &listed);
    if (missing <= listed) return;
    snprintf(text, sizeof text, "%llu further cells", (unsigned long long)(missing - listed));
    kv_vf_fault(v, KV_H15_CELL_MISSING, "$.rows", text, "no row");
}
