#include "grid/cell/kv_move_cell.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/cell/kv_codec_memory.h"
#include "grid/cell/kv_codec_pages.h"
#include "grid/cell/kv_codec_tokens.h"
#include "grid/cell/kv_sealed.h"
#include "kernels/kv_kern_payload.h"

#define GUARD KV_GUARD_BYTES
#define SEALED KV_CERT_PAYLOADS - 1 /* the payload that is real slots; those before it number and shuffle bytes */

/* ---- pools ---------------------------------------------------------------------------------- */

/* A pool with a guard on both sides. */
typedef struct {
    kv_pages pages;
    uint8_t *memory, *at; /* at: memory + GUARD */
} pool;

typedef struct {
    kv_device *dev;
    const kv_campaign *c;
    const kv_geometry *g;
    kv_sealed_shape z;
    pool side[2], third;      /* third: arranged as the destination, then as the source */
    uint8_t *sealed;          /* slots of one layer in canonical order */
    uint8_t *canonical;       /* of the payload at hand */
    float *head[2], *back[2]; /* rows of one head; [tokens][heads][dim] of a layer as stored, then as moved */
    float *plain[2];
    uint32_t round;
    kv_row *row;
    kv_err *err;
} run;

static kv_rc pool_open(run *x, kv_pages_kind kind, uint64_t seed, int64_t least, pool *out)
{
    const kv_rc rc = kv_pages_open(kind, x->z.blocks, x->g->kv_heads, x->z.slot, seed, &out->pages, x->err);
    if (rc != KV_OK) return rc;
    const int64_t bytes = out->pages.pool_bytes > least ? out->pages.pool_bytes : least;
    out->memory = kv_alloc_image((size_t)(bytes + 2 * GUARD));
    if (out->memory == NULL) return KV_FAIL(x->err, KV_ENOMEM, "no memory for %" PRId64 " bytes of pages", bytes);
    out->at = out->memory + GUARD;
    return KV_OK;
}

static uint8_t poison_byte(uint32_t round, int64_t i)
{
    return (uint8_t)(kv_payload_mix((uint64_t)round << 40 ^ (uint64_t)i) >> 24);
}

static void poison(const kv_pages *pages, uint8_t *memory, uint32_t round)
{
    const int64_t n = pages->pool_bytes + 2 * GUARD;
    for (int64_t i = 0; i < n; i++) memory[i] = poison_byte(round, i);
}

/* Whether the guards and all pages that are not the request's still hold the poison. */
static bool untouched(const kv_pages *pages, const uint8_t *memory, uint32_t round)
{
    const int64_t page = pages->heads * (pages->slot[0] + pages->slot[1]), n = pages->pool_bytes;
    for (int64_t i = 0; i < GUARD; i++)
        if (memory[i] != poison_byte(round, i) || memory[GUARD + n + i] != poison_byte(round, GUARD + n + i))
            return false;
    for (int64_t i = 0; i < n / page && pages->table != NULL; i++) {
        bool used = false;
        for (int64_t b = 0; b < pages->blocks; b++) used = used || pages->table[b] == i;
        for (int64_t k = i * page; !used && k < (i + 1) * page; k++)
            if (memory[GUARD + k] != poison_byte(round, GUARD + k)) return false;
    }
    return true;
}

/* Position by position: the pool that holds canonical[]. */
static void build(const kv_pages *p, const uint8_t *canonical, uint8_t *at)
{
    const int64_t n = kv_pages_positions(p);
    for (int64_t i = 0; i < n; i++) at[kv_pages_offset(p, i)] = canonical[kv_pages_inverse(p, i)];
}

/* Positions of one pool that differ from canonical[]. */
static int64_t differing(const kv_pages *p, const uint8_t *canonical, const uint8_t *at)
{
    const int64_t n = kv_pages_positions(p);
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += at[kv_pages_offset(p, i)] != canonical[kv_pages_inverse(p, i)];
    return bad;
}

/* ---- checks --------------------------------------------------------------------------------- */

