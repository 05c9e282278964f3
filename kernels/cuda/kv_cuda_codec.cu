/* The codec's rows on the GPU: encode and decode, one block of threads for each block of rows, all blocks in one launch.
 *
 * Every sum runs over its terms in ascending order in one accumulator, as kernels/codec/kv_codec_ref.c does it; what is spread
 * over threads are rows, directions, centres and columns, never the terms of a sum. The formulas of one value or row are
 * those of kv_codec_step.h.
 *
 * A block of threads takes its rows in chunks of R = 8192 / wht (at most 128), so that the coefficients of a chunk, [wht][R]
 * floats, fill 32 KiB of shared memory whatever the configuration. Lanes run along the rows there: no bank conflicts. */
#include "kernels/codec/kv_codec_step.h"
#include "kernels/cuda/kv_cuda_check.h"
#include "kernels/cuda/kv_cuda_launch.h"

#define COEFS 8192       /* floats: coefficients of a chunk */
#define STAGE 2560       /* floats: what is staged beside them: basis, centres, packed levels */
#define ROWS_MOST 128    /* of a chunk */
#define GROUPS_MOST 1024 /* counts of outliers: rows x groups of 8 levels of a chunk */
#define QUAD 4

/* Shared memory of both kernels. */
typedef struct {
    float4 c[COEFS / 4], stage[STAGE / 4];
    float level[KV_CODEC_LEVELS_MAX];
    uint32_t warps[KV_CUDA_THREADS / 32];
} decode_room;

/* A thread's, then a row's, best centre so far. */
typedef struct {
    float most, dot; /* |dot|, -Inf for none; dot */
    uint32_t which;
} nearest;

typedef struct {
    decode_room r;
    nearest best[KV_CUDA_THREADS];
    float scales[ROWS_MOST];
    unsigned char marks[GROUPS_MOST]; /* outliers of 8 levels, a bit each: [group][row] */
    unsigned long long held;
} encode_room;

/* What a block of threads works on. */
typedef struct {
    const uint16_t *mean, *basis, *centers;
    float *x;
    uint32_t *seg, *count;
    uint16_t *t, *norm, *idx, *val;
    uint8_t *packed;
    float *res_norm; /* or NULL */
} part;

static __device__ inline part part_of(const kv_cuda_codec *c, int64_t block)
{
    const int64_t s = c->shared ? 0 : block, row = block * c->rows;
    part p;
    p.mean = c->mean + s * c->p.dim;
    p.basis = c->basis + s * c->p.d_eff * c->p.dim;
    p.centers = c->centers + s * c->p.k * c->p.d_eff;
    p.x = c->x + row * c->p.dim;
    p.seg = c->seg + row;
    p.count = c->count + row;
    p.t = c->t + row;
    p.norm = c->norm + row;
    p.idx = c->idx + row * c->wht;
    p.val = c->val + row * c->wht;
    p.packed = c->packed + row * c->row_bytes;
    p.res_norm = c->res_norm != NULL ? c->res_norm + row : NULL;
    return p;
}

/* kv_codec_f; the GPU's own conversion is exact too. */
static __device__ inline float f16(uint16_t h)
{
#ifdef __CUDA_ARCH__
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
#else
    return kv_codec_f(h);
#endif
}

static __device__ inline int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Log2 of the rows of a chunk: 8192 / wht, at most 128. */
static __device__ inline int chunk_bits(int wht)
{
    int bits = 3;
    while (bits < 7 && (wht << (bits + 1)) <= COEFS) bits++;
    return bits;
}

/* Items tid, tid + 256, ... of a table with n columns, without a division each. */
typedef struct {
    int row, col, n;
} walk;

static __device__ inline walk walk_start(int n)
{
    const walk w = {(int)threadIdx.x / n, (int)threadIdx.x % n, n};
    return w;
}
static __device__ inline void walk_on(walk *w, int rows, int cols) /* 256 / n and 256 % n */
{
    w->row += rows;
    w->col += cols;
    if (w->col >= w->n) {
        w->col -= w->n;
        w->row++;
    }
}

