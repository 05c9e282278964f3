/* The declarations: catalogue, geometries, bindings. */
#include "certs/kv_cert.h"
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(((const kv_vf_layout *)a)->name, ((const kv_vf_layout *)b)->name);
}

size_t kv_vf_find(const kv_vf *v, const char *name)
{
    const kv_vf_layout key = {.name = name};
    if (v->n_layouts == 0) return 0;
    const kv_vf_layout *found = bsearch(&key, v->layouts, v->n_layouts, sizeof key, by_name);
    return found != NULL ? (size_t)(found - v->layouts) : v->n_layouts;
}

static void check_layout_digest(kv_vf *v, const json_t *entry, size_t i)
{
    char digest[KV_HASH_HEX];
    const kv_rc rc = kv_cert_layout_digest(entry, digest, NULL);
    if (rc == KV_OK)
        (void)kv_vf_want_text(v, KV_H11_ENGINE_UNDECLARED, kv_vf_at(v, "$.catalogue[%zu].digest", i), digest,
                              json_object_get(entry, "digest"));
    else if (rc == KV_ENOMEM)
        kv_vf_no_memory(v);
}

/* Sorts the layouts; false where a name stands twice, so that no row could be read. */
static bool sort_layouts(kv_vf *v)
{
    bool unique = true;
    for (size_t i = 1; i < v->n_layouts; i++)
        if (strcmp(v->layouts[i - 1].name, v->layouts[i].name) >= 0)
            kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, kv_vf_at(v, "$.catalogue[%zu].name", i),
                        "names in the order of their bytes, each once", v->layouts[i].name);
    if (v->n_layouts > 1) qsort(v->layouts, v->n_layouts, sizeof *v->layouts, by_name);
    for (size_t i = 1; i < v->n_layouts; i++)
        if (strcmp(v->layouts[i - 1].name, v->layouts[i].name) == 0) unique = false;
    return unique;
}

bool kv_vf_catalogue(kv_vf *v)
{
    const json_t *list = json_object_get(v->doc, "catalogue");
    const size_t n = json_array_size(list);
    bool good = true;
    if (n > KV_VF_LIST_MAX) {
        kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, "$.catalogue", "at most 2048 layouts", "more");
        return false;
    }
    v->layouts = kv_alloc(n, sizeof *v->layouts);
    if (v->layouts == NULL) {
        kv_vf_no_memory(v);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(list, i);
        if (!kv_vf_layout_parse(v, entry, i, &v->layouts[i])) good = false;
        check_layout_digest(v, entry, i);
    }
    v->n_layouts = n;
    return good && sort_layouts(v);
}

/* ---- geometries ---------------------------------------------------------------------------- */

#define FIELDS 6 /* in the order that lists expand, the first slowest */
static const char *const fields[FIELDS] = {"layers", "tokens", "kv_heads", "head_dim", "head_dim_v", "element"};

/* Number of choices of a field: the length of a list, 1 for one value or an absent head_dim_v. */
static size_t choices(const json_t *o, int field)
{
    const json_t *value = json_object_get(o, fields[field]);
    return json_is_array(value) ? json_array_size(value) : 1;
}

static const json_t *choice(const json_t *o, int field, size_t i)
{
    const json_t *value = json_object_get(o, fields[field]);
    return json_is_array(value) ? json_array_get(value, i) : value;
}

/* One value of a field into g; false where it is none. */
static bool set_field(kv_vf_geometry *g, int field, const json_t *value)
{
    int64_t *const numbers[] = {&g->layers, &g->tokens, &g->heads, &g->dim, &g->dim_v};
    if (field == 5) return json_is_string(value) && kv_vf_element_parse(json_string_value(value), &g->element);
    if (field == 4 && value == NULL) {
        g->dim_v = g->dim;
        return true;
    }
    if (!json_is_integer(value) || json_integer_value(value) < (field == 1 ? 0 : 1)) return false;
    *numbers[field] = json_integer_value(value);
    return true;
}

static bool same_geometry(const kv_vf_geometry *a, const kv_vf_geometry *b)
{
    return a->layers == b->layers && a->tokens == b->tokens && a->heads == b->heads && a->dim == b->dim &&
           a->dim_v == b->dim_v && a->element == b->element;
}

