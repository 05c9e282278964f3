#include "grid/run/kv_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR 24
#define BAR_EVERY_S 0.1
#define LINE_EVERY_S 5.0

kv_rc kv_progress_start(kv_progress *p, bool off, int ranks, kv_err *err)
{
    memset(p, 0, sizeof *p);
    p->off = off;
    p->terminal = isatty(STDERR_FILENO) == 1;
    p->ranks = ranks;
    p->rank_cost = kv_alloc((size_t)ranks, sizeof *p->rank_cost);
    return p->rank_cost != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for the progress of %d ranks", ranks);
}

void kv_progress_add(kv_progress *p, int rank, double cost, double positions, double moved_bytes)
{
    if (rank >= 0 && rank < p->ranks) p->rank_cost[rank] += cost;
    p->positions += positions;
    p->moved_bytes += moved_bytes;
}

/* The rank that has delivered least, and its share of a fair part in percent. */
static int slowest(const kv_progress *p, double *percent)
{
    int who = 0;
    double sum = 0;
    for (int r = 0; r < p->ranks; r++) {
        sum += p->rank_cost[r];
        if (p->rank_cost[r] < p->rank_cost[who]) who = r;
    }
    *percent = sum > 0 ? 100 * p->rank_cost[who] * p->ranks / sum : 100;
    return who;
}

void kv_progress_step(kv_progress *p, const kv_mpi_progress *now)
{
    const double every = p->terminal ? BAR_EVERY_S : LINE_EVERY_S;
    char slow[64] = "", rates[96];
    double percent;
    if (p->off || now->seconds - p->last < every || now->cost_total <= 0) return;
    p->last = now->seconds;
    const double share = now->cost_done / now->cost_total;
    const double left = share > 0 ? now->seconds * (1 - share) / share : 0;
    snprintf(rates, sizeof rates, "%.3g positions/s  %.3g GB/s  %.0f s left", p->positions / now->seconds,
             p->moved_bytes / now->seconds * 1e-9, left);
    if (p->ranks > 1) {
        const int who = slowest(p, &percent);
        snprintf(slow, sizeof slow, "  slowest rank %d (%.0f %% of its part)", who, percent);
    }
    if (p->terminal) {
        char bar[BAR + 1];
        const int full = (int)(share * BAR);
        for (int i = 0; i < BAR; i++) bar[i] = i < full ? '#' : '.';
        bar[BAR] = '\0';
        fprintf(stderr, "\r[%s] %3.0f %%  %" PRId64 "/%" PRId64 " cells  %s%s\033[K", bar, share * 100, now->items_done,
                now->items_total, rates, slow);
        fflush(stderr);
        p->drawn = true;
    } else {
        fprintf(stderr, "kvgrid: %" PRId64 " of %" PRId64 " cells, %s%s\n", now->items_done, now->items_total, rates,
                slow);
    }
}

void kv_progress_end(kv_progress *p)
{
    if (p->drawn) fprintf(stderr, "\r\033[K");
    p->drawn = false;
    kv_free(p->rank_cost);
    p->rank_cost = NULL;
    p->ranks = 0;
}
