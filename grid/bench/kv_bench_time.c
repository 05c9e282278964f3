#include "grid/bench/kv_bench_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

double kv_bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double kv_bench_median(double *v, int64_t n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

kv_rc kv_bench_left_out(const kv_bench_pairs *p, bool tell, kv_err *err)
{
    const int64_t left = p->refused + p->other, all = left + p->measured;
    char other[64] = "";
    if (p->other > 0) snprintf(other, sizeof other, ", %" PRId64 " %s", p->other, p->other_cause);
    if (p->measured == 0)
        return KV_FAIL(err, KV_EFORMAT,
                       "nothing to measure: of %" PRId64 " pairs %" PRId64
                       " are left out as refused%s; kvgrid explain SRC DST says why",
                       all, p->refused, other);
    if (left > 0 && tell)
        fprintf(stderr, "kvgrid: of %" PRId64 " pairs %" PRId64 " are left out as refused%s\n", all, p->refused, other);
    return KV_OK;
}
