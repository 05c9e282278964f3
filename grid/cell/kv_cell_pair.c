/* A cell of check "pair": probe both native spaces, move every payload there and back, decode through the destination,
 * grade. All of it is asked for first and looked at afterwards, so that a GPU is never waited for in between. Memory: three
 * images (source, destination, third) of one unit, or, where that is too much, of a window of its tokens
 * (kv_cell_windows.h), and two bits a position. */
#include "grid/cell/kv_cell_pair.h"

#include <inttypes.h>
#include <string.h>

#include "grid/cell/kv_cell_windows.h"
#include "kernels/kv_kern_num.h"

/* Something that the device was asked for, and what it says. */
typedef enum { AT_PAYLOAD, AT_TOKENS, FORWARD, GATHER, FORWARD_AND_GATHER, ROUND_TRIP, DRIFT } finding_kind;
typedef struct {
    finding_kind kind;
    union {
        kv_guards_result guards; /* AT_PAYLOAD, AT_TOKENS: after a translation */
        kv_compare_result compare;
        kv_diffset_result diff;
        kv_drift_result drift;
    } is;
} finding;

#define FINDINGS 1024 /* before they are looked at */

/* Everything one cell works with. */
typedef struct kv_cell_asked {
    kv_runner *r;
    const kv_campaign *c;
    const kv_cell *cell;
    const kv_geometry *g;
    kv_windows windows;
    kv_index ix[2];      /* source, destination: bound to the window at hand */
    int64_t first_token; /* of that window */
    kv_image *image[2], *third;
    kv_diffset *diffs, *set[2]; /* that of the window at hand; of all windows but the last, of the last */
    kv_row *row;
    uint32_t stale, fill, fill_back; /* source tail, destination tail, source tail after the way back */
    uint32_t round;                  /* numbers the poison patterns */
    finding *found;                  /* FINDINGS */
    size_t n_found;
    kv_probe_result probed[2];
    kv_decode_result *decoded;     /* of each layer of the model */
    bool forward, gather, outside; /* found so far; outside: a round trip differs where an element is */
    bool overrun;                  /* the token payload's translation wrote outside */
    bool refused;
    kv_err *err;
} run;

#define OPS (x->r->dev->ops)
#define DEV (x->r->dev)

/* Goes on with window n. */
static void enter(run *x, int64_t n)
{
    memcpy(x->ix, kv_windows_at(&x->windows, n), sizeof x->ix);
    x->first_token = kv_windows_first(&x->windows, n);
    x->diffs = x->set[n + 1 == x->windows.count];
}

/* ---- what was found --------------------------------------------------------------------- */

static void look_at(run *x, const finding *f)
{
    const kv_drift_result *d = &f->is.drift;
    switch (f->kind) {
    case AT_PAYLOAD:
        x->forward = x->forward && kv_guards_whole(&f->is.guards);
        x->gather = x->gather && kv_guards_whole(&f->is.guards);
        break;
    case AT_TOKENS: x->overrun = x->overrun || !kv_guards_whole(&f->is.guards); break;
    case FORWARD: x->forward = x->forward && f->is.compare.differing == 0; break;
    case GATHER: x->gather = x->gather && f->is.compare.differing == 0; break;
    case FORWARD_AND_GATHER:
        x->forward = x->forward && f->is.compare.differing == 0;
        x->gather = x->gather && f->is.compare.differing == 0;
        break;
    case ROUND_TRIP:
        x->row->diff_positions += f->is.diff.differing;
        x->outside = x->outside || f->is.diff.outside_padding != 0;
        break;
    case DRIFT:
        x->row->values_preserved = x->row->values_preserved && d->preserved;
        x->row->finite = x->row->finite && d->finite;
        if (d->worst_ppm > x->row->worst_ppm) x->row->worst_ppm = d->worst_ppm;
        break;
    }
}

static void look_at_all(run *x)
{
    for (size_t i = 0; i < x->n_found; i++) look_at(x, &x->found[i]);
    x->n_found = 0;
}

/* The next finding, for the device to fill in. */
static kv_rc next_finding(run *x, finding_kind kind, finding **out)
{
    if (x->n_found == FINDINGS) {
        const kv_rc rc = OPS->finish(DEV, x->err);
        if (rc != KV_OK) return rc;
        look_at_all(x);
    }
    *out = &x->found[x->n_found++];
    (*out)->kind = kind;
    return KV_OK;
}

/* ---- the unit's payloads ---------------------------------------------------------------- */

