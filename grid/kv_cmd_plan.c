/* kvgrid plan: what a campaign will do and cost, without running it. */
#include <inttypes.h>
#include <stdio.h>

#include "grid/kv_ask.h"
#include "grid/kv_cmd_simulate.h"
#include "grid/kv_exit.h"
#include "grid/kv_plan.h"

#define ROW_BYTES 1230 /* of a row in a certificate, about */

static void print_text(const kv_campaign *c, const kv_plan *p, int64_t ranks)
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
    printf("\nlargest image: %" PRId64 " positions, %" PRId64 " bytes\n", p->largest_positions, p->largest_bytes);
    kv_ask_size(p->cells * ROW_BYTES, peak);
    printf("bytes moved: about %s; certificate: about %s\n", moved, peak);
    printf("time: about %.3g s on one CPU core, %.3g s on %" PRId64 " rank%s\n", p->cost_ns * 1e-9,
           p->cost_ns * 1e-9 / (double)ranks, ranks, ranks == 1 ? "" : "s");
}

static kv_rc print_json(const kv_opts *o, const kv_campaign *c, const kv_plan *p, int64_t ranks, kv_err *err)
{
    const double moved = p->moved_bytes < 9e15 ? p->moved_bytes : 9e15;
    json_t *v = json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "campaign", c->name, "layouts",
                          (json_int_t)c->catalogue.n, "geometries", (json_int_t)c->n_geometries, "cells",
                          (json_int_t)p->cells, "refused", (json_int_t)p->refused, "peak_bytes_per_rank",
                          (json_int_t)p->peak_bytes, "largest_image_positions", (json_int_t)p->largest_positions,
                          "bytes_moved", (json_int_t)moved, "estimated_ms_one_core", (json_int_t)(p->cost_ns * 1e-6),
                          "ranks", (json_int_t)ranks, "certificate_bytes", (json_int_t)(p->cells * ROW_BYTES),
                          "fits_this_host", kv_plan_check_memory(c, p, 1, NULL) == KV_OK);
    kv_rc rc = v != NULL ? kv_plan_simulate(o, c, p, v, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the answer");
    if (rc == KV_OK) rc = kv_ask_print_json(v, err);
    json_decref(v);
    return rc;
}

/* A plan may be for another machine: what does not fit this one is part of the answer, and run refuses it. */
static void tell_memory(const kv_campaign *c, const kv_plan *p)
{
    kv_err here = {0};
    if (kv_plan_check_memory(c, p, 1, &here) != KV_OK) printf("this host could not run it: %s\n", here.text);
}

int kv_cmd_plan(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    kv_campaign c = {0};
    kv_plan p = {0};
    kv_rc rc;
    KV_TRY(rc, out, kv_plan_simulate_check(o, &err));
    KV_TRY(rc, out, kv_ask_campaign(o, &c, &err));
    rc = kv_plan_new(&c, &p, &err);
    if (rc == KV_EINVAL && o->n_positional > 0) err.rc = rc = KV_EFORMAT; /* the sizes stand in the file */
    if (rc != KV_OK) goto out;
    if (o->json) {
        rc = print_json(o, &c, &p, o->ranks, &err);
    } else {
        print_text(&c, &p, o->ranks);
        tell_memory(&c, &p);
    }
    if (!o->json && rc == KV_OK) rc = kv_plan_simulate(o, &c, &p, NULL, &err);
out:
    kv_plan_free(&p);
    kv_campaign_free(&c);
    return rc == KV_OK ? kv_ask_finish(KV_EXIT_OK) : kv_ask_fail(&err);
}
