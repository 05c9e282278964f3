/* The translator on the GPU: strides and shared-memory tiles, planned by kv_cuda_tile.c. It shares the strides with the
 * CPU's translator and nothing with the builder. */
#include "kernels/cuda/kv_cuda_check.h"
#include "kernels/cuda/kv_cuda_launch.h"
#include "kernels/cuda/kv_cuda_tile.h"
#include "kernels/kv_kern_num.h"

/* What one launch moves: K and V, one in each row of blocks. */
typedef struct {
    kv_tile_plan half[2];
    int64_t layers, heads;
    int64_t pages[2], slack[2], slack_at[2], page_span[2]; /* positions of each destination array; 0 pages: none */
    int64_t layer_span;                                    /* of the destination's arrays */
    int32_t arrays;                                        /* times the pages above stand there: layers, or 1 */
    int32_t from, to;                                      /* kv_elem */
    uint32_t fill;
} move_args;

/* Where each thread's vectors go: in shared memory, for it would take its registers. */
typedef struct {
    int64_t at[KV_TILE_VECTORS][KV_TILE_THREADS];
} places;

typedef struct {
    unsigned char byte[KV_TILE_BYTES];
    places to;
} __attribute__((aligned(16))) tile_bytes;

/* Registers of one vector. */
template <int BYTES> struct vector_of;
template <> struct vector_of<1> {
    typedef uint8_t type;
};
template <> struct vector_of<2> {
    typedef uint16_t type;
};
template <> struct vector_of<4> {
    typedef uint32_t type;
};
template <> struct vector_of<8> {
    typedef uint2 type;
};
template <> struct vector_of<16> {
    typedef uint4 type;
};

/* Where a byte of the tile lies in shared memory: pieces of 16 bytes change places within their row of 128, so that
 * a column of a turned tile spreads over the banks. */
static __device__ inline int32_t swizzle(int32_t at)
{
    const int32_t row = at >> 7;
    return at ^ (((row ^ (row >> 3) ^ (row >> 6)) & 7) << 4);
}

typedef enum { IN_SOURCE, IN_DESTINATION, IN_TILE } where;

/* Offset of element n of a tile, counted in the source's order or in the destination's. Out of line: a thread asks once
 * for each of its vectors, and the loops that follow want its registers. */
static __device__ __noinline__ int64_t place(const kv_tile_plan &p, int32_t n, bool by_source, where w)
{
    int64_t at = 0;
    for (int k = p.factors - 1; k >= 0; k--) {
        const kv_tile_factor &f = p.factor[by_source ? p.by_source[k] : k];
        const int32_t q = n / f.extent, digit = n - q * f.extent;
        at += digit * (w == IN_SOURCE ? f.src : w == IN_DESTINATION ? f.dst : (int64_t)f.tile);
        n = q;
    }
    return at;
}

/* One tile: where it begins on both sides (bytes), and its first token and lane. */
typedef struct {
    int64_t src, dst, token, lane;
} tile_start;

static __device__ inline tile_start start_of(const kv_tile_plan &p, int64_t tile)
{
    const int64_t rest = tile / p.head_tiles, head = (tile - rest * p.head_tiles) * p.heads;
    const int64_t rows = rest / p.lane_tiles, layer = rows / p.token_tiles;
    tile_start x;
    x.lane = (rest - rows * p.lane_tiles) * p.lanes;
    x.token = (rows - layer * p.token_tiles) * p.tokens;
    x.src = (p.s.base + layer * p.s.layer + head * p.s.head + kv_split_offset(&p.s.token, x.token) +
             kv_split_offset(&p.s.lane, x.lane)) *
            p.element_bytes;
    x.dst = (p.t.base + layer * p.t.layer + head * p.t.head + kv_split_offset(&p.t.token, x.token) +
             kv_split_offset(&p.t.lane, x.lane)) *
            p.element_bytes;
    return x;
}

static __device__ inline bool whole_tile(const kv_tile_plan &p, const tile_start &x)
{
    return x.token + p.tokens <= p.held_tokens && x.lane + p.lanes <= p.held_lanes;
}

