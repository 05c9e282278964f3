#include "grid/cell/kv_codec_cell.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "grid/cell/kv_codec_memory.h"
#include "grid/cell/kv_codec_store.h"
#include "grid/cell/kv_codec_tokens.h"
#include "kernels/codec/kv_codec_whiten.h"

#define QUERY_STREAM 2 /* kv_values_place.stream of the queries that whitening is fitted to */
#define QUERIES 1024

/* ---- sizes ---------------------------------------------------------------------------------- */

static kv_rc recipe_size(const kv_codec_section *s, const kv_codec_point *p, const kv_geometry *g, kv_codec_size *z,
                         char reason[KV_REASON_TEXT], kv_err *err)
{
    const int32_t id = kv_store_method_recipe(p->method);
    const bool whitened = id == KV_CODEC_PUBLISHED_HARNESS && p->stream == KV_CODEC_K;
    kv_codec_slot_layout slot;
    kv_codec_account a;
    kv_err why = {0};
    kv_rc rc;
    bool *skip = kv_alloc((size_t)g->layers, sizeof *skip);
    if (skip == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " layers", g->layers);
    KV_TRY(rc, out, kv_codec_recipe_half(id, p->stream, (int32_t)z->dim, whitened, &z->half, err));
    z->half.fit.published = false; /* blocks that the published program cannot encode get a full skeleton too */
    z->half.slot.n = s->block;
    if (p->bits != KV_CODEC_BITS_DEFAULT) kv_codec_half_levels(&z->half, p->bits, NULL);
    if (kv_codec_slot_sizes(&z->half.slot, &slot, &why) != KV_OK) {
        snprintf(reason, KV_REASON_TEXT, "%.200s", why.text);
        goto out;
    }
    kv_codec_recipe_skip(id, (int32_t)g->layers, skip);
    KV_TRY(rc, out, kv_codec_account_of(&z->half, (int32_t)g->layers, skip, g->kv_heads, g->tokens, 2, true, &a, err));
    z->stored_bytes = a.bytes;
    z->slot_bytes = slot.total;
out:
    kv_free(skip);
    return rc;
}

/* A file holds one geometry's canonical tensor, whole. */
static void check_file_size(const kv_codec_section *s, const kv_codec_point *p, const kv_geometry *g,
                            char reason[KV_REASON_TEXT])
{
    const kv_values_file *f = &s->file[p->payload->file];
    const int64_t need =
        g->layers * g->tokens * g->kv_heads * (g->head_dim + g->head_dim_v) * kv_elem_bytes(g->element);
    if (f->bytes != need)
        snprintf(reason, KV_REASON_TEXT, "file %s has %" PRId64 " bytes, the canonical tensor %" PRId64, f->name,
                 f->bytes, need);
}

/* No size of a cell is beyond what a certificate can say: 2^53. */
static kv_rc check_sizes(const kv_geometry *g, kv_err *err)
{
    int64_t n = 0;
    char text[KV_GEOMETRY_TEXT];
    if (kv_mul_i64(g->layers, g->tokens, &n) && kv_mul_i64(n, g->kv_heads, &n) &&
        kv_mul_i64(n, g->head_dim + g->head_dim_v, &n) && n <= (int64_t)1 << 49) /* values, of at most 16 bytes each */
        return KV_OK;
    kv_geometry_print(g, text);
    return KV_FAIL(err, KV_EFORMAT, "a codec row at %s would hold more than 2^49 values; make the geometry smaller",
                   text);
}

