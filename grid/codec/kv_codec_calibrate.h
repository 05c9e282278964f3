/* The two calibrations: whitening factors from queries, level tables from rows. positional[1] is IN, [2] OUT. */
#ifndef KV_CODEC_CALIBRATE_H
#define KV_CODEC_CALIBRATE_H

#include "grid/codec/kv_codec_setup.h"

kv_rc kv_codec_calibrate_whiten(const kv_opts *o, kv_err *err) KV_MUST_USE;
kv_rc kv_codec_calibrate_table(const kv_opts *o, kv_err *err) KV_MUST_USE;

#endif
