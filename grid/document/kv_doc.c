#include "grid/document/kv_doc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "certs/kv_cert.h"
#include "certs/kv_cert_names.h"
#include "certs/kv_json.h"
#include "kv_source.h"

static json_t *u64_text(uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, v);
    return json_string(text);
}

static json_t *copy_or_empty(json_t *list)
{
    return list != NULL ? json_incref(list) : json_array();
}

/* ---- observed and floors ---------------------------------------------------------------- */

void kv_observe(const kv_campaign *c, kv_row_set rows, kv_observed *o)
{
    memset(o, 0, sizeof *o);
    o->rows = (int64_t)c->n_cells;
    for (size_t i = 0; i < c->n_cells; i++) {
        kv_row row;
        const kv_row *r = &row;
        kv_row_set_get(rows, i, &row);
        const bool ran = kv_row_ran(r), view = ran && r->words == (uint32_t)1 << KV_W_VIEW_REINTERPRET;
        o->words |= r->words;
        o->frontiers |= (uint32_t)1 << r->frontier;
        if (r->same_image) o->same_image_rows++;
        if (ran && c->geometries[c->cells[i].geometry].tokens == 0) o->empty_rows++;
        o->measured += ran && ((r->has_codec && r->codec.rows > 0) || r->has_study);
        if (view) {
            o->view_rows++;
            continue;
        }
        o->verdicts[r->verdict]++;
        o->positions += r->checked;
        o->source_positions += r->source_checked;
    }
}

static json_t *observed_new(const kv_observed *o, const kv_assurance *a)
{
    json_t *verdicts = json_object();
    for (int v = 0; verdicts != NULL && v < KV_VERDICT_COUNT; v++)
        json_object_set_new(verdicts, kv_verdict_name((kv_verdict)v), json_integer((json_int_t)o->verdicts[v]));
    return json_pack("{s:I,s:o,s:I,s:I,s:I,s:I,s:I,s:i,s:i,s:I,s:I,s:I}", "rows", (json_int_t)o->rows, "verdicts",
                     verdicts, "positions_checked", (json_int_t)o->positions, "source_positions_checked",
                     (json_int_t)o->source_positions, "view_rows", (json_int_t)o->view_rows, "same_image_rows",
                     (json_int_t)o->same_image_rows, "empty_rows", (json_int_t)o->empty_rows, "words",
                     __builtin_popcount(o->words), "frontier_codes",
                     __builtin_popcount(o->frontiers & ~((uint32_t)1 << KV_X_NONE)), "checks",
                     (json_int_t)json_array_size(a->checks), "controls", (json_int_t)json_array_size(a->controls),
                     "known_limits", (json_int_t)json_array_size(a->known_limits));
}

static const char *const floor_keys[] = {
    "exact_byte", "exact_token",    "not_exact", "refused",  "positions_checked", "source_positions_checked",
    "words",      "frontier_codes", "checks",    "controls", "known_limits",      NULL};
static const char *const floor_verdicts[] = {"EXACT_BYTE", "EXACT_TOKEN", "NOT_EXACT", "REFUSED"};

/* What is observed under a floor's name; borrowed. */
static json_t *observed_of(const json_t *observed, int floor)
{
    return floor < 4 ? json_object_get(json_object_get(observed, "verdicts"), floor_verdicts[floor])
                     : json_object_get(observed, floor_keys[floor]);
}

static json_t *floors_new(const kv_campaign *c, const json_t *observed)
{
    const json_t *given = c->parts == 1 ? json_object_get(c->spec, "floors") : NULL;
    json_t *floors = json_object();
    for (int i = 0; floors != NULL && floor_keys[i] != NULL; i++) {
        json_t *v = json_object_get(given, floor_keys[i]);
        json_object_set(floors, floor_keys[i], v != NULL ? v : observed_of(observed, i));
    }
    return floors;
}

