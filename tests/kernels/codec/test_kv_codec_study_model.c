/* The study's model: its formulas against libm, its forward pass against a plain one without a cache, its scores
 * against double arithmetic of libm, and memory that runs out. */
#include "kernels/codec/kv_codec_study_int.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const kv_codec_study_params shape = {
    .seed = 3, .layers = 2, .kv_heads = 2, .head_dim = 20, .passages = 2, .prefix = 37, .evaluated = 9};
enum { E = KV_STUDY_E, VOCAB = KV_CODEC_STUDY_VOCAB };

static kv_codec_study *make(const kv_codec_study_params *p)
{
    kv_codec_study *s = NULL;
    kv_err err = {0};
    if (kv_codec_study_new(p, &s, &err) != KV_OK) fail_msg("%s", err.text);
    return s;
}

/* ---- formulas --------------------------------------------------------------------------- */

static void exponentials_and_logarithms(void **state)
{
    (void)state;
    for (int i = -69900; i <= 69900; i++) {
        const double x = (double)i * 0.01 + 0.0033, want = exp(x);
        assert_true(fabs(kv_study_exp(x) - want) <= want * 0x1p-51);
    }
    for (int i = 1; i < 40000; i++) {
        const double x = (double)i * 0.0101, tiny = ldexp(x, -600);
        assert_true(fabs(kv_study_log(x) - log(x)) <= (fabs(log(x)) + 1) * 0x1p-51);
        assert_true(fabs(kv_study_log(tiny) - log(tiny)) <= fabs(log(tiny)) * 0x1p-51);
    }
    assert_true(kv_study_exp(0.0) == 1.0 && kv_study_log(1.0) == 0.0);
    assert_true(kv_study_exp(-701.0) == 0.0 && isinf(kv_study_exp(701.0)) && isnan(kv_study_exp((double)NAN)));
}

static void angles(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        const double x = i < 100000 ? (double)i * 0.000123 : (double)(i - 100000) * 1.3;
        double s, c;
        kv_study_sincos(x, &s, &c);
        assert_true(fabs(s - sin(x)) < 2e-15 && fabs(c - cos(x)) < 2e-15);
    }
}

static void noise_is_white(void **state)
{
    (void)state;
    enum { N = 100000 };
    double mean = 0, square = 0, next = 0, last = 0;
    for (uint32_t i = 0; i < N; i++) {
        const double x = kv_study_white(12345u, i);
        assert_true(fabs(x) < 4);
        mean += x / N;
        square += x * x / N;
        next += x * last / N;
        last = x;
    }
    assert_true(fabs(mean) < 0.02 && fabs(square - 1) < 0.02 && fabs(next) < 0.02);
    assert_true(kv_study_uniform(UINT64_MAX) < 1.0 && kv_study_uniform(0) == 0.0);
}

/* ---- the forward pass ------------------------------------------------------------------- */

/* All positions of a passage at once, keys and values of this layer as rows [T][H][D]. */
typedef struct {
    const kv_codec_study *s;
    int64_t tokens;
    float *x, *k, *v; /* [T][E], [T][H][D] */
} plain;

/* y[r] = sum over i of w[i][r] * x[i], rows `stride` apart. */
static float plain_column(const float *w, int64_t stride, int64_t r, const float *x, int64_t n)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const float product = w[i * stride + r] * x[i];
        sum = sum + product;
    }
    return sum;
}