/* Every position leads to a byte of its own and back; distinct positions stand at distinct places. */
static kv_rc probe(run *x, const kv_pages *p, int64_t *checked, int32_t *bijective)
{
    const int64_t n = kv_pages_positions(p);
    uint8_t *hit = kv_alloc((size_t)(n / 8 + 1), 1), *used = kv_alloc((size_t)(p->pool_bytes / 8 + 1), 1);
    bool good = hit != NULL && used != NULL;
    const bool room = good;
    *checked = 0;
    for (int64_t i = 0; room && i < n; i++, ++*checked) {
        const int64_t c = kv_pages_inverse(p, i), at = kv_pages_offset(p, i);
        if (c < 0 || c >= n || at < 0 || at >= p->pool_bytes || kv_pages_forward(p, c) != i) {
            good = false;
            continue;
        }
        good = good && !(hit[c / 8] >> c % 8 & 1) && !(used[at / 8] >> at % 8 & 1);
        hit[c / 8] = (uint8_t)(hit[c / 8] | 1U << c % 8);
        used[at / 8] = (uint8_t)(used[at / 8] | 1U << at % 8);
    }
    *bijective = good;
    kv_free(hit);
    kv_free(used);
    return room ? KV_OK : KV_FAIL(x->err, KV_ENOMEM, "no memory to probe %" PRId64 " positions", n);
}

/* Payload k in canonical order: digit k of the byte's number in base 256 (0..3), random bytes, the layer's slots. */
static void make_payload(run *x, int k, int64_t layer)
{
    const int64_t n = kv_pages_positions(&x->side[0].pages);
    for (int64_t i = 0; k < SEALED && i < n; i++) {
        const uint64_t h = kv_payload_mix(x->c->seed + (uint64_t)(layer * n + i));
        x->canonical[i] = k < 4 ? (uint8_t)((i >> 8 * k) ^ (k > 0 ? i & 255 : 0)) : (uint8_t)(h >> 17);
    }
    if (k == SEALED) memcpy(x->canonical, x->sealed, (size_t)n);
}

/* There, compared, back, compared. */
static void move_payload(run *x, bool *forward)
{
    const kv_pages *src = &x->side[0].pages, *dst = &x->side[1].pages;
    uint32_t there, back;
    poison(src, x->side[0].memory, x->round++);
    build(src, x->canonical, x->side[0].at);
    poison(dst, x->side[1].memory, there = x->round++);
    kv_pages_move(src, x->side[0].at, dst, x->side[1].at);
    *forward = *forward && differing(dst, x->canonical, x->side[1].at) == 0 && untouched(dst, x->side[1].memory, there);
    poison(src, x->third.memory, back = x->round++);
    kv_pages_move(dst, x->side[1].at, src, x->third.at);
    x->row->diff_positions += differing(src, x->canonical, x->third.at);
    *forward = *forward && untouched(src, x->third.memory, back);
}

/* ---- real slots and their tokens ------------------------------------------------------------ */

/* Seals the blocks of a layer: slots in canonical order, and the values that they decode to. */
static kv_rc seal_layer(run *x, int64_t layer)
{
    const int64_t tokens = x->z.blocks * x->z.half[0].slot.n, heads = x->g->kv_heads;
    const int64_t pair = x->z.slot[0] + x->z.slot[1];
    kv_rc rc = KV_OK;
    for (int kv = 0; kv < 2; kv++) {
        const int64_t dim = x->z.half[kv].slot.params.dim, slot = x->z.slot[kv];
        for (int64_t h = 0; h < heads; h++) {
            const kv_values_place at = {KV_VALUES_GAUSSIAN, x->c->seed, layer, h, kv, x->g->element};
            uint8_t *pages = kv_alloc((size_t)(x->z.blocks * slot), 1);
            if (pages == NULL) return KV_FAIL(x->err, KV_ENOMEM, "no memory for the slots of a head");
            rc = kv_sealed_make(x->dev, &x->z, &at, x->head[0], x->head[1], pages, x->err);
            for (int64_t b = 0; rc == KV_OK && b < x->z.blocks; b++)
                memcpy(x->sealed + (b * heads + h) * pair + (kv ? x->z.slot[0] : 0), pages + b * slot, (size_t)slot);
            for (int64_t t = 0; rc == KV_OK && t < tokens; t++)
                memcpy(x->plain[kv] + (t * heads + h) * dim, x->head[1] + t * dim, (size_t)dim * sizeof(float));
            kv_free(pages);
            if (rc != KV_OK) return rc;
        }
    }
    return rc;
}

