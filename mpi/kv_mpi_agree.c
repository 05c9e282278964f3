/* One outcome for all ranks. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "mpi/kv_mpi_impl.h"

kv_rc kv_mpi_outcome_adopt(const kv_mpi *m, const kv_mpi_outcome *o, kv_err *err)
{
    if (o->rc == KV_OK) return KV_OK;
    char where[64] = "";
    if (o->item >= 0) snprintf(where, sizeof where, " in item %lld", (long long)o->item);
    if (o->rank == m->rank && o->item >= 0)
        return KV_FAIL(err, (kv_rc)o->rc, "item %lld: %s", (long long)o->item, o->text);
    if (o->rank == m->rank || o->rc == KV_EINTR) return KV_FAIL(err, (kv_rc)o->rc, "%s", o->text);
    return KV_FAIL(err, KV_EPEER, "rank %d on %s failed%s: %s", o->rank, kv_mpi_host_view(m, o->rank), where, o->text);
}

static kv_rc first_failing(kv_mpi *m, kv_rc rc, int *first, kv_err *err)
{
    MPI_Request req;
    m->scratch.first_in = rc != KV_OK ? m->rank : INT_MAX;
    KV_MPI_MUST(m, MPI_Iallreduce(&m->scratch.first_in, &m->scratch.first_out, 1, MPI_INT32_T, MPI_MIN, m->comm, &req));
    const kv_rc wait_rc = kv_mpi_wait(m, &req, "agreeing on the outcome", err);
    *first = m->scratch.first_out;
    return wait_rc;
}

kv_rc kv_mpi_agree(kv_mpi *m, kv_rc rc, kv_err *err)
{
    if (rc != KV_OK) KV_FAIL(err, rc, "%s", kv_rc_name(rc)); /* so that there is a text to send */
    if (m->size == 1) return rc;
    kv_err late = {0}; /* a lost rank is not the first cause if there is one already */
    kv_rc mpi_rc = kv_mpi_usable(m, &late);
    int first = INT_MAX;
    if (mpi_rc == KV_OK) mpi_rc = first_failing(m, rc, &first, &late);
    if (mpi_rc == KV_OK && first == INT_MAX) return KV_OK;
    if (mpi_rc == KV_OK) {
        MPI_Request req;
        kv_mpi_outcome *o = &m->scratch.outcome;
        memset(o, 0, sizeof *o);
        if (first == m->rank) kv_mpi_outcome_set(o, rc, m->rank, -1, err);
        KV_MPI_MUST(m, MPI_Ibcast(o, (int)sizeof *o, MPI_BYTE, first, m->comm, &req));
        mpi_rc = kv_mpi_wait(m, &req, "the text of an error", &late);
    }
    if (rc != KV_OK) return rc;
    if (mpi_rc != KV_OK) return KV_FAIL(err, mpi_rc, "%s", late.text);
    return kv_mpi_outcome_adopt(m, &m->scratch.outcome, err);
}
