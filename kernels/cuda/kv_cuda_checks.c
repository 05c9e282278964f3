/* The operations of the CUDA device that give a result: queue the kernels, copy the result once, wait. */
#include <inttypes.h>
#include <string.h>

#include "kernels/cuda/kv_cuda_check.h"
#include "kernels/cuda/kv_cuda_device.h"
#include "kernels/kv_kern_token.h"

struct kv_diffset {
    kv_index ix;
    unsigned char *bits; /* on the device, one for each position */
};

kv_rc kv_cuda_guards(kv_device *d, const kv_image *im, kv_guards_result *out, kv_err *err)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    kv_cuda_late late = {.kind = KV_CUDA_LATE_GUARDS, .out = out};
    unsigned char *at;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, kv_cuda_result_room(c, late.kind, &at, err));
    KV_TRY(rc, out, kv_cuda_run_guards(&c->on, im->data, im->bytes, (kv_cuda_result *)(void *)at, err));
    late.at = at;
    rc = kv_cuda_result_queued(c, &late, err);
out:
    return rc;
}

kv_rc kv_cuda_probe(kv_device *d, const kv_index *ix, kv_probe_result *out, kv_err *err)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    kv_cuda_late late = {.kind = KV_CUDA_LATE_PROBE, .native = ix->native, .out = out};
    unsigned char *at;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, kv_cuda_result_room(c, late.kind, &at, err));
    KV_TRY(rc, out, kv_cuda_run_probe(&c->on, ix, (kv_cuda_result *)(void *)at, err));
    late.at = at;
    rc = kv_cuda_result_queued(c, &late, err);
out:
    return rc;
}

static kv_rc same_size(const kv_index *ix, const kv_image *got, const kv_image *want, kv_err *err)
{
    const int64_t bytes = kv_index_bytes(ix);
    if (got->bytes == bytes && want->bytes == bytes) return KV_OK;
    return KV_FAIL(err, KV_EBUG, "images of %" PRId64 " and %" PRId64 " bytes compared as %" PRId64, got->bytes,
                   want->bytes, bytes);
}

kv_rc kv_cuda_compare(kv_device *d, const kv_index *ix, const kv_image *got, const kv_image *want,
                      kv_compare_result *out, kv_err *err)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    kv_cuda_late late = {.kind = KV_CUDA_LATE_COMPARE, .native = ix->native, .out = out};
    unsigned char *at;
    kv_rc rc;
    KV_TRY(rc, out, same_size(ix, got, want, err));
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, kv_cuda_result_room(c, late.kind, &at, err));
    KV_TRY(rc, out,
           kv_cuda_run_compare(&c->on, ix->native, kv_elem_bytes((kv_elem)ix->element), got->data, want->data,
                               (kv_cuda_result *)(void *)at, err));
    late.at = at;
    rc = kv_cuda_result_queued(c, &late, err);
out:
    return rc;
}

/* ---- round-trip differences ------------------------------------------------------------- */

kv_rc kv_cuda_diffset_new(kv_device *d, const kv_index *ix, kv_diffset **out, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    const int64_t bytes = ix->native / 8 + 1;
    kv_diffset *s = NULL;
    void *bits = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    s = kv_alloc(1, sizeof *s);
    if (s == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the record of a set");
    KV_TRY(rc, out_free, kv_cuda_take(c, bytes, "a set of positions", &bits, err));
    KV_CUDA_TRY(rc, err, out_take, cudaMemsetAsync(bits, 0, (size_t)bytes, c->on.stream));
    s->ix = *ix;
    s->bits = bits;
    *out = s;
    goto out;
out_take:
    kv_cuda_give(c, bits, bytes);
out_free:
    kv_free(s);
out:
    return rc;
}

void kv_cuda_diffset_free(kv_device *d, kv_diffset *s)
{
    if (s == NULL) return;
    kv_cuda_give((kv_cuda *)(void *)d, s->bits, s->ix.native / 8 + 1);
    kv_free(s);
}

kv_rc kv_cuda_diffset_add(kv_device *d, kv_diffset *s, const kv_image *got, const kv_image *want, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    KV_TRY(rc, out, same_size(&s->ix, got, want, err));
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    rc = kv_cuda_run_diff_add(&c->on, s->ix.native, kv_elem_bytes((kv_elem)s->ix.element), got->data, want->data,
                              s->bits, err);
out:
    return rc;
}

kv_rc kv_cuda_diffset_take(kv_device *d, kv_diffset *s, kv_diffset_result *out, kv_err *err)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    kv_cuda_late late = {.kind = KV_CUDA_LATE_DIFFSET, .native = s->ix.native, .out = out};
    unsigned char *at;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, kv_cuda_result_room(c, late.kind, &at, err));
    KV_TRY(rc, out, kv_cuda_run_diff_take(&c->on, &s->ix, s->bits, (kv_cuda_result *)(void *)at, err));
    late.at = at;
    rc = kv_cuda_result_queued(c, &late, err);
