/* Internal to the stories of the simulator: one story, and what must be true of it. */
#ifndef KV_SIM_STORY_H
#define KV_SIM_STORY_H

#include "grid/sim/kv_sim_int.h"

#define KV_SIM_CELLS_MOST 40

typedef struct {
    kv_campaign c; /* the first cells of the user's; borrowed */
    uint64_t seed;
    kv_sim_chance chance;
    kv_sim_tally *tally;
    kv_buf *log;
    kv_err *err;
    kv_sim_model model;
    kv_sim_disk disk;
    uint64_t clock; /* between runs */
    char digest[KV_HASH_HEX];
    uint64_t cost[KV_SIM_CELLS_MOST]; /* real, one core */
    uint64_t work_ns, largest_ns;
    bool acked[KV_SIM_CELLS_MOST];   /* the journal said yes: survives a killed process */
    bool durable[KV_SIM_CELLS_MOST]; /* and was synced: survives a power cut */
    bool failed[KV_SIM_CELLS_MOST];  /* the last word of the journal is FAILED: must run again */
    uint64_t acked_at[KV_SIM_CELLS_MOST];
    /* this run */
    int run;
    bool clean; /* no faults from here on */
    kv_sim_trouble t;
    kv_sim_view view;
    kv_sim_world w;
    kv_pack *rows;
    bool done[KV_SIM_CELLS_MOST];
    int64_t todo[KV_SIM_CELLS_MOST];
    uint64_t costs[KV_SIM_CELLS_MOST];
    int32_t seen[KV_SIM_CELLS_MOST];
    int64_t delivered, writing;
    bool unsaved; /* a row was refused by the journal */
    uint64_t began;
    kv_merge merge;
    kv_journal *journal;
} kv_sim_tale;

static inline bool kv_sim_is_bad(const kv_sim_tale *s, kv_sim_fault f, int rank)
{
    return kv_sim_has(&s->t, f) && rank == s->t.bad_rank;
}
static inline bool kv_sim_disk_trouble(const kv_sim_tale *s)
{
    return kv_sim_has(&s->t, KV_SIM_FULL_DISK) || kv_sim_has(&s->t, KV_SIM_BAD_CHANGE);
}

/* A line of the story. */
void kv_sim_tell(kv_sim_tale *s, const char *fmt, ...) KV_PRINTF(2, 3);
/* KV_EBUG, with seed and run: what must be true is not. */
#define KV_SIM_BROKEN(s_, ...) kv_sim_broken((s_), __LINE__, __VA_ARGS__)
kv_rc kv_sim_broken(kv_sim_tale *s, int line, const char *fmt, ...) KV_PRINTF(3, 4);

/* kv_sim_check.c: KV_OK, or KV_EBUG */
/* What a journal gave when it was opened: nothing that was kept is lost, nothing is wrong, FAILED cells run again. */
kv_rc kv_sim_check_resumed(kv_sim_tale *s, int64_t n_done) KV_MUST_USE;
/* All rows by cell against those of an undisturbed run. */
kv_rc kv_sim_check_rows(kv_sim_tale *s) KV_MUST_USE;
/* rc is how the hand-out ended: what was finished is delivered, and what was not saved is told. */
kv_rc kv_sim_check_delivered(kv_sim_tale *s, kv_rc rc) KV_MUST_USE;
/* After a death: rows are synced soon after they came. */
kv_rc kv_sim_check_synced(kv_sim_tale *s) KV_MUST_USE;
/* Whether this error may come of what was done to the run. */
bool kv_sim_excused(const kv_sim_tale *s, kv_rc rc);

#endif
