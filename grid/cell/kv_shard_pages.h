/* Sealed pages of the codec as what a tp cell moves (kv_tp_content): every rank seals the heads that it holds on either side,
 * and decodes the destination's where they arrived. */
#ifndef KV_SHARD_PAGES_H
#define KV_SHARD_PAGES_H

#include "grid/cell/kv_sealed.h"
#include "tp/kv_tp_move.h"

typedef struct kv_shard_pages kv_shard_pages;

/* What is moved: [blocks][kv_heads][K slot|V slot] bytes a layer of geometry g. */
kv_geometry kv_shard_pages_geometry(const kv_sealed_shape *z, const kv_geometry *g);

/* For one rank; *out is its content, and lives as long as *pages. z and g must outlive it. */
kv_rc kv_shard_pages_new(const char *name, const kv_sealed_shape *z, const kv_geometry *g, uint64_t seed,
                         kv_shard_pages **pages, kv_tp_content *out, kv_err *err) KV_MUST_USE;
void kv_shard_pages_free(kv_shard_pages *p); /* NULL is fine */

#endif