bool kv_floors_met(const json_t *doc, kv_err *err)
{
    const json_t *floors = json_object_get(doc, "floors"), *observed = json_object_get(doc, "observed");
    for (int i = 0; floor_keys[i] != NULL; i++) {
        const json_t *want = json_object_get(floors, floor_keys[i]), *got = observed_of(observed, i);
        if (json_equal(want, got)) continue;
        KV_FAIL(err, KV_EFORMAT, "floor \"%s\" is %lld, observed is %lld", floor_keys[i],
                (long long)json_integer_value(want), (long long)json_integer_value(got));
        return false;
    }
    return true;
}

/* ---- the parts of the body -------------------------------------------------------------- */

static json_t *tail_bits_new(const kv_campaign *c)
{
    json_t *bits = json_object();
    for (size_t t = 0; bits != NULL && t < c->n_tails; t++) {
        json_t *one = json_object();
        for (int e = 0; one != NULL && e < KV_ELEM_COUNT; e++) {
            char stale[12], fill[12];
            const int digits = (int)(2 * kv_elem_bytes((kv_elem)e));
            snprintf(stale, sizeof stale, "%0*" PRIx32, digits, kv_tail_stale_bits(c->tails[t], (kv_elem)e));
            snprintf(fill, sizeof fill, "%0*" PRIx32, digits, kv_tail_fill_bits(c->tails[t], (kv_elem)e));
            json_object_set_new(one, kv_elem_name((kv_elem)e), json_pack("{s:s,s:s}", "stale", stale, "fill", fill));
        }
        json_object_set_new(bits, kv_tail_name(c->tails[t]), one);
    }
    return bits;
}

static json_t *payload_kinds_new(const kv_campaign *c)
{
    if (c->exhaustive) return json_pack("[s]", "every_bit_pattern");
    return json_pack("[s,s,s,s,s,s]", "position_digit_0", "position_digit_1", "position_digit_2", "position_digit_3",
                     "position_digit_4", "random_bits");
}

static json_t *method_new(const kv_campaign *c)
{
    json_t *tail = json_object_get(c->spec, "tail");
    char reproduce[KV_NAME_MAX + 64];
    int32_t payloads = 0;
    for (size_t i = 0; i < c->n_geometries; i++) {
        const int32_t n = kv_campaign_payloads(c, &c->geometries[i]);
        if (n > payloads) payloads = n;
    }
    snprintf(reproduce, sizeof reproduce, "kvgrid run %s.json", c->name);
    return json_pack("{s:i,s:o,s:s,s:o,s:o,s:i,s:i,s:o,s:o,s:s}", "payloads", payloads, "payload_kinds",
                     payload_kinds_new(c), "values", c->exhaustive ? "exhaustive" : "payloads", "tail",
                     tail != NULL ? json_incref(tail) : json_string("stale"), "tail_bits", tail_bits_new(c),
                     "decode_steps", KV_DECODE_STEPS, "vocabulary", KV_VOCABULARY, "weight_seed", u64_text(c->seed),
                     "value_seed", u64_text(c->seed), "reproduce", reproduce);
}

static json_t *catalogue_new(const kv_campaign *c, kv_err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < c->catalogue.n; i++) {
        char digest[KV_HASH_HEX];
        json_t *entry = json_copy(c->catalogue.item[i]->json);
        if (entry == NULL || kv_cert_layout_digest(entry, digest, err) != KV_OK ||
            json_object_set_new(entry, "digest", json_string(digest)) != 0 || json_array_append(list, entry) != 0) {
            json_decref(entry);
            json_decref(list);
            return NULL;
        }
        json_decref(entry);
    }
    return list;
}

kv_rc kv_doc_campaign_digest(const kv_campaign *c, char out[KV_HASH_HEX], kv_err *err)
{
    json_t *catalogue = catalogue_new(c, err);
    kv_rc rc = catalogue != NULL ? kv_cert_campaign_digest(c->spec, catalogue, out, err)
                                 : KV_FAIL(err, KV_ENOMEM, "no memory for a digest");
    json_decref(catalogue);
    return rc;
}

static json_t *geometries_new(const kv_campaign *c)
{
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < c->n_geometries; i++)
        json_array_append_new(list, kv_geometry_json_new(&c->geometries[i]));
    return list;
}

/* Numbers that stand in many bindings, each made once: there are as many bindings as layouts x geometries. */
typedef struct {
    json_t *number[256];
} shared_numbers;

