/* The story of one seed: runs with faults, each resumed, until one is complete; and what must be true of each. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/sim/kv_sim_story.h"

#define RUNS_MOST 12
#define LINE_BYTES 700 /* of a row in the journal, about */

/* ---- what cells do ---- */

static uint64_t duration(const kv_sim_world *w, int rank, int64_t item)
{
    const kv_sim_tale *s = w->owner;
    kv_sim_chance c = {s->seed ^ ((uint64_t)item << 20) ^ (uint64_t)rank};
    if (kv_sim_is_bad(s, KV_SIM_HANGING_ITEM, rank) && w->workers[rank].items == s->t.nth) return UINT64_MAX;
    const uint64_t ns = s->cost[s->todo[item]] / 2 + kv_sim_below(&c, s->cost[s->todo[item]]);
    return kv_sim_is_bad(s, KV_SIM_SLOW_RANK, rank) ? ns * (uint64_t)s->t.slow : ns;
}

/* A row that says where it failed, as kv_session_work.c makes it. */
static void fail_row(kv_row *row, int rank)
{
    row->verdict = KV_VERDICT_FAILED;
    row->error_class = 0;
    row->ran = 0;
    snprintf(row->failed_at, sizeof row->failed_at, "%d node", rank);
}

static kv_rc run_item(kv_sim_world *w, int rank, int64_t item, kv_buf *result, kv_err *err)
{
    const kv_sim_tale *s = w->owner;
    kv_row row;
    const bool nth = w->workers[rank].items == s->t.nth + 1;
    if (kv_sim_is_bad(s, KV_SIM_FATAL_ITEM, rank) && nth) return KV_FAIL(err, KV_EDEVICE, "the planted fault");
    kv_sim_row(s->seed, s->todo[item], &row);
    if (kv_sim_is_bad(s, KV_SIM_FAILED_CELL, rank) && nth) fail_row(&row, rank);
    return kv_row_pack(&s->c, &row, result, err);
}

/* Another run wants this state, on this host, now. */
static kv_rc try_rival(kv_sim_tale *s)
{
    kv_sim_view v;
    kv_pack *rows = NULL;
    bool done[KV_SIM_CELLS_MOST] = {false};
    int64_t n_done = 0;
    kv_journal *j = NULL;
    kv_err err = {0};
    kv_sim_view_init(&v, &s->disk, s->view.who.host, 4000, 1);
    v.other = s->view.who;
    kv_rc rc = kv_pack_new(&s->c, &rows, s->err);
    if (rc != KV_OK) return rc;
    rc = kv_journal_open_on(&v.table, "state", &s->c, s->digest, rows, done, &n_done, &j, &err);
    kv_pack_free(rows);
    if (rc == KV_OK) {
        (void)!kv_journal_close(j, NULL);
        return KV_SIM_BROKEN(s, "two runs have one state");
    }
    const bool excused =
        s->disk.killed ||
        (rc == KV_EWRITE && (s->t.kinds & ((uint32_t)1 << KV_SIM_FULL_DISK | (uint32_t)1 << KV_SIM_BAD_CHANGE)) != 0);
    return rc == KV_EEXIST || excused ? KV_OK : KV_SIM_BROKEN(s, "a second run is told: %s", err.text);
}

static bool fails(const kv_sim_tale *s, const char *bytes, size_t n)
{
    kv_row row;
    return kv_row_unpack(&s->c, bytes, n, &row, NULL) == KV_OK && row.verdict == KV_VERDICT_FAILED;
}

static kv_rc on_result(kv_sim_world *w, int64_t item, int rank, const char *bytes, size_t n, kv_err *err)
{
    kv_sim_tale *s = w->owner;
    const int64_t cell = s->todo[item];
    kv_row row;
    if (s->seen[item]++ > 0) return KV_SIM_BROKEN(s, "cell %" PRId64 " came twice", cell);
    if (kv_sim_has(&s->t, KV_SIM_RIVAL) && s->delivered == s->t.rival_nth && try_rival(s) != KV_OK) return KV_EBUG;
    s->delivered++;
    s->failed[cell] = false; /* from here on a good row may be there, or not */
    s->writing = fails(s, bytes, n) ? -1 : cell;
    const kv_rc rc = kv_merge_take(&s->merge, item, rank, bytes, n, &row, err);
    s->writing = -1;
    if (rc != KV_OK) s->unsaved = true;
    if (rc != KV_OK) return rc;
    s->failed[cell] = row.verdict == KV_VERDICT_FAILED;
    s->acked[cell] = !s->failed[cell];
    s->acked_at[cell] = w->now;
    return KV_OK;
}

