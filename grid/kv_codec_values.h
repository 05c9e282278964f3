/* The rows that a codec cell stores: made up from a seed, one kv head and stream at a time. Everything here is integer
 * arithmetic and float64 sums in a fixed order, so the same bits come out on every machine. */
#ifndef KV_CODEC_VALUES_H
#define KV_CODEC_VALUES_H

#include "base/kv_base.h"
#include "layouts/kv_elem.h"

typedef enum {
    KV_VALUES_CONSTANT, /* every row of a head is one and the same */
    KV_VALUES_GAUSSIAN, /* independent, standard deviation 1 */
    KV_VALUES_HEAVY,    /* Gaussian over a uniform number: a few values are very large */
    KV_VALUES_K_LIKE_1, /* falling spectrum on an offset mean, see kv_values_shape */
    KV_VALUES_K_LIKE_2,
    KV_VALUES_K_LIKE_3,
    KV_VALUES_K_LIKE_4,
    KV_VALUES_ZEROS,
    KV_VALUES_COUNT
} kv_values_kind; /* in the byte order of their names */

const char *kv_values_name(kv_values_kind k);
bool kv_values_parse(const char *name, kv_values_kind *out);

/* Which rows. */
typedef struct {
    kv_values_kind kind;
    uint64_t seed;
    int64_t layer, head;
    int32_t stream;  /* 0 keys, 1 values */
    kv_elem element; /* values are rounded to this type */
} kv_values_place;

/* x[tokens][dim] of that head and stream, as float32 that hold values of the element type. Same first rows for any
 * number of tokens. KV_ENOMEM. */
kv_rc kv_values_make(const kv_values_place *at, int64_t tokens, int64_t dim, float *x, kv_err *err) KV_MUST_USE;

#endif
