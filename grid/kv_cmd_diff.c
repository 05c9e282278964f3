/* kvgrid diff: what got better, worse, new, gone or redeclared from one certificate to another. It reads, it does not verify. */
#include <stdio.h>

#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/report/kv_diff.h"

#define LISTED 100 /* rows of each list in the text */

static kv_rc add_file(kv_diff *d, int side, const char *path, kv_err *err)
{
    kv_reader r = {0};
    kv_rc rc = kv_reader_open(path, &r, err);
    if (rc == KV_OK) rc = kv_diff_add_reader(d, side, &r, err);
    kv_reader_close(&r);
    return rc;
}

int kv_cmd_diff(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    kv_diff d = {0};
    const bool accept = o->accept_redeclared != 0;
    int code = KV_EXIT_OK;
    kv_rc rc;
    for (int s = 0; s < KV_SIDES; s++) KV_TRY(rc, out, add_file(&d, s, o->positional[s], &err));
    KV_TRY(rc, out, kv_diff_compare(&d, &err));
    const bool passes = kv_diff_passes(&d, accept);
    if (o->json)
        rc = kv_diff_print_json(&d, passes, &err);
    else
        rc = kv_diff_text(&d, o->positional[0], o->positional[1], LISTED, &err);
    if (rc != KV_OK) goto out;
    code = kv_ask_finish(passes ? KV_EXIT_OK : KV_EXIT_WORSE);
    if (code == KV_EXIT_WORSE) rc = kv_diff_say(&d, o->positional[0], accept, &err);
out:
    kv_diff_free(&d);
    return rc == KV_OK ? code : kv_ask_fail(&err);
}
