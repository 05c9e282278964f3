/* The token leg on the GPU. kernels/kv_kern_token.h fixes the arithmetic and every order of sums; here it is spread over
 * heads, chunks, dimensions and lanes, never over the order. Weights are made where they are used: they are a function
 * of their place. All eight steps are queued at once; the token of a step stays on the device. */
#include "kernels/cuda/kv_cuda_check.h"
#include "kernels/cuda/kv_cuda_launch.h"
#include "kernels/kv_kern_token_impl.h"

enum {
    E = KV_TOKEN_HIDDEN,
    LANES = KV_TOKEN_LANES,
    GROUP = KV_TOKEN_GROUP,
    ROWS = KV_CUDA_THREADS / LANES, /* tokens whose scores a block makes together */
    PIECE = 128,                    /* elements of a row in shared memory at a time */
    PITCH = PIECE + LANES,          /* floats: the 8 lanes of 4 rows meet 32 different banks */
    STEP_KERNELS = KV_CUDA_KERNELS - KV_CUDA_PROJECT
};

/* What every kernel of one decode needs. */
typedef struct {
    int64_t tokens, heads, dim_k, dim_v;
    int64_t chunks;             /* of cache tokens; the new ones are one more */
    const unsigned char *k, *v; /* [T][H][D], [T][H][Dv] of type elem */
    float *query;               /* [2H][D] */
    float *fresh_k, *fresh_v;   /* [8][H][D], [8][H][Dv] of the new tokens */
    float *score;               /* [2H][T + 8]: scores, then weights */
    float *most, *den;          /* [2H] */
    float *sums;                /* [2H][chunks + 1]: of the weights */
    float *parts;               /* [2H][chunks + 1][Dv]: of weights times V */
    float *out;                 /* [2H * Dv] */
    float *hidden;              /* [8][E]: x of each step */
    kv_decode_result *result;
    uint64_t seed, layer;
    float scale;
    int32_t exponent_wo;
    kv_elem elem;
} leg;

static __device__ inline float weight(const leg &a, kv_token_matrix m, int64_t row, int64_t column, int32_t exponent)
{
    return kv_token_weight(kv_token_hash(kv_token_row_key(a.seed, a.layer, m, (uint64_t)row), (uint32_t)column),
                           exponent);
}

/* DOT of a row of E weights with x. */
static __device__ inline float project(const leg &a, kv_token_matrix m, int64_t row, int32_t exponent, const float *x)
{
    const uint64_t key = kv_token_row_key(a.seed, a.layer, m, (uint64_t)row);
    float lane[LANES] = {0};
#pragma unroll
    for (int i = 0; i < E; i++)
        lane[i % LANES] =
            kv_num_add(lane[i % LANES], kv_num_mul(kv_token_weight(kv_token_hash(key, (uint32_t)i), exponent), x[i]));
    return kv_token_tree(lane);
}

/* project_token: x of this step, and from it the queries and this step's own K and V, one row a thread. */
static __device__ __forceinline__ void project_token_one(const leg &a, int32_t step)
{
    const int64_t q = GROUP * a.heads * a.dim_k, k = a.heads * a.dim_k, v = a.heads * a.dim_v;
    const uint64_t start = kv_token_row_key(a.seed, a.layer, KV_TOKEN_START, 0);
    const int32_t token = step == 0 ? (int32_t)(kv_token_hash(start, 0) % KV_TOKEN_VOCAB) : a.result->tokens[step - 1];
    float x[E];
    for (int e = 0; e < E; e++)
        x[e] = kv_num_add(weight(a, KV_TOKEN_EMBED, token, e, 0), weight(a, KV_TOKEN_POSITION, step, e, 0));
    if (kv_cuda_first() == 0)
        for (int e = 0; e < E; e++) a.hidden[step * E + e] = x[e];
    for (int64_t row = kv_cuda_first(); row < q + k + v; row += kv_cuda_step()) {
        if (row < q)
            a.query[row] = project(a, KV_TOKEN_WQ, row, -2, x);
        else if (row < q + k)
            a.fresh_k[step * k + (row - q)] = project(a, KV_TOKEN_WK, row - q, -2, x);
        else
            a.fresh_v[step * v + (row - q - k)] = project(a, KV_TOKEN_WV, row - q - k, -2, x);
    }
}