/* Decodes the slots of one stream where they stand in the destination. */
static kv_rc read_stream(run *x, int kv)
{
    const int64_t n = x->z.block, heads = x->g->kv_heads, dim = x->z.half[kv].slot.params.dim;
    kv_sealed_reader *reader = NULL;
    kv_rc rc = kv_sealed_reader_new(x->dev, &x->z, kv, &reader, x->err);
    for (int64_t i = 0; rc == KV_OK && i < x->z.blocks * heads; i++) {
        const int64_t b = i / heads, h = i % heads;
        rc = kv_sealed_read(reader, x->side[1].at + kv_pages_slot_offset(&x->side[1].pages, b, h, kv), x->head[0],
                            x->err);
        for (int64_t t = 0; rc == KV_OK && t < n; t++)
            memcpy(x->back[kv] + ((b * n + t) * heads + h) * dim, x->head[0] + t * dim, (size_t)dim * sizeof(float));
    }
    kv_sealed_reader_free(reader);
    return rc;
}

/* A slot that the move has spoilt cannot be read: then the tokens are not those of before. */
static kv_rc read_moved(run *x, bool *readable)
{
    kv_err why = {0}, *err = x->err;
    kv_rc rc = KV_OK;
    x->err = &why;
    for (int kv = 0; rc == KV_OK && kv < 2; kv++) rc = read_stream(x, kv);
    x->err = err;
    if (rc == KV_ENOMEM) return KV_FAIL(err, rc, "%s", why.text);
    if (rc != KV_OK) *readable = false;
    return KV_OK;
}

/* ---- the cell ------------------------------------------------------------------------------- */

static kv_rc open_run(run *x, const kv_move_point *p)
{
    const int64_t tokens = x->z.blocks * x->z.half[0].slot.n;
    const int64_t most = x->g->head_dim > x->g->head_dim_v ? x->g->head_dim : x->g->head_dim_v;
    kv_rc rc;
    KV_TRY(rc, out, pool_open(x, p->src, x->c->seed, 0, &x->side[0]));
    KV_TRY(rc, out, pool_open(x, p->dst, x->c->seed + 1, 0, &x->side[1]));
    KV_TRY(rc, out, pool_open(x, p->src, x->c->seed, x->side[1].pages.pool_bytes, &x->third));
    x->sealed = kv_alloc((size_t)kv_pages_positions(&x->side[0].pages), 1);
    x->canonical = kv_alloc((size_t)kv_pages_positions(&x->side[0].pages), 1);
    bool room = x->sealed != NULL && x->canonical != NULL;
    for (int i = 0; i < 2; i++) {
        const size_t values = (size_t)(tokens * x->g->kv_heads * x->z.half[i].slot.params.dim);
        x->head[i] = kv_alloc((size_t)(tokens * most), sizeof(float));
        x->plain[i] = kv_alloc(values, sizeof(float));
        x->back[i] = kv_alloc(values, sizeof(float));
        room = room && x->head[i] != NULL && x->plain[i] != NULL && x->back[i] != NULL;
    }
    if (!room) rc = KV_FAIL(x->err, KV_ENOMEM, "no memory for %" PRId64 " sealed tokens", tokens);
out:
    return rc;
}

static void close_run(run *x)
{
    pool *const pools[] = {&x->side[0], &x->side[1], &x->third};
    for (int i = 0; i < 3; i++) {
        kv_pages_close(&pools[i]->pages);
        kv_free(pools[i]->memory);
    }
    kv_free(x->sealed);
    kv_free(x->canonical);
    for (int i = 0; i < 2; i++) {
        kv_free(x->head[i]);
        kv_free(x->plain[i]);
        kv_free(x->back[i]);
    }
}

static kv_rc run_layers(kv_runner *r, run *x)
{
    kv_geometry g = *x->g;
    kv_codec_tokens *tokens = NULL;
    kv_row *row = x->row;
    bool forward = true, readable = true;
    kv_rc rc;
    g.tokens = x->z.blocks * x->z.half[0].slot.n;
    KV_TRY(rc, out, kv_codec_tokens_new(r->dev, &g, x->c->seed, &tokens, x->err));
    KV_TRY(rc, out, probe(x, &x->side[0].pages, &row->source_checked, &row->source_bijective));
    KV_TRY(rc, out, probe(x, &x->side[1].pages, &row->checked, &row->dest_bijective));
    for (int64_t layer = 0; layer < g.layers; layer++) {
        KV_TRY(rc, out, seal_layer(x, layer));
        for (int k = 0; k < KV_CERT_PAYLOADS; k++) { /* the sealed slots last: they are what is decoded */
            make_payload(x, k, layer);
            move_payload(x, &forward);
        }
        KV_TRY(rc, out, read_moved(x, &readable));
        const float *const moved[2] = {x->back[0], x->back[1]}, *const plain[2] = {x->plain[0], x->plain[1]};
        KV_TRY(rc, out, kv_codec_tokens_layer(tokens, layer, moved, plain, x->err));
    }
    kv_codec_tokens_finish(tokens, row);
    if (!readable) row->observed[KV_OBS_TOKENS] = KV_FALSE;
    row->gather_agrees = forward;
    row->observed[KV_OBS_FORWARD] = forward && row->source_bijective && row->dest_bijective;
    row->observed[KV_OBS_IDENTICAL] = row->diff_positions == 0;
    row->observed[KV_OBS_DIFF_IS_PADDING] = row->diff_positions == 0; /* sealed pages have no padding */
out:
    kv_codec_tokens_free(tokens);
    return rc;
}

