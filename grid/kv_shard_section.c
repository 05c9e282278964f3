/* Reads the section `tp` of a campaign into the list of its points. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid/kv_shard_spec.h"
#include "layouts/kv_layout_json.h"

/* ---- reading ---------------------------------------------------------------------------- */

/* Which layouts are moved between which sizes. */
typedef struct {
    int32_t (*pair)[2];
    size_t n_pairs;
    int32_t size[KV_SHARD_SIZE_MAX];
    size_t n_sizes;
} moves;

typedef struct {
    const kv_catalogue *layouts;
    const char *where;
    kv_err *err;
    bool staged; /* layouts must have layers that stages can hold */
    moves shards, stages;
    bool recipe[KV_STORE_COUNT]; /* of sealed pages */
    bool send[KV_SHARD_SENDS];
} reader;

/* Layers of a layout are arrays of their own. */
static bool has_stages(const kv_layout *l)
{
    return !kv_axes_has(&l->axes[0], KV_F_L);
}

static kv_rc find_layout(const reader *r, const json_t *v, const char *key, int32_t *out)
{
    const char *name = json_string_value(v);
    for (size_t i = 0; name != NULL && i < r->layouts->n; i++) {
        const kv_layout *l = r->layouts->item[i];
        if (strcmp(l->name, name) != 0) continue;
        if (l->tp_size != 1)
            return KV_FAIL(r->err, KV_EFORMAT, "%s: \"%s\": %s is declared as a shard of %" PRId64 " itself", r->where,
                           key, name, l->tp_size);
        if (r->staged && !has_stages(l))
            return KV_FAIL(r->err, KV_EFORMAT,
                           "%s: \"%s\": %s keeps its layers in one array: it has no pipeline stages", r->where, key,
                           name);
        *out = (int32_t)i;
        return KV_OK;
    }
    return KV_FAIL(r->err, KV_EFORMAT, "%s: \"%s\": no layout is called \"%s\"", r->where, key,
                   name != NULL ? name : "(not a text)");
}

static bool is_listed(const reader *r, const kv_layout *l)
{
    return l->tp_size == 1 && (!r->staged || has_stages(l));
}

static kv_rc all_ordered(const reader *r, moves *m)
{
    const size_t n = r->layouts->n;
    m->pair = kv_alloc(n * n + 1, sizeof *m->pair);
    if (m->pair == NULL) return KV_FAIL(r->err, KV_ENOMEM, "no memory for %zu pairs", n * n);
    for (size_t s = 0; s < n; s++)
        for (size_t d = 0; d < n; d++) {
            if (!is_listed(r, r->layouts->item[s]) || !is_listed(r, r->layouts->item[d])) continue;
            m->pair[m->n_pairs][0] = (int32_t)s;
            m->pair[m->n_pairs++][1] = (int32_t)d;
        }
    return KV_OK;
}

static kv_rc listed(const reader *r, const json_t *list, moves *m)
{
    const size_t n = json_array_size(list);
    kv_rc rc = KV_OK;
    m->pair = kv_alloc(n, sizeof *m->pair);
    if (m->pair == NULL) return KV_FAIL(r->err, KV_ENOMEM, "no memory for %zu pairs", n);
    for (size_t i = 0; rc == KV_OK && i < n; i++) {
        const json_t *p = json_array_get(list, i);
        if (!json_is_array(p) || json_array_size(p) != 2)
            return KV_FAIL(r->err, KV_EFORMAT, "%s: \"pairs\"[%zu] must be [\"SRC\", \"DST\"]", r->where, i);
        for (int k = 0; rc == KV_OK && k < 2; k++)
            rc = find_layout(r, json_array_get(p, (size_t)k), "pairs", &m->pair[i][k]);
        for (size_t k = 0; rc == KV_OK && k < i; k++)
            if (memcmp(m->pair[k], m->pair[i], sizeof m->pair[i]) == 0)
                rc = KV_FAIL(r->err, KV_EFORMAT, "%s: \"pairs\"[%zu] stands there twice", r->where, i);
        m->n_pairs++;
    }
    return rc;
}

