#include "grid/campaign/kv_study_spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "certs/kv_cert_names.h"
#include "layouts/kv_layout_json.h"

/* ---- names ---------------------------------------------------------------------------------- */

static const char *const kinds[KV_STUDY_CELL_KINDS] = {"identity",        "k",  "k-no-whitening", "k-whiten-after",
                                                       "k-whiten-before", "kv", "kv-prefix",      "layers",
                                                       "noise",           "v",  "v-outliers",     "whiten-only"};

static int kind_of(const char *name)
{
    for (int i = 0; i < KV_STUDY_CELL_KINDS; i++)
        if (strcmp(kinds[i], name) == 0) return i;
    return -1;
}

/* ---- reading -------------------------------------------------------------------------------- */

static kv_rc read_recipes(const json_t *obj, bool method[KV_STORE_COUNT], const char *where, kv_err *err)
{
    const json_t *v = json_object_get(obj, "recipes");
    if (!json_is_array(v) || json_array_size(v) == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"recipes\" must be a list of at least one recipe", where);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        kv_store_method m;
        if (name == NULL || !kv_store_method_parse(name, &m) || kv_store_method_recipe(m) < 0)
            return KV_FAIL(err, KV_EFORMAT,
                           "%s: \"recipes\": \"%s\" is not known (kv1, kv1-shared, published-harness, "
                           "published-serving)",
                           where, name != NULL ? name : "(not a text)");
        if (method[m]) return KV_FAIL(err, KV_EFORMAT, "%s: \"recipes\" holds \"%s\" twice", where, name);
        method[m] = true;
    }
    return KV_OK;
}

static kv_rc read_cells(const json_t *obj, bool cell[KV_STUDY_CELL_KINDS], const char *where, kv_err *err)
{
    const json_t *v = json_object_get(obj, "cells");
    for (int i = 0; i < KV_STUDY_CELL_KINDS; i++) cell[i] = v == NULL;
    if (v == NULL) return KV_OK;
    if (!json_is_array(v) || json_array_size(v) == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"cells\" must be a list of at least one name", where);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        const int k = name != NULL ? kind_of(name) : -1;
        if (k < 0)
            return KV_FAIL(err, KV_EFORMAT,
                           "%s: \"cells\": \"%s\" is not known (identity, kv, k, v, v-outliers, "
                           "kv-prefix, noise, whiten-only, k-no-whitening, k-whiten-before, k-whiten-after, layers)",
                           where, name != NULL ? name : "(not a text)");
        if (cell[k]) return KV_FAIL(err, KV_EFORMAT, "%s: \"cells\" holds \"%s\" twice", where, name);
        cell[k] = true;
    }
    return KV_OK;
}

static int by_text(const void *a, const void *b)
{
    char x[24], y[24];
    snprintf(x, sizeof x, "%" PRIu64, *(const uint64_t *)a);
    snprintf(y, sizeof y, "%" PRIu64, *(const uint64_t *)b);
    return strcmp(x, y);
}

static kv_rc read_seeds(const json_t *obj, kv_study_section *s, const char *where, kv_err *err)
{
    const json_t *v = json_object_get(obj, "seeds");
    const size_t n = json_array_size(v);
    if (!json_is_array(v) || n == 0 || n > KV_STUDY_SEEDS_MAX)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"seeds\" must be a list of 1 to %d integers", where, KV_STUDY_SEEDS_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *seed = json_array_get(v, i);
        if (!json_is_integer(seed) || json_integer_value(seed) < 0)
            return KV_FAIL(err, KV_EFORMAT, "%s: \"seeds\"[%zu] must be an integer from 0 to 2^53 - 1", where, i);
        s->seed[s->n_seeds++] = (uint64_t)json_integer_value(seed);
    }
    qsort(s->seed, n, sizeof *s->seed, by_text);
    for (size_t i = 1; i < n; i++)
        if (s->seed[i] == s->seed[i - 1])
            return KV_FAIL(err, KV_EFORMAT, "%s: \"seeds\" holds %" PRIu64 " twice", where, s->seed[i]);
    return KV_OK;
}

