/* Rank 0 on virtual time: drives kv_mpi_hub.c as mpi/kv_mpi_root.c (the main thread) and mpi/kv_mpi_helper.c do. Both
 * threads share one core: what the helper does makes the main thread's item longer. */
#include <string.h>

#include "grid/sim/kv_sim_int.h"

static uint64_t look(const kv_sim_world *w)
{
    return w->model->look_ns * (uint64_t)w->ranks + 200;
}

void kv_sim_helper_notify(kv_sim_world *w, uint64_t at)
{
    if (w->hub != NULL) kv_sim_wake(w, &w->helper, KV_SIM_EV_HELPER, 0, look(w), at);
}

static bool gone(const kv_sim_world *w)
{
    return w->aborted || (w->disk != NULL && w->disk->killed);
}

/* ---- the main thread ---- */

static void end_item(kv_sim_world *w)
{
    kv_err err = {0};
    w->bytes.len = 0;
    w->workers[0].items++;
    w->workers[0].busy_ns += w->now - w->main_began;
    w->main_busy_s = (double)(w->now - w->main_began) * 1e-9;
    const kv_rc rc = w->run_item(w, 0, w->main_item, &w->bytes, &err);
    w->main_delivered = kv_mpi_hub_ran(w->hub, w->main_item, rc, &w->bytes, &err) ? w->main_item : -1;
}

void kv_sim_main_step(kv_sim_world *w, bool item_over)
{
    if (item_over && w->helper_busy_ns > w->helper_seen_ns) { /* the helper had the core meanwhile */
        kv_sim_at(w, w->now + (w->helper_busy_ns - w->helper_seen_ns), KV_SIM_EV_MAIN, 0, 0);
        w->helper_seen_ns = w->helper_busy_ns;
        return;
    }
    if (item_over) end_item(w);
    if (gone(w)) return;
    kv_mpi_hub_watch_stop(w->hub);
    const bool got = kv_mpi_hub_next_item(w->hub, w->main_delivered, w->main_busy_s, &w->main_item);
    w->main_delivered = -1;
    kv_sim_helper_notify(w, w->now);
    if (!got) return;
    const uint64_t ns = w->duration(w, 0, w->main_item);
    w->main_began = w->now;
    w->helper_seen_ns = w->helper_busy_ns;
    if (ns != UINT64_MAX) kv_sim_at(w, w->now + ns, KV_SIM_EV_MAIN, 0, 0);
}

/* ---- the helper ---- */

static bool receive(kv_sim_world *w)
{
    kv_sim_message *m = kv_sim_receive(w, &w->inbox);
    if (m == NULL) return false;
    kv_sim_worker *from = &w->workers[m->from];
    if (m->held) {
        from->sending = false;
        if (from->wait != KV_SIM_WAIT_NO) kv_sim_wake(w, &from->thread, KV_SIM_EV_WORKER, m->from, 0, w->now);
    }
    if (!kv_mpi_hub_report(w->hub, m->from, m->bytes, m->n))
        kv_sim_abort(w, KV_EBUG, "a report was not due or is torn");
    kv_sim_message_free(m);
    return !gone(w);
}

static bool serve(kv_sim_world *w, int rank)
{
    kv_mpi_ctrl c = {0};
    if (w->workers[rank].slot_busy || !kv_mpi_hub_order(w->hub, rank, &c)) return false;
    kv_sim_send_down(w, rank, &c);
    return true;
}

static void check_silence(kv_sim_world *w)
{
    int64_t item = -1;
    w->helper_checked = w->now;
    if (!kv_mpi_hub_check_silence(w->hub, &item)) kv_sim_abort(w, KV_ETIME, "rank 0: its own item hangs");
}

/* One turn of the loop in kv_mpi_helper_main(). True if there was something to do. */
static bool turn(kv_sim_world *w)
{
    int got = 0;
    while (got < KV_MPI_RECEIVE_MOST && receive(w)) got++;
    bool active = got > 0;
    for (int i = 1; i < w->ranks && !gone(w); i++) active = serve(w, i) || active;
    w->now += look(w);
    if (gone(w)) return false;
    kv_mpi_hub_watch_stop(w->hub);
    kv_mpi_hub_progress(w->hub, false);
    if (gone(w)) return false;
    if (got == 0 && w->now - w->helper_checked > KV_MPI_CHECK_NS) check_silence(w);
    return active;
}

static void send_ends(kv_sim_world *w)
{
    int pending = 0;
    for (int i = 1; i < w->ranks; i++) {
        kv_mpi_ctrl c = {0};
        if (w->hub->peers[i].lost) continue;
        if (!w->workers[i].slot_busy && kv_mpi_hub_end(w->hub, i, &c)) kv_sim_send_down(w, i, &c);
        if (w->workers[i].slot_busy || !w->hub->peers[i].end_sent) pending++;
    }
    if (pending > 0 && w->now < w->end_limit) {
        kv_sim_sleep(w, &w->helper, KV_SIM_EV_HELPER, 0, look(w), w->end_limit);
        return;
    }
    if (pending > 0) w->hub->broken = true;
    w->root_done = true;
    w->end_ns = w->now;
    w->rc = (kv_rc)w->hub->outcome.rc;
    if (w->rc != KV_OK) KV_FAIL(&w->err, w->rc, "%s", w->hub->outcome.text);
}

/* When the helper must look again though nothing comes in: pings and silence are noticed a little late. */
static uint64_t next_timer(const kv_sim_world *w)
{
    const uint64_t tenth = kv_mpi_hub_limit_ns(w->hub) / 32, most = 100000000u;
    return w->now + (tenth < most ? tenth : most) + KV_MPI_CHECK_NS;
}

/* Looking around while there is nothing to do is work, too. */
static void count_looks(kv_sim_world *w)
{
    const uint64_t each = KV_MPI_SLEEP_MOST_NS + w->model->wake_ns + look(w);
    w->helper_busy_ns += (w->now - w->helper.busy_until) / each * look(w);
}

void kv_sim_helper_step(kv_sim_world *w)
{
    const uint64_t begin = w->now;
    if (w->root_done || gone(w)) return;
    count_looks(w);
    bool active = false;
    if (!w->ending) {
        active = turn(w);
        if (gone(w)) return;
        if (kv_mpi_hub_all_in(w->hub)) {
            kv_mpi_hub_settle(w->hub);
            kv_mpi_hub_progress(w->hub, true);
            w->ending = true;
            w->end_limit = w->now + kv_mpi_hub_limit_ns(w->hub);
        }
    }
    w->helper_busy_ns += w->now - begin;
    if (w->ending) {
        send_ends(w);
        return;
    }
    if (active) w->helper.origin = w->now;
    uint64_t until = active ? w->now : next_timer(w);
    if (w->inbox.first != NULL && w->inbox.first->arrival < until) until = w->inbox.first->arrival;
    kv_sim_sleep(w, &w->helper, KV_SIM_EV_HELPER, 0, look(w), until);
}
