/* The cells that have a row: twelve bytes a slot, so that a million of them fit. */
#include "certs/kv_verify_int.h"

#define SLOTS_FIRST ((size_t)1 << 10)

/* Never 0; layouts are at most KV_VF_LIST_MAX, tails at most 3, other cells of a geometry at most 2^15. */
static uint64_t key_of(const kv_vf_cell *c)
{
    return ((uint64_t)c->geometry << 33 | (uint64_t)c->check << 30 | (uint64_t)c->src << 14 | (uint64_t)c->dst << 2 |
            c->tail) +
           1;
}

/* The slot that holds key, or the free one where it would stand. */
static size_t slot_of(const kv_vf_cells *s, uint64_t key)
{
    size_t at = (size_t)(key * 0x9E3779B97F4A7C15U >> 20) & (s->slots - 1);
    while (s->key[at] != 0 && s->key[at] != key) at = (at + 1) & (s->slots - 1);
    return at;
}

static bool grow(kv_vf_cells *s)
{
    kv_vf_cells bigger = {.n = s->n, .slots = s->slots > 0 ? 2 * s->slots : SLOTS_FIRST};
    bigger.key = kv_alloc(bigger.slots, sizeof *bigger.key);
    bigger.row = kv_alloc(bigger.slots, sizeof *bigger.row);
    if (bigger.key == NULL || bigger.row == NULL) {
        kv_vf_cells_free(&bigger);
        return false;
    }
    for (size_t i = 0; i < s->slots; i++) {
        if (s->key[i] == 0) continue;
        const size_t at = slot_of(&bigger, s->key[i]);
        bigger.key[at] = s->key[i];
        bigger.row[at] = s->row[i];
    }
    kv_vf_cells_free(s);
    *s = bigger;
    return true;
}

bool kv_vf_cells_add(kv_vf *v, const kv_vf_cell *c, size_t row, size_t *first)
{
    kv_vf_cells *s = &v->cells;
    *first = row;
    if (4 * s->n >= 3 * s->slots && !grow(s)) {
        kv_vf_no_memory(v);
        return true;
    }
    const size_t at = slot_of(s, key_of(c));
    if (s->key[at] != 0) {
        *first = s->row[at];
        return false;
    }
    s->key[at] = key_of(c);
    s->row[at] = (uint32_t)row; /* only told, never counted with */
    s->n++;
    return true;
}

bool kv_vf_cells_has(const kv_vf *v, const kv_vf_cell *c)
{
    return v->cells.slots > 0 && v->cells.key[slot_of(&v->cells, key_of(c))] != 0;
}

void kv_vf_cells_free(kv_vf_cells *s)
{
    kv_free(s->key);
    kv_free(s->row);
    *s = (kv_vf_cells){0};
}
