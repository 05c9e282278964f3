/* What store and inspect say of a stored cache: sizes, ratios, what the fit kept, errors. */
#ifndef KV_CODEC_REPORT_H
#define KV_CODEC_REPORT_H

#include "grid/codec/kv_codec_setup.h"

typedef struct {
    const kv_codec_facts *facts;
    const kv_codec_whiten *factors; /* or NULL */
    const char *path;
    const kv_codec_stream_stats *stats[KV_CODEC_HALVES]; /* or NULL */
    const kv_codec_error *error[KV_CODEC_HALVES];        /* or NULL */
} kv_codec_report;

kv_rc kv_codec_report_print(const kv_codec_report *r, bool json, kv_err *err) KV_MUST_USE;
/* The error of one half as a line, or as JSON (NULL: no memory). */
void kv_codec_error_print(const char *what, const kv_codec_error *e, const kv_codec_facts *f, int32_t half);

/* Bytes and so on of one half over all layers, finished. */
kv_rc kv_codec_facts_account(const kv_codec_facts *f, int32_t half, kv_codec_account *out, kv_err *err) KV_MUST_USE;

#endif
