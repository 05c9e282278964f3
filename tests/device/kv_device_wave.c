/* Waves against the CPU backend: the same story for every cell on both devices, on the GPU with two waves under way, and every
 * result and the last image must be the same. */
#include "tests/device/kv_device_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one device says of a cell. */
typedef struct {
    kv_probe_result probed[2];
    kv_guards_result guards;
    kv_compare_result compared;
    kv_diffset_result differing;
    kv_drift_result drift;
    kv_decode_result decoded, reference;
} answers;

typedef struct {
    kv_index s, t;
    kv_payload load;
    char what[KV_GEOMETRY_TEXT + 128];
    kv_image *im[3];
    kv_diffset *set;
    answers said;
} cell;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void random_cell(kv_check *c, cell *x)
{
    static const int64_t tokens[] = {0, 1, 17, 40, 129}, heads[] = {1, 2, 3, 8}, dims[] = {6, 8, 80, 128};
    char text[KV_GEOMETRY_TEXT];
    memset(x, 0, sizeof *x);
    for (;;) {
        const kv_check_layout *from = &kv_check_layouts[kv_check_below(c, kv_check_layout_count)];
        const kv_check_layout *to = &kv_check_layouts[kv_check_below(c, kv_check_layout_count)];
        const int64_t dim = dims[kv_check_below(c, 4)];
        const kv_geometry g = {1,
                               tokens[kv_check_below(c, 5)],
                               heads[kv_check_below(c, 4)],
                               dim,
                               dim,
                               (kv_elem)kv_check_below(c, KV_ELEM_COUNT)};
        if (!kv_check_bind(from, &g, &x->s) || !kv_check_bind(to, &g, &x->t)) continue;
        kv_geometry_print(&g, text);
        snprintf(x->what, sizeof x->what, "in a wave: %s->%s at %s", from->name, to->name, text);
        x->load = (kv_payload){.seed = c->random,
                               .tokens = g.tokens,
                               .kv_heads = g.kv_heads,
                               .lanes = {g.head_dim, g.head_dim_v},
                               .kind = KV_PAYLOAD_TOKENS,
                               .element = (int32_t)g.element};
        return;
    }
}

/* There, compared with the destination's own image, back, compared with the source, decoded. Fills differ, so that padding does. */
static kv_rc ask(kv_device *d, cell *x, kv_err *err)
{
    const kv_device_ops *o = d->ops;
    const int64_t bytes[3] = {kv_index_bytes(&x->s), kv_index_bytes(&x->t),
                              larger(4 * x->t.elements, larger(kv_index_bytes(&x->s), kv_index_bytes(&x->t)))};
    const int32_t via = x->s.element;
    answers *a = &x->said;
    kv_rc rc;
    for (int i = 0; i < 3; i++) KV_TRY(rc, out, o->image_new(d, bytes[i], &x->im[i], err));
    KV_TRY(rc, out, o->diffset_new(d, &x->s, &x->set, err));
    KV_TRY(rc, out, o->probe(d, &x->s, &a->probed[0], err));
    KV_TRY(rc, out, o->probe(d, &x->t, &a->probed[1], err));
    KV_TRY(rc, out, o->poison(d, x->im[0], bytes[0], 1, err));
    KV_TRY(rc, out, o->build(d, x->im[0], &x->s, &x->load, via, 0x21, err));
    KV_TRY(rc, out, o->poison(d, x->im[1], bytes[1], 2, err));
    KV_TRY(rc, out, o->translate(d, &x->s, x->im[0], &x->t, x->im[1], 0x43, err));
    KV_TRY(rc, out, o->guards(d, x->im[1], &a->guards, err));
    KV_TRY(rc, out, o->drift(d, &x->s, x->im[0], &x->t, x->im[1], &a->drift, err));
    KV_TRY(rc, out, o->poison(d, x->im[2], bytes[1], 3, err));
    KV_TRY(rc, out, o->build(d, x->im[2], &x->t, &x->load, via, 0x44, err));
    KV_TRY(rc, out, o->compare(d, &x->t, x->im[1], x->im[2], &a->compared, err));
    KV_TRY(rc, out, o->poison(d, x->im[2], bytes[0], 4, err));
    KV_TRY(rc, out, o->translate(d, &x->t, x->im[1], &x->s, x->im[2], 0x65, err));
    KV_TRY(rc, out, o->diffset_add(d, x->set, x->im[2], x->im[0], err));
    KV_TRY(rc, out, o->diffset_take(d, x->set, &a->differing, err));
    KV_TRY(rc, out, o->decode(d, &x->t, x->im[1], 0, 7, 1, x->im[2], &a->decoded, err));
    KV_TRY(rc, out, o->decode_reference(d, &x->t, &x->load, 7, 1, x->im[2], &a->reference, err));
out:
    return rc;
}

