/* Waves asked of the device itself, in orders in which no campaign asks: memory that other work still writes to, scratch that
 * grows, a wave that is sent twice. And the memory that is kept. */
#include "kernels/cuda/kv_cuda_pool.h"
#include "tests/kernels/cuda/kv_test_cuda.h"

/* What stands in an image that holds a payload. */
typedef struct {
    kv_layout *layout;
    kv_index ix;
    kv_payload load;
    kv_image *im, *scratch;
    kv_decode_result got, want;
} held;

static held holding(kvt_two *d, const char *geometry, bool in_wave)
{
    const kv_geometry g = kvt_geometry(geometry);
    kv_err err = {0};
    held h = {.layout = kvt_layout("a sep k=T.H.D")};
    h.ix = kvt_bind(h.layout, &g, 1);
    h.load = kvt_payload(&g, &h.ix, KV_PAYLOAD_TOKENS, 0);
    kv_image *im = kvt_image(d->cpu, &h.ix, 1), *scratch = kvt_image(d->cpu, &h.ix, 2);
    kvt_ok(d->cpu->ops->build(d->cpu, im, &h.ix, &h.load, h.ix.element, 0, &err), &err);
    kvt_ok(d->cpu->ops->decode(d->cpu, &h.ix, im, 0, 9, 0, scratch, &h.want, &err), &err);
    d->cpu->ops->image_free(d->cpu, im);
    d->cpu->ops->image_free(d->cpu, scratch);
    if (!in_wave) return h;
    h.im = kvt_image(d->gpu, &h.ix, 1);
    h.scratch = kvt_image(d->gpu, &h.ix, 2);
    return h;
}

/* Two devices of which the GPU has once had many blocks in use, and keeps those that are given back. */
static kvt_two roomy(int n)
{
    kvt_two d = kvt_devices(n);
    kv_image *im[12];
    kv_err err = {0};
    for (int i = 0; i < KV_WAVES; i++) {
        kvt_ok(d.gpu->ops->wave_open(d.gpu, i, 1, &err), &err);
        kvt_ok(d.gpu->ops->wave_wait(d.gpu, i, &err), &err);
    }
    for (int i = 0; i < 12; i++) kvt_ok(d.gpu->ops->image_new(d.gpu, i, &im[i], &err), &err);
    for (int i = 0; i < 12; i++) d.gpu->ops->image_free(d.gpu, im[i]);
    kv_cuda_keep_at_most(d.gpu, 0);
    kv_cuda_keep_at_most(d.gpu, 1 << 20);
    return d;
}

static void ask_decode(kvt_two *d, held *h)
{
    kv_err err = {0};
    kvt_ok(d->gpu->ops->build(d->gpu, h->im, &h->ix, &h->load, h->ix.element, 0, &err), &err);
    kvt_ok(d->gpu->ops->decode(d->gpu, &h->ix, h->im, 0, 9, 0, h->scratch, &h->got, &err), &err);
}

static void check(kvt_two *d, held *h, const char *what)
{
    if (memcmp(&h->got, &h->want, sizeof h->got) != 0) fail_msg("%s: another decode than on the CPU", what);
    d->gpu->ops->image_free(d->gpu, h->im);
    d->gpu->ops->image_free(d->gpu, h->scratch);
    kv_layout_free(h->layout);
}