kv_rc kv_codec_size_of(const kv_codec_section *s, const kv_codec_point *p, const kv_geometry *g, kv_codec_size *out,
                       char reason[KV_REASON_TEXT], kv_err *err)
{
    kv_codec_size z = {.dim = p->stream == 0 ? g->head_dim : g->head_dim_v};
    kv_rc rc = check_sizes(g, err);
    reason[0] = '\0';
    if (rc != KV_OK) return rc;
    z.rows = g->layers * g->tokens * g->kv_heads;
    z.plain_bytes = 2 * z.rows * z.dim;
    if (p->payload != NULL && p->payload->kind == KV_VALUES_FILE) check_file_size(s, p, g, reason);
    if (reason[0] != '\0') return KV_OK;
    if (p->method == KV_STORE_FP8)
        z.stored_bytes = z.rows * kv_codec_fp8_row_bytes(z.dim);
    else if (p->method == KV_STORE_INT4_TOKEN)
        z.stored_bytes = z.rows * kv_codec_int4_row_bytes(z.dim);
    else if (z.dim > KV_CODEC_DIM_MAX)
        snprintf(reason, KV_REASON_TEXT, "the codec takes a head_dim of 1 to %d, not %" PRId64, KV_CODEC_DIM_MAX,
                 z.dim);
    else if (p->method == KV_STORE_ROTATION)
        z.stored_bytes = z.rows * kv_codec_rotation_row_bytes(z.dim, kv_codec_point_bits(p));
    else
        rc = recipe_size(s, p, g, &z, reason, err);
    if (rc == KV_OK) *out = z;
    return rc;
}

/* ---- one layer ------------------------------------------------------------------------------ */

/* Sums over all values of a row, in the order layer, token, head, lane. */
typedef struct {
    double error, x, y, xy, worst, largest;
} distortion;

static void measure(distortion *d, const float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double a = x[i], b = y[i], e = b - a;
        d->error += e * e;
        d->x += a * a;
        d->y += b * b;
        d->xy += a * b;
        if (fabs(e) > d->worst || e != e) d->worst = fabs(e);
        if (fabs(a) > d->largest) d->largest = fabs(a);
    }
}

/* Everything one cell works with. */
typedef struct {
    kv_runner *r;
    const kv_campaign *c;
    const kv_codec_point *p;
    const kv_geometry *g;
    kv_codec_size z;
    int64_t heads, tokens, dim;
    float *x, *y;       /* [tokens][heads][dim] of one layer: values, what comes back */
    float *in, *out;    /* [tokens][dim] of one head, or a copy of x and y for mixed heads */
    float *other;       /* the same layer's other stream */
    float *l, *inverse; /* [dim][dim] whitening factors of a head */
    double *sums;       /* [dim][dim] */
    bool *skip;
    kv_codec_tally tally;
    distortion d;
    kv_err *err;
} run;

static void take_head(const float *from, const run *x, int64_t head, float *out)
{
    for (int64_t t = 0; t < x->tokens; t++)
        memcpy(out + t * x->dim, from + (t * x->heads + head) * x->dim, (size_t)x->dim * sizeof *out);
}

static void put_head(const run *x, int64_t head, const float *from, float *to)
{
    for (int64_t t = 0; t < x->tokens; t++)
        memcpy(to + (t * x->heads + head) * x->dim, from + t * x->dim, (size_t)x->dim * sizeof *to);
}

/* The values of one stream of a layer, [tokens][heads][dim]; `head` is room for one head. */
static kv_rc make_layer(const run *x, int32_t stream, int64_t layer, int64_t dim, float *head, float *out)
{
    const kv_codec_payload *p = x->p->payload;
    kv_rc rc = KV_OK;
    if (p->kind == KV_VALUES_FILE) {
        const int64_t rows = x->tokens * x->heads, both = x->g->head_dim + x->g->head_dim_v;
        const int64_t first = rows * (layer * both + (stream == 0 ? 0 : x->g->head_dim));
        return kv_values_file_read(&x->c->codec.file[p->file], x->g->element, first * kv_elem_bytes(x->g->element),
                                   rows * dim, out, x->err);
    }
    for (int64_t h = 0; rc == KV_OK && h < x->heads; h++) {
        const kv_values_place at = {p->kind, x->c->seed, layer, h, stream, x->g->element};
        rc = kv_values_get(&x->r->values, &at, x->tokens, dim, head, x->err);
        for (int64_t t = 0; rc == KV_OK && t < x->tokens; t++)
            memcpy(out + (t * x->heads + h) * dim, head + t * dim, (size_t)dim * sizeof *out);
    }
    return rc;
}

