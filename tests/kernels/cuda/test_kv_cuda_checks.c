/* The GPU's checks against the CPU's: probe, comparison, sets of differences, drift, and the token leg, number for
 * number and bit for bit. */
#include "kernels/cuda/kv_cuda_kern.h"
#include "kernels/kv_kern_token.h"
#include "tests/kernels/cuda/kv_test_cuda.h"

static kv_probe_result probe(kv_device *d, const kv_index *ix)
{
    kv_probe_result r;
    kv_err err = {0};
    memset(&r, 0xA5, sizeof r);
    kvt_ok(d->ops->probe(d, ix, &r, &err), &err);
    return r;
}

static void same_probe(kvt_two *d, const kv_index *ix, const char *what)
{
    const kv_probe_result a = probe(d->cpu, ix), b = probe(d->gpu, ix);
    if (a.checked != b.checked || a.padding != b.padding || a.bad != b.bad || a.first_bad != b.first_bad ||
        a.elements_hit != b.elements_hit)
        fail_msg("%s: checked %" PRId64 " padding %" PRId64 " bad %" PRId64 " first %" PRId64 " hit %" PRId64, what,
                 b.checked, b.padding, b.bad, b.first_bad, b.elements_hit);
}

static void probe__counts_as_the_cpu(void **state)
{
    (void)state;
    static const char *const large[] = {
        "p int k=KV.Tb.Ti.H.D block=16", "p sep k=Tb.H.Dg.Ti.Dx v=Tb.H.D.Ti block=32 x=8",
        "p int k=Tb.KV.H.Ti.D block=7 page_stride_bytes=40000", "p sep k=T.H.D row_lanes=131"};
    uint64_t r = 51;
    for (int n = 0; n < 4; n++) {
        kvt_two d = kvt_devices(n);
        for (int i = 0; i < 500; i++) {
            const kv_store store = (kv_store)(i % 3);
            const kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE);
            kv_layout *l = kvt_random_layout(&r, &g, store, "p");
            const kv_index ix = kvt_bind(l, &g, kv_pair_unit_layers(l, l, &g));
            same_probe(&d, &ix, "a random layout");
            kv_layout_free(l);
        }
        kv_layout *l = kvt_layout(large[n]);
        const kv_geometry g = kvt_geometry("L=1,T=129,H=3,D=128,e=f16");
        const kv_index ix = kvt_bind(l, &g, 1);
        same_probe(&d, &ix, large[n]);
        kv_layout_free(l);
        kvt_close(&d);
    }
}

/* Maps that are wrong in one number: what the CPU sees, the GPU sees. */
static void probe__sees_a_map_that_is_no_bijection(void **state)
{
    (void)state;
    kvt_two d = kvt_devices(0);
    const kv_geometry g = kvt_geometry("L=2,T=100,H=2,D=4,e=f16");
    kv_layout *l = kvt_layout("p int k=KV.Tb.Ti.H.D v=KV.Tb.Ti.D.H block=4"), *s = kvt_layout("q sep k=T.H.D v=H.D.T");
    const kv_index good = kvt_bind(l, &g, 2), apart = kvt_bind(s, &g, 2);
    for (int fault = 0; fault < 10; fault++) {
        kv_index ix = fault < 6 ? good : apart;
        switch (fault) {
        case 0: ix.half[1].size[2] = 3; break;
        case 1: ix.kv_span /= 2; break;
        case 2: ix.block = 3; break;
        case 3: ix.half[0].page_span++; break;
        case 4: ix.tokens++; break;
        case 5: ix.half[0].kind[3] = KV_F_D; break;
        case 6: ix.half_base[1]--; break;
        case 7: ix.layer_span--; break;
        case 8: ix.half[1].size[0]--; break; /* the walk alone notices where its array ends */
        default: break;
        }
        kv_index_prepare(&ix);
        if (fault == 9) ix.half[1].size_inverse[1] = kv_index_inverse_of(ix.half[1].size[1] - 1);
        const kv_probe_result a = probe(d.cpu, &ix), b = probe(d.gpu, &ix);
        const bool clean = b.bad == 0 && b.elements_hit == ix.elements && b.padding == ix.native - ix.elements;
        if (clean) fail_msg("fault %d is not seen", fault);
        assert_int_equal(a.checked, b.checked);
        assert_int_equal(a.bad > 0, b.bad > 0);
        if (b.bad > 0) assert_true(b.first_bad >= 0 && b.first_bad < ix.native);
    }
    kv_layout_free(l);
    kv_layout_free(s);
    kvt_close(&d);
}

