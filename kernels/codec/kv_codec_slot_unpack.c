/* Slots from hostile bytes. */
#include <inttypes.h>
#include <string.h>

#include "kernels/codec/kv_codec_slot.h"
#include "kernels/codec/kv_codec_slot_int.h"

static kv_rc check_bytes(const void *slot, int64_t bytes, int64_t want, const char *what, kv_err *err)
{
    if (slot == NULL || bytes != want)
        return KV_FAIL(err, KV_EFORMAT, "%s of %" PRId64 " bytes, %" PRId64 " were expected", what, bytes, want);
    return KV_OK;
}

static kv_rc check_magic(const uint8_t *b, const char *magic, kv_err *err)
{
    if (memcmp(b, magic, 4) == 0) return KV_OK;
    return KV_FAIL(err, KV_EFORMAT, "magic %02x%02x%02x%02x, \"%s\" was expected", b[0], b[1], b[2], b[3], magic);
}

/* Every field of the header but the outlier total against the configuration. */
static kv_rc check_header(const kv_codec_slot_config *c, const uint8_t *b, const char *magic, kv_err *err)
{
    static const struct {
        const char *name;
        int at, size;
    } fields[] = {{"d_eff", KV_SLOT_D_EFF, 4},        {"k", KV_SLOT_K, 4},
                  {"bits", KV_SLOT_BITS, 4},          {"metric", KV_SLOT_METRIC, 4},
                  {"rotation seed", KV_SLOT_SEED, 4}, {"rotation seed, high half", KV_SLOT_SEED + 4, 4},
                  {"version", KV_SLOT_VERSION, 1},    {"recipe", KV_SLOT_RECIPE, 1},
                  {"head_dim", KV_SLOT_DIM, 2},       {"rows", KV_SLOT_ROWS, 4},
                  {"table tag", KV_SLOT_TABLE, 4},    {"budget and flags", KV_SLOT_FLAGS, 4}};
    uint8_t want[KV_CODEC_SLOT_HEADER];
    const kv_rc rc = check_magic(b, magic, err);
    if (rc != KV_OK) return rc;
    kv_slot_header(c, magic, 0, want);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        uint32_t found = 0, expected = 0;
        for (int j = fields[i].size - 1; j >= 0; j--) {
            found = found << 8 | b[fields[i].at + j];
            expected = expected << 8 | want[fields[i].at + j];
        }
        if (found != expected)
            return KV_FAIL(err, KV_EFORMAT, "slot header: %s is %u, %u was expected", fields[i].name, found, expected);
    }
    return KV_OK;
}

static void get_halves(const uint8_t *b, uint16_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = kv_le16(b + 2 * i);
}

static kv_rc get_seg_ids(const uint8_t *b, int64_t bytes, int32_t k, int64_t n, uint32_t *out, kv_err *err)
{
    const int g = kv_slot_seg_bits(k);
    const uint8_t *end = b + bytes;
    uint32_t hold = 0;
    int have = 0;
    for (int64_t i = 0; i < n; i++) {
        for (; have < g; have += 8) hold |= (uint32_t)*b++ << have;
        out[i] = hold & ((1u << g) - 1u);
        hold >>= g;
        have -= g;
        if (out[i] >= (uint32_t)k)
            return KV_FAIL(err, KV_EFORMAT, "row %" PRId64 ": centre %u, there are %d", i, out[i], k);
    }
    if (b != end || hold != 0) return KV_FAIL(err, KV_EFORMAT, "spare bits behind the seg ids are not zero");
    return KV_OK;
}

/* Bits of a residual row past the last level. */
static kv_rc check_spare(const kv_codec_params *p, const uint8_t *residual, int64_t n, kv_err *err)
{
    const int64_t row = kv_codec_row_bytes(p);
    const int used = (int)((int64_t)kv_codec_wht_len(p->d_eff) * p->bits % 8);
    for (int64_t i = 0; used != 0 && i < n; i++)
        if (residual[i * row + row - 1] >> used != 0)
            return KV_FAIL(err, KV_EFORMAT, "row %" PRId64 ": spare residual bits are not zero", i);
    return KV_OK;
}