/* Factors of a layer's head, fitted to queries made up for it. */
static kv_rc fit_whitening(run *x, int64_t layer, int64_t head)
{
    const kv_values_place at = {KV_VALUES_K_LIKE_2, x->c->seed, layer, head, QUERY_STREAM, KV_ELEM_F32};
    double condition;
    kv_rc rc;
    float *q = kv_alloc((size_t)QUERIES * (size_t)x->dim, sizeof *q);
    if (q == NULL) return KV_FAIL(x->err, KV_ENOMEM, "no memory for %d queries", QUERIES);
    memset(x->sums, 0, (size_t)(x->dim * x->dim) * sizeof *x->sums);
    KV_TRY(rc, out, kv_values_get(&x->r->values, &at, QUERIES, x->dim, q, x->err));
    kv_codec_whiten_sum(q, QUERIES, (int32_t)x->dim, x->sums);
    KV_TRY(rc, out,
           kv_codec_whiten_fit(x->sums, QUERIES, (int32_t)x->dim, KV_CODEC_WHITEN_RIDGE, x->l, x->inverse, &condition,
                               x->err));
out:
    kv_free(q);
    return rc;
}

/* All heads times their factor (backwards: its inverse), in place. */
static kv_rc whiten_layer(run *x, int64_t layer, float *values, bool backwards)
{
    kv_rc rc = KV_OK;
    for (int64_t h = 0; rc == KV_OK && h < x->heads; h++) {
        rc = fit_whitening(x, layer, h);
        if (rc != KV_OK) break;
        take_head(values, x, h, x->in);
        kv_codec_whiten_rows(backwards ? x->inverse : x->l, (int32_t)x->dim, x->in, x->tokens, x->out);
        put_head(x, h, x->out, values);
    }
    return rc;
}

static kv_rc store_rows(run *x, const float *in, int64_t rows, float *out)
{
    const kv_codec_point *p = x->p;
    if (p->method == KV_STORE_FP8) return kv_codec_store_fp8(in, rows, x->dim, out, &x->tally, x->err);
    if (p->method == KV_STORE_INT4_TOKEN) return kv_codec_store_int4(in, rows, x->dim, out, &x->tally, x->err);
    if (p->method == KV_STORE_ROTATION)
        return kv_codec_store_rotation(x->r->dev, in, rows, x->dim, kv_codec_point_bits(p), out, &x->tally, x->err);
    return kv_codec_store_lane(x->r->dev, &x->z.half, in, rows, out, NULL, &x->tally, x->err);
}

/* x->x of one layer to x->y. */
static kv_rc store_layer(run *x, int64_t layer)
{
    const int64_t n = x->tokens * x->heads * x->dim;
    float *work = x->x + n; /* whitened copy */
    kv_rc rc = KV_OK;
    if (x->skip[layer]) {
        kv_codec_through_bf16(x->x, n, x->y);
        return KV_OK;
    }
    memcpy(work, x->x, (size_t)n * sizeof *work);
    if (x->z.half.whitened) KV_TRY(rc, out, whiten_layer(x, layer, work, false));
    if (x->z.half.mixed_heads) KV_TRY(rc, out, store_rows(x, work, x->tokens * x->heads, x->y));
    for (int64_t h = 0; !x->z.half.mixed_heads && h < x->heads; h++) {
        take_head(work, x, h, x->in);
        KV_TRY(rc, out, store_rows(x, x->in, x->tokens, x->out));
        put_head(x, h, x->out, x->y);
    }
    if (x->z.half.whitened) KV_TRY(rc, out, whiten_layer(x, layer, x->y, true));
out:
    return rc;
}

/* ---- the cell ------------------------------------------------------------------------------- */

