/* kvgrid codec table CERT: the codec's rows of a certificate side by side. */
#include <stdio.h>

#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/codec/kv_cmd_codec.h"
#include "grid/codec/kv_codec_report.h"
#include "grid/codec/kv_codec_summary.h"

static const kv_command command = {
    "codec table",
    "CERT",
    "the codec rows of a certificate side by side: bytes, errors, what wins at equal bytes, attribution",
    "The certificate is read, not verified: see kvgrid verify. Means are over the seeds of a cell.",
    "format",
    1,
    1,
    NULL};

static kv_rc table(const kv_opts *o, kv_err *err)
{
    kv_reader r = {0};
    json_t *t = NULL;
    kv_rc rc = kv_reader_open(o->positional[0], &r, err);
    if (rc == KV_OK) rc = kv_codec_summary_new(&r, &t, err);
    if (rc == KV_OK && o->json) rc = kv_ask_print_json(t, err);
    if (rc == KV_OK && !o->json) kv_codec_summary_print(t);
    json_decref(t);
    kv_reader_close(&r);
    return rc;
}

int kv_codec_cmd_table(int argc, char **argv)
{
    kv_err err = {0};
    kv_opts o;
    bool help = false;
    kv_rc rc = kv_codec_parse(&command, argc, argv, &o, &help, &err);
    if (rc == KV_OK && !help) rc = table(&o, &err);
    return rc == KV_OK ? kv_ask_finish(KV_EXIT_OK) : kv_ask_fail(&err);
}
