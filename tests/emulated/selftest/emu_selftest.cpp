/* The emulated device catches what it is there to catch: each case is a program of its own that must end as said. */
#include <cuda_runtime.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/emulated/kv_emu.h"

typedef struct {
    int value[64];
} sixty_four;

static __global__ void put(int *p, int at)
{
    p[at] = 7;
}
static __global__ void turn(int *out, bool barrier)
{
    KV_CUDA_SHARED(sixty_four, s);
    s.value[threadIdx.x] = (int)threadIdx.x;
    if (barrier) __syncthreads();
    out[threadIdx.x] = s.value[63 - threadIdx.x];
}
static __global__ void part_of_a_barrier(int *)
{
    if (threadIdx.x < 32) __syncthreads();
}
static __global__ void part_of_a_warp(int *p)
{
    if (threadIdx.x % 2 == 0) p[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1, 2);
}

static cudaStream_t stream;
static int *device, *pinned;

static void open_all(void)
{
    void *p = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) _exit(9);
    if (cudaMalloc(&p, 64 * sizeof *device) != cudaSuccess) _exit(9);
    device = (int *)p;
    if (cudaMallocHost(&p, 64 * sizeof *pinned) != cudaSuccess) _exit(9);
    pinned = (int *)p;
    memset(pinned, 0, 64 * sizeof *pinned);
}

static void fetch(bool wait)
{
    if (cudaMemcpyAsync(pinned, device, 64 * sizeof *device, cudaMemcpyDeviceToHost, stream) != cudaSuccess) _exit(9);
    if (wait && cudaStreamSynchronize(stream) != cudaSuccess) _exit(9);
}

static int writes_in_bounds(void)
{
    KV_CUDA_LAUNCH(put, 1, 1, 0, stream, device, 63);
    fetch(true);
    return pinned[63] != 7;
}
static int writes_past_the_end(void)
{
    KV_CUDA_LAUNCH(put, 1, 1, 0, stream, device, 64);
    fetch(true);
    return 0;
}
static int writes_before_the_start(void)
{
    KV_CUDA_LAUNCH(put, 1, 1, 0, stream, device, -1024); /* 4096 bytes: in the closed page before it, not beyond that */
    fetch(true);
    return 0;
}
static int host_reads_device_memory(void)
{
    return *(volatile int *)device == 12345;
}
static int host_reads_before_it_waits(void)
{
    KV_CUDA_LAUNCH(put, 1, 1, 0, stream, device, 0);
    fetch(false);
    return pinned[0] != 0; /* still the past */
}
static int barrier_is_kept(void)
{
    KV_CUDA_LAUNCH(turn, 1, 64, 0, stream, device, true);
    fetch(true);
    for (int i = 0; i < 64; i++)
        if (pinned[i] != 63 - i) return 1;
    return 0;
}
static int missing_barrier_shows(void)
{
    KV_CUDA_LAUNCH(turn, 1, 64, 0, stream, device, false);
    fetch(true);
    for (int i = 0; i < 64; i++)
        if (pinned[i] != 63 - i) return 0;
    return 1;
}
static int waits_at_half_a_barrier(void)
{
    KV_CUDA_LAUNCH(part_of_a_barrier, 1, 64, 0, stream, device);
    fetch(true);
    return 0;
}
static int exchanges_with_half_a_warp(void)
{
    KV_CUDA_LAUNCH(part_of_a_warp, 1, 64, 0, stream, device);
    fetch(true);
    return 0;
}
static int empty_grid_is_refused(void)
{
    KV_CUDA_LAUNCH(put, 0, 1, 0, stream, device, 0);
    return cudaGetLastError() != cudaErrorInvalidConfiguration || cudaGetLastError() != cudaSuccess;
}

static const struct {
    const char *name;
    int (*run)(void);
    bool dies;
} cases[] = {{"writes in bounds", writes_in_bounds, false},
             {"writes past the end", writes_past_the_end, true},
             {"writes before the start", writes_before_the_start, true},
             {"host reads device memory", host_reads_device_memory, true},
             {"host reads before it waits", host_reads_before_it_waits, false},
             {"a barrier is kept", barrier_is_kept, false},
             {"a missing barrier shows", missing_barrier_shows, false},
             {"half a barrier", waits_at_half_a_barrier, true},
             {"half a warp", exchanges_with_half_a_warp, true},
             {"an empty grid", empty_grid_is_refused, false}};

int main(void)
{
    int bad = 0;
    for (const auto &c : cases) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) {
            if (freopen("/dev/null", "w", stderr) == nullptr) _exit(9);
            open_all();
            _exit(c.run());
        }
        if (child < 0 || waitpid(child, &status, 0) != child) return 1;
        /* a sanitizer ends the program with an exit code of its own; 9: it never came so far */
        const bool died = WIFSIGNALED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 9);
        const bool good = c.dies ? died : WIFEXITED(status) && WEXITSTATUS(status) == 0;
        printf("%s: %s\n", c.name, good ? "as it should be" : "NOT as it should be");
        bad += !good;
    }
    return bad != 0;
}
