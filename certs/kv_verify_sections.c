/* campaign.spec.codec and campaign.spec.attribution: read strictly, as docs/codec-rows.md has them. */
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool malformed(kv_vf *v, const char *section, const char *key, const char *expected, const json_t *value)
{
    char actual[KV_VF_TEXT];
    kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, kv_vf_at(v, "$.campaign.spec.%s.%.64s", section, key), expected,
                kv_vf_show(value, actual));
    return false;
}

/* An object, and every key of it is one of `known` (NULL-terminated). */
static bool only_keys(kv_vf *v, const char *section, const json_t *o, const char *const *known)
{
    bool good = true;
    const char *key;
    json_t *value;
    if (!json_is_object(o)) return malformed(v, section, "", "an object", o);
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        const char *const *k = known;
        while (*k != NULL && strcmp(*k, key) != 0) k++;
        if (*k == NULL) good = malformed(v, section, key, "no such key", value);
    }
    return good;
}

/* A list of at least one name, each once, into chosen[]; `all` says what a missing list means. */
static bool read_names(kv_vf *v, const char *section, const json_t *o, const char *key, kv_vf_names names, bool all,
                       bool *chosen)
{
    const json_t *list = json_object_get(o, key);
    for (int i = 0; i < names.n; i++) chosen[i] = list == NULL && all;
    if (list == NULL) return true;
    bool good = json_array_size(list) > 0;
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        const int at = kv_vf_name_find(names, json_string_value(json_array_get(list, i)));
        good = at < names.n && !chosen[at];
        if (good) chosen[at] = true;
    }
    return good || malformed(v, section, key, "a list of names that are known here, each once", list);
}

static bool read_number(kv_vf *v, const char *section, const json_t *o, const char *key, int64_t most, int64_t *out)
{
    const json_t *value = json_object_get(o, key);
    if (value == NULL) return true;
    *out = json_integer_value(value);
    return (json_is_integer(value) && *out >= 1 && *out <= most) ||
           malformed(v, section, key, "a number in its range", value);
}

/* A power of two from 2. */
static bool read_block(kv_vf *v, const char *section, const json_t *o, int64_t most, int64_t *out)
{
    *out = 512;
    if (!read_number(v, section, o, "block", most, out)) return false;
    return (*out >= 2 && (*out & (*out - 1)) == 0) ||
           malformed(v, section, "block", "a power of two from 2", json_object_get(o, "block"));
}

/* ---- codec ------------------------------------------------------------------------------------ */

static bool read_bits(kv_vf *v, const json_t *o, bool bits[KV_VF_BITS])
{
    const json_t *list = json_object_get(o, "bits");
    bits[0] = list == NULL;
    if (list == NULL) return true;
    bool good = json_array_size(list) > 0;
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        const int64_t b = json_integer_value(json_array_get(list, i)); /* 0 for what is no number */
        good = b >= 1 && b < KV_VF_BITS && !bits[b];
        if (good) bits[b] = true;
    }
    return good || malformed(v, "codec", "bits", "a list of different numbers from 1 to 4", list);
}

