/* The reference builder on the GPU, and the gather of the token leg. Both stand on the walk and the forward map of
 * kv_layout_index.h, never on the translator's strides. */
#include "kernels/cuda/kv_cuda_check.h"
#include "kernels/cuda/kv_cuda_launch.h"
#include "kernels/kv_kern_num.h"

/* What does not depend on the element. */
typedef struct {
    kv_payload p;
    kv_payload_half half[2];
    int32_t via;
    uint32_t pad;
} build_args;

/* build: every position of the image, digit by digit.
 *   data [native] elements of ES bytes, device
 * One thread makes 16 bytes at a time: it seeks the walk there and goes on by carries. 1-D grid of 256 threads, any
 * number of blocks, no shared memory. Twin: kv_cpu_build. Bit-exact. */
template <int ES>
static __device__ __forceinline__ void build_all(unsigned char *data, const kv_index &ix, const build_args &a)
{
    const int positions = 16 / ES;
    const int64_t pieces = (ix.native + positions - 1) / positions;
    for (int64_t piece = kv_cuda_first(); piece < pieces; piece += kv_cuda_step()) {
        const int64_t left = ix.native - piece * positions;
        const int n = left < positions ? (int)left : positions;
        uint32_t word[4] = {0, 0, 0, 0};
        kv_walk w;
        kv_walk_seek(&ix, piece * positions, &w);
#pragma unroll
        for (int k = 0; k < positions; k++) {
            kv_coord c;
            uint32_t bits = a.pad;
            if (k >= n) break;
            if (kv_walk_coord(&ix, &w, &c)) {
                bits = kv_payload_half_bits(&a.half[c.kv], (uint64_t)kv_payload_number(&a.p, &c));
                bits = kv_num_convert((kv_elem)a.p.element, (kv_elem)a.via, bits);
                bits = kv_num_convert((kv_elem)a.via, (kv_elem)ix.element, bits);
            }
            word[k * ES / 4] |= bits << (8 * (k * ES % 4));
            kv_walk_next(&ix, &w);
        }
        if (n == positions) {
            const uint4 whole = {word[0], word[1], word[2], word[3]};
            *(uint4 *)(data + piece * 16) = whole;
        } else {
            for (int k = 0; k < n * ES; k++) data[piece * 16 + k] = (unsigned char)(word[k / 4] >> (8 * (k % 4)));
        }
    }
}

template <int ES>
static __global__ void __launch_bounds__(KV_CUDA_THREADS)
    build(unsigned char *data, const __grid_constant__ kv_index ix, const __grid_constant__ build_args a)
{
    build_all<ES>(data, ix, a);
}

typedef struct {
    unsigned char *data;
    kv_index ix;
    build_args a;
} build_entry;

/* build_many: one position a thread, by a seek each: small images, and a kernel that is soon compiled. */
static __global__ void __launch_bounds__(KV_CUDA_THREADS) build_many(const build_entry *entries)
{
    const build_entry &x = entries[blockIdx.y];
    for (int64_t p = kv_cuda_first(); p < x.ix.native; p += kv_cuda_step()) {
        uint32_t bits = x.a.pad;
        kv_coord c;
        kv_walk w;
        kv_walk_seek(&x.ix, p, &w);
        if (kv_walk_coord(&x.ix, &w, &c)) {
            bits = kv_payload_half_bits(&x.a.half[c.kv], (uint64_t)kv_payload_number(&x.a.p, &c));
            bits = kv_num_convert((kv_elem)x.a.p.element, (kv_elem)x.a.via, bits);
            bits = kv_num_convert((kv_elem)x.a.via, (kv_elem)x.ix.element, bits);
        }
        kv_cuda_store((kv_elem)x.ix.element, x.data, p, bits);
    }
}

