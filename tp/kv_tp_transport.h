/* Moving bytes between the ranks of one group: one interface, three implementations.
 *   mpi     host memory, non-blocking point-to-point on a communicator of its own (kv_tp_world_new)
 *   nccl    GPU memory; control messages go over another transport (kv_tp_nccl_new)
 *   local   threads of one process that play the ranks (kv_tp_local_new): tests, --tp-emulate
 *
 * Every wait ends: an exchange in which nothing arrives for timeout_s is KV_ETIME and names the ranks that are
 * missing; a rank that gave up tells the others at once, and they get KV_EPEER with its name and reason. After
 * either, or KV_EMPI / KV_EDEVICE, the transport is broken: every later call fails at once with KV_EPEER. Nothing
 * else breaks it, so a refused message leaves the group usable. While `lost_buffers` is true, bytes may still
 * arrive in memory given to a failed exchange: leave that memory allocated and end the process.
 *
 * All calls but abort and close are collective over the group, in the same order on every rank. Ranks in texts are
 * those of the world ("rank 2"). One thread at a time. */
#ifndef KV_TP_TRANSPORT_H
#define KV_TP_TRANSPORT_H

#include "base/kv_base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KV_TP_RANKS_MAX 64 /* of one group */
#define KV_TP_NOTICE_TEXT 240

typedef struct kv_tp_transport kv_tp_transport;

/* A run of bytes in memory of the kind that the call names. */
typedef struct {
    void *at; /* sends only read it */
    int64_t bytes;
} kv_tp_piece;

/* Pieces to or from one rank. Both sides must cut a message into the same pieces; messages between two ranks
 * match in the order of their lists. */
typedef struct {
    int32_t peer; /* rank in the group, never the caller's own */
    int32_t pieces;
    kv_tp_piece *piece;
} kv_tp_message;

typedef struct {
    const kv_tp_message *send, *recv;
    size_t n_send, n_recv;
} kv_tp_batch;

typedef struct {
    const char *name;
    bool gpu; /* exchange() takes GPU memory */
    /* Small messages in host memory. */
    kv_rc (*control)(kv_tp_transport *t, const kv_tp_batch *b, kv_err *err);
    /* The payload: memory of the transport's kind. */
    kv_rc (*exchange)(kv_tp_transport *t, const kv_tp_batch *b, kv_err *err);
    /* Memory of the transport's kind, for callers whose images live elsewhere. KV_ENOMEM. */
    kv_rc (*buffer_new)(kv_tp_transport *t, int64_t bytes, void **out, kv_err *err);
    void (*buffer_free)(kv_tp_transport *t, void *buffer);
    /* Looks without waiting whether a rank gave up: KV_EPEER then. Also tells which were heard of (may be NULL). */
    kv_rc (*heed)(kv_tp_transport *t, bool *heard, kv_err *err);
    /* Tells all others why this rank gives up. Never waits. */
    void (*abort)(kv_tp_transport *t, kv_rc rc, const char *why);
    void (*close)(kv_tp_transport *t); /* frees t */
    /* exchange() in two halves; NULL where there is only the whole. *flight is what end() frees. */
    kv_rc (*begin)(kv_tp_transport *t, const kv_tp_batch *b, void **flight, kv_err *err);
    kv_rc (*end)(kv_tp_transport *t, void *flight, kv_err *err);
} kv_tp_ops;

/* An exchange under way. */
typedef struct {
    kv_tp_batch batch;
    void *flight;
    bool open;
} kv_tp_flight;

struct kv_tp_transport {
    const kv_tp_ops *ops;
    int32_t rank, size;             /* in the group */
    int32_t world[KV_TP_RANKS_MAX]; /* rank of the world for each rank of the group */
    double timeout_s;
    bool broken, lost_buffers;
    bool timed_out;                     /* some rank gave up because it waited in vain */
    bool silent[KV_TP_RANKS_MAX];       /* ranks of the group that gave no sign of life when this one gave up */
    int32_t failed_rank;                /* of the world: the rank whose failure all agreed on last, */
    kv_rc failed_rc;                    /* and what it met there; KV_OK: there was none */
    int64_t sent_bytes, received_bytes; /* of exchange() alone */
    /* Of them, those of whole legs of kv_tp_move, and what this rank had to receive in these. */
    int64_t moved_sent, moved_received, moved_least;
};

/* Runs an exchange (or control messages) with the checks that all implementations share, and counts its bytes. */
kv_rc kv_tp_exchange(kv_tp_transport *t, const kv_tp_batch *b, kv_err *err) KV_MUST_USE;
kv_rc kv_tp_control(kv_tp_transport *t, const kv_tp_batch *b, kv_err *err) KV_MUST_USE;

/* The same while the caller works: the batch's lists and bytes stay as they are until kv_tp_end. Flights end in the
 * order in which they began; other calls may come between. A transport that cannot do so exchanges all in kv_tp_begin. */
kv_rc kv_tp_begin(kv_tp_transport *t, const kv_tp_batch *b, kv_tp_flight *f, kv_err *err) KV_MUST_USE;
kv_rc kv_tp_end(kv_tp_transport *t, kv_tp_flight *f, kv_err *err) KV_MUST_USE; /* of one that is not open: KV_OK */

/* `bytes` bytes of every rank to every rank: all[rank * bytes]. */
kv_rc kv_tp_share(kv_tp_transport *t, const void *mine, int64_t bytes, void *all, kv_err *err) KV_MUST_USE;
/* One outcome for all, as kv_mpi_agree: a rank that failed keeps its rc and err, the others get KV_EPEER and
 * "rank 1: TEXT" of the first that failed. Leaves the transport usable. */
