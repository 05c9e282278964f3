/* kvgrid run: expand, plan, split over the ranks, check, merge, sign. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/kv_file.h"
#include "certs/kv_cert.h"
#include "certs/kv_json.h"
#include "grid/kv_ask.h"
#include "grid/kv_assurance.h"
#include "grid/kv_cell_run.h"
#include "grid/kv_demand.h"
#include "grid/kv_doc.h"
#include "grid/kv_exit.h"
#include "grid/kv_machine.h"
#include "grid/kv_plan.h"
#include "grid/kv_progress.h"
#include "mpi/kv_mpi.h"

static volatile sig_atomic_t stop_asked;

static void ask_to_stop(int sig)
{
    (void)sig;
    if (stop_asked) _Exit(KV_EXIT_INTERRUPTED); /* a second signal stops at once */
    stop_asked = 1;
}

/* One run, seen from one rank. Only rank 0 fills what comes after `progress`. */
typedef struct {
    const kv_opts *o;
    kv_mpi *m;
    kv_campaign c;
    kv_plan plan;
    kv_runner runner;
    kv_progress progress;
    char *out_path;
    kv_key *key;
    kv_row *rows;
    json_t *assured[KV_ASSURANCE_ITEMS]; /* made by the ranks that got these items */
    uint64_t *costs; /* of each item: the cells, then the controls and limits */
    json_t *devices, *versions, *subject;
    kv_demand demand;
    char started[32];
    struct timespec begin;
    bool counted; /* something was checked, nothing is worse than asked for */
} session;

static bool is_root(const session *s)
{
    return kv_mpi_rank(s->m) == 0;
}

/* ---- before anything runs --------------------------------------------------------------- */

/* Rank 0: campaign, key, and whether the certificate can be written, before any work is done. */
static kv_rc prepare_root(session *s, kv_err *err)
{
    kv_pass *pass = NULL;
    char *key_path = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_subject_parse(s->o->subject, &s->subject, err));
    KV_TRY(rc, out, kv_ask_campaign(s->o, &s->c, err));
    KV_TRY(rc, out, kv_key_find_path(s->o->key, &key_path, err));
    KV_TRY(rc, out, kv_pass_find((int)s->o->pass_fd, &pass, err));
    KV_TRY(rc, out, kv_key_load(key_path, pass, &s->key, err));
    char name[KV_NAME_MAX + 16];
    snprintf(name, sizeof name, "%s.cert.json", s->c.name);
    s->out_path = kv_strdup(s->o->out != NULL ? s->o->out : name);
    if (s->out_path == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a path");
        goto out;
    }
    KV_TRY(rc, out, kv_file_can_write(s->out_path, err));
    s->rows = kv_alloc(s->c.n_cells, sizeof *s->rows);
    if (s->rows == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for %zu rows", s->c.n_cells);
out:
    kv_pass_free(pass);
    kv_free(key_path);
    return rc;
}

