#include "grid/kv_shard_spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layouts/kv_layout_json.h"

static const char *const sends[KV_SHARD_SENDS] = {"chunks", "layers", "shard", "whole"};

const char *kv_shard_send_name(kv_shard_send s)
{
    return s < KV_SHARD_SENDS ? sends[s] : "?";
}

int64_t kv_shard_point_ranks(const kv_shard_point *p)
{
    if (p->send == KV_SHARD_ONE) return 1;
    return p->from > p->to ? p->from : p->to;
}

json_t *kv_shard_point_params_new(const kv_shard_point *p)
{
    char from[12], to[12];
    snprintf(from, sizeof from, "%" PRId32, p->from);
    snprintf(to, sizeof to, "%" PRId32, p->to);
    return json_pack("{s:s,s:s,s:s}", "from", from, "send", sends[p->send], "to", to);
}

const char *kv_shard_point_side(const kv_shard_point *p, const kv_catalogue *layouts, int side)
{
    const kv_move_point pages = {(kv_store_method)p->recipe, KV_PAGES_PAGES, KV_PAGES_PAGES};
    if (p->recipe >= 0) return kv_move_point_side(&pages, side);
    return layouts->item[side == 0 ? p->src : p->dst]->name;
}

/* ---- reading ---------------------------------------------------------------------------- */

typedef struct {
    const kv_catalogue *layouts;
    const char *where;
    kv_err *err;
    int32_t (*pair)[2]; /* of layouts */
    size_t n_pairs;
    bool recipe[KV_STORE_COUNT]; /* of sealed pages */
    int32_t size[KV_SHARD_SIZE_MAX];
    size_t n_sizes;
    bool send[KV_SHARD_SENDS];
} reader;

static kv_rc find_layout(const reader *r, const json_t *v, const char *key, int32_t *out)
{
    const char *name = json_string_value(v);
    for (size_t i = 0; name != NULL && i < r->layouts->n; i++) {
        const kv_layout *l = r->layouts->item[i];
        if (strcmp(l->name, name) != 0) continue;
        if (l->tp_size != 1)
            return KV_FAIL(r->err, KV_EFORMAT, "%s: \"%s\": %s is declared as a shard of %" PRId64 " itself", r->where,
                           key, name, l->tp_size);
        *out = (int32_t)i;
        return KV_OK;
    }
    return KV_FAIL(r->err, KV_EFORMAT, "%s: \"%s\": no layout is called \"%s\"", r->where, key,
                   name != NULL ? name : "(not a text)");
}

static kv_rc all_ordered(reader *r)
{
    const size_t n = r->layouts->n;
    r->pair = kv_alloc(n * n + 1, sizeof *r->pair);
    if (r->pair == NULL) return KV_FAIL(r->err, KV_ENOMEM, "no memory for %zu pairs", n * n);
    for (size_t s = 0; s < n; s++)
        for (size_t d = 0; d < n; d++) {
            if (r->layouts->item[s]->tp_size != 1 || r->layouts->item[d]->tp_size != 1) continue;
            r->pair[r->n_pairs][0] = (int32_t)s;
            r->pair[r->n_pairs++][1] = (int32_t)d;
        }
    return KV_OK;
}

static kv_rc listed(reader *r, const json_t *list)
{
    const size_t n = json_array_size(list);
    kv_rc rc = KV_OK;
    r->pair = kv_alloc(n, sizeof *r->pair);
    if (r->pair == NULL) return KV_FAIL(r->err, KV_ENOMEM, "no memory for %zu pairs", n);
    for (size_t i = 0; rc == KV_OK && i < n; i++) {
        const json_t *p = json_array_get(list, i);
        if (!json_is_array(p) || json_array_size(p) != 2)
            return KV_FAIL(r->err, KV_EFORMAT, "%s: \"pairs\"[%zu] must be [\"SRC\", \"DST\"]", r->where, i);
        for (int k = 0; rc == KV_OK && k < 2; k++)
            rc = find_layout(r, json_array_get(p, (size_t)k), "pairs", &r->pair[i][k]);
        for (size_t k = 0; rc == KV_OK && k < i; k++)
            if (memcmp(r->pair[k], r->pair[i], sizeof r->pair[i]) == 0)
                rc = KV_FAIL(r->err, KV_EFORMAT, "%s: \"pairs\"[%zu] stands there twice", r->where, i);
        r->n_pairs++;
    }
    return rc;
}

