/* Images on the GPU: poison and guards. */
#include "kernels/cuda/kv_cuda_check.h"
#include "kernels/cuda/kv_cuda_launch.h"
#include "kernels/kv_kern_image.h"

/* poison: an image's bytes, and the guards on both sides anew.
 *   data  device, 16-byte aligned, KV_GUARD_BYTES of room before it and behind its end
 * One thread writes 16 bytes at a time where it can. Twin: kv_cpu_poison. */
typedef struct {
    unsigned char *data;
    int64_t bytes;
    unsigned fill;
} poison_entry;

static __device__ __forceinline__ void poison_all(const poison_entry &x)
{
    const int64_t whole = x.bytes / 16, first = kv_cuda_first();
    const unsigned four = x.fill * 0x01010101u;
    const uint4 fill = {four, four, four, four};
    for (int64_t i = first; i < whole; i += kv_cuda_step()) *(uint4 *)(x.data + i * 16) = fill;
    if (first < x.bytes - whole * 16) x.data[whole * 16 + first] = (unsigned char)x.fill;
    if (first >= KV_GUARD_BYTES) return;
    x.data[first - KV_GUARD_BYTES] = KV_GUARD_FILL;
    x.data[x.bytes + first] = KV_GUARD_FILL;
}

static __global__ void __launch_bounds__(KV_CUDA_THREADS) poison(const __grid_constant__ poison_entry x)
{
    poison_all(x);
}

static __global__ void __launch_bounds__(KV_CUDA_THREADS) poison_many(const poison_entry *entries)
{
    poison_all(entries[blockIdx.y]);
}

extern "C" kv_rc kv_cuda_run_poison(const kv_cuda_on *on, unsigned char *data, int64_t bytes, unsigned char fill,
                                    kv_err *err)
{
    const poison_entry x = {data, bytes, fill};
    const unsigned blocks = kv_cuda_blocks(on, (bytes + 15) / 16);
    kv_rc rc = KV_OK;
    if (on->list != NULL) return KV_CUDA_NOTE(on, KV_CUDA_POISON, blocks, x, err);
    KV_CUDA_LAUNCH(poison, blocks, KV_CUDA_THREADS, 0, on->stream, x);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

/* guards: how far they are overwritten.
 *   r  device, zeroed before
 * One block; a thread looks at one byte of each guard. Twin: kv_cpu_guards. */
typedef struct {
    const unsigned char *data;
    int64_t bytes;
    kv_cuda_result *r;
} guards_entry;

static __device__ __forceinline__ void look_at_guards(const guards_entry &x)
{
    const int64_t i = kv_cuda_first();
    if (i >= KV_GUARD_BYTES) return;
    if (x.data[i - KV_GUARD_BYTES] != KV_GUARD_FILL) atomicMax(&x.r->checked, (unsigned long long)(KV_GUARD_BYTES - i));
    if (x.data[x.bytes + i] != KV_GUARD_FILL) atomicMax(&x.r->hit, (unsigned long long)(KV_GUARD_BYTES - i));
}

static __global__ void __launch_bounds__(KV_CUDA_THREADS) guards(const __grid_constant__ guards_entry x)
{
    look_at_guards(x);
}

static __global__ void __launch_bounds__(KV_CUDA_THREADS) guards_many(const guards_entry *entries)
{
    look_at_guards(entries[blockIdx.y]);
}

extern "C" kv_rc kv_cuda_run_guards(const kv_cuda_on *on, const unsigned char *data, int64_t bytes, kv_cuda_result *r,
                                    kv_err *err)
{
    const guards_entry x = {data, bytes, r};
    kv_rc rc = KV_OK;
    if (on->list != NULL) return KV_CUDA_NOTE(on, KV_CUDA_GUARDS, 1, x, err);
    KV_CUDA_LAUNCH(guards, 1, KV_CUDA_THREADS, 0, on->stream, x);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

KV_CUDA_MANY(kv_cuda_many_poison, poison_many, poison_entry)
KV_CUDA_MANY(kv_cuda_many_guards, guards_many, guards_entry)
