#include "grid/cli/kv_opts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef enum { OPT_FLAG, OPT_INT, OPT_TEXT, OPT_LIST } opt_kind;

typedef struct {
    const char *name, *arg, *choices; /* choices: allowed words separated by |, or NULL */
    opt_kind kind;
    size_t where;
    int64_t least, most;
    const char *help;
} kv_opt;

#define AT(field_) offsetof(kv_opts, field_)
static const kv_opt table[] = {
    {"out", "FILE", NULL, OPT_TEXT, AT(out), 0, 0, "where the answer is written (-o FILE is the same)"},
    {"key", "FILE", NULL, OPT_TEXT, AT(key), 0, 0,
     "secret key that signs; else $KVGRID_KEY, else kvgrid/key.sec in the config folder"},
    {"pass-fd", "N", NULL, OPT_INT, AT(pass_fd), 0, 1 << 20,
     "file descriptor with the passphrase of a sealed key; else $KVGRID_PASSPHRASE"},
    {"trust", "FILE", NULL, OPT_TEXT, AT(trust), 0, 0,
     "trusted public keys; else $KVGRID_TRUST, else kvgrid/trusted.pub in the config folder"},
    {"layouts", "PATH", NULL, OPT_TEXT, AT(layouts), 0, 0,
     "layout file or folder; else $KVGRID_LAYOUTS, else those that come with kvgrid"},
    {"select", "PATTERNS", NULL, OPT_TEXT, AT(select), 0, 0,
     "layouts to use, by names or patterns with * and ?, separated by commas"},
    {"pairs", "WHICH", NULL, OPT_TEXT, AT(pairs), 0, 0,
     "all-ordered, published, or SRC->DST pairs separated by commas"},
    {"geometry", "G", NULL, OPT_LIST, AT(geometry), 0, 0,
     "model geometry as L=3,T=40,H=2,D=8,e=f16 (Dv=.. where V rows differ)"},
    {"tail", "KIND", "stale|zero|nan", OPT_TEXT, AT(tail), 0, 0,
     "what the unused ends of blocks hold: stale (default), zero, nan"},
    {"seed", "N", NULL, OPT_INT, AT(seed), 0, ((int64_t)1 << 53) - 1, "seed of payloads and weights (default 1)"},
    {"device", "KIND", "auto|cpu|cuda", OPT_TEXT, AT(device), 0, 0,
     "where cells run: auto (a GPU if there is one; default of run), cpu (default of bench), cuda"},
    {"share-gpu", NULL, NULL, OPT_FLAG, AT(share_gpu), 0, 0, "ranks of one host may share a GPU"},
    {"tp-emulate", NULL, NULL, OPT_FLAG, AT(tp_emulate), 0, 0,
     "one process plays all ranks of a tensor-parallel cell; recorded as transport emulated"},
    {"timeout", "SECONDS", NULL, OPT_INT, AT(timeout_s), 1, 31536000,
     "longest wait for another rank; must exceed the longest cell (default 3600)"},
    {"part", "I/N", NULL, OPT_TEXT, AT(part), 0, 0,
     "only part I of N of the cells (array jobs); kvgrid merge joins the certificates"},
    {"state", "DIR", NULL, OPT_TEXT, AT(state), 0, 0,
     "folder for finished rows; a run with the same DIR goes on where another was stopped"},
    {"time-limit", "SECONDS", NULL, OPT_INT, AT(time_limit_s), 1, 31536000,
     "stop by itself after this time with exit code 75, as after SIGUSR1"},
    {"cross-check", "PERCENT", NULL, OPT_INT, AT(cross_check), 0, 100,
     "run this share of the cells again on another rank; a disagreement is FAILED"},
    {"progress", "HOW", "auto|none", OPT_TEXT, AT(progress), 0, 0, "progress on stderr: auto (default), none"},
    {"ranks", "N", NULL, OPT_INT, AT(ranks), 1, 1 << 20, "plan for this many ranks (default 1)"},
    {"simulate", NULL, NULL, OPT_FLAG, AT(simulate), 0, 0,
     "forecast the run by simulating hand-out, journal and merge"},
    {"cores", "N", NULL, OPT_INT, AT(cores), 1, 1 << 20, "cores that the simulated ranks share (default: one each)"},
    {"sim-seed", "N", NULL, OPT_TEXT, AT(sim_seed), 0, 0,
     "instead of a forecast: faults and resumes of this seed (64 bits), told line by line"},
    {"sim-seeds", "N", NULL, OPT_INT, AT(sim_seeds), 1, 1000000000,
     "the same for N seeds from --sim-seed (default 1) on"},
    {"repeat", "N", NULL, OPT_INT, AT(repeat), 1, 100000, "measurements of each figure, the median counts (default 9)"},
    {"format", "F", "text|json", OPT_TEXT, AT(format), 0, 0, "text (default) or json"},
    {"seal", NULL, NULL, OPT_FLAG, AT(seal), 0, 0,
     "seal the secret key with a passphrase (--pass-fd or $KVGRID_PASSPHRASE)"},
    {"require", "DEMANDS", NULL, OPT_TEXT, AT(require), 0, 0,
     "a weaker run is an error: device=cuda,transport=nccl,ranks>=8"},
    {"subject", "WHAT", NULL, OPT_TEXT, AT(subject), 0, 0,
     "what was tested, as NAME@sha256:HEX; stands in the certificate"},
    {"intoto", NULL, NULL, OPT_FLAG, AT(intoto), 0, 0, "an in-toto test-result statement in a signed DSSE envelope"},
    {"junit", NULL, NULL, OPT_FLAG, AT(junit), 0, 0,
     "JUnit XML as GitLab and Jenkins read it: a suite per geometry, a case per pair"},
    {"csv", NULL, NULL, OPT_FLAG, AT(csv), 0, 0, "one line a row, with a line of names first"},
    {"baseline", "OLD", NULL, OPT_TEXT, AT(baseline), 0, 0,
     "certificate to compare with; a row that got worse is exit code 4"},
    {"accept-redeclared", NULL, NULL, OPT_FLAG, AT(accept_redeclared), 0, 0,
     "rows whose layout or geometry is declared otherwise do not fail"},
    {"verdict", "V,V", NULL, OPT_TEXT, AT(verdict), 0, 0, "only rows with one of these verdicts, listed one a line"},
    {"expect", NULL, NULL, OPT_FLAG, AT(expect), 0, 0,
     "hold the rows against the campaign's \"expect\" too, as of today"},
    {"allow-emulated", NULL, NULL, OPT_FLAG, AT(allow_emulated), 0, 0,
     "a certificate made on an emulated device is not refused"},
    {"allow-unproven", NULL, NULL, OPT_FLAG, AT(allow_unproven), 0, 0, "UNPROVEN rows do not fail"},
    {"models", NULL, NULL, OPT_FLAG, AT(models), 0, 0, "the model presets that campaigns may name, with their sources"},
    {"recipe", "NAME", "published-serving|published-harness|kv1|kv1-shared", OPT_TEXT, AT(recipe), 0, 0,
     "published-serving, published-harness, kv1 (default) or kv1-shared"},
    {"stream", "S", "k|v", OPT_TEXT, AT(stream), 0, 0, "the array holds only K or only V, as [L][T][H][D]"},
    {"metric", "M", "mse|inner_product|linf", OPT_TEXT, AT(metric), 0, 0, "mse, inner_product or linf"},
    {"bits", "N", NULL, OPT_INT, AT(bits), 1, 4, "bits of a residual's level, 1 to 4 (default: K 3, V 2)"},
    {"outlier", "T", NULL, OPT_TEXT, AT(outlier), 0, 0,
     "scaled residuals above T are kept as fp16; or none (default: K 2, V none)"},
    {"outlier-budget", "PPM", NULL, OPT_INT, AT(outlier_budget), 0, 1000000,
     "outliers that a slot holds, parts per million of its values (default 80000)"},
    {"pca", "SOLVER", "exact|randomized|own", OPT_TEXT, AT(pca), 0, 0,
     "own (default, the same bytes on every machine), exact (LAPACKE), randomized"},
    {"share-basis", NULL, NULL, OPT_FLAG, AT(share_basis), 0, 0, "one basis for all blocks of a head (of a layer)"},
    {"skip-layers", "LIST", NULL, OPT_TEXT, AT(skip_layers), 0, 0,
     "layers that stay as they are, as 0,1,27; or none (default: the recipe's)"},
    {"table", "FILE", NULL, OPT_TEXT, AT(table), 0, 0,
     "2^bits ascending float32 levels; a second file after a comma may serve the other stream"},
    {"whiten", "FILE", NULL, OPT_TEXT, AT(whiten), 0, 0,
     "whitening factors of K, as codec calibrate whiten writes them"},
    {"verify", NULL, NULL, OPT_FLAG, AT(verify), 0, 0, "decode what was stored and report the error"},
    {"kv-heads", "N", NULL, OPT_INT, AT(kv_heads), 1, 1048576, "kv heads that the query heads share (default: H)"},
    {"codec", NULL, NULL, OPT_FLAG, AT(codec), 0, 0, "measure the KV codec instead: store and decode of blocks"},
    {"tp", NULL, NULL, OPT_FLAG, AT(tp), 0, 0, "measure a shard on its way from rank 0 to rank 1 instead"},
    {"help", NULL, NULL, OPT_FLAG, AT(help), 0, 0, "this text"},
};
/* Commands that refuse a second --geometry. */
static const char one_geometry[] = "explain|codec store|codec calibrate";
#define N_OPTIONS (sizeof table / sizeof table[0])

