/* The translator against the builder, a second implementation, and against the enumeration: every byte of
 * the destination, its padding, its guards, and the source untouched. */
#include "tests/kv_test_images.h"

typedef struct {
    kv_device *dev;
    const kv_layout *src, *dst;
    const kv_geometry *g;
    const char *what;
} pair;

/* What stands where, by enumeration alone: no builder, no index algebra. */
static void check_by_map(const pair *p, const kv_index *s, kv_image *src, const kv_index *t, kv_image *dst,
                         uint32_t fill)
{
    kvt_map ms = kvt_map_new(p->src, p->g, s->layers), mt = kvt_map_new(p->dst, p->g, t->layers);
    uint32_t *value = kvt_take(s->elements, sizeof *value);
    for (int64_t at = 0; at < ms.n; at++)
        if (ms.at[at] >= 0) value[ms.at[at]] = kvt_bits_at(s, src, at);
    for (int64_t at = 0; at < mt.n; at++) {
        const uint32_t want =
            mt.at[at] < 0 ? fill : kv_num_convert((kv_elem)s->element, (kv_elem)t->element, value[mt.at[at]]);
        const uint32_t got = kvt_bits_at(t, dst, at);
        if (got != want)
            fail_msg("%s: position %" PRId64 " of %" PRId64 " holds %x, not %x%s", p->what, at, mt.n, got, want,
                     mt.at[at] < 0 ? " (padding)" : "");
    }
    free(value);
    kvt_map_free(&ms);
    kvt_map_free(&mt);
}

static void move_and_check(const pair *p, int32_t kind, uint32_t round)
{
    kv_device *dev = p->dev;
    kv_err err = {0};
    const int64_t unit = kv_pair_unit_layers(p->src, p->dst, p->g);
    const kv_index s = kvt_bind(p->src, p->g, unit), t = kvt_bind(p->dst, p->g, unit);
    const kv_payload load = kvt_payload(p->g, &s, kind, 0);
    const uint32_t stale = kvt_pad((kv_elem)s.element, 0), fill = kvt_pad((kv_elem)t.element, 1);
    kv_image *src = kvt_image(dev, &s, round), *copy = kvt_image(dev, &s, round + 1),
             *dst = kvt_image(dev, &t, round + 2), *want = kvt_image(dev, &t, round + 3);
    kv_compare_result cmp;
    kvt_ok(dev->ops->build(dev, src, &s, &load, s.element, stale, &err), &err);
    kvt_ok(dev->ops->copy(dev, src, copy, &err), &err);
    kvt_ok(dev->ops->translate(dev, &s, src, &t, dst, fill, &err), &err);
    kvt_ok(kv_check_guards(dev, dst, &err), &err);
    kvt_ok(kv_check_guards(dev, src, &err), &err);
    kvt_ok(dev->ops->build(dev, want, &t, &load, s.element, fill, &err), &err);
    if (memcmp(kv_image_host_view(dst), kv_image_host_view(want), (size_t)kv_index_bytes(&t)) != 0) {
        kvt_ok(dev->ops->compare(dev, &t, dst, want, &cmp, &err), &err);
        fail_msg("%s: %" PRId64 " positions differ, first %" PRId64 ": %x, not %x", p->what, cmp.differing, cmp.first,
                 cmp.got, cmp.want);
    }
    assert_memory_equal(kv_image_host_view(src), kv_image_host_view(copy), (size_t)kv_index_bytes(&s));
    check_by_map(p, &s, src, &t, dst, fill);
    dev->ops->image_free(dev, src);
    dev->ops->image_free(dev, copy);
    dev->ops->image_free(dev, dst);
    dev->ops->image_free(dev, want);
}

