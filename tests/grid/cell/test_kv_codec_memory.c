/* Cells of the codec where a device's memory is short: batches are halved and rows stay the same; what a plan says that a
 * GPU needs is enough. Built twice, as test_kv_cell_windows.c. */
#include "grid/cell/kv_codec_memory.h"
#include "grid/cell/kv_codec_store.h"
#include "tests/kv_test_grid.h"

#define CODEC                                                                                                          \
    "'pairs':[['a','b']],'codec':{'block':16,'recipes':['kv1','kv1-shared','published-serving','rotation','fp8'],"     \
    "'payloads':['gaussian'],'moves':['pages','table']}"

static kv_campaign codec_campaign(const char *geometry)
{
    return kvt_campaign("a sep k=T.H.D; b sep k=H.T.D", geometry, CODEC);
}

static bool is_codec(const kv_campaign *c, size_t i)
{
    return c->cells[i].check == KV_CHECK_CODEC || c->cells[i].check == KV_CHECK_MOVE;
}

#ifdef KVT_EMULATED
#include "kernels/cuda/kv_cuda.h"
#include "tests/emulated/kv_emu.h"

static kv_device *open_gpu(void)
{
    kv_device *d = NULL;
    kv_err err = {0};
    kv_emu_set_memory(0);
    kvt_ok(kv_device_cuda_new(0, &d, &err), &err);
    return d;
}

static void batch_bytes__is_what_a_batch_takes_and_little_more(void **state)
{
    (void)state;
    uint64_t r = 7;
    for (int i = 0; i < 200; i++) {
        kv_device *d = open_gpu(); /* nothing is kept there */
        kv_codec_half_config h;
        kv_err err = {0};
        kvt_ok(kv_codec_recipe_half(i % 2 == 0 ? KV_CODEC_KV1 : KV_CODEC_PUBLISHED_SERVING, i / 2 % 2,
                                    (int32_t)(16 << kvt_below(&r, 4)), false, &h, &err),
               &err);
        const kv_codec_batch_shape s = {.p = h.slot.params,
                                        .blocks = 1 + kvt_below(&r, 20),
                                        .rows = 1 + kvt_below(&r, 300),
                                        .shared = kvt_one_in(&r, 3),
                                        .want_res_norm = kvt_one_in(&r, 2)};
        kv_codec_batch_sizes z;
        kv_codec_batch *b = NULL;
        const int64_t before = kv_emu_used();
        kvt_ok(kv_codec_batch_size(&s, &z, &err), &err);
        kvt_ok(d->ops->codec->create(d, &s, &b, &err), &err);
        const int64_t took = kv_emu_used() - before, planned = kv_codec_batch_bytes(&s, &z);
        if (took > planned || took < planned - 15 * 256)
            fail_msg("case %d: a batch of %" PRId64 " bytes, %" PRId64 " planned", i, took, planned);
        d->ops->codec->destroy(d, b);
        d->ops->close(d);
    }
}

/* A GPU with just what the plan says that it needs at least: the same rows. With half of it: FAILED, and it goes on. */
static void cells__run_in_what_the_plan_says(void **state)
{
    (void)state;
    kv_device *cpu = kvt_cpu(), *gpu = open_gpu();
    kv_campaign c = codec_campaign("L=1,T=70,H=2,D=16,e=f16");
    int cut = 0, failed = 0;
    for (size_t i = 0; i < c.n_cells; i++) {
        kv_cell_need n;
        kv_err err = {0};
        if (!is_codec(&c, i)) continue;
        kvt_ok(kv_cell_plan(&c, (int64_t)i, &n, &err), &err);
        assert_true(n.runs && n.gpu_least_bytes > 0 && n.gpu_least_bytes <= n.gpu_bytes && n.gpu_host_bytes > 0);
        const kv_row want = kvt_run(cpu, &c, (int64_t)i);
        gpu->ops->close(gpu);
        gpu = open_gpu(); /* without scratch of the cell before */
        kv_emu_set_memory(kv_emu_used() + n.gpu_least_bytes);
        const kv_row got = kvt_run(gpu, &c, (int64_t)i);
        kvt_assert_same_row(&got, &want);
        cut += n.gpu_least_bytes < n.gpu_bytes;
        kv_emu_set_memory(kv_emu_used() / 4 + n.gpu_least_bytes / 4);
        const kv_row none = kvt_run(gpu, &c, (int64_t)i);
        failed += none.verdict == KV_VERDICT_FAILED && none.error_class == KV_ERRCLASS_MEMORY;
        kv_emu_set_memory(0);
        const kv_row again = kvt_run(gpu, &c, (int64_t)i);
        kvt_assert_same_row(&again, &want);
    }
    if (cut < 4 || failed < 4) fail_msg("%d cut, %d failed", cut, failed);
    kv_campaign_free(&c);
    gpu->ops->close(gpu);
    cpu->ops->close(cpu);
}
#else

/* The CPU, with room for batches of `most` blocks. */
typedef struct {
    kv_device dev; /* first */
    kv_device_ops ops;
    kv_codec_ops codec;
    int64_t most, refused;
} narrow;

static kv_rc narrow_create(kv_device *d, const kv_codec_batch_shape *s, kv_codec_batch **out, kv_err *err)
{
    narrow *x = (narrow *)(void *)d;
    if (s->blocks <= x->most) return kv_cpu_codec_ops.create(d, s, out, err);
    x->refused++;
    return KV_FAIL(err, KV_ENOMEM, "no room for %" PRId64 " blocks", s->blocks);
}

static void batches__are_halved_where_memory_is_short(void **state)
{
    (void)state;
    kv_device *cpu = kvt_cpu();
    kv_campaign c = codec_campaign("L=1,T=350,H=2,D=16,e=f16");
    for (int64_t most = 0; most < 16; most = 2 * most + 1) {
        int64_t refused = 0;
        for (size_t i = 0; i < c.n_cells; i++) {
            narrow x = {.ops = *cpu->ops, .codec = kv_cpu_codec_ops, .most = most};
            if (!is_codec(&c, i)) continue;
            x.codec.create = narrow_create;
            x.ops.codec = &x.codec;
            x.dev.ops = &x.ops;
            const kv_row want = kvt_run(cpu, &c, (int64_t)i), got = kvt_run(&x.dev, &c, (int64_t)i);
            refused += x.refused;
            if (most > 0 || x.refused == 0)
                kvt_assert_same_row(&got, &want);
            else
                assert_true(got.verdict == KV_VERDICT_FAILED && strstr(got.reason, "no room for 1 blocks") != NULL);
        }
        assert_true(refused > 0);
    }
    kv_campaign_free(&c);
    cpu->ops->close(cpu);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef KVT_EMULATED
        cmocka_unit_test(batch_bytes__is_what_a_batch_takes_and_little_more),
        cmocka_unit_test(cells__run_in_what_the_plan_says),
#else
        cmocka_unit_test(batches__are_halved_where_memory_is_short),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
