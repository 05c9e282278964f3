/* A pair's unit in windows of tokens, for images that do not fit the memory at hand.
 *
 * A window is both layouts bound to a part of the tokens: `tokens` of them, a multiple of every token block of both sides,
 * and what is left in the last one. Each window's images are then the parts of the whole images that hold its tokens, and
 * what is counted over a unit is the sum over its windows. A pair for which native positions, elements and padding are
 * no such sums is not split. The dense layer of the token leg is always whole. */
#ifndef KV_CELL_WINDOWS_H
#define KV_CELL_WINDOWS_H

#include "kernels/kv_kern.h"
#include "layouts/kv_layout.h"

typedef struct {
    kv_index whole[2]; /* source and destination, all tokens of the unit */
    kv_index part[2];  /* of `tokens` tokens: every window but the last; = whole where there is one window */
    kv_index last[2];  /* the last window */
    int64_t tokens;    /* in every window but the last */
    int64_t count;     /* of windows, at least 1 */
} kv_windows;

/* Bytes of memory that a pair takes at once. */
typedef struct {
    int64_t host; /* on a CPU */
    int64_t gpu;  /* of a GPU's memory */
} kv_windows_need;

/* One window: all tokens. Both layouts bind to g for units of `unit` layers (kv_pair_frontier). KV_EINVAL as kv_layout_bind. */
kv_rc kv_windows_one(const kv_layout *const side[2], const kv_geometry *g, int64_t unit, kv_windows *out, kv_err *err)
    KV_MUST_USE;
/* Fewest tokens that a window may have: the least common multiple of all token blocks. 0: the pair cannot be split. */
int64_t kv_windows_step(const kv_windows *w);
/* Windows of `tokens`, a multiple of the step. *splits is false, and *w as it was, where they do not add up to the whole. */
kv_rc kv_windows_cut(const kv_layout *const side[2], const kv_geometry *g, int64_t tokens, kv_windows *w, bool *splits,
                     kv_err *err) KV_MUST_USE;
/* Of the third image: any window of either side, or one dense layer, in the geometry's type or the destination's. */
int64_t kv_windows_third_bytes(const kv_windows *w, const kv_geometry *g);
/* False where the sums do not fit 64 bits. */
bool kv_windows_bytes(const kv_windows *w, const kv_geometry *g, kv_windows_need *out);

/* The fewest windows that need at most `limit` bytes (0: no limit) on a CPU, or of a GPU's memory; of nearly even length.
 * KV_ENOMEM, with both numbers, where not even the smallest windows do. *w begins as kv_windows_one. */
kv_rc kv_windows_fit(const kv_layout *const side[2], const kv_geometry *g, int64_t limit, bool gpu, kv_windows *w,
                     kv_err *err) KV_MUST_USE;

/* Window n, 0 <= n < count: its first token, and both sides bound to it. */
int64_t kv_windows_first(const kv_windows *w, int64_t n);
const kv_index *kv_windows_at(const kv_windows *w, int64_t n);

#endif
