/* kvgrid codec inspect FILE: what a stored cache, or one slot, holds. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/kv_file.h"
#include "base/kv_text.h"
#include "certs/kv_json.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/codec/kv_cmd_codec.h"
#include "grid/codec/kv_codec_report.h"
#include "kernels/kv_kern_num.h"

static const kv_command command = {
    "codec inspect",
    "FILE",
    "what a stored cache says of itself: recipe, sizes, ratio; every slot of it is checked",
    "FILE may also be one slot of version kv1, which describes itself; --table names its levels where they are not "
    "the\n"
    "built-in ones.",
    "table format",
    1,
    1,
    NULL};

/* What the slots of one half hold. */
typedef struct {
    kv_codec_skeleton s;
    kv_codec_codes codes;
    int64_t slots, outliers, not_finite; /* t and norm fields that are NaN or Inf */
    double norm, t;                      /* largest */
} tally;

static void count_fields(tally *y, const uint16_t *v, int64_t n, double *most)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = fabs((double)kv_num_float(kv_num_f32_of_f16(v[i])));
        if (!isfinite(x))
            y->not_finite++;
        else if (x > *most)
            *most = x;
    }
}

static kv_rc count_slot(tally *y, const kv_codec_slot_config *c, const uint8_t *slot, int64_t bytes, kv_err *err)
{
    const kv_rc rc = kv_codec_slot_unpack(c, slot, bytes, &y->s, &y->codes, err);
    if (rc != KV_OK) return rc;
    y->slots++;
    y->outliers += y->codes.outliers;
    count_fields(y, y->codes.t, c->n, &y->t);
    count_fields(y, y->codes.norm, c->n, &y->norm);
    return KV_OK;
}

/* All pages and slots of one lane. */
static kv_rc count_lane(tally *y, const kv_codec_half_config *h, const kv_codec_lane_view *v, kv_err *err)
{
    kv_codec_slot_layout l;
    const uint8_t *at = v->sealed;
    const int64_t page = kv_codec_page_bytes(&h->slot);
    kv_rc rc = kv_codec_slot_sizes(&h->slot, &l, err);
    for (int64_t b = 0; rc == KV_OK && b < v->blocks; b++, at += l.total) {
        if (h->slot.shared && (b == 0 || (h->group != KV_CODEC_GROUP_ALL && b % h->group == 0))) {
            rc = kv_codec_page_unpack(&h->slot, at, page, &y->s, err);
            at += page;
        }
        if (rc == KV_OK) rc = count_slot(y, &h->slot, at, l.total, err);
        if (rc != KV_OK) kv_err_prefix(err, "block %" PRId64, b);
    }
    return rc;
}

static kv_rc count_half(kv_codec_reader *r, kv_codec_stream *s, int32_t half, tally *y, kv_err *err)
{
    const kv_codec_facts *f = kv_codec_reader_facts(r);
    const kv_codec_half_config *h = &f->config.half[half];
    kv_codec_params room = h->slot.params;
    kv_codec_lane_view v;
    kv_rc rc;
    room.outliers = room.outliers || h->slot.budget_ppm > 0;
    KV_TRY(rc, out, kv_codec_skeleton_new(&room, &y->s, err));
    KV_TRY(rc, out, kv_codec_codes_new(&room, h->slot.n, false, &y->codes, err));
    for (int32_t layer = 0; rc == KV_OK && layer < f->config.layers; layer++) {
        rc = kv_codec_reader_plane(r, s, 0, layer, half, err);
        for (int64_t i = 0; rc == KV_OK && i < kv_codec_lanes(h, f->config.heads); i++) {
            rc = kv_codec_stream_lane(s, 0, layer, half, i, &v, err);
            if (rc == KV_OK) rc = count_lane(y, h, &v, err);
            if (rc != KV_OK) kv_err_prefix(err, "layer %d, %s, lane %" PRId64, layer, kv_codec_half_name(half), i);
        }
        kv_codec_stream_drop(s, 0);
    }
out:
    kv_codec_skeleton_free(&y->s);
    kv_codec_codes_free(&y->codes);
    return rc;
}

static kv_rc inspect_cache(const kv_opts *o, kv_err *err)
{
    kv_codec_reader *r = NULL;
    kv_codec_stream *s = NULL;
    tally y[KV_CODEC_HALVES] = {{.slots = 0}};
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_reader_open(o->positional[0], &r, err));
    const kv_codec_facts *f = kv_codec_reader_facts(r);
    KV_TRY(rc, out, kv_codec_stream_new(&f->config, &s, err));
    for (int h = 0; rc == KV_OK && h < KV_CODEC_HALVES; h++) {
        if (f->config.has[h]) rc = count_half(r, s, h, &y[h], err);
        if (rc != KV_OK) kv_err_prefix(err, "%s", o->positional[0]);
    }
    const kv_codec_report report = {.facts = f, .path = o->positional[0]};
    if (rc == KV_OK) rc = kv_codec_report_print(&report, o->json, err);
    for (int h = 0; rc == KV_OK && !o->json && h < KV_CODEC_HALVES; h++)
        if (y[h].slots > 0)
            printf("%s slots: all %" PRId64 " are good; %" PRId64 " outliers, largest |t| %g, largest norm %g, %" PRId64
                   " fields not finite\n",
                   kv_codec_half_name(h), y[h].slots, y[h].outliers, y[h].t, y[h].norm, y[h].not_finite);
