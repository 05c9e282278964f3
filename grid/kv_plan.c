#include "grid/kv_plan.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

kv_rc kv_plan_new(const kv_campaign *c, kv_plan *out, kv_err *err)
{
    kv_plan p = {.cells = (int64_t)c->n_cells, .peak_cell = -1};
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

kv_rc kv_plan_check_memory(const kv_campaign *c, const kv_plan *p, int ranks_here, const kv_cuda_gpu *gpu, kv_err *err)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0 || p->peak_cell < 0) return KV_OK;
    const double have = (double)pages * (double)page, need = (double)p->peak_bytes * ranks_here;
    const bool on_gpu = gpu != NULL && *gpu->uuid != '\0';
    if (on_gpu ? p->peak_bytes <= gpu->memory_bytes : need <= have) return KV_OK;
    char id[KV_PAIR_ID_TEXT], text[KV_GEOMETRY_TEXT];
    const kv_cell *cell = &c->cells[p->peak_cell];
    kv_cell_pair_id(c, cell, id);
    kv_geometry_print(&c->geometries[cell->geometry], text);
    if (on_gpu)
        return KV_FAIL(err, KV_ENOMEM,
                       "%s at %s needs %" PRId64 " bytes, %s (%s) has %" PRId64 "; use a smaller geometry", id, text,
                       p->peak_bytes, gpu->uuid, gpu->name, gpu->memory_bytes);
    return KV_FAIL(err, KV_ENOMEM,
                   "%s at %s needs %" PRId64
                   " bytes a rank, %d ranks on a host of %.0f bytes; use fewer ranks a host or a smaller geometry",
                   id, text, p->peak_bytes, ranks_here, have);
}
