/* campaign.spec.tp: which cells it means (docs/tp-rows.md). */
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const sends[KV_VF_SENDS] = {"chunks", "layers", "shard", "whole"};
static const kv_vf_names send_names = {sends, KV_VF_SENDS};

#define SIZE_MOST 64
#define CELLS_MOST 32768

/* ---- the section ----------------------------------------------------------------------------- */

static bool malformed(kv_vf *v, const char *key, const char *expected, const json_t *value)
{
    char actual[KV_VF_TEXT];
    kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, kv_vf_at(v, "$.campaign.spec.tp.%.64s", key), expected,
                kv_vf_show(value, actual));
    return false;
}

/* Index of a layout that is no shard itself, or n_layouts. */
static size_t find_layout(const kv_vf *v, const json_t *name)
{
    const size_t at = json_is_string(name) ? kv_vf_find(v, json_string_value(name)) : v->n_layouts;
    return at < v->n_layouts && v->layouts[at].tp_size == 1 ? at : v->n_layouts;
}

static bool read_sends(kv_vf *v, const json_t *list, bool send[KV_VF_SENDS])
{
    for (int i = 0; i < KV_VF_SENDS; i++) send[i] = list == NULL && i == KV_VF_SEND_WHOLE;
    if (list == NULL) return true;
    bool good = json_array_size(list) > 0;
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        const int at = kv_vf_name_find(send_names, json_string_value(json_array_get(list, i)));
        good = at < KV_VF_SENDS && !send[at];
        if (good) send[at] = true;
    }
    return good || malformed(v, "sends", "a list of names that are known here, each once", list);
}

static bool read_sizes(kv_vf *v, const json_t *list, int64_t size[SIZE_MOST], size_t *n)
{
    *n = json_array_size(list);
    bool good = *n >= 1 && *n <= SIZE_MOST;
    for (size_t i = 0; good && i < *n; i++) {
        size[i] = json_integer_value(json_array_get(list, i)); /* 0 for what is no number */
        good = size[i] >= 1 && size[i] <= SIZE_MOST;
        for (size_t k = 0; good && k < i; k++) good = size[k] != size[i];
    }
    if (!good) *n = 0;
    return good || malformed(v, "sizes", "a list of different numbers from 1 to 64", list);
}

static bool read_stored(kv_vf *v, const json_t *stored)
{
    const char *key;
    json_t *value;
    bool good = stored == NULL || (json_is_object(stored) && json_object_size(stored) > 0);
    json_object_foreach((json_t *)(uintptr_t)stored, key, value)
    {
        const size_t at = kv_vf_find(v, key);
        good = good && at < v->n_layouts && v->layouts[at].tp_size == 1 && find_layout(v, value) < v->n_layouts;
    }
    return good || malformed(v, "stored", "layouts by the names of layouts", stored);
}

/* The order of rows: pair_id, then the values of params in the order of their keys. */
static int by_row(const void *a, const void *b)
{
    const kv_vf_tp_cell *x = a, *y = b;
    int order = strcmp(x->id, y->id);
    if (order == 0) order = strcmp(x->sizes[0], y->sizes[0]);
    if (order == 0) order = strcmp(sends[x->send], sends[y->send]);
    return order != 0 ? order : strcmp(x->sizes[1], y->sizes[1]);
}

static const char *side_name(const kv_vf *v, size_t layout, int recipe)
{
    if (recipe == KV_VF_SERVING) return "published-serving:pages";
    return recipe == KV_VF_KV1 ? "kv1:pages" : v->layouts[layout].name;
}

