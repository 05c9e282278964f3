/* kvgrid verify: the verifier of certs/ on a file, and the demands of the caller. */
#include <stdio.h>

#include "certs/kv_json.h"
#include "certs/kv_verify.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/report/kv_gate.h"
#include "grid/run/kv_demand.h"

/* With --expect: whether the campaign's expectations hold today. */
static int check_expect(json_t *doc, const char *path, int code)
{
    kv_err err = {0};
    size_t unmet = 0;
    if (kv_gate_expect_doc(doc, path, &unmet, &err) != KV_OK) return kv_ask_fail(&err);
    return unmet > 0 ? KV_EXIT_WORSE : code;
}

/* Demands on `run`, which the body does not hold: from the same bytes that were verified. */
static int check_demands(const kv_opts *o, const kv_demand *d, const kv_buf *bytes, int code)
{
    json_t *doc = NULL;
    kv_err err = {0};
    if (code != KV_EXIT_OK && code != KV_EXIT_WORSE) return code; /* nothing in it can be relied on */
    if (kv_json_parse(bytes->data, bytes->len, KV_VERIFY_BYTES_MAX, &doc, &err) != KV_OK) return kv_ask_fail(&err);
    const json_t *run = json_object_get(doc, "run");
    if (!kv_demand_met(d, run, &err)) {
        fprintf(stderr, "kvgrid: %s\n", err.text);
        code = KV_EXIT_WORSE;
    }
    if (!o->allow_emulated && kv_demand_emulated(run)) {
        fprintf(stderr, "kvgrid: the certificate was made on an emulated device; --allow-emulated accepts that\n");
        code = KV_EXIT_WORSE;
    }
    if (o->expect) code = check_expect(doc, o->positional[0], code);
    json_decref(doc);
    return code;
}

int kv_cmd_verify(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    kv_verify_report report = {0};
    kv_buf bytes = {0}, text = {0};
    kv_demand demand;
    const kv_verify_opts opts = {.allow_unproven = o->allow_unproven != 0};
    int code = KV_EXIT_OK;
    kv_rc rc;
    KV_TRY(rc, out, kv_demand_parse(o->require, &demand, &err));
    KV_TRY(rc, out, kv_verify_file(o->positional[0], o->trust, &opts, &report, &bytes, &err));
    KV_TRY(rc, out, o->json ? kv_verify_json(&report, &text, &err) : kv_verify_text(&report, &text, &err));
    fputs(text.data, stdout);
    code = check_demands(o, &demand, &bytes, report.exit_code);
out:
    kv_buf_free(&text);
    kv_buf_free(&bytes);
    kv_verify_report_free(&report);
    return rc == KV_OK ? kv_ask_finish(code) : kv_ask_fail(&err);
}
