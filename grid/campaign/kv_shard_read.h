/* What the section `tp` of a campaign asks for, and the points that it means: between the two files that read it. */
#ifndef KV_SHARD_READ_H
#define KV_SHARD_READ_H

#include "grid/campaign/kv_shard_spec.h"

/* Which layouts are moved between which sizes. */
typedef struct {
    int32_t (*pair)[2];
    size_t n_pairs;
    int32_t size[KV_SHARD_SIZE_MAX];
    size_t n_sizes;
} kv_shard_moves;

typedef struct {
    const kv_catalogue *layouts;
    const char *where;
    kv_err *err;
    bool staged; /* layouts must have layers that stages can hold */
    kv_shard_moves shards, stages;
    bool recipe[KV_STORE_COUNT]; /* of sealed pages */
    bool send[KV_SHARD_SENDS];
} kv_shard_reader;

/* Fills out->point in row order from what was read; out->split is there. */
kv_rc kv_shard_points_make(const kv_shard_reader *r, kv_shard_section *out) KV_MUST_USE;

#endif
