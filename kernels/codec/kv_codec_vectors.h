/* codec vectors: reads one conformance file of format KKVEC01 (input, frozen skeleton, expected output). */
#ifndef KV_CODEC_VECTORS_H
#define KV_CODEC_VECTORS_H

#include "kernels/codec/kv_codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything points into the file's bytes. */
typedef struct {
    kv_codec_params params; /* rule published; the levels as they stand in the file */
    int64_t n;
    bool fitted; /* the skeleton was fitted, else made by hand */
    const float *x, *weights;
    kv_codec_skeleton skeleton;
    kv_codec_codes want; /* res_norm too */
    const float *decoded;
    const float *decoded_res_norm; /* NULL where the file has none */
} kv_codec_vector;

/* bytes: 8-byte aligned, kept by the caller as long as *out is used. Hostile bytes are KV_EFORMAT with what is wrong:
 * sizes and sections are within range afterwards, the codes are whatever they are. */
kv_rc kv_codec_vector_parse(void *bytes, int64_t size, kv_codec_vector *out, kv_err *err) KV_MUST_USE;
/* Whether the codes can be decoded: seg ids below k, outlier counts that add up to the total. KV_EFORMAT says what does
 * not. */
kv_rc kv_codec_vector_check_codes(const kv_codec_vector *v, kv_err *err) KV_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
