/* One process plays all ranks of a group: a thread for each, over the local transport. */
#include <inttypes.h>
#include <pthread.h>

#include "tp/kv_tp_transport.h"

typedef struct {
    kv_tp_hub *hub;
    int32_t rank;
    double timeout_s;
    kv_tp_part part;
    void *ctx;
    pthread_t thread;
    bool runs;
    kv_rc rc;
    kv_err err;
} player;

static void *play(void *arg)
{
    player *p = arg;
    kv_tp_transport *t = NULL;
    p->rc = kv_tp_local_new(p->hub, p->rank, p->timeout_s, &t, &p->err);
    if (p->rc == KV_OK) p->rc = p->part(p->ctx, t, &p->err);
    kv_tp_close(t);
    return NULL;
}

/* A cause rather than what another rank heard of it. */
static kv_rc outcome(const player *p, int32_t n, kv_err *err)
{
    const player *worst = NULL;
    for (int32_t r = 0; r < n; r++)
        if (p[r].rc != KV_OK && (worst == NULL || (worst->rc == KV_EPEER && p[r].rc != KV_EPEER))) worst = &p[r];
    if (worst == NULL) return KV_OK;
    return KV_FAIL(err, worst->rc, "%s", worst->err.text);
}

kv_rc kv_tp_play(int32_t n, double timeout_s, kv_tp_part part, void *ctx, kv_err *err)
{
    kv_tp_hub *hub = NULL;
    player *p = NULL;
    kv_rc rc = kv_tp_hub_new(n, &hub, err);
    if (rc != KV_OK) return rc;
    p = kv_alloc((size_t)n, sizeof *p);
    if (p == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId32 " ranks", n);
        goto out;
    }
    for (int32_t r = 0; r < n; r++) {
        p[r] = (player){.hub = hub, .rank = r, .timeout_s = timeout_s, .part = part, .ctx = ctx};
        p[r].runs = pthread_create(&p[r].thread, NULL, play, &p[r]) == 0;
        if (!p[r].runs) p[r].rc = KV_FAIL(&p[r].err, KV_ENOMEM, "no thread for rank %" PRId32 " of %" PRId32, r, n);
    }
    for (int32_t r = 0; r < n; r++) /* those that wait for one that never began end with their time limit */
        if (p[r].runs) pthread_join(p[r].thread, NULL);
    rc = outcome(p, n, err);
out:
    kv_free(p);
    kv_tp_hub_free(hub);
    return rc;
}
