/* Builder and translator of the GPU against the CPU's, byte for byte, on random layouts and on sizes past every tile. */
#include "tests/kernels/cuda/kv_test_cuda.h"

typedef struct {
    kvt_two *d;
    const kv_layout *src, *dst;
    const kv_geometry *g;
    const char *what;
} pair;

static void move_and_check(const pair *p, int32_t kind, uint32_t round)
{
    kvt_two *d = p->d;
    kv_err err = {0};
    const int64_t unit = kv_pair_unit_layers(p->src, p->dst, p->g);
    const kv_index s = kvt_bind(p->src, p->g, unit), t = kvt_bind(p->dst, p->g, unit);
    const kv_payload load = kvt_payload(p->g, &s, kind, round % 3);
    const uint32_t stale = kvt_pad((kv_elem)s.element, 0), fill = kvt_pad((kv_elem)t.element, 1);
    kvt_pair src = kvt_images(d, &s, round), dst = kvt_images(d, &t, round + 1);
    kvt_both_build(d, &src, &s, &load, s.element, stale);
    kvt_same_images(d, &src, &s, p->what);
    kvt_ok(d->cpu->ops->translate(d->cpu, &s, src.cpu, &t, dst.cpu, fill, &err), &err);
    kvt_ok(d->gpu->ops->translate(d->gpu, &s, src.gpu, &t, dst.gpu, fill, &err), &err);
    kvt_same_images(d, &dst, &t, p->what);
    kvt_same_images(d, &src, &s, p->what); /* the source is as it was */
    kvt_both_build(d, &dst, &t, &load, s.element, fill);
    kvt_same_images(d, &dst, &t, p->what);
    kvt_images_free(d, &src);
    kvt_images_free(d, &dst);
}

static void translate__equals_the_cpu_on_random_pairs(void **state)
{
    (void)state;
    uint64_t r = 41;
    int converted = 0, sharded = 0, whole_units = 0;
    for (int n = 0; n < 4; n++) {
        kvt_two d = kvt_devices(n);
        for (int i = 0; i < 700; i++) {
            const kv_store store = (kv_store)(i % 3),
                           other = store == KV_STORE_LATENT ? store : (kv_store)kvt_below(&r, 2);
            kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT,
                                                store != KV_STORE_SEPARATE || other != KV_STORE_SEPARATE);
            kvt_desc a = kvt_random_desc(&r, &g, store), b = kvt_random_desc(&r, &g, other);
            if (store != KV_STORE_LATENT && kvt_one_in(&r, 3)) kvt_shard(&r, &g, &a, &b);
            char ta[KVT_TEXT], tb[KVT_TEXT], what[2 * KVT_TEXT + 256], geometry[KV_GEOMETRY_TEXT];
            kvt_desc_text(&a, "a", ta);
            kvt_desc_text(&b, "b", tb);
            kv_geometry_print(&g, geometry);
            snprintf(what, sizeof what, "%s -> %s at %s", ta, tb, geometry);
            kv_layout *la = kvt_layout(ta), *lb = kvt_layout(tb);
            const pair p = {&d, la, lb, &g, what};
            move_and_check(&p, (int32_t)kvt_below(&r, KV_PAYLOAD_SWEEP + 9), (uint32_t)i);
            converted += kv_layout_element(la, &g) != kv_layout_element(lb, &g);
            sharded += a.tp_size > 1;
            whole_units += kvt_has(&a, KV_F_L) || kvt_has(&b, KV_F_L);
            kv_layout_free(la);
            kv_layout_free(lb);
        }
        kvt_close(&d);
    }
    assert_true(converted > 400 && sharded > 200 && whole_units > 700);
}

