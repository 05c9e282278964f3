/* boundary: what this run did and did not do, written from its rows. */
#include <inttypes.h>
#include <stdio.h>

#include "grid/document/kv_assurance.h"
#include "grid/document/kv_doc.h"

kv_rc kv_boundary_new(const kv_campaign *c, kv_row_set rows, json_t **out, kv_err *err)
{
    kv_observed o;
    char shapes[160], positions[200], tokens[200], geometries[160], note[200], codec[240], tp[240];
    int64_t ran = 0, decoded = 0, stored = 0, studied = 0, resharded = 0, shown = 0;
    kv_observe(c, rows, &o);
    for (size_t i = 0; i < c->n_cells; i++) {
        kv_row row;
        kv_row_set_get(rows, i, &row);
        const int32_t check = c->cells[i].check;
        stored += check == KV_CHECK_CODEC && kv_row_ran(&row);
        studied += check == KV_CHECK_ATTRIBUTION && kv_row_ran(&row);
        resharded += check == KV_CHECK_TP && kv_row_ran(&row);
        shown += check == KV_CHECK_TP && row.frontier == KV_X2_HEAD_GATHER;
        if (check == KV_CHECK_CODEC || check == KV_CHECK_ATTRIBUTION) continue;
        ran += kv_row_ran(&row);
        decoded += kv_row_ran(&row) && row.observed[KV_OBS_TOKENS] == KV_TRUE;
    }
    snprintf(shapes, sizeof shapes, "The shapes of %zu declared layouts, each with its citation.", c->catalogue.n);
    snprintf(positions, sizeof positions,
             "Every native position of both sides was checked in %" PRId64 " rows: %" PRId64 " destination and %" PRId64
             " source positions.",
             ran, o.positions, o.source_positions);
    snprintf(
        tokens, sizeof tokens,
        "In %" PRId64
        " rows tokens and logits equal those of a reference that this run computed itself through the same decode.",
        decoded);
    snprintf(geometries, sizeof geometries, "Any geometry other than the %zu listed.", c->n_geometries);
    snprintf(note, sizeof note, "The %" PRId64 " refused rows are as much the result as the %" PRId64 " exact ones.",
             o.verdicts[KV_VERDICT_REFUSED], o.verdicts[KV_VERDICT_EXACT_BYTE] + o.verdicts[KV_VERDICT_EXACT_TOKEN]);
    *out = json_pack("{s:[s,s,s,s],s:[s,s,s,s],s:s}", "holds", shapes,
                     "The canonical tensor [L][KV][T][H][D] as the common meaning of all layouts.", positions, tokens,
                     "does_not_hold", "That any engine accepts these bytes.", geometries,
                     "Throughput, latency, memory or cost of any engine.", "The counts are no statement about vendors.",
                     "note", note);
    if (*out != NULL && kv_campaign_has_codec(c)) {
        snprintf(codec, sizeof codec,
                 "%" PRId64
                 " codec rows were stored and read back by a fast implementation and by a plain one, and %" PRId64
                 " attribution rows come from a small model with weights made up from a seed.",
                 stored, studied);
        json_array_append_new(json_object_get(*out, "holds"), json_string(codec));
        json_array_append_new(json_object_get(*out, "does_not_hold"),
                              json_string("That a loss measured on made-up rows or on the small model is that of any "
                                          "language model."));
    }
    if (*out != NULL && c->tp.present) {
        snprintf(tp, sizeof tp,
                 "In %" PRId64
                 " tp rows shards were moved between ranks, and each rank received what it lacked and no more; "
                 "%" PRId64 " refusals show two caches that have the same shard.",
                 resharded, shown);
        json_array_append_new(json_object_get(*out, "holds"), json_string(tp));
        json_array_append_new(
            json_object_get(*out, "does_not_hold"),
            json_string("That an engine's own transfer between tensor-parallel sizes sends these bytes."));
    }
    return *out != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for the boundary");
}
