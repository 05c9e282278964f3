/* kvgrid plan: what a campaign will do and cost, without running it. */
#include <inttypes.h>
#include <stdio.h>

#include "grid/cell/kv_shard_cell.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/run/kv_plan.h"
#include "grid/sim/kv_cmd_simulate.h"

#define SHARES_TOLD 16 /* ranks whose share is told one by one */
/* What parts of a certificate take, about: a row, a layout, a geometry, a layout at a geometry, and all else. */
#define ROW_BYTES 1240
#define LAYOUT_BYTES 560
#define GEOMETRY_BYTES 68
#define BINDING_BYTES 138
#define FRAME_BYTES 16500

/* The document with its row file. */
static int64_t certificate_bytes(const kv_campaign *c, const kv_plan *p)
{
    const int64_t layouts = (int64_t)c->catalogue.n, geometries = (int64_t)c->n_geometries;
    return FRAME_BYTES + layouts * LAYOUT_BYTES + geometries * (GEOMETRY_BYTES + layouts * BINDING_BYTES) +
           p->cells * ROW_BYTES;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100.0 * part / whole : 0;
}

static void print_shares(const kv_share *s, int64_t ranks)
{
    const kv_share_sum sum = kv_plan_share_sum(s, ranks);
    printf("time: about %.3g s on one CPU core, controls included", sum.all_ns * 1e-9);
    if (ranks > 1) printf("; %.3g s on %" PRId64 " ranks of a core each", sum.most_ns * 1e-9, ranks);
    printf("\n");
    if (ranks == 1) return;
    printf("work of a rank: %.3g to %.3g s, %.2f to %.2f %% of all", sum.least_ns * 1e-9, sum.most_ns * 1e-9,
           percent(sum.least_ns, sum.all_ns), percent(sum.most_ns, sum.all_ns));
    if (sum.idle > 0) printf("; %" PRId64 " ranks get nothing", sum.idle);
    printf("\n");
    for (int64_t i = 0; ranks <= SHARES_TOLD && i < ranks; i++)
        printf("  rank %" PRId64 ": %" PRId64 " items, %.3g s, %.2f %%\n", i, s[i].items, s[i].cost_ns * 1e-9,
               percent(s[i].cost_ns, sum.all_ns));
}

static void print_text(const kv_campaign *c, const kv_plan *p, const kv_share *s, int64_t ranks)
{
    char peak[KV_SIZE_TEXT], moved[KV_SIZE_TEXT];
    kv_ask_size(p->peak_bytes, peak);
    kv_ask_size(p->moved_bytes < 9e18 ? (int64_t)p->moved_bytes : INT64_MAX, moved);
    printf("campaign %s: %zu layouts, %zu geometries, %" PRId64 " cells (%" PRId64 " refused by a frontier code)\n",
           c->name, c->catalogue.n, c->n_geometries, p->cells, p->refused);
    printf("memory of a rank: %s (%" PRId64 " bytes)", peak, p->peak_bytes);
    if (p->peak_cell >= 0) {
        char id[KV_PAIR_ID_TEXT], text[KV_GEOMETRY_TEXT];
        kv_cell_pair_id(c, &c->cells[p->peak_cell], id);
        kv_geometry_print(&c->geometries[c->cells[p->peak_cell].geometry], text);
        printf(", for %s at %s", id, text);
    }
    if (p->least.cell >= 0 && p->least.bytes < p->peak_bytes) {
        kv_ask_size(p->least.bytes, peak);
        printf(", in one piece; in windows of tokens at least %s (%" PRId64 " bytes)", peak, p->least.bytes);
    }
    if (p->gpu_least.cell >= 0 && p->gpu_least.bytes > 0) {
        kv_ask_size(p->gpu_least.bytes, peak);
        printf("\nmemory of a GPU: at least %s (%" PRId64 " bytes)", peak, p->gpu_least.bytes);
    }
    printf("\nlargest image: %" PRId64 " positions, %" PRId64 " bytes\n", p->largest_positions, p->largest_bytes);
    kv_ask_size(certificate_bytes(c, p), peak);
    printf("bytes moved: about %s; certificate: about %s\n", moved, peak);
    print_shares(s, ranks);
}

/* One rank on this host's CPU. */
static kv_memory this_host(void)
{
    kv_memory m = {.host = kv_memory_of_host(""), .host_ranks = 1, .gpu_ranks = 1};
    return m;
}

/* {all_us, least_us, most_us, idle, ranks[]}; with very many ranks the list is left out. */
static json_t *shares_new(const kv_share *s, int64_t ranks)
{
    const kv_share_sum sum = kv_plan_share_sum(s, ranks);
    json_t *list = json_array();
    for (int64_t i = 0; list != NULL && ranks <= 65536 && i < ranks; i++)
        json_array_append_new(list, json_pack("{s:I,s:I,s:I,s:I}", "rank", (json_int_t)i, "items",
                                              (json_int_t)s[i].items, "us", (json_int_t)(s[i].cost_ns * 1e-3), "ppm",
                                              (json_int_t)(1e4 * percent(s[i].cost_ns, sum.all_ns))));
    return json_pack("{s:I,s:I,s:I,s:I,s:o}", "all_us", (json_int_t)(sum.all_ns * 1e-3), "least_us",
                     (json_int_t)(sum.least_ns * 1e-3), "most_us", (json_int_t)(sum.most_ns * 1e-3), "idle",
                     (json_int_t)sum.idle, "ranks", list);
}

