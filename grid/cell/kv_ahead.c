#include "grid/cell/kv_ahead.h"

#include <string.h>

#include "grid/cell/kv_cell_pair.h"
#include "grid/cell/kv_cell_plan.h"

typedef struct {
    int64_t cell;
    kv_cell_asked *asked;
    bool whole; /* all of it was asked for */
    bool told;  /* row is its row */
    kv_row row;
} begun;

typedef struct {
    bool flying; /* queued on the device */
    int32_t n, taken;
    int64_t bytes; /* of the device's memory */
    uint64_t number;
    begun *cells; /* KV_WAVE_CELLS */
} wave;

struct kv_ahead {
    kv_runner *r;
    const kv_campaign *c;
    int64_t memory_bytes, small_bytes;
    wave waves[KV_WAVES];
    kv_ahead_count count;
};

#define OPS(a_) ((a_)->r->dev->ops)

kv_rc kv_ahead_new(kv_runner *r, const kv_campaign *c, int64_t memory_bytes, int64_t small_bytes, kv_ahead **out,
                   kv_err *err)
{
    if (r->dev->ops->wave_open == NULL) return KV_OK;
    kv_ahead *a = kv_alloc(1, sizeof *a);
    if (a == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for cells to be begun");
    a->r = r;
    a->c = c;
    a->memory_bytes = memory_bytes;
    a->small_bytes = small_bytes;
    for (int i = 0; i < KV_WAVES; i++) {
        a->waves[i].cells = kv_alloc(KV_WAVE_CELLS, sizeof *a->waves[i].cells);
        if (a->waves[i].cells == NULL) {
            kv_ahead_free(a);
            return KV_FAIL(err, KV_ENOMEM, "no memory for cells to be begun");
        }
    }
    *out = a;
    return KV_OK;
}

kv_ahead_count kv_ahead_counted(const kv_ahead *a)
{
    return a->count;
}

/* ---- the end of a wave ------------------------------------------------------------------ */

/* Its rows, where all went well, and its memory back. */
static void close_wave(kv_ahead *a, wave *w, bool well)
{
    for (int32_t i = 0; i < w->n; i++) {
        begun *b = &w->cells[i];
        kv_err why = {0};
        b->told = well && b->whole && kv_cell_tell(b->asked, &why) == KV_OK;
        kv_cell_drop(b->asked);
        b->asked = NULL;
        a->count.alone += !b->told;
    }
    w->flying = false;
    w->bytes = 0;
}

/* Waits for it; then its rows are there, and its memory is free. Where it failed all waves end untold: a reference decode that
 * one of them asked for may be what another needs, and is forgotten only when nothing more writes it. */
static void land(kv_ahead *a, wave *w)
{
    kv_err why = {0};
    if (OPS(a)->wave_wait(a->r->dev, (int32_t)(w - a->waves), &why) == KV_OK) {
        close_wave(a, w, true);
        return;
    }
    close_wave(a, w, false);
    for (int i = 0; i < KV_WAVES; i++) {
        if (!a->waves[i].flying) continue;
        (void)OPS(a)->wave_wait(a->r->dev, i, &why);
        close_wave(a, &a->waves[i], false);
    }
    kv_cell_forget(a->r);
}

/* All up to the one of that number, in the order in which they were begun: a later one may need the reference decode of an
 * earlier one. */
static void land_until(kv_ahead *a, uint64_t number)
{
    for (;;) {
        wave *first = NULL;
        for (int i = 0; i < KV_WAVES; i++) {
            wave *w = &a->waves[i];
            if (w->flying && w->number <= number && (first == NULL || w->number < first->number)) first = w;
        }
        if (first == NULL) return;
        land(a, first);
    }
}

static void land_all(kv_ahead *a)
{
    land_until(a, UINT64_MAX);
}

void kv_ahead_free(kv_ahead *a)
{
    if (a == NULL) return;
    land_all(a);
    for (int i = 0; i < KV_WAVES; i++) kv_free(a->waves[i].cells);
    kv_free(a);
}

/* ---- the beginning ---------------------------------------------------------------------- */

static bool in_use(const wave *w)
{
    return w->taken < w->n;
}

static begun *find(kv_ahead *a, int64_t cell, wave **in)
{
    for (int i = 0; i < KV_WAVES; i++)
        for (int32_t k = a->waves[i].taken; k < a->waves[i].n; k++)
            if (a->waves[i].cells[k].cell == cell) {
                *in = &a->waves[i];
                return &a->waves[i].cells[k];
            }
    return NULL;
}

/* Bytes of the device's memory; false where it is not for a wave. */
static bool can_fly(const kv_ahead *a, int64_t cell, int64_t *bytes)
{
    kv_cell_need need;
    kv_err why = {0};
    if (cell < 0 || a->c->cells[cell].check != KV_CHECK_PAIR || a->c->exhaustive) return false;
    if (kv_cell_plan(a->c, cell, &need, &why) != KV_OK) return false;
    *bytes = need.gpu_bytes;
    return true;
}

static int64_t bytes_under_way(const kv_ahead *a)
{
    int64_t sum = 0;
    for (int i = 0; i < KV_WAVES; i++) sum += a->waves[i].bytes;
    return sum;
}

/* How many of the cells go into one wave: small ones together, a large one alone; 0: the first must wait. */
static int32_t group(const kv_ahead *a, const int64_t *cells, int32_t n, int64_t *bytes)
{
    const int64_t room = a->memory_bytes - bytes_under_way(a);
    int32_t count = 0;
    *bytes = 0;
    while (count < n && count < KV_WAVE_CELLS) {
        int64_t one;
        if (!can_fly(a, cells[count], &one) || one > room - *bytes) break;
        if (one > a->small_bytes && count > 0) break;
        *bytes += one;
        count++;
        if (one > a->small_bytes) break;
    }
    return count;
}

static bool begin(kv_ahead *a, wave *w, const int64_t *cells, int32_t n, int64_t bytes)
{
    const int32_t number = (int32_t)(w - a->waves);
    kv_err why = {0};
    bool all = true;
    w->n = w->taken = 0;
    if (OPS(a)->wave_open(a->r->dev, number, n, &why) != KV_OK) return false;
    w->bytes = bytes;
    for (int32_t i = 0; i < n && all;
         i++) { /* what could not be asked for is run by itself, and what comes after it too */
        begun *b = &w->cells[w->n++];
        *b = (begun){.cell = cells[i]};
        OPS(a)->wave_cell(a->r->dev, number, i);
        all = b->whole = kv_cell_ask(a->r, a->c, cells[i], &b->row, &b->asked, &why) == KV_OK;
    }
    OPS(a)->wave_cell(a->r->dev, -1, 0);
    w->flying = true;
    w->number = (uint64_t)++a->count.waves;
    a->count.cells += w->n;
    if (OPS(a)->wave_send(a->r->dev, number, &why) == KV_OK && all) return true;
    land_all(a);
    kv_cell_forget(a->r);
    return false;
}

void kv_ahead_coming(kv_ahead *a, const int64_t *cells, int32_t n)
{
    wave *in;
    int32_t at = 0;
    bool room = false;
    for (int i = 0; i < KV_WAVES; i++) room = room || !in_use(&a->waves[i]);
    if (!room) return;
    while (at < n && find(a, cells[at], &in) != NULL) at++;
    for (int i = 0; i < KV_WAVES && at < n; i++) {
        wave *w = &a->waves[i];
        int64_t bytes;
        if (in_use(w)) continue;
        const int32_t count = group(a, cells + at, n - at, &bytes);
        if (count == 0) return;
        if (!begin(a, w, cells + at, count, bytes)) return;
        at += count;
    }
}

bool kv_ahead_take(kv_ahead *a, int64_t cell, kv_row *row)
{
    wave *w = NULL;
    const begun *b = find(a, cell, &w);
    if (b != NULL) {
        land_until(a, w->number);
        w->taken = (int32_t)(b - w->cells) + 1; /* cells are taken in their order */
        if (b->told) {
            *row = b->row;
            return true;
        }
    }
    land_all(a);
    return false;
}
