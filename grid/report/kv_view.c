#include "grid/report/kv_view.h"

#include <stdio.h>
#include <string.h>

#include "certs/kv_hash.h"
#include "certs/kv_json.h"

#define READER_BYTES_MAX ((size_t)1 << 30)

const char *kv_seen_name(const char *check, int i)
{
    kv_check k = KV_CHECK_PAIR;
    (void)kv_check_parse(check, &k);
    return i < KV_OBS_COUNT ? kv_row_obs_name(k, i) : i == KV_SEEN_GATHER ? "gather_agrees" : "values_preserved";
}

/* ---- rows ------------------------------------------------------------------------------- */

static kv_rc wrong(size_t at, const char *key, const char *needed, kv_err *err)
{
    return KV_FAIL(err, KV_EFORMAT, "rows[%zu].%s: %s is needed", at, key, needed);
}

static bool tri_of(const json_t *v, int32_t *out)
{
    *out = json_is_true(v) ? KV_TRUE : json_is_false(v) ? KV_FALSE : KV_NULL;
    return *out != KV_NULL || json_is_null(v);
}

static bool are_texts(const json_t *params)
{
    const char *key;
    json_t *value;
    if (!json_is_object(params)) return false;
    json_object_foreach((json_t *)(uintptr_t)params, key, value)
    {
        if (!json_is_string(value)) return false;
    }
    return true;
}

/* Whether id is "src->dst". */
static bool is_pair_id(const char *id, const char *src, const char *dst)
{
    const size_t n = strlen(src);
    return strncmp(id, src, n) == 0 && strncmp(id + n, "->", 2) == 0 && strcmp(id + n + 2, dst) == 0;
}

static kv_rc view_texts(const json_t *row, size_t at, kv_view *v, kv_err *err)
{
    static const char *const keys[] = {"check", "src", "dst", "pair_id"};
    const char *id = NULL, **const to[] = {&v->check, &v->src, &v->dst, &id};
    for (size_t i = 0; i < 4; i++) {
        *to[i] = json_string_value(json_object_get(row, keys[i]));
        if (*to[i] == NULL || **to[i] == '\0') return wrong(at, keys[i], "a text", err);
    }
    return is_pair_id(id, v->src, v->dst) ? KV_OK : wrong(at, "pair_id", "src->dst", err);
}

static kv_rc view_observations(const json_t *row, size_t at, kv_view *v, kv_err *err)
{
    const json_t *made = json_object_get(row, "observations"), *proof = json_object_get(row, "proof");
    const json_t *detail = json_object_get(proof, "detail"), *agrees = json_object_get(proof, "gather_agrees");
    kv_check check = KV_CHECK_PAIR;
    (void)kv_check_parse(v->check, &check);
    for (int i = 0; i < KV_OBS_COUNT; i++)
        if (!tri_of(json_object_get(made, kv_row_obs_name(check, i)), &v->seen[i]))
            return wrong(at, "observations", "true, false or null for each", err);
    v->converts = json_is_object(detail);
    v->seen[KV_SEEN_GATHER] = v->seen[KV_SEEN_VALUES] = KV_NULL;
    if (agrees != NULL && !tri_of(agrees, &v->seen[KV_SEEN_GATHER]))
        return wrong(at, "proof.gather_agrees", "true, false or null", err);
    if (v->converts && !tri_of(json_object_get(detail, "values_preserved"), &v->seen[KV_SEEN_VALUES]))
        return wrong(at, "proof.detail.values_preserved", "true or false", err);
    return KV_OK;
}

kv_rc kv_view_of_json(const json_t *row, size_t at, size_t n_geometries, kv_view *out, kv_err *err)
{
    const json_t *geometry = json_object_get(row, "geometry");
    const char *verdict = json_string_value(json_object_get(row, "verdict"));
    kv_view v = {.params = json_object_get(row, "params")};
    kv_rc rc;
    KV_TRY(rc, out, view_texts(row, at, &v, err));
    KV_TRY(rc, out, view_observations(row, at, &v, err));
    if (!json_is_integer(geometry) || json_integer_value(geometry) < 0 ||
        (size_t)json_integer_value(geometry) >= n_geometries)
        return wrong(at, "geometry", "the number of a geometry", err);
    v.geometry = (size_t)json_integer_value(geometry);
    if (!are_texts(v.params)) return wrong(at, "params", "an object of texts", err);
    if (verdict == NULL || !kv_verdict_parse(verdict, &v.verdict)) return wrong(at, "verdict", "a known verdict", err);
    *out = v;
out:
    return rc;
}

