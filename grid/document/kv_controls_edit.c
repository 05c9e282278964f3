/* Controls on declarations: a one-character edit that would raise the number of exact pairs must be seen,
 * because two descriptors become equal (the pair is then a view, and counts for nothing), because two layouts
 * then hold one image, or because the catalogue digest is another one. */
#include <stdio.h>
#include <string.h>

#include "certs/kv_cert.h"
#include "grid/campaign/kv_builtin.h"
#include "grid/document/kv_assurance.h"

typedef struct {
    const char *control, *layout, *key;
    const char *text; /* the new value: a text, or a number */
    int64_t number;   /* where text is NULL */
} edit;

/* What all ordered pairs of a catalogue come to at the published geometry, by expansion. */
typedef struct {
    int64_t exact; /* pairs that would be graded exact: no frontier code, no element change, no view */
    int64_t views; /* pairs of equal bound descriptors */
    int64_t same;  /* exact pairs of one image */
    char digest[KV_HASH_HEX];
} census;

static kv_rc census_pair(const kv_campaign *c, const kv_cell *cell, census *n, kv_err *err)
{
    const kv_layout *s = c->catalogue.item[cell->src], *d = c->catalogue.item[cell->dst];
    const kv_geometry *g = &c->geometries[cell->geometry];
    kv_layout_frontier f;
    kv_index ix[2];
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    kv_rc rc = kv_pair_frontier(s, d, g, &f, reason, err);
    if (rc != KV_OK || f != KV_X_NONE || kv_layout_element(s, g) != kv_layout_element(d, g)) return rc;
    if (kv_pair_words(s, d, g) == (uint32_t)1 << KV_W_VIEW_REINTERPRET) {
        n->views++;
        return KV_OK;
    }
    n->exact++;
    KV_TRY(rc, out, kv_layout_bind(s, g, kv_pair_unit_layers(s, d, g), &ix[0], &state, reason, err));
    KV_TRY(rc, out, kv_layout_bind(d, g, kv_pair_unit_layers(s, d, g), &ix[1], &state, reason, err));
    if (kv_index_same_image(&ix[0], &ix[1])) n->same++;
out:
    return rc;
}

static kv_rc catalogue_digest(const kv_campaign *c, char out[KV_HASH_HEX], kv_err *err)
{
    json_t *list = json_array();
    kv_rc rc = list != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for a control");
    for (size_t i = 0; rc == KV_OK && i < c->catalogue.n; i++)
        if (json_array_append(list, c->catalogue.item[i]->json) != 0)
            rc = KV_FAIL(err, KV_ENOMEM, "no memory for a control");
    if (rc == KV_OK) rc = kv_hash_json(list, NULL, out, err);
    json_decref(list);
    return rc;
}

/* Really expands all ordered pairs of the built-in layouts, with one of them edited (or none: e NULL). */
static kv_rc take_census(const edit *e, census *out, kv_err *err)
{
    kv_catalogue all = {0}, edited = {0};
    kv_campaign c = {0};
    json_t *spec = json_pack("{s:s,s:s,s:s,s:[{s:i,s:i,s:i,s:i,s:s}]}", "schema", KV_CAMPAIGN_SCHEMA, "name", "control",
                             "pairs", "all-ordered", "geometries", "layers", 1, "tokens", 40, "kv_heads", 2, "head_dim",
                             8, "element", "f16");
    kv_rc rc = spec != NULL ? kv_builtin_catalogue(&all, err) : KV_FAIL(err, KV_ENOMEM, "no memory for a control");
    memset(out, 0, sizeof *out);
    for (size_t i = 0; rc == KV_OK && i < all.n; i++) {
        kv_layout *l = NULL;
        json_t *obj = json_deep_copy(all.item[i]->json);
        if (e != NULL && strcmp(all.item[i]->name, e->layout) == 0) {
            json_t *where = strcmp(e->key, "size") == 0 ? json_object_get(obj, "tp") : obj;
            json_object_set_new(where, e->key,
                                e->text != NULL ? json_string(e->text) : json_integer((json_int_t)e->number));
        }
        rc = obj != NULL ? kv_layout_new(obj, "control", &l, err) : KV_FAIL(err, KV_ENOMEM, "no memory for a control");
        if (rc == KV_OK) rc = kv_catalogue_take(&edited, l, "control", err);
        json_decref(obj);
    }
    if (rc == KV_OK) rc = kv_campaign_build(spec, &edited, "control", &c, err);
    for (size_t i = 0; rc == KV_OK && i < c.n_cells; i++) rc = census_pair(&c, &c.cells[i], out, err);
    if (rc == KV_OK) rc = catalogue_digest(&c, out->digest, err);
    kv_campaign_free(&c);
    kv_catalogue_free(&edited);
    kv_catalogue_free(&all);
    json_decref(spec);
    return rc;
}

/* How an edit shows; "unseen" if it does not. */
static const char *seen_by(const census *before, const census *after)
{
    if (after->views > before->views) return "equal_descriptors";
    if (after->same > before->same) return "same_image";
    return strcmp(after->digest, before->digest) != 0 ? "catalogue_digest" : "unseen";
}

kv_rc kv_controls_edits(json_t *list, kv_err *err)
{
    static const struct {
        edit e;
        const char *guard;
    } table[] = {{{"edited_attention", "deepseek-mla", "attention", "gqa", 0}, "equal_descriptors"},
                 {{"edited_element", "vllm-fp8", "element", "same", 0}, "equal_descriptors"},
                 {{"edited_tp_size", "vllm-tp2", "size", NULL, 1}, "equal_descriptors"},
                 {{"edited_x", "vllm-paged-x16", "x", NULL, 1}, "catalogue_digest"}};
    census before, after;
    kv_rc rc = take_census(NULL, &before, err);
    for (size_t i = 0; rc == KV_OK && i < sizeof table / sizeof table[0]; i++) {
        char detail[200];
        const edit *e = &table[i].e;
        rc = take_census(e, &after, err);
        if (rc != KV_OK) break;
        snprintf(detail, sizeof detail,
                 "%s with another %s: %lld exact pairs instead of %lld, %lld views, %lld of one image", e->layout,
                 strcmp(e->key, "size") == 0 ? "tp size" : e->key, (long long)after.exact, (long long)before.exact,
                 (long long)after.views, (long long)after.same);
        /* the edit must matter: without a guard it would have raised the count */
        rc = kv_control_add(list, e->control, table[i].guard, seen_by(&before, &after), after.exact > before.exact,
                            detail, err);
    }
    return rc;
}