static void translate__equals_the_builder_on_random_pairs(void **state)
{
    (void)state;
    kv_device *dev = kvt_cpu();
    uint64_t r = 41;
    int converted = 0, sharded = 0, whole_units = 0;
    for (int i = 0; i < 8000; i++) {
        const kv_store store = (kv_store)(i % 3), other = store == KV_STORE_LATENT ? store : (kv_store)kvt_below(&r, 2);
        kv_geometry g =
            kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE || other != KV_STORE_SEPARATE);
        kvt_desc a = kvt_random_desc(&r, &g, store), b = kvt_random_desc(&r, &g, other);
        if (store != KV_STORE_LATENT && kvt_one_in(&r, 3)) kvt_shard(&r, &g, &a, &b);
        char ta[KVT_TEXT], tb[KVT_TEXT], what[2 * KVT_TEXT + 256], geometry[KV_GEOMETRY_TEXT];
        kvt_desc_text(&a, "a", ta);
        kvt_desc_text(&b, "b", tb);
        kv_geometry_print(&g, geometry);
        snprintf(what, sizeof what, "%s -> %s at %s", ta, tb, geometry);
        kv_layout *la = kvt_layout(ta), *lb = kvt_layout(tb);
        const pair p = {dev, la, lb, &g, what};
        move_and_check(&p, (int32_t)kvt_below(&r, KV_PAYLOAD_TOKENS + 1), (uint32_t)i);
        converted += kv_layout_element(la, &g) != kv_layout_element(lb, &g);
        sharded += a.tp_size > 1;
        whole_units += kvt_has(&a, KV_F_L) || kvt_has(&b, KV_F_L);
        kv_layout_free(la);
        kv_layout_free(lb);
    }
    assert_true(converted > 1500 && sharded > 700 && whole_units > 2500);
    dev->ops->close(dev);
}

/* Sizes past every tile, so that inner loops start and end off their borders; every pair of element types. */
static void translate__equals_the_builder_past_the_tiles(void **state)
{
    (void)state;
    static const char *const layouts[] = {"a sep k=T.H.D",
                                          "a sep k=H.D.T",
                                          "a int k=KV.Tb.Ti.H.D block=16",
                                          "a sep k=D.H.T v=T.D.H",
                                          "a int k=Tb.H.KV.Dg.Ti.Dx v=Tb.H.KV.Ti.Dg.Dx block=48 x=2",
                                          "a int k=Tb.D.H.Ti.KV block=7",
                                          "a sep k=Tb.Tg.H.D.Tx v=H.T.D block=12 tx=4 page_stride_bytes=24000",
                                          "a sep k=T.H.D row_lanes=140"};
    static const int64_t dims[] = {1, 2, 63, 64, 66, 130}, tokens[] = {1, 63, 64, 65, 129};
    kv_device *dev = kvt_cpu();
    uint64_t r = 43;
    for (int i = 0; i < 700; i++) {
        char ta[160], tb[160], what[512];
        const int from = (int)(i % KV_ELEM_COUNT), to = kvt_one_in(&r, 2) ? from : (int)kvt_below(&r, KV_ELEM_COUNT);
        const int64_t dim = dims[kvt_below(&r, 6)];
        const kv_geometry g = {
            1, tokens[kvt_below(&r, 5)], 1 + kvt_below(&r, 2), dim, dim, (kv_elem)kvt_below(&r, KV_ELEM_COUNT)};
        snprintf(ta, sizeof ta, "%s e=%s", layouts[kvt_below(&r, KVT_COUNT(layouts))], kv_elem_name((kv_elem)from));
        snprintf(tb, sizeof tb, "%s e=%s", layouts[kvt_below(&r, KVT_COUNT(layouts))], kv_elem_name((kv_elem)to));
        kv_layout *la = kvt_layout(ta), *lb = kvt_layout(tb);
        kv_layout_frontier f;
        char reason[KV_REASON_TEXT];
        assert_int_equal(kv_pair_frontier(la, lb, &g, &f, reason, NULL), KV_OK);
        snprintf(what, sizeof what, "%s -> %s, T=%" PRId64 " D=%" PRId64, ta, tb, g.tokens, dim);
        const pair p = {dev, la, lb, &g, what};
        if (f == KV_X_NONE) move_and_check(&p, KV_PAYLOAD_BITS, (uint32_t)i);
        kv_layout_free(la);
        kv_layout_free(lb);
    }
    dev->ops->close(dev);
}

