/* One run, seen from one rank: prepare, compute, finish. Internal to `kvgrid run`. */
#ifndef KV_SESSION_H
#define KV_SESSION_H

#include <signal.h>
#include <time.h>

#include "certs/kv_key.h"
#include "grid/cell/kv_ahead.h"
#include "grid/cell/kv_cell_run.h"
#include "grid/cli/kv_opts.h"
#include "grid/document/kv_assurance.h"
#include "grid/report/kv_diff.h"
#include "grid/run/kv_demand.h"
#include "grid/run/kv_gpu.h"
#include "grid/run/kv_journal.h"
#include "grid/run/kv_machine.h"
#include "grid/run/kv_plan.h"
#include "grid/run/kv_progress.h"
#include "mpi/kv_mpi.h"

typedef struct {
    const kv_opts *o;
    kv_mpi *m;
    kv_campaign c;
    kv_plan plan;
    kv_runner runner;
    kv_chosen on;    /* the runner's device */
    kv_ahead *ahead; /* cells begun before their turn; NULL: none */
    kv_demand demand;
    bool *done;    /* cells whose rows stood in the journal; the same on all ranks */
    int64_t *todo; /* the others */
    int64_t n_todo;
    int64_t *group; /* cells of several ranks that are to do (kv_session_shard*.c) */
    int64_t n_group;
    struct kv_session_shards *shards;
    uint64_t *costs; /* of each item: the cells to do, then the controls and limits */
    struct timespec begin;
    char started[32];
    /* rank 0 only */
    kv_progress progress;
    char *out_path;
    kv_key *key;
    kv_diff *baseline; /* to compare with, or NULL */
    kv_pack *rows;
    int32_t *ranks; /* who ran a cell, by cell */
    kv_journal *journal;
    int64_t n_resumed;
    json_t *assured[KV_ASSURANCE_ITEMS]; /* made by the ranks that got these items */
    kv_machines machines;
    json_t *subject;
    json_t *transports, *transports_why; /* that shards go over */
    json_t *wire;                        /* what each rank sent and received; NULL where no cell took several */
} kv_session;

static inline bool kv_session_is_root(const kv_session *s)
{
    return kv_mpi_rank(s->m) == 0;
}

double kv_session_seconds(const kv_session *s); /* since the program began */

/* Campaign to all ranks, device, plan, demands, state; every refusal comes here, on all ranks. */
kv_rc kv_session_prepare(kv_session *s, kv_err *err) KV_MUST_USE;
/* All cells that are not done, and the controls. KV_EINTR: asked to stop, what is finished is kept. */
kv_rc kv_session_compute(kv_session *s, kv_err *err) KV_MUST_USE;
/* From here on SIGUSR1, SIGTERM and SIGINT ask to stop, a second one stops at once, SIGUSR2 tells where this rank is. */
void kv_session_catch_signals(void);
/* Whether a signal or the time limit asks to stop. */
bool kv_session_stop_asked(const kv_session *s);
/* What SIGUSR2 will tell: that this rank is in that cell. */
void kv_session_now_cell(const kv_session *s, int64_t cell);

/* Cells of several ranks (kv_session_shard*.c): the transport, chosen before anything runs; which cells they are, taken out
 * of `todo`; and the work, after all others. KV_EINTR as above; any other error of the work ends the job. */
kv_rc kv_session_shards_open(kv_session *s, kv_err *err) KV_MUST_USE;
kv_rc kv_session_transport_note(kv_session *s, const char *name, const char *why, kv_err *err) KV_MUST_USE;
kv_rc kv_session_shards_split(kv_session *s, kv_err *err) KV_MUST_USE;
kv_rc kv_session_shards_run(kv_session *s, kv_err *err) KV_MUST_USE;
/* One of them once more, with every shard on another rank; rank 0 gets the row. Collective over all ranks. */
kv_rc kv_session_shards_again(kv_session *s, int64_t cell, kv_row *row, kv_err *err) KV_MUST_USE;
/* The rank that holds shard 0 then. */
int kv_session_shards_other(const kv_session *s, int64_t ranks);
/* After all of them: the bytes of every rank to rank 0. Collective. */
kv_rc kv_session_shards_count(kv_session *s, kv_err *err) KV_MUST_USE;
void kv_session_shards_free(kv_session *s);

/* Some cells again on another rank (kv_session_recheck.c); a disagreement is a FAILED row. */
kv_rc kv_session_recheck(kv_session *s, kv_err *err) KV_MUST_USE;
/* Rank 0 merges, signs, writes and tells; *code is the exit code. */
kv_rc kv_session_finish(kv_session *s, int *code, kv_err *err) KV_MUST_USE;
/* Everything but m. */
void kv_session_free(kv_session *s);

#endif
