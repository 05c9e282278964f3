/* kvgrid codec store IN OUT: a raw array of K and V into a stored cache. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/kv_file.h"
#include "base/kv_text.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/codec/kv_cmd_codec.h"
#include "grid/codec/kv_codec_report.h"
#include "kernels/kv_kern_num.h"

static const kv_command command = {
    "codec store",
    "IN OUT",
    "compress a raw K and V array, block by block, into a stored cache; lossy",
    "IN is little-endian [L][K, V][T][H][D] (with --stream [L][T][H][D]) of f16, bf16 or f32. Full blocks of 512 rows "
    "are\n"
    "compressed; the last tokens and skipped layers stay as they are. OUT appears whole or not at all.",
    "geometry recipe stream metric bits outlier outlier-budget pca share-basis skip-layers table whiten verify "
    "progress "
    "format",
    2,
    2,
    NULL};

/* What one run works with. */
typedef struct {
    const kv_opts *o;
    kv_codec_setup setup;
    kv_codec_stream *stream;
    kv_codec_array in;
    kv_codec_writer *out;
    kv_codec_progress progress;
    uint8_t *raw;       /* [CHUNK] tokens as they come */
    float *want, *back; /* the same as float32, and what comes back */
    int64_t done;       /* tokens of planes */
    struct {
        int64_t count, token, head, lane; /* how many; where the first is */
        int32_t layer, half;
    } not_finite; /* values that are stored as they came */
    kv_codec_error error[KV_CODEC_HALVES];
} job;

/* Looks at n tokens from `token` on. Blocks refuse such values by themselves: what is left stands in tails and skipped layers. */
static void look_for_not_finite(job *j, int32_t layer, int32_t half, int64_t token, int64_t n)
{
    const kv_codec_facts *f = &j->setup.facts;
    const int64_t dim = half == KV_CODEC_K ? f->geometry.head_dim : f->geometry.head_dim_v;
    const int64_t row = f->geometry.kv_heads * dim;
    kv_num_to_f32_row(f->geometry.element, j->raw, j->want, (size_t)(n * row));
    for (int64_t i = 0; i < n * row; i++) {
        if (isfinite(j->want[i]) || j->not_finite.count++ > 0) continue;
        j->not_finite.layer = layer;
        j->not_finite.half = half;
        j->not_finite.token = token + i / row;
        j->not_finite.head = i % row / dim;
        j->not_finite.lane = i % dim;
    }
}

static kv_rc put_plane(job *j, int32_t layer, int32_t half, kv_err *err)
{
    const kv_codec_facts *f = &j->setup.facts;
    const int64_t token = kv_codec_token_bytes(f, half), at = kv_codec_plane_at(f, layer, half);
    kv_rc rc = KV_OK;
    for (int64_t t = 0, n; rc == KV_OK && t < f->geometry.tokens; t += n, j->done += n) {
        n = f->geometry.tokens - t < KV_CODEC_CHUNK ? f->geometry.tokens - t : KV_CODEC_CHUNK;
        KV_TRY(rc, out, kv_codec_array_read(&j->in, at + t * token, j->raw, n * token, err));
        look_for_not_finite(j, layer, half, t, n);
        rc = kv_codec_stream_put(j->stream, 0, layer, half, j->raw, n, err);
        kv_codec_progress_step(&j->progress, j->done);
    }
    if (rc == KV_OK) rc = kv_codec_stream_finish(j->stream, 0, layer, half, err);
    if (rc != KV_OK) kv_err_prefix(err, "%s", j->in.path);
out:
    return rc;
}

/* Decodes what stands in the slots and compares it as decode would write it, rounded to the array's type. */
static kv_rc verify_plane(job *j, int32_t layer, int32_t half, kv_err *err)
{
    const kv_codec_facts *f = &j->setup.facts;
    const int64_t token = kv_codec_token_bytes(f, half), at = kv_codec_plane_at(f, layer, half);
    const int64_t floats = token / kv_elem_bytes(f->geometry.element);
    kv_codec_unfit unfit = {0};
    kv_rc rc = KV_OK;
    for (int64_t t = 0, n; rc == KV_OK && t < f->geometry.tokens; t += n) {
        n = f->geometry.tokens - t < KV_CODEC_CHUNK ? f->geometry.tokens - t : KV_CODEC_CHUNK;
        KV_TRY(rc, out, kv_codec_array_read(&j->in, at + t * token, j->raw, n * token, err));
        KV_TRY(rc, out, kv_codec_stream_get(j->stream, 0, layer, half, t, n, j->back, err));
        kv_num_to_f32_row(f->geometry.element, j->raw, j->want, (size_t)(n * floats));
        kv_codec_array_values(f->geometry.element, j->back, n * floats, j->raw, &unfit);
        kv_num_to_f32_row(f->geometry.element, j->raw, j->back, (size_t)(n * floats));
        kv_codec_error_add(&j->error[half], j->want, j->back, n * floats);
    }
out:
    return rc;
}

