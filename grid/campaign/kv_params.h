/* The params of a row, as people read them. */
#ifndef KV_PARAMS_H
#define KV_PARAMS_H

#include <jansson.h>

/* ",tail=zero" for each of params, "" for none. A long value (a list of stages) is told by its beginning and a digest of all of
 * it, so that no two params that differ are the same text. */
#define KV_PARAMS_TEXT 480
void kv_params_print(const json_t *params, char out[KV_PARAMS_TEXT]);

#endif
