#include "grid/run/kv_merge.h"

int64_t kv_merge_todo(const bool *done, size_t n_cells, int64_t *todo)
{
    int64_t n = 0;
    for (size_t i = 0; i < n_cells; i++)
        if (!done[i]) todo[n++] = (int64_t)i;
    return n;
}

kv_rc kv_merge_take(const kv_merge *m, int64_t item, int rank, const char *bytes, size_t n, kv_row *row, kv_err *err)
{
    kv_rc rc = kv_row_unpack(m->c, bytes, n, row, NULL);
    if (rc != KV_OK) return KV_FAIL(err, KV_EBUG, "rank %d sent %zu bytes that are no row", rank, n);
    if (item < 0 || item >= m->n_todo || row->cell != m->todo[item])
        return KV_FAIL(err, KV_EBUG, "rank %d sent the row of another cell", rank);
    rc = kv_pack_put(m->rows, row, err);
    if (rc != KV_OK) return rc;
    if (m->ranks != NULL) m->ranks[row->cell] = rank;
    return m->journal != NULL ? kv_journal_add(m->journal, m->c, row, err) : KV_OK;
}
