/* Runs one cell of check "attribution": the small model with a part of its cache compressed. */
#ifndef KV_STUDY_CELL_H
#define KV_STUDY_CELL_H

#include "grid/cell/kv_cell.h"

/* Fills the row as kv_codec_cell_run does. The runner keeps the study for the next cell of the same geometry and seed. */
kv_rc kv_study_cell_run(kv_runner *r, const kv_campaign *c, const kv_study_point *p, const kv_geometry *g, kv_row *row,
                        kv_err *err) KV_MUST_USE;
kv_rc kv_study_cell_plan(const kv_campaign *c, const kv_study_point *p, const kv_geometry *g, kv_cell_need *out,
                         kv_err *err) KV_MUST_USE;

struct kv_study_kept;
void kv_study_kept_free(struct kv_study_kept *k); /* NULL is fine */

#endif
