#include "grid/campaign/kv_codec_values.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/kv_file.h"
#include "certs/kv_hash.h"
#include "kernels/kv_kern_num.h"
#include "kernels/kv_kern_payload.h"

static const char *const names[KV_VALUES_COUNT] = {"constant", "gaussian", "heavy-tailed", "k-like-1",
                                                   "k-like-2", "k-like-3", "k-like-4",     "zeros"};

const char *kv_values_name(kv_values_kind k)
{
    return k < KV_VALUES_COUNT ? names[k] : "?";
}

bool kv_values_parse(const char *name, kv_values_kind *out)
{
    for (int k = 0; k < KV_VALUES_COUNT; k++)
        if (strcmp(name, names[k]) == 0) {
            *out = (kv_values_kind)k;
            return true;
        }
    return false;
}

/* A row is mean + sum over directions d of g_d * lead * decay^d * direction_d + noise * g. */
typedef struct {
    double lead, decay, noise, mean;
} shape;
static const shape shapes[4] = {{4, 0.95, 0.3, 2}, {8, 0.90, 0.2, 4}, {20, 0.85, 0.5, 10}, {0.04, 0.90, 0.002, 0.03}};

/* ---- random numbers: a pure function of (key, index) -------------------------------------- */

static double uniform(uint64_t h, int shift)
{
    return (double)(h >> shift & 0xFFFFU) * 0x1p-16;
}

/* Sum of twelve 16-bit uniforms less 6: mean about 0, standard deviation 1, at most 6. Exact in float64. */
static double gaussian(uint64_t key, uint64_t i)
{
    double sum = 0;
    for (uint64_t k = 0; k < 3; k++) {
        const uint64_t h = kv_payload_mix(key + 0x9E3779B97F4A7C15ULL * (3 * i + k + 1));
        for (int s = 0; s < 64; s += 16) sum += uniform(h, s);
    }
    return sum - 6;
}

/* What a number is for; part of its key. */
enum { FOR_MEAN = 1, FOR_DIRECTION, FOR_FACTOR, FOR_NOISE, FOR_SCALE };

static uint64_t key_of(const kv_values_place *at, uint64_t purpose)
{
    uint64_t k = kv_payload_mix(at->seed + 0xC0DEC0DEC0DEULL);
    k = kv_payload_mix(k + (uint64_t)at->layer);
    k = kv_payload_mix(k + (uint64_t)at->head);
    k = kv_payload_mix(k + (uint64_t)at->stream);
    return kv_payload_mix(k + 16 * (uint64_t)at->kind + purpose);
}

static float round_to(kv_elem e, double v)
{
    return kv_num_float(kv_num_to_f32(e, kv_num_from_f32(e, kv_num_bits((float)v))));
}

/* ---- kinds --------------------------------------------------------------------------------- */

/* dim directions of length about lead * decay^d, as rows. */
static void make_directions(const kv_values_place *at, const shape *s, int64_t dim, double *out)
{
    const uint64_t key = key_of(at, FOR_DIRECTION);
    double root = 1, scale = s->lead; /* root: the square root of dim, by Newton; a few digits are enough */
    for (int i = 0; i < 64; i++) root = (root + (double)dim / root) / 2;
    for (int64_t d = 0; d < dim; d++, scale *= s->decay)
        for (int64_t j = 0; j < dim; j++) out[d * dim + j] = gaussian(key, (uint64_t)(d * dim + j)) * (scale / root);
}

static kv_rc make_k_like(const kv_values_place *at, const shape *s, int64_t tokens, int64_t dim, float *x, kv_err *err)
{
    const uint64_t mean = key_of(at, FOR_MEAN), factor = key_of(at, FOR_FACTOR), noise = key_of(at, FOR_NOISE);
    double *directions = kv_alloc((size_t)dim + 1, (size_t)dim * sizeof *directions);
    if (directions == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %lld directions", (long long)dim);
    double *row = directions + dim * dim;
    make_directions(at, s, dim, directions);
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t j = 0; j < dim; j++)
            row[j] = s->mean * gaussian(mean, (uint64_t)j) + s->noise * gaussian(noise, (uint64_t)(t * dim + j));
        for (int64_t d = 0; d < dim; d++) {
            const double g = gaussian(factor, (uint64_t)(t * dim + d));
            for (int64_t j = 0; j < dim; j++) row[j] += g * directions[d * dim + j];
        }
        for (int64_t j = 0; j < dim; j++) x[t * dim + j] = round_to(at->element, row[j]);
    }
    kv_free(directions);
    return KV_OK;
}

