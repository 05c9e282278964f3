#include "kernels/codec/kv_codec_stream.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/codec/kv_codec_stream_int.h"

kv_rc kv_stream_grow(void **p, int64_t *cap, int64_t want, int64_t size, kv_err *err)
{
    if (want <= *cap) return KV_OK;
    int64_t room = *cap > 0 ? *cap : 1;
    while (room < want && room <= INT64_MAX / 2) room *= 2;
    void *more = room >= want ? kv_realloc(*p, (size_t)room, (size_t)size) : NULL;
    if (more == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " x %" PRId64 " bytes", want, size);
    *p = more;
    *cap = room;
    return KV_OK;
}

/* ---- life ------------------------------------------------------------------------------- */

static kv_rc check_config(const kv_codec_stream_config *c, kv_err *err)
{
    if (c->layers < 1 || c->layers > KV_CODEC_LAYERS_MAX || c->heads < 1)
        return KV_FAIL(err, KV_EINVAL, "no stream of %d layers and %d heads", c->layers, c->heads);
    if (c->element != KV_ELEM_F16 && c->element != KV_ELEM_BF16 && c->element != KV_ELEM_F32)
        return KV_FAIL(err, KV_EINVAL, "element %s: the codec takes f16, bf16 and f32", kv_elem_name(c->element));
    for (int h = 0; h < KV_CODEC_HALVES; h++) {
        const kv_codec_half_config *f = &c->half[h];
        if (!c->has[h]) continue;
        if (f->group < 0 || f->slot.shared != (f->group != 1))
            return KV_FAIL(err, KV_EINVAL, "a group of %d blocks with%s shared basis", f->group,
                           f->slot.shared ? "" : "out");
        if (f->fit.solver == KV_CODEC_SOLVER_LAPACK && !kv_codec_has_lapack())
            return KV_FAIL(err, KV_EUNSUP, "this build has no LAPACKE; use our own solver (--pca own)");
        if (f->whitened && c->whiten != NULL &&
            (c->whiten->layers != c->layers || c->whiten->heads != c->heads || c->whiten->dim != f->slot.params.dim))
            return KV_FAIL(err, KV_EINVAL,
                           "whitening factors of %d layers, %d heads, head_dim %d for %d layers, %d heads, head_dim %d",
                           c->whiten->layers, c->whiten->heads, c->whiten->dim, c->layers, c->heads,
                           f->slot.params.dim);
    }
    return KV_OK;
}

