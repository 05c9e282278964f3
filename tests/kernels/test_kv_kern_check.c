/* The checks check: a probe that counts and sees a broken map, a comparison that finds every difference,
 * sets of differences, the drift of values. */
#include "tests/kv_test_images.h"

static kv_probe_result probe(kv_device *d, const kv_index *ix)
{
    kv_probe_result r;
    kv_err err = {0};
    memset(&r, 0xA5, sizeof r);
    kvt_ok(d->ops->probe(d, ix, &r, &err), &err);
    return r;
}

static void probe__counts_what_the_enumeration_counts(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    uint64_t r = 51;
    for (int i = 0; i < 3000; i++) {
        const kv_store store = (kv_store)(i % 3);
        const kv_geometry g = kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE);
        kv_layout *l = kvt_random_layout(&r, &g, store, "p");
        const int64_t unit = kv_pair_unit_layers(l, l, &g);
        const kv_index ix = kvt_bind(l, &g, unit);
        kvt_map m = kvt_map_new(l, &g, unit);
        const kv_probe_result p = probe(d, &ix);
        assert_int_equal(p.checked, m.n);
        assert_int_equal(p.padding, m.n - m.elements);
        assert_int_equal(p.elements_hit, m.elements);
        assert_int_equal(p.bad, 0);
        assert_int_equal(p.first_bad, -1);
        kvt_map_free(&m);
        kv_layout_free(l);
    }
    d->ops->close(d);
}

static bool clean(const kv_index *ix, const kv_probe_result *p)
{
    return p->bad == 0 && p->elements_hit == ix->elements && p->padding == ix->native - ix->elements &&
           p->checked == ix->native;
}

/* Maps that are wrong in one number: each must be seen. */
static void probe__sees_a_map_that_is_no_bijection(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    const kv_geometry g = kvt_geometry("L=2,T=10,H=2,D=4,e=f16");
    kv_layout *l = kvt_layout("p int k=KV.Tb.Ti.H.D v=KV.Tb.Ti.D.H block=4"), *s = kvt_layout("q sep k=T.H.D v=H.D.T");
    const kv_index good = kvt_bind(l, &g, 2), apart = kvt_bind(s, &g, 2);
    const kv_probe_result ok = probe(d, &good);
    assert_true(clean(&good, &ok));
    for (int fault = 0; fault < 9; fault++) {
        kv_index ix = fault < 6 ? good : apart;
        switch (fault) {
        case 0: ix.half[1].size[2] = 3; break; /* V blocks shorter than K's */
        case 1: ix.kv_span /= 2; break;
        case 2: ix.block = 3; break; /* Tb and Ti overlap */
        case 3: ix.half[0].page_span++; break;
        case 4: ix.tokens = 11; break;              /* an element more than is counted */
        case 5: ix.half[0].kind[3] = KV_F_D; break; /* lanes counted twice, no head */
        case 6: ix.half_base[1]--; break;
        case 7: ix.layer_span--; break;
        default: break;
        }
        kv_index_prepare(&ix);
        if (fault == 8) ix.half[1].size_inverse[1] = kv_index_inverse_of(ix.half[1].size[1] - 1);
        const kv_probe_result p = probe(d, &ix);
        if (clean(&ix, &p)) fail_msg("fault %d is not seen", fault);
        if (p.bad > 0) assert_true(p.first_bad >= 0 && p.first_bad < ix.native);
    }
    kv_layout_free(l);
    kv_layout_free(s);
    d->ops->close(d);
}

typedef struct {
    kv_device *d;
    kv_layout *l;
    kv_index ix;
    kv_image *a, *b;
} two;

static two two_images(const char *layout, const char *geometry)
{
    two t = {.d = kvt_cpu(), .l = kvt_layout(layout)};
    const kv_geometry g = kvt_geometry(geometry);
    t.ix = kvt_bind(t.l, &g, 1);
    t.a = kvt_image(t.d, &t.ix, 7);
    t.b = kvt_image(t.d, &t.ix, 7);
    return t;
}

static void two_free(two *t)
{
    t->d->ops->image_free(t->d, t->a);
    t->d->ops->image_free(t->d, t->b);
    t->d->ops->close(t->d);
    kv_layout_free(t->l);
}

static void put(two *t, kv_image *im, int64_t at, uint32_t bits)
{
    kv_num_store((kv_elem)t->ix.element, kv_image_host_view(im), at, bits);
}

