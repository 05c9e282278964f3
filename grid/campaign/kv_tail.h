/* What the tails of images hold while a cell runs (design: stale, zero, nan). */
#ifndef KV_TAIL_H
#define KV_TAIL_H

#include <stdint.h>

#include "layouts/kv_elem.h"

typedef enum { KV_TAIL_STALE, KV_TAIL_ZERO, KV_TAIL_NAN, KV_TAIL_COUNT } kv_tail;
const char *kv_tail_name(kv_tail t);
/* Bit pattern of a source tail (stale) and of what a translation puts into the destination's (fill). */
uint32_t kv_tail_stale_bits(kv_tail t, kv_elem e);
uint32_t kv_tail_fill_bits(kv_tail t, kv_elem e);

#endif
