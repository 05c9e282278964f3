/* What must be true of every run of a story. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grid/row/kv_row_text.h"
#include "grid/sim/kv_sim_story.h"

void kv_sim_tell(kv_sim_tale *s, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    if (s->log == NULL) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)!kv_buf_puts(s->log, text, NULL);
}

kv_rc kv_sim_broken(kv_sim_tale *s, int line, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return kv_err_set(s->err, KV_EBUG, __func__, line, "seed %" PRIu64 ", run %d: %s", s->seed, s->run, text);
}

kv_rc kv_sim_check_resumed(kv_sim_tale *s, int64_t n_done)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->c.n_cells; i++) {
        kv_row want, row;
        kv_sim_row(s->seed, (int64_t)i, &want);
        kv_pack_get(s->rows, (int64_t)i, &row);
        if (s->done[i] && memcmp(&want, &row, sizeof want) != 0)
            return KV_SIM_BROKEN(s, "the journal gives another row for cell %zu", i);
        if (s->acked[i] && !s->done[i]) return KV_SIM_BROKEN(s, "the row of cell %zu was kept, and is lost", i);
        if (s->failed[i] && s->done[i])
            return KV_SIM_BROKEN(s, "cell %zu was FAILED at last, and does not run again", i);
        n += s->done[i];
        s->acked[i] = s->done[i];
    }
    if (n != n_done) return KV_SIM_BROKEN(s, "%" PRId64 " cells are done, and %" PRId64 " are told", n, n_done);
    kv_sim_tell(s, "  %" PRId64 " of %zu cells stand in the journal\n", n, s->c.n_cells);
    return KV_OK;
}

/* All rows by cell against those of an undisturbed run. */
kv_rc kv_sim_check_rows(kv_sim_tale *s)
{
    kv_hash got, want;
    char a[KV_HASH_HEX], b[KV_HASH_HEX];
    kv_hash_init(&got);
    kv_hash_init(&want);
    for (size_t i = 0; i < s->c.n_cells; i++) {
        kv_row right, row;
        kv_buf x = {0}, y = {0};
        kv_sim_row(s->seed, (int64_t)i, &right);
        kv_pack_get(s->rows, (int64_t)i, &row);
        kv_rc rc = kv_row_encode(&row, &x, s->err);
        if (rc == KV_OK) rc = kv_row_encode(&right, &y, s->err);
        if (rc == KV_OK) kv_hash_update(&got, x.data, x.len);
        if (rc == KV_OK) kv_hash_update(&want, y.data, y.len);
        kv_buf_free(&x);
        kv_buf_free(&y);
        if (rc != KV_OK) return rc;
    }
    kv_hash_final_hex(&got, a);
    kv_hash_final_hex(&want, b);
    kv_sim_tell(s, "  digest %.16s\n", a);
    return strcmp(a, b) == 0 ? KV_OK : KV_SIM_BROKEN(s, "digest %s, of an undisturbed run %s", a, b);
}

/* Whether the slow rank is so slow that others must take it for lost. */
static bool too_slow(const kv_sim_tale *s)
{
    return kv_sim_has(&s->t, KV_SIM_SLOW_RANK) && 1.5 * (double)s->largest_ns * s->t.slow > 0.7e9 * s->t.timeout_s;
}

/* Whether this error may come of these faults. */
bool kv_sim_excused(const kv_sim_tale *s, kv_rc rc)
{
    static const uint32_t quiet = (uint32_t)1 << KV_SIM_LOST_RANK | (uint32_t)1 << KV_SIM_SILENT_RANK |
                                  (uint32_t)1 << KV_SIM_PAUSED_RANK | (uint32_t)1 << KV_SIM_LATE_MESSAGES |
                                  (uint32_t)1 << KV_SIM_HANGING_ITEM;
    if (rc == KV_EINTR) return kv_sim_has(&s->t, KV_SIM_SIGNAL);
    if (rc == KV_EWRITE) return kv_sim_disk_trouble(s);
    if (rc == KV_EDEVICE) return kv_sim_has(&s->t, KV_SIM_FATAL_ITEM);
    if (rc == KV_ETIME) return (s->t.kinds & quiet) != 0 || too_slow(s);
    if (rc == KV_EPEER && s->t.ranks == 1 && kv_sim_has(&s->t, KV_SIM_SILENT_RANK)) return true;
    if (rc == KV_EPEER) return kv_sim_has(&s->t, KV_SIM_LOST_RANK) || kv_sim_has(&s->t, KV_SIM_KILL_AT_TIME);
    return rc == KV_OK;
}

/* A run that was stopped, by a signal or by an item, has delivered whatever was finished on any rank. */
kv_rc kv_sim_check_delivered(kv_sim_tale *s, kv_rc rc)
{
    int64_t ran = 0;
    if (rc == KV_OK && s->delivered != s->merge.n_todo)
        return KV_SIM_BROKEN(s, "complete with %" PRId64 " of %" PRId64 " rows", s->delivered, s->merge.n_todo);
    if (s->unsaved && (rc == KV_OK || rc == KV_EINTR))
        return KV_SIM_BROKEN(s, "a row was not saved, and the run ends with %s", kv_rc_name(rc));
    if (s->unsaved || (rc != KV_EINTR && rc != KV_EDEVICE)) return KV_OK;
    for (int i = 0; i < s->t.ranks; i++) {
        const kv_sim_worker *k = &s->w.workers[i];
        if (k->dead || (i > 0 && s->w.hub->peers[i].lost)) return KV_OK;
        ran += k->items;
        if (kv_sim_is_bad(s, KV_SIM_FATAL_ITEM, i) && k->items > s->t.nth) ran--;
    }
    return ran == s->delivered
               ? KV_OK
               : KV_SIM_BROKEN(s, "%" PRId64 " items were finished, and %" PRId64 " came", ran, s->delivered);
}

/* A row is on the platter soon after it came, however long the next ones take (docs/scheduling.md). */
kv_rc kv_sim_check_synced(kv_sim_tale *s)
{
    const uint64_t slack = 1500000000u + 20 * s->t.sync_ns + 20 * s->t.jitter_ns;
    if (s->t.ranks == 1 || kv_sim_disk_trouble(s) || kv_sim_is_bad(s, KV_SIM_PAUSED_RANK, 0) ||
        kv_sim_is_bad(s, KV_SIM_SILENT_RANK, 0) || kv_sim_is_bad(s, KV_SIM_LOST_RANK, 0))
        return KV_OK;
    for (size_t i = 0; i < s->c.n_cells; i++)
        if (s->acked_at[i] > s->began && s->acked[i] && !s->durable[i] && s->w.now > s->acked_at[i] + slack)
            return KV_SIM_BROKEN(s, "the row of cell %zu waits for %.3f s to be synced", i,
                                 (double)(s->w.now - s->acked_at[i]) * 1e-9);
    return KV_OK;
}
