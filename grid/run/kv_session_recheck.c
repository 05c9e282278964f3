/* A second look on another rank: an unexpected NOT_EXACT, and --cross-check percent of all cells. A bad device must
 * not look like a bad translation: where two ranks disagree the row is FAILED and names both. A cell of several ranks is
 * run again with every shard on another rank. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid/cell/kv_cell.h"
#include "grid/cell/kv_fault.h"
#include "grid/cell/kv_shard_cell.h"
#include "grid/row/kv_row_text.h"
#include "grid/run/kv_session.h"

#define ROW_BYTES ((size_t)1024) /* a packed row with its length has fewer */
#define ROWS_A_ROUND ((int64_t)(KV_MPI_TEXT_BYTES_MAX / ROW_BYTES))
#define EARLIER (-1) /* as a rank: the row stood in the journal, which does not say who ran it */

/* One cell to run again, and who ran it: the holders of shard 0 where it takes several ranks. */
typedef struct {
    int64_t cell, ranks;
    int32_t rank, other;
} second_look;

/* NOT_EXACT without a change of element types or a codec: the index algebra says that it must be exact. */
static bool unexpected(const kv_row *r)
{
    return r->verdict == KV_VERDICT_NOT_EXACT && !r->converts && !r->has_codec && !r->has_study;
}

/* A sample that depends on the cell alone. */
static bool sampled(int64_t cell, int64_t percent)
{
    return (int64_t)(kv_payload_mix((uint64_t)cell ^ 0x5EED) % 100) < percent;
}

/* Ranks that take a cell together. */
static int64_t ranks_of(const kv_session *s, int64_t cell)
{
    int64_t ranks = 1;
    return !s->c.tp.emulate && kv_shard_cell_ranks(&s->c, cell, &ranks, NULL) == KV_OK ? ranks : 1;
}

/* Rows from the journal too: the run that made them may have ended before its second look. */
static bool needs_a_look(const kv_session *s, const kv_row *r)
{
    if (r->verdict == KV_VERDICT_FAILED || r->verdict == KV_VERDICT_UNPROVEN) return false;
    return unexpected(r) || (sampled(r->cell, s->o->cross_check) && !kv_journal_looked(s->journal, r->cell));
}

/* Cells of one rank, or those of several, by cell. */
static kv_rc list_looks(const kv_session *s, bool several, kv_buf *out, kv_err *err)
{
    const int size = kv_mpi_size(s->m);
    for (int64_t cell = 0; cell < (int64_t)s->c.n_cells; cell++) {
        kv_row row;
        const kv_row *r = &row;
        kv_pack_get(s->rows, cell, &row);
        if (!needs_a_look(s, r)) continue;
        second_look look = {cell, ranks_of(s, cell), s->ranks[cell], (s->ranks[cell] + 1) % size};
        if (s->done[cell]) { /* anyone: all of them in turn */
            look.rank = EARLIER;
            look.other = (int32_t)(cell % size);
        }
        if ((look.ranks > 1) != several || look.ranks > size) continue; /* too few now for a row of the journal */
        if (several) look.other = kv_session_shards_other(s, look.ranks);
        kv_rc rc = kv_buf_append(out, &look, sizeof look, err);
        if (rc != KV_OK) return rc;
    }
    return KV_OK;
}

/* Whether two runs of a cell found the same. */
static bool agree(const kv_row *a, const kv_row *b)
{
    kv_buf x = {0}, y = {0};
    const bool same = kv_row_encode(a, &x, NULL) == KV_OK && kv_row_encode(b, &y, NULL) == KV_OK && x.len == y.len &&
                      memcmp(x.data, y.data, x.len) == 0;
    kv_buf_free(&x);
    kv_buf_free(&y);
    return same;
}

static void say_disagreement(const kv_session *s, const second_look *look, const char *first, const char *second,
                             char out[KV_REASON_TEXT])
{
    const char *kind = s->runner.dev->ops->kind, *other = kv_mpi_host_view(s->m, look->other);
    if (look->rank == EARLIER)
        snprintf(out, KV_REASON_TEXT,
                 "two runs disagree: an earlier one on this state says %s, rank %d on %.60s (%s) says %s", first,
                 look->other, other, kind, second);
    else
        snprintf(out, KV_REASON_TEXT,
                 look->ranks > 1
                     ? "two groups of ranks disagree: that of rank %d on %.60s (%s) says %s, that of rank %d "
                       "on %.60s (%s) says %s"
                     : "two ranks disagree: rank %d on %.60s (%s) says %s, rank %d on %.60s (%s) says %s",
                 look->rank, kv_mpi_host_view(s->m, look->rank), kind, first, look->other, other, kind, second);
}

