/* The reference builder against a naive one: an enumeration of the positions for where, the payload's
 * definition for what; and a second time through kv_index_forward. */
#include "tests/kv_test_images.h"

static void check_image(const kv_layout *l, const kv_geometry *g, const kv_index *ix, kv_image *im, const kv_payload *p,
                        kv_elem via, uint32_t pad, const char *what)
{
    kvt_map m = kvt_map_new(l, g, ix->layers);
    for (int64_t at = 0; at < m.n; at++) {
        const uint32_t want = m.at[at] < 0 ? pad : kvt_want(p, ix, m.at[at], via, (kv_elem)ix->element),
                       got = kvt_bits_at(ix, im, at);
        if (got != want) fail_msg("%s: position %" PRId64 " of %" PRId64 " holds %x, not %x", what, at, m.n, got, want);
    }
    for (int64_t n = 0; n < ix->elements; n++) {
        const kv_coord c = kvt_place(ix, n);
        if (kvt_bits_at(ix, im, kv_index_forward(ix, &c)) != kvt_want(p, ix, n, via, (kv_elem)ix->element))
            fail_msg("%s: element %" PRId64, what, n);
    }
    kvt_map_free(&m);
}

static void build_and_check(kv_device *dev, const kv_layout *l, const kv_geometry *g, int64_t unit, uint64_t *r,
                            const char *what)
{
    kv_err err = {0};
    const kv_index ix = kvt_bind(l, g, unit);
    kv_image *im = kvt_image(dev, &ix, (uint32_t)kvt_below(r, 1000));
    const int32_t kind = (int32_t)kvt_below(r, KV_PAYLOAD_TOKENS + 1);
    const kv_payload p = kvt_payload(g, &ix, kind, unit == 1 ? kvt_below(r, g->layers) : 0);
    const kv_elem via = kvt_one_in(r, 3)   ? (kv_elem)kvt_below(r, KV_ELEM_COUNT)
                        : kvt_one_in(r, 2) ? g->element
                                           : (kv_elem)ix.element;
    const uint32_t pad = kvt_pad((kv_elem)ix.element, 0);
    kvt_ok(dev->ops->build(dev, im, &ix, &p, (int32_t)via, pad, &err), &err);
    kvt_ok(kv_check_guards(dev, im, &err), &err);
    check_image(l, g, &ix, im, &p, via, pad, what);
    dev->ops->image_free(dev, im);
}

static void build__equals_the_naive_builder_on_random_descriptors(void **state)
{
    (void)state;
    kv_device *dev = kvt_cpu();
    uint64_t r = 31;
    for (int i = 0; i < 6000; i++) {
        const kv_store store = (kv_store)(i % 3);
        kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE);
        kvt_desc d = kvt_random_desc(&r, &g, store);
        if (store != KV_STORE_LATENT && kvt_one_in(&r, 3)) kvt_shard(&r, &g, &d, NULL);
        char text[KVT_TEXT];
        kvt_desc_text(&d, "b", text);
        kv_layout *l = kvt_layout(text);
        build_and_check(dev, l, &g, kvt_has(&d, KV_F_L) || kvt_one_in(&r, 2) ? g.layers : 1, &r, text);
        kv_layout_free(l);
    }
    dev->ops->close(dev);
}

static void build__equals_the_naive_builder_on_the_published_layouts(void **state)
{
    (void)state;
    static const int64_t tokens[] = {0, 1, 15, 16, 17, 40, 64, 65}, heads[] = {1, 2, 3}, dims[] = {4, 6, 16, 48};
    kv_catalogue c = kvt_published();
    kv_device *dev = kvt_cpu();
    uint64_t r = 32;
    for (size_t i = 0; i < c.n; i++)
        for (size_t k = 0; k < 8 * 3 * 4; k++) {
            const kv_geometry g = {
                2, tokens[k % 8], heads[k / 8 % 3], dims[k / 24], dims[k / 24], (kv_elem)kvt_below(&r, KV_ELEM_COUNT)};
            kv_index ix;
            kv_bind_state s;
            char reason[KV_REASON_TEXT];
            assert_int_equal(kv_layout_bind(c.item[i], &g, 1, &ix, &s, reason, NULL), KV_OK);
            if (s == KV_BIND_OK) build_and_check(dev, c.item[i], &g, 1, &r, c.item[i]->name);
        }
    dev->ops->close(dev);
    kv_catalogue_free(&c);
}

/* One element by hand: 436.0 in bf16 (d6). Bits are never carried over between types. */
static void build__converts_values_not_bits(void **state)
{
    (void)state;
    assert_int_equal(kv_num_convert(KV_ELEM_BF16, KV_ELEM_F16, 0x43DA), 0x5ED0); /* 436.0 */
    assert_int_equal(kv_num_convert(KV_ELEM_F16, KV_ELEM_BF16, 0x43DA),
                     0x407B); /* what the same bits would have been: 3.926 */
    assert_int_equal(kv_num_convert(KV_ELEM_BF16, KV_ELEM_FP8_E4M3, 0x43DA), 0x7E); /* 436 rounds to 448 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build__equals_the_naive_builder_on_random_descriptors),
        cmocka_unit_test(build__equals_the_naive_builder_on_the_published_layouts),
        cmocka_unit_test(build__converts_values_not_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