kv_rc kv_study_section_read(const json_t *v, const char *where, kv_study_section *out, kv_err *err)
{
    static const char *const keys[] = {"recipes", "cells", "seeds", "passages", "evaluated", "block", NULL};
    int64_t passages = 4, evaluated = 128, block = KV_CODEC_BLOCK_ROWS;
    char place[KV_ERR_TEXT];
    kv_rc rc = KV_OK;
    memset(out, 0, sizeof *out);
    if (v == NULL) return KV_OK;
    out->present = true;
    snprintf(place, sizeof place, "%.500s: \"attribution\"", where);
    KV_TRY(rc, out, kv_json_only_keys(v, keys, place, err));
    KV_TRY(rc, out, read_recipes(v, out->method, place, err));
    KV_TRY(rc, out, read_cells(v, out->cell, place, err));
    KV_TRY(rc, out, read_seeds(v, out, place, err));
    KV_TRY(rc, out, kv_json_get_int(v, "passages", 1, KV_STUDY_PASSAGES_MAX, place, &passages, err));
    KV_TRY(rc, out, kv_json_get_int(v, "evaluated", 1, 4096, place, &evaluated, err));
    KV_TRY(rc, out, kv_json_get_int(v, "block", 2, 4096, place, &block, err));
    if ((block & (block - 1)) != 0) rc = KV_FAIL(err, KV_EFORMAT, "%s: \"block\" must be a power of two", place);
    out->passages = (int32_t)passages;
    out->evaluated = (int32_t)evaluated;
    out->block = (int32_t)block;
out:
    return rc;
}

/* ---- points --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

#define CELLS_MAX (KV_STUDY_CELL_KINDS + KV_CODEC_STUDY_LAYERS_MAX)

/* The chosen cells of a model of that many layers, sorted. */
static size_t list_cells(const kv_study_section *s, int64_t layers, char out[CELLS_MAX][KV_STUDY_CELL_TEXT])
{
    size_t n = 0;
    for (int k = 0; k < KV_STUDY_CELL_KINDS; k++) {
        if (!s->cell[k]) continue;
        if (strcmp(kinds[k], "layers") != 0) {
            snprintf(out[n++], KV_STUDY_CELL_TEXT, "%s", kinds[k]);
            continue;
        }
        for (int64_t l = 0; l < layers && l < KV_CODEC_STUDY_LAYERS_MAX; l++)
            snprintf(out[n++], KV_STUDY_CELL_TEXT, "layer-%" PRId64, l);
    }
    qsort(out, n, KV_STUDY_CELL_TEXT, by_name);
    return n;
}

static size_t recipes(const kv_study_section *s)
{
    size_t n = 0;
    for (int m = 0; m < KV_STORE_COUNT; m++) n += s->method[m];
    return n;
}

size_t kv_study_point_count(const kv_study_section *s, int64_t layers)
{
    char names[CELLS_MAX][KV_STUDY_CELL_TEXT];
    return s->present ? recipes(s) * (size_t)s->n_seeds * list_cells(s, layers, names) : 0;
}

kv_study_point kv_study_point_at(const kv_study_section *s, int64_t layers, size_t i)
{
    char names[CELLS_MAX][KV_STUDY_CELL_TEXT];
    const size_t cells = list_cells(s, layers, names), seeds = (size_t)s->n_seeds;
    size_t recipe = i / (cells * seeds);
    kv_study_point p = {.seed = s->seed[i % seeds]};
    memcpy(p.cell, names[i / seeds % cells], sizeof p.cell);
    for (int m = 0; m < KV_STORE_COUNT; m++)
        if (s->method[m] && recipe-- == 0) {
            p.method = (kv_store_method)m;
            break;
        }
    return p;
}

json_t *kv_study_point_params_new(const kv_study_point *p)
{
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, p->seed);
    return json_pack("{s:s,s:s}", "cell", p->cell, "seed", seed);
}

const char *kv_study_point_side(const kv_study_point *p, int side)
{
    return side == 0 ? KV_CERT_CANONICAL : kv_store_method_name(p->method);
}
