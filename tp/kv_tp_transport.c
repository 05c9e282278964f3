/* What all transports share. */
#include "tp/kv_tp_transport.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tp/kv_tp.h"

double kv_tp_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

void kv_tp_pause(int *idle)
{
    ++*idle;
    if (*idle < 200) {
        sched_yield();
        return;
    }
    const struct timespec wait = {0, *idle < 2000 ? 20000 : 500000};
    nanosleep(&wait, NULL);
}

static int64_t bytes_of(const kv_tp_message *m, size_t n)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        for (int32_t k = 0; k < m[i].pieces; k++) sum += m[i].piece[k].bytes;
    return sum;
}

static kv_rc check_messages(const kv_tp_transport *t, const kv_tp_message *m, size_t n, kv_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (m[i].peer < 0 || m[i].peer >= t->size || m[i].peer == t->rank || m[i].pieces < 0)
            return KV_FAIL(err, KV_EBUG, "a message for rank %" PRId32 " of a group of %" PRId32, m[i].peer, t->size);
    return KV_OK;
}

static kv_rc checked(kv_tp_transport *t, const kv_tp_batch *b,
                     kv_rc (*run)(kv_tp_transport *, const kv_tp_batch *, kv_err *), kv_err *err)
{
    kv_rc rc;
    if (t->broken) return KV_FAIL(err, KV_EPEER, "this group of ranks failed before");
    KV_TRY(rc, out, check_messages(t, b->send, b->n_send, err));
    KV_TRY(rc, out, check_messages(t, b->recv, b->n_recv, err));
    rc = run(t, b, err);
    if (rc != KV_OK) t->broken = true;
out:
    return rc;
}

kv_rc kv_tp_control(kv_tp_transport *t, const kv_tp_batch *b, kv_err *err)
{
    return checked(t, b, t->ops->control, err);
}

static void count(kv_tp_transport *t, const kv_tp_batch *b)
{
    t->sent_bytes += bytes_of(b->send, b->n_send);
    t->received_bytes += bytes_of(b->recv, b->n_recv);
}

kv_rc kv_tp_begin(kv_tp_transport *t, const kv_tp_batch *b, kv_tp_flight *f, kv_err *err)
{
    kv_rc rc;
    *f = (kv_tp_flight){.batch = *b};
    if (t->broken) return KV_FAIL(err, KV_EPEER, "this group of ranks failed before");
    if (t->ops->begin == NULL) return kv_tp_exchange(t, b, err);
    KV_TRY(rc, out, check_messages(t, b->send, b->n_send, err));
    KV_TRY(rc, out, check_messages(t, b->recv, b->n_recv, err));
    rc = t->ops->begin(t, b, &f->flight, err);
    f->open = rc == KV_OK;
    t->broken = t->broken || rc != KV_OK;
out:
    return rc;
}

kv_rc kv_tp_end(kv_tp_transport *t, kv_tp_flight *f, kv_err *err)
{
    if (!f->open) return KV_OK;
    f->open = false;
    const kv_rc rc = t->ops->end(t, f->flight, err);
    if (rc == KV_OK)
        count(t, &f->batch);
    else
        t->broken = true;
    return rc;
}

kv_rc kv_tp_exchange(kv_tp_transport *t, const kv_tp_batch *b, kv_err *err)
{
    const kv_rc rc = checked(t, b, t->ops->exchange, err);
    if (rc != KV_OK) return rc;
    count(t, b);
    return KV_OK;
}

kv_rc kv_tp_share(kv_tp_transport *t, const void *mine, int64_t bytes, void *all, kv_err *err)
{
    kv_tp_message send[KV_TP_RANKS_MAX], recv[KV_TP_RANKS_MAX];
    kv_tp_piece out, in[KV_TP_RANKS_MAX];
    unsigned char *to = all;
    kv_tp_batch b = {send, recv, 0, 0};
    memcpy(to + t->rank * bytes, mine, (size_t)bytes);
    out = (kv_tp_piece){to + t->rank * bytes, bytes};
    for (int32_t i = 1; i < t->size; i++) { /* each rank begins with another one */
        const int32_t next = (t->rank + i) % t->size, before = (t->rank + t->size - i) % t->size;
        in[before] = (kv_tp_piece){to + before * bytes, bytes};
        send[b.n_send++] = (kv_tp_message){next, 1, &out};
        recv[b.n_recv++] = (kv_tp_message){before, 1, &in[before]};
    }
    return kv_tp_control(t, &b, err);
}

typedef struct {
    int32_t rc;
    char text[KV_TP_NOTICE_TEXT];
} outcome;

kv_rc kv_tp_failed_at(kv_tp_transport *t, int32_t rank, kv_rc rc, const char *text, kv_err *err)
{
    t->failed_rank = t->world[rank];
    t->failed_rc = rc;
    if (rank == t->rank) return KV_FAIL(err, rc, "%.200s", text);
    return KV_FAIL(err, rc == KV_EFORMAT ? rc : KV_EPEER, "rank %" PRId32 ": %.200s", t->world[rank], text);
}