/* A tile that reaches past the tokens or lanes held. */
static __device__ __noinline__ void move_edge(const kv_tile_plan &p, const tile_start &x, const unsigned char *src,
                                              unsigned char *dst)
{
    for (int32_t n = (int32_t)threadIdx.x; n < p.elements; n += KV_TILE_THREADS) {
        int64_t from = 0, to = 0;
        int32_t token = 0, lane = 0, left = n;
        for (int k = p.factors - 1; k >= 0; k--) {
            const kv_tile_factor &f = p.factor[k];
            const int32_t q = left / f.extent, digit = left - q * f.extent;
            from += digit * f.src;
            to += digit * f.dst;
            token += digit * f.token;
            lane += digit * f.lane;
            left = q;
        }
        if (x.token + token >= p.held_tokens + (KV_CUDA_PLANT == 1) || x.lane + lane >= p.held_lanes) continue;
        if (p.element_bytes == 2)
            *(uint16_t *)(dst + x.dst + to) = *(const uint16_t *)(src + x.src + from);
        else if (p.element_bytes == 4)
            *(uint32_t *)(dst + x.dst + to) = *(const uint32_t *)(src + x.src + from);
        else
            dst[x.dst + to] = src[x.src + from];
    }
}

/* Tiles from register to register. */
static __device__ void move_direct(const kv_tile_plan &p, const unsigned char *src, unsigned char *dst, places &to)
{
    const int32_t vectors = p.elements * p.element_bytes / 16;
    int64_t from[KV_TILE_VECTORS];
#pragma unroll
    for (int k = 0; k < KV_TILE_VECTORS; k++) {
        const int32_t n = ((int32_t)threadIdx.x + k * KV_TILE_THREADS) * (16 / p.element_bytes);
        from[k] = place(p, n, false, IN_SOURCE);
        to.at[k][threadIdx.x] = place(p, n, false, IN_DESTINATION);
    }
    for (int64_t tile = blockIdx.x; tile < p.tiles - (KV_CUDA_PLANT == 3); tile += gridDim.x) {
        const tile_start x = start_of(p, tile);
        uint4 r[KV_TILE_VECTORS];
        if (!whole_tile(p, x)) {
            move_edge(p, x, src, dst);
            continue;
        }
#pragma unroll
        for (int k = 0; k < KV_TILE_VECTORS; k++)
            if ((int32_t)threadIdx.x + k * KV_TILE_THREADS < vectors) r[k] = *(const uint4 *)(src + x.src + from[k]);
#pragma unroll
        for (int k = 0; k < KV_TILE_VECTORS; k++)
            if ((int32_t)threadIdx.x + k * KV_TILE_THREADS < vectors)
                *(uint4 *)(dst + x.dst + to.at[k][threadIdx.x]) = r[k];
    }
}

/* A loaded vector to its places in the tile, GROUP bytes at a time. */
template <int BYTES, int GROUP>
static __device__ inline void scatter(const kv_tile_plan &p, unsigned char *tile, int32_t at,
                                      const typename vector_of<BYTES>::type &v)
{
    typedef typename vector_of<GROUP>::type group;
    group part[BYTES / GROUP];
    memcpy(part, &v, BYTES);
#pragma unroll
    for (int g = 0; g < BYTES / GROUP; g++)
        *(group *)(tile + swizzle(at + p.delta[g * GROUP / p.element_bytes])) = part[g];
}