/* There is something to move: pairs of layouts, or sealed pages. */
static kv_rc read_pairs(reader *r, const json_t *v, bool needed)
{
    const char *word = json_string_value(v);
    if (v == NULL && !needed) return KV_OK;
    if (word != NULL && strcmp(word, "all-ordered") == 0) return all_ordered(r);
    if (json_is_array(v) && json_array_size(v) > 0) return listed(r, v);
    return KV_FAIL(r->err, KV_EFORMAT, "%s: \"pairs\" must be \"all-ordered\" or a list of [\"SRC\", \"DST\"]",
                   r->where);
}

/* {"recipes": ["kv1"], "block": 512} */
static kv_rc read_pages(reader *r, const json_t *v, kv_shard_section *out)
{
    static const char *const keys[] = {"recipes", "block", NULL};
    char where[KV_ERR_TEXT];
    kv_rc rc;
    out->block = 512;
    if (v == NULL) return KV_OK;
    snprintf(where, sizeof where, "%.500s: \"pages\"", r->where);
    KV_TRY(rc, out, kv_json_only_keys(v, keys, where, r->err));
    KV_TRY(rc, out, kv_json_get_int(v, "block", 2, 65536, where, &out->block, r->err));
    const json_t *list = json_object_get(v, "recipes");
    if ((out->block & (out->block - 1)) != 0)
        return KV_FAIL(r->err, KV_EFORMAT, "%s: \"block\" must be a power of two from 2 to 65536", where);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return KV_FAIL(r->err, KV_EFORMAT, "%s: \"recipes\" must be a list of kv1, published-serving", where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        kv_store_method m = KV_STORE_COUNT;
        if (name == NULL || !kv_store_method_parse(name, &m) || (m != KV_STORE_KV1 && m != KV_STORE_PUBLISHED_SERVING))
            return KV_FAIL(r->err, KV_EFORMAT, "%s: \"recipes\": \"%s\" has no sealed pages (kv1, published-serving)",
                           where, name != NULL ? name : "(not a text)");
        if (r->recipe[m]) return KV_FAIL(r->err, KV_EFORMAT, "%s: \"recipes\" holds \"%s\" twice", where, name);
        r->recipe[m] = true;
    }
out:
    return rc;
}

static kv_rc read_sizes(reader *r, const json_t *v)
{
    const size_t n = json_array_size(v);
    if (!json_is_array(v) || n == 0 || n > KV_SHARD_SIZE_MAX)
        return KV_FAIL(r->err, KV_EFORMAT, "%s: \"sizes\" must be a list of 1 to %d sizes", r->where,
                       KV_SHARD_SIZE_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *size = json_array_get(v, i);
        const json_int_t s = json_integer_value(size);
        if (!json_is_integer(size) || s < 1 || s > KV_SHARD_SIZE_MAX)
            return KV_FAIL(r->err, KV_EFORMAT, "%s: \"sizes\"[%zu] must be an integer from 1 to %d", r->where, i,
                           KV_SHARD_SIZE_MAX);
        for (size_t k = 0; k < r->n_sizes; k++)
            if (r->size[k] == (int32_t)s)
                return KV_FAIL(r->err, KV_EFORMAT, "%s: \"sizes\" holds %lld twice", r->where, (long long)s);
        r->size[r->n_sizes++] = (int32_t)s;
    }
    return KV_OK;
}