static kv_rc store_planes(job *j, kv_err *err)
{
    const kv_codec_facts *f = &j->setup.facts;
    kv_rc rc = KV_OK;
    for (int32_t layer = 0; rc == KV_OK && layer < f->config.layers; layer++)
        for (int32_t half = 0; rc == KV_OK && half < KV_CODEC_HALVES; half++) {
            if (!f->config.has[half]) continue;
            rc = put_plane(j, layer, half, err);
            if (rc == KV_OK) rc = kv_codec_writer_plane(j->out, j->stream, 0, layer, half, err);
            if (rc == KV_OK && j->o->verify) rc = verify_plane(j, layer, half, err);
            kv_codec_stream_drop(j->stream, 0);
        }
    return rc;
}

/* OUT is none of the files that are read. */
static kv_rc check_output(const kv_opts *o, kv_err *err)
{
    const char *inputs[2 + KV_CODEC_TABLES_MAX] = {o->positional[0], o->whiten};
    char *tables = NULL;
    kv_rc rc = o->table != NULL ? kv_codec_table_files(o->table, &tables, inputs + 2, err) : KV_OK;
    if (rc == KV_OK) rc = kv_ask_check_output("OUT", o->positional[1], inputs, sizeof inputs / sizeof *inputs, err);
    kv_free(tables);
    return rc;
}

static kv_rc prepare(job *j, kv_err *err)
{
    const kv_codec_facts *f = &j->setup.facts;
    const char *in = j->o->positional[0], *out = j->o->positional[1];
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_setup_make(j->o, &j->setup, err));
    KV_TRY(rc, out, check_output(j->o, err));
    KV_TRY(rc, out, kv_codec_array_open(in, kv_codec_array_bytes(f), &j->in, err));
    KV_TRY(rc, out, kv_file_can_write(out, err));
    KV_TRY(rc, out, kv_codec_stream_new(&f->config, &j->stream, err));
    int64_t token = 0;
    for (int h = 0; h < KV_CODEC_HALVES; h++)
        if (f->config.has[h] && kv_codec_token_bytes(f, h) > token) token = kv_codec_token_bytes(f, h);
    const size_t floats = (size_t)(token / kv_elem_bytes(f->geometry.element));
    j->raw = kv_alloc(KV_CODEC_CHUNK, (size_t)token);
    j->want = kv_alloc(KV_CODEC_CHUNK, floats * sizeof *j->want);
    j->back = kv_alloc(j->o->verify ? KV_CODEC_CHUNK : 1, floats * sizeof *j->back);
    if (j->raw == NULL || j->want == NULL || j->back == NULL)
        return KV_FAIL(err, KV_ENOMEM, "no memory for %d tokens", KV_CODEC_CHUNK);
    rc = kv_codec_writer_open(out, f, &j->out, err);
out:
    return rc;
}

static kv_rc tell(const job *j, kv_err *err)
{
    const kv_codec_facts *f = &j->setup.facts;
    kv_codec_report r = {.facts = f, .factors = f->config.whiten, .path = j->o->positional[1]};
    for (int h = 0; h < KV_CODEC_HALVES; h++) {
        r.stats[h] = f->config.has[h] ? kv_codec_stream_stats_view(j->stream, h) : NULL;
        r.error[h] = f->config.has[h] && j->o->verify ? &j->error[h] : NULL;
    }
    return kv_codec_report_print(&r, j->o->json, err);
}

/* They are no error: what is not compressed is stored bit for bit. */
static void warn_of_not_finite(const job *j)
{
    char name[KV_TEXT_SHOWN];
    if (j->not_finite.count == 0) return;
    fprintf(stderr,
            "kvgrid: %s: %" PRId64 " value%s not finite, stored as %s came (in tails or layers left as they are); the "
            "first: layer %" PRId32 ", %s, token %" PRId64 ", head %" PRId64 ", lane %" PRId64 "\n",
            kv_text_show(j->in.path, name), j->not_finite.count, j->not_finite.count == 1 ? " is" : "s are",
            j->not_finite.count == 1 ? "it" : "they", j->not_finite.layer, kv_codec_half_name(j->not_finite.half),
            j->not_finite.token, j->not_finite.head, j->not_finite.lane);
}

int kv_codec_cmd_store(int argc, char **argv)
{
    kv_err err = {0};
    kv_opts o;
    bool help = false;
    job j = {.o = &o};
    kv_rc rc = kv_codec_parse(&command, argc, argv, &o, &help, &err);
    if (rc == KV_OK && help) return kv_ask_finish(KV_EXIT_OK);
    if (rc == KV_OK) rc = prepare(&j, &err);
    if (rc == KV_OK) {
        const kv_codec_facts *f = &j.setup.facts;
        kv_codec_progress_start(&j.progress, &o, "store",
                                f->geometry.tokens * f->geometry.layers * (f->config.has[0] + f->config.has[1]));
        rc = store_planes(&j, &err);
        kv_codec_progress_end(&j.progress);
    }
    rc = kv_codec_writer_close(j.out, rc, &err);
    if (rc == KV_OK) warn_of_not_finite(&j);
    if (rc == KV_OK) rc = tell(&j, &err);
    kv_codec_array_close(&j.in);
    kv_codec_stream_free(j.stream);
    kv_codec_setup_free(&j.setup);
    kv_free(j.raw);
    kv_free(j.want);
    kv_free(j.back);
    return rc == KV_OK ? kv_ask_finish(KV_EXIT_OK) : kv_ask_fail(&err);
}
