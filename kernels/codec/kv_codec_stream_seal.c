/* Sealing a group of blocks, and reading rows back. */
#include <inttypes.h>
#include <string.h>

#include "kernels/codec/kv_codec_stream_int.h"
#include "kernels/kv_kern_num.h"

const float *kv_stream_factor(const kv_codec_stream *s, kv_lane_place at, int64_t row, bool inverse)
{
    const kv_codec_half_config *h = &s->c.half[at.half];
    const kv_codec_whiten *f = s->c.whiten;
    if (!h->whitened || f == NULL || f->l[at.layer] == NULL) return NULL;
    const int64_t head = h->mixed_heads ? row % s->c.heads : at.lane;
    return (inverse ? f->inverse : f->l)[at.layer] + head * f->dim * f->dim;
}

void kv_stream_read_stage(const kv_codec_stream *s, const kv_half_work *w, const kv_lane *lane, int64_t first,
                          int64_t rows, int32_t dim, float *out)
{
    kv_num_to_f32_row(s->c.element, lane->stage + first * w->row_bytes, out, (size_t)(rows * dim));
}

/* ---- sealing ---------------------------------------------------------------------------- */

/* The rows of a group as the codec takes them: float32, whitened. */
static kv_rc read_group(kv_codec_stream *s, const kv_lane *lane, kv_lane_place at, int64_t rows, kv_err *err)
{
    kv_half_work *w = &s->half[at.half];
    const kv_codec_half_config *h = &s->c.half[at.half];
    const int32_t dim = h->slot.params.dim;
    void *buffer = w->rows;
    const kv_rc rc = kv_stream_grow(&buffer, &w->rows_cap, rows, dim * (int64_t)sizeof(float), err);
    w->rows = buffer;
    if (rc != KV_OK) return rc;
    kv_stream_read_stage(s, w, lane, 0, rows, dim, w->rows);
    for (int64_t r = 0; r < rows; r++) {
        const float *l = kv_stream_factor(s, at, lane->blocks * h->slot.n + r, false);
        if (l == NULL) continue;
        kv_codec_whiten_rows(l, dim, w->rows + r * dim, 1, w->unwhite);
        memcpy(w->rows + r * dim, w->unwhite, (size_t)dim * sizeof *w->unwhite);
    }
    return KV_OK;
}

/* The published rules may keep less than a slot holds. */
static kv_rc check_fit(const kv_codec_half_config *h, const kv_codec_params *p, kv_err *err)
{
    const kv_codec_params *want = &h->slot.params;
    if (p->d_eff == want->d_eff && p->k == want->k) return KV_OK;
    return KV_FAIL(err, KV_EFORMAT,
                   "the published rules keep %d directions and %d centres, a slot holds %d and %d; recipe kv1 fills up",
                   p->d_eff, p->k, want->d_eff, want->k);
}

static void count_fit(kv_codec_stream_stats *t, const kv_codec_half_config *h, const kv_codec_fit_report *r, bool basis)
{
    t->means_saturated += basis && r->mean_saturated;
    t->padded += r->d_eff < h->slot.params.d_eff || r->k_eff < h->slot.params.k;
    t->kept_ppm += r->kept_ppm;
}

static kv_rc seal_block(kv_codec_stream *s, kv_lane_place at, const kv_codec_fit_report *of_group, const float *x,
                        uint8_t *slot, kv_err *err)
{
    kv_half_work *w = &s->half[at.half];
    const kv_codec_half_config *h = &s->c.half[at.half];
    kv_codec_params p = h->slot.params;
    kv_codec_fit_report report = {0};
    kv_rc rc = of_group == NULL ? kv_codec_fit(&p, &h->fit, x, NULL, h->slot.n, &w->skeleton, &report, err)
                                : kv_codec_fit_centers(&p, &h->fit, x, NULL, h->slot.n, &w->skeleton, &report, err);
    if (rc == KV_OK) rc = check_fit(h, &p, err);
    if (rc != KV_OK) return rc;
    if (of_group != NULL) {
        report.d_eff = of_group->d_eff;
        report.kept_ppm = of_group->kept_ppm;
    }
    kv_codec_work_set(w->work, &w->skeleton);
    s->variant->encode(w->work, x, h->slot.n, &w->codes);
    rc = kv_codec_slot_pack(&h->slot, &w->skeleton, &w->codes, slot, err);
    if (rc != KV_OK) return rc;
    count_fit(&w->stats, h, &report, of_group == NULL);
    w->stats.blocks++;
    w->stats.values += h->slot.n * kv_codec_wht_len(p.d_eff);
    w->stats.outliers += w->codes.outliers;
    w->stats.saturated += w->codes.saturated;
    return KV_OK;
}

