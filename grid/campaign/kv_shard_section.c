/* Reads the section `tp` of a campaign into the list of its points. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/campaign/kv_shard_read.h"
#include "layouts/kv_layout_json.h"

/* ---- reading ---------------------------------------------------------------------------- */

/* Layers of a layout are arrays of their own. */
static bool has_stages(const kv_layout *l)
{
    return !kv_axes_has(&l->axes[0], KV_F_L);
}

static kv_rc find_layout(const kv_shard_reader *r, const json_t *v, const char *key, int32_t *out)
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

static bool is_listed(const kv_shard_reader *r, const kv_layout *l)
{
    return l->tp_size == 1 && (!r->staged || has_stages(l));
}

static kv_rc all_ordered(const kv_shard_reader *r, kv_shard_moves *m)
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

static kv_rc listed(const kv_shard_reader *r, const json_t *list, kv_shard_moves *m)
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

static kv_rc read_pairs(const kv_shard_reader *r, const json_t *v, bool needed, kv_shard_moves *m)
{
    const char *word = json_string_value(v);
    if (v == NULL && !needed) return KV_OK;
    if (word != NULL && strcmp(word, "all-ordered") == 0) return all_ordered(r, m);
    if (json_is_array(v) && json_array_size(v) > 0) return listed(r, v, m);
    return KV_FAIL(r->err, KV_EFORMAT, "%s: \"pairs\" must be \"all-ordered\" or a list of [\"SRC\", \"DST\"]",
                   r->where);
}

/* {"recipes": ["kv1"], "block": 512} */
static kv_rc read_pages(kv_shard_reader *r, const json_t *v, kv_shard_section *out)
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

static kv_rc read_sizes(const kv_shard_reader *r, const json_t *v, kv_shard_moves *m)
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
static kv_rc read_splits(const kv_shard_reader *r, const json_t *v, kv_shard_section *out)
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
static kv_rc read_pipeline(kv_shard_reader *r, const json_t *v, kv_shard_section *out)
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

static kv_rc read_sends(kv_shard_reader *r, const json_t *v)
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

static kv_rc read_stored(kv_shard_reader *r, const json_t *v, kv_shard_section *out)
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

/* Every way of sending that is asked for has a cell. */
static kv_rc check_sends(const kv_shard_reader *r, const kv_shard_section *s)
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
    kv_shard_reader r = {.layouts = layouts, .where = place, .err = err};
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
    KV_TRY(rc, out, kv_shard_points_make(&r, out));
    KV_TRY(rc, out, check_sends(&r, out));
out:
    kv_free(r.shards.pair);
    kv_free(r.stages.pair);
    return rc;
}
