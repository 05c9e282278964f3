/* Totals: observed from the rows, floors from observed, and that the hunt found something. */
#include "certs/kv_verify_int.h"

#include <stdio.h>
#include <string.h>

static int64_t bits(uint32_t set)
{
    return __builtin_popcount(set);
}

static int64_t entries(const kv_vf *v, const char *list)
{
    return (int64_t)json_array_size(json_object_get(v->doc, list));
}

static void check_observed(kv_vf *v)
{
    const json_t *observed = json_object_get(v->doc, "observed"), *verdicts = json_object_get(observed, "verdicts");
    const struct {
        const char *key;
        int64_t count;
    } counts[] = {{"rows", v->n_rows},
                  {"positions_checked", v->positions},
                  {"source_positions_checked", v->source_positions},
                  {"view_rows", v->view_rows},
                  {"same_image_rows", v->same_image_rows},
                  {"empty_rows", v->empty_rows},
                  {"words", bits(v->words)},
                  {"frontier_codes", bits(v->frontiers)},
                  {"checks", entries(v, "checks")},
                  {"controls", entries(v, "controls")},
                  {"known_limits", entries(v, "known_limits")}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        (void)kv_vf_want_int(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, kv_vf_at(v, "$.observed.%s", counts[i].key),
                             counts[i].count, json_object_get(observed, counts[i].key));
    for (int i = 0; i < KV_VERDICT_COUNT; i++) {
        const char *name = kv_verdict_name((kv_verdict)i);
        (void)kv_vf_want_int(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, kv_vf_at(v, "$.observed.verdicts.%s", name),
                             v->verdicts[i], json_object_get(verdicts, name));
    }
}

static void check_floors(kv_vf *v)
{
    const json_t *floors = json_object_get(v->doc, "floors");
    const struct {
        const char *key;
        int64_t count;
    } counts[] = {{"exact_byte", v->verdicts[KV_VERDICT_EXACT_BYTE]},
                  {"exact_token", v->verdicts[KV_VERDICT_EXACT_TOKEN]},
                  {"not_exact", v->verdicts[KV_VERDICT_NOT_EXACT]},
                  {"refused", v->verdicts[KV_VERDICT_REFUSED]},
                  {"positions_checked", v->positions},
                  {"source_positions_checked", v->source_positions},
                  {"words", bits(v->words)},
                  {"frontier_codes", bits(v->frontiers)},
                  {"checks", entries(v, "checks")},
                  {"controls", entries(v, "controls")},
                  {"known_limits", entries(v, "known_limits")}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const json_t *floor = json_object_get(floors, counts[i].key);
        const json_t *given = json_object_get(v->campaign.floors, counts[i].key);
        (void)kv_vf_want_int(v, KV_H8_FLOOR_BELOW_OBSERVATION, kv_vf_at(v, "$.floors.%s", counts[i].key),
                             counts[i].count, floor);
        if (given != NULL)
            (void)kv_vf_want_int(v, KV_H8_FLOOR_BELOW_OBSERVATION, kv_vf_at(v, "$.floors.%s", counts[i].key),
                                 json_integer_value(given), floor);
    }
}

void kv_vf_counts(kv_vf *v)
{
    check_observed(v);
    check_floors(v);
    if (v->could_be_exact && !v->claims_exact)
        kv_vf_fault(v, KV_H6_HUNT_FOUND_NOTHING, "$.rows",
                    "at least one exact row, as a cell without frontier is declared", "none");
}