static __device__ inline void load4(const float *from, float to[QUAD])
{
    const float4 v = *(const float4 *)from;
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}
static __device__ inline void store4(float *to, const float from[QUAD])
{
    const float4 v = {from[0], from[1], from[2], from[3]};
    *(float4 *)to = v;
}

/* QUAD values of a direction from column j on: 0 past the end, and all 0 without a line. */
static __device__ inline void fetch_basis(const uint16_t *line, int j, int dim, float v[QUAD])
{
    if (line != NULL && dim % QUAD == 0 && j < dim) {
        const uint2 w = *(const uint2 *)(line + j);
        v[0] = f16((uint16_t)w.x);
        v[1] = f16((uint16_t)(w.x >> 16));
        v[2] = f16((uint16_t)w.y);
        v[3] = f16((uint16_t)(w.y >> 16));
    } else {
#pragma unroll
        for (int i = 0; i < QUAD; i++) v[i] = line != NULL && j + i < dim ? f16(line[j + i]) : 0.0f;
    }
}

/* Exclusive sum over the first `rows` threads' values (others give 0), and the sum of all; every thread comes here. */
static __device__ inline uint32_t sum_before(uint32_t value, uint32_t warps[KV_CUDA_THREADS / 32], uint32_t *all)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t total = value, before = 0;
    for (int mask = 1; mask < 32; mask *= 2) {
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, total, mask);
        if (lane & mask) before += other;
        total += other;
    }
    if (lane == 0) warps[warp] = total;
    __syncthreads();
    *all = 0;
    for (int w = 0; w < KV_CUDA_THREADS / 32; w++) {
        if (w < warp) before += warps[w];
        *all += warps[w];
    }
    __syncthreads();
    return before;
}

/* ---- rotation --------------------------------------------------------------------------- */

/* Steps h, 2 h, ... of the butterfly, 2^STEPS values of a row in registers; h, rows and wht by their logarithms. */
template <int STEPS> static __device__ inline void butterfly(float *c, int row_bits, int wht_bits, int h_bits)
{
    const int n = 1 << STEPS, items = 1 << (wht_bits - STEPS + row_bits);
    for (int item = threadIdx.x; item < items; item += KV_CUDA_THREADS) {
        const int row = item & ((1 << row_bits) - 1), q = item >> row_bits;
        const int first = (q >> h_bits << (h_bits + STEPS)) + (q & ((1 << h_bits) - 1));
        float v[1 << STEPS];
#pragma unroll
        for (int i = 0; i < n; i++) v[i] = c[((first + (i << h_bits)) << row_bits) + row];
#pragma unroll
        for (int step = 1; step < n; step *= 2)
#pragma unroll
            for (int i = 0; i < n; i++)
                if ((i & step) == 0) {
                    const float a = v[i], b = v[i | step];
                    v[i] = kv_num_add(a, b);
                    v[i | step] = kv_codec_sub(a, b);
                }
#pragma unroll
        for (int i = 0; i < n; i++) c[((first + (i << h_bits)) << row_bits) + row] = v[i];
    }
    __syncthreads();
}

/* kv_codec_butterfly of every row of c[wht][rows]. */
static __device__ void rotate(float *c, int row_bits, int wht)
{
    int wht_bits = 0, h_bits = 0;
    while (1 << wht_bits < wht) wht_bits++;
    for (; h_bits + 3 <= wht_bits; h_bits += 3) butterfly<3>(c, row_bits, wht_bits, h_bits);
    if (h_bits + 2 == wht_bits)
        butterfly<2>(c, row_bits, wht_bits, h_bits);
    else if (h_bits + 1 == wht_bits)
        butterfly<1>(c, row_bits, wht_bits, h_bits);
}

