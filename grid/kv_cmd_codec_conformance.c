/* kvgrid codec conformance DIR: a line for each case and for each field that differs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/kv_ask.h"
#include "grid/kv_cmd_codec.h"
#include "grid/kv_codec_conform.h"
#include "grid/kv_exit.h"

typedef struct {
    bool json;
    json_t *cases, *differences; /* differences of the case at hand */
} report;

static void told(void *user, const char *name, const char *field, const char *what)
{
    report *r = user;
    if (!r->json) {
        printf("DIFFERS %s %s %s\n", name, field, what);
    } else {
        json_array_append_new(r->differences, json_pack("{s:s,s:s}", "field", field, "first", what));
    }
}

static void done(void *user, const char *name, int64_t differences)
{
    report *r = user;
    if (!r->json) {
        if (differences == 0) printf("ok %s\n", name);
        return;
    }
    json_array_append_new(r->cases, json_pack("{s:s,s:b,s:O}", "name", name, "ok", (int)(differences == 0),
                                              "differences", r->differences));
    json_decref(r->differences);
    r->differences = json_array();
}

static kv_rc print_sum(report *r, const kv_codec_conform_sum *s, kv_err *err)
{
    if (!r->json) {
        printf("%" PRId64 " cases, %" PRId64 " agree, %" PRId64 " differ in %" PRId64 " fields; %" PRId64
               " k-means refits, %" PRId64 " slots, %" PRId64 " variants\n",
               s->cases, s->cases - s->differ, s->differ, s->fields, s->refits, s->slots, s->variants);
        return KV_OK;
    }
    json_t *v =
        json_pack("{s:O,s:I,s:I,s:I,s:I,s:I,s:I}", "cases", r->cases, "case_count", (json_int_t)s->cases,
                  "differing_cases", (json_int_t)s->differ, "differing_fields", (json_int_t)s->fields, "kmeans_refits",
                  (json_int_t)s->refits, "slots", (json_int_t)s->slots, "variants", (json_int_t)s->variants);
    const kv_rc rc = v != NULL ? kv_ask_print_json(v, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the answer");
    json_decref(v);
    return rc;
}

static int help(void)
{
    printf("kvgrid codec conformance: every vector of a folder of format KKVEC01, on every codec variant.\n\n"
           "usage: kvgrid codec conformance DIR [--format text|json]\n\n"
           "DIR holds index.json and the files that it names. A line for each case, and for each field that differs "
           "the\nfirst difference. Exit code 0 all agree, 4 some differ, 1 the folder or a file cannot be used.\n");
    return kv_ask_finish(KV_EXIT_OK);
}

/* DIR and --format; *folder stays NULL for --help. */
static kv_rc parse(int argc, char **argv, const char **folder, bool *json, bool *wants_help, kv_err *err)
{
    for (int i = 1; i < argc; i++) {
        const char *format = NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *wants_help = true;
            return KV_OK;
        }
        if (strcmp(argv[i], "--format") == 0) {
            format = ++i < argc ? argv[i] : "";
        } else if (strncmp(argv[i], "--format=", 9) == 0) {
            format = argv[i] + 9;
        } else if (argv[i][0] == '-') {
            return KV_FAIL(err, KV_EINVAL, "%s: unknown option; see kvgrid codec conformance --help", argv[i]);
        } else if (*folder != NULL) {
            return KV_FAIL(err, KV_EINVAL, "\"%s\": too many arguments; usage: kvgrid codec conformance DIR", argv[i]);
        } else {
            *folder = argv[i];
        }
        if (format == NULL) continue;
        if (strcmp(format, "text") != 0 && strcmp(format, "json") != 0)
            return KV_FAIL(err, KV_EINVAL, "--format \"%s\": must be one of text|json", format);
        *json = strcmp(format, "json") == 0;
    }
    if (*folder == NULL) return KV_FAIL(err, KV_EINVAL, "an argument is missing; usage: kvgrid codec conformance DIR");
    return KV_OK;
}

int kv_codec_cmd_conformance(int argc, char **argv)
{
    kv_err err = {0};
    kv_codec_conform_sum sum = {0};
    const char *folder = NULL;
    bool wants_help = false;
    report r = {.cases = json_array(), .differences = json_array()};
    kv_rc rc;
    KV_TRY(rc, out, parse(argc, argv, &folder, &r.json, &wants_help, &err));
    if (wants_help) goto out;
    KV_TRY(rc, out, kv_codec_conform(folder, told, done, &r, &sum, &err));
    KV_TRY(rc, out, print_sum(&r, &sum, &err));
out:
    json_decref(r.cases);
    json_decref(r.differences);
    if (rc != KV_OK) return kv_ask_fail(&err);
    if (wants_help) return help();
    return kv_ask_finish(sum.differ == 0 ? KV_EXIT_OK : KV_EXIT_WORSE);
}
