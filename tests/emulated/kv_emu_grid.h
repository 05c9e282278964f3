/* Inside the emulated device: guarded memory, and the run of one grid. */
#ifndef KV_EMU_GRID_H
#define KV_EMU_GRID_H

#ifdef __cplusplus
#include <cuda_runtime.h>

#include "tests/emulated/kv_emu.h"

/* `bytes` bytes, 256-byte aligned and filled with poison, between pages that are not there; the end lies less than 256
 * bytes before one (under the address sanitizer that gap is poisoned). NULL where there is no memory. */
void *kv_guarded_new(size_t bytes);
void kv_guarded_free(void *p, size_t bytes);
/* Makes the memory unreadable for host code, or whole again. */
void kv_guarded_lock(void *p, size_t bytes, bool locked);

unsigned char kv_emu_fill(void);
/* Runs every thread of every block to its end. */
void kv_grid_run(const char *name, dim3 grid, dim3 block, bool backward, void (*body)(void *), void *closure);
#endif
#endif
