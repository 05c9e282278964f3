#include "kernels/codec/kv_codec_slot.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/codec/kv_codec_slot_int.h"

uint32_t kv_codec_table_tag(const float *levels, int32_t bits)
{
    uint32_t tag = 2166136261u;
    for (int32_t i = 0; i < 1 << bits; i++) {
        uint32_t w;
        uint8_t le[4];
        memcpy(&w, &levels[i], sizeof w);
        kv_put_le32(le, w);
        for (int b = 0; b < 4; b++) tag = (tag ^ le[b]) * 16777619u;
    }
    return tag;
}

static bool power_of_two(int64_t v)
{
    return v > 0 && (v & (v - 1)) == 0;
}

static kv_rc check_config(const kv_codec_slot_config *c, kv_err *err)
{
    const kv_codec_params *p = &c->params;
    kv_rc rc = kv_codec_params_check(p, err);
    if (rc != KV_OK) return rc;
    const bool published = c->version == KV_CODEC_SLOT_PUBLISHED;
    if (!published && c->version != KV_CODEC_SLOT_KV1)
        return KV_FAIL(err, KV_EINVAL, "slot version %d: must be 0 (published) or 1 (KV1)", c->version);
    if (c->recipe < 0 || c->recipe > 255)
        return KV_FAIL(err, KV_EINVAL, "recipe %d: must be 0 to 255, one byte of the header", c->recipe);
    if (c->n < 1 || c->n > KV_CODEC_SLOT_ROWS_MAX)
        return KV_FAIL(err, KV_EINVAL, "%" PRId64 " rows in a block: must be 1 to %" PRId64, c->n,
                       KV_CODEC_SLOT_ROWS_MAX);
    if (c->budget_ppm < 0 || c->budget_ppm > KV_CODEC_PPM)
        return KV_FAIL(err, KV_EINVAL, "an outlier budget of %d parts per million: must be 0 to %d", c->budget_ppm,
                       KV_CODEC_PPM);
    if (published && c->shared)
        return KV_FAIL(err, KV_EINVAL, "a published slot cannot share its basis; use kv1-shared");
    if (published && !power_of_two(c->n))
        return KV_FAIL(err, KV_EINVAL, "%" PRId64 " rows in a block: published slots take powers of two", c->n);
    if (published && !power_of_two(p->k))
        return KV_FAIL(err, KV_EINVAL, "%d centres: published slots take powers of two", p->k);
    return KV_OK;
}

/* ceil(f * n * w) as published, in double precision: (f * n) * w. */
static int64_t entries_of(const kv_codec_slot_config *c, int64_t w)
{
    const double f = (double)c->budget_ppm / KV_CODEC_PPM;
    return (int64_t)ceil(f * (double)c->n * (double)w);
}

kv_rc kv_codec_slot_sizes(const kv_codec_slot_config *c, kv_codec_slot_layout *out, kv_err *err)
{
    const kv_codec_params *p = &c->params;
    const kv_rc rc = check_config(c, err);
    if (rc != KV_OK) return rc;
    /* All factors are bounded by check_config: no product comes near 64 bits. */
    const int64_t w = kv_codec_wht_len(p->d_eff), residual = c->n * kv_codec_row_bytes(p);
    if (c->version == KV_CODEC_SLOT_PUBLISHED && residual != (c->n * w * p->bits + 7) / 8)
        return KV_FAIL(err, KV_EINVAL,
                       "residual rows of %" PRId64
                       " x %d bits are no whole bytes: published slots cannot hold them; use "
                       "recipe kv1",
                       w, p->bits);
    kv_codec_slot_layout l = {.basis = -1, .mean = -1, .counts = -1, .entries = -1};
    int64_t at = KV_CODEC_SLOT_HEADER;
    if (!c->shared) {
        l.basis = at;
        l.mean = at + (int64_t)2 * p->d_eff * p->dim;
        at = l.mean + (int64_t)2 * p->dim;
    }
    l.centers = at;
    l.seg_id = l.centers + (int64_t)2 * p->k * p->d_eff;
    l.t = l.seg_id + (c->n * kv_slot_seg_bits(p->k) + 7) / 8;
    l.norm = l.t + 2 * c->n;
    l.residual = l.norm + 2 * c->n;
    l.total = l.residual + residual;
    if (c->budget_ppm > 0) {
        l.counts = l.total;
        l.entries = l.counts + 2 * c->n;
        l.max_entries = entries_of(c, w);
        l.total = l.entries + 4 * l.max_entries;
    }
    *out = l;
    return KV_OK;
}

/* ---- packing ---------------------------------------------------------------------------- */

void kv_slot_header(const kv_codec_slot_config *c, const char *magic, int64_t outliers, uint8_t *out)
{
    const kv_codec_params *p = &c->params;
    memset(out, 0, KV_CODEC_SLOT_HEADER);
    memcpy(out, magic, 4);
    kv_put_le32(out + KV_SLOT_D_EFF, (uint32_t)p->d_eff);
    kv_put_le32(out + KV_SLOT_K, (uint32_t)p->k);
    kv_put_le32(out + KV_SLOT_BITS, (uint32_t)p->bits);
    kv_put_le32(out + KV_SLOT_OUTLIERS, (uint32_t)outliers);
    kv_put_le32(out + KV_SLOT_METRIC, (uint32_t)p->metric);
    kv_put_le32(out + KV_SLOT_SEED, p->seed);
    if (c->version == KV_CODEC_SLOT_PUBLISHED) return;
    out[KV_SLOT_VERSION] = KV_CODEC_SLOT_KV1;
    out[KV_SLOT_RECIPE] = (uint8_t)c->recipe;
    kv_put_le16(out + KV_SLOT_DIM, (uint16_t)p->dim);
    kv_put_le32(out + KV_SLOT_ROWS, (uint32_t)c->n);
    kv_put_le32(out + KV_SLOT_TABLE, c->table_tag);
    kv_put_le32(out + KV_SLOT_FLAGS, (uint32_t)c->budget_ppm | (p->rule == KV_CODEC_RULE_KV1 ? KV_SLOT_FLAG_RULE : 0u) |
                                         (c->shared ? KV_SLOT_FLAG_SHARED : 0u));
}

