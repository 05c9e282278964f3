/* All rows of a campaign, packed, one behind the other. */
#include <string.h>

#include "grid/row/kv_pack.h"

#define CHUNK_BYTES ((size_t)1 << 20) /* a packed row is far smaller */
#define LENGTH_BYTES 2                /* before each row */

struct kv_pack {
    const kv_campaign *c;
    uint64_t *place; /* by cell: chunk * CHUNK_BYTES + offset + 1, or 0 */
    unsigned char **chunk;
    size_t n_chunks, cap;
    size_t used; /* of the last chunk */
    kv_buf row;
};

kv_rc kv_pack_new(const kv_campaign *c, kv_pack **out, kv_err *err)
{
    kv_pack *p = kv_alloc(1, sizeof *p);
    if (p != NULL) p->place = kv_alloc(c->n_cells, sizeof *p->place);
    if (p == NULL || p->place == NULL) {
        kv_pack_free(p);
        return KV_FAIL(err, KV_ENOMEM, "no memory for %zu rows", c->n_cells);
    }
    p->c = c;
    p->used = CHUNK_BYTES;
    *out = p;
    return KV_OK;
}

static kv_rc add_chunk(kv_pack *p, kv_err *err)
{
    if (p->n_chunks == p->cap) {
        const size_t cap = p->cap > 0 ? 2 * p->cap : 16;
        unsigned char **grown = kv_realloc(p->chunk, cap, sizeof *grown);
        if (grown == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for rows");
        p->chunk = grown;
        p->cap = cap;
    }
    p->chunk[p->n_chunks] = kv_alloc(CHUNK_BYTES, 1);
    if (p->chunk[p->n_chunks] == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for rows");
    p->n_chunks++;
    p->used = 0;
    return KV_OK;
}

kv_rc kv_pack_put(kv_pack *p, const kv_row *row, kv_err *err)
{
    p->row.len = 0;
    kv_rc rc = kv_row_pack(p->c, row, &p->row, err);
    if (rc == KV_OK && p->used + LENGTH_BYTES + p->row.len > CHUNK_BYTES) rc = add_chunk(p, err);
    if (rc != KV_OK) return rc;
    unsigned char *to = p->chunk[p->n_chunks - 1] + p->used;
    to[0] = (unsigned char)(p->row.len & 0xFF);
    to[1] = (unsigned char)(p->row.len >> 8);
    memcpy(to + LENGTH_BYTES, p->row.data, p->row.len);
    p->place[row->cell] = (p->n_chunks - 1) * CHUNK_BYTES + p->used + 1;
    p->used += LENGTH_BYTES + p->row.len;
    return KV_OK;
}

bool kv_pack_has(const kv_pack *p, int64_t cell)
{
    return p->place[cell] != 0;
}

void kv_pack_get(const kv_pack *p, int64_t cell, kv_row *out)
{
    memset(out, 0, sizeof *out);
    out->cell = -1;
    if (!kv_pack_has(p, cell)) return;
    const uint64_t at = p->place[cell] - 1;
    const unsigned char *from = p->chunk[at / CHUNK_BYTES] + at % CHUNK_BYTES;
    const size_t n = (size_t)from[0] | (size_t)from[1] << 8;
    if (kv_row_unpack(p->c, from + LENGTH_BYTES, n, out, NULL) != KV_OK) out->cell = -1; /* cannot happen */
}

static void get(const void *ctx, int64_t cell, kv_row *out)
{
    kv_pack_get(ctx, cell, out);
}

kv_row_set kv_pack_rows(const kv_pack *p)
{
    return (kv_row_set){p, get};
}

void kv_pack_free(kv_pack *p)
{
    if (p == NULL) return;
    for (size_t i = 0; i < p->n_chunks; i++) kv_free(p->chunk[i]);
    kv_free(p->chunk);
    kv_free(p->place);
    kv_buf_free(&p->row);
    kv_free(p);
}
