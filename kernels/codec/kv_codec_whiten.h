/* codec whitening (K only): rows times L before the codec, times L inverse after it, one pair of factors for each layer
 * and kv head; makes the squared error of a whitened row the query-weighted error of the row. Layers without factors run
 * with the identity. float32, sums in ascending index order from +0. */
#ifndef KV_CODEC_WHITEN_H
#define KV_CODEC_WHITEN_H

#include "base/kv_base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KV_CODEC_WHITEN_TOLERANCE 2e-5 /* of L times L inverse against the identity, each entry */

typedef struct {
    int32_t layers, heads, dim;
    float **l, **inverse; /* [layers] pointers to [heads][dim][dim], row-major; NULL: the identity */
} kv_codec_whiten;

/* Room for pointers; no layer has factors yet. */
kv_rc kv_codec_whiten_new(int32_t layers, int32_t heads, int32_t dim, kv_codec_whiten *out, kv_err *err) KV_MUST_USE;
/* Room for the factors of a layer that has none. */
kv_rc kv_codec_whiten_add(kv_codec_whiten *w, int32_t layer, kv_err *err) KV_MUST_USE;
void kv_codec_whiten_free(kv_codec_whiten *w); /* also resets to {0} */
/* Layers that run with the identity. */
int32_t kv_codec_whiten_identities(const kv_codec_whiten *w);
/* KV_EFORMAT naming layer, head and entry: L not finite, not lower triangular, a diagonal that is not positive, L times
 * L inverse further from the identity than KV_CODEC_WHITEN_TOLERANCE. */
kv_rc kv_codec_whiten_check(const kv_codec_whiten *w, kv_err *err) KV_MUST_USE;

/* out[j] = sum over i of x[i] * m[i][j], i ascending, for n rows; x and out must not overlap. */
void kv_codec_whiten_rows(const float *m, int32_t dim, const float *x, int64_t n, float *out);

/* Fits the factors of one head from samples of its queries: S = mean of q q' (f64, samples in order), symmetrised, plus
 * ridge * mean diagonal; L its lower Cholesky factor, inverse that of the stored L. `sums` [dim][dim] f64 holds the sum
 * of q q' over `count` samples and is destroyed. *condition: of S with the ridge. KV_EFORMAT where S is not finite,
 * has no positive trace, or the factors do not hold the tolerance. */
#define KV_CODEC_WHITEN_RIDGE 1e-3
kv_rc kv_codec_whiten_fit(double *sums, int64_t count, int32_t dim, double ridge, float *l, float *inverse,
                          double *condition, kv_err *err) KV_MUST_USE;
/* sums += q q' for n queries, in order. */
void kv_codec_whiten_sum(const float *q, int64_t n, int32_t dim, double *sums);

#ifdef __cplusplus
}
#endif
#endif
