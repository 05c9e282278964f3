#include "grid/cell/kv_cell_windows.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/kv_kern_token.h"

static kv_rc bind_both(const kv_layout *const side[2], const kv_geometry *g, int64_t unit, kv_index out[2], kv_err *err)
{
    for (int i = 0; i < 2; i++) {
        char reason[KV_REASON_TEXT];
        kv_bind_state state = KV_BIND_OK;
        const kv_rc rc = kv_layout_bind(side[i], g, unit, &out[i], &state, reason, err);
        if (rc != KV_OK) return rc;
        if (state != KV_BIND_OK) return KV_FAIL(err, KV_EBUG, "%s", reason);
    }
    return KV_OK;
}

kv_rc kv_windows_one(const kv_layout *const side[2], const kv_geometry *g, int64_t unit, kv_windows *out, kv_err *err)
{
    const kv_rc rc = bind_both(side, g, unit, out->whole, err);
    if (rc != KV_OK) return rc;
    memcpy(out->part, out->whole, sizeof out->part);
    memcpy(out->last, out->whole, sizeof out->last);
    out->tokens = g->tokens;
    out->count = 1;
    return KV_OK;
}

/* ---- cutting ---------------------------------------------------------------------------- */

int64_t kv_windows_step(const kv_windows *w)
{
    int64_t a = w->whole[0].block, b = w->whole[1].block, step = 0;
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    if (!kv_mul_i64(w->whole[0].block / a, w->whole[1].block, &step)) return 0;
    return step < w->whole[0].tokens ? step : 0;
}

/* Whether n windows like `part` and one like `last` hold as much as `whole`. */
static bool adds_up(const kv_index *whole, const kv_index *part, const kv_index *last, int64_t n)
{
    const int64_t sums[][3] = {
        {whole->native, part->native, last->native},
        {whole->elements, part->elements, last->elements},
        {whole->native - whole->elements, part->native - part->elements, last->native - last->elements}};
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        int64_t all;
        if (!kv_mul_i64(n, sums[i][1], &all) || !kv_add_i64(all, sums[i][2], &all) || all != sums[i][0]) return false;
    }
    return true;
}

kv_rc kv_windows_cut(const kv_layout *const side[2], const kv_geometry *g, int64_t tokens, kv_windows *w, bool *splits,
                     kv_err *err)
{
    kv_windows cut = *w;
    kv_geometry part = *g;
    kv_rc rc;
    *splits = false;
    cut.tokens = tokens;
    cut.count = (g->tokens + tokens - 1) / tokens;
    part.tokens = tokens;
    KV_TRY(rc, out, bind_both(side, &part, w->whole[0].layers, cut.part, err));
    part.tokens = g->tokens - (cut.count - 1) * tokens;
    KV_TRY(rc, out, bind_both(side, &part, w->whole[0].layers, cut.last, err));
    for (int i = 0; i < 2; i++)
        if (!adds_up(&w->whole[i], &cut.part[i], &cut.last[i], cut.count - 1)) goto out;
    *w = cut;
    *splits = true;
out:
    return rc;
}

int64_t kv_windows_first(const kv_windows *w, int64_t n)
{
    return n * w->tokens;
}

const kv_index *kv_windows_at(const kv_windows *w, int64_t n)
{
    return n + 1 < w->count ? w->part : w->last;
}

/* ---- memory ----------------------------------------------------------------------------- */

#define GUARDS 4096    /* of all images, and what an allocation is rounded up by */
#define TABLE_BYTES 24 /* of a token or lane of a window: where the CPU's translator keeps its place */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool add(int64_t *sum, int64_t n)
{
    return kv_add_i64(*sum, n, sum);
}

int64_t kv_windows_third_bytes(const kv_windows *w, const kv_geometry *g)
{
    const kv_index *whole = &w->whole[1];
    const int64_t dense =
        whole->elements / whole->layers * larger(kv_elem_bytes(g->element), kv_elem_bytes((kv_elem)whole->element));
    return larger(larger(kv_index_bytes(&w->part[0]), kv_index_bytes(&w->part[1])), dense);
}

