#include "grid/campaign/kv_write_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/kv_embed.h"
#include "grid/campaign/kv_cells.h"
#include "layouts/kv_layout_json.h"

#define RANGE_MAX 100000

extern const kv_embedded kv_builtin_models[];

kv_rc kv_models_new(json_t **out, kv_err *err)
{
    return kv_json_load_strict((const char *)kv_builtin_models[0].bytes, kv_builtin_models[0].n, "built-in models", out,
                               err);
}

/* ---- ranges ----------------------------------------------------------------------------- */

static kv_rc range_steps(json_t *list, int64_t from, int64_t to, int64_t step, int64_t times, const char *where,
                         kv_err *err)
{
    for (int64_t v = from; v <= to;) {
        if (json_array_size(list) >= RANGE_MAX)
            return KV_FAIL(err, KV_EFORMAT, "%s: more than %d values", where, RANGE_MAX);
        json_array_append_new(list, json_integer((json_int_t)v));
        if (times > 0 ? !kv_mul_i64(v, times, &v) : !kv_add_i64(v, step, &v)) break;
    }
    return KV_OK;
}

/* Appends one entry of a field: a number as it is, a range as its values. */
static kv_rc add_values(json_t *list, json_t *v, const char *where, kv_err *err)
{
    static const char *const keys[] = {"from", "to", "step", "times", NULL};
    const int64_t most = (int64_t)1 << 52;
    int64_t from = INT64_MIN, to = INT64_MIN, step = 0, times = 0;
    kv_rc rc;
    if (!json_is_object(v)) {
        json_array_append(list, v);
        return KV_OK;
    }
    KV_TRY(rc, out, kv_json_only_keys(v, keys, where, err));
    KV_TRY(rc, out, kv_json_get_int(v, "from", 0, most, where, &from, err));
    KV_TRY(rc, out, kv_json_get_int(v, "to", 0, most, where, &to, err));
    KV_TRY(rc, out, kv_json_get_int(v, "step", 1, most, where, &step, err));
    KV_TRY(rc, out, kv_json_get_int(v, "times", 2, most, where, &times, err));
    if (from < 0 || to < from || (step > 0 && times > 0) || (times > 0 && from == 0))
        return KV_FAIL(
            err, KV_EFORMAT,
            "%s: a range is {\"from\": a, \"to\": b} with a <= b, and \"step\" (default 1) or \"times\" (a > 0)",
            where);
    rc = range_steps(list, from, to, step > 0 ? step : 1, times, where, err);
out:
    return rc;
}

static kv_rc write_out_field(json_t *geometry, const char *key, const char *where, kv_err *err)
{
    json_t *v = json_object_get(geometry, key), *list;
    bool ranges = json_is_object(v);
    char place[KV_ERR_TEXT];
    kv_rc rc = KV_OK;
    for (size_t i = 0; json_is_array(v) && i < json_array_size(v); i++)
        ranges = ranges || json_is_object(json_array_get(v, i));
    if (!ranges) return KV_OK;
    snprintf(place, sizeof place, "%.500s: \"%s\"", where, key);
    list = json_array();
    if (json_is_object(v)) rc = add_values(list, v, place, err);
    for (size_t i = 0; rc == KV_OK && json_is_array(v) && i < json_array_size(v); i++)
        rc = add_values(list, json_array_get(v, i), place, err);
    if (rc == KV_OK) json_object_set(geometry, key, list);
    json_decref(list);
    return rc;
}

/* ---- models ----------------------------------------------------------------------------- */

static const json_t *find_model(const json_t *models, const char *name)
{
    for (size_t i = 0; i < json_array_size(models); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(models, i), "name")), name) == 0)
            return json_array_get(models, i);
    return NULL;
}

static kv_rc add_model(json_t *out, const json_t *geometry, const json_t *models, const json_t *name, const char *where,
                       kv_err *err)
{
    static const char *const fields[] = {"layers", "kv_heads", "head_dim"};
    const json_t *m = json_is_string(name) ? find_model(models, json_string_value(name)) : NULL;
    if (m == NULL)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"model\": \"%s\" is not known; kvgrid layouts --models lists the presets",
                       where, json_is_string(name) ? json_string_value(name) : "(not a text)");
    json_t *g = json_copy((json_t *)(uintptr_t)geometry);
    json_object_del(g, "model");
    for (int i = 0; i < 3; i++)
        if (json_object_get(g, fields[i]) == NULL) json_object_set(g, fields[i], json_object_get(m, fields[i]));
    if (g == NULL || json_array_append_new(out, g) != 0) return KV_FAIL(err, KV_ENOMEM, "no memory for a geometry");
    return KV_OK;
}

static kv_rc write_out_geometry(json_t *out, json_t *geometry, const json_t *models, const char *where, kv_err *err)
{
    static const char *const fields[] = {"layers", "tokens", "kv_heads", "head_dim", "head_dim_v"};
    kv_rc rc = KV_OK;
    if (!json_is_object(geometry)) { /* the reader says what is wrong */
        json_array_append(out, geometry);
        return KV_OK;
    }
    for (int i = 0; rc == KV_OK && i < 5; i++) rc = write_out_field(geometry, fields[i], where, err);
    const json_t *model = json_object_get(geometry, "model");
    if (rc == KV_OK && model == NULL) json_array_append(out, geometry);
    if (rc == KV_OK && model != NULL && !json_is_array(model)) rc = add_model(out, geometry, models, model, where, err);
    for (size_t i = 0; rc == KV_OK && json_is_array(model) && i < json_array_size(model); i++)
        rc = add_model(out, geometry, models, json_array_get(model, i), where, err);
    return rc;
}

