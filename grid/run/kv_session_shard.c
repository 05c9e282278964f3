/* Cells of check "tp" that take several ranks: all ranks go through them in row order, the first max(p, q) of them work in
 * each, and the others wait for its end. What one process can do alone is handed out like any other cell. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid/cell/kv_fault.h"
#include "grid/cell/kv_shard_cell.h"
#include "grid/run/kv_merge.h"
#include "grid/run/kv_session_shard.h"
#include "tp/kv_tp.h"

#define KV_SHARD_PROGRESS_S 5.0 /* between two lines of progress */

/* ---- which cells, which transport -------------------------------------------------------- */

/* The most ranks that a cell of the campaign takes, of those that there are enough ranks for. */
static kv_rc largest_group(const kv_session *s, int32_t *most, bool *any, kv_err *err)
{
    *most = 1;
    *any = false;
    for (size_t i = 0; i < s->c.n_cells; i++) {
        int64_t ranks;
        const kv_rc rc = kv_shard_cell_ranks(&s->c, (int64_t)i, &ranks, err);
        if (rc != KV_OK) return rc;
        *any = *any || ranks > 1;
        if (ranks > *most && ranks <= kv_mpi_size(s->m)) *most = (int32_t)ranks;
    }
    return KV_OK;
}

int32_t kv_session_group_first(const kv_session *s, int32_t n, bool again)
{
    const int32_t size = (int32_t)kv_mpi_size(s->m);
    return !again || size == 1 ? 0 : size > n ? size - n : 1;
}

bool kv_session_group_has(const kv_session *s, int32_t n, bool again)
{
    const int32_t size = (int32_t)kv_mpi_size(s->m), me = (int32_t)kv_mpi_rank(s->m);
    return (me - kv_session_group_first(s, n, again) + size) % size < n;
}

/* The group over MPI; NULL where this rank is none of it. */
static kv_rc group_over_mpi(kv_session *s, int32_t n, bool again, kv_tp_transport **out, kv_err *err)
{
    struct kv_session_shards *t = s->shards;
    int32_t ranks[KV_TP_RANKS_MAX];
    kv_rc rc = KV_OK;
    for (int32_t r = 0; r < n; r++) ranks[r] = (kv_session_group_first(s, n, again) + r) % (int32_t)kv_mpi_size(s->m);
    if (kv_session_group_has(s, n, again) && t->over_mpi[again][n] == NULL)
        rc = kv_tp_mpi_new(t->world, ranks, n, kv_mpi_timeout(s->m), &t->over_mpi[again][n], err);
    *out = t->over_mpi[again][n];
    return rc;
}

static kv_tp_place place_of(const kv_session *s)
{
    kv_tp_place here;
    memset(&here, 0, sizeof here);
    snprintf(here.host, sizeof here.host, "%.63s", kv_mpi_host_view(s->m, kv_mpi_rank(s->m)));
    snprintf(here.gpu, sizeof here.gpu, "%.47s", s->on.gpu.uuid);
    return here;
}

