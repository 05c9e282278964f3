/* kvgrid codec decode IN OUT: a stored cache back into a raw array. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/kv_out.h"
#include "base/kv_text.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/codec/kv_cmd_codec.h"
#include "grid/codec/kv_codec_report.h"
#include "grid/codec/kv_whiten_file.h"

static const kv_command command = {
    "codec decode",
    "IN OUT",
    "decode a stored cache into a raw array of the element type and order that it was stored from",
    "--whiten names the factors that the cache was stored with, where it was; a different file is refused.",
    "whiten progress",
    2,
    2,
    NULL};

/* The factors that the file was stored with. */
static kv_rc need_factors(const kv_codec_facts *f, const char *path, kv_codec_whiten *out, kv_err *err)
{
    const kv_geometry *g = &f->geometry;
    char digest[KV_HASH_HEX];
    if (f->whiten[0] == '\0' && path != NULL)
        return KV_FAIL(err, KV_EINVAL, "--whiten %s: the cache was stored without factors; leave the option out", path);
    if (f->whiten[0] == '\0') return KV_OK;
    if (path == NULL)
        return KV_FAIL(err, KV_EINVAL,
                       "the cache was stored with whitening factors (digest %.16s...); name them with --whiten",
                       f->whiten);
    const kv_rc rc =
        kv_whiten_file_read(path, (int32_t)g->layers, (int32_t)g->kv_heads, (int32_t)g->head_dim, out, digest, err);
    if (rc == KV_OK && strcmp(digest, f->whiten) != 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: digest %.16s..., the cache was stored with factors of digest %.16s...",
                       path, digest, f->whiten);
    return rc;
}

static kv_rc decode_plane(kv_codec_stream *s, const kv_codec_facts *f, int32_t layer, int32_t half, float *x, void *raw,
                          kv_codec_unfit *u, kv_out *out, kv_err *err)
{
    const int64_t token = kv_codec_token_bytes(f, half), floats = token / kv_elem_bytes(f->geometry.element);
    kv_rc rc = KV_OK;
    for (int64_t t = 0, n; rc == KV_OK && t < f->geometry.tokens; t += n) {
        n = f->geometry.tokens - t < KV_CODEC_CHUNK ? f->geometry.tokens - t : KV_CODEC_CHUNK;
        rc = kv_codec_stream_get(s, 0, layer, half, t, n, x, err);
        if (rc != KV_OK) break;
        kv_codec_array_values(f->geometry.element, x, n * floats, raw, u);
        kv_out_bytes(out, raw, (size_t)(n * token));
    }
    return rc;
}

static kv_rc decode_all(kv_codec_reader *r, kv_codec_stream *s, const kv_opts *o, kv_codec_unfit *u, kv_out *out,
                        kv_err *err)
{
    const kv_codec_facts *f = kv_codec_reader_facts(r);
    const int64_t widest =
        f->geometry.head_dim > f->geometry.head_dim_v ? f->geometry.head_dim : f->geometry.head_dim_v;
    const size_t row = (size_t)(f->geometry.kv_heads * widest) * sizeof(float);
    float *x = kv_alloc(KV_CODEC_CHUNK, row);
    void *raw = kv_alloc(KV_CODEC_CHUNK, row);
    kv_codec_progress p;
    int64_t done = 0;
    kv_rc rc = x != NULL && raw != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for %d tokens", KV_CODEC_CHUNK);
    kv_codec_progress_start(&p, o, "decode",
                            f->geometry.tokens * f->geometry.layers * (f->config.has[0] + f->config.has[1]));
    for (int32_t layer = 0; rc == KV_OK && layer < f->config.layers; layer++)
        for (int32_t half = 0; rc == KV_OK && half < KV_CODEC_HALVES; half++) {
            if (!f->config.has[half]) continue;
            rc = kv_codec_reader_plane(r, s, 0, layer, half, err);
            if (rc == KV_OK) {
                rc = decode_plane(s, f, layer, half, x, raw, u, out, err);
                if (rc != KV_OK) kv_err_prefix(err, "%s", o->positional[0]);
            }
            kv_codec_stream_drop(s, 0);
            kv_codec_progress_step(&p, done += f->geometry.tokens);
        }
    kv_codec_progress_end(&p);
    kv_free(x);
    kv_free(raw);
    return rc;
}

static kv_rc decode(const kv_opts *o, kv_err *err)
{
    const char *const inputs[] = {o->positional[0], o->whiten};
    kv_codec_reader *r = NULL;
    kv_codec_whiten factors = {0};
    kv_codec_stream *s = NULL;
    kv_out *out = NULL;
    kv_codec_unfit u = {0};
    kv_rc rc;
    KV_TRY(rc, out, kv_ask_check_output("OUT", o->positional[1], inputs, 2, err));
    KV_TRY(rc, out, kv_codec_reader_open(o->positional[0], &r, err));
    kv_codec_stream_config c = kv_codec_reader_facts(r)->config;
    KV_TRY(rc, out, need_factors(kv_codec_reader_facts(r), o->whiten, &factors, err));
    if (factors.l != NULL) c.whiten = &factors;
    KV_TRY(rc, out, kv_codec_stream_new(&c, &s, err));
    KV_TRY(rc, out, kv_out_open(o->positional[1], &out, err));
    rc = decode_all(r, s, o, &u, out, err);
    rc = kv_out_close(out, rc, err);
    if (rc == KV_OK) {
        char geometry[KV_GEOMETRY_TEXT], name[KV_TEXT_SHOWN];
        kv_geometry_print(&kv_codec_reader_facts(r)->geometry, geometry);
        printf("%s: %" PRId64 " bytes, %s\n", kv_text_show(o->positional[1], name),
               kv_codec_array_bytes(kv_codec_reader_facts(r)), geometry);
        if (u.held > 0)
            fprintf(stderr, "kvgrid: %" PRId64 " values beyond the range of %s are written as its largest\n", u.held,
                    kv_elem_name(kv_codec_reader_facts(r)->geometry.element));
        if (u.not_finite > 0) fprintf(stderr, "kvgrid: %" PRId64 " decoded values are not finite\n", u.not_finite);
    }
out:
    kv_codec_stream_free(s);
    kv_codec_whiten_free(&factors);
    kv_codec_reader_close(r);
    return rc;
}

int kv_codec_cmd_decode(int argc, char **argv)
{
    kv_err err = {0};
    kv_opts o;
    bool help = false;
    kv_rc rc = kv_codec_parse(&command, argc, argv, &o, &help, &err);
    if (rc == KV_OK && !help) rc = decode(&o, &err);
    return rc == KV_OK ? kv_ask_finish(KV_EXIT_OK) : kv_ask_fail(&err);
}
