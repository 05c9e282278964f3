/* Our eigen-solver: residual, orthogonality, order and signs on random, degenerate, tiny and huge matrices; the same bits
 * whatever the instruction set, and the same as on every other machine: digests committed below.
 *
 * The digests are checked by this program with two other builds of the solver as well, where their compilers are there
 * (gcc -O0 and clang -O2), so that no compiler or level of optimisation changes a bit. */
#include "tests/kv_test.h"

#include <dlfcn.h>
#include <math.h>

#include "kernels/codec/kv_codec_fit.h"

typedef kv_rc (*solve_call)(const double *a, int32_t n, double *values, double *v, kv_err *err);

/* ---- matrices ------------------------------------------------------------------------------ */

static double unit(uint64_t *seed)
{
    return (double)(kvt_next(seed) >> 11) * 0x1p-52 - 1;
}

/* Powers of two only, so that the matrices are the same bits everywhere. */
static double power(int e)
{
    return ldexp(1, e);
}

typedef enum {
    ZERO,
    IDENTITY,
    DIAGONAL,
    RANK_ONE,
    RANDOM,
    LOW_RANK,
    REPEATED,
    GRADED,
    BLOCKS,
    ONES,
    ALTERNATING,
    ARROW,
    KINDS
} kind;
static const char *const kind_names[] = {"zero",     "identity", "diagonal", "rank one", "random",      "low rank",
                                         "repeated", "graded",   "blocks",   "ones",     "alternating", "arrow"};

/* a = sum over r < rank of weight^r u u' */
static void add_outer(double *a, int32_t n, int32_t rank, int step, uint64_t seed)
{
    double *u = kvt_take(n, sizeof *u);
    for (int32_t r = 0; r < rank; r++) {
        for (int32_t i = 0; i < n; i++) u[i] = unit(&seed);
        for (int32_t i = 0; i < n; i++)
            for (int32_t j = 0; j < n; j++) a[i * n + j] += power(-step * r) * (u[i] * u[j]);
    }
    free(u);
}

static double *make(kind k, int32_t n, int exponent)
{
    double *a = kvt_take((int64_t)n * n, sizeof *a);
    uint64_t seed = 77u + (uint64_t)n * 131u + (uint64_t)k;
    if (k == RANK_ONE) add_outer(a, n, 1, 0, seed);
    if (k == LOW_RANK) add_outer(a, n, n / 4 + 1, 1, seed);
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j <= i; j++) {
            double x = a[i * n + j];
            if (k == IDENTITY) x = i == j;
            if (k == DIAGONAL) x = i == j ? unit(&seed) : 0;
            if (k == RANDOM) x = unit(&seed);
            if (k == REPEATED) x = (i == j) + (i / 4 == j / 4 ? 1 : 0);
            if (k == GRADED) x = power(-(i + j) / 4) * (i == j ? 2 : unit(&seed));
            if (k == BLOCKS) x = i / 3 == j / 3 ? unit(&seed) : 0;
            if (k == ONES) x = 1;
            if (k == ALTERNATING) x = (i + j) % 2 == 0 ? 1 : -1;
            if (k == ARROW) x = j == 0 || i == n - 1 ? unit(&seed) : i == j ? i : 0;
            a[i * n + j] = a[j * n + i] = x * power(exponent);
        }
    return a;
}

/* ---- what must hold ------------------------------------------------------------------------ */

static double norm_of(const double *a, int32_t n)
{
    double most = 0;
    for (int32_t i = 0; i < n; i++) {
        double sum = 0;
        for (int32_t j = 0; j < n; j++) sum += fabs(a[i * n + j]);
        if (sum > most) most = sum;
    }
    return most;
}

/* The largest entry of A v - lambda v over all pairs, over the norm. */
static double residual_of(const double *a, int32_t n, const double *values, const double *v, double norm)
{
    double most = 0;
    for (int32_t p = 0; p < n; p++)
        for (int32_t i = 0; i < n; i++) {
            double sum = -(values[p] / norm) * v[p * n + i];
            for (int32_t j = 0; j < n; j++) sum += (a[i * n + j] / norm) * v[p * n + j];
            if (!(fabs(sum) <= most)) most = fabs(sum);
        }
    return most;
}

static double orthogonality_of(const double *v, int32_t n)
{
    double most = 0;
    for (int32_t p = 0; p < n; p++)
        for (int32_t q = 0; q <= p; q++) {
            double sum = p == q ? -1 : 0;
            for (int32_t j = 0; j < n; j++) sum += v[p * n + j] * v[q * n + j];
            if (!(fabs(sum) <= most)) most = fabs(sum);
        }
    return most;
}

static void check_sign(const double *v, int32_t n)
{
    int32_t top = 0;
    for (int32_t i = 0; i < n; i++)
        if (fabs(v[i]) > fabs(v[top])) top = i;
    assert_true(v[top] > 0);
}