/* Whether `word` (of n characters) stands in a list separated by sep. */
static bool in_list(const char *list, char sep, const char *word, size_t n)
{
    for (const char *p = list; p != NULL && *p != '\0';) {
        const char *end = strchr(p, sep);
        const size_t len = end != NULL ? (size_t)(end - p) : strlen(p);
        if (len == n && strncmp(p, word, n) == 0) return true;
        p = end != NULL ? end + 1 : NULL;
    }
    return false;
}

static bool takes(const kv_command *cmd, const kv_opt *o)
{
    return strcmp(o->name, "help") == 0 || in_list(cmd->options, ' ', o->name, strlen(o->name));
}

static const kv_opt *find(const kv_command *cmd, const char *name, size_t n)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strlen(table[i].name) == n && strncmp(table[i].name, name, n) == 0 && takes(cmd, &table[i]))
            return &table[i];
    return NULL;
}

static kv_rc set_value(const kv_opt *o, const char *value, bool given[N_OPTIONS], kv_opts *out, kv_err *err)
{
    char *base = (char *)out + o->where;
    if (o->kind != OPT_LIST && given[o - table]) return KV_FAIL(err, KV_EINVAL, "--%s is given twice", o->name);
    given[o - table] = true;
    if (o->choices != NULL && !in_list(o->choices, '|', value, strlen(value)))
        return KV_FAIL(err, KV_EINVAL, "--%s \"%s\": must be one of %s", o->name, value, o->choices);
    switch (o->kind) {
    case OPT_FLAG: *(int64_t *)(void *)base = 1; break;
    case OPT_INT:
        if (!kv_parse_i64(value, o->least, o->most, (int64_t *)(void *)base))
            return KV_FAIL(err, KV_EINVAL, "--%s \"%s\": must be an integer from %" PRId64 " to %" PRId64, o->name,
                           value, o->least, o->most);
        break;
    case OPT_TEXT:
        if (*value == '\0') return KV_FAIL(err, KV_EINVAL, "--%s: the value is empty", o->name);
        *(const char **)(void *)base = value;
        break;
    case OPT_LIST:
        if (out->n_geometry == KV_OPTS_LIST_MAX)
            return KV_FAIL(err, KV_EINVAL, "--%s: given more than %d times", o->name, KV_OPTS_LIST_MAX);
        out->geometry[out->n_geometry++] = value;
        break;
    }
    return KV_OK;
}

