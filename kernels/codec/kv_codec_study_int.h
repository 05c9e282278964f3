/* codec study, inside: what its files share. Strides: rows of head_dim, hidden and vocabulary floats are padded to
 * whole multiples of KV_STUDY_PAD (the pads stay 0), keys stand transposed with `t_stride` floats between lanes. */
#ifndef KV_CODEC_STUDY_INT_H
#define KV_CODEC_STUDY_INT_H

#include "kernels/codec/kv_codec_study.h"
#include "kernels/codec/kv_codec_study_impl.h"
#include "kernels/codec/kv_codec_study_math.h"
#include "kernels/codec/kv_codec_whiten.h"

enum {
    KV_STUDY_E = 128, /* hidden width */
    KV_STUDY_GROUP = KV_TOKEN_GROUP,
    KV_STUDY_BLOCKS_MAX = 128 /* allocations of a study */
};

/* Projections of a layer, transposed: [in][out_pad]. */
typedef struct {
    float *wq, *wk, *wv;     /* [E][2H * d_pad], [E][H * d_pad] */
    float *q_bias, *k_bias;  /* [2H * d_pad], [H * d_pad] */
    float *wo;               /* [2H * d_pad][E] */
    float *mlp_in, *mlp_out; /* [E][E] */
} kv_study_layer;

typedef struct {
    float *embed;                 /* [64][E] */
    float *position;              /* [T][E], halved */
    float *unembed;               /* [E][64] */
    float *cosine, *sine;         /* [T][D/2] */
    float *key_gain, *query_gain; /* [D] lanes of keys and queries */
    kv_study_layer layer[KV_CODEC_STUDY_LAYERS_MAX];
} kv_study_model;

/* Keys and values of one layer of one passage, T = prefix + evaluated positions. */
typedef struct {
    float *pre; /* [H][T][D]  keys before RoPE, float32 */
    float *kt;  /* [H][D][t_stride]  keys after RoPE, bf16 values */
    float *v;   /* [H][T][d_pad]  bf16 values */
} kv_study_cache;

/* What is done to the rows of a half. */
typedef enum { KV_STUDY_OP_COPY = 0, KV_STUDY_OP_CODEC = 1, KV_STUDY_OP_NOISE = 2 } kv_study_op;

/* A half of a cell; equal keys give equal sealed rows for equal input. */
typedef struct {
    kv_codec_half_config config;
    int32_t op;      /* kv_study_op */
    int32_t factor;  /* whitening: 0 none, 1 factors of queries before RoPE, 2 after */
    bool after_rope; /* K */
} kv_study_stream;

/* A cell in terms of what is done. */
typedef struct {
    bool on[KV_CODEC_HALVES];
    kv_study_stream key[KV_CODEC_HALVES];
    bool skip[KV_CODEC_STUDY_LAYERS_MAX];
    bool prefix_only;
} kv_study_plan;

/* Sums over sealed rows. */
typedef struct {
    double error, size; /* squared */
    kv_codec_study_damage count;
} kv_study_damage;

/* Sealed rows of the prefix of one half, as attention reads them, for the key. */
typedef struct {
    kv_study_stream key;
    bool *filled;            /* [passages][L] */
    kv_study_damage *damage; /* [passages][L] */
    float *rows;             /* [passages][L][H][prefix][D] */
} kv_study_memo;

/* Scratch of one passage of a cell, or of the base run. */
typedef struct {
    float *x, *h, *y;      /* [n][E] */
    float *q, *o;          /* [n][2H * d_pad] */
    float *k, *v;          /* [n][H * d_pad] */
    float *score;          /* [2][t_stride] */
    float *logits;         /* [n][64] */
    kv_study_cache raw;    /* of one layer */
    kv_study_cache sealed; /* pre unused */
} kv_study_work;

struct kv_codec_study {
    kv_codec_study_params p;
    int64_t tokens;   /* T */
    int64_t d_pad;    /* head_dim, padded */
    int64_t t_stride; /* T padded, and one pad more for loops that run over */
    float scale;
    const kv_study_math *math;
    kv_study_model model;
    kv_study_work work;
    uint8_t *text;               /* [passages + 1][T + 1] */
    kv_study_cache *base;        /* [passages + 1][L] */
    double *query_sums[2];       /* [L][H][D][D], before and after RoPE */
    kv_codec_whiten whiten[2];   /* the factors */
    float *base_logits, *logits; /* [passages][evaluated][64] */
    kv_study_memo memo[KV_CODEC_HALVES];
    void *owned[KV_STUDY_BLOCKS_MAX];
    int32_t owned_count;
};

/* Zeroed floats that the study owns; the kv_err names the study. */
float *kv_study_floats(kv_codec_study *s, int64_t n, kv_err *err);

/* ---- kv_codec_study_model.c */
kv_rc kv_study_model_new(kv_codec_study *s, kv_err *err) KV_MUST_USE;

/* ---- kv_codec_study_base.c: one layer's steps, for n tokens */
kv_rc kv_study_base_run(kv_codec_study *s, kv_err *err) KV_MUST_USE;
void kv_study_embed(const kv_codec_study *s, const uint8_t *text, int64_t from, float *x);
/* h = norm x; q, k, v of n tokens; k before RoPE, q and k not yet rotated. */
void kv_study_project_in(kv_codec_study *s, int32_t layer, int64_t n);
void kv_study_rotate(const kv_codec_study *s, float *rows, int64_t heads, int64_t position);
/* k (before RoPE) and v of one token, position t, into a cache. */
void kv_study_store(const kv_codec_study *s, kv_study_cache *c, int64_t t, const float *k, const float *v);
/* o of one token (rotated q) over positions 0..t: for head h the first sealed[h] from `sealed`, the others from
 * `raw`. */
void kv_study_attend(kv_codec_study *s, const kv_study_cache *raw, const kv_study_cache *sealed,
                     const int64_t *sealed_tokens, int64_t t, const float *q, float *o);
/* x += WO o; x += MLP(norm x). */
void kv_study_project_out(kv_codec_study *s, int32_t layer, int64_t n);
void kv_study_logits(kv_codec_study *s, int64_t n);

/* ---- kv_codec_study_block.c: rows of a layer through the codec */

/* Where rows belong. Lane and row as in kv_codec_recipe.h: tokens of head `lane`, or token-major with the heads inside. */
typedef struct {
    const kv_study_stream *key;
    int32_t half, passage, layer;
    int64_t lane;
} kv_study_place;

/* Seals rows [from, to), a group of whole blocks: reads s->work.raw, writes s->work.sealed, adds to *sum. */
kv_rc kv_study_seal(kv_codec_study *s, const kv_study_place *at, int64_t from, int64_t to, kv_study_damage *sum,
                    kv_err *err) KV_MUST_USE;
/* A sealed row of [D] floats, out of s->work.sealed and into it. */
void kv_study_sealed_get(const kv_codec_study *s, int32_t half, int64_t head, int64_t token, float *row);
void kv_study_sealed_put(kv_codec_study *s, int32_t half, int64_t head, int64_t token, const float *row);

/* ---- kv_codec_study_plan.c */
kv_rc kv_study_plan_of(const kv_codec_study *s, const kv_codec_study_how *how, const char *cell, kv_study_plan *out,
                       kv_err *err) KV_MUST_USE;
bool kv_study_stream_equal(const kv_study_stream *a, const kv_study_stream *b);

/* ---- kv_codec_study_score.c */
void kv_study_score_all(const kv_codec_study *s, kv_codec_study_result *out);
int64_t kv_study_integer(double x);

#endif