static kv_rc write_out_geometries(json_t *spec, const char *where, kv_err *err)
{
    json_t *list = json_object_get(spec, "geometries"), *out = json_array(), *models = NULL;
    kv_rc rc = kv_models_new(&models, err);
    for (size_t i = 0; rc == KV_OK && i < json_array_size(list); i++) {
        char place[KV_ERR_TEXT];
        snprintf(place, sizeof place, "%.500s: geometries[%zu]", where, i);
        rc = write_out_geometry(out, json_array_get(list, i), models, place, err);
    }
    if (rc == KV_OK && json_is_array(list)) json_object_set(spec, "geometries", out);
    json_decref(models);
    json_decref(out);
    return rc;
}

/* ---- patterns --------------------------------------------------------------------------- */

static bool matches_any(const json_t *patterns, const char *name)
{
    for (size_t i = 0; i < json_array_size(patterns); i++)
        if (kv_pattern_match(json_string_value(json_array_get(patterns, i)), name)) return true;
    return false;
}

static kv_rc check_patterns(const json_t *list, const char *key, const char *where, kv_err *err)
{
    bool good = json_is_array(list) && json_array_size(list) > 0;
    for (size_t i = 0; good && i < json_array_size(list); i++) good = json_is_string(json_array_get(list, i));
    return good ? KV_OK : KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" must be a list of patterns", where, key);
}

/* A pattern that matches none of the names is a typing error. */
static kv_rc check_used(const json_t *patterns, const char *key, const json_t *names, const char *where, kv_err *err)
{
    for (size_t i = 0; i < json_array_size(patterns); i++) {
        const char *p = json_string_value(json_array_get(patterns, i));
        bool used = false;
        for (size_t k = 0; !used && k < json_array_size(names); k++)
            used = kv_pattern_match(p, json_string_value(json_array_get(names, k)));
        if (!used) return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\": nothing is called \"%s\"", where, key, p);
    }
    return KV_OK;
}

static kv_rc write_out_exclude(json_t *spec, const kv_catalogue *all, const char *where, kv_err *err)
{
    json_t *exclude = json_object_get(spec, "exclude"), *select = json_object_get(spec, "select");
    if (exclude == NULL) return KV_OK;
    json_t *names = json_array(), *kept = json_array();
    kv_rc rc;
    KV_TRY(rc, out, check_patterns(exclude, "exclude", where, err));
    if (select != NULL) KV_TRY(rc, out, check_patterns(select, "select", where, err));
    for (size_t i = 0; i < all->n; i++) {
        const char *name = all->item[i]->name;
        json_array_append_new(names, json_string(name));
        if ((select == NULL || matches_any(select, name)) && !matches_any(exclude, name))
            json_array_append_new(kept, json_string(name));
    }
    KV_TRY(rc, out, check_used(exclude, "exclude", names, where, err));
    json_object_set(spec, "select", kept);
    json_object_del(spec, "exclude");
out:
    json_decref(names);
    json_decref(kept);
    return rc;
}

static kv_rc write_out_pairs(json_t *spec, const kv_catalogue *all, const char *where, kv_err *err)
{
    static const char *const keys[] = {"include", "exclude", NULL};
    json_t *pairs = json_object_get(spec, "pairs");
    const json_t *select = json_object_get(spec, "select");
    if (!json_is_object(pairs)) return KV_OK;
    const json_t *include = json_object_get(pairs, "include"), *exclude = json_object_get(pairs, "exclude");
    json_t *list = json_array(), *names = json_array();
    char place[KV_ERR_TEXT];
    kv_rc rc;
    snprintf(place, sizeof place, "%.500s: \"pairs\"", where);
    KV_TRY(rc, out, kv_json_only_keys(pairs, keys, place, err));
    if (include != NULL) KV_TRY(rc, out, check_patterns(include, "include", place, err));
    if (exclude != NULL) KV_TRY(rc, out, check_patterns(exclude, "exclude", place, err));
    if (select != NULL) KV_TRY(rc, out, check_patterns(select, "select", where, err));
    for (size_t s = 0; s < all->n; s++)
        for (size_t d = 0; d < all->n; d++) {
            const char *src = all->item[s]->name, *dst = all->item[d]->name;
            char id[KV_PAIR_ID_TEXT];
            if (s == d || (select != NULL && (!matches_any(select, src) || !matches_any(select, dst)))) continue;
            snprintf(id, sizeof id, "%s->%s", src, dst);
            json_array_append_new(names, json_string(id));
            if ((include == NULL || matches_any(include, id)) && !(exclude != NULL && matches_any(exclude, id)))
                json_array_append_new(list, json_pack("[s,s]", src, dst));
        }
    KV_TRY(rc, out, check_used(include, "include", names, place, err));
    KV_TRY(rc, out, check_used(exclude, "exclude", names, place, err));
    if (json_array_size(list) == 0) {
        rc = KV_FAIL(err, KV_EFORMAT, "%s: no pair is left", place);
        goto out;
    }
    json_object_set(spec, "pairs", list);
out:
    json_decref(names);
    json_decref(list);
    return rc;
}

kv_rc kv_write_out(json_t *spec, const kv_catalogue *all, const char *where, kv_err *err)
{
    kv_rc rc;
    KV_TRY(rc, out, write_out_geometries(spec, where, err));
    KV_TRY(rc, out, write_out_exclude(spec, all, where, err));
    KV_TRY(rc, out, write_out_pairs(spec, all, where, err));
out:
    return rc;
}
