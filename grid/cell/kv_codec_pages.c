#include "grid/cell/kv_codec_pages.h"

#include <string.h>

#include "kernels/kv_kern_payload.h"

static int64_t both(const kv_pages *p)
{
    return p->slot[0] + p->slot[1];
}

int64_t kv_pages_positions(const kv_pages *p)
{
    return p->blocks * p->heads * both(p);
}

/* Distinct pages out of `pages`, none of them in its own place where there is a choice. */
static void shuffle(int64_t *table, int64_t blocks, int64_t *all, int64_t pages, uint64_t seed)
{
    for (int64_t i = 0; i < pages; i++) all[i] = i;
    for (int64_t i = pages - 1; i > 0; i--) {
        const int64_t k = (int64_t)(kv_payload_mix(seed + (uint64_t)i) % (uint64_t)i); /* one cycle: no fixed point */
        const int64_t swap = all[i];
        all[i] = all[k];
        all[k] = swap;
    }
    memcpy(table, all, (size_t)blocks * sizeof *table);
}

kv_rc kv_pages_open(kv_pages_kind kind, int64_t blocks, int64_t heads, const int64_t slot[2], uint64_t seed,
                    kv_pages *out, kv_err *err)
{
    kv_pages p = {.kind = kind, .blocks = blocks, .heads = heads, .slot = {slot[0], slot[1]}};
    int64_t pages = blocks, page;
    if (kind == KV_PAGES_TABLE) pages += blocks / 2 + 1;
    if (!kv_mul_i64(heads, both(&p), &page) || !kv_mul_i64(page, pages, &p.pool_bytes))
        return KV_FAIL(err, KV_ENOMEM, "%lld sealed pages do not fit 64 bits", (long long)pages);
    if (kind == KV_PAGES_TABLE) {
        int64_t *all = kv_alloc((size_t)pages, sizeof *all);
        p.table = kv_alloc((size_t)blocks, sizeof *p.table);
        if (all == NULL || p.table == NULL) {
            kv_free(all);
            kv_free(p.table);
            return KV_FAIL(err, KV_ENOMEM, "no memory for a table of %lld blocks", (long long)blocks);
        }
        shuffle(p.table, blocks, all, pages, seed);
        kv_free(all);
    }
    *out = p;
    return KV_OK;
}

void kv_pages_close(kv_pages *p)
{
    kv_free(p->table);
    memset(p, 0, sizeof *p);
}

/* ---- by positions --------------------------------------------------------------------------- */

int64_t kv_pages_inverse(const kv_pages *p, int64_t position)
{
    const int64_t k_pool = p->blocks * p->heads * p->slot[0];
    if (p->kind == KV_PAGES_KV_POOLS) {
        const int64_t kv = position >= k_pool, at = kv ? position - k_pool : position, one = p->slot[kv];
        return at / one * both(p) + (kv ? p->slot[0] : 0) + at % one;
    }
    if (p->kind == KV_PAGES_HEAD_MAJOR) {
        const int64_t cell = position / both(p), byte = position % both(p);
        return (cell % p->blocks * p->heads + cell / p->blocks) * both(p) + byte;
    }
    return position;
}

int64_t kv_pages_forward(const kv_pages *p, int64_t canonical)
{
    const int64_t cell = canonical / both(p), byte = canonical % both(p);
    if (p->kind == KV_PAGES_KV_POOLS) {
        if (byte < p->slot[0]) return cell * p->slot[0] + byte;
        return p->blocks * p->heads * p->slot[0] + cell * p->slot[1] + (byte - p->slot[0]);
    }
    if (p->kind == KV_PAGES_HEAD_MAJOR) return (cell % p->heads * p->blocks + cell / p->heads) * both(p) + byte;
    return canonical;
}

int64_t kv_pages_offset(const kv_pages *p, int64_t position)
{
    if (p->table == NULL) return position;
    const int64_t page = p->heads * both(p);
    return p->table[position / page] * page + position % page;
}

/* ---- by strides ----------------------------------------------------------------------------- */

typedef struct {
    int64_t base[2], block[2], head[2]; /* of K and V slots, in bytes */
} strides;

static strides strides_of(const kv_pages *p)
{
    const int64_t k = p->slot[0], v = p->slot[1];
    switch (p->kind) {
    case KV_PAGES_HEAD_MAJOR: return (strides){{0, k}, {k + v, k + v}, {p->blocks * (k + v), p->blocks * (k + v)}};
    case KV_PAGES_KV_POOLS: return (strides){{0, p->blocks * p->heads * k}, {p->heads * k, p->heads * v}, {k, v}};
    case KV_PAGES_PAGES:
    case KV_PAGES_TABLE:
    case KV_PAGES_COUNT: break;
    }
    return (strides){{0, k}, {p->heads * (k + v), p->heads * (k + v)}, {k + v, k + v}};
}

static int64_t slot_at(const kv_pages *p, const strides *s, int64_t block, int64_t head, int kv)
{
    return s->base[kv] + (p->table != NULL ? p->table[block] : block) * s->block[kv] + head * s->head[kv];
}

int64_t kv_pages_slot_offset(const kv_pages *p, int64_t block, int64_t head, int kv)
{
    const strides s = strides_of(p);
    return slot_at(p, &s, block, head, kv);
}

void kv_pages_move(const kv_pages *from, const uint8_t *src, const kv_pages *to, uint8_t *dst)
{
    const strides a = strides_of(from), b = strides_of(to);
    for (int64_t block = 0; block < from->blocks; block++)
        for (int64_t head = 0; head < from->heads; head++)
            for (int kv = 0; kv < 2; kv++)
                memcpy(dst + slot_at(to, &b, block, head, kv), src + slot_at(from, &a, block, head, kv),
                       (size_t)from->slot[kv]);
}