/* Two images with some positions changed, on both devices. */
static void differ(uint64_t *r, kvt_two *d, const kv_index *ix, kvt_pair *a, kvt_pair *b, int64_t changes)
{
    const kv_payload load = {
        .seed = 3, .tokens = 1, .kv_heads = 1, .lanes = {1, 1}, .kind = KV_PAYLOAD_BITS, .element = ix->element};
    kvt_both_build(d, a, ix, &load, ix->element, 0x11);
    kvt_both_build(d, b, ix, &load, ix->element, 0x11);
    for (int64_t i = 0; i < changes && ix->native > 0; i++) {
        const int64_t at = kvt_one_in(r, 4) ? ix->native - 1 - kvt_below(r, ix->native < 9 ? ix->native : 9)
                                            : kvt_below(r, ix->native);
        kv_num_store((kv_elem)ix->element, kv_image_host_view(a->cpu), at, (uint32_t)kvt_next(r));
    }
    kvt_send(d, a);
}

static void same_compare(kvt_two *d, const kv_index *ix, kvt_pair *a, kvt_pair *b)
{
    kv_compare_result x, y;
    kv_err err = {0};
    kvt_ok(d->cpu->ops->compare(d->cpu, ix, a->cpu, b->cpu, &x, &err), &err);
    kvt_ok(d->gpu->ops->compare(d->gpu, ix, a->gpu, b->gpu, &y, &err), &err);
    assert_int_equal(x.differing, y.differing);
    assert_int_equal(x.first, y.first);
    if (x.differing == 0) return;
    assert_int_equal(x.got, y.got);
    assert_int_equal(x.want, y.want);
}

static void same_take(kvt_two *d, kv_diffset *const set[2], int64_t *seen)
{
    kv_diffset_result x, y;
    kv_err err = {0};
    kvt_ok(d->cpu->ops->diffset_take(d->cpu, set[0], &x, &err), &err);
    kvt_ok(d->gpu->ops->diffset_take(d->gpu, set[1], &y, &err), &err);
    assert_int_equal(x.differing, y.differing);
    assert_int_equal(x.outside_padding, y.outside_padding);
    assert_int_equal(x.first_outside, y.first_outside);
    *seen += x.differing;
}

static void compare_and_diffset__find_what_the_cpu_finds(void **state)
{
    (void)state;
    uint64_t r = 57;
    int64_t seen = 0;
    for (int n = 0; n < 4; n++) {
        kvt_two d = kvt_devices(n);
        for (int i = 0; i < 150; i++) {
            const kv_store store = (kv_store)(i % 3);
            kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE);
            if (kvt_one_in(&r, 3)) g.tokens = 60 + kvt_below(&r, 90);
            kv_layout *l = kvt_random_layout(&r, &g, store, "c");
            const kv_index ix = kvt_bind(l, &g, kv_pair_unit_layers(l, l, &g));
            kvt_pair a = kvt_images(&d, &ix, 1), b = kvt_images(&d, &ix, 1);
            kv_diffset *set[2] = {NULL, NULL};
            kv_err err = {0};
            kvt_ok(d.cpu->ops->diffset_new(d.cpu, &ix, &set[0], &err), &err);
            kvt_ok(d.gpu->ops->diffset_new(d.gpu, &ix, &set[1], &err), &err);
            for (int round = 0; round < 2; round++) {
                for (int add = 0; add < 2; add++) {
                    differ(&r, &d, &ix, &a, &b, kvt_below(&r, 12));
                    same_compare(&d, &ix, &a, &b);
                    kvt_ok(d.cpu->ops->diffset_add(d.cpu, set[0], a.cpu, b.cpu, &err), &err);
                    kvt_ok(d.gpu->ops->diffset_add(d.gpu, set[1], a.gpu, b.gpu, &err), &err);
                }
                same_take(&d, set, &seen);
            }
            same_take(&d, set, &seen); /* empty again */
            kvt_ok(d.gpu->ops->poison(d.gpu, a.gpu, a.bytes / 2, 1, &err), &err);
            kv_compare_result unused;
            if (a.bytes > 0) assert_int_equal(d.gpu->ops->compare(d.gpu, &ix, a.gpu, b.gpu, &unused, NULL), KV_EBUG);
            d.cpu->ops->diffset_free(d.cpu, set[0]);
            d.gpu->ops->diffset_free(d.gpu, set[1]);
            d.gpu->ops->diffset_free(d.gpu, NULL);
            kvt_images_free(&d, &a);
            kvt_images_free(&d, &b);
            kv_layout_free(l);
        }
        kvt_close(&d);
    }
    assert_true(seen > 3000);
}

