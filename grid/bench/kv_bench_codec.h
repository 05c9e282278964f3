/* kvgrid bench --codec: times of the KV codec beside a plain copy of as many bytes. */
#ifndef KV_BENCH_CODEC_H
#define KV_BENCH_CODEC_H

#include <jansson.h>

#include "base/kv_base.h"

/* Measures every task `repeat` times and prints a line each (tell) or fills `list` (as_json). */
kv_rc kv_bench_codec(int64_t repeat, bool tell, bool as_json, json_t *list, kv_err *err) KV_MUST_USE;

#endif
