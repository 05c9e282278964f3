#include "grid/kv_merge.h"

#include <string.h>

int64_t kv_merge_todo(const bool *done, size_t n_cells, int64_t *todo)
{
    int64_t n = 0;
    for (size_t i = 0; i < n_cells; i++)
        if (!done[i]) todo[n++] = (int64_t)i;
    return n;
}

kv_rc kv_merge_take(const kv_merge *m, int64_t item, int rank, const char *bytes, size_t n, kv_err *err)
{
    kv_row row;
    if (n != sizeof row) return KV_FAIL(err, KV_EBUG, "rank %d sent a row of %zu bytes, want %zu", rank, n, sizeof row);
    memcpy(&row, bytes, sizeof row);
    if (item < 0 || item >= m->n_todo || row.cell != m->todo[item])
        return KV_FAIL(err, KV_EBUG, "rank %d sent the row of another cell", rank);
    m->rows[row.cell] = row;
    if (m->ranks != NULL) m->ranks[row.cell] = rank;
    return m->journal != NULL ? kv_journal_add(m->journal, m->c, &row, err) : KV_OK;
}