static int by_value(const void *pa, const void *pb)
{
    const kv_vf_geometry *a = *(const kv_vf_geometry *const *)pa, *b = *(const kv_vf_geometry *const *)pb;
    const int64_t x[] = {a->layers, a->tokens, a->heads, a->dim, a->dim_v, (int64_t)a->element};
    const int64_t y[] = {b->layers, b->tokens, b->heads, b->dim, b->dim_v, (int64_t)b->element};
    for (int i = 0; i < FIELDS; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* The declared list itself: every entry readable, head_dim_v only where it differs, none twice. */
static bool read_declared(kv_vf *v)
{
    const json_t *list = json_object_get(v->doc, "geometries");
    const size_t n = json_array_size(list);
    bool good = true;
    const kv_vf_geometry **sorted = kv_alloc(n, sizeof *sorted);
    v->geometries = kv_alloc(n, sizeof *v->geometries);
    if (v->geometries == NULL || sorted == NULL) {
        kv_free(sorted);
        kv_vf_no_memory(v);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i);
        kv_vf_geometry *g = &v->geometries[i];
        bool set = true;
        for (int f = 0; f < FIELDS; f++) set = set && set_field(g, f, json_object_get(o, fields[f]));
        if (set && json_object_get(o, "head_dim_v") != NULL && g->dim == g->dim_v) set = false;
        if (!set)
            kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, kv_vf_at(v, "$.geometries[%zu]", i), "a geometry",
                        "other values");
        good = good && set;
        sorted[i] = g;
    }
    v->n_geometries = n;
    if (good && n > 1) qsort(sorted, n, sizeof *sorted, by_value);
    for (size_t i = 1; good && i < n; i++)
        if (by_value(&sorted[i - 1], &sorted[i]) == 0)
            kv_vf_fault(v, KV_H12_PAIR_DECLARED_TWICE, "$.geometries", "each geometry once", "one stands twice");
    kv_free(sorted);
    return good;
}

/* One object of the spec against the declared list from *at on; false where it is malformed. */
static bool expand_one(kv_vf *v, const json_t *o, size_t index, size_t *at)
{
    size_t digit[FIELDS] = {0};
    for (bool more = true; more;) {
        kv_vf_geometry g = {0};
        for (int f = 0; f < FIELDS; f++)
            if (!set_field(&g, f, choice(o, f, digit[f]))) {
                kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE,
                            kv_vf_at(v, "$.campaign.spec.geometries[%zu].%s", index, fields[f]),
                            "a value or a list of values", "something else");
                return false;
            }
        if (*at < v->n_geometries && !same_geometry(&g, &v->geometries[*at]))
            kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, kv_vf_at(v, "$.geometries[%zu]", *at),
                        "the geometry that campaign.spec expands to", "another one");
        if (++*at > v->n_geometries) return true; /* too many: told once, at the end */
        more = false;
        for (int f = FIELDS - 1; f >= 0 && !more; f--) {
            more = ++digit[f] < choices(o, f);
            if (!more) digit[f] = 0;
        }
    }
    return true;
}

static bool spec_object_good(kv_vf *v, const json_t *o, size_t index)
{
    const char *key;
    json_t *value;
    bool good = json_is_object(o);
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        int f = 0;
        while (f < FIELDS && strcmp(key, fields[f]) != 0) f++;
        good = good && f < FIELDS && !(json_is_array(value) && json_array_size(value) == 0);
    }
    for (int f = 0; f < FIELDS; f++) good = good && (f == 4 || json_object_get(o, fields[f]) != NULL);
    if (!good)
        kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, kv_vf_at(v, "$.campaign.spec.geometries[%zu]", index),
                    "layers, tokens, kv_heads, head_dim, element, and perhaps head_dim_v", "something else");
    return good;
}

bool kv_vf_geometries(kv_vf *v)
{
    const json_t *spec = json_object_get(json_object_get(v->doc, "campaign"), "spec");
    const json_t *list = json_object_get(spec, "geometries");
    size_t at = 0;
    if (!read_declared(v)) return false;
    if (!json_is_array(list) || json_array_size(list) == 0) {
        kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, "$.campaign.spec.geometries", "a list of geometries",
                    "something else");
        return false;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        if (!spec_object_good(v, o, i) || !expand_one(v, o, i, &at)) return false;
    }
    if (at != v->n_geometries) {
        char expected[64], actual[32];
        snprintf(expected, sizeof expected, "%s%zu geometries", at > v->n_geometries ? "at least " : "", at);
        snprintf(actual, sizeof actual, "%zu", v->n_geometries);
        kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, "$.geometries", expected, actual);
    }
    return true;
}

