#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/cli/kv_opts.h"
#include "grid/kv_main.h"
#include "kv_source.h"
#include "tp/kv_tp.h"

static int print_version(void)
{
    printf("kvgrid %s (commit %s%s, %s, %s)\nNCCL %s\n", KV_SOURCE_VERSION, KV_SOURCE_COMMIT,
           KV_SOURCE_DIRTY ? ", changed" : "", KV_SOURCE_FLAGS, __VERSION__, kv_tp_nccl_version());
    return kv_ask_finish(KV_EXIT_OK);
}

/* Where the caller closed standard input, output or error, the next file that is opened would get its number, and with it
 * every line that is meant for people. What is opened here instead cannot be written: that is told as before. */
static void fill_standard_descriptors(void)
{
    int fd;
    do fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

int kv_main(int argc, char **argv)
{
    kv_err err = {0};
    kv_opts opts;
    fill_standard_descriptors();
    signal(SIGPIPE, SIG_IGN); /* a closed reader is a write error, said in one line */
    signal(SIGXFSZ, SIG_IGN); /* and so is a file beyond the limit (ulimit -f) */
    if (argc < 2) {
        KV_FAIL(&err, KV_EINVAL, "a command is missing; see kvgrid --help");
        return kv_ask_fail_once(&err);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        kv_opts_help(NULL);
        return kv_ask_finish(KV_EXIT_OK);
    }
    if (strcmp(argv[1], "--version") == 0) return print_version();
    const kv_command *cmd = kv_commands;
    while (cmd->name != NULL && strcmp(cmd->name, argv[1]) != 0) cmd++;
    if (cmd->name == NULL) {
        KV_FAIL(&err, KV_EINVAL, "\"%s\" is no command; see kvgrid --help", argv[1]);
        return kv_ask_fail_once(&err);
    }
    if (argc == 3 && strcmp(argv[2], "--version") == 0) return print_version();
    if (cmd->options == NULL) return cmd->run(NULL, argc, argv);
    if (kv_opts_parse(cmd, argc, argv, &opts, &err) != KV_OK) return kv_ask_fail_once(&err);
    if (opts.help) {
        kv_opts_help(cmd);
        return kv_ask_finish(KV_EXIT_OK);
    }
    return cmd->run(&opts, argc, argv);
}
