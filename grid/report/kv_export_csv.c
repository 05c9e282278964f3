#include <inttypes.h>
#include <string.h>

#include "grid/campaign/kv_params.h"
#include "grid/report/kv_export.h"

/* Where the value of a column stands in a row; geometry fields come from the geometry that the row names. */
typedef struct {
    const char *name, *object, *inner, *key; /* object and inner may be NULL */
} column;

static const column columns[] = {
    {"check", NULL, NULL, "check"},
    {"src", NULL, NULL, "src"},
    {"dst", NULL, NULL, "dst"},
    {"geometry", NULL, NULL, "geometry"},
    {"layers", "geometry", NULL, "layers"},
    {"tokens", "geometry", NULL, "tokens"},
    {"kv_heads", "geometry", NULL, "kv_heads"},
    {"head_dim", "geometry", NULL, "head_dim"},
    {"head_dim_v", "geometry", NULL, "head_dim_v"},
    {"element", "geometry", NULL, "element"},
    {"params", NULL, NULL, "params"},
    {"verdict", NULL, NULL, "verdict"},
    {"error_class", NULL, NULL, "error_class"},
    {"frontier_code", NULL, NULL, "frontier_code"},
    {"frontier_reason", NULL, NULL, "frontier_reason"},
    {"transformations", NULL, NULL, "transformations"},
    {"same_image", NULL, NULL, "same_image"},
    {"src_native_bytes", "native_bytes", NULL, "src"},
    {"dst_native_bytes", "native_bytes", NULL, "dst"},
    {"forward_reproduces_target", "observations", NULL, "forward_reproduces_target"},
    {"roundtrip_byte_identical", "observations", NULL, "roundtrip_byte_identical"},
    {"roundtrip_diff_is_exactly_unread_padding", "observations", NULL, "roundtrip_diff_is_exactly_unread_padding"},
    {"tokens_identical", "observations", NULL, "tokens_identical"},
    {"positions_checked", "proof", NULL, "positions_checked"},
    {"source_positions_checked", "proof", NULL, "source_positions_checked"},
    {"unread_padding_positions", "proof", NULL, "unread_padding_positions"},
    {"roundtrip_diff_positions", "proof", NULL, "roundtrip_diff_positions"},
    {"conversion", "proof", "detail", "conversion"},
    {"values_preserved", "proof", "detail", "values_preserved"},
    {"worst_relative_error_ppm", "proof", "detail", "worst_relative_error_ppm"},
    /* codec */
    {"payload", "params", NULL, "payload"},
    {"stream", "params", NULL, "stream"},
    {"bits", "params", NULL, "bits"},
    {"store_agrees_with_reference", "observations", NULL, "store_agrees_with_reference"},
    {"slot_roundtrip_byte_identical", "observations", NULL, "slot_roundtrip_byte_identical"},
    {"decode_agrees_with_reference", "observations", NULL, "decode_agrees_with_reference"},
    {"rows", "proof", NULL, "rows"},
    {"encoded_rows", "proof", NULL, "encoded_rows"},
    {"blocks", "proof", NULL, "blocks"},
    {"overflow_blocks", "proof", NULL, "overflow_blocks"},
    {"outliers", "proof", NULL, "outliers"},
    {"saturated", "proof", NULL, "saturated"},
    {"relative_l2_ppm", "proof", NULL, "relative_l2_ppm"},
    {"worst_element_ppm", "proof", NULL, "worst_element_ppm"},
    {"cosine_ppm", "proof", NULL, "cosine_ppm"},
    {"ratio_ppm", "proof", NULL, "ratio_ppm"},
    /* attribution */
    {"cell", "params", NULL, "cell"},
    {"seed", "params", NULL, "seed"},
    {"identity_changes_nothing", "observations", NULL, "identity_changes_nothing"},
    {"variants_agree", "observations", NULL, "variants_agree"},
    {"logits_are_finite", "observations", NULL, "logits_are_finite"},
    {"top1_identical", "observations", NULL, "top1_identical"},
    {"base_nll_nano", "proof", NULL, "base_nll_nano"},
    {"nll_nano", "proof", NULL, "nll_nano"},
    {"ppl_change_ppm", "proof", NULL, "ppl_change_ppm"},
    {"kl_nano", "proof", NULL, "kl_nano"},
    {"top1_ppm", "proof", NULL, "top1_ppm"},
    {"k_error_ppm", "proof", NULL, "k_error_ppm"},
    {"v_error_ppm", "proof", NULL, "v_error_ppm"},
    {"accept", "proof", NULL, "accept"},
    /* tp */
    {"from", "params", NULL, "from"},
    {"send", "params", NULL, "send"},
    {"to", "params", NULL, "to"},
    {"from_stages", "params", NULL, "from_stages"},
    {"to_stages", "params", NULL, "to_stages"},
    {"ranks", "proof", NULL, "ranks"},
    {"rounds", "proof", NULL, "rounds"},
    {"wire_bytes", "proof", NULL, "wire_bytes"},
    {"wire_bytes_back", "proof", NULL, "wire_bytes_back"},
    {"least_wire_bytes", "proof", NULL, "least_wire_bytes"},
    {"least_wire_bytes_back", "proof", NULL, "least_wire_bytes_back"}};
