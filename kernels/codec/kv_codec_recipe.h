/* codec recipes: named ways to use the codec for the K and V of a cache, and what they cost in bytes. Plain data. */
#ifndef KV_CODEC_RECIPE_H
#define KV_CODEC_RECIPE_H

#include "kernels/codec/kv_codec_fit.h"
#include "kernels/codec/kv_codec_slot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers are kept in slots: they never change their meaning. */
typedef enum {
    /* As the published serving backend runs: K inner_product, 3 bits, threshold 2, V mse, 2 bits; K after RoPE (with
     * whitening factors made before it, where given); blocks of 512 tokens of one head; every layer is encoded. */
    KV_CODEC_PUBLISHED_SERVING = 0,
    /* As the published quality numbers were measured: K whitened before RoPE with mse (inner_product where no factors
     * are given), boundary layers left alone, blocks of 512 rows that are token-major with the heads inside, V with one
     * basis for all blocks of a layer. */
    KV_CODEC_PUBLISHED_HARNESS = 1,
    /* Ours and the default: the KV1 rule, mse, blocks of 512 tokens of one head; the same slot sizes. */
    KV_CODEC_KV1 = 2,
    /* KV1 with one basis for KV_CODEC_SHARED_BLOCKS blocks of a head. */
    KV_CODEC_KV1_SHARED = 3,
    KV_CODEC_RECIPE_COUNT
} kv_codec_recipe_id;

#define KV_CODEC_SHARED_BLOCKS 4
#define KV_CODEC_BLOCK_ROWS 512
#define KV_CODEC_LAYERS_MAX 65536
#define KV_CODEC_GROUP_ALL 0 /* kv_codec_half_config.group: all blocks of a sequence */

typedef enum { KV_CODEC_K = 0, KV_CODEC_V = 1, KV_CODEC_HALVES = 2 } kv_codec_half;

/* One stream (K or V) under a recipe. */
typedef struct {
    kv_codec_slot_config slot;
    kv_codec_fit_opts fit; /* solver left at KV_CODEC_SOLVER_OWN: the caller chooses */
    int32_t group;         /* blocks that share a basis: 1 each its own, KV_CODEC_GROUP_ALL all of a sequence */
    bool mixed_heads;      /* rows of a block are token-major with the heads inside; else tokens of one head */
    bool whitened;         /* factors are applied where there are some */
} kv_codec_half_config;

/* "published-serving", ...; NULL for a number that is none. */
const char *kv_codec_recipe_name(int32_t id);
/* One line for people: what the recipe is. */
const char *kv_codec_recipe_text(int32_t id);
/* KV_EINVAL lists the names. */
kv_rc kv_codec_recipe_find(const char *name, int32_t *out, kv_err *err) KV_MUST_USE;
/* "k" or "v". */
const char *kv_codec_half_name(int32_t half);
const char *kv_codec_metric_name(int32_t metric); /* "mse", "inner_product", "linf"; NULL for none */
/* Whether the K of this recipe is taken before RoPE (what the arrays must hold); false: after. */
bool kv_codec_recipe_before_rope(int32_t id);

/* Kept directions for a head_dim: half of it, up to a power of two, at most head_dim (64 for 96 and 128). */
int32_t kv_codec_default_d_eff(int32_t head_dim);
/* The defaults of a half: 512 rows, 16 centres, built-in levels, seed 0xCAFEBABE. whitened: factors will be given (K).
 * KV_EINVAL for a head_dim that is no 1..KV_CODEC_DIM_MAX. */
kv_rc kv_codec_recipe_half(int32_t id, int32_t half, int32_t head_dim, bool whitened, kv_codec_half_config *out,
                           kv_err *err) KV_MUST_USE;
/* After bits changed: levels (NULL: built-in) and their tag. */
void kv_codec_half_levels(kv_codec_half_config *h, int32_t bits, const float *levels);

/* Sets skip[layers] to the layers that the recipe leaves as they are: only published-harness has any, the listed ones
 * of 28 and 36 layers, and for other counts above 4 the first and last two. */
void kv_codec_recipe_skip(int32_t id, int32_t layers, bool *skip);

/* ---- bytes ------------------------------------------------------------------------------ */

typedef struct {
    int64_t bytes;        /* slots, basis pages, tails, skipped layers */
    int64_t raw_bytes;    /* the same positions in bf16 */
    int64_t slots, pages; /* how many */
    int64_t tail_rows;    /* rows of one head that stand uncompressed in layers that are not skipped */
} kv_codec_account;

/* What `tokens` tokens of `layers` layers x `heads` heads take; uncompressed values are `value_bytes` each (2 for bf16 and
 * f16). `finished`: full blocks of an unfinished group are sealed too. KV_EINVAL, KV_ENOMEM where a size does not fit. */
kv_rc kv_codec_account_of(const kv_codec_half_config *h, int32_t layers, const bool *skip, int64_t heads,
                          int64_t tokens, int32_t value_bytes, bool finished, kv_codec_account *out, kv_err *err)
    KV_MUST_USE;
void kv_codec_account_add(kv_codec_account *sum, const kv_codec_account *more);
/* raw_bytes / bytes; 1 where there is nothing. */
double kv_codec_account_ratio(const kv_codec_account *a);

/* Lanes: the independent row sequences of one layer and half: a head each, or one for all. */
static inline int64_t kv_codec_lanes(const kv_codec_half_config *h, int64_t heads)
{
    return h->mixed_heads ? 1 : heads;
}
/* Blocks of a group that is full. For KV_CODEC_GROUP_ALL: no group is ever full before the end. */
static inline bool kv_codec_group_full(const kv_codec_half_config *h, int64_t blocks)
{
    return h->group != KV_CODEC_GROUP_ALL && blocks >= h->group;
}

#ifdef __cplusplus
}
#endif
#endif
