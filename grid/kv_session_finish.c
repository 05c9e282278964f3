/* After the work: rank 0 merges all rows into the certificate, signs it, and says how it went. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kv_file.h"
#include "certs/kv_cert.h"
#include "grid/kv_ask.h"
#include "grid/kv_doc.h"
#include "grid/kv_exit.h"
#include "grid/kv_session.h"

/* The rank at the start of "RANK HOST". */
static int rank_of(const char *failed_at)
{
    return (int)strtol(failed_at, NULL, 10);
}

static json_t *failures_new(const kv_session *s)
{
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < s->c.n_cells; i++) {
        const kv_row *r = &s->rows[i];
        if (r->verdict != KV_VERDICT_FAILED) continue;
        char id[KV_PAIR_ID_TEXT];
        const char *host = strchr(r->failed_at, ' ');
        kv_cell_pair_id(&s->c, &s->c.cells[i], id);
        json_array_append_new(list, json_pack("{s:s,s:s,s:i,s:o,s:s,s:i,s:s,s:s,s:s}", "check", "pair", "pair_id", id, "geometry",
                                              s->c.cells[i].geometry, "params", kv_row_params_new(&s->c, &s->c.cells[i]), "error_class",
                                              kv_errclass_name((kv_errclass)r->error_class), "rank", rank_of(r->failed_at), "host",
                                              host != NULL ? host + 1 : "", "device", "cpu", "text", r->reason));
    }
    return list;
}

/* Checks and boundary of this run; controls and limits came with the item that made them. */
static kv_rc assure(kv_session *s, kv_assurance *a, kv_err *err)
{
    kv_rc rc = kv_assurance_join(s->assured, &a->controls, &a->known_limits, err);
    if (rc != KV_OK) return rc;
    a->checks = json_array();
    if (a->checks == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the checks");
    rc = kv_checks_run(&s->c, s->rows, a->controls, a->checks, err);
    return rc == KV_OK ? kv_boundary_new(&s->c, s->rows, &a->boundary, err) : rc;
}

static kv_rc certify(kv_session *s, json_t **doc, kv_buf *bytes, kv_err *err)
{
    kv_run_facts facts = {.ranks = kv_mpi_size(s->m), .devices = s->devices, .versions = s->versions,
                          .failures = failures_new(s),
                          .elapsed_ms = (int64_t)(kv_session_seconds(s) * 1e3)};
    memcpy(facts.started, s->started, sizeof facts.started);
    kv_assurance a = {.subject = s->subject};
    kv_rc rc = facts.failures != NULL ? assure(s, &a, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the certificate");
    if (rc == KV_OK) rc = kv_doc_new(&s->c, s->rows, &a, &facts, doc, err);
    json_decref(a.controls);
    json_decref(a.known_limits);
    json_decref(a.checks);
    json_decref(a.boundary);
    json_decref(facts.failures);
    if (rc == KV_OK) rc = kv_cert_seal(*doc, s->key, bytes, err);
    if (rc == KV_OK) rc = kv_file_write(s->out_path, bytes->data, bytes->len, 0644, KV_FILE_REPLACE, err);
    return rc;
}

static void print_text(const kv_session *s, const kv_observed *n, const char *digest)
{
    printf("%" PRId64 " rows: %" PRId64 " EXACT_BYTE, %" PRId64 " EXACT_TOKEN, %" PRId64 " NOT_EXACT, %" PRId64 " REFUSED", n->rows,
           n->verdicts[KV_VERDICT_EXACT_BYTE], n->verdicts[KV_VERDICT_EXACT_TOKEN], n->verdicts[KV_VERDICT_NOT_EXACT],
           n->verdicts[KV_VERDICT_REFUSED]);
    if (n->view_rows > 0) printf(", %" PRId64 " views", n->view_rows);
    if (n->verdicts[KV_VERDICT_UNPROVEN] > 0) printf(", %" PRId64 " UNPROVEN", n->verdicts[KV_VERDICT_UNPROVEN]);
    if (n->verdicts[KV_VERDICT_FAILED] > 0) printf(", %" PRId64 " FAILED", n->verdicts[KV_VERDICT_FAILED]);
    printf("\n%" PRId64 " destination and %" PRId64 " source positions checked\n", n->positions, n->source_positions);
    printf("certificate %s\nbody digest %s\n", s->out_path, digest);
}

static kv_rc print_answer(const kv_session *s, const json_t *doc, const kv_observed *n, kv_err *err)
{
    const char *digest = json_string_value(json_object_get(doc, "body_digest"));
    if (!s->o->json) {
        print_text(s, n, digest);
        return KV_OK;
    }
    json_t *v = json_pack("{s:s,s:s,s:O}", "certificate", s->out_path, "body_digest", digest, "observed", json_object_get(doc, "observed"));
    kv_rc rc = v != NULL ? kv_ask_print_json(v, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the answer");
    json_decref(v);
    return rc;
}

/* The exit code of a run whose certificate stands; says on stderr why it is not 0. */
static int judge(const kv_session *s, const json_t *doc, const kv_observed *n)
{
    kv_err floor = {0};
    if (n->verdicts[KV_VERDICT_FAILED] > 0) {
        const json_t *first = json_array_get(json_object_get(json_object_get(doc, "run"), "failures"), 0);
        fprintf(stderr, "kvgrid: %" PRId64 " rows FAILED; the first is %s: %s\n", n->verdicts[KV_VERDICT_FAILED],
                json_string_value(json_object_get(first, "pair_id")), json_string_value(json_object_get(first, "text")));
        return KV_EXIT_FAILED;
    }
    static const char *const guards[][2] = {{"controls", "passed"}, {"checks", "passed"}, {"known_limits", "demonstrated"}};
    for (size_t i = 0; i < 3; i++) {
        const char *first = NULL;
        if (kv_entries_hold(json_object_get(doc, guards[i][0]), guards[i][1], &first)) continue;
        fprintf(stderr, "kvgrid: %s: \"%s\" did not hold; the certificate says so and verify refuses it (H9)\n", guards[i][0], first);
        return KV_EXIT_WORSE;
    }
    if (!kv_floors_met(doc, &floor)) {
        fprintf(stderr, "kvgrid: %s\n", floor.text);
        return KV_EXIT_WORSE;
    }
    if (n->verdicts[KV_VERDICT_UNPROVEN] > 0 && !s->o->allow_unproven) {
        fprintf(stderr, "kvgrid: %" PRId64 " rows are UNPROVEN\n", n->verdicts[KV_VERDICT_UNPROVEN]);
        return KV_EXIT_WORSE;
    }
    if (n->positions == 0 && n->source_positions == 0 && n->view_rows == 0) {
        fprintf(stderr, "kvgrid: no position was checked in any row; a run in which nothing was checked is not a pass\n");
        return KV_EXIT_WORSE;
    }
    return KV_EXIT_OK;
}

kv_rc kv_session_finish(kv_session *s, int *code, kv_err *err)
{
    kv_rc rc = KV_OK;
    json_t *doc = NULL;
    kv_buf bytes = {0};
    kv_observed n;
    if (kv_session_is_root(s)) rc = certify(s, &doc, &bytes, err);
    if (rc == KV_OK && kv_session_is_root(s)) {
        kv_observe(&s->c, s->rows, &n);
        rc = print_answer(s, doc, &n, err);
        *code = judge(s, doc, &n);
    }
    json_decref(doc);
    kv_buf_free(&bytes);
    return kv_mpi_agree(s->m, rc, err);
}
