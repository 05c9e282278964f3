/* codec: the lossy block codec for KV-cache rows (block PCA skeleton, spherical k-means, Walsh-Hadamard
 * rotation, Lloyd-Max levels of 1 to 4 bits, outlier overrides). Rows go in and out as float32; what is
 * kept is a frozen fp16 skeleton for a block and a few codes for each row.
 *
 * Arithmetic (kv_codec_step.h): float32, nearest even, subnormals kept, no contraction, sums one term at a
 * time in ascending index order, so that every variant and every device gives the same bits. EPS is 2^-23.
 *
 * Arrays are row-major. fp16 values travel as uint16_t bits; a NaN that the encoder stores is always 0x7E00. Nothing here reads a clock, a locale or a
 * maths library but sqrtf, which IEEE 754 rounds correctly. */
#ifndef KV_CODEC_H
#define KV_CODEC_H

#include "base/kv_base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KV_CODEC_BITS_MAX 4
#define KV_CODEC_LEVELS_MAX 16
#define KV_CODEC_DIM_MAX 1024 /* head_dim; wht_len is then at most 1024 too */
#define KV_CODEC_CENTERS_MAX 4096
#define KV_CODEC_EPS 0x1p-23f
#define KV_CODEC_SEED 0xCAFEBABEu

typedef enum {
    KV_CODEC_MSE = 0,           /* squared error */
    KV_CODEC_INNER_PRODUCT = 1, /* squared error */
    KV_CODEC_LINF = 2,          /* Huber cost, threshold 0.1 */
    KV_CODEC_METRIC_COUNT
} kv_codec_metric;

/* What the fp16 fields t and norm of a row mean. */
typedef enum {
    /* As published. The residual is taken against the float32 t. mse and linf store 1/max(scale, EPS) and the
     * decoder applies it; inner_product stores the length of the raw row and the decoder applies 1, so that the
     * residual's length is lost. A row without residual decodes to noise. t and norm may become Inf. */
    KV_CODEC_RULE_PUBLISHED = 0,
    /* Ours. The residual is taken against the fp16 t that the decoder will use; every metric stores
     * 1/max(scale, EPS), 0 where the residual is at most EPS long or NaN, and the decoder applies it. t and norm saturate at
     * +-65504; how often is counted. */
    KV_CODEC_RULE_KV1 = 1,
    KV_CODEC_RULE_COUNT
} kv_codec_rule;

/* One configuration of the codec; plain data, copied freely. */
typedef struct {
    int32_t dim;                      /* D, 1..KV_CODEC_DIM_MAX: floats in a row */
    int32_t d_eff;                    /* 1..dim: kept directions */
    int32_t k;                        /* 1..KV_CODEC_CENTERS_MAX: centres present */
    int32_t bits;                     /* 1..4 */
    int32_t metric;                   /* kv_codec_metric */
    int32_t rule;                     /* kv_codec_rule */
    uint32_t seed;                    /* of the sign pattern (and of k-means) */
    bool outliers;                    /* whether threshold counts */
    float threshold;                  /* scaled values strictly above it in magnitude are kept as fp16 */
    float level[KV_CODEC_LEVELS_MAX]; /* 2^bits ascending levels */
} kv_codec_params;

/* The least power of two >= d_eff. */
int32_t kv_codec_wht_len(int32_t d_eff);
/* Packed residual bytes of one row: ceil(wht_len * bits / 8). */
int64_t kv_codec_row_bytes(const kv_codec_params *p);
/* The built-in table for 1..4 bits: 2^bits ascending levels; NULL for other bits. */
const float *kv_codec_levels(int32_t bits);
/* Whether 2^bits levels ascend, are finite, at most LEVEL_MOST in magnitude and not all below LEVEL_LEAST: else `code`,
 * with the level. A scaled residual is at most sqrt(wht_len) long, so that a decoded value cannot overflow. */
#define KV_CODEC_LEVEL_MOST 65504.0f
#define KV_CODEC_LEVEL_LEAST 0x1p-14f
kv_rc kv_codec_levels_check(const float *level, int32_t bits, kv_rc code, kv_err *err) KV_MUST_USE;
/* KV_EINVAL with the name of the value and its range: sizes, bits, levels as above, threshold >= 0. */
kv_rc kv_codec_params_check(const kv_codec_params *p, kv_err *err) KV_MUST_USE;
/* The sizes and names only: levels and threshold as they come (conformance vectors). The functions below need this. */
kv_rc kv_codec_params_check_sizes(const kv_codec_params *p, kv_err *err) KV_MUST_USE;

