/* Progress of a run on stderr of rank 0: a bar on a terminal, a line every few seconds otherwise. */
#ifndef KV_PROGRESS_H
#define KV_PROGRESS_H

#include "mpi/kv_mpi.h"

/* What has come back so far; rank 0 only. */
typedef struct {
    bool off, terminal, drawn;
    double last;        /* seconds at which the last line stood */
    double positions;   /* native positions checked, both sides */
    double moved_bytes; /* written by builds, translations and comparisons, about */
    double *rank_cost;  /* estimated cost of what each rank has delivered */
    int ranks;
} kv_progress;

/* ranks > 0: the tally of each rank. KV_ENOMEM. */
kv_rc kv_progress_start(kv_progress *p, bool off, int ranks, kv_err *err) KV_MUST_USE;
/* One result came back. */
void kv_progress_add(kv_progress *p, int rank, double cost, double positions, double moved_bytes);
void kv_progress_step(kv_progress *p, const kv_mpi_progress *now);
/* Ends the bar's line, if one stands, and frees the tally. */
void kv_progress_end(kv_progress *p);

#endif