static kv_rc seal_page(kv_codec_stream *s, kv_lane_place at, int64_t rows, kv_codec_fit_report *report, uint8_t *page,
                       kv_err *err)
{
    kv_half_work *w = &s->half[at.half];
    const kv_codec_half_config *h = &s->c.half[at.half];
    kv_codec_params p = h->slot.params;
    kv_rc rc = kv_codec_fit_basis(&p, &h->fit, w->rows, NULL, rows, &w->skeleton, report, err);
    p.k = h->slot.params.k;
    if (rc == KV_OK) rc = check_fit(h, &p, err);
    if (rc != KV_OK) return rc;
    w->stats.means_saturated += report->mean_saturated;
    kv_codec_page_pack(&h->slot, &w->skeleton, page);
    return KV_OK;
}

static kv_rc seal_group(kv_codec_stream *s, kv_lane *lane, kv_lane_place at, int64_t blocks, kv_err *err)
{
    kv_half_work *w = &s->half[at.half];
    const kv_codec_half_config *h = &s->c.half[at.half];
    const int64_t bytes = w->page_bytes + blocks * w->sizes.total, rows = blocks * h->slot.n;
    const int64_t block_floats = h->slot.n * h->slot.params.dim;
    kv_codec_fit_report of_group = {0};
    void *sealed = lane->sealed;
    kv_rc rc = kv_stream_grow(&sealed, &lane->sealed_cap, lane->sealed_bytes + bytes, 1, err);
    lane->sealed = sealed;
    if (rc == KV_OK) rc = read_group(s, lane, at, rows, err);
    if (rc != KV_OK) return rc;
    uint8_t *to = lane->sealed + lane->sealed_bytes;
    if (h->slot.shared) rc = seal_page(s, at, rows, &of_group, to, err);
    to += w->page_bytes;
    for (int64_t b = 0; rc == KV_OK && b < blocks; b++, to += w->sizes.total) {
        rc = seal_block(s, at, h->slot.shared ? &of_group : NULL, w->rows + b * block_floats, to, err);
        if (rc != KV_OK) kv_err_prefix(err, "block %" PRId64, lane->blocks + b);
    }
    if (rc != KV_OK) return rc;
    lane->sealed_bytes += bytes;
    lane->blocks += blocks;
    lane->staged -= rows;
    memmove(lane->stage, lane->stage + rows * w->row_bytes, (size_t)(lane->staged * w->row_bytes));
    return KV_OK;
}

kv_rc kv_stream_seal(kv_codec_stream *s, kv_lane *lane, kv_lane_place at, int64_t blocks, kv_err *err)
{
    const kv_codec_stream_stats before = s->half[at.half].stats;
    const kv_rc rc = seal_group(s, lane, at, blocks, err);
    if (rc == KV_OK) return rc;
    s->half[at.half].stats = before; /* nothing was sealed */
    kv_err_prefix(err, "layer %d, %s, %s %" PRId64, at.layer, kv_codec_half_name(at.half),
                  s->c.half[at.half].mixed_heads ? "lane" : "head", at.lane);
    return rc;
}

/* ---- reading back ----------------------------------------------------------------------- */

/* Where block b of a lane begins; *page is where its basis page does. */
static int64_t slot_at(const kv_codec_half_config *h, const kv_half_work *w, int64_t b, int64_t *page)
{
    if (!h->slot.shared) return b * w->sizes.total;
    const int64_t group = h->group == KV_CODEC_GROUP_ALL ? 0 : b / h->group, inside = b - group * h->group;
    *page = group * (w->page_bytes + h->group * w->sizes.total);
    return *page + w->page_bytes + inside * w->sizes.total;
}

