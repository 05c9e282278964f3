/* grid: one conformance case while it is looked at; for kv_codec_conform*.c. */
#ifndef KV_CODEC_CONFORM_INT_H
#define KV_CODEC_CONFORM_INT_H

#include "grid/codec/kv_codec_compare.h"
#include "grid/codec/kv_codec_conform.h"
#include "kernels/codec/kv_codec_vectors.h"

#define KV_CONFORM_FILE_LIMIT ((size_t)1 << 30)

typedef struct {
    const char *name;
    const json_t *entry; /* of index.json */
    kv_codec_vector v;
    const kv_codec_variant *variant;
    const char *who;       /* "file", the variant's name, or "slot" */
    bool without_outliers; /* a slot without an outlier part has dropped them */
    kv_codec_conform_told told;
    void *user;
    kv_codec_conform_sum *sum;
    int64_t differences;
    bool unusable; /* a file of it cannot be read or parsed */
} kv_conform_case;

void kv_conform_tell(kv_conform_case *c, const char *field, const char *what);
/* n values, any NaN equal to any NaN; tells the first difference. */
void kv_conform_hold(kv_conform_case *c, const char *field, kv_codec_as as, const void *got, const void *want,
                     int64_t n);
/* A number of the index against what the file says; want NULL: the index says nothing. */
void kv_conform_hold_number(kv_conform_case *c, const char *field, int64_t got, const json_t *want);
/* Codes against sections 7 to 13 and 15. */
void kv_conform_hold_codes(kv_conform_case *c, const kv_codec_codes *got);
/* The case's slot image, where it has one: packed to the same bytes, unpacked to the same codes; or the overflow error
 * that it expects. index: path of index.json. */
kv_rc kv_conform_slot(kv_conform_case *c, const char *index, kv_err *err) KV_MUST_USE;
/* The file that an entry of the index names, in the index's folder; tells where its sha256 is not the one that the entry
 * has. */
kv_rc kv_conform_read(kv_conform_case *c, const char *index, const json_t *entry, kv_buf *out, kv_err *err) KV_MUST_USE;

#endif