typedef struct {
    float row[ROWS][PITCH];
    float query[GROUP][PIECE];
} score_tile;

/* Element d of the row of token t (a cache token, or one of the new ones) at a kv head. */
static __device__ inline float k_at(const leg &a, int64_t t, int64_t head, int64_t d)
{
    if (t >= a.tokens) return a.fresh_k[((t - a.tokens) * a.heads + head) * a.dim_k + d];
    return kv_num_float(kv_num_to_f32(a.elem, kv_cuda_load(a.elem, a.k, (t * a.heads + head) * a.dim_k + d)));
}

static __device__ inline float v_at(const leg &a, int64_t t, int64_t head, int64_t d)
{
    if (t >= a.tokens) return a.fresh_v[((t - a.tokens) * a.heads + head) * a.dim_v + d];
    return kv_num_float(kv_num_to_f32(a.elem, kv_cuda_load(a.elem, a.v, (t * a.heads + head) * a.dim_v + d)));
}

/* score: the scores of both query heads of a kv head against ROWS tokens.
 * Eight neighbouring threads hold the eight lanes of a row's DOT. Blocks are numbered [tokens / ROWS][heads]. */
static __device__ __forceinline__ void score_one(const leg &a, int64_t n)
{
    KV_CUDA_SHARED(score_tile, tile);
    const int64_t head = blockIdx.x % a.heads, first = blockIdx.x / a.heads * ROWS;
    const int lane = (int)threadIdx.x % LANES, row = (int)threadIdx.x / LANES;
    float sum[GROUP] = {0, 0};
    if (first >= n) return; /* a block of another cell's */
    for (int64_t d0 = 0; d0 < a.dim_k; d0 += PIECE) {
        const int wide = a.dim_k - d0 < PIECE ? (int)(a.dim_k - d0) : PIECE;
        for (int i = (int)threadIdx.x; i < ROWS * PIECE; i += KV_CUDA_THREADS) {
            const int r = i / PIECE, d = i % PIECE;
            if (d < wide && first + r < n) tile.row[r][d] = k_at(a, first + r, head, d0 + d);
        }
        for (int i = (int)threadIdx.x; i < GROUP * PIECE; i += KV_CUDA_THREADS)
            if (i % PIECE < wide)
                tile.query[i / PIECE][i % PIECE] = a.query[(GROUP * head + i / PIECE) * a.dim_k + d0 + i % PIECE];
        __syncthreads();
        for (int d = lane; d < wide && first + row < n; d += LANES)
            for (int g = 0; g < GROUP; g++) sum[g] = kv_num_add(sum[g], kv_num_mul(tile.query[g][d], tile.row[row][d]));
        __syncthreads();
    }
    for (int g = 0; g < GROUP; g++) { /* kv_token_tree, its lanes in eight threads */
        sum[g] = kv_num_add(sum[g], __shfl_xor_sync(0xFFFFFFFFu, sum[g], 4));
        sum[g] = kv_num_add(sum[g], __shfl_xor_sync(0xFFFFFFFFu, sum[g], 2));
        sum[g] = kv_num_add(sum[g], __shfl_xor_sync(0xFFFFFFFFu, sum[g], 1));
        if (lane == 0 && first + row < n)
            a.score[(GROUP * head + g) * (a.tokens + KV_TOKEN_STEPS) + first + row] = kv_num_mul(sum[g], a.scale);
    }
}

typedef struct {
    float most[KV_CUDA_THREADS / 32];
} most_tile;

/* largest: m of one query head, a block each. The order of a largest is free; NaN never is it. */
static __device__ __forceinline__ void largest_one(const leg &a, int64_t n)
{
    KV_CUDA_SHARED(most_tile, tile);
    const float *score = a.score + (int64_t)blockIdx.x * (a.tokens + KV_TOKEN_STEPS);
    float most = kv_num_float(0xFF800000u);
    if (blockIdx.x >= GROUP * a.heads) return;
    for (int64_t t = threadIdx.x; t < n; t += KV_CUDA_THREADS) most = score[t] > most ? score[t] : most;
    for (int mask = 16; mask > 0; mask >>= 1) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, most, mask);
        most = other > most ? other : most;
    }
    if (threadIdx.x % 32 == 0) tile.most[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < KV_CUDA_THREADS / 32; i++) most = tile.most[i] > most ? tile.most[i] : most;
    a.most[blockIdx.x] = most;
}