static kv_rc read_pairs(const reader *r, const json_t *v, bool needed, moves *m)
{
    const char *word = json_string_value(v);
    if (v == NULL && !needed) return KV_OK;
    if (word != NULL && strcmp(word, "all-ordered") == 0) return all_ordered(r, m);
    if (json_is_array(v) && json_array_size(v) > 0) return listed(r, v, m);
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

static kv_rc read_sizes(const reader *r, const json_t *v, moves *m)
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
        for (size_t k = 0; k < m->n_sizes; k++)
            if (m->size[k] == (int32_t)s)
                return KV_FAIL(r->err, KV_EFORMAT, "%s: \"sizes\" holds %lld twice", r->where, (long long)s);
        m->size[m->n_sizes++] = (int32_t)s;
    }
    return KV_OK;
}

/* Every split once, and no more ranks than a group can have. */
static kv_rc read_splits(const reader *r, const json_t *v, kv_shard_section *out)
{
    const size_t n = json_array_size(v);
    int32_t largest = 1;
    for (size_t i = 0; i < r->stages.n_sizes; i++)
        if (r->stages.size[i] > largest) largest = r->stages.size[i];
    if (!json_is_array(v) || n == 0 || n > KV_SHARD_SPLITS_MAX)
        return KV_FAIL(r->err, KV_EFORMAT, "%s: \"splits\" must be a list of 1 to %d splits", r->where,
                       KV_SHARD_SPLITS_MAX);
    out->split = kv_alloc(n, sizeof *out->split);
    if (out->split == NULL) return KV_FAIL(r->err, KV_ENOMEM, "no memory for %zu splits", n);
    for (size_t i = 0; i < n; i++) {
        char where[KV_ERR_TEXT];
        kv_shard_split *s = &out->split[out->n_splits++];
        snprintf(where, sizeof where, "%.500s: \"splits\"[%zu]", r->where, i);
        const kv_rc rc = kv_shard_split_read(json_array_get(v, i), where, s, r->err);
        if (rc != KV_OK) return rc;
        for (size_t k = 0; k < i; k++)
            if (strcmp(out->split[k].text, s->text) == 0)
                return KV_FAIL(r->err, KV_EFORMAT, "%s stands there twice", where);
        if (s->stages * largest > KV_SHARD_SIZE_MAX)
            return KV_FAIL(r->err, KV_EFORMAT, "%s: %" PRId32 " stages of %" PRId32 " ranks are more than %d", where,
                           s->stages, largest, KV_SHARD_SIZE_MAX);
    }
    return KV_OK;
}

/* {"pairs": [...], "splits": [2, [[0,2],[1]]], "sizes": [1, 2]} */
static kv_rc read_pipeline(reader *r, const json_t *v, kv_shard_section *out)
{
    static const char *const keys[] = {"pairs", "splits", "sizes", NULL};
    char where[KV_ERR_TEXT];
    const char *outer = r->where;
    kv_rc rc;
    if (v == NULL) return KV_OK;
    snprintf(where, sizeof where, "%.500s: \"pipeline\"", outer);
    r->where = where;
    r->staged = true;
    KV_TRY(rc, out, kv_json_only_keys(v, keys, where, r->err));
    KV_TRY(rc, out, read_pairs(r, json_object_get(v, "pairs"), true, &r->stages));
    r->stages.size[0] = 1;
    if (json_object_get(v, "sizes") != NULL)
        KV_TRY(rc, out, read_sizes(r, json_object_get(v, "sizes"), &r->stages));
    else
        r->stages.n_sizes = 1;
    rc = read_splits(r, json_object_get(v, "splits"), out);
out:
    r->where = outer;
    r->staged = false;
    return rc;
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
        while (name != NULL && s < KV_SHARD_SENDS && strcmp(name, kv_shard_send_name((kv_shard_send)s)) != 0) s++;
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
    const kv_shard_point *p = &x->point, *q = &y->point;
    int order = strcmp(x->id, y->id);
    if (order == 0) order = strcmp(x->from, y->from);
    if (order == 0) order = (p->split[0] == NULL) - (q->split[0] == NULL); /* "from_stages" comes before "send" */
    if (order == 0 && p->split[0] != NULL) order = strcmp(p->split[0]->text, q->split[0]->text);
    if (order == 0)
        order = strcmp(kv_shard_send_name((kv_shard_send)p->send), kv_shard_send_name((kv_shard_send)q->send));
    if (order == 0) order = strcmp(x->to, y->to);
    if (order == 0 && p->split[1] != NULL) order = strcmp(p->split[1]->text, q->split[1]->text);
    return order;
}

/* Whether there is such a cell: a copy of the same layout at the same size and split is none; a shard alone goes to the
 * whole. */
