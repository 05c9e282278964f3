/* safetensors files: 8 bytes little-endian length, a JSON header, then the tensors' bytes, dense and in order. Reader and
 * writer; the reader takes only files in which every byte is accounted for. */
#ifndef KV_SAFETENSORS_H
#define KV_SAFETENSORS_H

#include "base/kv_base.h"

#define KV_ST_DIMS_MAX 8
#define KV_ST_HEADER_MAX ((size_t)64 << 20)

typedef struct {
    char *name;
    char dtype[12]; /* "F32", "BF16", ... */
    int dims;
    int64_t shape[KV_ST_DIMS_MAX];
    int64_t offset, bytes; /* of the data, from its beginning */
} kv_st_tensor;

typedef struct {
    kv_buf file;         /* empty where the bytes are the caller's */
    const uint8_t *data; /* where offsets count from */
    int64_t data_bytes;
    kv_st_tensor *tensor; /* by ascending offset */
    size_t n;
    char *format; /* __metadata__.format, or NULL */
} kv_safetensors;

/* Hostile bytes: anything that is not a whole, gapless file is KV_EFORMAT naming the tensor and what is wrong. `bytes`
 * must outlive *out, which kv_safetensors_free frees whatever happened. */
kv_rc kv_safetensors_parse(const void *bytes, size_t n, kv_safetensors *out, kv_err *err) KV_MUST_USE;
/* The same for a file of at most limit bytes; errors name it. */
kv_rc kv_safetensors_read(const char *path, size_t limit, kv_safetensors *out, kv_err *err) KV_MUST_USE;
void kv_safetensors_free(kv_safetensors *s); /* also resets to {0} */
/* NULL where there is none. */
const kv_st_tensor *kv_safetensors_find(const kv_safetensors *s, const char *name);
/* Bytes of one element; 0 for an unknown dtype. */
int64_t kv_st_dtype_bytes(const char *dtype);

/* A tensor to be written; data is borrowed, little-endian. */
typedef struct {
    const char *name, *dtype;
    int dims;
    int64_t shape[KV_ST_DIMS_MAX];
    const void *data;
} kv_st_write;
/* Writes the file whole or not at all; format: __metadata__.format (NULL: none). KV_EINVAL for an unknown dtype. */
kv_rc kv_safetensors_write(const char *path, const kv_st_write *tensor, size_t n, const char *format, kv_err *err)
    KV_MUST_USE;

#endif
