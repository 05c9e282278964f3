/* boundary: the lines that follow from this campaign and its rows, word by word (docs/certificate.md, "Boundary"). */
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LINE 256
#define LINES 4 /* of each list; one more where the codec's rows are, and where those of tp are */

static void check_list(kv_vf *v, const char *key, const char *const *lines, size_t n)
{
    const json_t *list = json_object_get(json_object_get(v->doc, "boundary"), key);
    const size_t listed = json_array_size(list);
    for (size_t i = 0; i < n || i < listed; i++) {
        const char *said = i < listed ? json_string_value(json_array_get(list, i)) : "missing";
        if (i < n && i < listed && strcmp(said, lines[i]) == 0) continue;
        kv_vf_fault(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, kv_vf_at(v, "$.boundary.%s[%zu]", key, i),
                    i < n ? lines[i] : "no further line", said);
        return; /* one line more or less would make all that follow differ */
    }
}

void kv_vf_boundary(kv_vf *v)
{
    char shapes[LINE], positions[LINE], tokens[LINE], geometries[LINE], note[LINE], codec[LINE], tp[LINE];
    const bool has_codec = v->campaign.codec.present || v->campaign.study.present;
    const bool has_tp = v->campaign.tp.present;
    const char *holds[] = {shapes,    "The canonical tensor [L][KV][T][H][D] as the common meaning of all layouts.",
                           positions, tokens,
                           codec,     tp};
    const char * not [] = {"That any engine accepts these bytes.",
                           geometries,
                           "Throughput, latency, memory or cost of any engine.",
                           "The counts are no statement about vendors.",
                           "That a loss measured on made-up rows or on the small model is that of any language "
                           "model.",
                           "That an engine's own transfer between tensor-parallel sizes sends these bytes."};
    snprintf(shapes, LINE, "The shapes of %zu declared layouts, each with its citation.", v->n_layouts);
    snprintf(positions, LINE,
             "Every native position of both sides was checked in %" PRId64 " rows: %" PRId64 " destination and %" PRId64
             " source positions.",
             v->seen.ran, v->positions, v->source_positions);
    snprintf(tokens, LINE,
             "In %" PRId64 " rows tokens and logits equal those of a reference that this run computed itself through "
             "the same decode.",
             v->seen.decoded);
    snprintf(codec, LINE,
             "%" PRId64
             " codec rows were stored and read back by a fast implementation and by a plain one, and %" PRId64
             " attribution rows come from a small model with weights made up from a seed.",
             v->seen.stored, v->seen.studied);
    snprintf(geometries, LINE, "Any geometry other than the %zu listed.", v->n_geometries);
    snprintf(note, LINE, "The %" PRId64 " refused rows are as much the result as the %" PRId64 " exact ones.",
             v->verdicts[KV_VERDICT_REFUSED], v->verdicts[KV_VERDICT_EXACT_BYTE] + v->verdicts[KV_VERDICT_EXACT_TOKEN]);
    snprintf(tp, LINE,
             "In %" PRId64
             " tp rows shards were moved between ranks, and each rank received what it lacked and no more; "
             "%" PRId64 " refusals show two caches that have the same shard.",
             v->seen.resharded, v->seen.shown);
    if (!has_codec) { /* its lines are not there, those of tp follow at once */
        holds[LINES] = holds[LINES + 1];
        not [LINES] = not [LINES + 1];
    }
    check_list(v, "holds", holds, (size_t)LINES + has_codec + has_tp);
    check_list(v, "does_not_hold", not, (size_t)LINES + has_codec + has_tp);
    (void)kv_vf_want_text(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, "$.boundary.note", note,
                          json_object_get(json_object_get(v->doc, "boundary"), "note"));
}
