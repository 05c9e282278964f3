/* campaign.spec.tp and the rows of check tp: cells, sizes, the least that must travel, the witness of X2 (docs/tp-rows.md). */
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS, LAYERS, SHARD, WHOLE, SENDS };
static const char *const sends[SENDS] = {"chunks", "layers", "shard", "whole"};
static const kv_vf_names send_names = {sends, SENDS};

#define SIZE_MOST 64
#define CELLS_MOST 32768

/* ---- the section ----------------------------------------------------------------------------- */

static bool malformed(kv_vf *v, const char *key, const char *expected, const json_t *value)
{
    char actual[KV_VF_TEXT];
    kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, kv_vf_at(v, "$.campaign.spec.tp.%.64s", key), expected,
                kv_vf_show(value, actual));
    return false;
}

/* Index of a layout that is no shard itself, or n_layouts. */
static size_t find_layout(const kv_vf *v, const json_t *name)
{
    const size_t at = json_is_string(name) ? kv_vf_find(v, json_string_value(name)) : v->n_layouts;
    return at < v->n_layouts && v->layouts[at].tp_size == 1 ? at : v->n_layouts;
}

static bool read_sends(kv_vf *v, const json_t *list, bool send[SENDS])
{
    for (int i = 0; i < SENDS; i++) send[i] = list == NULL && i == WHOLE;
    if (list == NULL) return true;
    bool good = json_array_size(list) > 0;
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        const int at = kv_vf_name_find(send_names, json_string_value(json_array_get(list, i)));
        good = at < SENDS && !send[at];
        if (good) send[at] = true;
    }
    return good || malformed(v, "sends", "a list of names that are known here, each once", list);
}

static bool read_sizes(kv_vf *v, const json_t *list, int64_t size[SIZE_MOST], size_t *n)
{
    *n = json_array_size(list);
    bool good = *n >= 1 && *n <= SIZE_MOST;
    for (size_t i = 0; good && i < *n; i++) {
        size[i] = json_integer_value(json_array_get(list, i)); /* 0 for what is no number */
        good = size[i] >= 1 && size[i] <= SIZE_MOST;
        for (size_t k = 0; good && k < i; k++) good = size[k] != size[i];
    }
    if (!good) *n = 0;
    return good || malformed(v, "sizes", "a list of different numbers from 1 to 64", list);
}

static bool read_stored(kv_vf *v, const json_t *stored)
{
    const char *key;
    json_t *value;
    bool good = stored == NULL || (json_is_object(stored) && json_object_size(stored) > 0);
    json_object_foreach((json_t *)(uintptr_t)stored, key, value)
    {
        const size_t at = kv_vf_find(v, key);
        good = good && at < v->n_layouts && v->layouts[at].tp_size == 1 && find_layout(v, value) < v->n_layouts;
    }
    return good || malformed(v, "stored", "layouts by the names of layouts", stored);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const kv_vf_tp_cell *)a)->key, ((const kv_vf_tp_cell *)b)->key);
}

/* The texts that order rows, so that the order of these keys is that of rows: a newline comes before every name's bytes. */
static void make_key(char key[KV_VF_TP_KEY], const char *pair_id, const char *from, const char *send, const char *to)
{
    snprintf(key, KV_VF_TP_KEY, "%s\n%s\n%s\n%s", pair_id, from, send, to);
}

static bool add_cell(kv_vf *v, size_t src, size_t dst, int64_t from, int64_t to, int send)
{
    kv_vf_tp_section *s = &v->campaign.tp;
    char id[2 * 64 + 3], texts[2][24];
    if (send == SHARD ? from == 1 || to != 1 : src == dst && from == to) return true;
    if (s->n == s->room) {
        const size_t room = s->room > 0 ? 2 * s->room : 64;
        kv_vf_tp_cell *grown = room <= 2 * CELLS_MOST ? kv_realloc(s->cell, room, sizeof *grown) : NULL;
        if (grown == NULL) return false;
        s->cell = grown;
        s->room = room;
    }
    kv_vf_tp_cell *c = &s->cell[s->n++];
    *c = (kv_vf_tp_cell){.src = src, .dst = dst, .from = from, .to = to, .send = send};
    snprintf(id, sizeof id, "%.64s->%.64s", v->layouts[src].name, v->layouts[dst].name);
    snprintf(texts[0], sizeof texts[0], "%" PRId64, from);
    snprintf(texts[1], sizeof texts[1], "%" PRId64, to);
    make_key(c->key, id, texts[0], sends[send], texts[1]);
    return true;
}

/* All cells of a pair. */
static bool add_pair(kv_vf *v, size_t src, size_t dst, const int64_t *size, size_t n, const bool send[SENDS])
{
    for (size_t f = 0; f < n; f++)
        for (size_t t = 0; t < n; t++)
            for (int k = 0; k < SENDS; k++)
                if (send[k] && !add_cell(v, src, dst, size[f], size[t], k)) return false;
    return true;
}