static float plain_lanes(const float *x, int64_t n)
{
    float l[8] = {0};
    for (int64_t i = 0; i < n; i++) l[i % 8] = l[i % 8] + x[i];
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

static void plain_norm(const float *x, float *out)
{
    float square[E];
    for (int e = 0; e < E; e++) square[e] = x[e] * x[e];
    const float mean = plain_lanes(square, E) / (float)E;
    const float scale = 1.0f / sqrtf(mean + 0x1p-20f);
    for (int e = 0; e < E; e++) out[e] = x[e] * scale;
}

static void plain_rope(const plain *m, int64_t t, float *row)
{
    const int64_t half = m->s->p.head_dim / 2;
    for (int64_t j = 0; j < half; j++) {
        const double frequency = kv_study_exp(-9.210340371976182736 * (double)(2 * j) / (double)m->s->p.head_dim);
        double sine, cosine;
        kv_study_sincos((double)t * frequency, &sine, &cosine);
        const float low = row[j], high = row[j + half], c = (float)cosine, s = (float)sine;
        const float lc = low * c, hs = high * s, hc = high * c, ls = low * s;
        row[j] = lc - hs;
        row[j + half] = hc + ls;
    }
}

static float *row_of(const plain *m, float *rows, int64_t t, int64_t h)
{
    return rows + (t * m->s->p.kv_heads + h) * m->s->p.head_dim;
}

static void plain_keys(const plain *m, const kv_study_layer *l)
{
    const int64_t dim = m->s->p.head_dim, kv = m->s->p.kv_heads * m->s->d_pad;
    for (int64_t t = 0; t < m->tokens; t++)
        for (int64_t h = 0; h < m->s->p.kv_heads; h++) {
            float n[E], *k = row_of(m, m->k, t, h), *v = row_of(m, m->v, t, h);
            plain_norm(m->x + t * E, n);
            for (int64_t d = 0; d < dim; d++) {
                const int64_t r = h * m->s->d_pad + d;
                k[d] = plain_column(l->wk, kv, r, n, E) + l->k_bias[r];
                v[d] = kv_study_bf16(plain_column(l->wv, kv, r, n, E));
            }
            plain_rope(m, t, k);
            for (int64_t d = 0; d < dim; d++) k[d] = kv_study_bf16(k[d]);
        }
}

/* What query head g of token t reads. */
static void plain_attend(const plain *m, const kv_study_layer *l, const float *n, int64_t t, int64_t g, float *o)
{
    const int64_t dim = m->s->p.head_dim, all = 2 * m->s->p.kv_heads * m->s->d_pad;
    float q[64], w[64], most = -INFINITY;
    for (int64_t d = 0; d < dim; d++)
        q[d] = plain_column(l->wq, all, g * m->s->d_pad + d, n, E) + l->q_bias[g * m->s->d_pad + d];
    plain_rope(m, t, q);
    for (int64_t i = 0; i <= t; i++) {
        w[i] = plain_column(row_of(m, m->k, i, g / 2), 1, 0, q, dim) * kv_token_scale(dim);
        if (w[i] > most) most = w[i];
    }
    for (int64_t i = 0; i <= t; i++) w[i] = kv_token_exp(w[i] - most);
    for (int64_t d = 0; d < dim; d++)
        o[d] = plain_column(row_of(m, m->v, 0, g / 2), m->s->p.kv_heads * dim, d, w, t + 1) / plain_lanes(w, t + 1);
}

static void plain_layer(const plain *m, const kv_study_layer *l)
{
    const int64_t dim = m->s->p.head_dim, heads = 2 * m->s->p.kv_heads;
    plain_keys(m, l);
    for (int64_t t = 0; t < m->tokens; t++) {
        float n[E], h[E], *x = m->x + t * E, o[4 * 32] = {0};
        plain_norm(x, n);
        for (int64_t g = 0; g < heads; g++) plain_attend(m, l, n, t, g, o + g * m->s->d_pad);
        for (int64_t e = 0; e < E; e++) {
            float sum = 0.0f;
            for (int64_t g = 0; g < heads; g++)
                for (int64_t d = 0; d < dim; d++) {
                    const float product = l->wo[(g * m->s->d_pad + d) * E + e] * o[g * m->s->d_pad + d];
                    sum = sum + product;
                }
            h[e] = sum;
        }
        for (int64_t e = 0; e < E; e++) x[e] = x[e] + h[e];
        plain_norm(x, n);
        for (int64_t e = 0; e < E; e++) h[e] = plain_column(l->mlp_in, E, e, n, E);
        for (int64_t e = 0; e < E; e++) h[e] = h[e] > 0.0f ? h[e] : 0.0f;
        for (int64_t e = 0; e < E; e++) x[e] = x[e] + plain_column(l->mlp_out, E, e, h, E);
    }
}

static void the_plain_model_gives_the_same_bits(void **state)
{
    (void)state;
    kv_codec_study *s = make(&shape);
    const int64_t rows = s->tokens * s->p.kv_heads * s->p.head_dim;
    plain m = {s, s->tokens, calloc((size_t)s->tokens * E, sizeof(float)), calloc((size_t)rows, sizeof(float)),
               calloc((size_t)rows, sizeof(float))};
    for (int32_t p = 0; p < shape.passages; p++) {
        const uint8_t *text = kv_codec_study_tokens(s, p);
        for (int64_t t = 0; t < m.tokens; t++)
            for (int64_t e = 0; e < E; e++)
                m.x[t * E + e] = s->model.embed[text[t] * E + e] + s->model.position[t * E + e];
        for (int32_t l = 0; l < shape.layers; l++) plain_layer(&m, &s->model.layer[l]);
        for (int64_t t = shape.prefix; t < m.tokens; t++) {
            float n[E];
            plain_norm(m.x + t * E, n);
            for (int64_t v = 0; v < VOCAB; v++) {
                const float want = plain_column(s->model.unembed, VOCAB, v, n, E);
                const float have = s->base_logits[((p * shape.evaluated) + t - shape.prefix) * VOCAB + v];
                assert_int_equal(kv_num_bits(have), kv_num_bits(want));
            }
        }
    }
    free(m.x);
    free(m.k);
    free(m.v);
    kv_codec_study_free(s);
}

/* The next token is the inverse CDF of the model's probabilities at the hash's number. */
static void passages_are_drawn_from_the_model(void **state)
{
    (void)state;
    kv_codec_study *s = make(&shape);
    for (int32_t p = 0; p < shape.passages; p++)
        for (int32_t i = 0; i < shape.evaluated; i++) {
            const float *l = s->base_logits + (p * shape.evaluated + i) * VOCAB;
            const uint64_t at = (uint64_t)(shape.prefix + i);
            const double u = kv_study_uniform(kv_study_key(shape.seed, (uint64_t)p, KV_STUDY_SAMPLE, at));
            const uint8_t next = kv_codec_study_tokens(s, p)[at + 1];
            double total = 0, below = 0;
            for (int v = 0; v < VOCAB; v++) total += exp((double)l[v]);
            for (int v = 0; v < next; v++) below += exp((double)l[v]);
            assert_true(below / total <= u + 1e-12);
            assert_true((below + exp((double)l[next])) / total > u - 1e-12);
        }
    kv_codec_study_free(s);
}

/* ---- scores ----------------------------------------------------------------------------- */

static void scores_are_those_of_libm(void **state)
{
    (void)state;
    kv_codec_study *s = make(&shape);
    for (int64_t i = 0; i < (int64_t)shape.passages * shape.evaluated * VOCAB; i++)
        s->logits[i] = s->base_logits[i] + 0.3f * (float)(i % 7) - 0.1f * (float)(i % 11);
    kv_codec_study_result r = {0};
    kv_study_score_all(s, &r);
    for (int32_t p = 0; p < shape.passages; p++) {
        double nll[2] = {0, 0}, kl = 0;
        for (int64_t t = 0; t < shape.evaluated; t++) {
            const float *a = s->base_logits + (p * shape.evaluated + t) * VOCAB;
            const float *b = s->logits + (p * shape.evaluated + t) * VOCAB;
            const uint8_t next = kv_codec_study_tokens(s, p)[shape.prefix + t + 1];
            double za = 0, zb = 0;
            for (int v = 0; v < VOCAB; v++) za += exp((double)a[v]), zb += exp((double)b[v]);
            for (int v = 0; v < VOCAB; v++)
                kl += exp((double)a[v]) / za * ((double)a[v] - log(za) - (double)b[v] + log(zb)) / shape.evaluated;
            nll[0] += (log(za) - (double)a[next]) / shape.evaluated;
            nll[1] += (log(zb) - (double)b[next]) / shape.evaluated;
        }
        assert_true(fabs((double)r.passage[p].kl_nano - kl * 1e9) < 2);
        assert_true(fabs((double)r.passage[p].nll_nano - nll[1] * 1e9) < 2);
        assert_true(fabs((double)r.passage[p].ppl_change_ppm - (exp(nll[1] - nll[0]) - 1) * 1e6) < 1);
    }
    kv_codec_study_free(s);
}

static void logits_that_are_not_finite_are_no_score(void **state)
{
    (void)state;
    kv_codec_study *s = make(&shape);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        kv_codec_study_result r = {0};
        memcpy(s->logits, s->base_logits, sizeof(float) * 2 * 9 * VOCAB);
        s->logits[9 * VOCAB + 5] = bad[i];
        kv_study_score_all(s, &r);
        assert_true(r.passage[0].finite && !r.passage[1].finite && !r.mean.finite);
        assert_int_equal(r.mean.kl_nano, 0);
        assert_int_equal(r.verdict, KV_CODEC_STUDY_REJECT);
        assert_true(r.base_nll_nano > 0);
        assert_false(kv_codec_study_additivity(&r, &r, &r).finite);
    }
    kv_codec_study_free(s);
}

