/* kv_kern_token: the token leg. Eight greedy tokens of a one-layer GQA decoder over one layer of
 * a cache. Two caches that differ in one bit give different logits (docs/token_leg.md says how
 * far that holds), and every device must give the same bits, so this page fixes all arithmetic.
 *
 *   K      [T][H][D]   one kv_elem, dense, canonical order; T >= 0
 *   V      [T][H][Dv]  the same kv_elem
 *   result 8 tokens of a vocabulary of 64, and the 8 x 64 logits as float32 bits
 *
 * Twin: the plain decoder in tests/kernels/test_kv_kern_token.c, written from this page alone.
 *
 * NUMBERS. IEEE float32, round to nearest even, subnormals kept; every product, sum and quotient
 * is rounded on its own (no FMA, no reassociation). Cache elements become float32 exactly
 * (kv_kern_num.h). NaN and Inf in a cache go their IEEE way; which NaN comes out never matters.
 *
 * WEIGHTS. w(matrix, row, column) = kv_token_weight(hash, exponent): +-[1/2, 1) * 2^exponent, from
 * the hash of (seed, layer, matrix, row, column). Exponents: EMBED, POSITION, UNEMBED 0;
 * WQ, WK, WV -2; WO 2 - (least h with 4^h >= 2H * Dv). With E = 32, matrices row-major:
 *   EMBED [64][E]  POSITION [8][E]  WQ [2H*D][E]  WK [H*D][E]  WV [H*Dv][E]  WO [E][2H*Dv]  UNEMBED [64][E]
 *
 * DOT(a, b, n) is every dot product: eight lanes start at +0; lane j adds a[i] * b[i] for
 * i = j, j + 8, j + 16, ... < n in this order; the result is
 * ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)). (Terms 0 * 0 behind the end change nothing.)
 *
 * CHUNKED SUM over tokens: the cache tokens are cut into chunks of 64 (0..63, 64..127, ..., the
 * last one shorter), the new tokens are one more chunk, the last. The sum of a chunk starts at +0
 * and adds its terms in token order; the total starts at +0 and adds the chunks' sums in order.
 *
 * STEPS. token = start = hash(START, 0, 0) mod 64. For s = 0 .. 7:
 *    x[e]    = EMBED[token][e] + POSITION[s][e]
 *    q[g][d] = DOT(WQ[g*D + d], x, E)            query heads g = 0 .. 2H-1; kv head of g: h = g / 2
 *    k_s[h][d] = DOT(WK[h*D + d], x, E)          this step's own K and V stay float32
 *    v_s[h][d] = DOT(WV[h*Dv + d], x, E)
 *    for each g, over the T cache tokens and the new tokens 0 .. s (T + s + 1 in all, that order):
 *       score_t = DOT(q[g], K_t[h], D) * scale   scale = kv_token_scale(D)
 *       m       = the largest score, starting at -Inf, replaced where score_t > m (NaN never)
 *       w_t     = kv_token_exp(score_t - m)
 *       den     = CHUNKED SUM of w_t
 *       num[d]  = CHUNKED SUM of w_t * V_t[h][d]
 *       o[g*Dv + d] = num[d] / den
 *    y[e]      = DOT(WO[e], o, 2H * Dv)
 *    z[e]      = x[e] + y[e]
 *    logit[v]  = DOT(UNEMBED[v], z, E)
 *    token     = argmax of logit: lowest index of equals, NaN never, 0 if all are NaN
 *    out: tokens[s] = token, logits[s][v] = bits of logit[v], any NaN as 0x7FC00000
 */
#ifndef KV_KERN_TOKEN_H
#define KV_KERN_TOKEN_H

#include "base/kv_base.h"
#include "kernels/kv_kern_token_impl.h"
#include "layouts/kv_elem.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KV_TOKEN_HEADS_MAX 65536
#define KV_TOKEN_DIM_MAX 65536

typedef struct {
    int32_t tokens[KV_TOKEN_STEPS];
    uint32_t logits[KV_TOKEN_STEPS][KV_TOKEN_VOCAB];
} kv_token_out;

/* The weights of one (seed, layer, H, D, Dv): about 4 * 32 * H * (3D + 3Dv) bytes. Never changed
 * by a decode, so threads may share it. */
typedef struct kv_token_ctx kv_token_ctx;

/* layer >= 0, 1 <= kv_heads <= KV_TOKEN_HEADS_MAX, 1 <= dims <= KV_TOKEN_DIM_MAX, else KV_EINVAL. */
KV_MUST_USE kv_rc kv_token_check(int64_t layer, int64_t kv_heads, int64_t dim_k, int64_t dim_v, kv_err *err);
/* KV_EINVAL as kv_token_check; KV_ENOMEM. */
KV_MUST_USE kv_rc kv_token_ctx_new(uint64_t seed, int64_t layer, int64_t kv_heads, int64_t dim_k, int64_t dim_v,
                                   kv_token_ctx **out, kv_err *err);
void kv_token_ctx_free(kv_token_ctx *ctx); /* NULL is fine */

/* Decodes over `tokens` cache tokens; k and v may be NULL where tokens is 0, and need no
 * alignment. Scratch: some floats per token, a chunk of K and V, and at most 1 MiB more. *out is
 * written only on success. */
KV_MUST_USE kv_rc kv_token_decode(const kv_token_ctx *ctx, kv_elem elem, int64_t tokens, const void *k, const void *v,
                                  kv_token_out *out, kv_err *err);

/* Bytes that one decode takes at most beside K and V, weights included, on a CPU or a GPU; false where they do not fit
 * 63 bits. Arguments within the limits of kv_token_check. */
bool kv_token_bytes(int64_t tokens, int64_t kv_heads, int64_t dim_k, int64_t dim_v, int64_t *out);

/* The variants of the inner loops, all with the same bits: "ref" first, NULL past the end. A new
 * context uses the last one that this machine can run. */
const char *kv_token_variant(int index);
/* Makes ctx use that variant; KV_EUNSUP where the machine (or the build) cannot. */
KV_MUST_USE kv_rc kv_token_ctx_use(kv_token_ctx *ctx, const char *variant, kv_err *err);

#ifdef __cplusplus
}
#endif
#endif
