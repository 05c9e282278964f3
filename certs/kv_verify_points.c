/* Cells of the checks codec, move and attribution: which there are, in which order, in which part, and which one a row is of. */
#include "certs/kv_verify_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---------------------------------------------------------------------------------- */

static const char *const checks[] = {"attribution", "codec", "move", "pair", "tp"};
static const char *const recipes[] = {
    "fp8", "int4-token", "kv1", "kv1-shared", "published-harness", "published-serving", "rotation"};
static const char *const values[] = {"constant", "gaussian", "heavy-tailed", "k-like-1",
                                     "k-like-2", "k-like-3", "k-like-4",     "zeros"};
static const char *const streams[] = {"k", "v"};
static const char *const arrangements[] = {"head-major", "kv-pools", "pages", "table"};
static const char *const study_cells[] = {"identity",        "k",  "k-no-whitening", "k-whiten-after",
                                          "k-whiten-before", "kv", "kv-prefix",      "layers",
                                          "noise",           "v",  "v-outliers",     "whiten-only"};
#define NAMES(list_)                                                                                                   \
    {                                                                                                                  \
        list_, (int)(sizeof list_ / sizeof *list_)                                                                     \
    }
const kv_vf_names kv_vf_recipes = NAMES(recipes), kv_vf_values = NAMES(values), kv_vf_streams = NAMES(streams),
                  kv_vf_arrangements = NAMES(arrangements), kv_vf_study_cells = NAMES(study_cells);
static const kv_vf_names check_names = NAMES(checks);

int kv_vf_name_find(kv_vf_names names, const char *name)
{
    int i = 0;
    while (i < names.n && (name == NULL || strcmp(names.name[i], name) != 0)) i++;
    return i;
}

const char *kv_vf_check_name(kv_vf_check check)
{
    return checks[check];
}

bool kv_vf_check_parse(const char *name, kv_vf_check *out)
{
    const int i = kv_vf_name_find(check_names, name);
    if (i < check_names.n) *out = (kv_vf_check)i;
    return i < check_names.n;
}

bool kv_vf_recipe_encodes(kv_vf_recipe r)
{
    return r == KV_VF_KV1 || r == KV_VF_KV1_SHARED || r == KV_VF_HARNESS || r == KV_VF_SERVING;
}

bool kv_vf_recipe_has_bits(kv_vf_recipe r)
{
    return r != KV_VF_FP8_ROWS && r != KV_VF_INT4_TOKEN;
}

/* ---- how many, and in which part ------------------------------------------------------------- */

/* Layers that have a cell of their own. */
static int64_t layer_cells(const kv_vf *v, size_t geometry)
{
    const int64_t layers = v->geometries[geometry].layers;
    if (!v->campaign.study.cell[KV_VF_STUDY_LAYERS]) return 0;
    return layers < KV_VF_LAYER_CELLS ? layers : KV_VF_LAYER_CELLS;
}

uint64_t kv_vf_point_count(const kv_vf *v, kv_vf_check check, size_t geometry)
{
    const kv_vf_study_section *s = &v->campaign.study;
    if (check == KV_VF_CODEC) return v->campaign.codec.places;
    if (check == KV_VF_MOVE) return v->campaign.codec.moves;
    if (check == KV_VF_TP) return v->campaign.tp.n;
    return s->n_recipes * s->n_seeds * (s->n_cells + (uint64_t)layer_cells(v, geometry));
}

void kv_vf_sections_place(kv_vf *v)
{
    kv_vf_study_section *s = &v->campaign.study;
    uint64_t n = 0;
    if (!s->present) return;
    s->first = kv_alloc(v->n_geometries, sizeof *s->first);
    if (s->first == NULL) {
        kv_vf_no_memory(v);
        return;
    }
    for (size_t g = 0; g < v->n_geometries; g++) {
        s->first[g] = n;
        n += kv_vf_point_count(v, KV_VF_ATTRIBUTION, g);
    }
}

bool kv_vf_point_in_part(const kv_vf *v, kv_vf_check check, size_t geometry, uint64_t place)
{
    const kv_vf_campaign *c = &v->campaign;
    const uint64_t before = check == KV_VF_ATTRIBUTION ? c->study.first[geometry]
                                                       : (uint64_t)geometry * kv_vf_point_count(v, check, geometry);
    const uint64_t number = ((uint64_t)check + 1) * 1000003 + before + place;
    const uint64_t hash = number * 2654435761u & 0xFFFFFFFFu;
    return c->parts == 1 || hash / 65536 % c->parts + 1 == c->part;
}

/* ---- the cell of a row ----------------------------------------------------------------------- */

/* The text of key of an object with n keys, or NULL. */
static const char *param(const json_t *params, size_t n, const char *key)
{
    return json_object_size(params) == n ? kv_vf_string(params, key) : NULL;
}

