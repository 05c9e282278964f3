#include "grid/kv_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR 30
#define BAR_EVERY_S 0.1
#define LINE_EVERY_S 5.0

void kv_progress_start(kv_progress *p, bool off)
{
    memset(p, 0, sizeof *p);
    p->off = off;
    p->terminal = isatty(STDERR_FILENO) == 1;
}

void kv_progress_step(kv_progress *p, const kv_mpi_progress *now)
{
    const double every = p->terminal ? BAR_EVERY_S : LINE_EVERY_S;
    if (p->off || now->seconds - p->last < every || now->cost_total <= 0) return;
    p->last = now->seconds;
    const double share = now->cost_done / now->cost_total;
    const double rate = now->seconds > 0 ? (double)now->items_done / now->seconds : 0;
    const double left = share > 0 ? now->seconds * (1 - share) / share : 0;
    if (p->terminal) {
        char bar[BAR + 1];
        const int full = (int)(share * BAR);
        for (int i = 0; i < BAR; i++) bar[i] = i < full ? '#' : '.';
        bar[BAR] = '\0';
        fprintf(stderr, "\r[%s] %3.0f %%  %" PRId64 "/%" PRId64 " cells  %.0f/s  %.0f s left ", bar, share * 100, now->items_done,
                now->items_total, rate, left);
        fflush(stderr);
        p->drawn = true;
    } else {
        fprintf(stderr, "kvgrid: %" PRId64 " of %" PRId64 " cells, %.0f/s, about %.0f s left\n", now->items_done, now->items_total, rate, left);
    }
}

void kv_progress_end(kv_progress *p)
{
    if (p->drawn) fprintf(stderr, "\r%80s\r", "");
    p->drawn = false;
}
