/* One cell on one device, whatever its check. */
#include "grid/cell/kv_cell_run.h"

#include <inttypes.h>

#include "grid/cell/kv_cell_pair.h"
#include "grid/cell/kv_codec_cell.h"
#include "grid/cell/kv_move_cell.h"
#include "grid/cell/kv_shard_cell.h"
#include "grid/cell/kv_study_cell.h"

kv_rc kv_cell_run(kv_runner *r, const kv_campaign *c, int64_t cell, kv_row *row, kv_err *err)
{
    if (cell < 0 || (size_t)cell >= c->n_cells) return KV_FAIL(err, KV_EBUG, "cell %" PRId64 " does not exist", cell);
    kv_err why = {0};
    kv_rc rc;
    kv_cell_start_row(row, cell);
    const kv_cell *at = &c->cells[cell];
    const kv_geometry *g = &c->geometries[at->geometry];
    if (at->check == KV_CHECK_ATTRIBUTION) {
        const kv_study_point p = kv_cell_study_point(c, at);
        rc = kv_study_cell_run(r, c, &p, g, row, &why);
    } else if (at->check == KV_CHECK_CODEC) {
        const kv_codec_point p = kv_codec_point_at(&c->codec, (size_t)at->src);
        rc = kv_codec_cell_run(r, c, &p, g, row, &why);
    } else if (at->check == KV_CHECK_MOVE) {
        const kv_move_point p = kv_move_point_at(&c->codec, (size_t)at->src);
        rc = kv_move_cell_run(r, c, &p, g, row, &why);
    } else if (at->check == KV_CHECK_TP) {
        rc = kv_shard_cell_run(r, c, kv_cell_shard_point(c, at), g, row, &why);
    } else {
        rc = kv_cell_pair_run(r, c, cell, row, &why);
    }
    if (rc != KV_OK) kv_cell_mark_failed(row, rc, &why);
    return KV_OK;
}

void kv_runner_free(kv_runner *r)
{
    kv_cell_forget(r);
    kv_free(r->references);
    r->references = NULL;
    r->n_references = 0;
    kv_values_forget(&r->values);
    kv_study_kept_free(r->study);
    r->study = NULL;
}