out:
    return rc;
}

kv_rc kv_cuda_drift(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, const kv_image *dst,
                    kv_drift_result *out, kv_err *err)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    kv_cuda_late late = {.kind = KV_CUDA_LATE_DRIFT, .out = out};
    unsigned char *at;
    kv_rc rc;
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, kv_cuda_result_room(c, late.kind, &at, err));
    KV_TRY(rc, out, kv_cuda_run_drift(&c->on, s, src->data, t, dst->data, (kv_cuda_result *)(void *)at, err));
    late.at = at;
    rc = kv_cuda_result_queued(c, &late, err);
out:
    return rc;
}

/* ---- the token leg ---------------------------------------------------------------------- */

kv_rc kv_cuda_gather(kv_device *d, const kv_index *ix, const kv_image *im, const kv_payload *p, int64_t layer,
                     const kv_window *w, kv_image *dense, kv_err *err)
{
    const kv_cuda *c = (kv_cuda *)(void *)d;
    const kv_elem e = (kv_elem)(im != NULL ? ix->element : p->element);
    kv_rc rc;
    KV_TRY(rc, out, kv_image_holds_layer(ix, w, e, dense, err));
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    rc = kv_cuda_run_gather(&c->on, ix, im != NULL ? im->data : NULL, p, im != NULL ? layer : 0, w, dense->data, err);
out:
    return rc;
}

/* As kv_cpu_decode_dense. */
kv_rc kv_cuda_decode_dense(kv_device *d, const kv_index *ix, int32_t element, const kv_image *dense,
                           uint64_t weight_seed, int64_t model_layer, kv_decode_result *out, kv_err *err)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    kv_cuda_decode x = {.tokens = ix->tokens,
                        .heads = ix->heads,
                        .dim_k = ix->lanes[0],
                        .dim_v = ix->halves == 1 ? ix->lanes[0] : ix->lanes[1],
                        .element = element,
                        .seed = weight_seed,
                        .model_layer = model_layer,
                        .k = dense->data};
    kv_cuda_late late = {.kind = KV_CUDA_LATE_DECODE, .out = out};
    unsigned char *at;
    int64_t floats;
    kv_rc rc;
    /* a latent row is its own value */
    x.v = ix->halves == 1 ? x.k : x.k + ix->tokens * ix->heads * ix->lanes[0] * kv_elem_bytes((kv_elem)element);
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, kv_token_check(model_layer, x.heads, x.dim_k, x.dim_v, err));
    if (!kv_cuda_token_floats(&x, &floats))
        return KV_FAIL(err, KV_ENOMEM, "token leg: no memory for %" PRId64 " tokens", x.tokens);
    KV_TRY(rc, out, kv_cuda_scratch(c, floats, &x.work, err));
    KV_TRY(rc, out, kv_cuda_result_room(c, late.kind, &at, err));
    x.out = (kv_decode_result *)(void *)at;
    KV_TRY(rc, out, kv_cuda_run_decode(&c->on, &x, err));
    late.at = at;
    rc = kv_cuda_result_queued(c, &late, err);
out:
    kv_cuda_scratch_done(c);
    return rc;
}