static void compare__finds_every_difference_and_the_first(void **state)
{
    (void)state;
    static const char *const elements[] = {"f16", "f32", "fp8_e4m3"};
    for (size_t e = 0; e < KVT_COUNT(elements); e++) {
        char geometry[64];
        snprintf(geometry, sizeof geometry, "L=1,T=300,H=2,D=8,e=%s", elements[e]);
        two t = two_images("c sep k=T.H.D", geometry); /* 9600 positions: several chunks of bytes */
        kv_compare_result r;
        kv_err err = {0};
        kvt_ok(t.d->ops->compare(t.d, &t.ix, t.a, t.b, &r, &err), &err);
        assert_int_equal(r.differing, 0);
        assert_int_equal(r.first, -1);
        for (int64_t at = 0; at < t.ix.native; at += 61) {
            const uint32_t was = kvt_bits_at(&t.ix, t.a, at);
            put(&t, t.a, at, was ^ 1U);
            kvt_ok(t.d->ops->compare(t.d, &t.ix, t.a, t.b, &r, &err), &err);
            assert_int_equal(r.differing, 1);
            assert_int_equal(r.first, at);
            assert_int_equal(r.got, was ^ 1U);
            assert_int_equal(r.want, was);
            put(&t, t.a, at, was);
        }
        put(&t, t.b, t.ix.native - 1, 3);
        put(&t, t.b, 5, 2);
        kvt_ok(t.d->ops->compare(t.d, &t.ix, t.a, t.b, &r, &err), &err);
        assert_int_equal(r.differing, 2);
        assert_int_equal(r.first, 5);
        two_free(&t);
    }
}

/* NaN against NaN are bits: the same bits are equal, other bits are not; -0 is not +0. */
static void compare__compares_bits_not_values(void **state)
{
    (void)state;
    two t = two_images("c sep k=T.H.D", "L=1,T=1,H=1,D=2,e=f32");
    kv_compare_result r;
    kv_err err = {0};
    put(&t, t.a, 0, 0x7FC00001);
    put(&t, t.b, 0, 0x7FC00001);
    kvt_ok(t.d->ops->compare(t.d, &t.ix, t.a, t.b, &r, &err), &err);
    assert_int_equal(r.differing, 0);
    put(&t, t.b, 0, 0x7FC00002);
    put(&t, t.a, 1, 0x80000000U);
    put(&t, t.b, 1, 0);
    kvt_ok(t.d->ops->compare(t.d, &t.ix, t.a, t.b, &r, &err), &err);
    assert_int_equal(r.differing, 2);
    kvt_ok(t.d->ops->poison(t.d, t.a, 4, 1, &err), &err);
    assert_int_equal(t.d->ops->compare(t.d, &t.ix, t.a, t.b, &r, NULL), KV_EBUG); /* sizes must fit */
    two_free(&t);
}

static void diffset__joins_payloads_and_empties_when_taken(void **state)
{
    (void)state;
    two t = two_images("c int k=KV.Tb.Ti.H.D block=4", "L=1,T=5,H=2,D=4,e=f16"); /* 128 positions, 48 of padding */
    kv_diffset *s = NULL;
    kv_diffset_result r;
    kv_err err = {0};
    const kv_coord element = {0, 1, 4, 1, 3};
    const int64_t held = kv_index_forward(&t.ix, &element), tail = 5 * 8;
    kvt_ok(t.d->ops->diffset_new(t.d, &t.ix, &s, &err), &err);
    kvt_ok(t.d->ops->diffset_take(t.d, s, &r, &err), &err);
    assert_int_equal(r.differing, 0);
    assert_int_equal(r.first_outside, -1);
    put(&t, t.a, tail, 1);
    kvt_ok(t.d->ops->diffset_add(t.d, s, t.a, t.b, &err), &err);
    kvt_ok(t.d->ops->diffset_add(t.d, s, t.a, t.b, &err), &err); /* again: a set */
    put(&t, t.b, tail, 1);
    put(&t, t.b, t.ix.native - 1, 1);
    kvt_ok(t.d->ops->diffset_add(t.d, s, t.a, t.b, &err), &err);
    kvt_ok(t.d->ops->diffset_take(t.d, s, &r, &err), &err);
    assert_int_equal(r.differing, 2);
    assert_int_equal(r.outside_padding, 0);
    assert_int_equal(r.first_outside, -1);
    put(&t, t.b, held, 1);
    kvt_ok(t.d->ops->diffset_add(t.d, s, t.a, t.b, &err), &err);
    kvt_ok(t.d->ops->diffset_take(t.d, s, &r, &err), &err);
    assert_int_equal(r.differing, 2);
    assert_int_equal(r.outside_padding, 1);
    assert_int_equal(r.first_outside, held);
    kvt_ok(t.d->ops->diffset_take(t.d, s, &r, &err), &err);
    assert_int_equal(r.differing, 0);
    for (int64_t at = 0; at < t.ix.native; at++) put(&t, t.a, at, 0x1234);
    kvt_ok(t.d->ops->diffset_add(t.d, s, t.a, t.b, &err), &err);
    kvt_ok(t.d->ops->diffset_take(t.d, s, &r, &err), &err);
    assert_int_equal(r.differing, t.ix.native);
    assert_int_equal(r.outside_padding, t.ix.elements);
    t.d->ops->diffset_free(t.d, s);
    t.d->ops->diffset_free(t.d, NULL);
    two_free(&t);
}