/* An image is given back while poison for it is queued outside of waves; a wave gets its memory. */
static void wave__waits_for_work_on_memory_that_was_given_back(void **state)
{
    (void)state;
    kvt_two d = roomy(0);
    const kv_device_ops *o = d.gpu->ops;
    held h = holding(&d, "L=1,T=20,H=2,D=8,e=f16", false);
    kv_err err = {0};
    kv_image *old = kvt_image(d.gpu, &h.ix, 3); /* poisoned: queued */
    o->image_free(d.gpu, old);
    kvt_ok(o->wave_open(d.gpu, 0, 1, &err), &err);
    o->wave_cell(d.gpu, 0, 0);
    h.im = kvt_image(d.gpu, &h.ix, 1);
    kvt_ok(o->build(d.gpu, h.im, &h.ix, &h.load, h.ix.element, 0, &err), &err);
    kvt_ok(o->finish(d.gpu, &err), &err);
    o->wave_cell(d.gpu, -1, 0);
    kvt_ok(o->finish(d.gpu, &err), &err); /* what was queued before is done by now */
    o->wave_cell(d.gpu, 0, 0);
    h.scratch = kvt_image(d.gpu, &h.ix, 2);
    kvt_ok(o->decode(d.gpu, &h.ix, h.im, 0, 9, 0, h.scratch, &h.got, &err), &err);
    kvt_ok(o->wave_send(d.gpu, 0, &err), &err);
    kvt_ok(o->wave_wait(d.gpu, 0, &err), &err);
    check(&d, &h, "memory given back");
    kvt_close(&d);
}

/* What waves keep for their arguments is there for an image that needs it, and for the next wave again. */
static void wave__gives_up_its_arguments_where_room_is_short(void **state)
{
    (void)state;
    kvt_two d = roomy(0);
    const kv_device_ops *o = d.gpu->ops;
    kv_err err = {0};
    for (int round = 0; round < 2; round++) {
        held h[2];
        kvt_ok(o->wave_open(d.gpu, 0, 2, &err), &err);
        for (int i = 0; i < 2; i++) {
            o->wave_cell(d.gpu, 0, i);
            h[i] = holding(&d, "L=1,T=20,H=2,D=8,e=f16", true);
            ask_decode(&d, &h[i]);
        }
        kvt_ok(o->wave_send(d.gpu, 0, &err), &err);
        kvt_ok(o->wave_wait(d.gpu, 0, &err), &err);
        for (int i = 0; i < 2; i++) check(&d, &h[i], "with arguments");
        kv_cuda_keep_at_most(d.gpu, 0);
        kv_cuda_keep_at_most(d.gpu, 1 << 20);
        kv_image *im = NULL;
        kv_emu_set_memory(kv_emu_used() + 4096);
        kvt_ok(o->image_new(d.gpu, 6000, &im, &err), &err); /* more than was free */
        kv_emu_set_memory(0);
        o->image_free(d.gpu, im);
    }
    kvt_close(&d);
}

/* A cell's scratch grows; the smaller one is not another cell's before the wave is over. */
static void wave__keeps_scratch_that_grew(void **state)
{
    (void)state;
    for (int n = 0; n < 4; n++) {
        kvt_two d = roomy(n);
        const kv_device_ops *o = d.gpu->ops;
        kv_err err = {0};
        kvt_ok(o->wave_open(d.gpu, 1, 2, &err), &err);
        o->wave_cell(d.gpu, 1, 0);
        held small = holding(&d, "L=1,T=5,H=2,D=8,e=f16", true), large = holding(&d, "L=1,T=300,H=2,D=8,e=f16", true);
        ask_decode(&d, &small);
        ask_decode(&d, &large);
        o->wave_cell(d.gpu, 1, 1);
        held other = holding(&d, "L=1,T=5,H=2,D=8,e=bf16", true);
        ask_decode(&d, &other);
        kvt_ok(o->wave_send(d.gpu, 1, &err), &err);
        kvt_ok(o->wave_wait(d.gpu, 1, &err), &err);
        check(&d, &small, "small");
        check(&d, &large, "large");
        check(&d, &other, "other");
        kvt_close(&d);
    }
}

/* What is asked for after a wave was sent leaves the arguments of what is under way alone. */
static void wave__can_be_sent_twice(void **state)
{
    (void)state;
    kvt_two d = kvt_devices(1);
    const kv_device_ops *o = d.gpu->ops;
    kv_err err = {0};
    kvt_ok(o->wave_open(d.gpu, 0, 2, &err), &err);
    o->wave_cell(d.gpu, 0, 0);
    held first = holding(&d, "L=1,T=20,H=2,D=8,e=f16", true);
    ask_decode(&d, &first);
    kvt_ok(o->wave_send(d.gpu, 0, &err), &err);
    o->wave_cell(d.gpu, 0, 1);
    held second = holding(&d, "L=1,T=33,H=1,D=8,e=bf16", true);
    ask_decode(&d, &second);
    kvt_ok(o->wave_send(d.gpu, 0, &err), &err);
    kvt_ok(o->wave_wait(d.gpu, 0, &err), &err);
    check(&d, &first, "first");
    check(&d, &second, "second");
    kvt_close(&d);
}

