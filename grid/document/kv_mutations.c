/* Controls on the verifier: mutations of a provisional certificate of the built-in published campaign. The
 * document is built and signed with a throw-away key; unmutated it must verify clean; each mutation is
 * signed again (but where the signature is what is mutated) and must be refused with its code. */
#include <stdio.h>
#include <string.h>

#include "certs/kv_cert.h"
#include "certs/kv_verify.h"
#include "grid/campaign/kv_builtin.h"
#include "grid/cell/kv_cell_run.h"
#include "grid/document/kv_assurance.h"
#include "grid/document/kv_doc.h"

typedef struct {
    json_t *doc; /* signed, unmutated */
    kv_key *key, *stranger;
    kv_trust *trust;
    kv_err *err;
} bench;

/* ---- the provisional document ------------------------------------------------------------ */

static json_t *stand_ins(const char *const *names, const char *flag, const char *text_key)
{
    json_t *list = json_array();
    for (const char *const *n = names; list != NULL && *n != NULL; n++)
        json_array_append_new(list, json_pack("{s:s,s:b,s:s}", "name", *n, flag, 1, text_key, "stand-in"));
    return list;
}

/* The controls as they come out where every guard fires: what the verifier holds them against. */
static json_t *stand_in_controls(kv_err *err)
{
    json_t *list = json_array();
    for (const kv_cert_control *c = kv_cert_required_built_in.controls; list != NULL && c->name != NULL; c++) {
        if (kv_control_add(list, c->name, c->guard, c->guard, true, "stand-in", err) == KV_OK) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static kv_rc run_published(kv_device *dev, const kv_campaign *c, kv_row *rows, kv_err *err)
{
    kv_runner runner = {.dev = dev};
    kv_rc rc = KV_OK;
    for (size_t i = 0; rc == KV_OK && i < c->n_cells; i++) {
        rc = kv_cell_run(&runner, c, (int64_t)i, &rows[i], err);
        if (rc == KV_OK && rows[i].verdict == KV_VERDICT_FAILED)
            rc = KV_FAIL(err, KV_EDEVICE, "published campaign, cell %zu: %s", i, rows[i].reason);
    }
    kv_runner_free(&runner);
    return rc;
}

static kv_rc seal(json_t *doc, const kv_key *key, kv_buf *bytes, kv_err *err)
{
    kv_buf_free(bytes);
    return kv_cert_seal(doc, key, bytes, err);
}

static kv_rc build_document(bench *b, kv_device *dev)
{
    kv_campaign c = {0};
    kv_row *rows = NULL;
    kv_buf bytes = {0};
    kv_assurance a = {0};
    kv_run_facts facts = {.ranks = 1, .started = "1970-01-01T00:00:00Z"};
    kv_rc rc;
    KV_TRY(rc, out, kv_builtin_published(&c, b->err));
    rows = kv_alloc(c.n_cells, sizeof *rows);
    facts.devices = json_pack("[{s:i,s:s,s:s,s:s}]", "rank", 0, "host", "", "device", "cpu", "name", "");
    facts.versions = json_object();
    facts.failures = json_array();
    a.controls = stand_in_controls(b->err);
    a.known_limits = stand_ins(kv_cert_required_built_in.known_limits, "demonstrated", "text");
    a.checks = stand_ins(kv_cert_required_built_in.checks, "passed", "detail");
    if (rows == NULL || facts.devices == NULL || facts.versions == NULL || facts.failures == NULL ||
        a.controls == NULL || a.known_limits == NULL || a.checks == NULL) {
        rc = KV_FAIL(b->err, KV_ENOMEM, "no memory for a provisional certificate");
        goto out;
    }
    KV_TRY(rc, out, run_published(dev, &c, rows, b->err));
    KV_TRY(rc, out, kv_boundary_new(&c, kv_row_set_of(rows), &a.boundary, b->err));
    KV_TRY(rc, out, kv_doc_new(&c, kv_row_set_of(rows), NULL, &a, &facts, &b->doc, b->err));
    rc = seal(b->doc, b->key, &bytes, b->err);
out:
    json_decref(a.boundary);
    json_decref(a.controls);
    json_decref(a.known_limits);
    json_decref(a.checks);
    json_decref(facts.devices);
    json_decref(facts.versions);
    json_decref(facts.failures);
    kv_buf_free(&bytes);
    kv_free(rows);
    kv_campaign_free(&c);
    return rc;
}

/* ---- the mutations ----------------------------------------------------------------------- */

static json_t *row_of(json_t *doc, const char *pair)
{
    json_t *rows = json_object_get(doc, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(rows, i), "pair_id")), pair) == 0)
            return json_array_get(rows, i);
    return NULL;
}