static void on_progress(kv_sim_world *w, const kv_mpi_progress *p)
{
    const kv_sim_tale *s = w->owner;
    kv_journal_tick(s->journal, p->items_done == p->items_total);
}

static void on_sync(void *ctx)
{
    kv_sim_tale *s = ctx;
    memcpy(s->durable, s->acked, sizeof s->durable);
    if (s->writing >= 0) s->durable[s->writing] = true; /* it is synced after it is written */
}

/* ---- before a run ---- */

static void tell_trouble(kv_sim_tale *s)
{
    char text[400] = "";
    for (int f = 0; f < KV_SIM_FAULT_COUNT; f++) {
        if (!kv_sim_has(&s->t, (kv_sim_fault)f)) continue;
        s->tally->faults[f]++;
        const size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? ", " : "", kv_sim_fault_name(f));
    }
    if (s->t.ranks == 0) {
        kv_sim_tell(s, "at last, the journal alone:\n");
        return;
    }
    kv_sim_tell(s, "run %d: %d rank%s, timeout %g s; %s\n", s->run, s->t.ranks, s->t.ranks == 1 ? "" : "s",
                s->t.timeout_s, text[0] != '\0' ? text : "no fault");
}

/* Changes the journal as the trouble says; what is not applicable is struck from it. */
static void tamper(kv_sim_tale *s, kv_buf *before)
{
    kv_sim_file *f = kv_sim_disk_find(&s->disk, "state/journal");
    bool one = false;
    for (int k = KV_SIM_CUT_LINE; k < KV_SIM_FAULT_COUNT; k++) {
        int64_t lost = -1;
        if (!kv_sim_has(&s->t, (kv_sim_fault)k)) continue;
        if (f != NULL && !one && f->now.len > 0) {
            before->len = 0;
            (void)!kv_buf_append(before, f->now.data, f->now.len, NULL);
            one = kv_sim_tamper(&s->chance, (kv_sim_fault)k, &f->now, &lost);
            if (one && lost >= 0 && lost < KV_SIM_CELLS_MOST)
                s->acked[lost] = s->durable[lost] = s->failed[lost] = false;
            if (one && (k == KV_SIM_BAD_LINE || k >= KV_SIM_CONFLICT)) s->t.tampered = KV_EFORMAT;
            if (one) continue;
        }
        s->t.kinds &= ~((uint32_t)1 << k);
    }
}

static void set_fates(kv_sim_tale *s)
{
    kv_sim_disk *d = &s->disk;
    const kv_sim_file *f = kv_sim_disk_find(d, "state/journal");
    kv_sim_disk_revive(d);
    d->sync_ns = s->t.sync_ns;
    if (kv_sim_has(&s->t, KV_SIM_KILL_AT_CHANGE)) {
        d->fates[d->n_fates].op = s->t.change;
        d->fates[d->n_fates++].fate = s->t.fate;
    }
    for (int i = 0; i < 2 && kv_sim_has(&s->t, KV_SIM_BAD_CHANGE); i++) {
        d->fates[d->n_fates].op = s->t.changes[i];
        d->fates[d->n_fates++].fate = s->t.fates[i];
    }
    if (kv_sim_has(&s->t, KV_SIM_FULL_DISK)) d->capacity = (f != NULL ? (int64_t)f->now.len : 0) + s->t.capacity;
}

/* A new process: mostly on the same host, its number may be that of a dead one. */
static void set_process(kv_sim_tale *s)
{
    const bool elsewhere = kv_sim_has(&s->t, KV_SIM_OTHER_HOST);
    kv_sim_view_init(&s->view, &s->disk, elsewhere ? "node2" : "node1", 1000 + (int64_t)kv_sim_below(&s->chance, 3),
                     s->run);
}

