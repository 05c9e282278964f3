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
    if (order == 0) order = (x->split[0] == NULL) - (y->split[0] == NULL); /* "from_stages" comes before "send" */
    if (order == 0 && x->split[0] != NULL) order = strcmp(x->split[0]->text, y->split[0]->text);
    if (order == 0) order = strcmp(sends[x->send], sends[y->send]);
    if (order == 0) order = strcmp(x->sizes[1], y->sizes[1]);
    if (order == 0 && x->split[1] != NULL) order = strcmp(x->split[1]->text, y->split[1]->text);
    return order;
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
    if (like->send == KV_VF_SEND_SHARD
            ? like->from == 1 || like->to != 1
            : like->src == like->dst && like->from == like->to && like->split[0] == like->split[1])
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

/* All cells of a pair on stages. */
static bool add_staged(kv_vf *v, size_t src, size_t dst, const axes *x)
{
    const kv_vf_tp_section *s = &v->campaign.tp;
    for (size_t a = 0; a < s->n_splits; a++)
        for (size_t b = 0; b < s->n_splits; b++)
            for (size_t i = 0; i < x->n_sizes * x->n_sizes; i++) {
                const kv_vf_tp_cell c = {.src = src,
                                         .dst = dst,
                                         .recipe = KV_VF_RECIPE_COUNT,
                                         .from = x->size[i / x->n_sizes],
                                         .to = x->size[i % x->n_sizes],
                                         .send = KV_VF_SEND_WHOLE,
                                         .split = {&s->split[a], &s->split[b]}};
                if (!add_cell(v, &c)) return false;
            }
    return true;
}

/* A layout that can be named here: of stages, its layers are arrays of their own. */
static bool is_whole(const kv_vf *v, size_t at, bool staged)
{
    return at < v->n_layouts && v->layouts[at].tp_size == 1 && !(staged && kv_vf_layout_has(&v->layouts[at], KV_VF_L));
}

static bool add_any(kv_vf *v, size_t src, size_t dst, bool staged, const axes *x)
{
    return staged ? add_staged(v, src, dst, x) : add_pair(v, src, dst, KV_VF_RECIPE_COUNT, x);
}

static bool read_pairs(kv_vf *v, const json_t *pairs, bool staged, const axes *x)
{
    const char *word = json_string_value(pairs);
    const bool every = word != NULL && strcmp(word, "all-ordered") == 0;
    bool good = every || json_array_size(pairs) > 0, room = true;
    for (size_t a = 0; every && room && a < v->n_layouts; a++)
        for (size_t b = 0; room && b < v->n_layouts; b++)
            if (is_whole(v, a, staged) && is_whole(v, b, staged)) room = add_any(v, a, b, staged, x);
    for (size_t i = 0; !every && good && room && i < json_array_size(pairs); i++) {
        const json_t *p = json_array_get(pairs, i);
        const size_t a = find_layout(v, json_array_get(p, 0)), b = find_layout(v, json_array_get(p, 1));
        good = json_array_size(p) == 2 && is_whole(v, a, staged) && is_whole(v, b, staged);
        for (size_t k = 0; good && k < i; k++) good = !json_equal(json_array_get(pairs, k), p);
        room = !good || add_any(v, a, b, staged, x);
    }
    if (!room) return too_many(v);
    return good ||
           malformed(v, staged ? "pipeline.pairs" : "pairs",
                     "all-ordered, or pairs of layouts that are no shards (and can have stages), each once", pairs);
}

/* Lists of at least one layer, each layer once in all of them. */
static bool split_good(const json_t *list)
{
    size_t n = 0;
    for (size_t s = 0; s < json_array_size(list); s++) {
        const json_t *stage = json_array_get(list, s);
        n += json_array_size(stage);
        if (json_array_size(stage) == 0 || n > 512) return false;
        for (size_t i = 0; i < json_array_size(stage); i++) {
            const json_t *layer = json_array_get(stage, i);
            if (!json_is_integer(layer) || json_integer_value(layer) < 0 || json_integer_value(layer) > 65535)
                return false;
            for (size_t t = 0; t <= s; t++)
                for (size_t k = 0; k < json_array_size(json_array_get(list, t)) && (t < s || k < i); k++)
                    if (json_equal(json_array_get(json_array_get(list, t), k), layer)) return false;
        }
    }
    return true;
}

static bool read_splits(kv_vf *v, const json_t *list, const axes *x)
{
    kv_vf_tp_section *s = &v->campaign.tp;
    int64_t largest = 1;
    for (size_t i = 0; i < x->n_sizes; i++)
        if (x->size[i] > largest) largest = x->size[i];
    bool good = json_array_size(list) >= 1 && json_array_size(list) <= KV_VF_SPLITS_MAX;
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        kv_vf_split *split = &s->split[s->n_splits];
        *split = (kv_vf_split){.list = json_is_array(o) ? o : NULL};
        split->stages = split->list != NULL ? (int64_t)json_array_size(o) : json_integer_value(o);
        good = split->stages >= 1 && split->stages * largest <= SIZE_MOST && split_good(split->list);
        for (size_t k = 0; good && k < i; k++) good = !json_equal(json_array_get(list, k), o);
        if (!good) break;
        split->text = json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY);
        if (split->text == NULL) {
            kv_vf_no_memory(v);
            return false;
        }
        s->n_splits++;
    }
    return good ||
           malformed(v, "pipeline.splits",
                     "1 to 16 numbers of stages or lists of stages, each once, that take at most 64 ranks", list);
}

