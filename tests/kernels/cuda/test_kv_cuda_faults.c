/* A GPU that refuses: every call of the runtime fails once. The error says so in words, nothing is lost, and the device
 * works afterwards. Processes that see no GPU, or an old driver. */
#include "tests/kernels/cuda/kv_test_cuda.h"

typedef struct {
    kv_device *d;
    kv_index s, t;
    kv_payload load;
} job;

/* Everything the table has, once; what was opened is closed whatever fails. */
static kv_rc whole_job(const job *j, kv_decode_result *decoded, kv_err *err)
{
    const kv_device_ops *o = j->d->ops;
    kv_image *im[3] = {NULL, NULL, NULL};
    kv_diffset *set = NULL;
    kv_probe_result probed;
    kv_compare_result compared;
    kv_diffset_result taken;
    kv_drift_result drift;
    unsigned char *bytes = kvt_take(kv_index_bytes(&j->s), 1);
    kv_rc rc;
    KV_TRY(rc, out, o->image_new(j->d, kv_index_bytes(&j->s), &im[0], err));
    KV_TRY(rc, out, o->image_new(j->d, kv_index_bytes(&j->t), &im[1], err));
    KV_TRY(rc, out, o->image_new(j->d, kv_index_bytes(&j->s), &im[2], err));
    KV_TRY(rc, out, o->diffset_new(j->d, &j->s, &set, err));
    for (int i = 0; i < 3; i++)
        KV_TRY(rc, out, o->poison(j->d, im[i], kv_index_bytes(i == 1 ? &j->t : &j->s), (uint32_t)i, err));
    KV_TRY(rc, out, o->probe(j->d, &j->s, &probed, err));
    KV_TRY(rc, out, o->build(j->d, im[0], &j->s, &j->load, j->s.element, 0, err));
    KV_TRY(rc, out, o->copy(j->d, im[0], im[2], err));
    KV_TRY(rc, out, o->translate(j->d, &j->s, im[0], &j->t, im[1], 0, err));
    KV_TRY(rc, out, kv_check_guards(j->d, im[1], err));
    KV_TRY(rc, out, o->compare(j->d, &j->s, im[0], im[2], &compared, err));
    KV_TRY(rc, out, o->diffset_add(j->d, set, im[0], im[2], err));
    KV_TRY(rc, out, o->diffset_take(j->d, set, &taken, err));
    KV_TRY(rc, out, o->drift(j->d, &j->s, im[0], &j->t, im[1], &drift, err));
    KV_TRY(rc, out, o->read(j->d, im[0], bytes, err));
    KV_TRY(rc, out, o->write(j->d, im[2], bytes, kv_index_bytes(&j->s), err));
    KV_TRY(rc, out, o->decode(j->d, &j->t, im[1], 0, 9, 0, im[2], decoded, err));
    rc = o->finish(j->d, err);
    if (rc == KV_OK && (probed.bad != 0 || compared.differing != 0 || taken.differing != 0 || !drift.preserved))
        fail_msg("a whole job went wrong");
out:
    o->diffset_free(j->d, set);
    for (int i = 0; i < 3; i++) o->image_free(j->d, im[i]);
    free(bytes);
    return rc;
}

static void device__survives_every_call_that_fails(void **state)
{
    (void)state;
    kvt_two d = kvt_devices(0);
    kv_layout *a = kvt_layout("a sep k=T.H.D"), *b = kvt_layout("b int k=KV.Tb.Ti.H.D block=16");
    const kv_geometry g = kvt_geometry("L=1,T=20,H=2,D=8,e=f16");
    job j = {.d = d.gpu, .s = kvt_bind(a, &g, 1), .t = kvt_bind(b, &g, 1)};
    j.load = kvt_payload(&g, &j.s, KV_PAYLOAD_TOKENS, 0);
    kv_decode_result want, got;
    kv_err err = {0};
    const long before = kv_emu_allocations();
    kvt_ok(whole_job(&j, &want, &err), &err);
    const long open = kv_emu_allocations(); /* three images, a set and scratch are kept */
    assert_true(open <= before + 5);
    long n = 0;
    for (;; n++) {
        kv_emu_fail_after(n);
        const kv_rc rc = whole_job(&j, &got, &err);
        kv_emu_fail_after(-1);
        if (rc == KV_OK) break;
        if (rc != KV_EDEVICE && rc != KV_ENOMEM) fail_msg("call %ld: %s: %s", n, kv_rc_name(rc), err.text);
        assert_non_null(strstr(err.text, "GPU"));
        kv_err_clear(&err);
        assert_true(kv_emu_allocations() <= open);
        kvt_ok(whole_job(&j, &got, &err), &err);
        assert_memory_equal(&got, &want, sizeof got);
    }
    assert_true(n > 60);
    for (n = 0;; n++) { /* host memory */
        kv_alloc_fail_after(n);
        const kv_rc rc = whole_job(&j, &got, &err);
        kv_alloc_fail_after(-1);
        if (rc == KV_OK) break;
        if (rc != KV_ENOMEM) fail_msg("%ld: %s", n, err.text);
        kv_err_clear(&err);
    }
    assert_true(n >= 4);
    kv_layout_free(a);
    kv_layout_free(b);
    kvt_close(&d);
}

