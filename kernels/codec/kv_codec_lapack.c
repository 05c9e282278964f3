/* codec fit: the one file that knows LAPACKE. It is loaded at the first call: linking it would load OpenBLAS, and start
 * its threads, with every command (measured: 3 ms of a 5 ms `kvgrid explain`). Built unless KV_WITH_LAPACK=OFF. */
#include "kernels/codec/kv_codec_fit_part.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* As lapacke.h of LAPACK 3.11 declares it with 32-bit integers (LP64, what the sonames below hold). */
enum { LAPACKE_COL_MAJOR = 102 };
typedef int (*ssyevd_call)(int layout, char job, char triangle, int32_t n, float *a, int32_t ld, float *w);
typedef void (*threads_call)(int n);

/* Debian and Ubuntu split LAPACKE off; other distributions have it inside OpenBLAS. */
static const char *const names[] = {"liblapacke.so.3", "libopenblas.so.0"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ssyevd_call ssyevd;
static const char *name = "LAPACKE not found (liblapacke.so.3, libopenblas.so.0)";

/* OpenBLAS's name for a CPU with these instructions, or NULL. By itself it goes by the model's number, and for a model newer
 * than its release takes kernels of 2004 (0.3.21 on a CPU of 2023: a full store takes 2.06 ms instead of 1.69). */
static const char *core(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd"))
        return "SKYLAKEX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "HASWELL";
#endif
    return NULL;
}

/* Sets what the user has not set; true where it must be taken back. */
static bool lend(const char *variable, const char *value)
{
    return value != NULL && getenv(variable) == NULL && setenv(variable, value, 0) == 0;
}

static void load(void)
{
    /* A thread pool would only wait: matrices are small, and a rank has one core. */
    static const char limit[] = "OPENBLAS_NUM_THREADS", kind[] = "OPENBLAS_CORETYPE";
    const bool ours = lend(limit, "1"), our_kind = lend(kind, core());
    for (size_t i = 0; i < sizeof names / sizeof names[0] && ssyevd == NULL; i++) {
        void *lib = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
        if (lib == NULL) continue;
        void *f = dlsym(lib, "LAPACKE_ssyevd"), *threads = dlsym(lib, "openblas_set_num_threads");
        if (f == NULL) {
            (void)dlclose(lib);
            continue;
        }
        memcpy(&ssyevd, &f, sizeof ssyevd); /* POSIX: a pointer to data may hold one to a function */
        threads_call set = NULL;
        memcpy(&set, &threads, sizeof set);
        if (set != NULL) set(1);
        name = names[i];
    }
    if (ours) (void)unsetenv(limit);
    if (our_kind) (void)unsetenv(kind);
}

bool kv_codec_has_lapack(void)
{
    return pthread_once(&once, load) == 0 && ssyevd != NULL;
}

const char *kv_codec_lapack_name(void)
{
    (void)kv_codec_has_lapack();
    return name;
}

/* ssyevd was the fastest of ssyev, ssyevr, ssyevd, dsyevr, dsyevd at n = 128 on one core. It works in float32, as the
 * covariance it is given. */
kv_rc kv_fit_lapack(float *a, int32_t n, float *values, double *v, kv_err *err)
{
    if (!kv_codec_has_lapack()) return KV_FAIL(err, KV_EUNSUP, "%s", name);
    float *ascending = kv_alloc((size_t)n, sizeof *ascending);
    if (ascending == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %d eigenvalues", (int)n);
    const int info = ssyevd(LAPACKE_COL_MAJOR, 'V', 'L', n, a, n, ascending);
    for (int32_t i = 0; i < n && info == 0; i++) {
        const float *from = a + (int64_t)(n - 1 - i) * n; /* ascending columns become descending rows */
        values[i] = ascending[n - 1 - i];
        for (int32_t j = 0; j < n; j++) v[(int64_t)i * n + j] = (double)from[j];
        kv_codec_eigen_sign(v + (int64_t)i * n, n);
    }
    kv_free(ascending);
    if (info != 0) return KV_FAIL(err, KV_EUNSUP, "LAPACKE_ssyevd: info %d", info);
    return KV_OK;
}
