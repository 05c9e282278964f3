/* The command line: one table of options, one list of commands; parsing and --help read them. */
#ifndef KV_OPTS_H
#define KV_OPTS_H

#include "base/kv_base.h"

#define KV_OPTS_LIST_MAX 256
#define KV_POSITIONAL_MAX 4096

/* Values of all options; a command reads those in its set. Pointers borrow argv. */
typedef struct {
    const char *out, *key, *trust, *layouts, *pairs, *tail, *device, *progress, *format, *select, *require, *subject,
        *state, *part, *sim_seed;
    const char *baseline, *verdict;
    const char *recipe, *stream, *metric, *outlier, *pca, *table, *whiten, *skip_layers; /* codec */
    const char *geometry[KV_OPTS_LIST_MAX];
    int n_geometry;
    int64_t simulate, cores, sim_seeds, seed, timeout_s, time_limit_s, cross_check, pass_fd, ranks, repeat, seal,
        allow_unproven, allow_emulated, intoto, models, help;
    int64_t junit, csv, accept_redeclared, expect, codec, share_gpu, tp_emulate, tp;
    int64_t bits, outlier_budget, share_basis, verify, kv_heads; /* codec; 0: not given, outlier_budget: -1 */
    const char *positional[KV_POSITIONAL_MAX];
    int n_positional;
    bool json; /* --format json */
} kv_opts;

typedef struct kv_command kv_command;
struct kv_command {
    const char *name;
    const char *args;    /* "CERT [PAIR]" */
    const char *summary; /* one line */
    const char *text;    /* more for --help, may be NULL */
    const char *options; /* names of the options it takes, separated by blanks; NULL: parses argv itself */
    int least, most;     /* positional arguments */
    int (*run)(const kv_opts *o, int argc, char **argv); /* gives the exit code */
};

extern const kv_command kv_commands[]; /* ends with a NULL name */

/* Parses argv[2..] for a command. On an error one line says what to do (KV_EINVAL). */
kv_rc kv_opts_parse(const kv_command *cmd, int argc, char **argv, kv_opts *out, kv_err *err) KV_MUST_USE;
/* Help of one command, or of the program (cmd NULL), to stdout. */
void kv_opts_help(const kv_command *cmd);

#endif