static void drop(kv_device *d, cell *x)
{
    d->ops->diffset_free(d, x->set);
    for (int i = 0; i < 3; i++) d->ops->image_free(d, x->im[i]);
}

static void same_answers(kv_check *c, const cell *gpu, const cell *cpu)
{
    const answers *a = &gpu->said, *b = &cpu->said;
    kv_err err = {0};
    unsigned char *got = malloc((size_t)kv_index_bytes(&gpu->t) + 1);
    if (got == NULL) abort();
    kv_check_note(c, memcmp(a->probed, b->probed, sizeof a->probed) == 0, "%s: probe", gpu->what);
    kv_check_note(c, memcmp(&a->guards, &b->guards, sizeof a->guards) == 0, "%s: guards", gpu->what);
    kv_check_note(c,
                  a->compared.differing == b->compared.differing && a->compared.first == b->compared.first &&
                      (b->compared.differing == 0 ||
                       (a->compared.got == b->compared.got && a->compared.want == b->compared.want)),
                  "%s: compare: %" PRId64 " differ", gpu->what, a->compared.differing);
    kv_check_note(c, memcmp(&a->differing, &b->differing, sizeof a->differing) == 0, "%s: set of differences",
                  gpu->what);
    kv_check_note(c,
                  a->drift.preserved == b->drift.preserved && a->drift.finite == b->drift.finite &&
                      a->drift.worst_ppm == b->drift.worst_ppm,
                  "%s: drift", gpu->what);
    kv_check_note(c, memcmp(&a->decoded, &b->decoded, sizeof a->decoded) == 0, "%s: decode", gpu->what);
    kv_check_note(c, memcmp(&a->reference, &b->reference, sizeof a->reference) == 0, "%s: reference decode", gpu->what);
    kv_check_must(c->gpu->ops->read(c->gpu, gpu->im[1], got, &err), &err, "read");
    kv_check_note(c, memcmp(got, kv_image_host_view(cpu->im[1]), (size_t)kv_index_bytes(&cpu->t)) == 0,
                  "%s: other bytes", gpu->what);
    free(got);
}

static cell *begin(kv_check *c, int32_t wave, int32_t n)
{
    cell *x = calloc((size_t)n, sizeof *x);
    kv_err err = {0};
    if (x == NULL) abort();
    kv_check_must(c->gpu->ops->wave_open(c->gpu, wave, n, &err), &err, "a wave");
    for (int32_t i = 0; i < n; i++) {
        random_cell(c, &x[i]);
        c->gpu->ops->wave_cell(c->gpu, wave, i);
        kv_check_must(ask(c->gpu, &x[i], &err), &err, x[i].what);
    }
    kv_check_must(c->gpu->ops->wave_send(c->gpu, wave, &err), &err, "sending a wave");
    return x;
}

static void end(kv_check *c, int32_t wave, cell *x, int32_t n)
{
    kv_err err = {0};
    kv_check_must(c->gpu->ops->wave_wait(c->gpu, wave, &err), &err, "waiting for a wave");
    for (int32_t i = 0; i < n; i++) {
        cell truth = x[i];
        memset(&truth.said, 0, sizeof truth.said);
        kv_check_must(ask(c->cpu, &truth, &err), &err, x[i].what);
        same_answers(c, &x[i], &truth);
        drop(c->cpu, &truth);
        drop(c->gpu, &x[i]);
    }
    free(x);
}

void kv_check_waves(kv_check *c, bool small)
{
    static const int32_t sizes[] = {1, 2, 7, 16, KV_WAVE_CELLS};
    const int rounds = small ? 2 : 8;
    for (int r = 0; r < rounds; r++) {
        const int32_t n = sizes[r % (small ? 3 : 5)], m = sizes[(r + 1) % (small ? 3 : 5)];
        cell *a = begin(c, 0, n), *b = begin(c, 1, m);
        end(c, 0, a, n);
        end(c, 1, b, m);
    }
}