/* Every rank of the largest group has a GPU of its own, or shards go over MPI; rank 0 keeps why. */
static kv_rc choose(kv_session *s, int32_t most, kv_err *err)
{
    const kv_tp_place here = place_of(s);
    kv_tp_transport *all = NULL;
    char why[KV_TP_WHY_TEXT];
    kv_rc rc = group_over_mpi(s, most, false, &all, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    if (all != NULL) rc = kv_tp_choose_shared(all, &here, &s->shards->nccl, why, err);
    if (rc == KV_OK && kv_session_is_root(s))
        rc = kv_session_transport_note(s, s->shards->nccl ? kv_tp_nccl_kind() : "mpi", why, err);
    rc = kv_mpi_agree(s->m, rc, err);
out:
    return rc;
}

kv_rc kv_session_transport_note(kv_session *s, const char *name, const char *why, kv_err *err)
{
    if (json_array_append_new(s->transports, json_string(name)) == 0 &&
        json_array_append_new(s->transports_why, json_string(why)) == 0)
        return KV_OK;
    return KV_FAIL(err, KV_ENOMEM, "no memory for the transports");
}

kv_rc kv_session_shards_open(kv_session *s, kv_err *err)
{
    int32_t most = 1;
    bool any = false;
    s->transports = json_array();
    s->transports_why = json_array();
    kv_rc rc = s->transports != NULL && s->transports_why != NULL ? KV_OK
                                                                  : KV_FAIL(err, KV_ENOMEM, "no memory for transports");
    if (rc == KV_OK) rc = largest_group(s, &most, &any, err);
    if (rc == KV_OK && any && s->c.tp.emulate && kv_session_is_root(s))
        rc = kv_session_transport_note(s, "emulated", "emulated: one process plays all ranks of a cell", err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    if (most == 1 || s->c.tp.emulate) goto out;
    s->shards = kv_alloc(1, sizeof *s->shards);
    if (s->shards == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for the groups of tensor-parallel cells");
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    rc = kv_tp_world_new(kv_mpi_timeout(s->m), &s->shards->world, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    rc = choose(s, most, err);
out:
    return rc;
}

void kv_session_shards_free(kv_session *s)
{
    struct kv_session_shards *t = s->shards;
    json_decref(s->transports);
    json_decref(s->transports_why);
    json_decref(s->wire);
    kv_free(s->group);
    if (t == NULL || kv_mpi_broken(s->m)) return; /* else bytes may still arrive in what a group holds */
    for (int i = 0; i < 2 * (KV_TP_RANKS_MAX + 1); i++) {
        kv_tp_close(t->over_nccl[i % 2][i / 2]);
        kv_tp_close(t->over_mpi[i % 2][i / 2]);
    }
    kv_tp_world_free(t->world);
    kv_free(t);
}

kv_rc kv_session_shards_split(kv_session *s, kv_err *err)
{
    int64_t left = 0;
    s->group = kv_alloc((size_t)s->n_todo + 1, sizeof *s->group);
    if (s->group == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " cells", s->n_todo);
    for (int64_t i = 0; i < s->n_todo; i++) {
        int64_t ranks = 1;
        const kv_rc rc = s->c.tp.emulate ? KV_OK : kv_shard_cell_ranks(&s->c, s->todo[i], &ranks, err);
        if (rc != KV_OK) return rc;
        if (ranks > 1)
            s->group[s->n_group++] = s->todo[i];
        else
            s->todo[left++] = s->todo[i];
    }
    s->n_todo = left;
    return KV_OK;
}

/* ---- the work ---------------------------------------------------------------------------- */

static kv_rc transport_of(kv_session *s, int32_t n, bool again, kv_tp_transport **out, kv_err *err)
{
    struct kv_session_shards *t = s->shards;
    kv_tp_transport **nccl = &t->over_nccl[again][n];
    const bool fresh = t->over_mpi[again][n] == NULL;
    kv_rc rc = group_over_mpi(s, n, again, out, err);
    if (rc == KV_OK && again && fresh) { /* other ranks, which may lack what the first ones have */
        const kv_tp_place here = place_of(s);
        char why[KV_TP_WHY_TEXT];
        rc = kv_tp_choose_shared(*out, &here, &t->nccl_again[n], why, err);
    }
    if (rc != KV_OK || !(again ? t->nccl_again[n] : t->nccl)) return rc;
    if (*nccl == NULL) rc = kv_tp_nccl_new(*out, s->on.ordinal, kv_mpi_timeout(s->m), nccl, err);
    if (rc == KV_OK) *out = *nccl;
    return rc;
}

/* Rank 0: the row into rows and journal. A row without ranks to make it is not written down: more ranks may come. */
static kv_rc take(kv_session *s, kv_row *row, kv_err *err)
{
    if (row->verdict == KV_VERDICT_FAILED) {
        const int at = (int)strtol(row->failed_at, NULL, 10); /* the group's first rank that failed */
        snprintf(row->failed_at, sizeof row->failed_at, "%d %.140s", at, kv_mpi_host_view(s->m, at));
    }
    kv_rc rc = kv_pack_put(s->rows, row, err);
    s->ranks[row->cell] = 0;
    if (rc == KV_OK && s->journal != NULL && row->verdict != KV_VERDICT_UNPROVEN)
        rc = kv_journal_add(s->journal, &s->c, row, err);
    return rc;
}

/* The group is broken, and so is the world. */
static kv_rc give_up(kv_session *s, const kv_tp_transport *t, kv_rc rc)
{
    bool root_silent = false;
    for (int32_t r = 0; t != NULL && r < t->size; r++) root_silent = root_silent || (t->silent[r] && t->world[r] == 0);
    kv_mpi_give_up(s->m, root_silent);
    return rc;
}

kv_rc kv_session_group_run(kv_session *s, int64_t cell, int32_t ranks, bool again, kv_row *row, kv_err *err)
{
    kv_tp_transport *t = NULL;
    kv_rc rc = transport_of(s, ranks, again, &t, err);
    if (rc != KV_OK) {
        kv_tp_abort(t, rc, err != NULL ? err->text : "");
        return give_up(s, t, rc);
    }
    rc = kv_shard_cell_group(&s->runner, &s->c, cell, t, row, err);
    if (rc == KV_OK) rc = kv_fault_cell(kv_mpi_rank(s->m), row, err);
    return rc == KV_OK ? rc : give_up(s, t, rc);
}

static void tell(kv_session *s, int64_t i)
{
    const double now = kv_session_seconds(s);
    if (!kv_session_is_root(s) || s->progress.off || (now - s->shards->told < KV_SHARD_PROGRESS_S && i < s->n_group))
        return;
    s->shards->told = now;
    fprintf(stderr, "kvgrid: %" PRId64 " of %" PRId64 " cells of several ranks\n", i, s->n_group);
}

/* Too few ranks: nothing is known of the cell. */
static kv_rc leave_unproven(kv_session *s, int64_t cell, kv_err *err)
{
    kv_row row;
    if (!kv_session_is_root(s)) return KV_OK;
    kv_shard_cell_unproven(&s->c, cell, &row);
    return take(s, &row, err);
}

static void say_unproven(const kv_session *s, int64_t n, int64_t most)
{
    if (n > 0 && kv_session_is_root(s))
        fprintf(stderr,
                "kvgrid: %" PRId64 " tensor-parallel cells need up to %" PRId64
                " ranks and there are %d: they are UNPROVEN (start more ranks, or play them with --tp-emulate)\n",
                n, most, kv_mpi_size(s->m));
}

/* One cell, from the agreement that all ranks are there to the row at rank 0. *rc_kept: what rank 0 could not keep. */
static kv_rc one_cell(kv_session *s, int64_t i, int32_t ranks, kv_rc *kept, kv_err *err)
{
    kv_row row;
    kv_rc rc = *kept;
    if (rc == KV_OK && kv_session_stop_asked(s)) rc = KV_EINTR;
    rc = kv_mpi_agree(s->m, rc, err); /* ranks that sat out come to the next cell with the others */
    if (rc != KV_OK) return rc;
    if (kv_mpi_rank(s->m) >= ranks) return KV_OK;
    kv_session_now_cell(s, s->group[i]);
    memset(&row, 0, sizeof row);
    rc = kv_session_group_run(s, s->group[i], ranks, false, &row, err);
    if (rc != KV_OK) return rc;
    if (kv_session_is_root(s)) *kept = take(s, &row, err);
    return KV_OK;
}

kv_rc kv_session_shards_run(kv_session *s, kv_err *err)
{
    int64_t unproven = 0, most = 0;
    kv_rc kept = KV_OK;
    if (s->n_group == 0) return KV_OK;
    for (int64_t i = 0; i < s->n_group; i++) {
        int64_t ranks = 1;
        kv_rc rc = kv_shard_cell_ranks(&s->c, s->group[i], &ranks, err);
        if (rc != KV_OK) return rc; /* the same on all ranks: planning had no such error */
        if (ranks > kv_mpi_size(s->m)) {
            unproven++;
            if (ranks > most) most = ranks;
            if (kept == KV_OK) kept = leave_unproven(s, s->group[i], err);
            continue;
        }
        rc = one_cell(s, i, (int32_t)ranks, &kept, err);
        if (rc != KV_OK) return rc;
        tell(s, i + 1);
    }
    say_unproven(s, unproven, most);
    return kv_mpi_agree(s->m, kept, err);
}
