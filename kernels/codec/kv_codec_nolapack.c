/* codec fit: the twin of kv_codec_lapack.c for KV_WITH_LAPACK=OFF. */
#include "kernels/codec/kv_codec_fit_part.h"

bool kv_codec_has_lapack(void)
{
    return false;
}

const char *kv_codec_lapack_name(void)
{
    return "this build has no LAPACKE (KV_WITH_LAPACK=OFF)";
}

kv_rc kv_fit_lapack(float *a, int32_t n, float *values, double *v, kv_err *err)
{
    (void)a, (void)n, (void)values, (void)v;
    return KV_FAIL(err, KV_EUNSUP, "%s", kv_codec_lapack_name());
}
