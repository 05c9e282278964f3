/* Inside the CUDA backend: what each kernel family offers to the host code. Every function queues its work on the
 * stream and does not wait; KV_EDEVICE where a launch was refused. Pointers to images and results are device memory. */
#ifndef KV_CUDA_KERN_H
#define KV_CUDA_KERN_H

#include <cuda_runtime_api.h>

#include "kernels/codec/kv_codec.h"
#include "kernels/cuda/kv_cuda_list.h"
#include "kernels/kv_kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where work is queued. */
typedef struct {
    cudaStream_t stream;
    int32_t multiprocessors;
    kv_cuda_list *list; /* where launches are written down instead; NULL: nowhere */
} kv_cuda_on;

/* What a checking kernel leaves behind, zeroed before. A first position is kept as its distance from the end, so that
 * the largest is the first and 0 is none. */
typedef struct {
    unsigned long long checked, padding, bad,
        hit;                            /* probe; bad: also differing, outside; guards: see kv_cuda_image.cu */
    unsigned long long first;           /* first_bad, first, first_outside */
    unsigned long long worst;           /* drift: bits of the double */
    uint32_t got, want;                 /* compare: bits at the first position */
    uint32_t not_preserved, not_finite; /* drift */
} kv_cuda_result;

/* Launches one kernel for n entries that were written down, the arguments of which lie in device memory; `blocks` is the
 * most that one of them wants. One for each kv_cuda_kernel, defined beside its kernel. */
typedef kv_rc kv_cuda_many(const kv_cuda_on *on, const void *entries, int32_t n, unsigned blocks, kv_err *err);
kv_cuda_many kv_cuda_many_poison, kv_cuda_many_guards; /* kv_cuda_image.cu */
kv_cuda_many kv_cuda_many_build, kv_cuda_many_gather;  /* kv_cuda_build.cu */
kv_cuda_many kv_cuda_many_fill, kv_cuda_many_convert, kv_cuda_many_direct,
    kv_cuda_many_tiles;          /* kv_cuda_translate.cu */
kv_cuda_many kv_cuda_many_probe; /* kv_cuda_probe.cu */
kv_cuda_many kv_cuda_many_compare, kv_cuda_many_first, kv_cuda_many_diff_add, kv_cuda_many_diff_take,
    kv_cuda_many_drift; /* kv_cuda_compare.cu */
kv_cuda_many kv_cuda_many_project, kv_cuda_many_score, kv_cuda_many_largest, kv_cuda_many_weigh, kv_cuda_many_total,
    kv_cuda_many_step; /* kv_cuda_token.cu */

/* ---- kv_cuda_image.cu ------------------------------------------------------------------- */

/* `bytes` of fill from data on, between two new guards. */
kv_rc kv_cuda_run_poison(const kv_cuda_on *on, unsigned char *data, int64_t bytes, unsigned char fill, kv_err *err);
/* r->checked: how far before the image the furthest overwritten byte lies; r->hit: how far before the end of the guard
 * behind it the first one. */
kv_rc kv_cuda_run_guards(const kv_cuda_on *on, const unsigned char *data, int64_t bytes, kv_cuda_result *r,
                         kv_err *err);

/* ---- kv_cuda_build.cu ------------------------------------------------------------------- */

kv_rc kv_cuda_run_build(const kv_cuda_on *on, unsigned char *data, const kv_index *ix, const kv_payload *p, int32_t via,
                        uint32_t pad, kv_err *err);
/* A window of one layer to its places in the dense layer at out: through layout ix from data, or, where data is NULL,
 * payload p itself. */
kv_rc kv_cuda_run_gather(const kv_cuda_on *on, const kv_index *ix, const unsigned char *data, const kv_payload *p,
                         int64_t layer, const kv_window *w, unsigned char *out, kv_err *err);

/* ---- kv_cuda_translate.cu --------------------------------------------------------------- */

kv_rc kv_cuda_run_translate(const kv_cuda_on *on, const kv_index *s, const unsigned char *src, const kv_index *t,
                            unsigned char *dst, uint32_t fill, kv_err *err);

/* ---- kv_cuda_probe.cu ------------------------------------------------------------------- */

kv_rc kv_cuda_run_probe(const kv_cuda_on *on, const kv_index *ix, kv_cuda_result *r, kv_err *err);

/* ---- kv_cuda_compare.cu ----------------------------------------------------------------- */

kv_rc kv_cuda_run_compare(const kv_cuda_on *on, int64_t positions, int64_t element_bytes, const unsigned char *got,
                          const unsigned char *want, kv_cuda_result *r, kv_err *err);
/* bits: one for each position, (positions + 7) / 8 bytes. */
kv_rc kv_cuda_run_diff_add(const kv_cuda_on *on, int64_t positions, int64_t element_bytes, const unsigned char *got,
                           const unsigned char *want, unsigned char *bits, kv_err *err);
kv_rc kv_cuda_run_diff_take(const kv_cuda_on *on, const kv_index *ix, unsigned char *bits, kv_cuda_result *r,
                            kv_err *err);
kv_rc kv_cuda_run_drift(const kv_cuda_on *on, const kv_index *s, const unsigned char *src, const kv_index *t,
                        const unsigned char *dst, kv_cuda_result *r, kv_err *err);

/* ---- kv_cuda_token.cu ------------------------------------------------------------------- */

/* One layer's decode. All pointers but `out` lie in device memory; their sizes are kv_cuda_token_floats's. */
typedef struct {
    int64_t tokens, heads, dim_k, dim_v;
    int32_t element; /* kv_elem of k and v */
    uint64_t seed;
    int64_t model_layer;
    const unsigned char *k, *v; /* [T][H][D], [T][H][Dv] */
    float *work;
    kv_decode_result *out; /* device memory */
} kv_cuda_decode;

/* Floats of scratch; false where they do not fit 63 bits. */
bool kv_cuda_token_floats(const kv_cuda_decode *d, int64_t *floats);
kv_rc kv_cuda_run_decode(const kv_cuda_on *on, const kv_cuda_decode *d, kv_err *err);

/* ---- kv_cuda_codec.cu ------------------------------------------------------------------- */

/* A batch of the codec (kernels/codec/kv_codec_batch.h). All pointers lie in device memory, 16-byte aligned; S is 1 if
 * shared, else blocks. Codes are within their ranges (kv_codec_batch_check). */
typedef struct {
    kv_codec_params p;
    int64_t rows; /* of each block */
    int32_t wht;
    bool shared;
    int64_t row_bytes;
    const uint16_t *mean, *basis, *centers;   /* fp16: [S][dim], [S][d_eff][dim], [S][k][d_eff] */
    const float *sign;                        /* [wht] */
    float *x;                                 /* [blocks][rows][dim] */
    uint32_t *seg, *count;                    /* [blocks][rows] */
    uint16_t *t, *norm;                       /* [blocks][rows] fp16 */
    uint8_t *packed;                          /* [blocks][rows][row_bytes] */
    uint16_t *idx, *val;                      /* [blocks][rows * wht], those of a block together from its start on */
    float *res_norm;                          /* [blocks][rows], or NULL */
    unsigned long long *outliers, *saturated; /* [blocks] */
} kv_cuda_codec;

/* The first `blocks` blocks. */
kv_rc kv_cuda_run_codec_encode(const kv_cuda_on *on, const kv_cuda_codec *c, int64_t blocks, kv_err *err);
kv_rc kv_cuda_run_codec_decode(const kv_cuda_on *on, const kv_cuda_codec *c, int64_t blocks, kv_err *err);

#ifdef __cplusplus
}
#endif
#endif
