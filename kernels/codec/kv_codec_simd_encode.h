/* codec simd: encode, and the parts that decode and fit share. Included by kv_codec_simd_impl.h. */
#ifndef KV_CODEC_SIMD_ENCODE_H
#define KV_CODEC_SIMD_ENCODE_H

#include "kernels/codec/kv_codec_simd.h"
#include "kernels/codec/kv_codec_simd_vec.h"

#define WORDS_MAX (KV_CODEC_DIM_MAX * KV_CODEC_BITS_MAX / 32)
#define MARKS_MAX (KV_CODEC_DIM_MAX / 32)

/* What is known of the rows of a group besides w->c and w->y. */
typedef struct {
    float t[GROUP], used[GROUP], most[GROUP]; /* signed length along the centre; what is taken off or put on */
    float squares[GROUP], scale[GROUP], raw[GROUP];
    int32_t seg[GROUP];
    uint32_t words[WORDS_MAX + 1][GROUP]; /* packed levels, 32 bits at a time */
    uint32_t marks[MARKS_MAX][GROUP];     /* bit i % 32 of word i / 32: value i is an outlier */
} __attribute__((aligned(64))) kv_group;

/* Row i of a group of `here` rows, the last one again past the end. */
KV_INLINE int32_t kv_at_most(int32_t i, int32_t here)
{
    return i < here ? i : here - 1;
}

/* x[here][dim] to w->x[dim][GROUP], less the mean unless raw. */
static void kv_simd_turn_rows(kv_codec_work *w, const float *x, int32_t here, const float *minus)
{
    for (int32_t l = 0; l < GROUP; l += 4) {
        const float *row[4];
        for (int32_t i = 0; i < 4; i++) row[i] = x + (int64_t)kv_at_most(l + i, here) * w->p.dim;
        kv_simd_turn4(row, minus, w->p.dim, w->x + l);
    }
}

/* w->c[d_eff][GROUP] from x; the lengths of the raw rows where they are stored. next: a group of rows to fetch meanwhile,
 * or NULL. */
static void kv_simd_project(kv_codec_work *w, const float *x, int32_t here, const float *next, bool raw, float *lengths)
{
    const kv_codec_params *p = &w->p;
    kv_simd_turn_rows(w, x, here, raw ? NULL : w->mean);
    if (raw) {
        kv_simd_squares(w->x, p->dim, lengths);
        for (int l = 0; l < GROUP; l++) lengths[l] = kv_codec_sqrt(lengths[l]);
        for (int32_t j = 0; j < p->dim; j++)
            for (int lane = 0; lane < GROUP; lane += KV_LANES) {
                float *at = w->x + (int64_t)j * GROUP + lane;
                kv_store(at, kv_load(at) - kv_splat(w->mean[j]));
            }
    }
    const int64_t bytes = (int64_t)GROUP * p->dim * (int64_t)sizeof(float);
    const int64_t step = (bytes * TILE / p->d_eff + 63) / 64 * 64;
    for (int32_t a = 0; a < p->d_eff; a += TILE) {
        const int64_t from = a / TILE * step, to = from + step < bytes ? from + step : bytes;
        for (int64_t i = from; next != NULL && i < to; i += 64) _mm_prefetch((const char *)next + i, _MM_HINT_T1);
        kv_simd_tile(w->basis_tiles + (int64_t)a * p->dim, w->x, p->dim, 0.0f, w->c + (int64_t)a * GROUP);
    }
}

/* The centre of each row: seg and t of the group; w->x is scratch by now. */
static void kv_simd_assign(kv_codec_work *w, kv_group *g)
{
    const int32_t e = w->p.d_eff, k = w->p.k;
    for (int l = 0; l < GROUP; l++) {
        g->most[l] = -kv_num_float(0x7F800000u);
        g->t[l] = 0.0f;
        g->seg[l] = 0;
    }
    for (int32_t first = 0; first < k; first += TILE) {
        kv_simd_tile(w->centers_tiles + (int64_t)first * e, w->c, e, -0.0f, w->x);
        kv_simd_keep(w->x, first, k - first < TILE ? k - first : TILE, g->most, g->t, g->seg);
    }
    kv_simd_squares(w->c, e, g->squares);
    for (int l = 0; l < GROUP; l++)
        if (g->squares[l] <= KV_CODEC_EPS) {
            g->seg[l] = 0;
            g->t[l] = 0.0f;
        }
}