static int find_value(const kv_vf_codec_section *s, const char *name)
{
    int i = 0;
    while (i < s->n_values && (name == NULL || strcmp(s->value[i].name, name) != 0)) i++;
    return i;
}

/* Place, from 1, of the cell that a codec row is of; 0 where there is none. */
static uint32_t find_codec(const kv_vf *v, const json_t *row, int recipe, kv_vf_point *p)
{
    const kv_vf_codec_section *s = &v->campaign.codec;
    const json_t *params = json_object_get(row, "params");
    const bool bits = json_object_get(params, "bits") != NULL;
    const size_t keys = bits ? 3 : 2;
    const char *text = param(params, keys, "bits");
    const int value = find_value(s, param(params, keys, "payload"));
    const int stream = kv_vf_name_find(kv_vf_streams, param(params, keys, "stream"));
    int64_t b = 0;
    if (recipe == KV_VF_RECIPE_COUNT || value == s->n_values || stream == KV_VF_STREAMS) return 0;
    if (bits && (text == NULL || strlen(text) != 1 || !kv_parse_i64(text, 1, KV_VF_BITS - 1, &b))) return 0;
    p->bits = (int)b;
    p->value = value;
    p->stream = stream;
    return s->place[recipe][b][value][stream];
}

/* "RECIPE:ARRANGEMENT"; -1 where it is none. */
static int find_side(const char *side, int *recipe)
{
    for (int r = 0; r < KV_VF_RECIPE_COUNT; r++) {
        const size_t n = strlen(recipes[r]);
        if (strncmp(side, recipes[r], n) != 0 || side[n] != ':') continue;
        const int a = kv_vf_name_find(kv_vf_arrangements, side + n + 1);
        *recipe = r;
        return a < KV_VF_ARRANGEMENTS ? a : -1;
    }
    return -1;
}

static uint32_t find_move(const kv_vf *v, const json_t *row, int *recipe, kv_vf_point *p)
{
    int other = KV_VF_RECIPE_COUNT;
    p->src = find_side(kv_vf_string(row, "src"), recipe);
    p->dst = find_side(kv_vf_string(row, "dst"), &other);
    if (p->src < 0 || p->dst < 0 || other != *recipe || json_object_size(json_object_get(row, "params")) != 0) return 0;
    return v->campaign.codec.moved[*recipe][p->src][p->dst];
}

/* The order of numbers below 100 as texts. */
static int64_t text_order(int64_t n)
{
    return n < 10 ? 11 * n : 11 * (n / 10) + 1 + n % 10;
}

/* The number of a cell "layer-N" that exists, or -1. */
static int64_t layer_of(const char *name, int64_t layers)
{
    int64_t n;
    if (name == NULL || strncmp(name, "layer-", 6) != 0 || name[6] < '0' || name[6] > '9') return -1;
    if ((name[6] == '0' && name[7] != '\0') || !kv_parse_i64(name + 6, 0, layers - 1, &n)) return -1;
    return n;
}

/* Place of a cell among those of its geometry in the order of their names, or -1. */
static int64_t study_cell_place(const kv_vf *v, size_t geometry, const char *name, int *kind)
{
    const kv_vf_study_section *s = &v->campaign.study;
    const int64_t layers = layer_cells(v, geometry), layer = layer_of(name, layers);
    const int at = layer >= 0 ? KV_VF_STUDY_LAYERS : kv_vf_name_find(kv_vf_study_cells, name);
    int64_t place = 0;
    if (layer < 0 && (at == KV_VF_STUDY_CELLS || at == KV_VF_STUDY_LAYERS || !s->cell[at])) return -1;
    for (int k = 0; k < at; k++) place += k == KV_VF_STUDY_LAYERS ? layers : s->cell[k];
    for (int64_t l = 0; l < layers && layer >= 0; l++) place += text_order(l) < text_order(layer);
    *kind = layer >= 0 ? -1 : at;
    return place;
}

static size_t find_seed(const kv_vf_study_section *s, const char *text)
{
    size_t i = 0;
    while (i < s->n_seeds && (text == NULL || strcmp(s->seed[i], text) != 0)) i++;
    return i;
}

static uint32_t find_study(const kv_vf *v, const json_t *row, int recipe, size_t geometry, kv_vf_point *p)
{
    const kv_vf_study_section *s = &v->campaign.study;
    const json_t *params = json_object_get(row, "params");
    const size_t seed = find_seed(s, param(params, 2, "seed"));
    uint64_t before = 0;
    const int64_t cell = study_cell_place(v, geometry, param(params, 2, "cell"), &p->cell);
    if (recipe == KV_VF_RECIPE_COUNT || !s->recipe[recipe] || seed == s->n_seeds || cell < 0) return 0;
    p->seed = seed;
    for (int r = 0; r < recipe; r++) before += s->recipe[r];
    const uint64_t cells = s->n_cells + (uint64_t)layer_cells(v, geometry);
    return (uint32_t)((before * cells + (uint64_t)cell) * s->n_seeds + seed + 1);
}