static void check_one(kind k, int32_t n, int exponent)
{
    kv_err err = {0};
    double *a = make(k, n, exponent), *values = kvt_take(n, sizeof *values), *v = kvt_take((int64_t)n * n, sizeof *v);
    kvt_ok(kv_codec_eigen_own(a, n, values, v, &err), &err);
    const double norm = norm_of(a, n), least = 16 * 0x1p-53 * sqrt(n);
    const double residual = norm > 0 ? residual_of(a, n, values, v, norm) : 0, off = orthogonality_of(v, n);
    if (!(residual <= least) || !(off <= 4 * least))
        fail_msg("%s, n %d, 2^%d: residual %g, orthogonality %g, at most %g", kind_names[k], (int)n, exponent, residual,
                 off, least);
    for (int32_t i = 0; i < n; i++) {
        if (norm == 0) assert_true(values[i] == 0);
        if (i > 0 && values[i] > values[i - 1]) fail_msg("%s, n %d: value %d rises", kind_names[k], (int)n, (int)i);
        check_sign(v + (int64_t)i * n, n);
    }
    free(a);
    free(values);
    free(v);
}

static void test_holds(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 2, 3, 4, 7, 8, 9, 16, 31, 64, 128, 200, 256};
    for (size_t s = 0; s < KVT_COUNT(sizes); s++)
        for (kind k = ZERO; k < KINDS; k++) check_one(k, sizes[s], 0);
}

/* About 1e-30 and 1e30, and the ends of the range of doubles. */
static void test_tiny_and_huge(void **state)
{
    (void)state;
    static const int exponents[] = {-100, 100, -1000, 1000, -1060};
    for (size_t e = 0; e < KVT_COUNT(exponents) - 1; e++)
        for (kind k = ZERO; k < KINDS; k++) check_one(k, 33, exponents[e]);
    for (kind k = IDENTITY; k <= IDENTITY; k++) check_one(k, 9, exponents[4]); /* subnormal */
}

static void test_known_values(void **state)
{
    (void)state;
    kv_err err = {0};
    const double a[9] = {2, 9, 9, 1, 2, 9, 0, 1, 2}; /* the upper triangle is not read; eigenvalues 2 +- sqrt 2, 2 */
    double values[3], v[9];
    kvt_ok(kv_codec_eigen_own(a, 3, values, v, &err), &err);
    const double want[3] = {2 + sqrt(2), 2, 2 - sqrt(2)};
    for (int i = 0; i < 3; i++) assert_true(fabs(values[i] - want[i]) < 1e-15 * 4);
    assert_true(fabs(v[1] - sqrt(0.5)) < 1e-15 && fabs(v[0] - 0.5) < 1e-15);
    assert_true(fabs(v[4]) < 1e-15 && fabs(fabs(v[3]) - sqrt(0.5)) < 1e-15);
}

/* Equal values come out in the order of the unit vectors. */
static void test_stable(void **state)
{
    (void)state;
    kv_err err = {0};
    double *a = make(IDENTITY, 12, 0), values[12], v[144];
    kvt_ok(kv_codec_eigen_own(a, 12, values, v, &err), &err);
    for (int i = 0; i < 144; i++) assert_true(v[i] == (i % 13 == 0));
    free(a);
}

static void test_refuses(void **state)
{
    (void)state;
    kv_err err = {0};
    double a[9] = {1, 0, 0, 0, 1, 0, 0, INFINITY, 1}, values[3], v[9];
    kvt_refused(kv_codec_eigen_own(a, 3, values, v, &err), KV_EFORMAT, &err, "inf", KVT_SAYS("(2, 1)", "not finite"));
    a[7] = NAN;
    kvt_refused(kv_codec_eigen_own(a, 3, values, v, &err), KV_EFORMAT, &err, "nan", KVT_SAYS("(2, 1)"));
    kvt_refused(kv_codec_eigen_own(a, 0, values, v, &err), KV_EINVAL, &err, "0 rows", KVT_SAYS("0 rows"));
    kvt_refused(kv_codec_eigen_own(a, KV_CODEC_DIM_MAX + 1, values, v, &err), KV_EINVAL, &err, "1025",
                KVT_SAYS("1025"));
    for (long n = 0; n < 3; n++) {
        kv_alloc_fail_after(n);
        a[7] = 0;
        kvt_refused(kv_codec_eigen_own(a, 3, values, v, &err), KV_ENOMEM, &err, "memory", KVT_SAYS("3 x 3"));
        kv_alloc_fail_after(-1);
    }
}

/* ---- the same bits ------------------------------------------------------------------------- */

