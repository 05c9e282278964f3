/* CPU checks: the exhaustive index probe, comparison, sets of round-trip differences, value drift. */
#include <inttypes.h>
#include <string.h>

#include "kernels/kv_kern_cpu.h"
#include "kernels/kv_kern_drift.h"
#include "kernels/kv_kern_num.h"
#include "kernels/kv_kern_probe.h"

#define CHUNK_BYTES 4096

/* ---- index probe ------------------------------------------------------------------------ */

static bool set_bit(unsigned char *bits, int64_t i)
{
    const unsigned char mask = (unsigned char)(1U << (i & 7));
    const bool was = (bits[i >> 3] & mask) != 0;
    bits[i >> 3] |= mask;
    return was;
}

/* One position; an element hit twice is bad as well. */
static bool position_ok(const kv_index *ix, const kv_walk *w, unsigned char *hit, kv_probe_result *r)
{
    int64_t n;
    switch (kv_probe_place(ix, w, &n)) {
    case KV_PLACE_PADDING: r->padding++; return true;
    case KV_PLACE_ELEMENT:
        if (set_bit(hit, n)) return false;
        r->elements_hit++;
        return true;
    default: return false;
    }
}

kv_rc kv_cpu_probe(kv_device *d, const kv_index *ix, kv_probe_result *out, kv_err *err)
{
    (void)d;
    kv_probe_result r = {.first_bad = -1};
    unsigned char *hit = kv_alloc((size_t)(ix->elements / 8 + 1), 1);
    if (hit == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to probe %" PRId64 " elements", ix->elements);
    kv_walk w;
    kv_walk_start(&w);
    while (w.position < ix->native) {
        if (!position_ok(ix, &w, hit, &r) && r.bad++ == 0) r.first_bad = w.position;
        r.checked++;
        kv_walk_next(ix, &w);
    }
    kv_free(hit);
    *out = r;
    return KV_OK;
}

/* ---- comparison ------------------------------------------------------------------------- */

kv_rc kv_cpu_compare(kv_device *d, const kv_index *ix, const kv_image *got, const kv_image *want,
                     kv_compare_result *out, kv_err *err)
{
    (void)d;
    kv_compare_result r = {.first = -1};
    const kv_elem e = (kv_elem)ix->element;
    const int64_t size = kv_elem_bytes(e), bytes = ix->native * size;
    if (got->bytes != bytes || want->bytes != bytes)
        return KV_FAIL(err, KV_EBUG, "images of %" PRId64 " and %" PRId64 " bytes compared as %" PRId64, got->bytes,
                       want->bytes, bytes);
    for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
        const int64_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        if (memcmp(got->data + at, want->data + at, (size_t)n) == 0) continue;
        for (int64_t p = at / size; p < (at + n) / size; p++) {
            const uint32_t g = kv_num_load(e, got->data, p), w = kv_num_load(e, want->data, p);
            if (g == w) continue;
            if (r.differing++ == 0) {
                r.first = p;
                r.got = g;
                r.want = w;
            }
        }
    }
    *out = r;
    return KV_OK;
}

/* ---- round-trip differences ------------------------------------------------------------- */

struct kv_diffset {
    kv_index ix;
    unsigned char *bits;
};

kv_rc kv_cpu_diffset_new(kv_device *d, const kv_index *ix, kv_diffset **out, kv_err *err)
{
    (void)d;
    kv_diffset *s = kv_alloc(1, sizeof *s);
    unsigned char *bits = s != NULL ? kv_alloc((size_t)(ix->native / 8 + 1), 1) : NULL;
    if (bits == NULL) {
        kv_free(s);
        return KV_FAIL(err, KV_ENOMEM, "no memory for the differences of %" PRId64 " positions", ix->native);
    }
    s->ix = *ix;
    s->bits = bits;
    *out = s;
    return KV_OK;
}

void kv_cpu_diffset_free(kv_device *d, kv_diffset *s)
{
    (void)d;
    if (s == NULL) return;
    kv_free(s->bits);
    kv_free(s);
}

kv_rc kv_cpu_diffset_add(kv_device *d, kv_diffset *s, const kv_image *got, const kv_image *want, kv_err *err)
{
    (void)d;
    const kv_elem e = (kv_elem)s->ix.element;
    const int64_t size = kv_elem_bytes(e), bytes = s->ix.native * size;
    if (got->bytes != bytes || want->bytes != bytes)
        return KV_FAIL(err, KV_EBUG, "images of %" PRId64 " and %" PRId64 " bytes compared as %" PRId64, got->bytes,
                       want->bytes, bytes);
    for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
        const int64_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        if (memcmp(got->data + at, want->data + at, (size_t)n) == 0) continue;
        for (int64_t p = at / size; p < (at + n) / size; p++)
            if (kv_num_load(e, got->data, p) != kv_num_load(e, want->data, p)) (void)set_bit(s->bits, p);
    }
    return KV_OK;
}

kv_rc kv_cpu_diffset_take(kv_device *d, kv_diffset *s, kv_diffset_result *out, kv_err *err)
{
    (void)d;
    (void)err;
    kv_diffset_result r = {.first_outside = -1};
    for (int64_t byte = 0; byte < s->ix.native / 8 + 1; byte++) {
        unsigned bits = s->bits[byte];
        s->bits[byte] = 0;
        for (; bits != 0; bits &= bits - 1) {
            const int64_t p = byte * 8 + __builtin_ctz(bits);
            kv_coord c;
            r.differing++;
            if (kv_index_inverse(&s->ix, p, &c) && r.outside_padding++ == 0) r.first_outside = p;
        }
    }
    *out = r;
    return KV_OK;
}

/* ---- drift of values -------------------------------------------------------------------- */

kv_rc kv_cpu_drift(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, const kv_image *dst,
                   kv_drift_result *out, kv_err *err)
{
    (void)d;
    (void)err;
    kv_drift r = {1, 1, 0};
    kv_walk w;
    kv_walk_start(&w);
    for (; w.position < s->native; kv_walk_next(s, &w)) {
        kv_coord c;
        if (!kv_walk_coord(s, &w, &c)) continue;
        const int64_t at = kv_index_forward(t, &c);
        kv_drift_add(&r, kv_num_to_f32((kv_elem)s->element, kv_num_load((kv_elem)s->element, src->data, w.position)),
                     kv_num_to_f32((kv_elem)t->element, kv_num_load((kv_elem)t->element, dst->data, at)));
    }
    *out = kv_drift_told(&r);
    return KV_OK;
}