/* A wave that failed while it was asked for stays failed: nothing of it is sent again. */
static void wave__that_failed_is_not_sent(void **state)
{
    (void)state;
    kvt_two d = kvt_devices(0);
    const kv_device_ops *o = d.gpu->ops;
    kv_err err = {0};
    kvt_ok(o->wave_open(d.gpu, 0, 2, &err), &err);
    o->wave_cell(d.gpu, 0, 0);
    held h = holding(&d, "L=1,T=20,H=2,D=8,e=f16", true);
    ask_decode(&d, &h);
    kv_emu_fail_after(3); /* memory for the arguments, twice, and their copy go well; a launch does not */
    assert_int_equal(o->finish(d.gpu, &err), KV_EDEVICE);
    kv_emu_fail_after(-1);
    kv_err_clear(&err);
    const long before = kv_emu_launches();
    assert_int_equal(o->wave_send(d.gpu, 0, &err), KV_EDEVICE);
    kv_err_clear(&err);
    assert_int_equal(kv_emu_launches(), before);
    assert_int_equal(o->wave_wait(d.gpu, 0, &err), KV_EDEVICE);
    kv_err_clear(&err);
    kvt_ok(o->wave_open(d.gpu, 0, 1, &err), &err); /* and works again */
    o->wave_cell(d.gpu, 0, 0);
    ask_decode(&d, &h);
    kvt_ok(o->wave_wait(d.gpu, 0, &err), &err);
    check(&d, &h, "afterwards");
    kvt_close(&d);
}

/* Cells of one head and of very many in one launch: blocks that only the large one wants leave the small one's memory alone. */
static void wave__of_small_and_large_cells(void **state)
{
    (void)state;
    static const char *const geometries[] = {"L=1,T=1,H=1,D=2,e=f16", "L=1,T=1,H=200,D=2,e=f16",
                                             "L=1,T=500,H=1,D=2,e=f16"};
    enum { CELLS = sizeof geometries / sizeof geometries[0] };
    for (int n = 1; n < 3; n++) {
        kvt_two d = kvt_devices(n);
        const kv_device_ops *o = d.gpu->ops;
        held h[CELLS];
        kv_err err = {0};
        kvt_ok(o->wave_open(d.gpu, 0, CELLS, &err), &err);
        for (int i = 0; i < CELLS; i++) {
            o->wave_cell(d.gpu, 0, i);
            h[i] = holding(&d, geometries[i], true);
            ask_decode(&d, &h[i]);
        }
        kvt_ok(o->wave_send(d.gpu, 0, &err), &err);
        kvt_ok(o->wave_wait(d.gpu, 0, &err), &err);
        for (int i = 0; i < CELLS; i++) check(&d, &h[i], geometries[i]);
        kvt_close(&d);
    }
}

