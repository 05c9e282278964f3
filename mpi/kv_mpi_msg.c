/* Reports as bytes, and the first-cause rule for outcomes. */
#include "mpi/kv_mpi_msg.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

void kv_mpi_outcome_set(kv_mpi_outcome *o, kv_rc rc, int rank, int64_t item, const kv_err *err)
{
    if (o->rc != KV_OK) return;
    o->rc = (int32_t)rc;
    o->rank = rank;
    o->item = item;
    snprintf(o->text, sizeof o->text, "%s", err != NULL && err->rc != KV_OK ? err->text : kv_rc_name(rc));
}

size_t kv_mpi_ctrl_bytes(const kv_mpi_ctrl *c)
{
    return c->kind == KV_MPI_END ? sizeof *c : offsetof(kv_mpi_ctrl, outcome);
}

kv_rc kv_mpi_report_begin(kv_mpi_report *r, kv_err *err)
{
    memset(&r->head, 0, sizeof r->head);
    r->bytes.len = 0;
    return kv_buf_append(&r->bytes, &r->head, sizeof r->head, err);
}

kv_rc kv_mpi_report_add(kv_mpi_report *r, int64_t item, const void *bytes, size_t n, kv_err *err)
{
    const size_t old = r->bytes.len;
    const kv_mpi_result_head h = {.item = item, .bytes = n};
    kv_rc rc = kv_buf_append(&r->bytes, &h, sizeof h, err);
    if (rc == KV_OK && n > 0) rc = kv_buf_append(&r->bytes, bytes, n, err);
    if (rc == KV_OK)
        r->head.n_results++;
    else
        r->bytes.len = old; /* half a result is none */
    return rc;
}

void kv_mpi_report_close(kv_mpi_report *r)
{
    memcpy(r->bytes.data, &r->head, sizeof r->head);
}

bool kv_mpi_report_open(const char *bytes, size_t n, kv_mpi_report_head *head, kv_mpi_report_reader *out)
{
    if (n < sizeof *head) return false;
    memcpy(head, bytes, sizeof *head);
    if (head->outcome.rc < 0 || head->outcome.rc >= KV_RC_COUNT) return false;
    head->outcome.text[sizeof head->outcome.text - 1] = '\0';
    out->at = bytes + sizeof *head;
    out->left = n - sizeof *head;
    out->results_left = head->n_results;
    return true;
}

bool kv_mpi_report_next(kv_mpi_report_reader *r, kv_mpi_result *out)
{
    kv_mpi_result_head h;
    if (r->results_left == 0 || r->left < sizeof h) return false;
    memcpy(&h, r->at, sizeof h);
    if (h.bytes > r->left - sizeof h) return false;
    out->item = h.item;
    out->bytes = r->at + sizeof h;
    out->n = (size_t)h.bytes;
    r->at += sizeof h + out->n;
    r->left -= sizeof h + out->n;
    r->results_left--;
    return true;
}
