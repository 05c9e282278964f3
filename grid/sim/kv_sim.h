/* A run on virtual time: the same hand-out, journal, lock and merge code over a simulated network, clock and disk.
 * It predicts what a campaign costs on many ranks (kv_sim_predict), and breaks runs in every way a 64-bit seed can
 * name, resumes them, and checks that the rows come out the same (kv_sim_story). docs/scheduling.md says what is
 * assumed. Everything depends on the arguments alone: no clock, no thread, no file. */
#ifndef KV_SIM_H
#define KV_SIM_H

#include "grid/run/kv_plan.h"

/* The machine. Times in nanoseconds. */
typedef struct {
    int cores;           /* that the ranks share; 0: one a rank */
    uint64_t latency_ns; /* of a message, one way */
    double bytes_per_ns; /* into rank 0, and out of each rank */
    size_t eager_bytes;  /* a larger message leaves only when it is received */
    uint64_t message_ns; /* of work to send or receive one */
    uint64_t look_ns;    /* rank 0, for each other rank: what does it need? */
    uint64_t row_ns;     /* rank 0: a row into memory and, as text with its checksum, to the journal */
    uint64_t wake_ns;    /* a sleep takes this much longer than asked */
    uint64_t sync_ns;    /* of the journal */
} kv_sim_model;
kv_sim_model kv_sim_model_default(void);

typedef struct {
    int ranks;
    double makespan_s; /* the hand-out, first order to last word */
    double work_s;     /* of all items, one core */
    double efficiency; /* work / (ranks or cores * makespan) */
    double longest_s;  /* the longest item: no number of ranks goes below */
    int64_t messages, bytes;
    double helper_share; /* of the makespan: rank 0 busy with the others */
    double root_share;   /* of the makespan: rank 0 busy with anything */
    double least_share;  /* the least busy rank */
} kv_sim_forecast;

/* The cells of c and the controls, on `ranks` ranks, with the plan's costs. */
kv_rc kv_sim_predict(const kv_campaign *c, const kv_plan *p, const kv_sim_model *model, int ranks, double timeout_s,
                     kv_sim_forecast *out, kv_err *err) KV_MUST_USE;

/* What happened in a story: runs by how they ended. */
typedef enum {
    KV_SIM_DONE,        /* all rows there */
    KV_SIM_FAILED_ROWS, /* the same, but some are FAILED: run again */
    KV_SIM_STOPPED,     /* KV_EINTR */
    KV_SIM_ERROR,       /* any other error */
    KV_SIM_KILLED,      /* no word from rank 0 any more */
    KV_SIM_REFUSED,     /* did not begin: lock or journal */
    KV_SIM_END_COUNT
} kv_sim_end;

typedef struct {
    int64_t runs[KV_SIM_END_COUNT];
    int64_t faults[32]; /* by kind, see kv_sim_fault_name */
    int64_t messages, disk_ops;
    double virtual_s;
} kv_sim_tally;
const char *kv_sim_end_name(kv_sim_end e);
const char *kv_sim_fault_name(int kind); /* NULL past the last */

/* The story of one seed over the first cells of c: runs with faults, each resumed with another number of ranks, until
 * one is complete. Adds to *tally; told, line by line, if log is not NULL. KV_OK: the rows are those of an undisturbed
 * run, none was lost or doubled, nothing hung. KV_EBUG: not so, err says where. */
kv_rc kv_sim_story(const kv_campaign *c, uint64_t seed, kv_sim_tally *tally, kv_buf *log, kv_err *err) KV_MUST_USE;

#endif