/* Both arrays of a layout whose pages are longer than what they hold are filled to their ends, and values are converted in both. */
static void wave__fills_and_converts_both_halves(void **state)
{
    (void)state;
    static const char *const to[] = {"b sep k=Tb.Ti.H.D block=4 page_stride_bytes=512",
                                     "b sep k=Tb.Ti.H.D block=4 e=f32 page_stride_bytes=512"};
    const kv_geometry g = kvt_geometry("L=1,T=10,H=2,D=8,e=f16");
    enum { TO = sizeof to / sizeof to[0] };
    kvt_two d = kvt_devices(2);
    const kv_device_ops *o = d.gpu->ops;
    kv_layout *a = kvt_layout("a sep k=T.H.D"), *b[TO];
    const kv_index s = kvt_bind(a, &g, 1);
    const kv_payload load = kvt_payload(&g, &s, KV_PAYLOAD_TOKENS, 0);
    kv_index t[TO];
    kvt_pair src[TO], dst[TO];
    kv_err err = {0};
    for (int i = 0; i < TO; i++) {
        b[i] = kvt_layout(to[i]);
        t[i] = kvt_bind(b[i], &g, 1);
    }
    kvt_ok(o->wave_open(d.gpu, 0, TO, &err), &err);
    for (int i = 0; i < TO; i++) {
        o->wave_cell(d.gpu, 0, i);
        src[i] = kvt_images(&d, &s, 1);
        dst[i] = kvt_images(&d, &t[i], 2);
        kvt_both_build(&d, &src[i], &s, &load, s.element, 0);
        kvt_ok(d.cpu->ops->translate(d.cpu, &s, src[i].cpu, &t[i], dst[i].cpu, 0x5A, &err), &err);
        kvt_ok(o->translate(d.gpu, &s, src[i].gpu, &t[i], dst[i].gpu, 0x5A, &err), &err);
    }
    kvt_ok(o->wave_send(d.gpu, 0, &err), &err);
    kvt_ok(o->wave_wait(d.gpu, 0, &err), &err);
    for (int i = 0; i < TO; i++) {
        kvt_same_images(&d, &dst[i], &t[i], to[i]);
        kvt_images_free(&d, &src[i]);
        kvt_images_free(&d, &dst[i]);
        kv_layout_free(b[i]);
    }
    kv_layout_free(a);
    kvt_close(&d);
}

/* Every cell is told its own first difference, and what stands there. */
static void wave__tells_each_cell_its_first_difference(void **state)
{
    (void)state;
    enum { CELLS = 3 };
    const kv_geometry g = kvt_geometry("L=1,T=10,H=2,D=8,e=f16");
    kvt_two d = kvt_devices(3);
    const kv_device_ops *o = d.gpu->ops;
    kv_layout *a = kvt_layout("a sep k=T.H.D");
    const kv_index s = kvt_bind(a, &g, 1);
    kvt_pair x[CELLS], y[CELLS];
    kv_compare_result got[CELLS], want;
    kv_err err = {0};
    for (int i = 0; i < CELLS; i++) {
        const kv_payload load = kvt_payload(&g, &s, KV_PAYLOAD_TOKENS, 0);
        x[i] = kvt_images(&d, &s, 1);
        y[i] = kvt_images(&d, &s, 2);
        kvt_both_build(&d, &x[i], &s, &load, s.element, 0);
        kvt_both_build(&d, &y[i], &s, &load, s.element, 0);
        memset((unsigned char *)kv_image_host_view(y[i].cpu) + 20 * i, 0x77, 2 * (size_t)(i + 1));
        kvt_send(&d, &y[i]);
    }
    kvt_ok(o->wave_open(d.gpu, 0, CELLS, &err), &err);
    for (int i = 0; i < CELLS; i++) {
        o->wave_cell(d.gpu, 0, i);
        kvt_ok(o->compare(d.gpu, &s, x[i].gpu, y[i].gpu, &got[i], &err), &err);
    }
    kvt_ok(o->wave_send(d.gpu, 0, &err), &err);
    kvt_ok(o->wave_wait(d.gpu, 0, &err), &err);
    for (int i = 0; i < CELLS; i++) {
        kvt_ok(d.cpu->ops->compare(d.cpu, &s, x[i].cpu, y[i].cpu, &want, &err), &err);
        assert_int_equal(want.first, 10 * i);
        assert_true(want.got == got[i].got && want.want == got[i].want && want.first == got[i].first &&
                    want.differing == got[i].differing);
        kvt_images_free(&d, &x[i]);
        kvt_images_free(&d, &y[i]);
    }
    kv_layout_free(a);
    kvt_close(&d);
}

/* ---- memory that is kept ---------------------------------------------------------------- */

static void *taken(kv_cuda_pool *pool, int64_t bytes)
{
    void *p = NULL;
    assert_int_equal(kv_cuda_pool_take(pool, bytes, &p), cudaSuccess);
    return p;
}

