/* kvgrid bench --codec --device: the codec's batches on a device, skeletons given, beside a device's own copy. */
#ifndef KV_BENCH_BATCH_H
#define KV_BENCH_BATCH_H

#include <jansson.h>

#include "kernels/kv_kern.h"

/* 4,096 blocks on a GPU (half as many, and so on, where they do not fit), few on an emulated device. Prints a line a task
 * (tell) or fills `list` (as_json). KV_ENOMEM, KV_EDEVICE. */
kv_rc kv_bench_batch(kv_device *dev, int64_t repeat, bool tell, bool as_json, json_t *list, kv_err *err) KV_MUST_USE;

#endif
