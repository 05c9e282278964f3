/* Whitening factors in a safetensors file. For each layer that has some, two F32 tensors of shape [heads][dim][dim]:
 *   layers.N.k.whiten    L, lower triangular with a positive diagonal: rows times it before the codec
 *   layers.N.k.unwhiten  its inverse: rows times it after the codec
 * and __metadata__.format "kvgrid.whiten/v1". Layers without tensors run with the identity. */
#ifndef KV_WHITEN_FILE_H
#define KV_WHITEN_FILE_H

#include "certs/kv_hash.h"
#include "kernels/codec/kv_codec_whiten.h"

#define KV_WHITEN_FORMAT "kvgrid.whiten/v1"

/* Reads and checks factors for a model of these sizes; digest: of the file's bytes. KV_EFORMAT names file, tensor, layer
 * and head. The caller frees *out. */
kv_rc kv_whiten_file_read(const char *path, int32_t layers, int32_t heads, int32_t dim, kv_codec_whiten *out,
                          char digest[KV_HASH_HEX], kv_err *err) KV_MUST_USE;
kv_rc kv_whiten_file_write(const char *path, const kv_codec_whiten *w, kv_err *err) KV_MUST_USE;

#endif