/* Decodes block b into w->block, unwhitened. */
static kv_rc open_block(kv_codec_stream *s, const kv_lane *lane, kv_lane_place at, int64_t b, kv_err *err)
{
    kv_half_work *w = &s->half[at.half];
    const kv_codec_half_config *h = &s->c.half[at.half];
    const int32_t dim = h->slot.params.dim;
    int64_t page = 0;
    const int64_t slot = slot_at(h, w, b, &page);
    kv_rc rc = KV_OK;
    if (h->slot.shared) rc = kv_codec_page_unpack(&h->slot, lane->sealed + page, w->page_bytes, &w->skeleton, err);
    if (rc == KV_OK)
        rc = kv_codec_slot_unpack(&h->slot, lane->sealed + slot, w->sizes.total, &w->skeleton, &w->codes, err);
    if (rc != KV_OK) {
        kv_err_prefix(err, "layer %d, %s, %s %" PRId64 ", block %" PRId64, at.layer, kv_codec_half_name(at.half),
                      h->mixed_heads ? "lane" : "head", at.lane, b);
        return rc;
    }
    kv_codec_work_set(w->work, &w->skeleton);
    s->variant->decode(w->work, &w->codes, w->block);
    for (int64_t r = 0; r < h->slot.n; r++) {
        const float *inverse = kv_stream_factor(s, at, b * h->slot.n + r, true);
        if (inverse == NULL) continue;
        kv_codec_whiten_rows(inverse, dim, w->block + r * dim, 1, w->unwhite);
        memcpy(w->block + r * dim, w->unwhite, (size_t)dim * sizeof *w->unwhite);
    }
    return KV_OK;
}

/* Rows [first, first + rows) of a lane to out, `stride` floats apart. */
static kv_rc get_lane(kv_codec_stream *s, const kv_lane *lane, kv_lane_place at, int64_t first, int64_t rows,
                      float *out, int64_t stride, kv_err *err)
{
    const kv_half_work *w = &s->half[at.half];
    const kv_codec_half_config *h = &s->c.half[at.half];
    const int32_t dim = h->slot.params.dim;
    const int64_t sealed = lane->blocks * h->slot.n;
    int64_t open = -1;
    for (int64_t r = first; r < first + rows; r++, out += stride) {
        if (r >= sealed) {
            kv_stream_read_stage(s, w, lane, r - sealed, 1, dim, out);
            continue;
        }
        if (r / h->slot.n != open) {
            open = r / h->slot.n;
            const kv_rc rc = open_block(s, lane, at, open, err);
            if (rc != KV_OK) return rc;
        }
        memcpy(out, w->block + r % h->slot.n * dim, (size_t)dim * sizeof *out);
    }
    return KV_OK;
}

kv_rc kv_codec_stream_get(kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half, int64_t first,
                          int64_t tokens, float *out, kv_err *err)
{
    const int64_t have = kv_codec_stream_tokens(s, sequence, layer, half);
    if (first < 0 || tokens < 0 || first > have || tokens > have - first)
        return KV_FAIL(err, KV_EINVAL,
                       "layer %d, %s: tokens %" PRId64 " to %" PRId64 " of sequence %" PRIu64 ", which has %" PRId64,
                       layer, kv_codec_half_name(half), first, first + tokens, sequence, have);
    const kv_codec_half_config *h = &s->c.half[half];
    const int64_t heads = s->c.heads, dim = h->slot.params.dim;
    kv_rc rc = KV_OK;
    for (int64_t i = 0; rc == KV_OK && tokens > 0 && i < kv_codec_lanes(h, heads); i++) {
        const kv_lane *lane = kv_stream_lane_of(s, sequence, layer, half, i);
        const kv_lane_place at = {layer, half, i};
        rc = h->mixed_heads ? get_lane(s, lane, at, first * heads, tokens * heads, out, dim, err)
                            : get_lane(s, lane, at, first, tokens, out + i * dim, heads * dim, err);
    }
    return rc;
}
