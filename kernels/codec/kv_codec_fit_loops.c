/* codec fit, inside: which variant of the loops runs here. */
#include "kernels/codec/kv_codec_fit_loops.h"

#include <stdlib.h>
#include <string.h>

#define KV_LOOP(name_) kv_loop_plain_##name_
#define KV_LOOP_TARGET
#define KV_LOOP_BYTES 16
#define KV_LOOP_WIDE 0
#include "kernels/codec/kv_codec_fit_loops_impl.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define KV_LOOP(name_) kv_loop_avx2_##name_
#define KV_LOOP_TARGET __attribute__((target("avx2")))
#define KV_LOOP_BYTES 32
#define KV_LOOP_WIDE 0
#include "kernels/codec/kv_codec_fit_loops_impl.h"

#define KV_LOOP(name_) kv_loop_avx512_##name_
#define KV_LOOP_TARGET __attribute__((target("avx512f")))
#define KV_LOOP_BYTES 64
#define KV_LOOP_WIDE 1
#include "kernels/codec/kv_codec_fit_loops_impl.h"

const kv_fit_loops *kv_fit_loops_here(void)
{
    const char *asked = getenv("KVGRID_CODEC_VARIANT");
    if (asked == NULL) asked = "";
    if (strcmp(asked, "reference") == 0 || strcmp(asked, "sse2") == 0) return kv_loop_plain_table();
    if (strcmp(asked, "avx2") != 0 && __builtin_cpu_supports("avx512f")) return kv_loop_avx512_table();
    if (__builtin_cpu_supports("avx2")) return kv_loop_avx2_table();
    return kv_loop_plain_table();
}
#else
const kv_fit_loops *kv_fit_loops_here(void)
{
    return kv_loop_plain_table();
}
#endif
