/* kvgrid export: a verified certificate in a format that other tools read. A new format is a row of `formats` and
 * an option. */
#include <stdio.h>
#include <string.h>

#include "certs/kv_intoto.h"
#include "certs/kv_json.h"
#include "certs/kv_rows.h"
#include "certs/kv_verify.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/report/kv_expect.h"
#include "grid/report/kv_export.h"

/* What a format is made from: the bytes that were verified, parsed. */
typedef struct {
    const char *path;
    kv_buf bytes;
    json_t *doc;
} certificate;

typedef struct {
    const char *option, *what;
    size_t where; /* of its flag in kv_opts */
    kv_rc (*make)(const kv_opts *o, const certificate *c, kv_out *out, kv_err *err);
} export_format;

static kv_rc make_intoto(const kv_opts *o, const certificate *c, kv_out *out, kv_err *err)
{
    const char *slash = strrchr(c->path, '/');
    const kv_intoto_source source = {c->doc, slash != NULL ? slash + 1 : c->path, c->bytes.data, c->bytes.len, c->path};
    kv_pass *pass = NULL;
    kv_key *key = NULL;
    char *key_path = NULL;
    json_t *statement = NULL;
    kv_buf text = {0};
    kv_rc rc;
    KV_TRY(rc, out, kv_key_find_path(o->key, &key_path, err));
    KV_TRY(rc, out, kv_pass_find((int)o->pass_fd, &pass, err));
    KV_TRY(rc, out, kv_key_load(key_path, pass, &key, err));
    KV_TRY(rc, out, kv_intoto_statement(&source, &statement, err));
    KV_TRY(rc, out, kv_intoto_envelope(statement, key, &text, err));
    kv_out_bytes(out, text.data, text.len);
out:
    kv_buf_free(&text);
    json_decref(statement);
    kv_key_free(key);
    kv_pass_free(pass);
    kv_free(key_path);
    return rc;
}

/* The formats that are written row by row. */
static kv_rc make_rows(const kv_opts *o, const certificate *c, kv_out *out, kv_err *err)
{
    kv_reader r = {0};
    char today[KV_DAY_TEXT];
    kv_expect_today(today);
    kv_rc rc = kv_reader_of_doc(c->doc, c->path, &r, err);
    if (rc == KV_OK) rc = o->junit ? kv_export_junit(&r, today, out, err) : kv_export_csv(&r, out, err);
    kv_reader_close(&r);
    return rc;
}

static const export_format formats[] = {
    {"intoto", "an in-toto test-result statement in a signed DSSE envelope", offsetof(kv_opts, intoto), make_intoto},
    {"junit", "JUnit XML for GitLab and Jenkins", offsetof(kv_opts, junit), make_rows},
    {"csv", "a line for each row", offsetof(kv_opts, csv), make_rows},
};
#define N_FORMATS (sizeof formats / sizeof formats[0])

/* The one format that was asked for. */
static kv_rc choose(const kv_opts *o, const export_format **out, kv_err *err)
{
    kv_buf known = {0};
    kv_rc rc;
    size_t n = 0;
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (*(const int64_t *)(const void *)((const char *)o + formats[i].where) != 0) {
            *out = &formats[i];
            n++;
        }
        KV_TRY(rc, out,
               kv_buf_printf(&known, err, "%s--%s (%s)", i > 0 ? ", " : "", formats[i].option, formats[i].what));
    }
    rc = n == 1 ? KV_OK : KV_FAIL(err, KV_EINVAL, "export: name one format: %s", known.data);
out:
    kv_buf_free(&known);
    return rc;
}

/* The answer must not replace what it is made from: the certificate, its row file, the keys. */
static kv_rc check_output(const kv_opts *o, const char *to, const char *cert, kv_err *err)
{
    kv_buf rows = {0};
    kv_rc rc;
    if (to == NULL) return KV_OK;
    KV_TRY(rc, out, kv_buf_printf(&rows, err, "%s" KV_ROWS_SUFFIX, cert));
    const char *const inputs[] = {cert, rows.data};
    KV_TRY(rc, out, kv_ask_check_output("-o", to, inputs, 2, err));
    rc = kv_ask_spare_keys("-o", to, o, err);
out:
    kv_buf_free(&rows);
    return rc;
}

/* Reads and verifies c->bytes; *code is 1 or 3 and err says why where they are refused. */
static kv_rc check(const kv_opts *o, certificate *c, int *code, kv_err *err)
{
    kv_verify_report report = {0};
    kv_rc rc = kv_verify_file(c->path, o->trust, NULL, &report, &c->bytes, err);
    if (rc != KV_OK) return rc;
    if (report.exit_code != KV_EXIT_OK && report.exit_code != KV_EXIT_WORSE) {
        const kv_fault *f = report.faults; /* refused, so there is one */
        rc = KV_FAIL(err, KV_ESIG, "%s: refused, not exported: %s at %s (%zu faults; kvgrid verify lists them)",
                     c->path, kv_hcode_name(f->code), f->path, report.n_faults + report.unlisted);
        *code = report.exit_code;
    }
    kv_verify_report_free(&report);
    return rc;
}

int kv_cmd_export(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    certificate c = {.path = o->positional[0]};
    kv_out *out = NULL;
    const export_format *format = NULL;
    const char *to = o->out != NULL && strcmp(o->out, "-") != 0 ? o->out : NULL;
    int refused = KV_EXIT_OK;
    kv_rc rc;
    KV_TRY(rc, out, choose(o, &format, &err));
    KV_TRY(rc, out, check_output(o, to, c.path, &err));
    KV_TRY(rc, out, check(o, &c, &refused, &err));
    KV_TRY(rc, out, kv_json_parse(c.bytes.data, c.bytes.len, KV_VERIFY_BYTES_MAX, &c.doc, &err));
    KV_TRY(rc, out, kv_out_open(to, &out, &err));
    rc = kv_out_close(out, format->make(o, &c, out, &err), &err);
out:
    kv_buf_free(&c.bytes);
    json_decref(c.doc);
    if (rc == KV_OK) return kv_ask_finish(KV_EXIT_OK);
    const int code = kv_ask_fail(&err);
    return refused != KV_EXIT_OK ? refused : code;
}
