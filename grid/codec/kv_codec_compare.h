/* grid: compares arrays of the codec bit for bit, where any NaN equals any NaN; says the first difference. */
#ifndef KV_CODEC_COMPARE_H
#define KV_CODEC_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_CODEC_COMPARE_TEXT 128

typedef enum { KV_CODEC_AS_F32, KV_CODEC_AS_F16, KV_CODEC_AS_U32, KV_CODEC_AS_U16, KV_CODEC_AS_U8 } kv_codec_as;

/* True where all n values agree; else text says index, got and want of the first that does not. */
bool kv_codec_compare(kv_codec_as as, const void *got, const void *want, int64_t n, char text[KV_CODEC_COMPARE_TEXT]);

#endif
