#include "grid/codec/kv_codec_compare.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/codec/kv_codec_step.h"

static const size_t width[] = {4, 2, 4, 2, 1};

static uint32_t at(kv_codec_as as, const void *p, int64_t i)
{
    uint32_t w;
    uint16_t h;
    if (width[as] == 1) return ((const uint8_t *)p)[i];
    if (width[as] == 2) {
        memcpy(&h, (const char *)p + 2 * i, sizeof h);
        return h;
    }
    memcpy(&w, (const char *)p + 4 * i, sizeof w);
    return w;
}

static bool is_nan(kv_codec_as as, uint32_t bits)
{
    if (as == KV_CODEC_AS_F32) return (bits & 0x7FFFFFFFu) > 0x7F800000u;
    return as == KV_CODEC_AS_F16 && (bits & 0x7FFFu) > 0x7C00u;
}

static void print(kv_codec_as as, uint32_t bits, char *out, size_t n)
{
    if (as == KV_CODEC_AS_F32) {
        snprintf(out, n, "%.9g (0x%08" PRIx32 ")", (double)kv_num_float(bits), bits);
    } else if (as == KV_CODEC_AS_F16) {
        snprintf(out, n, "%.9g (0x%04" PRIx32 ")", (double)kv_codec_f((uint16_t)bits), bits);
    } else {
        snprintf(out, n, "%" PRIu32, bits);
    }
}

bool kv_codec_compare(kv_codec_as as, const void *got, const void *want, int64_t n, char text[KV_CODEC_COMPARE_TEXT])
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t a = at(as, got, i), b = at(as, want, i);
        char a_text[40], b_text[40];
        if (a == b || (is_nan(as, a) && is_nan(as, b))) continue;
        print(as, a, a_text, sizeof a_text);
        print(as, b, b_text, sizeof b_text);
        snprintf(text, KV_CODEC_COMPARE_TEXT, "at %" PRId64 ": got %s, want %s", i, a_text, b_text);
        return false;
    }
    return true;
}