/* ---- decode ----------------------------------------------------------------------------- */

/* The packed levels of `here` rows, times their gain: c[wht][rows]; rows past `here` get 0. */
static __device__ void unpack(const kv_cuda_codec *a, const part *p, int64_t row0, int here, int row_bits,
                              const float *level, unsigned char *stage, float *c)
{
    const int rows = 1 << row_bits;
    const int bits = a->p.bits, row_bytes = (int)a->row_bytes, bytes = here * row_bytes, groups = (a->wht + 7) / 8;
    for (int i = threadIdx.x; i < bytes; i += KV_CUDA_THREADS) stage[i] = p->packed[row0 * row_bytes + i];
    __syncthreads();
    for (int item = threadIdx.x; item < groups * rows; item += KV_CUDA_THREADS) {
        const int row = item & (rows - 1), g = item >> row_bits, n = smaller(8, a->wht - g * 8);
        uint32_t word = 0;
        float gain = 0.0f;
        if (row < here) {
            gain = kv_codec_gain(a->p.rule, a->p.metric, p->norm[row0 + row]);
            for (int b = 0; b < bits && g * bits + b < row_bytes; b++)
                word |= (uint32_t)stage[row * row_bytes + g * bits + b] << (8 * b);
        }
        for (int i = 0; i < n; i++)
            c[(g * 8 + i) * rows + row] =
                row < here ? kv_num_mul(level[word >> (i * bits) & ((1u << bits) - 1u)], gain) : 0.0f;
    }
    __syncthreads();
}

/* Rows of one chunk from their coefficients: x = mean + sum of basis[a] * c[a], COLS columns of 8 rows a thread. */
template <int COLS>
static __device__ void rebuild(const kv_cuda_codec *a, const part *p, int64_t row0, int here, int row_bits,
                               const float *c, float *stage)
{
    const int dim = a->p.dim, d_eff = a->p.d_eff, col_groups = (KV_CUDA_THREADS * 8) >> row_bits;
    const int row = (int)threadIdx.x / col_groups * 8, step = col_groups * QUAD, span = step * (COLS / QUAD);
    for (int col0 = 0; col0 < dim; col0 += span) {
        const int width = smaller(span, (dim - col0 + QUAD - 1) / QUAD * QUAD), chunk = STAGE / width;
        const int quads = width / QUAD, on_rows = KV_CUDA_THREADS / quads, on_cols = KV_CUDA_THREADS % quads;
        float acc[8][COLS];
        int at[COLS / QUAD]; /* this thread's quads of columns, in the span; 0 where there is none */
#pragma unroll
        for (int q = 0; q < COLS / QUAD; q++) {
            const int col = q * step + (int)threadIdx.x % col_groups * QUAD;
            at[q] = col < width ? col : 0;
#pragma unroll
            for (int i = 0; i < QUAD; i++) {
                const float m = col0 + at[q] + i < dim ? f16(p->mean[col0 + at[q] + i]) : 0.0f;
#pragma unroll
                for (int r = 0; r < 8; r++) acc[r][q * QUAD + i] = m;
            }
        }
        for (int first = 0; first < d_eff; first += chunk) {
            const int n = smaller(chunk, d_eff - first);
            __syncthreads();
            for (walk w = walk_start(quads); w.row < n; walk_on(&w, on_rows, on_cols)) {
                float v[QUAD];
                fetch_basis(p->basis + (int64_t)(first + w.row) * dim, col0 + w.col * QUAD, dim, v);
                store4(stage + w.row * width + w.col * QUAD, v);
            }
            __syncthreads();
#pragma unroll 1
            for (int k = 0; k < n; k++) {
                float coef[8], basis[COLS];
                load4(c + ((first + k) << row_bits) + row, coef);
                load4(c + ((first + k) << row_bits) + row + QUAD, coef + QUAD);
#pragma unroll
                for (int q = 0; q < COLS / QUAD; q++) load4(stage + k * width + at[q], basis + q * QUAD);
#pragma unroll
                for (int r = 0; r < 8; r++)
#pragma unroll
                    for (int j = 0; j < COLS; j++) acc[r][j] = kv_num_add(acc[r][j], kv_num_mul(basis[j], coef[r]));
            }
        }
#pragma unroll
        for (int q = 0; q < COLS / QUAD; q++) {
            const int col = q * step + (int)threadIdx.x % col_groups * QUAD;
            if (col >= width) continue;
#pragma unroll
            for (int r = 0; r < 8; r++) {
                float *out = p->x + (row0 + row + r) * dim + col0 + col;
                const float *v = &acc[r][q * QUAD];
                if (row + r >= here) continue;
                if (dim % QUAD == 0) {
                    store4(out, v);
                } else {
#pragma unroll
                    for (int i = 0; i < QUAD; i++)
                        if (col0 + col + i < dim) out[i] = v[i];
                }
            }
        }
    }
}

