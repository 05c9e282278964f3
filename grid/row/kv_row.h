/* A row: the result of a cell, as plain data that travels between ranks, and its grade. */
#ifndef KV_ROW_H
#define KV_ROW_H

#include <jansson.h>

#include "certs/kv_cert_names.h"
#include "certs/kv_hash.h"
#include "grid/campaign/kv_campaign.h"
#include "kernels/kv_kern.h"

/* An observation: made and false, made and true, or not made. */
typedef enum { KV_FALSE = 0, KV_TRUE = 1, KV_NULL = 2 } kv_tri;

/* What a codec cell measured. */
typedef struct {
    int64_t rows, encoded_rows;      /* rows of one head in all; of them, rows that were encoded */
    int64_t blocks, overflow_blocks; /* encoded; of them, kept uncompressed as their outliers did not fit the slot */
    int64_t outliers, saturated;     /* values kept as fp16; t and norm fields held at the fp16 range */
    int64_t stored_bytes, plain_bytes;
    int32_t has_l2, has_worst, has_cosine; /* false: not finite, or divided by 0 */
    int64_t l2_ppm;                        /* relative L2 error */
    int64_t worst_ppm;                     /* largest error against the largest magnitude */
    int64_t cosine_ppm;
    uint8_t digest[3][2][KV_HASH_BYTES]; /* codes, slots, values; as made, and by the reference */
} kv_row_codec;

/* What an attribution cell found (kernels/codec/kv_codec_study.h says what the numbers are). */
typedef struct {
    int32_t finite, accept, passages; /* accept: kv_codec_study_verdict */
    int64_t base_nll_nano, nll_nano, ppl_change_ppm, kl_nano, top1_ppm;
    int64_t error_ppm[2], overflow_blocks[2];  /* of K and of V */
    int64_t passage[KV_STUDY_PASSAGES_MAX][3]; /* ppl_change_ppm, kl_nano, top1_ppm */
    uint8_t digest[2][KV_HASH_BYTES];          /* logits of the base run, of the cell */
} kv_row_study;

/* What a tp cell found besides what a pair's row says. */
typedef struct {
    int64_t wire[2], least[2]; /* bytes of one payload that went there and back, and the least that can */
    int32_t minimal;           /* so on every rank */
    int64_t rounds;            /* that a unit was sent in */
    /* of a refusal with X2: two whole caches with one shard */
    int64_t heads, of_heads, whole_positions, whole_differs, shard_positions, shard_differs;
} kv_row_shard;

/* Everything a row holds beyond its cell. Plain data of fixed size: ranks run the same binary. Numbers are
 * null in the JSON where `ran` is false. */
typedef struct {
    int64_t cell;        /* index in campaign.cells */
    int32_t verdict;     /* kv_verdict */
    int32_t error_class; /* kv_errclass, -1 if none */
    int32_t frontier;    /* kv_layout_frontier */
    uint32_t words;      /* bits of kv_layout_word */
    int32_t same_image;
    int32_t ran;
    int32_t observed[KV_OBS_COUNT]; /* kv_tri */
    int64_t native_bytes[2];        /* source, destination */
    int64_t unit_layers, layers;
    int64_t checked, total, source_checked, source_total;
    int32_t source_bijective, dest_bijective;
    int64_t source_padding, dest_padding, unread_padding, diff_positions;
    int32_t gather_payloads, gather_agrees;
    int32_t decoded[KV_DECODE_STEPS], reference[KV_DECODE_STEPS]; /* layer 0 */
    char logits_digest[KV_HASH_HEX], reference_digest[KV_HASH_HEX];
    int32_t converts, values_preserved, finite; /* detail of rows whose element types differ */
    int64_t worst_ppm;
    int32_t has_codec; /* of a codec cell that ran: */
    kv_row_codec codec;
    int32_t has_study; /* of an attribution cell that ran: */
    kv_row_study study;
    int32_t has_tp; /* of a tp cell that ran, or has a witness: */
    kv_row_shard tp;
    char reason[KV_REASON_TEXT]; /* of a frontier; or what failed */
    char failed_at[160];         /* rank, host, device of a failure */
} kv_row;

/* Rows by cell, wherever they are kept; a cell without a row gives one whose `cell` is another. */
typedef struct {
    const void *ctx;
    void (*get)(const void *ctx, int64_t cell, kv_row *out);
} kv_row_set;
void kv_row_set_get(kv_row_set rows, size_t cell, kv_row *out);
kv_row_set kv_row_set_of(const kv_row *rows); /* an array by cell */

/* The grade: the first line of the table in design section 4 that applies. */
kv_verdict kv_grade(bool refused, bool elements_differ, bool empty, const int32_t observed[KV_OBS_COUNT]);

/* True for a row that ran: neither REFUSED nor UNPROVEN nor FAILED. */
bool kv_row_ran(const kv_row *r);

/* Name of observation i of a row of that check. */
const char *kv_row_obs_name(kv_check check, int i);

/* A new JSON object, field by field as in docs/certificate.md; NULL when memory is out. */
json_t *kv_row_json_new(const kv_campaign *c, const kv_row *r) KV_MUST_USE;
/* The inverse, for a row of a verified certificate that is of cell number `cell` of check `check`. */
kv_rc kv_row_of_json(const json_t *row, kv_check check, int64_t cell, kv_row *out, kv_err *err) KV_MUST_USE;
/* {}, {"tail": ...} or what varies in a codec cell; NULL when memory is out. */
json_t *kv_row_params_new(const kv_campaign *c, const kv_cell *cell) KV_MUST_USE;

#endif
