/* The numbers of a row as a list, for those who write rows down: the journal (kv_row_text.c) and the packed form
 * (kv_pack.c). The order is part of the journal's format. */
#ifndef KV_ROW_FIELDS_H
#define KV_ROW_FIELDS_H

#include "grid/row/kv_row.h"

typedef struct {
    size_t at;
    bool wide;           /* int64_t, else int32_t */
    int64_t least, most; /* what may be read back */
} kv_row_field;

#define KV_ROW_FIELDS 30
extern const kv_row_field kv_row_fields[KV_ROW_FIELDS];

/* What a row of another check than "pair" or "move" holds besides: numbers, and bytes of digests. */
typedef struct {
    size_t has; /* offset of the flag, an int32_t */
    const kv_row_field *field;
    size_t n_fields;
    size_t digest_at, digests; /* offset, and how many of KV_HASH_BYTES each */
} kv_row_more;
#define KV_ROW_MORES 3
extern const kv_row_more kv_row_mores[KV_ROW_MORES];
/* The one that the row has, or NULL. */
const kv_row_more *kv_row_more_of(const kv_row *r);

int64_t kv_row_field_get(const kv_row *r, const kv_row_field *f);
void kv_row_field_set(kv_row *r, const kv_row_field *f, int64_t v);

#endif
