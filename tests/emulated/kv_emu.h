/* The emulated device: what tests may ask of it. Everything else is the CUDA interface in include/. */
#ifndef KV_EMU_H
#define KV_EMU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What fresh device memory and fresh shared memory hold: a kernel that reads what nobody wrote gives other results
 * with another byte. */
void kv_emu_poison(unsigned char fill);

/* The order in which the threads of a block and the blocks of a grid run. A correct kernel does not notice. */
typedef enum { KV_EMU_FORWARD, KV_EMU_BACKWARD, KV_EMU_TURNS /* one launch so, the next otherwise */ } kv_emu_order;
void kv_emu_set_order(kv_emu_order order);

/* The n-th call from now on that can fail does (0 = the next one), n < 0 switches it off. */
void kv_emu_fail_after(long n);
long kv_emu_fail_left(void); /* calls until then; negative once it failed */

/* Bytes of device memory that there are from now on, in all; 0: as in the beginning. And those in use. */
void kv_emu_set_memory(int64_t bytes);
int64_t kv_emu_used(void);

/* Device and pinned allocations that are not freed, kernels that ran. */
long kv_emu_allocations(void);
long kv_emu_launches(void);
/* Calls that made the host wait. */
long kv_emu_waits(void);

#ifdef __cplusplus
}
#endif
#endif
