/* Progress of a run on stderr of rank 0: a bar on a terminal, a line every few seconds otherwise. */
#ifndef KV_PROGRESS_H
#define KV_PROGRESS_H

#include "mpi/kv_mpi.h"

typedef struct {
    bool off, terminal, drawn;
    double last; /* seconds at which the last line stood */
} kv_progress;

void kv_progress_start(kv_progress *p, bool off);
void kv_progress_step(kv_progress *p, const kv_mpi_progress *now);
/* Ends the bar's line, if one stands. */
void kv_progress_end(kv_progress *p);

#endif
