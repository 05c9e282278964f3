/* The points of the section `tp`: every cell of a geometry, in row order. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid/campaign/kv_shard_read.h"

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

static kv_rc add_point(const kv_shard_reader *r, const kv_shard_point *p, point_list *list)
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
static kv_rc add_sizes(const kv_shard_reader *r, const kv_shard_moves *m, kv_shard_point like, point_list *list)
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

static kv_rc add_shards(const kv_shard_reader *r, kv_shard_point like, point_list *list)
{
    kv_rc rc = KV_OK;
    for (like.send = 0; like.send < KV_SHARD_SENDS; like.send++)
        if (r->send[like.send]) KV_TRY(rc, out, add_sizes(r, &r->shards, like, list));
out:
    return rc;
}

static kv_rc add_stages(const kv_shard_reader *r, const kv_shard_section *s, kv_shard_point like, point_list *list)
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

kv_rc kv_shard_points_make(const kv_shard_reader *r, kv_shard_section *out)
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
