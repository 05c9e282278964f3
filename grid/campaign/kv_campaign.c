/* The campaign file: strict reading. Expansion to cells is in kv_cells.c. */
#include "grid/campaign/kv_campaign.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/kv_file.h"
#include "certs/kv_cert_names.h"
#include "certs/kv_json.h"
#include "grid/campaign/kv_cells.h"
#include "grid/campaign/kv_expect_read.h"
#include "grid/campaign/kv_write_out.h"
#include "layouts/kv_layout_json.h"

#define CAMPAIGN_LIMIT ((size_t)64 << 20)
#define GEOMETRIES_MAX 50000

/* ---- geometries ------------------------------------------------------------------------- */

enum { G_LAYERS, G_TOKENS, G_HEADS, G_DIM, G_DIM_V, G_FIELDS };
static const char *const g_keys[G_FIELDS] = {"layers", "tokens", "kv_heads", "head_dim", "head_dim_v"};

/* Number of choices of a field: 1 for a plain value, the length of a list; 0 and an error if it is neither. */
static kv_rc choices(const json_t *v, const char *key, const char *where, size_t *n, kv_err *err)
{
    *n = json_is_array(v) ? json_array_size(v) : 1;
    if (*n == 0) return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" is an empty list", where, key);
    return KV_OK;
}

static const json_t *choice(const json_t *v, size_t i)
{
    return json_is_array(v) ? json_array_get(v, i) : v;
}

static kv_rc set_field(kv_geometry *g, int field, const json_t *v, const char *where, kv_err *err)
{
    int64_t *const to[G_FIELDS] = {&g->layers, &g->tokens, &g->kv_heads, &g->head_dim, &g->head_dim_v};
    if (!json_is_integer(v))
        return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" must be an integer or a list of integers", where, g_keys[field]);
    *to[field] = json_integer_value(v);
    return KV_OK;
}

/* The geometries so far by their values: slots hold a number + 1, 0 where free. */
typedef struct {
    uint32_t slot[4 * 32768]; /* more than twice GEOMETRIES_MAX, a power of two */
} known_geometries;

/* The slot of a geometry, or the free one where it would stand. */
static size_t geometry_slot(const known_geometries *k, const kv_campaign *c, const kv_geometry *g)
{
    const size_t mask = sizeof k->slot / sizeof k->slot[0] - 1;
    const int64_t v[] = {g->layers, g->tokens, g->kv_heads, g->head_dim, g->head_dim_v, (int64_t)g->element};
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        h = (h ^ (uint64_t)v[i]) * 0x9E3779B97F4A7C15U;
        h ^= h >> 29;
    }
    size_t i = (size_t)h & mask;
    while (k->slot[i] != 0 && !kv_geometry_equal(&c->geometries[k->slot[i] - 1], g)) i = (i + 1) & mask;
    return i;
}

