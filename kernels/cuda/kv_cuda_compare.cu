/* Comparisons on the GPU: two images, sets of round-trip differences, the drift of values. */
#include "kernels/cuda/kv_cuda_check.h"
#include "kernels/cuda/kv_cuda_launch.h"
#include "kernels/kv_kern_drift.h"
#include "kernels/kv_kern_num.h"

/* Which of the elements of ES bytes in a piece of 16 bytes differ, one bit each. */
template <int ES> static __device__ unsigned differing_of(const uint4 &a, const uint4 &b)
{
    const uint32_t x[4] = {a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w};
    unsigned bits = 0;
#pragma unroll
    for (int k = 0; k < 16 / ES; k++) {
        const uint32_t own = ES == 4 ? 0xFFFFFFFFu : ((1u << (8 * ES % 32)) - 1u) << (8 * (k * ES % 4));
        if ((x[k * ES / 4] & own) != 0) bits |= 1u << k;
    }
    return bits;
}

/* The same for the last piece, of n elements. */
template <int ES>
static __device__ unsigned differing_at_end(const unsigned char *got, const unsigned char *want, int64_t at, int n)
{
    unsigned bits = 0;
    for (int k = 0; k < n * ES; k++)
        if (got[at * ES + k] != want[at * ES + k]) bits |= 1u << (k / ES);
    return bits;
}

template <int ES>
static __device__ unsigned differing_in(const unsigned char *got, const unsigned char *want, int64_t piece,
                                        int64_t positions)
{
    const int64_t at = piece * (16 / ES), left = positions - at;
    if (left < 16 / ES) return differing_at_end<ES>(got, want, at, (int)left);
    return differing_of<ES>(*(const uint4 *)(got + piece * 16), *(const uint4 *)(want + piece * 16));
}

/* compare: how many positions of two images differ, and the first.
 *   got, want [positions] elements of ES bytes, device, 16-byte aligned;  r  device, zeroed before
 * Four pieces of 16 bytes are in flight in each thread. Twin: kv_cpu_compare. Bit-exact. */
template <int ES>
static __device__ __forceinline__ void compare_all(int64_t positions, const unsigned char *got,
                                                   const unsigned char *want, kv_cuda_result *r)
{
    const int64_t pieces = (positions + 16 / ES - 1) / (16 / ES), whole = positions / (16 / ES), step = kv_cuda_step();
    unsigned long long differing = 0, first = 0;
    for (int64_t piece = kv_cuda_first(); piece < pieces; piece += 4 * step) {
        uint4 a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t at = piece + i * step;
            if (at < whole) {
                a[i] = *(const uint4 *)(got + at * 16);
                b[i] = *(const uint4 *)(want + at * 16);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t at = piece + i * step;
            const unsigned bits = at < whole    ? differing_of<ES>(a[i], b[i])
                                  : at < pieces ? differing_in<ES>(got, want, at, positions)
                                                : 0;
            if (bits == 0) continue;
            const unsigned long long here = (unsigned long long)(positions - at * (16 / ES) - (__ffs((int)bits) - 1));
            differing += (unsigned)__popc(bits);
            first = here > first ? here : first;
        }
    }
    differing = kv_cuda_warp_sum(differing);
    first = kv_cuda_warp_max(first);
    if (threadIdx.x % 32 != 0 || differing == 0) return;
    atomicAdd(&r->bad, differing);
    atomicMax(&r->first, first);
}

template <int ES>
static __global__ void __launch_bounds__(KV_CUDA_THREADS)
    compare(int64_t positions, const unsigned char *got, const unsigned char *want, kv_cuda_result *r)
{
    compare_all<ES>(positions, got, want, r);
}

/* Two images that are held against each other, for r or for bits. */
typedef struct {
    int64_t positions, element_bytes;
    const unsigned char *got, *want;
    kv_cuda_result *r;
    unsigned char *bits;
} compare_entry;

