/* The device check: a program of base, layouts and kernels alone, for a machine with a GPU and little else. */
#ifndef KV_DEVICE_CHECK_H
#define KV_DEVICE_CHECK_H

#include "kernels/cuda/kv_cuda.h"
#include "layouts/kv_layout.h"

/* The devices, the CPU's being the truth, and what was found so far. */
typedef struct {
    kv_device *cpu, *gpu;
    kv_cuda_gpu about;
    uint64_t random;
    long checks, wrong;
} kv_check;

/* One layout of the list: factors as "Tb.H.Ti.D". */
typedef struct {
    const char *name;
    kv_store store;
    const char *k, *v; /* v NULL: as k */
    int64_t block, x, tx, page_stride_bytes, row_lanes;
    bool published; /* one of the eight lossless ones of the published campaign */
} kv_check_layout;

extern const kv_check_layout kv_check_layouts[];
extern const int kv_check_layout_count;

/* Binds; false where it does not exist at g. */
bool kv_check_bind(const kv_check_layout *l, const kv_geometry *g, kv_index *ix);

int64_t kv_check_below(kv_check *c, int64_t n);
/* Counts a check; prints what was wrong. */
void kv_check_note(kv_check *c, bool good, const char *fmt, ...) KV_PRINTF(3, 4);
/* Ends the program where a call that should work did not. */
void kv_check_must(kv_rc rc, const kv_err *err, const char *what);

/* Everything on random shapes, bit for bit (kv_device_check.c). `small`: for a sanitizer. */
void kv_check_all(kv_check *c, bool small);
/* What both tables of speeds measure with: seconds of a clock that only goes forward; an order of doubles for qsort. */
double kv_check_now(void);
int kv_check_by_value(const void *a, const void *b);

/* Waves of cells (kv_device_wave.c). */
void kv_check_waves(kv_check *c, bool small);
/* Batches of the codec (kv_device_codec.c). */
void kv_check_codec(kv_check *c, bool small);
/* The tables of speeds (kv_device_speed.c, kv_device_codec.c). */
void kv_check_speeds(kv_check *c);
void kv_check_codec_speeds(kv_check *c);

#endif
