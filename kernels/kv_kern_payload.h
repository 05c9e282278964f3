/* Payloads: what stands in the canonical tensor, as a pure function of (seed, kind, layer, KV, token,
 * head, lane), so that any rank makes any element alone. Host and device.
 *
 * Values are bit patterns of the geometry's element type of w + 1 bits. The lowest bit is the KV bit
 * (0 keys, 1 values) in every kind, so K and V never share a pattern. n is the number of the element
 * in the K (or V) tensor of the whole model, row-major [layers][tokens][kv_heads][lanes], so shards and
 * single layers agree with the whole.
 *   kind 0..4  position digits: digit j of n in base 2^w, from j = 1 on XORed with a hash of the digits
 *              below it (so that no payload is constant). Together they tell every n < 2^(5w) apart.
 *   kind 5     random bits: NaN, Inf and subnormals as opaque patterns.
 *   kind SWEEP + v  pattern v at a place that a hash of n chooses: bits = v XOR hash, all w + 1 bits (no KV
 *              bit here). Over v = 0 .. 2^(w+1) - 1 every place holds every pattern once.
 *   kind TOKENS  finite, magnitude in [0.5, 2): sign, exponent and mantissa from a hash (token leg). */
#ifndef KV_KERN_PAYLOAD_H
#define KV_KERN_PAYLOAD_H

#include "layouts/kv_elem.h"
#include "layouts/kv_layout_index.h"

#define KV_PAYLOADS 6 /* kinds 0..5, the gather payloads */
#define KV_PAYLOAD_BITS 5
#define KV_PAYLOAD_TOKENS 6
#define KV_PAYLOAD_SWEEP 8 /* and up: one kind for each bit pattern */

typedef struct {
    uint64_t seed;
    int64_t tokens;      /* of the geometry */
    int64_t kv_heads;    /* of the whole model */
    int64_t lanes[2];    /* row widths of K and V */
    int64_t first_layer; /* number in the model of the unit's layer 0 */
    int64_t first_head;  /* number in the model of the layout's head 0 */
    int64_t
        first_token; /* number in the cache of the layout's token 0: not 0 where it is bound to a window of tokens */
    int32_t kind;
    int32_t element; /* kv_elem of the geometry */
} kv_payload;

/* A 64-bit mix in which every input bit reaches every output bit (multiply-xorshift finaliser). */
KV_HD uint64_t kv_payload_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ULL;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
}

/* Stream constant of a payload's kind and KV half. */
KV_HD uint64_t kv_payload_stream(uint64_t seed, int64_t kind, int64_t kv)
{
    if (kind > KV_PAYLOAD_SWEEP) kind = KV_PAYLOAD_SWEEP;
    return kv_payload_mix(seed + 0x9E3779B97F4A7C15ULL * (uint64_t)(2 * kind + kv + 1));
}

/* Number of an element of the unit in the whole model's K (or V) tensor. */
KV_HD int64_t kv_payload_number(const kv_payload *p, const kv_coord *c)
{
    const int64_t token = (p->first_layer + c->layer) * p->tokens + p->first_token + c->token;
    return (token * p->kv_heads + p->first_head + c->head) * p->lanes[c->kv] + c->lane;
}

/* Bits of a token-leg element: exponent of 0.5 or 1, random sign and mantissa, lowest bit = KV bit. */
KV_HD uint32_t kv_payload_token_bits(int32_t element, uint64_t h, uint32_t kv)
{
    const uint32_t r = (uint32_t)(h >> 32), up = (uint32_t)(h & 1U), sign = (uint32_t)(h >> 1 & 1U);
    switch ((kv_elem)element) {
    case KV_ELEM_F16: return sign << 15 | (14U + up) << 10 | (r & 0x3FEU) | kv;
    case KV_ELEM_BF16: return sign << 15 | (126U + up) << 7 | (r & 0x7EU) | kv;
    case KV_ELEM_F32: return sign << 31 | (126U + up) << 23 | (r & 0x7FFFFEU) | kv;
    case KV_ELEM_FP8_E4M3: return sign << 7 | (6U + up) << 3 | (r & 0x6U) | kv;
    case KV_ELEM_COUNT: break;
    }
    return 0;
}

/* What does not depend on the element: made once for each (payload, KV half). */
typedef struct {
    uint64_t stream; /* kv_payload_stream(seed, kind, kv) */
    uint64_t below;  /* mask of the digits below digit `kind` */
    uint32_t shift;  /* of digit `kind` */
    uint32_t mask;   /* w ones */
    uint32_t tag;    /* the KV bit */
    int32_t kind, element;
} kv_payload_half;

KV_HD kv_payload_half kv_payload_half_of(uint64_t seed, int32_t kind, int32_t element, int64_t kv)
{
    const uint32_t w = (uint32_t)(8 * kv_elem_bytes((kv_elem)element) - 1);
    const uint32_t shift = kind < KV_PAYLOAD_BITS ? w * (uint32_t)kind : 0;
    kv_payload_half h;
    h.stream = kv_payload_stream(seed, kind, kv);
    h.shift = shift < 64 ? shift : 63; /* n < 2^63: digit 63 is 0 */
    h.below = shift < 64 ? (1ULL << shift) - 1 : ~0ULL;
    h.mask = (uint32_t)((1ULL << w) - 1);
    h.tag = (uint32_t)kv;
    h.kind = kind;
    h.element = element;
    return h;
}

/* Bits of element number n of that half. */
KV_HD uint32_t kv_payload_half_bits(const kv_payload_half *h, uint64_t n)
{
    if (h->kind < KV_PAYLOAD_BITS) {
        const uint64_t hash = h->kind == 0 ? 0 : kv_payload_mix(h->stream + (n & h->below));
        return (uint32_t)(((n >> h->shift) ^ hash) & h->mask) << 1 | h->tag;
    }
    {
        const uint64_t hash = kv_payload_mix(h->stream + n);
        if (h->kind == KV_PAYLOAD_BITS) return (uint32_t)(hash >> 17 & h->mask) << 1 | h->tag;
        if (h->kind == KV_PAYLOAD_TOKENS) return kv_payload_token_bits(h->element, hash, h->tag);
        return ((uint32_t)(h->kind - KV_PAYLOAD_SWEEP) ^ (uint32_t)hash) & (h->mask << 1 | 1U);
    }
}

/* Bits of the element at a place of the unit. */
KV_HD uint32_t kv_payload_bits(const kv_payload *p, const kv_coord *c)
{
    const kv_payload_half h = kv_payload_half_of(p->seed, p->kind, p->element, c->kv);
    return kv_payload_half_bits(&h, (uint64_t)kv_payload_number(p, c));
}

#endif