/* codec_decode: codes of all blocks to rows.
 *   x [blocks][rows][dim] floats, written; skeletons, codes: see kv_cuda_codec
 * One block of 256 threads a block of rows. Shared: 32 KiB of coefficients, 10 KiB of staging. Twin: kv_codec_reference_decode.
 * Bit-exact but for which NaN a NaN is. */
template <int COLS>
static __global__ void __launch_bounds__(KV_CUDA_THREADS, 2) codec_decode(const __grid_constant__ kv_cuda_codec a)
{
    KV_CUDA_SHARED(decode_room, s);
    float *c = (float *)s.c, *stage = (float *)s.stage;
    const part p = part_of(&a, blockIdx.x);
    const int wht = a.wht, row_bits = chunk_bits(wht), rows = 1 << row_bits;
    int64_t before = 0; /* outliers of earlier chunks */
    if (threadIdx.x < KV_CODEC_LEVELS_MAX) s.level[threadIdx.x] = a.p.level[threadIdx.x];
    for (int64_t row0 = 0; row0 < a.rows; row0 += rows) {
        const int here = a.rows - row0 < rows ? (int)(a.rows - row0) : rows;
        const int mine = (int)threadIdx.x < here; /* whether this thread has a row of its own */
        __syncthreads();                          /* the last chunk's coefficients and staging are done with */
        unpack(&a, &p, row0, here, row_bits, s.level, (unsigned char *)stage, c);
        const uint32_t outliers = mine ? p.count[row0 + threadIdx.x] : 0;
        uint32_t all;
        const int64_t first = before + sum_before(outliers, s.warps, &all);
        before += all;
        if (mine && outliers > 0) {
            const float gain = kv_codec_gain(a.p.rule, a.p.metric, p.norm[row0 + threadIdx.x]);
            for (int64_t o = first; o < first + outliers; o++)
                if (p.idx[o] < wht) c[((int)p.idx[o] << row_bits) + (int)threadIdx.x] = kv_num_mul(f16(p.val[o]), gain);
        }
        __syncthreads();
        rotate(c, row_bits, wht);
        for (int item = threadIdx.x; item < a.p.d_eff << row_bits; item += KV_CUDA_THREADS) {
            const int row = item & (rows - 1), k = item >> row_bits;
            float v = kv_num_mul(kv_num_mul(c[item], a.sign[k]), 1.0f / (float)wht); /* a power of two: exact */
            if (row < here) {
                const float along = f16(p.centers[(int64_t)p.seg[row0 + row] * a.p.d_eff + k]);
                v = kv_num_add(kv_num_mul(f16(p.t[row0 + row]), along), v);
            }
            c[item] = v;
        }
        rebuild<COLS>(&a, &p, row0, here, row_bits, c, stage);
    }
}

/* ---- encode ----------------------------------------------------------------------------- */