static kv_rc read_sends(reader *r, const json_t *v)
{
    r->send[KV_SHARD_WHOLE] = v == NULL;
    if (v == NULL) return KV_OK;
    if (!json_is_array(v) || json_array_size(v) == 0)
        return KV_FAIL(r->err, KV_EFORMAT, "%s: \"sends\" must be a list of at least one name", r->where);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        int s = 0;
        while (name != NULL && s < KV_SHARD_SENDS && strcmp(name, sends[s]) != 0) s++;
        if (name == NULL || s == KV_SHARD_SENDS)
            return KV_FAIL(r->err, KV_EFORMAT, "%s: \"sends\": \"%s\" is not known (chunks, layers, shard, whole)",
                           r->where, name != NULL ? name : "(not a text)");
        if (r->send[s]) return KV_FAIL(r->err, KV_EFORMAT, "%s: \"sends\" holds \"%s\" twice", r->where, name);
        r->send[s] = true;
    }
    return KV_OK;
}

static kv_rc read_stored(reader *r, const json_t *v, kv_shard_section *out)
{
    const char *key;
    json_t *value;
    kv_rc rc = KV_OK;
    out->n_stored = r->layouts->n;
    out->stored = kv_alloc(out->n_stored, sizeof *out->stored);
    if (out->stored == NULL) return KV_FAIL(r->err, KV_ENOMEM, "no memory for %zu layouts", out->n_stored);
    for (size_t i = 0; i < out->n_stored; i++) out->stored[i] = -1;
    if (v == NULL) return KV_OK;
    if (!json_is_object(v) || json_object_size(v) == 0)
        return KV_FAIL(r->err, KV_EFORMAT, "%s: \"stored\" must name layouts: {\"DECLARED\": \"REAL\"}", r->where);
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        json_t *name = json_string(key);
        int32_t declared = -1;
        if (name == NULL) return KV_FAIL(r->err, KV_ENOMEM, "no memory for a name");
        rc = find_layout(r, name, "stored", &declared);
        json_decref(name);
        if (rc == KV_OK) rc = find_layout(r, value, "stored", &out->stored[declared]);
        if (rc != KV_OK) return rc;
    }
    return KV_OK;
}

/* ---- points ----------------------------------------------------------------------------- */

/* A point with the texts that order rows: pair_id, then the values of params in the order of their keys. */
typedef struct {
    char id[2 * KV_NAME_MAX + 3], from[12], to[12];
    kv_shard_point point;
} named_point;

typedef struct {
    named_point *item;
    size_t n, room;
} point_list;

static int by_row(const void *a, const void *b)
{
    const named_point *x = a, *y = b;
    int order = strcmp(x->id, y->id);
    if (order == 0) order = strcmp(x->from, y->from);
    if (order == 0) order = strcmp(sends[x->point.send], sends[y->point.send]);
    return order != 0 ? order : strcmp(x->to, y->to);
}

/* Whether there is such a cell: a copy of the same layout at the same size is none; a shard alone goes to the whole. */
static bool is_point(const kv_shard_point *p)
{
    if (p->send == KV_SHARD_ONE) return p->from > 1 && p->to == 1;
    return p->src != p->dst || p->from != p->to;
}

static kv_rc add_point(const reader *r, const kv_shard_point *p, point_list *list)
{
    if (!is_point(p)) return KV_OK;
    if (list->n >= KV_SHARD_POINTS_MAX)
        return KV_FAIL(r->err, KV_EFORMAT, "%s: more than %d cells a geometry", r->where, KV_SHARD_POINTS_MAX);
    if (list->n == list->room) {
        const size_t room = list->room > 0 ? 2 * list->room : 64;
        named_point *grown = kv_realloc(list->item, room, sizeof *grown);
        if (grown == NULL) return KV_FAIL(r->err, KV_ENOMEM, "no memory for %zu cells", room);
        list->item = grown;
        list->room = room;
    }
    named_point *x = &list->item[list->n++];
    x->point = *p;
    snprintf(x->id, sizeof x->id, "%s->%s", kv_shard_point_side(p, r->layouts, 0),
             kv_shard_point_side(p, r->layouts, 1));
    snprintf(x->from, sizeof x->from, "%" PRId32, p->from);
    snprintf(x->to, sizeof x->to, "%" PRId32, p->to);
    return KV_OK;
}

