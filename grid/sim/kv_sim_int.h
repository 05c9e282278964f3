/* Internal to the simulator: events, ranks, messages, the disk in memory. */
#ifndef KV_SIM_INT_H
#define KV_SIM_INT_H

#include <signal.h>

#include "grid/document/kv_assurance.h"
#include "grid/run/kv_merge.h"
#include "grid/sim/kv_sim.h"
#include "mpi/kv_mpi_hub.h"
#include "mpi/kv_mpi_work.h"

/* ---- chance ---- */
typedef struct {
    uint64_t state;
} kv_sim_chance;
uint64_t kv_sim_draw(kv_sim_chance *c);
uint64_t kv_sim_below(kv_sim_chance *c, uint64_t n); /* 0 .. n-1; n 0 gives 0 */
bool kv_sim_percent(kv_sim_chance *c, int percent);
uint64_t kv_sim_spread(kv_sim_chance *c, uint64_t least, uint64_t most); /* even on a logarithmic scale */

/* ---- the disk (kv_sim_disk.c) ---- */
typedef enum {
    KV_SIM_OP_WELL,
    KV_SIM_OP_KILL_BEFORE,
    KV_SIM_OP_KILL_AFTER,
    KV_SIM_OP_KILL_TORN, /* a write: some of its bytes, then killed */
    KV_SIM_OP_FAIL,      /* EIO; a write may have put some bytes */
    KV_SIM_OP_SHORT,     /* a write: some of its bytes, as the system may */
    KV_SIM_OP_EINTR,     /* a write: interrupted, try again */
} kv_sim_op_fate;

#define KV_SIM_FILES 16
#define KV_SIM_FATES 4
#define KV_SIM_NAME 320

typedef struct {
    char name[KV_SIM_NAME]; /* "" where there is none */
    kv_buf now, synced;
    bool synced_name; /* the folder was synced since it has this name */
} kv_sim_file;

typedef struct {
    kv_sim_file files[KV_SIM_FILES];
    int64_t ops; /* changes of the disk, of this run */
    struct {
        int64_t op;
        kv_sim_op_fate fate;
    } fates[KV_SIM_FATES];
    int n_fates;
    int64_t capacity;           /* bytes on the whole disk; -1: no end */
    bool killed;                /* nothing changes any more */
    uint64_t spent_ns, sync_ns; /* time taken by operations; of a sync */
    const uint64_t *clock;
    kv_sim_chance chance;
    void (*on_sync)(void *ctx); /* the journal is on the platter */
    void *on_sync_ctx;
} kv_sim_disk;

/* The disk as one process sees it. */
typedef struct {
    kv_disk table;
    kv_sim_disk *disk;
    kv_disk_owner who;
    kv_disk_owner other; /* one more process that lives; pid 0 for none */
} kv_sim_view;

void kv_sim_disk_init(kv_sim_disk *d, uint64_t seed, const uint64_t *clock);
void kv_sim_disk_free(kv_sim_disk *d);
void kv_sim_view_init(kv_sim_view *v, kv_sim_disk *d, const char *host, int64_t pid, int64_t start);
kv_sim_file *kv_sim_disk_find(kv_sim_disk *d, const char *name); /* NULL: not there */
void kv_sim_disk_revive(kv_sim_disk *d);                         /* a new process: no fates, endless again */
void kv_sim_disk_power_cut(kv_sim_disk *d); /* what was not synced is there, in part there, or gone */

/* ---- the world: one run ---- */
typedef struct kv_sim_message {
    struct kv_sim_message *next;
    uint64_t arrival;
    int from;
    bool held;        /* its sender waits until it is received */
    kv_mpi_ctrl ctrl; /* to a worker */
    char *bytes;      /* to rank 0 */
    size_t n;
} kv_sim_message;

typedef struct {
    kv_sim_message *first, *last;
} kv_sim_inbox;

typedef enum {
    KV_SIM_WAIT_NO,
    KV_SIM_WAIT_PATIENCE,
    KV_SIM_WAIT_BEFORE,
    KV_SIM_WAIT_BEFORE_FINAL,
    KV_SIM_WAIT_END
} kv_sim_wait;

/* A thread of control that sleeps and is woken. */
typedef struct {
    uint64_t busy_until; /* earlier wake-ups wait until then */
    uint64_t origin;     /* since when it finds nothing to do: sleeps grow from there */
    uint64_t wake;       /* its next event */
    uint32_t turn;       /* events of other turns are void */
    bool sleeping;
} kv_sim_thread;

