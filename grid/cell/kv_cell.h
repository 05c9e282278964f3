/* What the cells of every check stand on: a rank's runner, rows that are begun and rows that failed. */
#ifndef KV_CELL_H
#define KV_CELL_H

#include "grid/row/kv_row.h"

/* What a rank keeps between cells: its device, and the reference decodes it has made (they depend on the
 * geometry and the heads held, not on the pair). Initialise with {0} and set dev. */
typedef struct {
    kv_device *dev;       /* borrowed */
    int64_t memory_bytes; /* that one cell may take of dev's memory; 0: no limit is known */
    struct kv_reference *references;
    size_t n_references;
    kv_values_store values;      /* of codec cells */
    struct kv_study_kept *study; /* of the last attribution cell (kv_study_cell.c) */
} kv_runner;

/* An empty row of a cell. */
void kv_cell_start_row(kv_row *row, int64_t cell);
/* A row that says that nothing could be found out, and why: keeps cell and words. */
void kv_cell_mark_failed(kv_row *row, kv_rc rc, const kv_err *why);
/* Adds the logits of one layer to a digest: little-endian, whatever the machine. */
void kv_digest_logits(kv_hash *h, const kv_decode_result *d);

/* What a cell needs, without running it. */
typedef struct {
    bool runs;           /* no frontier code */
    int64_t peak_bytes;  /* of memory while it runs on a CPU, in one piece */
    int64_t least_bytes; /* the same in the smallest pieces that it can be run in */
    int64_t gpu_bytes;   /* of a GPU's memory where it runs on one, in one piece; 0: none */
    int64_t gpu_least_bytes;
    int64_t gpu_host_bytes; /* of the host's memory then */
    int64_t moved_bytes;    /* written by builds, translations and comparisons, about */
    uint64_t cost;          /* estimate in nanoseconds of one CPU core */
    int64_t positions[2];   /* native positions of the unit, source and destination */
    int64_t bytes[2];       /* of the unit's images */
} kv_cell_need;

#endif