/* The journal could not be opened. What is wrong is put right, as a user would. */
static kv_rc refused(kv_sim_tale *s, kv_rc rc, const kv_err *why, const kv_buf *before, kv_sim_end *end)
{
    *end = s->disk.killed ? KV_SIM_KILLED : KV_SIM_REFUSED;
    kv_sim_tell(s, "  %s: %s\n", s->disk.killed ? "killed" : "refused", why->text);
    if (before->len > 0) { /* the user has a copy */
        kv_sim_file *f = kv_sim_disk_find(&s->disk, "state/journal");
        const bool seen = s->t.tampered != KV_OK && rc == s->t.tampered;
        if (seen && kv_sim_has(&s->t, KV_SIM_BAD_LINE) && strstr(why->text, "line ") == NULL)
            return KV_SIM_BROKEN(s, "does not name the line: %s", why->text);
        f->now.len = 0;
        const kv_rc back = kv_buf_append(&f->now, before->data, before->len, s->err);
        if (back != KV_OK || seen) return back;
    }
    if (s->disk.killed) return KV_OK;
    if (rc == KV_EEXIST) {
        kv_sim_file *f = kv_sim_disk_find(&s->disk, "state/lock");
        const bool foreign =
            f != NULL && f->now.len > 0 && strncmp(f->now.data, s->view.who.host, strlen(s->view.who.host)) != 0;
        if (!foreign) return KV_SIM_BROKEN(s, "refused though no one holds the state: %s", why->text);
        f->name[0] = '\0'; /* the user knows that it is gone */
        kv_buf_free(&f->now);
        kv_buf_free(&f->synced);
        return KV_OK;
    }
    if (rc == KV_EWRITE && kv_sim_disk_trouble(s)) return KV_OK;
    return KV_SIM_BROKEN(s, "cannot resume: %s", why->text);
}

static kv_rc begin(kv_sim_tale *s, kv_sim_end *end)
{
    kv_err why = {0};
    kv_buf before = {0};
    int64_t n_done = 0;
    memset(s->done, 0, sizeof s->done);
    memset(s->seen, 0, sizeof s->seen);
    s->delivered = 0;
    s->writing = -1;
    s->unsaved = false;
    tamper(s, &before);
    tell_trouble(s);
    set_fates(s);
    set_process(s);
    s->disk.clock = &s->clock;
    kv_pack_free(s->rows);
    s->rows = NULL;
    kv_rc rc = kv_pack_new(&s->c, &s->rows, &why);
    if (rc == KV_OK)
        rc =
            kv_journal_open_on(&s->view.table, "state", &s->c, s->digest, s->rows, s->done, &n_done, &s->journal, &why);
    if (rc != KV_OK)
        rc = refused(s, rc, &why, &before, end);
    else if (s->t.tampered != KV_OK)
        rc = KV_SIM_BROKEN(s, "the journal was tampered with, and no one saw it");
    else
        rc = kv_sim_check_resumed(s, n_done);
    kv_buf_free(&before);
    return rc;
}

/* ---- the run ---- */

static void plan_events(kv_sim_tale *s, kv_sim_world *w, uint64_t *from, uint64_t *until)
{
    const kv_sim_trouble *t = &s->t;
    const bool lost = kv_sim_has(t, KV_SIM_LOST_RANK);
    if (lost || kv_sim_has(t, KV_SIM_SILENT_RANK)) kv_sim_at(w, w->now + t->when_ns, KV_SIM_EV_DIE, t->bad_rank, 0);
    if (lost) kv_sim_at(w, w->now + t->when_ns + kv_sim_below(&s->chance, 1000000000u), KV_SIM_EV_KILL, 0, 0);
    if (kv_sim_has(t, KV_SIM_KILL_AT_TIME)) kv_sim_at(w, w->now + t->kill_ns, KV_SIM_EV_KILL, 0, 0);
    for (int r = 0; r < t->ranks && kv_sim_has(t, KV_SIM_SIGNAL); r++)
        if (t->stop_rank < 0 || t->stop_rank == r)
            kv_sim_at(w, w->now + t->stop_ns + kv_sim_below(&s->chance, 5000000), KV_SIM_EV_STOP, r, 0);
    if (kv_sim_has(t, KV_SIM_PAUSED_RANK)) {
        from[t->bad_rank] = w->now + t->when_ns;
        until[t->bad_rank] = w->now + t->until_ns;
        w->paused_from = from;
        w->paused_until = until;
    }
}

