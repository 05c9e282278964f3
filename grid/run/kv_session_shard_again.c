/* A second look at cells of several ranks, with every shard on another rank than at first. */
#include <string.h>

#include "grid/cell/kv_shard_cell.h"
#include "grid/run/kv_session_shard.h"

int kv_session_shards_other(const kv_session *s, int64_t ranks)
{
    return kv_session_group_first(s, (int32_t)ranks, true);
}

/* The row of the group's first rank to rank 0. */
static kv_rc bring(kv_session *s, const kv_row *mine, int from, kv_row *row, kv_err *err)
{
    const int size = kv_mpi_size(s->m);
    kv_buf text = {0}, *texts = NULL;
    kv_rc rc = kv_mpi_rank(s->m) == from ? kv_row_pack(&s->c, mine, &text, err) : KV_OK;
    if (rc == KV_OK && kv_session_is_root(s)) {
        texts = kv_alloc((size_t)size, sizeof *texts);
        if (texts == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for a second look");
    }
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    KV_TRY(rc, out, kv_mpi_gather_texts(s->m, text.data, text.len, texts, err));
    if (kv_session_is_root(s)) rc = kv_row_unpack(&s->c, texts[from].data, texts[from].len, row, err);
    rc = kv_mpi_agree(s->m, rc, err);
out:
    for (int r = 0; texts != NULL && r < size; r++) kv_buf_free(&texts[r]);
    kv_free(texts);
    kv_buf_free(&text);
    return rc;
}

kv_rc kv_session_shards_again(kv_session *s, int64_t cell, kv_row *row, kv_err *err)
{
    int64_t ranks = 1;
    kv_row mine;
    kv_rc rc = kv_shard_cell_ranks(&s->c, cell, &ranks, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err)); /* ranks that sat out come with the others */
    memset(&mine, 0, sizeof mine);
    if (kv_session_group_has(s, (int32_t)ranks, true))
        rc = kv_session_group_run(s, cell, (int32_t)ranks, true, &mine, err);
    if (rc != KV_OK) return rc;
    rc = bring(s, &mine, kv_session_group_first(s, (int32_t)ranks, true), row, err);
out:
    return rc;
}
