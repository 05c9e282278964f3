/* A geometry as JSON. Apart from kv_geometry.c, which needs no jansson (tests/device_check.sh builds without). */
#include "layouts/kv_geometry.h"

json_t *kv_geometry_json_new(const kv_geometry *g)
{
    json_t *o =
        json_pack("{s:I,s:I,s:I,s:I,s:s}", "layers", (json_int_t)g->layers, "tokens", (json_int_t)g->tokens, "kv_heads",
                  (json_int_t)g->kv_heads, "head_dim", (json_int_t)g->head_dim, "element", kv_elem_name(g->element));
    if (o != NULL && g->head_dim_v != g->head_dim &&
        json_object_set_new(o, "head_dim_v", json_integer((json_int_t)g->head_dim_v)) != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}
