#include "kernels/codec/kv_codec_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/codec/kv_codec_rng.h"
#include "kernels/codec/kv_codec_step.h"

/* ---- what the quantiser sees ------------------------------------------------------------ */

/* One row's residual, rotated and scaled, from its projection and codes (steps 3 to 6 of the encoder). */
static void scale_row(const kv_codec_params *p, const kv_codec_skeleton *sk, const float *c, const float *sign,
                      uint32_t seg, uint16_t t, float length, float *s)
{
    const int32_t wht = kv_codec_wht_len(p->d_eff);
    const float along = kv_codec_f(t), scale = kv_codec_scale(length);
    const uint16_t *center = sk->centers + (int64_t)seg * p->d_eff;
    memset(s, 0, (size_t)wht * sizeof *s);
    if (!(length > 0)) return;
    for (int32_t a = 0; a < p->d_eff; a++) s[a] = (c[a] - along * kv_codec_f(center[a])) * sign[a];
    kv_codec_butterfly(s, wht);
    for (int32_t i = 0; i < wht; i++) s[i] = s[i] * scale;
}

void kv_codec_scaled_rows(const kv_codec_variant *v, kv_codec_work *w, const kv_codec_params *p,
                          const kv_codec_skeleton *sk, const float *x, int64_t n, kv_codec_codes *codes, float *c,
                          float *s)
{
    float sign[KV_CODEC_DIM_MAX];
    const int32_t wht = kv_codec_wht_len(p->d_eff);
    kv_codec_signs(p->seed, sign, wht);
    v->encode(w, x, n, codes);
    v->project(w, x, n, c);
    for (int64_t i = 0; i < n; i++)
        scale_row(p, sk, c + i * p->d_eff, sign, codes->seg_id[i], codes->t[i], codes->res_norm[i], s + i * wht);
}

int64_t kv_codec_scaled_pick(const kv_codec_params *p, const kv_codec_codes *codes, const float *s, float *out)
{
    const int32_t wht = kv_codec_wht_len(p->d_eff);
    int64_t kept = 0;
    for (int64_t i = 0; i < codes->n; i++, s += wht) {
        if (!(codes->res_norm[i] > KV_CODEC_EPS)) continue;
        for (int32_t j = 0; j < wht; j++)
            if (!p->outliers || !(kv_codec_abs(s[j]) > p->threshold)) out[kept++] = s[j];
    }
    return kept;
}

/* ---- Lloyd-Max -------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The first sample above a boundary. */
static int64_t first_above(const float *samples, int64_t n, double boundary)
{
    int64_t lo = 0, hi = n;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if ((double)samples[mid] <= boundary)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static double mean_of(const double *sums, int64_t from, int64_t to)
{
    return (sums[to] - sums[from]) / (double)(to - from);
}

/* Each level to the mean of its samples (sums[i]: of the first i); the largest move. */
static double one_round(const float *samples, const double *sums, int64_t n, int32_t count, double *level)
{
    double move = 0;
    int64_t from = 0;
    double next[KV_CODEC_LEVELS_MAX];
    for (int32_t g = 0; g < count; g++) {
        const int64_t to = g + 1 < count ? first_above(samples, n, (level[g] + level[g + 1]) / 2) : n;
        next[g] = to > from ? mean_of(sums, from, to) : level[g];
        if (fabs(next[g] - level[g]) > move) move = fabs(next[g] - level[g]);
        from = to;
    }
    memcpy(level, next, (size_t)count * sizeof *level);
    return move;
}

/* A level that no sample is nearest to takes over half of the samples of the level with the largest error; false where
 * every level has some. */
static bool employ_idle(const float *samples, const double *sums, int64_t n, int32_t count, double *level)
{
    int64_t cell[KV_CODEC_LEVELS_MAX + 1] = {0};
    int32_t idle = -1, worst = -1;
    double most = 0;
    cell[count] = n;
    for (int32_t g = 1; g < count; g++) cell[g] = first_above(samples, n, (level[g - 1] + level[g]) / 2);
    for (int32_t g = 0; g < count; g++)
        if (cell[g] == cell[g + 1]) idle = g;
    for (int32_t g = 0; idle >= 0 && g < count; g++) {
        double error = 0;
        for (int64_t i = cell[g]; i < cell[g + 1]; i++)
            error += ((double)samples[i] - level[g]) * ((double)samples[i] - level[g]);
        if (!(error > most)) continue;
        most = error;
        worst = g;
    }
    if (worst < 0) return false;
    const int64_t from = cell[worst], to = cell[worst + 1], middle = first_above(samples, n, mean_of(sums, from, to));
    if (middle <= from || middle >= to) return false;
    const double halves[2] = {mean_of(sums, from, middle), mean_of(sums, middle, to)};
    for (; idle < worst; idle++) level[idle] = level[idle + 1];
    for (; idle > worst + 1; idle--) level[idle] = level[idle - 1];
    memcpy(level + (idle > worst ? worst : worst - 1), halves, sizeof halves);
    return true;
}

static kv_rc check_samples(const float *samples, int64_t n, int32_t count, kv_err *err)
{
    int64_t different = n > 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(samples[i])) return KV_FAIL(err, KV_EFORMAT, "a scaled residual is not finite");
        different += i > 0 && samples[i] != samples[i - 1];
    }
    if (different >= count) return KV_OK;
    return KV_FAIL(err, KV_EFORMAT, "%" PRId64 " different values are too few for %d levels", different, count);
}

kv_rc kv_codec_table_fit(float *samples, int64_t n, int32_t bits, const float *start, float *levels, int32_t *rounds,
                         kv_err *err)
{
    const int32_t count = 1 << bits;
    double level[KV_CODEC_LEVELS_MAX];
    for (int64_t i = 0; i < n; i++)
        if (samples[i] != samples[i]) return KV_FAIL(err, KV_EFORMAT, "a scaled residual is not a number");
    qsort(samples, (size_t)n, sizeof *samples, by_value);
    const kv_rc rc = check_samples(samples, n, count, err);
    if (rc != KV_OK) return rc;
    double *sums = kv_alloc((size_t)n + 1, sizeof *sums);
    if (sums == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " samples", n);
    for (int64_t i = 0; i < n; i++) sums[i + 1] = sums[i] + (double)samples[i];
    for (int32_t g = 0; g < count; g++) level[g] = (double)start[g];
    for (*rounds = 1; *rounds < KV_CODEC_TABLE_ROUNDS; ++*rounds) {
        const double move = one_round(samples, sums, n, count, level);
        if (!employ_idle(samples, sums, n, count, level) && !(move > 1e-7)) break;
    }
    kv_free(sums);
    for (int32_t g = 0; g < count; g++) levels[g] = (float)level[g];
    for (int32_t g = 1; g < count; g++)
        if (!(levels[g - 1] < levels[g]))
            return KV_FAIL(err, KV_EFORMAT, "levels %d and %d are one: the values are too much alike", g - 1, g);
    return KV_OK;
}

double kv_codec_table_error(const float *samples, int64_t n, const float *levels, int32_t bits)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t g = kv_codec_nearest_level(KV_CODEC_MSE, levels, 1 << bits, samples[i]);
        const double e = (double)samples[i] - (double)levels[g];
        sum += e * e;
    }
    return n > 0 ? sum / (double)n : 0;
}
