/* Runs one cell of check "codec": rows are made up, stored, read back, and decoded from. */
#ifndef KV_CODEC_CELL_H
#define KV_CODEC_CELL_H

#include "grid/campaign/kv_codec_spec.h"
#include "grid/cell/kv_cell.h"
#include "kernels/codec/kv_codec_recipe.h"

/* What one stream of a geometry takes when it is stored. */
typedef struct {
    kv_codec_half_config half; /* of the codec's recipes */
    int64_t dim;
    int64_t stored_bytes; /* if no block overflows its slot */
    int64_t plain_bytes;  /* the same values in bf16 */
    int64_t slot_bytes;   /* of a block, 0 where there is none */
    int64_t rows;         /* of one head, over all layers and heads */
} kv_codec_size;

/* *reason is "" where the point exists at g; else why not (frontier X4), and *out is not set. */
kv_rc kv_codec_size_of(const kv_codec_section *s, const kv_codec_point *p, const kv_geometry *g, kv_codec_size *out,
                       char reason[KV_REASON_TEXT], kv_err *err) KV_MUST_USE;

/* Fills the row of a codec cell (verdict included); row is zeroed but for cell, error_class and observed. Errors are those
 * of a cell that cannot be run. */
kv_rc kv_codec_cell_run(kv_runner *r, const kv_campaign *c, const kv_codec_point *p, const kv_geometry *g, kv_row *row,
                        kv_err *err) KV_MUST_USE;

/* The grade of a codec row: it never is exact. */
kv_verdict kv_codec_grade(bool refused, const int32_t observed[KV_OBS_COUNT]);

/* An estimate for planning. */
kv_rc kv_codec_cell_plan(const kv_codec_section *s, const kv_codec_point *p, const kv_geometry *g, kv_cell_need *out,
                         kv_err *err) KV_MUST_USE;

#endif