static kv_rc add_geometry(kv_campaign *c, known_geometries *known, const kv_geometry *g, const char *where, kv_err *err)
{
    char text[KV_GEOMETRY_TEXT];
    kv_err why = {0};
    if (kv_geometry_check(g, &why) != KV_OK) return KV_FAIL(err, KV_EFORMAT, "%s: %s", where, why.text);
    const size_t slot = geometry_slot(known, c, g);
    if (known->slot[slot] != 0) {
        kv_geometry_print(g, text);
        return KV_FAIL(err, KV_EFORMAT, "%s: geometry %s stands twice in the campaign", where, text);
    }
    if (c->n_geometries >= GEOMETRIES_MAX)
        return KV_FAIL(err, KV_EFORMAT, "%s: more than %d geometries", where, GEOMETRIES_MAX);
    kv_geometry *grown = kv_realloc(c->geometries, c->n_geometries + 1, sizeof *g);
    if (grown == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu geometries", c->n_geometries + 1);
    c->geometries = grown;
    c->geometries[c->n_geometries++] = *g;
    known->slot[slot] = (uint32_t)c->n_geometries;
    return KV_OK;
}

/* All combinations of one geometry object, the first field slowest. */
static kv_rc expand_geometry(kv_campaign *c, known_geometries *known, const json_t *obj, const char *where, kv_err *err)
{
    static const char *const keys[] = {"layers", "tokens", "kv_heads", "head_dim", "head_dim_v", "element", NULL};
    kv_rc rc;
    const json_t *value[G_FIELDS + 1];
    size_t n[G_FIELDS + 1], at[G_FIELDS + 1] = {0};
    KV_TRY(rc, out, kv_json_only_keys(obj, keys, where, err));
    for (int f = 0; f <= G_FIELDS; f++) {
        value[f] = json_object_get(obj, keys[f]);
        if (value[f] == NULL && f != G_DIM_V)
            return KV_FAIL(err, KV_EFORMAT, "%s: key \"%s\" is missing", where, keys[f]);
        n[f] = 1;
        if (value[f] != NULL) KV_TRY(rc, out, choices(value[f], keys[f], where, &n[f], err));
    }
    for (bool more = true; more;) {
        kv_geometry g = {0};
        const char *element = json_string_value(choice(value[G_FIELDS], at[G_FIELDS]));
        for (int f = 0; f < G_FIELDS; f++)
            if (value[f] != NULL) KV_TRY(rc, out, set_field(&g, f, choice(value[f], at[f]), where, err));
        if (value[G_DIM_V] == NULL) g.head_dim_v = g.head_dim;
        if (element == NULL || !kv_elem_parse(element, &g.element))
            return KV_FAIL(err, KV_EFORMAT, "%s: \"element\" must be f16, bf16, f32 or fp8_e4m3, not \"%s\"", where,
                           element != NULL ? element : "(not a text)");
        KV_TRY(rc, out, add_geometry(c, known, &g, where, err));
        more = false;
        for (int f = G_FIELDS; f >= 0 && !more; f--) {
            more = ++at[f] < n[f];
            if (!more) at[f] = 0;
        }
    }
out:
    return rc;
}

static kv_rc read_geometries(kv_campaign *c, const json_t *spec, const char *where, kv_err *err)
{
    const json_t *list = json_object_get(spec, "geometries");
    if (!json_is_array(list) || json_array_size(list) == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"geometries\" must be a list of at least one geometry", where);
    known_geometries *known = kv_alloc(1, sizeof *known);
    kv_rc rc = known != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for geometries");
    for (size_t i = 0; rc == KV_OK && i < json_array_size(list); i++) {
        char place[KV_ERR_TEXT];
        snprintf(place, sizeof place, "%s: geometries[%zu]", where, i);
        rc = expand_geometry(c, known, json_array_get(list, i), place, err);
    }
    kv_free(known);
    return rc;
}

/* ---- the other keys --------------------------------------------------------------------- */

static kv_rc read_tails(kv_campaign *c, const json_t *spec, const char *where, kv_err *err)
{
    const json_t *v = json_object_get(spec, "tail");
    size_t n = 1;
    kv_rc rc = KV_OK;
    if (v == NULL) {
        c->tails[c->n_tails++] = KV_TAIL_STALE;
        return KV_OK;
    }
    KV_TRY(rc, out, choices(v, "tail", where, &n, err));
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(choice(v, i));
        int t = 0;
        while (name != NULL && t < KV_TAIL_COUNT && strcmp(name, kv_tail_name((kv_tail)t)) != 0) t++;
        if (name == NULL || t == KV_TAIL_COUNT)
            return KV_FAIL(err, KV_EFORMAT, "%s: \"tail\" must be \"stale\", \"zero\", \"nan\" or a list of them",
                           where);
        for (size_t k = 0; k < c->n_tails; k++)
            if (c->tails[k] == (kv_tail)t)
                return KV_FAIL(err, KV_EFORMAT, "%s: \"tail\" holds \"%s\" twice", where, name);
        c->tails[c->n_tails++] = (kv_tail)t;
    }
out:
    return rc;
}

static kv_rc read_seed(kv_campaign *c, const json_t *spec, const char *where, kv_err *err)
{
    const json_t *v = json_object_get(spec, "seed");
    c->seed = 1;
    if (v == NULL) return KV_OK;
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        c->seed = (uint64_t)json_integer_value(v);
        return KV_OK;
    }
    const char *text = json_string_value(v); /* one way to write a number: no leading zeros */
    if (text != NULL && kv_parse_u64(text, &c->seed) && (text[0] != '0' || text[1] == '\0')) return KV_OK;
    return KV_FAIL(err, KV_EFORMAT,
                   "%s: \"seed\" must be an integer from 0 to 2^53 - 1, or a decimal string up to 2^64 - 1 without "
                   "leading zeros",
                   where);
}

static kv_rc read_name(kv_campaign *c, const json_t *spec, const char *where, kv_err *err)
{
    const char *name = NULL;
    kv_rc rc = kv_json_get_text(spec, "name", true, where, &name, err);
    if (rc != KV_OK) return rc;
    if (strlen(name) > KV_NAME_MAX ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] != '\0' ||
        strchr("._-", name[0]) != NULL)
        return KV_FAIL(err, KV_EFORMAT,
                       "%s: \"name\": \"%s\" must be 1 to %d of a-z A-Z 0-9 . _ -, starting with a letter or digit",
                       where, name, KV_NAME_MAX);
    c->name = kv_strdup(name);
    return c->name != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for a name");
}

