/* The numbers of a row as a list, for those who write rows down: the journal (kv_row_text.c) and the packed form
 * (kv_pack.c). The order is part of the journal's format. */
#ifndef KV_ROW_FIELDS_H
#define KV_ROW_FIELDS_H

#include "grid/kv_row.h"

typedef struct {
    size_t at;
    bool wide;           /* int64_t, else int32_t */
    int64_t least, most; /* what may be read back */
} kv_row_field;

#define KV_ROW_FIELDS 30
extern const kv_row_field kv_row_fields[KV_ROW_FIELDS];

int64_t kv_row_field_get(const kv_row *r, const kv_row_field *f);
void kv_row_field_set(kv_row *r, const kv_row_field *f, int64_t v);

#endif
