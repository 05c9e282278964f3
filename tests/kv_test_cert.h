/* Small certificates for tests of what reads them: only what kv_view.h looks at. */
#ifndef KV_TEST_CERT_H
#define KV_TEST_CERT_H

#include "grid/report/kv_view.h"
#include "tests/kv_test.h"

/* A document with layouts a, b, c, geometries T = 1, 2, ... n and no rows. */
static inline json_t *kvt_cert(int n)
{
    json_t *doc =
        kvt_json("{'schema':'kvgrid.certificate/v1','campaign':{'name':'n','spec':{}},"
                 "'catalogue':[{'name':'a'},{'name':'b'},{'name':'c'}],'geometries':[],'rows':[],"
                 "'body_digest':'00','run':{'started':'2026-11-29T18:00:00Z','devices':[{'host':'h'}],'failures':[]}}");
    for (int t = 1; t <= n; t++)
        json_array_append_new(json_object_get(doc, "geometries"),
                              json_pack("{s:i,s:i,s:i,s:i,s:s}", "layers", 1, "tokens", t, "kv_heads", 2, "head_dim", 8,
                                        "element", "f16"));
    return doc;
}

/* A row with the observations of its verdict; tail NULL for none. */
static inline json_t *kvt_cert_row(const char *src, const char *dst, int geometry, const char *tail,
                                   const char *verdict)
{
    char id[64];
    snprintf(id, sizeof id, "%s->%s", src, dst);
    const bool ran =
        strcmp(verdict, "EXACT_BYTE") == 0 || strcmp(verdict, "EXACT_TOKEN") == 0 || strcmp(verdict, "NOT_EXACT") == 0;
    const bool byte = strcmp(verdict, "EXACT_BYTE") == 0, exact = byte || strcmp(verdict, "EXACT_TOKEN") == 0;
    json_t *seen = json_object();
    const bool values[KV_OBS_COUNT] = {exact, byte, exact, exact};
    for (int i = 0; i < KV_OBS_COUNT; i++)
        json_object_set_new(seen, kv_obs_name((kv_obs)i), ran ? json_boolean(values[i]) : json_null());
    json_t *params = json_object();
    if (tail != NULL) json_object_set_new(params, "tail", json_string(tail));
    return json_pack("{s:s,s:s,s:s,s:s,s:i,s:o,s:s,s:o,s:{s:n},s:[],s:n,s:n,s:n}", "check", "pair", "pair_id", id,
                     "src", src, "dst", dst, "geometry", geometry, "params", params, "verdict", verdict, "observations",
                     seen, "proof", "detail", "transformations", "error_class", "frontier_code", "frontier_reason");
}

static inline json_t *kvt_cert_add(json_t *doc, const char *src, const char *dst, int geometry, const char *tail,
                                   const char *verdict)
{
    json_t *row = kvt_cert_row(src, dst, geometry, tail, verdict);
    assert_non_null(row);
    json_array_append_new(json_object_get(doc, "rows"), row);
    return row;
}

static inline kv_reader kvt_reader(json_t *doc)
{
    kv_reader r = {0};
    kv_err err = {0};
    kvt_ok(kv_reader_of_doc(doc, "test.json", &r, &err), &err);
    return r;
}

#endif
