#include "grid/cell/kv_cell.h"

#include <stdio.h>
#include <string.h>

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
