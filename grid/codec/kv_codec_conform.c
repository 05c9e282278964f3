#include "grid/codec/kv_codec_conform.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/kv_file.h"
#include "certs/kv_sha256.h"
#include "grid/codec/kv_codec_conform_int.h"
#include "kernels/codec/kv_codec_kmeans.h"
#include "kernels/codec/kv_codec_step.h"

#define ROUNDS 32 /* of k-means, where the index does not say */

void kv_conform_tell(kv_conform_case *c, const char *field, const char *what)
{
    char full[KV_CODEC_CONFORM_TEXT];
    snprintf(full, sizeof full, "%s %s", c->who, field);
    c->told(c->user, c->name, full, what);
    c->differences++;
    c->sum->fields++;
}

void kv_conform_hold(kv_conform_case *c, const char *field, kv_codec_as as, const void *got, const void *want,
                     int64_t n)
{
    char text[KV_CODEC_COMPARE_TEXT];
    if (!kv_codec_compare(as, got, want, n, text)) kv_conform_tell(c, field, text);
}

void kv_conform_hold_number(kv_conform_case *c, const char *field, int64_t got, const json_t *want)
{
    char text[64];
    if (want == NULL || json_is_null(want) || (json_is_integer(want) && json_integer_value(want) == got)) return;
    if (json_is_integer(want))
        snprintf(text, sizeof text, "got %" PRId64 ", want %" JSON_INTEGER_FORMAT, got, json_integer_value(want));
    else
        snprintf(text, sizeof text, "got %" PRId64 ", want no whole number", got);
    kv_conform_tell(c, field, text);
}

void kv_conform_hold_codes(kv_conform_case *c, const kv_codec_codes *got)
{
    const kv_codec_codes *want = &c->v.want;
    const int64_t n = c->v.n, o = got->outliers < want->outliers ? got->outliers : want->outliers;
    char text[64];
    kv_conform_hold(c, "seg_id", KV_CODEC_AS_U32, got->seg_id, want->seg_id, n);
    kv_conform_hold(c, "t", KV_CODEC_AS_F16, got->t, want->t, n);
    kv_conform_hold(c, "norm", KV_CODEC_AS_F16, got->norm, want->norm, n);
    kv_conform_hold(c, "residual", KV_CODEC_AS_U8, got->residual, want->residual, n * kv_codec_row_bytes(&c->v.params));
    if (got->res_norm != NULL) kv_conform_hold(c, "res_norm", KV_CODEC_AS_F32, got->res_norm, want->res_norm, n);
    if (c->without_outliers) return;
    kv_conform_hold(c, "outlier_count", KV_CODEC_AS_U32, got->outlier_count, want->outlier_count, n);
    kv_conform_hold(c, "outlier_idx", KV_CODEC_AS_U16, got->outlier_idx, want->outlier_idx, o);
    kv_conform_hold(c, "outlier_val", KV_CODEC_AS_F16, got->outlier_val, want->outlier_val, o);
    if (got->outliers != want->outliers) {
        snprintf(text, sizeof text, "got %" PRId64 ", want %" PRId64, got->outliers, want->outliers);
        kv_conform_tell(c, "outliers", text);
    }
}

/* Decodes the file's codes with norm and metric replaced where the file has section 16. */
static kv_rc hold_decoded(kv_conform_case *c, kv_codec_work *w, float *x, kv_err *err)
{
    const int64_t count = c->v.n * c->v.params.dim;
    kv_codec_params p = c->v.params;
    kv_codec_work *mse = NULL;
    kv_codec_codes codes = {0}, mixed = c->v.want;
    kv_err why = {0};
    kv_rc rc = KV_OK;
    if (kv_codec_vector_check_codes(&c->v, &why) != KV_OK) {
        kv_conform_tell(c, "decoded", why.text); /* no decoder takes them */
        return KV_OK;
    }
    c->variant->decode(w, &c->v.want, x);
    kv_conform_hold(c, "decoded", KV_CODEC_AS_F32, x, c->v.decoded, count);
    if (c->v.decoded_res_norm == NULL) return KV_OK;
    p.metric = KV_CODEC_MSE;
    KV_TRY(rc, out, kv_codec_work_new(&p, &c->v.skeleton, &mse, err));
    KV_TRY(rc, out, kv_codec_codes_new(&p, c->v.n, false, &codes, err));
    c->variant->encode(mse, c->v.x, c->v.n, &codes);
    mixed.norm = codes.norm;
    c->variant->decode(mse, &mixed, x);
    kv_conform_hold(c, "decoded_with_residual_norm", KV_CODEC_AS_F32, x, c->v.decoded_res_norm, count);
out:
    kv_codec_codes_free(&codes);
    kv_codec_work_free(mse);
    return rc;
}

/* k-means on the projections again: section 5, bit for bit. Without a word of the index as many centres are asked for as
 * there are (more would give the same), in at most 32 rounds. */
