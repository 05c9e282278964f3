/* The wire image, its pieces, checksums. */
#include "tp/kv_tp_wire.h"

#include <string.h>

void kv_tp_wire_index(const kv_index *shard, int32_t element, kv_index *out)
{
    kv_index w;
    memset(&w, 0, sizeof w);
    w.halves = shard->halves;
    w.separate = shard->halves == 2;
    w.has_layer = 1;
    w.layers = shard->layers;
    w.tokens = shard->tokens;
    w.heads = shard->heads;
    w.first_head = shard->first_head;
    w.block = w.tx = w.x = 1;
    w.element = element;
    for (int kv = 0; kv < w.halves; kv++) {
        kv_order *o = &w.half[kv];
        w.lanes[kv] = shard->lanes[kv];
        const int32_t kind[4] = {KV_F_H, KV_F_L, KV_F_T, w.halves == 1 ? KV_F_C : KV_F_D};
        const int64_t size[4] = {w.heads, w.layers, w.tokens, w.lanes[kv]};
        o->n = 4;
        o->page_payload = 1;
        for (int i = 0; i < 4; i++) {
            o->kind[i] = kind[i];
            o->size[i] = size[i];
            o->page_payload *= size[i]; /* no more than the shard's own elements, which fit */
        }
        o->page_span = o->page_payload;
        w.half_base[kv] = w.native;
        w.native += o->page_span;
    }
    w.layer_span = w.elements = w.native;
    kv_index_prepare(&w);
    *out = w;
}

int64_t kv_tp_wire_bytes(const kv_index *wire, int64_t heads, const kv_tp_round *r)
{
    return heads * r->layers * r->tokens * (wire->lanes[0] + wire->lanes[1]) * kv_elem_bytes((kv_elem)wire->element);
}

int32_t kv_tp_wire_pieces(const kv_index *wire, unsigned char *base, int64_t first, int64_t heads, const kv_tp_round *r,
                          kv_tp_piece *out)
{
    const int64_t element = kv_elem_bytes((kv_elem)wire->element);
    const bool all_tokens = r->tokens == wire->tokens, all = all_tokens && r->layers == wire->layers;
    const int64_t head_runs = all ? 1 : heads, layer_runs = all_tokens ? 1 : r->layers;
    int32_t n = 0;
    for (int kv = 0; kv < wire->halves; kv++) {
        const int64_t row = wire->lanes[kv] * element, layer = wire->tokens * row, head = wire->layers * layer;
        const int64_t bytes = (all ? heads : 1) * (all_tokens ? r->layers : 1) * r->tokens * row;
        for (int64_t h = 0; h < head_runs; h++)
            for (int64_t l = 0; l < layer_runs; l++, n++) {
                if (out == NULL) continue;
                const int64_t at = wire->half_base[kv] * element + (first - wire->first_head + h) * head +
                                   (r->layer + l) * layer + r->token * row;
                out[n] = (kv_tp_piece){base + at, bytes};
            }
    }
    return n;
}

/* ---- checksums --------------------------------------------------------------------------- */

#define SUM_K 0x9E3779B97F4A7C15ULL

static uint64_t turn(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static uint64_t stir(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ULL;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBULL;
    return x ^ x >> 31;
}

static uint64_t word(const unsigned char *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* Four lanes of multiply and turn, 32 bytes a step: about as fast as memory, and any single changed word shows. */
static uint64_t sum_run(const unsigned char *p, int64_t n)
{
    uint64_t lane[4] = {SUM_K, SUM_K * 3, SUM_K * 5, SUM_K * 7};
    const uint64_t length = (uint64_t)n;
    for (; n >= 32; p += 32, n -= 32)
        for (int i = 0; i < 4; i++) lane[i] = turn(lane[i] ^ word(p + 8 * i), 29) * SUM_K;
    for (int i = 0; n > 0; i = (i + 1) % 4, p += 8, n -= 8) {
        unsigned char last[8] = {0};
        memcpy(last, p, n < 8 ? (size_t)n : 8);
        lane[i] = turn(lane[i] ^ word(last), 29) * SUM_K;
    }
    uint64_t sum = length;
    for (int i = 0; i < 4; i++) sum = stir(sum ^ lane[i]);
    return sum;
}

#define BOUNCE ((int64_t)1 << 20)

/* GPU memory comes over in parts of 1 MiB; the sum of a piece is that of its parts, host memory is cut alike. */
static kv_rc sum_piece(const kv_tp_piece *piece, bool gpu, unsigned char *bounce, uint64_t *sum, kv_err *err)
{
    for (int64_t at = 0; at < piece->bytes; at += BOUNCE) {
        const int64_t n = piece->bytes - at < BOUNCE ? piece->bytes - at : BOUNCE;
        const unsigned char *p = (const unsigned char *)piece->at + at;
        if (gpu) {
            const kv_rc rc = kv_tp_copy(bounce, false, p, true, n, err);
            if (rc != KV_OK) return rc;
            p = bounce;
        }
        *sum = stir(*sum + SUM_K) ^ sum_run(p, n);
    }
    return KV_OK;
}

kv_rc kv_tp_sum(const kv_tp_piece *piece, int32_t n, bool gpu, uint64_t *out, kv_err *err)
{
    unsigned char *bounce = NULL;
    uint64_t sum = 0;
    kv_rc rc = KV_OK;
    if (gpu) {
        bounce = kv_alloc_image((size_t)BOUNCE);
        if (bounce == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a checksum");
    }
    for (int32_t i = 0; i < n; i++) KV_TRY(rc, out, sum_piece(&piece[i], gpu, bounce, &sum, err));
    *out = stir(sum ^ (uint64_t)n);
out:
    kv_free(bounce);
    return rc;
}