/* Longer than any run can take that is alive. */
static uint64_t bound(const kv_sim_tale *s)
{
    const kv_sim_trouble *t = &s->t;
    const uint64_t limit = (uint64_t)(t->timeout_s * 1e9),
                   slow = kv_sim_has(t, KV_SIM_SLOW_RANK) ? (uint64_t)t->slow : 1;
    return s->clock + 3 * slow * s->work_ns + 60 * limit + 300 * t->late_ns + t->until_ns + 400 * t->sync_ns +
           100000000000u;
}

static kv_rc run_world(kv_sim_tale *s)
{
    uint64_t from[16] = {0}, until[16] = {0};
    const kv_sim_trouble *t = &s->t;
    kv_sim_world *w = &s->w;
    *w = (kv_sim_world){.model = &s->model,
                        .ranks = t->ranks,
                        .timeout_s = t->timeout_s,
                        .costs = s->costs,
                        .n_items = s->merge.n_todo,
                        .duration = duration,
                        .run_item = run_item,
                        .on_result = on_result,
                        .on_progress = on_progress,
                        .owner = s,
                        .disk = &s->disk,
                        .bound_ns = bound(s),
                        .chance = {kv_sim_draw(&s->chance)},
                        .jitter_ns = t->jitter_ns,
                        .late_ns = kv_sim_has(t, KV_SIM_LATE_MESSAGES) ? t->late_ns : 0,
                        .late_percent = t->late_percent,
                        .hold_all = kv_sim_has(t, KV_SIM_HELD_MESSAGES),
                        .now = s->clock};
    s->disk.clock = &w->now;
    s->began = s->clock;
    kv_rc rc = kv_sim_world_init(w, s->err);
    if (rc != KV_OK) return rc;
    plan_events(s, w, from, until);
    rc = kv_sim_world_run(w, s->err);
    if (rc != KV_OK && s->err != NULL && s->err->rc == KV_EBUG)
        kv_err_prefix(s->err, "seed %" PRIu64 ", run %d", s->seed, s->run);
    s->tally->messages += w->messages;
    s->tally->virtual_s += (double)(w->now - s->clock) * 1e-9;
    s->clock = w->now + 1000000000u;
    return rc;
}

/* A second look finds rows wrong that are right: they are FAILED, and run again. */
static kv_rc second_look(kv_sim_tale *s, bool *failed)
{
    for (int64_t i = 0; i < s->merge.n_todo && kv_sim_has(&s->t, KV_SIM_SECOND_LOOK); i++) {
        kv_row row;
        if (!kv_sim_percent(&s->chance, 20)) continue;
        kv_pack_get(s->rows, s->todo[i], &row);
        fail_row(&row, 0);
        *failed = true;
        s->acked[s->todo[i]] = s->durable[s->todo[i]] = false;
        const kv_rc rc = kv_journal_add(s->journal, &s->c, &row, NULL);
        if (rc != KV_OK) return rc;
        s->failed[s->todo[i]] = true;
    }
    return KV_OK;
}

static bool any_failed(const kv_sim_tale *s)
{
    for (size_t i = 0; i < s->c.n_cells; i++) {
        kv_row row;
        kv_pack_get(s->rows, (int64_t)i, &row);
        if (row.verdict == KV_VERDICT_FAILED) return true;
    }
    return false;
}

