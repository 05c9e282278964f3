/* What every part of kvgrid bench measures with. */
#ifndef KV_BENCH_TIME_H
#define KV_BENCH_TIME_H

#include "base/kv_base.h"

double kv_bench_now(void); /* seconds of a clock that only goes forward */
/* Of n > 0 values, which it sorts. */
double kv_bench_median(double *v, int64_t n);

/* Pairs that were asked for: with figures, refused, and left out for another cause, which `other_cause` says. */
typedef struct {
    int64_t measured, refused, other;
    const char *other_cause; /* "have no tokens" */
} kv_bench_pairs;
/* One line on stderr, where `tell`, on how many were left out, if any. KV_EFORMAT where none was measured (nothing is told
 * then). */
kv_rc kv_bench_left_out(const kv_bench_pairs *p, bool tell, kv_err *err) KV_MUST_USE;

#endif