typedef struct {
    kv_mpi_work work;
    kv_sim_thread thread;
    kv_sim_inbox inbox;
    uint64_t last_arrival_up, last_arrival_down; /* messages of a pair do not overtake */
    uint64_t item_began, busy_ns;
    uint64_t wait_until;
    kv_sim_wait wait;
    bool sending, slot_busy; /* its report, the order to it: not received yet */
    bool in_item, ended, dead;
    int64_t items;
} kv_sim_worker;

typedef struct {
    uint64_t at, order;
    int32_t kind, rank;
    uint32_t turn;
} kv_sim_event;

typedef struct kv_sim_world kv_sim_world;
struct kv_sim_world {
    /* the run */
    const kv_sim_model *model;
    int ranks;
    double timeout_s;
    const uint64_t *costs; /* estimates, by item */
    int64_t n_items;
    uint64_t (*duration)(const kv_sim_world *w, int rank, int64_t item);
    kv_rc (*run_item)(kv_sim_world *w, int rank, int64_t item, kv_buf *result, kv_err *err);
    void (*on_progress)(kv_sim_world *w, const kv_mpi_progress *p);
    kv_rc (*on_result)(kv_sim_world *w, int64_t item, int rank, const char *bytes, size_t n, kv_err *err);
    void *owner;
    kv_sim_disk *disk; /* may be NULL */
    uint64_t bound_ns; /* past this it hangs */

    /* what is done to it */
    kv_sim_chance chance;
    uint64_t jitter_ns, late_ns; /* of events; of a message, for late_percent of them */
    int late_percent;
    bool hold_all;                        /* no message leaves before it is received */
    uint64_t *paused_from, *paused_until; /* by rank, NULL: none */

    /* inside */
    uint64_t now, sequence;
    kv_sim_event *heap;
    size_t n_heap, cap_heap;
    kv_mpi_order order;
    kv_mpi_job job;
    kv_mpi_hub *hub;
    kv_sim_worker *workers;      /* by rank; [0] unused but for items and busy_ns */
    volatile sig_atomic_t *stop; /* by rank */
    kv_sim_thread helper;
    kv_sim_inbox inbox; /* of rank 0 */
    uint64_t link_free; /* into rank 0 */
    uint64_t helper_busy_ns, helper_seen_ns, helper_checked, main_began, end_limit;
    int64_t main_item, main_delivered;
    double main_busy_s;
    kv_buf bytes;
    bool ending, root_done, aborted; /* aborted: the job was ended from inside or outside */
    kv_rc rc;
    kv_err err;
    int64_t messages, message_bytes;
    uint64_t end_ns;
};

enum {
    KV_SIM_EV_HELPER,
    KV_SIM_EV_MAIN,
    KV_SIM_EV_WORKER,
    KV_SIM_EV_STOP,
    KV_SIM_EV_DIE,
    KV_SIM_EV_KILL,
    KV_SIM_EV_TIME_UP
};

/* Runs the hand-out; w->rc, w->err, w->aborted say how it went. An error here is the simulator's own. */
kv_rc kv_sim_world_run(kv_sim_world *w, kv_err *err) KV_MUST_USE;
void kv_sim_world_free(kv_sim_world *w);
/* Before it runs: memory for ranks. */
kv_rc kv_sim_world_init(kv_sim_world *w, kv_err *err) KV_MUST_USE;
void kv_sim_at(kv_sim_world *w, uint64_t at, int kind, int rank, uint32_t turn);
void kv_sim_abort(kv_sim_world *w, kv_rc rc, const char *why);

/* First moment from `t` on at which a thread that found nothing to do at `origin` looks again; `look` of work each. */
uint64_t kv_sim_next_look(const kv_sim_model *m, uint64_t origin, uint64_t look, uint64_t t);
void kv_sim_wake(kv_sim_world *w, kv_sim_thread *t, int kind, int rank, uint64_t look, uint64_t at);
void kv_sim_sleep(kv_sim_world *w, kv_sim_thread *t, int kind, int rank, uint64_t look, uint64_t at);