#define N_COLUMNS (sizeof columns / sizeof columns[0])

static void put_text(kv_out *out, const char *text)
{
    if (text[strcspn(text, ",\"\r\n")] == '\0') {
        kv_out_puts(out, text);
        return;
    }
    kv_out_puts(out, "\"");
    for (; *text != '\0'; text++) {
        if (*text == '"') kv_out_puts(out, "\"");
        kv_out_bytes(out, text, 1);
    }
    kv_out_puts(out, "\"");
}

static void put_value(kv_out *out, const json_t *v)
{
    char params[KV_PARAMS_TEXT];
    if (json_is_string(v)) {
        put_text(out, json_string_value(v));
    } else if (json_is_integer(v)) {
        kv_out_printf(out, "%" PRId64, (int64_t)json_integer_value(v));
    } else if (json_is_boolean(v)) {
        kv_out_puts(out, json_is_true(v) ? "true" : "false");
    } else if (json_is_object(v)) {
        kv_params_print(v, params);
        put_text(out, params[0] == ',' ? params + 1 : params);
    } else if (json_is_array(v)) { /* words have no blanks and no commas */
        for (size_t i = 0; i < json_array_size(v); i++)
            kv_out_printf(out, "%s%s", i > 0 ? " " : "", json_string_value(json_array_get(v, i)));
    }
}

static const json_t *find(const kv_reader *r, const json_t *row, size_t geometry, const column *c)
{
    const json_t *in = row;
    if (c->object != NULL && strcmp(c->object, "geometry") == 0) {
        in = json_array_get(json_object_get(r->doc, "geometries"), geometry);
        const json_t *v = json_object_get(in, c->key);
        return v != NULL ? v : json_object_get(in, "head_dim"); /* head_dim_v where it is the same */
    }
    if (c->object != NULL) in = json_object_get(in, c->object);
    if (c->inner != NULL) in = json_object_get(in, c->inner);
    return json_object_get(in, c->key);
}

kv_rc kv_export_csv(kv_reader *r, kv_out *out, kv_err *err)
{
    for (size_t i = 0; i < N_COLUMNS; i++) kv_out_printf(out, "%s%s", i > 0 ? "," : "", columns[i].name);
    kv_out_puts(out, "\n");
    kv_reader_rewind(r);
    for (;;) {
        const json_t *row = NULL;
        kv_view v;
        const kv_rc rc = kv_reader_next(r, &row, &v, err);
        if (rc != KV_OK || row == NULL) return rc;
        for (size_t i = 0; i < N_COLUMNS; i++) {
            if (i > 0) kv_out_puts(out, ",");
            put_value(out, find(r, row, v.geometry, &columns[i]));
        }
        kv_out_puts(out, "\n");
    }
}