/* recipe: of sealed pages on both sides, KV_VF_RECIPE_COUNT for layouts. */
static bool add_cell(kv_vf *v, const kv_vf_tp_cell *like)
{
    kv_vf_tp_section *s = &v->campaign.tp;
    if (like->send == KV_VF_SEND_SHARD ? like->from == 1 || like->to != 1
                                       : like->src == like->dst && like->from == like->to)
        return true;
    if (s->n == s->room) {
        const size_t room = s->room > 0 ? 2 * s->room : 64;
        kv_vf_tp_cell *grown = room <= 2 * CELLS_MOST ? kv_realloc(s->cell, room, sizeof *grown) : NULL;
        if (grown == NULL) return false;
        s->cell = grown;
        s->room = room;
    }
    kv_vf_tp_cell *c = &s->cell[s->n++];
    *c = *like;
    snprintf(c->id, sizeof c->id, "%.64s->%.64s", side_name(v, c->src, c->recipe), side_name(v, c->dst, c->recipe));
    snprintf(c->sizes[0], sizeof c->sizes[0], "%" PRId64, c->from);
    snprintf(c->sizes[1], sizeof c->sizes[1], "%" PRId64, c->to);
    return true;
}

/* What the cells of the section are made of. */
typedef struct {
    int64_t size[SIZE_MOST];
    size_t n_sizes;
    bool send[KV_VF_SENDS];
} axes;

/* All cells of a pair. */
static bool add_pair(kv_vf *v, size_t src, size_t dst, int recipe, const axes *x)
{
    kv_vf_tp_cell c = {.src = src, .dst = dst, .recipe = recipe};
    for (size_t f = 0; f < x->n_sizes; f++)
        for (size_t t = 0; t < x->n_sizes; t++)
            for (c.send = 0; c.send < KV_VF_SENDS; c.send++) {
                c.from = x->size[f];
                c.to = x->size[t];
                if (x->send[c.send] && !add_cell(v, &c)) return false;
            }
    return true;
}

static bool too_many(kv_vf *v)
{
    return malformed(v, "pairs", "at most 32768 cells a geometry", NULL);
}

static bool read_pairs(kv_vf *v, const json_t *pairs, const axes *x)
{
    const char *word = json_string_value(pairs);
    const bool every = word != NULL && strcmp(word, "all-ordered") == 0;
    bool good = every || json_array_size(pairs) > 0, room = true;
    for (size_t a = 0; every && room && a < v->n_layouts; a++)
        for (size_t b = 0; room && b < v->n_layouts; b++)
            if (v->layouts[a].tp_size == 1 && v->layouts[b].tp_size == 1)
                room = add_pair(v, a, b, KV_VF_RECIPE_COUNT, x);
    for (size_t i = 0; !every && good && room && i < json_array_size(pairs); i++) {
        const json_t *p = json_array_get(pairs, i);
        const size_t a = find_layout(v, json_array_get(p, 0)), b = find_layout(v, json_array_get(p, 1));
        good = json_array_size(p) == 2 && a < v->n_layouts && b < v->n_layouts;
        for (size_t k = 0; good && k < i; k++) good = !json_equal(json_array_get(pairs, k), p);
        room = !good || add_pair(v, a, b, KV_VF_RECIPE_COUNT, x);
    }
    if (!room) return too_many(v);
    return good || malformed(v, "pairs", "all-ordered, or pairs of layouts that are no shards, each once", pairs);
}

/* {"recipes": [...], "block": B}: sealed pages of the codec on both sides. */
static bool read_pages(kv_vf *v, const json_t *o, const axes *x)
{
    kv_vf_tp_section *s = &v->campaign.tp;
    const json_t *list = json_object_get(o, "recipes"), *block = json_object_get(o, "block");
    bool recipe[KV_VF_RECIPE_COUNT] = {false}, room = true;
    const size_t keys = 1 + (block != NULL);
    s->block = block != NULL ? json_integer_value(block) : 512; /* 0 for what is no number */
    bool good = json_object_size(o) == keys && json_array_size(list) > 0 && s->block >= 2 && s->block <= 65536 &&
                (s->block & (s->block - 1)) == 0;
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        const int at = kv_vf_name_find(kv_vf_recipes, json_string_value(json_array_get(list, i)));
        good = (at == KV_VF_KV1 || at == KV_VF_SERVING) && !recipe[at];
        if (good) recipe[at] = true;
    }
    if (!good)
        return malformed(v, "pages", "recipes kv1 and published-serving, each once, and a power of two as block", o);
    for (int r = 0; room && r < KV_VF_RECIPE_COUNT; r++)
        if (recipe[r]) room = add_pair(v, 0, 0, r, x);
    return room || too_many(v);
}

