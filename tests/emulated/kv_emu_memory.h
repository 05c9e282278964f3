/* What the emulated NCCL (tests/tp/emulated) asks of the emulated device that it is linked with: the one of this folder,
 * or the tagged memory beside it. */
#ifndef KV_EMU_MEMORY_H
#define KV_EMU_MEMORY_H

#include <cuda_runtime.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether all of [p, p + bytes) is device memory. */
int kv_emu_is_device(const void *p, size_t bytes);
/* Copies at once, whatever is queued; either side may be device memory. */
void kv_emu_copy(void *dst, const void *src, size_t bytes);
/* cudaStreamQuery asks `busy` whether something else than the queue still works on a stream. */
void kv_emu_set_busy(int (*busy)(cudaStream_t s));

#ifdef __cplusplus
}
#endif
#endif