out:
    kv_codec_stream_free(s);
    kv_codec_reader_close(r);
    return rc;
}

static kv_rc print_slot(const kv_opts *o, const kv_codec_slot_config *c, const char *magic, kv_err *err)
{
    const kv_codec_params *p = &c->params;
    const char *recipe = kv_codec_recipe_name(c->recipe);
    char name[KV_TEXT_SHOWN];
    if (!o->json) {
        printf("%s: %s of recipe %s: %" PRId64
               " rows of %d, %d directions, %d centres, %d bits, %s, rule %s, seed %08" PRIx32
               ", outlier budget %d ppm, table %08" PRIx32 "%s\n",
               kv_text_show(o->positional[0], name), magic, recipe != NULL ? recipe : "(unknown)", c->n, p->dim,
               p->d_eff, p->k, p->bits, kv_codec_metric_name(p->metric),
               p->rule == KV_CODEC_RULE_KV1 ? "kv1" : "published", p->seed, c->budget_ppm, c->table_tag,
               c->shared ? ", basis shared" : "");
        return KV_OK;
    }
    json_t *v = json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:s,s:I,s:I,s:b}", "kind", magic, "recipe",
                          recipe != NULL ? recipe : "unknown", "rows", (json_int_t)c->n, "head_dim", (json_int_t)p->dim,
                          "d_eff", (json_int_t)p->d_eff, "centres", (json_int_t)p->k, "bits", (json_int_t)p->bits,
                          "metric", kv_codec_metric_name(p->metric), "seed", (json_int_t)p->seed, "budget_ppm",
                          (json_int_t)c->budget_ppm, "shared", (int)c->shared);
    const kv_rc rc = kv_ask_print_json(v, err);
    json_decref(v);
    return rc;
}

static kv_rc inspect_slot(const kv_opts *o, const kv_buf *file, kv_err *err)
{
    float levels[KV_CODEC_LEVELS_MAX];
    int32_t bits = 0;
    kv_codec_slot_config c;
    tally y = {.slots = 0};
    const bool page = memcmp(file->data, "KKB1", 4) == 0;
    kv_rc rc = o->table != NULL ? kv_codec_read_levels(o->table, levels, &bits, err) : KV_OK;
    if (rc == KV_OK && bits > 0 && file->len > 12 && file->data[12] != bits)
        rc = KV_FAIL(err, KV_EINVAL, "--table %s holds %d levels, the slot takes %d bits", o->table, 1 << bits,
                     file->data[12]);
    if (rc == KV_OK) rc = kv_codec_slot_peek(file->data, (int64_t)file->len, bits > 0 ? levels : NULL, &c, err);
    if (rc == KV_OK) rc = kv_codec_skeleton_new(&c.params, &y.s, err);
    if (rc == KV_OK) rc = kv_codec_codes_new(&c.params, c.n, false, &y.codes, err);
    if (rc == KV_OK && !page) rc = count_slot(&y, &c, (const uint8_t *)file->data, (int64_t)file->len, err);
    if (rc != KV_OK) kv_err_prefix(err, "%s", o->positional[0]);
    if (rc == KV_OK) rc = print_slot(o, &c, page ? "basis page" : "slot", err);
    kv_codec_skeleton_free(&y.s);
    kv_codec_codes_free(&y.codes);
    return rc;
}

#define SLOT_BYTES_MAX ((size_t)1 << 30)

/* Whether the file begins as a slot or a page does. */
static kv_rc is_slot(const char *path, bool *out, kv_err *err)
{
    char magic[4] = {0};
    FILE *f = NULL;
    const kv_rc rc = kv_file_open_regular(path, &f, err);
    if (rc != KV_OK) return rc;
    const size_t n = fread(magic, 1, sizeof magic, f);
    fclose(f);
    *out = n == sizeof magic && (memcmp(magic, "KK13", 4) == 0 || memcmp(magic, "KKB1", 4) == 0);
    return KV_OK;
}

static kv_rc inspect(const kv_opts *o, kv_err *err)
{
    kv_buf file = {0};
    bool slot = false;
    kv_rc rc = is_slot(o->positional[0], &slot, err);
    if (rc != KV_OK) return rc;
    if (!slot) return inspect_cache(o, err);
    rc = kv_file_read(o->positional[0], SLOT_BYTES_MAX, &file, err);
    if (rc == KV_OK) rc = inspect_slot(o, &file, err);
    kv_buf_free(&file);
    return rc;
}

int kv_codec_cmd_inspect(int argc, char **argv)
{
    kv_err err = {0};
    kv_opts o;
    bool help = false;
    kv_rc rc = kv_codec_parse(&command, argc, argv, &o, &help, &err);
    if (rc == KV_OK && !help) rc = inspect(&o, &err);
    return rc == KV_OK ? kv_ask_finish(KV_EXIT_OK) : kv_ask_fail(&err);
}