static kv_payload payload_of(const run *x, int32_t kind, int64_t first_layer)
{
    const kv_geometry *g = x->g;
    kv_payload p = {.seed = x->c->seed,
                    .tokens = g->tokens,
                    .kv_heads = g->kv_heads,
                    .lanes = {g->head_dim, g->head_dim_v},
                    .first_layer = first_layer,
                    .first_head = x->ix[0].first_head,
                    .first_token = x->first_token,
                    .kind = kind,
                    .element = (int32_t)g->element};
    return p;
}

static kv_rc build_source(run *x, const kv_payload *p)
{
    kv_rc rc = OPS->poison(DEV, x->image[0], kv_index_bytes(&x->ix[0]), x->round++, x->err);
    if (rc != KV_OK) return rc;
    return OPS->build(DEV, x->image[0], &x->ix[0], p, x->ix[0].element, x->stale, x->err);
}

/* A translation into a poisoned image with guards. */
static kv_rc translate(run *x, finding_kind kind, int from, kv_image *src, int to, kv_image *dst, uint32_t fill)
{
    finding *f;
    kv_rc rc;
    KV_TRY(rc, out, OPS->poison(DEV, dst, kv_index_bytes(&x->ix[to]), x->round++, x->err));
    KV_TRY(rc, out, OPS->translate(DEV, &x->ix[from], src, &x->ix[to], dst, fill, x->err));
    KV_TRY(rc, out, next_finding(x, kind, &f));
    rc = OPS->guards(DEV, dst, &f->is.guards, x->err);
out:
    return rc;
}

/* Against the destination's own image of the payload, its values passed through element type `via`. */
static kv_rc compare(run *x, finding_kind kind, const kv_payload *p, int32_t via)
{
    finding *f;
    kv_rc rc;
    KV_TRY(rc, out, OPS->poison(DEV, x->third, kv_index_bytes(&x->ix[1]), x->round++, x->err));
    KV_TRY(rc, out, OPS->build(DEV, x->third, &x->ix[1], p, via, x->fill, x->err));
    KV_TRY(rc, out, next_finding(x, kind, &f));
    rc = OPS->compare(DEV, &x->ix[1], x->image[1], x->third, &f->is.compare, x->err);
out:
    return rc;
}

static kv_rc move_payload(run *x, int32_t kind, int64_t first_layer)
{
    const kv_payload p = payload_of(x, kind, first_layer);
    const bool twice = x->ix[0].element != (int32_t)x->g->element;
    kv_rc rc;
    KV_TRY(rc, out, build_source(x, &p));
    KV_TRY(rc, out, translate(x, AT_PAYLOAD, 0, x->image[0], 1, x->image[1], x->fill));
    KV_TRY(rc, out, compare(x, twice ? FORWARD : FORWARD_AND_GATHER, &p, (int32_t)x->g->element));
    if (twice) KV_TRY(rc, out, compare(x, GATHER, &p, x->ix[0].element));
    KV_TRY(rc, out, translate(x, AT_PAYLOAD, 1, x->image[1], 0, x->third, x->fill_back));
    rc = OPS->diffset_add(DEV, x->diffs, x->third, x->image[0], x->err);
out:
    return rc;
}

/* ---- the token leg ---------------------------------------------------------------------- */

typedef struct kv_reference {
    int64_t geometry, first_head, heads;
    int32_t halves; /* a latent row decodes otherwise than one head */
    uint64_t seed;
    kv_decode_result *asked; /* of each layer, until it was looked at; then NULL */
    int32_t tokens[KV_DECODE_STEPS];
    char digest[KV_HASH_HEX];
} kv_reference;

/* The decode of the canonical tensor itself that belongs to a pair: by geometry and heads, not by layouts. */
static kv_reference *reference_of(const run *x)
{
    const kv_runner *r = x->r;
    const kv_index *ix = &x->windows.whole[0];
    for (size_t i = 0; i < r->n_references; i++) {
        kv_reference *k = &r->references[i];
        if (k->geometry == x->cell->geometry && k->first_head == ix->first_head && k->heads == ix->heads &&
            k->halves == ix->halves && k->seed == x->c->seed)
            return k;
    }
    return NULL;
}