static kv_rc check_text_list(const json_t *obj, const char *key, const char *where, kv_err *err)
{
    const json_t *list = json_object_get(obj, key);
    if (list == NULL) return KV_OK;
    bool good = json_is_array(list);
    for (size_t i = 0; good && i < json_array_size(list); i++) good = json_is_string(json_array_get(list, i));
    return good ? KV_OK : KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" must be a list of texts", where, key);
}

static kv_rc check_known(const json_t *list, const char *key, bool (*known)(const char *), const char *where,
                         kv_err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!known(json_string_value(json_array_get(list, i))))
            return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\": \"%s\" is not known", where, key,
                           json_string_value(json_array_get(list, i)));
    return KV_OK;
}

static bool known_word(const char *s)
{
    for (int w = 0; w < KV_W_COUNT; w++)
        if (strcmp(s, kv_layout_word_name((kv_layout_word)w)) == 0) return true;
    return false;
}

static bool known_frontier(const char *s)
{
    for (int f = KV_X1_LATENT_KV; f <= KV_X4_GEOMETRY_UNREPRESENTABLE; f++)
        if (strcmp(s, kv_layout_frontier_name((kv_layout_frontier)f)) == 0) return true;
    return false;
}

static bool known_check(const char *s)
{
    kv_check k;
    return kv_check_parse(s, &k);
}

static kv_rc check_claims(const json_t *spec, const char *where, kv_err *err)
{
    static const char *const keys[] = {"words", "frontier_codes", "checks", NULL};
    static bool (*const known[])(const char *) = {known_word, known_frontier, known_check};
    const json_t *claims = json_object_get(spec, "claims");
    kv_rc rc = KV_OK;
    char place[KV_ERR_TEXT];
    if (claims == NULL) return KV_OK;
    snprintf(place, sizeof place, "%s: \"claims\"", where);
    KV_TRY(rc, out, kv_json_only_keys(claims, keys, place, err));
    for (int i = 0; i < 3; i++) {
        KV_TRY(rc, out, check_text_list(claims, keys[i], place, err));
        KV_TRY(rc, out, check_known(json_object_get(claims, keys[i]), keys[i], known[i], place, err));
    }
out:
    return rc;
}

static kv_rc check_floors(const json_t *spec, const char *where, kv_err *err)
{
    static const char *const keys[] = {
        "exact_byte", "exact_token",    "not_exact", "refused",  "positions_checked", "source_positions_checked",
        "words",      "frontier_codes", "checks",    "controls", "known_limits",      NULL};
    const json_t *floors = json_object_get(spec, "floors");
    kv_rc rc = KV_OK;
    char place[KV_ERR_TEXT];
    if (floors == NULL) return KV_OK;
    snprintf(place, sizeof place, "%s: \"floors\"", where);
    KV_TRY(rc, out, kv_json_only_keys(floors, keys, place, err));
    for (const char *const *k = keys; *k != NULL; k++) {
        int64_t v;
        KV_TRY(rc, out, kv_json_get_int(floors, *k, 0, KV_JSON_INT_MAX, place, &v, err));
    }
out:
    return rc;
}

static kv_rc read_values(kv_campaign *c, const json_t *spec, const char *where, kv_err *err)
{
    const char *values = NULL;
    kv_rc rc = kv_json_get_text(spec, "values", false, where, &values, err);
    if (rc != KV_OK || values == NULL || strcmp(values, "payloads") == 0) return rc;
    if (strcmp(values, "exhaustive") != 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"values\": \"%s\" is not known (payloads, exhaustive)", where, values);
    c->exhaustive = true;
    for (size_t i = 0; i < c->n_geometries; i++)
        if (kv_elem_bytes(c->geometries[i].element) > 2)
            return KV_FAIL(err, KV_EFORMAT,
                           "%s: \"values\": \"exhaustive\" takes elements of 1 or 2 bytes; geometry %zu has %s, whose "
                           "2^%d patterns are too many",
                           where, i, kv_elem_name(c->geometries[i].element),
                           (int)(8 * kv_elem_bytes(c->geometries[i].element)));
    return KV_OK;
}

int32_t kv_campaign_payloads(const kv_campaign *c, const kv_geometry *g)
{
    return c->exhaustive ? 1 << (8 * kv_elem_bytes(g->element)) : KV_CERT_PAYLOADS;
}