/* Where row `row` of column j stands in a staged tile whose lines are n floats (a power of two, at least 4): quads take turns
 * from one quad of columns to the next, so that neither filling nor reading meets itself in a bank. */
static __device__ inline int turned(int j, int row, int n)
{
    const int turns = smaller(8, n / QUAD) - 1;
    return j * n + ((row / QUAD ^ (j / QUAD & turns)) * QUAD) + row % QUAD;
}

/* QUAD values of a row from column j on, less the mean: 0 past the end, and all 0 without a row. */
static __device__ inline void fetch_x(const float *row, const uint16_t *mean, int j, int dim, float v[QUAD])
{
    if (row != NULL && dim % QUAD == 0 && j < dim) {
        load4(row + j, v);
    } else {
#pragma unroll
        for (int i = 0; i < QUAD; i++) v[i] = row != NULL && j + i < dim ? row[j + i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < QUAD; i++) v[i] = j + i < dim && row != NULL ? kv_codec_sub(v[i], f16(mean[j + i])) : 0.0f;
}
/* c[a][row] = sum of basis[a][j] * (x[row][j] - mean[j]) of a chunk's rows, 8 rows x 4 directions a thread. c itself is the
 * staging: its values are written when all sums are done. */
static __device__ void project(const kv_cuda_codec *a, const part *p, int64_t row0, int here, int row_bits, float *c)
{
    const int rows = 1 << row_bits;
    const int dim = a->p.dim, d_eff = a->p.d_eff, lines = a->wht < QUAD ? QUAD : a->wht;
    const int most = COEFS / (rows + lines) / QUAD * QUAD, width = smaller(most, 32);
    const int dir_groups = (KV_CUDA_THREADS * 8) >> row_bits;
    const int row = (int)threadIdx.x / dir_groups * 8, dir = (int)threadIdx.x % dir_groups * QUAD;
    const bool busy = dir < d_eff;
    float *xs = c, *bs = c + width * rows; /* [width][rows], [width][lines] */
    float acc[QUAD][8] = {};
    for (int j0 = 0; j0 < dim; j0 += width) {
        const int n = smaller(width, dim - j0), quads = (n + QUAD - 1) / QUAD;
        const int on_rows = KV_CUDA_THREADS / quads, on_cols = KV_CUDA_THREADS % quads;
        __syncthreads();
        for (walk w = walk_start(quads); w.row < rows; walk_on(&w, on_rows, on_cols)) {
            const int j = w.col * QUAD;
            float v[QUAD];
            fetch_x(w.row < here ? p->x + (row0 + w.row) * dim : NULL, p->mean, j0 + j, dim, v);
#pragma unroll
            for (int k = 0; k < QUAD; k++) xs[turned(j + k, w.row, rows)] = v[k];
        }
        for (walk w = walk_start(quads); w.row < lines; walk_on(&w, on_rows, on_cols)) {
            const int j = w.col * QUAD;
            float v[QUAD];
            fetch_basis(w.row < d_eff ? p->basis + (int64_t)w.row * dim : NULL, j0 + j, dim, v);
#pragma unroll
            for (int k = 0; k < QUAD; k++) bs[turned(j + k, w.row, lines)] = v[k];
        }
        __syncthreads();
        /* columns past dim are 0 on both sides: a sum that starts at +0 is the same with or without them */
        for (int q = 0; busy && q < quads; q++) {
            const float *xq = xs + turned(q * QUAD, row, rows), *xr = xs + turned(q * QUAD, row + QUAD, rows);
            const float *bq = bs + turned(q * QUAD, dir, lines);
#pragma unroll
            for (int k = 0; k < QUAD; k++) {
                float x[8], b[QUAD];
                load4(xq + k * rows, x);
                load4(xr + k * rows, x + QUAD);
                load4(bq + k * lines, b);
#pragma unroll
                for (int d = 0; d < QUAD; d++)
#pragma unroll
                    for (int r = 0; r < 8; r++) acc[d][r] = kv_num_add(acc[d][r], kv_num_mul(b[d], x[r]));
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < QUAD; d++)
        if (dir + d < a->wht)
#pragma unroll
            for (int q = 0; q < 8; q += QUAD) store4(c + (dir + d) * rows + row + q, &acc[d][q]);
    __syncthreads();
}

static __device__ inline void take_nearer(nearest *best, float dot, uint32_t which)
{
    const float size = kv_codec_abs(dot);
    if (size > best->most || (size == best->most && which < best->which)) {
        best->most = size;
        best->dot = dot;
        best->which = which;
    }
}

/* Dots of row `row` with 8 centres of the stage, from centre g on (those past n are not taken). */
static __device__ inline void try_centers(const float *c, int rows, int row, int d_eff, const float *stage, int stride,
                                          int g, int n, uint32_t number, nearest *best)
{
    float dot[8];
#pragma unroll
    for (int i = 0; i < 8; i++) dot[i] = -0.0f;
    for (int a = 0; a < d_eff; a += QUAD) {
        float v[QUAD];
#pragma unroll
        for (int u = 0; u < QUAD; u++) v[u] = a + u < d_eff ? c[(a + u) * rows + row] : 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float w[QUAD];
            load4(stage + smaller(g + i, n - 1) * stride + a, w);
#pragma unroll
            for (int u = 0; u < QUAD; u++)
                if (a + u < d_eff) dot[i] = kv_num_add(dot[i], kv_num_mul(v[u], w[u]));
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (g + i < n) take_nearer(best, dot[i], number + (uint32_t)i);
}

/* The centre of every row and its signed length along it, as `assign` of the reference: in best[row] of the first `rows`. */
static __device__ void assign(const kv_cuda_codec *a, const part *p, int row_bits, const float *c, float *stage,
                              nearest *best)
{
    const int rows = 1 << row_bits;
    const int d_eff = a->p.d_eff, k = a->p.k, stride = (d_eff + QUAD - 1) / QUAD * QUAD, chunk = STAGE / stride;
    const int parts = KV_CUDA_THREADS >> row_bits, row = (int)threadIdx.x & (rows - 1);
    const int mine = (int)threadIdx.x >> row_bits, on_rows = KV_CUDA_THREADS / stride,
              on_cols = KV_CUDA_THREADS % stride;
    nearest own = {-kv_num_float(0x7F800000u), 0.0f, 0xFFFFFFFFu};
    for (int first = 0; first < k; first += chunk) {
        const int n = smaller(chunk, k - first);
        __syncthreads();
        for (walk w = walk_start(stride); w.row < n; walk_on(&w, on_rows, on_cols))
            stage[w.row * stride + w.col] =
                w.col < d_eff ? f16(p->centers[(int64_t)(first + w.row) * d_eff + w.col]) : 0.0f;
        __syncthreads();
        for (int g = mine * 8; g < n; g += parts * 8)
            try_centers(c, rows, row, d_eff, stage, stride, g, n, (uint32_t)(first + g), &own);
    }
    best[threadIdx.x] = own;
    __syncthreads();
    if (mine == 0) {
        float length = -0.0f;
        for (int i = 0; i < d_eff; i++) length = kv_num_add(length, kv_num_mul(c[i * rows + row], c[i * rows + row]));
        for (int i = 1; i < parts; i++) {
            const nearest other = best[i * rows + row];
            if (other.most >= 0.0f) take_nearer(&own, other.dot, other.which);
        }
        if (!(own.most >= 0.0f) || length <= KV_CODEC_EPS) {
            own.which = 0;
            own.dot = 0.0f;
        }
        best[row] = own;
    }
    __syncthreads();
}

/* Levels of up to 8 scaled values of a row, packed; bit i of the answer: value i is an outlier. */
template <int BITS>
static __device__ inline uint32_t pack(const kv_cuda_codec *a, const float *level, const float *c, int rows, int n,
                                       float scale, uint32_t *word)
{
    float own[1 << BITS];
    uint32_t out = 0;
    *word = 0;
#pragma unroll
    for (int g = 0; g < 1 << BITS; g++) own[g] = level[g];
    for (int i = 0; i < n; i++) {
        const float s = kv_num_mul(c[i * rows], scale);
        if (a->p.outliers && kv_codec_abs(s) > a->p.threshold) out |= 1u << i;
        *word |= (uint32_t)kv_codec_nearest_level(a->p.metric, own, 1 << BITS, s) << (i * BITS);
    }
    return out;
}

static __device__ inline uint32_t pack_any(const kv_cuda_codec *a, const float *level, const float *c, int rows, int n,
                                           float scale, uint32_t *word)
{
    switch (a->p.bits) {
    case 1: return pack<1>(a, level, c, rows, n, scale, word);
    case 2: return pack<2>(a, level, c, rows, n, scale, word);
    case 3: return pack<3>(a, level, c, rows, n, scale, word);
    default: return pack<4>(a, level, c, rows, n, scale, word);
    }
}

/* codec_encode: rows of all blocks to codes.
 *   x [blocks][rows][dim] floats; skeletons, codes: see kv_cuda_codec; outliers, saturated [blocks] are written
 * One block of 256 threads a block of rows. Shared: 32 KiB of coefficients (of the projection's tiles before), 10 KiB of
 * centres or packed levels, 6 KiB of rows. Twin: kv_codec_reference_encode. Bit-exact. */
static __global__ void __launch_bounds__(KV_CUDA_THREADS, 2) codec_encode(const __grid_constant__ kv_cuda_codec a)
{
    KV_CUDA_SHARED(encode_room, s);
    float *c = (float *)s.r.c, *stage = (float *)s.r.stage;
    unsigned char *bytes = (unsigned char *)s.r.stage;
    const part p = part_of(&a, blockIdx.x);
    const int wht = a.wht, d_eff = a.p.d_eff, row_bits = chunk_bits(wht), rows = 1 << row_bits;
    const int groups = (wht + 7) / 8, row_bytes = (int)a.row_bytes, me = (int)threadIdx.x;
    int64_t before = 0, saturated = 0; /* outliers of earlier chunks; of this thread's rows */
    if (me < KV_CODEC_LEVELS_MAX) s.r.level[me] = a.p.level[me];
    if (me == 0) s.held = 0;
    for (int64_t row0 = 0; row0 < a.rows; row0 += rows) {
        const int here = a.rows - row0 < rows ? (int)(a.rows - row0) : rows;
        project(&a, &p, row0, here, row_bits, c);
        assign(&a, &p, row_bits, c, stage, s.best);

        /* t, and whether there is anything left of a row */
        if (me < rows) {
            float used;
            bool all_small = true;
            const uint16_t t = kv_codec_t(a.p.rule, s.best[me].dot, &used, &saturated);
            for (int i = 0; i < d_eff; i++)
                if (!(kv_codec_abs(c[i * rows + me]) <= KV_CODEC_EPS)) all_small = false;
            if (me < here) {
                p.seg[row0 + me] = s.best[me].which;
                p.t[row0 + me] = t;
            }
            s.best[me].dot = used;
            s.best[me].most = all_small ? 0.0f : 1.0f;
        }
        __syncthreads();
        for (int item = me; item < wht << row_bits; item += KV_CUDA_THREADS) {
            const int row = item & (rows - 1), k = item >> row_bits;
            float y = 0.0f;
            if (k < d_eff && s.best[row].most > 0.0f) {
                const float along = f16(p.centers[(int64_t)s.best[row].which * d_eff + k]);
                y = kv_codec_sub(c[item], kv_num_mul(s.best[row].dot, along));
            }
            c[item] = kv_num_mul(y, a.sign[k]); /* its square is that of y */
        }
        __syncthreads();
        if (me < rows) {
            float sum = -0.0f, raw = 0.0f;
            for (int i = 0; i < d_eff; i++) sum = kv_num_add(sum, kv_num_mul(c[i * rows + me], c[i * rows + me]));
            const float length = kv_codec_sqrt(sum);
            s.scales[me] = kv_codec_scale(length);
            if (me < here) {
                const float *x = p.x + (row0 + me) * a.p.dim;
                if (kv_codec_norm_is_raw(a.p.rule, a.p.metric)) raw = kv_codec_sqrt(kv_codec_dot(x, x, a.p.dim));
                p.norm[row0 + me] = kv_codec_norm(a.p.rule, a.p.metric, length, raw, &saturated);
                if (p.res_norm != NULL) p.res_norm[row0 + me] = length;
            }
        }
        __syncthreads();
        rotate(c, row_bits, wht);

        /* levels */
        for (int item = me; item < groups << row_bits; item += KV_CUDA_THREADS) {
            const int row = item & (rows - 1), g = item >> row_bits, n = smaller(8, wht - g * 8);
            uint32_t word;
            s.marks[item] =
                (unsigned char)pack_any(&a, s.r.level, c + g * 8 * rows + row, rows, n, s.scales[row], &word);
            for (int b = 0; b < a.p.bits && g * a.p.bits + b < row_bytes; b++)
                bytes[row * row_bytes + g * a.p.bits + b] = (unsigned char)(word >> (8 * b));
        }
        __syncthreads();
        for (int i = me; i < here * row_bytes; i += KV_CUDA_THREADS) p.packed[row0 * row_bytes + i] = bytes[i];

        /* outliers: a row's stand together, ascending */
        uint32_t count = 0, all;
        if (me < here)
            for (int g = 0; g < groups; g++) count += (uint32_t)__popc(s.marks[g * rows + me]);
        int64_t at = before + sum_before(count, s.r.warps, &all);
        before += all;
        if (me < here) {
            p.count[row0 + me] = count;
            for (int g = 0; count > 0 && g < groups; g++)
                for (uint32_t left = s.marks[g * rows + me]; left != 0; left &= left - 1) {
                    const int k = g * 8 + __ffs((int)left) - 1;
                    p.idx[at] = (uint16_t)k;
                    p.val[at++] = kv_codec_h(kv_num_mul(c[k * rows + me], s.scales[me]));
                }
        }
        __syncthreads();
    }
    if (saturated > 0) atomicAdd(&s.held, (unsigned long long)saturated);
    __syncthreads();
    if (me == 0) {
        a.outliers[blockIdx.x] = (unsigned long long)before;
        a.saturated[blockIdx.x] = s.held;
    }
}

/* ---- launches --------------------------------------------------------------------------- */

extern "C" kv_rc kv_cuda_run_codec_encode(const kv_cuda_on *on, const kv_cuda_codec *c, int64_t blocks, kv_err *err)
{
    kv_rc rc = KV_OK;
    KV_CUDA_LAUNCH(codec_encode, (unsigned)blocks, KV_CUDA_THREADS, 0, on->stream, *c);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

extern "C" kv_rc kv_cuda_run_codec_decode(const kv_cuda_on *on, const kv_cuda_codec *c, int64_t blocks, kv_err *err)
{
    const int rows = COEFS / c->wht < ROWS_MOST ? COEFS / c->wht : ROWS_MOST,
              columns = KV_CUDA_THREADS / (rows / 8) * QUAD;
    kv_rc rc = KV_OK;
    if (c->p.dim <= columns)
        KV_CUDA_LAUNCH(codec_decode<4>, (unsigned)blocks, KV_CUDA_THREADS, 0, on->stream, *c);
    else
        KV_CUDA_LAUNCH(codec_decode<8>, (unsigned)blocks, KV_CUDA_THREADS, 0, on->stream, *c);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}
