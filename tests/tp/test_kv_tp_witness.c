/* The head-gather frontier shown with real bytes, and layers between pipeline stages. */
#include "tests/kv_test_images.h"
#include "tests/tp/kv_tp_test.h"

static void witness__two_wholes_one_shard(void **state)
{
    (void)state;
    kv_catalogue c = kvt_published();
    kv_device *dev = kvt_cpu();
    const kv_geometry g = kvt_geometry(KVT_PUBLISHED_GEOMETRY), four = kvt_geometry("L=2,T=21,H=4,D=8,e=bf16");
    static const char *const names[] = {"vllm-fa", "vllm-paged-x", "trtllm", "llamacpp", "lmdeploy-turbomind"};
    for (size_t i = 0; i < KVT_COUNT(names); i++)
        for (int64_t size = 2; size <= 8; size *= 2)
            for (int64_t rank = 0; rank < size; rank++) {
                kv_tp_witness w;
                kv_err err = {0};
                const kv_geometry *at = size == 2 ? &g : &four;
                kvt_ok(kv_tp_witness_show(dev, kv_catalogue_find(&c, names[i]), size, rank,
                                          kv_catalogue_find(&c, names[(i + 2) % 5]), at, 5, 0x3555, &w, &err),
                       &err);
                assert_true(w.shown && !w.whole);
                assert_int_equal(w.shard_differs, 0);
                assert_int_equal(w.heads, size > at->kv_heads ? 1 : at->kv_heads / size);
                assert_int_equal(w.of_heads, at->kv_heads);
                /* random 15-bit patterns differ nearly everywhere outside the shard's heads, nowhere inside */
                const int64_t outside = 2 * at->tokens * (w.of_heads - w.heads) * 8;
                assert_true(w.whole_differs <= outside && w.whole_differs > outside - outside / 50);
            }
    dev->ops->close(dev);
    kv_catalogue_free(&c);
}

/* A witness that cannot fail is none: a shard that is cut from another place shows no equality. */
static kv_rc (*true_translate)(kv_device *, const kv_index *, const kv_image *, const kv_index *, kv_image *, uint32_t,
                               kv_err *);

static kv_rc one_byte_off(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, kv_image *dst,
                          uint32_t fill, kv_err *err)
{
    static int calls;
    const kv_rc rc = true_translate(d, s, src, t, dst, fill, err);
    if (++calls == 5) ((unsigned char *)kv_image_host_view(dst))[1] ^= 1; /* the cut from the second whole */
    return rc;
}

static void witness__sees_a_difference(void **state)
{
    (void)state;
    kv_catalogue c = kvt_published();
    kv_device *dev = kvt_cpu();
    const kv_device_ops *ops = dev->ops;
    kv_device_ops broken = *dev->ops;
    const kv_geometry g = kvt_geometry(KVT_PUBLISHED_GEOMETRY), one = kvt_geometry("L=1,T=9,H=1,D=8,e=f16");
    kv_tp_witness w;
    kv_err err = {0};
    true_translate = ops->translate;
    broken.translate = one_byte_off;
    dev->ops = &broken;
    const kv_layout *fa = kv_catalogue_find(&c, "vllm-fa");
    kvt_ok(kv_tp_witness_show(dev, fa, 2, 1, fa, &g, 5, 0x3555, &w, &err), &err);
    dev->ops = ops;
    assert_false(w.shown);
    assert_int_equal(w.shard_differs, 1);
    kvt_ok(kv_tp_witness_show(dev, fa, 2, 1, fa, &one, 5, 0x3555, &w, &err), &err); /* H 1: the shard is the whole */
    assert_true(w.whole && !w.shown);
    kvt_refused(kv_tp_witness_show(dev, fa, 3, 1, fa, &g, 5, 0x3555, &w, &err), KV_EINVAL, &err, "size 3",
                KVT_SAYS("does not exist"));
    dev->ops->close(dev);
    kv_catalogue_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(witness__two_wholes_one_shard),
        cmocka_unit_test(witness__sees_a_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