static const struct {
    kind k;
    int32_t n;
    uint64_t digest;
} golden[] = {
    {RANDOM, 5, 0x47D9891400728E39u},    {RANDOM, 64, 0x173339C846F5BF0Au},    {RANDOM, 128, 0xB9584CE1679DB10Eu},
    {RANDOM, 200, 0xB0728C6C5ACA86BCu},  {LOW_RANK, 128, 0x75B5FD873E7678D2u}, {REPEATED, 63, 0x1D7EC1241259A20Cu},
    {GRADED, 128, 0xDBB43233B541D3A9u},  {BLOCKS, 97, 0x810C1F8AEF245875u},    {ONES, 32, 0x8496D8A3BCE9ADDDu},
    {ARROW, 80, 0x9C45F49B31487BD7u},    {RANK_ONE, 96, 0x772A7707A0C8DFF5u},  {DIAGONAL, 33, 0x815950FD590E3FDAu},
    {IDENTITY, 16, 0x8FD1F4EFA90A0B25u}, {ALTERNATING, 9, 0xD010E87C8C3B71B5u}};

static uint64_t fnv(uint64_t h, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        for (int b = 0; b < 64; b += 8) h = (h ^ (bits >> b & 0xFF)) * 0x100000001B3u;
    }
    return h;
}

static uint64_t digest_of(solve_call solve, kind k, int32_t n)
{
    kv_err err = {0};
    double *a = make(k, n, 0), *values = kvt_take(n, sizeof *values), *v = kvt_take((int64_t)n * n, sizeof *v);
    kvt_ok(solve(a, n, values, v, &err), &err);
    const uint64_t h = fnv(fnv(0xCBF29CE484222325u, values, n), v, (int64_t)n * n);
    free(a);
    free(values);
    free(v);
    return h;
}

static void check_golden(solve_call solve, const char *what)
{
    int bad = 0;
    for (size_t i = 0; i < KVT_COUNT(golden); i++) {
        const uint64_t got = digest_of(solve, golden[i].k, golden[i].n);
        if (got == golden[i].digest) continue;
        print_error("%s: %s, n %d: 0x%016" PRIx64 "u\n", what, kind_names[golden[i].k], (int)golden[i].n, got);
        bad++;
    }
    if (bad > 0) fail_msg("%s: %d digests differ", what, bad);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const variants[] = {"reference", "avx2", "avx512"};
    for (size_t i = 0; i < KVT_COUNT(variants); i++) {
        assert_int_equal(setenv("KVGRID_CODEC_VARIANT", variants[i], 1), 0);
        check_golden(kv_codec_eigen_own, variants[i]);
    }
    (void)unsetenv("KVGRID_CODEC_VARIANT");
    check_golden(kv_codec_eigen_own, "as it comes");
}

/* Builds the solver with another compiler into a library of its own and asks that. */
static void test_other_compilers(void **state)
{
    (void)state;
    static const char *const compilers[] = {"gcc -O0", "gcc -O3 -march=native", "clang -O2", "clang -O0"};
    char folder[128], command[1024];
    int seen = 0;
    kvt_folder(folder);
    char *lib = kvt_path(folder, "eigen.so");
    for (size_t i = 0; i < KVT_COUNT(compilers); i++) {
        snprintf(command, sizeof command,
                 "%s -std=c17 -ffp-contract=off -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -fPIC -shared "
                 "-Wl,-Bsymbolic -I%s "
                 "%s/kernels/codec/kv_codec_eigen.c %s/kernels/codec/kv_codec_fit_loops.c %s/base/kv_alloc.c "
                 "%s/base/kv_err.c %s/base/kv_text.c -lm -o %s 2>/dev/null",
                 compilers[i], KV_SOURCE_DIR, KV_SOURCE_DIR, KV_SOURCE_DIR, KV_SOURCE_DIR, KV_SOURCE_DIR, KV_SOURCE_DIR,
                 lib);
        if (system(command) != 0) {
            print_message("not built: %s\n", compilers[i]);
            continue;
        }
        void *handle = dlopen(lib, RTLD_NOW | RTLD_LOCAL), *f = NULL;
        if (handle != NULL) f = dlsym(handle, "kv_codec_eigen_own");
        if (f == NULL) fail_msg("%s: %s", compilers[i], dlerror());
        solve_call solve = NULL;
        memcpy(&solve, &f, sizeof solve);
        assert_true(solve != kv_codec_eigen_own);
        check_golden(solve, compilers[i]);
        (void)dlclose(handle);
        (void)unlink(lib);
        seen++;
    }
    (void)rmdir(folder);
    free(lib);
    if (seen == 0) skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holds),           cmocka_unit_test(test_tiny_and_huge),
        cmocka_unit_test(test_known_values),    cmocka_unit_test(test_stable),
        cmocka_unit_test(test_refuses),         cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_other_compilers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
