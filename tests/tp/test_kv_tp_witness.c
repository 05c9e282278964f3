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

/* ---- pipeline stages --------------------------------------------------------------------- */

typedef struct {
    kv_tp_pipe_spec spec;
    kv_tp_pipe_result result[8];
} pipes;

static void pipe_rank(void *ctx, int32_t rank, kv_tp_transport *t, kv_device *dev, kv_rc *rc, kv_err *err)
{
    pipes *p = ctx;
    kv_tp_pipe_spec s = p->spec;
    s.transport = t;
    s.device = dev;
    *rc = kv_tp_pipe(&s, &p->result[rank], err);
}

static void pipe__by_layer_id(void **state)
{
    (void)state;
    kv_layout *a = kvt_layout("a int k=KV.Tb.Ti.H.D v=KV.Tb.Ti.H.D block=4"), *b = kvt_layout("b sep k=H.T.D v=H.D.T");
    kv_layout *deep = kvt_layout("deep sep k=L.T.H.D v=L.T.H.D");
    const kv_geometry g = kvt_geometry("L=6,T=9,H=2,D=6,e=f16");
    const int64_t a0[] = {0, 1, 2}, a1[] = {5, 3, 4}, b0[] = {1, 0}, b1[] = {3, 2}, b2[] = {4, 5}, few[] = {5, 3};
    const kv_tp_stage src[] = {{a0, 3}, {a1, 3}}, dst[] = {{b0, 2}, {b1, 2}, {b2, 2}}, gap[] = {{a0, 3}, {few, 2}};
    kvt_tp_rank rank[3];
    pipes p = {.spec = {.layout = {a, b},
                        .g = &g,
                        .seed = 3,
                        .stale = KVT_TP_STALE,
                        .fill = KVT_TP_FILL,
                        .stage = {src, dst},
                        .n = {2, 3}}};
    kvt_tp_group(3, 10, rank, pipe_rank, &p);
    for (int r = 0; r < 3; r++) {
        if (rank[r].rc != KV_OK) fail_msg("rank %d: %s", r, rank[r].err.text);
        assert_true(p.result[r].forward);
        assert_int_equal(p.result[r].moved, 3); /* layers 2, 4 and 5 change rank */
        assert_int_equal(p.result[r].sent_bytes, 3 * 9 * 2 * 12 * 2);
        assert_int_equal(p.result[r].least_bytes, p.result[r].sent_bytes);
    }
    p.spec.stage[0] = gap;
    kvt_tp_group(3, 10, rank, pipe_rank, &p);
    for (int r = 0; r < 3; r++)
        kvt_refused(rank[r].rc, KV_EINVAL, &rank[r].err, "gap", KVT_SAYS("layer 4 is missing: destination stage 2"));
    p.spec.stage[0] = src;
    p.spec.layout[1] = deep;
    kvt_tp_group(3, 10, rank, pipe_rank, &p);
    for (int r = 0; r < 3; r++)
        kvt_refused(rank[r].rc, KV_EINVAL, &rank[r].err, "deep", KVT_SAYS("keeps its layers in one array"));
    kv_layout_free(a);
    kv_layout_free(b);
    kv_layout_free(deep);
}

/* Paired by position, layers would land in each other's place: a destination that lies about one id sees it. */
static void pipe__position_is_no_pairing(void **state)
{
    (void)state;
    kv_layout *a = kvt_layout("a sep k=T.H.D v=T.H.D");
    const kv_geometry g = kvt_geometry("L=2,T=3,H=1,D=4,e=f16");
    const int64_t up[] = {0, 1}, down[] = {1, 0};
    const kv_tp_stage src[] = {{up, 2}}, dst[] = {{NULL, 0}, {down, 2}};
    kvt_tp_rank rank[2];
    pipes p = {.spec = {.layout = {a, a}, .g = &g, .seed = 3, .stage = {src, dst}, .n = {1, 2}}};
    kvt_tp_group(2, 10, rank, pipe_rank, &p);
    for (int r = 0; r < 2; r++) {
        if (rank[r].rc != KV_OK) fail_msg("rank %d: %s", r, rank[r].err.text);
        assert_true(p.result[r].forward && p.result[r].moved == 2);
    }
    kv_layout_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(witness__two_wholes_one_shard),
        cmocka_unit_test(witness__sees_a_difference),
        cmocka_unit_test(pipe__by_layer_id),
        cmocka_unit_test(pipe__position_is_no_pairing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
