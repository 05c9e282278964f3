#include "grid/bench/kv_bench_tp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/bench/kv_bench_time.h"
#include "grid/cli/kv_ask.h"
#include "grid/run/kv_gpu.h"
#include "tp/kv_tp_move.h"

#define GEOMETRY "L=8,T=4096,H=8,D=128,e=f16"

typedef struct {
    const kv_opts *o;
    kv_mpi *m;
    kv_campaign c;
    kv_chosen on;
    kv_tp_world *world;
    kv_tp_transport *over_mpi, *over_nccl;
    json_t *list;
    kv_bench_pairs pairs;
} bench;

/* a / b in parts per million; 0 where b is too short to be told. */
static int64_t ppm(double a, double b)
{
    return b > 0 ? (int64_t)(1e6 * a / b + 0.5) : 0;
}

static kv_rc tell(bench *w, const kv_cell *cell, const kv_tp_speed *s, kv_err *err)
{
    char id[KV_PAIR_ID_TEXT];
    const int64_t move = ppm(s->plain_s, s->move_s), pack = ppm(s->copy_s, s->pack_s);
    kv_cell_pair_id(&w->c, cell, id);
    if (!w->o->json) {
        if (w->pairs.measured == 1)
            printf("%-40s %10s %7s %10s %7s\n", "pair", "move GB/s", "ratio", "pack GB/s", "ratio");
        printf("%-40s %10.2f %7.2f %10.2f %7.2f\n", id, 1e-9 * (double)(s->bytes * s->units) / s->move_s,
               1e-6 * (double)move, 2e-9 * (double)s->bytes / s->pack_s, 1e-6 * (double)pack);
        return KV_OK;
    }
    json_t *v = json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I}", "pair_id", id, "unit_bytes", (json_int_t)s->bytes, "units",
                          (json_int_t)s->units, "move_ns", (json_int_t)(1e9 * s->move_s), "plain_ns",
                          (json_int_t)(1e9 * s->plain_s), "move_ratio_ppm", (json_int_t)move, "pack_ratio_ppm",
                          (json_int_t)pack);
    return json_array_append_new(w->list, v) == 0 ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for figures");
}

/* Every pair of whole layouts that exists; a failure breaks the group. */
static kv_rc measure(bench *w, kv_tp_transport *t, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (size_t i = 0; rc == KV_OK && i < w->c.n_cells; i++) {
        const kv_cell *cell = &w->c.cells[i];
        const kv_layout *a = w->c.catalogue.item[cell->src], *b = w->c.catalogue.item[cell->dst];
        kv_tp_spec s = {.transport = t, .device = w->on.dev, .layout = {a, b}, .tp = {1, 1}, .seed = 1, .payloads = 1};
        kv_tp_result found;
        kv_tp_speed speed;
        s.g = &w->c.geometries[cell->geometry];
        if (a->tp_size != 1 || b->tp_size != 1) {
            w->pairs.other++;
            continue;
        }
        rc = kv_tp_examine(&s, &found, err); /* the same on both ranks */
        if (rc == KV_OK && found.refused) w->pairs.refused++;
        if (rc != KV_OK || found.refused) continue;
        w->pairs.measured++;
        rc = kv_tp_bench(&s, (int32_t)w->o->repeat, &speed, err);
        if (rc == KV_OK && t->rank == 0) rc = tell(w, cell, &speed, err);
    }
    return rc;
}

static kv_rc open_group(bench *w, kv_tp_transport **out, char why[KV_TP_WHY_TEXT], kv_err *err)
{
    static const int32_t first[2] = {0, 1};
    const double limit = kv_mpi_timeout(w->m);
    kv_tp_place here;
    bool nccl = false;
    kv_rc rc = kv_tp_mpi_new(w->world, first, 2, limit, &w->over_mpi, err);
    memset(&here, 0, sizeof here);
    snprintf(here.host, sizeof here.host, "%.63s", kv_mpi_host_view(w->m, kv_mpi_rank(w->m)));
    snprintf(here.gpu, sizeof here.gpu, "%.47s", w->on.gpu.uuid);
    if (rc == KV_OK) rc = kv_tp_choose_shared(w->over_mpi, &here, &nccl, why, err);
    if (rc == KV_OK && nccl) rc = kv_tp_nccl_new(w->over_mpi, w->on.ordinal, limit, &w->over_nccl, err);
    *out = nccl ? w->over_nccl : w->over_mpi;
    return rc;
}

/* On the first two ranks. */
static kv_rc work(bench *w, kv_err *err)
{
    const bool root = kv_mpi_rank(w->m) == 0;
    char why[KV_TP_WHY_TEXT] = "";
    kv_tp_transport *t = NULL;
    kv_rc rc = open_group(w, &t, why, err);
    if (rc == KV_OK) rc = measure(w, t, err);
    if (rc != KV_OK) {
        kv_mpi_give_up(w->m, t != NULL && t->silent[0]); /* the other ranks wait for the end of a group that has none */
        return rc;
    }
    if (!root || w->pairs.measured == 0) return rc;
    if (!w->o->json) {
        printf("%s; ratio: plain message / move, copy / pack, of the same bytes\n", why);
        return rc;
    }
    json_t *answer = json_pack("{s:s,s:I,s:O}", "transport", why, "repeat", (json_int_t)w->o->repeat, "tp", w->list);
    rc = answer != NULL ? kv_ask_print_json(answer, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the answer");
    json_decref(answer);
    return rc;
}

kv_rc kv_bench_tp(const kv_opts *given, kv_mpi *m, kv_err *err)
{
    kv_opts o = *given;
    bench w = {.o = &o, .m = m, .list = json_array(), .pairs = {.other_cause = "are of shards"}};
    kv_rc rc = w.list != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for figures");
    if (kv_mpi_size(m) < 2) rc = KV_FAIL(err, KV_EINVAL, "bench --tp takes two ranks: mpirun -n 2 kvgrid bench --tp");
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    KV_TRY(rc, out, kv_gpu_choose(m, o.device != NULL ? o.device : "cpu", o.share_gpu != 0, &w.on, err));
    if (o.n_geometry == 0) o.geometry[o.n_geometry++] = GEOMETRY;
    if (o.pairs == NULL) o.pairs = "vllm-fa->sglang,sglang->vllm-fa,trtllm->hf-dynamic-cache,vllm-fa->vllm-paged-x";
    rc = kv_ask_campaign(&o, &w.c, err);
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    rc = kv_tp_world_new(kv_mpi_timeout(m), &w.world, err);
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    rc = kv_mpi_rank(m) < 2 ? work(&w, err) : KV_OK;
    if (kv_mpi_broken(m)) return rc; /* bytes may still arrive */
    if (rc == KV_OK && kv_mpi_rank(m) < 2) rc = kv_bench_left_out(&w.pairs, kv_mpi_rank(m) == 0, err);
    rc = kv_mpi_agree(m, rc, err);
    kv_tp_close(w.over_nccl);
    kv_tp_close(w.over_mpi);
out:
    kv_tp_world_free(w.world);
    json_decref(w.list);
    kv_campaign_free(&w.c);
    if (w.on.dev != NULL) w.on.dev->ops->close(w.on.dev);
    return rc;
}
