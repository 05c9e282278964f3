/* codec simd: avx512, 16 rows in a vector. */
#include "kernels/codec/kv_codec_simd.h"

#if KV_CODEC_HAVE_X86

#include <immintrin.h>
#include <math.h>
#include <string.h>

/* From here on every function is compiled for this instruction set; all are static but the five of the table. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl")
#endif

#define KV_ISA(what_) kv_codec_avx512_##what_
#define KV_LANES 16
#define KV_DIRECTIONS 8
#define KV_ROWS 4
#define KV_COLUMNS 4
#include "kernels/codec/kv_codec_simd_impl.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
