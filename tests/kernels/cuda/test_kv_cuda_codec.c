/* The codec on the GPU against the CPU: random batches, the full recipe over the layers of a model, hostile values, and the
 * shared conformance vectors where ../shared is there. Not one bit may differ (any NaN equals any NaN in decoded rows). */
#include <dirent.h>

#include "base/kv_file.h"
#include "kernels/codec/kv_codec_batch.h"
#include "kernels/codec/kv_codec_fit.h"
#include "kernels/codec/kv_codec_recipe.h"
#include "kernels/codec/kv_codec_vectors.h"
#include "tests/kernels/codec/kv_test_blocks.h"
#include "tests/kernels/codec/kv_test_codec.h"
#include "tests/kernels/cuda/kv_test_cuda.h"

#ifdef __SANITIZE_ADDRESS__ /* ten times slower, and every shape is met long before */
#define CASES 400
#else
#define CASES 2000
#endif
#define SHARED KV_SOURCE_DIR "/../shared/codec_vectors"

/* One batch on each device, and what one block gives. */
typedef struct {
    kvt_two *d;
    kv_codec_batch_shape shape;
    kv_codec_batch *batch[2];
    kv_codec_codes codes[2];
    float *y[2];
    char what[128];
} both;

static kv_device *device(const both *b, int i)
{
    return i == 0 ? b->d->cpu : b->d->gpu;
}

static both open_both(kvt_two *d, const kv_codec_batch_shape *s, const char *what)
{
    both b = {.d = d, .shape = *s};
    kv_codec_params roomy = s->p;
    kv_err err = {0};
    roomy.outliers = true;
    snprintf(b.what, sizeof b.what, "%s", what);
    for (int i = 0; i < 2; i++) {
        kv_device *dev = device(&b, i);
        kvt_ok(dev->ops->codec->create(dev, s, &b.batch[i], &err), &err);
        kvt_ok(kv_codec_codes_new(&roomy, s->rows, s->want_res_norm, &b.codes[i], &err), &err);
        b.y[i] = kvt_take(s->rows * s->p.dim, sizeof *b.y[i]);
    }
    return b;
}

static void close_both(both *b)
{
    for (int i = 0; i < 2; i++) {
        kv_device *dev = device(b, i);
        dev->ops->codec->destroy(dev, b->batch[i]);
        kv_codec_codes_free(&b->codes[i]);
        free(b->y[i]);
    }
}

static void put_skeleton(both *b, int64_t block, const kv_codec_skeleton *s)
{
    kv_err err = {0};
    for (int i = 0; i < 2; i++) {
        kv_device *dev = device(b, i);
        kvt_ok(dev->ops->codec->put_skeleton(dev, b->batch[i], block, s, &err), &err);
    }
}

static void put_rows(both *b, int64_t block, const float *x)
{
    kv_err err = {0};
    for (int i = 0; i < 2; i++) {
        kv_device *dev = device(b, i);
        kvt_ok(dev->ops->codec->put_rows(dev, b->batch[i], block, x, &err), &err);
    }
}