static bool is_point(const kv_shard_point *p)
{
    if (p->send == KV_SHARD_ONE) return p->from > 1 && p->to == 1;
    return p->src != p->dst || p->from != p->to || p->split[0] != p->split[1];
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

/* All sizes of what `like` moves. */
static kv_rc add_sizes(const reader *r, const moves *m, kv_shard_point like, point_list *list)
{
    kv_rc rc = KV_OK;
    for (size_t f = 0; f < m->n_sizes; f++)
        for (size_t t = 0; t < m->n_sizes; t++) {
            like.from = m->size[f];
            like.to = m->size[t];
            KV_TRY(rc, out, add_point(r, &like, list));
        }
out:
    return rc;
}

static kv_rc add_shards(const reader *r, kv_shard_point like, point_list *list)
{
    kv_rc rc = KV_OK;
    for (like.send = 0; like.send < KV_SHARD_SENDS; like.send++)
        if (r->send[like.send]) KV_TRY(rc, out, add_sizes(r, &r->shards, like, list));
out:
    return rc;
}

static kv_rc add_stages(const reader *r, const kv_shard_section *s, kv_shard_point like, point_list *list)
{
    kv_rc rc = KV_OK;
    like.send = KV_SHARD_WHOLE;
    for (size_t a = 0; a < s->n_splits; a++)
        for (size_t b = 0; b < s->n_splits; b++) {
            like.split[0] = &s->split[a];
            like.split[1] = &s->split[b];
            KV_TRY(rc, out, add_sizes(r, &r->stages, like, list));
        }
out:
    return rc;
}

static kv_rc make_points(const reader *r, kv_shard_section *out)
{
    kv_shard_point like = {.recipe = -1};
    point_list list = {0};
    kv_rc rc = KV_OK;
    for (size_t i = 0; i < r->shards.n_pairs; i++) {
        like.src = r->shards.pair[i][0];
        like.dst = r->shards.pair[i][1];
        KV_TRY(rc, out, add_shards(r, like, &list));
    }
    for (size_t i = 0; i < r->stages.n_pairs; i++) {
        like.src = r->stages.pair[i][0];
        like.dst = r->stages.pair[i][1];
        KV_TRY(rc, out, add_stages(r, out, like, &list));
    }
    like.src = like.dst = -1;
    for (like.recipe = 0; like.recipe < KV_STORE_COUNT; like.recipe++)
        if (r->recipe[like.recipe]) KV_TRY(rc, out, add_shards(r, like, &list));
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
                           kv_shard_send_name((kv_shard_send)k),
                           k == KV_SHARD_ONE ? " (it goes from a size above 1 to size 1)" : "");
    }
    return KV_OK;
}

kv_rc kv_shard_section_read(const json_t *v, const kv_catalogue *layouts, const char *where, kv_shard_section *out,
                            kv_err *err)
{
    static const char *const keys[] = {"pairs", "pages", "pipeline", "sizes", "sends", "chunk", "stored", NULL};
    char place[KV_ERR_TEXT];
    reader r = {.layouts = layouts, .where = place, .err = err};
    kv_rc rc = KV_OK;
    memset(out, 0, sizeof *out);
    if (v == NULL) return KV_OK;
    out->present = true;
    out->chunk = 16;
    snprintf(place, sizeof place, "%.500s: \"tp\"", where);
    KV_TRY(rc, out, kv_json_only_keys(v, keys, place, err));
    const bool pages = json_object_get(v, "pages") != NULL, stages = json_object_get(v, "pipeline") != NULL,
               pairs = json_object_get(v, "pairs") != NULL;
    KV_TRY(rc, out, read_pages(&r, json_object_get(v, "pages"), out));
    KV_TRY(rc, out, read_pairs(&r, json_object_get(v, "pairs"), !pages && !stages, &r.shards));
    if (pairs || pages || json_object_get(v, "sizes") != NULL)
        KV_TRY(rc, out, read_sizes(&r, json_object_get(v, "sizes"), &r.shards));
    if (!pairs && !pages && json_object_get(v, "sizes") != NULL) {
        rc = KV_FAIL(err, KV_EFORMAT,
                     "%s: \"sizes\" without \"pairs\" or \"pages\"; those of stages stand in "
                     "\"pipeline\"",
                     place);
        goto out;
    }
    KV_TRY(rc, out, read_pipeline(&r, json_object_get(v, "pipeline"), out));
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
    kv_free(r.shards.pair);
    kv_free(r.stages.pair);
    return rc;
}
