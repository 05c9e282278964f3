#include "grid/campaign/kv_codec_payloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kv_file.h"
#include "certs/kv_hash.h"
#include "certs/kv_json.h"
#include "layouts/kv_layout_json.h"

#define FILE_NAME_MAX 64

/* ---- files ---------------------------------------------------------------------------------- */

static bool good_name(const char *s)
{
    const size_t n = strlen(s);
    return n > 0 && n <= FILE_NAME_MAX &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

kv_rc kv_codec_files_read(const json_t *v, kv_codec_section *out, const char *where, kv_err *err)
{
    static const char *const keys[] = {"name", "bytes", "digest", NULL};
    kv_rc rc = KV_OK;
    if (v == NULL) return KV_OK;
    if (!json_is_array(v) || json_array_size(v) == 0 || json_array_size(v) > KV_CODEC_FILES_MAX)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"files\" must be a list of 1 to %d files", where, KV_CODEC_FILES_MAX);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *o = json_array_get(v, i);
        kv_values_file *f = &out->file[out->n_files];
        const char *name = NULL, *digest = NULL;
        uint8_t bytes[KV_HASH_BYTES];
        char place[KV_ERR_TEXT];
        snprintf(place, sizeof place, "%.600s: files[%zu]", where, i);
        KV_TRY(rc, out, kv_json_only_keys(o, keys, place, err));
        KV_TRY(rc, out, kv_json_get_text(o, "name", true, place, &name, err));
        KV_TRY(rc, out, kv_json_get_text(o, "digest", true, place, &digest, err));
        f->bytes = -1;
        KV_TRY(rc, out, kv_json_get_int(o, "bytes", 0, KV_JSON_INT_MAX, place, &f->bytes, err));
        if (!good_name(name) || f->bytes < 0 || !kv_hex_decode(digest, bytes, sizeof bytes))
            return KV_FAIL(err, KV_EFORMAT,
                           "%s: needs a name of 1 to %d of a-z A-Z 0-9 . _ -, bytes, and a digest of 64 "
                           "hex digits",
                           place, FILE_NAME_MAX);
        for (int32_t k = 0; k < out->n_files; k++)
            if (strcmp(out->file[k].name, name) == 0)
                return KV_FAIL(err, KV_EFORMAT, "%s: the name %s stands twice", place, name);
        memcpy(f->digest, digest, sizeof f->digest);
        f->name = kv_strdup(name);
        if (f->name == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a name");
        out->n_files++;
    }
out:
    return rc;
}

