/* Entries of controls[] and known_limits[], and the small campaigns that controls run. */
#include <stdio.h>
#include <string.h>

#include "grid/cell/kv_cell_run.h"
#include "grid/document/kv_assurance.h"

static kv_rc append(json_t *list, json_t *entry, kv_err *err)
{
    if (entry != NULL && json_array_append_new(list, entry) == 0) return KV_OK;
    return KV_FAIL(err, KV_ENOMEM, "no memory for a control");
}

kv_rc kv_control_add(json_t *list, const char *name, const char *expected, const char *actual, bool holds,
                     const char *detail, kv_err *err)
{
    return append(list,
                  json_pack("{s:s,s:s,s:s,s:b,s:s}", "name", name, "expected_guard", expected, "actual_guard", actual,
                            "passed", holds && strcmp(expected, actual) == 0, "detail", detail),
                  err);
}

kv_rc kv_limit_add(json_t *list, const char *name, const char *text, bool demonstrated, kv_err *err)
{
    return append(list, json_pack("{s:s,s:s,s:b}", "name", name, "text", text, "demonstrated", demonstrated), err);
}

bool kv_entries_hold(const json_t *list, const char *flag, const char **first)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        if (json_is_true(json_object_get(e, flag))) continue;
        if (first != NULL) *first = json_string_value(json_object_get(e, "name"));
        return false;
    }
    return true;
}

kv_rc kv_control_pair(kv_device *dev, kv_catalogue *all, const char *src, const char *dst, const char *geometry,
                      const char *tail, const char *values, uint64_t seed, kv_row *row, kv_err *err)
{
    kv_geometry g;
    kv_campaign c = {0};
    kv_runner runner = {.dev = dev};
    json_t *spec = NULL, *obj = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_geometry_parse(geometry, &g, err));
    obj = kv_geometry_json_new(&g);
    spec = json_pack("{s:s,s:s,s:[s,s],s:[[s,s]],s:[O],s:s,s:s,s:I}", "schema", KV_CAMPAIGN_SCHEMA, "name", "control",
                     "select", src, dst, "pairs", src, dst, "geometries", obj, "tail", tail, "values", values, "seed",
                     (json_int_t)seed);
    if (spec == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a control");
        goto out;
    }
    KV_TRY(rc, out, kv_campaign_build(spec, all, "control", &c, err));
    KV_TRY(rc, out, kv_cell_run(&runner, &c, 0, row, err));
    if (row->verdict == KV_VERDICT_FAILED) rc = KV_FAIL(err, KV_EDEVICE, "control %s->%s: %s", src, dst, row->reason);
out:
    kv_runner_free(&runner);
    kv_campaign_free(&c);
    json_decref(spec);
    json_decref(obj);
    return rc;
}
