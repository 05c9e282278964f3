#include "grid/report/kv_diff.h"

#include <stdio.h>
#include <string.h>

#include "certs/kv_cert.h"
#include "grid/campaign/kv_params.h"

#define NO_ROW UINT32_MAX

const char *kv_diff_change_name(kv_diff_change c)
{
    static const char *const names[KV_DIFF_CHANGES] = {"same", "worse", "better", "new", "gone"};
    return c < KV_DIFF_CHANGES ? names[c] : "?";
}

/* ---- one side --------------------------------------------------------------------------- */

static kv_rc add_geometries(kv_diff *d, int side, const kv_geometry *g, size_t n, kv_err *err)
{
    kv_rc rc = KV_OK;
    uint32_t number;
    for (size_t i = 0; i < n; i++) {
        char text[KV_GEOMETRY_TEXT];
        kv_geometry_print(&g[i], text);
        KV_TRY(rc, out, kv_names_add(&d->geometries, text, &number, err));
        KV_TRY(rc, out, kv_names_add(&d->side[side].geometry_names, text, &number, err));
        if (number != i) {
            rc = KV_FAIL(err, KV_EFORMAT, "geometries[%zu]: %s stands twice", i, text);
            goto out;
        }
    }
out:
    return rc;
}

/* A layout of the catalogue, with the digest of what it declares. */
static kv_rc add_layout(kv_diff *d, int side, size_t at, const json_t *layout, kv_err *err)
{
    kv_diff_side *s = &d->side[side];
    const char *name = json_string_value(json_object_get(layout, "name"));
    uint32_t number;
    if (name == NULL) return KV_FAIL(err, KV_EFORMAT, "catalogue[%zu].name: a text is needed", at);
    kv_rc rc = kv_names_add(&s->layouts, name, &number, err);
    if (rc != KV_OK) return rc;
    if (number != at) return KV_FAIL(err, KV_EFORMAT, "catalogue[%zu]: %s stands twice", at, name);
    return kv_cert_layout_digest(layout, s->digest[at], err);
}

static kv_rc room_for_layouts(kv_diff_side *s, size_t n, kv_err *err)
{
    s->digest = kv_alloc(n, sizeof *s->digest);
    s->n_layouts = n;
    return s->digest != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for %zu layouts", n);
}

