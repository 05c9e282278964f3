/* Runs one cell of check "move": sealed pages of the codec from one arrangement to another, exact to the byte, and the
 * tokens decoded from them before and after. */
#ifndef KV_MOVE_CELL_H
#define KV_MOVE_CELL_H

#include "grid/campaign/kv_codec_spec.h"
#include "grid/cell/kv_cell.h"

/* Fills the row of a move cell as kv_codec_cell_run does for a codec cell. */
kv_rc kv_move_cell_run(kv_runner *r, const kv_campaign *c, const kv_move_point *p, const kv_geometry *g, kv_row *row,
                       kv_err *err) KV_MUST_USE;
kv_rc kv_move_cell_plan(const kv_codec_section *s, const kv_move_point *p, const kv_geometry *g, kv_cell_need *out,
                        kv_err *err) KV_MUST_USE;

#endif