bool kv_part_parse(const char *text, int64_t *part, int64_t *parts)
{
    char first[8] = "";
    const char *slash = strchr(text, '/');
    const size_t n = slash != NULL ? (size_t)(slash - text) : 0;
    if (n == 0 || n >= sizeof first) return false;
    memcpy(first, text, n);
    return first[0] != '0' && slash[1] != '0' && kv_parse_i64(slash + 1, 1, KV_PARTS_MAX, parts) &&
           kv_parse_i64(first, 1, *parts, part);
}

static kv_rc read_part(kv_campaign *c, const json_t *spec, const char *where, kv_err *err)
{
    const char *text = NULL;
    c->part = c->parts = 1;
    kv_rc rc = kv_json_get_text(spec, "part", false, where, &text, err);
    if (rc != KV_OK || text == NULL) return rc;
    if (!kv_part_parse(text, &c->part, &c->parts))
        return KV_FAIL(err, KV_EFORMAT, "%s: \"part\": \"%s\" must be i/n with 1 <= i <= n <= 65536", where, text);
    return KV_OK;
}

/* A key that is there has a value: null would be read as a default here, and refused by those who verify. */
static kv_rc refuse_nulls(const json_t *obj, const char *where, kv_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)obj, key, value)
    {
        if (json_is_null(value))
            return KV_FAIL(err, KV_EFORMAT, "%s: \"%.64s\" is null; give it a value or leave it out", where, key);
    }
    return KV_OK;
}

static kv_rc refuse_all_nulls(const json_t *spec, const char *where, kv_err *err)
{
    static const char *const sections[] = {"codec", "attribution", "tp", "claims", "floors"};
    char place[KV_ERR_TEXT];
    kv_rc rc = refuse_nulls(spec, where, err);
    for (size_t i = 0; rc == KV_OK && i < sizeof sections / sizeof *sections; i++) {
        snprintf(place, sizeof place, "%.500s: \"%s\"", where, sections[i]);
        rc = refuse_nulls(json_object_get(spec, sections[i]), place, err);
    }
    return rc;
}

static kv_rc read_spec(kv_campaign *c, const json_t *spec, const char *where, kv_err *err)
{
    static const char *const keys[] = {"schema", "name",        "select", "pairs",  "geometries", "tail",
                                       "values", "seed",        "claims", "floors", "part",       "expect",
                                       "codec",  "attribution", "tp",     NULL};
    kv_rc rc;
    const char *schema = NULL;
    KV_TRY(rc, out, kv_json_only_keys(spec, keys, where, err));
    KV_TRY(rc, out, refuse_all_nulls(spec, where, err));
    KV_TRY(rc, out, kv_json_get_text(spec, "schema", true, where, &schema, err));
    if (strcmp(schema, KV_CAMPAIGN_SCHEMA) != 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"schema\" is \"%s\", must be \"%s\"", where, schema, KV_CAMPAIGN_SCHEMA);
    KV_TRY(rc, out, read_name(c, spec, where, err));
    KV_TRY(rc, out, read_tails(c, spec, where, err));
    KV_TRY(rc, out, read_seed(c, spec, where, err));
    KV_TRY(rc, out, check_claims(spec, where, err));
    KV_TRY(rc, out, check_floors(spec, where, err));
    KV_TRY(rc, out, check_text_list(spec, "select", where, err));
    KV_TRY(rc, out, read_geometries(c, spec, where, err));
    KV_TRY(rc, out, read_values(c, spec, where, err));
    KV_TRY(rc, out, read_part(c, spec, where, err));
    KV_TRY(rc, out, kv_codec_section_read(json_object_get(spec, "codec"), where, &c->codec, err));
    KV_TRY(rc, out, kv_study_section_read(json_object_get(spec, "attribution"), where, &c->study, err));
    KV_TRY(rc, out, kv_expect_check(json_object_get(spec, "expect"), where, err));
out:
    return rc;
}

kv_rc kv_campaign_build(json_t *spec, kv_catalogue *all, const char *where, kv_campaign *out, kv_err *err)
{
    kv_rc rc;
    out->spec = json_incref(spec);
    KV_TRY(rc, out, read_spec(out, spec, where, err));
    KV_TRY(rc, out, kv_cells_select(out, all, where, err));
    KV_TRY(rc, out, kv_shard_section_read(json_object_get(spec, "tp"), &out->catalogue, where, &out->tp, err));
    KV_TRY(rc, out, kv_cells_expand(out, where, err));
out:
    return rc;
}