static void check_codes(const both *b, int64_t block)
{
    const kv_codec_params *p = &b->shape.p;
    const kv_codec_codes *want = &b->codes[0], *got = &b->codes[1];
    const int64_t n = b->shape.rows;
    if (got->n != n || got->outliers != want->outliers || got->saturated != want->saturated)
        fail_msg("%s, block %" PRId64 ": %" PRId64 " outliers and %" PRId64 " saturated, not %" PRId64 " and %" PRId64,
                 b->what, block, got->outliers, got->saturated, want->outliers, want->saturated);
    for (int64_t i = 0; i < n; i++) {
        if (got->seg_id[i] != want->seg_id[i] || got->t[i] != want->t[i] || got->norm[i] != want->norm[i] ||
            got->outlier_count[i] != want->outlier_count[i])
            fail_msg("%s, block %" PRId64 ": row %" PRId64 " is centre %u t %x norm %x outliers %u, not %u %x %x %u",
                     b->what, block, i, got->seg_id[i], got->t[i], got->norm[i], got->outlier_count[i], want->seg_id[i],
                     want->t[i], want->norm[i], want->outlier_count[i]);
    }
    for (int64_t i = 0; i < n * kv_codec_row_bytes(p); i++)
        if (got->residual[i] != want->residual[i])
            fail_msg("%s, block %" PRId64 ": level byte %" PRId64 " differs", b->what, block, i);
    if (kvt_digest_codes(p, got) != kvt_digest_codes(p, want))
        fail_msg("%s, block %" PRId64 ": outliers differ", b->what, block);
    if (b->shape.want_res_norm && kvt_first_difference(got->res_norm, want->res_norm, n) >= 0)
        fail_msg("%s, block %" PRId64 ": lengths of residuals differ", b->what, block);
}

static void check_rows(both *b, int64_t block)
{
    kv_err err = {0};
    for (int i = 0; i < 2; i++) {
        kv_device *dev = device(b, i);
        kvt_ok(dev->ops->codec->get_rows(dev, b->batch[i], block, b->y[i], &err), &err);
    }
    const int64_t at = kvt_first_difference(b->y[1], b->y[0], b->shape.rows * b->shape.p.dim);
    if (at >= 0)
        fail_msg("%s, block %" PRId64 ": decoded value %" PRId64 " is %a, not %a", b->what, block, at,
                 (double)b->y[1][at], (double)b->y[0][at]);
}

/* Encodes, compares every block's codes, decodes, compares every block's rows. */
static void run_both(both *b, int64_t *outliers)
{
    kv_err err = {0};
    for (int i = 0; i < 2; i++) {
        kv_device *dev = device(b, i);
        kvt_ok(dev->ops->codec->encode(dev, b->batch[i], b->shape.blocks, &err), &err);
    }
    for (int64_t block = 0; block < b->shape.blocks; block++) {
        for (int i = 0; i < 2; i++) {
            kv_device *dev = device(b, i);
            kvt_ok(dev->ops->codec->get_codes(dev, b->batch[i], block, &b->codes[i], &err), &err);
        }
        check_codes(b, block);
        *outliers += b->codes[0].outliers;
    }
    for (int i = 0; i < 2; i++) {
        kv_device *dev = device(b, i);
        kvt_ok(dev->ops->codec->decode(dev, b->batch[i], b->shape.blocks, &err), &err);
    }
    for (int64_t block = 0; block < b->shape.blocks; block++) check_rows(b, block);
}

/* ---- random batches --------------------------------------------------------------------- */

/* Mostly the shapes of the CPU's own test; now and then one past what a chunk of the kernel holds. */
static kv_codec_params params(uint64_t *seed, int i)
{
    static const int32_t wide[][3] = {{256, 256, 5},  {1024, 1024, 3}, {300, 130, 700},
                                      {1000, 600, 4}, {7, 1, 4096},    {128, 64, 300}};
    kv_codec_params p = kvt_params(seed);
    if (i % 40 != 39) return p;
    const int32_t *w = wide[(size_t)i / 40 % KVT_COUNT(wide)];
    p.dim = w[0];
    p.d_eff = w[1];
    p.k = w[2];
    return p;
}

