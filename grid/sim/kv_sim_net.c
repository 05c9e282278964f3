/* Messages on virtual time. Those of a pair do not overtake; into rank 0 they share one link. */
#include <stddef.h>
#include <string.h>

#include "grid/sim/kv_sim_int.h"

static uint64_t later_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t travel(kv_sim_world *w, size_t n)
{
    uint64_t ns = w->model->latency_ns + (uint64_t)((double)n / w->model->bytes_per_ns);
    if (w->jitter_ns > 0) ns += kv_sim_below(&w->chance, w->jitter_ns);
    if (w->late_ns > 0 && kv_sim_percent(&w->chance, w->late_percent)) ns += kv_sim_below(&w->chance, w->late_ns);
    return ns;
}

/* By arrival; those of one moment in the order they were sent. */
static void put(kv_sim_inbox *box, kv_sim_message *m)
{
    kv_sim_message **at = &box->first;
    if (box->last != NULL && box->last->arrival <= m->arrival) at = &box->last->next;
    while (*at != NULL && (*at)->arrival <= m->arrival) at = &(*at)->next;
    m->next = *at;
    *at = m;
    if (m->next == NULL) box->last = m;
}

static kv_sim_message *message_new(kv_sim_world *w, size_t n)
{
    kv_sim_message *m = kv_alloc(1, sizeof *m + n);
    if (m == NULL) {
        kv_sim_abort(w, KV_ENOMEM, "no memory for a message");
        return NULL;
    }
    m->bytes = (char *)m + sizeof *m;
    m->n = n;
    m->held = w->hold_all || n > w->model->eager_bytes;
    w->messages++;
    return m;
}

void kv_sim_send_up(kv_sim_world *w, int rank, const kv_buf *bytes)
{
    kv_sim_worker *from = &w->workers[rank];
    kv_sim_message *m = message_new(w, bytes->len);
    if (m == NULL) return;
    memcpy(m->bytes, bytes->data, bytes->len);
    m->from = rank;
    w->message_bytes += (int64_t)bytes->len;
    w->now += w->model->message_ns;
    const uint64_t on_link = (uint64_t)((double)bytes->len / w->model->bytes_per_ns);
    w->link_free = later_of(w->link_free, w->now) + on_link;
    m->arrival = later_of(later_of(w->link_free, w->now + travel(w, bytes->len)), from->last_arrival_up);
    from->last_arrival_up = m->arrival;
    from->sending = m->held;
    put(&w->inbox, m);
    kv_sim_helper_notify(w, m->arrival);
}

void kv_sim_send_down(kv_sim_world *w, int rank, const kv_mpi_ctrl *c)
{
    kv_sim_worker *to = &w->workers[rank];
    const size_t n = kv_mpi_ctrl_bytes(c);
    kv_sim_message *m = message_new(w, 0);
    if (m == NULL) return;
    memcpy(&m->ctrl, c, n);
    w->message_bytes += (int64_t)n;
    w->now += w->model->message_ns;
    m->arrival = later_of(w->now + travel(w, n), to->last_arrival_down);
    to->last_arrival_down = m->arrival;
    to->slot_busy = m->held;
    m->from = 0;
    put(&to->inbox, m);
    kv_sim_worker_notify(w, rank, m->arrival);
}

kv_sim_message *kv_sim_receive(kv_sim_world *w, kv_sim_inbox *box)
{
    kv_sim_message *m = box->first;
    if (m == NULL || m->arrival > w->now) return NULL;
    box->first = m->next;
    if (box->first == NULL) box->last = NULL;
    w->now += w->model->message_ns;
    return m;
}

void kv_sim_message_free(kv_sim_message *m)
{
    kv_free(m);
}

void kv_sim_inbox_free(kv_sim_inbox *box)
{
    while (box->first != NULL) {
        kv_sim_message *m = box->first;
        box->first = m->next;
        kv_sim_message_free(m);
    }
    box->last = NULL;
}