template <int BYTES>
static __device__ inline void load_tile(const kv_tile_plan &p, const unsigned char *src, const int64_t *from,
                                        const int32_t *in, unsigned char *tile)
{
    typename vector_of<BYTES>::type r[KV_TILE_VECTORS];
    const int32_t vectors = p.elements * p.element_bytes / BYTES;
#pragma unroll
    for (int k = 0; k < KV_TILE_VECTORS; k++)
        if ((int32_t)threadIdx.x + k * KV_TILE_THREADS < vectors)
            r[k] = *(const typename vector_of<BYTES>::type *)(src + from[k]);
#pragma unroll
    for (int k = 0; k < KV_TILE_VECTORS; k++) {
        if ((int32_t)threadIdx.x + k * KV_TILE_THREADS >= vectors) continue;
        if (p.group_bytes == BYTES)
            scatter<BYTES, BYTES>(p, tile, in[k], r[k]);
        else if (BYTES > 8 && p.group_bytes == 8)
            scatter<BYTES, (BYTES > 8 ? 8 : BYTES)>(p, tile, in[k], r[k]);
        else if (BYTES > 4 && p.group_bytes == 4)
            scatter<BYTES, (BYTES > 4 ? 4 : BYTES)>(p, tile, in[k], r[k]);
        else if (BYTES > 2 && p.group_bytes == 2)
            scatter<BYTES, (BYTES > 2 ? 2 : BYTES)>(p, tile, in[k], r[k]);
        else
            scatter<BYTES, 1>(p, tile, in[k], r[k]);
    }
}

template <int BYTES>
static __device__ inline void store_tile(const kv_tile_plan &p, const tile_bytes &tile, unsigned char *dst)
{
    typedef typename vector_of<BYTES>::type vector;
    const int32_t vectors = p.elements * p.element_bytes / BYTES;
#pragma unroll
    for (int k = 0; k < KV_TILE_VECTORS; k++) {
        const int32_t i = (int32_t)threadIdx.x + k * KV_TILE_THREADS;
        if (i < vectors)
            *(vector *)(dst + tile.to.at[k][threadIdx.x]) = *(const vector *)(tile.byte + swizzle(i * BYTES));
    }
}

/* Tiles through shared memory. */
static __device__ void move_tiles(const kv_tile_plan &p, const unsigned char *src, unsigned char *dst, tile_bytes &tile)
{
    int64_t from[KV_TILE_VECTORS];
    int32_t in[KV_TILE_VECTORS];
#pragma unroll
    for (int k = 0; k < KV_TILE_VECTORS; k++) {
        const int32_t i = (int32_t)threadIdx.x + k * KV_TILE_THREADS;
        from[k] = place(p, i * (p.load_bytes / p.element_bytes), true, IN_SOURCE);
        in[k] = (int32_t)place(p, i * (p.load_bytes / p.element_bytes), true, IN_TILE);
        tile.to.at[k][threadIdx.x] = place(p, i * (p.store_bytes / p.element_bytes), false, IN_DESTINATION);
    }
    for (int64_t at = blockIdx.x; at < p.tiles - (KV_CUDA_PLANT == 3); at += gridDim.x) {
        const tile_start x = start_of(p, at);
        if (!whole_tile(p, x)) { /* the same for all threads of the block */
            move_edge(p, x, src, dst);
            continue;
        }
        switch (p.load_bytes) {
        case 16: load_tile<16>(p, src + x.src, from, in, tile.byte); break;
        case 8: load_tile<8>(p, src + x.src, from, in, tile.byte); break;
        case 4: load_tile<4>(p, src + x.src, from, in, tile.byte); break;
        case 2: load_tile<2>(p, src + x.src, from, in, tile.byte); break;
        default: load_tile<1>(p, src + x.src, from, in, tile.byte); break;
        }
#if KV_CUDA_PLANT != 2
        __syncthreads();
#endif
        switch (p.store_bytes) {
        case 16: store_tile<16>(p, tile, dst + x.dst); break;
        case 8: store_tile<8>(p, tile, dst + x.dst); break;
        case 4: store_tile<4>(p, tile, dst + x.dst); break;
        case 2: store_tile<2>(p, tile, dst + x.dst); break;
        default: store_tile<1>(p, tile, dst + x.dst); break;
        }
        __syncthreads();
    }
}

/* ---- padding ---------------------------------------------------------------------------- */