static json_t *field(json_t *doc, const char *pair, const char *key)
{
    return json_object_get(row_of(doc, pair), key);
}

static void add_to(json_t *obj, const char *key, json_int_t n)
{
    json_object_set_new(obj, key, json_integer(json_integer_value(json_object_get(obj, key)) + n));
}

#define BYTE_PAIR "sglang->vllm-fa"
#define TOKEN_PAIR "vllm-fa->sglang"
#define REFUSED_PAIR "vllm-fa->deepseek-mla"

static void verdict_relabelled(json_t *d)
{
    json_object_set_new(row_of(d, "vllm-fa->vllm-fp8"), "verdict", json_string("EXACT_BYTE"));
}
static void observation_withheld(json_t *d)
{
    json_object_set_new(field(d, BYTE_PAIR, "observations"), "tokens_identical", json_null());
}
static void gather_agrees_nulled(json_t *d)
{
    json_object_set_new(field(d, BYTE_PAIR, "proof"), "gather_agrees", json_null());
}
static void bijection_denied(json_t *d)
{
    json_object_set_new(field(d, BYTE_PAIR, "proof"), "dest_bijective", json_false());
}
static void proof_deleted(json_t *d)
{
    json_t *proof = field(d, BYTE_PAIR, "proof");
    const char *key;
    json_t *child;
    void *next;
    json_object_foreach_safe(proof, next, key, child)
    {
        (void)child;
        if (strcmp(key, "kind") != 0 && strcmp(key, "lemmas") != 0) json_object_set_new(proof, key, json_null());
    }
}
static void no_lemma(json_t *d)
{
    json_object_set_new(field(d, BYTE_PAIR, "proof"), "lemmas", json_array());
}
static void sampled_proof(json_t *d)
{
    add_to(field(d, BYTE_PAIR, "proof"), "positions_checked", -1);
}
static void one_position_is_the_space(json_t *d)
{
    json_object_set_new(field(d, BYTE_PAIR, "proof"), "positions_checked", json_integer(1));
    json_object_set_new(field(d, BYTE_PAIR, "proof"), "positions_total", json_integer(1));
}
static void trivial_transformation(json_t *d)
{
    json_object_set_new(row_of(d, BYTE_PAIR), "transformations", json_array());
}
/* Every exact row relabelled NOT_EXACT: the hunt has found nothing. */
static void hunt_emptied(json_t *d)
{
    json_t *rows = json_object_get(d, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        if (strncmp(json_string_value(json_object_get(row, "verdict")), "EXACT", 5) == 0)
            json_object_set_new(row, "verdict", json_string("NOT_EXACT"));
    }
}
/* The first row dropped (REFUSED, no positions), counts and floors refitted. */
static void row_dropped(json_t *d)
{
    json_t *o = json_object_get(d, "observed");
    json_array_remove(json_object_get(d, "rows"), 0);
    add_to(o, "rows", -1);
    add_to(json_object_get(o, "verdicts"), "REFUSED", -1);
    add_to(json_object_get(d, "floors"), "refused", -1);
}
static void vocabulary_thinned(json_t *d)
{
    json_array_remove(json_object_get(d, "vocabulary"), 0);
}
static void floor_above(json_t *d)
{
    add_to(json_object_get(d, "floors"), "exact_byte", 1);
}
static void guards_shrunk(json_t *d)
{
    static const char *const lists[] = {"checks", "controls", "known_limits"};
    for (int i = 0; i < 3; i++) {
        json_t *list = json_object_get(d, lists[i]);
        while (json_array_size(list) > 1) json_array_remove(list, 1);
        json_object_set_new(json_object_get(d, "observed"), lists[i], json_integer(1));
        json_object_set_new(json_object_get(d, "floors"), lists[i], json_integer(1));
    }
}
static void failed_check(json_t *d)
{
    json_object_set_new(json_array_get(json_object_get(d, "checks"), 0), "passed", json_false());
}
static void counts_changed(json_t *d)
{
    add_to(json_object_get(d, "observed"), "positions_checked", 1);
}
static void undeclared_engine(json_t *d)
{
    json_object_set_new(row_of(d, BYTE_PAIR), "src", json_string("an-engine"));
}
static void duplicate_pair(json_t *d)
{
    json_t *rows = json_object_get(d, "rows");
    json_t *copy = json_deep_copy(json_array_get(rows, 0));
    json_array_insert_new(rows, 1, copy);
}
static void claim_without_decode(json_t *d)
{
    static const char *const keys[] = {"decoded_tokens", "reference_tokens", "logits_digest",
                                       "reference_logits_digest"};
    for (int i = 0; i < 4; i++) json_object_set_new(field(d, TOKEN_PAIR, "proof"), keys[i], json_null());
}
static void no_frontier(json_t *d)
{
    json_object_set_new(row_of(d, REFUSED_PAIR), "frontier_code", json_string("X2_HEAD_GATHER"));
}
static void wrong_type(json_t *d)
{
    json_array_set_new(json_object_get(d, "vocabulary"), 0, json_integer(7));
}
static void unmutated(json_t *d)
{
    (void)d;
}

