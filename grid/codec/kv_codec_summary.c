#include "grid/codec/kv_codec_summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "";
}

static int64_t number(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* ---- codec rows ----------------------------------------------------------------------------- */

static bool has_skeleton(const char *recipe)
{
    return strncmp(recipe, "kv1", 3) == 0 || strncmp(recipe, "published-", 10) == 0;
}

static kv_rc add_codec(const kv_reader *r, const json_t *row, json_t *list, kv_err *err)
{
    static const char *const copied[] = {"relative_l2_ppm", "worst_element_ppm", "cosine_ppm", "ratio_ppm",
                                         "overflow_blocks"};
    const json_t *proof = json_object_get(row, "proof"), *params = json_object_get(row, "params");
    const int64_t rows = number(proof, "rows"), bytes = number(json_object_get(row, "native_bytes"), "dst");
    char geometry[KV_GEOMETRY_TEXT];
    kv_geometry_print(&r->geometries[number(row, "geometry")], geometry);
    json_t *e = json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:O}", "geometry", geometry, "payload", text(params, "payload"),
                          "stream", text(params, "stream"), "recipe", text(row, "dst"), "bits", text(params, "bits"),
                          "bytes_per_row_milli", (json_int_t)(rows > 0 ? bytes * 1000 / rows : 0), "tokens_identical",
                          json_object_get(json_object_get(row, "observations"), "tokens_identical"));
    for (size_t i = 0; e != NULL && i < sizeof copied / sizeof *copied; i++)
        json_object_set(e, copied[i], json_object_get(proof, copied[i]));
    if (e == NULL || json_array_append_new(list, e) != 0) return KV_FAIL(err, KV_ENOMEM, "no memory for a table");
    return KV_OK;
}

static bool comparable(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"geometry", "payload", "stream"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text(a, keys[i]), text(b, keys[i])) != 0) return false;
    return true;
}

/* Sets best_other and wins of an entry of the codec's recipes. */
static void compare(const json_t *list, json_t *e)
{
    const json_t *best = NULL;
    char name[64] = "";
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        if (has_skeleton(text(o, "recipe")) || !comparable(o, e) ||
            json_is_null(json_object_get(o, "relative_l2_ppm")) ||
            number(o, "bytes_per_row_milli") > number(e, "bytes_per_row_milli"))
            continue;
        if (best == NULL || number(o, "relative_l2_ppm") < number(best, "relative_l2_ppm")) best = o;
    }
    if (best != NULL)
        snprintf(name, sizeof name, "%s%s%s", text(best, "recipe"), *text(best, "bits") != '\0' ? " b" : "",
                 text(best, "bits"));
    json_object_set_new(e, "best_other", best != NULL ? json_string(name) : json_null());
    json_object_set_new(e, "best_other_l2_ppm",
                        best != NULL ? json_integer((json_int_t)number(best, "relative_l2_ppm")) : json_null());
    const bool known = best != NULL && !json_is_null(json_object_get(e, "relative_l2_ppm"));
    json_object_set_new(
        e, "wins", known ? json_boolean(number(e, "relative_l2_ppm") < number(best, "relative_l2_ppm")) : json_null());
}

/* ---- attribution rows ----------------------------------------------------------------------- */

/* Sums over seeds; turned into means at the end. */
static json_t *entry_of(json_t *list, const char *geometry, const char *recipe, const char *cell)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *e = json_array_get(list, i);
        if (strcmp(text(e, "geometry"), geometry) == 0 && strcmp(text(e, "recipe"), recipe) == 0 &&
            strcmp(text(e, "cell"), cell) == 0)
            return e;
    }
    json_t *e =
        json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:s}", "geometry", geometry, "recipe", recipe, "cell", cell,
                  "seeds", (json_int_t)0, "ppl_change_ppm", (json_int_t)0, "kl_nano", (json_int_t)0, "top1_ppm",
                  (json_int_t)0, "k_error_ppm", (json_int_t)0, "v_error_ppm", (json_int_t)0, "accept", "ACCEPT");
    return e != NULL && json_array_append_new(list, e) == 0 ? e : NULL;
}

static const char *const summed[] = {"ppl_change_ppm", "kl_nano", "top1_ppm", "k_error_ppm", "v_error_ppm"};
#define N_SUMMED (sizeof summed / sizeof *summed)

