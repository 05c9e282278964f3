/* Reference decodes: rows that decode one canonical tensor must name one reference. It depends on the geometry, the kv heads
 * held and whether they are latent rows, and on nothing else of a pair: not on its layouts, element types or tail. Of a codec
 * row it depends on the geometry and the payload, of a move on the geometry and the recipe. */
#include "certs/kv_verify_int.h"

#include <stdio.h>
#include <string.h>

/* The entry for what this row decodes; a new one where there is none yet. NULL where memory is out. */
static kv_vf_reference *find(kv_vf *v, const kv_vf_derived *d)
{
    kv_vf_references *r = &v->references;
    const kv_vf_cell *cell = d->cell;
    int64_t what[3] = {d->bound[0].first_head, d->bound[0].heads, 0};
    if (cell->check == KV_VF_PAIR) what[2] = v->layouts[cell->src].store == KV_VF_LATENT;
    if (cell->check == KV_VF_TP) {               /* all destination shards of that size */
        const kv_vf_tp_cell *c = cell->point.tp; /* and, with stages, of that split */
        const bool pages = c->recipe < KV_VF_RECIPE_COUNT;
        what[0] = c->to;
        what[1] = c->split[1] != NULL ? 1 + (c->split[1] - v->campaign.tp.split) : 0;
        what[2] = pages ? 2 + c->recipe : v->layouts[c->src].store == KV_VF_LATENT;
    }
    if (cell->check == KV_VF_CODEC) what[0] = cell->point.value;
    if (cell->check == KV_VF_MOVE) what[0] = (int64_t)cell->point.recipe;
    if (r->geometry != cell->geometry || r->check != cell->check) r->n = 0; /* rows come by check and geometry */
    r->geometry = cell->geometry;
    r->check = cell->check;
    for (size_t i = 0; i < r->n; i++)
        if (memcmp(r->entry[i].what, what, sizeof what) == 0) return &r->entry[i];
    if (r->n == r->room) {
        const size_t room = r->room > 0 ? 2 * r->room : 4;
        kv_vf_reference *grown = kv_realloc(r->entry, room, sizeof *grown);
        if (grown == NULL) {
            kv_vf_no_memory(v);
            return NULL;
        }
        r->entry = grown;
        r->room = room;
    }
    kv_vf_reference *e = &r->entry[r->n++];
    *e = (kv_vf_reference){.what = {what[0], what[1], what[2]}};
    return e;
}

static void differs(kv_vf *v, size_t i, const char *key, size_t first, const json_t *value)
{
    char expected[64], actual[KV_VF_TEXT];
    snprintf(expected, sizeof expected, "the reference of row %zu, which decodes the same", first);
    kv_vf_fault(v, KV_H13_TOKEN_CLAIM_WITHOUT_A_DECODE, kv_vf_at(v, "$.rows[%zu].proof.%s", i, key), expected,
                kv_vf_show(value, actual));
}

void kv_vf_reference_check(kv_vf *v, const kv_vf_derived *d)
{
    const json_t *proof = json_object_get(d->row, "proof");
    const size_t i = d->i;
    const json_t *tokens = json_object_get(proof, "reference_tokens");
    const json_t *digest = json_object_get(proof, "reference_logits_digest");
    const bool has_tokens = kv_vf_tokens_good(tokens), has_digest = kv_vf_digest_good(digest);
    kv_vf_reference *e = has_tokens || has_digest ? find(v, d) : NULL;
    if (e == NULL) return; /* what is there but not well-formed is a fault of its own */
    if (has_tokens && !e->has_tokens) {
        for (size_t t = 0; t < KV_CERT_DECODE_STEPS; t++)
            e->tokens[t] = (uint8_t)json_integer_value(json_array_get(tokens, t));
        e->has_tokens = true;
        e->tokens_row = i;
    }
    if (has_digest && !e->has_digest) {
        memcpy(e->digest, json_string_value(digest), sizeof e->digest);
        e->has_digest = true;
        e->digest_row = i;
    }
    for (size_t t = 0; has_tokens && t < KV_CERT_DECODE_STEPS; t++)
        if (json_integer_value(json_array_get(tokens, t)) != e->tokens[t]) {
            differs(v, i, "reference_tokens", e->tokens_row, tokens);
            break;
        }
    if (has_digest && strcmp(json_string_value(digest), e->digest) != 0)
        differs(v, i, "reference_logits_digest", e->digest_row, digest);
}
