/* grid: holds the codec against a folder of conformance vectors (format KKVEC01, index.json). */
#ifndef KV_CODEC_CONFORM_H
#define KV_CODEC_CONFORM_H

#include <jansson.h>

#include "base/kv_base.h"

#define KV_CODEC_CONFORM_TEXT 512

/* Called for each finding of a case: `field` is "VARIANT FIELD", "slot FIELD", "file FIELD" (the index against the file) or
 * "file" (it cannot be used); what is its first difference. */
typedef void (*kv_codec_conform_told)(void *user, const char *name, const char *field, const char *what);
/* Called after each case. */
typedef void (*kv_codec_conform_done)(void *user, const char *name, bool agrees);

typedef struct {
    int64_t cases, differ; /* cases, and those with any difference */
    int64_t unusable;      /* cases with a file that cannot be read or parsed; they are none that differ */
    int64_t fields;        /* fields that differ */
    int64_t refits;        /* k-means refits that were compared */
    int64_t slots;         /* slot images and overflow cases that were compared */
    int64_t variants;      /* codec variants that were run */
} kv_codec_conform_sum;

/* Runs every case of folder/index.json on every variant that runs here. KV_EREAD or KV_EFORMAT where the index cannot be
 * used (out is untouched then) or the file of a case: the other cases run nevertheless, *out is their sum, *err the first
 * of them. done may be NULL. */
kv_rc kv_codec_conform(const char *folder, kv_codec_conform_told told, kv_codec_conform_done done, void *user,
                       kv_codec_conform_sum *out, kv_err *err) KV_MUST_USE;

#endif