/* The centre of each row to out[d_eff][GROUP]. */
static void kv_simd_gather(const kv_codec_work *w, const int32_t *seg, float *out)
{
    const int32_t e = w->p.d_eff;
#if KV_PICK16
    if (w->p.k <= KV_CODEC_PICK) {
        for (int lane = 0; lane < GROUP; lane += KV_LANES) {
            const kv_vi which = *(const kv_vi *)(seg + lane);
            for (int32_t a = 0; a < e; a++)
                kv_store(out + (int64_t)a * GROUP + lane, kv_pick16(w->centers_columns + a * KV_CODEC_PICK, which));
        }
        return;
    }
#endif
    for (int32_t l = 0; l < GROUP; l += 4) {
        const float *row[4];
        for (int32_t i = 0; i < 4; i++) row[i] = w->centers + (int64_t)seg[l + i] * e;
        kv_simd_turn4(row, NULL, e, out + l);
    }
}

/* Residuals with the signs of the rotation in w->y, their sums of squares in g->squares. */
static void kv_simd_residual(kv_codec_work *w, kv_group *g)
{
    const int32_t e = w->p.d_eff;
    kv_simd_gather(w, g->seg, w->y);
    for (int lane = 0; lane < GROUP; lane += KV_LANES) {
        const kv_vf eps = kv_splat(KV_CODEC_EPS), used = kv_load(g->used + lane);
        kv_vi counts = kv_splat_i(0);
        kv_vf sum = kv_splat(-0.0f);
        for (int32_t a = 0; a < e; a++) counts |= ~(kv_vi)(kv_abs(kv_load(w->c + (int64_t)a * GROUP + lane)) <= eps);
        for (int32_t a = 0; a < e; a++) {
            float *at = w->y + (int64_t)a * GROUP + lane;
            kv_vf r = kv_load(w->c + (int64_t)a * GROUP + lane) - used * kv_load(at);
            r = (kv_vf)((kv_vi)r & counts);
            sum = sum + r * r;
            kv_store(at, r * kv_splat(w->sign[a]));
        }
        for (int32_t a = e; a < w->wht; a++)
            kv_store(w->y + (int64_t)a * GROUP + lane, kv_splat(0.0f) * kv_splat(w->sign[a]));
        kv_store(g->squares + lane, sum);
    }
}

/* Index of the nearest level of each lane. */
KV_INLINE kv_vi kv_simd_level(kv_vf s, const float *level, const int bits, const bool linf)
{
    kv_vf least = kv_splat(kv_num_float(0x7F800000u));
    kv_vi best = kv_splat_i(0);
    for (int i = 0; i < 1 << bits; i++) {
        const kv_vf e = s - kv_splat(level[i]);
        kv_vf cost = e * e;
        if (linf) {
            const kv_vf a = kv_abs(e);
            cost = kv_if_less(a, kv_splat(KV_CODEC_HUBER), (a * a) / kv_splat(0.2f), a - kv_splat(0.05f));
        }
        best = kv_if_less_i(cost, least, kv_splat_i(i), best);
        least = kv_if_less(cost, least, cost, least);
    }
    return best;
}

/* Scales w->y, marks outliers and packs level indices of one vector of rows. */
KV_INLINE void kv_simd_pack(kv_codec_work *w, kv_group *g, int lane, const int bits, const bool linf)
{
    const kv_vf scale = kv_load(g->scale + lane), threshold = kv_splat(w->p.threshold);
    kv_vi word = kv_splat_i(0), marks = kv_splat_i(0);
    int32_t fill = 0, at = 0;
    for (int32_t i = 0; i < w->wht; i++) {
        float *p = w->y + (int64_t)i * GROUP + lane;
        const kv_vf s = kv_load(p) * scale;
        const kv_vi index = kv_simd_level(s, w->p.level, bits, linf);
        word |= index << fill;
        fill += bits;
        if (fill >= 32) {
            *(kv_vi *)&g->words[at++][lane] = word;
            fill -= 32;
            word = fill == 0 ? kv_splat_i(0) : index >> (bits - fill);
        }
        if (!w->p.outliers) continue;
        kv_store(p, s);
        marks |= kv_if_less_i(threshold, kv_abs(s), kv_splat_i((int32_t)(1u << i % 32)), kv_splat_i(0));
        if (i % 32 != 31 && i + 1 != w->wht) continue;
        *(kv_vi *)&g->marks[i / 32][lane] = marks;
        marks = kv_splat_i(0);
    }
    *(kv_vi *)&g->words[at][lane] = word;
}