static bool read_pairs(kv_vf *v, const json_t *pairs, const int64_t *size, size_t n, const bool send[SENDS])
{
    const char *word = json_string_value(pairs);
    const bool every = word != NULL && strcmp(word, "all-ordered") == 0;
    bool good = every || json_array_size(pairs) > 0, room = true;
    for (size_t a = 0; every && room && a < v->n_layouts; a++)
        for (size_t b = 0; room && b < v->n_layouts; b++)
            if (v->layouts[a].tp_size == 1 && v->layouts[b].tp_size == 1) room = add_pair(v, a, b, size, n, send);
    for (size_t i = 0; !every && good && room && i < json_array_size(pairs); i++) {
        const json_t *p = json_array_get(pairs, i);
        const size_t a = find_layout(v, json_array_get(p, 0)), b = find_layout(v, json_array_get(p, 1));
        good = json_array_size(p) == 2 && a < v->n_layouts && b < v->n_layouts;
        for (size_t k = 0; good && k < i; k++) good = !json_equal(json_array_get(pairs, k), p);
        room = !good || add_pair(v, a, b, size, n, send);
    }
    if (!room) return malformed(v, "pairs", "at most 32768 cells a geometry", NULL);
    return good || malformed(v, "pairs", "all-ordered, or pairs of layouts that are no shards, each once", pairs);
}

static bool every_send_used(kv_vf *v, const bool send[SENDS], const json_t *list)
{
    const kv_vf_tp_section *s = &v->campaign.tp;
    for (int k = 0; k < SENDS; k++) {
        bool found = !send[k];
        for (size_t i = 0; !found && i < s->n; i++) found = s->cell[i].send == k;
        if (!found) return malformed(v, "sends", "ways that a cell is sent in", list);
    }
    return true;
}

bool kv_vf_tp_section_read(kv_vf *v, const json_t *o)
{
    static const char *const keys[] = {"pairs", "sizes", "sends", "chunk", "stored"};
    kv_vf_tp_section *s = &v->campaign.tp;
    const char *key;
    json_t *value;
    int64_t size[SIZE_MOST];
    bool send[SENDS];
    size_t n = 0;
    if (o == NULL) return true;
    s->present = true;
    s->chunk = 16;
    if (!json_is_object(o)) return malformed(v, "", "an object", o);
    bool good = true;
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        size_t k = 0;
        while (k < sizeof keys / sizeof *keys && strcmp(keys[k], key) != 0) k++;
        if (k == sizeof keys / sizeof *keys) good = malformed(v, key, "no such key", value);
    }
    good = read_sends(v, json_object_get(o, "sends"), send) && good;
    good = read_sizes(v, json_object_get(o, "sizes"), size, &n) && good;
    good = read_stored(v, json_object_get(o, "stored")) && good;
    const json_t *chunk = json_object_get(o, "chunk");
    if (chunk != NULL) s->chunk = json_integer_value(chunk);
    if (chunk != NULL && (!send[CHUNKS] || !json_is_integer(chunk) || s->chunk < 1 || s->chunk > (int64_t)1 << 40))
        good = malformed(v, "chunk", "a number of tokens, where chunks are sent", chunk);
    good = good && read_pairs(v, json_object_get(o, "pairs"), size, n, send);
    good = good && every_send_used(v, send, json_object_get(o, "sends"));
    if (s->n > CELLS_MOST) good = malformed(v, "pairs", "at most 32768 cells a geometry", NULL);
    if (s->n > 1) qsort(s->cell, s->n, sizeof *s->cell, by_key);
    return good;
}

/* ---- the cell of a row ------------------------------------------------------------------------ */

uint32_t kv_vf_tp_find(const kv_vf *v, const json_t *row, kv_vf_point *p)
{
    const kv_vf_tp_section *s = &v->campaign.tp;
    const json_t *params = json_object_get(row, "params");
    const char *from = kv_vf_string(params, "from"), *send = kv_vf_string(params, "send"),
               *to = kv_vf_string(params, "to");
    const char *src = kv_vf_string(row, "src"), *dst = kv_vf_string(row, "dst");
    char id[2 * 64 + 3];
    kv_vf_tp_cell key;
    if (json_object_size(params) != 3 || from == NULL || send == NULL || to == NULL || s->n == 0) return 0;
    if (strlen(src) > 64 || strlen(dst) > 64 || strlen(from) > 8 || strlen(send) > 8 || strlen(to) > 8) return 0;
    snprintf(id, sizeof id, "%s->%s", src, dst);
    make_key(key.key, id, from, send, to);
    const kv_vf_tp_cell *found = bsearch(&key, s->cell, s->n, sizeof key, by_key);
    if (found == NULL || strcmp(v->layouts[found->src].name, src) != 0) return 0;
    p->tp = found;
    return (uint32_t)(found - s->cell) + 1;
}

const char *kv_vf_tp_name(const kv_vf *v, uint64_t place)
{
    return v->campaign.tp.cell[place].key;
}

/* ---- what it derives -------------------------------------------------------------------------- */

/* Heads of a shard of size s, where it exists: a slice, or a copy of one. */
static int64_t shard_heads(int64_t heads, int64_t s)
{
    return heads >= s ? heads / s : 1;
}