kv_rc kv_tp_agree(kv_tp_transport *t, kv_rc rc, kv_err *err) KV_MUST_USE;
/* This rank's error where all know that rank `rank` of the group met rc: its own rc there, KV_EPEER elsewhere (refused
 * bytes are KV_EFORMAT everywhere), with "rank 1: TEXT". Notes it in t. */
kv_rc kv_tp_failed_at(kv_tp_transport *t, int32_t rank, kv_rc rc, const char *text, kv_err *err) KV_MUST_USE;
/* Tells the group and breaks the transport; for errors after which the others must not wait. NULL is fine. */
void kv_tp_abort(kv_tp_transport *t, kv_rc rc, const char *why);
void kv_tp_close(kv_tp_transport *t); /* NULL is fine */

/* For implementations: after this rank gave up with rc. Where a wait in vain was the cause, waits a moment for the
 * notices of the others (who wait in vain too and say so) and adds to the text who sent none. */
void kv_tp_name_the_silent(kv_tp_transport *t, kv_rc rc, char *text, size_t room);

/* Seconds of a clock that only goes forward. */
double kv_tp_now(void);
/* Waits a little: at first only yields, later sleeps, so that ranks that share a core do not burn it. *idle counts
 * the fruitless rounds; set it to 0 when something happened. */
void kv_tp_pause(int *idle);

/* ---- local: threads that play ranks ------------------------------------------------------ */

typedef struct kv_tp_hub kv_tp_hub;
/* A hub for n ranks in this process; free it after all its transports are closed. */
kv_rc kv_tp_hub_new(int32_t n, kv_tp_hub **out, kv_err *err) KV_MUST_USE;
void kv_tp_hub_free(kv_tp_hub *h);
/* The transport of rank `rank`, used by one thread. */
kv_rc kv_tp_local_new(kv_tp_hub *h, int32_t rank, double timeout_s, kv_tp_transport **out, kv_err *err) KV_MUST_USE;

/* What one rank does; its device must be its own. */
typedef kv_rc (*kv_tp_part)(void *ctx, kv_tp_transport *t, kv_err *err);
/* Runs `part` as each rank of a group of n, in threads, to the end of all. The error is that of a rank that knows a
 * cause. part must not call MPI. */
kv_rc kv_tp_play(int32_t n, double timeout_s, kv_tp_part part, void *ctx, kv_err *err) KV_MUST_USE;

/* ---- mpi --------------------------------------------------------------------------------- */

typedef struct kv_tp_world kv_tp_world;
/* A communicator of its own beside the world's, which must be started. Collective over the world, waits at most
 * timeout_s for the others. */
kv_rc kv_tp_world_new(double timeout_s, kv_tp_world **out, kv_err *err) KV_MUST_USE;
/* After all groups are closed. Collective; does not wait for others. NULL is fine. */
void kv_tp_world_free(kv_tp_world *w);
int32_t kv_tp_world_rank(const kv_tp_world *w);
int32_t kv_tp_world_size(const kv_tp_world *w);
/* The group of the n world ranks world_rank[], of which the caller must be one (KV_EINVAL). No messages are sent.
 * Two groups may work at the same time if they share no rank; one rank works in one group after the other. */
kv_rc kv_tp_mpi_new(kv_tp_world *w, const int32_t *world_rank, int32_t n, double timeout_s, kv_tp_transport **out,
                    kv_err *err) KV_MUST_USE;
/* Largest single MPI message, 1 GiB; tests make it small. */
void kv_tp_mpi_part_bytes(kv_tp_transport *t, int64_t bytes);

/* ---- nccl -------------------------------------------------------------------------------- */

/* A NCCL communicator for the group of `control`, whose control messages (the unique id, headers, notices) go over
 * `control`; it must outlive the new transport. gpu is the CUDA ordinal of this rank's device. The start is
 * non-blocking and ends within timeout_s on every rank. KV_EUNSUP where this build has no NCCL. Collective. */
kv_rc kv_tp_nccl_new(kv_tp_transport *control, int32_t gpu, double timeout_s, kv_tp_transport **out, kv_err *err)
    KV_MUST_USE;

/* Copies between host and GPU memory, either way or within one. KV_EUNSUP where a GPU is meant and this build has
 * no CUDA. */
kv_rc kv_tp_copy(void *dst, bool dst_gpu, const void *src, bool src_gpu, int64_t bytes, kv_err *err) KV_MUST_USE;

/* ---- which of them ----------------------------------------------------------------------- */

/* Where a rank computes. gpu: something that no two devices of a host share (a UUID or bus id), "" without one. */
typedef struct {
    char host[64];
    char gpu[48];
} kv_tp_place;

#define KV_TP_WHY_TEXT 200

/* True for nccl, false for mpi, over the places of a group; why[] says it in a few words ("mpi: rank 2 has no GPU of
 * its own"). rank_name[i]: number of rank i to use in the text. kind: kv_tp_nccl_kind() of all ranks, or "none". */
bool kv_tp_choose(const kv_tp_place *place, const int32_t *rank_name, int32_t n, const char *kind,
                  char why[KV_TP_WHY_TEXT]);
/* The same over a group: shares the places, so that every rank chooses alike. Collective. */
kv_rc kv_tp_choose_shared(kv_tp_transport *control, const kv_tp_place *mine, bool *nccl, char why[KV_TP_WHY_TEXT],
                          kv_err *err) KV_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