/* A second look that found the same is noted in the journal, where the row then stands twice. */
static kv_rc judge(kv_session *s, const second_look *look, const kv_row *second, kv_err *err)
{
    kv_row first;
    const kv_row *row = &first;
    kv_pack_get(s->rows, look->cell, &first);
    if (second->verdict == KV_VERDICT_FAILED) return KV_OK;
    if (agree(row, second)) return s->journal != NULL ? kv_journal_add(s->journal, &s->c, row, err) : KV_OK;
    kv_row failed = first;
    kv_cell_mark_failed(&failed, KV_EDEVICE, &(kv_err){.rc = KV_EDEVICE});
    say_disagreement(s, look, kv_verdict_name((kv_verdict)row->verdict), kv_verdict_name((kv_verdict)second->verdict),
                     failed.reason);
    const int at = look->rank == EARLIER ? look->other : look->rank;
    snprintf(failed.failed_at, sizeof failed.failed_at, "%d %.140s", at, kv_mpi_host_view(s->m, at));
    const kv_rc rc = kv_pack_put(s->rows, &failed, err);
    return rc == KV_OK && s->journal != NULL ? kv_journal_add(s->journal, &s->c, &failed, err) : rc;
}

/* A packed row behind its length. */
static kv_rc add_packed(const kv_campaign *c, const kv_row *row, kv_buf *out, kv_err *err)
{
    kv_buf packed = {0};
    kv_rc rc = kv_row_pack(c, row, &packed, err);
    const uint32_t n = (uint32_t)packed.len;
    if (rc == KV_OK) rc = kv_buf_append(out, &n, sizeof n, err);
    if (rc == KV_OK) rc = kv_buf_append(out, packed.data, packed.len, err);
    kv_buf_free(&packed);
    return rc;
}

/* The row at *at, which moves behind it. */
static kv_rc next_packed(const kv_campaign *c, const kv_buf *text, size_t *at, kv_row *row, kv_err *err)
{
    uint32_t n;
    if (text->len - *at < sizeof n) return KV_FAIL(err, KV_EBUG, "a list of rows is torn");
    memcpy(&n, text->data + *at, sizeof n);
    *at += sizeof n;
    if (n > text->len - *at) return KV_FAIL(err, KV_EBUG, "a list of rows is torn");
    *at += n;
    return kv_row_unpack(c, text->data + *at - n, n, row, err);
}

/* The looks of ranks of their own, as far as this rank has come. */
typedef struct {
    const second_look *look;
    int64_t n, at;
    bool cut; /* asked to stop before the end of a round */
} look_list;

/* This rank's next looks, as rows. */
static kv_rc run_mine(kv_session *s, look_list *l, kv_buf *out, kv_err *err)
{
    for (int64_t mine = 0; l->at < l->n && mine < ROWS_A_ROUND; l->at++) {
        kv_row row;
        const int64_t cell = l->look[l->at].cell;
        if (l->look[l->at].other != kv_mpi_rank(s->m)) continue;
        l->cut = kv_session_stop_asked(s);
        if (l->cut) break;
        mine++;
        kv_session_now_cell(s, cell);
        kv_rc rc = kv_cell_run(&s->runner, &s->c, cell, &row, err);
        if (rc == KV_OK) rc = kv_fault_cell(kv_mpi_rank(s->m), &row, err);
        if (rc == KV_OK) rc = add_packed(&s->c, &row, out, err);
        if (rc != KV_OK) return rc;
    }
    return KV_OK;
}

static int by_cell(const void *cell, const void *look)
{
    const int64_t a = *(const int64_t *)cell, b = ((const second_look *)look)->cell;
    return a < b ? -1 : a > b;
}