/* Tail tokens in all their lanes, and the pad lanes of the tokens held. */
static __device__ void fill_padding(const move_args &a, const kv_tile_plan &p, unsigned char *dst)
{
    const kv_elem e = (kv_elem)a.to;
    const int64_t lanes = kv_split_extent(&p.t.lane), pad = lanes - p.held_lanes;
    const int64_t tails = (kv_split_extent(&p.t.token) - p.held_tokens) * lanes, each = tails + p.held_tokens * pad;
    const int64_t all = a.layers * a.heads * each;
    for (int64_t n = kv_cuda_first(); n < all; n += kv_cuda_step()) {
        const int64_t row = n / each, layer = row / a.heads, i = n - row * each;
        const int64_t token = i < tails ? p.held_tokens + i / lanes : (i - tails) / pad;
        const int64_t lane = i < tails ? i % lanes : p.held_lanes + (i - tails) % pad;
        kv_cuda_store(e, dst,
                      p.t.base + layer * p.t.layer + (row - layer * a.heads) * p.t.head +
                          kv_split_offset(&p.t.token, token) + kv_split_offset(&p.t.lane, lane),
                      a.fill);
    }
}

/* What lies between the payload of a page and the next page. */
static __device__ void fill_slack(const move_args &a, int half, unsigned char *dst)
{
    const int64_t pages = a.pages[half], slack = a.slack[half], all = a.arrays * pages * slack;
    for (int64_t n = kv_cuda_first(); n < all; n += kv_cuda_step()) {
        const int64_t page = n / slack, array = page / pages;
        kv_cuda_store((kv_elem)a.to, dst,
                      a.slack_at[half] + array * a.layer_span + (page - array * pages) * a.page_span[half] +
                          (n - page * slack),
                      a.fill);
    }
}

/* translate: one image into another, elements of one size and type.
 *   src, dst  images, device, 16-byte aligned
 * Row y of blocks moves half first + y (K, V); the padding is `fill`'s, so every position of dst is written exactly once. A
 * thread works out where its vectors lie in a tile once and then only adds where the tile begins; up to four loads of 16
 * bytes are in flight. Two kernels, since the direct way needs less of everything; `first` is the half
 * of row 0. 256 threads, any number of blocks in x. Twin: kv_cpu_translate. Bit-exact. */
static __global__ void __launch_bounds__(KV_TILE_THREADS, 3)
    translate_direct(const unsigned char *src, unsigned char *dst, const __grid_constant__ move_args a, int first)
{
    KV_CUDA_SHARED(places, to);
    move_direct(a.half[first + (int)blockIdx.y], src, dst, to);
}

static __global__ void __launch_bounds__(KV_TILE_THREADS, 3)
    translate_tiles(const unsigned char *src, unsigned char *dst, const __grid_constant__ move_args a, int first)
{
    KV_CUDA_SHARED(tile_bytes, tile);
    move_tiles(a.half[first + (int)blockIdx.y], src, dst, tile);
}

/* One half of one cell's move. */
typedef struct {
    const unsigned char *src;
    unsigned char *dst;
    kv_tile_plan p;
} tile_entry;

static __global__ void __launch_bounds__(KV_TILE_THREADS, 2) translate_direct_many(const tile_entry *entries)
{
    KV_CUDA_SHARED(places, to);
    const tile_entry &x = entries[blockIdx.y];
    move_direct(x.p, x.src, x.dst, to);
}

static __global__ void __launch_bounds__(KV_TILE_THREADS) translate_tiles_many(const tile_entry *entries)
{
    KV_CUDA_SHARED(tile_bytes, tile);
    const tile_entry &x = entries[blockIdx.y];
    move_tiles(x.p, x.src, x.dst, tile);
}

/* A whole move, for one of its halves. */
typedef struct {
    const unsigned char *src;
    unsigned char *dst;
    move_args a;
    int32_t half;
} half_entry;

/* fill: the padding of the destination's half y. Launched where there is some. */
static __global__ void __launch_bounds__(KV_TILE_THREADS) fill_many(const half_entry *entries)
{
    const half_entry &x = entries[blockIdx.y];
    fill_padding(x.a, x.a.half[x.half], x.dst);
    fill_slack(x.a, x.half, x.dst);
}

static __global__ void __launch_bounds__(KV_TILE_THREADS) fill(unsigned char *dst, const __grid_constant__ move_args a)
{
    fill_padding(a, a.half[blockIdx.y], dst);
    fill_slack(a, (int)blockIdx.y, dst);
}

