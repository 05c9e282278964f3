#include "grid/campaign/kv_shard_split.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kv_rc read_stage(const json_t *list, const char *where, kv_shard_split *out, size_t *n, kv_err *err)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: a stage must be a list of at least one layer", where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= KV_LAYERS_MAX)
            return KV_FAIL(err, KV_EFORMAT, "%s: a layer must be an integer from 0 to %d", where, KV_LAYERS_MAX - 1);
        if (*n == KV_SPLIT_LAYERS_MAX)
            return KV_FAIL(err, KV_EFORMAT, "%s: more than %d layers are named; give the number of stages", where,
                           KV_SPLIT_LAYERS_MAX);
        for (size_t k = 0; k < *n; k++)
            if (out->layer[k] == (int64_t)json_integer_value(id))
                return KV_FAIL(err, KV_EFORMAT, "%s: layer %" PRId64 " stands there twice", where, out->layer[k]);
        out->layer[(*n)++] = (int64_t)json_integer_value(id);
    }
    return KV_OK;
}

kv_rc kv_shard_split_read(const json_t *v, const char *where, kv_shard_split *out, kv_err *err)
{
    const size_t stages = json_is_array(v) ? json_array_size(v) : (size_t)json_integer_value(v);
    size_t n = 0;
    memset(out, 0, sizeof *out);
    if ((!json_is_array(v) && !json_is_integer(v)) || (json_is_integer(v) && json_integer_value(v) < 1) || stages < 1 ||
        stages > KV_SPLIT_STAGES_MAX)
        return KV_FAIL(err, KV_EFORMAT, "%s must be a number of stages from 1 to %d, or a list of stages", where,
                       KV_SPLIT_STAGES_MAX);
    out->stages = (int32_t)stages;
    out->text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (json_is_array(v)) out->layer = kv_alloc(KV_SPLIT_LAYERS_MAX, sizeof *out->layer);
    if (out->text == NULL || (json_is_array(v) && out->layer == NULL))
        return KV_FAIL(err, KV_ENOMEM, "no memory for %s", where);
    for (size_t s = 0; json_is_array(v) && s < stages; s++) {
        const kv_rc rc = read_stage(json_array_get(v, s), where, out, &n, err);
        if (rc != KV_OK) return rc;
        out->end[s] = n;
    }
    return KV_OK;
}

void kv_shard_split_free(kv_shard_split *s)
{
    free(s->text); /* jansson's */
    kv_free(s->layer);
    memset(s, 0, sizeof *s);
}

/* First layer of a stage of an even split. */
static int64_t even_first(const kv_shard_split *s, int64_t layers, int64_t stage)
{
    return stage * layers / s->stages;
}

void kv_shard_split_fit(const kv_shard_split *s, int64_t layers, char reason[KV_REASON_TEXT])
{
    const size_t n = s->end[s->stages - 1];
    reason[0] = '\0';
    if (s->layer == NULL && s->stages > layers)
        snprintf(reason, KV_REASON_TEXT, "%" PRId64 " layers leave one of %" PRId32 " stages without any", layers,
                 s->stages);
    for (size_t i = 0; s->layer != NULL && i < n; i++)
        if (s->layer[i] >= layers && reason[0] == '\0')
            snprintf(reason, KV_REASON_TEXT, "stages %.80s hold layer %" PRId64 " of a model of %" PRId64 " layers",
                     s->text, s->layer[i], layers);
    /* as many different ids as there are layers, all of them of the model: none is missing */
    if (s->layer == NULL || reason[0] != '\0' || (int64_t)n == layers) return;
    bool held[KV_SPLIT_LAYERS_MAX + 1] = {false};
    int64_t missing = 0;
    for (size_t i = 0; i < n; i++)
        if (s->layer[i] <= KV_SPLIT_LAYERS_MAX) held[s->layer[i]] = true;
    while (held[missing]) missing++; /* n ids leave one of the first n + 1 */
    snprintf(reason, KV_REASON_TEXT, "layer %" PRId64 " is missing: none of the stages %.80s holds it", missing,
             s->text);
}

kv_rc kv_shard_split_bind(const kv_shard_split *s, int64_t layers, kv_tp_stage **stage, int64_t **ids, kv_err *err)
{
    *stage = kv_alloc((size_t)s->stages, sizeof **stage);
    *ids = kv_alloc((size_t)layers, sizeof **ids);
    if (*stage == NULL || *ids == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId32 " stages", s->stages);
    for (int64_t l = 0; l < layers; l++) (*ids)[l] = s->layer != NULL ? s->layer[l] : l;
    for (int32_t i = 0; i < s->stages; i++) {
        const size_t first = s->layer == NULL ? (size_t)even_first(s, layers, i) : i > 0 ? s->end[i - 1] : 0;
        const size_t end = s->layer == NULL ? (size_t)even_first(s, layers, i + 1) : s->end[i];
        (*stage)[i] = (kv_tp_stage){*ids + first, end - first};
    }
    return KV_OK;
}

/* Stages of the layers of a model that the split fits; at most KV_SPLIT_LAYERS_MAX of them. */
static void stages_of(const kv_shard_split *s, int64_t layers, int32_t *stage)
{
    for (int32_t i = 0; i < s->stages; i++)
        if (s->layer == NULL)
            for (int64_t l = even_first(s, layers, i); l < even_first(s, layers, i + 1); l++) stage[l] = i;
        else
            for (size_t k = i > 0 ? s->end[i - 1] : 0; k < s->end[i]; k++) stage[s->layer[k]] = i;
}

bool kv_shard_split_differ(const kv_shard_split *a, const kv_shard_split *b, int64_t layers)
{
    char reason[2][KV_REASON_TEXT];
    int32_t stage[2][KV_SPLIT_LAYERS_MAX];
    kv_shard_split_fit(a, layers, reason[0]);
    kv_shard_split_fit(b, layers, reason[1]);
    if (reason[0][0] != '\0' || reason[1][0] != '\0') return false;
    if (a->layer == NULL && b->layer == NULL) return a->stages != b->stages; /* the last layer is in the last stage */
    stages_of(a, layers, stage[0]); /* a split that names its layers names at most so many */
    stages_of(b, layers, stage[1]);
    return memcmp(stage[0], stage[1], (size_t)layers * sizeof *stage[0]) != 0;
}
