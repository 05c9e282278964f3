#include "grid/codec/kv_whiten_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/codec/kv_safetensors.h"

#define LIMIT ((size_t)16 << 30)
#define NAME 64

/* "layers.N.k.whiten" of one of the two kinds. */
static void name_of(int32_t layer, bool inverse, char out[NAME])
{
    snprintf(out, NAME, "layers.%d.k.%s", layer, inverse ? "unwhiten" : "whiten");
}

static kv_rc check_shape(const kv_st_tensor *t, const kv_codec_whiten *w, kv_err *err)
{
    if (strcmp(t->dtype, "F32") == 0 && t->dims == 3 && t->shape[0] == w->heads && t->shape[1] == w->dim &&
        t->shape[2] == w->dim)
        return KV_OK;
    return KV_FAIL(err, KV_EFORMAT,
                   "tensor \"%.80s\" is %s of %d dimensions [%" PRId64 ", ...], F32 [%d, %d, %d] was expected", t->name,
                   t->dtype, t->dims, t->dims > 0 ? t->shape[0] : 0, w->heads, w->dim, w->dim);
}

static kv_rc take_layer(const kv_safetensors *s, int32_t layer, kv_codec_whiten *w, size_t *used, kv_err *err)
{
    char name[NAME], other[NAME];
    name_of(layer, false, name);
    name_of(layer, true, other);
    const kv_st_tensor *l = kv_safetensors_find(s, name), *inverse = kv_safetensors_find(s, other);
    kv_rc rc;
    if (l == NULL && inverse == NULL) return KV_OK;
    if (l == NULL || inverse == NULL)
        return KV_FAIL(err, KV_EFORMAT, "tensor \"%s\" is missing beside \"%s\"", l == NULL ? name : other,
                       l == NULL ? other : name);
    KV_TRY(rc, out, check_shape(l, w, err));
    KV_TRY(rc, out, check_shape(inverse, w, err));
    KV_TRY(rc, out, kv_codec_whiten_add(w, layer, err));
    memcpy(w->l[layer], s->data + l->offset, (size_t)l->bytes);
    memcpy(w->inverse[layer], s->data + inverse->offset, (size_t)inverse->bytes);
    *used += 2;
out:
    return rc;
}

/* The first tensor that is none of ours: a misspelt name must not mean the identity. */
static kv_rc unknown_tensor(const kv_safetensors *s, int32_t layers, kv_err *err)
{
    for (size_t i = 0; i < s->n; i++) {
        int32_t n = -1;
        char name[NAME], other[NAME];
        if (sscanf(s->tensor[i].name, "layers.%8d.k.", &n) != 1) n = -1;
        name_of(n, false, name);
        name_of(n, true, other);
        if (n >= 0 && n < layers && (strcmp(name, s->tensor[i].name) == 0 || strcmp(other, s->tensor[i].name) == 0))
            continue;
        return KV_FAIL(err, KV_EFORMAT,
                       "tensor \"%.80s\" is none of layers.N.k.whiten and layers.N.k.unwhiten with N from 0 to %d",
                       s->tensor[i].name, layers - 1);
    }
    return KV_FAIL(err, KV_EFORMAT, "holds no factors");
}

kv_rc kv_whiten_file_read(const char *path, int32_t layers, int32_t heads, int32_t dim, kv_codec_whiten *out,
                          char digest[KV_HASH_HEX], kv_err *err)
{
    kv_safetensors s = {0};
    kv_codec_whiten w = {0};
    size_t used = 0;
    kv_rc rc = kv_safetensors_read(path, LIMIT, &s, err);
    if (rc != KV_OK) { /* the text names the file */
        kv_safetensors_free(&s);
        return rc;
    }
    rc = kv_codec_whiten_new(layers, heads, dim, &w, err);
    for (int32_t i = 0; rc == KV_OK && i < layers; i++) rc = take_layer(&s, i, &w, &used, err);
    if (rc == KV_OK && (used != s.n || used == 0)) rc = unknown_tensor(&s, layers, err);
    if (rc == KV_OK) rc = kv_codec_whiten_check(&w, err);
    if (rc == KV_OK) {
        kv_hash_hex(s.file.data, s.file.len, digest);
        *out = w;
    } else {
        kv_err_prefix(err, "%s", path);
        kv_codec_whiten_free(&w);
    }
    kv_safetensors_free(&s);
    return rc;
}

kv_rc kv_whiten_file_write(const char *path, const kv_codec_whiten *w, kv_err *err)
{
    const size_t most = 2 * (size_t)w->layers;
    kv_st_write *list = kv_alloc(most, sizeof *list);
    char(*names)[NAME] = kv_alloc(most, sizeof *names);
    size_t n = 0;
    kv_rc rc;
    if (list == NULL || names == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for the factors of %d layers", w->layers);
        goto out;
    }
    for (int32_t i = 0; i < w->layers; i++)
        for (int k = 0; w->l[i] != NULL && k < 2; k++, n++) {
            name_of(i, k == 1, names[n]);
            list[n] = (kv_st_write){names[n], "F32", 3, {w->heads, w->dim, w->dim}, k == 0 ? w->l[i] : w->inverse[i]};
        }
    rc = kv_safetensors_write(path, list, n, KV_WHITEN_FORMAT, err);
out:
    kv_free(list);
    kv_free(names);
    return rc;
}
