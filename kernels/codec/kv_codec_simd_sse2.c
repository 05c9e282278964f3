/* codec simd: sse2, 4 rows in a vector. */
#include "kernels/codec/kv_codec_simd.h"

#if KV_CODEC_HAVE_X86

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define KV_ISA(what_) kv_codec_sse2_##what_
#define KV_LANES 4
#define KV_DIRECTIONS 4
#define KV_ROWS 4
#define KV_COLUMNS 2
#include "kernels/codec/kv_codec_simd_impl.h"

#endif
