/* What a campaign declares about its rows besides layouts, geometries and the axes, which are params. */
#include <stdio.h>
#include <string.h>

#include "grid/campaign/kv_codec_spec.h"
#include "grid/report/kv_diff.h"

/* A number of a section that decides what its rows hold, and what it is where it is not given. */
typedef struct {
    const char *check, *section, *key;
    int64_t otherwise;
    const char *only; /* part of the params of rows that it concerns, or NULL */
    const char *part; /* object of the section that it stands in, or NULL: of rows of that kind ("kv1:pages") */
} number;

static const number numbers[] = {
    {"codec", "codec", "block", 512, NULL, NULL},
    {"move", "codec", "block", 512, NULL, NULL},
    {"attribution", "attribution", "passages", 4, NULL, NULL},
    {"attribution", "attribution", "evaluated", 128, NULL, NULL},
    {"attribution", "attribution", "block", 512, NULL, NULL},
    {"tp", "tp", "chunk", 16, ",send=chunks", NULL},
    {"tp", "tp", "block", 512, NULL, "pages"},
};

static bool differs(const number *n, const json_t *const spec[KV_SIDES])
{
    int64_t value[KV_SIDES];
    for (int s = 0; s < KV_SIDES; s++) {
        const json_t *section = json_object_get(spec[s], n->section);
        const json_t *v = json_object_get(n->part != NULL ? json_object_get(section, n->part) : section, n->key);
        value[s] = v != NULL ? (int64_t)json_integer_value(v) : n->otherwise;
    }
    return value[KV_OLD] != value[KV_NEW];
}

/* Whether src is a side of that kind, as "kv1:pages" is of "pages". */
static bool of_part(const char *src, const char *part)
{
    const char *colon = strrchr(src, ':');
    return colon != NULL && strcmp(colon + 1, part) == 0;
}

/* Recipes without a skeleton store row by row: there is no block. */
static bool has_blocks(const char *check, const char *dst)
{
    kv_store_method m;
    return strcmp(check, "codec") != 0 || !kv_store_method_parse(dst, &m) || kv_store_method_recipe(m) >= 0;
}

/* Digest of the file of this name in a codec section, or NULL. */
static const char *file_digest(const json_t *spec, const char *name, size_t n)
{
    const json_t *files = json_object_get(json_object_get(spec, "codec"), "files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *f = json_array_get(files, i);
        const char *known = json_string_value(json_object_get(f, "name"));
        if (known != NULL && strlen(known) == n && memcmp(known, name, n) == 0)
            return json_string_value(json_object_get(f, "digest"));
    }
    return NULL;
}

static bool file_changed(const json_t *const spec[KV_SIDES], const char *params, char what[KV_DIFF_SECTION_TEXT])
{
    static const char begin[] = ",payload=file:";
    const char *name = strstr(params, begin);
    if (name == NULL) return false;
    name += sizeof begin - 1;
    const size_t n = strcspn(name, ",");
    const char *o = file_digest(spec[KV_OLD], name, n), *w = file_digest(spec[KV_NEW], name, n);
    if (o != NULL && w != NULL && strcmp(o, w) == 0) return false;
    snprintf(what, KV_DIFF_SECTION_TEXT, "codec.files.%.*s", (int)n, name);
    return true;
}

/* What the bytes of a layout really are (tp.stored). */
static bool stored_changed(const json_t *const spec[KV_SIDES], const char *layout)
{
    const json_t *v[KV_SIDES];
    for (int s = 0; s < KV_SIDES; s++)
        v[s] = json_object_get(json_object_get(json_object_get(spec[s], "tp"), "stored"), layout);
    return v[KV_OLD] != v[KV_NEW] && (v[KV_OLD] == NULL || v[KV_NEW] == NULL || !json_equal(v[KV_OLD], v[KV_NEW]));
}

/* A text of the spec, or of a list of them the first by name, which is what stands for all where params do not say it. */
static const char *first_text(const json_t *spec, const char *key, const char *otherwise)
{
    const json_t *v = json_object_get(spec, key);
    const char *first = json_string_value(v);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *text = json_string_value(json_array_get(v, i));
        if (text != NULL && (first == NULL || strcmp(text, first) < 0)) first = text;
    }
    return first != NULL ? first : otherwise;
}

/* What the ends of blocks hold, and which values are moved: a weaker choice must not look like a better layout. */
static bool method_changed(const json_t *const spec[KV_SIDES], const char *params, char what[KV_DIFF_SECTION_TEXT])
{
    static const char *const keys[][2] = {{"tail", "stale"}, {"values", "payloads"}};
    for (size_t i = 0; i < 2; i++) {
        if (i == 0 && strstr(params, "tail=") != NULL) continue; /* rows of one tail each */
        if (strcmp(first_text(spec[KV_OLD], keys[i][0], keys[i][1]),
                   first_text(spec[KV_NEW], keys[i][0], keys[i][1])) == 0)
            continue;
        snprintf(what, KV_DIFF_SECTION_TEXT, "%s", keys[i][0]);
        return true;
    }
    return false;
}

bool kv_diff_section_changed(const kv_diff *d, const kv_diff_kind *k, char what[KV_DIFF_SECTION_TEXT])
{
    const json_t *const spec[KV_SIDES] = {d->side[KV_OLD].spec, d->side[KV_NEW].spec};
    const char *check = d->names.text[k->check], *params = d->names.text[k->params];
    const char *src = d->names.text[k->src], *dst = d->names.text[k->dst];
    if (strcmp(check, "pair") == 0) return method_changed(spec, params, what);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const number *n = &numbers[i];
        if (strcmp(n->check, check) != 0 || (n->only != NULL && strstr(params, n->only) == NULL) ||
            (n->part != NULL && !of_part(src, n->part)) || !has_blocks(check, dst) || !differs(n, spec))
            continue;
        snprintf(what, KV_DIFF_SECTION_TEXT, "%s%s%s.%s", n->section, n->part != NULL ? "." : "",
                 n->part != NULL ? n->part : "", n->key);
        return true;
    }
    if (strcmp(check, "codec") == 0) return file_changed(spec, params, what);
    if (strcmp(check, "tp") != 0) return false;
    if (!stored_changed(spec, src) && !stored_changed(spec, dst)) return method_changed(spec, params, what);
    snprintf(what, KV_DIFF_SECTION_TEXT, "tp.stored");
    return true;
}
