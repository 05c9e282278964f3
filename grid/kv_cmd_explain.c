/* kvgrid explain: one pair at one geometry, really run at once on this machine. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/cell/kv_cell_plan.h"
#include "grid/cell/kv_cell_run.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"

/* Cells up to this estimate (ns) are run; larger ones are derived only, so that the answer comes at once. */
#define EXPLAIN_COST_MAX 1000000000U

static void print_strides(const kv_index *ix, const char *side, const kv_layout *l)
{
    static const char *const halves[] = {"K", "V"};
    printf("%s %s: %" PRId64 " positions of %s, %" PRId64 " elements a unit of %" PRId64 " layer%s\n", side, l->name,
           ix->native, kv_elem_name((kv_elem)ix->element), ix->elements, ix->layers, ix->layers == 1 ? "" : "s");
    for (int h = 0; h < ix->halves; h++) {
        const kv_order *o = &ix->half[h];
        printf("  %s from %" PRId64 ":", ix->halves == 1 ? "rows" : halves[h], ix->half_base[h]);
        for (int i = 0; i < o->n; i++) {
            int64_t stride = i < o->cut ? o->page_span : 1;
            for (int j = i + 1; j < (i < o->cut ? o->cut : o->n); j++) stride *= o->size[j];
            printf(" %s=%" PRId64 "(stride %" PRId64 ")", kv_factor_name((kv_factor)o->kind[i]), o->size[i], stride);
        }
        printf("\n");
    }
}

static void print_words(uint32_t words)
{
    printf("words:");
    for (int w = 0; w < KV_W_COUNT; w++)
        if (words >> w & 1U) printf(" %s", kv_layout_word_name((kv_layout_word)w));
    printf("%s\n", words == 0 ? " (none)" : "");
}

static void print_proof(const kv_row *r)
{
    static const char *const tri[] = {"false", "true", "not made"};
    for (int i = 0; i < KV_OBS_COUNT; i++) printf("  %-42s %s\n", kv_obs_name((kv_obs)i), tri[r->observed[i]]);
    printf("positions checked: %" PRId64 " of %" PRId64 " (destination), %" PRId64 " of %" PRId64 " (source)\n",
           r->checked, r->total, r->source_checked, r->source_total);
    printf("padding: source %" PRId64 ", destination %" PRId64 "; %" PRId64
           " positions differ after the way there and back\n",
           r->source_padding, r->dest_padding, r->diff_positions);
    printf("tokens:");
    for (int i = 0; i < KV_DECODE_STEPS; i++) printf(" %d", r->decoded[i]);
    printf("\n");
}

/* The grade that the declarations alone predict for a cell without frontier code. */
static kv_verdict expected_verdict(const kv_campaign *c)
{
    const kv_cell *cell = &c->cells[0];
    const kv_geometry *g = &c->geometries[0];
    const kv_layout *s = c->catalogue.item[cell->src], *d = c->catalogue.item[cell->dst];
    kv_index ix = {0};
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    if (g->tokens > 0 && kv_layout_element(s, g) != kv_layout_element(d, g)) return KV_VERDICT_NOT_EXACT;
    if (kv_layout_bind(s, g, kv_pair_unit_layers(s, d, g), &ix, &state, reason, NULL) != KV_OK || state != KV_BIND_OK)
        return KV_VERDICT_UNPROVEN;
    return ix.native == ix.elements || cell->tail == KV_TAIL_ZERO ? KV_VERDICT_EXACT_BYTE : KV_VERDICT_EXACT_TOKEN;
}

static kv_rc print_text(const kv_campaign *c, const kv_row *r, bool ran, kv_err *err)
{
    const kv_cell *cell = &c->cells[0];
    const kv_geometry *g = &c->geometries[0];
    const kv_layout *side[2] = {c->catalogue.item[cell->src], c->catalogue.item[cell->dst]};
    char text[KV_GEOMETRY_TEXT], id[KV_PAIR_ID_TEXT];
    kv_cell_pair_id(c, cell, id);
    kv_geometry_print(g, text);
    if (ran)
        printf("%s at %s: %s\n", id, text, kv_verdict_name((kv_verdict)r->verdict));
    else
        printf("%s at %s: %s expected (derived from the declarations, not run: too large to answer at once; kvgrid run "
               "proves it)\n",
               id, text, kv_verdict_name(expected_verdict(c)));
    if (r->frontier != KV_X_NONE)
        printf("%s: %s\n", kv_layout_frontier_name((kv_layout_frontier)r->frontier), r->reason);
    print_words(r->words);
    if (r->same_image) printf("both layouts hold the same bytes at this geometry\n");
    for (int s = 0; s < 2; s++) {
        kv_index ix;
        kv_bind_state state;
        char reason[KV_REASON_TEXT];
        kv_rc rc = kv_layout_bind(side[s], g, kv_pair_unit_layers(side[0], side[1], g), &ix, &state, reason, err);
        if (rc != KV_OK) return rc;
        if (state == KV_BIND_OK)
            print_strides(&ix, s == 0 ? "source" : "destination", side[s]);
        else
            printf("%s does not exist here: %s\n", s == 0 ? "source" : "destination", reason);
    }
    if (r->ran) print_proof(r);
    return KV_OK;
}

