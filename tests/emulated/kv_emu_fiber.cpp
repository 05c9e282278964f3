/* Fibers: on x86-64 a switch is a dozen instructions, elsewhere ucontext. Stacks end at a page that must not be touched. */
#include "tests/emulated/kv_emu_fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

static const size_t STACK = 256 << 10, PAGE = 4096;

struct kv_fiber {
    char *stack; /* STACK bytes behind a page that is not there */
    void (*entry)(void *);
    void *argument;
#if defined(__x86_64__)
    void *sp, *back; /* of the fiber, of the scheduler */
#else
    ucontext_t at, back;
#endif
    void *fake, *back_fake; /* what the address sanitizer keeps for each side */
    const void *back_stack;
    size_t back_size;
};

#if defined(__x86_64__)
/* kv_fiber_switch(save, next): the registers that a call must keep go to the stack; the stack is exchanged. */
asm(".text\n.p2align 4\n.globl kv_fiber_switch\n.type kv_fiber_switch,@function\nkv_fiber_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size kv_fiber_switch,.-kv_fiber_switch\n");
extern "C" void kv_fiber_switch(void **save, void *next);
#endif

static void leave(kv_fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&f->fake, f->back_stack, f->back_size);
#endif
#if defined(__x86_64__)
    kv_fiber_switch(&f->sp, f->back);
#else
    swapcontext(&f->at, &f->back);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(f->fake, &f->back_stack, &f->back_size);
#endif
}

static kv_fiber *starting; /* handed to a fiber that has never run */

static void body(void)
{
    kv_fiber *f = starting;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &f->back_stack, &f->back_size);
#endif
    for (;;) {
        f->entry(f->argument);
        leave(f);
    }
}

kv_fiber *kv_fiber_new(void (*entry)(void *), void *argument)
{
    kv_fiber *f = (kv_fiber *)calloc(1, sizeof *f);
    char *p = (char *)mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f == nullptr || p == MAP_FAILED || mprotect(p, PAGE, PROT_NONE) != 0) abort();
    f->stack = p + PAGE;
    f->entry = entry;
    f->argument = argument;
#if defined(__x86_64__)
    void **top = (void **)(f->stack + STACK) - 1; /* at the first instruction the stack is as after a call */
    *--top = (void *)body;
    f->sp = top - 6; /* what kv_fiber_switch takes off */
    memset(f->sp, 0, 6 * sizeof(void *));
#else
    getcontext(&f->at);
    f->at.uc_stack.ss_sp = f->stack;
    f->at.uc_stack.ss_size = STACK;
    makecontext(&f->at, body, 0);
#endif
    return f;
}

void kv_fiber_resume(kv_fiber *f)
{
    starting = f;
#if defined(__SANITIZE_ADDRESS__)
    void *mine = nullptr;
    __sanitizer_start_switch_fiber(&mine, f->stack, STACK);
#endif
#if defined(__x86_64__)
    kv_fiber_switch(&f->back, f->sp);
#else
    swapcontext(&f->back, &f->at);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(mine, nullptr, nullptr);
#endif
}

void kv_fiber_yield(kv_fiber *f)
{
    leave(f);
}
