#include "grid/campaign/kv_codec_spec.h"

#include <stdio.h>
#include <string.h>

#include "certs/kv_cert_names.h"
#include "grid/campaign/kv_codec_payloads.h"
#include "kernels/codec/kv_codec_recipe.h"
#include "layouts/kv_layout_json.h"

#define BLOCK_MAX 65536

/* ---- names ---------------------------------------------------------------------------------- */

static const char *const methods[KV_STORE_COUNT] = {
    "fp8", "int4-token", "kv1", "kv1-shared", "published-harness", "published-serving", "rotation"};
static const char *const pages[KV_PAGES_COUNT] = {"head-major", "kv-pools", "pages", "table"};
static const char *const streams[2] = {"k", "v"};

static bool find(const char *const *list, int n, const char *name, int *out)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0) {
            *out = i;
            return true;
        }
    return false;
}

const char *kv_store_method_name(kv_store_method m)
{
    return m < KV_STORE_COUNT ? methods[m] : "?";
}

bool kv_store_method_parse(const char *name, kv_store_method *out)
{
    int i;
    if (!find(methods, KV_STORE_COUNT, name, &i)) return false;
    *out = (kv_store_method)i;
    return true;
}

int32_t kv_store_method_recipe(kv_store_method m)
{
    int32_t id;
    return kv_codec_recipe_find(kv_store_method_name(m), &id, NULL) == KV_OK ? id : -1;
}

bool kv_store_method_has_bits(kv_store_method m)
{
    return m != KV_STORE_FP8 && m != KV_STORE_INT4_TOKEN;
}

const char *kv_pages_name(kv_pages_kind p)
{
    return p < KV_PAGES_COUNT ? pages[p] : "?";
}

/* ---- the section ---------------------------------------------------------------------------- */

/* A list of names, each once, into chosen[n]; where the key is missing, what was chosen before stays. */
static kv_rc read_names(const json_t *obj, const char *key, const char *const *list, int n, bool *chosen,
                        const char *where, kv_err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (v == NULL) return KV_OK;
    memset(chosen, 0, (size_t)n * sizeof *chosen);
    if (!json_is_array(v) || json_array_size(v) == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" must be a list of at least one name", where, key);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        int at = 0;
        if (name == NULL || !find(list, n, name, &at)) {
            char known[256] = "";
            for (int k = 0; k < n; k++) {
                const size_t used = strlen(known);
                snprintf(known + used, sizeof known - used, "%s%s", k > 0 ? ", " : "", list[k]);
            }
            return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\": \"%s\" is not known (%s)", where, key,
                           name != NULL ? name : "(not a text)", known);
        }
        if (chosen[at]) return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" holds \"%s\" twice", where, key, name);
        chosen[at] = true;
    }
    return KV_OK;
}

static kv_rc read_bits(const json_t *obj, bool bits[5], const char *where, kv_err *err)
{
    const json_t *v = json_object_get(obj, "bits");
    if (v == NULL) {
        bits[KV_CODEC_BITS_DEFAULT] = true;
        return KV_OK;
    }
    bool good = json_is_array(v) && json_array_size(v) > 0;
    for (size_t i = 0; good && i < json_array_size(v); i++) {
        const json_int_t b = json_integer_value(json_array_get(v, i)); /* 0 for what is no integer */
        good = b >= 1 && b <= KV_CODEC_BITS_MAX && !bits[b];
        if (good) bits[b] = true;
    }
    return good ? KV_OK
                : KV_FAIL(err, KV_EFORMAT, "%s: \"bits\" must be a list of different integers from 1 to %d", where,
                          KV_CODEC_BITS_MAX);
}

static kv_rc read_block(const json_t *obj, int64_t *out, const char *where, kv_err *err)
{
    const json_t *v = json_object_get(obj, "block");
    *out = v == NULL ? KV_CODEC_BLOCK_ROWS : json_integer_value(v);
    if ((v == NULL || json_is_integer(v)) && *out >= 2 && *out <= BLOCK_MAX && (*out & (*out - 1)) == 0) return KV_OK;
    return KV_FAIL(err, KV_EFORMAT, "%s: \"block\" must be a power of two from 2 to %d", where, BLOCK_MAX);
}

static bool moves_something(const kv_codec_section *s)
{
    size_t n = 0;
    for (int p = 0; p < KV_PAGES_COUNT; p++) n += s->pages[p];
    return n != 1; /* none at all, or pairs */
}