typedef struct {
    float weight[GROUP][KV_TOKEN_CHUNK];
} weigh_tile;

/* weigh: one chunk of tokens for one kv head: the weights, their sum, and their sums with V, each added in token order
 * by one thread. Blocks are numbered [chunks + 1][heads]; the last chunk is the new tokens. */
static __device__ __forceinline__ void weigh_one(const leg &a, int32_t fresh)
{
    KV_CUDA_SHARED(weigh_tile, tile);
    const int64_t head = blockIdx.x % a.heads, chunk = blockIdx.x / a.heads;
    const int64_t first = chunk < a.chunks ? chunk * KV_TOKEN_CHUNK : a.tokens;
    const int64_t end = chunk < a.chunks - 1 ? first + KV_TOKEN_CHUNK : chunk < a.chunks ? a.tokens : a.tokens + fresh;
    const int n = (int)(end - first);
    if (chunk > a.chunks) return;
    for (int i = (int)threadIdx.x; i < GROUP * n; i += KV_CUDA_THREADS) {
        const int64_t g = GROUP * head + i / n;
        const float s = a.score[g * (a.tokens + KV_TOKEN_STEPS) + first + i % n];
        tile.weight[i / n][i % n] = kv_token_exp(kv_num_add(s, -a.most[g]));
    }
    __syncthreads();
    for (int g = (int)threadIdx.x; g < GROUP; g += KV_CUDA_THREADS) {
        float sum = 0.0f;
        for (int t = 0; t < n; t++) sum = kv_num_add(sum, tile.weight[g][t]);
        a.sums[(GROUP * head + g) * (a.chunks + 1) + chunk] = sum;
    }
    for (int64_t d = threadIdx.x; d < a.dim_v; d += KV_CUDA_THREADS) {
        float sum[GROUP] = {0, 0};
        for (int t = 0; t < n; t++) {
            const float v = v_at(a, first + t, head, d);
            for (int g = 0; g < GROUP; g++) sum[g] = kv_num_add(sum[g], kv_num_mul(tile.weight[g][t], v));
        }
        for (int g = 0; g < GROUP; g++) a.parts[((GROUP * head + g) * (a.chunks + 1) + chunk) * a.dim_v + d] = sum[g];
    }
}

/* total: the chunks' sums in order, one thread for each output of a query head. */
static __device__ __forceinline__ void total_one(const leg &a)
{
    const int64_t outputs = GROUP * a.heads * a.dim_v;
    for (int64_t i = kv_cuda_first(); i < outputs; i += kv_cuda_step()) {
        const int64_t g = i / a.dim_v, d = i - g * a.dim_v;
        float den = 0.0f, num = 0.0f;
        for (int64_t c = 0; c <= a.chunks; c++) {
            den = kv_num_add(den, a.sums[g * (a.chunks + 1) + c]);
            num = kv_num_add(num, a.parts[(g * (a.chunks + 1) + c) * a.dim_v + d]);
        }
        a.out[i] = num / den;
    }
}

typedef struct {
    float z[E];
    float logit[KV_TOKEN_VOCAB];
} finish_tile;

/* finish_step: y, z, logits and the next token. One block: eight neighbouring threads hold the lanes of one DOT. */
static __device__ __forceinline__ void finish_step_one(const leg &a, int32_t step)
{
    KV_CUDA_SHARED(finish_tile, tile);
    const int64_t outputs = GROUP * a.heads * a.dim_v;
    const int e = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
    const uint64_t key = kv_token_row_key(a.seed, a.layer, KV_TOKEN_WO, (uint64_t)e);
    float y = 0.0f;
    for (int64_t i = lane; i < outputs; i += LANES)
        y = kv_num_add(y, kv_num_mul(kv_token_weight(kv_token_hash(key, (uint32_t)i), a.exponent_wo), a.out[i]));
    y = kv_num_add(y, __shfl_xor_sync(0xFFFFFFFFu, y, 4));
    y = kv_num_add(y, __shfl_xor_sync(0xFFFFFFFFu, y, 2));
    y = kv_num_add(y, __shfl_xor_sync(0xFFFFFFFFu, y, 1));
    if (lane == 0) tile.z[e] = kv_num_add(a.hidden[step * E + e], y);
    __syncthreads();
    if (threadIdx.x < KV_TOKEN_VOCAB) {
        const float logit = project(a, KV_TOKEN_UNEMBED, threadIdx.x, 0, tile.z);
        tile.logit[threadIdx.x] = logit;
        a.result->logits[step * KV_TOKEN_VOCAB + threadIdx.x] = kv_token_logit_bits(logit);
    }
    __syncthreads();
    if (threadIdx.x == 0) a.result->tokens[step] = kv_token_argmax(tile.logit, KV_TOKEN_VOCAB);
}

