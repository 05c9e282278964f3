/* codec simd: decode. Included by kv_codec_simd_impl.h. */
#ifndef KV_CODEC_SIMD_DECODE_H
#define KV_CODEC_SIMD_DECODE_H

#include "kernels/codec/kv_codec_simd_encode.h"

/* Packed words of 4 rows to lanes l to l + 3. */
static void kv_simd_read_words(kv_group *g, const uint8_t *const row[4], int64_t bytes, int32_t l)
{
    int64_t at = 0;
    for (; at + 16 <= bytes; at += 16) {
        __m128 r0 = _mm_loadu_ps((const void *)(row[0] + at)), r1 = _mm_loadu_ps((const void *)(row[1] + at)),
               r2 = _mm_loadu_ps((const void *)(row[2] + at)), r3 = _mm_loadu_ps((const void *)(row[3] + at));
        _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
        _mm_store_ps((void *)&g->words[at / 4][l], r0);
        _mm_store_ps((void *)&g->words[at / 4 + 1][l], r1);
        _mm_store_ps((void *)&g->words[at / 4 + 2][l], r2);
        _mm_store_ps((void *)&g->words[at / 4 + 3][l], r3);
    }
    for (; at < bytes; at += 4)
        for (int i = 0; i < 4; i++) {
            uint32_t word = 0;
            if (bytes - at >= 4) {
                memcpy(&word, row[i] + at, 4);
            } else {
                memcpy(&word, row[i] + at, (size_t)(bytes - at));
            }
            g->words[at / 4][l + i] = word;
        }
}

/* Rows `first` on of the codes: packed words, t, gain (as scale) and seg of the group. */
static void kv_simd_read_rows(const kv_codec_work *w, kv_group *g, const kv_codec_codes *codes, int64_t first,
                              int32_t here)
{
    const int64_t bytes = kv_codec_row_bytes(&w->p);
    const bool raw = kv_codec_norm_is_raw(w->p.rule, w->p.metric);
    const int64_t last = first + here - 1;
    for (int32_t l = 0; l < GROUP; l += 4) {
        const uint8_t *row[4];
        for (int32_t i = 0; i < 4; i++) row[i] = codes->residual + (first + kv_at_most(l + i, here)) * bytes;
        kv_simd_read_words(g, row, bytes, l);
    }
    if (here == GROUP) { /* loops without a choice, so that they vectorise */
        for (int32_t l = 0; l < GROUP; l++) g->seg[l] = (int32_t)codes->seg_id[first + l];
        for (int32_t l = 0; l < GROUP; l++) g->used[l] = kv_codec_f(codes->t[first + l]);
        for (int32_t l = 0; l < GROUP; l++) g->scale[l] = raw ? 1.0f : kv_codec_f(codes->norm[first + l]);
        return;
    }
    for (int32_t l = 0; l < GROUP; l++) {
        const int64_t row = first + l < last ? first + l : last;
        g->seg[l] = (int32_t)codes->seg_id[row];
        g->used[l] = kv_codec_f(codes->t[row]);
        g->scale[l] = kv_codec_gain(w->p.rule, w->p.metric, codes->norm[row]);
    }
}

/* Level of each lane's index, of which the lowest bits count. level: the table, repeated up to 16 entries. */
KV_INLINE kv_vf kv_simd_value(kv_vi index, const float *level, const int bits)
{
#if KV_LANES == 16
    (void)bits;
    return kv_pick16(level, index);
#else
    /* halves of the table by its bits */
    kv_vf v[KV_CODEC_LEVELS_MAX];
    for (int i = 0; i < 1 << bits; i++) v[i] = kv_splat(level[i]);
    for (int b = 0; b < bits; b++) {
        const kv_vi m = (index << (31 - b)) >> 31;
        for (int i = 0; i < 1 << (bits - 1 - b); i++)
            v[i] = (kv_vf)(((kv_vi)v[2 * i + 1] & m) | ((kv_vi)v[2 * i] & ~m));
    }
    return v[0];
#endif
}

/* Levels times gain to w->y, one vector of rows. */
KV_INLINE void kv_simd_unpack(kv_codec_work *w, const kv_group *g, int lane, const int bits)
{
    const kv_vf gain = kv_load(g->scale + lane);
    float level[KV_CODEC_LEVELS_MAX] __attribute__((aligned(64)));
    for (int i = 0; i < KV_CODEC_LEVELS_MAX; i++) level[i] = w->p.level[i % (1 << bits)];
    for (int32_t i = 0; i < w->wht; i++) {
        const int32_t at = i * bits / 32, shift = i * bits % 32;
        kv_vu word = *(const kv_vu *)&g->words[at][lane] >> shift;
        if (shift + bits > 32) word |= *(const kv_vu *)&g->words[at + 1][lane] << (32 - shift);
        kv_store(w->y + (int64_t)i * GROUP + lane, kv_simd_value((kv_vi)word, level, bits) * gain);
    }
}

static void kv_simd_values(kv_codec_work *w, const kv_group *g)
{
    for (int lane = 0; lane < GROUP; lane += KV_LANES) switch (w->p.bits) {
        case 1: kv_simd_unpack(w, g, lane, 1); break;
        case 2: kv_simd_unpack(w, g, lane, 2); break;
        case 3: kv_simd_unpack(w, g, lane, 3); break;
        default: kv_simd_unpack(w, g, lane, 4); break;
        }
}

