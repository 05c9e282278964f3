/* One cell on one device, whatever its check. */
#include "grid/kv_cell_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/kv_cell_pair.h"
#include "grid/kv_codec_cell.h"
#include "grid/kv_move_cell.h"
#include "grid/kv_shard_cell.h"
#include "grid/kv_study_cell.h"

void kv_digest_logits(kv_hash *h, const kv_decode_result *d)
{
    unsigned char bytes[4 * KV_DECODE_STEPS * KV_VOCABULARY];
    for (int i = 0; i < KV_DECODE_STEPS * KV_VOCABULARY; i++) /* little-endian, whatever the machine */
        for (int b = 0; b < 4; b++) bytes[4 * i + b] = (unsigned char)(d->logits[i] >> (8 * b));
    kv_hash_update(h, bytes, sizeof bytes);
}

static kv_errclass class_of(kv_rc rc)
{
    switch (rc) {
    case KV_ENOMEM: return KV_ERRCLASS_MEMORY;
    case KV_EDEVICE: return KV_ERRCLASS_DEVICE;
    case KV_EREAD:
    case KV_EWRITE: return KV_ERRCLASS_IO;
    case KV_OK:
    case KV_EINVAL:
    case KV_EFORMAT:
    case KV_EUNSUP:
    case KV_EEXIST:
    case KV_ESIG:
    case KV_EMPI:
    case KV_EPEER:
    case KV_ETIME:
    case KV_EINTR:
    case KV_EBUG:
    case KV_RC_COUNT: break;
    }
    return KV_ERRCLASS_INTERNAL;
}

void kv_cell_mark_failed(kv_row *row, kv_rc rc, const kv_err *why)
{
    const kv_row empty = {
        .cell = row->cell, .words = row->words, .error_class = (int32_t)class_of(rc), .verdict = KV_VERDICT_FAILED};
    *row = empty;
    for (int i = 0; i < KV_OBS_COUNT; i++) row->observed[i] = KV_NULL;
    snprintf(row->reason, sizeof row->reason, "%.300s", why->text);
}

void kv_cell_start_row(kv_row *row, int64_t cell)
{
    memset(row, 0, sizeof *row);
    row->cell = cell;
    row->error_class = -1;
    for (int i = 0; i < KV_OBS_COUNT; i++) row->observed[i] = KV_NULL;
}

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