static void opening__gives_back_what_it_took(void **state)
{
    (void)state;
    kv_device *d = NULL;
    long n = 0;
    for (;; n++) {
        kv_err err = {0};
        kv_emu_fail_after(n);
        const kv_rc rc = kv_device_cuda_new(0, &d, &err);
        kv_emu_fail_after(-1);
        if (rc == KV_OK) break;
        assert_null(d);
        assert_true(rc == KV_EDEVICE || rc == KV_ENOMEM);
        assert_int_equal(kv_emu_allocations(), 0);
    }
    assert_true(n >= 3);
    d->ops->close(d);
    assert_int_equal(kv_emu_allocations(), 0);
}

static void image__that_does_not_fit_tells_both_numbers(void **state)
{
    (void)state;
    kvt_two d = kvt_devices(0);
    kv_image *im = NULL;
    kv_err err = {0};
    kvt_refused(d.gpu->ops->image_new(d.gpu, (int64_t)1 << 40, &im, &err), KV_ENOMEM, &err, "a terabyte",
                KVT_SAYS("1099511628", "are free", "GPU-656d756c"));
    assert_int_equal(d.gpu->ops->image_new(d.gpu, INT64_MAX, &im, NULL), KV_ENOMEM);
    kvt_ok(d.gpu->ops->image_new(d.gpu, 0, &im, &err), &err);
    d.gpu->ops->image_free(d.gpu, im);
    kvt_close(&d);
}

static void count__says_why_there_is_none(void **state)
{
    (void)state;
    kv_device *d = NULL;
    kv_cuda_gpu gpu;
    kv_err err = {0};
    int n = -1;
    setenv("KV_EMU_DEVICES", "", 1);
    kvt_refused(kv_cuda_count(&n, &err), KV_EUNSUP, &err, "no GPU", KVT_SAYS("sees no GPU"));
    kvt_refused(kv_device_cuda_new(0, &d, &err), KV_EUNSUP, &err, "no GPU", KVT_SAYS("sees no GPU"));
    setenv("KV_EMU_DEVICES", "4,7", 1);
    setenv("KV_EMU_DRIVER", "old", 1);
    kvt_refused(kv_cuda_count(&n, &err), KV_EDEVICE, &err, "old driver", KVT_SAYS("too old", "13.0", "11.4"));
    setenv("KV_EMU_DRIVER", "none", 1);
    kvt_refused(kv_cuda_count(&n, &err), KV_EUNSUP, &err, "no driver", KVT_SAYS("no GPU driver"));
    unsetenv("KV_EMU_DRIVER");
    kvt_ok(kv_cuda_count(&n, &err), &err);
    assert_int_equal(n, 2);
    kvt_ok(kv_cuda_describe(1, &gpu, &err), &err);
    assert_string_equal(gpu.uuid, "GPU-656d756c-6174-6564-0000-000000000007");
    assert_string_equal(gpu.name, "emulated");
    kvt_refused(kv_device_cuda_new(2, &d, &err), KV_EINVAL, &err, "ordinal", KVT_SAYS("GPU 2", "sees 2"));
    unsetenv("KV_EMU_DEVICES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device__survives_every_call_that_fails),
        cmocka_unit_test(opening__gives_back_what_it_took),
        cmocka_unit_test(image__that_does_not_fit_tells_both_numbers),
        cmocka_unit_test(count__says_why_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
