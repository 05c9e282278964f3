/* The header of a stored cache as JSON, there and back. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/codec/kv_codec_file.h"
#include "layouts/kv_layout_json.h"

#define WHERE "header"
#define FILE_ROWS_MAX 65536 /* of a block in a file: bounds the memory of a reader */

void kv_codec_facts_free(kv_codec_facts *f)
{
    kv_free(f->skip);
    memset(f, 0, sizeof *f);
}

kv_rc kv_codec_facts_plane(const kv_codec_facts *f, int32_t layer, int32_t half, int64_t *bytes, kv_err *err)
{
    kv_codec_account a = {0};
    const kv_rc rc =
        kv_codec_account_of(&f->config.half[half], 1, &f->skip[layer], f->geometry.kv_heads, f->geometry.tokens,
                            (int32_t)kv_elem_bytes(f->geometry.element), true, &a, err);
    *bytes = a.bytes;
    return rc;
}

/* ---- out -------------------------------------------------------------------------------- */

static json_t *float_bits(float x)
{
    uint32_t w;
    char text[9];
    memcpy(&w, &x, sizeof w);
    snprintf(text, sizeof text, "%08" PRIx32, w);
    return json_string(text);
}

static json_t *half_json(const kv_codec_half_config *h)
{
    const kv_codec_params *p = &h->slot.params;
    json_t *levels = json_array();
    for (int32_t i = 0; i < 1 << p->bits; i++) json_array_append_new(levels, float_bits(p->level[i]));
    return json_pack("{s:I,s:s,s:I,s:I,s:I,s:I,s:o,s:I,s:I,s:o}", "bits", (json_int_t)p->bits, "metric",
                     kv_codec_metric_name(p->metric), "d_eff", (json_int_t)p->d_eff, "centres", (json_int_t)p->k,
                     "rows", (json_int_t)h->slot.n, "seed", (json_int_t)p->seed, "threshold",
                     p->outliers ? float_bits(p->threshold) : json_null(), "budget_ppm", (json_int_t)h->slot.budget_ppm,
                     "group", (json_int_t)h->group, "levels", levels);
}

json_t *kv_codec_facts_json_new(const kv_codec_facts *f)
{
    json_t *skip = json_array(), *streams = json_object();
    for (int32_t i = 0; i < f->config.layers; i++)
        if (f->skip[i]) json_array_append_new(skip, json_integer(i));
    for (int h = 0; h < KV_CODEC_HALVES; h++)
        if (f->config.has[h]) json_object_set_new(streams, kv_codec_half_name(h), half_json(&f->config.half[h]));
    return json_pack("{s:s,s:s,s:o,s:o,s:o,s:s,s:o}", "format", KV_CODEC_FILE_FORMAT, "recipe",
                     kv_codec_recipe_name(f->recipe), "geometry", kv_geometry_json_new(&f->geometry), "skip_layers",
                     skip, "streams", streams, "solver", f->solver, "whiten",
                     f->whiten[0] != '\0' ? json_string(f->whiten) : json_null());
}

/* ---- in --------------------------------------------------------------------------------- */

static bool read_float(const json_t *v, float *out)
{
    const char *text = json_string_value(v);
    uint8_t b[4];
    if (text == NULL || !kv_hex_decode(text, b, 4)) return false;
    const uint32_t w = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    memcpy(out, &w, sizeof w);
    return true;
}

static kv_rc read_metric(const json_t *v, const char *where, int32_t *out, kv_err *err)
{
    const char *text = NULL;
    const kv_rc rc = kv_json_get_text(v, "metric", true, where, &text, err);
    if (rc != KV_OK) return rc;
    for (int32_t m = 0; m < KV_CODEC_METRIC_COUNT; m++)
        if (strcmp(text, kv_codec_metric_name(m)) == 0) {
            *out = m;
            return KV_OK;
        }
    return KV_FAIL(err, KV_EFORMAT, "%s: \"metric\": \"%.40s\" is not known", where, text);
}