kv_rc kv_view_of_row(const kv_campaign *c, const kv_row *row, kv_view *out, json_t **params, kv_err *err)
{
    const kv_cell *cell = &c->cells[row->cell];
    kv_view v = {.check = kv_check_name((kv_check)cell->check),
                 .src = kv_cell_side(c, cell, 0),
                 .dst = kv_cell_side(c, cell, 1),
                 .geometry = (size_t)cell->geometry,
                 .verdict = (kv_verdict)row->verdict};
    v.params = *params = kv_row_params_new(c, cell);
    if (v.params == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a row");
    memcpy(v.seen, row->observed, sizeof row->observed);
    const bool gathers = row->ran && !row->has_codec && !row->has_study;
    v.seen[KV_SEEN_GATHER] = !gathers ? KV_NULL : row->gather_agrees ? KV_TRUE : KV_FALSE;
    v.seen[KV_SEEN_VALUES] = KV_NULL;
    v.converts = row->ran && row->converts;
    if (v.converts) v.seen[KV_SEEN_VALUES] = row->values_preserved ? KV_TRUE : KV_FALSE;
    *out = v;
    return KV_OK;
}

/* ---- the certificate -------------------------------------------------------------------- */

static kv_rc geometry_of(const json_t *g, size_t at, kv_geometry *out, kv_err *err)
{
    static const char *const keys[] = {"layers", "tokens", "kv_heads", "head_dim", "head_dim_v"};
    int64_t *const to[] = {&out->layers, &out->tokens, &out->kv_heads, &out->head_dim, &out->head_dim_v};
    const char *element = json_string_value(json_object_get(g, "element"));
    for (size_t i = 0; i < 5; i++) {
        const json_t *v = json_object_get(g, keys[i]);
        if (v == NULL && i == 4) {
            out->head_dim_v = out->head_dim;
            continue;
        }
        if (!json_is_integer(v)) return KV_FAIL(err, KV_EFORMAT, "geometries[%zu].%s: a number is needed", at, keys[i]);
        *to[i] = json_integer_value(v);
    }
    if (element == NULL || !kv_elem_parse(element, &out->element))
        return KV_FAIL(err, KV_EFORMAT, "geometries[%zu].element: an element type is needed", at);
    return KV_OK;
}

static kv_rc read_geometries(kv_reader *r, kv_err *err)
{
    const json_t *list = json_object_get(r->doc, "geometries");
    kv_rc rc = KV_OK;
    if (!json_is_array(list)) return KV_FAIL(err, KV_EFORMAT, "geometries: a list is needed");
    r->n_geometries = json_array_size(list);
    r->geometries = kv_alloc(r->n_geometries, sizeof *r->geometries);
    if (r->geometries == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu geometries", r->n_geometries);
    for (size_t i = 0; i < r->n_geometries; i++)
        KV_TRY(rc, out, geometry_of(json_array_get(list, i), i, &r->geometries[i], err));
out:
    return rc;
}

kv_rc kv_reader_of_doc(json_t *doc, const char *path, kv_reader *out, kv_err *err)
{
    const char *schema = json_string_value(json_object_get(doc, "schema"));
    kv_rc rc;
    out->doc = json_incref(doc);
    out->path = kv_strdup(path);
    if (out->path == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a path");
    if (schema == NULL || strcmp(schema, KV_CERT_SCHEMA) != 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: is no certificate (schema \"%s\" is needed)", path, KV_CERT_SCHEMA);
    rc = read_geometries(out, err);
    if (rc == KV_OK) rc = kv_rows_open(doc, path, &out->rows, err);
    if (rc == KV_EFORMAT) kv_err_prefix(err, "%s", path);
    return rc;
}

kv_rc kv_reader_open(const char *path, kv_reader *out, kv_err *err)
{
    json_t *doc = NULL;
    kv_rc rc = kv_json_parse_file(path, READER_BYTES_MAX, &doc, err);
    if (rc == KV_OK) rc = kv_reader_of_doc(doc, path, out, err);
    json_decref(doc);
    return rc;
}

kv_rc kv_reader_next(kv_reader *r, const json_t **row, kv_view *view, kv_err *err)
{
    kv_rc rc = kv_rows_next(r->rows, row, err);
    if (rc != KV_OK || *row == NULL) return rc;
    if (view != NULL) rc = kv_view_of_json(*row, r->at, r->n_geometries, view, err);
    if (rc == KV_EFORMAT) kv_err_prefix(err, "%s", r->path);
    r->at++;
    return rc;
}

void kv_reader_rewind(kv_reader *r)
{
    r->at = 0;
    kv_rows_rewind(r->rows);
}

void kv_reader_close(kv_reader *r)
{
    kv_rows_close(r->rows);
    kv_free(r->path);
    kv_free(r->geometries);
    json_decref(r->doc);
    memset(r, 0, sizeof *r);
}
