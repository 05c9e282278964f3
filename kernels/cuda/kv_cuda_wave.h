/* Inside the CUDA backend: waves, cells whose work is queued together and whose results come back once (kernels/kv_kern.h).
 *
 * A wave of one cell launches as it is asked, on a stream of its own. In a wave of several each launch is first written
 * down in its cell's list; when the wave is sent, the lists are gone through side by side, and what stands at the head of
 * many becomes one launch: its entries lie in device memory, blockIdx.y is the number of the entry. Host code only. */
#ifndef KV_CUDA_WAVE_H
#define KV_CUDA_WAVE_H

#include "kernels/cuda/kv_cuda_kern.h"

typedef struct kv_cuda kv_cuda;
typedef struct kv_cuda_wave kv_cuda_wave;

/* What a result is, and so what it becomes in *out. */
typedef enum {
    KV_CUDA_LATE_PROBE,
    KV_CUDA_LATE_GUARDS,
    KV_CUDA_LATE_COMPARE,
    KV_CUDA_LATE_DIFFSET,
    KV_CUDA_LATE_DRIFT,
    KV_CUDA_LATE_DECODE,
} kv_cuda_late_kind;

/* A result that the device is still to give. */
typedef struct {
    kv_cuda_late_kind kind;
    int64_t native;          /* positions, for what tells a first one */
    void *out;               /* kv_probe_result, ... of the caller */
    const unsigned char *at; /* kv_cuda_result or kv_decode_result, device memory */
} kv_cuda_late;

/* Sets *late->out from the bytes that came back. */
void kv_cuda_late_set(const kv_cuda_late *late, const void *back);

/* Zeroed device memory for a result. In a wave it is the wave's, else the device's own. */
kv_rc kv_cuda_result_room(kv_cuda *c, kv_cuda_late_kind kind, unsigned char **at, kv_err *err) KV_MUST_USE;
/* The result is queued: in a wave it comes late, else this waits and sets it. */
kv_rc kv_cuda_result_queued(kv_cuda *c, const kv_cuda_late *late, kv_err *err) KV_MUST_USE;
/* Sends what the current cell's wave was asked so far, waits, and sets those results. */
kv_rc kv_cuda_wave_settle(kv_cuda *c, kv_err *err) KV_MUST_USE;
/* Scratch of the token leg for what is asked next, at least that large. What it held is lost. */
kv_rc kv_cuda_scratch(kv_cuda *c, int64_t floats, float **out, kv_err *err) KV_MUST_USE;
/* What was asked for with it is queued: outside waves it is kept for later, or for whatever has no room else. */
void kv_cuda_scratch_done(kv_cuda *c);

/* The table's. */
kv_rc kv_cuda_wave_open(kv_device *d, int32_t wave, int32_t cells, kv_err *err);
void kv_cuda_wave_cell(kv_device *d, int32_t wave, int32_t cell);
kv_rc kv_cuda_wave_send(kv_device *d, int32_t wave, kv_err *err);
kv_rc kv_cuda_wave_wait(kv_device *d, int32_t wave, kv_err *err);
/* Gives back what waves that are not open keep for their arguments; false where they keep nothing. */
bool kv_cuda_waves_release(const kv_cuda *c);
void kv_cuda_waves_close(kv_cuda *c);

#endif
