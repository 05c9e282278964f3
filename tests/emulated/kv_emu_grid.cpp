/* One grid on one core: blocks one after another, the threads of a block as fibers that run until they wait. */
#include "tests/emulated/kv_emu_grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <map>
#include <vector>

#include "tests/emulated/kv_emu_fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

/* ---- guarded memory --------------------------------------------------------------------- */

static const size_t PAGE = 4096, ALIGN = 256;

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}
static size_t paged(size_t bytes)
{
    return (padded(bytes) + PAGE - 1) / PAGE * PAGE;
}

void *kv_guarded_new(size_t bytes)
{
    const size_t whole = paged(bytes);
    char *p = (char *)mmap(nullptr, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    if (whole > 0 && mprotect(p + PAGE, whole, PROT_READ | PROT_WRITE) != 0) {
        munmap(p, whole + 2 * PAGE);
        return nullptr;
    }
    char *data = p + PAGE + whole - padded(bytes);
    memset(data, kv_emu_fill(), bytes);
#if defined(__SANITIZE_ADDRESS__)
    ASAN_POISON_MEMORY_REGION(data + bytes, padded(bytes) - bytes);
#endif
    return data;
}

void kv_guarded_free(void *p, size_t bytes)
{
    const size_t whole = paged(bytes);
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION((char *)p + bytes, padded(bytes) - bytes);
#endif
    munmap((char *)p + padded(bytes) - whole - PAGE, whole + 2 * PAGE);
}

void kv_guarded_lock(void *p, size_t bytes, bool locked)
{
    const size_t whole = paged(bytes);
    if (whole > 0) mprotect((char *)p + padded(bytes) - whole, whole, locked ? PROT_NONE : PROT_READ | PROT_WRITE);
}

/* ---- one block -------------------------------------------------------------------------- */

enum state { IDLE, READY, AT_BARRIER, AT_EXCHANGE, DONE };

struct thread {
    kv_fiber *fiber;
    state now;
    uint3 index;
    uint64_t given[2]; /* of this exchange and the last one: a lane may be one ahead */
    unsigned turn, mask;
};

struct shared_part {
    void *data;
    size_t bytes;
    uint64_t epoch; /* of the block that it was filled for */
};

/* these live to the end: the leak check looks after destructors ran */
static std::vector<thread> &threads = *new std::vector<thread>;
static std::vector<kv_fiber *> &idle = *new std::vector<kv_fiber *>;
static std::map<const void *, shared_part> &parts = *new std::map<const void *, shared_part>;
static size_t current;
static unsigned count; /* threads of the block */
static uint64_t epoch;
static const char *running;
static void (*kernel)(void *);
static void *kernel_closure;

static void run_thread(void *)
{
    kernel(kernel_closure);
    threads[current].now = DONE;
}

[[noreturn]] static void stuck(const char *what, size_t at)
{
    fprintf(stderr, "emulated device: %s, block %u: thread %zu %s\n", running, blockIdx.x, at, what);
    abort();
}

static void wait_as(state s)
{
    kv_fiber *f = threads[current].fiber;
    threads[current].now = s;
    kv_fiber_yield(f);
}

void __syncthreads(void)
{
    wait_as(AT_BARRIER);
}

uint64_t kv_emu_exchange(unsigned mask, uint64_t given, unsigned from)
{
    thread &me = threads[current];
    const unsigned turn = me.turn++ & 1;
    const size_t other = current / 32 * 32 + from % 32;
    me.given[turn] = given;
    me.mask = mask;
    wait_as(AT_EXCHANGE);
    if (other >= count) stuck("reads a lane that does not exist", current);
    return threads[other].given[turn];
}

void *kv_emu_shared(const void *site, size_t bytes)
{
    shared_part &p = parts[site];
    if (p.data == nullptr) {
        p = {kv_guarded_new(bytes), bytes, 0};
        if (p.data == nullptr || bytes > 48 << 10) stuck("asks for more shared memory than a block has", current);
    }
    if (p.epoch != epoch) {
        memset(p.data, kv_emu_fill(), bytes);
        p.epoch = epoch;
    }
    return p.data;
}

static void resume(size_t at)
{
    thread &t = threads[at];
    if (t.fiber == nullptr) {
        if (idle.empty()) idle.push_back(kv_fiber_new(run_thread, nullptr));
        t.fiber = idle.back();
        idle.pop_back();
    }
    current = at;
    threadIdx = t.index;
    t.now = READY;
    kv_fiber_resume(t.fiber);
    if (t.now != DONE) return;
    idle.push_back(t.fiber);
    t.fiber = nullptr;
}

/* Lets the lanes of a warp go on once all of them wait for the exchange. */
static bool exchange_done(size_t first, size_t end)
{
    size_t waiting = 0;
    for (size_t i = first; i < end; i++) waiting += threads[i].now == AT_EXCHANGE;
    if (waiting == 0) return false;
    for (size_t i = first; i < end; i++)
        if (threads[i].now != AT_EXCHANGE || threads[i].mask != ~0u) return false;
    return true;
}

static void run_warp(size_t first, size_t end, bool backward)
{
    bool again = true;
    while (again) {
        for (size_t i = first; i < end; i++) {
            const size_t at = backward ? end - 1 - (i - first) : i;
            if (threads[at].now == READY || threads[at].now == IDLE) resume(at);
        }
        again = exchange_done(first, end);
        for (size_t i = first; again && i < end; i++) threads[i].now = READY;
    }
    for (size_t i = first; i < end; i++)
        if (threads[i].now == AT_EXCHANGE) stuck("waits for lanes that went another way", i);
}

static void run_block(bool backward)
{
    for (;;) {
        size_t done = 0, warps = (count + 31) / 32;
        for (size_t w = 0; w < warps; w++) {
            const size_t first = 32 * (backward ? warps - 1 - w : w);
            run_warp(first, first + 32 < count ? first + 32 : count, backward);
        }
        for (size_t i = 0; i < count; i++) done += threads[i].now == DONE;
        if (done == count) return;
        for (size_t i = 0; i < count; i++) {
            if (threads[i].now == DONE) stuck("ended while others wait at a barrier", i);
            threads[i].now = READY;
        }
    }
}

static void start_block(uint64_t block, dim3 grid, dim3 shape)
{
    blockIdx = {(unsigned)(block % grid.x), (unsigned)(block / grid.x % grid.y), (unsigned)(block / grid.x / grid.y)};
    epoch++;
    for (unsigned i = 0; i < count; i++)
        threads[i] = {nullptr, IDLE, {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y}, {0, 0}, 0, 0};
}

void kv_grid_run(const char *name, dim3 grid, dim3 block, bool backward, void (*body)(void *), void *closure)
{
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    count = block.x * block.y * block.z;
    if (threads.size() < count) threads.resize(count);
    running = name;
    kernel = body;
    kernel_closure = closure;
    gridDim = grid;
    blockDim = block;
    for (uint64_t b = 0; b < blocks; b++) {
        start_block(backward ? blocks - 1 - b : b, grid, block);
        run_block(backward);
    }
}