static void one_batch(kvt_two *d, int i, uint64_t *seed, int64_t met[5])
{
    const kv_codec_params p = params(seed, i);
    const bool few = p.dim > 129 || p.k > 40;
    kv_codec_batch_shape s = {.p = p, .blocks = 1 + kvt_below(seed, few ? 2 : 3), .want_res_norm = kvt_one_in(seed, 2)};
    s.rows = i % 10 == 3 ? p.k : 1 + kvt_below(seed, few ? 40 : kvt_one_in(seed, 8) ? 300 : 40);
    s.shared = kvt_one_in(seed, 2);
    char what[64];
    snprintf(what, sizeof what, "case %d: D %d E %d k %d bits %d", i, p.dim, p.d_eff, p.k, p.bits);
    if (p.k > 1000 && s.rows > 40) s.rows = 40;
    both b = open_both(d, &s, what);
    for (int64_t block = 0; block < s.blocks; block++) {
        kv_codec_skeleton k = kvt_skeleton(seed, &p);
        float *x = kvt_rows(seed, &p, &k, s.rows);
        if (block == 0 || !s.shared) put_skeleton(&b, block, &k);
        if (i % 16 == 5) { /* what no cache should hold */
            const float hostile[] = {NAN, INFINITY, -INFINITY, 3e38f, -0.0f, 1e-44f};
            for (int h = 0; h < 6; h++) x[kvt_below(seed, s.rows * p.dim)] = hostile[h];
        }
        put_rows(&b, block, x);
        free(x);
        kv_codec_skeleton_free(&k);
    }
    int64_t outliers = 0;
    run_both(&b, &outliers);
    met[0] += outliers > 0;
    met[1] += b.codes[0].saturated > 0;
    met[2] += s.rows > 128;
    met[3] += s.rows == p.k;
    met[4] += s.blocks > 1 && !s.shared;
    close_both(&b);
}

static void batches__give_the_bits_of_the_cpu(void **state)
{
    (void)state;
    const int cases = CASES;
    uint64_t seed = 20261130;
    int64_t met[5] = {0};
    for (int n = 0; n < 4; n++) {
        kvt_two d = kvt_devices(n);
        for (int i = n * cases / 4; i < (n + 1) * cases / 4; i++) one_batch(&d, i, &seed, met);
        kvt_close(&d);
    }
    print_message("%d cases: with outliers %" PRId64 ", saturated %" PRId64 ", of several chunks %" PRId64
                  ", with as many rows as centres %" PRId64 ", with a skeleton for each block %" PRId64 "\n",
                  cases, met[0], met[1], met[2], met[3], met[4]);
    for (int i = 0; i < 5; i++) assert_true(met[i] > 4 * CASES / 2000);
}

/* ---- the full recipe -------------------------------------------------------------------- */

/* K and V of 28 layers in turn, two heads each, as kv1 stores them: skeletons fitted to the rows. */
static void recipes__k_and_v_over_the_layers_of_a_model(void **state)
{
    (void)state;
    enum { LAYERS = 28, HEADS = 2, ROWS = 96, DIM = 64 };
    kvt_two d = kvt_devices(1);
    int64_t outliers = 0;
    for (int half = 0; half < 2; half++) {
        kv_codec_half_config h;
        kv_err err = {0};
        kvt_ok(kv_codec_recipe_half(KV_CODEC_KV1, half, DIM, false, &h, &err), &err);
        h.fit.kmeans_rounds = 4;
        kv_codec_batch_shape s = {.p = h.slot.params, .blocks = LAYERS * HEADS, .rows = ROWS};
        both b = open_both(&d, &s, half == KV_CODEC_K ? "kv1 k" : "kv1 v");
        kv_codec_skeleton k = kvt_new_skeleton(&s.p);
        for (int64_t block = 0; block < s.blocks; block++) {
            float *x = half == KV_CODEC_K ? kvt_k_like_block(ROWS, DIM, 3, 0.8, 0.3, 2, (uint64_t)block + 1)
                                          : kvt_heavy_block(ROWS, DIM, (uint64_t)block + 1);
            kv_codec_params p = s.p;
            kv_codec_fit_report report;
            if (block % 7 == 0) /* a fit takes long; the others' rows meet a skeleton of another layer */
                kvt_ok(kv_codec_fit(&p, &h.fit, x, NULL, ROWS, &k, &report, &err), &err);
            put_skeleton(&b, block, &k);
            put_rows(&b, block, x);
            free(x);
        }
        run_both(&b, &outliers);
        kv_codec_skeleton_free(&k);
        close_both(&b);
    }
    assert_true(outliers > 0);
    kvt_close(&d);
}

