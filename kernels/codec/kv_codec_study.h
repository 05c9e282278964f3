/* codec study: which part of a codec recipe costs how much of a model's quality, on the grid's own small model.
 *
 * THIS IS A SMALL MODEL WITH WEIGHTS FROM A SEED, NOT A LANGUAGE MODEL: its numbers tell recipes and their parts apart
 * on the same data, bit for bit on every machine; they do not say what a recipe costs a trained model.
 *
 * MODEL. A decoder of L layers, 2H query heads over H kv heads of head_dim D (even), hidden width E = 128,
 * vocabulary 64: x = EMBED[token] + 1/2 POSITION[t]; in each layer x += WO attention(norm x), x += MLP(norm x) with
 * relu; logits = UNEMBED norm(x). norm is RMS norm without gain, eps 2^-20. Queries and keys are rotated
 * (RoPE, base 10000, lanes d and d + D/2 a pair). Weights are hashes of the seed (kv_token_weight), scaled.
 * So that keys look like keys, their projection is A S B + noise + bias: S falls exponentially over D directions
 * (to 3.4 % at direction D/2), the noise is full rank, the bias is an offset mean with every 16th lane six times as
 * large, and slowly turning lanes are larger than fast ones, up to e^1.5 times. A query head reads the same directions
 * B, so that tokens attend to tokens alike, and turns them by A and by an A of its own; its sizes (of directions and
 * lanes) are the square roots of the keys'. So queries are larger where keys are, and whitening has little to gain
 * with a codec that spreads its error evenly over the kept directions; whether a trained model is like that is not
 * decided here. Values: A S B + noise, S falling to 19 % at D/2, no bias. The cache holds K after RoPE and V in bf16,
 * in every cell and in the base run: attention never reads anything but bf16 values.
 *
 * PASSAGES. Passage p is drawn from the model itself: a start token from the hash, then prefix + evaluated tokens by
 * inverse CDF of the model's own probabilities. One more passage, never evaluated, gives the queries that the
 * whitening factors are fitted to, before and after RoPE.
 *
 * A CELL takes the clean K and V of the prefix, compresses its full blocks (a recipe without skipped layers: all
 * layers) and feeds the true tokens prefix .. prefix + evaluated - 1 to the model, which reads that cache. Their K
 * and V follow from the cell's own activations. A block, filled up by them, is sealed (compressed and read back)
 * from the token on that fills it; before that its rows are read as bf16. The prefix counts as a finished
 * sequence: its full blocks make groups of kv_codec_half_config.group, the last one may be short; later groups are
 * sealed when they are full (so KV_CODEC_GROUP_ALL: none). K is taken before or after RoPE as the recipe says
 * (kv1: before, whitened; published-serving: after, with factors made before it).
 *   identity          K + V, blocks cut, gathered and put back without compression: exactly no change
 *   whiten-only       K + V as in identity, but K whitened and unwhitened
 *   kv, k, v          the recipe; K or V only
 *   v-outliers        V only, with the outlier threshold of K
 *   kv-prefix         kv, but new tokens stay bf16 for ever
 *   noise             kv, but white noise instead of the codec's error, row by row of equal length
 *   k-no-whitening    K only, the recipe without factors (published-harness: then inner_product)
 *   k-whiten-before   K only, taken before RoPE, factors of queries before RoPE
 *   k-whiten-after    K only, taken after RoPE, factors of queries after RoPE
 *   layer-0 ...       kv in that layer alone (boundary layers too)
 *
 * ORDER OF SUMS. float32, each product and sum rounded on its own, one accumulator in ascending index order from +0
 * for projections (then + bias), scores (over lanes d, then * scale) and weighted values (over tokens). Means of
 * squares and softmax denominators run in eight lanes (term i in lane i mod 8, kv_token_tree). Exponentials of the
 * softmax: kv_token_exp. Scores of a cell are doubles by kv_codec_study_impl.h, over vocabulary or tokens ascending,
 * and become integers once, at the end. Every variant of the inner loops gives the same bits. */
#ifndef KV_CODEC_STUDY_H
#define KV_CODEC_STUDY_H

#include "kernels/codec/kv_codec_recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KV_CODEC_STUDY_PASSAGES_MAX 16
#define KV_CODEC_STUDY_LAYERS_MAX 64
#define KV_CODEC_STUDY_HEADS_MAX 64
#define KV_CODEC_STUDY_TOKENS_MAX 65536 /* prefix + evaluated */
#define KV_CODEC_STUDY_VOCAB 64

typedef struct {
    uint64_t seed;
    int32_t layers, kv_heads, head_dim; /* 1..64, 1..64, even 2..KV_CODEC_DIM_MAX */
    int32_t passages;                   /* 1..16 */
    int32_t prefix, evaluated;          /* tokens of a passage, each at least 1 */
} kv_codec_study_params;

