/* What a seed does to a run, and to the journal between two runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid/sim/kv_sim_int.h"

const char *kv_sim_fault_name(int kind)
{
    static const char *const names[KV_SIM_FAULT_COUNT] = {"lost rank",
                                                          "silent rank",
                                                          "slow rank",
                                                          "paused rank",
                                                          "late messages",
                                                          "held messages",
                                                          "kill at a disk change",
                                                          "kill at a time",
                                                          "power cut",
                                                          "full disk",
                                                          "bad change",
                                                          "signal",
                                                          "fatal item",
                                                          "hanging item",
                                                          "failed cell",
                                                          "second look",
                                                          "rival",
                                                          "other host",
                                                          "cut line",
                                                          "bad last line",
                                                          "bad line",
                                                          "doubled line",
                                                          "conflict",
                                                          "other campaign"};
    return kind >= 0 && kind < KV_SIM_FAULT_COUNT ? names[kind] : NULL;
}

const char *kv_sim_end_name(kv_sim_end e)
{
    switch (e) {
    case KV_SIM_DONE: return "complete";
    case KV_SIM_FAILED_ROWS: return "complete but for FAILED rows";
    case KV_SIM_STOPPED: return "asked to stop";
    case KV_SIM_ERROR: return "ended with an error";
    case KV_SIM_KILLED: return "killed";
    case KV_SIM_REFUSED: return "refused to begin";
    case KV_SIM_END_COUNT: break;
    }
    return "?";
}

/* ---- a run ---- */

static void draw_times(kv_sim_chance *c, uint64_t work_ns, kv_sim_trouble *t)
{
    const uint64_t limit = (uint64_t)(t->timeout_s * 1e9), span = work_ns / (uint64_t)t->ranks + 2000000u;
    t->when_ns = kv_sim_below(c, span + span / 2);
    t->kill_ns = kv_sim_below(c, span + span / 2);
    t->stop_ns = kv_sim_below(c, span + span / 2);
    t->until_ns = t->when_ns + kv_sim_spread(c, 1000000u, 3 * limit);
    t->late_ns = kv_sim_spread(c, 1000000u, 3 * limit);
    t->late_percent = 1 + (int)kv_sim_below(c, 60);
    t->jitter_ns = kv_sim_percent(c, 70) ? kv_sim_spread(c, 100u, 10000000u) : 0;
    t->sync_ns = kv_sim_spread(c, 100000u, 200000000u);
}

static void draw_disk(kv_sim_chance *c, int64_t journal_bytes, int64_t cells, kv_sim_trouble *t)
{
    static const kv_sim_op_fate kills[] = {KV_SIM_OP_KILL_BEFORE, KV_SIM_OP_KILL_AFTER, KV_SIM_OP_KILL_TORN};
    static const kv_sim_op_fate bad[] = {KV_SIM_OP_FAIL, KV_SIM_OP_SHORT, KV_SIM_OP_EINTR};
    const uint64_t changes = 12 + (uint64_t)cells; /* about as many as a run makes */
    t->change = 1 + (int64_t)kv_sim_below(c, changes);
    t->fate = kills[kv_sim_below(c, 3)];
    for (int i = 0; i < 2; i++) {
        t->changes[i] = 1 + (int64_t)kv_sim_below(c, changes);
        t->fates[i] = bad[kv_sim_below(c, 3)];
    }
    if (kv_sim_percent(c, 30)) { /* the cut back after a bad write is bad, too */
        t->changes[1] = t->changes[0] + 1;
        t->fates[0] = t->fates[1] = KV_SIM_OP_FAIL;
    }
    t->capacity = (int64_t)kv_sim_below(c, (uint64_t)journal_bytes);
}

void kv_sim_trouble_draw(kv_sim_chance *c, uint64_t work_ns, uint64_t largest_ns, int64_t journal_bytes, int64_t cells,
                         bool first, kv_sim_trouble *t)
{
    static const int ranks[] = {1, 2, 2, 3, 3, 4, 5, 7, 8, 12};
    static const double timeouts[] = {1, 2, 5, 20, 60};
    memset(t, 0, sizeof *t);
    t->ranks = ranks[kv_sim_below(c, sizeof ranks / sizeof ranks[0])];
    t->timeout_s = timeouts[kv_sim_below(c, sizeof timeouts / sizeof timeouts[0])];
    const uint64_t n = kv_sim_below(c, 10) < 1 ? 0 : 1 + kv_sim_below(c, 3);
    for (uint64_t i = 0; i < n; i++) {
        const kv_sim_fault f = (kv_sim_fault)kv_sim_below(c, KV_SIM_FAULT_COUNT);
        if (f < KV_SIM_OTHER_HOST || !first) t->kinds |= (uint32_t)1 << f;
    }
    if (kv_sim_has(t, KV_SIM_POWER_CUT) && !kv_sim_has(t, KV_SIM_KILL_AT_TIME))
        t->kinds |= (uint32_t)1 << KV_SIM_KILL_AT_CHANGE;
    t->bad_rank = (int)kv_sim_below(c, (uint64_t)t->ranks);
    t->slow = 2 + (int)kv_sim_spread(c, 1, 100);
    if (kv_sim_percent(c, 50)) /* so that no item takes too long, but the others wait for more than one */
        t->slow = 1 + (int)(0.4e9 * t->timeout_s / (double)largest_ns);
    t->stop_rank = kv_sim_percent(c, 50) ? -1 : (int)kv_sim_below(c, (uint64_t)t->ranks);
    t->nth = (int64_t)kv_sim_below(c, (uint64_t)(cells / t->ranks) + 2);
    t->rival_nth = (int64_t)kv_sim_below(c, (uint64_t)cells);
    draw_times(c, work_ns, t);
    draw_disk(c, journal_bytes, cells, t);
}

