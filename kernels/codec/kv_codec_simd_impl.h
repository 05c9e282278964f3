/* codec simd: encode, decode, project and k-means sums on groups of 32 rows. A file for each instruction set defines
 *   KV_ISA(what)   the name of a function of kv_codec_simd.h
 *   KV_LANES       floats in a vector: 4, 8 or 16
 *   KV_DIRECTIONS  directions whose sums run at once: 4 or 8
 *   KV_ROWS, KV_COLUMNS  block of the decoder's product: rows, vectors of columns
 * and includes this. Shapes: GROUP rows side by side, arrays [what][GROUP]. */
#ifndef KV_CODEC_SIMD_IMPL_H
#define KV_CODEC_SIMD_IMPL_H

#include "kernels/codec/kv_codec_simd_decode.h"
#include "kernels/codec/kv_codec_simd_encode.h"
#include "kernels/codec/kv_codec_simd_fit.h"

#endif