/* Heads that rank r of the destination size holds and does not hold as rank r of the source size. */
static int64_t lacking(int64_t heads, int64_t from, int64_t to, int64_t r)
{
    const int64_t n[2] = {shard_heads(heads, from), shard_heads(heads, to)}, size[2] = {from, to};
    int64_t first[2], lacks = 0;
    if (r >= to) return 0;
    for (int i = 0; i < 2; i++) first[i] = heads >= size[i] ? r * n[i] : r / (size[i] / heads);
    for (int64_t h = first[1]; h < first[1] + n[1]; h++)
        if (r >= from || h < first[0] || h >= first[0] + n[0]) lacks++;
    return lacks;
}

/* The pages that chunk after chunk completes: rounds with something to send. */
static int64_t rounds_of(const kv_vf *v, const kv_vf_layout *src, const kv_vf_geometry *g, int send, int64_t unit)
{
    const int64_t chunk = v->campaign.tp.chunk, block = src->block > 0 ? src->block : 1;
    if (send == LAYERS) return unit;
    if (send != CHUNKS) return 1;
    if (g->tokens == 0) return 0;
    if (chunk >= block) return (g->tokens - 1) / chunk + 1;
    /* chunks are smaller than a page: one round a page that a chunk completes before the last chunk, and the last */
    const int64_t before = (g->tokens - 1) / chunk * chunk;
    return before / block + 1;
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

/* Frontier, words and images; sizes are those of all shards of a side together. */
bool kv_vf_tp_derive(const kv_vf *v, kv_vf_derived *d)
{
    const kv_vf_tp_cell *c = d->cell->point.tp;
    const kv_vf_layout *whole[2] = {&v->layouts[c->src], &v->layouts[c->dst]};
    kv_vf_layout side[2] = {*whole[0], *whole[1]};
    kv_vf_bound full[2];
    kv_vf_tp_size *z = &d->tp;
    const int64_t unit = kv_vf_unit_layers(whole[0], whole[1], d->g);
    side[0].tp_size = c->from;
    side[1].tp_size = c->to;
    for (int i = 0; i < 2; i++) {
        kv_vf_bind(whole[i], d->g, unit, &full[i]);
        kv_vf_bind(&side[i], d->g, unit, &d->bound[i]);
    }
    z->heads = whole[0]->store == KV_VF_LATENT ? 1 : d->g->heads;
    z->from = c->from;
    z->one = d->bound[0];
    z->whole = full[1];
    d->payloads = kv_vf_payloads(v, d->g);
    const bool shards = d->bound[0].shard && d->bound[1].shard;
    const bool part = shards && c->send == SHARD && shard_heads(z->heads, c->from) != z->heads;
    if (whole[0]->mla != whole[1]->mla || (whole[0]->store == KV_VF_LATENT) != (whole[1]->store == KV_VF_LATENT))
        d->frontier = KV_FRONTIER_X1;
    else if (!d->bound[0].exists || !d->bound[1].exists)
        d->frontier = KV_FRONTIER_X4;
    else if (part)
        d->frontier = KV_FRONTIER_X2;
    if (d->frontier == KV_FRONTIER_X1 || !shards || part) return !z->whole.too_large;
    if (c->send == SHARD) z->from = 1;
    d->words = kv_vf_words(whole[0], whole[1], d->g, &full[0], &full[1]);
    const kv_word_set more =
        (shard_heads(z->heads, z->from) != shard_heads(z->heads, c->to) ? KV_WORD_BIT(KV_WORD_TP_RESHARD) : 0) |
        (c->to > z->heads ? KV_WORD_BIT(KV_WORD_HEAD_REPLICATE) : 0) |
        (z->from > z->heads ? KV_WORD_BIT(KV_WORD_HEAD_DEDUPE) : 0);
    if (more != 0) d->words &= ~KV_WORD_BIT(KV_WORD_VIEW_REINTERPRET);
    d->words |= more;
    if (d->frontier != KV_FRONTIER_NONE) return true;
    size_bound(&d->bound[0], z->from);
    size_bound(&d->bound[1], c->to);
    if (d->bound[0].too_large || d->bound[1].too_large) return false;
    z->ranks = z->from > c->to ? z->from : c->to;
    z->rounds = rounds_of(v, whole[0], d->g, c->send, unit);
    const int64_t bytes[2] = {kv_vf_element_bytes(d->bound[0].element), kv_vf_element_bytes(d->bound[1].element)};
    const int64_t row = (d->g->dim + (whole[0]->store == KV_VF_LATENT ? 0 : d->g->dim_v)) * d->g->tokens * d->g->layers;
    for (int64_t r = 0; r < z->ranks; r++) {
        z->least[0] += lacking(z->heads, z->from, c->to, r) * row * (bytes[0] < bytes[1] ? bytes[0] : bytes[1]);
        z->least[1] += lacking(z->heads, c->to, z->from, r) * row * (bytes[0] < bytes[1] ? bytes[0] : bytes[1]);
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
