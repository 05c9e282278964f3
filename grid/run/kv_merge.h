/* What is to do, and where each result goes: rows by cell, never by arrival. */
#ifndef KV_MERGE_H
#define KV_MERGE_H

#include "grid/row/kv_pack.h"
#include "grid/run/kv_journal.h"

/* All borrowed. */
typedef struct {
    const kv_campaign *c;
    const int64_t *todo; /* item to cell */
    int64_t n_todo;
    kv_pack *rows;
    int32_t *ranks;      /* who ran a cell, by cell; may be NULL */
    kv_journal *journal; /* may be NULL */
} kv_merge;

/* The cells that are not done, in order; gives how many. */
int64_t kv_merge_todo(const bool *done, size_t n_cells, int64_t *todo);
/* Takes the bytes of an item below n_todo (a packed row): into rows, then to the journal. The row itself goes to *row. */
kv_rc kv_merge_take(const kv_merge *m, int64_t item, int rank, const char *bytes, size_t n, kv_row *row, kv_err *err)
    KV_MUST_USE;

#endif
