/* The decode error of our fit against theory: what PCA cannot keep plus the residual times the distortion of the
 * quantiser. */
#include "tests/kernels/codec/kv_test_blocks.h"

#include <math.h>

/* Mean squared error of a Lloyd-Max quantiser of 2^bits levels on a unit normal variable (Max, IRE Trans. Inf. Theory 6,
 * 1960, table I: 1, 2, 3, 4 bits). */
static const double lloyd_max[] = {1, 0.3634, 0.1175, 0.03454, 0.009497};
/* Margin on the squared error: none is needed. The table is for normal values; rotated residuals of one row have a fixed
 * length, so their tails are lighter, and that is worth more than fp16 of t, norm and skeleton costs. */
#define THEORY_MARGIN 1.0

/* Variance of the rows that PCA with d_eff directions cannot keep, from the eigenvalues in double precision. */
static double unkept(const float *x, int64_t n, int32_t dim, int32_t d_eff)
{
    kv_err err = {0};
    double *s = kvt_take(dim * dim, sizeof *s), *v = kvt_take(dim * dim, sizeof *v), *values = kvt_take(dim, sizeof *v);
    double *mean = kvt_take(dim, sizeof *mean), sum = 0;
    for (int64_t i = 0; i < n * dim; i++) mean[i % dim] += (double)x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        for (int32_t a = 0; a < dim; a++)
            for (int32_t b = 0; b <= a; b++)
                s[a * dim + b] += ((double)x[i * dim + a] - mean[a]) * ((double)x[i * dim + b] - mean[b]);
    kvt_ok(kv_codec_eigen_own(s, dim, values, v, &err), &err);
    for (int32_t i = d_eff; i < dim; i++) sum += values[i] > 0 ? values[i] : 0;
    free(s);
    free(v);
    free(values);
    free(mean);
    return sum;
}

static void check_theory(const char *name, const float *x, int64_t n, int32_t dim, int32_t d_eff, int32_t bits,
                         kv_codec_solver solver)
{
    kv_err err = {0};
    kv_codec_params p = kvt_codec_params(dim, d_eff, 16, bits);
    kv_codec_skeleton s = kvt_new_skeleton(&p);
    kv_codec_codes codes;
    kv_codec_work *w = NULL;
    float *back = kvt_take(n * dim, sizeof *back);
    const kv_codec_fit_opts o = kvt_fit_opts(solver, false);
    kvt_ok(kv_codec_fit(&p, &o, x, NULL, n, &s, NULL, &err), &err);
    kvt_ok(kv_codec_codes_new(&p, n, true, &codes, &err), &err);
    kvt_ok(kv_codec_work_new(&p, &s, &w, &err), &err);
    kv_codec_best()->encode(w, x, n, &codes);
    kv_codec_best()->decode(w, &codes, back);
    double residual = 0, lost = 0, all = 0;
    for (int64_t i = 0; i < n; i++) residual += (double)codes.res_norm[i] * (double)codes.res_norm[i];
    for (int64_t i = 0; i < n * dim; i++) {
        const double e = (double)back[i] - (double)x[i];
        lost += e * e;
        all += (double)x[i] * (double)x[i];
    }
    const double predicted = unkept(x, n, dim, d_eff) + residual * lloyd_max[bits];
    print_message("%-9s d_eff %3d, %d bits: relative error %.4f, predicted %.4f\n", name, (int)d_eff, (int)bits,
                  sqrt(lost / all), sqrt(predicted / all));
    if (!(lost <= THEORY_MARGIN * predicted)) fail_msg("%s: more than theory says", name);
    if (!(lost >= predicted / 4)) fail_msg("%s: the prediction says nothing: much too high", name);
    kv_codec_work_free(w);
    kv_codec_codes_free(&codes);
    kv_codec_skeleton_free(&s);
    free(back);
}

static void test_theory(void **state)
{
    (void)state;
    enum { D = 128, N = 512 };
    for (int b = 0; b < 4; b++) {
        static const char *const names[] = {"gaussian", "k like", "k like 2", "heavy"};
        float *x = b == 0   ? kvt_gaussian_block(N, D, 1, 71)
                   : b == 1 ? kvt_k_like_block(N, D, 4, 0.95, 0.3, 2, 72)
                   : b == 2 ? kvt_k_like_block(N, D, 20, 0.85, 0.5, 10, 73)
                            : kvt_heavy_block(N, D, 74);
        for (int bits = 1; bits <= 4; bits++)
            for (int32_t d_eff = 32; d_eff <= D; d_eff *= 2)
                check_theory(names[b], x, N, D, d_eff, bits, KV_CODEC_SOLVER_OWN);
        free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_theory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
