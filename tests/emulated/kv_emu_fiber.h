/* Fibers for the emulated device: a stack each, switched by hand. */
#ifndef KV_EMU_FIBER_H
#define KV_EMU_FIBER_H

#ifdef __cplusplus
struct kv_fiber;

/* A fiber that runs entry(argument) whenever it is resumed after having finished it. */
kv_fiber *kv_fiber_new(void (*entry)(void *), void *argument);
/* From the scheduler: runs the fiber until it yields or its entry returns. */
void kv_fiber_resume(kv_fiber *f);
/* From inside fiber f: back to the scheduler. */
void kv_fiber_yield(kv_fiber *f);
#endif
#endif