static void kv_simd_quantise(kv_codec_work *w, kv_group *g)
{
    const bool linf = w->p.metric == KV_CODEC_LINF;
    for (int lane = 0; lane < GROUP; lane += KV_LANES) switch (w->p.bits * 2 + linf) {
        case 2: kv_simd_pack(w, g, lane, 1, false); break;
        case 3: kv_simd_pack(w, g, lane, 1, true); break;
        case 4: kv_simd_pack(w, g, lane, 2, false); break;
        case 5: kv_simd_pack(w, g, lane, 2, true); break;
        case 6: kv_simd_pack(w, g, lane, 3, false); break;
        case 7: kv_simd_pack(w, g, lane, 3, true); break;
        case 8: kv_simd_pack(w, g, lane, 4, false); break;
        default: kv_simd_pack(w, g, lane, 4, true); break;
        }
}

/* What the group knows of row l, as row `row` of the codes. */
static void kv_simd_write_row(const kv_codec_work *w, const kv_group *g, int32_t l, int64_t row, kv_codec_codes *out)
{
    const int64_t bytes = kv_codec_row_bytes(&w->p), before = out->outliers;
    uint8_t *packed = out->residual + row * bytes;
    for (int64_t at = 0; at < bytes; at += 4) {
        const uint32_t word = g->words[at / 4][l];
        if (bytes - at >= 4) {
            memcpy(packed + at, &word, 4);
        } else {
            memcpy(packed + at, &word, (size_t)(bytes - at));
        }
    }
    out->seg_id[row] = (uint32_t)g->seg[l];
    for (int32_t i = 0; w->p.outliers && i < w->wht; i += 32)
        for (uint32_t m = g->marks[i / 32][l]; m != 0; m &= m - 1) {
            const int32_t index = i + __builtin_ctz(m);
            out->outlier_idx[out->outliers] = (uint16_t)index;
            out->outlier_val[out->outliers++] = kv_codec_h(w->y[(int64_t)index * GROUP + l]);
        }
    out->outlier_count[row] = (uint32_t)(out->outliers - before);
}

static void kv_simd_encode_group(kv_codec_work *w, kv_group *g, const float *x, int32_t here, const float *next,
                                 int64_t first, kv_codec_codes *out)
{
    const kv_codec_params *p = &w->p;
    kv_simd_project(w, x, here, next, kv_codec_norm_is_raw(p->rule, p->metric), g->raw);
    kv_simd_assign(w, g);
    for (int32_t l = 0; l < GROUP; l++) {
        int64_t ignored = 0;
        const uint16_t t = kv_codec_t(p->rule, g->t[l], &g->used[l], l < here ? &out->saturated : &ignored);
        if (l < here) out->t[first + l] = t;
    }
    kv_simd_residual(w, g);
    for (int32_t l = 0; l < GROUP; l++) {
        const float length = kv_codec_sqrt(g->squares[l]);
        g->scale[l] = kv_codec_scale(length);
        if (l >= here) continue;
        out->norm[first + l] = kv_codec_norm(p->rule, p->metric, length, g->raw[l], &out->saturated);
        if (out->res_norm != NULL) out->res_norm[first + l] = length;
    }
    kv_simd_butterfly(w->y, w->wht);
    kv_simd_quantise(w, g);
    for (int32_t l = 0; l < here; l++) kv_simd_write_row(w, g, l, first + l, out);
}

void KV_ISA(encode)(kv_codec_work *w, const float *x, int64_t n, kv_codec_codes *codes)
{
    kv_group g;
    kv_codec_work_tiles(w);
    kv_codec_work_columns(w);
    codes->n = n;
    codes->outliers = 0;
    codes->saturated = 0;
    for (int64_t i = 0; i < n; i += GROUP) {
        const float *rows = x + i * w->p.dim, *next = n - i >= 2 * GROUP ? rows + (int64_t)GROUP * w->p.dim : NULL;
        kv_simd_encode_group(w, &g, rows, n - i < GROUP ? (int32_t)(n - i) : GROUP, next, i, codes);
    }
}

#endif