bool kv_windows_bytes(const kv_windows *w, const kv_geometry *g, kv_windows_need *out)
{
    const kv_index *a = &w->part[0], *b = &w->part[1], *whole = &w->whole[1];
    const int64_t bytes[2] = {kv_index_bytes(a), kv_index_bytes(b)};
    const int64_t probe = larger(w->whole[0].elements, whole->elements) / 8;
    const int64_t value = whole->lanes[1] > 0 ? whole->lanes[1] : whole->lanes[0];
    int64_t leg, tables, sum = GUARDS;
    if (!kv_token_bytes(whole->tokens, whole->heads, whole->lanes[0], value, &leg)) return false;
    /* source, destination, and a third that is also the dense layer; bits of the round trip's differences */
    if (!add(&sum, bytes[0]) || !add(&sum, bytes[1]) || !add(&sum, kv_windows_third_bytes(w, g)) ||
        !add(&sum, a->native / 8) || !add(&sum, w->count > 1 ? a->native / 8 : 0) || !add(&sum, leg))
        return false;
    out->gpu = sum;
    tables = 2 * TABLE_BYTES * (a->tokens + a->block + b->block + a->lanes[0] + a->lanes[1]);
    if (!add(&sum, tables)) return false;
    out->host = larger(sum, probe); /* the probe comes first, before there are images */
    return true;
}

static kv_rc need_of(const kv_windows *w, const kv_geometry *g, bool gpu, int64_t *out, kv_err *err)
{
    kv_windows_need need;
    if (!kv_windows_bytes(w, g, &need)) return KV_FAIL(err, KV_EINVAL, "the memory it needs does not fit 64 bits");
    *out = gpu ? need.gpu : need.host;
    return KV_OK;
}

/* Cuts into windows of k steps; what they need, more than there can be where the pair is not so split. */
static kv_rc try_steps(const kv_layout *const side[2], const kv_geometry *g, int64_t k, int64_t step, bool gpu,
                       kv_windows *w, int64_t *need, kv_err *err)
{
    bool splits = false;
    kv_rc rc = kv_windows_cut(side, g, k * step, w, &splits, err);
    if (rc == KV_OK && !splits) *need = INT64_MAX;
    if (rc == KV_OK && splits) rc = need_of(w, g, gpu, need, err);
    return rc;
}

kv_rc kv_windows_fit(const kv_layout *const side[2], const kv_geometry *g, int64_t limit, bool gpu, kv_windows *w,
                     kv_err *err)
{
    const int64_t step = kv_windows_step(w);
    int64_t whole = 0, need = 0, low = 1, high = step > 0 ? (g->tokens + step - 1) / step - 1 : 0;
    kv_rc rc = KV_OK;
    if (limit == 0) return KV_OK;
    KV_TRY(rc, out, need_of(w, g, gpu, &whole, err));
    if (whole <= limit) goto out;
    need = whole;
    if (step > 0) KV_TRY(rc, out, try_steps(side, g, 1, step, gpu, w, &need, err));
    if (need > limit)
        return KV_FAIL(err, KV_ENOMEM, "%s: %" PRId64 " bytes are needed%s, there is memory of %" PRId64 " for a cell",
                       gpu ? "GPU" : "host", w->count > 1 ? need : whole,
                       w->count > 1 ? " in the smallest windows of tokens" : "", limit);
    while (low < high) { /* the largest window that fits: low does */
        const int64_t middle = low + (high - low + 1) / 2;
        KV_TRY(rc, out, try_steps(side, g, middle, step, gpu, w, &need, err));
        if (need <= limit)
            low = middle;
        else
            high = middle - 1;
    }
    const int64_t steps = (g->tokens + step - 1) / step, count = (steps + low - 1) / low;
    rc = try_steps(side, g, (steps + count - 1) / count, step, gpu, w, &need, err);
    if (rc == KV_OK && need > limit) rc = try_steps(side, g, low, step, gpu, w, &need, err);
out:
    return rc;
}