static kv_rc read_sizes(const json_t *v, const char *where, kv_codec_half_config *h, int32_t *bits, kv_err *err)
{
    static const struct {
        const char *key;
        int64_t least, most;
    } keys[] = {{"bits", 1, KV_CODEC_BITS_MAX}, {"d_eff", 1, KV_CODEC_DIM_MAX}, {"centres", 1, KV_CODEC_CENTERS_MAX},
                {"rows", 1, FILE_ROWS_MAX},     {"seed", 0, UINT32_MAX},        {"budget_ppm", 0, KV_CODEC_PPM},
                {"group", 0, 1 << 20}};
    int64_t got[sizeof keys / sizeof keys[0]];
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        got[i] = -1;
        const kv_rc rc = kv_json_get_int(v, keys[i].key, keys[i].least, keys[i].most, where, &got[i], err);
        if (rc != KV_OK) return rc;
        if (got[i] < 0) return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" is missing", where, keys[i].key);
    }
    *bits = (int32_t)got[0];
    h->slot.params.d_eff = h->fit.rank_cap = (int32_t)got[1];
    h->slot.params.k = h->fit.k = (int32_t)got[2];
    h->slot.n = got[3];
    h->slot.params.seed = (uint32_t)got[4];
    h->slot.budget_ppm = (int32_t)got[5];
    h->group = (int32_t)got[6];
    h->slot.shared = h->group != 1;
    return KV_OK;
}

static kv_rc read_half(const json_t *v, int32_t recipe, int32_t half, int64_t dim, bool whitened,
                       kv_codec_half_config *out, kv_err *err)
{
    static const char *const keys[] = {"bits",      "metric",     "d_eff", "centres", "rows", "seed",
                                       "threshold", "budget_ppm", "group", "levels",  NULL};
    const char *where = half == KV_CODEC_K ? WHERE ": streams: k" : WHERE ": streams: v";
    float levels[KV_CODEC_LEVELS_MAX];
    int32_t bits = 0;
    kv_codec_slot_layout l;
    kv_err why = {0};
    kv_rc rc;
    KV_TRY(rc, out, kv_json_only_keys(v, keys, where, err));
    if (dim > KV_CODEC_DIM_MAX || kv_codec_recipe_half(recipe, half, (int32_t)dim, whitened, out, &why) != KV_OK)
        return KV_FAIL(err, KV_EFORMAT, "%s: a head_dim of %" PRId64 " is more than the codec takes", where, dim);
    KV_TRY(rc, out, read_sizes(v, where, out, &bits, err));
    KV_TRY(rc, out, read_metric(v, where, &out->slot.params.metric, err));
    const json_t *list = json_object_get(v, "levels"), *threshold = json_object_get(v, "threshold");
    bool good = json_is_array(list) && json_array_size(list) == (size_t)1 << bits;
    for (size_t i = 0; good && i < (size_t)1 << bits; i++) good = read_float(json_array_get(list, i), &levels[i]);
    out->slot.params.outliers = !json_is_null(threshold);
    if (!good || threshold == NULL ||
        (out->slot.params.outliers && !read_float(threshold, &out->slot.params.threshold)))
        return KV_FAIL(err, KV_EFORMAT, "%s: \"levels\" or \"threshold\" hold no float32 bits as 8 hex digits", where);
    kv_codec_half_levels(out, bits, levels);
    if (kv_codec_slot_sizes(&out->slot, &l, &why) != KV_OK) return KV_FAIL(err, KV_EFORMAT, "%s: %s", where, why.text);
out:
    return rc;
}

static kv_rc read_geometry(const json_t *v, kv_geometry *g, kv_err *err)
{
    static const char *const keys[] = {"layers", "tokens", "kv_heads", "head_dim", "head_dim_v", "element", NULL};
    const char *element = NULL;
    kv_err why = {0};
    kv_rc rc;
    *g = (kv_geometry){-1, -1, -1, -1, -1, KV_ELEM_F16};
    KV_TRY(rc, out, kv_json_only_keys(v, keys, WHERE ": geometry", err));
    KV_TRY(rc, out, kv_json_get_int(v, "layers", 1, KV_CODEC_LAYERS_MAX, WHERE ": geometry", &g->layers, err));
    KV_TRY(rc, out, kv_json_get_int(v, "tokens", 0, KV_TOKENS_MAX, WHERE ": geometry", &g->tokens, err));
    KV_TRY(rc, out, kv_json_get_int(v, "kv_heads", 1, KV_HEADS_MAX, WHERE ": geometry", &g->kv_heads, err));
    KV_TRY(rc, out, kv_json_get_int(v, "head_dim", 1, KV_HEAD_DIM_MAX, WHERE ": geometry", &g->head_dim, err));
    g->head_dim_v = g->head_dim;
    KV_TRY(rc, out, kv_json_get_int(v, "head_dim_v", 1, KV_HEAD_DIM_MAX, WHERE ": geometry", &g->head_dim_v, err));
    KV_TRY(rc, out, kv_json_get_text(v, "element", true, WHERE ": geometry", &element, err));
    if (!kv_elem_parse(element, &g->element) || g->element == KV_ELEM_FP8_E4M3 || kv_geometry_check(g, &why) != KV_OK)
        rc = KV_FAIL(err, KV_EFORMAT, WHERE ": geometry: element \"%.40s\", or a size is missing: %s", element,
                     why.text);
out:
    return rc;
}

