#include "grid/document/kv_issue.h"

#include "base/kv_file.h"
#include "certs/kv_cert.h"
#include "certs/kv_rows.h"
#include "certs/kv_verify.h"
#include "grid/cell/kv_fault.h"

static kv_rc write_rows(const kv_issue_facts *f, kv_rows_writer *w, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (size_t i = 0; rc == KV_OK && i < f->c->n_cells; i++) {
        kv_row row;
        kv_row_set_get(f->rows, i, &row);
        json_t *json = kv_row_json_new(f->c, &row);
        rc = json != NULL ? kv_rows_put(w, json, err) : KV_FAIL(err, KV_ENOMEM, "no memory for a row");
        json_decref(json);
    }
    return rc;
}

/* The document's bytes; rows_file NULL: with its rows. */
static kv_rc make_document(const kv_issue_facts *f, json_t *rows_file, json_t **doc, kv_buf *bytes, kv_err *err)
{
    kv_rc rc = kv_doc_new(f->c, f->rows, rows_file, f->assurance, f->facts, doc, err);
    if (rc == KV_OK && f->parts != NULL && json_object_set(json_object_get(*doc, "run"), "parts", f->parts) != 0)
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for the certificate");
    kv_buf bindings = {0};
    if (rc == KV_OK && rows_file != NULL) rc = kv_doc_bindings(f->c, &bindings, err);
    if (rc == KV_OK) rc = kv_cert_seal_with(*doc, rows_file != NULL ? "bindings" : NULL, &bindings, f->key, bytes, err);
    kv_buf_free(&bindings);
    return rc;
}

/* What an honest run can earn: nothing exact was found, a claim or a floor is not met, a check or a control failed. It stands
 * in the certificate, which is then refused for it; every other fault is one of this program. */
static bool may_stand(kv_hcode code)
{
    return code == KV_H6_HUNT_FOUND_NOTHING || code == KV_H7_VOCABULARY_NOT_EXERCISED ||
           code == KV_H8_FLOOR_BELOW_OBSERVATION || code == KV_H9_GUARD_FAILED_OPEN;
}

/* The bytes must verify before anybody sees them. */
static kv_rc check(const kv_issue_facts *f, const kv_buf *bytes, kv_err *err)
{
    kv_verify_report report = {0};
    kv_trust *trust = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_trust_of_key(f->key, &trust, err));
    KV_TRY(rc, out, kv_verify_bytes(bytes->data, bytes->len, trust, NULL, &report, err));
    for (size_t i = 0; rc == KV_OK && i < report.n_faults; i++) {
        const kv_fault *t = &report.faults[i];
        if (!may_stand(t->code))
            rc = KV_FAIL(err, KV_EBUG,
                         "internal error: the certificate that was made does not verify, %s is not written: %s at %s: "
                         "expected %s, found %s",
                         f->path, kv_hcode_name(t->code), t->path, t->expected, t->actual);
    }
out:
    kv_verify_report_free(&report);
    kv_trust_free(trust);
    return rc;
}

kv_rc kv_issue(const kv_issue_facts *f, json_t **doc, kv_err *err)
{
    kv_rows_writer *w = NULL;
    json_t *rows_file = NULL;
    kv_buf bytes = {0};
    kv_rc rc = KV_OK;
    if (f->c->n_cells > kv_fault_rows_limit(KV_ROWS_IN_DOCUMENT)) {
        KV_TRY(rc, out, kv_rows_create(f->path, &w, err));
        KV_TRY(rc, out, write_rows(f, w, err));
        KV_TRY(rc, out, kv_rows_declare(w, &rows_file, err));
    }
    KV_TRY(rc, out, make_document(f, rows_file, doc, &bytes, err));
    (void)json_object_del(*doc, "rows");
    (void)json_object_del(*doc, "bindings");
    if (rows_file == NULL) rc = check(f, &bytes, err); /* of very many rows it would take as much memory as the run */
out:
    rc = kv_rows_commit(w, rc, err);
    if (rc == KV_OK) rc = kv_file_write(f->path, bytes.data, bytes.len, 0644, KV_FILE_REPLACE, err);
    if (rc == KV_OK && rows_file == NULL) kv_rows_remove_orphan(f->path);
    json_decref(rows_file);
    kv_buf_free(&bytes);
    return rc;
}
