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
    KV_VALUES_COUNT,
    KV_VALUES_FILE = KV_VALUES_COUNT /* of a user's raw file: has no name of its own */
} kv_values_kind;                    /* in the byte order of their names */

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

/* A user's raw file: the canonical tensor [layers][KV][tokens][kv_heads][head_dim] of the geometry, in its element type. */
typedef struct {
    char *name, *path; /* path: NULL where the campaign comes from a certificate */
    int64_t bytes;
    char digest[65]; /* BLAKE2b-256 */
} kv_values_file;
/* Checks size and digest of the file, once for a run. KV_EREAD names what it is and what it must be. */
kv_rc kv_values_file_check(const kv_values_file *f, kv_err *err) KV_MUST_USE;
/* Size and digest of what stands at f->path now. */
kv_rc kv_values_file_measure(kv_values_file *f, kv_err *err) KV_MUST_USE;
/* KV_EFORMAT names the first value that is not finite, where the file holds elements of this type. */
kv_rc kv_values_file_finite(const kv_values_file *f, kv_elem element, kv_err *err) KV_MUST_USE;
/* out[n] from byte `offset` on, as float32. KV_EREAD, also for a value that is not finite. */
kv_rc kv_values_file_read(const kv_values_file *f, kv_elem element, int64_t offset, int64_t n, float *out, kv_err *err)
    KV_MUST_USE;

/* x[tokens][dim] of that head and stream, as float32 that hold values of the element type. Same first rows for any
 * number of tokens. KV_ENOMEM. */
kv_rc kv_values_make(const kv_values_place *at, int64_t tokens, int64_t dim, float *x, kv_err *err) KV_MUST_USE;

/* Heads that were made before: making them takes longer than storing them. Up to KV_VALUES_KEPT bytes are kept; then all
 * are forgotten. Initialise with {0}. */
#define KV_VALUES_KEPT ((size_t)64 << 20)
typedef struct {
    struct kv_values_head *head;
    size_t n, room, bytes;
} kv_values_store;
/* As kv_values_make, from the store where it is there. */
kv_rc kv_values_get(kv_values_store *s, const kv_values_place *at, int64_t tokens, int64_t dim, float *x, kv_err *err)
    KV_MUST_USE;
void kv_values_forget(kv_values_store *s);

#endif
