/* The journal of a run: finished rows, one checksummed line each, so that an interrupted run goes on.
 *
 * A state folder holds `lock` while a run uses it and `journal`:
 *   line 1   kvgrid.journal/v1 <campaign digest>
 *   others   <16 hex digits: BLAKE2b of the rest> <row as a JSON list>
 * A last line without its end, or with a wrong checksum, is a torn write: it is cut off and that cell runs again.
 * A bad line before the last is an error that names it. A cell may stand twice with the same row (a second look adds the
 * row that it confirmed once more); another row is an error. A FAILED row takes back what stood before (a second look that disagreed), and its cell runs again.
 * Lines are written as rows arrive, so that a killed process loses none. They are synced to the disk, so that a power
 * cut loses none, at the end, with the first row KV_JOURNAL_SYNC_S seconds after the last sync, and by kv_journal_tick
 * (which more than one rank call while they wait for rows: a long cell does not hold back the rows before it). */
#ifndef KV_JOURNAL_H
#define KV_JOURNAL_H

#include "grid/row/kv_pack.h"
#include "grid/run/kv_disk.h"

#define KV_JOURNAL_SYNC_S 1.0

typedef struct kv_journal kv_journal;

/* Opens (or makes) a state folder for a campaign: takes its lock, reads the rows that stand there into rows and sets
 * done[cell] (an array of c->n_cells, zeroed by the caller; FAILED rows are not done). *n_done counts them.
 * KV_EEXIST: another run holds the lock. KV_EFORMAT: a bad line, a conflict, another campaign's state. */
kv_rc kv_journal_open(const char *dir, const kv_campaign *c, const char *campaign_digest, kv_pack *rows, bool *done,
                      int64_t *n_done, kv_journal **out, kv_err *err) KV_MUST_USE;
/* The same on another disk than the real one (borrowed, for as long as the journal lives). */
kv_rc kv_journal_open_on(const kv_disk *disk, const char *dir, const kv_campaign *c, const char *campaign_digest,
                         kv_pack *rows, bool *done, int64_t *n_done, kv_journal **out, kv_err *err) KV_MUST_USE;

/* Appends one row. On KV_EWRITE the file is cut back to its last whole line. */
kv_rc kv_journal_add(kv_journal *j, const kv_campaign *c, const kv_row *row, kv_err *err) KV_MUST_USE;

/* Whether the row of a cell that is done stood there twice: it was looked at again. False where j is NULL. */
bool kv_journal_looked(const kv_journal *j, int64_t cell);

/* Syncs if there is something to sync and the last time is KV_JOURNAL_SYNC_S ago, or it must be now. j may be NULL. A
 * failure is told by the next kv_journal_add or kv_journal_close. */
void kv_journal_tick(kv_journal *j, bool now);

/* Syncs, gives the lock back, frees j (NULL is fine). */
kv_rc kv_journal_close(kv_journal *j, kv_err *err) KV_MUST_USE;

#endif