static kv_rc get_entries(const uint8_t *e, int64_t w, kv_codec_codes *codes, kv_err *err)
{
    int64_t at = 0;
    for (int64_t i = 0; i < codes->n; i++) {
        int64_t least = 0;
        for (uint32_t j = 0; j < codes->outlier_count[i]; j++, at++) {
            const uint16_t idx = kv_le16(e + 4 * at);
            if (idx < least || idx >= w)
                return KV_FAIL(err, KV_EFORMAT,
                               "row %" PRId64 ": outlier index %u, %" PRId64 " to %" PRId64 " was expected", i, idx,
                               least, w - 1);
            codes->outlier_idx[at] = idx;
            codes->outlier_val[at] = kv_le16(e + 4 * at + 2);
            least = (int64_t)idx + 1;
        }
    }
    return KV_OK;
}

static kv_rc get_outliers(const kv_codec_slot_config *c, const kv_codec_slot_layout *l, const uint8_t *b,
                          kv_codec_codes *codes, kv_err *err)
{
    const int64_t w = kv_codec_wht_len(c->params.d_eff), total = kv_le32(b + KV_SLOT_OUTLIERS);
    int64_t sum = 0;
    for (int64_t i = 0; i < c->n; i++) {
        codes->outlier_count[i] = kv_le16(b + l->counts + 2 * i);
        if (codes->outlier_count[i] > w)
            return KV_FAIL(err, KV_EFORMAT, "row %" PRId64 ": %u outliers, at most %" PRId64 " were expected", i,
                           codes->outlier_count[i], w);
        sum += codes->outlier_count[i];
    }
    if (sum != total || sum > l->max_entries)
        return KV_FAIL(err, KV_EFORMAT,
                       "the rows count %" PRId64 " outliers, the header %" PRId64 ", and at most %" PRId64 " fit", sum,
                       total, l->max_entries);
    codes->outliers = sum;
    const uint8_t *e = b + l->entries;
    for (int64_t i = 4 * sum; i < 4 * l->max_entries; i++)
        if (e[i] != 0) return KV_FAIL(err, KV_EFORMAT, "unused outlier entry %" PRId64 " is not zero", i / 4);
    return get_entries(e, w, codes, err);
}

/* Without an outlier part: none. KV1 says so in its header too. */
static kv_rc no_outliers(const kv_codec_slot_config *c, const uint8_t *b, kv_codec_codes *codes, kv_err *err)
{
    const uint32_t total = kv_le32(b + KV_SLOT_OUTLIERS);
    memset(codes->outlier_count, 0, (size_t)c->n * sizeof *codes->outlier_count);
    codes->outliers = 0;
    if (c->version == KV_CODEC_SLOT_KV1 && total != 0)
        return KV_FAIL(err, KV_EFORMAT, "slot header: %u outliers, 0 were expected (no outlier part)", total);
    return KV_OK;
}

kv_rc kv_codec_slot_unpack(const kv_codec_slot_config *c, const void *slot, int64_t bytes, kv_codec_skeleton *s,
                           kv_codec_codes *codes, kv_err *err)
{
    const kv_codec_params *p = &c->params;
    const uint8_t *b = slot;
    kv_codec_slot_layout l;
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_slot_sizes(c, &l, err));
    KV_TRY(rc, out, check_bytes(slot, bytes, l.total, "a slot", err));
    KV_TRY(rc, out, check_header(c, b, KV_CODEC_SLOT_MAGIC, err));
    codes->n = c->n;
    codes->saturated = 0;
    if (!c->shared) {
        get_halves(b + l.basis, s->basis, (int64_t)p->d_eff * p->dim);
        get_halves(b + l.mean, s->mean, p->dim);
    }
    get_halves(b + l.centers, s->centers, (int64_t)p->k * p->d_eff);
    KV_TRY(rc, out, get_seg_ids(b + l.seg_id, l.t - l.seg_id, p->k, c->n, codes->seg_id, err));
    get_halves(b + l.t, codes->t, c->n);
    get_halves(b + l.norm, codes->norm, c->n);
    memcpy(codes->residual, b + l.residual, (size_t)(c->n * kv_codec_row_bytes(p)));
    KV_TRY(rc, out, check_spare(p, codes->residual, c->n, err));
    rc = c->budget_ppm > 0 ? get_outliers(c, &l, b, codes, err) : no_outliers(c, b, codes, err);
out:
    return rc;
}

/* ---- what a slot says of itself --------------------------------------------------------- */

