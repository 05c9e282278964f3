/* Rows that cost nothing: a function of the cell alone, every field in its range. */
#include <stdio.h>
#include <string.h>

#include "grid/sim/kv_sim_int.h"

static void digest(kv_sim_chance *c, char out[KV_HASH_HEX])
{
    for (int i = 0; i < 4; i++) snprintf(out + 16 * i, 17, "%016llx", (unsigned long long)kv_sim_draw(c));
}

static int64_t number(kv_sim_chance *c)
{
    return (int64_t)(kv_sim_draw(c) >> (12 + kv_sim_below(c, 50)));
}

void kv_sim_row(uint64_t salt, int64_t cell, kv_row *r)
{
    static const kv_verdict verdicts[] = {KV_VERDICT_EXACT_BYTE, KV_VERDICT_EXACT_TOKEN, KV_VERDICT_NOT_EXACT,
                                          KV_VERDICT_REFUSED};
    kv_sim_chance c = {salt ^ ((uint64_t)cell * 0xD1342543DE82EF95u)};
    memset(r, 0, sizeof *r);
    r->cell = cell;
    r->verdict = (int32_t)verdicts[kv_sim_below(&c, 4)];
    r->error_class = -1;
    r->ran = r->verdict != KV_VERDICT_REFUSED;
    r->words = (uint32_t)kv_sim_below(&c, (uint64_t)1 << KV_W_COUNT);
    for (int i = 0; i < KV_OBS_COUNT; i++) r->observed[i] = (int32_t)kv_sim_below(&c, 3);
    int64_t *const wide[] = {&r->native_bytes[0], &r->native_bytes[1], &r->unit_layers,    &r->layers,
                             &r->checked,         &r->total,           &r->source_checked, &r->source_total,
                             &r->diff_positions,  &r->worst_ppm};
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) *wide[i] = number(&c);
    for (int i = 0; i < KV_DECODE_STEPS; i++)
        r->decoded[i] = r->reference[i] = (int32_t)kv_sim_below(&c, KV_VOCABULARY);
    digest(&c, r->logits_digest);
    digest(&c, r->reference_digest);
    if (!r->ran) snprintf(r->reason, sizeof r->reason, "cell %lld does not fit", (long long)cell);
}
