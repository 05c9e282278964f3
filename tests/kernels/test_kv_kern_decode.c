/* The token leg through a layout: the same logits from every layout, others from a changed element. */
#include "kernels/kv_kern_token.h"
#include "tests/kv_test_images.h"

typedef struct {
    kv_device *d;
    const kv_layout *l;
    const kv_geometry *g;
    kv_index ix;
    kv_image *im, *scratch;
    kv_payload p;
} leg;

/* An image of all `unit` layers with the token payload, its padding full of NaN. */
static leg leg_new(kv_device *d, const kv_layout *l, const kv_geometry *g, int64_t unit)
{
    leg x = {.d = d, .l = l, .g = g, .ix = kvt_bind(l, g, unit)};
    kv_err err = {0};
    static const uint32_t nan[KV_ELEM_COUNT] = {0x7E00, 0x7FC0, 0x7FC00000, 0x7F};
    x.p = kvt_payload(g, &x.ix, KV_PAYLOAD_TOKENS, 0);
    x.im = kvt_image(d, &x.ix, 1);
    kvt_ok(d->ops->image_new(d, 4 * x.ix.elements, &x.scratch, &err), &err);
    kvt_ok(d->ops->build(d, x.im, &x.ix, &x.p, x.ix.element, nan[x.ix.element], &err), &err);
    return x;
}

static void leg_free(leg *x)
{
    x->d->ops->image_free(x->d, x->im);
    x->d->ops->image_free(x->d, x->scratch);
}

static kv_decode_result decode(leg *x, int64_t layer)
{
    kv_decode_result r;
    kv_err err = {0};
    memset(&r, 0, sizeof r);
    kvt_ok(x->d->ops->decode(x->d, &x->ix, x->im, layer, 9, layer, x->scratch, &r, &err), &err);
    return r;
}

static kv_decode_result decode_reference(leg *x, int64_t layer)
{
    kv_decode_result r;
    kv_err err = {0};
    kv_payload p = x->p;
    p.first_layer = layer;
    memset(&r, 0, sizeof r);
    kvt_ok(x->d->ops->decode_reference(x->d, &x->ix, &p, 9, layer, x->scratch, &r, &err), &err);
    return r;
}

/* The decoder itself, over a canonical tensor made here. */
static kv_decode_result decode_plain(const leg *x, int64_t layer)
{
    const kv_index *ix = &x->ix;
    const kv_elem e = x->g->element;
    const int64_t rows = ix->tokens * ix->heads;
    unsigned char *k = kvt_take(rows * ix->lanes[0], 4), *v = kvt_take(rows * ix->lanes[1], 4);
    for (int64_t kv = 0; kv < ix->halves; kv++)
        for (int64_t i = 0; i < rows * ix->lanes[kv]; i++) {
            const int64_t w = ix->lanes[kv];
            const kv_coord c = {layer, kv, i / w / ix->heads, i / w % ix->heads, i % w};
            kv_num_store(e, kv == 0 ? k : v, i, kv_payload_bits(&x->p, &c));
        }
    kv_token_ctx *ctx = NULL;
    kv_token_out out;
    kv_decode_result r;
    kv_err err = {0};
    kvt_ok(
        kv_token_ctx_new(9, layer, ix->heads, ix->lanes[0], ix->halves == 2 ? ix->lanes[1] : ix->lanes[0], &ctx, &err),
        &err);
    kvt_ok(kv_token_decode(ctx, e, ix->tokens, k, ix->halves == 2 ? v : k, &out, &err), &err);
    memcpy(r.tokens, out.tokens, sizeof r.tokens);
    memcpy(r.logits, out.logits, sizeof r.logits);
    kv_token_ctx_free(ctx);
    free(k);
    free(v);
    return r;
}

static void assert_same(const kv_decode_result *a, const kv_decode_result *b, const char *what)
{
    if (memcmp(a->tokens, b->tokens, sizeof a->tokens) != 0) fail_msg("%s: other tokens", what);
    if (memcmp(a->logits, b->logits, sizeof a->logits) != 0) fail_msg("%s: other logits", what);
}