static void read_config(const uint8_t *b, kv_codec_slot_config *c)
{
    const uint32_t flags = kv_le32(b + KV_SLOT_FLAGS);
    *c = (kv_codec_slot_config){.version = KV_CODEC_SLOT_KV1,
                                .recipe = b[KV_SLOT_RECIPE],
                                .n = kv_le32(b + KV_SLOT_ROWS),
                                .budget_ppm = (int32_t)(flags & KV_SLOT_FLAG_BUDGET),
                                .table_tag = kv_le32(b + KV_SLOT_TABLE),
                                .shared = (flags & KV_SLOT_FLAG_SHARED) != 0};
    c->params = (kv_codec_params){.dim = kv_le16(b + KV_SLOT_DIM),
                                  .d_eff = (int32_t)kv_le32(b + KV_SLOT_D_EFF),
                                  .k = (int32_t)kv_le32(b + KV_SLOT_K),
                                  .bits = (int32_t)kv_le32(b + KV_SLOT_BITS),
                                  .metric = (int32_t)kv_le32(b + KV_SLOT_METRIC),
                                  .seed = kv_le32(b + KV_SLOT_SEED),
                                  .outliers = c->budget_ppm > 0};
    c->params.rule = (flags & KV_SLOT_FLAG_RULE) != 0 ? KV_CODEC_RULE_KV1 : KV_CODEC_RULE_PUBLISHED;
}

kv_rc kv_codec_slot_peek(const void *slot, int64_t bytes, const float *levels, kv_codec_slot_config *out, kv_err *err)
{
    const uint8_t *b = slot;
    kv_codec_slot_config c;
    kv_codec_slot_layout l;
    kv_err why = {0};
    if (b == NULL || bytes < KV_CODEC_SLOT_HEADER)
        return KV_FAIL(err, KV_EFORMAT, "a slot of %" PRId64 " bytes, at least %d were expected", bytes,
                       KV_CODEC_SLOT_HEADER);
    const bool page = memcmp(b, KV_CODEC_PAGE_MAGIC, 4) == 0;
    kv_rc rc = page ? KV_OK : check_magic(b, KV_CODEC_SLOT_MAGIC, err);
    if (rc != KV_OK) return rc;
    if (b[KV_SLOT_VERSION] != KV_CODEC_SLOT_KV1)
        return KV_FAIL(err, KV_EFORMAT, "slot version %d: only version %d says of itself what it is",
                       b[KV_SLOT_VERSION], KV_CODEC_SLOT_KV1);
    read_config(b, &c);
    if (c.params.bits < 1 || c.params.bits > KV_CODEC_BITS_MAX)
        return KV_FAIL(err, KV_EFORMAT, "slot header: bits is %d, 1 to %d was expected", c.params.bits,
                       KV_CODEC_BITS_MAX);
    if (levels == NULL) levels = kv_codec_levels(c.params.bits);
    memcpy(c.params.level, levels, sizeof *levels * ((size_t)1 << c.params.bits));
    if (kv_codec_table_tag(levels, c.params.bits) != c.table_tag)
        return KV_FAIL(err, KV_EFORMAT, "slot header: table tag %08x, the table at hand has %08x", c.table_tag,
                       kv_codec_table_tag(levels, c.params.bits));
    if (kv_codec_slot_sizes(&c, &l, &why) != KV_OK) return KV_FAIL(err, KV_EFORMAT, "slot header: %s", why.text);
    KV_TRY(rc, out,
           check_bytes(slot, bytes, page ? kv_codec_page_bytes(&c) : l.total, page ? "a page" : "a slot", err));
    KV_TRY(rc, out, check_header(&c, b, page ? KV_CODEC_PAGE_MAGIC : KV_CODEC_SLOT_MAGIC, err));
    *out = c;
out:
    return rc;
}

kv_rc kv_codec_page_unpack(const kv_codec_slot_config *c, const void *page, int64_t bytes, kv_codec_skeleton *s,
                           kv_err *err)
{
    const int64_t basis = (int64_t)c->params.d_eff * c->params.dim;
    const uint8_t *b = page;
    kv_rc rc;
    KV_TRY(rc, out, check_bytes(page, bytes, kv_codec_page_bytes(c), "a basis page", err));
    KV_TRY(rc, out, check_header(c, b, KV_CODEC_PAGE_MAGIC, err));
    if (kv_le32(b + KV_SLOT_OUTLIERS) != 0)
        return KV_FAIL(err, KV_EFORMAT, "page header: %u outliers, 0 were expected", kv_le32(b + KV_SLOT_OUTLIERS));
    get_halves(b + KV_CODEC_SLOT_HEADER, s->basis, basis);
    get_halves(b + KV_CODEC_SLOT_HEADER + 2 * basis, s->mean, c->params.dim);
out:
    return rc;
}