/* Asks for it, all layers; remembered for the next pair of the same geometry and heads. */
static kv_rc ask_reference(run *x)
{
    kv_runner *r = x->r;
    const kv_index *ix = &x->windows.whole[0];
    kv_rc rc = KV_OK;
    x->first_token = 0;
    if (reference_of(x) != NULL) return KV_OK;
    kv_reference *grown = kv_realloc(r->references, r->n_references + 1, sizeof *grown);
    if (grown == NULL) return KV_FAIL(x->err, KV_ENOMEM, "no memory for a reference decode");
    r->references = grown;
    kv_decode_result *asked = kv_alloc((size_t)x->g->layers, sizeof *asked);
    if (asked == NULL) return KV_FAIL(x->err, KV_ENOMEM, "no memory for a reference decode");
    grown[r->n_references++] = (kv_reference){.geometry = x->cell->geometry,
                                              .first_head = ix->first_head,
                                              .heads = ix->heads,
                                              .halves = ix->halves,
                                              .seed = x->c->seed,
                                              .asked = asked};
    for (int64_t layer = 0; layer < x->g->layers && rc == KV_OK; layer++) {
        const kv_payload p = payload_of(x, KV_PAYLOAD_TOKENS, layer);
        rc = OPS->decode_reference(DEV, ix, &p, x->c->seed, layer, x->third, &asked[layer], x->err);
    }
    return rc;
}

/* Forgets references that were asked for and not looked at: what was to tell them failed. */
void kv_cell_forget(kv_runner *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->n_references; i++) {
        kv_free(r->references[i].asked);
        if (r->references[i].asked == NULL) r->references[kept++] = r->references[i];
    }
    r->n_references = kept;
}

static void digest(const kv_decode_result *d, int64_t layers, int32_t tokens[KV_DECODE_STEPS], char hex[KV_HASH_HEX])
{
    kv_hash h;
    kv_hash_init(&h);
    for (int64_t layer = 0; layer < layers; layer++) kv_digest_logits(&h, &d[layer]);
    kv_hash_final_hex(&h, hex);
    memcpy(tokens, d[0].tokens, sizeof d[0].tokens);
}

/* The token payload of the unit from layer `first` on, moved: window n of it. */
static kv_rc move_tokens(run *x, int64_t first, int64_t n)
{
    finding *f;
    kv_rc rc;
    enter(x, n);
    const kv_payload p = payload_of(x, KV_PAYLOAD_TOKENS, first);
    KV_TRY(rc, out, build_source(x, &p));
    KV_TRY(rc, out, translate(x, AT_TOKENS, 0, x->image[0], 1, x->image[1], x->fill));
    if (!x->row->converts) goto out;
    KV_TRY(rc, out, next_finding(x, DRIFT, &f)); /* how far the values moved */
    rc = OPS->drift(DEV, &x->ix[0], x->image[0], &x->ix[1], x->image[1], &f->is.drift, x->err);
out:
    return rc;
}

/* Decodes layer l of that unit. Where it comes in windows they are moved again for each layer: what is whole is one dense
 * layer. */
static kv_rc decode_layer(run *x, int64_t first, int64_t l, kv_decode_result *d)
{
    const kv_windows *w = &x->windows;
    const kv_index *ix = &w->whole[1];
    kv_rc rc = KV_OK;
    if (w->count == 1) {
        if (l == 0) KV_TRY(rc, out, move_tokens(x, first, 0));
        return OPS->decode(DEV, ix, x->image[1], l, x->c->seed, first + l, x->third, d, x->err);
    }
    for (int64_t n = 0; n < w->count; n++) {
        const kv_window at = {kv_windows_first(w, n), ix->tokens};
        KV_TRY(rc, out, move_tokens(x, first, n));
        KV_TRY(rc, out, OPS->gather(DEV, &x->ix[1], x->image[1], NULL, l, &at, x->third, x->err));
    }
    rc = OPS->decode_dense(DEV, ix, ix->element, x->third, x->c->seed, first + l, d, x->err);
out:
    return rc;
}

static kv_rc decode_all(run *x)
{
    const int64_t unit = x->windows.whole[0].layers;
    kv_rc rc = KV_OK;
    for (int64_t layer = 0; layer < x->g->layers && rc == KV_OK; layer++)
        rc = decode_layer(x, layer - layer % unit, layer % unit, &x->decoded[layer]);
    return rc == KV_OK ? ask_reference(x) : rc;
}

/* ---- the cell --------------------------------------------------------------------------- */

static kv_rc probe_both(run *x)
{
    const kv_index *ix = x->windows.whole; /* it takes no image, so it is never in windows */
    kv_rc rc;
    x->row->same_image = kv_index_same_image(&ix[0], &ix[1]); /* here: planning a cell must not walk its axes */
    KV_TRY(rc, out, OPS->probe(DEV, &ix[0], &x->probed[0], x->err));
    rc = OPS->probe(DEV, &ix[1], &x->probed[1], x->err);
out:
    return rc;
}