static kv_rc start_half(kv_half_work *w, const kv_codec_half_config *h, kv_elem element, kv_err *err)
{
    kv_codec_params room = h->slot.params; /* an unpacked slot needs room for outliers where it has a part for them */
    kv_rc rc;
    room.outliers = room.outliers || h->slot.budget_ppm > 0;
    KV_TRY(rc, out, kv_codec_slot_sizes(&h->slot, &w->sizes, err));
    w->page_bytes = h->slot.shared ? kv_codec_page_bytes(&h->slot) : 0;
    w->row_bytes = h->slot.params.dim * kv_elem_bytes(element);
    KV_TRY(rc, out, kv_codec_skeleton_new(&room, &w->skeleton, err));
    KV_TRY(rc, out, kv_codec_codes_new(&room, h->slot.n, false, &w->codes, err));
    KV_TRY(rc, out, kv_codec_work_new(&h->slot.params, &w->skeleton, &w->work, err));
    w->block = kv_alloc((size_t)h->slot.n * (size_t)h->slot.params.dim, sizeof *w->block);
    w->unwhite = kv_alloc((size_t)h->slot.params.dim, sizeof *w->unwhite);
    if (w->block == NULL || w->unwhite == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for a block of the codec");
out:
    return rc;
}

kv_rc kv_codec_stream_new(const kv_codec_stream_config *c, kv_codec_stream **out, kv_err *err)
{
    kv_rc rc = check_config(c, err);
    if (rc != KV_OK) return rc;
    kv_codec_stream *s = kv_alloc(1, sizeof *s);
    if (s == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a stream");
    s->c = *c;
    s->variant = c->variant != NULL ? c->variant : kv_codec_best();
    s->skip = kv_alloc((size_t)c->layers, sizeof *s->skip);
    if (s->skip == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for %d layers", c->layers);
    if (rc == KV_OK && c->skip != NULL) memcpy(s->skip, c->skip, (size_t)c->layers * sizeof *s->skip);
    for (int h = 0; rc == KV_OK && h < KV_CODEC_HALVES; h++)
        if (c->has[h]) rc = start_half(&s->half[h], &c->half[h], c->element, err);
    s->c.skip = s->skip;
    if (rc == KV_OK)
        *out = s;
    else
        kv_codec_stream_free(s);
    return rc;
}

static void free_sequence(const kv_codec_stream *s, kv_sequence *q)
{
    for (int64_t p = 0; q->plane != NULL && p < (int64_t)s->c.layers * KV_CODEC_HALVES; p++) {
        kv_lane *lane = q->plane[p].lane;
        const int64_t lanes = kv_codec_lanes(&s->c.half[p % KV_CODEC_HALVES], s->c.heads);
        for (int64_t i = 0; lane != NULL && i < lanes; i++) {
            kv_free(lane[i].sealed);
            kv_free(lane[i].stage);
        }
        kv_free(lane);
    }
    kv_free(q->plane);
}

void kv_codec_stream_free(kv_codec_stream *s)
{
    if (s == NULL) return;
    for (int64_t i = 0; i < s->n_sequences; i++) free_sequence(s, &s->sequence[i]);
    for (int h = 0; h < KV_CODEC_HALVES; h++) {
        kv_half_work *w = &s->half[h];
        kv_codec_skeleton_free(&w->skeleton);
        kv_codec_codes_free(&w->codes);
        kv_codec_work_free(w->work);
        kv_free(w->block);
        kv_free(w->rows);
        kv_free(w->unwhite);
    }
    kv_free(s->sequence);
    kv_free(s->skip);
    kv_free(s);
}

/* ---- sequences -------------------------------------------------------------------------- */

/* The first sequence with an id of at least `id`. */
static int64_t place_of(const kv_codec_stream *s, uint64_t id)
{
    int64_t lo = 0, hi = s->n_sequences;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (s->sequence[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static kv_plane *find_plane(const kv_codec_stream *s, uint64_t id, int32_t layer, int32_t half)
{
    const int64_t i = place_of(s, id);
    if (i == s->n_sequences || s->sequence[i].id != id) return NULL;
    kv_plane *p = &s->sequence[i].plane[(int64_t)layer * KV_CODEC_HALVES + half];
    return p->lane != NULL ? p : NULL;
}

const kv_lane *kv_stream_lane_of(const kv_codec_stream *s, uint64_t id, int32_t layer, int32_t half, int64_t lane)
{
    return &find_plane(s, id, layer, half)->lane[lane];
}

static kv_rc check_place(const kv_codec_stream *s, int32_t layer, int32_t half, kv_err *err)
{
    if (layer < 0 || layer >= s->c.layers || half < 0 || half >= KV_CODEC_HALVES || !s->c.has[half])
        return KV_FAIL(err, KV_EINVAL, "layer %d of %d, stream %d: not in this stream's configuration", layer,
                       s->c.layers, half);
    return KV_OK;
}

static kv_rc new_sequence(kv_codec_stream *s, int64_t i, uint64_t id, kv_err *err)
{
    kv_sequence q = {.id = id};
    void *list = s->sequence;
    kv_rc rc = kv_stream_grow(&list, &s->sequences_cap, s->n_sequences + 1, sizeof *s->sequence, err);
    s->sequence = list;
    if (rc != KV_OK) return rc;
    q.plane = kv_alloc((size_t)s->c.layers * KV_CODEC_HALVES, sizeof *q.plane);
    if (q.plane == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a sequence");
    memmove(&s->sequence[i + 1], &s->sequence[i], (size_t)(s->n_sequences - i) * sizeof *s->sequence);
    s->sequence[i] = q;
    s->n_sequences++;
    return KV_OK;
}

/* The plane, made where it is new. */
static kv_rc need_plane(kv_codec_stream *s, uint64_t id, int32_t layer, int32_t half, kv_plane **out, kv_err *err)
{
    kv_rc rc = check_place(s, layer, half, err);
    if (rc != KV_OK) return rc;
    const int64_t i = place_of(s, id);
    if (i == s->n_sequences || s->sequence[i].id != id) rc = new_sequence(s, i, id, err);
    if (rc != KV_OK) return rc;
    kv_plane *p = &s->sequence[i].plane[(int64_t)layer * KV_CODEC_HALVES + half];
    if (p->lane == NULL) p->lane = kv_alloc((size_t)kv_codec_lanes(&s->c.half[half], s->c.heads), sizeof *p->lane);
    if (p->lane == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the lanes of a sequence");
    *out = p;
    return KV_OK;
}

void kv_codec_stream_drop(kv_codec_stream *s, uint64_t sequence)
{
    const int64_t i = place_of(s, sequence);
    if (i == s->n_sequences || s->sequence[i].id != sequence) return;
    free_sequence(s, &s->sequence[i]);
    memmove(&s->sequence[i], &s->sequence[i + 1], (size_t)(s->n_sequences - i - 1) * sizeof *s->sequence);
    s->n_sequences--;
}

int64_t kv_codec_stream_tokens(const kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half)
{
    const kv_plane *p = check_place(s, layer, half, NULL) == KV_OK ? find_plane(s, sequence, layer, half) : NULL;
    return p != NULL ? p->tokens : 0;
}

const kv_codec_stream_stats *kv_codec_stream_stats_view(const kv_codec_stream *s, int32_t half)
{
    return &s->half[half].stats;
}

/* ---- tokens in -------------------------------------------------------------------------- */

static kv_rc grow_stages(kv_codec_stream *s, kv_plane *p, int32_t half, int64_t rows, kv_err *err)
{
    const int64_t lanes = kv_codec_lanes(&s->c.half[half], s->c.heads);
    kv_rc rc = KV_OK;
    for (int64_t i = 0; rc == KV_OK && i < lanes; i++) {
        void *stage = p->lane[i].stage;
        rc = kv_stream_grow(&stage, &p->lane[i].stage_cap, p->lane[i].staged + rows, s->half[half].row_bytes, err);
        p->lane[i].stage = stage;
    }
    return rc;
}

/* Seals every group that is full; at the end also what is left of full blocks. */
static kv_rc seal_ready(kv_codec_stream *s, kv_plane *p, int32_t layer, int32_t half, kv_err *err)
{
    const kv_codec_half_config *h = &s->c.half[half];
    kv_rc rc = KV_OK;
    if (s->skip[layer]) return KV_OK;
    for (int64_t i = 0; rc == KV_OK && i < kv_codec_lanes(h, s->c.heads); i++) {
        kv_lane *lane = &p->lane[i];
        const kv_lane_place at = {layer, half, i};
        while (rc == KV_OK && kv_codec_group_full(h, lane->staged / h->slot.n))
            rc = kv_stream_seal(s, lane, at, h->group, err);
        if (rc == KV_OK && p->finished && lane->staged >= h->slot.n)
            rc = kv_stream_seal(s, lane, at, lane->staged / h->slot.n, err);
    }
    return rc;
}

static kv_rc append(kv_codec_stream *s, kv_plane *p, int32_t half, const uint8_t *from, int64_t tokens, kv_err *err)
{
    const bool mixed = s->c.half[half].mixed_heads;
    const int64_t size = s->half[half].row_bytes;
    const kv_rc rc = grow_stages(s, p, half, mixed ? tokens * s->c.heads : tokens, err);
    if (rc != KV_OK) return rc;
    for (int64_t t = 0; t < tokens; t++)
        for (int32_t head = 0; head < s->c.heads; head++, from += size) {
            kv_lane *lane = &p->lane[mixed ? 0 : head];
            memcpy(lane->stage + lane->staged++ * size, from, (size_t)size);
        }
    p->tokens += tokens;
    return KV_OK;
}

kv_rc kv_codec_stream_put(kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half, const void *rows,
                          int64_t tokens, kv_err *err)
{
    kv_plane *p = NULL;
    kv_rc rc;
    KV_TRY(rc, out, need_plane(s, sequence, layer, half, &p, err));
    if (p->finished || tokens < 0 || tokens > INT64_MAX / 2 / s->c.heads / s->half[half].row_bytes)
        return KV_FAIL(err, KV_EINVAL, "layer %d, %s: %" PRId64 " tokens cannot be put to a sequence that is %s", layer,
                       kv_codec_half_name(half), tokens, p->finished ? "finished" : "open");
    /* Piece by piece, so that a long call moves no more memory than many short ones. */
    const uint8_t *from = rows;
    for (int64_t t = 0, now; t < tokens; t += now) {
        now = tokens - t < s->c.half[half].slot.n ? tokens - t : s->c.half[half].slot.n;
        const kv_rc room = append(s, p, half, from + t * s->c.heads * s->half[half].row_bytes, now, err);
        if (room != KV_OK) return room;
        if (rc == KV_OK) rc = seal_ready(s, p, layer, half, err);
    }
out:
    return rc;
}

kv_rc kv_codec_stream_finish(kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half, kv_err *err)
{
    kv_plane *p = NULL;
    kv_rc rc = need_plane(s, sequence, layer, half, &p, err);
    if (rc != KV_OK) return rc;
    p->finished = true;
    return seal_ready(s, p, layer, half, err);
}

/* ---- lanes out and in ------------------------------------------------------------------- */

kv_rc kv_codec_stream_lane(const kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half, int64_t lane,
                           kv_codec_lane_view *out, kv_err *err)
{
    const kv_rc rc = check_place(s, layer, half, err);
    if (rc != KV_OK) return rc;
    const kv_plane *p = find_plane(s, sequence, layer, half);
    if (p == NULL || lane < 0 || lane >= kv_codec_lanes(&s->c.half[half], s->c.heads))
        return KV_FAIL(err, KV_EINVAL, "sequence %" PRIu64 " has no lane %" PRId64 " of layer %d", sequence, lane,
                       layer);
    const kv_lane *l = &p->lane[lane];
    *out = (kv_codec_lane_view){l->sealed, l->sealed_bytes, l->blocks, l->stage, l->staged};
    return KV_OK;
}

void kv_codec_stream_sealed(const kv_codec_stream *s, int32_t layer, int32_t half, int64_t rows, int64_t *bytes,
                            int64_t *blocks)
{
    const kv_codec_half_config *h = &s->c.half[half];
    const kv_half_work *w = &s->half[half];
    *blocks = s->skip[layer] ? 0 : rows / h->slot.n;
    const int64_t groups = h->group == KV_CODEC_GROUP_ALL ? (*blocks > 0 ? 1 : 0) : (*blocks + h->group - 1) / h->group;
    *bytes = *blocks * w->sizes.total + groups * w->page_bytes;
}

kv_rc kv_codec_stream_load(kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half, int64_t lane,
                           int64_t rows, const void *sealed, int64_t sealed_bytes, const void *tail, kv_err *err)
{
    kv_plane *p = NULL;
    int64_t bytes, blocks;
    kv_rc rc = need_plane(s, sequence, layer, half, &p, err);
    if (rc != KV_OK) return rc;
    const kv_codec_half_config *h = &s->c.half[half];
    kv_codec_stream_sealed(s, layer, half, rows, &bytes, &blocks);
    if (lane < 0 || lane >= kv_codec_lanes(h, s->c.heads) || rows < 0 || bytes != sealed_bytes)
        return KV_FAIL(err, KV_EFORMAT, "lane %" PRId64 ": %" PRId64 " sealed bytes, %" PRId64 " were expected", lane,
                       sealed_bytes, bytes);
    kv_lane *l = &p->lane[lane];
    const int64_t left = rows - blocks * h->slot.n;
    void *to = l->sealed, *stage = l->stage;
    rc = kv_stream_grow(&to, &l->sealed_cap, bytes, 1, err);
    l->sealed = to;
    if (rc == KV_OK) rc = kv_stream_grow(&stage, &l->stage_cap, left, s->half[half].row_bytes, err);
    l->stage = stage;
    if (rc != KV_OK) return rc;
    if (bytes > 0) memcpy(l->sealed, sealed, (size_t)bytes);
    if (left > 0) memcpy(l->stage, tail, (size_t)(left * s->half[half].row_bytes));
    l->sealed_bytes = bytes;
    l->blocks = blocks;
    l->staged = left;
    p->tokens = h->mixed_heads ? rows / s->c.heads : rows;
    p->finished = true;
    return KV_OK;
}
