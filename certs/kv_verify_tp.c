/* The rows of check tp: sizes, the least that must travel, the witness of X2 (docs/tp-rows.md). */
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what it derives -------------------------------------------------------------------------- */

/* Heads of a shard of size s, where it exists: a slice, or a copy of one. */
static int64_t shard_heads(int64_t heads, int64_t s)
{
    return heads >= s ? heads / s : 1;
}

/* Heads that rank dst of size `to` holds and rank src of size `from` does not; src outside its size holds none. */
static int64_t lacking(int64_t heads, int64_t from, int64_t src, int64_t to, int64_t dst)
{
    const int64_t n[2] = {shard_heads(heads, from), shard_heads(heads, to)}, size[2] = {from, to}, rank[2] = {src, dst};
    int64_t first[2];
    if (src < 0 || src >= from) return n[1];
    for (int i = 0; i < 2; i++) first[i] = heads >= size[i] ? rank[i] * n[i] : rank[i] / (size[i] / heads);
    const int64_t begin = first[0] > first[1] ? first[0] : first[1];
    const int64_t end = first[0] + n[0] < first[1] + n[1] ? first[0] + n[0] : first[1] + n[1];
    return n[1] - (end > begin ? end - begin : 0);
}

/* The pages that chunk after chunk completes: rounds with something to send. */
static int64_t rounds_of(const kv_vf *v, const kv_vf_layout *src, const kv_vf_geometry *g, int send, int64_t unit)
{
    const int64_t chunk = v->campaign.tp.chunk, block = src->block > 0 ? src->block : 1;
    if (send == KV_VF_SEND_LAYERS) return unit;
    if (send != KV_VF_SEND_CHUNKS) return 1;
    if (g->tokens == 0) return 0;
    if (chunk >= block) return (g->tokens - 1) / chunk + 1;
    /* chunks are smaller than a page: one round a page that a chunk completes before the last chunk, and the last */
    const int64_t before = (g->tokens - 1) / chunk * chunk;
    return before / block + 1;
}

/* Sealed pages: what the last tokens leave open is not sent at all. There is at least one. */
static int64_t sealed_rounds(const kv_vf *v, const kv_vf_geometry *g, int send, int64_t blocks)
{
    const int64_t chunk = v->campaign.tp.chunk, block = v->campaign.tp.block, before = (g->tokens - 1) / chunk;
    if (send != KV_VF_SEND_CHUNKS) return 1;
    return chunk <= block ? blocks : before + (blocks > before * chunk / block);
}

static void size_bound(kv_vf_bound *b, int64_t shards)
{
    if (!b->exists || b->too_large) return;
    if (b->native > KV_VF_TOO_LARGE / shards) {
        b->too_large = true;
        return;
    }
    b->native *= shards;
    b->elements *= shards;
}

/* What the two sides are, each as rank 0's shard (d->bound) and as a whole. */
typedef struct {
    kv_vf_bound whole[2];
    bool latent_and_not;
    int64_t lanes, element; /* of one head of one token on the wire (sealed pages: of one page), and bytes of each */
    int64_t rows;           /* tokens (pages) */
} sides;

static void of_layouts(const kv_vf *v, kv_vf_derived *d, sides *s)
{
    const kv_vf_tp_cell *c = d->cell->point.tp;
    const kv_vf_layout *whole[2] = {&v->layouts[c->src], &v->layouts[c->dst]};
    kv_vf_layout side[2] = {*whole[0], *whole[1]};
    const bool latent[2] = {whole[0]->store == KV_VF_LATENT, whole[1]->store == KV_VF_LATENT};
    const int64_t unit = kv_vf_unit_layers(whole[0], whole[1], d->g);
    side[0].tp_size = c->from;
    side[1].tp_size = c->to;
    for (int i = 0; i < 2; i++) {
        kv_vf_bind(whole[i], d->g, unit, &s->whole[i]);
        kv_vf_bind(&side[i], d->g, unit, &d->bound[i]);
    }
    s->latent_and_not = whole[0]->mla != whole[1]->mla || latent[0] != latent[1];
    d->tp.heads = latent[0] ? 1 : d->g->heads;
    d->tp.rounds = rounds_of(v, whole[0], d->g, c->send, unit);
    d->payloads = kv_vf_payloads(v, d->g);
    const int64_t a = kv_vf_element_bytes(d->bound[0].element), b = kv_vf_element_bytes(d->bound[1].element);
    s->lanes = d->g->dim + (latent[0] ? 0 : d->g->dim_v);
    s->element = a < b ? a : b;
    s->rows = d->g->tokens;
}

