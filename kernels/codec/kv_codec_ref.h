/* codec ref: the plain implementation, first of kv_codec_variants(). */
#ifndef KV_CODEC_REF_H
#define KV_CODEC_REF_H

#include "kernels/codec/kv_codec_simd.h"

KV_CODEC_SIMD_DECLARE(reference);

#endif
