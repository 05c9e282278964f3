/* The emulated device behind the CUDA interface: streams are queues that run when the host waits, never before, so that
 * host code which reads too early reads the past; device memory is closed to host code meanwhile.
 *
 *   KV_EMU_DEVICES  numbers of the GPUs that this process sees, such as "0,1" or "" for none (default "0")
 *   KV_EMU_DRIVER   "old": the driver is too old for this program; "none": there is none
 *   KV_EMU_MEMORY   bytes of each of them (default 8 GiB)
 *   KV_EMU_FAIL     "RANK N": on that rank of a job of Open MPI the N-th call from the start that can fail (0 = first) does */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "tests/emulated/kv_emu_grid.h"
#include "tests/emulated/kv_emu_memory.h"

struct CUstream_st {
    std::deque<std::function<void()>> queue;
};
struct CUevent_st {
    double at;
};

static const size_t TOTAL = (size_t)8 << 30;

struct machine {
    std::map<void *, size_t> device, pinned;
    std::map<cudaStream_t, int> streams;
    cudaError_t last = cudaSuccess;
    unsigned char fill = 0xCD;
    kv_emu_order order = KV_EMU_TURNS;
    long fail_after = -1, launches = 0, waits = 0;
    size_t total = TOTAL; /* bytes of a device's memory */
    int (*busy)(cudaStream_t) = nullptr;
};