/* Random bits of every element type, NaN and Inf among them, and finite ones. */
static void drift__measures_what_the_cpu_measures(void **state)
{
    (void)state;
    uint64_t r = 59;
    int finite = 0, preserved = 0, other = 0;
    kvt_two d = kvt_devices(1);
    for (int i = 0; i < 400; i++) {
        char ta[96], tb[96];
        const kv_elem from = (kv_elem)kvt_below(&r, KV_ELEM_COUNT), to = (kv_elem)kvt_below(&r, KV_ELEM_COUNT);
        snprintf(ta, sizeof ta, "a sep k=T.H.D e=%s", kv_elem_name(from));
        snprintf(tb, sizeof tb, "b int k=KV.Tb.Ti.H.D block=4 e=%s", kv_elem_name(to));
        const kv_geometry g = {1, kvt_below(&r, 20), 2, 6, 6, from};
        kv_layout *la = kvt_layout(ta), *lb = kvt_layout(tb);
        const kv_index s = kvt_bind(la, &g, 1), t = kvt_bind(lb, &g, 1);
        kvt_pair src = kvt_images(&d, &s, 1), dst = kvt_images(&d, &t, 2);
        const kv_payload load = kvt_payload(&g, &s, kvt_one_in(&r, 2) ? KV_PAYLOAD_TOKENS : KV_PAYLOAD_BITS, i);
        kv_drift_result x, y;
        kv_err err = {0};
        kvt_both_build(&d, &src, &s, &load, s.element, 1);
        kvt_both_build(&d, &dst, &t, &load, kvt_one_in(&r, 3) ? KV_ELEM_FP8_E4M3 : t.element, 1);
        kvt_ok(d.cpu->ops->drift(d.cpu, &s, src.cpu, &t, dst.cpu, &x, &err), &err);
        kvt_ok(d.gpu->ops->drift(d.gpu, &s, src.gpu, &t, dst.gpu, &y, &err), &err);
        assert_int_equal(x.preserved, y.preserved);
        assert_int_equal(x.finite, y.finite);
        assert_int_equal(x.worst_ppm, y.worst_ppm);
        finite += x.finite;
        preserved += x.preserved;
        other += x.worst_ppm > 0;
        kvt_images_free(&d, &src);
        kvt_images_free(&d, &dst);
        kv_layout_free(la);
        kv_layout_free(lb);
    }
    assert_true(finite > 100 && finite < 390 && preserved > 20 && other > 100);
    kvt_close(&d);
}

/* ---- the token leg ---------------------------------------------------------------------- */

static void same_decode(const kv_decode_result *a, const kv_decode_result *b, const char *what)
{
    if (memcmp(a->tokens, b->tokens, sizeof a->tokens) != 0) fail_msg("%s: other tokens", what);
    for (int i = 0; i < KV_DECODE_STEPS * KV_VOCABULARY; i++)
        if (a->logits[i] != b->logits[i])
            fail_msg("%s: logit %d of step %d is %08x, not %08x", what, i % KV_VOCABULARY, i / KV_VOCABULARY,
                     b->logits[i], a->logits[i]);
}

