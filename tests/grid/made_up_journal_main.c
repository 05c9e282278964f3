/* Writes the journal of a whole campaign without running a cell, so that `kvgrid run --state` makes a certificate of very
 * many rows at once: every row says what a right translator would have found, with made-up tokens and logits.
 *
 *   made_up_journal CAMPAIGN STATE_FOLDER [PART/PARTS]
 *
 * For measuring how much memory and time a million rows take; a certificate made from it is of no worth. */
#include <stdio.h>
#include <string.h>

#include "grid/document/kv_doc.h"
#include "grid/run/kv_journal.h"

/* What both directions of a conversion would do to the values is not looked at: it is said to lose something, unless
 * the destination has more bits. */
static void say_conversion(const kv_index ix[2], kv_row *r)
{
    r->converts = ix[0].element != ix[1].element;
    r->values_preserved =
        !r->converts || ix[1].element == KV_ELEM_F32 || ix[0].element == KV_ELEM_FP8_E4M3 || ix[1].elements == 0;
    r->finite = 1;
    r->worst_ppm = r->values_preserved ? 0 : 62500;
}

static void say_proof(const kv_campaign *c, const kv_cell *cell, const kv_index ix[2], kv_row *r)
{
    const kv_geometry *g = &c->geometries[cell->geometry];
    r->unit_layers = ix[0].layers;
    r->layers = g->layers;
    r->source_checked = r->source_total = ix[0].native;
    r->checked = r->total = ix[1].native;
    r->source_padding = ix[0].native - ix[0].elements;
    r->dest_padding = ix[1].native - ix[1].elements;
    r->unread_padding = r->source_padding * (g->layers / ix[0].layers);
    r->diff_positions = cell->tail == KV_TAIL_ZERO ? 0 : r->unread_padding;
    r->source_bijective = r->dest_bijective = r->gather_agrees = 1;
    r->gather_payloads = kv_campaign_payloads(c, g);
    for (int i = 0; i < 2; i++) r->native_bytes[i] = kv_index_bytes(&ix[i]);
    r->same_image = kv_index_same_image(&ix[0], &ix[1]);
}

static void say_tokens(const kv_geometry *g, const kv_index *ix, kv_row *r)
{
    char text[128];
    snprintf(text, sizeof text, "%lld %lld %lld %lld %lld %lld %d", (long long)g->layers, (long long)g->tokens,
             (long long)g->kv_heads, (long long)g->head_dim, (long long)g->head_dim_v, (long long)ix->first_head,
             (int)g->element);
    kv_hash_hex(text, strlen(text), r->logits_digest);
    memcpy(r->reference_digest, r->logits_digest, sizeof r->reference_digest);
    for (int i = 0; i < KV_DECODE_STEPS; i++) r->decoded[i] = r->reference[i] = r->logits_digest[i] % KV_VOCABULARY;
}

static kv_rc make_up(const kv_campaign *c, int64_t at, kv_row *r, kv_err *err)
{
    const kv_cell *cell = &c->cells[at];
    const kv_layout *side[2] = {c->catalogue.item[cell->src], c->catalogue.item[cell->dst]};
    const kv_geometry *g = &c->geometries[cell->geometry];
    kv_layout_frontier f;
    kv_index ix[2];
    kv_rc rc;
    *r = (kv_row){.cell = at, .error_class = -1, .observed = {KV_NULL, KV_NULL, KV_NULL, KV_NULL}};
    KV_TRY(rc, out, kv_pair_frontier(side[0], side[1], g, &f, r->reason, err));
    r->frontier = (int32_t)f;
    r->words = kv_pair_words(side[0], side[1], g);
    for (int i = 0; f == KV_X_NONE && i < 2; i++) {
        kv_bind_state state;
        char reason[KV_REASON_TEXT];
        KV_TRY(rc, out,
               kv_layout_bind(side[i], g, kv_pair_unit_layers(side[0], side[1], g), &ix[i], &state, reason, err));
    }
    if (f == KV_X_NONE) {
        r->ran = 1;
        say_conversion(ix, r);
        say_proof(c, cell, ix, r);
        say_tokens(g, &ix[0], r);
        r->observed[KV_OBS_FORWARD] = ix[0].element == (int32_t)g->element || !r->converts;
        r->observed[KV_OBS_IDENTICAL] = r->diff_positions == 0;
        r->observed[KV_OBS_DIFF_IS_PADDING] = KV_TRUE;
        r->observed[KV_OBS_TOKENS] = KV_TRUE;
    }
    r->verdict = (int32_t)kv_grade(f != KV_X_NONE, r->converts, g->tokens == 0, r->observed);
out:
    return rc;
}

static kv_rc write_all(const kv_campaign *c, const char *state, kv_err *err)
{
    char digest[KV_HASH_HEX];
    int64_t n = 0;
    kv_journal *j = NULL;
    kv_pack *rows = NULL;
    bool *done = kv_alloc(c->n_cells, sizeof *done);
    kv_rc rc =
        done != NULL ? kv_pack_new(c, &rows, err) : KV_FAIL(err, KV_ENOMEM, "no memory for %zu cells", c->n_cells);
    if (rc == KV_OK) rc = kv_doc_campaign_digest(c, digest, err);
    if (rc == KV_OK) rc = kv_journal_open(state, c, digest, rows, done, &n, &j, err);
    for (size_t i = 0; rc == KV_OK && i < c->n_cells; i++) {
        kv_row row;
        if (done[i]) continue;
        rc = make_up(c, (int64_t)i, &row, err);
        if (rc == KV_OK) rc = kv_journal_add(j, c, &row, err);
    }
    const kv_rc closed = kv_journal_close(j, err);
    kv_pack_free(rows);
    kv_free(done);
    return rc == KV_OK ? closed : rc;
}

int main(int argc, char **argv)
{
    kv_err err = {0};
    kv_campaign c = {0};
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "made_up_journal CAMPAIGN STATE_FOLDER [PART/PARTS]\n");
        return 2;
    }
    kv_rc rc = kv_campaign_load(argv[1], argc > 3 ? argv[3] : NULL, &c, &err);
    if (rc == KV_OK) rc = write_all(&c, argv[2], &err);
    if (rc == KV_OK)
        printf("%zu rows\n", c.n_cells);
    else
        fprintf(stderr, "made_up_journal: %s\n", err.text);
    kv_campaign_free(&c);
    return rc == KV_OK ? 0 : 1;
}
