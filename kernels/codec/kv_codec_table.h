/* codec tables: levels fitted to what the quantiser really sees (Lloyd-Max), and how much that gains. */
#ifndef KV_CODEC_TABLE_H
#define KV_CODEC_TABLE_H

#include "kernels/codec/kv_codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The scaled residuals of n rows: s[n][kv_codec_wht_len], as the encoder quantises them under the KV1 rule. `w` was made
 * from p and sk, codes have room for n rows with lengths (want_res_norm) and hold the rows' codes afterwards. c:
 * scratch [n][d_eff]. */
void kv_codec_scaled_rows(const kv_codec_variant *v, kv_codec_work *w, const kv_codec_params *p,
                          const kv_codec_skeleton *sk, const float *x, int64_t n, kv_codec_codes *codes, float *c,
                          float *s);
/* Appends to out the scaled values that a table is for, and returns how many: those of rows with a residual, without
 * the ones kept as outliers. */
int64_t kv_codec_scaled_pick(const kv_codec_params *p, const kv_codec_codes *codes, const float *s, float *out);

#define KV_CODEC_TABLE_ROUNDS 1000

/* Levels of least mean squared error over the samples (n, finite, sorted ascending by this function), from `start` on:
 * each level becomes the mean of the samples nearest to it until none moves by more than 1e-7; a level that no sample is
 * nearest to takes over half of those of the level with the largest error. Sums are f64 in ascending order. KV_EFORMAT
 * where the samples have fewer different values than there are levels, or one is not finite. */
kv_rc kv_codec_table_fit(float *samples, int64_t n, int32_t bits, const float *start, float *levels, int32_t *rounds,
                         kv_err *err) KV_MUST_USE;
/* Mean squared error of quantising the samples to the nearest level; 0 without samples. */
double kv_codec_table_error(const float *samples, int64_t n, const float *levels, int32_t bits);

#ifdef __cplusplus
}
#endif
#endif
