/* The proofs of codec and attribution rows, as JSON and back. */
#ifndef KV_ROW_CODEC_H
#define KV_ROW_CODEC_H

#include "grid/row/kv_row.h"

/* The proof of a codec row; NULL when memory is out. */
json_t *kv_row_codec_proof_new(const kv_row *r) KV_MUST_USE;
/* The inverse; false where something is not what kv_row_codec_proof_new writes. */
bool kv_row_codec_of_proof(const json_t *proof, kv_row *r);

/* The same of an attribution row. */
json_t *kv_row_study_proof_new(const kv_row *r) KV_MUST_USE;
bool kv_row_study_of_proof(const json_t *proof, kv_row *r);

#endif
