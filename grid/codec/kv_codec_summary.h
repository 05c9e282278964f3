/* What the codec rows of a certificate say when they are laid side by side. */
#ifndef KV_CODEC_SUMMARY_H
#define KV_CODEC_SUMMARY_H

#include <jansson.h>

#include "grid/report/kv_view.h"

/* {"codec":[...],"attribution":[...]}:
 * codec: one entry a row, with the bytes that a row of one head takes, its error, and `best_other`: of the ways without
 *   a skeleton (fp8, int4-token, rotation) for the same geometry, payload and stream that take no more bytes, the one
 *   with the smallest error; `wins` says whether the row's error is smaller, null where there is nothing to compare.
 * attribution: one entry for each geometry, recipe and cell: means over the seeds (null where one of them has no finite
 *   number), the worst `accept`; in cell kv also the gap between its effect and the sum of k and v.
 * Rows that did not run are left out. KV_EFORMAT where the certificate holds no such row. */
kv_rc kv_codec_summary_new(kv_reader *r, json_t **out, kv_err *err) KV_MUST_USE;

/* The same for people. */
void kv_codec_summary_print(const json_t *table);

#endif