/* Whether a row has the number: a score that is not finite is null, an error -1. */
static bool measured(const json_t *proof, const char *key)
{
    const bool is_error = strcmp(key, "k_error_ppm") == 0 || strcmp(key, "v_error_ppm") == 0;
    return json_is_integer(json_object_get(proof, key)) && !(is_error && number(proof, key) < 0);
}

/* REJECT is worse than MARGINAL, and that than ACCEPT: the order of their names from the end, but for the first. */
static int worse(const char *accept)
{
    return strcmp(accept, "REJECT") == 0 ? 2 : strcmp(accept, "MARGINAL") == 0 ? 1 : 0;
}

static kv_rc add_study(const kv_reader *r, const json_t *row, json_t *list, kv_err *err)
{
    const json_t *proof = json_object_get(row, "proof");
    char geometry[KV_GEOMETRY_TEXT];
    kv_geometry_print(&r->geometries[number(row, "geometry")], geometry);
    json_t *e = entry_of(list, geometry, text(row, "dst"), text(json_object_get(row, "params"), "cell"));
    if (e == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a table");
    for (size_t i = 0; i < N_SUMMED; i++) {
        int64_t sum = 0;
        const bool both = json_is_integer(json_object_get(e, summed[i])) && measured(proof, summed[i]) &&
                          !__builtin_add_overflow(number(e, summed[i]), number(proof, summed[i]), &sum);
        json_object_set_new(e, summed[i], both ? json_integer(sum) : json_null());
    }
    json_object_set_new(e, "seeds", json_integer(number(e, "seeds") + 1));
    if (worse(text(proof, "accept")) > worse(text(e, "accept")))
        json_object_set(e, "accept", json_object_get(proof, "accept"));
    return KV_OK;
}

static const json_t *find(const json_t *list, const json_t *like, const char *cell)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        if (strcmp(text(e, "geometry"), text(like, "geometry")) == 0 &&
            strcmp(text(e, "recipe"), text(like, "recipe")) == 0 && strcmp(text(e, "cell"), cell) == 0)
            return e;
    }
    return NULL;
}

static void finish_study(json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *e = json_array_get(list, i);
        for (size_t k = 0; k < N_SUMMED; k++)
            if (json_is_integer(json_object_get(e, summed[k])))
                json_object_set_new(e, summed[k], json_integer(number(e, summed[k]) / number(e, "seeds")));
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *e = json_array_get(list, i);
        const json_t *k = find(list, e, "k"), *v = find(list, e, "v");
        if (strcmp(text(e, "cell"), "kv") != 0 || k == NULL || v == NULL) continue;
        for (int s = 0; s < 2; s++) {
            const bool known = measured(e, summed[s]) && measured(k, summed[s]) && measured(v, summed[s]);
            const int64_t gap = number(e, summed[s]) - number(k, summed[s]) - number(v, summed[s]);
            json_object_set_new(e, s == 0 ? "gap_to_k_plus_v_ppl_ppm" : "gap_to_k_plus_v_kl_nano",
                                known ? json_integer(gap) : json_null());
        }
    }
}

/* ---- both ----------------------------------------------------------------------------------- */

static bool ran(const kv_view *v)
{
    return v->verdict == KV_VERDICT_NOT_EXACT;
}

kv_rc kv_codec_summary_new(kv_reader *r, json_t **out, kv_err *err)
{
    json_t *codec = json_array(), *study = json_array();
    const json_t *row = NULL;
    kv_view v;
    kv_rc rc = codec != NULL && study != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for a table");
    while (rc == KV_OK) {
        rc = kv_reader_next(r, &row, &v, err);
        if (rc != KV_OK || row == NULL) break;
        if (!ran(&v)) continue;
        if (strcmp(v.check, kv_check_name(KV_CHECK_CODEC)) == 0) rc = add_codec(r, row, codec, err);
        if (strcmp(v.check, kv_check_name(KV_CHECK_ATTRIBUTION)) == 0) rc = add_study(r, row, study, err);
    }
    for (size_t i = 0; rc == KV_OK && i < json_array_size(codec); i++)
        if (has_skeleton(text(json_array_get(codec, i), "recipe"))) compare(codec, json_array_get(codec, i));
    if (rc == KV_OK) finish_study(study);
    if (rc == KV_OK && json_array_size(codec) + json_array_size(study) == 0)
        rc = KV_FAIL(err, KV_EFORMAT, "%s holds no row of check codec or attribution that ran", r->path);
    if (rc == KV_OK) *out = json_pack("{s:O,s:O}", "attribution", study, "codec", codec);
    json_decref(codec);
    json_decref(study);
    if (rc == KV_OK && *out == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for a table");
    return rc;
}

/* ---- for people ----------------------------------------------------------------------------- */

/* A number in units of 1 / per, "-" for none. */
static const char *shown(const json_t *o, const char *key, double per, int decimals, bool sign, char out[24])
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v)) return "-";
    snprintf(out, 24, sign ? "%+.*f" : "%.*f", decimals, (double)json_integer_value(v) / per);
    return out;
}

