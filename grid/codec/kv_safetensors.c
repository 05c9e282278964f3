#include "grid/codec/kv_safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/kv_file.h"
#include "base/kv_out.h"

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"I32", 4},     {"I16", 2},    {"I8", 1},
              {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

int64_t kv_st_dtype_bytes(const char *dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, dtype) == 0) return dtypes[i].bytes;
    return 0;
}

/* ---- reading ---------------------------------------------------------------------------- */

static kv_rc read_shape(const json_t *v, kv_st_tensor *t, kv_err *err)
{
    const json_t *shape = json_object_get(v, "shape");
    int64_t bytes = kv_st_dtype_bytes(t->dtype);
    if (!json_is_array(shape) || json_array_size(shape) > KV_ST_DIMS_MAX)
        return KV_FAIL(err, KV_EFORMAT, "shape must be a list of at most %d sizes", KV_ST_DIMS_MAX);
    t->dims = (int)json_array_size(shape);
    for (int i = 0; i < t->dims; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        t->shape[i] = json_integer_value(d);
        if (!json_is_integer(d) || t->shape[i] < 0 || !kv_mul_i64(bytes, t->shape[i], &bytes))
            return KV_FAIL(err, KV_EFORMAT, "shape[%d] is no size, or the tensor does not fit 64 bits", i);
    }
    t->bytes = bytes;
    return KV_OK;
}

static kv_rc read_place(const json_t *v, int64_t data_bytes, kv_st_tensor *t, kv_err *err)
{
    const json_t *place = json_object_get(v, "data_offsets"), *a = json_array_get(place, 0),
                 *b = json_array_get(place, 1);
    if (json_array_size(place) != 2 || !json_is_integer(a) || !json_is_integer(b))
        return KV_FAIL(err, KV_EFORMAT, "data_offsets must be two integers");
    const int64_t from = json_integer_value(a), to = json_integer_value(b);
    if (from < 0 || to < from || to > data_bytes)
        return KV_FAIL(err, KV_EFORMAT,
                       "data_offsets %" PRId64 " to %" PRId64 " do not lie in the file's %" PRId64 " data bytes", from,
                       to, data_bytes);
    if (to - from != t->bytes)
        return KV_FAIL(err, KV_EFORMAT, "%" PRId64 " bytes of data, its shape takes %" PRId64, to - from, t->bytes);
    t->offset = from;
    return KV_OK;
}

