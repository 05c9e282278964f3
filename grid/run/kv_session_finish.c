/* After the work: rank 0 merges all rows into the certificate, signs it, and says how it went. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid/document/kv_issue.h"
#include "grid/report/kv_gate.h"
#include "grid/run/kv_session.h"

/* The rank at the start of "RANK HOST". */
static int rank_of(const char *failed_at)
{
    return (int)strtol(failed_at, NULL, 10);
}

/* What the rank computed on; rows of an earlier run may name ranks that this one does not have. */
static const char *device_of(const kv_session *s, int rank)
{
    const json_t *entry = json_array_get(s->machines.devices, (size_t)rank);
    const char *kind = json_string_value(json_object_get(entry, "device"));
    return kind != NULL ? kind : s->on.dev->ops->kind;
}

static json_t *failures_new(const kv_session *s)
{
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < s->c.n_cells; i++) {
        kv_row row;
        const kv_row *r = &row;
        kv_pack_get(s->rows, (int64_t)i, &row);
        if (r->verdict != KV_VERDICT_FAILED) continue;
        char id[KV_PAIR_ID_TEXT];
        const char *host = strchr(r->failed_at, ' ');
        kv_cell_pair_id(&s->c, &s->c.cells[i], id);
        json_array_append_new(list,
                              json_pack("{s:s,s:s,s:i,s:o,s:s,s:i,s:s,s:s,s:s}", "check",
                                        kv_check_name((kv_check)s->c.cells[i].check), "pair_id", id, "geometry",
                                        s->c.cells[i].geometry, "params", kv_row_params_new(&s->c, &s->c.cells[i]),
                                        "error_class", kv_errclass_name((kv_errclass)r->error_class), "rank",
                                        rank_of(r->failed_at), "host", host != NULL ? host + 1 : "", "device",
                                        device_of(s, rank_of(r->failed_at)), "text", r->reason));
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
    rc = kv_checks_run(&s->c, kv_pack_rows(s->rows), a->controls, a->checks, err);
    return rc == KV_OK ? kv_boundary_new(&s->c, kv_pack_rows(s->rows), &a->boundary, err) : rc;
}

static kv_rc certify(kv_session *s, json_t **doc, kv_err *err)
{
    kv_run_facts facts = {.ranks = kv_mpi_size(s->m),
                          .devices = s->machines.devices,
                          .versions = s->machines.versions,
                          .differences = s->machines.differences,
                          .failures = failures_new(s),
                          .transports = s->transports,
                          .transports_why = json_array_size(s->transports_why) > 0 ? s->transports_why : NULL,
                          .wire = s->wire,
                          .elapsed_ms = (int64_t)(kv_session_seconds(s) * 1e3)};
    memcpy(facts.started, s->started, sizeof facts.started);
    kv_assurance a = {.subject = s->subject};
    const kv_issue_facts issue = {.c = &s->c,
                                  .rows = kv_pack_rows(s->rows),
                                  .assurance = &a,
                                  .facts = &facts,
                                  .key = s->key,
                                  .path = s->out_path};
    kv_rc rc = facts.failures != NULL ? assure(s, &a, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the certificate");
    if (rc == KV_OK) rc = kv_issue(&issue, doc, err);
    json_decref(a.controls);
    json_decref(a.known_limits);
    json_decref(a.checks);
    json_decref(a.boundary);
    json_decref(facts.failures);
    return rc;
}

/* Says how it went; *code is the exit code. */
static kv_rc tell(const kv_session *s, const json_t *doc, int *code, kv_err *err)
{
    const kv_gate_facts facts = {&s->c,
                                 kv_pack_rows(s->rows),
                                 doc,
                                 s->baseline,
                                 s->o->baseline,
                                 s->o->accept_redeclared != 0,
                                 s->o->allow_unproven != 0};
    kv_gate gate = {0};
    kv_rc rc = kv_gate_judge(&facts, &gate, err);
    if (rc == KV_OK)
        rc = s->o->json ? kv_gate_print_json(&facts, &gate, s->out_path, err)
                        : kv_gate_print_text(&facts, s->out_path, err);
    *code = gate.code;
    kv_gate_free(&gate);
    return rc;
}

/* What only the work needed: the document takes its place. */
static void drop_plan(kv_session *s)
{
    kv_plan_free(&s->plan);
    kv_free(s->costs);
    kv_free(s->todo);
    kv_free(s->done);
    kv_free(s->ranks);
    s->costs = NULL;
    s->todo = NULL;
    s->done = NULL;
    s->ranks = NULL;
}

kv_rc kv_session_finish(kv_session *s, int *code, kv_err *err)
{
    kv_rc rc = KV_OK;
    json_t *doc = NULL;
    drop_plan(s);
    if (kv_session_is_root(s)) rc = certify(s, &doc, err);
    if (rc == KV_OK && kv_session_is_root(s)) rc = tell(s, doc, code, err);
    json_decref(doc);
    return kv_mpi_agree(s->m, rc, err);
}