static kv_rc read_skip(const json_t *v, kv_codec_facts *f, kv_err *err)
{
    int64_t last = -1;
    if (!json_is_array(v)) return KV_FAIL(err, KV_EFORMAT, WHERE ": \"skip_layers\" must be a list");
    f->skip = kv_alloc((size_t)f->config.layers, sizeof *f->skip);
    if (f->skip == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %d layers", f->config.layers);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *one = json_array_get(v, i);
        if (!json_is_integer(one) || json_integer_value(one) <= last || json_integer_value(one) >= f->config.layers)
            return KV_FAIL(err, KV_EFORMAT, WHERE ": skip_layers[%zu] is no layer above the one before", i);
        last = json_integer_value(one);
        f->skip[last] = true;
    }
    return KV_OK;
}

static kv_rc read_names(const json_t *v, kv_codec_facts *f, kv_err *err)
{
    const char *format = NULL, *recipe = NULL, *solver = NULL, *whiten = NULL;
    uint8_t digest[KV_HASH_BYTES];
    kv_err why = {0};
    kv_rc rc;
    KV_TRY(rc, out, kv_json_get_text(v, "format", true, WHERE, &format, err));
    KV_TRY(rc, out, kv_json_get_text(v, "recipe", true, WHERE, &recipe, err));
    KV_TRY(rc, out, kv_json_get_text(v, "solver", true, WHERE, &solver, err));
    KV_TRY(rc, out, kv_json_get_text(v, "whiten", false, WHERE, &whiten, err));
    if (strcmp(format, KV_CODEC_FILE_FORMAT) != 0)
        return KV_FAIL(err, KV_EFORMAT, WHERE ": format \"%.40s\", \"%s\" was expected", format, KV_CODEC_FILE_FORMAT);
    if (kv_codec_recipe_find(recipe, &f->recipe, &why) != KV_OK)
        return KV_FAIL(err, KV_EFORMAT, WHERE ": no recipe is called \"%.40s\"", recipe);
    if (strlen(solver) >= sizeof f->solver || (whiten != NULL && !kv_hex_decode(whiten, digest, KV_HASH_BYTES)))
        return KV_FAIL(err, KV_EFORMAT, WHERE ": \"solver\" or \"whiten\" is not good");
    memcpy(f->solver, solver, strlen(solver) + 1);
    if (whiten != NULL) memcpy(f->whiten, whiten, KV_HASH_HEX);
out:
    return rc;
}

kv_rc kv_codec_facts_read(const json_t *v, kv_codec_facts *f, kv_err *err)
{
    static const char *const keys[] = {"format",  "recipe", "geometry", "skip_layers",
                                       "streams", "solver", "whiten",   NULL};
    static const char *const halves[] = {"k", "v", NULL};
    const json_t *streams = json_object_get(v, "streams");
    kv_rc rc;
    KV_TRY(rc, out, kv_json_only_keys(v, keys, WHERE, err));
    KV_TRY(rc, out, read_names(v, f, err));
    KV_TRY(rc, out, read_geometry(json_object_get(v, "geometry"), &f->geometry, err));
    f->config.layers = (int32_t)f->geometry.layers;
    f->config.heads = (int32_t)f->geometry.kv_heads;
    f->config.element = f->geometry.element;
    KV_TRY(rc, out, read_skip(json_object_get(v, "skip_layers"), f, err));
    f->config.skip = f->skip;
    KV_TRY(rc, out, kv_json_only_keys(streams, halves, WHERE ": streams", err));
    for (int h = 0; h < KV_CODEC_HALVES; h++) {
        const json_t *one = json_object_get(streams, halves[h]);
        f->config.has[h] = one != NULL;
        if (one == NULL) continue;
        const int64_t dim = h == KV_CODEC_K ? f->geometry.head_dim : f->geometry.head_dim_v;
        KV_TRY(rc, out, read_half(one, f->recipe, h, dim, f->whiten[0] != '\0', &f->config.half[h], err));
    }
    if (!f->config.has[0] && !f->config.has[1])
        rc = KV_FAIL(err, KV_EFORMAT, WHERE ": \"streams\" holds neither k nor v");
out:
    return rc;
}
