/* The section `tp` of a campaign: which layouts are moved between which tensor-parallel sizes, and how they are sent. */
#ifndef KV_SHARD_SPEC_H
#define KV_SHARD_SPEC_H

#include <jansson.h>

#include "grid/campaign/kv_codec_spec.h"
#include "grid/campaign/kv_shard_split.h"
#include "layouts/kv_layout.h"

#define KV_SHARD_SIZE_MAX 64      /* ranks of a side */
#define KV_SHARD_POINTS_MAX 32768 /* cells of a geometry */
#define KV_SHARD_SPLITS_MAX 16

/* How a side is sent, in the byte order of the names. */
typedef enum {
    KV_SHARD_CHUNKS, /* as the tokens come, whole pages only */
    KV_SHARD_LAYERS, /* layer by layer */
    KV_SHARD_ONE,    /* "shard": the shard of one rank alone, to the whole; X2 where it is not the whole itself */
    KV_SHARD_WHOLE,  /* "whole": a unit at once */
    KV_SHARD_SENDS
} kv_shard_send;
const char *kv_shard_send_name(kv_shard_send s);

/* One tp cell's place in the section. */
typedef struct {
    int32_t src, dst;               /* indices in the catalogue; -1: sealed pages of the codec on both sides */
    int32_t from, to;               /* tensor-parallel sizes */
    int32_t send;                   /* kv_shard_send */
    int32_t recipe;                 /* kv_store_method of sealed pages, else -1 */
    const kv_shard_split *split[2]; /* of source and destination; NULL: no pipeline stages */
} kv_shard_point;

typedef struct {
    bool present;
    bool emulate;          /* of this run, not of the campaign: one process plays all ranks of a cell */
    kv_shard_point *point; /* in row order */
    size_t n_points;
    int64_t chunk;         /* tokens of a chunk */
    int64_t block;         /* tokens of a sealed page */
    kv_shard_split *split; /* that points name */
    size_t n_splits;
    int32_t *stored; /* by layout: the layout that its bytes really are in, or -1 */
    size_t n_stored;
} kv_shard_section;

/* Reads and checks campaign.tp over the layouts selected; a missing one (NULL) gives present false. KV_EFORMAT names the
 * key. Freed with kv_shard_section_free whatever happened. */
kv_rc kv_shard_section_read(const json_t *v, const kv_catalogue *layouts, const char *where, kv_shard_section *out,
                            kv_err *err) KV_MUST_USE;
void kv_shard_section_free(kv_shard_section *s);

/* {"from":"2","send":"whole","to":"4"}, and with stages "from_stages" and "to_stages"; NULL when memory is out. */
json_t *kv_shard_point_params_new(const kv_shard_point *p) KV_MUST_USE;
/* The side by name: a layout of the catalogue, or "kv1:pages". Never NULL. */
const char *kv_shard_point_side(const kv_shard_point *p, const kv_catalogue *layouts, int side);
/* Ranks that the cell takes where every shard exists: 1 for a shard alone. */
int64_t kv_shard_point_ranks(const kv_shard_point *p);

#endif