static kv_rc open_run(run *x)
{
    const int64_t most = x->g->head_dim > x->g->head_dim_v ? x->g->head_dim : x->g->head_dim_v;
    const size_t layer = (size_t)(x->tokens * x->heads), square = (size_t)(x->dim * x->dim);
    x->x = kv_alloc(2 * layer * (size_t)x->dim, sizeof *x->x);
    x->y = kv_alloc(layer * (size_t)x->dim, sizeof *x->y);
    x->in = kv_alloc((size_t)(x->tokens * most), sizeof *x->in);
    x->out = kv_alloc((size_t)(x->tokens * most), sizeof *x->out);
    x->other = kv_alloc(layer * (size_t)most, sizeof *x->other);
    x->skip = kv_alloc((size_t)x->g->layers, sizeof *x->skip);
    if (x->z.half.whitened) {
        x->l = kv_alloc(square, sizeof *x->l);
        x->inverse = kv_alloc(square, sizeof *x->inverse);
        x->sums = kv_alloc(square, sizeof *x->sums);
    }
    if (x->x == NULL || x->y == NULL || x->in == NULL || x->out == NULL || x->other == NULL || x->skip == NULL ||
        (x->z.half.whitened && (x->l == NULL || x->inverse == NULL || x->sums == NULL)))
        return KV_FAIL(x->err, KV_ENOMEM, "no memory for %" PRId64 " tokens of %" PRId64 " heads", x->tokens, x->heads);
    if (kv_store_method_recipe(x->p->method) >= 0)
        kv_codec_recipe_skip(kv_store_method_recipe(x->p->method), (int32_t)x->g->layers, x->skip);
    return KV_OK;
}

static void close_run(run *x)
{
    kv_free(x->x);
    kv_free(x->y);
    kv_free(x->in);
    kv_free(x->out);
    kv_free(x->other);
    kv_free(x->skip);
    kv_free(x->l);
    kv_free(x->inverse);
    kv_free(x->sums);
}

/* part / whole in parts per million; not a number where it cannot be said. */
static bool to_ppm(double part, double whole, int64_t *out)
{
    const double v = part / whole * 1e6;
    if (!(whole > 0) || !(fabs(v) < 0x1p53)) return false;
    *out = (int64_t)floor(v + 0.5);
    return true;
}

static void fill_row(run *x, kv_row *row)
{
    kv_row_codec *o = &row->codec;
    const distortion *d = &x->d;
    o->rows = x->z.rows;
    o->encoded_rows = x->tally.encoded_rows;
    o->blocks = x->tally.blocks;
    o->overflow_blocks = x->tally.overflow_blocks;
    o->outliers = x->tally.outliers;
    o->saturated = x->tally.saturated;
    o->plain_bytes = x->z.plain_bytes;
    o->stored_bytes = x->z.stored_bytes + o->overflow_blocks * (2 * x->z.half.slot.n * x->dim - x->z.slot_bytes);
    o->has_l2 = to_ppm(sqrt(d->error), sqrt(d->x), &o->l2_ppm);
    o->has_worst = to_ppm(d->worst, d->largest, &o->worst_ppm);
    o->has_cosine = d->y > 0 && to_ppm(d->xy, sqrt(d->x) * sqrt(d->y), &o->cosine_ppm);
    for (int k = 0; k < KV_DIGESTS; k++)
        for (int i = 0; i < 2; i++) kv_hash_final(&x->tally.digest[k][i], o->digest[k][i]);
    for (int k = 0; k < KV_DIGESTS; k++)
        row->observed[k] = memcmp(o->digest[k][0], o->digest[k][1], KV_HASH_BYTES) == 0;
    row->native_bytes[0] = o->plain_bytes;
    row->native_bytes[1] = o->stored_bytes;
}

static kv_rc run_layers(kv_runner *r, run *x, kv_row *row)
{
    const int64_t other_dim = x->p->stream == 0 ? x->g->head_dim_v : x->g->head_dim;
    kv_codec_tokens *tokens = NULL;
    kv_rc rc;
    if (x->p->payload->kind == KV_VALUES_FILE)
        KV_TRY(rc, out, kv_values_file_check(&x->c->codec.file[x->p->payload->file], x->err));
    KV_TRY(rc, out, open_run(x));
    KV_TRY(rc, out, kv_codec_tokens_new(r->dev, x->g, x->c->seed, &tokens, x->err));
    for (int64_t layer = 0; layer < x->g->layers; layer++) {
        KV_TRY(rc, out, make_layer(x, x->p->stream, layer, x->dim, x->in, x->x));
        KV_TRY(rc, out, make_layer(x, 1 - x->p->stream, layer, other_dim, x->in, x->other));
        KV_TRY(rc, out, store_layer(x, layer));
        measure(&x->d, x->x, x->y, x->tokens * x->heads * x->dim);
        const float *const plain[2] = {x->p->stream == 0 ? x->x : x->other, x->p->stream == 0 ? x->other : x->x};
        const float *const moved[2] = {x->p->stream == 0 ? x->y : x->other, x->p->stream == 0 ? x->other : x->y};
        KV_TRY(rc, out, kv_codec_tokens_layer(tokens, layer, moved, plain, x->err));
    }
    kv_codec_tokens_finish(tokens, row);
    fill_row(x, row);
out:
    kv_codec_tokens_free(tokens);
    close_run(x);
    return rc;
}

