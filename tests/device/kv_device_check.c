/* Every kernel against the CPU backend, bit for bit, on random shapes with poisoned outputs. */
#include "tests/device/kv_device_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPU (c->cpu->ops)
#define GPU (c->gpu->ops)

/* An image on each device. */
typedef struct {
    kv_image *cpu, *gpu;
    int64_t bytes;
} pair;

static pair pair_new(kv_check *c, const kv_index *ix, uint32_t round)
{
    pair p = {.bytes = kv_index_bytes(ix)};
    kv_err err = {0};
    kv_check_must(CPU->image_new(c->cpu, p.bytes, &p.cpu, &err), &err, "image on the CPU");
    kv_check_must(GPU->image_new(c->gpu, p.bytes, &p.gpu, &err), &err, "image on the GPU");
    kv_check_must(CPU->poison(c->cpu, p.cpu, p.bytes, round, &err), &err, "poison");
    kv_check_must(GPU->poison(c->gpu, p.gpu, p.bytes, round, &err), &err, "poison");
    return p;
}

static void pair_free(kv_check *c, pair *p)
{
    CPU->image_free(c->cpu, p->cpu);
    GPU->image_free(c->gpu, p->gpu);
}

static void same_bytes(kv_check *c, const pair *p, const char *what)
{
    kv_err err = {0};
    const kv_rc guards = kv_check_guards(c->gpu, p->gpu, &err);
    unsigned char *got = malloc((size_t)p->bytes + 1);
    if (got == NULL) abort();
    kv_check_note(c, guards == KV_OK, "%s: %s", what, err.text);
    memset(&err, 0, sizeof err);
    kv_check_must(GPU->read(c->gpu, p->gpu, got, &err), &err, "read");
    kv_check_note(c, memcmp(got, kv_image_host_view(p->cpu), (size_t)p->bytes) == 0, "%s: other bytes", what);
    free(got);
}

static void same_probe(kv_check *c, const kv_index *ix, const char *what)
{
    kv_probe_result a, b;
    kv_err err = {0};
    kv_check_must(CPU->probe(c->cpu, ix, &a, &err), &err, "probe");
    kv_check_must(GPU->probe(c->gpu, ix, &b, &err), &err, "probe");
    kv_check_note(c,
                  a.checked == b.checked && a.padding == b.padding && a.bad == b.bad && a.first_bad == b.first_bad &&
                      a.elements_hit == b.elements_hit,
                  "%s: probe: bad %" PRId64 ", hit %" PRId64, what, b.bad, b.elements_hit);
}

/* A few elements of a changed, on both devices: comparison and set of differences must find the same. */
static void same_differences(kv_check *c, const kv_index *ix, pair *a, const pair *b, const char *what)
{
    kv_diffset *set[2] = {NULL, NULL};
    kv_compare_result x, y;
    kv_diffset_result s, t;
    kv_err err = {0};
    unsigned char *bytes = kv_image_host_view(a->cpu);
    for (int i = 0; i < 5 && a->bytes > 0; i++) bytes[kv_check_below(c, a->bytes)] ^= 1;
    kv_check_must(GPU->write(c->gpu, a->gpu, bytes, a->bytes, &err), &err, "write");
    kv_check_must(CPU->compare(c->cpu, ix, a->cpu, b->cpu, &x, &err), &err, "compare");
    kv_check_must(GPU->compare(c->gpu, ix, a->gpu, b->gpu, &y, &err), &err, "compare");
    kv_check_note(c,
                  x.differing == y.differing && x.first == y.first &&
                      (x.differing == 0 || (x.got == y.got && x.want == y.want)),
                  "%s: compare: %" PRId64 " differ, first %" PRId64, what, y.differing, y.first);
    kv_check_must(CPU->diffset_new(c->cpu, ix, &set[0], &err), &err, "set");
    kv_check_must(GPU->diffset_new(c->gpu, ix, &set[1], &err), &err, "set");
    kv_check_must(CPU->diffset_add(c->cpu, set[0], a->cpu, b->cpu, &err), &err, "set");
    kv_check_must(GPU->diffset_add(c->gpu, set[1], a->gpu, b->gpu, &err), &err, "set");
    kv_check_must(CPU->diffset_take(c->cpu, set[0], &s, &err), &err, "set");
    kv_check_must(GPU->diffset_take(c->gpu, set[1], &t, &err), &err, "set");
    kv_check_note(
        c, s.differing == t.differing && s.outside_padding == t.outside_padding && s.first_outside == t.first_outside,
        "%s: set of differences: %" PRId64, what, t.differing);
    CPU->diffset_free(c->cpu, set[0]);
    GPU->diffset_free(c->gpu, set[1]);
}

static void same_drift(kv_check *c, const kv_index *s, const pair *src, const kv_index *t, const pair *dst,
                       const char *what)
{
    kv_drift_result a, b;
    kv_err err = {0};
    kv_check_must(CPU->drift(c->cpu, s, src->cpu, t, dst->cpu, &a, &err), &err, "drift");
    kv_check_must(GPU->drift(c->gpu, s, src->gpu, t, dst->gpu, &b, &err), &err, "drift");
    kv_check_note(c, a.preserved == b.preserved && a.finite == b.finite && a.worst_ppm == b.worst_ppm,
                  "%s: drift of %" PRId64 " ppm, not %" PRId64, what, b.worst_ppm, a.worst_ppm);
}

