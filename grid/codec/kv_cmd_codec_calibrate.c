/* kvgrid codec calibrate whiten|table IN OUT. */
#include <string.h>

#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/codec/kv_cmd_codec.h"
#include "grid/codec/kv_codec_calibrate.h"

static const kv_command command = {
    "codec calibrate",
    "whiten|table IN OUT",
    "fit whitening factors to queries, or a level table to K or V rows",
    "whiten: IN is [L][T][Hq][D] of queries before RoPE (--geometry H is their heads, --kv-heads how many kv heads "
    "share\n"
    "them); OUT is a safetensors file of Cholesky factors and inverses. Condition numbers are printed.\n"
    "table: IN is [L][T][H][D] of K or V rows (--stream says which); OUT is 2^bits float32 levels. Even blocks are "
    "fitted,\n"
    "odd ones tell the gain over the built-in table.",
    "geometry kv-heads stream recipe bits outlier pca whiten progress",
    3,
    3,
    NULL};

int kv_codec_cmd_calibrate(int argc, char **argv)
{
    kv_err err = {0};
    kv_opts o;
    bool help = false;
    kv_rc rc = kv_codec_parse(&command, argc, argv, &o, &help, &err);
    if (rc == KV_OK && !help) {
        if (strcmp(o.positional[0], "whiten") == 0)
            rc = kv_codec_calibrate_whiten(&o, &err);
        else if (strcmp(o.positional[0], "table") == 0)
            rc = kv_codec_calibrate_table(&o, &err);
        else
            rc = KV_FAIL(&err, KV_EINVAL, "codec calibrate \"%s\": must be whiten or table", o.positional[0]);
    }
    return rc == KV_OK ? kv_ask_finish(KV_EXIT_OK) : kv_ask_fail(&err);
}
