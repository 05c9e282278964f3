/* A model geometry: the sizes that a layout binds to. */
#ifndef KV_GEOMETRY_H
#define KV_GEOMETRY_H

#include <jansson.h>

#include "base/kv_base.h"
#include "layouts/kv_elem.h"

/* Largest value of each field; a product that does not fit is found when a layout binds. */
#define KV_LAYERS_MAX 65536
#define KV_TOKENS_MAX ((int64_t)1 << 40)
#define KV_HEADS_MAX 1048576
#define KV_HEAD_DIM_MAX 1048576

typedef struct {
    int64_t layers;     /* >= 1 */
    int64_t tokens;     /* >= 0 */
    int64_t kv_heads;   /* >= 1, of the whole model */
    int64_t head_dim;   /* >= 1, of K (latent layouts: width of the row) */
    int64_t head_dim_v; /* >= 1, of V; equal to head_dim unless given */
    kv_elem element;
} kv_geometry;

/* Parses "L=3,T=40,H=2,D=8,e=f16" (any order, each once; Dv is optional). KV_EINVAL names the part
 * that is wrong; *out is untouched then. */
kv_rc kv_geometry_parse(const char *text, kv_geometry *out, kv_err *err) KV_MUST_USE;
/* The same text back: "L=3,T=40,H=2,D=8,e=f16", with ",Dv=4" before e where it differs. */
#define KV_GEOMETRY_TEXT 160
void kv_geometry_print(const kv_geometry *g, char text[KV_GEOMETRY_TEXT]);
/* A new JSON object with the campaign's field names; NULL when memory is out. */
json_t *kv_geometry_json_new(const kv_geometry *g) KV_MUST_USE;
bool kv_geometry_equal(const kv_geometry *a, const kv_geometry *b);
/* Checks every field's range; KV_EINVAL names the field, its value and the range. */
kv_rc kv_geometry_check(const kv_geometry *g, kv_err *err) KV_MUST_USE;

#endif