static kv_rc load_layouts(const json_t *list, const char *path, kv_catalogue *all, kv_err *err)
{
    if (list == NULL) return kv_layouts_find(NULL, all, NULL, err);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"layouts\" must be a list of files or folders", path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *rel = json_string_value(json_array_get(list, i));
        if (rel == NULL) return KV_FAIL(err, KV_EFORMAT, "%s: \"layouts\" must be a list of files or folders", path);
        char *full = kv_path_beside(path, rel);
        if (full == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a path");
        kv_rc rc = kv_catalogue_load(all, full, err);
        kv_free(full);
        if (rc != KV_OK) {
            kv_err_prefix(err, "%s: \"layouts\"", path);
            return rc;
        }
    }
    return KV_OK;
}

kv_rc kv_campaign_load(const char *path, const char *part, kv_campaign *out, kv_err *err)
{
    json_t *doc = NULL, *paths = NULL;
    kv_catalogue all = {0};
    kv_rc rc;
    KV_TRY(rc, out, kv_json_parse_file(path, CAMPAIGN_LIMIT, &doc, err));
    if (!json_is_object(doc)) {
        rc = KV_FAIL(err, KV_EFORMAT, "%s: a campaign must be a JSON object", path);
        goto out;
    }
    KV_TRY(rc, out, load_layouts(json_object_get(doc, "layouts"), path, &all, err));
    json_object_del(doc, "layouts");
    KV_TRY(rc, out, kv_codec_files_resolve(json_object_get(doc, "codec"), path, &paths, err));
    KV_TRY(rc, out, kv_write_out(doc, &all, path, err));
    if (part != NULL && json_object_get(doc, "part") != NULL) {
        rc = KV_FAIL(err, KV_EFORMAT, "%s: names its own \"part\"; leave --part out", path);
        goto out;
    }
    if (part != NULL) json_object_set_new(doc, "part", json_string(part));
    KV_TRY(rc, out, kv_campaign_build(doc, &all, path, out, err));
    KV_TRY(rc, out, kv_codec_files_locate(&out->codec, paths, err));
    KV_TRY(rc, out, kv_codec_files_check(&out->codec, out->geometries, out->n_geometries, err));
out:
    kv_catalogue_free(&all);
    json_decref(paths);
    json_decref(doc);
    return rc;
}

kv_rc kv_campaign_pack(const kv_campaign *c, kv_buf *out, kv_err *err)
{
    kv_rc rc = KV_OK;
    json_t *layouts = json_array();
    for (size_t i = 0; layouts != NULL && i < c->catalogue.n; i++)
        if (json_array_append(layouts, c->catalogue.item[i]->json) != 0) rc = KV_ENOMEM;
    json_t *paths = json_object(); /* of payload files: never in the spec */
    for (int32_t i = 0; paths != NULL && i < c->codec.n_files; i++)
        if (c->codec.file[i].path != NULL)
            json_object_set_new(paths, c->codec.file[i].name, json_string(c->codec.file[i].path));
    json_t *doc = json_pack("{s:o?,s:O,s:o?}", "layouts", layouts, "spec", c->spec, "paths", paths);
    if (doc == NULL || layouts == NULL || rc != KV_OK)
        rc = KV_FAIL(err, KV_ENOMEM, "no memory to pack the campaign");
    else
        rc = kv_json_write(doc, out, err);
    json_decref(doc);
    return rc;
}

kv_rc kv_campaign_unpack(const char *bytes, size_t n, kv_campaign *out, kv_err *err)
{
    json_t *doc = NULL;
    kv_catalogue all = {0};
    kv_rc rc;
    KV_TRY(rc, out, kv_json_parse(bytes, n, SIZE_MAX, &doc, err));
    const json_t *layouts = json_object_get(doc, "layouts");
    for (size_t i = 0; i < json_array_size(layouts); i++) {
        kv_layout *l = NULL;
        KV_TRY(rc, out, kv_layout_new(json_array_get(layouts, i), "campaign from rank 0", &l, err));
        KV_TRY(rc, out, kv_catalogue_take(&all, l, "campaign from rank 0", err));
    }
    KV_TRY(rc, out, kv_campaign_build(json_object_get(doc, "spec"), &all, "campaign from rank 0", out, err));
    KV_TRY(rc, out, kv_codec_files_locate(&out->codec, json_object_get(doc, "paths"), err));
out:
    kv_catalogue_free(&all);
    json_decref(doc);
    return rc;
}

void kv_campaign_free(kv_campaign *c)
{
    kv_free(c->name);
    json_decref(c->spec);
    kv_catalogue_free(&c->catalogue);
    kv_codec_section_free(&c->codec);
    kv_shard_section_free(&c->tp);
    kv_free(c->geometries);
    kv_free(c->cells);
    memset(c, 0, sizeof *c);
}