static kv_rc parse_option(const kv_command *cmd, int argc, char **argv, int *i, bool given[N_OPTIONS], kv_opts *out,
                          kv_err *err)
{
    const char *arg = argv[*i], *value = NULL, *name = arg + 2;
    size_t n = strcspn(name, "=");
    if (strcmp(arg, "-o") == 0) {
        name = "out";
        n = 3;
    } else if (strcmp(arg, "-h") == 0) {
        name = "help";
        n = 4;
    } else if (strncmp(arg, "--", 2) != 0) {
        name = arg;
        n = 0;
    } else if (name[n] == '=') {
        value = name + n + 1;
    }
    const kv_opt *o = n > 0 ? find(cmd, name, n) : NULL;
    if (o == NULL) return KV_FAIL(err, KV_EINVAL, "%s: unknown option; see kvgrid %s --help", arg, cmd->name);
    if (o->kind == OPT_FLAG) {
        if (value != NULL) return KV_FAIL(err, KV_EINVAL, "--%s takes no value", o->name);
        value = "";
    } else if (value == NULL) {
        if (*i + 1 >= argc)
            return KV_FAIL(err, KV_EINVAL, "--%s needs a value (%s); see kvgrid %s --help", o->name, o->arg, cmd->name);
        value = argv[++*i];
    }
    return set_value(o, value, given, out, err);
}