static void decode__is_the_same_through_every_layout(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    uint64_t r = 61;
    for (int i = 0; i < 500; i++) {
        const kv_store store = (kv_store)(i % 3);
        kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE);
        kvt_desc desc = kvt_random_desc_same(&r, &g, store); /* another type is another cache */
        if (store != KV_STORE_LATENT && kvt_one_in(&r, 3)) kvt_shard(&r, &g, &desc, NULL);
        char text[KVT_TEXT];
        kvt_desc_text(&desc, "d", text);
        kv_layout *l = kvt_layout(text);
        leg x = leg_new(d, l, &g, g.layers);
        for (int64_t layer = 0; layer < g.layers; layer++) {
            const kv_decode_result got = decode(&x, layer), ref = decode_reference(&x, layer),
                                   plain = decode_plain(&x, layer);
            assert_same(&got, &ref, text);
            assert_same(&got, &plain, text);
        }
        leg_free(&x);
        kv_layout_free(l);
    }
    d->ops->close(d);
}

static void decode__tells_layers_and_heads_apart(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    const kv_geometry g = kvt_geometry("L=2,T=20,H=2,D=8,e=f16");
    kv_layout *l = kvt_layout("a int k=L.Tb.KV.Ti.H.D block=16"), *s0 = kvt_layout("b sep k=T.H.D tp=0/2"),
              *s1 = kvt_layout("c sep k=T.H.D tp=1/2");
    leg x = leg_new(d, l, &g, 2), y = leg_new(d, s0, &g, 1), z = leg_new(d, s1, &g, 1);
    const kv_decode_result a = decode(&x, 0), b = decode(&x, 1), c = decode(&y, 0), e = decode(&z, 0);
    assert_memory_not_equal(a.logits, b.logits, sizeof a.logits);
    assert_memory_not_equal(c.logits, e.logits, sizeof c.logits);
    leg_free(&x);
    leg_free(&y);
    leg_free(&z);
    kv_layout_free(l);
    kv_layout_free(s0);
    kv_layout_free(s1);
    d->ops->close(d);
}

/* Every bit of every element of a small cache but the signs of zeros (there are none here): the logits change. */
static void decode__shows_one_flipped_element_and_no_padding(void **state)
{
    (void)state;
    static const char *const elements[] = {"f16", "fp8_e4m3"};
    kv_device *d = kvt_cpu();
    for (size_t e = 0; e < KVT_COUNT(elements); e++) {
        char geometry[64];
        snprintf(geometry, sizeof geometry, "L=1,T=9,H=2,D=6,e=%s", elements[e]);
        const kv_geometry g = kvt_geometry(geometry);
        kv_layout *l = kvt_layout("a int k=Tb.KV.H.Ti.D block=4 row_lanes=7 page_stride_bytes=250");
        leg x = leg_new(d, l, &g, 1);
        const kv_decode_result want = decode(&x, 0);
        for (int64_t p = 0; p < x.ix.native; p++) {
            kv_coord c;
            const int held = kv_index_inverse(&x.ix, p, &c);
            const uint32_t was = kvt_bits_at(&x.ix, x.im, p), bit = 1U << (p % (8 * kv_elem_bytes(g.element)));
            kv_num_store(g.element, kv_image_host_view(x.im), p, was ^ bit);
            const kv_decode_result got = decode(&x, 0);
            kv_num_store(g.element, kv_image_host_view(x.im), p, was);
            const bool same = memcmp(got.logits, want.logits, sizeof got.logits) == 0;
            if (same == (held != 0))
                fail_msg("position %" PRId64 " %s, the logits are %s", p, held ? "holds an element" : "is padding",
                         same ? "the same" : "others");
        }
        leg_free(&x);
        kv_layout_free(l);
    }
    d->ops->close(d);
}

/* A layer whose tokens come a window at a time, each bound and built by itself, in any order: the decode of the whole. The
 * windows begin where every token block does. */