static uint32_t words_of(const kv_move_point *p)
{
    const kv_pages_kind a = p->src, b = p->dst;
    uint32_t w = 0;
    if ((a == KV_PAGES_HEAD_MAJOR) != (b == KV_PAGES_HEAD_MAJOR)) w |= (uint32_t)1 << KV_W_HEAD_ORDER_TRANSPOSE;
    if (a == KV_PAGES_KV_POOLS) w |= (uint32_t)1 << KV_W_KV_MERGE;
    if (b == KV_PAGES_KV_POOLS) w |= (uint32_t)1 << KV_W_KV_SPLIT;
    if ((a == KV_PAGES_TABLE) != (b == KV_PAGES_TABLE)) w |= (uint32_t)1 << KV_W_PAGE_REMAP;
    return w;
}

kv_rc kv_move_cell_run(kv_runner *r, const kv_campaign *c, const kv_move_point *p, const kv_geometry *g, kv_row *row,
                       kv_err *err)
{
    run x = {.dev = r->dev, .c = c, .g = g, .row = row, .err = err};
    row->words = words_of(p);
    kv_rc rc = kv_sealed_shape_of(p->method, c->codec.block, g, &x.z, row->reason, err);
    if (rc != KV_OK) return rc;
    if (row->reason[0] != '\0') {
        row->frontier = KV_X4_GEOMETRY_UNREPRESENTABLE;
        row->verdict = KV_VERDICT_REFUSED;
        return KV_OK;
    }
    rc = open_run(&x, p);
    if (rc == KV_OK) rc = run_layers(r, &x);
    if (rc == KV_OK) {
        row->ran = true;
        row->unit_layers = 1;
        row->layers = g->layers;
        row->native_bytes[0] = row->source_total = kv_pages_positions(&x.side[0].pages);
        row->native_bytes[1] = row->total = kv_pages_positions(&x.side[1].pages);
        row->gather_payloads = KV_CERT_PAYLOADS;
        row->verdict = (int32_t)kv_grade(false, false, false, row->observed);
    }
    close_run(&x);
    return rc;
}

/* ---- planning ------------------------------------------------------------------------------- */

#define NS_BYTE 22   /* of a page: probed, and moved with six payloads */
#define NS_VALUE 180 /* sealed, read back, decoded from */

kv_rc kv_move_cell_plan(const kv_codec_section *s, const kv_move_point *p, const kv_geometry *g, kv_cell_need *out,
                        kv_err *err)
{
    char reason[KV_REASON_TEXT] = "";
    kv_sealed_shape z;
    kv_codec_memory most = {0, 0};
    kv_rc rc = kv_sealed_shape_of(p->method, s->block, g, &z, reason, err);
    if (rc != KV_OK) return rc;
    memset(out, 0, sizeof *out);
    out->runs = reason[0] == '\0';
    if (!out->runs) return KV_OK;
    const int64_t bytes = z.blocks * g->kv_heads * (z.slot[0] + z.slot[1]);
    const int64_t values = z.blocks * s->block * g->kv_heads * (g->head_dim + g->head_dim_v);
    for (int i = 0; i < 2; i++) out->positions[i] = out->bytes[i] = bytes;
    out->peak_bytes = 8 * bytes + 16 * values; /* pools and slots; values as stored, as moved, of the token leg */
    for (int kv = 0; kv < 2; kv++) {
        kv_codec_memory one;
        KV_TRY(rc, out, kv_codec_memory_lane(&z.half[kv], z.blocks * z.block, &one, err));
        if (one.whole > most.whole) most = one;
    }
    KV_TRY(rc, out, kv_codec_memory_note(g, z.blocks * z.block, &most, out, err));
    out->moved_bytes = 12 * bytes * g->layers;
    out->cost = (uint64_t)(g->layers * (bytes * NS_BYTE + values * NS_VALUE));
out:
    return rc;
}
