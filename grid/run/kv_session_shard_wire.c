/* run.wire: the bytes that each rank sent and received in moves of shards. */
#include <string.h>

#include "grid/run/kv_session_shard.h"

typedef struct {
    int64_t sent, received, least;
} moved;

static moved moved_here(const kv_session *s)
{
    moved all = {0, 0, 0};
    for (int i = 0; i < 4 * (KV_TP_RANKS_MAX + 1); i++) {
        const struct kv_session_shards *t = s->shards;
        const kv_tp_transport *one = i % 2 == 0 ? t->over_mpi[i / 2 % 2][i / 4] : t->over_nccl[i / 2 % 2][i / 4];
        if (one == NULL) continue;
        all.sent += one->moved_sent;
        all.received += one->moved_received;
        all.least += one->moved_least;
    }
    return all;
}

static kv_rc take_moved(kv_session *s, const kv_buf *texts, kv_err *err)
{
    s->wire = json_array();
    for (int r = 0; r < kv_mpi_size(s->m); r++) {
        moved m;
        if (texts[r].len != sizeof m) return KV_FAIL(err, KV_EBUG, "rank %d counts its bytes otherwise", r);
        memcpy(&m, texts[r].data, sizeof m);
        json_t *entry = json_pack("{s:i,s:I,s:I,s:I}", "rank", r, "sent", (json_int_t)m.sent, "received",
                                  (json_int_t)m.received, "least", (json_int_t)m.least);
        if (json_array_append_new(s->wire, entry) != 0) return KV_FAIL(err, KV_ENOMEM, "no memory for counts of bytes");
    }
    return KV_OK;
}

kv_rc kv_session_shards_count(kv_session *s, kv_err *err)
{
    const int size = kv_mpi_size(s->m);
    const moved mine = s->shards != NULL ? moved_here(s) : (moved){0, 0, 0};
    kv_buf *texts = NULL;
    kv_rc rc = KV_OK;
    if (s->shards == NULL) return KV_OK; /* on all ranks alike */
    if (kv_session_is_root(s)) {
        texts = kv_alloc((size_t)size, sizeof *texts);
        if (texts == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for counts of bytes");
    }
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    KV_TRY(rc, out, kv_mpi_gather_texts(s->m, (const char *)&mine, sizeof mine, texts, err));
    if (kv_session_is_root(s)) rc = take_moved(s, texts, err);
    rc = kv_mpi_agree(s->m, rc, err);
out:
    for (int r = 0; texts != NULL && r < size; r++) kv_buf_free(&texts[r]);
    kv_free(texts);
    return rc;
}