static void decode_dense__is_the_same_from_windows_in_any_order(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    uint64_t r = 67;
    int64_t windows = 0;
    for (int i = 0; i < 300; i++) {
        const kv_store store = (kv_store)(i % 3);
        kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE);
        kvt_desc desc = kvt_random_desc_same(&r, &g, store);
        if (store != KV_STORE_LATENT && kvt_one_in(&r, 3)) kvt_shard(&r, &g, &desc, NULL);
        char text[KVT_TEXT];
        kvt_desc_text(&desc, "d", text);
        kv_layout *l = kvt_layout(text);
        leg x = leg_new(d, l, &g, g.layers);
        const int64_t layer = kvt_below(&r, g.layers), step = x.ix.block * (1 + kvt_below(&r, 3));
        const int64_t count = g.tokens > 0 ? (g.tokens + step - 1) / step : 1;
        kv_err err = {0};
        for (int turn = 0; turn < 2; turn++) { /* through the layout, then the canonical tensor itself */
            const kv_decode_result want = decode(&x, layer);
            kv_decode_result got;
            memset(kv_image_host_view(x.scratch), 0xEE, (size_t)(4 * x.ix.elements));
            for (int64_t n = 0; n < count; n++) {
                const kv_window w = {(turn == 0 ? n : count - 1 - n) * step, g.tokens};
                kv_geometry part = g;
                part.tokens = g.tokens - w.first < step ? g.tokens - w.first : step;
                leg y = leg_new(d, l, &part, g.layers);
                y.p = x.p;
                y.p.first_token = w.first;
                kvt_ok(d->ops->build(d, y.im, &y.ix, &y.p, y.ix.element, 0x7F, &err), &err);
                y.p.first_layer = layer;
                kvt_ok(d->ops->gather(d, &y.ix, turn == 0 ? y.im : NULL, &y.p, layer, &w, x.scratch, &err), &err);
                leg_free(&y);
                windows++;
            }
            kvt_ok(d->ops->decode_dense(d, &x.ix, x.ix.element, x.scratch, 9, layer, &got, &err), &err);
            assert_same(&got, &want, text);
        }
        const kv_window outside = {1, g.tokens};
        kvt_refused(d->ops->gather(d, &x.ix, x.im, NULL, 0, &outside, x.scratch, &err), KV_EBUG, &err, text,
                    KVT_SAYS("window"));
        leg_free(&x);
        kv_layout_free(l);
    }
    if (windows < 1000) fail_msg("%" PRId64 " windows", windows);
    d->ops->close(d);
}

static void decode__works_on_an_empty_cache(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    const kv_geometry g = kvt_geometry("L=2,T=0,H=2,D=8,e=f16");
    kv_layout *l = kvt_layout("a int k=KV.Tb.Ti.H.D block=16");
    leg x = leg_new(d, l, &g, 1);
    const kv_decode_result a = decode(&x, 0), b = decode_reference(&x, 0);
    assert_same(&a, &b, "T = 0");
    leg_free(&x);
    kv_layout_free(l);
    d->ops->close(d);
}

static void decode__refuses_scratch_that_is_too_small_and_survives_failed_allocations(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    const kv_geometry g = kvt_geometry("L=1,T=20,H=2,D=8,e=f16");
    kv_layout *l = kvt_layout("a sep k=T.H.D");
    leg x = leg_new(d, l, &g, 1);
    kv_image *small = NULL;
    kv_decode_result r;
    kv_err err = {0};
    kvt_ok(d->ops->image_new(d, 2 * 20 * 2 * 8 * 2 - 1, &small, &err), &err);
    kvt_refused(d->ops->decode(d, &x.ix, x.im, 0, 9, 0, small, &r, &err), KV_EBUG, &err, "scratch",
                KVT_SAYS("1280", "1279"));
    assert_int_equal(d->ops->decode_reference(d, &x.ix, &x.p, 9, 0, small, &r, NULL), KV_EBUG);
    for (long n = 0;; n++) {
        kv_alloc_fail_after(n);
        const kv_rc rc = d->ops->decode(d, &x.ix, x.im, 0, 9, 0, x.scratch, &r, NULL);
        kv_alloc_fail_after(-1);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        assert_true(n < 20);
    }
    d->ops->image_free(d, small);
    leg_free(&x);
    kv_layout_free(l);
    d->ops->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode__is_the_same_through_every_layout),
        cmocka_unit_test(decode__tells_layers_and_heads_apart),
        cmocka_unit_test(decode__shows_one_flipped_element_and_no_padding),
        cmocka_unit_test(decode_dense__is_the_same_from_windows_in_any_order),
        cmocka_unit_test(decode__works_on_an_empty_cache),
        cmocka_unit_test(decode__refuses_scratch_that_is_too_small_and_survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