/* Parts per million, as they are (1e6) or in percent (1e4). */
static const char *ppm(const json_t *o, const char *key, double per, char out[24])
{
    return shown(o, key, per, per < 1e6 ? 2 : 4, false, out);
}

static void print_codec(const json_t *list)
{
    char a[24], b[24], c[24], d[24], last[KV_GEOMETRY_TEXT + 64] = "";
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        const json_t *wins = json_object_get(e, "wins");
        char what[64];
        if (strcmp(last, text(e, "geometry")) != 0) {
            snprintf(last, sizeof last, "%s", text(e, "geometry"));
            printf("\n%s: bytes of a row of one head, errors, and the best without a skeleton at no more bytes\n",
                   last);
            printf("%-24s %-13s %s %9s %7s %8s %8s  %s\n", "recipe", "payload", "stream", "bytes", "ratio", "rel. L2",
                   "cosine", "against");
        }
        snprintf(what, sizeof what, "%s%s%s", text(e, "recipe"), *text(e, "bits") != '\0' ? " b" : "", text(e, "bits"));
        printf("%-24s %-13s %-6s %9.2f %7s %8s %8s  ", what, text(e, "payload"), text(e, "stream"),
               (double)number(e, "bytes_per_row_milli") / 1e3, ppm(e, "ratio_ppm", 1e6, d),
               ppm(e, "relative_l2_ppm", 1e6, a), ppm(e, "cosine_ppm", 1e6, b));
        if (json_is_boolean(wins))
            printf("%s %s (%s)\n", json_is_true(wins) ? "wins over" : "LOSES to", text(e, "best_other"),
                   ppm(e, "best_other_l2_ppm", 1e6, c));
        else
            printf("%s\n", has_skeleton(text(e, "recipe")) ? "-" : "");
    }
}

static void print_study(const json_t *list)
{
    char a[24], b[24], c[24], d[24], f[24], last[KV_GEOMETRY_TEXT + 64] = "", now[KV_GEOMETRY_TEXT + 64];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        snprintf(now, sizeof now, "%s, %s", text(e, "geometry"), text(e, "recipe"));
        if (strcmp(last, now) != 0) {
            snprintf(last, sizeof last, "%s", now);
            printf("\n%s: mean of %" PRId64 " seeds; this is the grid's small model, not a language model\n", now,
                   number(e, "seeds"));
            printf("%-18s %14s %12s %8s %9s %9s  %s\n", "cell", "perplexity %", "KL (nat)", "top-1 %", "K error",
                   "V error", "verdict");
        }
        printf("%-18s %14s %12s %8s %9s %9s  %s\n", text(e, "cell"), shown(e, "ppl_change_ppm", 1e4, 3, true, a),
               shown(e, "kl_nano", 1e9, 6, false, b), ppm(e, "top1_ppm", 1e4, c), ppm(e, "k_error_ppm", 1e6, d),
               ppm(e, "v_error_ppm", 1e6, f), text(e, "accept"));
        if (json_object_get(e, "gap_to_k_plus_v_ppl_ppm") != NULL)
            printf("%-18s %14s %12s\n", "  kv - (k + v)", shown(e, "gap_to_k_plus_v_ppl_ppm", 1e4, 3, true, a),
                   shown(e, "gap_to_k_plus_v_kl_nano", 1e9, 6, true, b));
    }
}

void kv_codec_summary_print(const json_t *table)
{
    print_codec(json_object_get(table, "codec"));
    print_study(json_object_get(table, "attribution"));
}
