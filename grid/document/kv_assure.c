/* Controls and limits as items of work. */
#include "certs/kv_json.h"
#include "grid/document/kv_assurance.h"

/* Item 0: what runs cells and edits declarations; the others: the mutated certificates. */
static kv_rc make(int item, kv_device *dev, json_t *controls, json_t *limits, kv_err *err)
{
    kv_rc rc;
    if (item > 0) return kv_mutations_run(dev, (size_t)item - 1, KV_ASSURANCE_ITEMS - 1, controls, err);
    KV_TRY(rc, out, kv_controls_run(dev, controls, err));
    KV_TRY(rc, out, kv_controls_edits(controls, err));
    KV_TRY(rc, out, kv_limits_run(dev, limits, err));
out:
    return rc;
}

kv_rc kv_assurance_make(int item, kv_buf *out, kv_err *err)
{
    kv_device *dev = NULL;
    json_t *controls = json_array(), *limits = json_array(), *both = NULL;
    kv_rc rc;
    if (controls == NULL || limits == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for the controls");
        goto out;
    }
    KV_TRY(rc, out, kv_device_cpu_new(&dev, err));
    KV_TRY(rc, out, make(item, dev, controls, limits, err));
    both = json_pack("{s:O,s:O}", "controls", controls, "known_limits", limits);
    rc = both != NULL ? kv_json_write(both, out, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the controls");
out:
    if (dev != NULL) dev->ops->close(dev);
    json_decref(both);
    json_decref(controls);
    json_decref(limits);
    return rc;
}

kv_rc kv_assurance_join(json_t *const parts[KV_ASSURANCE_ITEMS], json_t **controls, json_t **limits, kv_err *err)
{
    json_t *c = json_array(), *l = json_array();
    bool good = c != NULL && l != NULL;
    for (int i = 0; good && i < KV_ASSURANCE_ITEMS; i++)
        good = json_array_extend(c, json_object_get(parts[i], "controls")) == 0 &&
               json_array_extend(l, json_object_get(parts[i], "known_limits")) == 0;
    if (!good) {
        json_decref(c);
        json_decref(l);
        return KV_FAIL(err, KV_ENOMEM, "no memory for the controls");
    }
    *controls = c;
    *limits = l;
    return KV_OK;
}
