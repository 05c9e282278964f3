/* How fast the GPU moves, probes, compares and decodes, beside a device-to-device copy of the same bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/device/kv_device_check.h"

#define GPU (c->gpu->ops)
#define REPEAT 7

typedef struct {
    kv_check *c;
    kv_index s, t;
    kv_image *src, *dst, *copy;
} bench;

typedef enum { COPY, TRANSLATE } what;

static double batch(const bench *b, what w, int n)
{
    kv_check *c = b->c;
    kv_err err = {0};
    const double begin = kv_check_now();
    for (int i = 0; i < n; i++)
        kv_check_must(w == COPY ? GPU->copy(c->gpu, b->src, b->copy, &err)
                                : GPU->translate(c->gpu, &b->s, b->src, &b->t, b->dst, 0, &err),
                      &err, "measured work");
    kv_check_must(GPU->finish(c->gpu, &err), &err, "measured work");
    return (kv_check_now() - begin) / n;
}

/* Seconds of a copy and of a translation, the medians of alternating batches. */
static void alternate(const bench *b, double *copy, double *move)
{
    double x[REPEAT], y[REPEAT];
    (void)batch(b, COPY, 2);
    (void)batch(b, TRANSLATE, 2);
    for (int i = 0; i < REPEAT; i++) {
        x[i] = batch(b, COPY, 10);
        y[i] = batch(b, TRANSLATE, 10);
    }
    qsort(x, REPEAT, sizeof *x, kv_check_by_value);
    qsort(y, REPEAT, sizeof *y, kv_check_by_value);
    *copy = x[REPEAT / 2];
    *move = y[REPEAT / 2];
}

static kv_image *image_of(kv_check *c, const kv_index *ix)
{
    kv_image *im = NULL;
    kv_err err = {0};
    kv_check_must(GPU->image_new(c->gpu, kv_index_bytes(ix), &im, &err), &err, "a large image");
    kv_check_must(GPU->poison(c->gpu, im, kv_index_bytes(ix), 1, &err), &err, "poison");
    return im;
}

static double pair_ratio(kv_check *c, const kv_check_layout *from, const kv_check_layout *to, const kv_geometry *g)
{
    bench b = {.c = c};
    double copy, move;
    kv_err err = {0};
    const kv_payload load = {.seed = 1,
                             .tokens = g->tokens,
                             .kv_heads = g->kv_heads,
                             .lanes = {g->head_dim, g->head_dim_v},
                             .kind = 5,
                             .element = (int32_t)g->element};
    if (!kv_check_bind(from, g, &b.s) || !kv_check_bind(to, g, &b.t)) return -1;
    b.src = image_of(c, &b.s);
    b.dst = image_of(c, &b.t);
    b.copy = image_of(c, &b.s);
    kv_check_must(GPU->build(c->gpu, b.src, &b.s, &load, b.s.element, 0, &err), &err, "build");
    alternate(&b, &copy, &move);
    const double copied = 2.0 * (double)kv_index_bytes(&b.s),
                 moved = (double)kv_index_bytes(&b.s) + (double)kv_index_bytes(&b.t);
    printf("%-22s %-22s %9.1f %9.1f %8.3f\n", from->name, to->name, copied / copy * 1e-9, moved / move * 1e-9,
           copy / copied * moved / move);
    GPU->image_free(c->gpu, b.src);
    GPU->image_free(c->gpu, b.dst);
    GPU->image_free(c->gpu, b.copy);
    return copy / copied * moved / move;
}

/* Probe, comparison and token leg, once each after a warm-up. */
static void other_speeds(kv_check *c, const kv_geometry *g)
{
    kv_index ix;
    kv_probe_result probed;
    kv_compare_result compared;
    kv_decode_result decoded;
    kv_err err = {0};
    double best[3] = {1e9, 1e9, 1e9};
    if (!kv_check_bind(&kv_check_layouts[0], g, &ix)) return;
    kv_image *a = image_of(c, &ix), *b = image_of(c, &ix), *scratch = image_of(c, &ix);
    for (int i = 0; i < 5; i++) {
        const double t0 = kv_check_now();
        kv_check_must(GPU->probe(c->gpu, &ix, &probed, &err), &err, "probe");
        const double t1 = kv_check_now();
        kv_check_must(GPU->compare(c->gpu, &ix, a, b, &compared, &err), &err, "compare");
        const double t2 = kv_check_now();
        kv_check_must(GPU->decode(c->gpu, &ix, a, 0, 1, 0, scratch, &decoded, &err), &err, "decode");
        const double took[3] = {t1 - t0, t2 - t1, kv_check_now() - t2};
        for (int k = 0; k < 3; k++) best[k] = took[k] < best[k] ? took[k] : best[k];
    }
    const double bytes = (double)kv_index_bytes(&ix);
    printf("probe      %10.3g positions/s (wanted: at least 5e10)\n", (double)probed.checked / best[0]);
    printf("compare    %10.1f GB/s, both images read\n", 2 * bytes / best[1] * 1e-9);
    printf("token leg  %10.1f GB/s: the cache once for each of 8 steps, and once to gather it\n",
           (KV_DECODE_STEPS + 2) * bytes / best[2] * 1e-9);
    GPU->image_free(c->gpu, a);
    GPU->image_free(c->gpu, b);
    GPU->image_free(c->gpu, scratch);
}

void kv_check_speeds(kv_check *c)
{
    const kv_geometry g = {1, 65536, 8, 128, 128, KV_ELEM_F16};
    double ratio[64];
    int n = 0;
    printf("\nspeeds at L=1,T=65536,H=8,D=128,e=f16 (268 MB an image); GB/s count bytes read and written\n");
    printf("%-22s %-22s %9s %9s %8s\n", "from", "to", "copy", "translate", "ratio");
    for (int i = 0; i < kv_check_layout_count; i++)
        for (int j = 0; j < kv_check_layout_count; j++) {
            if (i == j || !kv_check_layouts[i].published || !kv_check_layouts[j].published) continue;
            const double r = pair_ratio(c, &kv_check_layouts[i], &kv_check_layouts[j], &g);
            if (r > 0 && n < 64) ratio[n++] = r;
        }
    qsort(ratio, (size_t)n, sizeof *ratio, kv_check_by_value);
    if (n > 0)
        printf("%d pairs: median ratio %.3f (wanted: 0.9), worst %.3f (wanted: 0.75)\n", n, ratio[n / 2], ratio[0]);
    other_speeds(c, &g);
}
