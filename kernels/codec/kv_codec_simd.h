/* codec simd: the fast variants, one file for each instruction set, one source (kv_codec_simd_impl.h). */
#ifndef KV_CODEC_SIMD_H
#define KV_CODEC_SIMD_H

#include "kernels/codec/kv_codec.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define KV_CODEC_HAVE_X86 1
#else
#define KV_CODEC_HAVE_X86 0
#endif

/* The functions of a variant, see kv_codec_variant. */
#define KV_CODEC_SIMD_DECLARE(isa_)                                                                                    \
    void kv_codec_##isa_##_encode(kv_codec_work *w, const float *x, int64_t n, kv_codec_codes *codes);                 \
    void kv_codec_##isa_##_decode(kv_codec_work *w, const kv_codec_codes *codes, float *x);                            \
    void kv_codec_##isa_##_project(kv_codec_work *w, const float *x, int64_t n, float *c);                             \
    void kv_codec_##isa_##_dots(const kv_codec_points *points, const float *centers, const int32_t *which,             \
                                int32_t count, float *dots, int64_t stride);                                           \
    void kv_codec_##isa_##_choose(const float *dots, int64_t stride, int64_t n, int32_t k, uint32_t *seg, float *dot); \
    void kv_codec_##isa_##_add(float *sum, const float *row, float factor, int32_t d)
#define KV_CODEC_SIMD_VARIANT(isa_)                                                                                    \
    {                                                                                                                  \
#isa_, isa_##_runs, kv_codec_##isa_##_encode, kv_codec_##isa_##_decode, kv_codec_##isa_##_project,             \
            kv_codec_##isa_##_dots, kv_codec_##isa_##_choose, kv_codec_##isa_##_add                                    \
    }

KV_CODEC_SIMD_DECLARE(sse2);
KV_CODEC_SIMD_DECLARE(avx2);
KV_CODEC_SIMD_DECLARE(avx512);

#endif
