/* Controls and limits as one item of work. */
#include "certs/kv_json.h"
#include "grid/kv_assurance.h"

kv_rc kv_assurance_make(kv_buf *out, kv_err *err)
{
    kv_device *dev = NULL;
    json_t *controls = json_array(), *limits = json_array(), *both = NULL;
    kv_rc rc;
    if (controls == NULL || limits == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for the controls");
        goto out;
    }
    KV_TRY(rc, out, kv_device_cpu_new(&dev, err));
    KV_TRY(rc, out, kv_controls_run(dev, controls, err));
    KV_TRY(rc, out, kv_controls_edits(controls, err));
    KV_TRY(rc, out, kv_mutations_run(dev, controls, err));
    KV_TRY(rc, out, kv_limits_run(dev, limits, err));
    both = json_pack("{s:O,s:O}", "controls", controls, "known_limits", limits);
    rc = both != NULL ? kv_json_write(both, out, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the controls");
out:
    if (dev != NULL) dev->ops->close(dev);
    json_decref(both);
    json_decref(controls);
    json_decref(limits);
    return rc;
}
