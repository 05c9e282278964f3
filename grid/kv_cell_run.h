/* Runs one cell on one device. */
#ifndef KV_CELL_RUN_H
#define KV_CELL_RUN_H

#include "grid/kv_row.h"

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

/* Runs cell number `cell` into *row. A cell that cannot be run (memory, device) is a FAILED row, not an
 * error; an error here means the campaign and the row do not fit together. */
kv_rc kv_cell_run(kv_runner *r, const kv_campaign *c, int64_t cell, kv_row *row, kv_err *err) KV_MUST_USE;
/* An empty row of a cell. */
void kv_cell_start_row(kv_row *row, int64_t cell);
/* A row that says that nothing could be found out, and why: keeps cell and words. */
void kv_cell_mark_failed(kv_row *row, kv_rc rc, const kv_err *why);
/* Adds the logits of one layer to a digest: little-endian, whatever the machine. */
void kv_digest_logits(kv_hash *h, const kv_decode_result *d);
void kv_runner_free(kv_runner *r); /* not dev */

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
/* How cell `cell`, one that runs, is cut where it may take `limit` bytes (0: no limit) of a CPU's or a GPU's memory; one
 * window for cells of other checks than "pair". KV_ENOMEM as kv_windows_fit. */
typedef struct {
    int64_t windows, tokens; /* in every window but the last */
} kv_cell_split;
kv_rc kv_cell_split_of(const kv_campaign *c, int64_t cell, int64_t limit, bool gpu, kv_cell_split *out, kv_err *err)
    KV_MUST_USE;
kv_rc kv_cell_plan(const kv_campaign *c, int64_t cell, kv_cell_need *out, kv_err *err) KV_MUST_USE;

#endif
