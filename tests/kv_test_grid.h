/* Small campaigns for tests, and their rows. */
#ifndef KV_TEST_GRID_H
#define KV_TEST_GRID_H

#include "grid/campaign/kv_campaign.h"
#include "grid/cell/kv_cell_plan.h"
#include "grid/cell/kv_cell_run.h"
#include "tests/kv_test_images.h"

/* Layout texts separated by ";". */
static inline kv_catalogue kvt_layouts(const char *texts)
{
    kv_catalogue all = {0};
    kv_err err = {0};
    while (*texts != '\0') {
        char one[KVT_TEXT];
        texts += strspn(texts, " ;");
        const size_t n = strcspn(texts, ";");
        snprintf(one, sizeof one, "%.*s", (int)n, texts);
        kvt_ok(kv_catalogue_take(&all, kvt_layout(one), "test", &err), &err);
        texts += n;
    }
    return all;
}

/* A spec of one geometry "L=..,T=..": pairs all-ordered unless `more` ("'pairs':..., 'tail':...") says so. */
static inline json_t *kvt_spec(const char *geometry, const char *more)
{
    char text[2048];
    const kv_geometry g = kvt_geometry(geometry);
    snprintf(text, sizeof text, "{'schema':'kvgrid.campaign/v1','name':'test'%s%s,'geometries':[]}",
             *more != '\0' ? "," : "", more);
    json_t *spec = kvt_json(text);
    json_array_append_new(json_object_get(spec, "geometries"), kv_geometry_json_new(&g));
    if (json_object_get(spec, "pairs") == NULL) json_object_set_new(spec, "pairs", json_string("all-ordered"));
    return spec;
}

static inline kv_campaign kvt_campaign(const char *layouts, const char *geometry, const char *more)
{
    kv_campaign c = {0};
    kv_err err = {0};
    kv_catalogue all = kvt_layouts(layouts);
    json_t *spec = kvt_spec(geometry, more);
    kvt_ok(kv_campaign_build(spec, &all, "test", &c, &err), &err);
    kv_catalogue_free(&all);
    json_decref(spec);
    return c;
}

static inline kv_rc kvt_load(const char *path, kv_campaign *out, kv_err *err)
{
    return kv_campaign_load(path, NULL, out, err);
}

static inline kv_campaign kvt_published_campaign(void)
{
    kv_campaign c = {0};
    kv_err err = {0};
    kvt_ok(kvt_load(KVT_PUBLISHED_CAMPAIGN, &c, &err), &err);
    return c;
}

static inline int64_t kvt_cell(const kv_campaign *c, const char *pair)
{
    for (size_t i = 0; i < c->n_cells; i++) {
        char id[KV_PAIR_ID_TEXT];
        kv_cell_pair_id(c, &c->cells[i], id);
        if (strcmp(id, pair) == 0) return (int64_t)i;
    }
    fail_msg("there is no pair %s", pair);
    return -1;
}

static inline kv_row kvt_run(kv_device *d, const kv_campaign *c, int64_t cell)
{
    kv_runner r = {.dev = d};
    kv_row row;
    kv_err err = {0};
    kvt_ok(kv_cell_run(&r, c, cell, &row, &err), &err);
    kv_runner_free(&r);
    return row;
}

/* The row of "src->dst". */
static inline kv_row kvt_run_pair(kv_device *d, const kv_campaign *c, const char *pair)
{
    return kvt_run(d, c, kvt_cell(c, pair));
}

static inline void kvt_assert_verdict(const kv_row *r, kv_verdict want, const char *what)
{
    if (r->verdict != (int32_t)want)
        fail_msg("%s: %s instead of %s (%s)", what, kv_verdict_name((kv_verdict)r->verdict), kv_verdict_name(want),
                 r->reason);
}

static inline void kvt_assert_same_row(const kv_row *a, const kv_row *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

#endif
