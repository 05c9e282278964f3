/* The parts of a row that only a codec cell has: as JSON and back, and as the list of numbers that the journal and the
 * packed form hold. */
#ifndef KV_ROW_CODEC_H
#define KV_ROW_CODEC_H

#include "grid/kv_row.h"

/* The proof of a codec row; NULL when memory is out. */
json_t *kv_row_codec_proof_new(const kv_campaign *c, const kv_row *r) KV_MUST_USE;
/* The inverse; false where something is not what kv_row_codec_proof_new writes. */
bool kv_row_codec_of_proof(const json_t *proof, kv_row *r);

/* The numbers of row->codec, in a fixed order; each at least kv_row_codec_least. */
#define KV_ROW_CODEC_NUMBERS 14
void kv_row_codec_numbers(const kv_row *r, int64_t out[KV_ROW_CODEC_NUMBERS]);
/* False where a number is out of range. */
bool kv_row_codec_set_numbers(kv_row *r, const int64_t in[KV_ROW_CODEC_NUMBERS]);
#define KV_ROW_CODEC_LEAST (-((int64_t)1 << 53))

#endif