static void make_plain(const kv_values_place *at, int64_t tokens, int64_t dim, float *x)
{
    const uint64_t key = key_of(at, FOR_NOISE), scale = key_of(at, FOR_SCALE);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < dim; j++) {
            const uint64_t i = (uint64_t)(t * dim + j);
            double v = 0;
            if (at->kind == KV_VALUES_CONSTANT) v = gaussian(key, (uint64_t)j);
            if (at->kind == KV_VALUES_GAUSSIAN) v = gaussian(key, i);
            if (at->kind == KV_VALUES_HEAVY) v = gaussian(key, i) / (uniform(kv_payload_mix(scale + i), 0) + 0x1p-10);
            x[i] = round_to(at->element, v);
        }
}

kv_rc kv_values_make(const kv_values_place *at, int64_t tokens, int64_t dim, float *x, kv_err *err)
{
    if (at->kind >= KV_VALUES_K_LIKE_1 && at->kind <= KV_VALUES_K_LIKE_4)
        return make_k_like(at, &shapes[at->kind - KV_VALUES_K_LIKE_1], tokens, dim, x, err);
    make_plain(at, tokens, dim, x);
    return KV_OK;
}

/* ---- heads that are kept -------------------------------------------------------------------- */

struct kv_values_head {
    kv_values_place at;
    int64_t tokens, dim;
    float *x;
};

static bool same_place(const kv_values_place *a, const kv_values_place *b)
{
    return a->kind == b->kind && a->seed == b->seed && a->layer == b->layer && a->head == b->head &&
           a->stream == b->stream && a->element == b->element;
}

void kv_values_forget(kv_values_store *s)
{
    for (size_t i = 0; i < s->n; i++) kv_free(s->head[i].x);
    kv_free(s->head);
    memset(s, 0, sizeof *s);
}

/* Keeps a copy of x; not being able to is no error. */
static void remember(kv_values_store *s, const kv_values_place *at, int64_t tokens, int64_t dim, const float *x)
{
    const size_t bytes = (size_t)(tokens * dim) * sizeof *x;
    if (s->bytes + bytes > KV_VALUES_KEPT) kv_values_forget(s);
    if (bytes > KV_VALUES_KEPT) return;
    if (s->n == s->room) {
        const size_t room = s->room > 0 ? 2 * s->room : 16;
        struct kv_values_head *grown = kv_realloc(s->head, room, sizeof *grown);
        if (grown == NULL) return;
        s->head = grown;
        s->room = room;
    }
    float *copy = kv_alloc((size_t)(tokens * dim), sizeof *copy);
    if (copy == NULL) return;
    memcpy(copy, x, bytes);
    s->head[s->n++] = (struct kv_values_head){*at, tokens, dim, copy};
    s->bytes += bytes;
}

kv_rc kv_values_get(kv_values_store *s, const kv_values_place *at, int64_t tokens, int64_t dim, float *x, kv_err *err)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct kv_values_head *h = &s->head[i];
        if (h->tokens != tokens || h->dim != dim || !same_place(&h->at, at)) continue;
        memcpy(x, h->x, (size_t)(tokens * dim) * sizeof *x);
        return KV_OK;
    }
    const kv_rc rc = kv_values_make(at, tokens, dim, x, err);
    if (rc == KV_OK) remember(s, at, tokens, dim, x);
    return rc;
}

/* ---- a user's file ------------------------------------------------------------------------- */

#define PORTION 65536

