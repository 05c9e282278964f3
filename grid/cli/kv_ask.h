/* What the commands share: a campaign from a file or from options, text for people, errors on stderr. */
#ifndef KV_ASK_H
#define KV_ASK_H

#include "grid/campaign/kv_campaign.h"
#include "grid/cli/kv_opts.h"

/* The campaign that the options ask for: the file, or --pairs and --geometry. *out is zeroed by the caller
 * and freed with kv_campaign_free whatever happened. */
kv_rc kv_ask_campaign(const kv_opts *o, kv_campaign *out, kv_err *err) KV_MUST_USE;

/* "kvgrid: TEXT" on stderr; gives the exit code of err->rc. */
int kv_ask_fail(const kv_err *err);

/* The same, but said by one copy of many only (before MPI: as far as the launcher tells). */
int kv_ask_fail_once(const kv_err *err);

/* Ends stdout: flushes, and gives code, or the exit code of a failed write after one line on stderr. */
int kv_ask_finish(int code);

/* KV_EINVAL where the file to be written is "-", or the same file as one of n inputs (NULL entries are none); `what` is how
 * its command names it, "-o" or "OUT". */
kv_rc kv_ask_check_output(const char *what, const char *out, const char *const *inputs, size_t n, kv_err *err)
    KV_MUST_USE;

/* KV_EINVAL where it is the secret key, its public half or the trusted keys that these options stand for. */
kv_rc kv_ask_spare_keys(const char *what, const char *out, const kv_opts *o, kv_err *err) KV_MUST_USE;

/* "1.5 GiB" and so on. */
#define KV_SIZE_TEXT 32
void kv_ask_size(int64_t bytes, char out[KV_SIZE_TEXT]);

/* Prints a JSON value on stdout with sorted keys and a newline. */
kv_rc kv_ask_print_json(const json_t *v, kv_err *err) KV_MUST_USE;

int kv_cmd_run(const kv_opts *o, int argc, char **argv);
int kv_cmd_plan(const kv_opts *o, int argc, char **argv);
int kv_cmd_verify(const kv_opts *o, int argc, char **argv);
int kv_cmd_merge(const kv_opts *o, int argc, char **argv);
int kv_cmd_diff(const kv_opts *o, int argc, char **argv);
int kv_cmd_show(const kv_opts *o, int argc, char **argv);
int kv_cmd_explain(const kv_opts *o, int argc, char **argv);
int kv_cmd_layouts(const kv_opts *o, int argc, char **argv);
int kv_cmd_keygen(const kv_opts *o, int argc, char **argv);
int kv_cmd_export(const kv_opts *o, int argc, char **argv);
int kv_cmd_bench(const kv_opts *o, int argc, char **argv);
int kv_cmd_codec(const kv_opts *o, int argc, char **argv);

#endif