/* convert: the same between element types, one element a thread. Not tuned: such a pair is never exact. */
static __device__ __forceinline__ void convert_half(const unsigned char *src, unsigned char *dst, const move_args &a,
                                                    const kv_tile_plan &p)
{
    const int64_t all = a.layers * p.held_tokens * a.heads * p.held_lanes;
    for (int64_t n = kv_cuda_first(); n < all; n += kv_cuda_step()) {
        const int64_t row = n / p.held_lanes, lane = n - row * p.held_lanes;
        const int64_t token_row = row / a.heads, head = row - token_row * a.heads;
        const int64_t layer = token_row / p.held_tokens, token = token_row - layer * p.held_tokens;
        const int64_t from = p.s.base + layer * p.s.layer + head * p.s.head + kv_split_offset(&p.s.token, token) +
                             kv_split_offset(&p.s.lane, lane);
        const int64_t to = p.t.base + layer * p.t.layer + head * p.t.head + kv_split_offset(&p.t.token, token) +
                           kv_split_offset(&p.t.lane, lane);
        kv_cuda_store((kv_elem)a.to, dst, to,
                      kv_num_convert((kv_elem)a.from, (kv_elem)a.to, kv_cuda_load((kv_elem)a.from, src, from)));
    }
}

static __global__ void __launch_bounds__(KV_TILE_THREADS)
    convert(const unsigned char *src, unsigned char *dst, const __grid_constant__ move_args a)
{
    convert_half(src, dst, a, a.half[blockIdx.y]);
}

static __global__ void __launch_bounds__(KV_TILE_THREADS) convert_many(const half_entry *entries)
{
    const half_entry &x = entries[blockIdx.y];
    convert_half(x.src, x.dst, x.a, x.a.half[x.half]);
}

/* ---- host ------------------------------------------------------------------------------- */

static void plan_slack(const kv_index *t, move_args *a)
{
    for (int kv = 0; kv < t->halves; kv++) {
        const kv_order *o = &t->half[kv];
        if (kv > 0 && !t->separate) break; /* one array: its pages hold both halves */
        if (o->page_payload == o->page_span) continue;
        a->pages[kv] = 1;
        for (int32_t i = 0; i < o->cut; i++) a->pages[kv] *= o->size[i];
        a->slack[kv] = o->page_span - o->page_payload;
        a->slack_at[kv] = t->half_base[kv] + o->page_payload;
        a->page_span[kv] = o->page_span;
    }
    a->layer_span = t->layer_span;
    a->arrays = t->has_layer ? 1 : (int32_t)t->layers;
}

/* Everything but the tiles, which hold no element: only padding is there, or nothing. */
static void plan_empty(const kv_index *t, int32_t kv, kv_tile_plan *p)
{
    kv_strides_of(t, kv, &p->t);
    p->element_bytes = (int32_t)kv_elem_bytes((kv_elem)t->element);
    p->held_tokens = t->tokens;
    p->held_lanes = t->lanes[kv];
}

static unsigned blocks_of(const kv_cuda_on *on, const move_args *a, int first, int rows)
{
    const int64_t cap = (int64_t)on->multiprocessors * 16 / rows;
    int64_t most = 1;
    for (int kv = first; kv < first + rows; kv++) most = a->half[kv].tiles > most ? a->half[kv].tiles : most;
    return (unsigned)(most < cap ? most : cap);
}

