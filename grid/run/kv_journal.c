#include "grid/run/kv_journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/row/kv_row_text.h"
#include "grid/run/kv_lock.h"

#define HEAD "kvgrid.journal/v1 "
#define SUM_DIGITS 16
#define LINE_MAX_BYTES ((size_t)1 << 20) /* far more than any row has */
#define PIECE_BYTES ((size_t)1 << 16)    /* read at once */

struct kv_journal {
    const kv_disk *disk;
    int fd;
    char *path, *lock;
    int64_t end; /* bytes of whole lines */
    double synced;
    bool dirty;
    bool *looked; /* by cell */
    kv_err late;  /* of a tick */
    kv_buf line;
};

static void checksum(const char *text, size_t n, char out[SUM_DIGITS + 1])
{
    char hex[KV_HASH_HEX];
    kv_hash_hex(text, n, hex);
    memcpy(out, hex, SUM_DIGITS);
    out[SUM_DIGITS] = '\0';
}

/* ---- reading ---------------------------------------------------------------------------- */

typedef struct {
    const kv_campaign *c;
    kv_pack *rows;
    bool *done, *looked;
    int64_t n_done;
    const char *path;
    kv_err *err;
} reader;

/* One whole line without its newline. KV_EFORMAT where it is not a good one. */
static kv_rc read_line(const reader *r, const char *line, size_t n, kv_row *row)
{
    char sum[SUM_DIGITS + 1];
    if (n < SUM_DIGITS + 2 || line[SUM_DIGITS] != ' ') return KV_FAIL(r->err, KV_EFORMAT, "is no journal line");
    checksum(line + SUM_DIGITS + 1, n - SUM_DIGITS - 1, sum);
    if (memcmp(sum, line, SUM_DIGITS) != 0) return KV_FAIL(r->err, KV_EFORMAT, "its checksum is wrong");
    return kv_row_decode(r->c, line + SUM_DIGITS + 1, n - SUM_DIGITS - 1, row, r->err);
}

/* Whether two rows of one cell say the same (where they ran does not matter). */
static bool same_row(const kv_row *a, const kv_row *b)
{
    kv_row x = *a, y = *b;
    memset(x.failed_at, 0, sizeof x.failed_at);
    memset(y.failed_at, 0, sizeof y.failed_at);
    kv_buf s = {0}, t = {0};
    const bool same = kv_row_encode(&x, &s, NULL) == KV_OK && kv_row_encode(&y, &t, NULL) == KV_OK && s.len == t.len &&
                      memcmp(s.data, t.data, s.len) == 0;
    kv_buf_free(&s);
    kv_buf_free(&t);
    return same;
}

static kv_rc take_row(reader *r, const kv_row *row, int64_t number)
{
    const bool failed = row->verdict == KV_VERDICT_FAILED;
    kv_row before;
    if (r->done[row->cell]) kv_pack_get(r->rows, row->cell, &before);
    if (r->done[row->cell] && !failed && !same_row(&before, row)) {
        char id[KV_PAIR_ID_TEXT];
        kv_cell_pair_id(r->c, &r->c->cells[row->cell], id);
        return KV_FAIL(r->err, KV_EFORMAT,
                       "%s: line %" PRId64 ": cell %" PRId64 " (%s) stands twice with different results", r->path,
                       number, row->cell, id);
    }
    if (failed && r->done[row->cell]) { /* a second look took it back */
        r->done[row->cell] = false;
        r->n_done--;
    }
    r->looked[row->cell] = !failed && r->done[row->cell];
    if (failed || r->done[row->cell]) return KV_OK; /* FAILED rows run again */
    r->done[row->cell] = true;
    r->n_done++;
    return kv_pack_put(r->rows, row, r->err);
}

static kv_rc check_head(const reader *r, const char *line, size_t n, const char *digest)
{
    const size_t head = strlen(HEAD);
    if (n != head + strlen(digest) || memcmp(line, HEAD, head) != 0)
        return KV_FAIL(r->err, KV_EFORMAT, "%s: line 1 is not the head of a journal", r->path);
    if (memcmp(line + head, digest, strlen(digest)) == 0) return KV_OK;
    return KV_FAIL(
        r->err, KV_EFORMAT,
        "%s: belongs to another campaign (digest %.16s..., this one is %.16s...): its campaign file or a layout "
        "was changed; use another --state folder",
        r->path, line + head, digest);
}

/* The journal's bytes, some at a time. */
typedef struct {
    const kv_journal *j;
    kv_buf held; /* what was read and not yet taken begins at `from` */
    size_t from;
    int64_t at; /* where to read on */
    kv_err *err;
} source;