kv_rc kv_opts_parse(const kv_command *cmd, int argc, char **argv, kv_opts *out, kv_err *err)
{
    memset(out, 0, sizeof *out);
    out->seed = 1;
    out->timeout_s = 3600;
    out->pass_fd = -1;
    out->ranks = 1;
    out->repeat = 9;
    out->outlier_budget = -1;
    bool only_files = false, given[N_OPTIONS] = {false};
    for (int i = 2; i < argc; i++) {
        kv_rc rc = KV_OK;
        if (!only_files && strcmp(argv[i], "--") == 0) {
            only_files = true;
        } else if (!only_files && argv[i][0] == '-' && argv[i][1] != '\0') {
            rc = parse_option(cmd, argc, argv, &i, given, out, err);
        } else if (out->n_positional == cmd->most) {
            rc = KV_FAIL(err, KV_EINVAL, "\"%s\": too many arguments; usage: kvgrid %s %s", argv[i], cmd->name,
                         cmd->args);
        } else {
            out->positional[out->n_positional++] = argv[i];
        }
        if (rc != KV_OK) return rc;
    }
    out->json = out->format != NULL && strcmp(out->format, "json") == 0;
    if (!out->help && out->n_positional < cmd->least)
        return KV_FAIL(err, KV_EINVAL, "an argument is missing; usage: kvgrid %s %s", cmd->name, cmd->args);
    return KV_OK;
}

static void help_of_program(void)
{
    printf("kvgrid: which KV cache layout translations are exact, at which geometries and tensor-parallel sizes.\n\n"
           "usage: kvgrid COMMAND [ARGUMENTS] [OPTIONS]\n\n");
    for (const kv_command *c = kv_commands; c->name != NULL; c++) printf("  %-9s %s\n", c->name, c->summary);
    printf("\nkvgrid COMMAND --help says more; kvgrid --version prints versions.\n"
           "exit codes: 0 as expected, 1 input unreadable, 2 usage, 3 certificate refused, 4 worse or unproven,\n"
           "            5 rows failed or output, device or MPI error, 75 interrupted\n");
}

void kv_opts_help(const kv_command *cmd)
{
    if (cmd == NULL) {
        help_of_program();
        return;
    }
    printf("usage: kvgrid %s %s%s[OPTIONS]\n\n%s\n", cmd->name, cmd->args, *cmd->args != '\0' ? " " : "", cmd->summary);
    if (cmd->text != NULL) printf("%s\n", cmd->text);
    printf("\n");
    for (size_t i = 0; i < N_OPTIONS; i++) {
        char left[64];
        if (!takes(cmd, &table[i])) continue;
        snprintf(left, sizeof left, "--%s%s%s", table[i].name, table[i].arg != NULL ? " " : "",
                 table[i].arg != NULL ? table[i].arg : "");
        const bool again = table[i].kind == OPT_LIST && !in_list(one_geometry, '|', cmd->name, strlen(cmd->name));
        printf("  %-22s %s%s\n", left, table[i].help, again ? "; may be repeated" : "");
    }
}