static __global__ void __launch_bounds__(KV_CUDA_THREADS) compare_many(const compare_entry *entries)
{
    const compare_entry &x = entries[blockIdx.y];
    switch (x.element_bytes) {
    case 1: compare_all<1>(x.positions, x.got, x.want, x.r); break;
    case 2: compare_all<2>(x.positions, x.got, x.want, x.r); break;
    default: compare_all<4>(x.positions, x.got, x.want, x.r); break;
    }
}

/* What stands at the first difference. One thread. */
static __device__ __forceinline__ void look_at_first(int64_t positions, kv_elem e, const unsigned char *got,
                                                     const unsigned char *want, kv_cuda_result *r)
{
    if (r->bad == 0) return;
    r->got = kv_cuda_load(e, got, positions - (int64_t)r->first);
    r->want = kv_cuda_load(e, want, positions - (int64_t)r->first);
}

static __global__ void compare_first(int64_t positions, kv_elem e, const unsigned char *got, const unsigned char *want,
                                     kv_cuda_result *r)
{
    look_at_first(positions, e, got, want, r);
}

/* An element type of that size: what is only looked at has no other. */
static __host__ __device__ inline kv_elem elem_of(int64_t bytes)
{
    return bytes == 1 ? KV_ELEM_FP8_E4M3 : bytes == 2 ? KV_ELEM_F16 : KV_ELEM_F32;
}

static __global__ void __launch_bounds__(KV_CUDA_THREADS) compare_first_many(const compare_entry *entries)
{
    const compare_entry &x = entries[blockIdx.y];
    if (kv_cuda_first() == 0) look_at_first(x.positions, elem_of(x.element_bytes), x.got, x.want, x.r);
}