/* Reads on; *n is 0 at the end. */
static kv_rc read_on(source *s, size_t *n)
{
    char piece[PIECE_BYTES];
    int64_t got = -EINTR;
    if (s->from > 0) memmove(s->held.data, s->held.data + s->from, s->held.len - s->from);
    s->held.len -= s->from;
    s->from = 0;
    while (got == -EINTR) got = s->j->disk->read(s->j->disk, s->j->fd, piece, sizeof piece, s->at);
    if (got < 0) return KV_FAIL(s->err, KV_EREAD, "%s: cannot be read: %s", s->j->path, strerror((int)-got));
    *n = (size_t)got;
    s->at += got;
    return kv_buf_append(&s->held, piece, *n, s->err);
}

/* The next whole line, borrowed until the next call; *line is NULL where there is none. */
static kv_rc next_line(source *s, const char **line, size_t *n)
{
    for (size_t seen = 0;;) {
        const char *begin = s->held.len > 0 ? s->held.data + s->from : "";
        const size_t have = s->held.len - s->from;
        const char *newline = have > seen ? memchr(begin + seen, '\n', have - seen) : NULL;
        size_t more = 0;
        *line = newline != NULL ? begin : NULL;
        if (newline != NULL) {
            *n = (size_t)(newline - begin);
            s->from += *n + 1;
            return KV_OK;
        }
        if (have > LINE_MAX_BYTES)
            return KV_FAIL(s->err, KV_EFORMAT, "%s: a line has no end: it is no journal", s->j->path);
        const kv_rc rc = read_on(s, &more);
        if (rc != KV_OK || more == 0) return rc; /* what is left is torn: that cell runs again */
        seen = have;
    }
}

/* Whether nothing stands behind the line that was taken last. */
static kv_rc at_end(source *s, bool *end)
{
    size_t more = 1;
    kv_rc rc = KV_OK;
    if (s->from == s->held.len) rc = read_on(s, &more);
    *end = more == 0;
    return rc;
}

/* One line of number `number`; *torn where it is the last, and bad. */
static kv_rc take_line(reader *r, source *s, const char *line, size_t n, int64_t number, bool *torn)
{
    kv_row row;
    kv_rc rc = read_line(r, line, n, &row);
    if (rc == KV_OK) return take_row(r, &row, number);
    if (rc != KV_EFORMAT) return rc;
    kv_err why = *r->err;
    kv_err_clear(r->err);
    rc = at_end(s, torn);
    if (rc != KV_OK || *torn) return rc;
    *r->err = why;
    kv_err_prefix(r->err, "%s: line %" PRId64, r->path, number);
    return KV_EFORMAT;
}

/* Reads all lines; j->end is where the last whole good line ends. */
static kv_rc read_journal(kv_journal *j, reader *r, const char *digest)
{
    source s = {.j = j, .err = r->err};
    bool torn = false;
    kv_rc rc = KV_OK;
    j->end = 0;
    for (int64_t number = 1; !torn; number++) {
        const char *line;
        size_t n = 0;
        KV_TRY(rc, out, next_line(&s, &line, &n));
        if (line == NULL) break;
        if (number == 1)
            KV_TRY(rc, out, check_head(r, line, n, digest));
        else
            KV_TRY(rc, out, take_line(r, &s, line, n, number, &torn));
        if (!torn) j->end += (int64_t)n + 1;
    }
out:
    kv_buf_free(&s.held);
    return rc;
}

/* ---- writing ---------------------------------------------------------------------------- */

/* Appends n bytes whole or not at all. */
static kv_rc append(kv_journal *j, const char *bytes, size_t n, kv_err *err)
{
    size_t put = 0;
    while (put < n) {
        const int64_t w = j->disk->write(j->disk, j->fd, bytes + put, n - put, j->end + (int64_t)put);
        if (w == -EINTR) continue;
        if (w <= 0) {
            const int why = w < 0 ? (int)-w : ENOSPC;
            if (j->disk->truncate(j->disk, j->fd, j->end) != 0)
                return KV_FAIL(err, KV_EWRITE, "%s: cannot be written, nor cut back: %s", j->path, strerror(why));
            return KV_FAIL(
                err, KV_EWRITE,
                "%s: cannot be written: %s; the rows before this one are kept, run again with the same --state",
                j->path, strerror(why));
        }
        put += (size_t)w;
    }
    j->end += (int64_t)n;
    j->dirty = true;
    return KV_OK;
}

static kv_rc sync_now(kv_journal *j, kv_err *err)
{
    j->synced = j->disk->now_s(j->disk);
    if (!j->dirty) return KV_OK;
    j->dirty = false;
    const int why = j->disk->sync(j->disk, j->fd);
    return why == 0 ? KV_OK : KV_FAIL(err, KV_EWRITE, "%s: cannot be synced: %s", j->path, strerror(-why));
}

bool kv_journal_looked(const kv_journal *j, int64_t cell)
{
    return j != NULL && j->looked[cell];
}

void kv_journal_tick(kv_journal *j, bool now)
{
    if (j == NULL || !j->dirty || j->late.rc != KV_OK) return;
    if (now || j->disk->now_s(j->disk) - j->synced >= KV_JOURNAL_SYNC_S) (void)!sync_now(j, &j->late);
}