static json_t *number_new(shared_numbers *s, int64_t v)
{
    if (v < 0 || v >= 256) return json_integer((json_int_t)v);
    if (s->number[v] == NULL) s->number[v] = json_integer((json_int_t)v);
    return json_incref(s->number[v]);
}

static json_t *shape_new(shared_numbers *s, const kv_index *ix, int half)
{
    json_t *list = json_array();
    for (int i = 0; list != NULL && half < ix->halves && i < ix->half[half].n; i++)
        json_array_append_new(list, number_new(s, ix->half[half].size[i]));
    return list;
}

static json_t *binding_new(shared_numbers *s, const kv_layout *l, const kv_geometry *g, json_t *geometry, kv_err *err)
{
    kv_index ix;
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    const int64_t unit = kv_pair_unit_layers(l, l, g);
    if (kv_layout_bind(l, g, unit, &ix, &state, reason, err) != KV_OK) return NULL;
    const bool exists = state == KV_BIND_OK;
    const bool identity = exists && ix.element == (int32_t)g->element && kv_index_is_identity(&ix);
    return json_pack("{s:O,s:O,s:b,s:o,s:o,s:b}", "layout", json_object_get(l->json, "name"), "geometry", geometry,
                     "exists", exists, "reason", exists ? json_null() : json_string(reason), "native_shapes",
                     exists ? json_pack("{s:o,s:o}", "k", shape_new(s, &ix, 0), "v", shape_new(s, &ix, 1))
                            : json_null(),
                     "is_identity", identity);
}

/* Gives each binding in order to take, which owns it. */
static kv_rc each_binding(const kv_campaign *c, kv_rc (*take)(void *ctx, json_t *binding, kv_err *err), void *ctx,
                          kv_err *err)
{
    shared_numbers s = {{NULL}};
    kv_rc rc = KV_OK;
    for (size_t g = 0; rc == KV_OK && g < c->n_geometries; g++) {
        json_t *number = json_integer((json_int_t)g);
        for (size_t i = 0; rc == KV_OK && i < c->catalogue.n; i++) {
            json_t *b = binding_new(&s, c->catalogue.item[i], &c->geometries[g], number, err);
            rc = b != NULL ? take(ctx, b, err) : KV_FAIL(err, KV_ENOMEM, "no memory for bindings");
        }
        json_decref(number);
    }
    for (size_t i = 0; i < 256; i++) json_decref(s.number[i]);
    return rc;
}

static kv_rc take_to_list(void *ctx, json_t *binding, kv_err *err)
{
    return json_array_append_new(ctx, binding) == 0 ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for bindings");
}

static json_t *bindings_new(const kv_campaign *c, kv_err *err)
{
    json_t *list = json_array();
    if (list != NULL && each_binding(c, take_to_list, list, err) == KV_OK) return list;
    json_decref(list);
    return NULL;
}

static kv_rc take_to_text(void *ctx, json_t *binding, kv_err *err)
{
    kv_buf *out = ctx;
    kv_rc rc = out->data[out->len - 1] != '[' ? kv_buf_puts(out, ",", err) : KV_OK;
    if (rc == KV_OK) rc = kv_json_write(binding, out, err);
    json_decref(binding);
    return rc;
}

kv_rc kv_doc_bindings(const kv_campaign *c, kv_buf *out, kv_err *err)
{
    kv_rc rc = kv_buf_puts(out, "[", err);
    if (rc == KV_OK) rc = each_binding(c, take_to_text, out, err);
    return rc == KV_OK ? kv_buf_puts(out, "]", err) : rc;
}

static void add_sorted(json_t *list, const char *text)
{
    size_t at = 0;
    while (at < json_array_size(list)) {
        const int order = strcmp(json_string_value(json_array_get(list, at)), text);
        if (order == 0) return;
        if (order > 0) break;
        at++;
    }
    json_array_insert_new(list, at, json_string(text));
}