static void same_decode(kv_check *c, const kv_index *ix, const pair *im, const kv_payload *p, const char *what)
{
    kv_decode_result a, b;
    kv_image *scratch[2];
    kv_err err = {0};
    kv_check_must(CPU->image_new(c->cpu, 4 * ix->elements, &scratch[0], &err), &err, "scratch");
    kv_check_must(GPU->image_new(c->gpu, 4 * ix->elements, &scratch[1], &err), &err, "scratch");
    kv_check_must(CPU->decode(c->cpu, ix, im->cpu, 0, 7, 1, scratch[0], &a, &err), &err, "decode");
    kv_check_must(GPU->decode(c->gpu, ix, im->gpu, 0, 7, 1, scratch[1], &b, &err), &err, "decode");
    kv_check_note(c, memcmp(&a, &b, sizeof a) == 0, "%s: decode: other tokens or logits", what);
    kv_check_must(CPU->decode_reference(c->cpu, ix, p, 7, 1, scratch[0], &a, &err), &err, "decode");
    kv_check_must(GPU->decode_reference(c->gpu, ix, p, 7, 1, scratch[1], &b, &err), &err, "decode");
    kv_check_note(c, memcmp(&a, &b, sizeof a) == 0, "%s: reference decode: other tokens or logits", what);
    CPU->image_free(c->cpu, scratch[0]);
    GPU->image_free(c->gpu, scratch[1]);
}

static void build_both(kv_check *c, pair *p, const kv_index *ix, const kv_payload *load, uint32_t pad)
{
    kv_err err = {0};
    kv_check_must(CPU->build(c->cpu, p->cpu, ix, load, ix->element, pad, &err), &err, "build");
    kv_check_must(GPU->build(c->gpu, p->gpu, ix, load, ix->element, pad, &err), &err, "build");
}

static void check_pair(kv_check *c, const kv_check_layout *from, const kv_check_layout *to, const kv_geometry *g,
                       int32_t kind)
{
    kv_index s, t;
    char text[KV_GEOMETRY_TEXT], what[KV_GEOMETRY_TEXT + 128];
    kv_err err = {0};
    kv_geometry_print(g, text);
    snprintf(what, sizeof what, "%s->%s at %s", from->name, to->name, text);
    if (!kv_check_bind(from, g, &s) || !kv_check_bind(to, g, &t)) return;
    const kv_payload load = {.seed = c->random,
                             .tokens = g->tokens,
                             .kv_heads = g->kv_heads,
                             .lanes = {g->head_dim, g->head_dim_v},
                             .kind = kind,
                             .element = (int32_t)g->element};
    pair src = pair_new(c, &s, 1), dst = pair_new(c, &t, 2), want = pair_new(c, &t, 3);
    build_both(c, &src, &s, &load, 0x21);
    same_bytes(c, &src, what);
    kv_check_must(CPU->translate(c->cpu, &s, src.cpu, &t, dst.cpu, 0x43, &err), &err, "translate");
    kv_check_must(GPU->translate(c->gpu, &s, src.gpu, &t, dst.gpu, 0x43, &err), &err, "translate");
    same_bytes(c, &dst, what);
    build_both(c, &want, &t, &load, 0x43);
    same_bytes(c, &want, what);
    same_probe(c, &t, what);
    same_drift(c, &s, &src, &t, &dst, what);
    if (kind == KV_PAYLOAD_TOKENS) same_decode(c, &t, &dst, &load, what);
    same_differences(c, &t, &dst, &want, what);
    pair_free(c, &src);
    pair_free(c, &dst);
    pair_free(c, &want);
}

void kv_check_all(kv_check *c, bool small)
{
    static const int64_t tokens[] = {0, 1, 17, 40, 64, 129, 1000}, heads[] = {1, 2, 3, 8}, dims[] = {6, 8, 80, 96, 128};
    const int n = kv_check_layout_count, pairs = small ? 60 : 1500;
    const kv_geometry published = {1, 40, 2, 8, 8, KV_ELEM_F16};
    for (int i = 0; i < n * n && !small; i++)
        check_pair(c, &kv_check_layouts[i / n], &kv_check_layouts[i % n], &published, KV_PAYLOAD_TOKENS);
    for (int i = 0; i < pairs; i++) {
        kv_geometry g = {1,
                         tokens[kv_check_below(c, small ? 5 : 7)],
                         heads[kv_check_below(c, 4)],
                         dims[kv_check_below(c, small ? 3 : 5)],
                         0,
                         (kv_elem)kv_check_below(c, KV_ELEM_COUNT)};
        g.head_dim_v = g.head_dim;
        check_pair(c, &kv_check_layouts[kv_check_below(c, n)], &kv_check_layouts[kv_check_below(c, n)], &g,
                   (int32_t)kv_check_below(c, KV_PAYLOAD_TOKENS + 1));
    }
}