static kv_rc judge_round(kv_session *s, const look_list *l, const kv_buf *texts, kv_err *err)
{
    for (int r = 0; r < kv_mpi_size(s->m); r++)
        for (size_t at = 0; at < texts[r].len;) {
            kv_row row;
            kv_rc rc = next_packed(&s->c, &texts[r], &at, &row, err);
            const second_look *look =
                rc == KV_OK ? bsearch(&row.cell, l->look, (size_t)l->n, sizeof *look, by_cell) : NULL;
            if (rc == KV_OK && look == NULL)
                rc = KV_FAIL(err, KV_EBUG, "rank %d looked at cell %" PRId64 " unasked", r, row.cell);
            if (rc == KV_OK) rc = judge(s, look, &row, err);
            if (rc != KV_OK) return rc;
        }
    return KV_OK;
}

/* As many rounds as the rank with the most looks needs; the same number on all ranks. */
static int64_t rounds_of(const kv_session *s, const second_look *look, int64_t n_looks)
{
    int64_t most = 0;
    for (int r = 0; r < kv_mpi_size(s->m); r++) {
        int64_t n = 0;
        for (int64_t i = 0; i < n_looks; i++) n += look[i].other == r;
        if (n > most) most = n;
    }
    return (most + ROWS_A_ROUND - 1) / ROWS_A_ROUND;
}

static kv_rc one_round(kv_session *s, look_list *l, kv_err *err)
{
    kv_buf mine = {0}, *texts = NULL;
    const int size = kv_mpi_size(s->m);
    kv_rc rc = run_mine(s, l, &mine, err);
    if (rc == KV_OK && kv_session_is_root(s)) {
        texts = kv_alloc((size_t)size, sizeof *texts);
        if (texts == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for a second look");
    }
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    KV_TRY(rc, out, kv_mpi_gather_texts(s->m, mine.data, mine.len, texts, err));
    if (kv_session_is_root(s)) rc = judge_round(s, l, texts, err);
    if (rc == KV_OK && l->cut) rc = KV_EINTR;
    rc = kv_mpi_agree(s->m, rc, err);
out:
    for (int r = 0; texts != NULL && r < size; r++) kv_buf_free(&texts[r]);
    kv_free(texts);
    kv_buf_free(&mine);
    return rc;
}

/* All looks of one rank each, or one after the other those that all ranks take part in. */
static kv_rc run_looks(kv_session *s, bool several, const second_look *list, int64_t n, kv_err *err)
{
    const int64_t rounds = several ? n : rounds_of(s, list, n);
    look_list l = {list, n, 0, false};
    kv_rc rc = KV_OK;
    if (kv_session_is_root(s) && !s->progress.off)
        fprintf(stderr, "kvgrid: %" PRId64 " cells%s run again on %s%s\n", n, several ? " of several ranks" : "",
                several ? "other ranks" : "another rank", kv_mpi_size(s->m) == 1 ? " (there is only one)" : "");
    for (int64_t i = 0; rc == KV_OK && i < rounds; i++) {
        kv_row second;
        if (several) rc = kv_mpi_agree(s->m, kv_session_stop_asked(s) ? KV_EINTR : KV_OK, err);
        if (rc == KV_OK) rc = several ? kv_session_shards_again(s, list[i].cell, &second, err) : one_round(s, &l, err);
        if (rc != KV_OK || !several) continue;
        if (kv_session_is_root(s)) rc = judge(s, &list[i], &second, err);
        rc = kv_mpi_agree(s->m, rc, err);
    }
    return rc;
}

static kv_rc recheck(kv_session *s, bool several, kv_err *err)
{
    kv_buf looks = {0};
    kv_rc rc = KV_OK;
    if (kv_session_is_root(s)) rc = list_looks(s, several, &looks, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    KV_TRY(rc, out, kv_mpi_bcast_bytes(s->m, &looks, err));
    const int64_t n = (int64_t)(looks.len / sizeof(second_look));
    if (n > 0) rc = run_looks(s, several, (const second_look *)(const void *)looks.data, n, err);
out:
    kv_buf_free(&looks);
    return rc;
}

kv_rc kv_session_recheck(kv_session *s, kv_err *err)
{
    kv_rc rc = recheck(s, false, err);
    if (rc == KV_OK && s->shards != NULL) rc = recheck(s, true, err);
    return rc;
}
