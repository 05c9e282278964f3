/* Faults and how they are told. */
#include "base/kv_text.h"
#include "certs/kv_json.h"
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void kv_vf_no_memory(kv_vf *v)
{
    v->rc = KV_ENOMEM;
}

const char *kv_vf_at(kv_vf *v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(v->path, sizeof v->path, fmt, ap);
    va_end(ap);
    return v->path;
}

/* Ends text at a whole UTF-8 character no later than byte n. */
static void cut(char *text, size_t n)
{
    if (strlen(text) <= n) return;
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) n--;
    memcpy(text + n, "...", 4);
}

typedef struct {
    char *out;
    size_t n;
} short_text;

static kv_rc to_short_text(void *ctx, const void *bytes, size_t n, kv_err *err)
{
    (void)err;
    short_text *s = ctx;
    size_t room = KV_VF_TEXT - 1 - s->n;
    size_t take = n < room ? n : room;
    memcpy(s->out + s->n, bytes, take);
    s->n += take;
    s->out[s->n] = '\0';
    return take == n ? KV_OK : KV_EUNSUP; /* full: end the writing */
}

const char *kv_vf_show(const json_t *value, char out[KV_VF_TEXT])
{
    short_text s = {out, 0};
    out[0] = '\0';
    if (value == NULL) return "missing";
    if (kv_json_write_sink(value, NULL, to_short_text, &s, NULL) != KV_OK && s.n < KV_VF_TEXT - 1)
        return "(a value with no canonical form)";
    cut(out, KV_VF_TEXT - 8);
    return out;
}

void kv_vf_fault(kv_vf *v, kv_hcode code, const char *path, const char *expected, const char *actual)
{
    kv_verify_report *r = v->report;
    r->has[code] = true;
    if (r->n_faults >= KV_VERIFY_FAULTS_MAX) {
        r->unlisted++;
        return;
    }
    if ((r->n_faults & (r->n_faults - 1)) == 0) { /* grows at 0, 1, 2, 4, 8, ... */
        kv_fault *grown = kv_realloc(r->faults, r->n_faults > 0 ? 2 * r->n_faults : 1, sizeof *grown);
        if (grown == NULL) {
            kv_vf_no_memory(v);
            return;
        }
        r->faults = grown;
    }
    kv_fault f = {code, kv_strdup(path), kv_strdup(expected), kv_strdup(actual)};
    r->faults[r->n_faults++] = f;
    if (f.path == NULL || f.expected == NULL || f.actual == NULL) {
        kv_vf_no_memory(v);
        return;
    }
    kv_text_tame(f.path); /* they quote the document */
    kv_text_tame(f.expected);
    kv_text_tame(f.actual);
}

bool kv_vf_want_text(kv_vf *v, kv_hcode code, const char *path, const char *want, const json_t *value)
{
    char actual[KV_VF_TEXT];
    if (json_is_string(value) && strcmp(json_string_value(value), want) == 0) return true;
    kv_vf_fault(v, code, path, want, kv_vf_show(value, actual));
    return false;
}

bool kv_vf_want_int(kv_vf *v, kv_hcode code, const char *path, int64_t want, const json_t *value)
{
    char expected[32], actual[KV_VF_TEXT];
    if (json_is_integer(value) && json_integer_value(value) == want) return true;
    snprintf(expected, sizeof expected, "%" PRId64, want);
    kv_vf_fault(v, code, path, expected, kv_vf_show(value, actual));
    return false;
}

bool kv_vf_want_bool(kv_vf *v, kv_hcode code, const char *path, bool want, const json_t *value)
{
    char actual[KV_VF_TEXT];
    if (json_is_boolean(value) && json_is_true(value) == want) return true;
    kv_vf_fault(v, code, path, want ? "true" : "false", kv_vf_show(value, actual));
    return false;
}

bool kv_vf_want_null(kv_vf *v, kv_hcode code, const char *path, const json_t *value)
{
    char actual[KV_VF_TEXT];
    if (json_is_null(value)) return true;
    kv_vf_fault(v, code, path, "null", kv_vf_show(value, actual));
    return false;
}

