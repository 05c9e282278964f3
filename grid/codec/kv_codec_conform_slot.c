/* Conformance of slot images. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "grid/codec/kv_codec_conform_int.h"
#include "kernels/codec/kv_codec_slot.h"

/* What the index says of a slot, as a configuration. */
static kv_rc read_config(const kv_conform_case *c, const json_t *slot, kv_codec_slot_config *out, kv_err *err)
{
    const json_t *budget = json_object_get(slot, "outlier_budget_frac");
    const double fraction = json_number_value(budget);
    if (!json_is_number(budget) || !(fraction >= 0 && fraction <= 1))
        return KV_FAIL(err, KV_EFORMAT, "%s: outlier_budget_frac is no number from 0 to 1", c->name);
    memset(out, 0, sizeof *out);
    out->params = c->v.params;
    /* A published slot holds neither of these, and vectors may have such as no store takes. */
    memcpy(out->params.level, kv_codec_levels(out->params.bits), sizeof(float) << out->params.bits);
    out->params.threshold = 0;
    out->version = KV_CODEC_SLOT_PUBLISHED;
    out->n = c->v.n;
    out->budget_ppm = (int32_t)lround(fraction * KV_CODEC_PPM);
    if ((double)out->budget_ppm / KV_CODEC_PPM != fraction)
        return KV_FAIL(err, KV_EFORMAT, "%s: outlier_budget_frac %.17g is no whole number of parts per million",
                       c->name, fraction);
    out->table_tag = kv_codec_table_tag(out->params.level, out->params.bits);
    return KV_OK;
}

static void hold_skeleton(kv_conform_case *c, const kv_codec_skeleton *got)
{
    const kv_codec_params *p = &c->v.params;
    kv_conform_hold(c, "mean", KV_CODEC_AS_F16, got->mean, c->v.skeleton.mean, p->dim);
    kv_conform_hold(c, "basis", KV_CODEC_AS_F16, got->basis, c->v.skeleton.basis, (int64_t)p->dim * p->d_eff);
    kv_conform_hold(c, "centers", KV_CODEC_AS_F16, got->centers, c->v.skeleton.centers, (int64_t)p->k * p->d_eff);
}

/* The image unpacked: the skeleton and codes of the vector. */
static kv_rc hold_unpacked(kv_conform_case *c, const kv_codec_slot_config *config, const kv_buf *image, kv_err *err)
{
    kv_codec_params p = config->params;
    kv_codec_skeleton s = {0};
    kv_codec_codes codes = {0};
    kv_err why = {0};
    kv_rc rc;
    p.outliers = config->budget_ppm > 0;
    KV_TRY(rc, out, kv_codec_skeleton_new(&p, &s, err));
    KV_TRY(rc, out, kv_codec_codes_new(&p, config->n, false, &codes, err));
    if (kv_codec_slot_unpack(config, image->data, (int64_t)image->len, &s, &codes, &why) != KV_OK) {
        kv_conform_tell(c, "unpack", why.text);
        goto out;
    }
    c->without_outliers = !p.outliers;
    hold_skeleton(c, &s);
    kv_conform_hold_codes(c, &codes);
out:
    kv_codec_codes_free(&codes);
    kv_codec_skeleton_free(&s);
    return rc;
}

/* The vector packed, against the image; or against the error that is expected. */
static kv_rc hold_packed(kv_conform_case *c, const kv_codec_slot_config *config, const kv_codec_slot_layout *layout,
                         const kv_buf *image, bool overflow, kv_err *err)
{
    kv_err why = {0};
    char text[KV_CODEC_CONFORM_TEXT];
    uint8_t *bytes = kv_alloc((size_t)layout->total, 1);
    if (bytes == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a slot");
    const kv_rc rc = kv_codec_slot_pack(config, &c->v.skeleton, &c->v.want, bytes, &why);
    if (rc == KV_OK && overflow) {
        kv_conform_tell(c, "pack", "packed, want an error: the outliers do not fit");
    } else if (rc != KV_OK && !(overflow && rc == KV_EFORMAT)) {
        kv_conform_tell(c, "pack", why.text);
    } else if (!overflow && (int64_t)image->len != layout->total) {
        snprintf(text, sizeof text, "got %" PRId64 ", want %zu", layout->total, image->len);
        kv_conform_tell(c, "size", text);
    } else if (!overflow) {
        kv_conform_hold(c, "bytes", KV_CODEC_AS_U8, bytes, image->data, layout->total);
    }
    kv_free(bytes);
    return KV_OK;
}

/* What the index says of sizes and offsets. */
static void hold_layout(kv_conform_case *c, const json_t *slot, const kv_codec_slot_layout *l)
{
    const json_t *offsets = json_object_get(slot, "offsets");
    const struct {
        const char *key;
        int64_t at;
    } part[] = {{"pca_basis", l->basis},
                {"pca_mean", l->mean},
                {"kmeans_centroids", l->centers},
                {"seg_id_block", l->seg_id},
                {"t_block", l->t},
                {"norm_block", l->norm},
                {"residual_block", l->residual},
                {"outlier_side_buffer", l->counts >= 0 ? l->counts : l->total}};
    kv_conform_hold_number(c, "slot_size", l->total, json_object_get(slot, "slot_size"));
    kv_conform_hold_number(c, "max_entries", l->max_entries, json_object_get(slot, "max_entries"));
    kv_conform_hold_number(c, "total_outliers", c->v.want.outliers, json_object_get(slot, "total_outliers"));
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        kv_conform_hold_number(c, part[i].key, part[i].at, json_object_get(offsets, part[i].key));
}

kv_rc kv_conform_slot(kv_conform_case *c, const char *index, kv_err *err)
{
    const json_t *slot = json_object_get(c->entry, "slot");
    const char *expect = json_string_value(json_object_get(slot, "expect"));
    kv_codec_slot_config config;
    kv_codec_slot_layout layout;
    kv_buf image = {0};
    kv_rc rc = KV_OK;
    if (slot == NULL || json_is_null(slot)) return KV_OK;
    const bool overflow = expect != NULL && strcmp(expect, "budget_overflow_error") == 0;
    KV_TRY(rc, out, read_config(c, slot, &config, err));
    c->sum->slots++;
    kv_err why = {0};
    if (kv_codec_slot_sizes(&config, &layout, &why) != KV_OK) {
        kv_conform_tell(c, "sizes", why.text);
        goto out;
    }
    hold_layout(c, slot, &layout);
    if (!overflow) {
        KV_TRY(rc, out, kv_conform_read(c, index, slot, &image, err));
        KV_TRY(rc, out, hold_unpacked(c, &config, &image, err));
    }
    rc = hold_packed(c, &config, &layout, &image, overflow, err);
out:
    kv_buf_free(&image);
    return rc;
}
