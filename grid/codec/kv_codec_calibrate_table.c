/* Level tables: scaled residuals of even blocks are fitted, those of odd blocks tell what it gains. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/kv_file.h"
#include "base/kv_text.h"
#include "grid/cli/kv_ask.h"
#include "grid/codec/kv_codec_calibrate.h"
#include "kernels/codec/kv_codec_table.h"
#include "kernels/kv_kern_num.h"

#define SAMPLES_MAX ((int64_t)1 << 26) /* of each kind: 256 MiB */

enum { FIT, EVALUATE, KINDS };

typedef struct {
    kv_codec_setup setup;
    int32_t half;
    kv_codec_half_config h;
    kv_codec_array in;
    kv_codec_progress progress;
    kv_codec_skeleton skeleton;
    kv_codec_codes codes;
    kv_codec_work *work;
    uint8_t *raw;                        /* a block's tokens, all heads */
    float *all, *x, *white, *c, *scaled; /* the same; rows of one head; whitened; projected; scaled */
    float *samples[KINDS];
    int64_t n[KINDS], cap[KINDS], blocks[KINDS];
} job;

static kv_rc take_memory(job *j, kv_err *err)
{
    const kv_codec_params *p = &j->h.slot.params;
    const int64_t n = j->h.slot.n, heads = j->setup.facts.geometry.kv_heads;
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_skeleton_new(p, &j->skeleton, err));
    KV_TRY(rc, out, kv_codec_codes_new(p, n, true, &j->codes, err));
    KV_TRY(rc, out, kv_codec_work_new(p, &j->skeleton, &j->work, err));
    const size_t rows = (size_t)n, dim = (size_t)p->dim * sizeof(float);
    j->raw = kv_alloc(rows, (size_t)kv_codec_token_bytes(&j->setup.facts, j->half));
    j->all = kv_alloc(rows * (size_t)heads, dim);
    j->x = kv_alloc(rows, dim);
    j->white = kv_alloc(rows, dim);
    j->c = kv_alloc(rows, dim);
    j->scaled = kv_alloc(rows, (size_t)kv_codec_wht_len(p->d_eff) * sizeof(float));
    if (j->raw == NULL || j->all == NULL || j->x == NULL || j->white == NULL || j->c == NULL || j->scaled == NULL)
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a block of %" PRId64 " rows", n);
out:
    return rc;
}

static kv_rc prepare(const kv_opts *o, job *j, kv_err *err)
{
    const kv_codec_facts *f = &j->setup.facts;
    const char *const inputs[] = {o->positional[1], o->whiten};
    kv_rc rc;
    if (o->stream == NULL)
        return KV_FAIL(err, KV_EINVAL, "calibrate table needs --stream k or v: a table is for one of them");
    if (o->kv_heads > 0) return KV_FAIL(err, KV_EINVAL, "--kv-heads is for calibrate whiten");
    KV_TRY(rc, out, kv_codec_setup_make(o, &j->setup, err));
    j->half = f->config.has[KV_CODEC_K] ? KV_CODEC_K : KV_CODEC_V;
    j->h = f->config.half[j->half];
    j->h.slot.params.rule = KV_CODEC_RULE_KV1;
    j->h.slot.params.metric = KV_CODEC_MSE;
    j->h.fit.published = false;
    if (j->h.fit.solver == KV_CODEC_SOLVER_LAPACK && !kv_codec_has_lapack())
        return KV_FAIL(err, KV_EUNSUP, "--pca exact: this build has no LAPACKE; use --pca own");
    KV_TRY(rc, out, kv_ask_check_output("OUT", o->positional[2], inputs, 2, err));
    KV_TRY(rc, out, kv_codec_array_open(o->positional[1], kv_codec_array_bytes(f), &j->in, err));
    if (f->geometry.tokens / j->h.slot.n * f->geometry.layers * f->geometry.kv_heads < 2)
        return KV_FAIL(err, KV_EINVAL,
                       "%s holds fewer than two full blocks of %" PRId64
                       " rows: one is fitted, another must tell the gain",
                       o->positional[1], j->h.slot.n);
    KV_TRY(rc, out, kv_file_can_write(o->positional[2], err));
    rc = take_memory(j, err);
out:
    return rc;
}

static kv_rc add_samples(job *j, int kind, kv_err *err)
{
    const int64_t most = j->h.slot.n * kv_codec_wht_len(j->h.slot.params.d_eff);
    if (j->n[kind] + most > SAMPLES_MAX) return KV_OK;
    if (j->n[kind] + most > j->cap[kind]) {
        const int64_t cap = 2 * (j->n[kind] + most);
        float *more = kv_realloc(j->samples[kind], (size_t)cap, sizeof *more);
        if (more == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " samples", cap);
        j->samples[kind] = more;
        j->cap[kind] = cap;
    }
    j->n[kind] += kv_codec_scaled_pick(&j->h.slot.params, &j->codes, j->scaled, j->samples[kind] + j->n[kind]);
    j->blocks[kind]++;
    return KV_OK;
}