/* How a cell differs from the base run, over some evaluated tokens. */
typedef struct {
    bool finite;            /* false: a logit was not finite; the numbers below are 0 */
    int64_t nll_nano;       /* mean of -ln p(next token), in 1e-9 nat */
    int64_t ppl_change_ppm; /* perplexity against the base run's; mean: of the passages' changes, as published */
    int64_t kl_nano;        /* mean of KL(base || cell), in 1e-9 nat */
    int64_t top1_ppm;       /* tokens on which both have the same most likely token */
} kv_codec_study_score;

typedef enum {
    KV_CODEC_STUDY_ACCEPT = 0,   /* |change| <= 1 % and top-1 >= 95 % */
    KV_CODEC_STUDY_MARGINAL = 1, /* |change| <= 3 % and top-1 >= 85 % */
    KV_CODEC_STUDY_REJECT = 2
} kv_codec_study_verdict;

/* What happened to the rows of K or V that were compressed, all passages and layers together. */
typedef struct {
    int64_t rows, blocks;
    int64_t error_ppm;  /* relative L2 error of K after RoPE, or V, as attention reads them; 0 without rows, -1 if not
                          finite */
    int64_t overflowed; /* blocks with more outliers than a slot of the recipe takes: they would not be stored */
    int64_t saturated;  /* t and norm fields held at +-65504 */
} kv_codec_study_damage;

typedef struct {
    kv_codec_study_score mean;
    kv_codec_study_score passage[KV_CODEC_STUDY_PASSAGES_MAX];
    int64_t base_nll_nano; /* mean, of the base run */
    int32_t verdict;       /* kv_codec_study_verdict of the mean; REJECT where it is not finite */
    kv_codec_study_damage damage[KV_CODEC_HALVES];
} kv_codec_study_result;

/* Base run, caches, factors: about 4 L (passages + 1) (prefix + evaluated) (3 H D) bytes twice over. One thread. */
typedef struct kv_codec_study kv_codec_study;

/* Makes model and passages and runs the base. KV_EINVAL names the value and its range. */
kv_rc kv_codec_study_new(const kv_codec_study_params *p, kv_codec_study **out, kv_err *err) KV_MUST_USE;
void kv_codec_study_free(kv_codec_study *s); /* NULL is fine */

/* The cells of a study of that many layers in order ("identity" first); NULL past the last. `room` holds 16 bytes. */
const char *kv_codec_study_cell(int32_t layers, int32_t index, char *room);

/* A recipe in a study. */
typedef struct {
    int32_t recipe;     /* kv_codec_recipe_id */
    int32_t block_rows; /* rows of a block, a power of two; 0: the recipe's 512 */
    int32_t d_eff;      /* kept directions; 0: the recipe's */
    bool no_factors;    /* no whitening factors are given: K as in k-no-whitening, but for the cells named after them */
    const bool *skip;   /* [layers] that are left alone; NULL: the recipe's */
} kv_codec_study_how;

/* Runs a cell. Codec results for the prefix are kept between cells of one `how`: run kv, k, v, noise in a row. KV_EINVAL:
 * no such cell or recipe, sizes a slot cannot have, whitening factors that do not exist (all queries zero).
 * KV_EFORMAT: a block that the published fit aborts on. *out is set only on success. */
kv_rc kv_codec_study_run(kv_codec_study *s, const kv_codec_study_how *how, const char *cell, kv_codec_study_result *out,
                         kv_err *err) KV_MUST_USE;

/* Logits of the base run, or of the last cell that was run, as float32 bits (any NaN as 0x7FC00000), little-endian:
 * [passages][evaluated][64], handed over a passage at a time. For digests. */
typedef void (*kv_codec_study_take)(void *ctx, const void *bytes, size_t n);
void kv_codec_study_base_logits(const kv_codec_study *s, kv_codec_study_take take, void *ctx);
void kv_codec_study_logits(const kv_codec_study *s, kv_codec_study_take take, void *ctx);
/* The tokens of a passage: prefix + evaluated + 1 of them. */
const uint8_t *kv_codec_study_tokens(const kv_codec_study *s, int32_t passage);

/* How far K and V together are from the sum of their single effects: effect(kv) - (effect(k) + effect(v)). */
typedef struct {
    bool finite;
    int64_t ppl_change_ppm, kl_nano;
} kv_codec_study_gap;
kv_codec_study_gap kv_codec_study_additivity(const kv_codec_study_result *kv, const kv_codec_study_result *k,
                                             const kv_codec_study_result *v);
/* "ACCEPT", "MARGINAL", "REJECT"; NULL for none. */
const char *kv_codec_study_verdict_name(int32_t verdict);

/* The variants of the inner loops, all with the same bits: "ref" first, NULL past the end; a study uses the last
 * that this machine can run. */
const char *kv_codec_study_variant(int32_t index);
/* KV_EUNSUP where the machine (or the build) cannot. The base run stays as it is. */
kv_rc kv_codec_study_use(kv_codec_study *s, const char *variant, kv_err *err) KV_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
