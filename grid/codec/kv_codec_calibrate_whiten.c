/* Whitening factors: for each layer and kv head the mean of q q' over tokens and over the query heads of its group. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/kv_file.h"
#include "base/kv_text.h"
#include "grid/cli/kv_ask.h"
#include "grid/codec/kv_codec_calibrate.h"
#include "grid/codec/kv_whiten_file.h"
#include "kernels/kv_kern_num.h"

typedef struct {
    kv_codec_facts facts; /* of the queries: one stream, their heads */
    kv_codec_array in;
    kv_codec_whiten factors;
    kv_codec_progress progress;
    int64_t kv_heads;
    uint8_t *raw; /* [CHUNK] tokens */
    float *q;     /* the same as float32 */
    double *sums; /* [kv_heads][D][D] */
} job;

static kv_rc prepare(const kv_opts *o, job *j, kv_err *err)
{
    kv_codec_facts *f = &j->facts;
    const char *const inputs[] = {o->positional[1]};
    kv_rc rc;
    if (o->stream != NULL || o->recipe != NULL || o->bits > 0 || o->outlier != NULL || o->pca != NULL ||
        o->whiten != NULL)
        return KV_FAIL(err, KV_EINVAL, "calibrate whiten takes --geometry, --kv-heads and --progress only");
    if (o->n_geometry != 1)
        return KV_FAIL(err, KV_EINVAL,
                       "name one --geometry of the queries, as in --geometry L=28,T=4096,H=16,D=128,e=f32");
    KV_TRY(rc, out, kv_geometry_parse(o->geometry[0], &f->geometry, err));
    const kv_geometry *g = &f->geometry;
    j->kv_heads = o->kv_heads > 0 ? o->kv_heads : g->kv_heads;
    if (g->kv_heads % j->kv_heads != 0)
        return KV_FAIL(err, KV_EINVAL, "--kv-heads %" PRId64 " does not divide the %" PRId64 " query heads",
                       j->kv_heads, g->kv_heads);
    if (g->element == KV_ELEM_FP8_E4M3 || g->layers > KV_CODEC_LAYERS_MAX || g->head_dim > KV_CODEC_DIM_MAX ||
        g->tokens < 1)
        return KV_FAIL(err, KV_EINVAL,
                       "--geometry: queries are f16, bf16 or f32, at least one token, L up to %d, D up to %d",
                       KV_CODEC_LAYERS_MAX, KV_CODEC_DIM_MAX);
    f->config.has[KV_CODEC_K] = true;
    KV_TRY(rc, out, kv_codec_array_check(f, err));
    KV_TRY(rc, out, kv_ask_check_output("OUT", o->positional[2], inputs, 1, err));
    KV_TRY(rc, out, kv_codec_array_open(o->positional[1], kv_codec_array_bytes(f), &j->in, err));
    KV_TRY(rc, out, kv_file_can_write(o->positional[2], err));
    KV_TRY(rc, out,
           kv_codec_whiten_new((int32_t)g->layers, (int32_t)j->kv_heads, (int32_t)g->head_dim, &j->factors, err));
    j->raw = kv_alloc(KV_CODEC_CHUNK, (size_t)kv_codec_token_bytes(f, KV_CODEC_K));
    j->q = kv_alloc(KV_CODEC_CHUNK * (size_t)g->kv_heads, (size_t)g->head_dim * sizeof *j->q);
    j->sums = kv_alloc((size_t)(j->kv_heads * g->head_dim), (size_t)g->head_dim * sizeof *j->sums);
    if (j->raw == NULL || j->q == NULL || j->sums == NULL)
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for %d tokens of queries", KV_CODEC_CHUNK);
out:
    return rc;
}

static kv_rc sum_layer(job *j, int32_t layer, kv_err *err)
{
    const kv_geometry *g = &j->facts.geometry;
    const int64_t token = kv_codec_token_bytes(&j->facts, KV_CODEC_K), group = g->kv_heads / j->kv_heads;
    const int32_t dim = (int32_t)g->head_dim;
    memset(j->sums, 0, (size_t)(j->kv_heads * dim * dim) * sizeof *j->sums);
    for (int64_t t = 0, n; t < g->tokens; t += n) {
        n = g->tokens - t < KV_CODEC_CHUNK ? g->tokens - t : KV_CODEC_CHUNK;
        const kv_rc rc = kv_codec_array_read(&j->in, kv_codec_plane_at(&j->facts, layer, KV_CODEC_K) + t * token,
                                             j->raw, n * token, err);
        if (rc != KV_OK) return rc;
        kv_num_to_f32_row(g->element, j->raw, j->q, (size_t)(n * g->kv_heads * dim));
        for (int64_t r = 0; r < n * g->kv_heads; r++)
            kv_codec_whiten_sum(j->q + r * dim, 1, dim, j->sums + r % g->kv_heads / group * dim * dim);
        kv_codec_progress_step(&j->progress, layer * g->tokens + t);
    }
    return KV_OK;
}

/* Factors of a layer's heads; tells the condition of each. */
static kv_rc fit_layer(job *j, int32_t layer, double *worst, kv_err *err)
{
    const kv_geometry *g = &j->facts.geometry;
    const int32_t dim = (int32_t)g->head_dim;
    const int64_t entries = (int64_t)dim * dim, count = g->tokens * (g->kv_heads / j->kv_heads);
    kv_rc rc = kv_codec_whiten_add(&j->factors, layer, err);
    if (rc == KV_OK) printf("layer %d: condition", layer);
    for (int64_t h = 0; rc == KV_OK && h < j->kv_heads; h++) {
        double condition = 0;
        rc = kv_codec_whiten_fit(j->sums + h * entries, count, dim, KV_CODEC_WHITEN_RIDGE,
                                 j->factors.l[layer] + h * entries, j->factors.inverse[layer] + h * entries, &condition,
                                 err);
        if (rc != KV_OK)
            kv_err_prefix(err, "%s: layer %d, kv head %" PRId64, j->in.path, layer, h);
        else
            printf(" %.4g", condition);
        if (condition > *worst) *worst = condition;
    }
    printf("\n");
    return rc;
}

kv_rc kv_codec_calibrate_whiten(const kv_opts *o, kv_err *err)
{
    job j = {.kv_heads = 0};
    double worst = 0;
    char name[KV_TEXT_SHOWN];
    kv_rc rc = prepare(o, &j, err);
    const int32_t layers = rc == KV_OK ? j.factors.layers : 0;
    if (rc == KV_OK)
        kv_codec_progress_start(&j.progress, o, "calibrate whiten", j.facts.geometry.layers * j.facts.geometry.tokens);
    for (int32_t layer = 0; rc == KV_OK && layer < layers; layer++) {
        rc = sum_layer(&j, layer, err);
        if (rc == KV_OK) rc = fit_layer(&j, layer, &worst, err);
    }
    kv_codec_progress_end(&j.progress);
    if (rc == KV_OK) rc = kv_whiten_file_write(o->positional[2], &j.factors, err);
    if (rc == KV_OK)
        printf("%s: factors of %d layers x %" PRId64
               " kv heads, largest condition %.4g (of the covariance with ridge %g)\n",
               kv_text_show(o->positional[2], name), layers, j.kv_heads, worst, KV_CODEC_WHITEN_RIDGE);
    kv_codec_array_close(&j.in);
    kv_codec_whiten_free(&j.factors);
    kv_free(j.raw);
    kv_free(j.q);
    kv_free(j.sums);
    return rc;
}