/* ---- codes from outside ----------------------------------------------------------------- */

static void put_codes__refuses_what_is_out_of_range(void **state)
{
    (void)state;
    uint64_t seed = 5;
    kvt_two d = kvt_devices(0);
    kv_codec_batch_shape s = {.p = kvt_codec_params(16, 8, 3, 2), .blocks = 2, .rows = 4};
    both b = open_both(&d, &s, "codes");
    kv_codec_skeleton k = kvt_skeleton(&seed, &s.p);
    kv_codec_codes *c = &b.codes[0];
    c->n = 4;
    put_skeleton(&b, 0, &k);
    put_skeleton(&b, 1, &k);
    c->outlier_count[1] = 1;
    c->outlier_idx[0] = 4000; /* ignored, as by the reference */
    c->outliers = 1;
    for (int i = 0; i < 2; i++) {
        kv_device *dev = device(&b, i);
        const kv_codec_ops *ops = dev->ops->codec;
        kv_err err = {0};
        kvt_ok(ops->put_codes(dev, b.batch[i], 0, c, &err), &err);
        kvt_ok(ops->put_codes(dev, b.batch[i], 1, c, &err), &err);
        kvt_ok(ops->decode(dev, b.batch[i], 2, &err), &err);
        kvt_refused(ops->decode(dev, b.batch[i], 3, &err), KV_EBUG, &err, "blocks", KVT_SAYS("3 blocks"));
        kvt_refused(ops->put_codes(dev, b.batch[i], 2, c, &err), KV_EBUG, &err, "block 2", KVT_SAYS("block 2"));
        c->seg_id[3] = 3;
        kvt_refused(ops->put_codes(dev, b.batch[i], 0, c, &err), KV_EBUG, &err, "centre", KVT_SAYS("centre 3 of 3"));
        c->seg_id[3] = 0;
        c->outlier_count[0] = 9;
        kvt_refused(ops->put_codes(dev, b.batch[i], 0, c, &err), KV_EBUG, &err, "outliers",
                    KVT_SAYS("9 outliers of 8"));
        c->outlier_count[0] = 1;
        kvt_refused(ops->put_codes(dev, b.batch[i], 0, c, &err), KV_EBUG, &err, "counted", KVT_SAYS("2 counted"));
        c->outlier_count[0] = 0;
        c->n = 3;
        kvt_refused(ops->put_codes(dev, b.batch[i], 0, c, &err), KV_EBUG, &err, "rows", KVT_SAYS("codes of 3 rows"));
        c->n = 4;
    }
    check_rows(&b, 0);
    check_rows(&b, 1);
    kv_codec_skeleton_free(&k);
    close_both(&b);
    kvt_close(&d);
}

static void create__refuses_shapes_and_tells_what_does_not_fit(void **state)
{
    (void)state;
    kvt_two d = kvt_devices(0);
    const kv_codec_params p = kvt_codec_params(128, 64, 16, 3);
    for (int i = 0; i < 2; i++) {
        kv_device *dev = i == 0 ? d.cpu : d.gpu;
        kv_codec_batch *b = NULL;
        kv_err err = {0};
        kv_codec_batch_shape s = {.p = p, .blocks = 0, .rows = 5};
        kvt_refused(dev->ops->codec->create(dev, &s, &b, &err), KV_EBUG, &err, "blocks", KVT_SAYS("0 blocks"));
        s.blocks = (int64_t)1 << 40;
        s.rows = (int64_t)1 << 40;
        kvt_refused(dev->ops->codec->create(dev, &s, &b, &err), KV_ENOMEM, &err, "batch", KVT_SAYS("a batch of"));
        dev->ops->codec->destroy(dev, NULL);
    }
    kv_codec_batch *b = NULL;
    kv_err err = {0};
    const kv_codec_batch_shape s = {.p = p, .blocks = 1, .rows = 8};
    kv_emu_fail_after(0);
    kvt_refused(d.gpu->ops->codec->create(d.gpu, &s, &b, &err), KV_ENOMEM, &err, "room",
                KVT_SAYS("a batch of the codec"));
    kv_emu_fail_after(-1);
    kvt_ok(d.gpu->ops->codec->create(d.gpu, &s, &b, &err), &err);
    d.gpu->ops->codec->destroy(d.gpu, b);
    kvt_close(&d);
}