/* A campaign of the one cell. */
static kv_rc one_cell(const kv_opts *o, kv_campaign *c, kv_err *err)
{
    kv_geometry g;
    kv_catalogue all = {0};
    json_t *spec = NULL, *geometry = NULL;
    kv_rc rc;
    if (o->n_geometry != 1)
        return KV_FAIL(err, KV_EINVAL, "name one --geometry, as in --geometry L=1,T=40,H=2,D=8,e=f16");
    KV_TRY(rc, out, kv_geometry_parse(o->geometry[0], &g, err));
    KV_TRY(rc, out, kv_layouts_find(o->layouts, &all, NULL, err));
    if (strcmp(o->positional[0], o->positional[1]) == 0) {
        rc = KV_FAIL(err, KV_EINVAL, "%s with itself is no translation; name two layouts", o->positional[0]);
        goto out;
    }
    for (int i = 0; i < 2; i++)
        if (kv_catalogue_find(&all, o->positional[i]) == NULL) {
            rc = KV_FAIL(err, KV_EINVAL, "no layout is called \"%s\"; kvgrid layouts lists them", o->positional[i]);
            goto out;
        }
    geometry = kv_geometry_json_new(&g);
    spec = json_pack("{s:s,s:s,s:[s,s],s:[[s,s]],s:[O],s:s,s:I}", "schema", KV_CAMPAIGN_SCHEMA, "name", "explain",
                     "select", o->positional[0], o->positional[1], "pairs", o->positional[0], o->positional[1],
                     "geometries", geometry, "tail", o->tail != NULL ? o->tail : "stale", "seed", (json_int_t)o->seed);
    if (spec == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a question");
        goto out;
    }
    KV_TRY(rc, out, kv_campaign_build(spec, &all, "command line", c, err));
out:
    json_decref(spec);
    json_decref(geometry);
    kv_catalogue_free(&all);
    return rc;
}

/* Runs the cell, or derives what does not need running where it is large. */
static kv_rc answer(const kv_campaign *c, kv_row *row, bool *ran, kv_err *err)
{
    kv_cell_need need;
    kv_runner runner = {0};
    kv_rc rc = kv_cell_plan(c, 0, &need, err);
    if (rc != KV_OK) return rc;
    *ran = !need.runs || need.cost <= EXPLAIN_COST_MAX;
    if (!*ran) {
        memset(row, 0, sizeof *row);
        const kv_cell *cell = &c->cells[0];
        row->words = kv_pair_words(c->catalogue.item[cell->src], c->catalogue.item[cell->dst], &c->geometries[0]);
        row->verdict = KV_VERDICT_UNPROVEN;
        row->error_class = -1;
        for (int i = 0; i < KV_OBS_COUNT; i++) row->observed[i] = KV_NULL;
        return KV_OK;
    }
    KV_TRY(rc, out, kv_device_cpu_new(&runner.dev, err));
    rc = kv_cell_run(&runner, c, 0, row, err);
    runner.dev->ops->close(runner.dev);
    kv_runner_free(&runner);
out:
    return rc;
}

int kv_cmd_explain(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    kv_campaign c = {0};
    kv_row row;
    bool ran = false;
    int code = KV_EXIT_OK;
    kv_rc rc;
    KV_TRY(rc, out, one_cell(o, &c, &err));
    KV_TRY(rc, out, answer(&c, &row, &ran, &err));
    if (o->json) {
        json_t *v = kv_row_json_new(&c, &row);
        rc = v != NULL ? kv_ask_print_json(v, &err) : KV_FAIL(&err, KV_ENOMEM, "no memory for the answer");
        json_decref(v);
    } else {
        rc = print_text(&c, &row, ran, &err);
    }
    if (row.verdict == KV_VERDICT_FAILED) {
        fprintf(stderr, "kvgrid: the cell could not be run: %s\n", row.reason);
        code = KV_EXIT_FAILED;
    }
out:
    kv_campaign_free(&c);
    return rc == KV_OK ? kv_ask_finish(code) : kv_ask_fail(&err);
}