/* ---- cells against each other ----------------------------------------------------------- */

static kv_codec_study_result run(kv_codec_study *s, int32_t recipe, const char *cell)
{
    const kv_codec_study_how how = {.recipe = recipe, .block_rows = 32};
    kv_codec_study_result r;
    kv_err err = {0};
    if (kv_codec_study_run(s, &how, cell, &r, &err) != KV_OK) fail_msg("%s", err.text);
    return r;
}

/* Whether two cells of two recipes give the same logits. */
static bool alike(kv_codec_study *s, int32_t a, const char *cell_a, int32_t b, const char *cell_b)
{
    float first[2 * 9 * VOCAB];
    (void)run(s, a, cell_a);
    memcpy(first, s->logits, sizeof first);
    (void)run(s, b, cell_b);
    return memcmp(first, s->logits, sizeof first) == 0;
}

static void cells_are_what_their_names_say(void **state)
{
    (void)state;
    kv_codec_study_params p = shape;
    p.head_dim = 32;
    p.prefix = 70;
    kv_codec_study *s = make(&p);
    const int32_t ours = KV_CODEC_KV1, serving = KV_CODEC_PUBLISHED_SERVING, harness = KV_CODEC_PUBLISHED_HARNESS;
    /* ours and the harness take K before RoPE, whitened there; serving after, with the factors from before */
    assert_true(alike(s, ours, "k", ours, "k-whiten-before"));
    assert_true(alike(s, harness, "k", harness, "k-whiten-before"));
    assert_false(alike(s, serving, "k", serving, "k-whiten-before"));
    assert_false(alike(s, serving, "k", serving, "k-whiten-after"));
    assert_false(alike(s, ours, "k", ours, "k-whiten-after"));
    assert_false(alike(s, ours, "k", ours, "k-no-whitening"));
    /* two blocks of a head with one basis, or one each */
    assert_false(alike(s, ours, "v", KV_CODEC_KV1_SHARED, "v"));
    const kv_codec_study_result v = run(s, ours, "v"), more = run(s, ours, "v-outliers");
    assert_true(more.damage[KV_CODEC_V].error_ppm < v.damage[KV_CODEC_V].error_ppm);
    assert_int_equal(more.damage[KV_CODEC_V].rows, v.damage[KV_CODEC_V].rows);
    kv_codec_study_free(s);
}

