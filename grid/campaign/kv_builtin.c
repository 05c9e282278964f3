#include "grid/campaign/kv_builtin.h"

#include "base/kv_embed.h"
#include "layouts/kv_layout_json.h"

extern const kv_embedded kv_builtin_layouts[], kv_builtin_campaign[];

kv_rc kv_builtin_catalogue(kv_catalogue *out, kv_err *err)
{
    for (const kv_embedded *e = kv_builtin_layouts; e->stem != NULL; e++) {
        json_t *v = NULL;
        kv_layout *l = NULL;
        kv_rc rc = kv_json_load_strict((const char *)e->bytes, e->n, e->stem, &v, err);
        if (rc == KV_OK) rc = kv_layout_new(v, e->stem, &l, err);
        if (rc == KV_OK) rc = kv_catalogue_take(out, l, e->stem, err);
        json_decref(v);
        if (rc != KV_OK) return rc;
    }
    return KV_OK;
}

kv_rc kv_builtin_published(kv_campaign *out, kv_err *err)
{
    json_t *spec = NULL;
    kv_catalogue all = {0};
    kv_rc rc;
    KV_TRY(rc, out,
           kv_json_load_strict((const char *)kv_builtin_campaign[0].bytes, kv_builtin_campaign[0].n,
                               "built-in campaign", &spec, err));
    json_object_del(spec, "layouts");
    KV_TRY(rc, out, kv_builtin_catalogue(&all, err));
    KV_TRY(rc, out, kv_campaign_build(spec, &all, "built-in campaign", out, err));
out:
    json_decref(spec);
    kv_catalogue_free(&all);
    return rc;
}
