/* A worker on virtual time: drives kv_mpi_work.c as mpi/kv_mpi_worker.c does. */
#include <string.h>

#include "grid/sim/kv_sim_int.h"

static uint64_t look(const kv_sim_world *w)
{
    return w->model->look_ns + 200;
}

static void sleep_until(kv_sim_world *w, int rank, uint64_t at)
{
    kv_sim_sleep(w, &w->workers[rank].thread, KV_SIM_EV_WORKER, rank, look(w), at);
}

void kv_sim_worker_notify(kv_sim_world *w, int rank, uint64_t at)
{
    kv_sim_worker *k = &w->workers[rank];
    if (k->wait == KV_SIM_WAIT_NO) kv_sim_wake(w, &k->thread, KV_SIM_EV_WORKER, rank, look(w), at);
}

static void give_up(kv_sim_world *w, int rank, const char *what)
{
    w->workers[rank].ended = true;
    kv_sim_abort(w, KV_ETIME, what); /* kv_mpi_stop aborts the job at once */
}

/* ---- reports out ---- */

static void wait_for_send(kv_sim_world *w, int rank, kv_sim_wait why, uint64_t patience)
{
    kv_sim_worker *k = &w->workers[rank];
    k->wait = why;
    k->wait_until = w->now + patience;
    k->thread.origin = w->now;
}

static void send_report(kv_sim_world *w, int rank, bool final)
{
    kv_sim_worker *k = &w->workers[rank];
    kv_err err = {0};
    if (kv_mpi_work_close(&k->work, final, &err) != KV_OK) {
        kv_sim_abort(w, err.rc, err.text);
        return;
    }
    kv_sim_send_up(w, rank, &k->work.out.bytes);
    if (k->sending) wait_for_send(w, rank, KV_SIM_WAIT_PATIENCE, KV_MPI_SEND_PATIENCE_NS);
}

static void flush(kv_sim_world *w, int rank, bool final)
{
    kv_sim_worker *k = &w->workers[rank];
    if (k->sending)
        wait_for_send(w, rank, final ? KV_SIM_WAIT_BEFORE_FINAL : KV_SIM_WAIT_BEFORE, k->work.limit_ns);
    else
        send_report(w, rank, final);
}

/* False if it goes on, or the worker is at its end. */
static bool wait_is_over(kv_sim_world *w, int rank)
{
    kv_sim_worker *k = &w->workers[rank];
    const kv_sim_wait why = k->wait;
    if (k->sending && w->now < k->wait_until) {
        sleep_until(w, rank, k->wait_until);
        return false;
    }
    k->wait = KV_SIM_WAIT_NO;
    if (k->sending && why != KV_SIM_WAIT_PATIENCE) {
        give_up(w, rank, "a rank: rank 0 took no results");
        return false;
    }
    if (why == KV_SIM_WAIT_END) k->ended = true;
    if (why == KV_SIM_WAIT_BEFORE || why == KV_SIM_WAIT_BEFORE_FINAL)
        send_report(w, rank, why == KV_SIM_WAIT_BEFORE_FINAL);
    return !k->ended;
}

/* ---- items ---- */

static void begin_item(kv_sim_world *w, int rank)
{
    kv_sim_worker *k = &w->workers[rank];
    const uint64_t ns = w->duration(w, rank, kv_mpi_work_item(&k->work));
    k->in_item = true;
    k->item_began = w->now;
    if (ns != UINT64_MAX) kv_sim_at(w, w->now + ns, KV_SIM_EV_WORKER, rank, k->thread.turn); /* else it hangs */
}

static void end_item(kv_sim_world *w, int rank)
{
    kv_sim_worker *k = &w->workers[rank];
    kv_err err = {0};
    w->bytes.len = 0;
    k->in_item = false;
    k->items++;
    k->busy_ns += w->now - k->item_began;
    const kv_rc rc = w->run_item(w, rank, kv_mpi_work_item(&k->work), &w->bytes, &err);
    if (kv_mpi_work_ran(&k->work, rc, &w->bytes, w->now - k->item_began, &err)) flush(w, rank, false);
}

/* ---- the loop ---- */

/* Handles the orders that have arrived; false when the last one is here. */
static bool take_orders(kv_sim_world *w, int rank)
{
    kv_sim_worker *k = &w->workers[rank];
    kv_sim_message *m;
    while (!k->work.ended && (m = kv_sim_receive(w, &k->inbox)) != NULL) {
        if (m->held) {
            k->slot_busy = false;
            kv_sim_helper_notify(w, w->now);
        }
        kv_mpi_work_order(&k->work, &m->ctrl);
        k->thread.origin = w->now;
        kv_sim_message_free(m);
    }
    if (k->work.ended) wait_for_send(w, rank, KV_SIM_WAIT_END, k->work.limit_ns);
    return !k->work.ended;
}

/* True while there is something to do at this moment. */
static bool act(kv_sim_world *w, int rank)
{
    kv_sim_worker *k = &w->workers[rank];
    if (k->wait != KV_SIM_WAIT_NO) return wait_is_over(w, rank);
    if (!take_orders(w, rank)) return true;
    switch (kv_mpi_work_next(&k->work, w->stop[rank] != 0)) {
    case KV_MPI_STEP_IDLE: {
        uint64_t until = k->work.heard_ns + k->work.limit_ns + 1;
        if (k->inbox.first != NULL && k->inbox.first->arrival < until) until = k->inbox.first->arrival;
        sleep_until(w, rank, until);
        return false;
    }
    case KV_MPI_STEP_GIVE_UP: give_up(w, rank, "a rank: rank 0 sent nothing"); return false;
    case KV_MPI_STEP_ITEM: begin_item(w, rank); return false;
    case KV_MPI_STEP_FINAL: flush(w, rank, true); break;
    }
    return true;
}

void kv_sim_worker_step(kv_sim_world *w, int rank)
{
    kv_sim_worker *k = &w->workers[rank];
    if (k->in_item) {
        end_item(w, rank);
        k->thread.origin = w->now;
    }
    while (!w->aborted && !k->ended && act(w, rank)) continue;
}