static kv_rc read_tensor(const char *name, const json_t *v, int64_t data_bytes, kv_st_tensor *t, kv_err *err)
{
    const json_t *dtype = json_object_get(v, "dtype");
    const char *text = json_string_value(dtype);
    kv_rc rc;
    if (!json_is_object(v) || json_object_size(v) != 3 || text == NULL)
        return KV_FAIL(err, KV_EFORMAT, "must be an object of dtype, shape and data_offsets");
    if (kv_st_dtype_bytes(text) == 0) return KV_FAIL(err, KV_EFORMAT, "dtype \"%.40s\" is not known", text);
    memcpy(t->dtype, text, strlen(text) + 1);
    KV_TRY(rc, out, read_shape(v, t, err));
    KV_TRY(rc, out, read_place(v, data_bytes, t, err));
    t->name = kv_strdup(name);
    if (t->name == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for a tensor's name");
out:
    return rc;
}

static kv_rc read_metadata(const json_t *v, kv_safetensors *s, kv_err *err)
{
    const char *key;
    const json_t *one;
    if (!json_is_object(v)) return KV_FAIL(err, KV_EFORMAT, "__metadata__ must be an object of texts");
    json_object_foreach((json_t *)(uintptr_t)v, key, one)
    {
        if (!json_is_string(one)) return KV_FAIL(err, KV_EFORMAT, "__metadata__: \"%.80s\" is no text", key);
    }
    const char *format = json_string_value(json_object_get(v, "format"));
    if (format == NULL) return KV_OK;
    s->format = kv_strdup(format);
    return s->format != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for metadata");
}

static int by_offset(const void *a, const void *b)
{
    const kv_st_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* One after the other, without gaps, to the end. */
static kv_rc check_cover(kv_safetensors *s, kv_err *err)
{
    int64_t at = 0;
    if (s->n > 1) qsort(s->tensor, s->n, sizeof *s->tensor, by_offset);
    for (size_t i = 0; i < s->n; i++) {
        if (s->tensor[i].offset != at)
            return KV_FAIL(err, KV_EFORMAT, "tensor \"%.80s\" begins at %" PRId64 ", %" PRId64 " was expected",
                           s->tensor[i].name, s->tensor[i].offset, at);
        at += s->tensor[i].bytes;
    }
    if (at != s->data_bytes)
        return KV_FAIL(err, KV_EFORMAT, "%" PRId64 " bytes behind the last tensor", s->data_bytes - at);
    return KV_OK;
}

static kv_rc read_header(json_t *header, kv_safetensors *s, kv_err *err)
{
    const char *key;
    json_t *v;
    kv_rc rc = KV_OK;
    if (!json_is_object(header)) return KV_FAIL(err, KV_EFORMAT, "the header is no JSON object");
    s->tensor = kv_alloc(json_object_size(header), sizeof *s->tensor);
    if (s->tensor == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu tensors", json_object_size(header));
    json_object_foreach(header, key, v)
    {
        if (strcmp(key, "__metadata__") == 0) {
            rc = read_metadata(v, s, err);
        } else {
            rc = read_tensor(key, v, s->data_bytes, &s->tensor[s->n], err);
            if (rc == KV_OK)
                s->n++;
            else
                kv_err_prefix(err, "tensor \"%.80s\"", key);
        }
        if (rc != KV_OK) return rc;
    }
    return check_cover(s, err);
}

kv_rc kv_safetensors_parse(const void *bytes, size_t n, kv_safetensors *out, kv_err *err)
{
    const uint8_t *b = bytes;
    uint64_t length = 0;
    json_error_t je;
    if (n < 8)
        return KV_FAIL(err, KV_EFORMAT, "%zu bytes are no safetensors file: 8 bytes of header length come first", n);
    for (int i = 7; i >= 0; i--) length = length << 8 | b[i];
    if (length > n - 8 || length > KV_ST_HEADER_MAX)
        return KV_FAIL(err, KV_EFORMAT,
                       "a header of %" PRIu64 " bytes: the file has %zu behind the length, %zu is the most", length,
                       n - 8, KV_ST_HEADER_MAX);
    if (length == 0 || b[8] != '{') return KV_FAIL(err, KV_EFORMAT, "the header does not begin with {");
    json_t *header = json_loadb((const char *)b + 8, (size_t)length, JSON_REJECT_DUPLICATES, &je);
    if (header == NULL) return KV_FAIL(err, KV_EFORMAT, "header, byte %d: %s", je.position, je.text);
    out->data = b + 8 + length;
    out->data_bytes = (int64_t)(n - 8 - (size_t)length);
    const kv_rc rc = read_header(header, out, err);
    json_decref(header);
    return rc;
}

kv_rc kv_safetensors_read(const char *path, size_t limit, kv_safetensors *out, kv_err *err)
{
    kv_rc rc = kv_file_read(path, limit, &out->file, err);
    if (rc != KV_OK) return rc;
    rc = kv_safetensors_parse(out->file.data, out->file.len, out, err);
    if (rc != KV_OK) kv_err_prefix(err, "%s", path);
    return rc;
}

void kv_safetensors_free(kv_safetensors *s)
{
    for (size_t i = 0; i < s->n; i++) kv_free(s->tensor[i].name);
    kv_free(s->tensor);
    kv_free(s->format);
    kv_buf_free(&s->file);
    memset(s, 0, sizeof *s);
}

const kv_st_tensor *kv_safetensors_find(const kv_safetensors *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->tensor[i].name, name) == 0) return &s->tensor[i];
    return NULL;
}

/* ---- writing ---------------------------------------------------------------------------- */

static kv_rc describe(const kv_st_write *t, int64_t *at, json_t *header, kv_err *err)
{
    int64_t bytes = kv_st_dtype_bytes(t->dtype);
    json_t *shape = json_array();
    if (bytes == 0 || t->dims < 0 || t->dims > KV_ST_DIMS_MAX || json_object_get(header, t->name) != NULL) {
        json_decref(shape);
        return KV_FAIL(err, KV_EINVAL, "tensor \"%s\": dtype \"%s\", %d dimensions, or named twice", t->name, t->dtype,
                       t->dims);
    }
    for (int i = 0; i < t->dims; i++) {
        json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
        bytes *= t->shape[i];
    }
    json_t *v = json_pack("{s:s,s:o,s:[I,I]}", "dtype", t->dtype, "shape", shape, "data_offsets", (json_int_t)*at,
                          (json_int_t)(*at + bytes));
    *at += bytes;
    if (v == NULL || json_object_set_new(header, t->name, v) != 0)
        return KV_FAIL(err, KV_ENOMEM, "no memory for a safetensors header");
    return KV_OK;
}

static void write_parts(kv_out *o, const char *text, const kv_st_write *tensor, size_t n)
{
    static const char blanks[] = "        ";
    const size_t len = strlen(text), pad = (8 - len % 8) % 8;
    uint8_t le[8];
    for (int i = 0; i < 8; i++) le[i] = (uint8_t)((uint64_t)(len + pad) >> (8 * i));
    kv_out_bytes(o, le, sizeof le);
    kv_out_bytes(o, text, len);
    kv_out_bytes(o, blanks, pad);
    for (size_t i = 0; i < n; i++) {
        int64_t bytes = kv_st_dtype_bytes(tensor[i].dtype);
        for (int d = 0; d < tensor[i].dims; d++) bytes *= tensor[i].shape[d];
        kv_out_bytes(o, tensor[i].data, (size_t)bytes);
    }
}

kv_rc kv_safetensors_write(const char *path, const kv_st_write *tensor, size_t n, const char *format, kv_err *err)
{
    json_t *header = json_object();
    char *text = NULL;
    kv_out *o = NULL;
    int64_t at = 0;
    kv_rc rc = KV_OK;
    if (format != NULL) json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", format));
    for (size_t i = 0; rc == KV_OK && i < n; i++) rc = describe(&tensor[i], &at, header, err);
    if (rc != KV_OK) goto out;
    text = json_dumps(header, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (text == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a safetensors header");
        goto out;
    }
    KV_TRY(rc, out, kv_out_open(path, &o, err));
    write_parts(o, text, tensor, n);
    rc = kv_out_close(o, rc, err);
out:
    free(text); /* jansson's */
    json_decref(header);
    return rc;
}