static kv_drift_result drift_of(uint32_t from, uint32_t to)
{
    kv_device *d = kvt_cpu();
    kv_layout *a = kvt_layout("a sep k=T.H.D e=f32"), *b = kvt_layout("b int k=KV.Tb.Ti.H.D block=2 e=f32");
    const kv_geometry g = kvt_geometry("L=1,T=1,H=1,D=1,e=f32");
    const kv_index s = kvt_bind(a, &g, 1), t = kvt_bind(b, &g, 1);
    kv_image *src = kvt_image(d, &s, 1), *dst = kvt_image(d, &t, 2);
    kv_drift_result r;
    kv_err err = {0};
    kv_num_store(KV_ELEM_F32, kv_image_host_view(src), 0, 0x3F800000); /* K is 1 on both sides */
    kv_num_store(KV_ELEM_F32, kv_image_host_view(dst), 0, 0x3F800000);
    kv_num_store(KV_ELEM_F32, kv_image_host_view(src), 1, from);
    kv_num_store(KV_ELEM_F32, kv_image_host_view(dst), 2, to);
    kvt_ok(d->ops->drift(d, &s, src, &t, dst, &r, &err), &err);
    d->ops->image_free(d, src);
    d->ops->image_free(d, dst);
    d->ops->close(d);
    kv_layout_free(a);
    kv_layout_free(b);
    return r;
}

static uint32_t f(float v)
{
    return kv_num_bits(v);
}

static void drift__measures_values_and_never_passes_nan(void **state)
{
    (void)state;
    static const struct {
        float from, to;
        bool preserved, finite;
        int64_t ppm;
    } cases[] = {{2.0F, 2.0F, true, true, 0},         {2.0F, 2.125F, false, true, 62500},
                 {-2.0F, 2.0F, false, true, 2000000}, {4.0F, 3.0F, false, true, 250000},
                 {0.0F, 0.0F, true, false, 0},        {0.0F, 1.0F, false, false, 0},
                 {1.0F, 0.0F, false, true, 1000000},  {3.0F, 3.000001F, false, true, 0}};
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        const kv_drift_result r = drift_of(f(cases[i].from), f(cases[i].to));
        assert_int_equal(r.preserved, cases[i].preserved);
        assert_int_equal(r.finite, cases[i].finite);
        if (r.finite) assert_int_equal(r.worst_ppm, cases[i].ppm);
    }
    static const uint32_t odd[][2] = {
        {0x7FC00000, 0x3F800000}, {0x3F800000, 0x7FC00000}, {0x7FC00000, 0x7FC00000}, {0x7F800000, 0x3F800000}};
    for (size_t i = 0; i < KVT_COUNT(odd); i++) {
        const kv_drift_result r = drift_of(odd[i][0], odd[i][1]);
        assert_false(r.preserved);
        assert_false(r.finite);
    }
    assert_true(drift_of(0x7F800000, 0x7F800000).preserved); /* the same number, if not a finite one */
}

static void checks__fail_in_words_when_memory_is_out(void **state)
{
    (void)state;
    two t = two_images("c sep k=T.H.D", "L=1,T=30,H=2,D=8,e=f16");
    kv_probe_result p;
    kv_diffset *s = NULL;
    for (long n = 0; n < 2; n++) {
        kv_err err = {0};
        kv_alloc_fail_after(n);
        const kv_rc set = t.d->ops->diffset_new(t.d, &t.ix, &s, &err);
        kv_alloc_fail_after(-1);
        assert_int_equal(set, KV_ENOMEM);
        assert_null(s);
    }
    kv_alloc_fail_after(0);
    const kv_rc rc = t.d->ops->probe(t.d, &t.ix, &p, NULL);
    kv_alloc_fail_after(-1);
    assert_int_equal(rc, KV_ENOMEM);
    two_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probe__counts_what_the_enumeration_counts),
        cmocka_unit_test(probe__sees_a_map_that_is_no_bijection),
        cmocka_unit_test(compare__finds_every_difference_and_the_first),
        cmocka_unit_test(compare__compares_bits_not_values),
        cmocka_unit_test(diffset__joins_payloads_and_empties_when_taken),
        cmocka_unit_test(drift__measures_values_and_never_passes_nan),
        cmocka_unit_test(checks__fail_in_words_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
