/* grid: the sub-commands of kvgrid codec. Each parses its own arguments; argv[0] is its name. */
#ifndef KV_CMD_CODEC_H
#define KV_CMD_CODEC_H

#include "base/kv_base.h"

typedef struct {
    const char *name, *args, *summary; /* "conformance", "DIR [--format json]", one line */
    int (*run)(int argc, char **argv); /* gives the exit code */
} kv_codec_command;

extern const kv_codec_command kv_codec_commands[]; /* ends with a NULL name */

int kv_codec_cmd_conformance(int argc, char **argv);
int kv_codec_cmd_store(int argc, char **argv);
int kv_codec_cmd_decode(int argc, char **argv);
int kv_codec_cmd_inspect(int argc, char **argv);
int kv_codec_cmd_calibrate(int argc, char **argv);
int kv_codec_cmd_table(int argc, char **argv);

#endif