/* ---- mutate, sign, verify ---------------------------------------------------------------- */

typedef enum { SIGN_AGAIN, SIGN_AS_STRANGER, CHANGE_A_BYTE, CUT_IN_HALF } finish;

typedef struct {
    const char *name;
    void (*mutate)(json_t *doc);
    finish how;
    int guard; /* kv_hcode, -1: must verify clean */
} mutation;

static const mutation table[] = {
    {"mutation_none", unmutated, SIGN_AGAIN, -1},
    {"mutation_verdict_relabelled", verdict_relabelled, SIGN_AGAIN, KV_H2_VERDICT_NOT_DERIVED},
    {"mutation_observation_withheld", observation_withheld, SIGN_AGAIN, KV_H2_VERDICT_NOT_DERIVED},
    {"mutation_gather_agrees_nulled", gather_agrees_nulled, SIGN_AGAIN, KV_H3_PROOF_MISSING},
    {"mutation_bijection_denied", bijection_denied, SIGN_AGAIN, KV_H2_VERDICT_NOT_DERIVED},
    {"mutation_proof_deleted", proof_deleted, SIGN_AGAIN, KV_H3_PROOF_MISSING},
    {"mutation_no_lemma", no_lemma, SIGN_AGAIN, KV_H3_PROOF_MISSING},
    {"mutation_sampled_proof", sampled_proof, SIGN_AGAIN, KV_H4_PROOF_NOT_EXHAUSTIVE},
    {"mutation_one_position_is_the_space", one_position_is_the_space, SIGN_AGAIN, KV_H4_PROOF_NOT_EXHAUSTIVE},
    {"mutation_trivial_transformation", trivial_transformation, SIGN_AGAIN, KV_H5_TRIVIAL_TRANSFORMATION},
    {"mutation_hunt_emptied", hunt_emptied, SIGN_AGAIN, KV_H6_HUNT_FOUND_NOTHING},
    {"mutation_row_dropped", row_dropped, SIGN_AGAIN, KV_H15_CELL_MISSING},
    {"mutation_vocabulary_thinned", vocabulary_thinned, SIGN_AGAIN, KV_H7_VOCABULARY_NOT_EXERCISED},
    {"mutation_floor_above_observation", floor_above, SIGN_AGAIN, KV_H8_FLOOR_BELOW_OBSERVATION},
    {"mutation_guard_set_shrunk", guards_shrunk, SIGN_AGAIN, KV_H8_FLOOR_BELOW_OBSERVATION},
    {"mutation_failed_check", failed_check, SIGN_AGAIN, KV_H9_GUARD_FAILED_OPEN},
    {"mutation_counts_changed", counts_changed, SIGN_AGAIN, KV_H10_COUNTS_DO_NOT_RECOMPUTE},
    {"mutation_undeclared_engine", undeclared_engine, SIGN_AGAIN, KV_H11_ENGINE_UNDECLARED},
    {"mutation_duplicate_pair", duplicate_pair, SIGN_AGAIN, KV_H12_PAIR_DECLARED_TWICE},
    {"mutation_token_claim_without_decode", claim_without_decode, SIGN_AGAIN, KV_H13_TOKEN_CLAIM_WITHOUT_A_DECODE},
    {"mutation_no_frontier", no_frontier, SIGN_AGAIN, KV_H14_NO_FRONTIER},
    {"mutation_forged_signer", unmutated, SIGN_AS_STRANGER, KV_H1_SIGNATURE_INVALID},
    {"mutation_mutated_byte", unmutated, CHANGE_A_BYTE, KV_H1_SIGNATURE_INVALID},
    {"mutation_wrong_type_in_a_list", wrong_type, SIGN_AGAIN, KV_H0_DOCUMENT_UNREADABLE},
    {"mutation_torn_file", unmutated, CUT_IN_HALF, KV_H0_DOCUMENT_UNREADABLE},
};

