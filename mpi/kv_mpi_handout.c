/* Entry of the hand-out. */
#include "mpi/kv_mpi_hub.h"
#include "mpi/kv_mpi_impl.h"

kv_rc kv_mpi_handout(kv_mpi *m, const kv_mpi_job *job, kv_err *err)
{
    kv_mpi_order order = {0};
    kv_rc rc = kv_mpi_usable(m, err);
    if (rc != KV_OK) return rc;
    if (job->run_item == NULL || (m->rank == 0 && job->on_result == NULL))
        rc = KV_FAIL(err, KV_EBUG, "a hand-out without run_item or on_result");
    if (rc == KV_OK) rc = kv_mpi_order_new(job->n_items, job->costs, &order, err);
    rc = kv_mpi_agree(m, rc, err);
    if (rc == KV_OK) {
        if (m->size == 1)
            rc = kv_mpi_solo(job, &order, kv_mpi_clock_now, NULL, err);
        else if (m->rank == 0)
            rc = kv_mpi_root_run(m, job, &order, err);
        else
            rc = kv_mpi_worker_run(m, job, &order, err);
    }
    kv_mpi_order_free(&order);
    return rc;
}