/* The frozen skeleton of a block, fp16 bits. Borrowed by encode and decode. */
typedef struct {
    uint16_t *mean;    /* [dim] */
    uint16_t *basis;   /* [d_eff][dim], one kept direction a row */
    uint16_t *centers; /* [k][d_eff] */
} kv_codec_skeleton;

kv_rc kv_codec_skeleton_new(const kv_codec_params *p, kv_codec_skeleton *out, kv_err *err) KV_MUST_USE;
void kv_codec_skeleton_free(kv_codec_skeleton *s); /* also resets to {0} */

/* The codes of n rows. */
typedef struct {
    int64_t n;
    uint32_t *seg_id;        /* [n] centre, < k */
    uint16_t *t;             /* [n] fp16, signed length along the centre */
    uint16_t *norm;          /* [n] fp16, see kv_codec_rule */
    uint8_t *residual;       /* [n][kv_codec_row_bytes] level indices, bits each, least significant first */
    uint32_t *outlier_count; /* [n] */
    uint16_t *outlier_idx;   /* [outliers] row after row, ascending inside a row, < wht_len */
    uint16_t *outlier_val;   /* [outliers] fp16, scaled values */
    int64_t outliers;        /* in all; the two arrays have room for n * wht_len */
    float *res_norm;         /* [n] length of the residual before scaling, for reports; NULL: not wanted */
    int64_t saturated;       /* KV1: t and norm fields held at +-65504 */
} kv_codec_codes;

/* Room for n rows of p (outlier room only where p->outliers; res_norm only if asked). */
kv_rc kv_codec_codes_new(const kv_codec_params *p, int64_t n, bool want_res_norm, kv_codec_codes *out, kv_err *err)
    KV_MUST_USE;
void kv_codec_codes_free(kv_codec_codes *c); /* also resets to {0} */

/* A skeleton made ready for many rows: float32 values, the sign pattern, scratch of one thread.
 * Make one for a block (or for a layer's shared basis), use it, free it. The skeleton and params are copied. */
typedef struct kv_codec_work kv_codec_work;
kv_rc kv_codec_work_new(const kv_codec_params *p, const kv_codec_skeleton *s, kv_codec_work **out, kv_err *err)
    KV_MUST_USE;
/* Takes another skeleton of the same params: no allocation. */
void kv_codec_work_set(kv_codec_work *w, const kv_codec_skeleton *s);
void kv_codec_work_free(kv_codec_work *w);

/* Points for k-means: the same values in rows and in groups of KV_CODEC_POINT_GROUP points side by side. */
#define KV_CODEC_POINT_GROUP 32
typedef struct {
    int64_t n;
    int32_t d;
    const float *rows;   /* [n][d] */
    const float *groups; /* [ceil(n / 32)][d][32], zeros past n; 64-byte aligned */
} kv_codec_points;

/* One implementation of the row work. All give the same bits for any input, NaN and Inf included
 * (any NaN counts as any NaN). */
typedef struct {
    const char *name; /* "reference", "sse2", "avx2", "avx512" */
    bool (*runs_here)(void);
    /* x[n][dim] -> codes (room for n rows, n set). Never fails: memory was taken before. */
    void (*encode)(kv_codec_work *w, const float *x, int64_t n, kv_codec_codes *codes);
    /* codes -> x[n][dim]. Codes are within range (an unpacked slot was checked); outliers of index >= wht_len
     * are ignored. */
    void (*decode)(kv_codec_work *w, const kv_codec_codes *codes, float *x);
    /* c[n][d_eff] = projection of x[n][dim] onto the basis (step 1 of the encoder), for the skeleton fit. */
    void (*project)(kv_codec_work *w, const float *x, int64_t n, float *c);
    /* The parts of k-means. dots[g][stride] = dots of each point with centre g, for the `count` centres g in which[];
     * stride: n up to a multiple of 32, dots 64-byte aligned; what is past n is scratch. */
    void (*dots)(const kv_codec_points *points, const float *centers, const int32_t *which, int32_t count, float *dots,
                 int64_t stride);
    /* For each of n points the first of k centres with the largest |dot|, and that dot; (0, NaN) where no dot is a
     * number. */
    void (*choose)(const float *dots, int64_t stride, int64_t n, int32_t k, uint32_t *seg, float *dot);
    /* sum[a] = sum[a] + factor * row[a]. */
    void (*add)(float *sum, const float *row, float factor, int32_t d);
} kv_codec_variant;

/* All variants of this build, the reference first, ended by name NULL. */
const kv_codec_variant *kv_codec_variants(void);
/* The fastest that runs here. $KVGRID_CODEC_VARIANT names another (tests); an unknown name is ignored. */
const kv_codec_variant *kv_codec_best(void);

#ifdef __cplusplus
}
#endif
#endif
