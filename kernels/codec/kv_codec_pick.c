/* codec pick: the variants of this build, and the fastest that the CPU runs. */
#include <stdlib.h>
#include <string.h>

#include "kernels/codec/kv_codec_ref.h"

static bool reference_runs(void)
{
    return true;
}

#if KV_CODEC_HAVE_X86
static bool sse2_runs(void)
{
    return __builtin_cpu_supports("sse2") != 0;
}

static bool avx2_runs(void)
{
    return __builtin_cpu_supports("avx2") != 0;
}

static bool avx512_runs(void)
{
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
           __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}
#endif

/* From slow to fast. */
static const kv_codec_variant variants[] = {
    KV_CODEC_SIMD_VARIANT(reference),
#if KV_CODEC_HAVE_X86
    KV_CODEC_SIMD_VARIANT(sse2),
    KV_CODEC_SIMD_VARIANT(avx2),
    KV_CODEC_SIMD_VARIANT(avx512),
#endif
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};

const kv_codec_variant *kv_codec_variants(void)
{
    return variants;
}

const kv_codec_variant *kv_codec_best(void)
{
    const char *asked = getenv("KVGRID_CODEC_VARIANT");
    const kv_codec_variant *best = variants;
    for (const kv_codec_variant *v = variants; v->name != NULL; v++) {
        if (!v->runs_here()) continue;
        best = v;
        if (asked != NULL && strcmp(asked, v->name) == 0) break;
    }
    return best;
}