static void decode_both(kvt_two *d, const kv_layout *l, const kv_geometry *g, int32_t kind, const char *what)
{
    const kv_index ix = kvt_bind(l, g, g->layers);
    kvt_pair im = kvt_images(d, &ix, 1);
    kv_image *scratch[2];
    kv_err err = {0};
    kv_payload load = kvt_payload(g, &ix, kind, 0);
    kvt_ok(d->cpu->ops->image_new(d->cpu, 4 * ix.elements, &scratch[0], &err), &err);
    kvt_ok(d->gpu->ops->image_new(d->gpu, 4 * ix.elements, &scratch[1], &err), &err);
    kvt_both_build(d, &im, &ix, &load, ix.element, 0x7F);
    for (int64_t layer = 0; layer < g->layers; layer++) {
        kv_decode_result a, b;
        load.first_layer = layer;
        kvt_ok(d->cpu->ops->decode(d->cpu, &ix, im.cpu, layer, 9, layer, scratch[0], &a, &err), &err);
        kvt_ok(d->gpu->ops->decode(d->gpu, &ix, im.gpu, layer, 9, layer, scratch[1], &b, &err), &err);
        same_decode(&a, &b, what);
        kvt_ok(d->cpu->ops->decode_reference(d->cpu, &ix, &load, 9, layer, scratch[0], &a, &err), &err);
        kvt_ok(d->gpu->ops->decode_reference(d->gpu, &ix, &load, 9, layer, scratch[1], &b, &err), &err);
        same_decode(&a, &b, what);
    }
    d->cpu->ops->image_free(d->cpu, scratch[0]);
    d->gpu->ops->image_free(d->gpu, scratch[1]);
    kvt_images_free(d, &im);
}

/* A window of the layer: its elements at their places, and nothing else of the dense layer written. */
static void gather_both(kvt_two *d, const kv_layout *l, const kv_geometry *g, const kv_window *w, bool image,
                        const char *what)
{
    kv_geometry part = *g;
    part.tokens = g->tokens - w->first < part.tokens / 2 ? g->tokens - w->first : part.tokens / 2;
    const kv_index whole = kvt_bind(l, g, 1), ix = kvt_bind(l, &part, 1);
    kvt_pair im = kvt_images(d, &ix, 1), dense = {.bytes = 4 * whole.elements};
    kv_payload load = kvt_payload(g, &ix, KV_PAYLOAD_BITS, 1);
    kv_err err = {0};
    load.first_token = w->first;
    kvt_ok(d->cpu->ops->image_new(d->cpu, dense.bytes, &dense.cpu, &err), &err);
    kvt_ok(d->gpu->ops->image_new(d->gpu, dense.bytes, &dense.gpu, &err), &err);
    kvt_ok(d->cpu->ops->poison(d->cpu, dense.cpu, dense.bytes, 5, &err), &err);
    kvt_ok(d->gpu->ops->poison(d->gpu, dense.gpu, dense.bytes, 5, &err), &err);
    kvt_both_build(d, &im, &ix, &load, ix.element, 0x7F);
    kvt_same_images(d, &im, &ix, what);
    kvt_ok(d->cpu->ops->gather(d->cpu, &ix, image ? im.cpu : NULL, &load, 0, w, dense.cpu, &err), &err);
    kvt_ok(d->gpu->ops->gather(d->gpu, &ix, image ? im.gpu : NULL, &load, 0, w, dense.gpu, &err), &err);
    kvt_same_images(d, &dense, &whole, what);
    kvt_images_free(d, &dense);
    kvt_images_free(d, &im);
}

