/* The section `attribution` of a campaign: the small model of kernels/codec/kv_codec_study.h, compressed part by part. A
 * geometry gives layers, kv_heads, head_dim, and its tokens are the prefix that is compressed. */
#ifndef KV_STUDY_SPEC_H
#define KV_STUDY_SPEC_H

#include <jansson.h>

#include "grid/campaign/kv_codec_spec.h"
#include "kernels/codec/kv_codec_study.h"

#define KV_STUDY_SEEDS_MAX 64
#define KV_STUDY_PASSAGES_MAX 8
#define KV_STUDY_CELL_TEXT 24

/* "k-no-whitening" and so on; layer-0 ... count as one, "layers". */
#define KV_STUDY_CELL_KINDS 12

typedef struct {
    bool present;
    bool method[KV_STORE_COUNT]; /* recipes of the codec only */
    bool cell[KV_STUDY_CELL_KINDS];
    uint64_t seed[KV_STUDY_SEEDS_MAX]; /* in the byte order of their decimal texts */
    int32_t n_seeds;
    int32_t passages, evaluated, block;
} kv_study_section;

/* A missing section (NULL) gives present false. KV_EFORMAT names the key. */
kv_rc kv_study_section_read(const json_t *v, const char *where, kv_study_section *out, kv_err *err) KV_MUST_USE;

typedef struct {
    kv_store_method method;
    uint64_t seed;
    char cell[KV_STUDY_CELL_TEXT];
} kv_study_point;

/* The points of a geometry of that many layers, in row order. */
size_t kv_study_point_count(const kv_study_section *s, int64_t layers);
kv_study_point kv_study_point_at(const kv_study_section *s, int64_t layers, size_t i);
/* {"cell":"kv","seed":"1"}; NULL when memory is out. */
json_t *kv_study_point_params_new(const kv_study_point *p) KV_MUST_USE;
const char *kv_study_point_side(const kv_study_point *p, int side);

#endif
