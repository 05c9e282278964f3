/* kvgrid codec conformance DIR: a line for each case and for each field that differs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/kv_text.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/codec/kv_cmd_codec.h"
#include "grid/codec/kv_codec_conform.h"
#include "grid/codec/kv_codec_setup.h"

typedef struct {
    bool json;
    json_t *cases, *differences; /* differences of the case at hand */
} report;

static void told(void *user, const char *name, const char *field, const char *what)
{
    report *r = user;
    char shown[KV_TEXT_SHOWN], first[KV_TEXT_SHOWN];
    kv_text_show(what, first); /* it may quote the index, and be cut within a character */
    if (!r->json) {
        printf("DIFFERS %s %s %s\n", kv_text_show(name, shown), field, first);
    } else {
        json_array_append_new(r->differences, json_pack("{s:s,s:s}", "field", field, "first", first));
    }
}

static void done(void *user, const char *name, bool agrees)
{
    report *r = user;
    char shown[KV_TEXT_SHOWN];
    kv_text_show(name, shown);
    if (!r->json) {
        if (agrees) printf("ok %s\n", shown);
        return;
    }
    json_array_append_new(r->cases,
                          json_pack("{s:s,s:b,s:O}", "name", shown, "ok", (int)agrees, "differences", r->differences));
    json_decref(r->differences);
    r->differences = json_array();
}

static kv_rc print_sum(report *r, const kv_codec_conform_sum *s, kv_err *err)
{
    if (!r->json) {
        printf("%" PRId64 " cases, %" PRId64 " agree, %" PRId64 " differ in %" PRId64 " fields", s->cases,
               s->cases - s->differ - s->unusable, s->differ, s->fields);
        if (s->unusable > 0) printf(", %" PRId64 " cannot be used", s->unusable);
        printf("; %" PRId64 " k-means refits, %" PRId64 " slots, %" PRId64 " variants\n", s->refits, s->slots,
               s->variants);
        return KV_OK;
    }
    json_t *v = json_pack("{s:O,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "cases", r->cases, "case_count", (json_int_t)s->cases,
                          "differing_cases", (json_int_t)s->differ, "differing_fields", (json_int_t)s->fields,
                          "unusable_cases", (json_int_t)s->unusable, "kmeans_refits", (json_int_t)s->refits, "slots",
                          (json_int_t)s->slots, "variants", (json_int_t)s->variants);
    const kv_rc rc = v != NULL ? kv_ask_print_json(v, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the answer");
    json_decref(v);
    return rc;
}

static const kv_command command = {
    "codec conformance",
    "DIR",
    "every vector of a folder of format KKVEC01, on every codec variant",
    "DIR holds index.json and the files that it names. A line for each case, and for each field that differs the\n"
    "first difference; a sha256 or a size in index.json that is not the file's is one too. Exit code 0 all agree,\n"
    "4 some differ, 1 the index or a case's file cannot be used (the other cases run nevertheless).",
    "format",
    1,
    1,
    NULL};

int kv_codec_cmd_conformance(int argc, char **argv)
{
    kv_err err = {0};
    kv_opts o;
    kv_codec_conform_sum sum = {0};
    bool wants_help = false;
    report r = {.cases = json_array(), .differences = json_array()};
    kv_rc rc;
    KV_TRY(rc, out, kv_codec_parse(&command, argc, argv, &o, &wants_help, &err));
    if (wants_help) goto out;
    r.json = o.json;
    rc = kv_codec_conform(o.positional[0], told, done, &r, &sum, &err);
    if (sum.cases > 0) {
        const kv_rc printed = print_sum(&r, &sum, &err);
        if (rc == KV_OK) rc = printed;
    }
out:
    json_decref(r.cases);
    json_decref(r.differences);
    if (rc != KV_OK) return kv_ask_fail(&err);
    return kv_ask_finish(sum.differ == 0 ? KV_EXIT_OK : KV_EXIT_WORSE);
}
