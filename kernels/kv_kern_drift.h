/* How far one value moved in a conversion, for every device. */
#ifndef KV_KERN_DRIFT_H
#define KV_KERN_DRIFT_H

#include "kernels/kv_kern.h"
#include "kernels/kv_kern_num.h"

#include <math.h>

/* One element or many: the worst of each. */
typedef struct {
    int preserved; /* every value is the same number */
    int finite;    /* every value on both sides is finite and no source value is 0 */
    double worst;  /* largest |difference| / |source value| of the finite ones; >= 0, never NaN */
} kv_drift;

/* Source and moved value as f32 bits, added to *r. */
KV_HD void kv_drift_add(kv_drift *r, uint32_t from, uint32_t to)
{
    const double a = (double)kv_num_float(from), b = (double)kv_num_float(to);
    const double difference = b > a ? b - a : a - b, size = a < 0 ? -a : a;
    if ((from & 0x7F800000u) == 0x7F800000u || (to & 0x7F800000u) == 0x7F800000u || a == 0) {
        r->finite = 0;
        r->preserved = r->preserved && a == b;
        return;
    }
    if (a != b) r->preserved = 0;
    if (difference / size > r->worst) r->worst = difference / size;
}

/* As the table of operations tells it. */
static inline kv_drift_result kv_drift_told(const kv_drift *r)
{
    kv_drift_result told;
    told.preserved = r->preserved != 0;
    told.finite = r->finite != 0;
    told.worst_ppm = (int64_t)floor(r->worst * 1e6 + 0.5);
    return told;
}

#endif
