/* kvgrid codec SUB-COMMAND: finds it in one table and runs it. */
#include <stdio.h>
#include <string.h>

#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/codec/kv_cmd_codec.h"

const kv_codec_command kv_codec_commands[] = {
    {"store", "IN OUT --geometry G [OPTIONS]", "compress a raw K and V array into a stored cache", kv_codec_cmd_store},
    {"decode", "IN OUT [--whiten FILE]", "a stored cache back into a raw array", kv_codec_cmd_decode},
    {"inspect", "FILE", "what a stored cache, or one slot, says of itself", kv_codec_cmd_inspect},
    {"calibrate", "whiten|table IN OUT --geometry G [OPTIONS]",
     "fit whitening factors to queries, or a level table to rows", kv_codec_cmd_calibrate},
    {"conformance", "DIR [--format text|json]", "every vector of a folder of format KKVEC01, on every codec variant",
     kv_codec_cmd_conformance},
    {"table", "CERT [--format text|json]", "the codec rows of a certificate side by side", kv_codec_cmd_table},
    {NULL, NULL, NULL, NULL},
};

static int help(void)
{
    printf("kvgrid codec: store and decode KV-cache rows, lossy, in fixed slots.\n\nusage: kvgrid codec SUB-COMMAND "
           "[ARGUMENTS] [OPTIONS]\n\n");
    for (const kv_codec_command *c = kv_codec_commands; c->name != NULL; c++)
        printf("  %s %s\n      %s\n", c->name, c->args, c->summary);
    printf("\nkvgrid codec SUB-COMMAND --help says more.\n");
    return kv_ask_finish(KV_EXIT_OK);
}

int kv_cmd_codec(const kv_opts *o, int argc, char **argv)
{
    kv_err err = {0};
    (void)o;
    if (argc < 3) {
        KV_FAIL(&err, KV_EINVAL, "a sub-command is missing; see kvgrid codec --help");
        return kv_ask_fail(&err);
    }
    if (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0) return help();
    for (const kv_codec_command *c = kv_codec_commands; c->name != NULL; c++)
        if (strcmp(c->name, argv[2]) == 0) return c->run(argc - 2, argv + 2);
    KV_FAIL(&err, KV_EINVAL, "\"%s\" is no sub-command of codec; see kvgrid codec --help", argv[2]);
    return kv_ask_fail(&err);
}