/* What rank 0 does when the hand-out is over and it lives: second look, merge, close. */
static kv_rc finish(kv_sim_tale *s, kv_sim_end *end)
{
    kv_rc rc = s->w.rc;
    bool failed = false;
    for (int i = 1; i < s->t.ranks; i++) /* the next collective would wait for it, in vain */
        if (rc == KV_OK && s->w.workers[i].dead) rc = KV_ETIME;
    if (rc == KV_OK) rc = second_look(s, &failed);
    if (rc == KV_OK && any_failed(s)) failed = true;
    const kv_rc closing = kv_journal_close(s->journal, NULL);
    s->journal = NULL;
    if (s->disk.killed) {
        *end = KV_SIM_KILLED;
        return KV_OK;
    }
    if (rc == KV_OK) rc = closing;
    *end = rc == KV_OK ? (failed ? KV_SIM_FAILED_ROWS : KV_SIM_DONE) : rc == KV_EINTR ? KV_SIM_STOPPED : KV_SIM_ERROR;
    kv_sim_tell(s, "  %s (%s), %" PRId64 " rows came\n", kv_sim_end_name(*end),
                s->w.err.rc != KV_OK ? s->w.err.text : kv_rc_name(rc), s->delivered);
    if (!kv_sim_excused(s, rc))
        return KV_SIM_BROKEN(s, "ends with %s (%s), and nothing that was done to it does that", kv_rc_name(rc),
                             s->w.err.text);
    rc = kv_sim_check_delivered(s, s->w.rc);
    return rc == KV_OK && *end == KV_SIM_DONE ? kv_sim_check_rows(s) : rc;
}

static kv_rc after_death(kv_sim_tale *s, kv_sim_end *end)
{
    *end = KV_SIM_KILLED;
    s->disk.killed = true;
    (void)!kv_journal_close(s->journal, NULL); /* its memory only: the disk does nothing any more */
    s->journal = NULL;
    kv_sim_tell(s, "  killed (%s), %" PRId64 " rows came\n", s->w.aborted ? s->w.err.text : "at a change of the disk",
                s->delivered);
    if (s->w.aborted && !kv_sim_excused(s, s->w.rc)) return KV_SIM_BROKEN(s, "the job was aborted: %s", s->w.err.text);
    return kv_sim_check_synced(s);
}

static kv_rc compute(kv_sim_tale *s, kv_sim_end *end)
{
    s->merge = (kv_merge){.c = &s->c, .todo = s->todo, .rows = s->rows, .journal = s->journal};
    s->merge.n_todo = kv_merge_todo(s->done, s->c.n_cells, s->todo);
    for (int64_t i = 0; i < s->merge.n_todo; i++) s->costs[i] = s->cost[s->todo[i]];
    kv_rc rc = run_world(s);
    if (rc == KV_OK && s->err != NULL && s->err->rc != KV_OK) rc = s->err->rc; /* found by a callback */
    const bool closed = s->w.root_done && s->w.rc != KV_OK; /* rank 0 does not wait for the others before it closes */
    if (rc == KV_OK) rc = s->disk.killed || (s->w.aborted && !closed) ? after_death(s, end) : finish(s, end);
    if (s->journal != NULL) (void)!kv_journal_close(s->journal, NULL);
    s->journal = NULL;
    kv_sim_world_free(&s->w);
    return rc;
}

/* One run from its beginning to its end. */
static kv_rc one_run(kv_sim_tale *s, kv_sim_end *end)
{
    *end = KV_SIM_END_COUNT;
    kv_sim_trouble_draw(&s->chance, s->work_ns, s->largest_ns, (int64_t)s->c.n_cells * LINE_BYTES,
                        (int64_t)s->c.n_cells, s->run == 1, &s->t);
    if (s->clean) {
        s->t.kinds = 0;
        s->t.timeout_s = 60;
    }
    kv_rc rc = begin(s, end);
    if (rc == KV_OK && *end == KV_SIM_END_COUNT) rc = compute(s, end);
    if (rc != KV_OK) return rc;
    s->tally->disk_ops += s->disk.ops;
    s->tally->runs[*end]++;
    if (*end == KV_SIM_KILLED && kv_sim_has(&s->t, KV_SIM_POWER_CUT)) {
        kv_sim_disk_power_cut(&s->disk);
        memcpy(s->acked, s->durable, sizeof s->acked);
        memset(s->failed, 0, sizeof s->failed);
        kv_sim_tell(s, "  the power is cut\n");
    }
    kv_sim_disk_revive(&s->disk);
    return KV_OK;
}