static kv_rc move_all(run *x)
{
    const int32_t payloads = kv_campaign_payloads(x->c, x->g);
    kv_rc rc = KV_OK;
    for (int64_t first = 0; first < x->g->layers; first += x->windows.whole[0].layers)
        for (int64_t n = 0; n < x->windows.count; n++) {
            finding *f;
            enter(x, n);
            for (int32_t k = 0; k < payloads; k++)
                KV_TRY(rc, out, move_payload(x, x->c->exhaustive ? KV_PAYLOAD_SWEEP + k : k, first));
            KV_TRY(rc, out, next_finding(x, ROUND_TRIP, &f));
            KV_TRY(rc, out, OPS->diffset_take(DEV, x->diffs, &f->is.diff, x->err));
        }
out:
    return rc;
}

/* The row of what was found. */
static kv_rc tell(run *x)
{
    const kv_probe_result *s = &x->probed[0], *d = &x->probed[1];
    const kv_index *ix = x->windows.whole;
    kv_row *row = x->row;
    kv_reference *ref = reference_of(x);
    if (ref == NULL) return KV_FAIL(x->err, KV_EDEVICE, "the reference decode failed in another cell");
    look_at_all(x);
    row->source_checked = s->checked;
    row->source_total = ix[0].native;
    row->source_padding = s->padding;
    row->source_bijective = s->bad == 0 && s->elements_hit == ix[0].elements;
    row->checked = d->checked;
    row->total = ix[1].native;
    row->dest_padding = d->padding;
    row->dest_bijective = d->bad == 0 && d->elements_hit == ix[1].elements;
    row->unread_padding = s->padding * (x->g->layers / ix[0].layers);
    row->gather_payloads = kv_campaign_payloads(x->c, x->g);
    /* in the token leg as in a gather: what writes outside reproduces nothing */
    row->gather_agrees = x->gather && !x->overrun;
    row->observed[KV_OBS_FORWARD] = x->forward && !x->overrun && row->source_bijective && row->dest_bijective;
    row->observed[KV_OBS_IDENTICAL] = row->diff_positions == 0;
    /* positions of padding can differ only where the stale value and the fill differ: all of them, or none */
    const int64_t expected = x->stale != x->fill_back ? row->unread_padding : 0;
    row->observed[KV_OBS_DIFF_IS_PADDING] = !x->outside && row->diff_positions == expected;
    if (ref->asked != NULL) {
        digest(ref->asked, x->g->layers, ref->tokens, ref->digest);
        kv_free(ref->asked);
        ref->asked = NULL;
    }
    digest(x->decoded, x->g->layers, row->decoded, row->logits_digest);
    memcpy(row->reference, ref->tokens, sizeof row->reference);
    memcpy(row->reference_digest, ref->digest, sizeof row->reference_digest);
    row->observed[KV_OBS_TOKENS] = memcmp(row->decoded, row->reference, sizeof row->decoded) == 0 &&
                                   strcmp(row->logits_digest, row->reference_digest) == 0;
    row->ran = true;
    row->verdict = (int32_t)kv_grade(false, row->converts, x->g->tokens == 0, row->observed);
    return KV_OK;
}

/* Room for what is found, for any window, and for a dense layer. */
static kv_rc open_images(run *x)
{
    const kv_windows *w = &x->windows;
    kv_rc rc;
    x->found = kv_alloc(FINDINGS, sizeof *x->found);
    x->decoded = kv_alloc((size_t)x->g->layers, sizeof *x->decoded);
    if (x->found == NULL || x->decoded == NULL) return KV_FAIL(x->err, KV_ENOMEM, "no memory for what a cell finds");
    KV_TRY(rc, out, OPS->image_new(DEV, kv_index_bytes(&w->part[0]), &x->image[0], x->err));
    KV_TRY(rc, out, OPS->image_new(DEV, kv_index_bytes(&w->part[1]), &x->image[1], x->err));
    KV_TRY(rc, out, OPS->image_new(DEV, kv_windows_third_bytes(w, x->g), &x->third, x->err));
    KV_TRY(rc, out, OPS->diffset_new(DEV, &w->last[0], &x->set[1], x->err));
    if (w->count > 1) KV_TRY(rc, out, OPS->diffset_new(DEV, &w->part[0], &x->set[0], x->err));
out:
    return rc;
}