static void gather__puts_a_window_where_the_cpu_does(void **state)
{
    (void)state;
    uint64_t r = 63;
    kvt_two d = kvt_devices(1);
    for (int i = 0; i < 120; i++) {
        const kv_store store = (kv_store)(i % 3);
        const kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE);
        const kvt_desc desc = kvt_random_desc_same(&r, &g, store);
        const kv_window w = {kvt_below(&r, g.tokens + 1), g.tokens};
        char text[KVT_TEXT];
        kvt_desc_text(&desc, "d", text);
        kv_layout *l = kvt_layout(text);
        gather_both(&d, l, &g, &w, kvt_one_in(&r, 2), text);
        kv_layout_free(l);
    }
    kvt_close(&d);
}

/* What a plan counts for the token leg is at least what it takes here, and not much more than that or the weights. */
static void decode__takes_no_more_memory_than_planned(void **state)
{
    (void)state;
    uint64_t r = 64;
    for (int i = 0; i < 3000; i++) {
        const kv_cuda_decode x = {.tokens = kvt_below(&r, i % 2 == 0 ? 300 : 3000000),
                                  .heads = 1 + kvt_below(&r, i % 3 == 0 ? 3 : 200),
                                  .dim_k = 1 + kvt_below(&r, 300),
                                  .dim_v = 1 + kvt_below(&r, i % 5 == 0 ? 2000 : 200)};
        int64_t floats, bytes;
        assert_true(kv_cuda_token_floats(&x, &floats));
        assert_true(kv_token_bytes(x.tokens, x.heads, x.dim_k, x.dim_v, &bytes));
        const int64_t weights = 4 * 32 * x.heads * (3 * x.dim_k + 3 * x.dim_v + 40) + (2 << 20);
        if (bytes < 4 * floats || bytes > 8 * floats + 4 * weights)
            fail_msg("T=%" PRId64 " H=%" PRId64 " D=%" PRId64 " Dv=%" PRId64 ": %" PRId64 " bytes planned, %" PRId64
                     " floats",
                     x.tokens, x.heads, x.dim_k, x.dim_v, bytes, floats);
    }
}

static void decode__gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    static const char *const geometries[] = {"L=1,T=0,H=2,D=8,e=f16",        "L=1,T=63,H=1,D=128,e=bf16",
                                             "L=1,T=64,H=3,D=80,e=f16",      "L=1,T=65,H=8,D=6,e=f32",
                                             "L=1,T=129,H=2,D=96,e=bf16",    "L=1,T=200,H=1,D=137,e=fp8_e4m3",
                                             "L=1,T=17,H=2,D=300,Dv=5,e=f16"};
    uint64_t r = 61;
    for (int n = 0; n < 2; n++) {
        kvt_two d = kvt_devices(n);
        for (int i = 0; i < 60; i++) {
            const kv_store store = (kv_store)(i % 3);
            const kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE);
            const kvt_desc desc = kvt_random_desc_same(&r, &g, store);
            char text[KVT_TEXT];
            kvt_desc_text(&desc, "d", text);
            kv_layout *l = kvt_layout(text);
            /* random bits too: NaN and Inf in the cache */
            decode_both(&d, l, &g, kvt_one_in(&r, 3) ? KV_PAYLOAD_BITS : KV_PAYLOAD_TOKENS, text);
            kv_layout_free(l);
        }
        kvt_close(&d);
    }
    kvt_two d = kvt_devices(3);
    kv_layout *l = kvt_layout("d sep k=Tb.H.Ti.D v=H.D.T block=16");
    for (size_t i = 0; i < KVT_COUNT(geometries); i++) {
        const kv_geometry g = kvt_geometry(geometries[i]);
        decode_both(&d, l, &g, KV_PAYLOAD_TOKENS, geometries[i]);
    }
    kv_layout_free(l);
    kvt_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probe__counts_as_the_cpu),
        cmocka_unit_test(probe__sees_a_map_that_is_no_bijection),
        cmocka_unit_test(compare_and_diffset__find_what_the_cpu_finds),
        cmocka_unit_test(drift__measures_what_the_cpu_measures),
        cmocka_unit_test(gather__puts_a_window_where_the_cpu_does),
        cmocka_unit_test(decode__takes_no_more_memory_than_planned),
        cmocka_unit_test(decode__gives_the_bits_of_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