static kv_rc open_payload(const kv_values_file *f, FILE **out, kv_err *err)
{
    if (f->path == NULL) return KV_FAIL(err, KV_EREAD, "payload file %s: no path is known", f->name);
    const kv_rc rc = kv_file_open_regular(f->path, out, err);
    if (rc != KV_OK) kv_err_prefix(err, "payload file %s", f->name);
    return rc;
}

kv_rc kv_values_file_measure(kv_values_file *f, kv_err *err)
{
    unsigned char bytes[PORTION];
    kv_hash h;
    size_t n;
    FILE *in = NULL;
    kv_rc rc = open_payload(f, &in, err);
    if (rc != KV_OK) return rc;
    kv_hash_init(&h);
    f->bytes = 0;
    while ((n = fread(bytes, 1, sizeof bytes, in)) > 0) {
        kv_hash_update(&h, bytes, n);
        f->bytes += (int64_t)n;
    }
    const bool good = ferror(in) == 0;
    fclose(in);
    kv_hash_final_hex(&h, f->digest);
    return good ? KV_OK : KV_FAIL(err, KV_EREAD, "payload file %s: %s cannot be read to its end", f->name, f->path);
}

kv_rc kv_values_file_check(const kv_values_file *f, kv_err *err)
{
    kv_values_file now = *f;
    const kv_rc rc = kv_values_file_measure(&now, err);
    if (rc != KV_OK) return rc;
    if (now.bytes == f->bytes && strcmp(now.digest, f->digest) == 0) return KV_OK;
    return KV_FAIL(err, KV_EREAD,
                   "payload file %s: %s is not the one of the campaign: %" PRId64 " bytes, digest %.16s..., "
                   "must be %" PRId64 " bytes, %.16s...",
                   f->name, f->path, now.bytes, now.digest, f->bytes, f->digest);
}

kv_rc kv_values_file_finite(const kv_values_file *f, kv_elem element, kv_err *err)
{
    const int64_t size = kv_elem_bytes(element), step = PORTION / 4;
    unsigned char bytes[PORTION];
    float x[PORTION / 4];
    FILE *in = NULL;
    size_t n;
    kv_rc rc = open_payload(f, &in, err);
    if (rc != KV_OK) return rc;
    for (int64_t at = 0; rc == KV_OK && (n = fread(bytes, (size_t)size, (size_t)step, in)) > 0; at += (int64_t)n) {
        kv_num_to_f32_row(element, bytes, x, n);
        for (size_t i = 0; rc == KV_OK && i < n; i++)
            if (!isfinite(x[i]))
                rc = KV_FAIL(err, KV_EFORMAT, "payload file %s: value %" PRId64 " of %s is not finite (as %s)", f->name,
                             at + (int64_t)i, f->path, kv_elem_name(element));
    }
    if (rc == KV_OK && ferror(in) != 0)
        rc = KV_FAIL(err, KV_EREAD, "payload file %s: %s cannot be read to its end", f->name, f->path);
    fclose(in);
    return rc;
}

kv_rc kv_values_file_read(const kv_values_file *f, kv_elem element, int64_t offset, int64_t n, float *out, kv_err *err)
{
    const int64_t size = kv_elem_bytes(element), step = PORTION / size;
    unsigned char bytes[PORTION];
    FILE *in = NULL;
    const kv_rc rc = open_payload(f, &in, err);
    if (rc != KV_OK) return rc;
    bool good = fseeko(in, (off_t)offset, SEEK_SET) == 0;
    for (int64_t at = 0; good && at < n; at += step) {
        const size_t m = (size_t)(n - at < step ? n - at : step);
        good = fread(bytes, (size_t)size, m, in) == m;
        if (good) kv_num_to_f32_row(element, bytes, out + at, m);
        for (size_t i = 0; good && i < m; i++) {
            if (isfinite(out[at + (int64_t)i])) continue;
            fclose(in);
            return KV_FAIL(err, KV_EREAD, "payload file %s: value %" PRId64 " of %s is not finite", f->name,
                           offset / size + at + (int64_t)i, f->path);
        }
    }
    fclose(in);
    return good ? KV_OK : KV_FAIL(err, KV_EREAD, "payload file %s: %s cannot be read", f->name, f->path);
}