/* ---- the six of one step, for one decode and for many ----------------------------------- */

static __global__ void __launch_bounds__(KV_CUDA_THREADS) project_token(const __grid_constant__ leg a, int32_t step)
{
    project_token_one(a, step);
}
static __global__ void __launch_bounds__(KV_CUDA_THREADS) score(const __grid_constant__ leg a, int32_t step)
{
    score_one(a, a.tokens + step + 1);
}
static __global__ void __launch_bounds__(KV_CUDA_THREADS) largest(const __grid_constant__ leg a, int32_t step)
{
    largest_one(a, a.tokens + step + 1);
}
static __global__ void __launch_bounds__(KV_CUDA_THREADS) weigh(const __grid_constant__ leg a, int32_t step)
{
    weigh_one(a, step + 1);
}
static __global__ void __launch_bounds__(KV_CUDA_THREADS) total(const __grid_constant__ leg a)
{
    total_one(a);
}
static __global__ void __launch_bounds__(KV_CUDA_THREADS) finish_step(const __grid_constant__ leg a, int32_t step)
{
    finish_step_one(a, step);
}

typedef struct {
    leg a;
    int32_t step;
} step_entry;

static __global__ void __launch_bounds__(KV_CUDA_THREADS) project_token_many(const step_entry *entries)
{
    project_token_one(entries[blockIdx.y].a, entries[blockIdx.y].step);
}
static __global__ void __launch_bounds__(KV_CUDA_THREADS) score_many(const step_entry *entries)
{
    const step_entry &x = entries[blockIdx.y];
    score_one(x.a, x.a.tokens + x.step + 1);
}
static __global__ void __launch_bounds__(KV_CUDA_THREADS) largest_many(const step_entry *entries)
{
    const step_entry &x = entries[blockIdx.y];
    largest_one(x.a, x.a.tokens + x.step + 1);
}
static __global__ void __launch_bounds__(KV_CUDA_THREADS) weigh_many(const step_entry *entries)
{
    weigh_one(entries[blockIdx.y].a, entries[blockIdx.y].step + 1);
}
static __global__ void __launch_bounds__(KV_CUDA_THREADS) total_many(const step_entry *entries)
{
    total_one(entries[blockIdx.y].a);
}
static __global__ void __launch_bounds__(KV_CUDA_THREADS) finish_step_many(const step_entry *entries)
{
    finish_step_one(entries[blockIdx.y].a, entries[blockIdx.y].step);
}

/* ---- host ------------------------------------------------------------------------------- */

/* Cuts the scratch into its parts; at NULL only counts. False where the sum does not fit 63 bits. */
static bool lay_out(const kv_cuda_decode *d, leg *a, float *at, int64_t *floats)
{
    const int64_t queries = GROUP * d->heads, chunks = (d->tokens + KV_TOKEN_CHUNK - 1) / KV_TOKEN_CHUNK;
    const struct {
        float **part;
        int64_t rows, each;
    } parts[] = {{&a->query, queries, d->dim_k},
                 {&a->fresh_k, KV_TOKEN_STEPS * d->heads, d->dim_k},
                 {&a->fresh_v, KV_TOKEN_STEPS * d->heads, d->dim_v},
                 {&a->score, queries, d->tokens + KV_TOKEN_STEPS},
                 {&a->most, queries, 1},
                 {&a->sums, queries, chunks + 1},
                 {&a->parts, queries * (chunks + 1), d->dim_v},
                 {&a->out, queries, d->dim_v},
                 {&a->hidden, KV_TOKEN_STEPS, E}};
    int64_t sum = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int64_t n;
        *parts[i].part = at != NULL ? at + sum : NULL;
        if (!kv_mul_i64(parts[i].rows, parts[i].each, &n) || !kv_add_i64(sum, n, &sum)) return false;
    }
    a->chunks = chunks;
    *floats = sum;
    return true;
}