/* ---- memory ----------------------------------------------------------------------------- */

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    const kv_codec_study_params p = {
        .seed = 3, .layers = 1, .kv_heads = 1, .head_dim = 16, .passages = 1, .prefix = 40, .evaluated = 2};
    const kv_codec_study_how how = {.recipe = KV_CODEC_KV1, .block_rows = 32};
    kv_codec_study *s = NULL;
    kv_codec_study_result r;
    kv_rc rc = KV_ENOMEM;
    long n = 0;
    for (; rc != KV_OK && n < 1000; n++) {
        kv_err err = {0};
        kv_alloc_fail_after(n);
        rc = kv_codec_study_new(&p, &s, &err);
        kv_alloc_fail_after(-1);
        assert_true(rc == KV_OK || (rc == KV_ENOMEM && err.rc == KV_ENOMEM && s == NULL));
    }
    assert_true(rc == KV_OK && n > 10);
    for (n = 0, rc = KV_ENOMEM; rc != KV_OK && n < 1000; n++) {
        kv_err err = {0};
        kv_alloc_fail_after(n);
        rc = kv_codec_study_run(s, &how, "kv", &r, &err);
        kv_alloc_fail_after(-1);
        assert_true(rc == KV_OK || (rc == KV_ENOMEM && err.rc == KV_ENOMEM));
    }
    assert_true(rc == KV_OK && n > 5);
    kv_codec_study_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponentials_and_logarithms),
        cmocka_unit_test(angles),
        cmocka_unit_test(noise_is_white),
        cmocka_unit_test(the_plain_model_gives_the_same_bits),
        cmocka_unit_test(passages_are_drawn_from_the_model),
        cmocka_unit_test(scores_are_those_of_libm),
        cmocka_unit_test(logits_that_are_not_finite_are_no_score),
        cmocka_unit_test(cells_are_what_their_names_say),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