/* Whole tiles and what is left of them, every path of the planner: vectors of 16 bytes down to 1, turned or straight. */
static void translate__equals_the_cpu_past_the_tiles(void **state)
{
    (void)state;
    static const char *const layouts[] = {"a sep k=T.H.D",
                                          "a sep k=H.D.T",
                                          "a sep k=H.T.D",
                                          "a sep k=T.H.D v=H.D.T",
                                          "a int k=KV.Tb.Ti.H.D block=16",
                                          "a int k=Tb.KV.H.Ti.D block=32",
                                          "a sep k=Tb.H.Ti.D block=64",
                                          "a sep k=Tb.H.Dg.Ti.Dx v=Tb.H.D.Ti block=16 x=2",
                                          "a sep k=Tb.H.Dg.Ti.Dx v=Tb.H.D.Ti block=16 x_bytes=16",
                                          "a sep k=D.H.T v=T.D.H",
                                          "a int k=Tb.H.KV.Dg.Ti.Dx v=Tb.H.KV.Ti.Dg.Dx block=48 x=2",
                                          "a int k=Tb.D.H.Ti.KV block=7",
                                          "a sep k=Tb.Tg.H.D.Tx v=H.T.D block=12 tx=4",
                                          "a sep k=Tb.Tg.H.D.Tx block=32 tx=8",
                                          "a sep k=Tb.H.Ti.D block=16 page_stride_bytes=65536",
                                          "a sep k=T.H.D row_lanes=160"};
    static const int64_t dims[] = {1, 2, 6, 63, 64, 66, 80, 96, 128, 130}, tokens[] = {1, 16, 17, 63, 64, 65, 128, 129};
    static const int64_t heads[] = {1, 2, 3, 8};
    uint64_t r = 43;
    int moved = 0;
    for (int n = 0; n < 4; n++) {
        kvt_two d = kvt_devices(n);
        for (int i = 0; i < 250; i++) {
            char ta[160], tb[160], what[512];
            const int from = (int)(i % KV_ELEM_COUNT),
                      to = kvt_one_in(&r, 5) ? (int)kvt_below(&r, KV_ELEM_COUNT) : from;
            const int64_t dim = dims[kvt_below(&r, KVT_COUNT(dims))];
            const kv_geometry g = {1,
                                   tokens[kvt_below(&r, KVT_COUNT(tokens))],
                                   heads[kvt_below(&r, dim > 100 ? 2 : KVT_COUNT(heads))],
                                   dim,
                                   dim,
                                   (kv_elem)kvt_below(&r, KV_ELEM_COUNT)};
            snprintf(ta, sizeof ta, "%s e=%s", layouts[kvt_below(&r, KVT_COUNT(layouts))], kv_elem_name((kv_elem)from));
            snprintf(tb, sizeof tb, "%s e=%s", layouts[kvt_below(&r, KVT_COUNT(layouts))], kv_elem_name((kv_elem)to));
            kv_layout *la = kvt_layout(ta), *lb = kvt_layout(tb);
            kv_layout_frontier f;
            char reason[KV_REASON_TEXT];
            assert_int_equal(kv_pair_frontier(la, lb, &g, &f, reason, NULL), KV_OK);
            snprintf(what, sizeof what, "%s -> %s, T=%" PRId64 " H=%" PRId64 " D=%" PRId64, ta, tb, g.tokens,
                     g.kv_heads, dim);
            const pair p = {&d, la, lb, &g, what};
            if (f == KV_X_NONE) move_and_check(&p, KV_PAYLOAD_BITS, (uint32_t)i);
            moved += f == KV_X_NONE;
            kv_layout_free(la);
            kv_layout_free(lb);
        }
        kvt_close(&d);
    }
    assert_true(moved > 600);
}

static void translate__equals_the_cpu_on_the_published_pairs(void **state)
{
    (void)state;
    static const char *const geometries[] = {
        KVT_PUBLISHED_GEOMETRY,    "L=2,T=0,H=2,D=8,e=f32",   "L=1,T=1,H=1,D=4,e=fp8_e4m3", "L=2,T=17,H=3,D=16,e=bf16",
        "L=1,T=64,H=8,D=80,e=f16", "L=1,T=129,H=2,D=6,e=f32", "L=1,T=130,H=1,D=128,e=bf16", "L=1,T=17,H=3,D=96,e=f32"};
    kv_catalogue c = kvt_published();
    kvt_two d = kvt_devices(1);
    kv_emu_set_order(KV_EMU_TURNS);
    for (size_t k = 0; k < KVT_COUNT(geometries); k++) {
        const kv_geometry g = kvt_geometry(geometries[k]);
        for (size_t i = 0; i < c.n * c.n; i++) {
            const pair p = {&d, c.item[i / c.n], c.item[i % c.n], &g, geometries[k]};
            kv_layout_frontier f;
            char reason[KV_REASON_TEXT];
            assert_int_equal(kv_pair_frontier(p.src, p.dst, &g, &f, reason, NULL), KV_OK);
            if (f == KV_X_NONE) move_and_check(&p, (int32_t)(i % KV_PAYLOADS), (uint32_t)i);
        }
    }
    kvt_close(&d);
    kv_catalogue_free(&c);
}