static void translate__equals_the_builder_on_the_published_pairs(void **state)
{
    (void)state;
    static const char *const geometries[] = {KVT_PUBLISHED_GEOMETRY,       "L=2,T=0,H=2,D=8,e=f32",
                                             "L=1,T=1,H=1,D=4,e=fp8_e4m3", "L=2,T=17,H=3,D=16,e=bf16",
                                             "L=1,T=65,H=8,D=80,e=f16",    "L=1,T=129,H=2,D=6,e=f32"};
    kv_catalogue c = kvt_published();
    kv_device *dev = kvt_cpu();
    for (size_t k = 0; k < KVT_COUNT(geometries); k++) {
        const kv_geometry g = kvt_geometry(geometries[k]);
        for (size_t i = 0; i < c.n * c.n; i++) {
            const pair p = {dev, c.item[i / c.n], c.item[i % c.n], &g, geometries[k]};
            kv_layout_frontier f;
            char reason[KV_REASON_TEXT];
            assert_int_equal(kv_pair_frontier(p.src, p.dst, &g, &f, reason, NULL), KV_OK);
            if (f == KV_X_NONE) move_and_check(&p, (int32_t)(i % KV_PAYLOADS), (uint32_t)i);
        }
    }
    dev->ops->close(dev);
    kv_catalogue_free(&c);
}

/* d5: K rows 6 wide, V rows 4. d1: TP 4 rank k holds what TP 8 ranks 2k and 2k + 1 hold. */
static void translate__moves_unequal_widths_and_replicas(void **state)
{
    (void)state;
    static const char *const pairs[][3] = {
        {"a sep k=T.H.D", "b sep k=H.T.D", "L=1,T=9,H=2,D=6,Dv=4,e=f16"},
        {"a sep k=T.H.D v=H.D.T", "b sep k=Tb.H.Ti.D block=4", "L=2,T=9,H=2,D=6,Dv=4,e=bf16"},
        {"a int k=Tb.KV.H.Ti.D block=4 tp=2/4", "b int k=Tb.KV.H.Ti.D block=4 tp=4/8", "L=1,T=8,H=4,D=8,e=bf16"},
        {"a int k=Tb.KV.H.Ti.D block=4 tp=2/4", "b sep k=T.H.D tp=5/8", "L=1,T=8,H=4,D=8,e=bf16"}};
    kv_device *dev = kvt_cpu();
    for (size_t i = 0; i < KVT_COUNT(pairs); i++) {
        kv_layout *a = kvt_layout(pairs[i][0]), *b = kvt_layout(pairs[i][1]);
        const kv_geometry g = kvt_geometry(pairs[i][2]);
        const pair there = {dev, a, b, &g, pairs[i][0]}, back = {dev, b, a, &g, pairs[i][1]};
        for (int32_t kind = 0; kind <= KV_PAYLOAD_TOKENS; kind++) {
            move_and_check(&there, kind, 1);
            move_and_check(&back, kind, 2);
        }
        kv_layout_free(a);
        kv_layout_free(b);
    }
    dev->ops->close(dev);
}

static void translate__fails_in_words_when_memory_is_out(void **state)
{
    (void)state;
    kv_device *dev = kvt_cpu();
    kv_layout *a = kvt_layout("a sep k=T.H.D"), *b = kvt_layout("b int k=KV.Tb.Ti.H.D block=16");
    const kv_geometry g = kvt_geometry("L=1,T=40,H=2,D=8,e=f16");
    const kv_index s = kvt_bind(a, &g, 1), t = kvt_bind(b, &g, 1);
    kv_image *src = kvt_image(dev, &s, 0), *dst = kvt_image(dev, &t, 1);
    for (long n = 0;; n++) {
        kv_err err = {0};
        kv_alloc_fail_after(n);
        const kv_rc rc = dev->ops->translate(dev, &s, src, &t, dst, 0, &err);
        kv_alloc_fail_after(-1);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        assert_int_equal(err.rc, KV_ENOMEM);
        assert_true(n < 20);
    }
    dev->ops->image_free(dev, src);
    dev->ops->image_free(dev, dst);
    dev->ops->close(dev);
    kv_layout_free(a);
    kv_layout_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(translate__equals_the_builder_on_random_pairs),
        cmocka_unit_test(translate__equals_the_builder_past_the_tiles),
        cmocka_unit_test(translate__equals_the_builder_on_the_published_pairs),
        cmocka_unit_test(translate__moves_unequal_widths_and_replicas),
        cmocka_unit_test(translate__fails_in_words_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