static kv_rc hold_refit(kv_conform_case *c, kv_codec_work *w, kv_err *err)
{
    const json_t *stage1 = json_object_get(c->entry, "stage1");
    const json_t *asked = json_object_get(c->entry, "k_requested"), *most = json_object_get(stage1, "kmeans_max_iter");
    const int32_t e = c->v.params.d_eff;
    int32_t k_eff = 0;
    kv_rc rc = KV_OK;
    if (!c->v.fitted) return KV_OK;
    const json_int_t k = json_is_integer(asked) ? json_integer_value(asked) : c->v.params.k;
    const json_int_t rounds = json_is_integer(most) ? json_integer_value(most) : ROUNDS;
    if (k < c->v.params.k || k > KV_CODEC_CENTERS_MAX || rounds < 0 || rounds > INT32_MAX)
        return KV_FAIL(err, KV_EFORMAT, "%s: k_requested or kmeans_max_iter is out of range", c->name);
    float *coefficients = kv_alloc((size_t)c->v.n * (size_t)e, sizeof(float));
    float *centers = kv_alloc((size_t)k * (size_t)e, sizeof(float));
    uint16_t *stored = kv_alloc((size_t)k * (size_t)e, sizeof(uint16_t));
    if (coefficients == NULL || centers == NULL || stored == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a k-means refit");
        goto out;
    }
    c->variant->project(w, c->v.x, c->v.n, coefficients);
    kv_err why = {0};
    rc = kv_codec_kmeans_on(c->variant, coefficients, c->v.weights, c->v.n, e, (int32_t)k, c->v.params.seed,
                            (int32_t)rounds, centers, &k_eff, NULL, &why);
    c->sum->refits++;
    if (rc == KV_OK && k_eff == c->v.params.k) {
        for (int32_t i = 0; i < k_eff * e; i++) stored[i] = kv_codec_h(centers[i]);
        kv_conform_hold(c, "centers", KV_CODEC_AS_F16, stored, c->v.skeleton.centers, (int64_t)k_eff * e);
    } else if (rc == KV_ENOMEM) {
        rc = KV_FAIL(err, KV_ENOMEM, "%s", why.text);
    } else {
        char text[KV_CODEC_CONFORM_TEXT];
        snprintf(text, sizeof text, "got %" PRId32 " centres, want %" PRId32 " %.400s", k_eff, c->v.params.k, why.text);
        kv_conform_tell(c, "k_eff", text);
        rc = KV_OK;
    }
out:
    kv_free(stored);
    kv_free(centers);
    kv_free(coefficients);
    return rc;
}

static kv_rc run_variant(kv_conform_case *c, kv_err *err)
{
    kv_codec_work *w = NULL;
    kv_codec_codes codes = {0};
    float *x = kv_alloc((size_t)c->v.n * (size_t)c->v.params.dim, sizeof *x);
    kv_rc rc = x != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for decoded rows");
    KV_TRY(rc, out, rc);
    KV_TRY(rc, out, kv_codec_work_new(&c->v.params, &c->v.skeleton, &w, err));
    KV_TRY(rc, out, kv_codec_codes_new(&c->v.params, c->v.n, true, &codes, err));
    c->variant->encode(w, c->v.x, c->v.n, &codes);
    kv_conform_hold_codes(c, &codes);
    KV_TRY(rc, out, hold_decoded(c, w, x, err));
    KV_TRY(rc, out, hold_refit(c, w, err));
out:
    kv_codec_codes_free(&codes);
    kv_codec_work_free(w);
    kv_free(x);
    return rc;
}

/* The sizes that index.json gives (each where it does) against those of the file. */
static void hold_entry(kv_conform_case *c)
{
    const kv_codec_params *p = &c->v.params;
    const struct {
        const char *key;
        int64_t value;
    } have[] = {{"n", c->v.n},
                {"D", p->dim},
                {"d_eff", p->d_eff},
                {"wht_len", kv_codec_wht_len(p->d_eff)},
                {"k", p->k},
                {"bits", p->bits},
                {"rotation_seed", p->seed},
                {"packed_bytes_per_row", kv_codec_row_bytes(p)},
                {"total_outliers", c->v.want.outliers}};
    for (size_t i = 0; i < sizeof have / sizeof have[0]; i++)
        kv_conform_hold_number(c, have[i].key, have[i].value, json_object_get(c->entry, have[i].key));
}

/* Whether a name of an index stays in its folder. */
static bool is_plain_name(const char *name)
{
    return name != NULL && *name != '\0' && *name != '.' && strchr(name, '/') == NULL;
}