/* False where the sizes are more than a document can say. */
static bool of_pages(const kv_vf *v, kv_vf_derived *d, sides *s)
{
    const kv_vf_tp_cell *c = d->cell->point.tp;
    const kv_vf_geometry *g = d->g;
    int64_t blocks = 0, page = 0, head = 0, all = 0;
    const bool exists = kv_vf_sealed_page((kv_vf_recipe)c->recipe, g, v->campaign.tp.block, &blocks, &page);
    if (exists && (!kv_mul_i64(blocks, page, &head) || !kv_mul_i64(head, g->heads, &all) ||
                   !kv_mul_i64(all, g->layers, &all) || all >= KV_VF_TOO_LARGE / 64))
        return false;
    for (int i = 0; i < 2; i++) {
        const int64_t size = i == 0 ? c->from : c->to;
        const bool shard = g->heads % size == 0 || size % g->heads == 0;
        const int64_t heads = shard ? shard_heads(g->heads, size) : 0;
        d->bound[i] = (kv_vf_bound){.shard = shard,
                                    .exists = shard && exists,
                                    .heads = heads,
                                    .element = KV_VF_FP8,
                                    .unit_layers = 1,
                                    .native = heads * head,
                                    .elements = heads * head};
        s->whole[i] = d->bound[i];
        s->whole[i].heads = g->heads;
        s->whole[i].native = s->whole[i].elements = g->heads * head;
    }
    d->tp.heads = g->heads;
    d->tp.rounds = exists ? sealed_rounds(v, g, c->send, blocks) : 0;
    d->payloads = KV_CERT_PAYLOADS;
    s->lanes = page;
    s->element = 1;
    s->rows = blocks;
    return true;
}

static kv_word_set words_of(const kv_vf *v, const kv_vf_derived *d, const sides *s, bool moves)
{
    const kv_vf_tp_cell *c = d->cell->point.tp;
    const kv_vf_tp_size *z = &d->tp;
    kv_word_set words = KV_WORD_BIT(KV_WORD_VIEW_REINTERPRET);
    if (c->recipe == KV_VF_RECIPE_COUNT)
        words = kv_vf_words(&v->layouts[c->src], &v->layouts[c->dst], d->g, &s->whole[0], &s->whole[1]);
    const kv_word_set more =
        (shard_heads(z->heads, z->from) != shard_heads(z->heads, c->to) ? KV_WORD_BIT(KV_WORD_TP_RESHARD) : 0) |
        (c->to > z->heads ? KV_WORD_BIT(KV_WORD_HEAD_REPLICATE) : 0) |
        (z->from > z->heads ? KV_WORD_BIT(KV_WORD_HEAD_DEDUPE) : 0) | (moves ? KV_WORD_BIT(KV_WORD_PP_RESHARD) : 0);
    if (more != 0) words &= ~KV_WORD_BIT(KV_WORD_VIEW_REINTERPRET);
    return words | more;
}

/* ---- pipeline stages ---------------------------------------------------------------------------- */

/* The stage of each layer, from 0; false where the split does not hold every layer of the model once, or some other. */
static bool stages_of(const kv_vf_split *s, int64_t layers, uint8_t *stage)
{
    int64_t named = 0;
    memset(stage, 0xFF, (size_t)layers);
    for (int64_t i = 0; s->list == NULL && i < s->stages && s->stages <= layers; i++)
        for (int64_t l = i * layers / s->stages; l < (i + 1) * layers / s->stages; l++, named++) stage[l] = (uint8_t)i;
    for (size_t i = 0; i < json_array_size(s->list); i++)
        for (size_t k = 0; k < json_array_size(json_array_get(s->list, i)); k++, named++) {
            const int64_t l = json_integer_value(json_array_get(json_array_get(s->list, i), k));
            if (l >= layers) return false;
            stage[l] = (uint8_t)i;
        }
    return named == layers;
}

