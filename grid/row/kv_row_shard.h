/* The proof of a tp row, as JSON and back: that of a pair, and what went over the wire. */
#ifndef KV_ROW_SHARD_H
#define KV_ROW_SHARD_H

#include "grid/row/kv_row.h"

/* Adds the keys of a tp row to `proof`, which it takes; NULL when memory is out. */
json_t *kv_row_shard_proof_add(const kv_campaign *c, const kv_row *r, json_t *proof) KV_MUST_USE;
/* The inverse, behind what a pair's proof says; false where something is not what kv_row_shard_proof_add writes. */
bool kv_row_shard_of_proof(const json_t *proof, kv_row *r);

#endif
