/* codec fit: the skeleton of a block (stage 1): mean, principal directions, effective k, spherical k-means.
 *
 * Two exact solvers: KV_CODEC_SOLVER_OWN is our symmetric eigen-solver with a fixed order of operations in float64,
 * bit-identical on every machine (and later on the GPU): grid rows and certificates use it.
 * KV_CODEC_SOLVER_LAPACK calls LAPACKE where it is found at run time: production stores.
 * KV_CODEC_SOLVER_RANDOMIZED needs no library either (its logarithm and cosine are ours), so it is reproducible too.
 * Signs of directions are normalised: the component of largest magnitude (the first of equals) is positive.
 *
 * Small data: the published rules test the variance of a block against 2^-23, so that small blocks keep one direction.
 * Without opts->published the fit is relative: a block and the same block times a power of two get the same basis
 * and (as long as rows are longer than EPS, which the encoder tests) the same centres. */
#ifndef KV_CODEC_FIT_H
#define KV_CODEC_FIT_H

#include "kernels/codec/kv_codec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { KV_CODEC_SOLVER_OWN = 0, KV_CODEC_SOLVER_LAPACK = 1, KV_CODEC_SOLVER_RANDOMIZED = 2 } kv_codec_solver;

typedef struct {
    int32_t solver;        /* kv_codec_solver */
    bool published;        /* abort where the published program aborts (KV_EFORMAT that names the value); else pad */
    double variance_ratio; /* clamped to [0, 1]; 1 with rank_cap pins d_eff to the cap */
    int32_t rank_cap;      /* most directions kept; 0: dim */
    int32_t k;             /* centres asked for */
    int32_t kmeans_rounds; /* 32 */
    int32_t oversample;    /* randomized: 8 */
    int32_t power_iters;   /* randomized: 2 */
} kv_codec_fit_opts;

/* What a fit did, for reports. */
typedef struct {
    int32_t d_eff;         /* directions that the d_eff rule keeps (<= rank_cap; 0: no variance); with published this is
                              the size of the basis, else further directions follow, most variance first */
    int32_t k_eff;         /* centres that k-means really made; 0: no row is longer than EPS, all are unit vectors */
    int32_t kmeans_rounds; /* used */
    int32_t sketch;        /* randomized: columns of the sketch; fewer than asked where the block has fewer rows */
    bool mean_saturated;   /* a mean beyond the fp16 range was held at +-65504 (never with published) */
    double kept_ppm;       /* variance that the basis keeps, parts per million of the block's; 1e6 where it has none */
} kv_codec_fit_report;

/* Whether LAPACKE is there: loaded at the first call (linking it would cost every start of a program 3 ms). */
bool kv_codec_has_lapack(void);
/* What answers, for reports: the library's name, or why there is none. */
const char *kv_codec_lapack_name(void);

/* Fits mean, basis and centres to x[n][p->dim] with weights[n] (NULL: all 1), in the sizes of p: d_eff directions and
 * k centres exactly. With opts->published, p->d_eff and p->k are set to what the published rules give (d_eff may be
 * below the cap, k below the one asked for) and blocks on which the published program aborts are KV_EFORMAT;
 * otherwise missing directions are filled with further orthonormal ones and missing centres with copies, so that the
 * skeleton has exactly the configured size for any finite input. Rows of weight <= 0 then do not count at all.
 * out: allocated by kv_codec_skeleton_new for p (with p->d_eff >= what results). Errors: KV_EFORMAT (a value that is
 * not finite, named by row and column; no positive weight), KV_EUNSUP (no LAPACKE), KV_ENOMEM. */
kv_rc kv_codec_fit(kv_codec_params *p, const kv_codec_fit_opts *opts, const float *x, const float *weights, int64_t n,
                   kv_codec_skeleton *out, kv_codec_fit_report *report, kv_err *err) KV_MUST_USE;

/* Mean and basis only (shared over a layer: rows of all blocks stacked); same rules. */
kv_rc kv_codec_fit_basis(kv_codec_params *p, const kv_codec_fit_opts *opts, const float *x, const float *weights,
                         int64_t n, kv_codec_skeleton *out, kv_codec_fit_report *report, kv_err *err) KV_MUST_USE;
/* Centres only, given the mean and basis in `s` (fp16, as stored): effective k and k-means of one block. */
kv_rc kv_codec_fit_centers(kv_codec_params *p, const kv_codec_fit_opts *opts, const float *x, const float *weights,
                           int64_t n, kv_codec_skeleton *s, kv_codec_fit_report *report, kv_err *err) KV_MUST_USE;

/* Spherical k-means on projections c[n][d_eff] (byte-exact given c): out[k][d_eff] float32, k_eff = min(k, rows that
 * count); fewer directions than k_eff is KV_EFORMAT. */
kv_rc kv_codec_kmeans(const float *c, const float *weights, int64_t n, int32_t d_eff, int32_t k, uint32_t seed,
                      int32_t rounds, float *out, int32_t *k_eff, int32_t *rounds_used, kv_err *err) KV_MUST_USE;

/* Eigenvalues (descending) and eigenvectors (rows of v, signs normalised) of the symmetric a[n][n], of which the lower
 * triangle is read. Our own fixed-order solver: the same bits everywhere. KV_EFORMAT names an entry that is not
 * finite. */
kv_rc kv_codec_eigen_own(const double *a, int32_t n, double *values, double *v, kv_err *err) KV_MUST_USE;
/* Turns v so that its component of largest magnitude (the first of equals) is positive. */
void kv_codec_eigen_sign(double *v, int32_t n);

/* How far two skeletons of one block are apart. */
typedef struct {
    double sine;             /* of the largest principal angle between the two bases; large and harmless where the
                                variances at the cut are almost equal */
    double error_a, error_b; /* relative L2 error of the rows when only mean and basis are kept */
} kv_codec_fit_distance;
/* a and b have the sizes of p; rows of x finite. Both bases are taken as stored (fp16, made orthonormal again). */
kv_rc kv_codec_fit_compare(const kv_codec_params *p, const kv_codec_skeleton *a, const kv_codec_skeleton *b,
                           const float *x, int64_t n, kv_codec_fit_distance *out, kv_err *err) KV_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
