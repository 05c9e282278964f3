#include "grid/campaign/kv_cells.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "certs/kv_cert_names.h"

#define CELLS_MAX 100000000

bool kv_pattern_match(const char *p, const char *s)
{
    const char *star = NULL, *back = NULL;
    while (*s != '\0') {
        if (*p == '*') {
            star = p++;
            back = s;
        } else if (*p == '?' || *p == *s) {
            p++;
            s++;
        } else if (star != NULL) {
            p = star + 1;
            s = ++back;
        } else {
            return false;
        }
    }
    while (*p == '*') p++;
    return *p == '\0';
}

static kv_rc mark_selected(const json_t *select, const kv_catalogue *all, bool *chosen, const char *where, kv_err *err)
{
    for (size_t k = 0; k < json_array_size(select); k++) {
        const char *pattern = json_string_value(json_array_get(select, k));
        bool found = false;
        for (size_t i = 0; i < all->n; i++)
            if (kv_pattern_match(pattern, all->item[i]->name)) found = chosen[i] = true;
        if (!found) return KV_FAIL(err, KV_EFORMAT, "%s: \"select\": no layout is called \"%s\"", where, pattern);
    }
    return KV_OK;
}

kv_rc kv_cells_select(kv_campaign *c, kv_catalogue *all, const char *where, kv_err *err)
{
    const json_t *select = json_object_get(c->spec, "select");
    kv_rc rc = KV_OK;
    bool *chosen = kv_alloc(all->n, sizeof *chosen);
    if (chosen == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to select layouts");
    if (select == NULL)
        memset(chosen, 1, all->n * sizeof *chosen);
    else
        rc = mark_selected(select, all, chosen, where, err);
    for (size_t i = 0; rc == KV_OK && i < all->n; i++) {
        if (!chosen[i]) continue;
        kv_layout *l = all->item[i];
        kv_layout *copy = NULL;
        rc = kv_layout_new(l->json, where, &copy, err);
        if (rc == KV_OK) rc = kv_catalogue_take(&c->catalogue, copy, where, err);
    }
    kv_free(chosen);
    return rc;
}

/* ---- pairs ------------------------------------------------------------------------------ */

typedef struct {
    int32_t (*pair)[2];
    size_t n, cap;
} pair_list;

static kv_rc add_pair(pair_list *p, size_t src, size_t dst, kv_err *err)
{
    if (p->n == p->cap) {
        size_t cap = p->cap < 64 ? 64 : 2 * p->cap;
        void *grown = kv_realloc(p->pair, cap, sizeof *p->pair);
        if (grown == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu pairs", cap);
        p->pair = grown;
        p->cap = cap;
    }
    p->pair[p->n][0] = (int32_t)src;
    p->pair[p->n][1] = (int32_t)dst;
    p->n++;
    return KV_OK;
}

static kv_rc index_of(const kv_catalogue *c, const char *name, const char *where, size_t *out, kv_err *err)
{
    for (size_t i = 0; name != NULL && i < c->n; i++)
        if (strcmp(c->item[i]->name, name) == 0) {
            *out = i;
            return KV_OK;
        }
    return KV_FAIL(err, KV_EFORMAT, "%s: \"pairs\": no layout is called \"%s\"", where,
                   name != NULL ? name : "(not a text)");
}

static kv_rc all_ordered(const kv_catalogue *c, pair_list *out, kv_err *err)
{
    for (size_t s = 0; s < c->n; s++)
        for (size_t d = 0; d < c->n; d++) {
            kv_rc rc = s != d ? add_pair(out, s, d, err) : KV_OK;
            if (rc != KV_OK) return rc;
        }
    return KV_OK;
}

/* Every ordered pair of lossless layouts, then each other layout against the anchor, both ways. */
static kv_rc published(const kv_catalogue *c, const char *where, pair_list *out, kv_err *err)
{
    kv_rc rc;
    size_t anchor = 0;
    KV_TRY(rc, out, index_of(c, KV_CERT_ANCHOR, where, &anchor, err));
    for (size_t s = 0; s < c->n; s++)
        for (size_t d = 0; d < c->n; d++)
            if (s != d && c->item[s]->role == KV_ROLE_LOSSLESS && c->item[d]->role == KV_ROLE_LOSSLESS)
                KV_TRY(rc, out, add_pair(out, s, d, err));
    for (size_t i = 0; i < c->n; i++) {
        if (c->item[i]->role == KV_ROLE_LOSSLESS || i == anchor) continue;
        KV_TRY(rc, out, add_pair(out, i, anchor, err));
        KV_TRY(rc, out, add_pair(out, anchor, i, err));
    }
out:
    return rc;
}

static kv_rc listed(const kv_catalogue *c, const json_t *list, const char *where, pair_list *out, kv_err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *p = json_array_get(list, i);
        size_t s = 0, d = 0;
        kv_rc rc;
        if (!json_is_array(p) || json_array_size(p) != 2)
            return KV_FAIL(err, KV_EFORMAT, "%s: \"pairs\"[%zu] must be [\"SRC\", \"DST\"]", where, i);
        rc = index_of(c, json_string_value(json_array_get(p, 0)), where, &s, err);
        if (rc == KV_OK) rc = index_of(c, json_string_value(json_array_get(p, 1)), where, &d, err);
        if (rc != KV_OK) return rc;
        if (s == d)
            return KV_FAIL(err, KV_EFORMAT, "%s: \"pairs\"[%zu] pairs %s with itself", where, i, c->item[s]->name);
        for (size_t k = 0; k < out->n; k++)
            if (out->pair[k][0] == (int32_t)s && out->pair[k][1] == (int32_t)d)
                return KV_FAIL(err, KV_EFORMAT, "%s: the pair %s->%s stands twice", where, c->item[s]->name,
                               c->item[d]->name);
        rc = add_pair(out, s, d, err);
        if (rc != KV_OK) return rc;
    }
    return KV_OK;
}

static kv_rc read_pairs(const kv_campaign *c, const char *where, pair_list *out, kv_err *err)
{
    const json_t *v = json_object_get(c->spec, "pairs");
    const char *word = json_string_value(v);
    if (v == NULL && (c->codec.present || c->study.present || c->tp.present)) return KV_OK; /* these alone */
    if (word != NULL && strcmp(word, "all-ordered") == 0) return all_ordered(&c->catalogue, out, err);
    if (word != NULL && strcmp(word, "published") == 0) return published(&c->catalogue, where, out, err);
    if (json_is_array(v) && json_array_size(v) > 0) return listed(&c->catalogue, v, where, out, err);
    return KV_FAIL(err, KV_EFORMAT,
                   "%s: \"pairs\" must be \"all-ordered\", \"published\" or a list of [\"SRC\", \"DST\"]", where);
}

/* ---- cells ------------------------------------------------------------------------------ */

typedef struct {
    char id[KV_PAIR_ID_TEXT];
    int32_t src, dst;
} named_pair;

static int by_id(const void *a, const void *b)
{
    return strcmp(((const named_pair *)a)->id, ((const named_pair *)b)->id);
}

/* Tails in the byte order of their params ({"tail":"nan"} and so on): by name. */
static void sort_tails(const kv_campaign *c, kv_tail out[KV_TAIL_COUNT])
{
    static const kv_tail by_name[KV_TAIL_COUNT] = {KV_TAIL_NAN, KV_TAIL_STALE, KV_TAIL_ZERO};
    size_t n = 0;
    for (int i = 0; i < KV_TAIL_COUNT; i++)
        for (size_t k = 0; k < c->n_tails; k++)
            if (c->tails[k] == by_name[i]) out[n++] = by_name[i];
}

/* Whether a cell belongs to this run's part: by a hash of its number, so that parts are alike whatever the
 * pairs are (docs/certificate.md). */
static bool in_part(const kv_campaign *c, uint64_t number)
{
    const uint64_t hash = number * 2654435761U & 0xFFFFFFFFU;
    return (int64_t)(hash / 65536 % (uint64_t)c->parts) + 1 == c->part;
}

/* Number of a pair's cell; tail is the place in the sorted list of tails. */
static uint64_t pair_number(const kv_campaign *c, size_t geometry, const named_pair *p, size_t tail)
{
    const uint64_t n = c->catalogue.n;
    return ((geometry * n + (uint64_t)p->src) * n + (uint64_t)p->dst) * c->n_tails + tail;
}

/* Cells of another check at one geometry. */
static size_t points_of(const kv_campaign *c, kv_check k, size_t geometry)
{
    if (k == KV_CHECK_ATTRIBUTION) return kv_study_point_count(&c->study, c->geometries[geometry].layers);
    if (k == KV_CHECK_TP) return c->tp.n_points;
    return k == KV_CHECK_CODEC ? kv_codec_point_count(&c->codec) : kv_move_point_count(&c->codec);
}

/* Number of a cell of another check: its place among all cells of that check, those of each check far from the others. */
static uint64_t point_number(kv_check k, uint64_t place)
{
    return ((uint64_t)k + 1) * 1000003 + place;
}

static void fill_points(kv_campaign *c, kv_check k)
{
    kv_tail tails[KV_TAIL_COUNT] = {c->tails[0]};
    if (k == KV_CHECK_TP) sort_tails(c, tails);
    uint64_t place = 0;
    for (size_t g = 0; g < c->n_geometries; g++)
        for (size_t i = 0, n = points_of(c, k, g); i < n; i++, place++)
            if (in_part(c, point_number(k, place)))
                c->cells[c->n_cells++] = (kv_cell){(int32_t)k, (int32_t)i, 0, (int32_t)g, (int32_t)tails[0]};
}

/* Cells of all checks but "pair". */
static int64_t all_points(const kv_campaign *c)
{
    int64_t n = 0;
    for (int k = 0; k < KV_CHECK_COUNT; k++)
        for (size_t g = 0; k != KV_CHECK_PAIR && g < c->n_geometries && n <= CELLS_MAX; g++)
            n += (int64_t)points_of(c, (kv_check)k, g);
    return n;
}

static void fill_pairs(kv_campaign *c, const named_pair *pairs, size_t n_pairs)
{
    kv_tail tails[KV_TAIL_COUNT] = {KV_TAIL_STALE};
    sort_tails(c, tails);
    for (size_t g = 0; g < c->n_geometries; g++)
        for (size_t p = 0; p < n_pairs; p++)
            for (size_t t = 0; t < c->n_tails; t++)
                if (in_part(c, pair_number(c, g, &pairs[p], t)))
                    c->cells[c->n_cells++] =
                        (kv_cell){KV_CHECK_PAIR, pairs[p].src, pairs[p].dst, (int32_t)g, (int32_t)tails[t]};
}

static kv_rc fill_cells(kv_campaign *c, const named_pair *pairs, size_t n_pairs, const char *where, kv_err *err)
{
    int64_t n = 0;
    if (!kv_mul_i64((int64_t)n_pairs, (int64_t)c->n_tails, &n) || !kv_mul_i64(n, (int64_t)c->n_geometries, &n) ||
        !kv_add_i64(n, all_points(c), &n) || n > CELLS_MAX)
        return KV_FAIL(err, KV_EFORMAT, "%s: %zu pairs x %zu geometries are more than %d cells", where, n_pairs,
                       c->n_geometries, CELLS_MAX);
    if (n == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: the campaign has no cell (fewer than two layouts are selected)", where);
    c->cells = kv_alloc((size_t)n, sizeof *c->cells);
    if (c->cells == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " cells", n);
    for (int k = 0; k < KV_CHECK_PAIR; k++) fill_points(c, (kv_check)k);
    fill_pairs(c, pairs, n_pairs);
    fill_points(c, KV_CHECK_TP);
    if (c->n_cells == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: part %" PRId64 " of %" PRId64 " holds no cell: the campaign has %" PRId64,
                       where, c->part, c->parts, n);
    return KV_OK;
}

kv_rc kv_cells_expand(kv_campaign *c, const char *where, kv_err *err)
{
    kv_rc rc;
    pair_list list = {0};
    named_pair *named = NULL;
    KV_TRY(rc, out, read_pairs(c, where, &list, err));
    named = kv_alloc(list.n, sizeof *named);
    if (named == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for %zu pairs", list.n);
        goto out;
    }
    for (size_t i = 0; i < list.n; i++) {
        named[i].src = list.pair[i][0];
        named[i].dst = list.pair[i][1];
        snprintf(named[i].id, sizeof named[i].id, "%s->%s", c->catalogue.item[named[i].src]->name,
                 c->catalogue.item[named[i].dst]->name);
    }
    if (list.n > 1) qsort(named, list.n, sizeof *named, by_id);
    KV_TRY(rc, out, fill_cells(c, named, list.n, where, err));
out:
    kv_free(named);
    kv_free(list.pair);
    return rc;
}