/* {"pairs": [...], "splits": [...], "sizes": [...]}: layers over pipeline stages. */
static bool read_pipeline(kv_vf *v, const json_t *o)
{
    axes x = {.size = {1}, .n_sizes = 1};
    const json_t *sizes = json_object_get(o, "sizes");
    if (json_object_size(o) != (size_t)2 + (sizes != NULL) || json_object_get(o, "pairs") == NULL ||
        json_object_get(o, "splits") == NULL)
        return malformed(v, "pipeline", "pairs and splits, and sizes or not", o);
    if (sizes != NULL && !read_sizes(v, sizes, x.size, &x.n_sizes)) return false;
    return read_splits(v, json_object_get(o, "splits"), &x) && read_pairs(v, json_object_get(o, "pairs"), true, &x);
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
    static const char *const keys[] = {"pairs", "pages", "pipeline", "sizes", "sends", "chunk", "stored"};
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
    const json_t *pairs = json_object_get(o, "pairs"), *pages = json_object_get(o, "pages"),
                 *stages = json_object_get(o, "pipeline"), *sizes = json_object_get(o, "sizes");
    const bool shards = pairs != NULL || pages != NULL || stages == NULL;
    good = read_sends(v, json_object_get(o, "sends"), x.send) && good;
    if (shards)
        good = read_sizes(v, sizes, x.size, &x.n_sizes) && good;
    else if (sizes != NULL)
        good = malformed(v, "sizes", "no such key without pairs or pages", sizes);
    good = read_stored(v, json_object_get(o, "stored")) && good;
    const json_t *chunk = json_object_get(o, "chunk");
    if (chunk != NULL) s->chunk = json_integer_value(chunk);
    if (chunk != NULL &&
        (!x.send[KV_VF_SEND_CHUNKS] || !json_is_integer(chunk) || s->chunk < 1 || s->chunk > (int64_t)1 << 40))
        good = malformed(v, "chunk", "a number of tokens, where chunks are sent", chunk);
    if (good && pages != NULL) good = read_pages(v, pages, &x);
    if (good && stages != NULL) good = read_pipeline(v, stages);
    if (good && (pairs != NULL || (pages == NULL && stages == NULL))) good = read_pairs(v, pairs, false, &x);
    good = good && every_send_used(v, x.send, json_object_get(o, "sends"));
    if (s->n > CELLS_MOST) good = too_many(v);
    if (s->n > 1) qsort(s->cell, s->n, sizeof *s->cell, by_row);
    return good;
}

/* ---- the cell of a row ------------------------------------------------------------------------ */

static const kv_vf_split *find_split(const kv_vf_tp_section *s, const char *text)
{
    for (size_t i = 0; i < s->n_splits; i++)
        if (strcmp(s->split[i].text, text) == 0) return &s->split[i];
    return NULL;
}

uint32_t kv_vf_tp_find(const kv_vf *v, const json_t *row, kv_vf_point *p)
{
    const kv_vf_tp_section *s = &v->campaign.tp;
    const json_t *params = json_object_get(row, "params");
    const char *from = kv_vf_string(params, "from"), *to = kv_vf_string(params, "to");
    const char *src = kv_vf_string(row, "src"), *dst = kv_vf_string(row, "dst");
    const char *stages[2] = {kv_vf_string(params, "from_stages"), kv_vf_string(params, "to_stages")};
    kv_vf_tp_cell key = {.send = kv_vf_name_find(send_names, kv_vf_string(params, "send"))};
    const bool staged = stages[0] != NULL && stages[1] != NULL;
    if (json_object_size(params) != (staged ? 5 : 3) || from == NULL || key.send == KV_VF_SENDS || to == NULL ||
        s->n == 0)
        return 0;
    if (strlen(src) > 64 || strlen(dst) > 64 || strlen(from) > 2 || strlen(to) > 2) return 0;
    snprintf(key.id, sizeof key.id, "%s->%s", src, dst);
    snprintf(key.sizes[0], sizeof key.sizes[0], "%s", from);
    snprintf(key.sizes[1], sizeof key.sizes[1], "%s", to);
    for (int i = 0; staged && i < 2; i++) {
        key.split[i] = find_split(s, stages[i]);
        if (key.split[i] == NULL) return 0;
    }
    const kv_vf_tp_cell *found = bsearch(&key, s->cell, s->n, sizeof key, by_row);
    if (found == NULL || strcmp(side_name(v, found->src, found->recipe), src) != 0) return 0;
    p->tp = found;
    return (uint32_t)(found - s->cell) + 1;
}

const char *kv_vf_tp_name(const kv_vf *v, uint64_t place)
{
    return v->campaign.tp.cell[place].id;
}

void kv_vf_tp_free(kv_vf_tp_section *s)
{
    for (size_t i = 0; i < s->n_splits; i++) free(s->split[i].text); /* jansson's */
    kv_free(s->cell);
}