static kv_rc print_json(const kv_opts *o, const kv_campaign *c, const kv_plan *p, const kv_share *s, kv_err *err)
{
    const int64_t ranks = o->ranks;
    const double moved = p->moved_bytes < 9e15 ? p->moved_bytes : 9e15;
    const kv_memory here = this_host();
    json_t *v =
        json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:o}", "campaign", c->name, "layouts",
                  (json_int_t)c->catalogue.n, "geometries", (json_int_t)c->n_geometries, "cells", (json_int_t)p->cells,
                  "refused", (json_int_t)p->refused, "peak_bytes_per_rank", (json_int_t)p->peak_bytes,
                  "least_bytes_per_rank", (json_int_t)p->least.bytes, "least_bytes_per_gpu",
                  (json_int_t)p->gpu_least.bytes, "largest_image_positions", (json_int_t)p->largest_positions,
                  "bytes_moved", (json_int_t)moved, "estimated_ms_one_core", (json_int_t)(p->cost_ns * 1e-6), "ranks",
                  (json_int_t)ranks, "certificate_bytes", (json_int_t)certificate_bytes(c, p), "fits_this_host",
                  kv_plan_check_memory(c, p, &here, NULL) == KV_OK, "work", shares_new(s, ranks));
    kv_rc rc = v != NULL ? kv_plan_simulate(o, c, p, v, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the answer");
    if (rc == KV_OK) rc = kv_ask_print_json(v, err);
    json_decref(v);
    return rc;
}

static void tell_split(const kv_campaign *c, const kv_plan *p, const kv_memory *here)
{
    kv_plan_split s;
    char id[KV_PAIR_ID_TEXT], text[KV_GEOMETRY_TEXT];
    if (kv_plan_split_of(c, p, kv_plan_cell_memory(p, here), &s, NULL) != KV_OK || s.cells == 0) return;
    kv_cell_pair_id(c, &c->cells[s.cell], id);
    kv_geometry_print(&c->geometries[c->cells[s.cell].geometry], text);
    printf("on this host %" PRId64 " cell%s would run in windows of tokens, %s at %s in %" PRId64 " of %" PRId64
           " tokens\n",
           s.cells, s.cells > 1 ? "s" : "", id, text, s.most.windows, s.most.tokens);
}

/* A plan may be for another machine: what does not fit this one is part of the answer, and run refuses it. */
static void tell_memory(const kv_campaign *c, const kv_plan *p)
{
    const kv_memory here = this_host();
    kv_err why = {0};
    if (kv_plan_check_memory(c, p, &here, &why) != KV_OK)
        printf("this host could not run it: %s\n", why.text);
    else
        tell_split(c, p, &here);
}

/* Cells of several ranks that this many ranks leave UNPROVEN; *most: the ranks that would do. */
static kv_rc count_open(const kv_campaign *c, int64_t ranks, int64_t *open, int64_t *most, kv_err *err)
{
    *open = 0;
    *most = 1;
    for (size_t i = 0; i < c->n_cells; i++) {
        int64_t needs;
        const kv_rc rc = kv_shard_cell_ranks(c, (int64_t)i, &needs, err);
        if (rc != KV_OK) return rc;
        *open += needs > ranks;
        if (needs > *most) *most = needs;
    }
    return KV_OK;
}

static kv_rc tell_open(const kv_opts *o, const kv_campaign *c, kv_err *err)
{
    int64_t open, most;
    if (!c->tp.present || c->tp.emulate) return KV_OK;
    const kv_rc rc = count_open(c, o->ranks, &open, &most, err);
    if (rc == KV_OK && open > 0)
        printf("%" PRId64 " tensor-parallel cells need more than %" PRId64
               " ranks and would be UNPROVEN: start %" PRId64 " ranks, or run with --tp-emulate\n",
               open, o->ranks, most);
    return rc;
}

int kv_cmd_plan(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    kv_campaign c = {0};
    kv_plan p = {0};
    kv_share *shares = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_plan_simulate_check(o, &err));
    KV_TRY(rc, out, kv_ask_campaign(o, &c, &err));
    c.tp.emulate = o->tp_emulate != 0;
    rc = kv_plan_new(&c, &p, &err);
    if (rc == KV_EINVAL && o->n_positional > 0) err.rc = rc = KV_EFORMAT; /* the sizes stand in the file */
    if (rc != KV_OK) goto out;
    KV_TRY(rc, out, kv_plan_share_new(&p, o->ranks, &shares, &err));
    if (o->json) {
        rc = print_json(o, &c, &p, shares, &err);
    } else {
        print_text(&c, &p, shares, o->ranks);
        tell_memory(&c, &p);
        rc = tell_open(o, &c, &err);
    }
    if (!o->json && rc == KV_OK) rc = kv_plan_simulate(o, &c, &p, NULL, &err);
out:
    kv_free(shares);
    kv_plan_free(&p);
    kv_campaign_free(&c);
    return rc == KV_OK ? kv_ask_finish(KV_EXIT_OK) : kv_ask_fail(&err);
}
