/* grid: holds the codec against a folder of conformance vectors (format KKVEC01, index.json). */
#ifndef KV_CODEC_CONFORM_H
#define KV_CODEC_CONFORM_H

#include <jansson.h>

#include "base/kv_base.h"

#define KV_CODEC_CONFORM_TEXT 512

/* Called for each finding of a case: `field` is "VARIANT FIELD", what is its first difference. */
typedef void (*kv_codec_conform_told)(void *user, const char *name, const char *field, const char *what);

typedef struct {
    int64_t cases, differ; /* cases, and those with any difference */
    int64_t fields;        /* fields that differ */
    int64_t refits;        /* k-means refits that were compared */
    int64_t slots;         /* slot images and overflow cases that were compared */
    int64_t variants;      /* codec variants that were run */
} kv_codec_conform_sum;

/* Runs every case of folder/index.json on every variant that runs here. told is called for each difference, done (may
 * be NULL) after each case with the number of differences. KV_EREAD or KV_EFORMAT where the folder cannot be used. */
kv_rc kv_codec_conform(const char *folder, kv_codec_conform_told told,
                       void (*done)(void *user, const char *name, int64_t differences), void *user,
                       kv_codec_conform_sum *out, kv_err *err) KV_MUST_USE;

#endif