/* ---- bindings ------------------------------------------------------------------------------ */

static void check_sizes(kv_vf *v, const json_t *shapes, size_t i, int half, const kv_vf_layout *l, const kv_vf_bound *b)
{
    char expected[KV_VF_TEXT] = "[", actual[KV_VF_TEXT];
    const char *key = half == 0 ? "k" : "v";
    const json_t *list = json_object_get(shapes, key);
    const size_t n = (size_t)l->half[half].n;
    bool same = json_array_size(list) == n;
    for (size_t f = 0; f < n; f++) {
        const size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s%" PRId64, f > 0 ? "," : "", b->size[half][f]);
        same = same && json_integer_value(json_array_get(list, f)) == b->size[half][f];
    }
    const size_t used = strlen(expected);
    snprintf(expected + used, sizeof expected - used, "]");
    if (!same)
        kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, kv_vf_at(v, "$.bindings[%zu].native_shapes.%s", i, key), expected,
                    kv_vf_show(list, actual));
}

static void check_binding(kv_vf *v, const json_t *o, size_t i, const kv_vf_layout *l, size_t geometry)
{
    const kv_vf_geometry *g = &v->geometries[geometry];
    const kv_hcode code = KV_H11_ENGINE_UNDECLARED;
    char actual[KV_VF_TEXT];
    kv_vf_bound b;
    kv_vf_bind(l, g, kv_vf_unit_layers(l, l, g), &b);
    (void)kv_vf_want_text(v, code, kv_vf_at(v, "$.bindings[%zu].layout", i), l->name, json_object_get(o, "layout"));
    (void)kv_vf_want_int(v, code, kv_vf_at(v, "$.bindings[%zu].geometry", i), (int64_t)geometry,
                         json_object_get(o, "geometry"));
    if (b.too_large) {
        kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, kv_vf_at(v, "$.geometries[%zu]", geometry),
                    "sizes that a certificate can say", l->name);
        return;
    }
    (void)kv_vf_want_bool(v, code, kv_vf_at(v, "$.bindings[%zu].exists", i), b.exists, json_object_get(o, "exists"));
    const json_t *reason = json_object_get(o, "reason"), *shapes = json_object_get(o, "native_shapes");
    if (b.exists) {
        (void)kv_vf_want_null(v, code, kv_vf_at(v, "$.bindings[%zu].reason", i), reason);
        if (json_is_object(shapes)) {
            check_sizes(v, shapes, i, 0, l, &b);
            check_sizes(v, shapes, i, 1, l, &b);
        } else {
            kv_vf_fault(v, code, kv_vf_at(v, "$.bindings[%zu].native_shapes", i), "sizes", "null");
        }
    } else {
        if (!json_is_string(reason) || json_string_length(reason) == 0)
            kv_vf_fault(v, code, kv_vf_at(v, "$.bindings[%zu].reason", i), "a reason", kv_vf_show(reason, actual));
        (void)kv_vf_want_null(v, code, kv_vf_at(v, "$.bindings[%zu].native_shapes", i), shapes);
    }
    (void)kv_vf_want_bool(v, code, kv_vf_at(v, "$.bindings[%zu].is_identity", i),
                          b.exists && kv_vf_is_identity(l, g, &b), json_object_get(o, "is_identity"));
}

void kv_vf_bindings(kv_vf *v)
{
    const json_t *list = json_object_get(v->doc, "bindings");
    const size_t n = json_array_size(list);
    size_t want;
    if (__builtin_mul_overflow(v->n_geometries, v->n_layouts, &want)) want = SIZE_MAX;
    if (n != want) {
        char expected[32], actual[32];
        snprintf(expected, sizeof expected, "%zu entries", want);
        snprintf(actual, sizeof actual, "%zu", n);
        kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, "$.bindings", expected, actual);
    }
    for (size_t i = 0; i < n && i < want; i++)
        check_binding(v, json_array_get(list, i), i, &v->layouts[i % v->n_layouts], i / v->n_layouts);
}
