/* codec ref: the plain implementation, first of kv_codec_variants(). */
#ifndef KV_CODEC_REF_H
#define KV_CODEC_REF_H

#include "kernels/codec/kv_codec.h"

extern const kv_codec_variant kv_codec_reference;

#endif