kv_rc kv_codec_files_resolve(json_t *v, const char *campaign, json_t **paths, kv_err *err)
{
    static const char *const keys[] = {"name", "path", NULL};
    json_t *list = json_object_get(v, "files");
    kv_rc rc = KV_OK;
    *paths = json_object();
    if (*paths == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for paths");
    for (size_t i = 0; rc == KV_OK && i < json_array_size(list); i++) {
        json_t *o = json_array_get(list, i);
        kv_values_file f = {0};
        const char *name = NULL, *path = NULL;
        char place[KV_ERR_TEXT];
        snprintf(place, sizeof place, "%.600s: \"codec\": files[%zu]", campaign, i);
        rc = kv_json_only_keys(o, keys, place, err);
        if (rc == KV_OK) rc = kv_json_get_text(o, "name", true, place, &name, err);
        if (rc == KV_OK) rc = kv_json_get_text(o, "path", true, place, &path, err);
        if (rc != KV_OK) return rc;
        f.name = kv_strdup(name);
        f.path = kv_path_beside(campaign, path);
        rc = f.name != NULL && f.path != NULL ? kv_values_file_measure(&f, err)
                                              : KV_FAIL(err, KV_ENOMEM, "no memory for a path");
        if (rc == KV_OK) {
            json_object_set_new(*paths, f.name, json_string(f.path));
            json_array_set_new(
                list, i, json_pack("{s:s,s:I,s:s}", "name", f.name, "bytes", (json_int_t)f.bytes, "digest", f.digest));
        }
        kv_free(f.name);
        kv_free(f.path);
    }
    return rc;
}

kv_rc kv_codec_files_locate(kv_codec_section *s, const json_t *paths, kv_err *err)
{
    for (int32_t i = 0; i < s->n_files; i++) {
        const char *path = json_string_value(json_object_get(paths, s->file[i].name));
        kv_free(s->file[i].path);
        s->file[i].path = path != NULL ? kv_strdup(path) : NULL;
        if (path != NULL && s->file[i].path == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a path");
    }
    return KV_OK;
}

/* Whether the file is the canonical tensor of a geometry, by its size. */
static bool fits(const kv_values_file *f, const kv_geometry *g)
{
    int64_t n = g->layers;
    return kv_mul_i64(n, g->tokens, &n) && kv_mul_i64(n, g->kv_heads, &n) &&
           kv_mul_i64(n, g->head_dim + g->head_dim_v, &n) && kv_mul_i64(n, kv_elem_bytes(g->element), &n) &&
           n == f->bytes;
}

kv_rc kv_codec_files_check(const kv_codec_section *s, const kv_geometry *g, size_t n, kv_err *err)
{
    for (int32_t i = 0; i < s->n_files; i++) {
        bool looked[KV_ELEM_COUNT] = {false};
        for (size_t k = 0; k < n; k++) {
            if (looked[g[k].element] || !fits(&s->file[i], &g[k])) continue;
            const kv_rc rc = kv_values_file_finite(&s->file[i], g[k].element, err);
            if (rc != KV_OK) return rc;
            looked[g[k].element] = true;
        }
    }
    return KV_OK;
}

void kv_codec_section_free(kv_codec_section *s)
{
    for (int32_t i = 0; i < s->n_files; i++) {
        kv_free(s->file[i].name);
        kv_free(s->file[i].path);
    }
    memset(s, 0, sizeof *s);
}

/* ---- payloads ------------------------------------------------------------------------------- */

static bool find_payload(const kv_codec_section *s, const char *name, kv_codec_payload *out)
{
    snprintf(out->name, sizeof out->name, "%s", name);
    out->file = -1;
    if (kv_values_parse(name, &out->kind)) return true;
    out->kind = KV_VALUES_FILE;
    if (strncmp(name, "file:", 5) != 0) return false;
    for (int32_t i = 0; i < s->n_files; i++)
        if (strcmp(s->file[i].name, name + 5) == 0) {
            out->file = i;
            return true;
        }
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const kv_codec_payload *)a)->name, ((const kv_codec_payload *)b)->name);
}

kv_rc kv_codec_payloads_read(const json_t *v, kv_codec_section *out, const char *where, kv_err *err)
{
    if (!json_is_array(v) || json_array_size(v) == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"payloads\" must be a list of at least one name", where);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        kv_codec_payload p;
        if (name == NULL || strlen(name) >= sizeof p.name || !find_payload(out, name, &p))
            return KV_FAIL(err, KV_EFORMAT,
                           "%s: \"payloads\": \"%.80s\" is not known (constant, gaussian, heavy-tailed, k-like-1 to "
                           "k-like-4, zeros, or file:NAME of \"files\")",
                           where, name != NULL ? name : "(not a text)");
        for (int32_t k = 0; k < out->n_payloads; k++)
            if (strcmp(out->payload[k].name, name) == 0)
                return KV_FAIL(err, KV_EFORMAT, "%s: \"payloads\" holds \"%s\" twice", where, name);
        out->payload[out->n_payloads++] = p;
    }
    qsort(out->payload, (size_t)out->n_payloads, sizeof out->payload[0], by_name);
    for (int32_t i = 0; i < out->n_files; i++) {
        bool used = false;
        for (int32_t k = 0; k < out->n_payloads; k++) used = used || out->payload[k].file == i;
        if (!used)
            return KV_FAIL(err, KV_EFORMAT, "%s: file %s is no payload: name file:%s", where, out->file[i].name,
                           out->file[i].name);
    }
    return KV_OK;
}