/* ---- the journal between two runs ---- */

typedef struct {
    size_t begin, end; /* without the newline */
} line;

/* The n-th line from 0 on; false past the last whole one. */
static bool find_line(const kv_buf *b, int64_t n, line *out)
{
    size_t at = 0;
    for (int64_t i = 0; at < b->len; i++) {
        const char *newline = memchr(b->data + at, '\n', b->len - at);
        if (newline == NULL) return false;
        *out = (line){at, (size_t)(newline - b->data)};
        if (i == n) return true;
        at = out->end + 1;
    }
    return false;
}

static int64_t count_lines(const kv_buf *b)
{
    int64_t n = 0;
    line l;
    while (find_line(b, n, &l)) n++;
    return n;
}

/* "SUM [CELL,..." */
static int64_t cell_of(const kv_buf *b, const line *l)
{
    const char *bracket = memchr(b->data + l->begin, '[', l->end - l->begin);
    return bracket != NULL ? strtoll(bracket + 1, NULL, 10) : -1;
}

static void spoil(kv_sim_chance *c, kv_buf *b, const line *l)
{
    char *at = b->data + l->begin + kv_sim_below(c, l->end - l->begin);
    *at = *at == '#' ? '$' : '#';
}

/* A line like l, but whose row says something else, with its right checksum. */
static bool add_conflict(kv_buf *b, const line *l)
{
    char text[8192], hex[KV_HASH_HEX];
    const size_t n = l->end - l->begin - 17;
    if (n >= sizeof text) return false;
    memcpy(text, b->data + l->begin + 17, n);
    char *comma = memchr(text, ',', n); /* then the verdict: one digit */
    if (comma == NULL) return false;
    comma[1] = comma[1] == '0' ? '1' : '0';
    kv_hash_hex(text, n, hex);
    return kv_buf_printf(b, NULL, "%.16s %.*s\n", hex, (int)n, text) == KV_OK;
}

/* Whether the row of line number n counts: neither FAILED nor taken back later. */
static bool in_force(const kv_buf *b, int64_t n)
{
    line l, later;
    const char failed = '0' + KV_VERDICT_FAILED;
    if (!find_line(b, n, &l)) return false;
    const int64_t cell = cell_of(b, &l);
    for (; find_line(b, n, &later); n++) {
        const char *comma = memchr(b->data + later.begin, ',', later.end - later.begin);
        if (comma != NULL && comma[1] == failed && cell_of(b, &later) == cell) return false;
    }
    return true;
}

static bool double_line(kv_sim_chance *c, kv_buf *b, int64_t rows, bool conflict)
{
    char copy[8192];
    line l;
    const int64_t n = 1 + (int64_t)kv_sim_below(c, (uint64_t)rows);
    if (!in_force(b, n) || !find_line(b, n, &l)) return false;
    if (conflict) return add_conflict(b, &l);
    const size_t bytes = l.end - l.begin + 1;
    if (bytes > sizeof copy) return false;
    memcpy(copy, b->data + l.begin, bytes);
    return kv_buf_append(b, copy, bytes, NULL) == KV_OK;
}

bool kv_sim_tamper(kv_sim_chance *c, kv_sim_fault kind, kv_buf *b, int64_t *lost)
{
    line l = {0, 0};
    const int64_t lines = count_lines(b);
    *lost = -1;
    if (lines < 1) return false;
    if (kind == KV_SIM_OTHER_CAMPAIGN) {
        (void)find_line(b, 0, &l);
        char *last = b->data + l.end - 1;
        *last = *last == 'f' ? 'e' : 'f';
        return true;
    }
    const bool torn = b->data[b->len - 1] != '\n'; /* what a crash left is tampering enough */
    if (lines < 2 || torn) return false;
    if (kind == KV_SIM_DOUBLED_LINE || kind == KV_SIM_CONFLICT)
        return double_line(c, b, lines - 1, kind == KV_SIM_CONFLICT);
    if (kind == KV_SIM_BAD_LINE && lines < 3) return false;
    const int64_t which = kind == KV_SIM_BAD_LINE ? 1 + (int64_t)kv_sim_below(c, (uint64_t)lines - 2) : lines - 1;
    (void)find_line(b, which, &l);
    if (kind != KV_SIM_BAD_LINE) *lost = cell_of(b, &l);
    if (kind == KV_SIM_CUT_LINE)
        b->len = l.begin + kv_sim_below(c, l.end - l.begin + 1);
    else
        spoil(c, b, &l);
    return true;
}