static json_t *vocabulary_new(const kv_campaign *c, const kv_observed *o)
{
    static const char *const keys[] = {"words", "frontier_codes"};
    /* claims hold for the whole campaign, not for a part */
    const json_t *claims = c->parts == 1 ? json_object_get(c->spec, "claims") : NULL;
    json_t *list = json_array();
    if (list == NULL) return NULL;
    for (int k = 0; claims != NULL && k < 2; k++) {
        const json_t *claimed = json_object_get(claims, keys[k]);
        for (size_t i = 0; i < json_array_size(claimed); i++)
            add_sorted(list, json_string_value(json_array_get(claimed, i)));
    }
    for (int w = 0; claims == NULL && w < KV_W_COUNT; w++)
        if (o->words >> w & 1U) add_sorted(list, kv_layout_word_name((kv_layout_word)w));
    for (int f = KV_X1_LATENT_KV; claims == NULL && f <= KV_X4_GEOMETRY_UNREPRESENTABLE; f++)
        if (o->frontiers >> f & 1U) add_sorted(list, kv_layout_frontier_name((kv_layout_frontier)f));
    return list;
}

static json_t *rows_new(const kv_campaign *c, kv_row_set rows)
{
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < c->n_cells; i++) {
        kv_row row;
        kv_row_set_get(rows, i, &row);
        if (json_array_append_new(list, kv_row_json_new(c, &row)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *run_new(const kv_run_facts *f)
{
    return json_pack("{s:{s:s,s:b,s:s},s:i,s:O,s:o,s:O*,s:O,s:O*,s:O*,s:O,s:s,s:I}", "source", "commit",
                     KV_SOURCE_COMMIT, "dirty", KV_SOURCE_DIRTY, "flags", KV_SOURCE_FLAGS, "ranks", f->ranks, "devices",
                     f->devices, "transports", copy_or_empty(f->transports), "transports_why", f->transports_why,
                     "versions", f->versions, "wire", f->wire, "differences", f->differences, "failures", f->failures,
                     "started", f->started, "elapsed_ms", (json_int_t)f->elapsed_ms);
}

kv_rc kv_doc_new(const kv_campaign *c, kv_row_set rows, json_t *rows_file, const kv_assurance *a,
                 const kv_run_facts *facts, json_t **out, kv_err *err)
{
    kv_observed o;
    char digest[KV_HASH_HEX];
    kv_rc rc = KV_OK;
    kv_observe(c, rows, &o);
    json_t *catalogue = catalogue_new(c, err), *observed = observed_new(&o, a);
    json_t *boundary = a->boundary != NULL ? json_incref(a->boundary)
                                           : json_pack("{s:[],s:[],s:s}", "holds", "does_not_hold", "note", "");
    json_t *doc = NULL, *bindings = rows_file == NULL ? bindings_new(c, err) : NULL;
    if (catalogue != NULL) rc = kv_cert_campaign_digest(c->spec, catalogue, digest, err);
    if (catalogue != NULL && rc == KV_OK && (bindings != NULL || rows_file != NULL))
        doc = json_pack("{s:s,s:{s:s,s:s,s:O},s:o,s:O,s:o,s:O*,s:o,s:O,s:o,s:o,s:o,s:o,s:o,s:O,s:o}", "schema",
                        KV_CERT_SCHEMA, "campaign", "name", c->name, "digest", digest, "spec", c->spec, "method",
                        method_new(c), "catalogue", catalogue, "geometries", geometries_new(c), "bindings", bindings,
                        "vocabulary", vocabulary_new(c, &o), "boundary", boundary, "rows",
                        rows_file != NULL ? json_array() : rows_new(c, rows), "controls", copy_or_empty(a->controls),
                        "checks", copy_or_empty(a->checks), "known_limits", copy_or_empty(a->known_limits), "floors",
                        floors_new(c, observed), "observed", observed, "run", run_new(facts));
    json_decref(catalogue);
    json_decref(observed);
    json_decref(boundary);
    json_decref(bindings);
    if (doc != NULL && ((a->subject != NULL && json_object_set(doc, "subject", a->subject) != 0) ||
                        (rows_file != NULL && json_object_set(doc, "rows_file", rows_file) != 0))) {
        json_decref(doc);
        doc = NULL;
    }
    if (doc == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the certificate");
    *out = doc;
    return KV_OK;
}
