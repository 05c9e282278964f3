/* kvgrid run: expand, plan, split over the ranks, check, merge, sign. */
#include <stdio.h>
#include <string.h>

#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/report/kv_gate.h"
#include "grid/run/kv_session.h"

void kv_session_free(kv_session *s)
{
    if (s->runner.dev != NULL) s->runner.dev->ops->close(s->runner.dev);
    kv_runner_free(&s->runner);
    kv_plan_free(&s->plan);
    kv_session_shards_free(s);
    kv_campaign_free(&s->c);
    kv_key_free(s->key);
    kv_free(s->out_path);
    kv_gate_close_baseline(s->baseline);
    kv_pack_free(s->rows);
    kv_free(s->ranks);
    kv_free(s->done);
    kv_free(s->todo);
    kv_free(s->costs);
    for (int i = 0; i < KV_ASSURANCE_ITEMS; i++) json_decref(s->assured[i]);
    kv_machines_free(&s->machines);
    json_decref(s->subject);
}

/* Said once, on rank 0. */
static int interrupted(const kv_session *s)
{
    if (!kv_session_is_root(s)) return KV_EXIT_INTERRUPTED;
    if (s->o->state != NULL)
        fprintf(stderr,
                "kvgrid: interrupted; what is finished stands in %s, run again with the same --state to go on\n",
                s->o->state);
    else
        fprintf(stderr, "kvgrid: interrupted; nothing is kept without --state\n");
    return KV_EXIT_INTERRUPTED;
}

static kv_rc session_run(kv_session *s, int *code, kv_err *err)
{
    kv_err closing = {0};
    kv_rc rc;
    KV_TRY(rc, out, kv_session_prepare(s, err));
    rc = kv_session_compute(s, err);
    if (rc == KV_OK) rc = kv_session_shards_run(s, err);
    if (rc == KV_OK) rc = kv_session_recheck(s, err);
    if (rc == KV_OK) rc = kv_session_shards_count(s, err);
    if (rc == KV_OK) rc = kv_session_finish(s, code, err);
    if (rc == KV_EINTR) {
        *code = interrupted(s);
        rc = KV_OK;
    }
out:
    if (kv_journal_close(s->journal, &closing) != KV_OK && rc == KV_OK) {
        *err = closing;
        rc = closing.rc;
    }
    s->journal = NULL;
    return rc;
}

/* All ranks leave with rank 0's exit code: a launcher reports whichever rank ends first. */
static int agreed_code(const kv_session *s, int code)
{
    kv_buf text = {0};
    const char byte = (char)code;
    if (kv_mpi_broken(s->m)) return code;
    if (kv_session_is_root(s) && kv_buf_append(&text, &byte, 1, NULL) != KV_OK) return code;
    if (kv_mpi_bcast_bytes(s->m, &text, NULL) == KV_OK && text.len == 1) code = text.data[0];
    kv_buf_free(&text);
    return code;
}

int kv_cmd_run(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    kv_session s = {.o = o};
    int code = KV_EXIT_OK;
    const time_t now = time(NULL);
    struct tm utc;
    strftime(s.started, sizeof s.started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    clock_gettime(CLOCK_MONOTONIC, &s.begin);
    kv_rc rc = kv_demand_parse(o->require, &s.demand, &err);
    if (rc != KV_OK) return kv_ask_fail_once(&err);
    kv_session_catch_signals();
    rc = kv_mpi_start((double)o->timeout_s, &s.m, &err);
    if (rc != KV_OK) {
        (void)kv_ask_fail(&err); /* each copy says it: there may be no world to agree in */
        return KV_EXIT_FAILED;
    }
    rc = session_run(&s, &code, &err);
    if (rc != KV_OK) code = kv_exit_of(rc);
    if (rc != KV_OK && kv_session_is_root(&s)) code = kv_ask_fail(&err);
    code = kv_session_is_root(&s) ? kv_ask_finish(code) : code;
    code = agreed_code(&s, code);
    kv_session_free(&s);
    kv_mpi_stop(s.m, &err);
    return code;
}
