/* codec k-means: spherical, seeded, at most so many rounds; a line through the origin counts once (|dot|). */
#include <inttypes.h>
#include <string.h>

#include "kernels/codec/kv_codec_fit.h"
#include "kernels/codec/kv_codec_kmeans.h"
#include "kernels/codec/kv_codec_rng.h"
#include "kernels/codec/kv_codec_step.h"

typedef struct {
    const kv_codec_variant *v;
    kv_codec_points points; /* directions: rows of length 1 */
    float *rows, *groups;   /* theirs */
    float *weight;          /* [points] */
    float *dots;            /* [k][stride] of each centre with each point */
    int64_t stride;         /* points, up to whole groups */
    float *dot, *best;      /* [points] with the nearest centre; largest signed dot so far */
    float *side;            /* [points] +1 or -1 (or NaN): the side of the centre that the point was added on */
    uint32_t *seg, *now;    /* [points] */
    float *mass;            /* [k] weight of a cluster */
    bool *open;             /* [k] its points or their sides are not those of its centre */
    int32_t *moved;         /* [n_moved] centres whose dots are to be made */
    int32_t n_moved;
    int32_t k;
} kmeans;

/* Rows with a weight and a coefficient that counts: as many centres can be told apart at most. */
static int64_t count_rows(const float *c, const float *weights, int64_t n, int32_t d)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t a = 0;
        while (a < d && !(kv_codec_abs(c[i * d + a]) > KV_CODEC_EPS)) a++;
        if (a < d && (weights == NULL || weights[i] > 0.0f)) count++;
    }
    return count;
}

static kv_rc take_room(kmeans *m, int64_t n, int32_t d, int32_t k, kv_err *err)
{
    const size_t rows = (size_t)n, groups = (rows + KV_CODEC_POINT_GROUP - 1) / KV_CODEC_POINT_GROUP;
    m->rows = kv_alloc(rows * (size_t)d, sizeof(float));
    m->groups = kv_alloc_image((groups * KV_CODEC_POINT_GROUP * (size_t)d + 1) * sizeof(float));
    m->weight = kv_alloc(rows, sizeof(float));
    m->stride = (int64_t)(groups * KV_CODEC_POINT_GROUP);
    m->dots = (size_t)k <= SIZE_MAX / sizeof(float) / (size_t)m->stride
                  ? kv_alloc_image((size_t)k * (size_t)m->stride * sizeof(float))
                  : NULL;
    m->dot = kv_alloc(rows, sizeof(float));
    m->best = kv_alloc(rows, sizeof(float));
    m->seg = kv_alloc(rows, sizeof(uint32_t));
    m->now = kv_alloc(rows, sizeof(uint32_t));
    m->mass = kv_alloc((size_t)k, sizeof(float));
    m->side = kv_alloc(rows, sizeof(float));
    m->open = kv_alloc((size_t)k, sizeof(bool));
    m->moved = kv_alloc((size_t)k, sizeof *m->moved);
    if (m->rows == NULL || m->groups == NULL || m->weight == NULL || m->dot == NULL || m->best == NULL ||
        m->seg == NULL || m->now == NULL || m->mass == NULL || m->dots == NULL || m->side == NULL || m->open == NULL ||
        m->moved == NULL)
        return KV_FAIL(err, KV_ENOMEM, "no memory for k-means on %" PRId64 " rows", n);
    return KV_OK;
}

static void give_room(kmeans *m)
{
    kv_free(m->rows);
    kv_free(m->groups);
    kv_free(m->weight);
    kv_free(m->dot);
    kv_free(m->best);
    kv_free(m->seg);
    kv_free(m->now);
    kv_free(m->mass);
    kv_free(m->dots);
    kv_free(m->side);
    kv_free(m->open);
    kv_free(m->moved);
}

