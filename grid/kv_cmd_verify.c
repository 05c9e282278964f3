/* kvgrid verify: the verifier of certs/, on a file. */
#include <stdio.h>

#include "certs/kv_verify.h"
#include "grid/kv_ask.h"
#include "grid/kv_exit.h"

int kv_cmd_verify(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    kv_verify_report report = {0};
    kv_buf text = {0};
    const kv_verify_opts opts = {.allow_unproven = o->allow_unproven != 0};
    int code = KV_EXIT_OK;
    kv_rc rc;
    KV_TRY(rc, out, kv_verify_file(o->positional[0], o->trust, &opts, &report, &err));
    KV_TRY(rc, out, o->json ? kv_verify_json(&report, &text, &err) : kv_verify_text(&report, &text, &err));
    fputs(text.data, stdout);
    code = report.exit_code;
out:
    kv_buf_free(&text);
    kv_verify_report_free(&report);
    return rc == KV_OK ? kv_ask_finish(code) : kv_ask_fail(&err);
}