static bool every_send_used(kv_vf *v, const bool send[KV_VF_SENDS], const json_t *list)
{
    const kv_vf_tp_section *s = &v->campaign.tp;
    for (int k = 0; k < KV_VF_SENDS; k++) {
        bool found = !send[k];
        for (size_t i = 0; !found && i < s->n; i++) found = s->cell[i].send == k;
        if (!found) return malformed(v, "sends", "ways that a cell is sent in", list);
    }
    return true;
}

bool kv_vf_tp_section_read(kv_vf *v, const json_t *o)
{
    static const char *const keys[] = {"pairs", "pages", "sizes", "sends", "chunk", "stored"};
    kv_vf_tp_section *s = &v->campaign.tp;
    const char *key;
    json_t *value;
    axes x = {.n_sizes = 0};
    if (o == NULL) return true;
    s->present = true;
    s->chunk = 16;
    if (!json_is_object(o)) return malformed(v, "", "an object", o);
    bool good = true;
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        size_t k = 0;
        while (k < sizeof keys / sizeof *keys && strcmp(keys[k], key) != 0) k++;
        if (k == sizeof keys / sizeof *keys) good = malformed(v, key, "no such key", value);
    }
    const json_t *pairs = json_object_get(o, "pairs"), *pages = json_object_get(o, "pages");
    good = read_sends(v, json_object_get(o, "sends"), x.send) && good;
    good = read_sizes(v, json_object_get(o, "sizes"), x.size, &x.n_sizes) && good;
    good = read_stored(v, json_object_get(o, "stored")) && good;
    const json_t *chunk = json_object_get(o, "chunk");
    if (chunk != NULL) s->chunk = json_integer_value(chunk);
    if (chunk != NULL &&
        (!x.send[KV_VF_SEND_CHUNKS] || !json_is_integer(chunk) || s->chunk < 1 || s->chunk > (int64_t)1 << 40))
        good = malformed(v, "chunk", "a number of tokens, where chunks are sent", chunk);
    if (good && pages != NULL) good = read_pages(v, pages, &x);
    if (good && (pairs != NULL || pages == NULL)) good = read_pairs(v, pairs, &x);
    good = good && every_send_used(v, x.send, json_object_get(o, "sends"));
    if (s->n > CELLS_MOST) good = too_many(v);
    if (s->n > 1) qsort(s->cell, s->n, sizeof *s->cell, by_row);
    return good;
}

/* ---- the cell of a row ------------------------------------------------------------------------ */

uint32_t kv_vf_tp_find(const kv_vf *v, const json_t *row, kv_vf_point *p)
{
    const kv_vf_tp_section *s = &v->campaign.tp;
    const json_t *params = json_object_get(row, "params");
    const char *from = kv_vf_string(params, "from"), *to = kv_vf_string(params, "to");
    const char *src = kv_vf_string(row, "src"), *dst = kv_vf_string(row, "dst");
    kv_vf_tp_cell key = {.send = kv_vf_name_find(send_names, kv_vf_string(params, "send"))};
    if (json_object_size(params) != 3 || from == NULL || key.send == KV_VF_SENDS || to == NULL || s->n == 0) return 0;
    if (strlen(src) > 64 || strlen(dst) > 64 || strlen(from) > 2 || strlen(to) > 2) return 0;
    snprintf(key.id, sizeof key.id, "%s->%s", src, dst);
    snprintf(key.sizes[0], sizeof key.sizes[0], "%s", from);
    snprintf(key.sizes[1], sizeof key.sizes[1], "%s", to);
    const kv_vf_tp_cell *found = bsearch(&key, s->cell, s->n, sizeof key, by_row);
    if (found == NULL || strcmp(side_name(v, found->src, found->recipe), src) != 0) return 0;
    p->tp = found;
    return (uint32_t)(found - s->cell) + 1;
}

const char *kv_vf_tp_name(const kv_vf *v, uint64_t place)
{
    return v->campaign.tp.cell[place].id;
}
