#include "grid/run/kv_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void note_most(kv_plan_most *most, int64_t bytes, bool runs, size_t cell)
{
    if (!runs || (most->cell >= 0 && bytes <= most->bytes)) return;
    most->bytes = bytes;
    most->cell = (int64_t)cell;
}

kv_rc kv_plan_new(const kv_campaign *c, kv_plan *out, kv_err *err)
{
    kv_plan p = {
        .cells = (int64_t)c->n_cells, .peak_cell = -1, .least = {0, -1}, .gpu_least = {0, -1}, .gpu_host = {0, -1}};
    p.costs = kv_alloc(c->n_cells, sizeof *p.costs);
    if (p.costs == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to plan %zu cells", c->n_cells);
    for (size_t i = 0; i < c->n_cells; i++) {
        kv_cell_need n;
        kv_rc rc = kv_cell_plan(c, (int64_t)i, &n, err);
        if (rc != KV_OK) {
            kv_free(p.costs);
            return rc;
        }
        p.costs[i] = n.cost;
        p.cost_ns += (double)n.cost;
        p.moved_bytes += (double)n.moved_bytes;
        if (!n.runs) p.refused++;
        if (n.runs && (p.peak_cell < 0 || n.peak_bytes > p.peak_bytes)) {
            p.peak_bytes = n.peak_bytes;
            p.peak_cell = (int64_t)i;
        }
        note_most(&p.least, n.least_bytes, n.runs, i);
        note_most(&p.gpu_least, n.gpu_least_bytes, n.runs, i);
        note_most(&p.gpu_host, n.gpu_host_bytes, n.runs, i);
        for (int s = 0; s < 2; s++) {
            if (n.positions[s] > p.largest_positions) p.largest_positions = n.positions[s];
            if (n.bytes[s] > p.largest_bytes) p.largest_bytes = n.bytes[s];
        }
    }
    *out = p;
    return KV_OK;
}

void kv_plan_free(kv_plan *p)
{
    kv_free(p->costs);
    memset(p, 0, sizeof *p);
}

int64_t kv_plan_cell_memory(const kv_plan *p, const kv_memory *m)
{
    const int64_t have = kv_memory_for_cell(m), need = m->gpu_bytes > 0 ? p->gpu_least.bytes : p->least.bytes;
    return have == 0 || have > need ? have : need;
}

kv_rc kv_plan_split_of(const kv_campaign *c, const kv_plan *p, int64_t limit, kv_plan_split *out, kv_err *err)
{
    kv_plan_split s = {0, -1, {1, 0}};
    for (int64_t i = 0; limit > 0 && p->peak_bytes > limit && i < p->cells; i++) {
        kv_cell_need n;
        kv_cell_split split = {1, 0};
        kv_rc rc = kv_cell_plan(c, i, &n, err);
        if (rc == KV_OK && n.runs && n.peak_bytes > limit) rc = kv_cell_split_of(c, i, limit, false, &split, err);
        if (rc != KV_OK) return rc;
        s.cells += split.windows > 1;
        if (split.windows <= s.most.windows) continue;
        s.most = split;
        s.cell = i;
    }
    *out = s;
    return KV_OK;
}

static kv_rc too_large(const kv_campaign *c, const kv_plan_most *most, const char *where, kv_err *err)
{
    char id[KV_PAIR_ID_TEXT], text[KV_GEOMETRY_TEXT];
    const kv_cell *cell = &c->cells[most->cell];
    kv_cell_pair_id(c, cell, id);
    kv_geometry_print(&c->geometries[cell->geometry], text);
    return KV_FAIL(err, KV_ENOMEM, "%s at %s needs %" PRId64 " bytes, cut as small as it can be: %s", id, text,
                   most->bytes, where);
}

kv_rc kv_plan_check_memory(const kv_campaign *c, const kv_plan *p, const kv_memory *m, kv_err *err)
{
    const bool on_gpu = m->gpu_bytes > 0;
    const kv_plan_most *host = on_gpu ? &p->gpu_host : &p->least;
    char where[256];
    if (on_gpu && p->gpu_least.cell >= 0 && p->gpu_least.bytes > m->gpu_bytes) {
        snprintf(where, sizeof where, "%s (%s) has %" PRId64 " free%s; use a smaller geometry", m->gpu.uuid,
                 m->gpu.name, m->gpu_bytes, m->gpu_ranks > 1 ? " for each rank that shares it" : "");
        return too_large(c, &p->gpu_least, where, err);
    }
    if (m->host.total_bytes == 0 || host->cell < 0 || host->bytes <= m->host.total_bytes / m->host_ranks) return KV_OK;
    snprintf(where, sizeof where,
             "%d rank%s on a host of %" PRId64 " bytes; use fewer ranks a host or a smaller geometry", m->host_ranks,
             m->host_ranks > 1 ? "s" : "", m->host.total_bytes);
    return too_large(c, host, where, err);
}
