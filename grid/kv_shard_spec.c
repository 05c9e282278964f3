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

/* ---- reading ---------------------------------------------------------------------------- */

typedef struct {
    const kv_catalogue *layouts;
    const char *where;
    kv_err *err;
    int32_t (*pair)[2];
    size_t n_pairs;
    int32_t size[KV_SHARD_SIZE_MAX]; /* by their texts */
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

static kv_rc read_pairs(reader *r, const json_t *v)
{
    const char *word = json_string_value(v);
    if (word != NULL && strcmp(word, "all-ordered") == 0) return all_ordered(r);
    if (json_is_array(v) && json_array_size(v) > 0) return listed(r, v);
    return KV_FAIL(r->err, KV_EFORMAT, "%s: \"pairs\" must be \"all-ordered\" or a list of [\"SRC\", \"DST\"]",
                   r->where);
}

static int by_text(const void *a, const void *b)
{
    char x[12], y[12];
    snprintf(x, sizeof x, "%" PRId32, *(const int32_t *)a);
    snprintf(y, sizeof y, "%" PRId32, *(const int32_t *)b);
    return strcmp(x, y);
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
    qsort(r->size, n, sizeof *r->size, by_text);
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

/* A pair by its id, for the order of rows. */
typedef struct {
    char id[2 * KV_NAME_MAX + 3];
    int32_t src, dst;
} named_pair;

static int by_id(const void *a, const void *b)
{
    return strcmp(((const named_pair *)a)->id, ((const named_pair *)b)->id);
}

/* Whether there is such a cell: a copy of the same layout at the same size is none; a shard alone goes to the whole. */
static bool is_point(const kv_shard_point *p)
{
    if (p->send == KV_SHARD_ONE) return p->from > 1 && p->to == 1;
    return p->src != p->dst || p->from != p->to;
}

static void add_points(const reader *r, const named_pair *pair, kv_shard_section *out)
{
    for (size_t f = 0; f < r->n_sizes; f++)
        for (int s = 0; s < KV_SHARD_SENDS; s++)
            for (size_t t = 0; r->send[s] && t < r->n_sizes; t++) {
                const kv_shard_point p = {pair->src, pair->dst, r->size[f], r->size[t], s};
                if (is_point(&p)) out->point[out->n_points++] = p;
            }
}

/* In the order of pair_id, then of the params {"from","send","to"}. */
static kv_rc make_points(const reader *r, kv_shard_section *out)
{
    const size_t most = r->n_sizes * r->n_sizes * KV_SHARD_SENDS;
    named_pair *named = kv_alloc(r->n_pairs + 1, sizeof *named);
    kv_rc rc = KV_OK;
    if (r->n_pairs > KV_SHARD_POINTS_MAX)
        rc = KV_FAIL(r->err, KV_EFORMAT, "%s: %zu pairs are too many", r->where, r->n_pairs);
    else if (named == NULL || (out->point = kv_alloc(r->n_pairs * most + 1, sizeof *out->point)) == NULL)
        rc = KV_FAIL(r->err, KV_ENOMEM, "no memory for %zu pairs", r->n_pairs);
    for (size_t i = 0; rc == KV_OK && i < r->n_pairs; i++) {
        named[i].src = r->pair[i][0];
        named[i].dst = r->pair[i][1];
        snprintf(named[i].id, sizeof named[i].id, "%s->%s", r->layouts->item[named[i].src]->name,
                 r->layouts->item[named[i].dst]->name);
    }
    if (rc == KV_OK) qsort(named, r->n_pairs, sizeof *named, by_id);
    for (size_t i = 0; rc == KV_OK && i < r->n_pairs; i++) add_points(r, &named[i], out);
    kv_free(named);
    if (rc == KV_OK && out->n_points > KV_SHARD_POINTS_MAX)
        rc = KV_FAIL(r->err, KV_EFORMAT, "%s: %zu cells a geometry are more than %d", r->where, out->n_points,
                     KV_SHARD_POINTS_MAX);
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
    static const char *const keys[] = {"pairs", "sizes", "sends", "chunk", "stored", NULL};
    char place[KV_ERR_TEXT];
    reader r = {.layouts = layouts, .where = place, .err = err};
    kv_rc rc = KV_OK;
    memset(out, 0, sizeof *out);
    if (v == NULL) return KV_OK;
    out->present = true;
    out->chunk = 16;
    snprintf(place, sizeof place, "%.500s: \"tp\"", where);
    KV_TRY(rc, out, kv_json_only_keys(v, keys, place, err));
    KV_TRY(rc, out, read_pairs(&r, json_object_get(v, "pairs")));
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