static machine *new_machine(void)
{
    machine *one = new machine; /* lives to the end: the program may close devices at exit */
    const char *text = getenv("KV_EMU_FAIL"), *memory = getenv("KV_EMU_MEMORY"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    long who = -1, when = -1;
    if (memory != nullptr) one->total = strtoull(memory, nullptr, 10);
    if (text != nullptr && rank != nullptr && sscanf(text, "%ld %ld", &who, &when) == 2 && who == atol(rank))
        one->fail_after = when;
    return one;
}

static machine &m()
{
    static machine *one = new_machine();
    return *one;
}

/* ---- errors ----------------------------------------------------------------------------- */

static cudaError_t fails(cudaError_t e)
{
    if (e != cudaSuccess) m().last = e;
    return e;
}

/* Whether this call was chosen to fail. */
static bool chosen(void)
{
    return m().fail_after >= 0 && m().fail_after-- == 0;
}

static const struct {
    cudaError_t e;
    const char *name, *text;
} errors[] = {{cudaSuccess, "cudaSuccess", "no error"},
              {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
              {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
              {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
              {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
               "CUDA driver version is insufficient for CUDA runtime version"},
              {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
              {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
              {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
              {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"}};

const char *cudaGetErrorName(cudaError_t e)
{
    for (const auto &x : errors)
        if (x.e == e) return x.name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t e)
{
    for (const auto &x : errors)
        if (x.e == e) return x.text;
    return "unknown error";
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = m().last;
    m().last = cudaSuccess;
    return e;
}

/* ---- devices ---------------------------------------------------------------------------- */

static std::vector<int> visible(void)
{
    const char *s = getenv("KV_EMU_DEVICES");
    std::vector<int> list;
    if (s == nullptr) s = "0";
    while (*s != '\0') {
        char *end = nullptr;
        list.push_back((int)strtol(s, &end, 10));
        if (end == s) break;
        s = *end == ',' ? end + 1 : end;
    }
    return list;
}

static bool driver_is(const char *what)
{
    const char *s = getenv("KV_EMU_DRIVER");
    return s != nullptr && strcmp(s, what) == 0;
}
static bool old_driver(void)
{
    return driver_is("old");
}
static bool no_driver(void)
{
    return driver_is("none");
}

cudaError_t cudaGetDeviceCount(int *n)
{
    if (old_driver() || no_driver()) return fails(cudaErrorInsufficientDriver);
    *n = (int)visible().size();
    return *n > 0 ? cudaSuccess : fails(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    return device >= 0 && device < (int)visible().size() ? cudaSuccess : fails(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    const cudaError_t e = cudaSetDevice(device);
    if (e != cudaSuccess) return e;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "emulated");
    memcpy(p->uuid.bytes, "emulated", 8);
    p->uuid.bytes[15] = (char)visible()[(size_t)device];
    p->totalGlobalMem = m().total;
    p->major = 9;
    p->multiProcessorCount = 2;
    p->l2CacheSize = 1 << 20;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = old_driver() ? 11040 : no_driver() ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- memory ----------------------------------------------------------------------------- */

static void run_queue(cudaStream_t s)
{
    if (s == nullptr || s->queue.empty()) return; /* nothing is ever queued on the default stream */
    for (const auto &a : m().device) kv_guarded_lock(a.first, a.second, false);
    for (; !s->queue.empty(); s->queue.pop_front()) s->queue.front()();
    for (const auto &a : m().device) kv_guarded_lock(a.first, a.second, true);
}

/* The allocation that holds all of [p, p + bytes). */
static std::map<void *, size_t>::iterator allocation(const void *p, size_t bytes)
{
    auto at = m().device.upper_bound((void *)(uintptr_t)p);
    if (at == m().device.begin()) return m().device.end();
    --at;
    const size_t offset = (size_t)((const char *)p - (const char *)at->first);
    return offset <= at->second && bytes <= at->second - offset ? at : m().device.end();
}

static size_t used(void)
{
    size_t n = 0;
    for (const auto &a : m().device) n += a.second;
    return n;
}

static size_t room(void)
{
    return m().total > used() ? m().total - used() : 0;
}

static cudaError_t take(std::map<void *, size_t> &where, void **p, size_t bytes)
{
    void *got = chosen() || (&where == &m().device && bytes > room()) ? nullptr : kv_guarded_new(bytes);
    if (got == nullptr) return fails(cudaErrorMemoryAllocation);
    where[got] = bytes;
    *p = got;
    return cudaSuccess;
}

static cudaError_t give_back(std::map<void *, size_t> &where, void *p)
{
    const auto at = where.find(p);
    if (p == nullptr) return cudaSuccess;
    if (at == where.end()) return fails(cudaErrorInvalidValue);
    for (const auto &s : m().streams) run_queue(s.first);
    kv_guarded_free(p, at->second);
    where.erase(at);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = room();
    *total_bytes = m().total;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    const cudaError_t e = take(m().device, p, bytes);
    if (e == cudaSuccess) kv_guarded_lock(*p, bytes, true);
    return e;
}

cudaError_t cudaFree(void *p)
{
    return give_back(m().device, p);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    return take(m().pinned, p, bytes);
}

cudaError_t cudaFreeHost(void *p)
{
    return give_back(m().pinned, p);
}

/* Copies at once what lies in device memory; 0 where neither side is all in one allocation of it. */
static bool copy_now(void *dst, const void *src, size_t bytes)
{
    const auto to = allocation(dst, bytes), from = allocation(src, bytes), none = m().device.end();
    if (to == none && from == none) return false;
    for (const auto &a : {to, from})
        if (a != none) kv_guarded_lock(a->first, a->second, false);
    memcpy(dst, src, bytes);
    for (const auto &a : {to, from})
        if (a != none) kv_guarded_lock(a->first, a->second, true);
    return true;
}

/* On the default stream: what other streams have queued is not waited for. Between two places of the host it is an
 * error here, since kvgrid must know what it has. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    if (chosen()) return fails(cudaErrorLaunchFailure);
    return kind == cudaMemcpyDefault && copy_now(dst, src, bytes) ? cudaSuccess : fails(cudaErrorInvalidValue);
}

int kv_emu_is_device(const void *p, size_t bytes)
{
    return allocation(p, bytes) != m().device.end();
}

void kv_emu_copy(void *dst, const void *src, size_t bytes)
{
    if (!copy_now(dst, src, bytes)) memcpy(dst, src, bytes);
}

void kv_emu_set_busy(int (*busy)(cudaStream_t s))
{
    m().busy = busy;
}

/* ---- streams ---------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    if (chosen()) return fails(cudaErrorMemoryAllocation);
    *s = new CUstream_st;
    m().streams[*s] = 1;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    run_queue(s);
    m().streams.erase(s);
    delete s;
    return cudaSuccess;
}

static bool is_busy(cudaStream_t s)
{
    return m().busy != nullptr && m().busy(s) != 0;
}

/* A stream that NCCL works on could be waited for without end, so that is an error here: kvgrid asks. */
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    m().waits++;
    if (is_busy(s)) return fails(cudaErrorInvalidValue);
    run_queue(s);
    return chosen() ? fails(cudaErrorLaunchFailure) : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    if (is_busy(s)) return cudaErrorNotReady;
    run_queue(s);
    return chosen() ? fails(cudaErrorLaunchFailure) : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    m().waits++;
    for (const auto &s : m().streams) {
        if (is_busy(s.first)) return fails(cudaErrorInvalidValue);
        run_queue(s.first);
    }
    return chosen() ? fails(cudaErrorLaunchFailure) : cudaSuccess;
}

static cudaError_t push(cudaStream_t s, std::function<void()> what)
{
    if (chosen()) return fails(cudaErrorLaunchFailure);
    s->queue.push_back(std::move(what));
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind, cudaStream_t s)
{
    return push(s, [=]() { memcpy(dst, src, bytes); });
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
    return push(s, [=]() { memset(p, value, bytes); });
}

void kv_emu_queue(const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t s, void (*body)(void *),
                  void (*drop)(void *), void *closure)
{
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (grid.x == 0 || grid.x > 0x7FFFFFFFu || grid.y == 0 || grid.y > 65535 || grid.z == 0 || grid.z > 65535 ||
        threads == 0 || threads > 1024 || shared != 0) {
        (void)fails(cudaErrorInvalidConfiguration);
        drop(closure);
        return;
    }
    const long number = m().launches++;
    const bool backward = m().order == KV_EMU_BACKWARD || (m().order == KV_EMU_TURNS && number % 2 == 1);
    const cudaError_t e = push(s, [=]() {
        kv_grid_run(name, grid, block, backward, body, closure);
        drop(closure);
    });
    if (e != cudaSuccess) drop(closure);
}

/* ---- events ----------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    *e = new CUevent_st{0};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    return push(s, [=]() { e->at = now(); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    for (const auto &s : m().streams) (void)cudaStreamSynchronize(s.first);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t stop)
{
    *ms = (float)(stop->at - start->at);
    return cudaSuccess;
}

/* ---- for tests -------------------------------------------------------------------------- */

unsigned char kv_emu_fill(void)
{
    return m().fill;
}

void kv_emu_poison(unsigned char fill)
{
    m().fill = fill;
}

void kv_emu_set_order(kv_emu_order order)
{
    m().order = order;
}

void kv_emu_set_memory(int64_t bytes)
{
    m().total = bytes > 0 ? (size_t)bytes : TOTAL;
}

int64_t kv_emu_used(void)
{
    return (int64_t)used();
}

long kv_emu_fail_left(void)
{
    return m().fail_after;
}

void kv_emu_fail_after(long n)
{
    m().fail_after = n;
}

long kv_emu_allocations(void)
{
    return (long)(m().device.size() + m().pinned.size());
}

long kv_emu_launches(void)
{
    return m().launches;
}

long kv_emu_waits(void)
{
    return m().waits;
}