/* After the last run: the journal alone gives all rows. */
static kv_rc check_journal(kv_sim_tale *s)
{
    kv_sim_end end = KV_SIM_END_COUNT;
    memset(&s->t, 0, sizeof s->t);
    s->run++;
    kv_rc rc = begin(s, &end);
    if (rc == KV_OK && end == KV_SIM_REFUSED) { /* a lock that could not be removed, on another host */
        end = KV_SIM_END_COUNT;
        rc = begin(s, &end);
    }
    if (rc == KV_OK && end != KV_SIM_END_COUNT) rc = KV_SIM_BROKEN(s, "the journal of a complete run cannot be read");
    for (size_t i = 0; rc == KV_OK && i < s->c.n_cells; i++)
        if (!s->done[i]) rc = KV_SIM_BROKEN(s, "the run is complete, and cell %zu is not in the journal", i);
    if (rc == KV_OK) rc = kv_sim_check_rows(s);
    if (s->journal != NULL) (void)!kv_journal_close(s->journal, NULL);
    s->journal = NULL;
    return rc;
}

static void set_up(kv_sim_tale *s, const kv_campaign *c)
{
    s->c = *c;
    s->chance.state = s->seed;
    const size_t most = c->n_cells < KV_SIM_CELLS_MOST ? c->n_cells : KV_SIM_CELLS_MOST;
    s->c.n_cells = 1 + kv_sim_below(&s->chance, most);
    s->model = kv_sim_model_default();
    s->model.eager_bytes = kv_sim_percent(&s->chance, 50) ? 4096 : 65536;
    const uint64_t least = kv_sim_spread(&s->chance, 1000u, 50000000u); /* 1 us to 50 ms, then up to 10 times that */
    for (size_t i = 0; i < s->c.n_cells; i++) {
        s->cost[i] = kv_sim_spread(&s->chance, least, 10 * least);
        s->work_ns += s->cost[i];
        if (s->cost[i] > s->largest_ns) s->largest_ns = s->cost[i];
    }
    snprintf(s->digest, sizeof s->digest, "%016" PRIx64 "%048d", s->seed, 0);
    kv_sim_disk_init(&s->disk, kv_sim_draw(&s->chance), &s->clock);
    s->disk.on_sync = on_sync;
    s->disk.on_sync_ctx = s;
}

kv_rc kv_sim_story(const kv_campaign *c, uint64_t seed, kv_sim_tally *tally, kv_buf *log, kv_err *err)
{
    kv_err own = {0};
    kv_sim_tale *s = kv_alloc(1, sizeof *s);
    if (s == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a simulation");
    s->seed = seed;
    s->tally = tally;
    s->log = log;
    s->err = err != NULL ? err : &own;
    set_up(s, c);
    kv_sim_tell(s, "seed %" PRIu64 ": %zu cells, %.3g s of work\n", seed, s->c.n_cells, (double)s->work_ns * 1e-9);
    const int faulty = 1 + (int)kv_sim_below(&s->chance, 4);
    kv_sim_end end = KV_SIM_END_COUNT;
    kv_rc rc = KV_OK;
    for (s->run = 1; rc == KV_OK && end != KV_SIM_DONE; s->run++) {
        s->clean = s->run > faulty;
        if (s->run > RUNS_MOST)
            rc = KV_SIM_BROKEN(s, "never complete");
        else
            rc = one_run(s, &end);
        if (rc == KV_OK && s->clean && end != KV_SIM_DONE && end != KV_SIM_REFUSED)
            rc = KV_SIM_BROKEN(s, "not complete, though nothing was done to it");
    }
    if (rc == KV_OK) rc = check_journal(s);
    kv_pack_free(s->rows);
    kv_sim_disk_free(&s->disk);
    kv_free(s);
    return rc;
}