/* One digit of the logits digest of the first exact row: canonical, well-typed, and not what was signed. */
static void change_a_byte(kv_buf *bytes)
{
    char *at = strstr(bytes->data, "\"logits_digest\":\"");
    if (at == NULL) return;
    at += strlen("\"logits_digest\":\"");
    *at = *at == '0' ? '1' : '0';
}

static kv_rc one_mutation(bench *b, const mutation *m, json_t *list)
{
    kv_buf bytes = {0};
    kv_verify_report report = {0};
    const char *expected = m->guard < 0 ? "sound" : kv_hcode_name((kv_hcode)m->guard), *actual = "sound";
    json_t *doc = json_deep_copy(b->doc);
    kv_rc rc = doc != NULL ? KV_OK : KV_FAIL(b->err, KV_ENOMEM, "no memory for a mutation");
    if (rc != KV_OK) goto out;
    m->mutate(doc);
    KV_TRY(rc, out, seal(doc, m->how == SIGN_AS_STRANGER ? b->stranger : b->key, &bytes, b->err));
    if (m->how == CHANGE_A_BYTE) change_a_byte(&bytes);
    KV_TRY(rc, out,
           kv_verify_bytes(bytes.data, m->how == CUT_IN_HALF ? bytes.len / 2 : bytes.len, b->trust, NULL, &report,
                           b->err));
    if (m->guard >= 0 && report.has[m->guard])
        actual = expected;
    else if (report.n_faults > 0)
        actual = kv_hcode_name(report.faults[0].code);
    rc = kv_control_add(list, m->name, expected, actual, m->guard < 0 ? report.exit_code == 0 : report.exit_code != 0,
                        "provisional certificate of the built-in published campaign", b->err);
out:
    kv_verify_report_free(&report);
    kv_buf_free(&bytes);
    json_decref(doc);
    return rc;
}

kv_rc kv_mutations_run(kv_device *dev, size_t part, size_t parts, json_t *list, kv_err *err)
{
    const size_t n = sizeof table / sizeof table[0];
    bench b = {.err = err};
    kv_rc rc;
    KV_TRY(rc, out, kv_key_new(NULL, &b.key, err));
    KV_TRY(rc, out, kv_key_new(NULL, &b.stranger, err));
    KV_TRY(rc, out, kv_trust_of_key(b.key, &b.trust, err));
    KV_TRY(rc, out, build_document(&b, dev));
    for (size_t i = n * part / parts; i < n * (part + 1) / parts; i++)
        KV_TRY(rc, out, one_mutation(&b, &table[i], list));
out:
    json_decref(b.doc);
    kv_trust_free(b.trust);
    kv_key_free(b.key);
    kv_key_free(b.stranger);
    return rc;
}