static void put_halves(uint8_t *out, const uint16_t *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) kv_put_le16(out + 2 * i, v[i]);
}

/* g bits each, least significant first, in one stream. */
static void put_seg_ids(uint8_t *out, const uint32_t *id, int64_t n, int g)
{
    uint32_t hold = 0;
    int have = 0;
    for (int64_t i = 0; i < n; i++) {
        hold |= id[i] << have;
        for (have += g; have >= 8; have -= 8, hold >>= 8) *out++ = (uint8_t)hold;
    }
    if (have > 0) *out = (uint8_t)hold;
}

static void put_outliers(const kv_codec_slot_layout *l, const kv_codec_codes *codes, uint8_t *slot)
{
    for (int64_t i = 0; i < codes->n; i++) kv_put_le16(slot + l->counts + 2 * i, (uint16_t)codes->outlier_count[i]);
    uint8_t *e = slot + l->entries;
    for (int64_t i = 0; i < codes->outliers; i++, e += 4) {
        kv_put_le16(e, codes->outlier_idx[i]);
        kv_put_le16(e + 2, codes->outlier_val[i]);
    }
    memset(e, 0, (size_t)(slot + l->total - e));
}

/* The codes belong to this configuration. */
static kv_rc check_codes(const kv_codec_slot_config *c, const kv_codec_slot_layout *l, const kv_codec_codes *codes,
                         kv_err *err)
{
    const int64_t w = kv_codec_wht_len(c->params.d_eff);
    int64_t sum = 0;
    if (codes->n != c->n) return KV_FAIL(err, KV_EINVAL, "%" PRId64 " rows for a slot of %" PRId64, codes->n, c->n);
    for (int64_t i = 0; i < c->n; i++) {
        if (codes->seg_id[i] >= (uint32_t)c->params.k)
            return KV_FAIL(err, KV_EINVAL, "row %" PRId64 ": centre %u of %d", i, codes->seg_id[i], c->params.k);
        sum += codes->outlier_count[i];
        if (codes->outlier_count[i] > w)
            return KV_FAIL(err, KV_EINVAL, "row %" PRId64 ": %u outliers in %" PRId64 " values", i,
                           codes->outlier_count[i], w);
    }
    if (sum != codes->outliers)
        return KV_FAIL(err, KV_EINVAL, "the rows count %" PRId64 " outliers, the block %" PRId64, sum, codes->outliers);
    if (c->budget_ppm == 0 && (c->version == KV_CODEC_SLOT_PUBLISHED || sum == 0)) return KV_OK;
    if (sum > l->max_entries)
        return KV_FAIL(err, KV_EFORMAT,
                       "%" PRId64 " outliers do not fit: a slot holds %" PRId64 " (%d parts per million of %" PRId64
                       " x %" PRId64 "); raise the outlier budget or the threshold",
                       sum, l->max_entries, c->budget_ppm, c->n, w);
    return KV_OK;
}

kv_rc kv_codec_slot_pack(const kv_codec_slot_config *c, const kv_codec_skeleton *s, const kv_codec_codes *codes,
                         void *slot, kv_err *err)
{
    const kv_codec_params *p = &c->params;
    kv_codec_slot_layout l;
    uint8_t *out = slot;
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_slot_sizes(c, &l, err));
    KV_TRY(rc, out, check_codes(c, &l, codes, err));
    kv_slot_header(c, KV_CODEC_SLOT_MAGIC, codes->outliers, out);
    if (!c->shared) {
        put_halves(out + l.basis, s->basis, (int64_t)p->d_eff * p->dim);
        put_halves(out + l.mean, s->mean, p->dim);
    }
    put_halves(out + l.centers, s->centers, (int64_t)p->k * p->d_eff);
    put_seg_ids(out + l.seg_id, codes->seg_id, c->n, kv_slot_seg_bits(p->k));
    put_halves(out + l.t, codes->t, c->n);
    put_halves(out + l.norm, codes->norm, c->n);
    memcpy(out + l.residual, codes->residual, (size_t)(c->n * kv_codec_row_bytes(p)));
    if (c->budget_ppm > 0) put_outliers(&l, codes, out);
out:
    return rc;
}

/* ---- basis pages ------------------------------------------------------------------------ */

int64_t kv_codec_page_bytes(const kv_codec_slot_config *c)
{
    return KV_CODEC_SLOT_HEADER + (int64_t)2 * c->params.dim * (c->params.d_eff + 1);
}

void kv_codec_page_pack(const kv_codec_slot_config *c, const kv_codec_skeleton *s, void *page)
{
    const int64_t basis = (int64_t)c->params.d_eff * c->params.dim;
    uint8_t *out = page;
    kv_slot_header(c, KV_CODEC_PAGE_MAGIC, 0, out);
    put_halves(out + KV_CODEC_SLOT_HEADER, s->basis, basis);
    put_halves(out + KV_CODEC_SLOT_HEADER + 2 * basis, s->mean, c->params.dim);
}