void kv_verify_report_free(kv_verify_report *r)
{
    for (size_t i = 0; i < r->n_faults; i++) {
        kv_free(r->faults[i].path);
        kv_free(r->faults[i].expected);
        kv_free(r->faults[i].actual);
    }
    kv_free(r->faults);
    kv_free(r->campaign);
    memset(r, 0, sizeof *r);
}

static kv_rc put_verdicts(const kv_verify_report *r, kv_buf *out, kv_err *err)
{
    kv_rc rc = kv_buf_printf(out, err, "%" PRId64 " rows", r->rows);
    for (int i = 0; i < KV_VERDICT_COUNT && rc == KV_OK; i++)
        if (r->verdicts[i] > 0)
            rc = kv_buf_printf(out, err, ", %" PRId64 " %s", r->verdicts[i], kv_verdict_name((kv_verdict)i));
    return rc == KV_OK ? kv_buf_puts(out, "\n", err) : rc;
}

static const char *conclusion(const kv_verify_report *r)
{
    if (r->exit_code == 1) return "unreadable";
    if (r->exit_code == 3) return "refused";
    if (r->exit_code == 0) return "sound";
    if (r->nothing_checked) return "sound, but nothing at all was checked";
    return "sound, but it holds FAILED or UNPROVEN rows";
}

kv_rc kv_verify_text(const kv_verify_report *r, kv_buf *out, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (size_t i = 0; i < r->n_faults; i++) {
        const kv_fault *f = &r->faults[i];
        KV_TRY(rc, out,
               kv_buf_printf(out, err, "%s %s: expected %s, found %s\n", kv_hcode_name(f->code), f->path, f->expected,
                             f->actual));
    }
    if (r->unlisted > 0) KV_TRY(rc, out, kv_buf_printf(out, err, "and %zu further faults\n", r->unlisted));
    if (r->campaign != NULL) KV_TRY(rc, out, kv_buf_printf(out, err, "campaign: %s\n", r->campaign));
    if (r->parts > 1)
        KV_TRY(rc, out,
               kv_buf_printf(out, err, "part %lld of %lld only: not the whole campaign\n", (long long)r->part,
                             (long long)r->parts));
    if (r->rows > 0) KV_TRY(rc, out, put_verdicts(r, out, err));
    if (r->key_id[0] != '\0')
        KV_TRY(rc, out,
               kv_buf_printf(out, err, "signed by key %s: signature %s, signer %s\n", r->key_id,
                             r->signature_good ? "good" : "wrong", r->signer_trusted ? "trusted" : "not trusted"));
    if (r->exit_code == 1 || r->exit_code == 3)
        rc = kv_buf_printf(out, err, "%s: %zu fault%s\n", conclusion(r), r->n_faults + r->unlisted,
                           r->n_faults + r->unlisted == 1 ? "" : "s");
    else
        rc = kv_buf_printf(out, err, "%s\n", conclusion(r));
out:
    return rc;
}

static json_t *faults_json(const kv_verify_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_faults && list != NULL; i++) {
        const kv_fault *f = &r->faults[i];
        json_t *one = json_pack("{ssssssss}", "code", kv_hcode_name(f->code), "path", f->path, "expected", f->expected,
                                "actual", f->actual);
        if (json_array_append_new(list, one) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

kv_rc kv_verify_json(const kv_verify_report *r, kv_buf *out, kv_err *err)
{
    json_t *verdicts = json_object();
    for (int i = 0; i < KV_VERDICT_COUNT; i++)
        json_object_set_new(verdicts, kv_verdict_name((kv_verdict)i), json_integer(r->verdicts[i]));
    json_t *o =
        json_pack("{ss,si,so,sI,ss?,ss,sb,sb,sI,so,sI}", "conclusion", conclusion(r), "exit", r->exit_code, "faults",
                  faults_json(r), "unlisted_faults", (json_int_t)r->unlisted, "campaign", r->campaign, "key_id",
                  r->key_id, "signature_good", (int)r->signature_good, "signer_trusted", (int)r->signer_trusted, "rows",
                  (json_int_t)r->rows, "verdicts", verdicts, "positions_checked", (json_int_t)r->positions);
    if (o == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a report");
    kv_rc rc = kv_json_write(o, out, err);
    if (rc == KV_OK) rc = kv_buf_puts(out, "\n", err);
    json_decref(o);
    return rc;
}