/* Lengths of n rows: eight sums run at once, each in the order of its row. */
static void row_lengths(const float *c, int64_t n, int32_t d, float *out)
{
    enum { AT_ONCE = 8 };
    int64_t i = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE) {
        const float *row = c + i * d;
        float sum[AT_ONCE];
        for (int l = 0; l < AT_ONCE; l++) sum[l] = -0.0f;
        for (int32_t a = 0; a < d; a++)
            for (int l = 0; l < AT_ONCE; l++) {
                const float x = row[(int64_t)l * d + a];
                sum[l] = kv_num_add(sum[l], kv_num_mul(x, x));
            }
        for (int l = 0; l < AT_ONCE; l++) out[i + l] = kv_codec_sqrt(sum[l]);
    }
    for (; i < n; i++) out[i] = kv_codec_sqrt(kv_codec_dot(c + i * d, c + i * d, d));
}

/* Directions of the rows that have a weight and a length. */
static void make_points(kmeans *m, const float *c, const float *weights, int64_t n, int32_t d)
{
    int64_t count = 0;
    float *lengths = m->best; /* free until the start */
    row_lengths(c, n, d, lengths);
    for (int64_t i = 0; i < n; i++) {
        const float *row = c + i * d, weight = weights != NULL ? weights[i] : 1.0f, length = lengths[i];
        if (!(weight > 0.0f)) continue;
        if (!(length > KV_CODEC_EPS)) continue;
        for (int32_t a = 0; a < d; a++) m->rows[count * d + a] = kv_codec_div(row[a], length);
        m->weight[count++] = weight;
    }
    m->points.n = count;
    m->points.d = d;
    m->points.rows = m->rows;
    m->points.groups = m->groups;
    const int64_t width = KV_CODEC_POINT_GROUP, groups = (count + width - 1) / width;
    memset(m->groups, 0, (size_t)(groups * width * d) * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        for (int32_t a = 0; a < d; a++) m->groups[(i / width * d + a) * width + i % width] = m->rows[i * d + a];
}

/* The first centre is drawn, each next one is the direction furthest from those so far by signed dot. */
static void start(kmeans *m, uint32_t seed, float *centers)
{
    const size_t bytes = (size_t)m->points.d * sizeof(float);
    const int32_t d = m->points.d;
    kv_codec_rng rng = kv_codec_rng_seed(seed);
    int64_t pick = (int64_t)kv_codec_draw_below(&rng, (uint64_t)m->points.n);
    for (int64_t i = 0; i < m->points.n; i++) m->best[i] = -kv_num_float(0x7F800000u);
    for (int32_t g = 0; g < m->k; g++) {
        const float *dots = m->dots + g * m->stride;
        memcpy(centers + (int64_t)g * d, m->rows + pick * d, bytes);
        m->moved[0] = g;
        m->n_moved = 1;
        if (g + 1 == m->k) break;
        float most = -kv_num_float(0x7F800000u);
        m->v->dots(&m->points, centers, m->moved, 1, m->dots, m->stride);
        pick = 0;
        for (int64_t i = 0; i < m->points.n; i++) {
            if (dots[i] > m->best[i]) m->best[i] = dots[i];
            const float distance = kv_codec_sub(1.0f, m->best[i]);
            if (distance > most) {
                most = distance;
                pick = i;
            }
        }
    }
}

/* m->now and m->dot; only centres that moved have other dots than before. */
static void assign(kmeans *m, const float *centers)
{
    m->v->dots(&m->points, centers, m->moved, m->n_moved, m->dots, m->stride);
    m->v->choose(m->dots, m->stride, m->points.n, m->k, m->now, m->dot);
}

/* Which clusters are others than those that their centres were made of. */
static void compare(kmeans *m, bool first)
{
    for (int32_t g = 0; g < m->k; g++) m->open[g] = first;
    for (int64_t i = 0; i < m->points.n; i++) {
        const float dot = m->dot[i];
        const float side = dot != dot ? dot : kv_num_float((kv_num_bits(dot) & 0x80000000u) | 0x3F800000u);
        if (m->now[i] != m->seg[i] || !(side == m->side[i])) m->open[m->now[i]] = m->open[m->seg[i]] = true;
        m->side[i] = side;
        m->seg[i] = m->now[i];
    }
}

/* New centres of the clusters that changed: the weighted sum of each, lines turned to the centre's side, at length 1. The
 * others would come out as they are: the same sums of the same rows. */
static void update(kmeans *m, float *centers, float *sums)
{
    const int32_t d = m->points.d;
    memset(m->mass, 0, (size_t)m->k * sizeof(float));
    memset(sums, 0, (size_t)m->k * (size_t)d * sizeof(float));
    for (int64_t i = 0; i < m->points.n; i++) {
        const uint32_t g = m->seg[i];
        if (!m->open[g]) continue;
        m->mass[g] = kv_num_add(m->mass[g], m->weight[i]);
        m->v->add(sums + (int64_t)g * d, m->rows + i * d, kv_num_mul(m->weight[i], m->side[i]), d);
    }
    m->n_moved = 0;
    for (int32_t g = 0; g < m->k; g++) {
        const float *sum = sums + (int64_t)g * d;
        float *center = centers + (int64_t)g * d;
        if (!(m->mass[g] > KV_CODEC_EPS)) continue; /* an empty one stays */
        m->moved[m->n_moved++] = g;
        const float length = kv_codec_sqrt(kv_codec_dot(sum, sum, d));
        for (int32_t a = 0; a < d; a++) center[a] = length > KV_CODEC_EPS ? kv_codec_div(sum[a], length) : sum[a];
    }
}

static int32_t iterate(kmeans *m, int32_t rounds, float *centers, float *sums)
{
    const size_t bytes = (size_t)m->points.n * sizeof *m->seg;
    memset(m->seg, 0, bytes);
    for (int32_t round = 0; round < rounds; round++) {
        assign(m, centers);
        if (memcmp(m->now, m->seg, bytes) == 0) return round;
        compare(m, round == 0);
        update(m, centers, sums);
    }
    return rounds;
}

kv_rc kv_codec_kmeans_on(const kv_codec_variant *v, const float *c, const float *weights, int64_t n, int32_t d_eff,
                         int32_t k, uint32_t seed, int32_t rounds, float *out, int32_t *k_eff, int32_t *rounds_used,
                         kv_err *err)
{
    kmeans m = {.v = v};
    float *sums = NULL;
    kv_rc rc;
    if (n < 1 || n > INT64_MAX / (64 * KV_CODEC_DIM_MAX) || d_eff < 1 || d_eff > KV_CODEC_DIM_MAX || k < 1 ||
        k > KV_CODEC_CENTERS_MAX || rounds < 0)
        return KV_FAIL(err, KV_EINVAL,
                       "k-means of %" PRId64 " rows of %" PRId32 ", %" PRId32 " centres, %" PRId32 " rounds", n, d_eff,
                       k, rounds);
    const int64_t count = count_rows(c, weights, n, d_eff), most = count > 1 ? count : 1;
    m.k = k < most ? k : (int32_t)most;
    KV_TRY(rc, out, take_room(&m, n, d_eff, m.k, err));
    sums = kv_alloc((size_t)m.k * (size_t)d_eff, sizeof *sums);
    if (sums == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for k-means");
        goto out;
    }
    make_points(&m, c, weights, n, d_eff);
    if (m.points.n < m.k) {
        rc = KV_FAIL(err, KV_EFORMAT, "k-means: %" PRId64 " rows have a direction, %" PRId32 " centres need one each",
                     m.points.n, m.k);
        goto out;
    }
    start(&m, seed, out);
    const int32_t used = iterate(&m, rounds, out, sums);
    *k_eff = m.k;
    if (rounds_used != NULL) *rounds_used = used;
out:
    kv_free(sums);
    give_room(&m);
    return rc;
}

kv_rc kv_codec_kmeans(const float *c, const float *weights, int64_t n, int32_t d_eff, int32_t k, uint32_t seed,
                      int32_t rounds, float *out, int32_t *k_eff, int32_t *rounds_used, kv_err *err)
{
    return kv_codec_kmeans_on(kv_codec_best(), c, weights, n, d_eff, k, seed, rounds, out, k_eff, rounds_used, err);
}