kv_verdict kv_codec_grade(bool refused, const int32_t observed[KV_OBS_COUNT])
{
    if (refused) return KV_VERDICT_REFUSED;
    for (int i = 0; i < KV_OBS_COUNT; i++)
        if (observed[i] == KV_NULL) return KV_VERDICT_UNPROVEN;
    return KV_VERDICT_NOT_EXACT;
}

kv_rc kv_codec_cell_run(kv_runner *r, const kv_campaign *c, const kv_codec_point *p, const kv_geometry *g, kv_row *row,
                        kv_err *err)
{
    run x = {.r = r, .c = c, .p = p, .g = g, .heads = g->kv_heads, .tokens = g->tokens, .err = err};
    kv_rc rc = kv_codec_size_of(&c->codec, p, g, &x.z, row->reason, err);
    if (rc != KV_OK) return rc;
    const bool refused = row->reason[0] != '\0';
    if (refused) {
        row->frontier = KV_X4_GEOMETRY_UNREPRESENTABLE;
    } else {
        x.dim = x.z.dim;
        kv_codec_tally_start(&x.tally);
        rc = run_layers(r, &x, row);
        row->ran = row->has_codec = rc == KV_OK;
    }
    row->verdict = (int32_t)kv_codec_grade(refused, row->observed);
    return rc;
}

/* ---- planning ------------------------------------------------------------------------------- */

/* Nanoseconds of one core for a value, measured (docs/measurements.md): made up, stored twice, decoded from. */
#define NS_VALUE 140

kv_rc kv_codec_cell_plan(const kv_codec_section *s, const kv_codec_point *p, const kv_geometry *g, kv_cell_need *out,
                         kv_err *err)
{
    char reason[KV_REASON_TEXT];
    kv_codec_size z;
    kv_rc rc = kv_codec_size_of(s, p, g, &z, reason, err);
    if (rc != KV_OK) return rc;
    memset(out, 0, sizeof *out);
    out->runs = reason[0] == '\0';
    if (!out->runs) return KV_OK;
    const int64_t layer = g->tokens * g->kv_heads * (g->head_dim + g->head_dim_v);
    out->bytes[0] = z.plain_bytes;
    out->bytes[1] = z.stored_bytes;
    const int64_t at_once = KV_CODEC_AT_ONCE * s->block < g->tokens ? KV_CODEC_AT_ONCE * s->block : g->tokens;
    out->peak_bytes = 4 * 8 * layer;
    if (kv_store_method_recipe(p->method) >= 0) out->peak_bytes += 8 * at_once * z.dim; /* values, room for outliers */
    kv_codec_memory batch = {0, 0};
    if (kv_store_method_recipe(p->method) >= 0)
        KV_TRY(rc, out,
               kv_codec_memory_lane(&z.half, z.half.mixed_heads ? g->tokens * g->kv_heads : g->tokens, &batch, err));
    else if (p->method == KV_STORE_ROTATION)
        KV_TRY(rc, out, kv_codec_memory_rotation(z.dim, kv_codec_point_bits(p), &batch, err));
    KV_TRY(rc, out, kv_codec_memory_note(g, g->tokens, &batch, out, err));
    out->moved_bytes = 4 * z.plain_bytes;
    out->cost = (uint64_t)(z.rows * z.dim) * NS_VALUE;
out:
    return rc;
}