/* kv_sim_net.c */
void kv_sim_send_up(kv_sim_world *w, int rank, const kv_buf *bytes);
void kv_sim_send_down(kv_sim_world *w, int rank, const kv_mpi_ctrl *c);
kv_sim_message *kv_sim_receive(kv_sim_world *w,
                               kv_sim_inbox *box); /* one that has arrived, or NULL; then its sender is free */
void kv_sim_message_free(kv_sim_message *m);
void kv_sim_inbox_free(kv_sim_inbox *box);

/* kv_sim_root.c, kv_sim_worker.c */
void kv_sim_main_step(kv_sim_world *w, bool item_over);
void kv_sim_helper_step(kv_sim_world *w);
void kv_sim_helper_notify(kv_sim_world *w, uint64_t at);
void kv_sim_worker_step(kv_sim_world *w, int rank);
void kv_sim_worker_notify(kv_sim_world *w, int rank, uint64_t at);

/* kv_sim_cells.c: what cells give here */
void kv_sim_row(uint64_t salt, int64_t cell, kv_row *out);

/* ---- stories: what is done to one run (kv_sim_faults.c) ---- */
typedef enum {
    KV_SIM_LOST_RANK,   /* a rank is gone; the launcher ends the job soon after */
    KV_SIM_SILENT_RANK, /* a rank is gone and no one says so */
    KV_SIM_SLOW_RANK,
    KV_SIM_PAUSED_RANK,
    KV_SIM_LATE_MESSAGES,
    KV_SIM_HELD_MESSAGES,  /* none leaves before it is received */
    KV_SIM_KILL_AT_CHANGE, /* before, after or in the middle of any change of the disk */
    KV_SIM_KILL_AT_TIME,
    KV_SIM_POWER_CUT, /* with one of the two: what was not synced may be gone */
    KV_SIM_FULL_DISK,
    KV_SIM_BAD_CHANGE, /* a change of the disk fails, or does less than was asked */
    KV_SIM_SIGNAL,
    KV_SIM_FATAL_ITEM,
    KV_SIM_HANGING_ITEM,
    KV_SIM_FAILED_CELL,
    KV_SIM_SECOND_LOOK, /* a second look takes good rows back */
    KV_SIM_RIVAL,       /* another run wants the same state meanwhile */
    KV_SIM_OTHER_HOST,  /* resumed from elsewhere */
    KV_SIM_CUT_LINE,    /* d13 a: the last line of the journal is cut */
    KV_SIM_BAD_LAST_LINE,
    KV_SIM_BAD_LINE,       /* d13 b */
    KV_SIM_DOUBLED_LINE,   /* d13 d: a cell stands twice */
    KV_SIM_CONFLICT,       /* d13 d: with another row */
    KV_SIM_OTHER_CAMPAIGN, /* d13 e */
    KV_SIM_FAULT_COUNT
} kv_sim_fault;

typedef struct {
    uint32_t kinds; /* bits of kv_sim_fault */
    int ranks;
    double timeout_s;
    uint64_t jitter_ns, late_ns, sync_ns;
    int late_percent;
    int bad_rank;               /* slow, lost, silent, paused, failing */
    int slow;                   /* times */
    uint64_t when_ns, until_ns; /* lost, paused */
    uint64_t kill_ns, stop_ns;
    int stop_rank;              /* -1: all */
    int64_t nth;                /* item of the bad rank */
    int64_t change, changes[2]; /* of the disk */
    kv_sim_op_fate fate, fates[2];
    int64_t capacity; /* beyond what is there */
    int64_t rival_nth;
    kv_rc tampered; /* how the journal must be refused; KV_OK: not at all */
} kv_sim_trouble;

/* What happens to the next run of a story; work_ns: about how long it takes on one core, largest_ns: its largest cell; journal_bytes: of a whole one. */
void kv_sim_trouble_draw(kv_sim_chance *c, uint64_t work_ns, uint64_t largest_ns, int64_t journal_bytes, int64_t cells,
                         bool first, kv_sim_trouble *out);
static inline bool kv_sim_has(const kv_sim_trouble *t, kv_sim_fault f)
{
    return (t->kinds >> f & 1u) != 0;
}
/* Changes the journal as the kinds say; *lost is the cell whose line may be gone now (-1: none). False: there was nothing to change. */
bool kv_sim_tamper(kv_sim_chance *c, kv_sim_fault kind, kv_buf *journal, int64_t *lost);

#endif