static void pool__gives_a_block_again_at_its_size_only(void **state)
{
    (void)state;
    kv_cuda_pool pool = {.most_bytes = 1000};
    void *a = taken(&pool, 100), *b = taken(&pool, 200);
    kv_cuda_pool_give(&pool, a, 100);
    kv_cuda_pool_give(&pool, b, 200);
    assert_ptr_equal(taken(&pool, 100), a);
    assert_int_equal(pool.bytes, 200);
    void *c = taken(&pool, 150); /* new, so the oldest kept one goes */
    assert_int_equal(pool.n, 0);
    kv_cuda_pool_give(&pool, a, 100);
    kv_cuda_pool_give(&pool, c, 150);
    kv_cuda_pool_give(&pool, NULL, 7);
    assert_int_equal(pool.in_use, 0);
    assert_int_equal(pool.n, 2);
    kv_cuda_pool_empty(&pool);
    assert_int_equal(pool.bytes, 0);
    assert_int_equal(kv_emu_used(), 0);
}

static void pool__keeps_no_more_than_it_may(void **state)
{
    (void)state;
    kv_cuda_pool pool = {.most_bytes = 250};
    void *p[3];
    for (int i = 0; i < 3; i++) p[i] = taken(&pool, 100 + i);
    for (int i = 0; i < 3; i++) kv_cuda_pool_give(&pool, p[i], 100 + i);
    assert_int_equal(pool.n, 2); /* the oldest is gone */
    assert_int_equal(kv_emu_used(), 203);
    kv_cuda_pool_keep(&pool, 102);
    assert_int_equal(kv_emu_used(), 102);
    kv_cuda_pool_keep(&pool, 0);
    assert_int_equal(kv_emu_used(), 0);
}

static void pool__lets_go_where_room_is_short(void **state)
{
    (void)state;
    kv_cuda_pool pool = {.most_bytes = 1000};
    void *p = taken(&pool, 600), *q = NULL;
    kv_emu_set_memory(1000);
    kv_cuda_pool_give(&pool, p, 600);
    assert_int_equal(kv_cuda_pool_take(&pool, 2000, &q), cudaErrorMemoryAllocation);
    assert_int_equal(pool.in_use, 0);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    p = taken(&pool, 600);
    kv_cuda_pool_give(&pool, p, 600);
    q = taken(&pool, 700);
    assert_int_equal(kv_emu_used(), 700);
    kv_cuda_pool_give(&pool, q, 700);
    kv_cuda_pool_empty(&pool);
    kv_emu_set_memory(0);
}

static void pool__has_room_for_so_many_blocks(void **state)
{
    (void)state;
    enum { MORE = KV_CUDA_POOL_BLOCKS + 3 };
    static kv_cuda_pool pool = {.most_bytes = 1 << 20};
    void *p[MORE];
    for (int i = 0; i < MORE; i++) p[i] = taken(&pool, 16 + i);
    for (int i = 0; i < MORE; i++) kv_cuda_pool_give(&pool, p[i], 16 + i);
    assert_int_equal(pool.n, KV_CUDA_POOL_BLOCKS);
    assert_int_equal(pool.kept[0].bytes, 16 + 3); /* the oldest are gone */
    kv_cuda_pool_empty(&pool);
    assert_int_equal(kv_emu_used(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool__gives_a_block_again_at_its_size_only),
        cmocka_unit_test(pool__keeps_no_more_than_it_may),
        cmocka_unit_test(pool__lets_go_where_room_is_short),
        cmocka_unit_test(pool__has_room_for_so_many_blocks),
        cmocka_unit_test(wave__waits_for_work_on_memory_that_was_given_back),
        cmocka_unit_test(wave__gives_up_its_arguments_where_room_is_short),
        cmocka_unit_test(wave__keeps_scratch_that_grew),
        cmocka_unit_test(wave__can_be_sent_twice),
        cmocka_unit_test(wave__that_failed_is_not_sent),
        cmocka_unit_test(wave__tells_each_cell_its_first_difference),
        cmocka_unit_test(wave__of_small_and_large_cells),
        cmocka_unit_test(wave__fills_and_converts_both_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