/* One block of one head, whose rows stand in j->x. */
static kv_rc sample_block(job *j, int32_t layer, int64_t head, int kind, kv_err *err)
{
    const kv_codec_whiten *w = j->setup.facts.config.whiten;
    kv_codec_params p = j->h.slot.params;
    kv_codec_fit_report report;
    const float *x = j->x;
    if (w != NULL && w->l[layer] != NULL) {
        kv_codec_whiten_rows(w->l[layer] + head * p.dim * p.dim, p.dim, j->x, j->h.slot.n, j->white);
        x = j->white;
    }
    const kv_rc rc = kv_codec_fit(&p, &j->h.fit, x, NULL, j->h.slot.n, &j->skeleton, &report, err);
    if (rc != KV_OK) return rc;
    kv_codec_work_set(j->work, &j->skeleton);
    kv_codec_scaled_rows(kv_codec_best(), j->work, &p, &j->skeleton, x, j->h.slot.n, &j->codes, j->c, j->scaled);
    return add_samples(j, kind, err);
}

/* Block b of all heads of a layer. Blocks and heads alternate between the two kinds. */
static kv_rc sample_heads(job *j, int32_t layer, int64_t b, kv_err *err)
{
    const kv_codec_facts *f = &j->setup.facts;
    const int64_t n = j->h.slot.n, heads = f->geometry.kv_heads, dim = j->h.slot.params.dim;
    const int64_t token = kv_codec_token_bytes(f, j->half);
    kv_rc rc =
        kv_codec_array_read(&j->in, kv_codec_plane_at(f, layer, j->half) + b * n * token, j->raw, n * token, err);
    if (rc != KV_OK) return rc;
    kv_num_to_f32_row(f->geometry.element, j->raw, j->all, (size_t)(n * heads * dim));
    for (int64_t head = 0; rc == KV_OK && head < heads; head++) {
        for (int64_t r = 0; r < n; r++)
            memcpy(j->x + r * dim, j->all + (r * heads + head) * dim, (size_t)dim * sizeof *j->x);
        const int64_t number = (layer * (f->geometry.tokens / n) + b) * heads + head;
        rc = sample_block(j, layer, head, number % 2 == 0 ? FIT : EVALUATE, err);
        if (rc != KV_OK)
            kv_err_prefix(err, "%s: layer %d, head %" PRId64 ", block %" PRId64, j->in.path, layer, head, b);
    }
    kv_codec_progress_step(&j->progress, layer * f->geometry.tokens + b * n);
    return rc;
}

static void tell_error(const job *j, int kind, const char *what, const float *built_in, const float *fitted,
                       int32_t bits)
{
    const double a = kv_codec_table_error(j->samples[kind], j->n[kind], built_in, bits);
    const double b = kv_codec_table_error(j->samples[kind], j->n[kind], fitted, bits);
    printf("%s: %" PRId64 " blocks, %" PRId64
           " values, mean squared error %.6f with the built-in table, %.6f with this one",
           what, j->blocks[kind], j->n[kind], a, b);
    if (a > 0 && b > 0) printf(": %+.2f %%, gain %.3f dB", (b / a - 1) * 100, 10 * log10(a / b));
    printf("\n");
}

static kv_rc finish(const kv_opts *o, job *j, kv_err *err)
{
    const int32_t bits = j->h.slot.params.bits;
    const float *built_in = kv_codec_levels(bits);
    float levels[KV_CODEC_LEVELS_MAX];
    int32_t rounds = 0;
    kv_rc rc = kv_codec_table_fit(j->samples[FIT], j->n[FIT], bits, built_in, levels, &rounds, err);
    if (rc != KV_OK) {
        kv_err_prefix(err, "%s", j->in.path);
        return rc;
    }
    rc = kv_file_write(o->positional[2], levels, ((size_t)1 << bits) * sizeof *levels, 0644, KV_FILE_REPLACE, err);
    if (rc != KV_OK) return rc;
    char name[KV_TEXT_SHOWN];
    printf("%s: %d levels after %d rounds:", kv_text_show(o->positional[2], name), 1 << bits, rounds);
    for (int i = 0; i < 1 << bits; i++) printf(" %.6f", (double)levels[i]);
    printf("\n");
    tell_error(j, FIT, "fitted on", built_in, levels, bits);
    tell_error(j, EVALUATE, "kept apart", built_in, levels, bits);
    return KV_OK;
}

kv_rc kv_codec_calibrate_table(const kv_opts *o, kv_err *err)
{
    job j = {.half = 0};
    kv_rc rc = prepare(o, &j, err);
    if (rc == KV_OK) {
        const kv_geometry *g = &j.setup.facts.geometry;
        kv_codec_progress_start(&j.progress, o, "calibrate table", g->layers * g->tokens);
        for (int32_t layer = 0; rc == KV_OK && layer < g->layers; layer++)
            for (int64_t b = 0; rc == KV_OK && !j.setup.facts.skip[layer] && b < g->tokens / j.h.slot.n; b++)
                rc = sample_heads(&j, layer, b, err);
        kv_codec_progress_end(&j.progress);
    }
    if (rc == KV_OK) rc = finish(o, &j, err);
    kv_codec_array_close(&j.in);
    kv_codec_skeleton_free(&j.skeleton);
    kv_codec_codes_free(&j.codes);
    kv_codec_work_free(j.work);
    float *const all[] = {j.all, j.x, j.white, j.c, j.scaled, j.samples[FIT], j.samples[EVALUATE]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) kv_free(all[i]);
    kv_free(j.raw);
    kv_codec_setup_free(&j.setup);
    return rc;
}
