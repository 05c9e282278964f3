/* How the layers of a model are split over pipeline stages. */
#ifndef KV_SHARD_SPLIT_H
#define KV_SHARD_SPLIT_H

#include <jansson.h>

#include "layouts/kv_layout.h"
#include "tp/kv_tp_plan.h"

#define KV_SPLIT_STAGES_MAX 64
#define KV_SPLIT_LAYERS_MAX 512 /* that a split names */

/* A number of stages, among which any model's layers are shared out evenly; or the layers of each stage by their ids. */
typedef struct {
    char *text;     /* as in params: "2", "[[0,2],[1,3]]" */
    int32_t stages; /* number of them */
    int64_t *layer; /* ids, stage after stage; NULL: evenly */
    size_t end[KV_SPLIT_STAGES_MAX];
} kv_shard_split;

/* An integer or a list of lists of ids. KV_EFORMAT names `where`. Freed with kv_shard_split_free whatever happened. */
kv_rc kv_shard_split_read(const json_t *v, const char *where, kv_shard_split *out, kv_err *err) KV_MUST_USE;
void kv_shard_split_free(kv_shard_split *s);

/* Whether the stages hold every layer of the model once and no other: reason is "", or says why not (frontier X4). */
void kv_shard_split_fit(const kv_shard_split *s, int64_t layers, char reason[KV_REASON_TEXT]);
/* The stages of a model that the split fits: stage[s->stages], ids[layers]; both freed with kv_free whatever happened. */
kv_rc kv_shard_split_bind(const kv_shard_split *s, int64_t layers, kv_tp_stage **stage, int64_t **ids, kv_err *err)
    KV_MUST_USE;
/* Whether both splits fit the model and some layer is in stages of different numbers. */
bool kv_shard_split_differ(const kv_shard_split *a, const kv_shard_split *b, int64_t layers);

#endif