/* The number of what a row has beside its geometry and its grade. */
static kv_rc kind_of(kv_diff *d, const kv_view *v, uint32_t *out, kv_err *err)
{
    char params[KV_PARAMS_TEXT], text[64];
    kv_diff_kind k;
    kv_rc rc;
    kv_params_print(v->params, params);
    KV_TRY(rc, out, kv_names_add(&d->names, v->check, &k.check, err));
    KV_TRY(rc, out, kv_names_add(&d->names, v->src, &k.src, err));
    KV_TRY(rc, out, kv_names_add(&d->names, v->dst, &k.dst, err));
    KV_TRY(rc, out, kv_names_add(&d->names, params, &k.params, err));
    snprintf(text, sizeof text, "%x %x %x %x", (unsigned)k.check, (unsigned)k.src, (unsigned)k.dst, (unsigned)k.params);
    KV_TRY(rc, out, kv_names_add(&d->kind_names, text, out, err));
    if (*out == d->kind_cap) {
        const size_t cap = d->kind_cap > 0 ? 2 * d->kind_cap : 256;
        kv_diff_kind *grown = kv_realloc(d->kind, cap, sizeof *grown);
        if (grown == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to compare %zu pairs", cap);
        d->kind = grown;
        d->kind_cap = cap;
    }
    d->kind[*out] = k;
out:
    return rc;
}

static kv_rc add_row(kv_diff *d, int side, const kv_view *v, const char *geometry, kv_err *err)
{
    kv_diff_side *s = &d->side[side];
    kv_diff_row r = {.verdict = (uint8_t)v->verdict, .geometry = kv_names_find(&d->geometries, geometry)};
    const kv_rc rc = kind_of(d, v, &r.kind, err);
    if (rc != KV_OK) return rc;
    for (int i = 0; i < KV_SEEN_COUNT; i++) r.seen[i] = (uint8_t)v->seen[i];
    if (s->n == s->cap) {
        const size_t cap = s->cap > 0 ? s->cap + s->cap / 2 : 1024;
        kv_diff_row *grown = cap < NO_ROW ? kv_realloc(s->row, cap, sizeof *grown) : NULL;
        if (grown == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to compare %zu rows", cap);
        s->row = grown;
        s->cap = cap;
    }
    s->row[s->n++] = r;
    return KV_OK;
}

kv_rc kv_diff_add_reader(kv_diff *d, int side, kv_reader *r, kv_err *err)
{
    const json_t *catalogue = json_object_get(r->doc, "catalogue"), *row;
    kv_diff_side *s = &d->side[side];
    kv_rc rc;
    kv_view v;
    s->spec = json_incref(json_object_get(json_object_get(r->doc, "campaign"), "spec"));
    KV_TRY(rc, out, add_geometries(d, side, r->geometries, r->n_geometries, err));
    KV_TRY(rc, out, room_for_layouts(s, json_array_size(catalogue), err));
    for (size_t i = 0; i < s->n_layouts; i++)
        KV_TRY(rc, out, add_layout(d, side, i, json_array_get(catalogue, i), err));
    kv_reader_rewind(r);
    for (;;) {
        rc = kv_reader_next(r, &row, &v, err);
        if (rc != KV_OK || row == NULL) return rc;
        KV_TRY(rc, out, add_row(d, side, &v, s->geometry_names.text[v.geometry], err));
    }
out:
    if (rc == KV_EFORMAT) kv_err_prefix(err, "%s", r->path);
    return rc;
}

kv_rc kv_diff_add_run(kv_diff *d, const kv_campaign *c, kv_row_set rows, kv_err *err)
{
    kv_rc rc;
    d->side[KV_NEW].spec = json_incref(c->spec);
    KV_TRY(rc, out, add_geometries(d, KV_NEW, c->geometries, c->n_geometries, err));
    KV_TRY(rc, out, room_for_layouts(&d->side[KV_NEW], c->catalogue.n, err));
    for (size_t i = 0; i < c->catalogue.n; i++)
        KV_TRY(rc, out, add_layout(d, KV_NEW, i, c->catalogue.item[i]->json, err));
    for (size_t i = 0; i < c->n_cells; i++) {
        kv_row row;
        kv_view v;
        json_t *params = NULL;
        kv_row_set_get(rows, i, &row);
        rc = kv_view_of_row(c, &row, &v, &params, err);
        if (rc == KV_OK) rc = add_row(d, KV_NEW, &v, d->side[KV_NEW].geometry_names.text[v.geometry], err);
        json_decref(params);
        if (rc != KV_OK) goto out;
    }
out:
    return rc;
}

/* ---- which rows match ------------------------------------------------------------------- */

/* Geometries of NEW that stand where OLD has another, and that OLD does not have, while NEW does not have OLD's: for
 * each number in d->geometries the number of OLD's, else itself. */
static kv_rc pair_geometries(const kv_diff *d, uint32_t **out, kv_err *err)
{
    const kv_names *o = &d->side[KV_OLD].geometry_names, *n = &d->side[KV_NEW].geometry_names;
    uint32_t *as = kv_alloc(d->geometries.n, sizeof *as);
    if (as == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu geometries", d->geometries.n);
    for (size_t i = 0; i < d->geometries.n; i++) as[i] = (uint32_t)i;
    for (size_t i = 0; i < o->n && i < n->n; i++)
        if (kv_names_find(n, o->text[i]) == KV_NAMES_NONE && kv_names_find(o, n->text[i]) == KV_NAMES_NONE)
            as[kv_names_find(&d->geometries, n->text[i])] = kv_names_find(&d->geometries, o->text[i]);
    *out = as;
    return KV_OK;
}

/* Rows of one side by kind and geometry: slots hold a place + 1, 0 where free. */
typedef struct {
    const kv_diff_row *row;
    uint32_t *slot;
    size_t mask;
} finder;

/* The slot of a row like r, or the free one where it would stand. */
static size_t slot_of(const finder *f, const kv_diff_row *r)
{
    uint64_t h = ((uint64_t)r->geometry << 32 | r->kind) * 0x9E3779B97F4A7C15U;
    size_t i = (size_t)(h ^ h >> 29) & f->mask;
    for (; f->slot[i] != 0; i = (i + 1) & f->mask) {
        const kv_diff_row *o = &f->row[f->slot[i] - 1];
        if (o->kind == r->kind && o->geometry == r->geometry) break;
    }
    return i;
}

/* A row that stands twice is an error. The caller frees out->slot. */
static kv_rc find_by_key(const kv_diff *d, int side, finder *out, kv_err *err)
{
    static const char *const names[KV_SIDES] = {"old", "new"};
    const kv_diff_side *s = &d->side[side];
    size_t slots = 64;
    while (slots < 2 * s->n) slots *= 2;
    *out = (finder){s->row, kv_alloc(slots, sizeof *out->slot), slots - 1};
    if (out->slot == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to compare %zu rows", s->n);
    for (size_t i = 0; i < s->n; i++) {
        const size_t at = slot_of(out, &s->row[i]);
        const kv_diff_kind *k = &d->kind[s->row[i].kind];
        if (out->slot[at] != 0)
            return KV_FAIL(err, KV_EFORMAT, "the %s certificate has the row %s->%s at %s%s twice", names[side],
                           d->names.text[k->src], d->names.text[k->dst], d->geometries.text[s->row[i].geometry],
                           d->names.text[k->params]);
        out->slot[at] = (uint32_t)(i + 1);
    }
    return KV_OK;
}

/* ---- how they fared --------------------------------------------------------------------- */

kv_diff_change kv_diff_grade(const kv_diff_row *o, const kv_diff_row *n)
{
    /* true is more than false, false more than not made */
    static const int rank[] = {[KV_FALSE] = 1, [KV_TRUE] = 2, [KV_NULL] = 0};
    bool gained = false, lost = false;
    if (o->verdict != n->verdict)
        return n->verdict > o->verdict ? KV_DIFF_WORSE : KV_DIFF_BETTER; /* the scale is their order */
    for (int i = 0; i < KV_SEEN_COUNT; i++) {
        const int was = rank[o->seen[i]], is = rank[n->seen[i]];
        lost = lost || is < was;
        gained = gained || is > was;
    }
    return lost ? KV_DIFF_WORSE : gained ? KV_DIFF_BETTER : KV_DIFF_SAME;
}

static bool layout_changed(const kv_diff *d, const char *name)
{
    const uint32_t o = kv_names_find(&d->side[KV_OLD].layouts, name), n = kv_names_find(&d->side[KV_NEW].layouts, name);
    if (o == KV_NAMES_NONE && n == KV_NAMES_NONE) return false; /* no layout: a recipe, or the canonical tensor */
    return o == KV_NAMES_NONE || n == KV_NAMES_NONE ||
           strcmp(d->side[KV_OLD].digest[o], d->side[KV_NEW].digest[n]) != 0;
}

/* For each name: whether it is a layout declared otherwise on the two sides. */
static kv_rc find_changed(const kv_diff *d, bool **out, kv_err *err)
{
    bool *changed = kv_alloc(d->names.n, sizeof *changed);
    if (changed == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu layouts", d->names.n);
    for (size_t i = 0; i < d->names.n; i++) changed[i] = layout_changed(d, d->names.text[i]);
    *out = changed;
    return KV_OK;
}

static void add_pair(kv_diff *d, const bool *changed, const bool *moved, uint32_t o, uint32_t n)
{
    kv_diff_pair p = {{o, n}, KV_DIFF_ADDED, 0};
    char section[KV_DIFF_SECTION_TEXT];
    if (n == NO_ROW) {
        p.change = KV_DIFF_GONE;
    } else if (o != NO_ROW) {
        const kv_diff_row *r = &d->side[KV_NEW].row[n];
        p.change = (uint8_t)kv_diff_grade(&d->side[KV_OLD].row[o], r);
        const kv_diff_kind *k = &d->kind[r->kind];
        p.redeclared = (uint8_t)((changed[k->src] ? KV_DIFF_BY_SRC : 0) | (changed[k->dst] ? KV_DIFF_BY_DST : 0) |
                                 (moved[r->geometry] ? KV_DIFF_BY_GEOMETRY : 0) |
                                 (kv_diff_section_changed(d, k, section) ? KV_DIFF_BY_SECTION : 0));
        d->matched++;
        if (p.redeclared != 0) d->redeclared++;
    }
    d->counts[p.change]++;
    d->pair[d->n++] = p;
}

/* The rows of NEW with those of OLD, then what is gone. */
static kv_rc match(kv_diff *d, const bool *changed, const bool *moved, kv_err *err)
{
    const kv_diff_side *o = &d->side[KV_OLD], *n = &d->side[KV_NEW];
    finder f = {NULL, NULL, 0};
    bool *met = NULL;
    kv_rc rc = find_by_key(d, KV_NEW, &f, err); /* only whether each stands once */
    kv_free(f.slot);
    f.slot = NULL;
    KV_TRY(rc, out, rc);
    KV_TRY(rc, out, find_by_key(d, KV_OLD, &f, err));
    met = kv_alloc(o->n, sizeof *met);
    d->pair = met != NULL ? kv_alloc(o->n + n->n, sizeof *d->pair) : NULL;
    if (d->pair == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory to compare %zu rows", o->n + n->n);
        goto out;
    }
    for (size_t i = 0; i < n->n; i++) {
        const uint32_t at = f.slot[slot_of(&f, &n->row[i])];
        if (at != 0) met[at - 1] = true;
        add_pair(d, changed, moved, at != 0 ? at - 1 : NO_ROW, (uint32_t)i);
    }
    for (size_t i = 0; i < o->n; i++)
        if (!met[i]) add_pair(d, changed, moved, (uint32_t)i, NO_ROW);
out:
    kv_free(f.slot);
    kv_free(met);
    return rc;
}

/* Gives NEW's redeclared geometries OLD's number; moved[i]: old geometry i stands for another one in NEW. */
static kv_rc renumber(kv_diff *d, bool **moved, kv_err *err)
{
    uint32_t *as = NULL;
    kv_rc rc = pair_geometries(d, &as, err);
    *moved = kv_alloc(d->geometries.n, sizeof **moved);
    if (rc == KV_OK && *moved == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for %zu geometries", d->geometries.n);
    for (size_t i = 0; rc == KV_OK && i < d->side[KV_NEW].n; i++) {
        kv_diff_row *r = &d->side[KV_NEW].row[i];
        if (as[r->geometry] != r->geometry) (*moved)[as[r->geometry]] = true;
        r->geometry = as[r->geometry];
    }
    kv_free(as);
    return rc;
}

kv_rc kv_diff_compare(kv_diff *d, kv_err *err)
{
    bool *changed = NULL, *moved = NULL;
    kv_rc rc;
    KV_TRY(rc, out, find_changed(d, &changed, err));
    KV_TRY(rc, out, renumber(d, &moved, err));
    rc = match(d, changed, moved, err);
out:
    kv_free(changed);
    kv_free(moved);
    return rc;
}

bool kv_diff_is_void(const kv_diff *d)
{
    return d->matched == 0 && d->side[KV_OLD].n > 0 && d->side[KV_NEW].n > 0;
}

bool kv_diff_passes(const kv_diff *d, bool accept_redeclared)
{
    return d->counts[KV_DIFF_WORSE] == 0 && !kv_diff_is_void(d) && (accept_redeclared || d->redeclared == 0);
}

void kv_diff_free(kv_diff *d)
{
    for (int s = 0; s < KV_SIDES; s++) {
        kv_names_free(&d->side[s].geometry_names);
        kv_names_free(&d->side[s].layouts);
        kv_free(d->side[s].digest);
        json_decref(d->side[s].spec);
        kv_free(d->side[s].row);
    }
    kv_names_free(&d->names);
    kv_names_free(&d->kind_names);
    kv_free(d->kind);
    kv_names_free(&d->geometries);
    kv_free(d->pair);
    memset(d, 0, sizeof *d);
}
