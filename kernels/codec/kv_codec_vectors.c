/* codec vectors: format KKVEC01, little-endian: a header of 64 bytes, a table of sections, the sections. */
#include <inttypes.h>
#include <string.h>

#include "kernels/codec/kv_codec_vectors.h"

#define HEADER 64
#define SECTION_ENTRY 24
#define SECTION_MAX 64 /* more than the format has */

enum { F32 = 1, F16, U32, U16, U8 };
enum {
    ID_X = 1,
    ID_WEIGHTS,
    ID_MEAN,
    ID_BASIS,
    ID_CENTERS,
    ID_TABLE,
    ID_SEG,
    ID_T,
    ID_NORM,
    ID_RESIDUAL,
    ID_COUNT,
    ID_OUT_IDX,
    ID_OUT_VAL,
    ID_DECODED,
    ID_RES_NORM,
    ID_DECODED_RES,
    ID_END
};
enum { FLAG_THRESHOLD = 1, FLAG_FITTED = 4 };

typedef struct {
    char *bytes;
    int64_t size;
    uint32_t sections;
} file_view;

static uint32_t u32_at(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* The dense array of a section; NULL in *out where it is absent and may be. */
static kv_rc find(const file_view *f, uint32_t id, uint32_t type, int64_t count, bool must, void **out, kv_err *err)
{
    static const int64_t width[] = {0, 4, 2, 4, 2, 1};
    *out = NULL;
    for (uint32_t i = 0; i < f->sections; i++) {
        const char *entry = f->bytes + HEADER + (int64_t)i * SECTION_ENTRY;
        uint64_t offset, length;
        if (u32_at(entry) != id) continue;
        memcpy(&offset, entry + 8, sizeof offset);
        memcpy(&length, entry + 16, sizeof length);
        if (u32_at(entry + 4) != type)
            return KV_FAIL(err, KV_EFORMAT, "section %" PRIu32 ": type %" PRIu32 ", expected %" PRIu32, id,
                           u32_at(entry + 4), type);
        if (length != (uint64_t)(count * width[type]))
            return KV_FAIL(err, KV_EFORMAT, "section %" PRIu32 ": %" PRIu64 " bytes, expected %" PRId64, id, length,
                           count * width[type]);
        if (offset % 8 != 0 || offset > (uint64_t)f->size || length > (uint64_t)f->size - offset)
            return KV_FAIL(err, KV_EFORMAT,
                           "section %" PRIu32 ": offset %" PRIu64 " of %" PRIu64 " bytes is not within "
                           "the file's %" PRId64 " or no multiple of 8",
                           id, offset, length, f->size);
        *out = f->bytes + offset;
        return KV_OK;
    }
    return must ? KV_FAIL(err, KV_EFORMAT, "section %" PRIu32 " is missing", id) : KV_OK;
}

static kv_rc read_header(const file_view *f, kv_codec_vector *out, kv_err *err)
{
    uint32_t h[15];
    kv_codec_params *p = &out->params;
    memcpy(h, f->bytes + 8, 14 * sizeof *h);
    if (h[0] < 1 || h[0] > INT32_MAX) return KV_FAIL(err, KV_EFORMAT, "%" PRIu32 " rows", h[0]);
    out->n = h[0];
    p->dim = h[1] <= INT32_MAX ? (int32_t)h[1] : -1;
    p->d_eff = h[2] <= INT32_MAX ? (int32_t)h[2] : -1;
    p->k = h[3] <= INT32_MAX ? (int32_t)h[3] : -1;
    p->bits = h[5] <= INT32_MAX ? (int32_t)h[5] : -1;
    p->metric = h[6] <= INT32_MAX ? (int32_t)h[6] : -1;
    p->rule = KV_CODEC_RULE_PUBLISHED;
    p->seed = h[7];
    memcpy(&p->threshold, &h[8], sizeof p->threshold);
    p->outliers = (h[9] & FLAG_THRESHOLD) != 0;
    out->fitted = (h[9] & FLAG_FITTED) != 0;
    if (kv_codec_params_check_sizes(p, err) != KV_OK) {
        if (err != NULL) err->rc = KV_EFORMAT; /* the file's fault, not the caller's */
        return KV_EFORMAT;
    }
    if (h[4] != (uint32_t)kv_codec_wht_len(p->d_eff) || (int64_t)h[10] != kv_codec_row_bytes(p))
        return KV_FAIL(err, KV_EFORMAT, "wht_len %" PRIu32 " or %" PRIu32 " bytes a row do not follow from the sizes",
                       h[4], h[10]);
    out->want.n = out->n;
    out->want.outliers = h[11];
    return KV_OK;
}

static kv_rc read_sections(const file_view *f, kv_codec_vector *out, kv_err *err)
{
    const kv_codec_params *p = &out->params;
    const int64_t n = out->n, d = p->dim, e = p->d_eff, o = out->want.outliers;
    void *at[ID_END];
    const struct {
        uint32_t type;
        int64_t count;
    } want[ID_END] = {{0, 0},
                      {F32, n * d},
                      {F32, n},
                      {F16, d},
                      {F16, e * d},
                      {F16, p->k * e},
                      {F32, 1 << p->bits},
                      {U32, n},
                      {F16, n},
                      {F16, n},
                      {U8, n * kv_codec_row_bytes(p)},
                      {U32, n},
                      {U16, o},
                      {F16, o},
                      {F32, n * d},
                      {F32, n},
                      {F32, n * d}};
    for (uint32_t id = ID_X; id < ID_END; id++) {
        const kv_rc rc = find(f, id, want[id].type, want[id].count, id != ID_DECODED_RES, &at[id], err);
        if (rc != KV_OK) return rc;
    }
    out->x = at[ID_X];
    out->weights = at[ID_WEIGHTS];
    out->skeleton = (kv_codec_skeleton){at[ID_MEAN], at[ID_BASIS], at[ID_CENTERS]};
    memcpy(out->params.level, at[ID_TABLE], (size_t)(1 << p->bits) * sizeof(float));
    out->want.seg_id = at[ID_SEG];
    out->want.t = at[ID_T];
    out->want.norm = at[ID_NORM];
    out->want.residual = at[ID_RESIDUAL];
    out->want.outlier_count = at[ID_COUNT];
    out->want.outlier_idx = at[ID_OUT_IDX];
    out->want.outlier_val = at[ID_OUT_VAL];
    out->want.res_norm = at[ID_RES_NORM];
    out->decoded = at[ID_DECODED];
    out->decoded_res_norm = at[ID_DECODED_RES];
    return KV_OK;
}

kv_rc kv_codec_vector_check_codes(const kv_codec_vector *v, kv_err *err)
{
    int64_t total = 0;
    for (int64_t i = 0; i < v->n; i++) {
        if (v->want.seg_id[i] >= (uint32_t)v->params.k)
            return KV_FAIL(err, KV_EFORMAT, "row %" PRId64 ": seg_id %" PRIu32 " of %" PRId32 " centres", i,
                           v->want.seg_id[i], v->params.k);
        total += v->want.outlier_count[i];
    }
    if (total != v->want.outliers)
        return KV_FAIL(err, KV_EFORMAT, "outlier counts add up to %" PRId64 ", the header says %" PRId64, total,
                       v->want.outliers);
    return KV_OK;
}

kv_rc kv_codec_vector_parse(void *bytes, int64_t size, kv_codec_vector *out, kv_err *err)
{
    const uint16_t one = 1;
    file_view f = {bytes, size, 0};
    kv_codec_vector v = {.n = 0};
    kv_rc rc;
    if (*(const char *)&one != 1)
        return KV_FAIL(err, KV_EUNSUP, "conformance files are read on little-endian machines");
    if (size < HEADER || memcmp(bytes, "KKVEC01", 8) != 0) return KV_FAIL(err, KV_EFORMAT, "not a KKVEC01 file");
    f.sections = u32_at(f.bytes + 56);
    if (f.sections > SECTION_MAX || HEADER + (int64_t)f.sections * SECTION_ENTRY > size)
        return KV_FAIL(err, KV_EFORMAT, "%" PRIu32 " sections do not fit into the file", f.sections);
    KV_TRY(rc, out, read_header(&f, &v, err));
    KV_TRY(rc, out, read_sections(&f, &v, err));
    *out = v;
out:
    return rc;
}