static bool is_file_name(const char *s)
{
    const size_t n = s != NULL ? strlen(s) : 0;
    return n >= 1 && n <= 64 && strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* An entry of files: {"name","bytes","digest"}. */
static bool is_file(const json_t *o)
{
    return json_object_size(o) == 3 && is_file_name(kv_vf_string(o, "name")) && kv_vf_number(o, "bytes") >= 0 &&
           kv_vf_digest_good(json_object_get(o, "digest"));
}

/* The entry that payload "file:NAME" means, or n. */
static size_t find_file(const json_t *files, const char *payload)
{
    const size_t n = json_array_size(files);
    size_t i = 0;
    if (payload == NULL || strncmp(payload, "file:", 5) != 0) return n;
    while (i < n && strcmp(kv_vf_string(json_array_get(files, i), "name"), payload + 5) != 0) i++;
    return i;
}

/* Files, each of another name. */
static bool read_files(kv_vf *v, const json_t *files)
{
    const size_t n = json_array_size(files);
    bool good = files == NULL || (n >= 1 && n <= KV_VF_FILES);
    for (size_t i = 0; good && i < n; i++) {
        const json_t *o = json_array_get(files, i);
        good = is_file(o);
        for (size_t k = 0; good && k < i; k++)
            good = strcmp(kv_vf_string(json_array_get(files, k), "name"), kv_vf_string(o, "name")) != 0;
    }
    return good || malformed(v, "codec", "files", "1 to 16 files with name, bytes and digest, each name once", files);
}

static int by_value(const void *a, const void *b)
{
    return strcmp(((const kv_vf_value *)a)->name, ((const kv_vf_value *)b)->name);
}

/* Names that are known, or of files; each once, and each file is used. */
static bool read_payloads(kv_vf *v, const json_t *o, kv_vf_codec_section *s)
{
    const json_t *list = json_object_get(o, "payloads"), *files = json_object_get(o, "files");
    const size_t n = json_array_size(list), n_files = json_array_size(files);
    size_t used = 0;
    if (!read_files(v, files)) return false;
    bool good = n >= 1 && n <= KV_VF_VALUES;
    for (size_t i = 0; good && i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        const size_t file = find_file(files, name);
        good = file < n_files || kv_vf_name_find(kv_vf_values, name) < kv_vf_values.n;
        if (!good) break;
        s->value[s->n_values++] =
            (kv_vf_value){name, file < n_files ? kv_vf_number(json_array_get(files, file), "bytes") : -1};
        used += file < n_files;
    }
    if (s->n_values > 1) qsort(s->value, (size_t)s->n_values, sizeof s->value[0], by_value);
    for (int i = 1; good && i < s->n_values; i++) good = strcmp(s->value[i - 1].name, s->value[i].name) != 0;
    return (good && used == n_files) ||
           malformed(v, "codec", "payloads", "names that are known here, each once, and every file", list);
}

/* Numbers the cells in row order. */
static void place_cells(kv_vf_codec_section *s)
{
    for (int r = 0; r < KV_VF_RECIPE_COUNT; r++)
        for (int b = 0; b < KV_VF_BITS; b++) {
            const bool takes = kv_vf_recipe_has_bits((kv_vf_recipe)r) ? s->bits[b] : b == 0;
            for (int i = 0; s->recipe[r] && takes && i < KV_VF_VALUES * KV_VF_STREAMS; i++) {
                const int value = i / KV_VF_STREAMS, stream = i % KV_VF_STREAMS;
                if (value < s->n_values && s->stream[stream]) s->place[r][b][value][stream] = ++s->places;
            }
        }
    for (int r = 0; r < KV_VF_RECIPE_COUNT; r++)
        for (int i = 0;
             s->recipe[r] && (r == KV_VF_KV1 || r == KV_VF_SERVING) && i < KV_VF_ARRANGEMENTS * KV_VF_ARRANGEMENTS;
             i++) {
            const int src = i / KV_VF_ARRANGEMENTS, dst = i % KV_VF_ARRANGEMENTS;
            if (src != dst && s->move[src] && s->move[dst]) s->moved[r][src][dst] = ++s->moves;
        }
}

static bool read_codec(kv_vf *v, const json_t *o)
{
    static const char *const keys[] = {"recipes", "streams", "bits", "payloads", "block", "moves", "files", NULL};
    static const char where[] = "codec";
    kv_vf_codec_section *s = &v->campaign.codec;
    if (o == NULL) return true;
    s->present = true;
    if (!only_keys(v, where, o, keys)) return false;
    bool good = true;
    for (int k = 0; k < 4; k += 3)
        if (json_object_get(o, keys[k]) == NULL) good = malformed(v, where, keys[k], "a list of names", NULL);
    good = read_names(v, where, o, "recipes", kv_vf_recipes, false, s->recipe) && good;
    good = read_payloads(v, o, s) && good;
    good = read_names(v, where, o, "streams", kv_vf_streams, true, s->stream) && good;
    good = read_names(v, where, o, "moves", kv_vf_arrangements, false, s->move) && good;
    good = read_bits(v, o, s->bits) && good;
    good = read_block(v, where, o, 65536, &s->block) && good;
    place_cells(s);
    const json_t *moves = json_object_get(o, "moves");
    if (good && moves != NULL && s->moves == 0)
        good = malformed(v, where, "moves", "two arrangements, and kv1 or published-serving among the recipes", moves);
    return good;
}

/* ---- attribution ------------------------------------------------------------------------------ */

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool read_seeds(kv_vf *v, const json_t *o, kv_vf_study_section *s)
{
    const json_t *list = json_object_get(o, "seeds");
    const size_t n = json_array_size(list);
    bool good = n >= 1 && n <= KV_VF_SEEDS_MAX;
    for (size_t i = 0; good && i < n; i++) {
        const json_t *seed = json_array_get(list, i);
        good = json_is_integer(seed) && json_integer_value(seed) >= 0;
        if (good) snprintf(s->seed[s->n_seeds++], sizeof s->seed[0], "%" PRId64, (int64_t)json_integer_value(seed));
    }
    if (s->n_seeds > 1) qsort(s->seed, s->n_seeds, sizeof s->seed[0], by_text);
    for (size_t i = 1; good && i < n; i++) good = strcmp(s->seed[i - 1], s->seed[i]) != 0;
    return good || malformed(v, "attribution", "seeds", "1 to 64 different numbers", list);
}

static bool read_study(kv_vf *v, const json_t *o)
{
    static const char *const keys[] = {"recipes", "cells", "seeds", "passages", "evaluated", "block", NULL};
    static const char where[] = "attribution";
    kv_vf_study_section *s = &v->campaign.study;
    if (o == NULL) return true;
    s->present = true;
    s->passages = 4;
    s->evaluated = 128;
    if (!only_keys(v, where, o, keys)) return false;
    const json_t *recipes = json_object_get(o, "recipes");
    bool good = recipes != NULL || malformed(v, where, "recipes", "a list of names", NULL);
    good = read_names(v, where, o, "recipes", kv_vf_recipes, false, s->recipe) && good;
    good = read_names(v, where, o, "cells", kv_vf_study_cells, true, s->cell) && good;
    good = read_seeds(v, o, s) && good;
    good = read_number(v, where, o, "passages", KV_VF_PASSAGES_MAX, &s->passages) && good;
    good = read_number(v, where, o, "evaluated", 4096, &s->evaluated) && good;
    good = read_block(v, where, o, 4096, &s->block) && good;
    for (int r = 0; r < KV_VF_RECIPE_COUNT; r++) {
        if (s->recipe[r] && !kv_vf_recipe_encodes((kv_vf_recipe)r))
            good = malformed(v, where, "recipes", "recipes of the codec", recipes);
        s->n_recipes += s->recipe[r];
    }
    for (int k = 0; k < KV_VF_STUDY_CELLS; k++) s->n_cells += s->cell[k] && k != KV_VF_STUDY_LAYERS;
    return good;
}

bool kv_vf_sections(kv_vf *v, const json_t *spec)
{
    const bool codec = read_codec(v, json_object_get(spec, "codec"));
    const bool tp = kv_vf_tp_section_read(v, json_object_get(spec, "tp"));
    return read_study(v, json_object_get(spec, "attribution")) && codec && tp;
}