/* What gives no result does not make the host wait. */
static void work__is_queued(void **state)
{
    (void)state;
    kvt_two d = kvt_devices(0);
    kv_layout *a = kvt_layout("a sep k=T.H.D"), *b = kvt_layout("b sep k=H.D.T");
    const kv_geometry g = kvt_geometry("L=1,T=70,H=2,D=64,e=f16");
    const kv_index s = kvt_bind(a, &g, 1), t = kvt_bind(b, &g, 1);
    kv_image *src = kvt_image(d.gpu, &s, 0), *dst = kvt_image(d.gpu, &t, 1), *copy = kvt_image(d.gpu, &s, 2);
    const kv_payload load = kvt_payload(&g, &s, 5, 0);
    kv_err err = {0};
    const long waits = kv_emu_waits();
    kvt_ok(d.gpu->ops->build(d.gpu, src, &s, &load, s.element, 0, &err), &err);
    kvt_ok(d.gpu->ops->copy(d.gpu, src, copy, &err), &err);
    kvt_ok(d.gpu->ops->translate(d.gpu, &s, copy, &t, dst, 0, &err), &err);
    kvt_ok(d.gpu->ops->poison(d.gpu, src, kv_index_bytes(&s), 3, &err), &err);
    assert_int_equal(kv_emu_waits(), waits);
    kvt_ok(d.gpu->ops->finish(d.gpu, &err), &err);
    assert_int_equal(kv_emu_waits(), waits + 1);
    d.gpu->ops->image_free(d.gpu, src);
    d.gpu->ops->image_free(d.gpu, dst);
    d.gpu->ops->image_free(d.gpu, copy);
    kvt_close(&d);
    kv_layout_free(a);
    kv_layout_free(b);
}

static void guards__tell_of_a_write_past_either_end(void **state)
{
    (void)state;
    kvt_two d = kvt_devices(0);
    kv_layout *a = kvt_layout("a sep k=T.H.D");
    const kv_geometry g = kvt_geometry("L=1,T=5,H=2,D=8,e=f16");
    const kv_index ix = kvt_bind(a, &g, 1);
    const int64_t bytes = kv_index_bytes(&ix);
    const kv_payload load = kvt_payload(&g, &ix, 5, 0);
    kv_image *im = kvt_image(d.gpu, &ix, 0);
    kv_err err = {0};
    kvt_ok(kv_check_guards(d.gpu, im, &err), &err);
    kvt_ok(d.gpu->ops->poison(d.gpu, im, bytes - 16, 1, &err), &err);
    kvt_ok(d.gpu->ops->build(d.gpu, im, &ix, &load, ix.element, 0, &err), &err); /* 16 bytes more than are in use */
    kvt_refused(kv_check_guards(d.gpu, im, &err), KV_EDEVICE, &err, "past", KVT_SAYS("past the end"));
    assert_int_equal(d.gpu->ops->poison(d.gpu, im, bytes + 1, 1, NULL), KV_EBUG);
    d.gpu->ops->image_free(d.gpu, im);
    kvt_close(&d);
    kv_layout_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(translate__equals_the_cpu_on_random_pairs),
        cmocka_unit_test(translate__equals_the_cpu_past_the_tiles),
        cmocka_unit_test(translate__equals_the_cpu_on_the_published_pairs),
        cmocka_unit_test(work__is_queued),
        cmocka_unit_test(guards__tell_of_a_write_past_either_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