/* All ranks get rank 0's campaign; nobody else touches a shared file. */
static kv_rc share_campaign(session *s, kv_err *err)
{
    kv_buf text = {0};
    kv_rc rc = KV_OK;
    if (is_root(s)) rc = kv_campaign_pack(&s->c, &text, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    if (kv_mpi_size(s->m) == 1) goto out;
    KV_TRY(rc, out, kv_mpi_bcast_bytes(s->m, &text, err));
    if (!is_root(s)) rc = kv_campaign_unpack(text.data, text.len, &s->c, err);
    rc = kv_mpi_agree(s->m, rc, err);
out:
    kv_buf_free(&text);
    return rc;
}

static kv_rc open_device(session *s, kv_err *err)
{
    if (s->o->device != NULL && strcmp(s->o->device, "cuda") == 0)
        return KV_FAIL(err, KV_EUNSUP, "--device cuda: this version computes on the CPU only; use --device cpu or auto");
    return kv_device_cpu_new(&s->runner.dev, err);
}

static kv_rc plan_all(session *s, kv_err *err)
{
    kv_rc rc = kv_plan_new(&s->c, &s->plan, err);
    if (rc == KV_EINVAL && s->o->n_positional > 0 && err->rc == KV_EINVAL) err->rc = rc = KV_EFORMAT;
    if (rc == KV_OK) rc = kv_plan_check_memory(&s->c, &s->plan, kv_mpi_host_size(s->m), err);
    return rc;
}

/* A run weaker than --require is an error before it begins. */
static kv_rc check_demand(const session *s, kv_err *err)
{
    json_t *run = json_pack("{s:i,s:O,s:[]}", "ranks", kv_mpi_size(s->m), "devices", s->devices, "transports");
    kv_rc rc = run != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory to check --require");
    if (run != NULL && !kv_demand_met(&s->demand, run, err)) rc = KV_EUNSUP;
    json_decref(run);
    return rc;
}

static kv_rc prepare(session *s, kv_err *err)
{
    kv_rc rc = KV_OK;
    if (is_root(s)) rc = prepare_root(s, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    KV_TRY(rc, out, share_campaign(s, err));
    rc = open_device(s, err);
    if (rc == KV_OK) rc = plan_all(s, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    KV_TRY(rc, out, kv_machine_gather(s->m, s->runner.dev, &s->devices, &s->versions, err));
    if (is_root(s)) rc = check_demand(s, err);
    rc = kv_mpi_agree(s->m, rc, err);
out:
    return rc;
}

/* ---- the work --------------------------------------------------------------------------- */

static kv_rc run_item(void *ctx, int64_t item, kv_buf *result, kv_err *err)
{
    session *s = ctx;
    kv_row row;
    if (item >= (int64_t)s->c.n_cells) return kv_assurance_make((int)(item - (int64_t)s->c.n_cells), result, err);
    kv_rc rc = kv_cell_run(&s->runner, &s->c, item, &row, err);
    if (rc != KV_OK) return rc;
    if (row.verdict == KV_VERDICT_FAILED)
        snprintf(row.failed_at, sizeof row.failed_at, "%d %s", kv_mpi_rank(s->m), kv_mpi_host_view(s->m, kv_mpi_rank(s->m)));
    return kv_buf_append(result, &row, sizeof row, err);
}

static kv_rc on_result(void *ctx, int64_t item, int rank, const char *bytes, size_t n, kv_err *err)
{
    session *s = ctx;
    if (item >= (int64_t)s->c.n_cells) return kv_json_parse(bytes, n, KV_JSON_BYTES_MAX, &s->assured[item - (int64_t)s->c.n_cells], err);
    if (n != sizeof(kv_row)) return KV_FAIL(err, KV_EBUG, "rank %d sent a row of %zu bytes, want %zu", rank, n, sizeof(kv_row));
    memcpy(&s->rows[item], bytes, n);
    if (s->rows[item].cell != item) return KV_FAIL(err, KV_EBUG, "rank %d sent the row of another cell", rank);
    return KV_OK;
}

static void on_progress(void *ctx, const kv_mpi_progress *p)
{
    session *s = ctx;
    kv_progress_step(&s->progress, p);
}

static kv_rc compute(session *s, kv_err *err)
{
    const size_t n = s->c.n_cells;
    s->costs = kv_alloc(n + KV_ASSURANCE_ITEMS, sizeof *s->costs);
    kv_rc rc = kv_mpi_agree(s->m, s->costs != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for %zu costs", n), err);
    if (rc != KV_OK) return rc;
    memcpy(s->costs, s->plan.costs, n * sizeof *s->costs);
    for (size_t i = 0; i < KV_ASSURANCE_ITEMS; i++) s->costs[n + i] = KV_ASSURANCE_COST;
    const kv_mpi_job job = {.n_items = (int64_t)n + KV_ASSURANCE_ITEMS, .costs = s->costs, .ctx = s, .run_item = run_item,
                            .on_result = on_result, .on_progress = on_progress, .stop = &stop_asked};
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_handler = ask_to_stop;
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGUSR1, &act, NULL);
    kv_progress_start(&s->progress, s->o->progress != NULL && strcmp(s->o->progress, "none") == 0);
    rc = kv_mpi_handout(s->m, &job, err);
    if (is_root(s)) kv_progress_end(&s->progress);
    return rc;
}

/* ---- after the work: rank 0 merges and signs -------------------------------------------- */

/* The rank at the start of "RANK HOST". */
static int rank_of(const char *failed_at)
{
    return (int)strtol(failed_at, NULL, 10);
}

static json_t *failures_new(const session *s)
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
static kv_rc assure(session *s, kv_assurance *a, kv_err *err)
{
    kv_rc rc = kv_assurance_join(s->assured, &a->controls, &a->known_limits, err);
    if (rc != KV_OK) return rc;
    a->checks = json_array();
    if (a->checks == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the checks");
    rc = kv_checks_run(&s->c, s->rows, a->controls, a->checks, err);
    return rc == KV_OK ? kv_boundary_new(&s->c, s->rows, &a->boundary, err) : rc;
}

static kv_rc certify(session *s, json_t **doc, kv_buf *bytes, kv_err *err)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    kv_run_facts facts = {.ranks = kv_mpi_size(s->m), .devices = s->devices, .versions = s->versions,
                          .failures = failures_new(s),
                          .elapsed_ms = (now.tv_sec - s->begin.tv_sec) * 1000 + (now.tv_nsec - s->begin.tv_nsec) / 1000000};
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

static void print_text(const session *s, const kv_observed *n, const char *digest)
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

static kv_rc print_answer(const session *s, const json_t *doc, const kv_observed *n, kv_err *err)
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
static int judge(const session *s, const json_t *doc, const kv_observed *n)
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

static kv_rc finish(session *s, int *code, kv_err *err)
{
    kv_rc rc = KV_OK;
    json_t *doc = NULL;
    kv_buf bytes = {0};
    kv_observed n;
    if (is_root(s)) rc = certify(s, &doc, &bytes, err);
    if (rc == KV_OK && is_root(s)) {
        kv_observe(&s->c, s->rows, &n);
        rc = print_answer(s, doc, &n, err);
        *code = judge(s, doc, &n);
    }
    json_decref(doc);
    kv_buf_free(&bytes);
    return kv_mpi_agree(s->m, rc, err);
}

static kv_rc session_run(session *s, int *code, kv_err *err)
{
    kv_rc rc;
    KV_TRY(rc, out, prepare(s, err));
    rc = compute(s, err);
    if (rc == KV_EINTR) {
        if (is_root(s)) fprintf(stderr, "kvgrid: interrupted; nothing is kept without --state\n");
        *code = KV_EXIT_INTERRUPTED;
        rc = KV_OK;
        goto out;
    }
    if (rc == KV_OK) rc = finish(s, code, err);
out:
    return rc;
}

static void session_free(session *s)
{
    if (s->runner.dev != NULL) s->runner.dev->ops->close(s->runner.dev);
    kv_runner_free(&s->runner);
    kv_plan_free(&s->plan);
    kv_campaign_free(&s->c);
    kv_key_free(s->key);
    kv_free(s->out_path);
    kv_free(s->rows);
    kv_free(s->costs);
    for (int i = 0; i < KV_ASSURANCE_ITEMS; i++) json_decref(s->assured[i]);
    json_decref(s->devices);
    json_decref(s->versions);
    json_decref(s->subject);
}

int kv_cmd_run(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    session s = {.o = o};
    int code = KV_EXIT_OK;
    const time_t now = time(NULL);
    struct tm utc;
    strftime(s.started, sizeof s.started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    clock_gettime(CLOCK_MONOTONIC, &s.begin);
    kv_rc rc = kv_demand_parse(o->require, &s.demand, &err);
    if (rc != KV_OK) return kv_ask_fail_once(&err);
    rc = kv_mpi_start((double)o->timeout_s, &s.m, &err);
    if (rc != KV_OK) {
        (void)kv_ask_fail(&err); /* each copy says it: there may be no world to agree in */
        return KV_EXIT_FAILED;
    }
    rc = session_run(&s, &code, &err);
    if (rc != KV_OK) code = kv_exit_of(rc);
    if (rc != KV_OK && is_root(&s)) code = kv_ask_fail(&err);
    code = is_root(&s) ? kv_ask_finish(code) : code;
    session_free(&s);
    kv_mpi_stop(s.m);
    return code;
}