extern "C" kv_rc kv_cuda_run_build(const kv_cuda_on *on, unsigned char *data, const kv_index *ix, const kv_payload *p,
                                   int32_t via, uint32_t pad, kv_err *err)
{
    const int64_t es = kv_elem_bytes((kv_elem)ix->element);
    const unsigned blocks = kv_cuda_blocks(on, (ix->native * es + 15) / 16);
    build_args a;
    kv_rc rc = KV_OK;
    if (ix->native == 0) return KV_OK;
    a.p = *p;
    for (int kv = 0; kv < 2; kv++) a.half[kv] = kv_payload_half_of(p->seed, p->kind, p->element, kv);
    a.via = via;
    a.pad = pad;
    if (on->list != NULL) {
        const build_entry x = {data, *ix, a};
        return KV_CUDA_NOTE(on, KV_CUDA_BUILD, kv_cuda_blocks(on, ix->native), x, err);
    }
    if (es == 1)
        KV_CUDA_LAUNCH(build<1>, blocks, KV_CUDA_THREADS, 0, on->stream, data, *ix, a);
    else if (es == 2)
        KV_CUDA_LAUNCH(build<2>, blocks, KV_CUDA_THREADS, 0, on->stream, data, *ix, a);
    else
        KV_CUDA_LAUNCH(build<4>, blocks, KV_CUDA_THREADS, 0, on->stream, data, *ix, a);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

/* gather: the elements of a window of one layer to their places in the dense layer.
 *   data  the image (layout ix), or NULL: the elements are made from the payload
 *   out   K [T][H][D], V [T][H][Dv] of the whole layer, elements of type e, device; shift: kv_dense_shift of K and V
 * One thread an element. Twin: gather_window in kv_kern_decode.c. Bit-exact. */
typedef struct {
    kv_index ix;
    const unsigned char *data;
    build_args a;
    kv_elem e;
    int64_t layer, elements, shift_k, shift_v;
    unsigned char *out;
} gather_entry;

static __device__ __forceinline__ void gather_all(const gather_entry &x)
{
    for (int64_t n = kv_cuda_first(); n < x.elements; n += kv_cuda_step()) {
        kv_coord c = kv_index_place(&x.ix, n);
        uint32_t bits;
        c.layer = x.layer;
        if (x.data != NULL)
            bits = kv_cuda_load(x.e, x.data, kv_index_forward(&x.ix, &c));
        else
            bits = kv_payload_half_bits(&x.a.half[c.kv], (uint64_t)kv_payload_number(&x.a.p, &c));
        kv_cuda_store(x.e, x.out, n + (c.kv == 0 ? x.shift_k : x.shift_v), bits);
    }
}

static __global__ void __launch_bounds__(KV_CUDA_THREADS) gather(const __grid_constant__ gather_entry x)
{
    gather_all(x);
}

static __global__ void __launch_bounds__(KV_CUDA_THREADS) gather_many(const gather_entry *entries)
{
    gather_all(entries[blockIdx.y]);
}

extern "C" kv_rc kv_cuda_run_gather(const kv_cuda_on *on, const kv_index *ix, const unsigned char *data,
                                    const kv_payload *p, int64_t layer, const kv_window *w, unsigned char *out,
                                    kv_err *err)
{
    const int64_t elements = ix->tokens * ix->heads * (ix->lanes[0] + ix->lanes[1]);
    const kv_elem e = (kv_elem)(data != NULL ? ix->element : p->element);
    gather_entry x = {*ix, data, {}, e, layer, elements, kv_dense_shift(ix, w, 0), kv_dense_shift(ix, w, 1), out};
    kv_rc rc = KV_OK;
    if (elements == 0) return KV_OK;
    if (data == NULL) {
        x.a.p = *p;
        for (int kv = 0; kv < 2; kv++) x.a.half[kv] = kv_payload_half_of(p->seed, p->kind, p->element, kv);
    }
    if (on->list != NULL) return KV_CUDA_NOTE(on, KV_CUDA_GATHER, kv_cuda_blocks(on, elements), x, err);
    KV_CUDA_LAUNCH(gather, kv_cuda_blocks(on, elements), KV_CUDA_THREADS, 0, on->stream, x);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

KV_CUDA_MANY(kv_cuda_many_build, build_many, build_entry)
KV_CUDA_MANY(kv_cuda_many_gather, gather_many, gather_entry)