kv_rc kv_journal_add(kv_journal *j, const kv_campaign *c, const kv_row *row, kv_err *err)
{
    kv_rc rc;
    kv_buf text = {0};
    char sum[SUM_DIGITS + 1];
    (void)c;
    if (j->late.rc != KV_OK) return KV_FAIL(err, j->late.rc, "%s", j->late.text);
    j->line.len = 0;
    KV_TRY(rc, out, kv_row_encode(row, &text, err));
    checksum(text.data, text.len, sum);
    KV_TRY(rc, out, kv_buf_printf(&j->line, err, "%s %s\n", sum, text.data));
    KV_TRY(rc, out, append(j, j->line.data, j->line.len, err));
    if (j->disk->now_s(j->disk) - j->synced >= KV_JOURNAL_SYNC_S) rc = sync_now(j, err);
out:
    kv_buf_free(&text);
    return rc;
}

/* ---- life ------------------------------------------------------------------------------- */

static char *path_in(const char *dir, const char *name)
{
    const size_t n = strlen(dir) + strlen(name) + 2;
    char *p = kv_alloc(n, 1);
    if (p != NULL) snprintf(p, n, "%s/%s", dir, name);
    return p;
}

static void journal_free(kv_journal *j)
{
    if (j->fd >= 0) j->disk->close(j->disk, j->fd);
    kv_buf_free(&j->line);
    kv_free(j->path);
    kv_free(j->lock);
    kv_free(j->looked);
    kv_free(j);
}

static kv_rc open_locked(kv_journal *j, const char *dir, const kv_campaign *c, const char *digest, kv_pack *rows,
                         bool *done, int64_t *n_done, kv_err *err)
{
    reader r = {.c = c, .rows = rows, .done = done, .looked = j->looked, .path = j->path, .err = err};
    kv_rc rc;
    j->fd = j->disk->open(j->disk, j->path);
    if (j->fd < 0) return KV_FAIL(err, KV_EWRITE, "%s: cannot be opened: %s", j->path, strerror(-j->fd));
    KV_TRY(rc, out, read_journal(j, &r, digest));
    int why = j->disk->truncate(j->disk, j->fd, j->end);
    if (why == 0) why = j->disk->sync_folder(j->disk, dir); /* else a power cut may take the whole file */
    if (why != 0) {
        rc = KV_FAIL(err, KV_EWRITE, "%s: cannot be written: %s", j->path, strerror(-why));
        goto out;
    }
    if (j->end == 0) {
        char head[sizeof HEAD + KV_HASH_HEX + 2];
        const int n = snprintf(head, sizeof head, HEAD "%s\n", digest);
        KV_TRY(rc, out, append(j, head, (size_t)n, err));
    }
    KV_TRY(rc, out, sync_now(j, err));
    *n_done = r.n_done;
out:
    return rc;
}

kv_rc kv_journal_open(const char *dir, const kv_campaign *c, const char *campaign_digest, kv_pack *rows, bool *done,
                      int64_t *n_done, kv_journal **out, kv_err *err)
{
    return kv_journal_open_on(kv_disk_real(), dir, c, campaign_digest, rows, done, n_done, out, err);
}

kv_rc kv_journal_open_on(const kv_disk *disk, const char *dir, const kv_campaign *c, const char *campaign_digest,
                         kv_pack *rows, bool *done, int64_t *n_done, kv_journal **out, kv_err *err)
{
    kv_rc rc;
    const int why = disk->make_folder(disk, dir);
    if (why != 0) return KV_FAIL(err, KV_EWRITE, "%s: the state folder cannot be made: %s", dir, strerror(-why));
    kv_journal *j = kv_alloc(1, sizeof *j);
    if (j == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the journal");
    j->disk = disk;
    j->fd = -1;
    j->path = path_in(dir, "journal");
    j->lock = path_in(dir, "lock");
    j->looked = kv_alloc(c->n_cells, sizeof *j->looked);
    if (j->path == NULL || j->lock == NULL || j->looked == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for the journal");
        goto out_free;
    }
    KV_TRY(rc, out_free, kv_lock_take_on(disk, j->lock, err));
    KV_TRY(rc, out_unlock, open_locked(j, dir, c, campaign_digest, rows, done, n_done, err));
    *out = j;
    return KV_OK;
out_unlock:
    kv_lock_release_on(disk, j->lock);
out_free:
    journal_free(j);
    return rc;
}

kv_rc kv_journal_close(kv_journal *j, kv_err *err)
{
    if (j == NULL) return KV_OK;
    kv_rc rc = sync_now(j, err);
    if (j->late.rc != KV_OK) rc = KV_FAIL(err, j->late.rc, "%s", j->late.text);
    kv_lock_release_on(j->disk, j->lock);
    journal_free(j);
    return rc;
}