kv_rc kv_tp_agree(kv_tp_transport *t, kv_rc rc, kv_err *err)
{
    outcome mine = {(int32_t)rc, ""}, all[KV_TP_RANKS_MAX];
    if (rc != KV_OK) snprintf(mine.text, sizeof mine.text, "%.200s", err != NULL ? err->text : kv_rc_name(rc));
    const kv_rc shared = kv_tp_share(t, &mine, sizeof mine, all, rc == KV_OK ? err : NULL);
    if (shared != KV_OK) return rc != KV_OK ? rc : shared;
    for (int32_t r = 0; r < t->size; r++)
        if (all[r].rc != KV_OK) {
            const kv_rc told = kv_tp_failed_at(t, r, (kv_rc)all[r].rc, all[r].text, rc == KV_OK ? err : NULL);
            return rc != KV_OK ? rc : told;
        }
    return KV_OK;
}

void kv_tp_abort(kv_tp_transport *t, kv_rc rc, const char *why)
{
    if (t == NULL || t->broken) return;
    t->ops->abort(t, rc, why);
    t->broken = true;
}

#define GRACE_S 3.0

void kv_tp_name_the_silent(kv_tp_transport *t, kv_rc rc, char *text, size_t room)
{
    bool heard[KV_TP_RANKS_MAX] = {false};
    const double end = kv_tp_now() + (t->timeout_s < GRACE_S ? t->timeout_s : GRACE_S);
    int32_t missing = t->size;
    int idle = 0;
    size_t used = strlen(text);
    if (rc != KV_ETIME && !(rc == KV_EPEER && t->timed_out)) return;
    heard[t->rank] = true;
    for (; missing > 0 && kv_tp_now() < end; kv_tp_pause(&idle)) {
        kv_err unused = {0};
        (void)t->ops->heed(t, heard, &unused);
        missing = 0;
        for (int32_t r = 0; r < t->size; r++) missing += !heard[r];
    }
    const char *before = "; no sign of life from rank ";
    for (int32_t r = 0; r < t->size; r++) {
        t->silent[r] = !heard[r];
        if (heard[r] || used + 48 >= room) continue;
        used += (size_t)snprintf(text + used, room - used, "%s%" PRId32, before, t->world[r]);
        before = ", ";
    }
}

void kv_tp_close(kv_tp_transport *t)
{
    if (t != NULL) t->ops->close(t);
}

/* ---- which one --------------------------------------------------------------------------- */

bool kv_tp_choose(const kv_tp_place *place, const int32_t *rank_name, int32_t n, const char *kind,
                  char why[KV_TP_WHY_TEXT])
{
    if (strcmp(kind, "none") == 0) {
        snprintf(why, KV_TP_WHY_TEXT, "mpi: this build has no NCCL");
        return false;
    }
    for (int32_t a = 0; a < n; a++)
        if (place[a].gpu[0] == '\0') {
            snprintf(why, KV_TP_WHY_TEXT, "mpi: rank %" PRId32 " has no GPU of its own", rank_name[a]);
            return false;
        }
    for (int32_t a = 0; a < n; a++)
        for (int32_t b = 0; b < a; b++)
            if (strcmp(place[a].host, place[b].host) == 0 && strcmp(place[a].gpu, place[b].gpu) == 0) {
                snprintf(why, KV_TP_WHY_TEXT, "mpi: ranks %" PRId32 " and %" PRId32 " share GPU %s of %s", rank_name[b],
                         rank_name[a], place[a].gpu, place[a].host);
                return false;
            }
    snprintf(why, KV_TP_WHY_TEXT, "%s: each of the %" PRId32 " ranks has a GPU of its own", kind, n);
    return true;
}

kv_rc kv_tp_choose_shared(kv_tp_transport *control, const kv_tp_place *mine, bool *nccl, char why[KV_TP_WHY_TEXT],
                          kv_err *err)
{
    struct {
        kv_tp_place place;
        char kind[16];
    } me, all[KV_TP_RANKS_MAX];
    kv_tp_place places[KV_TP_RANKS_MAX];
    const char *kind = kv_tp_nccl_kind();
    memset(&me, 0, sizeof me);
    me.place = *mine;
    snprintf(me.kind, sizeof me.kind, "%s", kind);
    const kv_rc rc = kv_tp_share(control, &me, sizeof me, all, err);
    if (rc != KV_OK) return rc;
    for (int32_t r = 0; r < control->size; r++) {
        places[r] = all[r].place;
        if (strcmp(all[r].kind, kind) != 0) kind = "none"; /* other builds on other ranks */
    }
    *nccl = kv_tp_choose(places, control->world, control->size, kind, why);
    return KV_OK;
}