static void close_images(run *x)
{
    OPS->diffset_free(DEV, x->set[0]);
    OPS->diffset_free(DEV, x->set[1]);
    OPS->image_free(DEV, x->third);
    OPS->image_free(DEV, x->image[1]);
    OPS->image_free(DEV, x->image[0]);
    kv_free(x->decoded);
    kv_free(x->found);
}

/* Binds both sides; refused cells end here. */
static kv_rc bind_sides(run *x, bool *refused)
{
    const kv_layout *side[2] = {x->c->catalogue.item[x->cell->src], x->c->catalogue.item[x->cell->dst]};
    kv_row *row = x->row;
    kv_layout_frontier frontier;
    kv_rc rc;
    KV_TRY(rc, out, kv_pair_frontier(side[0], side[1], x->g, &frontier, row->reason, x->err));
    row->frontier = (int32_t)frontier;
    row->words = kv_pair_words(side[0], side[1], x->g);
    *refused = frontier != KV_X_NONE;
    if (*refused) goto out;
    const int64_t unit = kv_pair_unit_layers(side[0], side[1], x->g);
    KV_TRY(rc, out, kv_windows_one(side, x->g, unit, &x->windows, x->err));
    enter(x, 0);
    const kv_tail tail = (kv_tail)x->cell->tail;
    x->stale = kv_tail_stale_bits(tail, (kv_elem)x->ix[0].element);
    x->fill = kv_tail_fill_bits(tail, (kv_elem)x->ix[1].element);
    x->fill_back = kv_tail_fill_bits(tail, (kv_elem)x->ix[0].element);
    row->unit_layers = unit;
    row->layers = x->g->layers;
    row->native_bytes[0] = kv_index_bytes(&x->ix[0]);
    row->native_bytes[1] = kv_index_bytes(&x->ix[1]);
    row->converts = x->ix[0].element != x->ix[1].element;
    row->values_preserved = row->finite = true;
out:
    return rc;
}

/* Into as many windows as the memory makes necessary. */
static kv_rc split(run *x)
{
    const kv_layout *side[2] = {x->c->catalogue.item[x->cell->src], x->c->catalogue.item[x->cell->dst]};
    return kv_windows_fit(side, x->g, x->r->memory_bytes, strcmp(OPS->kind, "cpu") != 0, &x->windows, x->err);
}

/* Asks for all of a cell of check "pair". */
static kv_rc ask(run *x)
{
    kv_rc rc = bind_sides(x, &x->refused);
    if (rc != KV_OK || x->refused) return rc;
    x->forward = x->gather = true;
    rc = probe_both(x);
    if (rc == KV_OK) rc = split(x);
    if (rc == KV_OK) rc = open_images(x);
    if (rc == KV_OK) rc = move_all(x);
    if (rc == KV_OK) rc = decode_all(x);
    return rc;
}

static kv_rc ask_cell(run *x, kv_runner *r, const kv_campaign *c, int64_t cell, kv_row *row, kv_err *err)
{
    *x = (run){.r = r, .c = c, .cell = &c->cells[cell], .row = row, .err = err};
    x->g = &c->geometries[x->cell->geometry];
    kv_cell_start_row(row, cell);
    return ask(x);
}

kv_rc kv_cell_ask(kv_runner *r, const kv_campaign *c, int64_t cell, kv_row *row, kv_cell_asked **out, kv_err *err)
{
    run *x = kv_alloc(1, sizeof *x);
    if (x == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a cell");
    *out = x;
    return ask_cell(x, r, c, cell, row, err);
}

kv_rc kv_cell_tell(kv_cell_asked *x, kv_err *err)
{
    x->err = err;
    if (!x->refused) return tell(x);
    x->row->verdict = KV_VERDICT_REFUSED;
    return KV_OK;
}

void kv_cell_drop(kv_cell_asked *x)
{
    if (x == NULL) return;
    close_images(x);
    kv_free(x);
}

kv_rc kv_cell_pair_run(kv_runner *r, const kv_campaign *c, int64_t cell, kv_row *row, kv_err *err)
{
    run x; /* with no memory at all its words are still told */
    kv_rc rc = ask_cell(&x, r, c, cell, row, err);
    if (rc == KV_OK) rc = r->dev->ops->finish(r->dev, err);
    if (rc == KV_OK) rc = kv_cell_tell(&x, err);
    if (rc != KV_OK) kv_cell_forget(r);
    close_images(&x);
    return rc;
}
