/* The transport between threads of one process: mail with copies, one lock for all. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tp/kv_tp_transport.h"

typedef struct mail {
    struct mail *next;
    int32_t from, to;
    bool control;
    int64_t bytes;
    unsigned char data[];
} mail;

struct kv_tp_hub {
    pthread_mutex_t lock;
    pthread_cond_t news; /* mail came, or a rank gave up */
    int32_t n;
    mail *first, **last;
    bool gave_up[KV_TP_RANKS_MAX], in_vain;
    char why[KV_TP_RANKS_MAX][KV_TP_NOTICE_TEXT];
};

typedef struct {
    kv_tp_transport base;
    kv_tp_hub *hub;
} local;

kv_rc kv_tp_hub_new(int32_t n, kv_tp_hub **out, kv_err *err)
{
    pthread_condattr_t monotonic;
    if (n < 1 || n > KV_TP_RANKS_MAX)
        return KV_FAIL(err, KV_EINVAL, "a group has 1 to %d ranks, not %" PRId32, KV_TP_RANKS_MAX, n);
    kv_tp_hub *h = kv_alloc(1, sizeof *h);
    if (h == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a group of %" PRId32 " ranks", n);
    h->n = n;
    h->last = &h->first;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    if (pthread_mutex_init(&h->lock, NULL) != 0 || pthread_cond_init(&h->news, &monotonic) != 0) {
        kv_free(h);
        return KV_FAIL(err, KV_ENOMEM, "no lock can be made");
    }
    pthread_condattr_destroy(&monotonic);
    *out = h;
    return KV_OK;
}

void kv_tp_hub_free(kv_tp_hub *h)
{
    if (h == NULL) return;
    for (mail *m = h->first, *next; m != NULL; m = next) {
        next = m->next;
        kv_free(m);
    }
    pthread_cond_destroy(&h->news);
    pthread_mutex_destroy(&h->lock);
    kv_free(h);
}

/* Who gave up, if anyone; the lock is held. */
static kv_rc heed_locked(local *t, bool *heard, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (int32_t r = 0; r < t->hub->n; r++) {
        if (r == t->base.rank || !t->hub->gave_up[r]) continue;
        if (heard != NULL) heard[r] = true;
        t->base.timed_out = t->hub->in_vain;
        if (rc == KV_OK) rc = KV_FAIL(err, KV_EPEER, "rank %" PRId32 " gave up: %s", r, t->hub->why[r]);
    }
    return rc;
}

static kv_rc local_heed(kv_tp_transport *base, bool *heard, kv_err *err)
{
    local *t = (local *)base;
    pthread_mutex_lock(&t->hub->lock);
    const kv_rc rc = heed_locked(t, heard, err);
    pthread_mutex_unlock(&t->hub->lock);
    return rc;
}

static void local_abort(kv_tp_transport *base, kv_rc rc, const char *why)
{
    local *t = (local *)base;
    pthread_mutex_lock(&t->hub->lock);
    t->hub->gave_up[base->rank] = true;
    t->hub->in_vain = t->hub->in_vain || rc == KV_ETIME;
    snprintf(t->hub->why[base->rank], KV_TP_NOTICE_TEXT, "%.230s", why);
    pthread_cond_broadcast(&t->hub->news);
    pthread_mutex_unlock(&t->hub->lock);
}

static kv_rc post(local *t, const kv_tp_message *m, bool control, kv_err *err)
{
    int64_t bytes = 0, at = 0;
    for (int32_t k = 0; k < m->pieces; k++) bytes += m->piece[k].bytes;
    mail *letter = kv_alloc(1, sizeof *letter + (size_t)bytes);
    if (letter == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a message of %" PRId64 " bytes", bytes);
    letter->from = t->base.rank;
    letter->to = m->peer;
    letter->control = control;
    letter->bytes = bytes;
    for (int32_t k = 0; k < m->pieces; k++) {
        if (m->piece[k].bytes > 0) memcpy(letter->data + at, m->piece[k].at, (size_t)m->piece[k].bytes);
        at += m->piece[k].bytes;
    }
    pthread_mutex_lock(&t->hub->lock);
    *t->hub->last = letter;
    t->hub->last = &letter->next;
    pthread_cond_broadcast(&t->hub->news);
    pthread_mutex_unlock(&t->hub->lock);
    return KV_OK;
}

/* The oldest letter of that kind; the lock is held. */
static mail *take(local *t, int32_t from, bool control)
{
    kv_tp_hub *h = t->hub;
    for (mail **at = &h->first; *at != NULL; at = &(*at)->next) {
        mail *m = *at;
        if (m->from != from || m->to != t->base.rank || m->control != control) continue;
        *at = m->next;
        if (h->last == &m->next) h->last = at;
        return m;
    }
    return NULL;
}

static struct timespec deadline_of(double timeout_s)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    const int64_t ns = ts.tv_nsec + (int64_t)(timeout_s * 1e9);
    ts.tv_sec += (time_t)(ns / 1000000000);
    ts.tv_nsec = (long)(ns % 1000000000);
    return ts;
}

static kv_rc await(local *t, int32_t from, bool control, mail **out, kv_err *err)
{
    const struct timespec end = deadline_of(t->base.timeout_s);
    kv_rc rc = KV_OK;
    mail *m;
    pthread_mutex_lock(&t->hub->lock);
    bool late = false; /* one look more: this thread may have come late, not the letter */
    while ((m = take(t, from, control)) == NULL && (rc = heed_locked(t, NULL, err)) == KV_OK) {
        if (late) {
            rc = KV_FAIL(err, KV_ETIME, "rank %" PRId32 " sent nothing for %g s", from, t->base.timeout_s);
            break;
        }
        late = pthread_cond_timedwait(&t->hub->news, &t->hub->lock, &end) == ETIMEDOUT;
    }
    pthread_mutex_unlock(&t->hub->lock);
    *out = m;
    return m != NULL ? KV_OK : rc;
}

static kv_rc receive(local *t, const kv_tp_message *m, bool control, kv_err *err)
{
    mail *letter = NULL;
    int64_t bytes = 0, at = 0;
    kv_rc rc = await(t, m->peer, control, &letter, err);
    if (rc != KV_OK) return rc;
    for (int32_t k = 0; k < m->pieces; k++) bytes += m->piece[k].bytes;
    if (letter->bytes != bytes)
        rc = KV_FAIL(err, KV_EPEER, "rank %" PRId32 " sent %" PRId64 " bytes where %" PRId64 " are expected", m->peer,
                     letter->bytes, bytes);
    for (int32_t k = 0; rc == KV_OK && k < m->pieces; k++) {
        if (m->piece[k].bytes > 0) memcpy(m->piece[k].at, letter->data + at, (size_t)m->piece[k].bytes);
        at += m->piece[k].bytes;
    }
    kv_free(letter);
    return rc;
}

static kv_rc run(kv_tp_transport *base, const kv_tp_batch *b, bool control, kv_err *err)
{
    local *t = (local *)base;
    kv_err why = {0};
    kv_rc rc = KV_OK;
    for (size_t i = 0; rc == KV_OK && i < b->n_send; i++) rc = post(t, &b->send[i], control, &why);
    for (size_t i = 0; rc == KV_OK && i < b->n_recv; i++) rc = receive(t, &b->recv[i], control, &why);
    if (rc != KV_OK) {
        local_abort(base, rc, why.text);
        kv_tp_name_the_silent(base, rc, why.text, sizeof why.text);
        return KV_FAIL(err, rc, "%s", why.text);
    }
    return KV_OK;
}

static kv_rc local_control(kv_tp_transport *t, const kv_tp_batch *b, kv_err *err)
{
    return run(t, b, true, err);
}

static kv_rc local_exchange(kv_tp_transport *t, const kv_tp_batch *b, kv_err *err)
{
    return run(t, b, false, err);
}

static kv_rc local_buffer_new(kv_tp_transport *t, int64_t bytes, void **out, kv_err *err)
{
    (void)t;
    void *p = kv_alloc_image((size_t)bytes);
    if (p == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a buffer of %" PRId64 " bytes", bytes);
    *out = p;
    return KV_OK;
}

static void local_buffer_free(kv_tp_transport *t, void *buffer)
{
    (void)t;
    kv_free(buffer);
}

static void local_close(kv_tp_transport *t)
{
    kv_free(t);
}

static const kv_tp_ops local_ops = {
    "local",     false, local_control, local_exchange, local_buffer_new, local_buffer_free, local_heed, local_abort,
    local_close, NULL,  NULL};

kv_rc kv_tp_local_new(kv_tp_hub *h, int32_t rank, double timeout_s, kv_tp_transport **out, kv_err *err)
{
    if (rank < 0 || rank >= h->n) return KV_FAIL(err, KV_EINVAL, "rank %" PRId32 " of %" PRId32, rank, h->n);
    local *t = kv_alloc(1, sizeof *t);
    if (t == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a transport");
    t->base = (kv_tp_transport){.ops = &local_ops, .rank = rank, .size = h->n, .timeout_s = timeout_s};
    for (int32_t r = 0; r < h->n; r++) t->base.world[r] = r;
    t->hub = h;
    *out = &t->base;
    return KV_OK;
}
