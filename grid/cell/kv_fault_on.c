#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "grid/cell/kv_cell.h"
#include "grid/cell/kv_fault.h"

static int64_t cells_seen, steps_seen[2];

static kv_rc act(const char *kind, size_t n, kv_row *row, kv_err *err)
{
    static const kv_err memory = {.rc = KV_ENOMEM, .text = "planted: no memory"},
                        device = {.rc = KV_EDEVICE, .text = "planted: the device failed"};
    if (strncmp(kind, "memory", n) == 0) kv_cell_mark_failed(row, memory.rc, &memory);
    if (strncmp(kind, "device", n) == 0) kv_cell_mark_failed(row, device.rc, &device);
    if (strncmp(kind, "error", n) == 0)
        return KV_FAIL(err, KV_EBUG, "planted: a fatal error in cell %" PRId64, row->cell);
    if (strncmp(kind, "kill", n) == 0) raise(SIGKILL);
    if (strncmp(kind, "stop", n) == 0) raise(SIGSTOP);
    while (strncmp(kind, "hang", n) == 0) pause();
    if (strncmp(kind, "wrong", n) == 0 && row->ran) {
        row->observed[KV_OBS_FORWARD] = KV_FALSE; /* of a row of the codec: that its store agrees */
        row->gather_agrees = false;
        row->codec.digest[0][0][0] ^= 1;
        row->verdict = KV_VERDICT_NOT_EXACT;
    }
    return KV_OK;
}

/* The kind of fault that rank `rank` is to meet in its cell number `cell`, *n characters; NULL: none. */
static const char *due(int rank, int64_t cell, size_t *n)
{
    const char *text = getenv("KVGRID_FAULT");
    long who = -1, when = -1;
    const char *at = text != NULL ? strchr(text, '@') : NULL;
    if (at == NULL || sscanf(at, "@%ld:%ld", &who, &when) != 2 || who != rank || when != cell) return NULL;
    *n = (size_t)(at - text);
    return text;
}

kv_rc kv_fault_cell(int rank, kv_row *row, kv_err *err)
{
    size_t n = 0;
    const char *kind = due(rank, ++cells_seen, &n);
    steps_seen[0] = steps_seen[1] = 0;
    return kind != NULL ? act(kind, n, row, err) : KV_OK;
}

kv_rc kv_fault_step(int rank, bool sending, kv_err *err)
{
    size_t n = 0;
    const char *kind = due(rank, cells_seen + 1, &n);
    kv_row row = {.cell = cells_seen};
    if (kind == NULL || strncmp(kind, "wrong", n) == 0 || ++steps_seen[sending] != 2) return KV_OK;
    const bool local = strncmp(kind, "memory", n) == 0 || strncmp(kind, "device", n) == 0;
    if (local == sending) return KV_OK;
    const kv_rc rc = act(kind, n, &row, err);
    if (!local) return rc;
    return KV_FAIL(err, strncmp(kind, "memory", n) == 0 ? KV_ENOMEM : KV_EDEVICE, "%s", row.reason);
}

void kv_fault_fact(int rank, const char *what, char *value, size_t n)
{
    const char *text = getenv("KVGRID_FAULT_FACT"), *at = text != NULL ? strrchr(text, '@') : NULL;
    const size_t len = strlen(what);
    if (at == NULL || strtol(at + 1, NULL, 10) != rank) return;
    if (strncmp(text, what, len) == 0 && text[len] == '=')
        snprintf(value, n, "%.*s", (int)(at - text - (ptrdiff_t)len - 1), text + len + 1);
}

size_t kv_fault_rows_limit(size_t limit)
{
    int64_t given;
    const char *text = getenv("KVGRID_ROWS_LIMIT");
    return text != NULL && kv_parse_i64(text, 0, INT64_MAX, &given) ? (size_t)given : limit;
}

int64_t kv_fault_memory_limit(int64_t bytes)
{
    int64_t given;
    const char *text = getenv("KVGRID_MEMORY_LIMIT");
    return text != NULL && kv_parse_i64(text, 1, INT64_MAX, &given) ? given : bytes;
}
