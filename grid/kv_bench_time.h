/* What every part of kvgrid bench measures with. */
#ifndef KV_BENCH_TIME_H
#define KV_BENCH_TIME_H

#include <stdint.h>

double kv_bench_now(void); /* seconds of a clock that only goes forward */
/* Of n > 0 values, which it sorts. */
double kv_bench_median(double *v, int64_t n);

#endif