/* c = t * centre + rotated values, to w->c. */
static void kv_simd_coefficients(kv_codec_work *w, const kv_group *g)
{
    const float part = 1.0f / (float)w->wht; /* a power of two */
    kv_simd_gather(w, g->seg, w->c);
    for (int32_t a = 0; a < w->p.d_eff; a++) {
        const kv_vf turn = kv_splat(w->sign[a] * part);
        for (int lane = 0; lane < GROUP; lane += KV_LANES) {
            float *c = w->c + (int64_t)a * GROUP + lane;
            const kv_vf along = kv_load(g->used + lane) * kv_load(c);
            kv_store(c, along + kv_load(w->y + (int64_t)a * GROUP + lane) * turn);
        }
    }
}

/* Rows l.. and vectors of columns from `column` on of mean + sum of basis * c, to x[row]. */
KV_INLINE void kv_simd_product(const kv_codec_work *w, int32_t l, int32_t column, const int columns, float *const *x)
{
    kv_vf sum[KV_ROWS][KV_COLUMNS];
    KV_UNROLL
    for (int v = 0; v < columns; v++) {
        const kv_vf mean = kv_load(w->mean + column + v * KV_LANES);
        KV_UNROLL
        for (int r = 0; r < KV_ROWS; r++) sum[r][v] = mean;
    }
    KV_UNROLL_4
    for (int32_t a = 0; a < w->p.d_eff; a++) {
        const float *basis = w->basis + (int64_t)a * w->dim_pad + column, *c = w->c + (int64_t)a * GROUP + l;
        kv_vf b[KV_COLUMNS];
        for (int v = 0; v < columns; v++) b[v] = kv_load(basis + v * KV_LANES);
        KV_UNROLL
        for (int r = 0; r < KV_ROWS; r++) {
            const kv_vf along = kv_splat(c[r]);
            for (int v = 0; v < columns; v++) sum[r][v] = sum[r][v] + b[v] * along;
        }
    }
    KV_UNROLL
    for (int r = 0; r < KV_ROWS; r++) KV_UNROLL
    for (int v = 0; v < columns; v++) {
        const int32_t at = column + v * KV_LANES;
        if (at + KV_LANES <= w->p.dim) {
            *(kv_vf_any *)(x[r] + at) = sum[r][v];
        } else if (at < w->p.dim) {
            memcpy(x[r] + at, &sum[r][v], (size_t)(w->p.dim - at) * sizeof(float));
        }
    }
}

/* One block of columns of all rows of a group, so that its part of the basis stays in the first cache. Not inlined, so
 * that the sums have all registers. */
static __attribute__((noinline)) void kv_simd_columns(const kv_codec_work *w, int32_t here, int32_t column, float *x)
{
    for (int32_t l = 0; l < here; l += KV_ROWS) {
        float *row[KV_ROWS];
        for (int r = 0; r < KV_ROWS; r++) row[r] = l + r < here ? x + (int64_t)(l + r) * w->p.dim : w->row;
        if (column + KV_COLUMNS * KV_LANES <= w->dim_pad) {
            kv_simd_product(w, l, column, KV_COLUMNS, row);
        } else {
            kv_simd_product(w, l, column, 1, row);
        }
    }
}

/* The rows of a group from their coefficients in w->c. */
static void kv_simd_products(const kv_codec_work *w, int32_t here, float *x)
{
    int32_t column = 0;
    for (; column + KV_COLUMNS * KV_LANES <= w->dim_pad; column += KV_COLUMNS * KV_LANES)
        kv_simd_columns(w, here, column, x);
    for (; column < w->dim_pad; column += KV_LANES) kv_simd_columns(w, here, column, x);
}

static void kv_simd_decode_group(kv_codec_work *w, kv_group *g, const kv_codec_codes *codes, int64_t first,
                                 int32_t here, int64_t *outlier, float *x)
{
    kv_simd_read_rows(w, g, codes, first, here);
    kv_simd_values(w, g);
    for (int32_t l = 0; l < here; l++)
        for (const int64_t end = *outlier + codes->outlier_count[first + l]; *outlier < end; ++*outlier) {
            const int32_t i = codes->outlier_idx[*outlier];
            if (i < w->wht) w->y[(int64_t)i * GROUP + l] = kv_codec_f(codes->outlier_val[*outlier]) * g->scale[l];
        }
    kv_simd_butterfly(w->y, w->wht);
    kv_simd_coefficients(w, g);
    kv_simd_products(w, here, x);
}

void KV_ISA(decode)(kv_codec_work *w, const kv_codec_codes *codes, float *x)
{
    kv_group g;
    int64_t outlier = 0;
    kv_codec_work_columns(w);
    for (int64_t i = 0; i < codes->n; i += GROUP)
        kv_simd_decode_group(w, &g, codes, i, codes->n - i < GROUP ? (int32_t)(codes->n - i) : GROUP, &outlier,
                             x + i * w->p.dim);
}

#endif