kv_rc kv_conform_read(kv_conform_case *c, const char *index, const json_t *entry, kv_buf *out, kv_err *err)
{
    const char *file = json_string_value(json_object_get(entry, "file"));
    const json_t *said = json_object_get(entry, "sha256");
    char digest[KV_SHA256_HEX], text[KV_CODEC_CONFORM_TEXT];
    if (!is_plain_name(file)) return KV_FAIL(err, KV_EFORMAT, "%s: %s names no file of this folder", index, c->name);
    char *path = kv_path_beside(index, file);
    if (path == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a path");
    const kv_rc rc = kv_file_read(path, KV_CONFORM_FILE_LIMIT, out, err);
    kv_free(path);
    if (rc != KV_OK || said == NULL) return rc;
    kv_sha256_hex(out->data, out->len, digest);
    if (json_is_string(said) && strcmp(json_string_value(said), digest) == 0) return KV_OK;
    snprintf(text, sizeof text, "got %s, want %.64s: a damaged or another file", digest,
             json_is_string(said) ? json_string_value(said) : "something else");
    kv_conform_tell(c, "sha256", text);
    return KV_OK;
}

static kv_rc run_case(const char *index, kv_conform_case *c, kv_err *err)
{
    kv_buf file = {0};
    kv_rc rc;
    c->who = "file";
    KV_TRY(rc, out, kv_conform_read(c, index, c->entry, &file, err));
    rc = kv_codec_vector_parse(file.data, (int64_t)file.len, &c->v, err);
    if (rc != KV_OK) {
        kv_err_prefix(err, "%s: case %s", index, c->name);
        goto out;
    }
    hold_entry(c);
    for (c->variant = kv_codec_variants(); c->variant->name != NULL; c->variant++)
        if (c->variant->runs_here()) {
            c->who = c->variant->name;
            KV_TRY(rc, out, run_variant(c, err));
        }
    c->who = "slot";
    rc = kv_conform_slot(c, index, err);
out:
    kv_buf_free(&file);
    return rc;
}

static kv_rc check_names(const char *path, const json_t *cases, kv_err *err)
{
    const json_t *entry;
    size_t i;
    if (!json_is_array(cases) || json_array_size(cases) == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: no list of cases", path);
    json_array_foreach(cases, i, entry) if (!json_is_string(json_object_get(entry, "name"))) return KV_FAIL(
        err, KV_EFORMAT, "%s: case %zu has no name", path, i);
    return KV_OK;
}

static kv_rc read_index(const char *folder, char **path, json_t **out, kv_err *err)
{
    kv_buf text = {0};
    json_error_t je;
    kv_rc rc;
    const size_t n = strlen(folder) + sizeof "/index.json";
    *path = kv_alloc(n, 1);
    if (*path == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a path");
    snprintf(*path, n, "%s/index.json", folder);
    KV_TRY(rc, out, kv_file_read(*path, KV_CONFORM_FILE_LIMIT, &text, err));
    *out = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &je);
    if (*out == NULL) {
        rc = KV_FAIL(err, KV_EFORMAT, "%s: line %d: %s", *path, je.line, je.text);
    } else {
        rc = check_names(*path, json_object_get(*out, "cases"), err);
    }
out:
    kv_buf_free(&text);
    return rc;
}

/* One case of the index. A file that cannot be used is told and counted; *err keeps the first. */
static kv_rc take_case(const char *index, kv_conform_case *c, kv_err *err)
{
    char text[KV_CODEC_CONFORM_TEXT];
    kv_err why = {0};
    c->name = json_string_value(json_object_get(c->entry, "name"));
    kv_rc rc = run_case(index, c, &why);
    if (rc == KV_EREAD || rc == KV_EFORMAT) {
        snprintf(text, sizeof text, "cannot be used: %.400s", why.text);
        c->told(c->user, c->name, "file", text);
        c->unusable = true;
        c->sum->unusable++;
        if (err->rc == KV_OK) *err = why;
        rc = KV_OK;
    } else if (rc != KV_OK) {
        *err = why;
    }
    c->sum->cases++;
    c->sum->differ += !c->unusable && c->differences > 0;
    return rc;
}

kv_rc kv_codec_conform(const char *folder, kv_codec_conform_told told, kv_codec_conform_done done, void *user,
                       kv_codec_conform_sum *out, kv_err *err)
{
    kv_codec_conform_sum sum = {0};
    char *path = NULL;
    json_t *index = NULL;
    const json_t *entry;
    kv_err first = {0};
    size_t i;
    kv_rc rc;
    KV_TRY(rc, out, read_index(folder, &path, &index, err));
    for (const kv_codec_variant *v = kv_codec_variants(); v->name != NULL; v++) sum.variants += v->runs_here();
    json_array_foreach(json_object_get(index, "cases"), i, entry)
    {
        kv_conform_case c = {.entry = entry, .told = told, .user = user, .sum = &sum};
        rc = take_case(path, &c, &first);
        if (rc != KV_OK) break;
        if (done != NULL) done(user, c.name, !c.unusable && c.differences == 0);
    }
    if (rc == KV_OK) *out = sum;
    if (first.rc != KV_OK) {
        rc = first.rc;
        if (err != NULL) *err = first;
    }
out:
    json_decref(index);
    kv_free(path);
    return rc;
}
