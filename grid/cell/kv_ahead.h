/* Cells that are begun before their turn, on devices that have waves (kernels/kv_kern.h): many small cells in one wave, so in
 * common launches, and two waves under way, so that one is computed while the rows of the other are told and sent. What
 * cannot be begun so is run in its turn as ever. */
#ifndef KV_AHEAD_H
#define KV_AHEAD_H

#include "grid/cell/kv_cell.h"

#define KV_AHEAD_SMALL ((int64_t)4 << 20) /* bytes of a GPU's memory: such a cell cannot fill a GPU alone */

typedef struct kv_ahead kv_ahead;

/* For the runner's device; r and c are borrowed. *out is NULL where the device has no waves. memory_bytes: of the
 * device's memory that all begun cells may take together; small_bytes: that cells which share a wave may take each
 * (KV_AHEAD_SMALL). KV_ENOMEM. */
kv_rc kv_ahead_new(kv_runner *r, const kv_campaign *c, int64_t memory_bytes, int64_t small_bytes, kv_ahead **out,
                   kv_err *err) KV_MUST_USE;
void kv_ahead_free(kv_ahead *a); /* NULL is fine; ends what is under way */

/* The cells that come next, in order (-1: something else). Begins what can be begun. */
void kv_ahead_coming(kv_ahead *a, const int64_t *cells, int32_t n);
/* The row of a cell that was begun. False where there is none: then nothing is under way any more, and the cell is to be
 * run by itself. */
bool kv_ahead_take(kv_ahead *a, int64_t cell, kv_row *row);

/* What was done so far. */
typedef struct {
    int64_t waves, cells; /* begun */
    int64_t alone;        /* of these cells, not told: run again by themselves */
} kv_ahead_count;
kv_ahead_count kv_ahead_counted(const kv_ahead *a);

#endif
