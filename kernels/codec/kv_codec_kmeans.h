/* codec k-means on a variant of choice (kv_codec_kmeans of kv_codec_fit.h takes the best): same bits on each. */
#ifndef KV_CODEC_KMEANS_H
#define KV_CODEC_KMEANS_H

#include "kernels/codec/kv_codec.h"

kv_rc kv_codec_kmeans_on(const kv_codec_variant *v, const float *c, const float *weights, int64_t n, int32_t d_eff,
                         int32_t k, uint32_t seed, int32_t rounds, float *out, int32_t *k_eff, int32_t *rounds_used,
                         kv_err *err) KV_MUST_USE;

#endif