extern "C" kv_rc kv_cuda_run_compare(const kv_cuda_on *on, int64_t positions, int64_t element_bytes,
                                     const unsigned char *got, const unsigned char *want, kv_cuda_result *r,
                                     kv_err *err)
{
    const unsigned blocks = kv_cuda_blocks(on, (positions * element_bytes + 63) / 64);
    const kv_elem e = elem_of(element_bytes);
    kv_rc rc = KV_OK;
    if (positions == 0) return KV_OK;
    if (on->list != NULL) {
        const compare_entry x = {positions, element_bytes, got, want, r, NULL};
        rc = KV_CUDA_NOTE(on, KV_CUDA_COMPARE, blocks, x, err);
        return rc == KV_OK ? KV_CUDA_NOTE(on, KV_CUDA_FIRST, 1, x, err) : rc;
    }
    if (element_bytes == 1)
        KV_CUDA_LAUNCH(compare<1>, blocks, KV_CUDA_THREADS, 0, on->stream, positions, got, want, r);
    else if (element_bytes == 2)
        KV_CUDA_LAUNCH(compare<2>, blocks, KV_CUDA_THREADS, 0, on->stream, positions, got, want, r);
    else
        KV_CUDA_LAUNCH(compare<4>, blocks, KV_CUDA_THREADS, 0, on->stream, positions, got, want, r);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
    KV_CUDA_LAUNCH(compare_first, 1, 1, 0, on->stream, positions, e, got, want, r);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

/* ---- round-trip differences ------------------------------------------------------------- */

/* diff_add: sets the bit of each position that differs. One thread owns one byte of bits, so 8 positions. */
template <int ES>
static __device__ __forceinline__ void diff_add_all(int64_t positions, const unsigned char *got,
                                                    const unsigned char *want, unsigned char *bits)
{
    for (int64_t byte = kv_cuda_first(); byte < (positions + 7) / 8; byte += kv_cuda_step()) {
        const int n = positions - byte * 8 < 8 ? (int)(positions - byte * 8) : 8;
        unsigned found = 0;
        if (n < 8) {
            found = differing_at_end<ES>(got, want, byte * 8, n);
        } else if (ES == 1) {
            const uint2 a = *(const uint2 *)(got + byte * 8), b = *(const uint2 *)(want + byte * 8);
            const uint4 low = {a.x, a.y, 0, 0}, high = {b.x, b.y, 0, 0};
            found = differing_of<ES>(low, high);
        } else {
#pragma unroll
            for (int i = 0; i < ES / 2; i++)
                found |= differing_in<ES>(got, want, byte * (ES / 2) + i, positions) << (i * 4);
        }
        if (found != 0) bits[byte] |= (unsigned char)found;
    }
}

template <int ES>
static __global__ void __launch_bounds__(KV_CUDA_THREADS)
    diff_add(int64_t positions, const unsigned char *got, const unsigned char *want, unsigned char *bits)
{
    diff_add_all<ES>(positions, got, want, bits);
}

static __global__ void __launch_bounds__(KV_CUDA_THREADS) diff_add_many(const compare_entry *entries)
{
    const compare_entry &x = entries[blockIdx.y];
    switch (x.element_bytes) {
    case 1: diff_add_all<1>(x.positions, x.got, x.want, x.bits); break;
    case 2: diff_add_all<2>(x.positions, x.got, x.want, x.bits); break;
    default: diff_add_all<4>(x.positions, x.got, x.want, x.bits); break;
    }
}

extern "C" kv_rc kv_cuda_run_diff_add(const kv_cuda_on *on, int64_t positions, int64_t element_bytes,
                                      const unsigned char *got, const unsigned char *want, unsigned char *bits,
                                      kv_err *err)
{
    const unsigned blocks = kv_cuda_blocks(on, (positions + 7) / 8);
    kv_rc rc = KV_OK;
    if (positions == 0) return KV_OK;
    if (on->list != NULL) {
        const compare_entry x = {positions, element_bytes, got, want, NULL, bits};
        return KV_CUDA_NOTE(on, KV_CUDA_DIFF_ADD, blocks, x, err);
    }
    if (element_bytes == 1)
        KV_CUDA_LAUNCH(diff_add<1>, blocks, KV_CUDA_THREADS, 0, on->stream, positions, got, want, bits);
    else if (element_bytes == 2)
        KV_CUDA_LAUNCH(diff_add<2>, blocks, KV_CUDA_THREADS, 0, on->stream, positions, got, want, bits);
    else
        KV_CUDA_LAUNCH(diff_add<4>, blocks, KV_CUDA_THREADS, 0, on->stream, positions, got, want, bits);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

/* diff_take: counts the set and empties it. Positions that hold an element are counted apart (hit, first). */
static __device__ __forceinline__ void diff_take_all(const kv_index &ix, unsigned char *bits, kv_cuda_result *r)
{
    unsigned long long differing = 0, outside = 0, first = 0;
    for (int64_t byte = kv_cuda_first(); byte < (ix.native + 7) / 8; byte += kv_cuda_step()) {
        unsigned left = bits[byte];
        if (left == 0) continue;
        bits[byte] = 0;
        for (; left != 0; left &= left - 1) {
            const int64_t p = byte * 8 + (__ffs((int)left) - 1);
            const unsigned long long at = (unsigned long long)(ix.native - p);
            kv_coord c;
            differing++;
            if (!kv_index_inverse(&ix, p, &c)) continue;
            outside++;
            first = at > first ? at : first;
        }
    }
    differing = kv_cuda_warp_sum(differing);
    outside = kv_cuda_warp_sum(outside);
    first = kv_cuda_warp_max(first);
    if (threadIdx.x % 32 != 0 || differing == 0) return;
    atomicAdd(&r->bad, differing);
    atomicAdd(&r->hit, outside);
    atomicMax(&r->first, first);
}

static __global__ void __launch_bounds__(KV_CUDA_THREADS)
    diff_take(const __grid_constant__ kv_index ix, unsigned char *bits, kv_cuda_result *r)
{
    diff_take_all(ix, bits, r);
}

typedef struct {
    kv_index ix;
    unsigned char *bits;
    kv_cuda_result *r;
} take_entry;

static __global__ void __launch_bounds__(KV_CUDA_THREADS) diff_take_many(const take_entry *entries)
{
    const take_entry &x = entries[blockIdx.y];
    diff_take_all(x.ix, x.bits, x.r);
}

extern "C" kv_rc kv_cuda_run_diff_take(const kv_cuda_on *on, const kv_index *ix, unsigned char *bits, kv_cuda_result *r,
                                       kv_err *err)
{
    const unsigned blocks = kv_cuda_blocks(on, (ix->native + 7) / 8);
    kv_rc rc = KV_OK;
    if (ix->native == 0) return KV_OK;
    if (on->list != NULL) {
        const take_entry x = {*ix, bits, r};
        return KV_CUDA_NOTE(on, KV_CUDA_DIFF_TAKE, blocks, x, err);
    }
    KV_CUDA_LAUNCH(diff_take, blocks, KV_CUDA_THREADS, 0, on->stream, *ix, bits, r);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

/* ---- drift of values -------------------------------------------------------------------- */

/* drift: each element of the source image against its moved value. A largest is the same in any order, and doubles that
 * are not negative are ordered as their bits. Twin: kv_cpu_drift. Bit-exact. */
static __device__ __forceinline__ void drift_all(const kv_index &s, const unsigned char *src, const kv_index &t,
                                                 const unsigned char *dst, kv_cuda_result *r)
{
    const kv_elem from = (kv_elem)s.element, to = (kv_elem)t.element;
    kv_drift d = {1, 1, 0};
    unsigned long long worst;
    for (int64_t p = kv_cuda_first(); p < s.native; p += kv_cuda_step()) {
        kv_coord c;
        if (!kv_index_inverse(&s, p, &c)) continue;
        kv_drift_add(&d, kv_num_to_f32(from, kv_cuda_load(from, src, p)),
                     kv_num_to_f32(to, kv_cuda_load(to, dst, kv_index_forward(&t, &c))));
    }
    memcpy(&worst, &d.worst, sizeof worst);
    worst = kv_cuda_warp_max(worst);
    if (!d.preserved) atomicOr(&r->not_preserved, 1u);
    if (!d.finite) atomicOr(&r->not_finite, 1u);
    if (threadIdx.x % 32 == 0) atomicMax(&r->worst, worst);
}

static __global__ void __launch_bounds__(KV_CUDA_THREADS)
    drift(const __grid_constant__ kv_index s, const unsigned char *src, const __grid_constant__ kv_index t,
          const unsigned char *dst, kv_cuda_result *r)
{
    drift_all(s, src, t, dst, r);
}

typedef struct {
    kv_index s, t;
    const unsigned char *src, *dst;
    kv_cuda_result *r;
} drift_entry;

static __global__ void __launch_bounds__(KV_CUDA_THREADS) drift_many(const drift_entry *entries)
{
    const drift_entry &x = entries[blockIdx.y];
    drift_all(x.s, x.src, x.t, x.dst, x.r);
}

extern "C" kv_rc kv_cuda_run_drift(const kv_cuda_on *on, const kv_index *s, const unsigned char *src, const kv_index *t,
                                   const unsigned char *dst, kv_cuda_result *r, kv_err *err)
{
    kv_rc rc = KV_OK;
    if (s->native == 0) return KV_OK;
    if (on->list != NULL) {
        const drift_entry x = {*s, *t, src, dst, r};
        return KV_CUDA_NOTE(on, KV_CUDA_DRIFT, kv_cuda_blocks(on, s->native), x, err);
    }
    KV_CUDA_LAUNCH(drift, kv_cuda_blocks(on, s->native), KV_CUDA_THREADS, 0, on->stream, *s, src, *t, dst, r);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

KV_CUDA_MANY(kv_cuda_many_compare, compare_many, compare_entry)
KV_CUDA_MANY(kv_cuda_many_first, compare_first_many, compare_entry)
KV_CUDA_MANY(kv_cuda_many_diff_add, diff_add_many, compare_entry)
KV_CUDA_MANY(kv_cuda_many_diff_take, diff_take_many, take_entry)
KV_CUDA_MANY(kv_cuda_many_drift, drift_many, drift_entry)