/* Heads that all ranks lack of a layer that goes from stage `from` of one side to stage `to` of the other. */
static int64_t lacking_between(int64_t heads, int64_t p, int64_t from, int64_t q, int64_t to)
{
    int64_t lacks = 0;
    for (int64_t r = 0; r < q; r++) lacks += lacking(heads, p, to * q + r - from * p, q, r);
    return lacks;
}

/* Heads of all layers that travel there and back, and whether a layer changes its stage. False where memory is out or a side
 * does not hold the layers of the model (*fits). */
static bool count_stages(kv_vf *v, const kv_vf_derived *d, int64_t travel[2], bool *fits, bool *moves)
{
    const kv_vf_tp_cell *c = d->cell->point.tp;
    const int64_t layers = d->g->layers, heads = d->tp.heads;
    uint8_t *stage = kv_alloc((size_t)layers, 2);
    if (stage == NULL) {
        kv_vf_no_memory(v);
        return false;
    }
    int64_t between[64][64] = {{0}};
    *fits = stages_of(c->split[0], layers, stage) && stages_of(c->split[1], layers, stage + layers);
    *moves = false;
    for (int64_t l = 0; *fits && l < layers; l++) {
        between[stage[l]][stage[layers + l]]++;
        *moves = *moves || stage[l] != stage[layers + l];
    }
    kv_free(stage);
    travel[0] = travel[1] = 0;
    for (int64_t a = 0; a < c->split[0]->stages; a++)
        for (int64_t b = 0; b < c->split[1]->stages; b++) {
            if (between[a][b] == 0) continue;
            travel[0] += between[a][b] * lacking_between(heads, c->from, a, c->to, b);
            travel[1] += between[a][b] * lacking_between(heads, c->to, b, c->from, a);
        }
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------------ */

/* Frontier, words and images; sizes are those of all shards of a side (of one stage) together. */
bool kv_vf_tp_derive(kv_vf *v, kv_vf_derived *d)
{
    const kv_vf_tp_cell *c = d->cell->point.tp;
    kv_vf_tp_size *z = &d->tp;
    sides s = {.latent_and_not = false};
    int64_t travel[2];
    bool fits = true, moves = false;
    if (c->recipe == KV_VF_RECIPE_COUNT)
        of_layouts(v, d, &s);
    else if (!of_pages(v, d, &s))
        return false;
    z->from = c->from;
    z->one = d->bound[0];
    z->whole = s.whole[1];
    const bool shards = d->bound[0].shard && d->bound[1].shard;
    const bool part = shards && c->send == KV_VF_SEND_SHARD && shard_heads(z->heads, c->from) != z->heads;
    if (shards && c->split[0] != NULL && !count_stages(v, d, travel, &fits, &moves)) return true;
    if (s.latent_and_not)
        d->frontier = KV_FRONTIER_X1;
    else if (!d->bound[0].exists || !d->bound[1].exists || !fits)
        d->frontier = KV_FRONTIER_X4;
    else if (part)
        d->frontier = KV_FRONTIER_X2;
    if (d->frontier == KV_FRONTIER_X1 || !shards || part) return !z->whole.too_large;
    if (c->send == KV_VF_SEND_SHARD) z->from = 1;
    d->words = words_of(v, d, &s, moves);
    if (d->frontier != KV_FRONTIER_NONE) return true;
    size_bound(&d->bound[0], z->from);
    size_bound(&d->bound[1], c->to);
    if (d->bound[0].too_large || d->bound[1].too_large) return false;
    const int64_t ranks[2] = {z->from * (c->split[0] != NULL ? c->split[0]->stages : 1),
                              c->to * (c->split[1] != NULL ? c->split[1]->stages : 1)};
    z->ranks = ranks[0] > ranks[1] ? ranks[0] : ranks[1];
    if (c->split[0] == NULL) {
        travel[0] = lacking_between(z->heads, z->from, 0, c->to, 0) * d->g->layers;
        travel[1] = lacking_between(z->heads, c->to, 0, z->from, 0) * d->g->layers;
    }
    for (int back = 0; back < 2; back++) { /* heads into bytes */
        const int64_t factor[] = {s.rows, s.lanes, s.element};
        for (size_t k = 0; k < sizeof factor / sizeof *factor; k++)
            if (!kv_mul_i64(travel[back], factor[k], &travel[back])) return false;
        if (travel[back] >= KV_VF_TOO_LARGE) return false;
        z->least[back] = travel[back];
    }
    return true;
}

/* ---- the proof -------------------------------------------------------------------------------- */

void kv_vf_tp_proof(kv_vf *v, const kv_vf_derived *d, bool unproven)
{
    static const char *const keys[] = {"rounds", "wire_bytes", "least_wire_bytes", "wire_bytes_back",
                                       "least_wire_bytes_back"};
    const json_t *proof = json_object_get(d->row, "proof"), *minimal = json_object_get(proof, "wire_minimal");
    const kv_vf_tp_size *z = &d->tp;
    const int64_t number[] = {z->rounds, z->least[0], z->least[0], z->least[1], z->least[1]};
    const kv_hcode h4 = KV_H4_PROOF_NOT_EXHAUSTIVE;
    if (kv_vf_present(v, d, "ranks", false))
        (void)kv_vf_want_int(v, h4, kv_vf_at(v, "$.rows[%zu].proof.ranks", d->i), z->ranks,
                             json_object_get(proof, "ranks"));
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (kv_vf_present(v, d, keys[k], unproven))
            (void)kv_vf_want_int(v, h4, kv_vf_at(v, "$.rows[%zu].proof.%s", d->i, keys[k]), number[k],
                                 json_object_get(proof, keys[k]));
    if (kv_vf_present(v, d, "wire_minimal", unproven))
        (void)kv_vf_want_bool(v, h4, kv_vf_at(v, "$.rows[%zu].proof.wire_minimal", d->i), true, minimal);
    (void)kv_vf_want_null(v, KV_H3_PROOF_MISSING, kv_vf_at(v, "$.rows[%zu].proof.witness", d->i),
                          json_object_get(proof, "witness"));
}

/* Two whole caches with one and the same shard: only a refusal with X2 has it. */
void kv_vf_tp_witness(kv_vf *v, const kv_vf_derived *d)
{
    static const char *const keys[] = {"shard_heads", "heads", "whole_positions", "shard_positions", "shard_differs"};
    const json_t *w = json_object_get(json_object_get(d->row, "proof"), "witness");
    const kv_vf_tp_size *z = &d->tp;
    const char *path = kv_vf_at(v, "$.rows[%zu].proof.witness", d->i);
    char actual[KV_VF_TEXT];
    if (d->frontier != KV_FRONTIER_X2) {
        (void)kv_vf_want_null(v, KV_H3_PROOF_MISSING, path, w);
        return;
    }
    if (!json_is_object(w)) {
        kv_vf_fault(v, KV_H3_PROOF_MISSING, path, "two caches that have the same shard", kv_vf_show(w, actual));
        return;
    }
    const int64_t number[] = {z->one.heads, z->heads, z->whole.native, z->one.native, 0};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        (void)kv_vf_want_int(v, KV_H4_PROOF_NOT_EXHAUSTIVE, kv_vf_at(v, "$.rows[%zu].proof.witness.%s", d->i, keys[k]),
                             number[k], json_object_get(w, keys[k]));
    const int64_t differs = kv_vf_number(w, "whole_differs");
    /* the shard's own heads do not differ */
    if (differs > z->whole.elements - z->whole.elements / z->heads * z->one.heads || (differs == 0 && d->g->tokens > 0))
        kv_vf_fault(v, KV_H4_PROOF_NOT_EXHAUSTIVE, kv_vf_at(v, "$.rows[%zu].proof.witness.whole_differs", d->i),
                    "positions of the heads that the shard lacks",
                    kv_vf_show(json_object_get(w, "whole_differs"), actual));
}