static bool undeclared(kv_vf *v, size_t i, const char *key, const char *expected, const json_t *row)
{
    char actual[KV_VF_TEXT];
    kv_vf_fault(v, KV_H11_ENGINE_UNDECLARED, kv_vf_at(v, "$.rows[%zu].%s", i, key), expected,
                kv_vf_show(json_object_get(row, key), actual));
    return false;
}

bool kv_vf_point_find(kv_vf *v, const json_t *row, size_t i, kv_vf_check check, kv_vf_cell *out)
{
    const int64_t geometry = kv_vf_number(row, "geometry");
    const char *src = kv_vf_string(row, "src"), *dst = kv_vf_string(row, "dst");
    const char *id = kv_vf_string(row, "pair_id"), *arrow = strstr(id, "->");
    int recipe = kv_vf_name_find(kv_vf_recipes, dst);
    uint32_t place = 0;
    kv_vf_point p = {0};
    const bool present = check == KV_VF_ATTRIBUTION ? v->campaign.study.present
                         : check == KV_VF_TP        ? v->campaign.tp.present
                                                    : v->campaign.codec.present;
    if (!present) return undeclared(v, i, "check", "a check of the campaign", row);
    if ((uint64_t)geometry >= v->n_geometries) return undeclared(v, i, "geometry", "an index in geometries", row);
    if (check == KV_VF_TP)
        place = kv_vf_tp_find(v, row, &p);
    else if (check == KV_VF_MOVE)
        place = find_move(v, row, &recipe, &p);
    else if (strcmp(src, KV_CERT_CANONICAL) == 0)
        place =
            check == KV_VF_CODEC ? find_codec(v, row, recipe, &p) : find_study(v, row, recipe, (size_t)geometry, &p);
    if (place == 0) return undeclared(v, i, "params", "src, dst and params of a cell of the campaign", row);
    const size_t n = strlen(src);
    if (arrow == NULL || (size_t)(arrow - id) != n || strncmp(id, src, n) != 0 || strcmp(arrow + 2, dst) != 0)
        return undeclared(v, i, "pair_id", "SRC->DST", row);
    if (!kv_vf_point_in_part(v, check, (size_t)geometry, place - 1))
        return undeclared(v, i, "pair_id", "a cell of this part of the campaign", row);
    p.recipe = (kv_vf_recipe)recipe;
    *out = (kv_vf_cell){.geometry = (uint32_t)geometry, .src = place - 1, .check = check, .point = p};
    return true;
}

/* ---- cells without a row ----------------------------------------------------------------------- */

static const char *codec_name(const kv_vf_codec_section *s, uint64_t place)
{
    for (int r = 0; r < KV_VF_RECIPE_COUNT; r++)
        for (int b = 0; b < KV_VF_BITS; b++)
            for (int i = 0; i < KV_VF_VALUES * KV_VF_STREAMS; i++)
                if (s->place[r][b][i / KV_VF_STREAMS][i % KV_VF_STREAMS] == place + 1) return recipes[r];
    return "?";
}

static const char *move_name(const kv_vf_codec_section *s, uint64_t place)
{
    for (int r = 0; r < KV_VF_RECIPE_COUNT; r++)
        for (int i = 0; i < KV_VF_ARRANGEMENTS * KV_VF_ARRANGEMENTS; i++)
            if (s->moved[r][i / KV_VF_ARRANGEMENTS][i % KV_VF_ARRANGEMENTS] == place + 1) return recipes[r];
    return "?";
}

static const char *study_name(const kv_vf *v, size_t geometry, uint64_t place)
{
    const kv_vf_study_section *s = &v->campaign.study;
    uint64_t at = place / (s->n_seeds * (s->n_cells + (uint64_t)layer_cells(v, geometry)));
    for (int r = 0; r < KV_VF_RECIPE_COUNT; r++)
        if (s->recipe[r] && at-- == 0) return recipes[r];
    return "?";
}

void kv_vf_point_missing(kv_vf *v, kv_vf_check check, size_t geometry, uint64_t place)
{
    char text[2 * 64 + 83];
    const char *recipe = check == KV_VF_TP      ? kv_vf_tp_name(v, place)
                         : check == KV_VF_CODEC ? codec_name(&v->campaign.codec, place)
                         : check == KV_VF_MOVE  ? move_name(&v->campaign.codec, place)
                                                : study_name(v, geometry, place);
    snprintf(text, sizeof text, "%s of %s at geometry %zu, cell %llu of it", checks[check], recipe, geometry,
             (unsigned long long)place);
    kv_vf_fault(v, KV_H15_CELL_MISSING, "$.rows", text, "no row");
}
