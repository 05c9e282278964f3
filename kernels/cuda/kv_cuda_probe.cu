/* The exhaustive index probe on the GPU. */
#include "kernels/cuda/kv_cuda_check.h"
#include "kernels/cuda/kv_cuda_launch.h"
#include "kernels/kv_kern_probe.h"

#define RUN 64 /* positions that one thread walks */

static __device__ bool same_walk(const kv_walk *a, const kv_walk *b)
{
    bool same = a->position == b->position && a->layer == b->layer && a->half == b->half && a->slack == b->slack;
#pragma unroll
    for (int i = 0; i < KV_FACTORS_MAX; i++) same = same && a->digit[i] == b->digit[i];
    return same;
}

/* probe: every native position of a layout.
 *   r  counts, device, zeroed before
 * A thread seeks its first position and walks RUN of them by carries; the walk must then stand where the next thread
 * begins, and the first one where every walk starts. So all positions are held against one walk from the start, as on
 * the CPU. No memory is read: bounded by integer arithmetic. 1-D grid of 256 threads, any number of blocks.
 * Twin: kv_cpu_probe; the same counts wherever none is bad, and bad positions wherever it finds some. */
static __device__ __forceinline__ void probe_all(const kv_index &ix, kv_cuda_result *r)
{
    const int64_t runs = (ix.native + RUN - 1) / RUN;
    unsigned long long checked = 0, padding = 0, bad = 0, hit = 0, first = 0;
    for (int64_t run = kv_cuda_first(); run < runs; run += kv_cuda_step()) {
        const int64_t begin = run * RUN, end = begin + RUN < ix.native ? begin + RUN : ix.native;
        kv_walk w, other;
        kv_walk_seek(&ix, begin, &w);
        if (begin == 0) {
            kv_walk_start(&other);
            if (!same_walk(&w, &other)) bad++, first = (unsigned long long)ix.native;
        }
        while (w.position < end) {
            int64_t number;
            const int place = kv_probe_place(&ix, &w, &number);
            checked++;
            padding += place == KV_PLACE_PADDING;
            hit += place == KV_PLACE_ELEMENT;
            if (place == KV_PLACE_BAD) {
                const unsigned long long at = (unsigned long long)(ix.native - w.position);
                bad++;
                first = at > first ? at : first;
            }
            kv_walk_next(&ix, &w);
        }
        if (end == ix.native) continue;
        kv_walk_seek(&ix, end, &other);
        if (!same_walk(&w, &other)) {
            const unsigned long long at = (unsigned long long)(ix.native - end);
            bad++;
            first = at > first ? at : first;
        }
    }
    checked = kv_cuda_warp_sum(checked);
    padding = kv_cuda_warp_sum(padding);
    bad = kv_cuda_warp_sum(bad);
    hit = kv_cuda_warp_sum(hit);
    first = kv_cuda_warp_max(first);
    if (threadIdx.x % 32 != 0) return;
    atomicAdd(&r->checked, checked);
    atomicAdd(&r->padding, padding);
    atomicAdd(&r->hit, hit);
    if (bad != 0) atomicAdd(&r->bad, bad);
    if (bad != 0) atomicMax(&r->first, first);
}

static __global__ void __launch_bounds__(KV_CUDA_THREADS, 3)
    probe(const __grid_constant__ kv_index ix, kv_cuda_result *r)
{
    probe_all(ix, r);
}

typedef struct {
    kv_index ix;
    kv_cuda_result *r;
} probe_entry;

static __global__ void __launch_bounds__(KV_CUDA_THREADS, 2) probe_many(const probe_entry *entries)
{
    probe_all(entries[blockIdx.y].ix, entries[blockIdx.y].r);
}

extern "C" kv_rc kv_cuda_run_probe(const kv_cuda_on *on, const kv_index *ix, kv_cuda_result *r, kv_err *err)
{
    const unsigned blocks = kv_cuda_blocks(on, (ix->native + RUN - 1) / RUN);
    kv_rc rc = KV_OK;
    if (ix->native == 0) return KV_OK;
    if (on->list != NULL) {
        const probe_entry x = {*ix, r};
        return KV_CUDA_NOTE(on, KV_CUDA_PROBE, blocks, x, err);
    }
    KV_CUDA_LAUNCH(probe, blocks, KV_CUDA_THREADS, 0, on->stream, *ix, r);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

KV_CUDA_MANY(kv_cuda_many_probe, probe_many, probe_entry)
