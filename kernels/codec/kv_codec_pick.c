/* codec pick: the variants of this build, and the fastest that the CPU runs. */
#include <stdlib.h>
#include <string.h>

#include "kernels/codec/kv_codec_ref.h"

const kv_codec_variant *kv_codec_variants(void)
{
    static kv_codec_variant list[2];
    list[0] = kv_codec_reference;
    return list;
}

const kv_codec_variant *kv_codec_best(void)
{
    return kv_codec_variants();
}