/* ---- the shared vectors ----------------------------------------------------------------- */

static void hold_vector(kvt_two *d, const char *name)
{
    char path[512];
    kv_buf bytes = {0};
    kv_codec_vector v;
    kv_err err = {0};
    snprintf(path, sizeof path, "%s/%s", SHARED, name);
    kvt_ok(kv_file_read(path, 1 << 26, &bytes, &err), &err);
    kvt_ok(kv_codec_vector_parse(bytes.data, (int64_t)bytes.len, &v, &err), &err);
    const kv_codec_batch_shape s = {.p = v.params, .blocks = 1, .rows = v.n, .want_res_norm = true};
    both b = open_both(d, &s, name);
    kv_device *gpu = d->gpu;
    put_skeleton(&b, 0, &v.skeleton);
    put_rows(&b, 0, v.x);
    kvt_ok(gpu->ops->codec->encode(gpu, b.batch[1], 1, &err), &err);
    kvt_ok(gpu->ops->codec->get_codes(gpu, b.batch[1], 0, &b.codes[1], &err), &err);
    /* NaN fields of a file may be any NaN: what the CPU makes of them was held elsewhere, so hold against the CPU too */
    kvt_ok(d->cpu->ops->codec->encode(d->cpu, b.batch[0], 1, &err), &err);
    kvt_ok(d->cpu->ops->codec->get_codes(d->cpu, b.batch[0], 0, &b.codes[0], &err), &err);
    check_codes(&b, 0);
    assert_memory_equal(b.codes[1].seg_id, v.want.seg_id, (size_t)v.n * sizeof *v.want.seg_id);
    assert_memory_equal(b.codes[1].residual, v.want.residual, (size_t)(v.n * kv_codec_row_bytes(&v.params)));
    assert_int_equal(b.codes[1].outliers, v.want.outliers);
    kvt_ok(gpu->ops->codec->put_codes(gpu, b.batch[1], 0, &v.want, &err), &err);
    kvt_ok(gpu->ops->codec->decode(gpu, b.batch[1], 1, &err), &err);
    kvt_ok(gpu->ops->codec->get_rows(gpu, b.batch[1], 0, b.y[1], &err), &err);
    if (kvt_first_difference(b.y[1], v.decoded, v.n * v.params.dim) >= 0) fail_msg("%s: decoded rows differ", name);
    close_both(&b);
    kv_buf_free(&bytes);
}

static void shared_vectors__agree_bit_for_bit(void **state)
{
    (void)state;
    DIR *dir = opendir(SHARED);
    int count = 0;
    if (dir == NULL) skip();
    kvt_two d = kvt_devices(2);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        const size_t n = strlen(e->d_name);
        if (n < 4 || strcmp(e->d_name + n - 4, ".bin") != 0) continue;
        hold_vector(&d, e->d_name);
        count++;
    }
    closedir(dir);
    kvt_close(&d);
    assert_int_equal(count, 46);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(batches__give_the_bits_of_the_cpu),
                                       cmocka_unit_test(recipes__k_and_v_over_the_layers_of_a_model),
                                       cmocka_unit_test(put_codes__refuses_what_is_out_of_range),
                                       cmocka_unit_test(create__refuses_shapes_and_tells_what_does_not_fit),
                                       cmocka_unit_test(shared_vectors__agree_bit_for_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