kv_rc kv_codec_section_read(const json_t *v, const char *where, kv_codec_section *out, kv_err *err)
{
    static const char *const keys[] = {"recipes", "streams", "bits", "payloads", "block", "moves", "files", NULL};
    char place[KV_ERR_TEXT];
    kv_rc rc = KV_OK;
    memset(out, 0, sizeof *out);
    if (v == NULL) return KV_OK;
    out->present = out->stream[0] = out->stream[1] = true;
    snprintf(place, sizeof place, "%.500s: \"codec\"", where);
    KV_TRY(rc, out, kv_json_only_keys(v, keys, place, err));
    for (int i = 0; i < 4; i += 3)
        if (json_object_get(v, keys[i]) == NULL)
            return KV_FAIL(err, KV_EFORMAT, "%s: key \"%s\" is missing", place, keys[i]);
    KV_TRY(rc, out, read_names(v, "recipes", methods, KV_STORE_COUNT, out->method, place, err));
    KV_TRY(rc, out, read_names(v, "streams", streams, 2, out->stream, place, err));
    KV_TRY(rc, out, read_bits(v, out->bits, place, err));
    KV_TRY(rc, out, kv_codec_files_read(json_object_get(v, "files"), out, place, err));
    KV_TRY(rc, out, kv_codec_payloads_read(json_object_get(v, "payloads"), out, place, err));
    KV_TRY(rc, out, read_block(v, &out->block, place, err));
    KV_TRY(rc, out, read_names(v, "moves", pages, KV_PAGES_COUNT, out->pages, place, err));
    if (!moves_something(out))
        rc = KV_FAIL(err, KV_EFORMAT, "%s: \"moves\" needs at least two arrangements to move between", place);
    else if (json_object_get(v, "moves") != NULL && kv_move_point_count(out) == 0)
        rc = KV_FAIL(err, KV_EFORMAT, "%s: \"moves\" needs a recipe with pages: kv1 or published-serving", place);
out:
    return rc;
}

/* ---- points, in row order ------------------------------------------------------------------- */

/* Ordered by method (pair_id), then by bits, payload, stream, as the canonical form of params sorts. */
static bool walk_codec(const kv_codec_section *s, size_t want, size_t *n, kv_codec_point *out)
{
    *n = 0;
    for (int m = 0; m < KV_STORE_COUNT; m++)
        for (int b = 0; b <= KV_CODEC_BITS_MAX; b++) {
            const bool takes = kv_store_method_has_bits((kv_store_method)m) ? s->bits[b] : b == KV_CODEC_BITS_DEFAULT;
            for (int32_t v = 0; s->method[m] && takes && v < s->n_payloads; v++)
                for (int h = 0; h < 2; h++)
                    if (s->stream[h] && (*n)++ == want) {
                        *out = (kv_codec_point){(kv_store_method)m, h, b, &s->payload[v]};
                        return true;
                    }
        }
    return false;
}

static bool walk_moves(const kv_codec_section *s, size_t want, size_t *n, kv_move_point *out)
{
    static const kv_store_method paged[2] = {KV_STORE_KV1, KV_STORE_PUBLISHED_SERVING};
    *n = 0;
    for (int m = 0; m < 2; m++)
        for (int a = 0; s->method[paged[m]] && a < KV_PAGES_COUNT; a++)
            for (int b = 0; s->pages[a] && b < KV_PAGES_COUNT; b++)
                if (s->pages[b] && a != b && (*n)++ == want) {
                    *out = (kv_move_point){paged[m], (kv_pages_kind)a, (kv_pages_kind)b};
                    return true;
                }
    return false;
}

size_t kv_codec_point_count(const kv_codec_section *s)
{
    size_t n = 0;
    kv_codec_point p;
    if (s->present) (void)walk_codec(s, SIZE_MAX, &n, &p);
    return n;
}

kv_codec_point kv_codec_point_at(const kv_codec_section *s, size_t i)
{
    size_t n;
    kv_codec_point p = {0};
    (void)walk_codec(s, i, &n, &p);
    return p;
}

size_t kv_move_point_count(const kv_codec_section *s)
{
    size_t n = 0;
    kv_move_point p;
    if (s->present) (void)walk_moves(s, SIZE_MAX, &n, &p);
    return n;
}

kv_move_point kv_move_point_at(const kv_codec_section *s, size_t i)
{
    size_t n;
    kv_move_point p = {0};
    (void)walk_moves(s, i, &n, &p);
    return p;
}

int32_t kv_codec_point_bits(const kv_codec_point *p)
{
    if (p->bits != KV_CODEC_BITS_DEFAULT) return p->bits;
    return p->stream == KV_CODEC_K ? 3 : 2;
}

/* ---- how a row names them ------------------------------------------------------------------- */

const char *kv_codec_point_side(const kv_codec_point *p, int side)
{
    return side == 0 ? KV_CERT_CANONICAL : kv_store_method_name(p->method);
}

const char *kv_move_point_side(const kv_move_point *p, int side)
{
    static const char *const names[2][KV_PAGES_COUNT] = {{"kv1:head-major", "kv1:kv-pools", "kv1:pages", "kv1:table"},
                                                         {"published-serving:head-major", "published-serving:kv-pools",
                                                          "published-serving:pages", "published-serving:table"}};
    return names[p->method == KV_STORE_PUBLISHED_SERVING][side == 0 ? p->src : p->dst];
}

json_t *kv_codec_point_params_new(const kv_codec_point *p)
{
    json_t *o = json_object(); /* keys in their order: others compare the text */
    if (o != NULL && p->bits != KV_CODEC_BITS_DEFAULT) json_object_set_new(o, "bits", json_sprintf("%d", p->bits));
    json_object_set_new(o, "payload", json_string(p->payload->name));
    json_object_set_new(o, "stream", json_string(streams[p->stream]));
    return o;
}