extern "C" bool kv_cuda_token_floats(const kv_cuda_decode *d, int64_t *floats)
{
    leg a = {};
    return lay_out(d, &a, NULL, floats);
}

static kv_rc note_step(const kv_cuda_on *on, const step_entry &x, const unsigned *blocks, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (int i = 0; i < STEP_KERNELS && rc == KV_OK; i++)
        rc = KV_CUDA_NOTE(on, (kv_cuda_kernel)(KV_CUDA_PROJECT + i), blocks[i], x, err);
    return rc;
}

static kv_rc run_step(const kv_cuda_on *on, const leg &a, int32_t step, kv_err *err)
{
    const int64_t n = a.tokens + step + 1, rows = a.heads * (3 * a.dim_k + a.dim_v);
    const unsigned queries = (unsigned)(GROUP * a.heads);
    const int64_t tiles = (n + ROWS - 1) / ROWS * a.heads, chunks = (a.chunks + 1) * a.heads;
    /* in the order of kv_cuda_kernel */
    const unsigned blocks[STEP_KERNELS] = {
        kv_cuda_blocks(on, rows), (unsigned)tiles, queries, (unsigned)chunks, kv_cuda_blocks(on, queries * a.dim_v), 1};
    kv_rc rc = KV_OK;
    if (on->list != NULL) {
        const step_entry x = {a, step};
        return note_step(on, x, blocks, err);
    }
    KV_CUDA_LAUNCH(project_token, blocks[0], KV_CUDA_THREADS, 0, on->stream, a, step);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
    KV_CUDA_LAUNCH(score, blocks[1], KV_CUDA_THREADS, 0, on->stream, a, step);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
    KV_CUDA_LAUNCH(largest, blocks[2], KV_CUDA_THREADS, 0, on->stream, a, step);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
    KV_CUDA_LAUNCH(weigh, blocks[3], KV_CUDA_THREADS, 0, on->stream, a, step);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
    KV_CUDA_LAUNCH(total, blocks[4], KV_CUDA_THREADS, 0, on->stream, a);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
    KV_CUDA_LAUNCH(finish_step, blocks[5], KV_CUDA_THREADS, 0, on->stream, a, step);
    KV_CUDA_TRY(rc, err, out, cudaGetLastError());
out:
    return rc;
}

KV_CUDA_MANY(kv_cuda_many_project, project_token_many, step_entry)
KV_CUDA_MANY(kv_cuda_many_score, score_many, step_entry)
KV_CUDA_MANY(kv_cuda_many_largest, largest_many, step_entry)
KV_CUDA_MANY(kv_cuda_many_weigh, weigh_many, step_entry)
KV_CUDA_MANY(kv_cuda_many_total, total_many, step_entry)
KV_CUDA_MANY(kv_cuda_many_step, finish_step_many, step_entry)

extern "C" kv_rc kv_cuda_run_decode(const kv_cuda_on *on, const kv_cuda_decode *d, kv_err *err)
{
    leg a = {};
    int64_t floats;
    kv_rc rc = KV_OK;
    if (!lay_out(d, &a, d->work, &floats)) return KV_FAIL(err, KV_ENOMEM, "token leg: its scratch does not fit");
    a.tokens = d->tokens;
    a.heads = d->heads;
    a.dim_k = d->dim_k;
    a.dim_v = d->dim_v;
    a.k = d->k;
    a.v = d->v;
    a.result = d->out;
    a.seed = d->seed;
    a.layer = (uint64_t)d->model_layer;
    a.scale = kv_token_scale(d->dim_k);
    a.exponent_wo = kv_token_exponent(KV_TOKEN_WO, GROUP * d->heads * d->dim_v);
    a.elem = (kv_elem)d->element;
    /* a grid has at most 2^31 - 1 blocks */
    if ((a.tokens / ROWS + 2) > INT32_MAX / a.heads)
        return KV_FAIL(err, KV_EUNSUP, "token leg: %lld tokens x %lld heads are more than one launch can take",
                       (long long)a.tokens, (long long)a.heads);
    for (int32_t step = 0; step < KV_TOKEN_STEPS && rc == KV_OK; step++) rc = run_step(on, a, step, err);
    return rc;
}
