#include "grid/kv_issue.h"

#include "base/kv_file.h"
#include "certs/kv_cert.h"
#include "certs/kv_rows.h"
#include "grid/kv_fault.h"

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
out:
    rc = kv_rows_commit(w, rc, err);
    if (rc == KV_OK) rc = kv_file_write(f->path, bytes.data, bytes.len, 0644, KV_FILE_REPLACE, err);
    json_decref(rows_file);
    kv_buf_free(&bytes);
    return rc;
}