/* Halves first, first + 1, ... (`rows` of them), which go the same way. */
static kv_rc run_halves(const kv_cuda_on *on, const unsigned char *src, unsigned char *dst, const move_args *a,
                        int first, int rows, kv_err *err)
{
    const dim3 grid(blocks_of(on, a, first, rows), (unsigned)rows, 1);
    kv_rc rc = KV_OK;
    if (on->list != NULL) {
        for (int kv = first; kv < first + rows && rc == KV_OK; kv++) {
            const tile_entry x = {src, dst, a->half[kv]};
            rc = KV_CUDA_NOTE(on, a->half[kv].direct ? KV_CUDA_DIRECT : KV_CUDA_TILES, blocks_of(on, a, kv, 1), x, err);
        }
        return rc;
    }
    if (a->half[first].direct)
        KV_CUDA_LAUNCH(translate_direct, grid, KV_TILE_THREADS, 0, on->stream, src, dst, *a, first);
    else
        KV_CUDA_LAUNCH(translate_tiles, grid, KV_TILE_THREADS, 0, on->stream, src, dst, *a, first);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

/* Writes down both halves of a kernel that takes the whole move. */
static kv_rc note_halves(const kv_cuda_on *on, kv_cuda_kernel kernel, unsigned blocks, const unsigned char *src,
                         unsigned char *dst, const move_args *a, int32_t halves, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (int32_t kv = 0; kv < halves && rc == KV_OK; kv++) {
        const half_entry x = {src, dst, *a, kv};
        rc = KV_CUDA_NOTE(on, kernel, blocks, x, err);
    }
    return rc;
}

static kv_rc run_convert(const kv_cuda_on *on, const unsigned char *src, unsigned char *dst, const kv_index *t,
                         const move_args *a, kv_err *err)
{
    const dim3 grid(kv_cuda_blocks(on, t->layers * t->tokens * t->heads * t->lanes[0]), (unsigned)t->halves, 1);
    kv_rc rc = KV_OK;
    if (on->list != NULL) return note_halves(on, KV_CUDA_CONVERT, grid.x, src, dst, a, t->halves, err);
    KV_CUDA_LAUNCH(convert, grid, KV_TILE_THREADS, 0, on->stream, src, dst, *a);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

static kv_rc run_fill(const kv_cuda_on *on, unsigned char *dst, const kv_index *t, const move_args *a, kv_err *err)
{
    const dim3 grid(kv_cuda_blocks(on, (t->native - t->elements + 1) / 2), (unsigned)t->halves, 1);
    kv_rc rc = KV_OK;
    if (t->native == t->elements) return KV_OK;
    if (on->list != NULL) return note_halves(on, KV_CUDA_FILL, grid.x, NULL, dst, a, t->halves, err);
    KV_CUDA_LAUNCH(fill, grid, KV_TILE_THREADS, 0, on->stream, dst, *a);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

extern "C" kv_rc kv_cuda_run_translate(const kv_cuda_on *on, const kv_index *s, const unsigned char *src,
                                       const kv_index *t, unsigned char *dst, uint32_t fill, kv_err *err)
{
    move_args a = {};
    if (t->native == 0) return KV_OK;
    a.layers = t->layers;
    a.heads = t->heads;
    a.from = s->element;
    a.to = t->element;
    a.fill = fill;
    plan_slack(t, &a);
    for (int32_t kv = 0; kv < t->halves; kv++) {
        if (s->element == t->element && s->tokens > 0)
            kv_tile_plan_of(s, t, kv, &a.half[kv]);
        else
            plan_empty(t, kv, &a.half[kv]);
        if (s->element != t->element) kv_strides_of(s, kv, &a.half[kv].s);
    }
    const kv_rc filled = run_fill(on, dst, t, &a, err);
    if (filled != KV_OK || s->tokens == 0) return filled;
    if (s->element != t->element) return run_convert(on, src, dst, t, &a, err);
    if (t->halves == 2 && a.half[0].direct != a.half[1].direct) {
        const kv_rc rc = run_halves(on, src, dst, &a, 0, 1, err);
        return rc == KV_OK ? run_halves(on, src, dst, &a, 1, 1, err) : rc;
    }
    return run_halves(on, src, dst, &a, 0, t->halves, err);
}

KV_CUDA_MANY(kv_cuda_many_fill, fill_many, half_entry)
KV_CUDA_MANY(kv_cuda_many_convert, convert_many, half_entry)
KV_CUDA_MANY(kv_cuda_many_direct, translate_direct_many, tile_entry)
KV_CUDA_MANY(kv_cuda_many_tiles, translate_tiles_many, tile_entry)