/* All sizes and ways of sending of what `like` moves. */
static kv_rc add_points(const reader *r, kv_shard_point like, point_list *list)
{
    kv_rc rc = KV_OK;
    for (size_t f = 0; f < r->n_sizes; f++)
        for (size_t t = 0; t < r->n_sizes; t++)
            for (int s = 0; s < KV_SHARD_SENDS; s++) {
                like.from = r->size[f];
                like.to = r->size[t];
                like.send = s;
                if (r->send[s]) KV_TRY(rc, out, add_point(r, &like, list));
            }
out:
    return rc;
}

static kv_rc make_points(const reader *r, kv_shard_section *out)
{
    point_list list = {0};
    kv_rc rc = KV_OK;
    for (size_t i = 0; i < r->n_pairs; i++)
        KV_TRY(rc, out,
               add_points(r, (kv_shard_point){.src = r->pair[i][0], .dst = r->pair[i][1], .recipe = -1}, &list));
    for (int m = 0; m < KV_STORE_COUNT; m++)
        if (r->recipe[m]) KV_TRY(rc, out, add_points(r, (kv_shard_point){.src = -1, .dst = -1, .recipe = m}, &list));
    if (list.n > 1) qsort(list.item, list.n, sizeof *list.item, by_row);
    out->point = kv_alloc(list.n + 1, sizeof *out->point);
    if (out->point == NULL) rc = KV_FAIL(r->err, KV_ENOMEM, "no memory for %zu cells", list.n);
    for (size_t i = 0; rc == KV_OK && i < list.n; i++) out->point[out->n_points++] = list.item[i].point;
out:
    kv_free(list.item);
    return rc;
}

/* Every way of sending that is asked for has a cell. */
static kv_rc check_sends(const reader *r, const kv_shard_section *s)
{
    for (int k = 0; k < KV_SHARD_SENDS; k++) {
        bool found = !r->send[k];
        for (size_t i = 0; !found && i < s->n_points; i++) found = s->point[i].send == k;
        if (!found)
            return KV_FAIL(r->err, KV_EFORMAT, "%s: no cell sends \"%s\": pairs and sizes leave none%s", r->where,
                           sends[k], k == KV_SHARD_ONE ? " (it goes from a size above 1 to size 1)" : "");
    }
    return KV_OK;
}

kv_rc kv_shard_section_read(const json_t *v, const kv_catalogue *layouts, const char *where, kv_shard_section *out,
                            kv_err *err)
{
    static const char *const keys[] = {"pairs", "pages", "sizes", "sends", "chunk", "stored", NULL};
    char place[KV_ERR_TEXT];
    reader r = {.layouts = layouts, .where = place, .err = err};
    kv_rc rc = KV_OK;
    memset(out, 0, sizeof *out);
    if (v == NULL) return KV_OK;
    out->present = true;
    out->chunk = 16;
    snprintf(place, sizeof place, "%.500s: \"tp\"", where);
    KV_TRY(rc, out, kv_json_only_keys(v, keys, place, err));
    KV_TRY(rc, out, read_pages(&r, json_object_get(v, "pages"), out));
    KV_TRY(rc, out, read_pairs(&r, json_object_get(v, "pairs"), json_object_get(v, "pages") == NULL));
    KV_TRY(rc, out, read_sizes(&r, json_object_get(v, "sizes")));
    KV_TRY(rc, out, read_sends(&r, json_object_get(v, "sends")));
    KV_TRY(rc, out, kv_json_get_int(v, "chunk", 1, (int64_t)1 << 40, place, &out->chunk, err));
    if (json_object_get(v, "chunk") != NULL && !r.send[KV_SHARD_CHUNKS]) {
        rc = KV_FAIL(err, KV_EFORMAT, "%s: \"chunk\" without \"chunks\" among the sends", place);
        goto out;
    }
    KV_TRY(rc, out, read_stored(&r, json_object_get(v, "stored"), out));
    KV_TRY(rc, out, make_points(&r, out));
    KV_TRY(rc, out, check_sends(&r, out));
out:
    kv_free(r.pair);
    return rc;
}

void kv_shard_section_free(kv_shard_section *s)
{
    kv_free(s->point);
    kv_free(s->stored);
    memset(s, 0, sizeof *s);
}
